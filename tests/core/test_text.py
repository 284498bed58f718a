"""Lists, counts and similar names read the same in every message.

What others wrote is only read by terminals, logs of jobs and spreadsheets.
"""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import (
    INVISIBLE,
    collapse_lines,
    count,
    csv_cell,
    did_you_mean,
    escape_ci_commands,
    escape_invisible,
    escape_invisible_json,
    estimate_tokens,
    format_step,
    is_ci_log,
    join_choices,
    join_names,
    one_line,
    parse_csv_cell,
    redact_home,
    repeats_itself,
    shortest_endings,
    similar_names,
)


@pytest.mark.parametrize(
    ("names", "most", "text"),
    [
        ([], 3, "none"),
        (["a"], 3, "a"),
        (["a", "b", "c"], 3, "a, b, c"),
        (["a", "b", "c", "d", "e"], 2, "a, b and 3 more"),
    ],
)
def test_a_list_names_the_first_and_counts_the_rest(names: list[str], most: int, text: str) -> None:
    assert join_names(names, most) == text
    assert join_names(iter(names), most) == text


def test_clauses_are_kept_apart_by_semicolons() -> None:
    assert join_names(["a, b", "c", "d"], 2, between="; ").split("; ") == ["a, b", "c", "and 1 more"]


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 20))
def test_a_list_leaves_no_name_uncounted(names: list[str], most: int) -> None:
    text = join_names(names, most)
    shown, _, rest = text.partition(" and ")
    assert len(shown.split(", ")) + int(rest.split()[0] if rest else 0) == max(1, len(names))


@pytest.mark.parametrize(
    ("words", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")]
)
def test_choices_end_with_or(words: list[str], text: str) -> None:
    assert join_choices(words) == text


def test_a_count_agrees_with_its_noun() -> None:
    assert [count(number, "item") for number in (0, 1, 2)] == ["0 items", "1 item", "2 items"]
    assert count(2, "entry", "entries") == "2 entries"


def test_a_path_is_named_by_the_fewest_folders_that_tell_it_from_the_others() -> None:
    paths = ["/runs/a/checkpoints", "runs/b/checkpoints/", "b/checkpoints", ".", "/c"]
    assert [*shortest_endings(paths).values()] == [
        "a/checkpoints",
        "runs/b/checkpoints",
        "b/checkpoints",
        "checkpoints",
        "c",
    ]


def test_the_most_similar_name_is_asked_for() -> None:
    assert did_you_mean("shot", ["seed", "shots"]) == "did you mean 'shots'? "
    assert did_you_mean("zzz", ["seed", "shots"]) == ""
    assert similar_names("mmlu", ["mmlu_pro", "mmlu", "arc"], 2)[0] == "mmlu"


@given(st.text("ab ", max_size=40), st.text(min_size=1, max_size=50), st.integers(3, 30), st.integers(0, 49))
def test_a_passage_again_and_again_to_the_end_is_a_repetition(
    before: str, passage: str, times: int, cut: int
) -> None:
    text = before + passage * times
    text = text[: len(text) - min(cut, len(passage) - 1)]
    whole = passage * times
    long_enough = len(whole) - min(cut, len(passage) - 1) >= max(60, 3 * len(passage))
    assert repeats_itself(text) or not long_enough


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no " * 10,
        " ".join(map(str, range(400))),
        "It is so. It is so. It is so. " * 3 + "And then it ends otherwise, as texts do.",
        ("a passage of more than sixty characters that stands here two times only; " * 2),
    ],
)
def test_other_texts_are_no_repetitions(text: str) -> None:
    assert not repeats_itself(text)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (0.5, "0.5"),
        (3.0, "3"),
        (2.4867, "2.487"),
        (0.126904, "0.127"),
        (143000, "143000"),
        (12345678.0, "12345678"),
    ],
)
def test_an_epoch_is_short_and_a_step_is_whole(place: float, text: str) -> None:
    assert format_step(place) == text


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys_or_does_not_show(text: str) -> None:
    shown = escape_invisible(text)
    assert not INVISIBLE.search(shown)
    assert escape_invisible(shown) == shown
    assert shown.isprintable() or re.search(r"\s|[^\x00-\x7f]", shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "<U+001B>]0;title<U+0007>"),
        ("a\u202eb\u2066c\u200bd\u9b00", "a<U+202E>b<U+2066>c<U+200B>d\u9b00"),
        ("\x9b2J", "<U+009B>2J"),
        ("over\rwritten", "over<U+000D>written"),
        ("a line\r\nand\tanother\n", "a line\r\nand\tanother\n"),
        ("한글, العربية, 日本\u3000語", "한글, العربية, 日本\u3000語"),
    ],
)
def test_signs_are_named_and_words_are_kept(text: str, shown: str) -> None:
    assert escape_invisible(text) == shown


@pytest.mark.parametrize("code", ["8", "1;8", "30", "40", "48;5;1", "2J", "38;5;8"])
def test_colours_pass_where_they_are_wanted_but_none_that_hides(code: str) -> None:
    end = "" if code.endswith("J") else "m"
    text = f"\x1b[1m\x1b[31mred\x1b[0m \x1b[39;49;00m \x1b[{code}{end}x"
    shown = escape_invisible(text, colours=True)
    assert shown.startswith("\x1b[1m\x1b[31mred\x1b[0m \x1b[39;49;00m <U+001B>[")
    assert "\x1b" not in escape_invisible(text)


@given(st.text())
def test_json_says_the_same_without_such_signs(text: str) -> None:
    shown = escape_invisible_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(shown) == [text]
    assert not INVISIBLE.search(shown)


@given(st.lists(st.sampled_from([*"\n\r\t :x\u3000\xa0[#", "::", "##[", "##vso["])).map("".join))
def test_no_line_is_a_command_of_a_service(text: str) -> None:
    shown = escape_ci_commands(text)
    assert all(not line.lstrip().startswith("::") for line in re.split("[\r\n]", shown))
    assert "##[" not in shown
    assert "##vso[" not in shown
    assert escape_ci_commands(shown) == shown
    assert shown.replace(" ", "") == text.replace(" ", "")


def test_a_log_is_that_of_a_service() -> None:
    assert is_ci_log({"GITHUB_ACTIONS": "true"})
    assert is_ci_log({"TF_BUILD": "True"})
    assert not is_ci_log({})
    assert not is_ci_log({"GITHUB_ACTIONS": "false"})


@given(st.text() | st.sampled_from(["=1+1", "'=1", "''@x", "\t=1", "-5", "＝1"]))
def test_a_text_in_a_table_is_no_formula_and_comes_back(text: str) -> None:
    shown = csv_cell(text)
    assert not shown.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝"))
    assert parse_csv_cell(shown) == text


def test_numbers_in_a_table_stay_numbers() -> None:
    assert [csv_cell(value) for value in (-1.5, 3, None)] == [-1.5, 3, None]


def test_a_line_of_a_library_is_one_line() -> None:
    assert one_line("\x1b[31ma\x1b[0m\n  b\u2028c \x07") == "a b c <U+0007>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/alice/runs/a: broken", "~/runs/a: broken"),
        ("'/root/x' and /Users/bob, file:///home/c/y", "'~/x' and ~, file://~/y"),
        (r"C:\Users\bob\x", r"~\x"),
        ("/srv/home/alice and http://host/home/alice and /rooted", None),
    ],
)
def test_a_home_is_not_told(text: str, shown: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/homes/me")
    assert redact_home(text) == (text if shown is None else shown)
    assert redact_home("see /data/homes/me/x, /data/homes/mean") == "see ~/x, /data/homes/mean"


def test_a_message_of_ours_is_one_line_without_keys() -> None:
    error = CheckpointError("http://me:hunter2@host/v1:\n  no \x1b[2Janswer\r::error::x")
    secret, _, shown = str(error).partition("@")
    assert "hunter2" not in secret
    assert shown == "host/v1: no <U+001B>[2Janswer ::error::x"


@pytest.mark.parametrize("part", [" ", "\n", "\n ", "\x1b[0m", "\x1b[0", "#", "##a", "/home/", ":"])
def test_no_text_takes_long(part: str) -> None:
    text = part * 50_000
    began = time.process_time()
    for border in (escape_ci_commands, escape_invisible, one_line, collapse_lines, redact_home):
        border(text)
    assert time.process_time() - began < 2


@given(st.text(), st.text())
def test_rough_tokens_of_a_text_are_about_those_of_its_halves(one, other):
    assert 0 <= estimate_tokens(one) <= len(one)
    assert abs(estimate_tokens(one + other) - estimate_tokens(one) - estimate_tokens(other)) <= 1
