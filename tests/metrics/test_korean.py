"""Real@k: clipping, candidates, hits, the copy baseline and Ko-LAMBADA's mask.

Kiwi: nouns, pronouns and repeated nouns.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from korean_rules import repeated_nouns

from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.requests import MASK
from pytest_touchstone.metrics.korean import (
    Morpheme,
    clip_around_mask,
    copied_noun,
    copy_baseline,
    hits,
    is_lenient_hit,
    is_noun,
    lenient_at,
    mask_target,
    morphemes,
    noun_candidates,
    noun_occurrences,
    nouns,
    strict_at,
    visible,
)

words = st.text(alphabet="가나다라마", min_size=1, max_size=4)
plain = st.text(alphabet="가나다 .", max_size=900)
lengths = st.integers(min_value=1, max_value=4096)


@given(plain, plain, lengths)
def test_clipping_keeps_the_mask_and_the_text_next_to_it(before: str, after: str, seq_len: int) -> None:
    clipped = clip_around_mask(before + MASK + after, seq_len)
    left, mask, right = clipped.partition(MASK)
    assert mask == MASK
    assert before.endswith(left)
    assert after.startswith(right)
    width = int(200 * max(1, seq_len / 512))
    assert (len(left), len(right)) == (min(width, len(before)), min(width, len(after)))


@pytest.mark.parametrize(
    ("seq_len", "width"), [(128, 200), (512, 200), (768, 300), (1536, 600), (2000, 781), (2048, 800)]
)
def test_a_longer_model_sees_more_text_in_proportion(seq_len: int, width: int) -> None:
    clipped = clip_around_mask("가" * 1000 + MASK + "나" * 1000, seq_len)
    assert clipped == "가" * width + MASK + "나" * width


@given(plain, plain, lengths)
def test_clipping_twice_changes_nothing(before: str, after: str, seq_len: int) -> None:
    once = clip_around_mask(before + MASK + after, seq_len)
    assert clip_around_mask(once, seq_len) == once


@pytest.mark.parametrize("text", ["나라", f"{MASK} {MASK}"])
def test_a_text_without_exactly_one_mask_is_refused_with_its_count(text: str) -> None:
    with pytest.raises(DataError, match=f"a text with {text.count('[')} masks"):
        clip_around_mask(text, 512)


def test_the_visible_text_does_not_join_the_neighbours_of_the_mask() -> None:
    assert visible(f"대한{MASK}민국") == "대한 민국"


def test_candidates_are_the_nouns_in_their_order_with_doubles_kept() -> None:
    tokens = ["의", " 나라", "", "나라", "  ", "도시"]
    assert noun_candidates(tokens, lambda t: t in {"나라", "도시", ""}) == ("나라", "나라", "도시")


@pytest.mark.parametrize(
    ("target", "candidate", "hit"),
    [
        ("나라", "나라", True),
        ("나라", "우리나라", True),
        ("우리나라", "나라", True),
        ("나라", "나", True),
        ("나라", "라나", False),
        ("나라", "", False),
    ],
)
def test_a_lenient_hit_is_containment_either_way(target: str, candidate: str, hit: bool) -> None:
    assert is_lenient_hit(target, candidate) is hit


def test_hits_of_a_hand_made_answer_are_as_worked_out_by_hand() -> None:
    scores = hits("real", "나라", ("도시", "국가", "우리나라", "나라", "사람"), (1, 3, 5))
    assert scores == {
        "real@1": 0.0,
        "real@1_strict": 0.0,
        "real@3": 1.0,
        "real@3_strict": 0.0,
        "real@5": 1.0,
        "real@5_strict": 1.0,
    }


def test_no_candidate_is_a_miss() -> None:
    assert set(hits("real", "나라", (), (1, 5)).values()) == {0.0}


@given(words, st.lists(words, max_size=8), st.integers(1, 8))
def test_what_hits_strictly_hits_leniently(target: str, candidates: list[str], k: int) -> None:
    assert strict_at(k, target, candidates) <= lenient_at(k, target, candidates)


@given(words, st.lists(words, max_size=8), st.integers(1, 8))
def test_more_candidates_never_lose_a_hit(target: str, candidates: list[str], k: int) -> None:
    assert lenient_at(k, target, candidates) <= lenient_at(k + 1, target, candidates)
    assert strict_at(k, target, candidates) <= strict_at(k + 1, target, candidates)


@given(words, st.lists(words, max_size=8), st.integers(1, 8))
def test_candidates_behind_the_kth_do_not_matter(target: str, candidates: list[str], k: int) -> None:
    cut = candidates[:k]
    assert lenient_at(k, target, candidates) == lenient_at(k, target, cut)
    assert strict_at(k, target, candidates) == strict_at(k, target, cut)


def test_the_copy_baseline_answers_the_most_frequent_repeated_noun_first_of_equals() -> None:
    assert copied_noun(["도시", "나라", "사람", "나라", "도시"]) == ("도시",)
    assert copied_noun(["도시", "나라", "나라"]) == ("나라",)
    assert copied_noun(["도시", "나라"]) == ()
    assert copied_noun([]) == ()


@pytest.mark.parametrize(
    ("nouns", "lenient", "strict"),
    [(["나라", "나라"], 1.0, 1.0), (["우리나라", "우리나라"], 1.0, 0.0), (["나라"], 0.0, 0.0)],
)
def test_the_copy_baseline_is_scored_like_a_model(nouns: list[str], lenient: float, strict: float) -> None:
    assert copy_baseline("나라", nouns) == {"copy_baseline": lenient, "copy_baseline_strict": strict}


@given(words, st.lists(words, max_size=12))
def test_the_copy_baseline_only_answers_what_it_has_seen_twice(target: str, nouns: list[str]) -> None:
    answer = copied_noun(nouns)
    assert all(nouns.count(noun) >= 2 for noun in answer)
    scores = copy_baseline(target, nouns)
    assert scores["copy_baseline_strict"] <= scores["copy_baseline"]


def test_a_target_at_the_end_is_masked_there_and_not_where_it_occurs_first() -> None:
    assert mask_target("나라는 나라", "나라") == f"나라는 {MASK}"
    assert mask_target("나라는 나라\n", "나라") == f"나라는 {MASK}"


def test_a_target_elsewhere_is_masked_where_it_occurs_first() -> None:
    assert mask_target("그 나라는 나라이다.", "나라") == f"그 {MASK}는 나라이다."


def test_a_target_that_is_not_there_gets_a_mask_at_the_end() -> None:
    assert mask_target("그는 떠났다.", "나라") == f"그는 떠났다. {MASK}"


def test_a_text_that_has_its_mask_is_left_as_it_is() -> None:
    assert mask_target(f"{MASK}는 나라", "나라") == f"{MASK}는 나라"


@given(plain, words)
def test_a_text_gets_exactly_one_mask(text: str, target: str) -> None:
    assert mask_target(text, target).count(MASK) == 1


def test_importing_it_does_not_load_kiwi() -> None:
    program = "import sys; import pytest_touchstone.metrics.korean; print('kiwipiepy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("token", ["나라", "대한민국", "위원회", " 나라 ", "국"])
def test_a_token_that_is_exactly_one_noun_is_a_noun(token: str) -> None:
    assert is_noun(token)


@pytest.mark.parametrize(
    "token", ["", "  ", "사람들", "나라의", "나라 도시", "그", "것", "먹다", "1988", "ab", ".", "##나라"]
)
def test_suffixes_particles_pronouns_and_other_marks_make_it_none(token: str) -> None:
    assert not is_noun(token)


def test_every_noun_stands_in_the_text_at_its_span() -> None:
    text = "서울은 대한민국의 수도이다. 서울의 인구는 많고, 그 나란 도시가 많다."
    found = nouns(text)
    assert [n.form for n in found if n.form == "서울"] == ["서울", "서울"]
    assert all(text[n.start : n.end] == n.form and len(n.form) >= 2 for n in found)
    assert [n.start for n in found] == sorted(n.start for n in found)


def test_a_noun_taken_out_of_a_contraction_is_no_maskable_noun() -> None:
    contracted = Morpheme("나라", "NNG", 0, 2)
    assert list(noun_occurrences("나란 크다", [contracted])) == []
    assert list(noun_occurrences("나라 크다", [contracted])) == [contracted]


def test_one_syllable_and_other_tags_are_no_maskable_nouns() -> None:
    morphemes = [Morpheme("물", "NNG", 0, 1), Morpheme("그것", "NP", 2, 4), Morpheme("서울", "NNP", 5, 7)]
    assert [m.form for m in noun_occurrences("물 그것 서울", morphemes)] == ["서울"]


def test_a_pronoun_is_seen() -> None:
    assert "NP" in [one.tag for one in morphemes("그것은 나라의 이름이다.")]
    assert "NP" not in [one.tag for one in morphemes("서울은 나라의 수도이다.")]


def test_repeated_nouns_come_in_order_of_first_occurrence_with_all_their_mentions() -> None:
    order = ["도시", "나라", "사람", "나라", "도시", "나라"]
    mentions = [Morpheme(form, "NNG", 3 * i, 3 * i + 2) for i, form in enumerate(order)]
    repeated = repeated_nouns(mentions)
    assert list(repeated) == ["도시", "나라"]
    assert [m.start for m in repeated["나라"]] == [3, 9, 15]
