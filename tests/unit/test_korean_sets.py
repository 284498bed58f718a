"""The rules of the Real and the Wikipedia LAMBADA sets."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.korean import Korean, Morpheme
from harness.korean_sets import (
    Text,
    build_lambada,
    build_real,
    documents,
    is_held_out,
    paragraphs,
    real_size,
    shuffled,
)
from harness.requests import MASK

TAGS = {
    "나라": "NNG",
    "도시": "NNG",
    "서울": "NNP",
    "강물": "NNG",
    "물": "NNG",
    "그것": "NP",
    "크다": "VA",
    "의": "JKG",
}


def analyse(text: str) -> list[Morpheme]:
    """A stand-in for Kiwi: words between single spaces, tagged by a table."""
    found: list[Morpheme] = []
    start = 0
    for word in text.split(" "):
        found.append(Morpheme(word, TAGS.get(word, "SW"), start, start + len(word)))
        start += len(word) + 1
    return found


def text_of(*words: str, doc: str = "d", filler: int = 100) -> Text:
    """The words, and behind them a filler that makes the text long enough."""
    whole = " ".join([*words, "." * filler])
    return Text(whole, doc, f"{doc}#{whole}")


def real(*texts: Text, seed: int = 999, count: int | None = None) -> list[dict[str, str]]:
    return build_real(texts, analyse, source="wiki", seed=seed, count=count)


word_lists = st.lists(st.sampled_from(sorted(set(TAGS) - {"그것"})), max_size=30)


def test_the_second_mention_is_masked_and_only_that() -> None:
    (row,) = real(text_of("나라", "크다", "나라", "의", "나라"))
    assert row["text"].startswith(f"나라 크다 {MASK} 의 나라 ")
    assert row["target"] == "나라"
    assert (row["source"], row["doc_id"]) == ("wiki", "d")


@pytest.mark.parametrize(("length", "items"), [(99, 0), (100, 1)])
def test_texts_shorter_than_100_characters_are_skipped(length: int, items: int) -> None:
    whole = "나라 나라 " + "." * (length - 6)
    assert len(whole) == length
    assert len(real(Text(whole, "d", "d#0"))) == items


def test_a_text_with_a_pronoun_gives_nothing() -> None:
    assert real(text_of("나라", "나라", "그것")) == []


def test_one_syllable_and_single_mentions_give_nothing() -> None:
    assert real(text_of("물", "물", "나라", "크다", "크다")) == []


def test_a_text_with_a_literal_mask_gives_nothing() -> None:
    assert real(text_of("나라", "나라", MASK)) == []


def test_at_most_three_nouns_a_text_in_order_of_first_mention() -> None:
    rows = real(text_of("서울", "나라", "강물", "도시", "도시", "강물", "나라", "서울"))
    assert {row["target"] for row in rows} == {"서울", "나라", "강물"}
    assert len({row["text_id"] for row in rows}) == 1


@given(st.lists(word_lists, max_size=6))
def test_every_item_gives_back_its_text_and_masks_a_second_mention(lists: list[list[str]]) -> None:
    texts = {t.text_id: t.text for t in (text_of(*words, doc=str(n)) for n, words in enumerate(lists))}
    rows = real(*(text_of(*words, doc=str(n)) for n, words in enumerate(lists)))
    for row in rows:
        before, _, after = row["text"].partition(MASK)
        assert before + row["target"] + after == texts[row["text_id"]]
        assert before.split(" ").count(row["target"]) == 1
    assert len(rows) <= 3 * len(lists)


@given(st.lists(word_lists, max_size=6), st.integers(0, 9), st.integers(0, 9))
def test_a_set_is_the_same_each_time_and_a_smaller_one_is_its_beginning(
    lists: list[list[str]], seed: int, count: int
) -> None:
    texts = [text_of(*words, doc=str(n)) for n, words in enumerate(lists)]
    whole = real(*texts, seed=seed)
    assert real(*texts, seed=seed) == whole
    assert real(*texts, seed=seed, count=count) == whole[:count]


def test_another_seed_gives_another_order_of_the_same_items() -> None:
    texts = [text_of("나라", "나라", doc=str(n)) for n in range(20)]
    one, other = real(*texts, seed=999), real(*texts, seed=1000)
    assert one != other
    assert sorted(r["doc_id"] for r in one) == sorted(r["doc_id"] for r in other)


@given(st.lists(st.integers()), st.integers(0, 99))
def test_shuffling_keeps_everything_and_leaves_global_randomness_alone(items: list[int], seed: int) -> None:
    state = random.getstate()
    assert sorted(shuffled(items, seed)) == sorted(items)
    assert random.getstate() == state


def test_a_lambada_text_ends_with_its_last_noun() -> None:
    whole = Text("." * 100 + " 서울 나라 크다 물 의", "d", "d#0")
    (row,) = build_lambada([whole], analyse, source="wiki")
    assert row["text"] == "." * 100 + " 서울 나라"
    assert row["target"] == "나라"
    assert MASK not in row["text"]


def test_a_lambada_text_too_short_once_it_is_cut_gives_nothing() -> None:
    assert build_lambada([text_of("나라")], analyse, source="wiki") == []


def test_a_pronoun_does_not_matter_to_lambada() -> None:
    assert len(build_lambada([Text("." * 100 + " 그것 나라", "d", "d#0")], analyse, source="wiki")) == 1


@pytest.mark.parametrize(
    ("seq_len", "sources", "size"),
    [(128, 1, 1600), (512, 1, 1600), (1023, 1, 1600), (1536, 2, 2400), (2048, 2, 3200)],
)
def test_the_size_of_a_set_grows_with_the_model_as_published(seq_len: int, sources: int, size: int) -> None:
    assert real_size(seq_len, sources) == size


def test_about_one_document_in_five_is_held_out_whatever_else_there_is() -> None:
    held = [n for n in range(5000) if is_held_out(str(n))]
    assert 900 < len(held) < 1100
    assert [n for n in range(10) if is_held_out(str(n))] == [n for n in held if n < 10]


def test_paragraphs_are_the_lines_with_something_in_them() -> None:
    found = list(paragraphs("제목\n\n첫째 줄 \n \n둘째 줄\n", "7"))
    assert [(p.text, p.text_id) for p in found] == [("제목", "7#0"), ("첫째 줄", "7#1"), ("둘째 줄", "7#2")]


def test_documents_without_an_id_are_called_by_file_and_number() -> None:
    rows = [{"text": "하나"}, {"text": "둘", "id": 5}]
    assert list(documents(rows, "news")) == [("news:0", "하나"), ("5", "둘")]


def test_real_text_goes_through_kiwi_by_the_same_rules() -> None:
    sentence = "서울은 대한민국의 수도이다. 수도의 인구는 900만 명이고 서울의 면적은 605제곱킬로미터이다. "
    text = Text(
        (sentence + "한강이 도시 가운데를 지나며 여러 개의 다리가 놓여 있다. " * 2).strip(), "1", "1#0"
    )
    rows = build_real([text], Korean().morphemes, source="wiki")
    assert {"서울", "수도"} <= {row["target"] for row in rows}
    assert all(row["text"].replace(MASK, row["target"]) == text.text for row in rows)
