"""Kiwi behind ``Korean``: nouns, pronouns and repeated nouns."""

from __future__ import annotations

import subprocess
import sys

import pytest
from korean_rules import repeated_nouns

from pytest_touchstone.metrics.korean.morphology import Korean, Morpheme, noun_occurrences


@pytest.fixture(scope="module")
def korean() -> Korean:
    return Korean()


def test_importing_and_creating_it_does_not_load_kiwi() -> None:
    program = (
        "import sys; from pytest_touchstone.metrics.korean.morphology import Korean; Korean(); "
        "print('kiwipiepy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("token", ["나라", "대한민국", "위원회", " 나라 ", "국"])
def test_a_token_that_is_exactly_one_noun_is_a_noun(korean: Korean, token: str) -> None:
    assert korean.is_noun(token)


@pytest.mark.parametrize(
    "token", ["", "  ", "사람들", "나라의", "나라 도시", "그", "것", "먹다", "1988", "ab", ".", "##나라"]
)
def test_suffixes_particles_pronouns_and_other_marks_make_it_none(korean: Korean, token: str) -> None:
    assert not korean.is_noun(token)


def test_every_noun_stands_in_the_text_at_its_span(korean: Korean) -> None:
    text = "서울은 대한민국의 수도이다. 서울의 인구는 많고, 그 나란 도시가 많다."
    nouns = korean.nouns(text)
    assert [n.form for n in nouns if n.form == "서울"] == ["서울", "서울"]
    assert all(text[n.start : n.end] == n.form and len(n.form) >= 2 for n in nouns)
    assert [n.start for n in nouns] == sorted(n.start for n in nouns)


def test_a_noun_taken_out_of_a_contraction_is_no_maskable_noun() -> None:
    contracted = Morpheme("나라", "NNG", 0, 2)
    assert list(noun_occurrences("나란 크다", [contracted])) == []
    assert list(noun_occurrences("나라 크다", [contracted])) == [contracted]


def test_one_syllable_and_other_tags_are_no_maskable_nouns() -> None:
    morphemes = [Morpheme("물", "NNG", 0, 1), Morpheme("그것", "NP", 2, 4), Morpheme("서울", "NNP", 5, 7)]
    assert [m.form for m in noun_occurrences("물 그것 서울", morphemes)] == ["서울"]


def test_a_pronoun_is_seen(korean: Korean) -> None:
    assert "NP" in [one.tag for one in korean.morphemes("그것은 나라의 이름이다.")]
    assert "NP" not in [one.tag for one in korean.morphemes("서울은 나라의 수도이다.")]


def test_repeated_nouns_come_in_order_of_first_occurrence_with_all_their_mentions() -> None:
    order = ["도시", "나라", "사람", "나라", "도시", "나라"]
    mentions = [Morpheme(form, "NNG", 3 * i, 3 * i + 2) for i, form in enumerate(order)]
    repeated = repeated_nouns(mentions)
    assert list(repeated) == ["도시", "나라"]
    assert [m.start for m in repeated["나라"]] == [3, 9, 15]


def test_asking_again_gives_the_same_answer(korean: Korean) -> None:
    text = "서울은 수도이다."
    assert korean.nouns(text) == korean.nouns(text) == Korean().nouns(text)
