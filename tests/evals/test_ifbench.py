"""IFBench's rows, its rules on any text, and what it says where something is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_touchstone.core.benchmark import declaration_of
from pytest_touchstone.core.dataset import load_dataset
from pytest_touchstone.core.errors import DataError, HarnessError
from pytest_touchstone.core.files import load_module
from tests.support.places import ROOT
from tests.support.rows import write_jsonl

IFBENCH = load_module(ROOT / "evals" / "test_ifbench.py", "ifbench_rules")
ROWS = [
    json.loads(line)
    for line in (ROOT / "fixtures" / "data" / "ifbench" / "IFBench_test.jsonl")
    .read_text("utf-8")
    .splitlines()
]
VALUES = {
    kind: values
    for row in ROWS
    for kind, values in zip(row["instruction_id_list"], row["kwargs"], strict=True)
}
TAGGED = "words:start_verb"
ANY_TEXT = st.text() | st.text("aA1 .?!\"'()*-<>i/\n,:;é日😀\0", max_size=80)


def row(kind: str, **values: Any) -> dict[str, Any]:
    return {"key": "1", "prompt": "Write.", "instruction_id_list": [kind], "kwargs": [values]}


def test_the_shipped_prompts_have_every_kind_but_the_one_that_needs_a_tagger() -> None:
    assert {TAGGED} == IFBENCH.INSTRUCTIONS.keys() - VALUES.keys()
    assert len(IFBENCH.INSTRUCTIONS) == 58
    assert all(IFBENCH.check_instructions(shipped)["kwargs"] == shipped["kwargs"] for shipped in ROWS)


def test_rows_of_the_hub_have_nulls_and_floats_where_a_count_is_meant() -> None:
    published = row("sentence:keyword", N=8.0, word="ladder", relation=None, m=None)
    assert IFBENCH.check_instructions(published)["kwargs"] == [{"word": "ladder", "N": 8}]


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        (row("words:rhyme"), ["words:rhyme", "58"]),
        (row("count:numbers"), ["count:numbers", "N is None"]),
        (row("count:numbers", N="5"), ["N is '5'"]),
        (row("count:numbers", N=2.5), ["N is 2.5"]),
        (row("count:numbers", N=float("nan")), ["N is nan"]),
        (row("count:numbers", N=float("inf")), ["N is inf"]),
        (row("count:numbers", N=-1), ["N is -1"]),
        (row("format:list", sep=7), ["sep is 7"]),
        (row("format:list", sep=" "), ["sep is ' '"]),
        ({**row("format:list"), "kwargs": []}, ["zip"]),
        ({**row("format:list"), "kwargs": [None]}, ["NoneType"]),
        ({**row("format:list"), "kwargs": 7}, ["int"]),
        ({**row("format:list"), "instruction_id_list": [[]]}, ["list"]),
        ({**row("format:list"), "instruction_id_list": [], "kwargs": []}, ["no instruction"]),
        ({"key": "1", "prompt": "Write."}, ["instruction_id_list"]),
        ({**row("format:newline"), "prompt": None}, ["prompt"]),
    ],
)
def test_a_row_that_cannot_be_checked_is_named_in_one_line(
    tmp_path: Path, wrong: dict[str, Any], shown: list[str]
) -> None:
    (tmp_path / "ifbench").mkdir()
    write_jsonl(tmp_path / "ifbench" / "IFBench_test.jsonl", [row("format:newline"), wrong])
    spec = declaration_of(IFBENCH.test_ifbench)
    assert spec is not None
    with pytest.raises(DataError) as error:
        load_dataset(spec, str(tmp_path))
    line = str(error.value)
    assert all(value in line for value in ["row 2", *shown])
    assert "\n" not in line


def test_without_the_tagger_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    IFBENCH.tagger.cache_clear()
    with pytest.raises(HarnessError) as error:
        IFBENCH.check_instructions(row(TAGGED))
    assert "python -m nltk.downloader averaged_perceptron_tagger_eng" in str(error.value)
    assert "\n" not in str(error.value)


@settings(max_examples=30, deadline=None)
@given(ANY_TEXT.filter(str.strip))
def test_every_rule_has_a_verdict_on_any_text(text: str) -> None:
    for kind, values in VALUES.items():
        assert IFBENCH.INSTRUCTIONS[kind](values, text) in (True, False), kind


@settings(max_examples=50, deadline=None)
@given(ANY_TEXT, st.integers(0, 5), st.integers(0, 5))
def test_any_counts_have_a_verdict(text: str, first: int, second: int) -> None:
    for kind, names in IFBENCH.NEEDED.items():
        counts = {name: (first, second)[index % 2] for index, name in enumerate(names)}
        values = {**VALUES[kind], **{name: counts[name] for name in names if name in IFBENCH.COUNTS}}
        assert IFBENCH.INSTRUCTIONS[kind](values, text or "a") in (True, False), kind


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("custom:mcq_count_length", "Question 1" + "\n" * 100_000 + "x"),
        (
            "custom:csv_special_character",
            "ProductID,Category,Brand,Price,Stock\n" + '1,1,1,1,"!"!\n' * 14 + "!" * 90_000,
        ),
        ("format:line_indent", "a\n" + "\n \n" * 30_000),
        ("format:newline", "a b\n\n" * 20_000),
        ("format:no_bullets_bullets", "a.\n" * 30_000),
        ("format:parentheses", "(" * 100_000),
    ],
)
def test_a_long_text_that_a_slow_rule_would_look_at_for_minutes_has_a_verdict(kind: str, text: str) -> None:
    assert IFBENCH.INSTRUCTIONS[kind](VALUES[kind], text) is False


def test_nothing_that_only_a_rule_needs_is_imported_with_the_benchmark() -> None:
    names = ("emoji", "syllapy")
    loaded = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    load_module(ROOT / "evals" / "test_ifbench.py", "ifbench_alone")
    assert not any(name in sys.modules for name in names)
    sys.modules.update(loaded)
