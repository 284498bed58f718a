"""The rules of the Real and the Wikipedia LAMBADA sets."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.files import load_module
from harness.korean import Korean, Morpheme
from harness.korean_sets import (
    HAS_MASK,
    HAS_PRONOUN,
    NO_REPEATED,
    REPEATED,
    TOO_SHORT,
    Text,
    build_lambada,
    build_real,
    documents,
    heading_sentences,
    is_held_out,
    paragraphs,
    real_size,
    shuffled,
    sift_real,
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


# What falls to which rule


def test_each_text_is_counted_once_by_the_first_rule_that_it_falls_to() -> None:
    good = text_of("나라", "나라", doc="a")
    texts = [
        good,
        good,
        Text("나라 나라 그것", "b", "b#0"),
        text_of("나라", "나라", MASK, "그것", doc="c"),
        text_of("나라", "나라", "그것", doc="d"),
        text_of("나라", "서울", doc="e"),
    ]
    found = sift_real(texts, analyse, source="x", once=True)
    assert found.fallen == {REPEATED: 1, TOO_SHORT: 1, HAS_MASK: 1, HAS_PRONOUN: 1, NO_REPEATED: 1}
    assert (found.read, found.left, len(found.rows)) == (6, 1, 1)
    assert (found.documents, found.documents_left) == ({"a", "b", "c", "d", "e"}, {"a"})
    assert sift_real(texts, analyse, source="x").fallen[REPEATED] == 0


def test_shorter_texts_are_taken_where_somebody_asks_for_them_and_the_rule_says_so() -> None:
    texts = [Text("나라 나라", "a", "a#0"), Text("나라", "b", "b#0")]
    found = sift_real(texts, analyse, source="x", shortest=5)
    assert [row["doc_id"] for row in found.rows] == ["a"]
    assert found.told()["shorter than 5 characters"] == 1
    assert not sift_real(texts, analyse, source="x").rows


@given(st.lists(word_lists, max_size=6), st.booleans())
def test_the_rules_and_what_is_left_account_for_every_text(lists: list[list[str]], once: bool) -> None:
    found = sift_real((text_of(*words) for words in lists), analyse, source="x", once=once)
    assert found.left + sum(found.fallen.values()) == found.read == len(lists)
    assert {row["source"] for row in found.rows} <= {"x"}


def test_the_sentences_of_a_table_of_klue_are_its_headings_without_marks() -> None:
    table = (
        "## 주석 : ##\n## 컬럼명 : CHAR\tNE_TAG\n## id-1\t<서울:LC>의 <32:QT>명\n서\tB-LC\n\n## id-2\t나라\n"
    )
    assert list(heading_sentences(table)) == [("id-1", "서울의 32명"), ("id-2", "나라")]


# The script


LONG = "나라 나라 " + "." * 100


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with the stand-in for Kiwi."""
    module = load_module(
        Path(__file__).resolve().parents[2] / "fixtures" / "build" / "korean_sets.py", "korean_sets_script"
    )

    class Stand:
        morphemes = staticmethod(analyse)

    monkeypatch.setattr(module, "Korean", Stand)
    return module


def made(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["korean_sets.py", *map(str, arguments)])
    script.main()


def rows_of(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_set_of_several_sources_is_divided_over_them_and_names_them(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wiki = made(tmp_path / "a.jsonl", *({"id": str(n), "text": f"{LONG}{n}"} for n in range(30)))
    nli = made(tmp_path / "b.jsonl", *({"guid": str(n), "premise": f"{LONG}{n % 4}"} for n in range(8)))
    plain = tmp_path / "c.txt"
    plain.write_text(f"{LONG}\n\n짧다\n", encoding="utf-8")
    sources = ("--source", f"wiki={wiki}", "--source", f"nli={nli}:premise", "--source", f"news={plain}")
    run(script, monkeypatch, "real", *sources, "--count", 30, "--out", tmp_path / "out")
    rows = rows_of(tmp_path / "out" / "wiki.jsonl")
    names = [row["source"] for row in rows]
    assert {name: names.count(name) for name in names} == {"wiki": 10, "nli": 4, "news": 1}
    assert len({row["text_id"] for row in rows}) == len(rows)
    table = capsys.readouterr().out.splitlines()
    lines = {name: cells for name, *cells in (re.split(r"\s{2,}", line.strip()) for line in table)}
    assert lines["texts read"] == ["30", "8", "2"]
    assert lines["the same as an earlier text"] == ["0", "4", "0"]
    assert lines["shorter than 100 characters"] == ["0", "0", "1"]
    assert lines["taken"] == ["10", "4", "1"]


def test_the_size_for_a_length_is_divided_over_the_sources(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = made(tmp_path / "a.jsonl", {"text": LONG})
    sources = ("--source", f"a={one}", "--source", f"b={one}")
    run(script, monkeypatch, "real", *sources, "--seq-len", 1536, "--out", tmp_path / "out")
    wanted = next(line for line in capsys.readouterr().out.splitlines() if "wanted" in line)
    assert wanted.split() == ["wanted", "2400", "2400"]


def test_a_source_of_which_nothing_is_left_is_refused_before_anything_is_written(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiki = made(tmp_path / "a.jsonl", {"text": LONG})
    heads = made(tmp_path / "b.jsonl", {"title": "나라 나라"}, {"title": "나라"})
    sources = ("--source", f"wiki={wiki}", "--source", f"ynat={heads}:title")
    with pytest.raises(SystemExit) as ended:
        run(script, monkeypatch, "real", *sources, "--out", tmp_path / "out")
    assert ended.value.code == (
        "ynat: no item is left of 2 texts (2 shorter than 100 characters); leave this source out"
    )
    assert not (tmp_path / "out").exists()


def test_one_input_makes_the_same_set_as_ever(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{LONG}{n % 7}" for n in range(20)]
    path = made(tmp_path / "a.jsonl", *({"id": str(n), "text": text} for n, text in enumerate(texts)))
    run(script, monkeypatch, "real", path, "--count", 5, "--out", tmp_path)
    known = (Text(text, str(n), f"{n}#0") for n, text in enumerate(texts))
    assert rows_of(tmp_path / "wiki.jsonl") == build_real(known, analyse, source="wiki", count=5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to read; give INPUT files, or --source"),
        (["--source", "a="], "give NAME=PATH"),
        (["--source", "a=nowhere.jsonl"], r"a: nowhere\.jsonl: no such file"),
        (["--source", "a={file}", "--source", "a={file}"], "a: given twice"),
        (["{file}", "--source", "a={file}"], "give every input as --source NAME=PATH, or none"),
        (["--source", "a={file}:premise"], r"row 1: no text in field 'premise'; it has text in text"),
        (["--source", "a={broken}"], r"line 1: not valid JSON"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    file = made(tmp_path / "a.jsonl", {"text": LONG})
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{", encoding="utf-8")
    given_ = [text.format(file=file, broken=broken) for text in arguments]
    with pytest.raises(SystemExit, match=words) as ended:
        run(script, monkeypatch, "real", *given_, "--out", tmp_path / "out")
    assert "\n" not in str(ended.value.code)
