"""The page of a run with very many items: makes such runs, and measures how their pages are built.

    python -m perf page                                   the table: 50,000 items, and 20 checkpoints of 2,000
    python -m perf page --make DIR [--items N] [--checkpoints N]    the folder of one run, to open

The texts are chains of words, each following two that it followed in the shipped English datasets, so that no text is
there twice. Compressed by gzip they are 2.6 times smaller; rows of GSM8K 2.7, ARC 2.3 and MMLU 2.8 times.

A quarter of the items each are choices (four after a question), texts, programs with their tests, and masks. Texts come
after the end of a prompt (1,000 characters, as the journal keeps it) whose few-shot examples all items share. Seconds
are CPU time of the process that builds the page, memory is its peak.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from perf.measure import OURS, ROOT, run
from pytest_touchstone.core.aggregation import mean
from pytest_touchstone.core.dataset import DatasetInfo
from pytest_touchstone.core.files import write_json
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.journal import Journal, shorten_request
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.run_directory import RunDirectory, environment
from pytest_touchstone.results.summary import CollectedItem, Declaration, summary_json

KINDS: Final = {"choices": "acc", "texts": "exact_match", "programs": "pass@1", "masks": "real@1"}
"""The benchmarks, and the score of each."""

DATA: Final = ROOT / "fixtures" / "data"
KOREAN: Final = ("ko_lambada_wiki", "real_coref")
SHARE_ALLOWED: Final = 0.25
"""The most that a page may have of its journal's bytes."""


RESTARTS: Final = 0.05
"""The share of words with which a chain begins anew."""


class Words:
    """Texts like those of the shipped datasets, always the same for a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._after: dict[tuple[str, str], list[str]] = {}
        self._starts: list[tuple[str, str]] = []
        for path in (one for one in sorted(DATA.rglob("*.jsonl")) if one.parent.name not in KOREAN):
            for line in path.read_text(encoding="utf-8").splitlines():
                self._learn(" ".join(_texts(json.loads(line))).split(" "))

    def _learn(self, words: list[str]) -> None:
        for first, second, third in zip(words, words[1:], words[2:], strict=False):
            self._after.setdefault((first, second), []).append(third)
        self._starts.append((words[0], words[1])) if len(words) > 1 else None
        self._starts += list(zip(words[::9], words[1::9], strict=False))

    def text(self, characters: int) -> str:
        """Return about that many characters."""
        state = self._random.choice(self._starts)
        words = list(state)
        while sum(map(len, words)) + len(words) < characters:
            following = self._after.get(state)
            # A second source of chance: rows are few, and chains would repeat their sentences.
            if not following or self._random.random() < RESTARTS:
                state = self._random.choice(self._starts)
                words += state
            else:
                state = (state[1], self._random.choice(following))
                words.append(state[1])
        return " ".join(words)[:characters]

    def number(self) -> float:
        """Return a log-probability."""
        return -self._random.expovariate(0.05)

    def chance(self) -> float:
        """Return a number below 1."""
        return self._random.random()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def exchanges_of(kind: str, words: Words, question: str, shots: str) -> list[dict[str, Any]]:
    """Return what an item was asked and answered, in the form of the journal."""
    if kind == "choices":
        return [
            {
                "kind": "Loglikelihood",
                "request": {
                    "context": f"Question: {question[:220]}\nAnswer:",
                    "continuation": f" {words.text(45)}",
                },
                "answer": {
                    "logprob": words.number(),
                    "is_greedy": False,
                    "tokens": 9,
                    "truncated": 0,
                    "spans_join": False,
                },
            }
            for _ in range(4)
        ]
    if kind == "masks":
        names = [words.text(7).split(" ")[0] for _ in range(50)]
        candidates = [{"token": one, "text": one, "logprob": words.number()} for one in names]
        request = {"text": f"{question[:300]} [MASK].", "top_k": 50, "target": names[0]}
        answer = {
            "candidates": candidates,
            "reachable": True,
            "target_logprob": words.number(),
            "truncated": 0,
        }
        return [{"kind": "FillMask", "request": request, "answer": answer}]
    said = {"text": words.text(700), "finish_reason": "stop", "tokens": 170}
    prompt = question[:600] if kind == "programs" else f"{shots}\n\nQuestion: {question[:300]}\nAnswer:"
    drawn = {
        "stop": ["\n\n"],
        "max_new_tokens": 256,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "samples": 1,
    }
    asked = shorten_request({"prompt": prompt, **drawn, "seed": 0, "turns": []})
    answer = {"samples": [said], "prompt_tokens": 800, "truncated": 0, "chat": False}
    found = [{"kind": "Generate", "request": asked, "answer": answer}]
    if kind == "programs":
        tests = {"code": words.text(600), "trusted": "", "names": []}
        program = {
            "program": f"{prompt}{said['text']}",
            "tests": tests,
            "task": "x",
            "seconds": 3.0,
            "memory": 1024,
        }
        verdict = {
            "outcome": "wrong",
            "detail": f"AssertionError: {words.text(60)}",
            "seconds": 0.1,
            "tests": 0,
        }
        found.append(
            {
                "kind": "RunProgram",
                "request": shorten_request(program | {"reference": None}),
                "answer": verdict,
            }
        )
    return found


def make_run(
    folder: Path, items: int, checkpoints: int = 1, chosen: Sequence[str] = tuple(KINDS), seed: int = 0
) -> Path:
    """Write a run's folder with ``items`` items for each checkpoint, and return it.

    The questions are the same for all checkpoints, answers and scores are not.
    """
    directory = RunDirectory(folder)
    names = [f"model/checkpoint-{100 * number}" for number in range(1, checkpoints + 1)]
    directory.make()
    dataset = DatasetInfo(name="made", origin="made", path="", rows=items, sha256="")
    declarations = {
        kind: Declaration(
            name=kind, version=1, primary=score, aggregate={score: mean(score).plain()}, dataset=dataset
        )
        for kind in chosen
        for score in [KINDS[kind]]
    }
    words = Words(seed)
    questions = [words.text(200 + int(400 * words.chance())) for _ in range(items)]
    shots = words.text(2600)
    light: list[Record] = []
    collected: list[CollectedItem] = []
    with Journal(folder, "main") as journal:
        for name in names:
            for number in range(items):
                kind = chosen[number % len(chosen)]
                example = f"{kind}/{number // len(chosen)}"
                record = Record(
                    item=f"test_made.py::test_{kind}[{name}-{example}]",
                    benchmark=kind,
                    example=example,
                    checkpoint=name,
                    status="scored",
                    scores={KINDS[kind]: float(words.chance() < 0.5)},
                    group=f"subject {number % 7}",
                    row=f"{number:016x}",
                    seconds=words.chance(),
                    outputs=int(kind in ("texts", "programs")),
                    facts={"length": len(questions[number]), "gold": questions[number][-9:]},
                    exchanges=exchanges_of(kind, words, questions[number], shots),
                )
                journal.append(record)
                light.append(replace(record, exchanges=[]))
                collected.append(CollectedItem(record.item, kind, name, example, record.group))
    directory.write_collected(collected, declarations, [])
    rows = [
        {"name": name, "series": "model", "step": 100 * number, "epoch": number / 4}
        for number, name in enumerate(names, 1)
    ]
    manifest = {
        "run_id": folder.name,
        "began": 0.0,
        **environment(["evals"], ROOT, ROOT),
        "checkpoints": rows,
    }
    directory.write_manifest(manifest)
    told: dict[str, Any] = {
        "run_id": folder.name,
        "directory": str(folder),
        "manifest": manifest,
        "checkpoints": rows,
    }
    write_json(folder / "summary.json", summary_json(summarize(light, declarations, collected, **told)))
    return folder


BUILD: Final = """
import sys
from pathlib import Path
from pytest_touchstone.reports.pages import run_page
from pytest_touchstone.results.summary import load_summary
summary = load_summary(Path(sys.argv[1]))
if sys.argv[2] == "page":
    Path(sys.argv[1], "report.html").write_text(run_page(summary), encoding="utf-8")
"""


def measured(folder: Path) -> str:
    """Return a line of the table: journal and page, CPU seconds and memory of building, and without."""
    journal = sum(path.stat().st_size for path in folder.glob("items/items-*.jsonl"))
    log = folder / "build.log"
    costs = [
        run([sys.executable, "-c", BUILD, folder, what], cwd=ROOT, log=log, env=OURS)
        for what in ("page", "none")
    ]
    page = (folder / "report.html").stat().st_size
    seconds = costs[0].cpu - costs[1].cpu
    peaks = [cost.peak / 2**20 for cost in costs]
    fine = "" if page <= SHARE_ALLOWED * journal else "  MORE THAN A QUARTER"
    return (
        f"{journal / 1e6:7.1f} MB journal {page / 1e6:7.1f} MB page ({page / journal:.1%}){fine}"
        f" {seconds:6.1f} s CPU {peaks[0]:6.0f} MiB (without a page {peaks[1]:.0f})"
    )


def main() -> None:
    """Print the table, or make one run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", type=Path, metavar="DIR")
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--checkpoints", type=int, default=1)
    options = parser.parse_args()
    if options.make:
        print(make_run(options.make, options.items, options.checkpoints))
        return
    with tempfile.TemporaryDirectory() as place:
        for title, items, checkpoints in (("50,000 items", 50_000, 1), ("20 x 2,000 items", 2_000, 20)):
            folder = make_run(Path(place) / str(items), items, checkpoints)
            print(f"{title:18}{measured(folder)}", flush=True)
        for kind in KINDS:
            folder = make_run(Path(place) / kind, 5_000, chosen=[kind])
            print(f"5,000 {kind:12}{measured(folder)}", flush=True)


if __name__ == "__main__":
    main()
