"""Tokenizers of folders with a sentencepiece model alone, against that model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.transformers.tokenizer_files import load_matching_tokenizer
from tests.support.lines import naming
from tests.support.tiny import CORPUS, sentencepiece_model

sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = (
    *CORPUS,
    *("two  spaces   three", "  leading", "trailing  ", " ", "", "a\nb\n\nc", "\ttab"),
    *("ﬁne ＡＢＣ　１２", "Cafe\u0301", "\u1112\u1161\u11a8\u1100\u116d", "😀 漢字", "ABC abc", "▁under"),
)
HOW = {"local_files_only": True, "trust_remote_code": False}


def folder_of(
    folder: Path, name: str, model: bytes, model_type: str, kind: str | None, **config: Any
) -> Path:
    (folder / name).write_bytes(model)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    if kind is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, **config}))
    return folder


def pieces(found: Any, text: str) -> list[str | None]:
    tokens = found.convert_ids_to_tokens(found(text, add_special_tokens=False)["input_ids"])
    return [None if token == found.unk_token else token for token in tokens]


LLAMA = {"byte_fallback": True, "remove_extra_whitespaces": False}


@pytest.mark.parametrize(
    ("name", "model_type", "kind", "model"),
    [
        ("spm.model", "deberta-v2", None, ("unigram", "nmt_nfkc")),
        ("spiece.model", "gpt2", "T5Tokenizer", ("unigram", "nmt_nfkc")),
        ("spiece.model", "fnet", None, ("unigram", "nmt_nfkc")),
        ("spiece.model", "big_bird", None, ("unigram", "nmt_nfkc")),
        ("sentencepiece.bpe.model", "xlm-roberta", None, ("unigram", "nmt_nfkc")),
        ("sentencepiece.bpe.model", "camembert", None, ("unigram", "nmt_nfkc")),
        ("tokenizer.model", "llama", None, ("bpe", "identity", LLAMA)),
        ("tokenizer.model", "llama", "LlamaTokenizer", ("bpe", "identity", LLAMA)),
        ("tokenizer.model", "llama", "LlamaTokenizer", ("bpe", "nmt_nfkc", LLAMA)),
        ("tokenizer.model", "llama", "LlamaTokenizer", ("unigram", "identity", LLAMA)),
        ("tokenizer.model", "mistral", None, ("bpe", "identity", LLAMA)),
        ("tokenizer.model", "gemma", None, ("bpe", "identity", {**LLAMA, "add_dummy_prefix": False})),
    ],
)
def test_tokens_are_those_of_the_sentencepiece_model(
    name: str, model_type: str, kind: str | None, model: tuple[Any, ...], tmp_path: Path
) -> None:
    how, rule, *more = model
    made = sentencepiece_model(how, rule, **(more[0] if more else {}))
    found, _ = load_matching_tokenizer(folder_of(tmp_path, name, made, model_type, kind), HOW)
    its = sentencepiece.SentencePieceProcessor(model_proto=made)
    for text in TEXTS:
        ids = its.encode(text)
        assert pieces(found, text) == [None if its.is_unknown(one) else its.id_to_piece(one) for one in ids]


def test_a_class_that_does_as_the_model_says_stays_without_a_note(tmp_path: Path) -> None:
    made = sentencepiece_model("bpe", "identity", **LLAMA, add_dummy_prefix=False)
    _, notes = load_matching_tokenizer(folder_of(tmp_path, "tokenizer.model", made, "gemma", None), HOW)
    assert notes == ()


def test_a_note_says_what_was_mended_and_what_is_left(tmp_path: Path) -> None:
    made = sentencepiece_model("unigram", "nmt_nfkc")
    _, (note,) = load_matching_tokenizer(folder_of(tmp_path, "spm.model", made, "deberta-v2", None), HOW)
    assert naming("those of spm.model", "DebertaV2Tokenizer", "differs").search(note)
    made = sentencepiece_model("bpe", "identity", **LLAMA)
    folder = folder_of(tmp_path, "tokenizer.model", made, "llama", "LlamaTokenizer", legacy=False)
    (folder / "spm.model").unlink()
    _, (left,) = load_matching_tokenizer(folder, HOW)
    assert naming("not always", "tokenizer.model", "LlamaTokenizer", "differs").search(left)


def test_nothing_is_put_between_special_tokens_where_the_settings_say_so(tmp_path: Path) -> None:
    made = sentencepiece_model("unigram", "nmt_nfkc", **LLAMA)
    folder = folder_of(tmp_path, "tokenizer.model", made, "llama", "LlamaTokenizer", legacy=False)
    found, _ = load_matching_tokenizer(folder, HOW)
    assert pieces(found, "a</s>b") == ["▁a", "</s>", "b"]
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    found, _ = load_matching_tokenizer(folder, HOW)
    assert pieces(found, "a</s>b") == ["▁a", "</s>", "▁b"]


def test_what_a_family_does_before_its_model_is_kept(tmp_path: Path) -> None:
    made = sentencepiece_model("unigram", "identity")
    folder = folder_of(tmp_path, "spm.model", made, "deberta-v2", "DebertaV2Tokenizer", do_lower_case=True)
    found, _ = load_matching_tokenizer(folder, HOW)
    its = sentencepiece.SentencePieceProcessor(model_proto=made)
    ids = its.encode("the ＡＢＣ river".lower())
    assert pieces(found, "THE ＡＢＣ River") == [
        None if its.is_unknown(one) else its.id_to_piece(one) for one in ids
    ]


def test_a_class_that_takes_no_vocabulary_is_an_error(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path, "sentencepiece.bpe.model", sentencepiece_model("unigram", "nmt_nfkc"), "xglm", None
    )
    with pytest.raises(CheckpointError, match=naming("XGLMTokenizer")):
        load_matching_tokenizer(folder, HOW)
