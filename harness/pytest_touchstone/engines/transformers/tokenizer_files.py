"""The tokenizer of a checkpoint as its files have it.

transformers builds many a tokenizer by a class of its own, which the folder's config names or the model's type implies.
Such a class takes little more than the vocabulary from ``tokenizer.json``. Where it cuts texts at other places, the
model is given tokens that it never saw in training. So what was loaded is held against ``tokenizer.json`` on ``probe``,
or against sentencepiece's model where there is only that. Where they differ the file is right, and a note says so.

The probe is the judge. It is spared where the class cannot matter: where transformers has taken the whole file, or
where all that the file says beside its vocabulary is what the class says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.text import count
from pytest_touchstone.engines.transformers.compat import is_panic
from pytest_touchstone.engines.transformers.sentencepiece_files import FILES, as_sentencepiece

FILE: Final = "tokenizer.json"

_SAMPLE: Final = 400
"""The tokens of the vocabulary that the probe holds."""

_AT_ONCE: Final = 8
"""The tokens of the vocabulary in one text of the probe."""

_TEXTS: Final = (
    *("Lyon in 1234567", "2023-10-05 3.14159 1,000,000 007", "x1y22z333", "a", "", " "),
    *("I'm sure they'll say it's what we've got, DON'T they'd? I'M", "the answer is 42."),
    *("HELLO World iPhone McDonald", "$100 €50 £7 50% #tag @me a_b_c a__b", "well-known re-use co-op"),
    *("def f(x):\n    return {'a': x[0]**2}  # why?\n\n\treturn None\r\n", "if(a!=b){c+=1;}//d"),
    *('<p class="x">&amp;</p>', "(a)[b]{c}<d>", "e-mail: a.b@c.org https://x.y/z?q=1&r=2", "...!!!???"),
    *("two  spaces   three    four", "line\nline\n\nline\n\n\nline", "\ttab\t\ttab \n ", "\n"),
    *("  leading", "trailing  ", "\u00a0nbsp\u2003em\u200bzero\ufeffbom", "a\u0000b\u0007c", "▁under▁ Ġg"),
    *("Café naïve Ångström Größe ÀÉÎÕÜ ß", "Cafe\u0301 A\u030angstro\u0308m", "İstanbul ıI ǅ ﬁ ﬂ"),
    *("나는 오늘 학교에 갔다.", "\u1102\u1161\u1102\u1173\u11ab", "大韓民國 漢字 학교(學校)"),
    *(
        "東京都に住んでいます。",
        "我喜欢北京烤鸭",
        "\uff26\uff35\uff2c\uff2c\u3000\uff11\uff12\uff13",
        "①②③ ½ x² ™ …",
    ),
    *("“quotes” ‘single’ — dash – en", "``quoted'' text", "😀 👩‍👩‍👧‍👦 🇰🇷 ❤️"),
    *("Привет мир", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "שלום"),
)

_GENERAL: Final = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Names of transformers' general class, which takes the whole file."""

_BYTE: Final = re.compile("<0x[0-9A-F]{2}>")
"""A token that stands for a byte, which a text does not spell out."""

_NAMED: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def tokenizer_of(place: Path | str, how: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return the tokenizer of a folder or Hub id, and what to say of it.

    ``how`` are options of transformers. It raises whatever transformers does.
    """
    from transformers import AutoTokenizer

    if "gguf_file" in how:
        return AutoTokenizer.from_pretrained(place, **how), ()
    path = _path(place, FILE, how)
    try:
        loaded = AutoTokenizer.from_pretrained(place, **how)
    except Exception as error:
        if path is None or how.get("trust_remote_code"):
            raise
        return _of_file_alone(place, how, error)
    if not type(loaded).__module__.startswith("transformers."):
        return loaded, ()  # code of the checkpoint's own, which a person trusts
    if path is None:
        models = (_path(place, name, how) for name in FILES)
        model = next((one for one in models if one is not None), None)
        return (loaded, ()) if model is None else as_sentencepiece(loaded, model, probe(loaded))
    if _says_the_same(loaded, path):
        return loaded, ()
    return _of_file(loaded, path, place, how)


def probe(*tokenizers: Any) -> list[str]:
    """Return the texts on which tokenizers are compared, with their special tokens and some of their vocabulary."""
    special = dict.fromkeys(token for one in tokenizers for token in map(str, one.all_special_tokens))
    texts = [*_TEXTS, *(f"one{token}two {token} three" for token in special)]
    if special:
        texts.append("".join(special))
    known = {number for token, number in tokenizers[-1].get_vocab().items() if not _BYTE.fullmatch(token)}
    ids = sorted(known)[:: max(1, len(known) // _SAMPLE)]
    texts += [tokenizers[-1].decode(ids[begin : begin + _AT_ONCE]) for begin in range(0, len(ids), _AT_ONCE)]
    return list(dict.fromkeys(texts))


def _of_file(
    loaded: Any, path: Path, place: Path | str, how: Mapping[str, Any]
) -> tuple[Any, tuple[str, ...]]:
    """Return the loaded tokenizer where it does as the file says on the probe, else one of the file."""
    plain = _plain(place, how)
    texts = probe(loaded, plain)
    different = sum(_ids(loaded, text) != _ids(plain, text) for text in texts)
    if not different:
        return loaded, ()
    _name_special(plain, loaded)
    if (named := _named_class(path)) in _GENERAL:
        return plain, ()  # the config asks for no class but the file, though transformers took one
    return plain, (
        f"tokens are those of {FILE}: {named or type(loaded).__name__}, the class that transformers takes, "
        f"differs on {different} of {count(len(texts), 'probe text')}",
    )


def _named_class(path: Path) -> str | None:
    """Return the class that the config beside a file names, if any."""
    try:
        said = json.loads(path.with_name("tokenizer_config.json").read_bytes()).get("tokenizer_class")
    except (OSError, ValueError, AttributeError):
        return None
    return said if isinstance(said, str) else None


def _of_file_alone(
    place: Path | str, how: Mapping[str, Any], error: Exception
) -> tuple[Any, tuple[str, ...]]:
    """Return a tokenizer of the file where the class that transformers takes cannot be made; else raise its error."""
    try:
        plain = _plain(place, how)
    except BaseException as second:  # tokenizers' panics are no ``Exception``
        if not isinstance(second, Exception) and not is_panic(second):
            raise
        raise error from None
    return plain, (
        f"tokens are those of {FILE}: the class that transformers takes cannot be made of it "
        f"({type(error).__name__})",
    )


def _plain(place: Path | str, how: Mapping[str, Any]) -> Any:
    """Return the tokenizer that the file describes, with the special tokens and the template of the other files."""
    from transformers import PreTrainedTokenizerFast

    more = {name: value for name, value in how.items() if name != "config"}
    return PreTrainedTokenizerFast.from_pretrained(place, **more)


def _name_special(plain: Any, loaded: Any) -> None:
    """Name special tokens as the class does where no file names them, if the file has them."""
    known = plain.get_vocab()
    for name in _NAMED:
        token = getattr(loaded, name)
        if token is not None and getattr(plain, name) is None and str(token) in known:
            setattr(plain, name, token)


def _ids(tokenizer: Any, text: str) -> list[list[int]] | None:
    """Return the tokens of a text, without and with special tokens around it; None where the tokenizer fails."""
    try:
        return [tokenizer(text, add_special_tokens=framed)["input_ids"] for framed in (False, True)]
    except Exception:  # such as for an unknown token that is not in the vocabulary
        return None


def _path(place: Path | str, name: str, how: Mapping[str, Any]) -> Path | None:
    """Return where a file of a folder or of a Hub id lies; None where there is none."""
    from transformers.utils import cached_file

    found = cached_file(
        place,
        name,
        local_files_only=how.get("local_files_only", False),
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )
    return None if found is None else Path(found)


def _says_the_same(loaded: Any, path: Path) -> bool:
    """Return whether the file's parts beside the vocabulary are those of the tokenizer that was loaded.

    Building a second tokenizer to compare them takes as long as the first.
    """
    from transformers import PreTrainedTokenizerFast

    if not isinstance(loaded, PreTrainedTokenizerFast):
        return False
    classes = type(loaded).__mro__
    if not any("__init__" in vars(one) for one in classes[: classes.index(PreTrainedTokenizerFast)]):
        return True  # it was read by transformers' general class, which takes the whole file
    try:
        file = _beside_vocabulary(path.read_text(encoding="utf-8"))
    except (ValueError, IndexError):
        return False
    return file is not None and _told(file) == _told(_parts(loaded))


def _parts(loaded: Any) -> dict[str, Any]:
    backend = loaded.backend_tokenizer
    parts = {name: getattr(backend, name) for name in ("normalizer", "pre_tokenizer", "post_processor")}
    found = {name: part and json.loads(part.__getstate__()) for name, part in parts.items()}
    options = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk")
    more = ("byte_fallback", "ignore_merges", "max_input_chars_per_word")
    model = {name: getattr(backend.model, name, None) for name in (*options, *more)}
    added = [{"id": number, **token.__getstate__()} for number, token in loaded.added_tokens_decoder.items()]
    return {**found, "added_tokens": added, "model": {"type": type(backend.model).__name__, **model}}


def _told(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a tokenizer's parts decides its tokens, in one form."""
    names = ("normalizer", "pre_tokenizer", "post_processor", "added_tokens")
    # Files of other versions leave out options of the model that are off.
    model = {name: value for name, value in parts["model"].items() if value}
    return {**{name: _without_offsets(parts.get(name)) for name in names}, "model": model}


def _without_offsets(part: Any) -> Any:
    """Return a part without the setting that only moves offsets."""
    if isinstance(part, dict):
        return {name: _without_offsets(value) for name, value in part.items() if name != "trim_offsets"}
    return [_without_offsets(one) for one in part] if isinstance(part, list) else part


_BLANK: Final = re.compile(r"[\s,{]*")
_COLON: Final = re.compile(r"\s*:\s*")


def _beside_vocabulary(text: str) -> dict[str, Any] | None:
    """Return what a ``tokenizer.json`` says up to its vocabulary; None where more may follow it (Unigram).

    Reading the vocabulary would take most of the time.
    """
    parts, begin = _entries(text, 0, "model")
    model, _ = _entries(text, begin, "vocab")
    return None if model.get("type") in (None, "Unigram") else {**parts, "model": model}


def _entries(text: str, begin: int, last: str) -> tuple[dict[str, Any], int]:
    """Return the entries of the JSON object at a place before the one named ``last``, and the place of its value."""
    found: dict[str, Any] = {}
    decoder = json.JSONDecoder()
    while True:
        name, begin = decoder.raw_decode(text, _after(_BLANK, text, begin))
        begin = _after(_COLON, text, begin)
        if name == last:
            return found, begin
        found[name], begin = decoder.raw_decode(text, begin)


def _after(pattern: re.Pattern[str], text: str, begin: int) -> int:
    matched = pattern.match(text, begin)
    return begin if matched is None else matched.end()
