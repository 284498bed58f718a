"""Tasks of lm-evaluation-harness, run here and by its own ``simple_evaluate``: prompts, item scores, metrics, groups.

python -m tests.conformance.test_lm_eval_tasks CHECKPOINT    # a table of the tasks of tests.support.lm_eval_folder
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from pytest_touchstone.core.requests import Turn
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.lm_eval_folder import GROUPS, TASKS, write_lm_eval_folder
from tests.support.places import ROOT
from tests.support.tiny import tiny_causal

CLOSE: Final = 2e-4
"""The largest relative difference of numbers that two programs compute in float32."""

OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TQDM_DISABLE": "1"}

SCORED_ON_OTHERS: Final = ("mc_shuffled_docs",)
"""Tasks whose documents lm-evaluation-harness shuffles once more before it scores the answers."""

CHATS: Final = tuple(name for name in TASKS if name.startswith("gen_"))
"""The tasks that are asked as conversations, too."""

SYSTEM: Final = "You are brief."

TEMPLATE: Final = (
    "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

_THEIRS, _CHAT = "--theirs", "--chat"


Render: TypeAlias = Callable[[Sequence[Turn]], object]


@dataclass(frozen=True, slots=True)
class Agreement:
    """What differs between two runs of a task: prompts, item scores and metrics, by name."""

    prompts: list[str]
    items: list[str]
    metrics: list[str]


def run_theirs(folder: Path, checkpoint: Path, names: Sequence[str], *, chat: bool) -> dict[str, Any]:
    """Return lm-evaluation-harness's results and samples of each task or group, run alone."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    model = HFLM(pretrained=str(checkpoint), dtype="float32", device="cpu", batch_size=1)
    theirs = {}
    for name in names:
        made = lm_eval.simple_evaluate(
            model=model,
            tasks=[name],
            task_manager=TaskManager(include_defaults=False, include_path=str(folder)),
            bootstrap_iters=0,
            apply_chat_template=chat,
            fewshot_as_multiturn=chat,
            system_instruction=SYSTEM if chat else None,
        )
        theirs[name] = {"results": made["results"], "samples": made["samples"]}
    return theirs


def run_ours(folder: Path, checkpoint: Path, names: Sequence[str], output: Path, *more: str) -> Path:
    """Return the folder of our run of the tasks."""
    tasks = ",".join(f"lm_eval:{name}" for name in names)
    command = [sys.executable, "-m", "pytest_touchstone.cli", "run", f"--tasks={tasks}", "-q"]
    command += [f"--eval-lm-eval-path={folder}", f"--checkpoint={checkpoint}", f"--eval-output={output}"]
    command += ["--eval-no-cache", "--eval-dtype=float32", *(more or ["--eval-chat=off"])]
    done = subprocess.run(
        command, cwd=output.parent, capture_output=True, text=True, check=False, env={**os.environ, **OFFLINE}
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return max(path.parent for path in output.glob("*/summary.json"))


def compare_task(name: str, theirs: Mapping[str, Any], run: Path, render: Render | None = None) -> Agreement:
    """Compare a task's run with theirs; conversations as the chat template renders them."""
    summary = json.loads((run / "summary.json").read_text())
    records = {record["example"]: record for record in _records(run)}
    result = next(result for result in summary["results"] if result["name"] == f"lm_eval:{name}")
    agreement = Agreement([], [], [])
    for sample in theirs["samples"][name]:
        where = f"{name}/{sample['doc_id']}"
        record = records[f"lm_eval:{where}"]
        asked = [_arguments(exchange["request"], render) for exchange in record["exchanges"]]
        if asked != [list(arguments[:1]) + _continuation(arguments) for arguments in sample["arguments"]]:
            agreement.prompts.append(where)
        for metric in sample["metrics"]:
            ours = _our_value(record, _our_name(metric, sample["filter"]))
            if not _is_close(ours, sample[metric]):
                agreement.items.append(f"{where} {metric}: {ours} {sample[metric]}")
    for key, value in theirs["results"][name].items():
        metric, comma, filtering = key.partition(",")
        if comma and not metric.endswith("_stderr"):
            ours = result["metrics"].get(_our_name(metric, filtering), {}).get("value")
            if not _is_close(ours, value):
                agreement.metrics.append(f"{name} {key}: {ours} {value}")
    return agreement


def compare_group(name: str, theirs: Mapping[str, Any], run: Path) -> list[str]:
    """Return the metrics of a group that differ from theirs."""
    summary = json.loads((run / "summary.json").read_text())
    ours = {composite["name"]: composite["value"] for composite in summary["composites"]}
    differing = []
    for group, values in theirs["results"].items():
        keys = [key for key in values if "," in key and "_stderr" not in key]
        for key in keys if group in GROUPS else ():
            metric = _our_name(*key.split(","))
            value = ours.get(f"lm_eval:{group}:{metric}", ours.get(f"lm_eval:{group}"))
            if not _is_close(value, values[key]):
                differing.append(f"{name}: {group} {key}: {value} {values[key]}")
    return differing


def _records(run: Path) -> Iterator[dict[str, Any]]:
    for path in (run / "items").glob("*.jsonl"):
        yield from (json.loads(line) for line in path.read_text().splitlines())


def _arguments(request: Mapping[str, Any], render: Render | None) -> list[Any]:
    if render is not None:
        return [render([Turn(**turn) for turn in request["turns"]])]
    if "continuation" in request:
        return [request["context"], request["continuation"]]
    return [request.get("prompt", request.get("text"))]


def _continuation(arguments: Sequence[Any]) -> list[Any]:
    return [text for text in arguments[1:] if isinstance(text, str)]


def _our_name(metric: str, filtering: str) -> str:
    ending = {"none": "", "strict-match": "_strict", "flexible-extract": "_flexible"}
    return metric + ending.get(filtering, f"_{filtering}")


def _our_value(record: Mapping[str, Any], metric: str) -> Any:
    raw = (record["told"] or {}).get(f"raw_{metric}")
    return record["scores"].get(metric) if raw is None else json.loads(raw[0])


def _is_close(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float | int) and isinstance(theirs, float | int):
        both_nan = math.isnan(ours) and math.isnan(theirs)
        return both_nan or math.isclose(ours, theirs, rel_tol=CLOSE, abs_tol=1e-6)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_is_close, ours, theirs))
    return bool(ours == theirs)


def theirs_in_process(folder: Path, checkpoint: Path, names: Sequence[str], *chat: str) -> dict[str, Any]:
    """Return what ``run_theirs`` returns in a process of its own, since it sets the seeds of its process."""
    command = [sys.executable, "-m", __spec__.name, _THEIRS, *chat, str(folder), str(checkpoint), *names]
    paths = os.pathsep.join(filter(None, (str(ROOT / "harness"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **OFFLINE, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


@pytest.mark.slow
def test_all_kinds_of_tasks_have_the_prompts_the_item_scores_and_the_metrics_of_lm_eval(
    tmp_path: Path,
) -> None:
    pytest.importorskip("lm_eval")
    folder = write_lm_eval_folder(tmp_path / "tasks", tmp_path / "rows")
    checkpoint = tiny_causal(tmp_path / "tiny", seq_len=1024)
    names = [*TASKS, *GROUPS]
    theirs = theirs_in_process(folder, checkpoint, names)
    run = run_ours(folder, checkpoint, names, tmp_path / "results")
    for name in TASKS:
        agreement = compare_task(name, theirs[name], run)
        assert not agreement.prompts, name
        if name not in SCORED_ON_OTHERS:
            assert agreement == Agreement([], [], []), name
    assert not [line for name in GROUPS for line in compare_group(name, theirs[name], run)]


@pytest.mark.slow
def test_conversations_are_those_of_lm_eval_with_system_prompt_and_examples_as_turns(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval")
    from transformers import AutoTokenizer

    folder = write_lm_eval_folder(tmp_path / "tasks", tmp_path / "rows")
    checkpoint = tiny_causal(tmp_path / "tiny", seq_len=1024)
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE)
    theirs = theirs_in_process(folder, checkpoint, CHATS, _CHAT)
    chat = ("--eval-chat=on", f"--eval-set=system={SYSTEM}")
    run = run_ours(folder, checkpoint, CHATS, tmp_path / "results", *chat)
    render = TextTokenizer(AutoTokenizer.from_pretrained(checkpoint)).conversation
    for name in CHATS:
        assert compare_task(name, theirs[name], run, render) == Agreement([], [], []), name


def main(arguments: Sequence[str]) -> None:
    """Print their results as JSON, or the table of agreement."""
    if arguments[0] == _THEIRS:
        chat = arguments[1] == _CHAT
        tasks, model, *names = arguments[1 + chat :]
        made = run_theirs(Path(tasks), Path(model), names, chat=chat)
        print(
            json.dumps(made, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))
        )
        return
    checkpoint = Path(arguments[0]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = write_lm_eval_folder(Path(name, "tasks"), Path(name, "rows"))
        theirs = theirs_in_process(folder, checkpoint, [*TASKS, *GROUPS])
        run = run_ours(folder, checkpoint, [*TASKS, *GROUPS], Path(name, "results"))
        for task in TASKS:
            agreement = compare_task(task, theirs[task], run)
            print(
                task,
                *(
                    "no" if lines else "yes"
                    for lines in (agreement.prompts, agreement.items, agreement.metrics)
                ),
            )
            print(*agreement.items[:3], *agreement.metrics, sep="\n", end="")
        for group in GROUPS:
            print(group, *(compare_group(group, theirs[group], run) or ["yes"]))


if __name__ == "__main__":
    main(sys.argv[1:])
