"""The tokenizer of a checkpoint as its files have it.

transformers builds many a tokenizer by a class of its own, which the folder's config names or the model's type implies.
Such a class takes little more than the vocabulary from ``tokenizer.json``. Where it cuts texts at other places, the
model is given tokens that it never saw in training. So what was loaded is held against ``tokenizer.json`` on ``probe``,
or against sentencepiece's model where there is only that. Where they differ the file is right, and a note says so.

The probe is the judge. It is spared where the class cannot matter: where transformers has taken the whole file, or
where all that the file says beside its vocabulary is what the class says.

Of a folder with a sentencepiece model and no ``tokenizer.json``, transformers' class may leave out what the model says
of itself: how characters are normalized, whether white space is merged and put first, how unknown characters are spelt.
What comes of it is held against the model, and its steps are made from the model's own words where that is nearer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import MOST_SETTINGS, read_json
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.transformers.compat import is_panic

FILE: Final = "tokenizer.json"
TEKKEN: Final = "tekken.json"

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

_STEPS: Final = ("normalizer", "pre_tokenizer", "post_processor")

_MODEL_OPTIONS: Final = (
    *("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk"),
    *("byte_fallback", "ignore_merges", "max_input_chars_per_word"),
)

_OFFSETS: Final = re.compile(r'"trim_offsets": (?:true|false)(?:, )?')
"""A setting that only moves offsets."""

_NAMED: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def load_matching_tokenizer(
    name_or_path: Path | str, options: Mapping[str, Any]
) -> tuple[Any, tuple[str, ...]]:
    """Load the tokenizer of a folder or Hub id, and make it tokenize as its files say.

    Raises whatever transformers does.

    Args:
        name_or_path: The folder or Hub id.
        options: Options of transformers' ``from_pretrained``.

    Returns:
        The tokenizer, and notes for the report.

    """
    from transformers import AutoTokenizer

    path = None if "gguf_file" in options else _cached_path(name_or_path, FILE, options)
    try:
        loaded = AutoTokenizer.from_pretrained(name_or_path, **options)
    except Exception as error:
        if path is None or options.get("trust_remote_code"):
            raise
        return _fall_back_to_file(name_or_path, options, error)
    begins = False
    if type(loaded).__name__ == "MistralCommonBackend":  # which has not the interface of the others
        begins, loaded = True, _load_tokenizer_json(name_or_path, options)
    if "gguf_file" in options or not type(loaded).__module__.startswith("transformers."):
        return loaded, ()  # code of the checkpoint's own, which a person trusts
    if path is not None:
        return (
            (loaded, ())
            if _has_same_settings(loaded, path)
            else _prefer_tokenizer_json(loaded, path, name_or_path, options)
        )
    for name in _MODELS:
        if (model := _cached_path(name_or_path, name, options)) is not None:
            return match_sentencepiece(loaded, model, probe(loaded))
    return (
        (loaded, ())
        if _cached_path(name_or_path, TEKKEN, options) is None
        else _complete_tekken(loaded, begins=begins)
    )


def _complete_tekken(loaded: Any, *, begins: bool) -> tuple[Any, tuple[str, ...]]:
    """Add BOS and EOS to the tokenizer that Transformers makes of Mistral's own file; return it with notes.

    ``begins``: texts begin with BOS, as those of mistral-common do; else a note says that they do not.
    """
    from tokenizers.processors import TemplateProcessing

    for name, token in (("bos_token", "<s>"), ("eos_token", "</s>")):
        if getattr(loaded, name) is None and token in loaded.get_vocab():
            setattr(loaded, name, token)
    if begins:
        bos = loaded.bos_token, loaded.bos_token_id
        loaded.backend_tokenizer.post_processor = TemplateProcessing(f"{bos[0]} $A", special_tokens=[bos])
        return loaded, ()
    return loaded, (
        f"texts do not begin with BOS: Transformers reads {TEKKEN} so where mistral-common is not there, which puts it "
        "before them",
    )


def probe(*tokenizers: Any) -> list[str]:
    """Return the texts on which tokenizers are compared, with special tokens and a sample of the vocabulary."""
    special = dict.fromkeys(
        token for tokenizer in tokenizers for token in map(str, tokenizer.all_special_tokens)
    )
    texts = [*_TEXTS, *(f"one{token}two {token} three" for token in special)]
    if special:
        texts.append("".join(special))
    ids_in_use = {
        number for token, number in tokenizers[-1].get_vocab().items() if not _BYTE.fullmatch(token)
    }
    ids = sorted(ids_in_use)[:: max(1, len(ids_in_use) // _SAMPLE)]
    texts += [tokenizers[-1].decode(ids[begin : begin + _AT_ONCE]) for begin in range(0, len(ids), _AT_ONCE)]
    return list(dict.fromkeys(texts))


def _prefer_tokenizer_json(
    loaded: Any, path: Path, name_or_path: Path | str, options: Mapping[str, Any]
) -> tuple[Any, tuple[str, ...]]:
    """Return the loaded tokenizer if it agrees with ``tokenizer.json`` on the probe texts, else that of the file.

    The second value has the notes for the report: one where the tokenizer of the file replaces the class that the
    config names.
    """
    from_file = _load_tokenizer_json(name_or_path, options)
    texts = probe(loaded, from_file)
    mismatches = sum(_ids(loaded, text) != _ids(from_file, text) for text in texts)
    if not mismatches:
        return loaded, ()
    vocabulary = from_file.get_vocab()
    for name in _NAMED:  # as the class does where no file names a special token that the file has
        token = getattr(loaded, name)
        if token is not None and getattr(from_file, name) is None and str(token) in vocabulary:
            setattr(from_file, name, token)
    configured_class = _settings(path).get("tokenizer_class")
    if configured_class in _GENERAL:
        return from_file, ()  # the config asks for no class but the file, though transformers took one
    return from_file, (
        f"tokens are those of {FILE}: {configured_class or type(loaded).__name__}, the class that transformers takes, "
        f"differs on {mismatches} of {count(len(texts), 'probe text')}",
    )


def _settings(path: Path) -> dict[str, Any]:
    """Return the content of ``tokenizer_config.json`` beside a file; empty where it cannot be read."""
    try:
        settings = read_json(path.with_name("tokenizer_config.json"), MOST_SETTINGS)
    except (OSError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _fall_back_to_file(
    name_or_path: Path | str, options: Mapping[str, Any], error: Exception
) -> tuple[Any, tuple[str, ...]]:
    """Return the tokenizer of the file, with a note; raise ``error`` if that cannot be made either."""
    try:
        plain = _load_tokenizer_json(name_or_path, options)
    except BaseException as second:  # tokenizers' panics are no ``Exception``
        if not isinstance(second, Exception) and not is_panic(second):
            raise
        raise error from None
    return plain, (
        f"tokens are those of {FILE}: the class that transformers takes cannot be made of it "
        f"({type(error).__name__})",
    )


def _load_tokenizer_json(name_or_path: Path | str, options: Mapping[str, Any]) -> Any:
    """Return the tokenizer that ``tokenizer.json`` describes, with the other files' special tokens and template."""
    from transformers import PreTrainedTokenizerFast

    more = {name: value for name, value in options.items() if name != "config"}
    return PreTrainedTokenizerFast.from_pretrained(name_or_path, **more)


def _ids(tokenizer: Any, text: str) -> list[list[int]] | None:
    """Return the tokens of a text without and with special tokens; None where the tokenizer fails."""
    try:
        return [tokenizer(text, add_special_tokens=framed)["input_ids"] for framed in (False, True)]
    except Exception:  # such as for an unknown token that is not in the vocabulary
        return None


def _cached_path(name_or_path: Path | str, name: str, options: Mapping[str, Any]) -> Path | None:
    """Return the local path of a file of a folder or Hub id; None where there is none."""
    from transformers.utils import cached_file

    cached = cached_file(
        name_or_path,
        name,
        local_files_only=options.get("local_files_only", False),
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
        _raise_exceptions_for_gated_repo=False,
    )
    return None if cached is None else Path(cached)


def _has_same_settings(loaded: Any, path: Path) -> bool:
    """Return whether the loaded tokenizer has the settings of the file, apart from the vocabulary.

    Building a second tokenizer to compare them takes as long as the first.
    """
    from transformers import PreTrainedTokenizerFast

    if not isinstance(loaded, PreTrainedTokenizerFast):
        return False
    classes = type(loaded).__mro__
    if not any(
        "__init__" in vars(base_class) for base_class in classes[: classes.index(PreTrainedTokenizerFast)]
    ):
        return True  # it was read by transformers' general class, which takes the whole file
    try:
        file = json.loads(path.read_text(encoding="utf-8"))
        kind = file["model"].get("type")
    except (ValueError, LookupError, AttributeError, TypeError):
        return False
    if kind in (None, "Unigram"):
        return False  # the scores of its pieces are no settings
    backend = loaded.backend_tokenizer
    steps = {name: getattr(backend, name) for name in _STEPS}
    options = {name: getattr(backend.model, name, None) for name in _MODEL_OPTIONS}
    added = loaded.added_tokens_decoder.items()
    in_use = {
        **{name: step and json.loads(step.__getstate__()) for name, step in steps.items()},
        "added_tokens": [{"id": number, **token.__getstate__()} for number, token in added],
        "model": {"type": type(backend.model).__name__, **options},
    }
    return _token_settings(file) == _token_settings(in_use)


def _token_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the settings that decide a tokenizer's tokens, in a form that can be compared."""
    # Files of other versions leave out options of the model that are off.
    model = settings["model"].items()
    options = {name: value for name, value in model if value and name not in ("vocab", "merges")}
    steps = json.dumps([settings.get(name) for name in (*_STEPS, "added_tokens")], sort_keys=True)
    return options, _OFFSETS.sub("", steps)


_MODELS: Final = (
    "tokenizer.model",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
)

_BPE: Final = 2
"""The kind of a model of merges, by its number in the file."""


def match_sentencepiece(loaded: Any, path: Path, texts: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Make a tokenizer agree with its sentencepiece model on the texts, where that brings it closer.

    Args:
        loaded: The tokenizer that transformers makes.
        path: The file of the sentencepiece model.
        texts: The texts to compare on.

    Returns:
        The tokenizer, and notes for the report.

    Raises:
        CheckpointError: If the tokenizer lacks pieces of the model, or the model's file is cut off.

    """
    model = _load_sentencepiece(path)
    if model is None or not getattr(loaded, "is_fast", False) or getattr(loaded, "split_by_punct", False):
        return loaded, ()  # it asks the model itself; or it means to cut otherwise
    proto, processor = model
    pieces = [
        processor.id_to_piece(number)
        for number in range(processor.get_piece_size())
        if not (processor.is_control(number) or processor.is_unknown(number) or processor.is_unused(number))
    ]
    vocabulary = loaded.get_vocab()
    if missing := [piece for piece in pieces if piece not in vocabulary]:
        raise CheckpointError(
            f"{path}: {type(loaded).__name__}, the class for it, does not take {len(missing)} of its "
            f"{len(pieces)} pieces; save the tokenizer again, with tokenizer.json"
        )
    before = _family_normalizer(loaded)
    added = [
        str(token) for token in loaded.added_tokens_decoder.values()
    ]  # which the model alone does not know
    expected: dict[str, list[str | None]] = {
        text: [
            None if processor.is_unknown(number) else processor.id_to_piece(number)
            for number in processor.encode(before.normalize_str(text))
        ]
        for text in texts
        if not any(token in text for token in added)
    }
    differing = _count_differing(loaded, expected)
    if not differing:
        return loaded, ()
    undo = _apply_model_steps(loaded, path, proto, before)
    left = _count_differing(loaded, expected)
    name, of = type(loaded).__name__, count(len(expected), "probe text")
    if left >= differing:
        undo()
        return loaded, (f"tokens are not always those of {path.name}: {name} differs on {differing} of {of}",)
    rest = f"; {left} of them still differ" if left else ""
    return loaded, (
        f"tokens are those of {path.name}: {name}, the class for it, differs on {differing} of {of}{rest}",
    )


def _load_sentencepiece(path: Path) -> tuple[Any, Any] | None:
    """Return the content of a sentencepiece model and the model; None where the file is not one.

    That is another's file, as tiktoken's may be; or sentencepiece or protobuf is not installed. Raises
    ``CheckpointError`` where its settings, which follow the pieces, are missing: transformers takes a part of the
    pieces for all of them.
    """
    try:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]
        from sentencepiece import SentencePieceProcessor
        from transformers.convert_slow_tokenizer import SentencePieceExtractor
    except ImportError:
        return None
    try:
        proto = SentencePieceExtractor(str(path)).proto
    except (ImportError, DecodeError, OSError):
        return None
    if proto.pieces and not (proto.HasField("trainer_spec") and proto.HasField("normalizer_spec")):
        raise CheckpointError(f"{path}: cut off after {len(proto.pieces)} pieces; copy it again")
    try:
        return proto, SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError):
        return None


def _family_normalizer(loaded: Any) -> Any:
    """Return the normalizer that a family (ALBERT and its kin) applies before the sentencepiece model."""
    from tokenizers import normalizers

    loads = loaded.backend_tokenizer.normalizer
    whole = json.loads(loads.__getstate__()) if loads is not None else {}
    steps = whole.get("normalizers", [whole])
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    normalizer_types = {
        "NFKD": normalizers.NFKD,
        "StripAccents": normalizers.StripAccents,
        "Lowercase": normalizers.Lowercase,
    }
    replacements = quotes if any(step.get("pattern") == {"String": "``"} for step in steps) else []
    return normalizers.Sequence(
        [
            *replacements,
            *(normalizer_types[step["type"]]() for step in steps if step.get("type") in normalizer_types),
        ]
    )


def _count_differing(loaded: Any, true: dict[str, list[str | None]]) -> int:
    """Return the number of texts whose tokens differ from the pieces of the sentencepiece model."""
    different = 0
    for text, pieces in true.items():
        tokens = loaded.convert_ids_to_tokens(loaded(text, add_special_tokens=False)["input_ids"])
        different += [None if token == loaded.unk_token else token for token in tokens] != pieces
    return different


def _apply_model_steps(loaded: Any, path: Path, proto: Any, before: Any) -> Callable[[], None]:
    """Replace the tokenizer's steps by those of the sentencepiece model; return a function that undoes it."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    backend, spec = loaded.backend_tokenizer, proto.normalizer_spec
    original = backend.normalizer, backend.pre_tokenizer, backend.model
    steps = [before]
    if spec.precompiled_charsmap:
        # The library looks characters up one by one: what they compose has to be composed before.
        steps += [normalizers.NFC(), normalizers.Precompiled(spec.precompiled_charsmap)]
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    # White space is put before a text, but not after special tokens in it.
    only_first = _settings(path).get("legacy") is False
    if spec.add_dummy_prefix and not only_first:
        steps.append(normalizers.Prepend("▁"))
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    first = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.pre_tokenizer = first if spec.add_dummy_prefix and only_first else None
    backend.model = _build_model(loaded, proto)

    def undo() -> None:
        backend.normalizer, backend.pre_tokenizer, backend.model = original

    return undo


def _build_model(loaded: Any, proto: Any) -> Any:
    """Return the sentencepiece model for the tokenizers library, with the tokenizer's ids of its pieces."""
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
