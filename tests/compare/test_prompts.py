"""Published samples and a run are compared item by item where both asked by the same prompt."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_touchstone.compare.candidate import Candidate, Entry
from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.reports import comparison
from pytest_touchstone.results.journal import Journal, journalled
from pytest_touchstone.results.records import Record
from tests.support.compared import ran
from tests.support.entries import right
from tests.support.rows import write_jsonl

LONG = "shots " * 1000


def run_of(tmp_path: Path, prompts: list[str], chat: int = 0) -> Candidate:
    """A run whose journal has the prompts."""
    folder = tmp_path / "run"
    folder.mkdir()
    made = ran("new", {"b": right(4, len(prompts))})
    with Journal(folder, "main") as journal:
        for example, prompt in zip(made.entries["b"].items.examples, prompts, strict=True):
            request: dict[str, Any] = journalled({"context": prompt, "continuation": " yes"})
            exchange = {"kind": "Loglikelihood", "request": request, "answer": {}}
            fields: dict[str, Any] = {
                "item": example,
                "benchmark": "b",
                "example": example,
                "checkpoint": "new",
                "row": "r",
            }
            journal.append(Record(**fields, status="scored", exchanges=[exchange], chat=chat))
    return with_answers(made, folder)


def samples_of(tmp_path: Path, prompts: list[str]) -> Candidate:
    """Somebody's samples with the hashes of the prompts."""
    made = ran("old", {"b": right(2, len(prompts))}, rows=[f"their {n}" for n in range(len(prompts))])
    ids = [example.partition("/")[2] for example in made.entries["b"].items.examples]
    hashes = [hashlib.sha256(prompt.encode()).hexdigest() for prompt in prompts]
    lines = [{"doc_id": one, "prompt_hash": known} for one, known in zip(ids, hashes, strict=True)]
    path = tmp_path / "samples_b.jsonl"
    write_jsonl(path, lines)
    saved = replace(made.entries["b"].saved, fingerprint="old-imported")
    return with_answers(made, path, saved)


def with_answers(made: Candidate, place: Path, saved: Any = None) -> Candidate:
    known = made.entries["b"]
    return replace(made, entries={"b": Entry(saved or known.saved, known.items, place)})


def test_the_same_prompts_are_the_same_items(tmp_path: Path) -> None:
    prompts = [f"{LONG if n % 2 else ''}{n}" for n in range(8)]
    theirs, ours = samples_of(tmp_path, prompts), run_of(tmp_path, prompts)
    for pair in (compare_pair(theirs, ours), compare_pair(ours, theirs)):
        assert pair.lines[0].items == (8, 8, 8)
        assert pair.lines[0].paired
    side = "A was published elsewhere, and asked the same items by the same prompts: b"
    assert side in comparison.notes(compare_pair(theirs, ours))


def test_items_with_another_prompt_are_left_out(tmp_path: Path) -> None:
    theirs = samples_of(tmp_path, [*"abcdefgh"])
    pair = compare_pair(theirs, run_of(tmp_path, [*"abcdef", "other", LONG]))
    assert "b: 6 of 8 items of A and 8 of B are the same: compared on these" in comparison.notes(pair)


def test_other_prompts_and_chats_are_runs_on_different_items(tmp_path: Path) -> None:
    theirs = samples_of(tmp_path, [*"abcd"])
    (tmp_path / "chat").mkdir()
    for ours in (run_of(tmp_path, [*"efgh"]), run_of(tmp_path / "chat", [*"abcd"], chat=1)):
        pair = compare_pair(theirs, ours)
        assert not pair.lines[0].paired
        assert any(
            "whether it was asked the same items alike is not known" in t for t in comparison.notes(pair)
        )
