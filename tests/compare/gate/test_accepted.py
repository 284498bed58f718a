"""A drop that somebody has accepted is no reason to fail, a further one is; a damaged file is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.accepted import (
    MOST_BYTES,
    AcceptedDrop,
    drop_of,
    read_accepted,
    write_accepted,
)
from pytest_touchstone.compare.gate.config import BenchmarkRules, Floor, GateConfig, read_gate_config
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.gate.result import GateResult, gate_json, lines_from_json
from pytest_touchstone.core.errors import GateError
from pytest_touchstone.reports.gate import decision_text, reason_texts
from tests.support.entries import entry, right, source
from tests.support.lines import missing

N = 400


def old(count: int, **more: Any) -> BenchmarkScores:
    return entry(right(count, N), checkpoint="old", benchmark="b", **more)


def new(count: int, of: int = N, **more: Any) -> BenchmarkScores:
    given: dict[str, Any] = {"checkpoint": "new", "benchmark": "b", "run_id": "now", "began": 99.0} | more
    found = entry(right(count, of), **given)
    share = count / of
    half = 1.96 * math.sqrt(share * (1 - share) / of)
    value = replace(found.saved.metrics["acc"], low=share - half, high=share + half)
    return replace(found, saved=replace(found.saved, metrics={"acc": value}))


def gate(mine: BenchmarkScores, *before: BenchmarkScores, **plan: Any) -> GateResult:
    return decide(cases_of([mine], ()), source(*before), GateConfig(**{"mode": "plain", **plan}))


def accepting(mine: BenchmarkScores, *before: BenchmarkScores, **plan: Any) -> AcceptedDrop:
    """What accepts the drop of this result."""
    (line,) = gate(mine, *before, **plan).lines
    assert line.fails
    who = {"because": "as agreed", "by": "Ann <ann@example.org>", "on": "2026-01-02", "run": "now"}
    return drop_of(line, mine.saved, None, **who)


DROP = accepting(new(200), old(260))


def test_up_to_the_accepted_value_nothing_fails_and_everybody_is_told() -> None:
    found = gate(new(200), old(260), accepted=(DROP,))
    (line,) = found.lines
    assert (found.exit_code, line.kind, line.comparison.verdict) == (0, "accepted", "worse")
    told = "worse: accepted from 0.6500 to 0.5000 by Ann on 2026-01-02: as agreed"
    assert told in reason_texts(line)
    assert decision_text(found) == "gate passed: 1 accepted"
    (again,) = lines_from_json(json.loads(json.dumps(gate_json(found, ""))))
    assert (again.kind, again.accepted) == ("accepted", told)


@pytest.mark.parametrize("before", [(), (old(260),), (old(260), new(200, run_id="accepted", began=5.0))])
def test_a_further_drop_fails_with_whatever_baseline_there_is(before: tuple[BenchmarkScores, ...]) -> None:
    further = gate(new(150, checkpoint="newer"), *before, accepted=(DROP,))
    assert further.exit_code == 8
    assert not missing(decision_text(further), "0.3750", "0.5000", "Ann", "2026-01-02")
    noise = gate(new(195, checkpoint="newer"), *before, accepted=(DROP,))
    assert noise.exit_code == 0


def test_the_accepted_result_is_compared_in_pairs_where_it_is_saved() -> None:
    accepted = new(200, run_id="accepted", began=5.0)
    slight = new(182, checkpoint="newer")  # 18 items lost and none won: no chance, though within the interval
    assert gate(slight, old(260), accepted=(DROP,)).exit_code == 0
    assert gate(slight, old(260), accepted, accepted=(DROP,)).exit_code == 8


def test_a_drop_from_a_better_baseline_is_another_one() -> None:
    found = gate(new(200), old(300), accepted=(DROP,))
    assert found.exit_code == 8
    assert not missing(" ".join(found.lines[0].notes), "0.7500", "another drop")


def test_floors_and_largest_drops_are_accepted_with_it() -> None:
    rules = {"b": BenchmarkRules(max_drop=0.05, floors=(Floor("acc", ">=", 0.6),))}
    drop = accepting(new(200), old(260), benchmarks=rules)
    found = gate(new(200), old(260), benchmarks=rules, accepted=(drop,))
    assert (found.exit_code, len(found.lines[0].fails)) == (0, 0)
    assert gate(new(200), benchmarks=rules, accepted=(drop,)).exit_code == 0
    assert gate(new(200), benchmarks=rules).exit_code == 8


@pytest.mark.parametrize(
    "other",
    [{"of": 300}, {"benchmark": "c"}, {"conditions": {"version": 2}}],
    ids=["items", "name", "version"],
)
def test_a_drop_says_nothing_of_other_items_benchmarks_and_conditions(other: dict[str, Any]) -> None:
    mine = new(150, **other)
    conditions = other.get("conditions")
    mine = replace(mine, saved=replace(mine.saved, conditions=mine.saved.conditions | (conditions or {})))
    before = entry(right(260, other.get("of", N)), checkpoint="old", benchmark=mine.saved.benchmark)
    before = replace(before, saved=replace(before.saved, conditions=mine.saved.conditions))
    found = gate(mine, before, accepted=(DROP,))
    assert (found.exit_code, found.lines[0].kind) == (8, "worse")
    assert not any("Ann" in reason for reason in found.lines[0].fails)


def test_a_result_that_is_not_valid_stays_so() -> None:
    mine = new(200)
    broken = replace(mine, saved=replace(mine.saved, faults=1))
    assert gate(broken, old(260), accepted=(DROP,)).exit_code == 9


@given(st.floats(0, 1), st.none() | st.floats(0, 1), st.text(max_size=20))
def test_what_is_written_is_read_again(to: float, before: float | None, name: str) -> None:
    import tempfile

    drop = replace(DROP, to=to, before=before, benchmark=" ".join(name.split()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        write_accepted(path, [drop])
        (found,) = read_accepted(path)
    assert (found.to, found.before) == (to, before)


def rows(**changed: Any) -> str:
    row = {
        "benchmark": "b",
        "metric": "acc",
        "from": 0.6,
        "to": 0.5,
        "because": "x",
        "by": "Ann",
        "on": "2026-01-02",
    }
    row |= {"run": "r", "checkpoint": "c", "fingerprint": "f"} | changed
    return json.dumps({"schema": 1, "kind": "accepted", "accepted": [row]})


DAMAGED = {
    "empty": "",
    "cut": "{",
    "deep": "[" * 10_000,
    "list": "[]",
    "schema": '{"schema": 2, "kind": "accepted", "accepted": []}',
    "object": '{"schema": 1, "kind": "accepted", "accepted": {}}',
    "null": rows(to=None),
    "word": rows(to="low"),
    "nan": rows(to=float("nan")),
    "infinite": rows(to=1e999),
    "long": rows(because="x" * 501),
    "nested": rows(conditions={"version": [1]}),
    "count": rows(items="many"),
    "twice": rows()[:-2] + "," + rows().partition("[")[2],
    "large": " " * (MOST_BYTES + 1),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_cannot_be_believed_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "touchstone-accepted.json").write_text(text)
    with pytest.raises(GateError, match=r"touchstone-accepted\.json: ") as caught:
        read_gate_config(tmp_path / "pyproject.toml", required=False)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    drop = replace(DROP, conditions={"version": 1, "shots": 0})
    write_accepted(path, [drop])
    data, refused = path.read_bytes(), 0
    for place in range(len(data)):
        for bit in (1 << (place % 8), 1 << ((place + 3) % 8)):
            path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
            try:
                assert read_accepted(path) == (drop,), (place, bit)
            except GateError:
                refused += 1
    assert refused > len(data)


def test_entries_of_two_files_can_be_joined_and_one_that_was_changed_by_hand_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file.json"
    write_accepted(path, [DROP, replace(DROP, benchmark="other")])
    data = json.loads(path.read_text())
    data["accepted"].pop(0)
    path.write_text(json.dumps(data))
    assert [one.benchmark for one in read_accepted(path)] == ["other"]
    data["accepted"][0]["to"] = 0.1
    path.write_text(json.dumps(data))
    with pytest.raises(GateError, match=r"accepted\.0: .*crc32"):
        read_accepted(path)
    del data["accepted"][0]["crc32"]
    path.write_text(json.dumps(data))
    assert read_accepted(path)[0].to == 0.1


def test_texts_of_a_file_are_shown_in_one_line_and_without_hidden_signs(tmp_path: Path) -> None:
    path = tmp_path / "touchstone-accepted.json"
    path.write_text(rows(because="fine\n::error::\x1b[31m", by="Ann\u202e"))
    (found,) = read_accepted(path)
    assert found.because == "fine ::error::"
    assert found.by == "Ann<U+202E>"


def test_the_configuration_names_another_file_in_the_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.touchstone.gate]\naccepted = "ci/accepted.json"\n')
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "accepted.json").write_text(rows())
    found = read_gate_config(tmp_path / "pyproject.toml", required=True)
    assert [one.benchmark for one in found.accepted] == ["b"]
