"""``touchstone migrate``: command lines, config files and tasks of others in our words.

touchstone migrate lm_eval --model hf --model_args pretrained=gpt2 --tasks arc_easy --num_fewshot 25
touchstone migrate python run_evaluation.py --endpoint http://localhost:8000 --config eval_config.json --gpu 1
touchstone migrate eval_config.json           the command that runs it
touchstone migrate my_task.yaml               a choice or generation task as a benchmark, for `> test_my_task.py`
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_touchstone.cli.command import Output
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.core.lm_eval_names import difference, translated
from pytest_touchstone.core.tasks import shipped_names
from pytest_touchstone.core.text import alike

PROGRAMS = ("lm_eval", "lm-eval")
TASKS = (".yaml", ".yml")
CONFIGS = (".json", ".toml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND ... | FILE",
        help="a command line of lm_eval or of a script with --endpoint, a config, or a task in YAML",
    )


def run(options: argparse.Namespace) -> Output:
    """Translate a command line or a file; what has no counterpart is named. Raises ``HarnessError``."""
    words: list[str] = [word for word in options.words if word != "--json"]
    if words[:1] == ["--"]:
        del words[0]
    if len(words) == 1 and " " in words[0]:
        words = shlex.split(words[0])
    if not words:
        raise HarnessError(
            "migrate: COMMAND or FILE is missing, such as `touchstone migrate lm_eval --tasks arc_easy`"
        )
    found = _migrated(words)
    if found.text is not None:
        notes = "".join(f"# {line}\n" for line in found.lines)
        return Output({"text": found.text, "notes": list(found.lines)}, notes + found.text)
    data = {"command": found.command, "notes": list(found.lines)}
    return Output(data, "\n".join((shlex.join(found.command), *(f"  {line}" for line in found.lines))))


def _migrated(words: Sequence[str]) -> Migrated:
    path = Path(words[0])
    if len(words) == 1 and path.suffix in TASKS:
        return of_task(path)
    if len(words) == 1 and path.suffix in CONFIGS:
        from pytest_touchstone.core.eval_config import read_eval_config

        read_eval_config(path, shipped_names())  # raises where it is wrong
        note = f"{words[0]} works as it is; `touchstone validate {words[0]}` shows what it enables"
        return Migrated(("pytest", "evals/", "--eval-config", words[0]), (note,))
    while words and (Path(words[0]).name.startswith("python") or words[0] == "-m"):
        words = words[1:]
    program, rest = (Path(words[0]).name, words[1:]) if words else ("", [])
    if program in PROGRAMS or program.startswith("lm_eval."):
        return of_lm_eval(rest[1:] if rest[:1] == ["run"] else rest, shipped_names())
    if program.endswith((".py", ".sh")) or program.startswith("-"):
        return of_served_script(words if program.startswith("-") else rest)
    if path.suffix:
        raise HarnessError(
            f"migrate: {words[0]}: expected a config ({', '.join(CONFIGS)}) or a task ({TASKS[0]})"
        )
    raise HarnessError(
        f"migrate: {program!r} is not known: expected lm_eval, a script with its options, or a file"
    )


Words: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Migrated:
    """A ``command`` of ours, or the ``text`` of a file, with ``lines`` about what differs."""

    command: Words = ()
    lines: Words = ()
    text: str | None = None


SWITCHES: Final = (
    *("list-benchmarks", "validate-config", "dry-run", "log_samples", "s", "trust_remote_code", "write_out"),
    *("apply_chat_template", "show_config", "predict_only", "check_integrity", "fewshot_as_multiturn"),
    *("confirm_run_unsafe_code",),
)
"""Options that may stand without a value."""

SHORT: Final = {
    "m": "model", "a": "model_args", "t": "tasks", "f": "num_fewshot", "b": "batch_size", "L": "limit",
    "o": "output_path", "s": "log_samples", "c": "use_cache",
}  # fmt: skip
"""The short options of lm_eval."""


def _options(words: Sequence[str], short: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options with their values, empty for switches."""
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        plain = short.get(name.lstrip("-"), name.lstrip("-"))
        values = []
        while not equals and at < len(words) and not re.match(r"--?[A-Za-z]", words[at]):
            values.append(words[at])
            at += 1
            if plain in SWITCHES and plain != "apply_chat_template":
                break
        yield (
            plain,
            value if equals else ",".join(values) if plain in ("tasks", "model_args") else " ".join(values),
        )


Rule: TypeAlias = Callable[[str], Words]


def _to(flag: str) -> Rule:
    return lambda value: (flag, value)


SERVED: Final[Mapping[str, Rule]] = {
    "endpoint": _to("--checkpoint"),
    "batch-size": _to("--eval-batch"),
    "run-id": _to("--eval-run-id"),
    "config": _to("--eval-config"),
    "output": _to("--eval-output"),
    "gpu": lambda value: ("--eval-device", f"cuda:{value}"),
    "max-length": _to("--eval-seq-len"),
    "dry-run": lambda _: ("--eval-dry-run",),
    "log-level": lambda value: ("--log-cli-level", value.upper()),
}
"""The options of a script that evaluates a served model."""


def of_served_script(words: Sequence[str]) -> Migrated:
    """Return our command for such a script's options."""
    given = dict(_options([word.replace("_", "-") if word.startswith("--") else word for word in words], {}))
    if "list-benchmarks" in given:
        config = ("--config", given["config"]) if "config" in given else ()
        return Migrated(("touchstone", "benchmarks", *config))
    if "validate-config" in given:
        return Migrated(("touchstone", "validate", given.get("config") or "eval_config.json"))
    command = ["pytest", "evals/"]
    lines = []
    for name, value in given.items():
        if name in SERVED:
            command += SERVED[name](value)
        else:
            lines.append(_unknown(f"--{name}", [f"--{one}" for one in SERVED]))
    if "endpoint" in given and {"gpu", "batch-size"} & given.keys():
        lines.append("--eval-device and --eval-batch do nothing to a served model: its server decides")
    return Migrated(tuple(command), tuple(lines))


def _unknown(flag: str, known: Collection[str]) -> str:
    near = alike(flag, known)
    return f"no counterpart: {flag}" + (f" (is it {near[0]}?)" if near else "")


LM_EVAL: Final[Mapping[str, Rule]] = {
    "batch_size": lambda value: ("--eval-batch", value.partition(":")[0]),
    "device": _to("--eval-device"),
    "limit": lambda value: ("--eval-limit", value.removesuffix(".0")),
    "num_fewshot": _to("--eval-shots"),
    "output_path": _to("--eval-output"),
    "trust_remote_code": lambda _: ("--eval-trust-remote-code",),
    "verbosity": lambda value: ("--log-cli-level", value.upper()),
}

SILENT: Final = {
    "log_samples": "prompts and answers are always kept: `touchstone items RUN`",
    "use_cache": "scores of earlier runs are always taken, unless --eval-no-cache says otherwise",
    "fewshot_as_multiturn": "few-shot examples are always turns in a chat",
    "confirm_run_unsafe_code": "programs run in a sandbox, so that nothing needs to be confirmed",
    "max_batch_size": "--eval-batch auto takes as many as fit",
    "seed": "",
    "model": "",
}
"""Options whose effect we always have, or that other options take up."""

ARGS: Final[Mapping[str, Rule]] = {
    "pretrained": _to("--checkpoint"),
    "base_url": _to("--checkpoint"),
    "model": _to("--eval-model-name"),
    "dtype": _to("--eval-dtype"),
    "max_length": _to("--eval-seq-len"),
    "max_model_len": _to("--eval-seq-len"),
    "device": _to("--eval-device"),
    "tokenizer": _to("--eval-tokenizer"),
    "trust_remote_code": lambda value: ("--eval-trust-remote-code",) if value == "True" else (),
}
"""The parts of ``--model_args``."""

TEXTS: Final[Mapping[str, Rule]] = {
    "max_gen_toks": _to("--eval-max-new-tokens"),
    "temperature": _to("--eval-temperature"),
    "top_p": _to("--eval-top-p"),
}
"""The parts of ``--gen_kwargs``."""


def of_lm_eval(words: Sequence[str], known: Collection[str]) -> Migrated:
    """Return our command for one of lm-evaluation-harness; ``known`` are our benchmarks."""
    given = dict(_options(words, SHORT))
    command, lines = ["pytest", "evals/"], []
    for name, value in given.items():
        if name == "tasks":
            taken, more = _tasks(value, known)
            command += taken
            lines += more
        elif name in ("model_args", "gen_kwargs"):
            taken, more = _parts(name, value)
            command += taken
            lines += more
        elif name in LM_EVAL:
            command += LM_EVAL[name](value)
        elif name in SILENT:
            lines += [f"--{name}: {SILENT[name]}"] if SILENT[name] else []
        elif name != "apply_chat_template":
            lines.append(
                _unknown(f"--{name}", [f"--{one}" for one in (*LM_EVAL, *SILENT, "tasks", "model_args")])
            )
    seed = given.get("seed", "").split(",")[-1]
    command += ["--eval-fewshot", f"lm-eval:{seed}" if seed.isdigit() else "lm-eval"]
    command += ["--eval-chat", "on" if "apply_chat_template" in given else "off"]
    return Migrated(tuple(command), tuple(lines))


def _tasks(value: str, known: Collection[str]) -> tuple[list[str], list[str]]:
    names = [name for name in value.replace(" ", ",").split(",") if name]
    found: list[str] = []
    lines: list[str] = []
    for name in names:
        terms = translated(name, known, theirs=True)
        lines += dict.fromkeys(f"{name}: {why}" for term in terms if (why := difference(name, term)))
        if all(term.partition("/")[0] in known or set("*?[") & set(term) for term in terms):
            found += terms
        else:
            near = alike(name, known)
            lines.append(f"no counterpart: task {name}" + (f" (nearest: {near[0]})" if near else ""))
    return (["--eval-tasks", ",".join(dict.fromkeys(found))] if found else []), lines


def _parts(name: str, value: str) -> tuple[list[str], list[str]]:
    """Return the options for the parts of ``--model_args`` or ``--gen_kwargs``, and lines about the others."""
    rules = ARGS if name == "model_args" else TEXTS
    given = dict(part.partition("=")[::2] for part in value.split(",") if part)
    found: list[str] = []
    lines = []
    if name == "model_args" and (adapter := given.pop("peft", None)):
        found += ["--checkpoint", adapter]
        found += ["--eval-base-model", given.pop("pretrained")] if "pretrained" in given else []
    for key, text in given.items():
        if key in rules:
            found += rules[key](text)
        elif key == "do_sample":
            continue  # the temperature says it
        else:
            lines.append(f"no counterpart: {key} of --{name}")
    return found, lines


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


def of_task(path: Path) -> Migrated:
    """Return the benchmark's file, with what has no counterpart. Raises ``HarnessError`` for another form of task."""
    task = _read(path)
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
    return Migrated(
        lines=tuple(lines), text=(HEAD + (CHOICES if kind == KINDS[0] else ASKED_TEXTS)).format(**more)
    )


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


def _read(path: Path) -> dict[str, Any]:
    import yaml

    loader: Any = type(
        "Loader", (yaml.SafeLoader,), {}
    )  # a class of its own, to read ``!function`` as a name
    loader.add_constructor("!function", lambda reader, node: _Python(reader.construct_scalar(node)))
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise HarnessError(f"cannot read {shown_path(path)}: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise HarnessError(f"{shown_path(path)} is no task: expected a table of keys")
    return found
