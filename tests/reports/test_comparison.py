"""Comparisons are printed so that every number is there, whatever the width and whatever the names."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.pair import compare_pair
from pytest_touchstone.core.requests import MASK
from pytest_touchstone.document.formatting import clip, p_exact
from pytest_touchstone.reports import comparison
from pytest_touchstone.reports.ci import comparison_page
from pytest_touchstone.reports.comparison import Flip, pair_facts, render
from tests.support.compared import printed, ran
from tests.support.entries import right
from tests.support.lines import missing

STUDY = {"real@1": right(20, 90), "real@5": right(40, 90)}
PAIR = compare_pair(
    ran(
        "base", {"winogrande": right(30, 100), "real_coref": STUDY, "ko_lambada": {"lambada@1": right(9, 50)}}
    ),
    ran(
        "tuned",
        {"winogrande": right(80, 100), "real_coref": STUDY, "ko_lambada": {"lambada@1": right(8, 50)}},
    ),
)


def width_of(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in line)


@pytest.mark.parametrize("width", [76, 80, 100, 126, 200])
def test_a_table_has_every_number_at_any_width(width: int) -> None:
    text = render([PAIR], width=width, color=False)
    assert max(map(width_of, text.splitlines())) <= width
    for shown in ("0.3000", "0.8000", "+50.00", "[+40.38", "+166.7 %", "better", "identical", "composite"):
        assert shown in text
    assert re.search(r"^improvements  winogrande: \+50\.00 points", text, re.M)
    assert re.search(r"^regressions   none", text, re.M)
    assert not missing(text, "mean +16.00 points [+11.51, +20.25]", "p = 2.9e-12")


def test_wide_tables_have_one_row_a_line() -> None:
    text = render([PAIR], width=140, color=False)
    (line,) = re.findall(r"^winogrande .*", text, re.M)
    assert re.split(r"\s{2,}", line)[:6] == [
        "winogrande",
        "* acc",
        "0.3000",
        "0.8000",
        "+50.00 (+166.7 %)",
        "[+40.38, +59.62]",
    ]
    assert line.endswith("+50 -0  better")


def test_a_result_that_is_not_valid_is_marked() -> None:
    pair = compare_pair(ran("a", {"b": [1.0] * 9}), ran("b", {"b": [1.0] * 9}, invalid="cut off"))
    assert "! acc" in render([pair], width=100, color=False)


def test_several_comparisons_stand_below_each_other() -> None:
    text = render([PAIR, PAIR], width=100, color=False)
    assert text.count("A  base") == 2


def test_sizes_of_both_are_shown_where_they_differ() -> None:
    pair = compare_pair(printed("p", {"b": (0.5, None, 2400)}), printed("q", {"b": (0.5, None, 3200)}))
    assert comparison.line_cells(pair.lines[0]).n == "2400/3200"
    alone = compare_pair(printed("p", {"b": (0.5, None, 0)}), printed("q", {"b": (0.5, None, 0)}))
    assert comparison.line_cells(alone.lines[0])[4:8] == ("+0.00 (+0.0 %)", "-", "-", "-")


@pytest.mark.parametrize(
    ("p", "text"), [(None, "-"), (1.0, "1.000"), (0.0493, "0.049"), (0.00012, "1.2e-04"), (0.0, "<1e-12")]
)
def test_a_p_is_never_printed_as_nothing(p: float | None, text: str) -> None:
    assert p_exact(p) == text


def test_json_has_no_value_that_json_has_not() -> None:
    nothing = compare_pair(printed("p", {"b": (0.0, None, 0)}), printed("q", {"b": (0.5, None, 0)}))
    for pair in (PAIR, nothing):
        json.dumps(pair_facts(pair), allow_nan=False)
    line = pair_facts(nothing)["benchmarks"][0]
    assert (line["percent"], line["p"], line["low"], line["n"], line["gained"]) == (None,) * 5
    assert line["points"] == pytest.approx(50.0)


def test_json_has_lists_values_and_adjusted_p() -> None:
    facts = pair_facts(PAIR, {"winogrande": [FLIP]})
    assert (facts["improvements"], facts["regressions"]) == (["winogrande"], [])
    line = facts["benchmarks"][0]
    assert (line["gained"], line["lost"], line["verdict"], line["paired"]) == (50, 0, "better", True)
    assert line["p_adjusted"] == pytest.approx(3 * line["p"])
    assert line["flips"][0]["gold"] == "gold"
    assert facts["mean"]["benchmarks"] == 3
    assert facts["composites"][0]["benchmark"] == "score"


FLIP = Flip(example="b/1", gained=True, question="what? " * 200, baseline="no", new="yes", gold="gold")


def test_flips_show_question_answers_and_the_right_one_within_the_width() -> None:
    text = render([PAIR], [{"winogrande": [FLIP]}], width=80, color=False)
    shown = text[text.index("items gained and lost") :]
    assert max(map(width_of, text.splitlines())) <= 80
    assert re.search(r"gained +b/1\n  question  …", shown)
    assert not missing(shown, "A no B yes", "gold gold")
    assert shown.count("what?") < 60


def test_of_a_long_text_what_is_around_the_mask_is_shown() -> None:
    text = "a " * 500 + MASK + " b" * 500
    found = clip(text, 101, end=True)
    assert MASK in found
    assert len(found) <= 101
    assert (found[0], found[-1]) == ("…", "…")
    assert clip(f"{MASK} end " + "b" * 500, 50, end=True).startswith(MASK)


@given(st.text(max_size=200), st.integers(2, 60), st.booleans())
def test_a_clipped_text_is_at_most_so_long(text: str, width: int, end: bool) -> None:
    assert len(clip(text, width, end=end)) <= width


# Markdown

NASTY = "a|b`c*d_e[f](g)<script>&\n# @someone #12"


def test_markdown_is_a_table_with_a_row_a_line() -> None:
    text = comparison_page([PAIR])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(PAIR.lines) + len(PAIR.composites)
    assert len({line.count("|") for line in rows}) == 1
    assert "## tuned against base" in text
    assert "**better**" in text


def test_names_of_others_cannot_break_out_of_their_cells() -> None:
    pair = compare_pair(ran(NASTY, {NASTY: [1.0, 0.0]}), ran("b", {NASTY: [1.0, 1.0]}))
    flip = Flip(example=NASTY, gained=True, question=NASTY, baseline=NASTY, new="</details>", gold=None)
    text = comparison_page([pair], [{NASTY: [flip]}])
    bare = re.sub(r"&#\d+;", "", text)
    assert "<script" not in text
    assert text.count("</details>") == 1
    assert "`" not in bare
    assert "@someone" not in text
    for line in bare.splitlines():
        if line.startswith("|"):
            assert line.count("|") == 11
