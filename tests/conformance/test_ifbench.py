"""IFBench's rules give the verdicts of its authors' program on recorded texts (``record_ifbench.py`` writes them)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_touchstone.core.files import load_module
from pytest_touchstone.metrics.ifeval import grade_ifeval
from tests.support.places import ROOT

IFBENCH = load_module(ROOT / "evals" / "test_ifbench.py", "ifbench_conformance")
CONFORMANCE = ROOT / "fixtures" / "conformance"
READINGS = ("strict", "loose")


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    text = gzip.decompress((CONFORMANCE / "ifbench.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.fixture(autouse=True)
def small_tagger(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tagger of the record, in the place of NLTK's."""
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(CONFORMANCE / "nltk_data")])
    IFBENCH.tagger.cache_clear()
    yield
    IFBENCH.tagger.cache_clear()


def test_every_verdict_is_the_authors_and_none_of_their_exceptions_is_followed(
    rows: list[dict[str, Any]],
) -> None:
    instructions = rows[0]["instructions"]
    verdicts: dict[str, set[str]] = {}
    for row in rows[1:]:
        for reading in READINGS:
            for sign, number in zip(row.get(reading, ""), row["instructions"], strict=reading in row):
                kind, values = instructions[number]
                if reading == "loose":
                    grade = grade_ifeval([kind], [values], row["text"], rules=IFBENCH.INSTRUCTIONS)
                    followed = grade.scores["prompt_level_loose_acc"] == 1.0
                else:
                    followed = IFBENCH.INSTRUCTIONS[kind](values, row["text"])
                assert followed is (sign == "1"), (kind, values, row["text"], reading, sign)
                verdicts.setdefault(kind, set()).add(sign)
    assert all({"0", "1"} <= signs for signs in verdicts.values())
    assert {kind for kind, signs in verdicts.items() if "x" in signs} == {
        "custom:csv_city",
        "custom:csv_quotes",
    }
    assert verdicts.keys() == IFBENCH.INSTRUCTIONS.keys()


def test_thousands_of_texts_and_every_shipped_instruction_are_on_record(rows: list[dict[str, Any]]) -> None:
    path = ROOT / "fixtures" / "data" / "ifbench" / "IFBench_test.jsonl"
    shipped = [
        [kind, values]
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        for kind, values in zip(row["instruction_id_list"], row["kwargs"], strict=True)
    ]
    assert len({row["text"] for row in rows[1:]}) > 3000
    assert all(instruction in rows[0]["instructions"] for instruction in shipped)
