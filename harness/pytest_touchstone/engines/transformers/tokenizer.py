"""Tokens of texts, and texts of tokens.

``TextTokenizer`` finds where a continuation begins among the tokens of context and continuation joined. Both are
tokenized together, as the model would meet them in text. White space at the end of the context belongs to the
continuation, since that is where tokenizers put it. The continuation's tokens are those that end after the join; a
token that spans the join belongs to the continuation and is reported.

Suppose that no token spans the join, and that the context's tokens are those it has alone. Then this is the cut that
lm-evaluation-harness makes, at the length of the context tokenized alone.

Special tokens that the tokenizer adds at the start stay before the context. Those it would add at the end are left
out, since a text that is scored does not end there.

``Vocabulary`` says what tokens stand for: bytes of the text, or plain words without marks. Trying tells three ways of
writing tokens apart: byte-level (GPT-2: every byte is one visible character), sentencepiece (``▁`` is a space,
``<0xEA>`` a byte), and all others. The others (such as WordPiece) say too little about spaces to be turned back into
text.

What texts share is tokenized once, in pieces that have the same tokens together as apart. A byte-level tokenizer first
cuts a text into words, by a pattern that matches from left to right and looks back at nothing. Where no alternative of
the pattern has a space after another character, and one matches every space, a word begins at each space that follows a
character other than white space. Pair merges do not reach beyond words.

Chat templates are programs that come with a checkpoint. jinja2's sandbox keeps a template from files and from Python's
insides, not from loops without end or huge texts. So a render that takes too long is stopped from another thread, and
operations that make large values out of small ones are refused before they are done.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from pytest_touchstone.core.reasoning import ReasoningDelimiters, delimiters_among, delimiters_of
from pytest_touchstone.core.requests import Refusal, Turn

_AT_ONCE: Final = 2**20
"""The characters that are tokenized at once: a token takes about a hundred bytes meanwhile."""

THINKING: Final = ("enable_thinking", "thinking")
"""The names by which chat templates are told whether to begin with a reasoning: most, DeepSeek's and Granite's."""

_TAIL: Final = 16
"""The last tokens of a prompt, among which the delimiter is that opens a reasoning."""

UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"
"""The character that stands for the bytes of an unfinished character."""

_LONGEST_ERROR: Final = 200
"""The most characters of a template's own error that are repeated."""


@dataclass(frozen=True, slots=True)
class TokenPair:
    """Token ids of a context (at least one) and of its continuation (at least one)."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]
    spans_join: bool


class TextTokenizer:
    """Tokenizes texts for scoring with a causal language model."""

    def __init__(self, tokenizer: Any, vocabulary: Vocabulary | None = None) -> None:
        self._tokenizer = tokenizer
        self.reasoning: ReasoningDelimiters | None = None
        """The delimiters of a reasoning, None where the model is not known to have any."""
        self._kept: dict[int, str] = {}
        self._thinking: dict[str, bool] = {}
        self._vocabulary = vocabulary or Vocabulary(tokenizer)
        self._front, _ = special_token_frame(tokenizer)
        self._bos: str | None = tokenizer.bos_token
        self._pieces = splitter_of(tokenizer)
        self._may_end: dict[frozenset[int] | None, Callable[[int], bool]] = {}
        self._encoded: dict[str, list[int]] = {}
        self._spelt = False

    def with_reasoning(self, think_end: str, thinking: Literal["on", "off"] | None) -> TextTokenizer:
        """Return a copy that knows the delimiters of a reasoning, and the value of the template's thinking switch.

        Both arguments are as in ``ModelSettings``.
        """
        aware, tokenizer = copy.copy(self), self._tokenizer
        added: Iterable[str] = getattr(tokenizer, "get_added_vocab", dict)()
        vocabulary_text = f"{getattr(tokenizer, 'chat_template', None)} {' '.join(added)}"
        aware.reasoning = delimiters_among(delimiters_of(think_end), vocabulary_text)
        if aware.reasoning is not None:
            delimiters = aware.reasoning.begin + aware.reasoning.end
            special = {token: tokenizer.convert_ids_to_tokens(token) for token in tokenizer.all_special_ids}
            aware._kept = {token: text for token, text in special.items() if text and text in delimiters}
        aware._thinking = {} if thinking is None else dict.fromkeys(THINKING, thinking == "on")
        return aware

    def with_encoded(self, texts: Iterable[str]) -> TextTokenizer:
        """Return a copy with the tokens of these texts at hand.

        They are tokenized many at once, by all cores, while other threads go on; what they share, once.
        """
        if not getattr(self._tokenizer, "is_fast", False):
            return self
        # Where nobody has decided, tokenizers 0.21 and 0.22 print a warning in each fork of this process afterwards.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        ready = copy.copy(self)
        whole = [text for text in dict.fromkeys(texts) if text_fault(text) is None]
        cuts = list(cut_texts(whole, self._pieces))
        lean = {"return_attention_mask": False, "return_token_type_ids": False}
        piece_ids: dict[str, list[int]] = {}
        for batch in _batches(dict.fromkeys(chain.from_iterable(each.others for each in cuts))):
            encoded = self._tokenizer(batch, add_special_tokens=False, **lean)
            piece_ids.update(zip(batch, encoded["input_ids"], strict=True))
        ready._encoded, pieces = {}, list[str]()
        for text, (same, others) in zip(whole, cuts, strict=True):
            pieces[same:] = others
            ready._encoded[text] = list(chain.from_iterable(map(piece_ids.__getitem__, pieces)))
        ready._spelt = all(
            self._vocabulary.joined(ids, piece) is not None for piece, ids in piece_ids.items()
        )
        return ready

    @property
    def most_tokens(self) -> float:
        """The number below which the tokens of all texts are; infinity where that is not known."""
        return self._vocabulary.size if getattr(self._tokenizer, "is_fast", False) else math.inf

    @property
    def start(self) -> int | None:
        """The token that stands in for an empty context: BOS, else EOS, else None."""
        bos, eos = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        token = bos if bos is not None else eos
        return None if token is None else int(token)

    def pair(self, context: str, continuation: str) -> TokenPair | Refusal:
        """Return the tokens of context and continuation; a ``Refusal`` if either is missing."""
        if not continuation:
            return Refusal("the continuation is empty; there is nothing to score")
        bare = context.rstrip()
        text = context + continuation
        if text not in self._encoded and (fault := text_fault(text)) is not None:
            return fault
        ids = self._encode(text)
        join, spans = self._join(ids, text, len(bare))
        before = self.front_of(text) + tuple(ids[:join])
        after = tuple(ids[join:])
        if not before:
            if self.start is None:
                return Refusal(
                    "the context is empty, and the tokenizer has neither a BOS nor an EOS token to start from"
                )
            if after and after[0] == self.start:
                before, after = after[:1], after[1:]
            else:
                before = (self.start,)
        if not after:
            return Refusal(
                f"the continuation {continuation!r} has no tokens in this vocabulary; "
                "there is nothing to score"
            )
        return TokenPair(before, after, spans)

    def text(self, text: str) -> tuple[int, ...] | Refusal:
        """Return the tokens of a text that is scored from its first token, without special tokens around it."""
        if self.start is None:
            return Refusal("the tokenizer has neither a BOS nor an EOS token to start from")
        if (fault := text_fault(text)) is not None:
            return fault
        ids = tuple(self._encode(text))
        return ids or Refusal("the text has no tokens; there is nothing to score")

    def conversation(self, turns: Sequence[Turn]) -> str | Refusal:
        """Return the turns as the checkpoint's chat template writes them, up to where the assistant begins.

        Where the last turn is the assistant's, the text ends with its last character: the answer goes on from there.
        """
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        begun = turns[-1].role == "assistant"
        limit_templates()
        how = {"add_generation_prompt": not begun, "continue_final_message": begun, **self._thinking}
        try:
            text: str = run_limited(
                lambda: self._tokenizer.apply_chat_template(messages, tokenize=False, **how)
            )
        except Exception as error:  # a template is a program, which may fail in any way
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST_ERROR]
            return Refusal(f"the chat template fails ({reason}); use --eval-chat off, or mend the template")
        # A template may strip what it is given; the start of a code block would lose its line break.
        end = turns[-1].text[len(turns[-1].text.rstrip()) :] if begun else ""
        return text if text.endswith(end) else text.rstrip() + end

    def chat(self, turns: Sequence[Turn]) -> tuple[int, ...] | Refusal:
        """Return the tokens of the turns, at least one, as the chat template writes them.

        The template writes the special tokens too, so none are added.
        """
        text = self.conversation(turns)
        if isinstance(text, Refusal):
            return text
        ids = self._tokens(text, (), "chat template")
        return ids or Refusal("the chat template writes nothing; use --eval-chat off, or mend the template")

    def prompt(self, text: str) -> tuple[int, ...] | Refusal:
        """Return the tokens of a prompt, at least one, after the special tokens that begin it."""
        ids = self._tokens(text, self.front_of(text), "prompt")
        if ids or self.start is None:
            return ids or Refusal(
                "the prompt is empty, and the tokenizer has neither a BOS nor an EOS token to start from"
            )
        return (self.start,)

    def _tokens(self, text: str, front: tuple[int, ...], what: str) -> tuple[int, ...] | Refusal:
        """Return the tokens of a text after special ones; a ``Refusal`` for an invalid text, or one with two BOS."""
        if (fault := text_fault(text)) is not None:
            return fault
        ids = (*front, *self._encode(text))
        if self.begins(ids) and self.begins(ids[1:]):
            return Refusal(
                f"the {what} begins with {self._tokenizer.bos_token} twice, which no checkpoint has seen in training; "
                "take one out of it"
            )
        return ids

    def begins(self, ids: Sequence[int]) -> bool:
        """Return whether tokens begin with BOS."""
        bos = self._tokenizer.bos_token_id
        return bos is not None and bool(ids) and ids[0] == bos

    def readable(self, ids: Sequence[int]) -> str:
        """Return the text of generated tokens, without special tokens except the delimiters of a reasoning."""
        if not self._kept:
            text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
            return text
        parts, begin = [], 0
        for index, token in enumerate(ids):
            if token in self._kept:
                parts += [
                    self._tokenizer.decode(list(ids[begin:index]), skip_special_tokens=True),
                    self._kept[token],
                ]
                begin = index + 1
        return "".join((*parts, self._tokenizer.decode(list(ids[begin:]), skip_special_tokens=True)))

    def opens_reasoning(self, prompt: Sequence[int]) -> bool:
        """Return whether a prompt ends within a reasoning that it opens."""
        return self.reasoning is not None and self.reasoning.opens(self.readable(prompt[-_TAIL:]))

    def may_end(self, stops: Sequence[str]) -> Callable[[int], bool]:
        """Return a predicate of tokens: whether a token may be the last one of a stop sequence.

        A token may be the last one if it has the last byte of a stop sequence, or if its bytes are unknown.
        """
        if "" in stops or any(UNREADABLE in stop for stop in stops):
            last = None
        else:
            last = frozenset(stop.encode("utf-8", "surrogatepass")[-1] for stop in stops)

        def may_be_last(token: int) -> bool:
            spelt = self._vocabulary.token_bytes(token)
            if last is None or spelt is None or not last.isdisjoint(spelt):
                return True
            return spelt.decode("utf-8", "replace").strip() != self.readable([token]).strip()

        return self._may_end.setdefault(last, functools.cache(may_be_last))

    @property
    def special(self) -> frozenset[int]:
        """The tokens that ``readable`` leaves out."""
        return frozenset(self._tokenizer.all_special_ids) - self._kept.keys()

    @property
    def marks(self) -> frozenset[str]:
        """The texts that are special tokens, wherever they stand."""
        added = getattr(self._tokenizer, "added_tokens_decoder", {}).values()
        texts = (*self._tokenizer.all_special_tokens, *(str(token) for token in added if token.special))
        return frozenset(filter(None, texts))

    @property
    def end(self) -> int | None:
        """The token that ends a text, EOS."""
        token = self._tokenizer.eos_token_id
        return None if token is None else int(token)

    def _encode(self, text: str) -> list[int]:
        return self._encoded.get(text) or list(self._tokenizer.encode(text, add_special_tokens=False))

    def front_of(self, text: str) -> tuple[int, ...]:
        """Return the special tokens at the start of a text; none if the text itself begins with BOS."""
        return () if self._bos and text.startswith(self._bos) else self._front

    def _join(self, ids: Sequence[int], text: str, join: int) -> tuple[int, bool]:
        """Return the index of the first token that ends after character ``join``, and whether it begins before that."""
        if join == 0:
            return 0, False
        spelt = self._spelt and text in self._encoded  # each of its pieces is
        if spelt or self._vocabulary.joined(ids, text) is not None:  # offsets of characters may be trimmed
            index, left = len(ids), len(text[join:].encode("utf-8", "surrogatepass"))
            while left > 0 and index > 0:
                index -= 1
                left -= len(self._vocabulary.token_bytes(ids[index]) or b"")
            return index, left < 0
        if getattr(self._tokenizer, "is_fast", False):
            encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            spans = encoded["offset_mapping"]
            index = next((index for index, (_, end) in enumerate(spans) if end > join), len(spans))
            return index, index < len(spans) and spans[index][0] < join
        # Without offsets: as far as the tokens are those of the context alone.
        alone = self._encode(text[:join])
        same = len(list(takewhile(lambda two: two[0] == two[1], zip(alone, ids, strict=False))))
        return same, same < len(alone)


def text_fault(text: str) -> Refusal | None:
    """Return the refusal of a string with half of a surrogate pair; None for a valid text."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X} at character {error.start + 1}"
        return Refusal(f"the text has half of a character ({half}), which has no tokens; mend the data")
    return None


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in non-empty lists of up to ``_AT_ONCE`` characters, or of one text."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and size + len(text) > _AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


# Texts in pieces


_PIECE: Final = re.compile(r"(?s).{64,}?\S(?= )|.+")
"""Pieces begin at the same places in texts that begin alike; shorter ones take longer to put together."""

_FIRST: Final = r"(?: \?|\[\^\\r\\n\\p\{L\}\\p\{N\}\]\?|\\s\*)?"
_CLASS: Final = (
    r"(?:\\p\{[LMN][a-z]?\}|\[(?:\^\\s)?(?:\\p\{[LMN][a-z]?\}|\\r|\\n|/)+\]|'\w+|\(\?i:[^()\s\\]+\))"
)
_ALTERNATIVE: Final = re.compile(rf"\\s\+(?:\(\?!\\S\))?|{_FIRST}(?:{_CLASS}(?:[*+?]|\{{1,3\}})?)+")
"""The alternatives that the patterns of known tokenizers consist of: a space stands at most first."""


def splitter_of(tokenizer: Any) -> Callable[[str], list[str]]:
    """Return the function that cuts a text into pieces whose tokens, joined, are the tokens of the text.

    For a tokenizer that is not known to keep to that it returns the whole text as one piece.
    """
    return _PIECE.findall if _is_local(tokenizer) else lambda text: [text]


class TextCut(NamedTuple):
    """The pieces of a text: the number of leading ones shared with the text before, and the others."""

    same: int
    others: list[str]


def cut_texts(texts: Iterable[str], pieces_of: Callable[[str], list[str]]) -> Iterator[TextCut]:
    """Yield each text in pieces; those that it shares with the text before are not cut again.

    ``pieces_of`` is the function that ``splitter_of`` returns.
    """
    before, pieces = "", list[str]()
    for text in texts:
        # A piece ends where the next one begins with a space; the last one, where its text does.
        del pieces[-1:]
        length = sum(map(len, pieces))
        while pieces and not text.startswith(before[: length + 1]):
            length -= len(pieces.pop())
        same, others = len(pieces), pieces_of(text[length:])
        yield TextCut(same, others)
        before, pieces = text, pieces + others


def _is_local(tokenizer: Any) -> bool:
    """Return whether a tokenizer begins a word at each space after a character other than white space."""
    try:
        backend = tokenizer.backend_tokenizer
        model, added = backend.model, tokenizer.added_tokens_decoder.values()
        steps = (backend.pre_tokenizer, backend.normalizer)
        words, changes = (step and json.loads(step.__getstate__()) for step in steps)
    except (AttributeError, TypeError, ValueError):  # not of the package tokenizers, or a part made in Python
        return False
    return (
        type(model).__name__ == "BPE"
        and not model.dropout
        # A space never composes with what stands before it.
        and (not changes or changes["type"] == "NFC")
        and not any(
            " " in token.content or token.lstrip or token.rstrip or token.single_word for token in added
        )
        and _begins_words_at_spaces(words or {})
    )


def _begins_words_at_spaces(words: dict[str, Any]) -> bool:
    stages = words.get("pretokenizers", [words])
    patterns = []
    for stage in stages:
        match stage:
            case {"type": "ByteLevel", "add_prefix_space": False}:
                patterns += [r"\s+"] if stage.get("use_regex", True) else []  # GPT-2's pattern
            case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {"Regex": pattern}}:
                patterns.append(pattern)
            case {"type": "Digits"}:
                pass
            case _:
                return False
    alternatives = [re.split(r"\|(?![^()]*\))", pattern) for pattern in patterns]
    return any(r"\s+" in some for some in alternatives) and all(
        _ALTERNATIVE.fullmatch(alternative) for some in alternatives for alternative in some
    )


# What tokens stand for


def special_token_frame(tokenizer: Any, text: str = "a") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens that the tokenizer puts before and after every text."""
    bare, framed = tokenizer.encode(text, add_special_tokens=False), tokenizer.encode(text)
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare:
            return tuple(framed[:start]), tuple(framed[start + len(bare) :])
    return (), ()


Spelling: TypeAlias = Literal["bytes", "pieces", "words"]

_SPACE: Final = "▁"


class Vocabulary:
    """Tokens of one tokenizer, as bytes and as plain text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._added = set(tokenizer.added_tokens_decoder)
        self._bytes: dict[int, bytes | None] = {}
        self.spelling: Spelling = "words"
        self.spelling = self._find_spelling()

    def joined(self, ids: Sequence[int], text: str) -> list[bytes] | None:
        """Return the bytes of every token if they make up the text, else None.

        One additional space before the text is allowed. It is None where the tokenizer changed the text (case, accents,
        unknown characters) or does not spell out spaces.
        """
        spelt = [self.token_bytes(token) for token in ids]
        pieces = [piece for piece in spelt if piece is not None]
        encoded = text.encode("utf-8", "surrogatepass")
        return pieces if len(pieces) == len(ids) and b"".join(pieces) in (encoded, b" " + encoded) else None

    @functools.cached_property
    def size(self) -> int:
        """The number below which all tokens are."""
        return 1 + int(max({*self._tokenizer.get_vocab().values(), *self._added, *self._special}))

    def plain(self, token_id: int) -> str:
        """Return the token as a person would write it, without marks for a word's start or continuation."""
        raw = self.token(token_id)
        if token_id in self._special:
            return raw
        if self.spelling == "bytes":
            spelt = self.token_bytes(token_id)
            return raw if spelt is None else spelt.decode("utf-8", "replace").strip()
        if self.spelling == "words" and raw.startswith("##") and len(raw) > 2:
            return raw[2:]
        return raw.removeprefix(_SPACE) or raw

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of text of a token, spaces included; None where they are unknown."""
        if token_id not in self._bytes:
            self._bytes[token_id] = self._spell(token_id)
        return self._bytes[token_id]

    def token(self, token_id: int) -> str:
        """Return the token as it is in the vocabulary."""
        return str(self._tokenizer.convert_ids_to_tokens(token_id))

    @functools.cached_property
    def by_plain_text(self) -> dict[str, list[int]]:
        """The ids of all tokens by their plain text, special tokens left out."""
        ids: dict[str, list[int]] = {}
        for token_id in sorted(set(self._tokenizer.get_vocab().values()) - self._special):
            ids.setdefault(self.plain(token_id), []).append(token_id)
        return ids

    def _find_spelling(self) -> Spelling:
        probe = "a b"
        ids = self._tokenizer.encode(probe, add_special_tokens=False)
        for spelling in ("bytes", "pieces"):
            self.spelling, self._bytes = spelling, {}
            if self.joined(ids, probe) is not None:
                return spelling
        self._bytes = {}
        return "words"

    def _spell(self, token_id: int) -> bytes | None:
        token = self.token(token_id)
        if token_id in self._added:
            return token.encode("utf-8", "surrogatepass")
        if self.spelling == "bytes":
            try:
                return bytes(map(_byte_of().__getitem__, token))
            except KeyError:
                return None
        if self.spelling == "pieces":
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                return bytes([int(token[3:5], 16)])
            return token.replace(_SPACE, " ").encode("utf-8", "surrogatepass")
        return None


@functools.cache
def _byte_of() -> dict[str, int]:
    """Return the byte that each visible character of byte-level tokenizers stands for."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: byte for byte, character in bytes_to_unicode().items()}


# Limits of chat templates


SECONDS: Final = 5.0
"""The longest that a template may take for one conversation; templates that people use take a millisecond."""

MOST: Final = 1 << 24
"""The most characters of a text, and entries of a list, that a template may make."""

_MOST_BITS: Final = 4096
_WIDTH: Final = re.compile(r"[0-9]{6,}")

Result = TypeVar("Result")


class TemplateLimitError(Exception):
    """A chat template takes too long or makes too much."""


class _StopError(Exception):
    """Raised in the thread of a template that takes too long."""


def run_limited(work: Callable[[], Result]) -> Result:
    """Return the result of the work; raise ``TemplateLimitError`` where it takes more than ``SECONDS``."""
    lock, over = threading.Lock(), False
    thread = ctypes.c_ulong(threading.get_ident())

    def stop() -> None:
        with lock:
            if not over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_StopError))

    timer = threading.Timer(SECONDS, stop)
    timer.daemon = True
    try:
        try:
            timer.start()
            return work()
        finally:
            with lock:  # once it is ours, what is to be raised is raised before the next line ends
                over = True
            timer.cancel()
    except _StopError:
        raise TemplateLimitError(f"it takes more than {SECONDS:g} s") from None


@functools.cache
def limit_templates() -> None:
    """Let transformers compile chat templates for an environment that refuses to make huge values."""
    from transformers.utils import chat_template_utils

    plain: Any = chat_template_utils.ImmutableSandboxedEnvironment

    class Bounded(plain):  # type: ignore[misc]
        intercepted_binops = frozenset(("+", "*", "**", "%"))

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            filters = dict[str, Any](vars(self)["filters"])
            self.filters = {name: _with_call_checks(function) for name, function in filters.items()}

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            _check_operation(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def call(self, context: Any, called: Any, *args: Any, **more: Any) -> Any:
            arguments = (getattr(called, "__self__", None), *args, *more.values())
            _check_arguments(arguments, getattr(called, "__name__", ""))
            return super().call(context, called, *args, **more)

        def wrap_str_format(self, value: Any) -> Any:
            made = super().wrap_str_format(value)
            return None if made is None else _with_call_checks(made, value.__self__)

        @staticmethod
        def concat(parts: Iterable[str]) -> str:
            size, kept = 0, []
            for text in parts:
                size += len(text)
                if size > MOST:
                    raise TemplateLimitError(f"it writes more than {MOST:,} characters")
                kept.append(text)
            return "".join(kept)

    chat_template_utils.ImmutableSandboxedEnvironment = Bounded


def _with_call_checks(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """Return a filter that checks its arguments first, with the attributes by which jinja2 knows its signature."""

    @functools.wraps(function)
    def checked(*args: Any, **more: Any) -> Any:
        _check_arguments((*first, *args, *more.values()), function.__name__)
        return function(*args, **more)

    return checked


def _check_arguments(values: Sequence[Any], name: str = "") -> None:
    """Raise ``TemplateLimitError`` for arguments that make huge values: widths, counts, and large texts."""
    for value in values:
        if isinstance(value, int) and abs(value) > MOST:
            raise TemplateLimitError("it gives a function a huge number")
        if isinstance(value, str) and ("%" in value or "{" in value) and _WIDTH.search(value):
            raise TemplateLimitError("it formats a text to a huge width")
    texts = [value for value in values if isinstance(value, str)]
    if name.endswith("replace") and len(texts) > 2:
        made = len(texts[0]) + texts[0].count(texts[1]) * len(texts[2])
    elif name.endswith("join"):
        parts = [value for value in values if isinstance(value, (list, tuple))]
        between = sum(map(len, texts))
        made = sum(
            between + (len(text) if isinstance(text, str) else 0) for joined in parts for text in joined
        )
    else:
        made = 0
    if made > MOST:
        raise TemplateLimitError(f"it makes a text of more than {MOST:,} characters")


def _check_operation(operator: str, left: Any, right: Any) -> None:
    sizes = [len(operand) if isinstance(operand, (str, list, tuple)) else None for operand in (left, right)]
    if operator == "+" and None not in sizes:
        made = sum(size or 0 for size in sizes)
    elif operator == "*" and sizes != [None, None]:
        number = right if sizes[1] is None else left
        made = (sizes[0] or sizes[1] or 0) * number if isinstance(number, int) else 0
    elif operator == "%" and isinstance(left, str):
        made = MOST + 1 if _WIDTH.search(left) or "*" in left else 0
    elif isinstance(left, int) and isinstance(right, int) and operator in ("*", "**"):
        bits = left.bit_length()
        made = (
            MOST + 1 if (bits * right if operator == "**" else bits + right.bit_length()) > _MOST_BITS else 0
        )
    else:
        made = 0
    if made > MOST:
        raise TemplateLimitError(f"it makes a value that is too large, with {operator}")
