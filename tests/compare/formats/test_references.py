"""Files of references: what is written is read, and what nobody wrote is refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare import save_references
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.comparison_verdicts import columns
from pytest_touchstone.compare.formats import format_of
from pytest_touchstone.compare.formats.references import (
    FIRST_LINE,
    item_hash,
    noise_of,
    read_references,
    sampled_examples,
)
from pytest_touchstone.compare.save_references import format_references
from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.errors import DataError, GateError
from tests.support.compared import ran
from tests.support.entries import entry

HEADER = ['benchmark: "b"', "version: 1", 'rows: "d"', "of: 2", 'metric: "acc"', 'score: "acc"', "runs: 2"]


def runs(*columns: list[float], **more: Any) -> list[CheckpointResults]:
    few_shot = {"few_shot": {"from": None, "pick": None, "sha256": None}}
    return [
        ran("model", {"b": column}, run_id=f"r{number}", conditions=few_shot, **more)
        for number, column in enumerate(columns)
    ]


def written(path: Path, *columns: list[float], **more: Any) -> Path:
    path.write_text(format_references(runs(*columns, **more), metric=None, soft=False), encoding="utf-8")
    return path


def test_the_sums_of_all_runs_are_read_back(tmp_path: Path) -> None:
    path = written(tmp_path / "a.answers", [1, 0, 1], [1, 0, 0], [1, 0, 0])
    entry_read = read_references(path)["b"]
    new = entry([0.0, 0.0, 0.0]).items
    aligned = columns(new, [entry_read.items], "acc")
    assert dict(zip(aligned.names, aligned.baselines[0], strict=True)) == {
        "b/0000": 1,
        "b/0001": 0,
        "b/0002": pytest.approx(1 / 3),
    }
    assert entry_read.saved.reference_runs == 3
    assert format_of(path) is not None


def test_an_item_of_right_and_wrong_answers_takes_11_bytes(tmp_path: Path) -> None:
    short, long = (
        written(tmp_path / f"{n}.answers", [1.0] * n, [0.0] * n).stat().st_size for n in (100, 400)
    )
    assert 11 * 300 <= long - short <= 11 * 300 + 2


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_graded_scores_are_kept_to_a_thousandth(scores: list[float]) -> None:
    text = format_references(runs(scores), metric=None, soft=False)
    lines = dict(line.split() for line in text.split("\n") if line and ":" not in line and line != FIRST_LINE)
    hashes = [item_hash(f"b/{place:04}", f"row of b/{place:04}") for place in range(len(scores))]
    assert [float(lines[digest]) for digest in hashes] == pytest.approx(scores, abs=0.0005001)


def test_items_that_share_their_digits_have_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_references, "DIGITS", 1)
    text = format_references(runs([1.0] * 40), metric=None, soft=False)
    lines = text.removeprefix(FIRST_LINE).split("\n")
    digests = [line.split()[0] for line in lines if line.endswith(" 1") and ":" not in line]
    assert len({*digests}) == 40


def test_a_changed_row_is_another_item(tmp_path: Path) -> None:
    path = written(tmp_path / "a.answers", [1, 0])
    new = entry([1.0, 1.0], rows=["row of b/0000", "changed"])
    assert columns(new.items, [read_references(path)["b"].items], "acc").names == ["b/0000"]


def test_a_sample_is_the_same_in_every_order_of_the_rows(tmp_path: Path) -> None:
    references = read_references(written(tmp_path / "a.answers", [1.0] * 50))["b"]
    examples = [
        Example(id=f"b/{place:04}", group=None, row={}, sha256=f"row of b/{place:04}") for place in range(60)
    ]
    first = sampled_examples(references, examples, 10, "data")
    assert first == sampled_examples(references, examples[::-1], 10, "data")
    assert first == sampled_examples(references, examples, 20, "data")[:10]
    assert len(sampled_examples(references, examples, None, "data")) == 50
    with pytest.raises(DataError, match="30 rows of data"):
        sampled_examples(references, examples[:30], None, "data")


def test_noise_is_the_share_of_items_that_flip_between_two_runs(tmp_path: Path) -> None:
    """Of one item in four the runs disagree: one of the three pairs of runs agrees on it."""
    several = read_references(written(tmp_path / "a.answers", [1, 1, 0, 1], [1, 1, 0, 0], [1, 1, 0, 0]))
    assert noise_of(several["b"]) == pytest.approx(2 / 3 / 4)
    assert noise_of(read_references(written(tmp_path / "b.answers", [1, 0]))["b"]) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"faults": 1},
        {"invalid": "too many texts were cut off"},
        {"skipped": 3},
        {"fingerprint": "1-imported"},
    ],
)
def test_a_result_that_is_not_whole_is_no_reference(changes: dict[str, Any]) -> None:
    with pytest.raises(GateError):
        format_references(runs([1, 0], **changes), metric=None, soft=False)


def test_runs_of_other_questions_are_not_added_up() -> None:
    first, other = runs([1, 0], [1, 0])
    for changed in ({"conditions": {"shots": 5}}, {"examples": ["b/0000", "b/0007"]}):
        with pytest.raises(GateError, match=r"differ|its items"):
            format_references([first, ran("m", {"b": [1, 0]}, **changed)], metric=None, soft=False)
    assert format_references([first, other], metric=None, soft=False)


def test_a_metric_that_no_benchmark_has_is_refused() -> None:
    with pytest.raises(GateError, match=r"--metric: unknown metric 'ac'; did you mean 'acc'"):
        format_references(runs([1, 0]), metric="ac", soft=False)


def test_an_item_that_asked_nothing_leaves_the_prompts_of_others_in_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = {(name, f"row of {name}"): name for name in ("b/0000", "b/0001", "b/0002", "b/0003")}
    hashes = read_references(written(tmp_path / "a.answers", [1.0] * 4))["b"].items.examples
    by_hash = {item_hash(*pair): prompt for pair, prompt in prompts.items()}
    silent = by_hash.pop(hashes[0])
    del prompts[silent, f"row of {silent}"]
    monkeypatch.setattr(save_references, "prompt_digests", lambda _: prompts)
    header = read_references(written(tmp_path / "b.answers", [1.0] * 4))["b"].header
    assert header.prompts == ["", *(by_hash[digest] for digest in hashes[1:])]


def test_scores_beyond_one_are_no_answers() -> None:
    with pytest.raises(GateError, match="no mean of scores"):
        format_references(runs([-1.5, 0]), metric=None, soft=False)


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ([], "ends before the items"),
        ([*HEADER], "ends before the items"),
        ([*HEADER, "00000000 3"], "more right than runs"),
        ([*HEADER, "00000000 1", "00000000 1"], "twice"),
        ([*HEADER, "00000000 1", "000000001 1"], "several lengths"),
        ([*HEADER[:-1], "runs: 0", "00000000 0"], "runs is 0"),
        ([*HEADER[:-1], 'runs: "many"', "00000000 0"], "runs"),
        ([*HEADER, "settings: [", "00000000 1"], "line 10"),
        ([*HEADER, f"settings: {'[' * 2000}", "00000000 1"], "line 10"),
        ([*HEADER, "<script>", "00000000 1"], "neither"),
        ([*HEADER, "nan: NaN", "00000000 -1"], "neither"),
        ([*HEADER, "00000000 1", "", *HEADER, "00000000 1"], "twice"),
        ([*HEADER[1:], "00000000 1"], "benchmark"),
    ],
)
def test_a_file_that_nobody_wrote_is_refused_in_one_line(
    tmp_path: Path, lines: list[str], names: str
) -> None:
    path = tmp_path / "a.answers"
    path.write_text("\n".join([FIRST_LINE, "", *lines]), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_references(path)
    assert "a.answers" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b'{"schema": 1}', b"touchstone answers 2\n"])
def test_another_file_is_no_file_of_references(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.answers"
    path.write_bytes(content)
    with pytest.raises(DataError):
        read_references(path)
    with pytest.raises(DataError):
        read_references(tmp_path)


def test_a_file_cannot_switch_off_a_protection(tmp_path: Path) -> None:
    path = tmp_path / "a.answers"
    settings = 'settings: {"trust_remote_code": true, "sandbox": "none", "server_args": "x", "top_p": 0.5}'
    path.write_text("\n".join([FIRST_LINE, *HEADER, settings, "00000000 1"]), encoding="utf-8")
    header = read_references(path)["b"].header
    assert header is not None
    assert header.asking == {"top_p": 0.5, "chat": "off"}


def test_what_tells_of_engines_is_no_part_of_what_was_asked() -> None:
    first, other = runs([1, 0], [1, 0])
    entries = {"b": replace(other.entries["b"])}
    entries["b"] = replace(
        entries["b"],
        saved=replace(
            other.entries["b"].saved, conditions={**first.entries["b"].saved.conditions, "dtype": "float16"}
        ),
    )
    assert format_references([first, replace(other, entries=entries)], metric=None, soft=False)
