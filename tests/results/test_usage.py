"""The usage of a run's answers is noted, added up over processes, and shown."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_touchstone.document import Facts
from pytest_touchstone.engines.base import SLOW_WAYS
from pytest_touchstone.reports import ci, notes
from pytest_touchstone.reports.pages import run_page
from pytest_touchstone.reports.terminal import render
from pytest_touchstone.results import usage as measured
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import summary_from_json, summary_json
from pytest_touchstone.results.usage import Usage, UsageMeter, peak_bytes, process_age
from tests.support.lines import naming, numbers
from tests.support.summaries import sample

GIB = 2**30


def usage_of(who: str, checkpoint: str = "a", **more: object) -> Usage:
    engine = {"tokens": 1000, "padding": 25, "distinct": 975, "logits": 10, "batch_tokens": 4096, "notes": []}
    return Usage(
        who=who,
        checkpoint=checkpoint,
        engine={**engine, **more},
        first_answer=4.0,
        peak_bytes=GIB,
    )


def test_a_process_knows_its_age_and_its_memory() -> None:
    age, peak = process_age(), peak_bytes()
    assert age is not None
    assert 0 < age < 24 * 3600
    assert peak is not None
    assert 2**20 < peak < 2**40


class Engine:
    """Something that is loaded."""


def test_a_checkpoint_loaded_anew_adds_up_and_keeps_the_time_of_its_first_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[list[tuple[str, int, float | None, bool]]] = []
    meter = UsageMeter(
        "gw0",
        lambda rows: written.append(
            [(row.checkpoint, row.engine["tokens"], row.first_answer, row.peak_bytes is None) for row in rows]
        ),
    )
    ages = iter((3.0, 5.0, 8.0))
    monkeypatch.setattr(measured, "process_age", lambda: next(ages))
    meter.note()
    assert written == []
    one, other = Engine(), Engine()
    meter.begin(one, "a")
    meter.begin(one, "a")
    meter.count(one, "a", {"tokens": 10})
    meter.count(one, "a", {"tokens": 30})
    meter.count(other, "b", {"tokens": 7})
    del one
    again = Engine()
    meter.count(again, "a", {"tokens": 4})
    meter.note()
    assert written == [[("a", 30, 3.0, True), ("b", 7, 5.0, True), ("a", 4, 8.0, False)]]


def test_costs_are_noted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = 100.0, []
    monkeypatch.setattr(time, "monotonic", lambda: now)
    meter, engine = UsageMeter("main", lambda rows: written.append(now)), Engine()
    for _ in range(12):
        meter.count(engine, "a", {})
        now += 0.5
    assert written == [102.5, 105.0]


def test_all_processes_notes_are_read_back(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.write_usage("gw0", [usage_of("gw0"), usage_of("gw0", "b")])
    directory.write_usage("gw1", [usage_of("gw1")])
    directory.write_usage("gw1", [usage_of("gw1", tokens=2000)])
    assert directory.read_usage() == [usage_of("gw0"), usage_of("gw0", "b"), usage_of("gw1", tokens=2000)]


def test_one_line_a_checkpoint_adds_up_its_processes() -> None:
    found = replace(sample(), effort=[usage_of("gw0"), usage_of("gw1", tokens=3000, padding=15)])
    (line,) = notes.usage(found)
    assert (numbers(line), "per process" in line) == ([4000, 1, 4, 1], True)


def test_a_single_process_is_not_counted() -> None:
    found = replace(sample(), effort=[usage_of("main")])
    (line,) = notes.usage(found)
    assert (numbers(line), "per process" in line) == ([1000, 2.5, 4, 1], False)


def test_a_process_that_loaded_a_checkpoint_twice_is_one_process() -> None:
    twice = [usage_of("gw0"), usage_of("gw0", tokens=3000), usage_of("gw1")]
    (line,) = notes.usage(replace(sample(), effort=twice))
    assert (numbers(line), "per process" in line) == ([5000, 1.5, 4, 1], True)
    (alone,) = notes.usage(replace(sample(), effort=twice[:2]))
    assert "per process" not in alone


def test_what_was_proposed_is_added_up_over_processes() -> None:
    one = {"lengths": [60, 20, 20], "asked": [100, 80], "right": [40, 20]}
    other = {"lengths": [0, 0, 0, 25], "asked": [25, 25, 25], "right": [25, 25, 25]}
    rows = [usage_of("gw0", speculative=one, decoded=260), usage_of("gw1", speculative=other, decoded=140)]
    (line,) = notes.usage(replace(sample(), effort=[*rows, usage_of("gw2", decoded=0)]))
    assert numbers(line)[-7:] == [65, 2.08, 1, 3, 52, 43, 100]


def test_engines_without_costs_say_nothing() -> None:
    found = replace(sample(), effort=[Usage(who="main", checkpoint="a", engine={})])
    assert notes.usage(found) == []


def warnings(summary):
    """What a reader should know before the numbers."""
    return [
        text
        for content in notes.warnings_section(summary, details=True).parts
        if isinstance(content, Facts)
        for label, text in content.rows
        if label != "not valid"
    ]


def test_what_an_engine_does_otherwise_is_a_warning_once() -> None:
    rows = [usage_of("gw0", notes=["a: slow"]), usage_of("gw1", notes=["a: slow"])]
    assert warnings(replace(sample(), effort=rows)) == ["a: slow"]


def slow(way: str, computed: int, enough: int, reason: str = "it has chunks") -> dict[str, object]:
    return {"way": way, "reason": reason, "computed": computed, "enough": enough}


def test_a_slow_way_is_told_with_its_cost_over_all_processes() -> None:
    rows = [
        usage_of("gw0", slow=[slow("generating", 40_000, 4_000), slow("logits", 50, 10)]),
        usage_of("gw1", slow=[slow("generating", 1_510, 762)]),
        usage_of("gw1", "b", slow=[slow("scoring", 300, 100, "another")]),
    ]
    found = replace(sample(), effort=rows)
    told = [
        "a: every text is generated by itself, which is slow (it has chunks): 41,510 tokens computed where about "
        "4,762 would do, 8.7 times as many",
        "a: logits are computed for every token, which is slow (it has chunks): 50 logits computed where about 10 "
        "would do, 5.0 times as many",
        "b: every sequence is computed by itself, which is slow (another): 300 tokens computed where about 100 "
        "would do, 3.0 times as many",
    ]
    assert warnings(found) == told
    shown = " ".join(render(found, 80, False, details=True).split())
    for line in told:
        assert line in shown
        assert line in run_page(found)
        assert line in ci.markdown_page(found).replace("\\", "")
    assert summary_json(found)["effort"][1]["engine"]["slow"] == [slow("generating", 1_510, 762)]


def test_the_slow_way_of_many_checkpoints_is_one_line() -> None:
    rows = [usage_of("main", str(step), slow=[slow("scoring", 30, 10, f"{step} off")]) for step in range(5)]
    (line,) = notes.slow_ways(replace(sample(), effort=rows))
    assert naming("5 checkpoints", SLOW_WAYS["scoring"][0], "0 off", "150 tokens").search(line)
    assert numbers(line) == [5, 0, 4, 150, 50, 3]


def test_it_survives_the_summarys_file() -> None:
    found = replace(sample(), effort=[usage_of("main")])
    assert summary_from_json(summary_json(found)).effort == found.effort
