"""What a run's answers cost is noted, put together over processes, and shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.effort import Effort, peak_bytes, process_age, proportional_bytes
from harness.reports import wording
from harness.results import summary_from_json, summary_json
from harness.rundir import RunDirectory
from tests.summaries import sample

GIB = 2**30


def effort(who: str, checkpoint: str = "a", **more: object) -> Effort:
    engine = {"tokens": 1000, "padding": 25, "distinct": 975, "logits": 10, "batch_tokens": 4096, "notes": []}
    return Effort(
        who=who,
        checkpoint=checkpoint,
        engine={**engine, **more},
        first_answer=4.0,
        peak_bytes=GIB,
        proportional_bytes=GIB // 2,
    )


def test_a_process_knows_its_age_and_its_memory() -> None:
    age, peak, share = process_age(), peak_bytes(), proportional_bytes()
    assert age is not None
    assert 0 < age < 24 * 3600
    assert peak is not None
    assert share is not None
    assert 2**20 < share <= peak * 1.05


def test_all_processes_notes_are_read_back(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.write_effort("gw0", [effort("gw0"), effort("gw0", "b")])
    directory.write_effort("gw1", [effort("gw1")])
    directory.write_effort("gw1", [effort("gw1", tokens=2000)])
    assert directory.read_effort() == [effort("gw0"), effort("gw0", "b"), effort("gw1", tokens=2000)]


def test_one_line_a_checkpoint_adds_up_its_processes() -> None:
    found = replace(sample(), effort=[effort("gw0"), effort("gw1", tokens=3000, padding=15)])
    assert wording.effort(found) == [
        "4,000 tokens computed, 1.0 % padding; first answers after 4.0 s; 1.00 GiB at most a process; "
        "2 processes with 1.00 GiB in all, shared pages counted once"
    ]


def test_a_single_process_is_not_counted() -> None:
    found = replace(sample(), effort=[effort("main")])
    assert wording.effort(found) == [
        "1,000 tokens computed, 2.5 % padding; first answers after 4.0 s; 1.00 GiB at most"
    ]


def test_engines_without_costs_say_nothing() -> None:
    found = replace(sample(), effort=[Effort(who="main", checkpoint="a", engine={})])
    assert wording.effort(found) == []


def test_what_an_engine_does_otherwise_is_a_warning_once() -> None:
    rows = [effort("gw0", notes=["a: slow"]), effort("gw1", notes=["a: slow"])]
    assert wording.warnings(replace(sample(), effort=rows)) == ["a: slow"]


def test_it_survives_the_summarys_file() -> None:
    found = replace(sample(), effort=[effort("main")])
    assert summary_from_json(summary_json(found)).effort == found.effort
