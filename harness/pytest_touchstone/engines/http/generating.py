"""Requests for texts -> calls, and their replies -> answers.

Where the tokenizer is known, a prompt is sent as the token ids that the model would be given in this process. A
conversation is sent as its turns, which the server puts through the chat template. A text ends before its earliest stop
sequence, whatever the server has cut off; where token ids come with it they are decoded here, as in this process.

A server may reply with 200 and a text that says nothing about the model: all of it went into a reasoning, it begins
with the prompt, or the prompt was cut. None of these is scored: the reply is ``MalformedReplyError``.

Where it is not known here whether the model reasons, a stop sequence may end a text within its trace. So none is sent
from the first reply on that shows a trace (``ServedTraces``), and texts that were asked with some are marked
(``Generated.stops_sent``), for the run to ask again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from pytest_touchstone.core.reasoning import (
    AUTO,
    ReasoningDelimiters,
    begins_trace,
    delimiters_of,
    seems_traced,
    split_trace,
)
from pytest_touchstone.core.requests import (
    FinishReason,
    Generate,
    GenerateAnswer,
    Generated,
    Refusal,
    earliest_stop,
)
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.http.calls import Call, MalformedReplyError
from pytest_touchstone.engines.http.capabilities import NEUTRAL, ServedModel, ServerCapabilities
from pytest_touchstone.engines.http.replies import Json, check_prompt, choices, usage_count
from pytest_touchstone.engines.transformers.token_work import ChatMode, in_form, prepare
from pytest_touchstone.engines.transformers.tokenizer import THINKING, TextTokenizer

ENDS: Final[Mapping[str, FinishReason | None]] = {
    "stop": None,
    "complete": None,  # Cohere
    "stop_sequence": "stop",  # Text Generation Inference, Anthropic
    **dict.fromkeys(
        ("eos", "eos_token", "end_turn"), "eos"
    ),  # Together, Text Generation Inference, Anthropic
    **dict.fromkeys(("length", "max_tokens", "max_length", "model_length"), "length"),  # and Gemini, Mistral
}
"""The names of ends, of OpenAI's API and of others that are served in its form; None where a server does not say
whether the model ended the text or a stop sequence did."""

_BROKEN: Final = ("error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource")
"""The names of ends that may be other ones the next time."""

_WITHHELD: Final = (
    *("content_filter", "content_filtered", "guardrail_intervened", "refusal", "sensitive"),
    *("safety", "recitation", "blocklist", "prohibited_content", "spii"),
)

_TOOLS: Final = ("tool_calls", "function_call", "tool_use")

_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
"""The parts of a message that hold a reasoning, beside an answer that may be missing."""

_SPECIAL: Final = re.compile(r"\s*(<[^<>\s]{1,40}>\s*)*")
"""The tokens that servers which decode whole sequences put before the prompt."""

_SHORT: Final = 16
"""The characters of a prompt, or of a reasoning, that a text may begin with by chance."""

_LONG_WORD: Final = 5
"""The characters outside ASCII of a token: Chinese and Thai have long runs without spaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTexts:
    """A wish for texts: ``count`` of them, of at most ``limit`` tokens, each to be cut before the earliest of the
    ``stops``.

    ``prompt`` is the text that they follow, the last turn of a ``chat``. ``least`` is the number of tokens that a
    server must count in the whole prompt if it cuts nothing. ``ends`` are the names of ends that its probe has met.
    ``delimiters`` are those of a reasoning, which the prompt may have ``opened``, None where only the server knows its
    template. By other texts it ``opens`` a reasoning. ``stops_sent``: the server has the stop sequences, too.
    """

    count: int = 1
    limit: int = 1
    stops: Sequence[str] = ()
    prompt: str = ""
    chat: bool = False
    least: int = 0
    ends: Sequence[str] = ()
    delimiters: Sequence[ReasoningDelimiters] = ()
    opened: bool | None = False
    opens: bool = False
    stops_sent: bool = False


@dataclass(slots=True)
class ServedTraces:
    """The replies of a server so far: whether one has ``shown`` a trace, and one a trace that its chat template has
    ``opened``; and whether stop sequences were ``withheld`` from it for that."""

    shown: bool = False
    opened: bool = False
    withheld: bool = False

    def note(self, samples: Sequence[Generated]) -> None:
        """Take note of the texts of a reply."""
        self.shown |= any(sample.reasoning is not None or seems_traced(sample.text) for sample in samples)
        self.opened |= any(sample.unopened for sample in samples)


def fewest_tokens(text: str) -> int:
    """Return a number of tokens that no tokenizer in use stays below: three for four words.

    Most have a token for each word at least; those that join words have 1.2 words in a token.
    """
    words = (1 + sum(sign > "\x7f" for sign in word) // _LONG_WORD for word in text.split())
    return 3 * sum(words) // 4


def read_texts(data: Any, wanted: WantedTexts, tokenizer: TextTokenizer | None = None) -> list[Generated]:
    """Return the texts of a reply; raise ``MalformedReplyError`` where one is no answer to the whole prompt."""
    check_uncut(data, wanted.least)
    tokens = usage_count(data, "completion_tokens") if wanted.count == 1 else None
    return [_generated(one, data, wanted, tokenizer, tokens) for one in choices(data, wanted.count)]


def check_uncut(data: Any, least: int) -> None:
    """Raise ``MalformedReplyError`` where a server counts fewer tokens in a prompt than it must have."""
    said = usage_count(data, "prompt_tokens")
    if said and said < least:
        told = count(said, "token")
        raise MalformedReplyError(
            f"the server counts {told} in a prompt that has {least} at the least, so it has cut the prompt; let it "
            "take longer ones",
            final=True,
        )


def check_end(choice: Json, data: Any) -> str | None:
    """Return the name of an end that no API is known to have; None for the others.

    Raises ``MalformedReplyError`` where the number of tokens does not tell either whether such a text was cut off.
    """
    said = choice.get("finish_reason")
    if str(said).lower() in (*ENDS, *_BROKEN, *_WITHHELD, *_TOOLS):
        return None
    if not usage_count(data, "completion_tokens"):
        raise MalformedReplyError(
            f"the server ends a text with finish_reason {said!r} and counts no tokens, so nobody knows whether it was "
            "cut off",
            final=True,
        )
    return str(said)


def check_new(text: str, wanted: WantedTexts, tokens: int | None) -> None:
    """Raise ``MalformedReplyError`` where a text begins with its prompt.

    A text that repeats the prompt is accepted if the server counts the tokens of the repetition.
    """
    prompt, start = wanted.prompt.strip(), _SPECIAL.sub("", text, count=1)
    if len(prompt) < _SHORT or not start.startswith(prompt):
        return
    least = len(prompt.split())
    # Who chats may say the question again.
    repeated = wanted.chat if tokens is None else least <= tokens <= wanted.limit
    if not repeated:
        raise MalformedReplyError(
            "the reply's text begins with the prompt, which is no part of the answer; let the server return new text "
            "alone",
            final=True,
        )


def _generated(
    choice: Json, data: Any, wanted: WantedTexts, tokenizer: TextTokenizer | None, tokens: int | None
) -> Generated:
    end = _end(choice, wanted, tokens)
    reason: FinishReason = end or _why_stopped(choice, wanted.stops)
    stops_sent = wanted.stops_sent and reason == "stop"
    text, ids = _text_of(choice, data, end, stops_sent=stops_sent), choice.get("token_ids")
    check_new(text, wanted, tokens)
    if isinstance(ids, list) and all(isinstance(one, int) for one in ids):
        tokens = len(ids)
        if tokenizer is not None:
            # As in this process: a server may begin the text with the space that its prompt ended before.
            text = tokenizer.readable(ids[:-1] if reason == "eos" else ids)
    apart = next((said for name in _REASONING if isinstance(said := _part(choice, name), str) and said), None)
    opened = wanted.opened if apart is None else False  # what a server has put apart is closed
    at_limit = reason == "length" and apart is None
    trace, answer = split_trace(text, wanted.delimiters, opened=bool(opened), at_limit=at_limit)
    unopened = opened is None and trace is not None and not begins_trace(text)
    if apart is not None:
        trace, answer = apart, answer if trace is not None else _without_repetition(text, apart)
    elif trace is None and opened is None and wanted.opens and at_limit:
        trace, answer = text.strip(), ""
    at = earliest_stop(answer, wanted.stops)
    if at is not None:
        answer, reason = answer[:at], "stop"
    if tokens is None:
        tokens = max(1, len(answer.split())) if answer else 0
    thought = 0 if trace is None else _thought_tokens(data)
    return Generated(answer, reason, tokens, trace, thought, stops_sent, unopened)


def _without_repetition(text: str, trace: str) -> str:
    """Return the text after a trace that a server has put before it as well, on lines of its own."""
    answer = text.strip().removeprefix(trace.strip())
    return answer.lstrip("\r\n") if len(trace) >= _SHORT and answer.startswith(("\n", "\r")) else text


def _end(choice: Json, wanted: WantedTexts, tokens: int | None) -> FinishReason | None:
    """Return how a text ended, None where it ended before the limit, and the server does not say by what."""
    said = choice.get("finish_reason")
    name = str(said).lower()
    if name in _WITHHELD:
        raise MalformedReplyError(
            f"the server's filter withheld the answer (finish_reason {said})", final=True
        )
    if name in _TOOLS or _part(choice, "tool_calls"):
        raise MalformedReplyError("the server calls a tool in place of an answer", final=True)
    if name in ENDS:
        return ENDS[name]
    if str(said) in wanted.ends and tokens:
        return "length" if tokens >= wanted.limit else None
    raise MalformedReplyError(f"the reply's finish_reason is {said!r}", final=name not in _BROKEN)


def _text_of(choice: Json, data: Any, end: FinishReason | None, *, stops_sent: bool) -> str:
    """Return the text of a choice; one that is missing at the limit of tokens, or after a reasoning that a stop
    sequence may have ended, is empty."""
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    if text is not None and not isinstance(text, str):
        raise MalformedReplyError(f"the reply's text is {text!r}", final=True)
    if refusal := _part(choice, "refusal"):
        raise MalformedReplyError(f"the server withheld the answer: {refusal}", final=True)
    if end == "length":
        if text is None and "text" not in choice and not isinstance(message, Mapping):
            raise MalformedReplyError("the reply has no text")
        return text or ""
    thought = next((name for name in _REASONING if _part(choice, name)), None)
    if not (text or "").strip() and thought and stops_sent:
        return ""
    if not (text or "").strip() and (thought or _thought_tokens(data)):
        raise MalformedReplyError(
            f"the reply's text is empty, and all of it in its {thought or 'hidden reasoning'}: let the server return "
            "the reasoning within the text, or switch reasoning off",
            final=True,
        )
    if text is None:
        raise MalformedReplyError(
            f"the reply's text is None, with finish_reason {choice.get('finish_reason')!r}"
        )
    return text


def _part(choice: Json, name: str) -> Any:
    """Return a part of a choice's message, or of the choice itself."""
    message = choice.get("message")
    return (message.get(name) if isinstance(message, Mapping) else None) or choice.get(name)


def _why_stopped(choice: Json, stops: Sequence[str]) -> FinishReason:
    """Return why a text ended before the limit: the model's own end, unless the server names a stop sequence.

    A server that names no reason may mean either.
    """
    if "stop_reason" in choice:
        return "stop" if isinstance(choice["stop_reason"], str) else "eos"
    return "stop" if stops else "eos"


def _thought_tokens(data: Any) -> int:
    """Return the tokens of a reasoning that the server counts."""
    usage = data.get("usage") if isinstance(data, Mapping) else None
    told = usage.get("completion_tokens_details") if isinstance(usage, Mapping) else None
    said = told.get("reasoning_tokens") if isinstance(told, Mapping) else None
    return max(0, said) if isinstance(said, int) else 0


_SEEDS: Final = 2**31
"""Some servers take no larger seed."""

_SAME_SHARE: Final = 0.9
_TEMPLATE: Final = 64
"""The share of our tokens that a server counts at the least if it cuts nothing, less those that its template may lack:
the tokenizer here may be of another version."""

TAKES: Final = "and the server takes"
"""Words of each refusal of what is too long."""

ANY_VOCABULARY: Final = 2**62
"""The number of embeddings where it is not known: the server refuses a token that it does not have."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """A prompt as the server is given it: the ``request`` in its form, and token ids, a text, or turns.

    ``tokens`` is their number as far as it is known here. ``opened``: they end within a reasoning; None where only the
    server knows it.
    """

    request: Generate
    prompt: tuple[int, ...] | str | None
    tokens: int | None
    truncated: int = 0
    chat: bool = False
    opened: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettings:
    """The way in which texts are asked for: the ``mode`` of chats, the limit of tokens of the server, None where it is
    not known, and whether prompts are ``cut`` to it. ``remote``: the tokenizer is the server's, which
    writes no chats and makes no texts of tokens. ``think_end`` and ``thinking`` are those of ``ModelSettings``;
    ``traces`` is what its replies have shown."""

    asked: ServedModel
    mode: ChatMode
    tokenizer: TextTokenizer | None
    limit: int | None
    cut: bool
    remote: bool = False
    think_end: str = AUTO
    thinking: Literal["on", "off"] | None = None
    traces: ServedTraces = field(default_factory=ServedTraces)

    @property
    def delimiters(self) -> tuple[ReasoningDelimiters, ...]:
        """The delimiters of a reasoning that a text may have: those of the model, where they are known."""
        known = None if self.tokenizer is None else self.tokenizer.reasoning
        return delimiters_of(self.think_end) if known is None else (known,)

    @property
    def reasons(self) -> bool:
        """Whether the model is known to reason: a stop sequence may stand in its reasoning, and not be sent."""
        known = self.tokenizer is not None and self.tokenizer.reasoning is not None
        return self.thinking != "off" and (known or any(one.named for one in self.delimiters))


def prompted(request: Generate, asking: TextSettings) -> Prompted | Refusal:
    """Return the prompt as the server is to be given it, or why it cannot be."""
    can, mode = asking.asked.abilities, asking.mode
    chat = mode.chat and bool(request.turns)
    formed = in_form(request, chat, mode)
    if (fault := _fault(formed, mode, can, chat)) is not None:
        return Refusal(fault)
    begun = chat and request.turns[-1].role == "assistant"
    if chat and can.chat and (can.continues or not begun):
        return _conversation(formed, asking)
    if can.completions and not (chat and (asking.tokenizer is None or asking.remote)):
        return _plain(request, formed, asking, chat)
    if can.completions:
        return Refusal(
            "the answer is begun, which the server cannot go on from, and its chat template is not known here; "
            "say where the tokenizer is with --eval-set tokenizer"
        )
    what = "a chat that goes on from a begun answer" if begun else "a plain prompt"
    return Refusal(f"the server answers chats alone, and this is {what}; ask at .../v1/completions")


def _fault(request: Generate, mode: ChatMode, can: ServerCapabilities, chat: bool) -> str | None:
    """Return why a request can be asked in no way, or None."""
    if (fault := request.fault() or mode.fault(chat)) is not None:
        return fault
    if request.top_k and request.temperature and "top_k" not in NEUTRAL[can.family]:
        return f"the server is not known to take top_k, which is {request.top_k} in this request"
    return None


def _plain(request: Generate, formed: Generate, asking: TextSettings, chat: bool) -> Prompted | Refusal:
    if asking.tokenizer is None:
        return Prompted(formed, formed.prompt, None)
    made = prepare(
        request,
        asking.tokenizer,
        seq_len=ANY_VOCABULARY if asking.limit is None else asking.limit,
        rows=ANY_VOCABULARY,
        asking=replace(asking.mode, chat=chat, only_chat=False),
    )
    if isinstance(made, Refusal):
        return made
    ids = asking.asked.abilities.tokens
    if made.truncated and not (asking.cut and ids):
        return too_long(len(made.tokens) + made.truncated, formed.max_new_tokens, asking.limit or 0)
    if chat and not ids:
        return Refusal("the answer is begun, which the server cannot go on from, and it takes no token ids")
    if not ids:
        return Prompted(formed, formed.prompt, len(made.tokens))
    opened = asking.tokenizer.opens_reasoning(made.tokens)
    return Prompted(formed, made.tokens, len(made.tokens), made.truncated, chat, opened)


def _conversation(formed: Generate, asking: TextSettings) -> Prompted | Refusal:
    tokens, opened = None, None
    if asking.tokenizer is not None and not asking.remote:
        found = asking.tokenizer.chat(formed.turns)
        if not isinstance(found, Refusal):
            tokens, opened = len(found), asking.tokenizer.opens_reasoning(found)
    limit = asking.limit
    if tokens is not None and limit is not None and tokens + formed.max_new_tokens > limit:
        return too_long(tokens, formed.max_new_tokens, limit)
    return Prompted(formed, None, tokens, chat=True, opened=opened)


def too_long(tokens: int, new: int, limit: int) -> Refusal:
    """Return the refusal of a prompt that does not fit, with the numbers."""
    return Refusal(
        f"the prompt has {tokens} tokens and {new} may follow, {TAKES} {limit} in all; "
        f"--eval-seq-len {limit} cuts a plain prompt on its left, --eval-max-new-tokens asks for fewer new ones"
    )


def text_calls(one: Prompted, owner: int, asking: TextSettings) -> list[Call[list[Generated]]]:
    """Return the calls for the samples of a prompt that may differ: one, or one for each where the server gives a
    single text at a time."""
    count, can = one.request.different, asking.asked.abilities
    if can.several or count == 1:
        return [_call(one, count, one.request.seed, owner, asking)]
    return [_call(one, 1, one.request.seed + number, owner, asking) for number in range(count)]


def _call(one: Prompted, count: int, seed: int, owner: int, asking: TextSettings) -> Call[list[Generated]]:
    can, request, chat = asking.asked.abilities, one.request, one.prompt is None
    stops = () if asking.reasons else request.stop if can.stops is None else request.stop[: can.stops]
    body: dict[str, Any] = {
        **NEUTRAL[can.family],
        can.limit: request.max_new_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": seed % _SEEDS,
    }
    further = {
        "top_k": request.top_k,
        "stop": list(stops),
        "n": count if count > 1 else None,
        "return_token_ids": can.token_ids,
    }
    body |= {name: value for name, value in further.items() if value}
    if not chat:
        body["prompt"] = one.prompt if isinstance(one.prompt, str) else list(one.prompt or ())
    else:
        body["messages"] = [{"role": turn.role, "content": turn.text} for turn in request.turns]
        if asking.thinking is not None:
            body["chat_template_kwargs"] = dict.fromkeys(THINKING, asking.thinking == "on")
        if request.turns[-1].role == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    tokens = None if chat or isinstance(one.prompt, str) else one.tokens
    texts = [turn.text for turn in request.turns] if chat else [request.prompt]
    wanted = WantedTexts(
        count=count,
        limit=request.max_new_tokens,
        stops=request.stop,
        prompt=texts[-1],
        chat=chat,
        least=0 if tokens is not None else _fewest(texts, one.tokens),
        ends=can.ends,
        delimiters=asking.delimiters,
        opened=one.opened,
    )

    stops_sent = False

    def as_sent(body: Json) -> Json:
        nonlocal stops_sent
        stops_sent = bool(stops) and not asking.traces.shown
        asking.traces.withheld |= bool(stops) and not stops_sent
        return body if stops_sent else {name: value for name, value in body.items() if name != "stop"}

    def read(data: Any) -> list[Generated]:
        if tokens is not None:
            check_prompt(data, tokens)
        # The tokens of a chat may be those of a reasoning, too, which is no part of the answer.
        decoder = None if chat or asking.remote else asking.tokenizer
        traces = asking.traces
        now = replace(wanted, opens=traces.opened, stops_sent=stops_sent and bool(asking.delimiters))
        samples = read_texts(data, now, decoder)
        if asking.delimiters:
            traces.note(samples)
        return samples

    endpoint = "chat/completions" if chat else "completions"
    return asking.asked.call(endpoint, body, read, owner, as_sent)


def _fewest(texts: Sequence[str], tokens: int | None) -> int:
    """Return the fewest tokens of a prompt that goes as text: ``tokens`` are those known here."""
    return max(sum(map(fewest_tokens, texts)), int(_SAME_SHARE * (tokens or 0)) - _TEMPLATE)


def answer_of(one: Prompted, parts: Sequence[list[Generated]], said: Sequence[int]) -> GenerateAnswer:
    """Return the answer to a prompt from the replies to its calls; ``said`` are the prompt tokens that the server
    counts."""
    samples = [text for part in parts for text in part]
    samples *= one.request.samples // len(samples)
    tokens = one.tokens if one.prompt is not None and one.tokens is not None else next(iter(said), one.tokens)
    return GenerateAnswer(tuple(samples), tokens or 0, one.truncated, one.chat)
