"""The same questions to a model in this process and behind a server, item by item, with what both cost.

    python -m perf served http://127.0.0.1:8000 FOLDER --data DIR --benchmarks arc_easy,hellaswag --shots 0,5
    python -m perf served http://127.0.0.1:8000 FOLDER --data DIR --benchmarks gsm8k --options='--eval-chat off'
    python -m perf served http://127.0.0.1:8000 FOLDER --server-pid PID --lm-eval-python PYTHON

FOLDER has the weights that the server has. ``--server-pid`` adds the CPU time of the server and its children, and
``--lm-eval-python`` lets lm-evaluation-harness ask the server, too, by its ``local-completions``. An item whose choice
differs is a tie where the two best choices are within 1e-3. Of greedy texts that differ the first tokens apart are
shown, with their log-probabilities.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perf import lm_eval_side, vs_lm_eval
from perf.generation import GSM8K
from perf.measure import OURS, ROOT, Cost, cpu_of, run, table
from perf.prompts import PLACES, items_of
from perf.texts_apart import explain
from pytest_touchstone import FinishedRun, GenerateAnswer, LoglikelihoodAnswer, load

TIE = 1e-3
"""Two choices nearer than this may change places."""


@dataclass(frozen=True, slots=True)
class Side:
    """One run: its results, its cost, and the CPU time that the server spent meanwhile."""

    found: FinishedRun
    cost: Cost
    server: float


def main() -> None:
    """Run every benchmark on both sides and print what differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", metavar="URL")
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--data", metavar="DIR", help="folder of datasets (default: the shipped ones)")
    parser.add_argument("--benchmarks", default="arc_easy", metavar="A,B")
    parser.add_argument("--shots", default="0", metavar="N,M", help="few-shot examples of choices (0)")
    parser.add_argument("--limit", type=int, default=100, help="items of each (100)")
    parser.add_argument("--options", default="", help="more options of pytest, of both sides")
    parser.add_argument("--served-options", default="", help="more options of the served side alone")
    parser.add_argument("--server-pid", type=int, metavar="PID")
    parser.add_argument("--lm-eval-python", type=Path, metavar="PYTHON")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the runs here; one that is here is not repeated"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the numbers go, too")
    options = parser.parse_args()
    if options.keep:
        options.keep = options.keep.resolve()
        options.keep.mkdir(parents=True, exist_ok=True)
    options.data = None if options.data is None else str(Path(options.data).resolve())
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="served-") as name:
        for benchmark in options.benchmarks.split(","):
            texts = benchmark not in PLACES
            many = [None] if texts else [int(one) for one in options.shots.split(",")]
            rows += [compare(benchmark, shots, options, options.keep or Path(name)) for shots in many]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def compare(benchmark: str, shots: int | None, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run one benchmark on both sides, and print and return what was found."""
    name = f"{benchmark}-{'own' if shots is None else shots}"
    words = [GSM8K.nodeid if benchmark == "gsm8k" else PLACES[benchmark].nodeid]
    words += ["--eval-limit", str(options.limit), *shlex.split(options.options)]
    words += ["--eval-data", options.data] if options.data else []
    words += [] if shots is None else ["--eval-shots", str(shots)]
    inside = ["--checkpoint", options.folder, "--eval-dtype", "float32"]
    here = _run(f"{name}-here", [*words, *inside], options, folder)
    outside = ["--checkpoint", options.address, *shlex.split(options.served_options)]
    served = _run(f"{name}-served", [*words, *outside], options, folder)
    print(f"\n{name}, {len(here.found.items)} items\n", flush=True)
    rows = [_costs("in process", here.cost, here.server), _costs("served", served.cost, served.server)]
    compared = compare_texts(here, served, options) if shots is None else compare_choices(here, served)
    if options.lm_eval_python and shots is not None:
        began = cpu_of(options.server_pid)
        items = items_of(benchmark, data=options.data, limit=options.limit, shots=shots)
        theirs = _lm_eval(name, items, served.found, options, folder)
        ours = {
            one.example: lm_eval_side.Answered(
                tuple(answer.logprob for answer in one.answers if isinstance(answer, LoglikelihoodAnswer)),
                one.scores,
            )
            for one in served.found.items
        }
        vs_lm_eval.show_answers(items, ours, theirs.items)
        rows.append(_costs("lm-eval, served", theirs.cost, cpu_of(options.server_pid) - began))
    print("\n" + table(["", "wall, s", "CPU, s", "CPU of the server, s"], rows), flush=True)
    return {"name": name, "costs": rows, **compared}


def _run(name: str, words: list[str], options: argparse.Namespace, folder: Path) -> Side:
    words = [*words, "--eval-no-cache", "--eval-output", str(folder), "--eval-run-id", name]
    command = [sys.executable, "-m", "pytest", *words, "-p", "no:cacheprovider"]
    kept = folder / f"{name}.json"
    if not kept.exists():
        began = cpu_of(options.server_pid)
        cost = run(command, cwd=ROOT, log=folder / f"{name}.log", env=OURS)
        kept.write_text(json.dumps([asdict(cost), cpu_of(options.server_pid) - began]), encoding="utf-8")
    said, server = json.loads(kept.read_text(encoding="utf-8"))
    return Side(load(folder / name), Cost(**said), server)


def _lm_eval(
    name: str, items: list[Any], served: FinishedRun, options: argparse.Namespace, folder: Path
) -> lm_eval_side.Outcome:
    task = folder / f"{name}-lm-eval"
    task.mkdir()
    lm_eval_side.write_task(task, items)
    address = f"{options.address.removesuffix('/').removesuffix('/v1')}/v1/completions"
    asked = f"model={_model(served)},base_url={address},tokenizer={options.folder},num_concurrent=8"
    return lm_eval_side.ask(
        task, 0, ["--model", "local-completions", "--model_args", asked], options.lm_eval_python.absolute()
    )


def _model(served: FinishedRun) -> str:
    """Return the name by which the server knows the model."""
    return str(served.summary.checkpoints[0]["served"]["model"])


def _costs(name: str, cost: Cost, server: float) -> list[object]:
    return [name, cost.wall, cost.cpu, server]


def compare_choices(here: Side, served: Side) -> dict[str, Any]:
    """Compare the choices and their log-probabilities, item by item."""
    differences: list[float] = []
    ties: list[str] = []
    other: list[str] = []
    for mine, theirs in zip(here.found.items, served.found.items, strict=True):
        if failed := next((one for one in (mine, theirs) if one.failed), None):
            raise SystemExit(f"{failed.example}: {failed.message}")
        both = [_logprobs(one.answers) for one in (mine, theirs)]
        differences += [abs(a - b) for a, b in zip(*both, strict=True)]
        for metric in [name for name in mine.scores if mine.scores[name] != theirs.scores.get(name)]:
            gap = _gap(metric, [exchange["request"] for exchange in mine.record.exchanges], mine.answers)
            (ties if gap < TIE else other).append(f"{mine.example} {metric}: best two {gap:.1e} apart")
    total = len(here.found.items)
    apart = len({line.split()[0] for line in (*ties, *other)})
    print(f"equal in every metric: {total - apart} of {total}; ties {len(ties)}, others {len(other)}")
    print("\n".join(f"  {line}" for line in (*ties, *other)), end="\n" if ties or other else "")
    most, middle = max(differences), statistics.median(differences)
    print(
        f"log-probabilities: {len(differences)}, differing by {middle:.1e} in the median, {most:.1e} at most"
    )
    return {"items": total, "ties": ties, "others": other, "median": middle, "most": most}


def _logprobs(answers: list[Any]) -> list[float]:
    return [one.logprob for one in answers if isinstance(one, LoglikelihoodAnswer)]


def _gap(metric: str, requests: list[dict[str, Any]], answers: list[Any]) -> float:
    """Return the distance of the two best choices, by the metric's own measure."""
    texts = [str(one["continuation"]).removeprefix(" ") for one in requests]
    by = {
        "acc_norm": [len(text) for text in texts],
        "acc_bytes": [len(text.encode()) for text in texts],
        "acc_tokens": [one.tokens for one in answers],
    }.get(metric, [1] * len(texts))
    first, second, *_ = sorted(
        (one.logprob / size for one, size in zip(answers, by, strict=True)), reverse=True
    )
    return float(first - second)


def compare_texts(here: Side, served: Side, options: argparse.Namespace) -> dict[str, Any]:
    """Compare the texts, and show where those that differ part."""
    pairs = {}
    for mine, theirs in zip(here.found.items, served.found.items, strict=True):
        (a,), (b,) = mine.answers, theirs.answers
        if not isinstance(a, GenerateAnswer) or not isinstance(b, GenerateAnswer):
            raise SystemExit(f"{mine.example}: {mine.message or theirs.message}")
        if a.text != b.text:
            pairs[mine.example] = a, b
    total = len(here.found.items)
    scores = sum(a.scores == b.scores for a, b in zip(here.found.items, served.found.items, strict=True))
    print(f"equal texts: {total - len(pairs)} of {total}; equal scores: {scores}")
    explained = explain(pairs, options.folder, options.data, options.limit) if pairs else []
    print("\n".join(explained), end="\n" if explained else "")
    return {"items": total, "texts": total - len(pairs), "scores": scores, "explained": explained}


if __name__ == "__main__":
    main()
