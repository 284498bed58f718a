"""The tokenizer that a GGUF file describes, as far as its keys say it; the tokens themselves are read later.

Two kinds are known. Byte-level BPE (``gpt2``) cuts a text by regular expressions first. The file only names them
(``tokenizer.ggml.pre``), and llama.cpp knows what is meant. Text cut otherwise has other tokens, and other answers. So
a name that is not here is refused. SentencePiece's BPE (``llama``) cuts nothing, but may put a space first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pytest_touchstone.checkpoints.formats.gguf_keys import Length, Value, refusal, shown
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import listed

_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT: Final = r"\p{N}"
_LLAMA3: Final = rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2: Final = rf"{_WORDS}|\p{{N}}|{_REST}"
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
_TEKKEN: Final = "|".join((_CASED.replace("{0}", ""), r"\p{N}", _CASED_REST))
_GPT4O: Final = "|".join((_CASED.replace("{0}", _END), r"\p{N}{1,3}", _CASED_REST))
_BLOOM: Final = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_CJK: Final = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
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
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan grok-2 solar-open": (_QWEN2,),
    "qwen35": (_QWEN35,),
    "tekken": (_TEKKEN,),
    "gpt-4o llama4 kanana2 minimax-m2": (_GPT4O,),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u0800-\u9fa5\uac00-\ud7ff]+", _DIGIT),
    "deepseek-v3 hunyuan-dense": (r"\p{N}{1,3}", _CJK, _DEEPSEEK3),
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
    """``model`` is ``gpt2`` or ``llama``, of which ``gemma`` and ``phi3`` are kinds.

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
    """The tokenizer that the keys describe.

    Raises ``CheckpointError`` where it is of another kind, or a key demands what Transformers does not do.
    """
    start = "tokenizer.ggml."
    said = {key.removeprefix(start): value for key, value in keys.items() if key.startswith(start)}
    model, pre = str(said.get("model", "llama")), said.get("pre")
    if model not in ("gpt2", "llama"):
        raise refusal(path, f"has a tokenizer of the kind {model!r:.40}")
    space = said.get("add_space_prefix", model == "llama")
    refused = {f"{start}{name}": value for name, value in said.items() if not _understood(name, value)}
    refused |= {
        key: value for key, value in keys.items() if re.match(r"tokenizer\.(?!ggml\.|chat_|huggingface)", key)
    }
    if space and (model == "gpt2" or architecture in _GEMMA):
        refused[f"{start}add_space_prefix"] = True
    if refused:
        raise refusal(path, f"holds {listed((shown(*pair) for pair in refused.items()), 3)}")
    if model == "gpt2" and (not isinstance(pre, str) or pre == "default"):
        raise CheckpointError(
            f"{path}: does not name the way to cut a text before its tokens ({start}pre), so that they would be "
            "guessed; convert the model again with a current llama.cpp"
        )
    if model == "gpt2" and pre not in SPLITS:
        raise refusal(path, f"names a way to cut texts that is not known here ({start}pre = {pre!r:.40})")
    whole = model == "gpt2" and pre in _WHOLE_WORDS
    tokens = {} if model == "gpt2" else {"bos_token": 1, "eos_token": 2, "unk_token": 0}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        value = said.get(f"{key}_token_id")
        if isinstance(value, int):
            tokens[f"{name}_token"] = value
    found = GgufTokenizer(
        model,
        architecture in _GEMMA,
        architecture == "phi3",
        SPLITS[str(pre)] if model == "gpt2" else (),
        whole_words=whole,
        space=bool(space),
        add_bos=bool(said.get("add_bos_token", whole or model == "llama")),
        add_eos=bool(said.get("add_eos_token", False)),
        tokens=tokens,
    )
    for added, name in ((found.add_bos, "bos"), (found.add_eos, "eos")):
        if added and f"{name}_token" not in tokens:
            raise CheckpointError(
                f"{path}: texts get a token {name.upper()}, but {start}{name}_token_id is not there; convert it again"
            )
    return found


def _understood(name: str, value: Value) -> bool:
    """Return whether a key is read, or says what is done anyway."""
    if name in _OFF:
        return value is False
    if name in ("precompiled_charsmap", "suppress_tokens"):
        return value in ((), Length(0))
    if name.startswith("add_"):
        return isinstance(value, bool) and name in ("add_bos_token", "add_eos_token", "add_space_prefix")
    if name.endswith("_token_id"):
        return isinstance(value, int) and name in _PASSED
    return name in _PASSED
