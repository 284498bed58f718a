"""Tokenizers of folders with a sentencepiece model and no ``tokenizer.json``.

transformers turns such a model into a tokenizer by a class of its own. It may leave out what the model says of itself:
how characters are normalized, whether white space is merged and put first, how unknown characters are spelt.
What comes of it is held against the model, and its steps are made from the model's own words where that is nearer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import count

FILES: Final = (
    "tokenizer.model",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
)

_UNIGRAM, _BPE = 1, 2
"""The kinds of models, by their numbers in the file."""


def as_sentencepiece(loaded: Any, path: Path, texts: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Return the tokenizer, which does as the sentencepiece model says on the texts as far as it can, and what to say
    of it.

    Raises ``CheckpointError`` where it does not have the model's vocabulary.
    """
    if not getattr(loaded, "is_fast", False) or getattr(loaded, "split_by_punct", False):
        return loaded, ()  # it asks the model itself; or it means to cut otherwise
    processor = _processor(path)
    if processor is None:
        return loaded, ()
    _check_vocabulary(loaded, path, processor)
    before = _before(loaded)
    true = {text: _pieces(processor, before.normalize_str(text)) for text in _plain(loaded, texts)}
    differing = _differing(loaded, true)
    if not differing:
        return loaded, ()
    undo = _put_steps(loaded, path, before)
    left = _differing(loaded, true)
    name, of = type(loaded).__name__, count(len(true), "probe text")
    if left >= differing:
        undo()
        return loaded, (f"tokens are not always those of {path.name}: {name} differs on {differing} of {of}",)
    rest = f"; {left} of them still differ" if left else ""
    return loaded, (
        f"tokens are those of {path.name}: {name}, the class for it, differs on {differing} of {of}{rest}",
    )


def _processor(path: Path) -> Any | None:
    """Return sentencepiece's model; None where the file is another's, as tiktoken's may be, or it is not installed."""
    try:
        from sentencepiece import SentencePieceProcessor

        return SentencePieceProcessor(model_file=str(path))
    except (ImportError, RuntimeError, OSError):
        return None


def _check_vocabulary(loaded: Any, path: Path, processor: Any) -> None:
    known = loaded.get_vocab()
    pieces = [
        processor.id_to_piece(number)
        for number in range(processor.get_piece_size())
        if not (processor.is_control(number) or processor.is_unknown(number) or processor.is_unused(number))
    ]
    if missing := [piece for piece in pieces if piece not in known]:
        raise CheckpointError(
            f"{path}: {type(loaded).__name__}, the class for it, does not take {len(missing)} of its "
            f"{len(pieces)} pieces; save the tokenizer again, with tokenizer.json"
        )


def _before(loaded: Any) -> Any:
    """Return what the family does to texts before the model meets them (ALBERT and its kin), of the steps loaded."""
    from tokenizers import normalizers

    loads = loaded.backend_tokenizer.normalizer
    whole = json.loads(loads.__getstate__()) if loads is not None else {}
    steps = whole.get("normalizers", [whole])
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    known = {
        "NFKD": normalizers.NFKD,
        "StripAccents": normalizers.StripAccents,
        "Lowercase": normalizers.Lowercase,
    }
    found = quotes if any(step.get("pattern") == {"String": "``"} for step in steps) else []
    return normalizers.Sequence(
        [*found, *(known[step["type"]]() for step in steps if step.get("type") in known)]
    )


def _plain(loaded: Any, texts: Sequence[str]) -> list[str]:
    """Return the texts without added tokens, which the model alone does not know."""
    added = [str(token) for token in loaded.added_tokens_decoder.values()]
    return [text for text in texts if not any(token in text for token in added)]


def _pieces(processor: Any, text: str) -> list[str | None]:
    """Return the model's pieces, None for an unknown one."""
    ids = processor.encode(text)
    return [None if processor.is_unknown(number) else processor.id_to_piece(number) for number in ids]


def _differing(loaded: Any, true: dict[str, list[str | None]]) -> int:
    different = 0
    for text, pieces in true.items():
        tokens = loaded.convert_ids_to_tokens(loaded(text, add_special_tokens=False)["input_ids"])
        different += [None if token == loaded.unk_token else token for token in tokens] != pieces
    return different


def _put_steps(loaded: Any, path: Path, before: Any) -> Callable[[], None]:
    """Make the tokenizer's steps those of the model; return a function that undoes it."""
    from tokenizers import Regex, normalizers, pre_tokenizers
    from transformers.convert_slow_tokenizer import SentencePieceExtractor

    proto = SentencePieceExtractor(str(path)).proto
    backend, says = loaded.backend_tokenizer, proto.normalizer_spec
    names = ("normalizer", "pre_tokenizer", "model")
    kept = {name: getattr(backend, name) for name in names}
    steps = [before]
    if says.precompiled_charsmap:
        # The library looks characters up one by one: what they compose has to be composed before.
        steps += [normalizers.NFC(), normalizers.Precompiled(says.precompiled_charsmap)]
    if says.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    only_first = _only_first(path.parent / "tokenizer_config.json")
    if says.add_dummy_prefix and not only_first:
        steps.append(normalizers.Prepend("▁"))
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    first = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.pre_tokenizer = first if says.add_dummy_prefix and only_first else None
    backend.model = _model(loaded, proto)

    def undo() -> None:
        for name, part in kept.items():
            setattr(backend, name, part)

    return undo


def _only_first(config: Path) -> bool:
    """Return whether the settings say that white space is put before a text, but not after special tokens in it."""
    try:
        return json.loads(config.read_bytes()).get("legacy") is False
    except (OSError, ValueError, AttributeError):
        return False


def _model(loaded: Any, proto: Any) -> Any:
    """Return the model's way of cutting, with the numbers that the tokenizer has for its pieces."""
    from tokenizers import models
    from transformers.tokenization_utils_base import generate_merges

    trained = proto.trainer_spec
    numbers = loaded.backend_tokenizer.get_vocab(with_added_tokens=True)
    unknown = loaded.unk_token if loaded.unk_token in numbers else trained.unk_piece
    if trained.model_type == _BPE:
        ranks = {piece.piece: rank for rank, piece in enumerate(proto.pieces)}
        how = {"unk_token": unknown, "fuse_unk": True, "byte_fallback": trained.byte_fallback}
        merges = generate_merges(ranks)
        return models.BPE(vocab=numbers, merges=merges, **how)
    scores = {piece.piece: piece.score for piece in proto.pieces}
    by_number = {number: token for token, number in numbers.items()}
    vocab = [
        (token, scores.get(token, 0.0))
        for token in (by_number.get(number, f"<unused {number}>") for number in range(max(by_number) + 1))
    ]
    return models.Unigram(vocab, unk_id=numbers[unknown], byte_fallback=trained.byte_fallback)
