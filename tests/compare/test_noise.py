"""What changes where the same checkpoint is asked again, and what a gate says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.noise import (
    MeasuredNoise,
    Noise,
    noise_between,
    noise_notes,
    read_noise,
    save_noise,
)
from pytest_touchstone.results.records import Record
from tests.support.entries import entry, right, source

ROW = Noise(
    benchmark="b", way="opposite order", same_machine=True, metric="acc", items=200, flips=3, change=-0.01
)


def record(number: int, acc: float, *answers: dict[str, Any], **more: Any) -> Record:
    kinds = ["Generate" if "samples" in answer else "Loglikelihood" for answer in answers]
    exchanges = [{"kind": kind, "answer": answer} for kind, answer in zip(kinds, answers, strict=True)]
    fields: dict[str, Any] = {"status": "scored", "scores": {"acc": acc}, "exchanges": exchanges, **more}
    return Record(item=f"x[{number}]", benchmark="b", example=f"b/{number}", checkpoint="c", **fields)


def summary(value: float) -> Any:
    """A summary as far as the noise looks at it."""
    from types import SimpleNamespace

    result = SimpleNamespace(
        benchmark="b", group=None, primary="acc", metrics={"acc": SimpleNamespace(value=value)}
    )
    return SimpleNamespace(results=[result], declarations=[SimpleNamespace(name="b", aggregate={})])


def between(first: list[Record], again: list[Record]) -> Noise:
    (found,) = noise_between(summary(0.5), first, summary(0.25), again, "other", same=True)
    return found


def test_what_differs_between_two_runs_is_counted_item_by_item_and_answer_by_answer() -> None:
    first = [
        record(0, 1.0, {"logprob": -1.0}, {"logprob": -2.0}),
        record(1, 0.0, {"samples": [{"text": "a"}, {"text": "b"}]}),
        record(2, 1.0, {"logprob": "-inf"}, status="error"),
    ]
    again = [
        record(1, 0.0005, {"samples": [{"text": "a"}, {"text": "c"}]}),
        record(0, 0.0, {"logprob": -1.25}, {"logprob": -2.0}),
        record(2, 0.0, {"logprob": -9.0}),
    ]
    found = between(first, again)
    assert (found.items, found.flips, found.change) == (2, 1, -0.25)
    assert (found.logprobs, found.largest, found.mean) == (2, 0.25, 0.125)
    assert (found.texts, found.same_texts) == (2, 1)


def test_two_equal_runs_have_no_noise_and_items_that_ask_otherwise_are_not_paired() -> None:
    same = [record(0, 1.0, {"logprob": -1.0})]
    found = between(same, same)
    assert (found.flips, found.largest, found.mean, found.texts) == (0, 0.0, 0.0, 0)
    assert between(same, [record(0, 1.0)]).largest is None
    assert list(noise_between(summary(0), same, summary(0), [], "other", same=True)) == []


def test_what_was_measured_is_found_again_and_a_broken_file_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    measured = MeasuredNoise(checkpoint="a/b", fingerprint="f", dtype="auto", rows=(ROW,))
    path = save_noise(tmp_path, measured, "run")
    (tmp_path / "noise" / "broken.json").write_text("{")
    (tmp_path / "noise" / "other.json").write_text('{"schema": 1, "kind": "noise"}')
    assert path.parent == tmp_path / "noise"
    assert read_noise(tmp_path) == [measured]
    told = [record.getMessage() for record in caplog.records]
    assert ["broken.json: cannot be read" in line for line in told] == [True, False]
    assert "other.json: cannot be read" in told[1]
    assert read_noise(tmp_path / "none") == []


def judged(*rows: Noise, whose: str = "new", dtype: str = "auto", drop: int = 1, **more: Any) -> list[str]:
    """The notes on a gate over 100 items, of which ``drop`` fewer are right than before."""
    old = entry(right(60, 100), **more)
    new = entry(right(60 - drop, 100), checkpoint="new", run_id="now", began=2.0, **more)
    gate = decide(cases_of([new], []), source(old), GateConfig(mode="plain"))
    fingerprint = (old if whose == "old" else new).saved.fingerprint
    measured = [MeasuredNoise(checkpoint=whose, fingerprint=fingerprint, dtype=dtype, rows=rows)]
    before = [line.kind for line in gate.lines]
    notes = noise_notes(gate.lines, [new], [old.saved], measured)
    assert [line.kind for line in gate.lines] == before
    return notes


@pytest.mark.parametrize("whose", ["old", "new"])
def test_a_gate_says_of_a_loss_that_the_machine_alone_does_as_much(whose: str) -> None:
    assert judged(ROW, whose=whose) == [
        "b: acc of new is worse by 1.00 points, and the machine alone changed it by 1.00 on 200 items of "
        f"{whose} (opposite order; `touchstone noise`)"
    ]


def test_a_gate_says_nothing_of_other_losses() -> None:
    assert judged(ROW, drop=2) == judged(ROW, drop=0) == judged(ROW, drop=-1) == []
    assert judged(ROW, dtype="bfloat16") == []
    assert judged(ROW, dtype="bfloat16", conditions={"dtype": "bfloat16"}, drop=3) == []
    for other in (
        {"same_machine": False},
        {"metric": "f1"},
        {"benchmark": "c"},
        {"change": 0.0},
        {"change": None},
    ):
        assert judged(replace(ROW, **other)) == []
    assert "by 3.00 on" in judged(ROW, replace(ROW, change=0.03))[0]
