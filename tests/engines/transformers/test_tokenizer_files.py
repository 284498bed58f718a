"""The tokenizer that is loaded against ``tokenizers`` itself, which reads ``tokenizer.json`` alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.content import has_tokenizer_of
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.transformers import tokenizer_files
from pytest_touchstone.engines.transformers.loading import load_tokenizer_at, read_tokenizer
from tests.support.lines import naming
from tests.support.tiny import CORPUS

NUMBERS = r"\p{N}{1,3}|[^\s\p{N}]+|\s+"
TEXTS = (*CORPUS, "In 1234567 we're 12.5 off", "<s>a</s> b<pad>", "학교  \n\n 학교", "ÀÉ ß ǅ", "ABC abc", "")


def byte_level(
    folder: Path, kind: str | None, model_type: str, *, front: str = "<s> $A", **config: Any
) -> Path:
    """Write a tokenizer that cuts numbers by threes, whose config names a class."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(NUMBERS), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([*CORPUS, "123 4567 12 1234567 567 89"] * 9, trainer)
    made.post_processor = processors.TemplateProcessing(single=front, special_tokens=[("<s>", 1)])
    return written(folder, made, kind, model_type, **config)


def word_pieces(folder: Path, kind: str | None, *, lowercase: bool, **config: Any) -> Path:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    words = [*"abcABCàé", "##a", "##B", "##é", "abc", "ABC"]
    vocab = {
        word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    }
    made = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return written(folder, made, kind, "bert", **config)


def written(folder: Path, made: Any, kind: str | None, model_type: str, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    if kind is not None:
        said = {"tokenizer_class": kind, **config}
        (folder / "tokenizer_config.json").write_text(json.dumps(said), encoding="utf-8")
    return folder


def read(folder: Path, **more: Any) -> tuple[Any, tuple[str, ...]]:
    info = CheckpointInfo("c", "c", folder, "causal", "folder", "llama", "L", 128, **more)
    return read_tokenizer(info)


def check_the_files_own(folder: Path, found: Any) -> None:
    from tokenizers import Tokenizer

    file = Tokenizer.from_file(str(folder / "tokenizer.json"))
    file.no_truncation()
    file.no_padding()
    for text in TEXTS:
        for framed in (False, True):
            assert (
                found(text, add_special_tokens=framed)["input_ids"]
                == file.encode(text, add_special_tokens=framed).ids
            )


NAMED = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "chat_template": "{{ messages }}"}


@pytest.mark.parametrize(
    ("kind", "model_type"),
    [
        *(("GPT2TokenizerFast", "llama"), ("LlamaTokenizerFast", "llama"), ("LlamaTokenizer", "llama")),
        *(("Qwen2Tokenizer", "qwen2"), ("CohereTokenizerFast", "cohere"), ("GemmaTokenizerFast", "gemma")),
        *(("GPT2Tokenizer", "gpt2"), ("RobertaTokenizer", "roberta"), ("PreTrainedTokenizerFast", "llama")),
        *(("BertTokenizer", "bert"), ("XLMRobertaTokenizer", "xlm-roberta"), ("GPTSw3Tokenizer", "gpt2")),
        *((None, "qwen2"), (None, "llama"), (None, "cohere"), (None, "gpt2")),
    ],
)
def test_tokens_are_those_of_the_file_whatever_class_the_config_asks_for(
    kind: str | None, model_type: str, tmp_path: Path
) -> None:
    folder = byte_level(tmp_path, kind, model_type, **NAMED)
    found, _ = read(folder)
    check_the_files_own(folder, found)
    if kind is not None:
        assert (found.bos_token, found.eos_token, found.chat_template) == ("<s>", "</s>", "{{ messages }}")
    assert found.bos_token_id in (None, 1)


@pytest.mark.parametrize(
    ("kind", "lowercase", "config"),
    [
        *(("BertTokenizer", False, {}), ("BertTokenizer", False, {"do_lower_case": True})),
        *(("BertTokenizer", True, {"do_lower_case": False}), (None, False, {}), ("BertTokenizer", True, {})),
    ],
)
def test_case_and_accents_are_treated_as_the_file_says(
    kind: str | None, lowercase: bool, config: dict[str, Any], tmp_path: Path
) -> None:
    folder = word_pieces(tmp_path, kind, lowercase=lowercase, **config)
    found, (note,) = read(folder)
    check_the_files_own(folder, found)
    assert found.mask_token_id == 4  # which BERT's class names, and no file
    assert "BertTokenizer" in note


def test_a_note_names_the_class_and_on_how_many_texts_it_differs(tmp_path: Path) -> None:
    _, (note,) = read(byte_level(tmp_path, "Qwen2TokenizerFast", "qwen2", **NAMED))
    assert naming("those of tokenizer.json", "Qwen2TokenizerFast", "probe texts").search(note)
    _, (failed,) = read(byte_level(tmp_path, "XLMRobertaTokenizer", "xlm-roberta", **NAMED))
    assert "cannot be made of it" in failed


def test_nothing_is_said_where_the_config_asks_for_no_class_but_the_file(tmp_path: Path) -> None:
    folder = byte_level(tmp_path, "PreTrainedTokenizerFast", "qwen2", **NAMED)
    found, notes = read(folder)
    check_the_files_own(folder, found)
    assert notes == ()


def test_a_class_that_does_as_its_file_stays_and_is_not_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import GPT2Tokenizer

    end = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    made = GPT2Tokenizer(vocab={"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}, merges=[("a", "b")])
    made.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    monkeypatch.setattr(tokenizer_files, "_load_tokenizer_json", None)
    found, notes = read(tmp_path)
    assert (type(found), notes) == (GPT2Tokenizer, ())
    assert {name: getattr(found, name) for name in end} == end


def test_a_file_that_cuts_and_pads_texts_does_neither(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    folder = byte_level(tmp_path, "GPT2Tokenizer", "llama", **NAMED)
    file = Tokenizer.from_file(str(folder / "tokenizer.json"))
    file.enable_truncation(4)
    file.enable_padding(length=300, pad_token="<pad>")
    file.save(str(folder / "tokenizer.json"))
    check_the_files_own(folder, read(folder)[0])


def test_special_tokens_of_a_class_that_are_not_in_the_file_are_none(tmp_path: Path) -> None:
    found, _ = read(byte_level(tmp_path, "GPT2Tokenizer", "llama", front="$A"))
    assert found.bos_token is None
    assert len(found) == 500


def test_a_broken_file_is_an_error_of_one_line(tmp_path: Path) -> None:
    folder = byte_level(tmp_path, "GPT2Tokenizer", "llama")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="its tokenizer cannot be loaded") as caught:
        load_tokenizer_at(folder, local_files_only=True)
    assert "\n" not in str(caught.value)


def test_an_adapters_own_tokenizer_is_read_as_its_bases_would_be(tmp_path: Path) -> None:
    base = byte_level(tmp_path / "base", "Qwen2Tokenizer", "qwen2", **NAMED)
    own = shutil.copytree(base, tmp_path / "adapter")
    (own / "config.json").unlink()
    info = CheckpointInfo("b", "b", base, "causal", "folder", "qwen2", "Q", 128)
    found, _ = read(own, base=info)
    check_the_files_own(base, found)


def test_files_of_tokenizers_are_the_same_by_what_they_say(tmp_path: Path) -> None:
    base = byte_level(tmp_path / "base", "Qwen2Tokenizer", "qwen2", **NAMED)
    own = shutil.copytree(base, tmp_path / "adapter")
    assert has_tokenizer_of(own, base)
    config = own / "tokenizer_config.json"
    said = json.loads(config.read_text())
    config.write_text(json.dumps(dict(reversed(said.items())), indent=4))
    assert has_tokenizer_of(own, base)
    config.write_text(json.dumps({**said, "chat_template": "{{ 1 }}"}))
    assert not has_tokenizer_of(own, base)
    config.write_text("no JSON")
    assert not has_tokenizer_of(own, base)
    config.unlink()
    (own / "added_tokens.json").write_text("{}")
    assert not has_tokenizer_of(own, base)
