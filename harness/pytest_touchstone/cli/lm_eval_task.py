"""Tasks of lm-evaluation-harness in YAML as benchmarks: files of Python with the same prompts and answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import MOST_SETTINGS, read_regular, shown_path

KINDS: Final = ("multiple_choice", "generate_until")

TAKEN: Final = (
    *(
        "task",
        "dataset_path",
        "dataset_name",
        "output_type",
        "test_split",
        "validation_split",
        "fewshot_split",
    ),
    *("training_split", "doc_to_text", "doc_to_target", "doc_to_choice", "target_delimiter", "num_fewshot"),
    *("generation_kwargs", "metadata", "tag", "group", "description"),
)
"""The keys that the benchmark follows."""

HEAD: Final = '''"""{name}, from {file} of lm-evaluation-harness."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, StrictUndefined

from pytest_touchstone import Dataset, FewShot, {kind}, Scores, Shots, benchmark
{imports}
RENDER = Environment(undefined=StrictUndefined, keep_trailing_newline=True)


def rendered(template: str, row: dict[str, Any]) -> str:
    """A template, or the value of the field that it names."""
    return str(row[template]) if template in row else RENDER.from_string(template).render(**row)


TEXT = {text!r}
TARGET = {target!r}
DELIMITER = {delimiter!r}
DESCRIPTION = {description!r}
'''

CHOICES: Final = '''CHOICES = {choices!r}


def choices(row: dict[str, Any]) -> list[str]:
    """The texts of the choices."""
    if isinstance(CHOICES, list):
        return [rendered(one, row) for one in CHOICES]
    if CHOICES in row:
        return [str(one) for one in row[CHOICES]]
    return [str(one) for one in RENDER.compile_expression(CHOICES.strip().strip("{{}}"))(**row)]


def gold(row: dict[str, Any]) -> int:
    """The index of the right choice."""
    said = row[TARGET] if TARGET in row else rendered(str(TARGET), row).strip()
    return int(said) if str(said).isdigit() else choices(row).index(str(said))


def shot(row: dict[str, Any]) -> str:
    """A solved example."""
    return rendered(TEXT, row) + DELIMITER + choices(row)[gold(row)]


@benchmark(
    {name!r},
    version=1,
    data={data},
    asks=Loglikelihood,
    primary="acc",
    metrics=CHOICE_METRICS,
    shots=Shots({shots}, shot),
)
def test_{function}(example: dict[str, Any], fewshot: FewShot) -> Scores:
    """The choice that is likeliest after the text."""
    texts = choices(example)
    asked = [
        fewshot.loglikelihood(rendered(TEXT, example), DELIMITER + text, header=DESCRIPTION) for text in texts
    ]
    answers = yield asked
    return score_choices(answers, texts, gold(example))
'''

ASKED_TEXTS: Final = '''STOP = {stop!r}


def shot(row: dict[str, Any]) -> str:
    """A solved example."""
    return rendered(TEXT, row) + DELIMITER + rendered(TARGET, row)


@benchmark(
    {name!r},
    version=1,
    data={data},
    asks=Generate,
    primary="exact_match",
    metrics=("exact_match",),
    shots=Shots({shots}, shot),
)
def test_{function}(example: dict[str, Any], fewshot: FewShot) -> Scores:
    """A text that is exactly the target."""
    answer = yield fewshot.generate(rendered(TEXT, example), stop=STOP, max_new_tokens={tokens})
    return {{"exact_match": answer.samples[0].text.strip() == rendered(TARGET, example).strip()}}
'''


def of_task(task: Mapping[str, Any], path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the benchmark's file, and lines about what has no counterpart. Raises ``HarnessError`` for another form
    of task."""
    kind = task.get("output_type", "generate_until")
    shown = shown_path(path)
    if kind not in KINDS:
        raise HarnessError(f"{shown}: output_type {kind} has no simple form: expected {' or '.join(KINDS)}")
    for key in ("doc_to_text", "doc_to_target", *(["doc_to_choice"] if kind == KINDS[0] else [])):
        if isinstance(task.get(key), _Python) or key not in task:
            said = "is a Python function" if key in task else "is missing"
            raise HarnessError(f"{shown}: {key} {said}; write that part by hand (docs/benchmarks.md)")
    name = str(task.get("task", path.stem))
    delimiter = task.get("target_delimiter", " ")
    more = {
        "name": name,
        "function": re.sub(r"\W", "_", name),
        "file": path.name,
        "kind": "Loglikelihood" if kind == KINDS[0] else "Generate",
        "imports": "from pytest_touchstone.metrics import CHOICE_METRICS, score_choices\n"
        if kind == KINDS[0]
        else "",
        "text": task["doc_to_text"],
        "target": task["doc_to_target"]
        if isinstance(task["doc_to_target"], str)
        else str(task["doc_to_target"]),
        "delimiter": delimiter,
        "description": task.get("description", ""),
        "choices": task.get("doc_to_choice"),
        "shots": int(task.get("num_fewshot") or 0),
        "data": _data(task, name),
        **_texts(task.get("generation_kwargs") or {}),
    }
    lines = [f"no counterpart: {key}" for key in task if key not in TAKEN and key not in ("metric_list",)]
    lines += _metrics(task, kind)
    if kind != KINDS[0] and task.get("description"):
        lines.append("no counterpart: description of a task of texts; write it into TEXT")
    return (HEAD + (CHOICES if kind == KINDS[0] else ASKED_TEXTS)).format(**more), tuple(lines)


def _data(task: Mapping[str, Any], name: str) -> str:
    split = task.get("test_split") or task.get("validation_split") or "test"
    shots = task.get("fewshot_split") or task.get("training_split")
    parts = [repr(task.get("dataset_path", name))]
    parts += [repr(task["dataset_name"])] if task.get("dataset_name") else []
    parts += [f"split={split!r}"] + ([f"fewshot={shots!r}"] if shots and shots != split else [])
    return f"Dataset({', '.join(parts)})"


def _texts(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    until = kwargs.get("until") or ["\n\n"]
    return {
        "stop": (until,) if isinstance(until, str) else tuple(until),
        "tokens": int(kwargs.get("max_gen_toks", 256)),
    }


def _metrics(task: Mapping[str, Any], kind: str) -> list[str]:
    ours = ("acc", "acc_norm", "acc_bytes") if kind == KINDS[0] else ("exact_match",)
    named = [one.get("metric") for one in task.get("metric_list") or () if isinstance(one, Mapping)]
    return [f"no counterpart: metric {one}" for one in named if one not in ours]


class _Python(str):
    """The name of a Python function in a task."""

    __slots__ = ()


def read_yaml(path: Path) -> dict[str, Any]:
    """Return what a file of lm-evaluation-harness has; raises ``HarnessError`` for one that cannot be read."""
    import yaml

    loader: Any = type(
        "Loader", (yaml.SafeLoader,), {}
    )  # a class of its own, to read ``!function`` as a name
    loader.add_constructor("!function", lambda reader, node: _Python(reader.construct_scalar(node)))
    try:
        found = yaml.load(read_regular(path, MOST_SETTINGS).decode("utf-8"), Loader=loader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise HarnessError(f"cannot read {shown_path(path)}: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise HarnessError(f"{shown_path(path)} is no task or config: expected a table of keys")
    return found
