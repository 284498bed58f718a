"""The header of a GGUF file: its keys, its tensors' names and sizes, and whether it is complete.

The format: ``GGUF``, version (u32), number of tensors and of key-value pairs (u64 each), then the pairs. A pair is a
key (u64 length and UTF-8), the type of the value (u32) and the value. Then comes a record per tensor: name, number of
sides (u32), sides (u64 each), type (u32), offset (u64). The tensors follow, aligned. All numbers are little-endian
from version 2 on.

Two kinds of tokenizer are known, as far as the keys say; the tokens themselves are read later. Byte-level BPE
(``gpt2``) cuts a text by regular expressions first. The file only names them (``tokenizer.ggml.pre``), and llama.cpp
knows what is meant. Text cut otherwise has other tokens, and other answers. So a name that is not here is refused.
SentencePiece's BPE (``llama``) cuts nothing, but may put a space first.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints.config_files import readable
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.checkpoints.formats.content import file_lines
from pytest_touchstone.checkpoints.formats.gguf_metadata import (
    SkippedArray,
    Value,
    check_kind,
    config_values,
    format_key,
    refusal_error,
)
from pytest_touchstone.checkpoints.info import SERVES, CheckpointInfo, WeightsInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import open_regular
from pytest_touchstone.core.text import join_names

_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT: Final = r"\p{N}"
_LLAMA3: Final = rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN35: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_END: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_CASED: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{{0}}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{{0}}"
)
_CASED_REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_BLOOM: Final = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_DEEPSEEK3: Final = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_WAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum modern-bert exaone4": (
        _GPT2,
    ),
    "smollm starcoder refact command-r codeshell exaone minerva-7b": (_DIGIT, _GPT2),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2": (_LLAMA3,),
    "dbrx smaug-bpe chatglm-bpe glm4": (_LLAMA3,),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan grok-2 solar-open": (
        rf"{_WORDS}|\p{{N}}|{_REST}",
    ),
    "qwen35": (_QWEN35,),
    "tekken": ("|".join((_CASED.replace("{0}", ""), r"\p{N}", _CASED_REST)),),
    "gpt-4o llama4 kanana2 minimax-m2": (
        "|".join((_CASED.replace("{0}", _END), r"\p{N}{1,3}", _CASED_REST)),
    ),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u0800-\u9fa5\uac00-\ud7ff]+", _DIGIT),
    "deepseek-v3 hunyuan-dense": (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK3),
    "bloom poro-chat gpt3-finnish": (_BLOOM,),
    "viking": (_BLOOM, _DIGIT),
}
"""The expressions by which a text is cut, one after the other, under the names that llama.cpp gives them."""

SPLITS: Final = {name: ways for names, ways in _WAYS.items() for name in names.split()}

_WHOLE_WORDS: Final = frozenset(
    ["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"]
)
"""Those whose words that are tokens are not merged, and whose texts begin with BOS unless the file says otherwise."""

_PASSED: Final = frozenset(
    (
        *("model", "pre", "tokens", "token_type", "scores", "merges", "token_type_count"),
        *("bos_token_id", "eos_token_id", "unknown_token_id", "padding_token_id"),
        *("eot_token_id", "eom_token_id", "seperator_token_id", "separator_token_id", "mask_token_id"),
        *("cls_token_id", "prefix_token_id", "suffix_token_id", "middle_token_id"),
        *(f"fim_{name}_token_id" for name in ("pre", "suf", "mid", "pad", "rep", "sep")),
    )
)
"""Keys after ``tokenizer.ggml.`` that are read, or name tokens for uses that are none of ours."""

_OFF: Final = (
    "remove_extra_whitespaces",
    "add_sep_token",
    "normalizer.lowercase",
    "normalizer.strip_accents",
)

_GEMMA: Final = ("gemma2", "gemma3")


class GgufTokenizer(NamedTuple):
    """The tokenizer of a GGUF file; ``model`` is ``gpt2`` or ``llama``, with variants ``gemma`` and ``phi3``.

    ``splits`` are expressions that cut a text, one after the other.
    ``whole_words``: a word that is a token is not put together of others. ``space``: a space comes before each text.
    ``tokens`` are the ids of special tokens by the names that Transformers gives these.
    """

    model: str
    gemma: bool
    phi3: bool
    splits: tuple[str, ...]
    whole_words: bool
    space: bool
    add_bos: bool
    add_eos: bool
    tokens: dict[str, int]


def tokenizer_of(path: Path, architecture: str, keys: Mapping[str, Value]) -> GgufTokenizer:
    """Return the tokenizer that the metadata keys describe.

    Raises ``CheckpointError`` where it is of another kind, or a key demands what Transformers does not do.
    """
    prefix = "tokenizer.ggml."
    settings = {key.removeprefix(prefix): value for key, value in keys.items() if key.startswith(prefix)}
    model, pre = str(settings.get("model", "llama")), settings.get("pre")
    if model not in ("gpt2", "llama"):
        raise refusal_error(path, f"has a tokenizer of the kind {model!r:.40}")
    space = settings.get("add_space_prefix", model == "llama")
    refused = {f"{prefix}{name}": value for name, value in settings.items() if not _is_supported(name, value)}
    refused |= {
        key: value for key, value in keys.items() if re.match(r"tokenizer\.(?!ggml\.|chat_|huggingface)", key)
    }
    if space and (model == "gpt2" or architecture in _GEMMA):
        refused[f"{prefix}add_space_prefix"] = True
    if refused:
        raise refusal_error(path, f"holds {join_names((format_key(*pair) for pair in refused.items()), 3)}")
    if model == "gpt2" and (not isinstance(pre, str) or pre == "default"):
        raise CheckpointError(
            f"{path}: does not name the way to cut a text before its tokens ({prefix}pre), so that they would be "
            "guessed; convert the model again with a current llama.cpp"
        )
    if model == "gpt2" and pre not in SPLITS:
        raise refusal_error(
            path, f"names a way to cut texts that is not known here ({prefix}pre = {pre!r:.40})"
        )
    splits_whole_words = model == "gpt2" and pre in _WHOLE_WORDS
    tokens = {} if model == "gpt2" else {"bos_token": 1, "eos_token": 2, "unk_token": 0}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        value = settings.get(f"{key}_token_id")
        if isinstance(value, int):
            tokens[f"{name}_token"] = value
    tokenizer = GgufTokenizer(
        model,
        architecture in _GEMMA,
        architecture == "phi3",
        SPLITS[str(pre)] if model == "gpt2" else (),
        whole_words=splits_whole_words,
        space=bool(space),
        add_bos=bool(settings.get("add_bos_token", splits_whole_words or model == "llama")),
        add_eos=bool(settings.get("add_eos_token", False)),
        tokens=tokens,
    )
    for added, name in ((tokenizer.add_bos, "bos"), (tokenizer.add_eos, "eos")):
        if added and f"{name}_token" not in tokens:
            raise CheckpointError(
                f"{path}: texts get a token {name.upper()}, but {prefix}{name}_token_id is not there; convert it again"
            )
    return tokenizer


def _is_supported(name: str, value: Value) -> bool:
    """Return whether a key is read, or says what is done anyway."""
    if name in _OFF:
        return value is False
    if name in ("precompiled_charsmap", "suppress_tokens"):
        return value in ((), SkippedArray(0))
    if name.startswith("add_"):
        return isinstance(value, bool) and name in ("add_bos_token", "add_eos_token", "add_space_prefix")
    if name.endswith("_token_id"):
        return isinstance(value, int) and name in _PASSED
    return name in _PASSED


# The header of a file


_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8

_TYPES: Final = {
    **{0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22)},
    **{7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110)},
    **{12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 30: ("BF16", 1, 2)},
    **{24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8)},
}
"""Types of tensors: name, numbers in a block, bytes of a block. Of others only the offset is checked."""

_LENGTH: Final = 2048
"""The context length in tokens where the file does not say."""

_LONGEST: Final = 1 << 24
_MOST_KEPT: Final = 1024
"""The longest array or text that is kept: lists of layers are shorter, those of tokens longer."""

_MOST_SIDES: Final = 4

_MAY_BE_NONE: Final = ("feed_forward_length", "attention.head_count")
"""Sizes that are 0 for models without such a part (Mamba)."""

_SIDES: Final = ("embedding_length", "feed_forward_length", "attention.head_count", "vocab_size")


class GgufFormat:
    """A ``.gguf`` file."""

    name = "gguf"

    def detect(self, path: Path) -> bool:
        """Return whether the file's name ends so."""
        return path.suffix == ".gguf" and path.is_file()

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Describe the file by its header.

        Raises ``CheckpointError`` where it is broken or cut off, no model, or (unless a server is to load it) holds
        what this process cannot compute with.
        """
        header = read_gguf(path)
        if not asked.served:
            config_values(path, header.architecture, header.keys, header.tensors)
            tokenizer_of(path, header.architecture, header.keys)
        return CheckpointInfo(
            name=path.stem,
            source=asked.source,
            path=path,
            kind="causal",
            format=self.name,
            model_type=header.architecture,
            architecture=f"{header.architecture} (gguf)",
            seq_len=asked.limited(path, header.context_length or _LENGTH),
            serves=SERVES["causal"],
            weights=WeightsInfo(header.parameters, header.dtype),
            takes_adapters=True,
        )

    def files(self, info: CheckpointInfo) -> list[Path]:
        """Return the file."""
        return [info.path]

    def content(self, info: CheckpointInfo) -> Iterator[str]:
        """Return the line of the whole file, whatever its name."""
        return file_lines([info.path], "model.gguf")


class GgufHeader(NamedTuple):
    """``context_length`` is in tokens, None when the file does not say; ``dtype`` is the type of most numbers.

    ``keys`` has the values of all keys; an array of numbers is a tuple; of a long array or
    text, and of an array of texts, only the length is there.
    """

    architecture: str
    context_length: int | None
    parameters: int
    dtype: str
    keys: dict[str, Value]
    tensors: frozenset[str]


def read_gguf(path: Path) -> GgufHeader:
    """Read the header of a GGUF file.

    Raises ``CheckpointError`` where the file is cut off or not a GGUF file.
    """
    try:
        with readable(path), open_regular(path) as file:
            if file.read(4) != b"GGUF":
                raise CheckpointError(
                    f"{path}: no GGUF file (it does not begin with 'GGUF'); fetch or convert it again"
                )
            version, _, _ = struct.unpack("<IQQ", file.read(20))
            if version not in (2, 3):
                raise CheckpointError(
                    f"{path}: GGUF version {version} is not supported; convert it to version 3"
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _Header(path, content).read()
    except (struct.error, UnicodeDecodeError, KeyError, ValueError, OverflowError) as error:
        raise CheckpointError(
            f"{path}: cut off or broken within its header; fetch or convert it again"
        ) from error


class _Header:
    """A place in the file, and what has been read up to there."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self._path, self._content, self._at = path, content, 4

    def read(self) -> GgufHeader:
        """Read the whole header."""
        _, tensors, pairs = self._take("IQQ")
        keys: dict[str, Value] = {}
        for _ in range(pairs):
            key = self._string()
            value = self._value()
            keys[key] = (
                SkippedArray(len(value)) if isinstance(value, str) and len(value) > _MOST_KEPT else value
            )
        check_kind(self._path, keys)
        if tensors == 0:
            raise CheckpointError(
                f"{self._path}: holds no tensors (a vocabulary alone); give the model's own file"
            )
        architecture = keys.get("general.architecture")
        if not isinstance(architecture, str):
            raise CheckpointError(f"{self._path}: its header names no general.architecture; convert it again")
        counts: Counter[str] = Counter()
        names: list[str] = []
        end = longest = 0
        for _ in range(tensors):
            name, kind, sides, last = self._tensor()
            names.append(name)
            counts[kind] += prod(sides)
            end, longest = max(end, last), max(longest, *sides)
        whole = {key: value for key, value in keys.items() if isinstance(value, int)}
        self._check_sizes(architecture, whole, tensors, longest)
        alignment = whole.get("general.alignment", 32)
        if not 0 < alignment <= _LONGEST:
            raise struct.error("alignment")
        needed, size = -(-self._at // alignment) * alignment + end, len(self._content)
        if size < needed:
            raise CheckpointError(
                f"{self._path}: cut off, {size} bytes of {needed} are there; fetch or copy it again"
            )
        length = whole.get(f"{architecture}.context_length")
        kind = counts.most_common(1)[0][0]
        return GgufHeader(architecture, length, counts.total(), kind, keys, frozenset(names))

    def _tensor(self) -> tuple[str, str, tuple[int, ...], int]:
        """Name, type, sides, and the last byte, counted from where the tensors begin."""
        name = self._string()
        (count,) = self._take("I")
        if not 0 < count <= _MOST_SIDES:
            raise struct.error(f"{name} has {count} sides")
        sides = self._take(f"{count}Q")
        kind, offset = self._take("IQ")
        numbers = prod(sides)
        shown, block, size = _TYPES.get(kind, (f"type {kind}", 1, 0))
        return name, shown, sides, offset + -(-numbers // block) * size

    def _check_sizes(self, architecture: str, integers: dict[str, int], tensors: int, longest: int) -> None:
        """Raise ``CheckpointError`` for a size that no tensor has.

        A model would be built to it.
        """
        for name, most in (("block_count", tensors), *((name, longest) for name in _SIDES)):
            value = integers.get(f"{architecture}.{name}", 1)
            least = 0 if name in _MAY_BE_NONE else 1
            if not least <= value <= most:
                raise CheckpointError(
                    f"{self._path}: {architecture}.{name} is {value}, which its {tensors} tensors, no side of them "
                    f"longer than {longest}, cannot have; convert it again"
                )

    def _value(self) -> Value:
        """Read one value. Of an array of texts, or a long one, only the length is kept."""
        (kind,) = self._take("I")
        if kind == _STRING:
            return self._string()
        if kind != 9:  # no array
            value: Value = self._take(_SCALARS[kind])[0]
            return value
        element, count = self._take("IQ")
        if element != _STRING:
            form = _SCALARS[element]
            if count <= _MOST_KEPT:
                return self._take(f"{count}{form}")
            self._skip(count * struct.calcsize("<" + form))
            return SkippedArray(count)
        unpack, content = struct.Struct("<Q").unpack_from, self._content
        at, size = self._at, len(content)
        for _ in range(count):
            at += 8 + unpack(content, at)[0]
            if at > size:
                raise struct.error("cut off")
        self._at = at
        return SkippedArray(count)

    def _string(self) -> str:
        (length,) = self._take("Q")
        if length > _LONGEST:
            raise struct.error("a string of more than 16 MiB")
        start = self._at
        self._skip(length)
        return self._content[start : self._at].decode("utf-8")

    def _take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self._content, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values

    def _skip(self, length: int) -> None:
        self._at += length
        if self._at > len(self._content):
            raise struct.error("cut off")
