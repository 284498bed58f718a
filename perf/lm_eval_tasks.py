"""Tasks of lm-evaluation-harness, run here by ``--tasks lm_eval:NAME`` and by its own command: whole processes.

    python -m perf lm_eval_tasks arc_easy,gsm8k --path DIR --limit 100 --lm-eval-python PYTHON

Both get the same checkpoint, dtype and threads. ``--path`` has task files of one's own, as ``--include_path``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from perf.lm_eval_side import OFFLINE
from perf.measure import OURS, ROOT, Cost, in_turn, mebibytes, ratios, run, spread, table
from perf.our_side import model_folder, threads
from pytest_touchstone.compare.formats.task_metrics import metric_name


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One run of a task: its cost, the seconds spent answering, and its metrics by lm-eval's names."""

    cost: Cost
    scoring: float
    metrics: dict[str, float]


def main() -> None:
    """Run each task in turn here and there, and print how many times as fast ours is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", help="names, separated by commas")
    parser.add_argument("--path", type=Path, metavar="DIR", help="a folder of task files")
    parser.add_argument("--checkpoint", default="builtin:smollm2-135m")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=3, help="how often both run, in turn")
    parser.add_argument("--batch", default="16", help="lm-eval's --batch_size")
    parser.add_argument("--lm-eval-python", type=Path, default=Path(sys.executable), metavar="PYTHON")
    options = parser.parse_args()
    rows = []
    for task in options.tasks.split(","):
        with tempfile.TemporaryDirectory(prefix="lm-eval-tasks-") as name:
            folder, model = Path(name), model_folder(options.checkpoint)
            rows.append(compare(task, model, folder, options))
            print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    header = ["task", "items", "ours, s", "lm-eval, s", "whole process", "answering", "memory", "metrics"]
    print(table(header, rows))
    print(
        "\nwhole process, answering: how many times as fast; memory: ours / lm-eval's; metrics: furthest apart"
    )


def compare(task: str, model: Path, folder: Path, options: argparse.Namespace) -> list[str]:
    """Return the row of a task in the table."""

    def ours(number: int) -> TaskRun:
        return run_ours(task, model, folder, number, options)

    def theirs(number: int) -> TaskRun:
        return run_theirs(task, model, folder, number, options)

    mine, others = in_turn(options.pairs, ours, theirs)
    pairs = [(mine[0].metrics[name], value) for name, value in others[0].metrics.items()]
    furthest = max(abs(a - b) / max(abs(a), abs(b), 1e-9) for a, b in pairs)
    return [
        task,
        str(options.limit),
        spread([each.cost.wall for each in mine], 1),
        spread([each.cost.wall for each in others], 1),
        str(ratios([each.cost.wall for each in others], [each.cost.wall for each in mine])),
        str(ratios([each.scoring for each in others], [each.scoring for each in mine])),
        str(
            ratios(
                [mebibytes(each.cost.peak_tree) for each in mine],
                [mebibytes(each.cost.peak_tree) for each in others],
            )
        ),
        f"{len(pairs)}, {furthest:.1e}",
    ]


def run_ours(task: str, model: Path, folder: Path, number: int, options: argparse.Namespace) -> TaskRun:
    """Run the task here; its metrics are those of the export in lm-eval's format."""
    words = [sys.executable, "-m", "pytest_touchstone.cli", "run", f"--tasks=lm_eval:{task}"]
    words += [
        f"--checkpoint={model}",
        f"--eval-limit={options.limit}",
        "--eval-dtype=float32",
        "--eval-no-cache",
    ]
    words += ["--eval-chat=off", f"--eval-output={folder}", f"--eval-run-id=ours-{number}"]
    words += [f"--eval-lm-eval-path={options.path.resolve()}"] if options.path else []
    cost = run(words, cwd=ROOT, log=folder / f"ours-{number}.log", env={**OURS, **OFFLINE})
    summary = json.loads((folder / f"ours-{number}" / "summary.json").read_text())
    (result,) = summary["results"]
    metrics = {name: value["value"] for name, value in result["metrics"].items()}
    records = (folder / f"ours-{number}" / "items").glob("*.jsonl")
    seconds = sum(json.loads(line)["seconds"] for path in records for line in path.open(encoding="utf-8"))
    return TaskRun(cost, seconds, metrics)


def run_theirs(task: str, model: Path, folder: Path, number: int, options: argparse.Namespace) -> TaskRun:
    """Run the task by lm-evaluation-harness's own command."""
    output, notes = folder / f"theirs-{number}", folder / f"theirs-{number}.json"
    words = ["--model", "hf", "--model_args", f"pretrained={model},dtype=float32", "--device", "cpu"]
    words += ["--tasks", task, "--limit", str(options.limit), "--batch_size", options.batch]
    words += ["--include_path", str(options.path.resolve())] if options.path else []
    words += ["--output_path", str(output)]
    cost = run(
        [
            options.lm_eval_python.absolute(),
            ROOT / "perf" / "lm_eval_timed.py",
            notes,
            str(threads()),
            "run",
            *words,
        ],
        cwd=folder,
        log=folder / f"theirs-{number}.log",
        env={**OFFLINE, "HF_DATASETS_CACHE": str(folder / "datasets"), "PYTHONPATH": ""},
    )
    (path,) = output.rglob("results_*.json")
    values = json.loads(path.read_text())["results"][task]
    metrics = {
        metric_name(key): value
        for key, value in values.items()
        if "," in key and not key.partition(",")[0].endswith("_stderr")
    }
    return TaskRun(cost, json.loads(notes.read_text())["seconds"], metrics)


if __name__ == "__main__":
    main()
