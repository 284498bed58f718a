"""Lists, counts and similar names read the same in every message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.core.text import alike, count, did_you_mean, either, listed, place_text, repeats_itself


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
    assert listed(names, most) == text
    assert listed(iter(names), most) == text


def test_clauses_are_kept_apart_by_semicolons() -> None:
    assert listed(["a, b", "c", "d"], 2, between="; ") == "a, b; c; and 1 more"


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 20))
def test_a_list_leaves_no_name_uncounted(names: list[str], most: int) -> None:
    text = listed(names, most)
    shown, _, rest = text.partition(" and ")
    assert len(shown.split(", ")) + int(rest.split()[0] if rest else 0) == max(1, len(names))


@pytest.mark.parametrize(
    ("words", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")]
)
def test_choices_end_with_or(words: list[str], text: str) -> None:
    assert either(words) == text


def test_a_count_agrees_with_its_noun() -> None:
    assert [count(number, "item") for number in (0, 1, 2)] == ["0 items", "1 item", "2 items"]
    assert count(2, "entry", "entries") == "2 entries"


def test_the_most_similar_name_is_asked_for() -> None:
    assert did_you_mean("shot", ["seed", "shots"]) == "did you mean 'shots'? "
    assert did_you_mean("zzz", ["seed", "shots"]) == ""
    assert alike("mmlu", ["mmlu_pro", "mmlu", "arc"], 2)[0] == "mmlu"


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
    assert place_text(place) == text
