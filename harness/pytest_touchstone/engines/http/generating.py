"""Turn requests for texts into calls, and the replies into answers.

If the tokenizer is available here, a prompt is sent as the token ids that a local model would get. A conversation is
sent as its turns, and the server applies the chat template. A text is cut here before its earliest stop sequence,
whatever the server has cut; token ids of a reply are decoded here, as for a local model.

A server may reply with 200 and a text that says nothing about the model: all of the text is reasoning, the text begins
with the prompt, or the prompt was cut. These raise ``MalformedReplyError`` and are not scored.

If it is not known whether the model reasons, a stop sequence may end a text within its reasoning trace. So stop
sequences are no longer sent after the first reply that shows a trace (``ObservedTraces``), and texts that were sent
with some are marked (``Generated.stops_sent``), for the run to send them again.
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
    seems_to_have_trace,
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
from pytest_touchstone.engines.http.replies import Json, check_prompt, parse_choices, usage_count
from pytest_touchstone.engines.transformers.token_work import ChatMode, apply_chat_mode, prepare
from pytest_touchstone.engines.transformers.tokenizer import THINKING, TextTokenizer

FINISH_REASONS: Final[Mapping[str, FinishReason | None]] = {
    "stop": None,
    "complete": None,  # Cohere
    "stop_sequence": "stop",  # Text Generation Inference, Anthropic
    **dict.fromkeys(
        ("eos", "eos_token", "end_turn"), "eos"
    ),  # Together, Text Generation Inference, Anthropic
    **dict.fromkeys(("length", "max_tokens", "max_length", "model_length"), "length"),  # and Gemini, Mistral
}
"""The values of ``finish_reason`` in OpenAI's API and its imitations; None if the model or a stop sequence may have
ended the text."""

_TRANSIENT_REASONS: Final = (
    "error",
    "abort",
    "aborted",
    "cancelled",
    "network_error",
    "insufficient_system_resource",
)
"""The values of ``finish_reason`` after which another attempt may succeed."""

_FILTER_REASONS: Final = (
    *("content_filter", "content_filtered", "guardrail_intervened", "refusal", "sensitive"),
    *("safety", "recitation", "blocklist", "prohibited_content", "spii"),
)

_TOOL_REASONS: Final = ("tool_calls", "function_call", "tool_use")

_REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
"""The fields of a message that hold its reasoning; the answer may be missing."""

_SPECIAL: Final = re.compile(r"\s*(<[^<>\s]{1,40}>\s*)*")
"""The special tokens before the prompt, from servers that decode whole sequences."""

_MAX_CHANCE_PREFIX: Final = 16
"""A prompt or a reasoning of fewer characters may be repeated by chance at the beginning of a text."""

_CHARACTERS_PER_TOKEN: Final = 5
"""The non-ASCII characters that a token has at most; Chinese and Thai have long runs without spaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTexts:
    """The conditions under which texts were requested, against which a reply is checked.

    Attributes:
        count: The number of texts.
        limit: The maximum number of tokens per text.
        stops: The stop sequences; a text is cut before the earliest.
        prompt: The text that they follow; the last turn of a ``chat``.
        chat: Whether they were requested as a chat.
        least: The number of prompt tokens that the server must count if it cuts nothing.
        ends: The values of ``finish_reason`` that no API has, but the server's probe has met.
        delimiters: The delimiters of a reasoning.
        opened: Whether the prompt ends within a reasoning; None if only the server knows its template.
        opens: Whether other texts have shown that the template opens a reasoning.
        stops_sent: Whether the server got the stop sequences, too.

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
class ObservedTraces:
    """The reasoning traces that a server's replies have shown so far.

    ``shown``: a reply had a trace. ``opened``: a reply had a trace that the chat template opens. ``withheld``: stop
    sequences were not sent for that reason.
    """

    shown: bool = False
    opened: bool = False
    withheld: bool = False

    def note(self, samples: Sequence[Generated]) -> None:
        """Update the flags from the texts of a reply."""
        self.shown |= any(
            sample.reasoning is not None or seems_to_have_trace(sample.text) for sample in samples
        )
        self.opened |= any(sample.unopened for sample in samples)


def min_tokens(text: str) -> int:
    """Return a lower bound of the tokens of a text for any tokenizer in use: three for four words.

    Most tokenizers have at least a token per word; those that join words have 1.2 words per token.
    """
    words = (
        1 + sum(character > "\x7f" for character in word) // _CHARACTERS_PER_TOKEN for word in text.split()
    )
    return 3 * sum(words) // 4


def parse_samples(
    reply: Any, expected: ExpectedTexts, tokenizer: TextTokenizer | None = None
) -> list[Generated]:
    """Parse the texts of a reply. Raises ``MalformedReplyError`` if one is not an answer to the whole prompt."""
    check_prompt_uncut(reply, expected.least)
    tokens = usage_count(reply, "completion_tokens") if expected.count == 1 else None
    return [
        _parse_sample(choice, reply, expected, tokenizer, tokens)
        for choice in parse_choices(reply, expected.count)
    ]


def check_prompt_uncut(reply: Any, least: int) -> None:
    """Raise ``MalformedReplyError`` if a server counts fewer than ``least`` tokens in a prompt."""
    counted = usage_count(reply, "prompt_tokens")
    if counted and counted < least:
        raise MalformedReplyError(
            f"the server counts {count(counted, 'token')} in a prompt that has {least} at the least, so it has cut "
            "the prompt; let it take longer ones",
            final=True,
        )


def unknown_finish_reason(choice: Json, reply: Any) -> str | None:
    """Return a ``finish_reason`` that no known API has; None for the known ones.

    Raises ``MalformedReplyError`` if the server does not count tokens either, so that a cut cannot be recognized.
    """
    finish_reason = choice.get("finish_reason")
    if str(finish_reason).lower() in (*FINISH_REASONS, *_TRANSIENT_REASONS, *_FILTER_REASONS, *_TOOL_REASONS):
        return None
    if not usage_count(reply, "completion_tokens"):
        raise MalformedReplyError(
            f"the server ends a text with finish_reason {finish_reason!r} and counts no tokens, so it is unknown "
            "whether the text was cut off",
            final=True,
        )
    return str(finish_reason)


def check_no_echo(text: str, expected: ExpectedTexts, tokens: int | None) -> None:
    """Raise ``MalformedReplyError`` if a text begins with its prompt.

    A text in which the model repeats the prompt is accepted if the server counts the tokens of the repetition.
    """
    prompt, start = expected.prompt.strip(), _SPECIAL.sub("", text, count=1)
    if len(prompt) < _MAX_CHANCE_PREFIX or not start.startswith(prompt):
        return
    least = len(prompt.split())
    # In a chat the model may repeat the question.
    repeated = expected.chat if tokens is None else least <= tokens <= expected.limit
    if not repeated:
        raise MalformedReplyError(
            "the reply's text begins with the prompt, which is no part of the answer; let the server return new text "
            "alone",
            final=True,
        )


def _parse_sample(
    choice: Json, reply: Any, expected: ExpectedTexts, tokenizer: TextTokenizer | None, tokens: int | None
) -> Generated:
    end = _parse_finish_reason(choice, expected, tokens)
    reason: FinishReason = end or _stop_or_eos(choice, expected.stops)
    stops_sent = expected.stops_sent and reason == "stop"
    text, ids = _parse_text(choice, reply, end, stops_sent=stops_sent), choice.get("token_ids")
    check_no_echo(text, expected, tokens)
    if isinstance(ids, list) and all(isinstance(token_id, int) for token_id in ids):
        tokens = len(ids)
        if tokenizer is not None:
            # As for a local model: a server may begin the text with the space that its prompt ended before.
            text = tokenizer.readable(ids[:-1] if reason == "eos" else ids)
    fields = (_message_field(choice, name) for name in _REASONING_FIELDS)
    separate = next((reasoning for reasoning in fields if isinstance(reasoning, str) and reasoning), None)
    opened = expected.opened if separate is None else False  # a separate reasoning is complete
    at_limit = reason == "length" and separate is None
    trace, answer = split_trace(text, expected.delimiters, opened=bool(opened), at_limit=at_limit)
    unopened = opened is None and trace is not None and not begins_trace(text)
    if separate is not None:
        trace, answer = separate, answer if trace is not None else _without_repetition(text, separate)
    elif trace is None and opened is None and expected.opens and at_limit:
        trace, answer = text.strip(), ""
    stop_index = earliest_stop(answer, expected.stops)
    if stop_index is not None:
        answer, reason = answer[:stop_index], "stop"
    if tokens is None:
        tokens = max(1, len(answer.split())) if answer else 0
    thought = 0 if trace is None else _reasoning_tokens(reply)
    return Generated(answer, reason, tokens, trace, thought, stops_sent, unopened)


def _without_repetition(text: str, trace: str) -> str:
    """Remove a trace that the server also put before the answer, on lines of its own."""
    answer = text.strip().removeprefix(trace.strip())
    return (
        answer.lstrip("\r\n")
        if len(trace) >= _MAX_CHANCE_PREFIX and answer.startswith(("\n", "\r"))
        else text
    )


def _parse_finish_reason(choice: Json, expected: ExpectedTexts, tokens: int | None) -> FinishReason | None:
    """Return how a text ended; None if the model or a stop sequence may have ended it."""
    finish_reason = choice.get("finish_reason")
    name = str(finish_reason).lower()
    if name in _FILTER_REASONS:
        raise MalformedReplyError(
            f"the server's filter withheld the answer (finish_reason {finish_reason})", final=True
        )
    if name in _TOOL_REASONS or _message_field(choice, "tool_calls"):
        raise MalformedReplyError("the server calls a tool in place of an answer", final=True)
    if name in FINISH_REASONS:
        return FINISH_REASONS[name]
    if str(finish_reason) in expected.ends and tokens:
        return "length" if tokens >= expected.limit else None
    raise MalformedReplyError(
        f"the reply's finish_reason is {finish_reason!r}", final=name not in _TRANSIENT_REASONS
    )


def _parse_text(choice: Json, reply: Any, end: FinishReason | None, *, stops_sent: bool) -> str:
    """Return the text of a choice.

    A missing text counts as empty at the limit of tokens, and after a reasoning that a stop sequence may have ended.
    Raises ``MalformedReplyError`` for any other missing text.
    """
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    if text is not None and not isinstance(text, str):
        raise MalformedReplyError(f"the reply's text is {text!r}", final=True)
    if refusal := _message_field(choice, "refusal"):
        raise MalformedReplyError(f"the server withheld the answer: {refusal}", final=True)
    if end == "length":
        if text is None and "text" not in choice and not isinstance(message, Mapping):
            raise MalformedReplyError("the reply has no text")
        return text or ""
    reasoning_field = next((name for name in _REASONING_FIELDS if _message_field(choice, name)), None)
    if not (text or "").strip() and reasoning_field and stops_sent:
        return ""
    if not (text or "").strip() and (reasoning_field or _reasoning_tokens(reply)):
        raise MalformedReplyError(
            f"the reply's text is empty, and all of it in its {reasoning_field or 'hidden reasoning'}: let the server "
            "return the reasoning within the text, or switch reasoning off",
            final=True,
        )
    if text is None:
        raise MalformedReplyError(
            f"the reply's text is None, with finish_reason {choice.get('finish_reason')!r}"
        )
    return text


def _message_field(choice: Json, name: str) -> Any:
    """Return a field of a choice's message, or of the choice itself."""
    message = choice.get("message")
    return (message.get(name) if isinstance(message, Mapping) else None) or choice.get(name)


def _stop_or_eos(choice: Json, stops: Sequence[str]) -> FinishReason:
    """Return why a text ended before the limit: by a stop sequence or the model's own end.

    A server without ``stop_reason`` may mean either; a stop sequence is assumed if there are any.
    """
    if "stop_reason" in choice:
        return "stop" if isinstance(choice["stop_reason"], str) else "eos"
    return "stop" if stops else "eos"


def _reasoning_tokens(reply: Any) -> int:
    """Return the server's count of reasoning tokens, or 0."""
    usage = reply.get("usage") if isinstance(reply, Mapping) else None
    details = usage.get("completion_tokens_details") if isinstance(usage, Mapping) else None
    counted = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
    return max(0, counted) if isinstance(counted, int) else 0


_SEEDS: Final = 2**31
"""Seeds are below this number; some servers reject larger ones."""

_SAME_SHARE: Final = 0.9
_TEMPLATE: Final = 64
"""A server that cuts nothing counts at least this share of our tokens, less those that its template may lack. The
tokenizer here may have another version."""

TAKES: Final = "and the server takes"
"""A phrase in each refusal of a text that is too long."""

ANY_VOCABULARY: Final = 2**62
"""The vocabulary size if it is not known; the server refuses a token that it does not have."""


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """A prompt in the form in which the server gets it.

    Attributes:
        request: The request in that form.
        content: Token ids or a text; None for the turns of the request.
        tokens: The number of prompt tokens, None if it is not known here.
        truncated: The number of tokens cut on the left.
        chat: Whether it is a conversation.
        opened: Whether the prompt ends within a reasoning; None if only the server knows.

    """

    request: Generate
    content: tuple[int, ...] | str | None
    tokens: int | None
    truncated: int = 0
    chat: bool = False
    opened: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettings:
    """The settings of requests for texts.

    Attributes:
        served_model: The model at its server.
        mode: Whether and how prompts become chats.
        tokenizer: The tokenizer of the model, None if there is none.
        limit: The maximum number of tokens, prompt and text together; None if it is not known.
        cut: Whether prompts are cut to the limit.
        remote: Whether the tokenizer is the server's, which renders no chats and decodes no tokens.
        think_end: As in ``ModelSettings``.
        thinking: As in ``ModelSettings``.
        traces: The traces that the server's replies have shown.

    """

    served_model: ServedModel
    mode: ChatMode
    tokenizer: TextTokenizer | None
    limit: int | None
    cut: bool
    remote: bool = False
    think_end: str = AUTO
    thinking: Literal["on", "off"] | None = None
    traces: ObservedTraces = field(default_factory=ObservedTraces)

    @property
    def delimiters(self) -> tuple[ReasoningDelimiters, ...]:
        """The delimiters of a reasoning: those of the model's tokenizer, else all that ``think_end`` allows."""
        delimiters = None if self.tokenizer is None else self.tokenizer.reasoning
        return delimiters_of(self.think_end) if delimiters is None else (delimiters,)

    @property
    def reasons(self) -> bool:
        """Whether the model is known to reason; then no stop sequences are sent, since its reasoning may have them."""
        has_delimiters = self.tokenizer is not None and self.tokenizer.reasoning is not None
        return self.thinking != "off" and (
            has_delimiters or any(delimiters.named for delimiters in self.delimiters)
        )


def build_prompt(request: Generate, settings: TextSettings) -> ServerPrompt | Refusal:
    """Return the prompt in the form in which the server gets it, or a refusal."""
    abilities, mode = settings.served_model.abilities, settings.mode
    chat = mode.chat and bool(request.turns)
    formed = apply_chat_mode(request, chat, mode)
    if (fault := _why_unsupported(formed, mode, abilities, chat)) is not None:
        return Refusal(fault)
    begun = chat and request.turns[-1].role == "assistant"
    if chat and abilities.chat and (abilities.continues or not begun):
        return _chat_prompt(formed, settings)
    if abilities.completions and not (chat and (settings.tokenizer is None or settings.remote)):
        return _completion_prompt(request, formed, settings, chat)
    if abilities.completions:
        return Refusal(
            "the answer is begun, which the server cannot go on from, and its chat template is not known here; "
            "say where the tokenizer is with --eval-set tokenizer"
        )
    form = "a chat that goes on from a begun answer" if begun else "a plain prompt"
    return Refusal(f"the server answers chats alone, and this is {form}; ask at .../v1/completions")


def _why_unsupported(
    request: Generate, mode: ChatMode, abilities: ServerCapabilities, chat: bool
) -> str | None:
    """Return why a request abilities be asked in no way, or None."""
    if (fault := request.fault() or mode.fault(chat)) is not None:
        return fault
    if request.top_k and request.temperature and "top_k" not in NEUTRAL[abilities.family]:
        return f"the server is not known to take top_k, which is {request.top_k} in this request"
    return None


def _completion_prompt(
    request: Generate, formed: Generate, settings: TextSettings, chat: bool
) -> ServerPrompt | Refusal:
    if settings.tokenizer is None:
        return ServerPrompt(formed, formed.prompt, None)
    prepared = prepare(
        request,
        settings.tokenizer,
        seq_len=ANY_VOCABULARY if settings.limit is None else settings.limit,
        rows=ANY_VOCABULARY,
        asking=replace(settings.mode, chat=chat, only_chat=False),
    )
    if isinstance(prepared, Refusal):
        return prepared
    ids = settings.served_model.abilities.tokens
    if prepared.truncated and not (settings.cut and ids):
        return refuse_too_long(
            len(prepared.tokens) + prepared.truncated, formed.max_new_tokens, settings.limit or 0
        )
    if chat and not ids:
        return Refusal("the answer is begun, which the server cannot go on from, and it takes no token ids")
    if not ids:
        return ServerPrompt(formed, formed.prompt, len(prepared.tokens))
    opened = settings.tokenizer.opens_reasoning(prepared.tokens)
    return ServerPrompt(formed, prepared.tokens, len(prepared.tokens), prepared.truncated, chat, opened)


def _chat_prompt(formed: Generate, settings: TextSettings) -> ServerPrompt | Refusal:
    tokens, opened = None, None
    if settings.tokenizer is not None and not settings.remote:
        token_ids = settings.tokenizer.chat(formed.turns)
        if not isinstance(token_ids, Refusal):
            tokens, opened = len(token_ids), settings.tokenizer.opens_reasoning(token_ids)
    limit = settings.limit
    if tokens is not None and limit is not None and tokens + formed.max_new_tokens > limit:
        return refuse_too_long(tokens, formed.max_new_tokens, limit)
    return ServerPrompt(formed, None, tokens, chat=True, opened=opened)


def refuse_too_long(tokens: int, new: int, limit: int) -> Refusal:
    """Return the refusal of a prompt that does not fit into the server's limit."""
    return Refusal(
        f"the prompt has {tokens} tokens and {new} may follow, {TAKES} {limit} in all; "
        f"--eval-seq-len {limit} cuts a plain prompt on its left, --eval-max-new-tokens asks for fewer new ones"
    )


def text_calls(prompt: ServerPrompt, owner: int, settings: TextSettings) -> list[Call[list[Generated]]]:
    """Return the calls for the different samples of a prompt: one, or one per sample.

    A server without the capability ``several`` gives a single text per call.
    """
    count, seed = prompt.request.different, prompt.request.seed
    if settings.served_model.abilities.several or count == 1:
        return [_call(prompt, count, seed, owner, settings)]
    return [_call(prompt, 1, seed + index, owner, settings) for index in range(count)]


def _call(
    prompt: ServerPrompt, count: int, seed: int, owner: int, settings: TextSettings
) -> Call[list[Generated]]:
    abilities, request, chat = settings.served_model.abilities, prompt.request, prompt.content is None
    stops = (
        ()
        if settings.reasons
        else request.stop
        if abilities.stops is None
        else request.stop[: abilities.stops]
    )
    body: dict[str, Any] = {
        **NEUTRAL[abilities.family],
        abilities.limit: request.max_new_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": seed % _SEEDS,
    }
    further = {
        "top_k": request.top_k,
        "stop": list(stops),
        "n": count if count > 1 else None,
        "return_token_ids": abilities.token_ids,
    }
    body |= {name: value for name, value in further.items() if value}
    if not chat:
        body["prompt"] = prompt.content if isinstance(prompt.content, str) else list(prompt.content or ())
    else:
        body["messages"] = [{"role": turn.role, "content": turn.text} for turn in request.turns]
        if settings.thinking is not None:
            body["chat_template_kwargs"] = dict.fromkeys(THINKING, settings.thinking == "on")
        if request.turns[-1].role == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    tokens = None if chat or isinstance(prompt.content, str) else prompt.tokens
    texts = [turn.text for turn in request.turns] if chat else [request.prompt]
    local_tokens = int(_SAME_SHARE * (prompt.tokens or 0)) - _TEMPLATE
    least = 0 if tokens is not None else max(sum(map(min_tokens, texts)), local_tokens)
    expected = ExpectedTexts(
        count=count,
        limit=request.max_new_tokens,
        stops=request.stop,
        prompt=texts[-1],
        chat=chat,
        least=least,
        ends=abilities.ends,
        delimiters=settings.delimiters,
        opened=prompt.opened,
    )

    stops_sent = False

    def as_sent(body: Json) -> Json:
        nonlocal stops_sent
        stops_sent = bool(stops) and not settings.traces.shown
        settings.traces.withheld |= bool(stops) and not stops_sent
        return body if stops_sent else {name: value for name, value in body.items() if name != "stop"}

    def read(reply: Any) -> list[Generated]:
        if tokens is not None:
            check_prompt(reply, tokens)
        # The tokens of a chat may include those of a reasoning, which is not part of the answer.
        decoder = None if chat or settings.remote else settings.tokenizer
        traces = settings.traces
        updated = replace(expected, opens=traces.opened, stops_sent=stops_sent and bool(settings.delimiters))
        samples = parse_samples(reply, updated, decoder)
        if settings.delimiters:
            traces.note(samples)
        return samples

    endpoint = "chat/completions" if chat else "completions"
    return settings.served_model.call(endpoint, body, read, owner, as_sent)


def merge_samples(
    prompt: ServerPrompt, samples_by_call: Sequence[list[Generated]], counted: Sequence[int]
) -> GenerateAnswer:
    """Return the answer to a prompt from the replies to its calls.

    ``counted`` has the prompt tokens as the server counts them, for prompts that are not sent as token ids.
    """
    samples = [sample for samples in samples_by_call for sample in samples]
    samples *= prompt.request.samples // len(samples)
    tokens = prompt.tokens
    if prompt.content is None or tokens is None:
        tokens = next(iter(counted), tokens)
    return GenerateAnswer(tuple(samples), tokens or 0, prompt.truncated, prompt.chat)
