"""Requests for texts -> calls, and their texts -> answers.

Where the tokenizer is known, a prompt is sent as the token ids that the model would be given in this process. A
conversation is sent as its turns, which the server puts through the chat template. A text ends before its earliest stop
sequence, whatever the server has cut off; where token ids come with it they are decoded here, as in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pytest_touchstone.core.requests import Generate, GenerateAnswer, Generated, Refusal
from pytest_touchstone.engines.http.abilities import NEUTRAL, Abilities
from pytest_touchstone.engines.http.calls import Call
from pytest_touchstone.engines.http.replies import check_prompt
from pytest_touchstone.engines.http.scoring import Asked
from pytest_touchstone.engines.http.texts import Wanted, fewest_tokens, read_texts
from pytest_touchstone.engines.transformers.token_work import ChatMode, in_form, prepare
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer

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

    ``tokens`` is their number as far as it is known here.
    """

    request: Generate
    prompt: tuple[int, ...] | str | None
    tokens: int | None
    truncated: int = 0
    chat: bool = False


@dataclass(frozen=True, slots=True)
class TextCall:
    """A call for samples of a prompt."""

    call: Call[list[Generated]]
    prompted: Prompted


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The way in which texts are asked for: the ``mode`` of chats, the limit of tokens of the server, None where it is
    not known, and whether prompts are ``cut`` to it. ``remote``: the tokenizer is the server's, which
    writes no chats and makes no texts of tokens."""

    asked: Asked
    mode: ChatMode
    tokenizer: TextTokenizer | None
    limit: int | None
    cut: bool
    remote: bool = False


def prompted(request: Generate, asking: Asking) -> Prompted | Refusal:
    """Return the prompt as the server is to be given it, or why it cannot be."""
    can, mode = asking.asked.abilities, asking.mode
    chat = mode.chat and bool(request.turns)
    formed = in_form(request, chat, mode.max_new_tokens)
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
            "say where the tokenizer is with --eval-tokenizer"
        )
    what = "a chat that goes on from a begun answer" if begun else "a plain prompt"
    return Refusal(f"the server answers chats alone, and this is {what}; ask at .../v1/completions")


def _fault(request: Generate, mode: ChatMode, can: Abilities, chat: bool) -> str | None:
    """Return why a request can be asked in no way, or None."""
    if (fault := request.fault()) is not None:
        return fault
    if mode.only_chat and not chat:
        return "the question has no turns for a chat template; ask it with --eval-chat off or auto"
    if request.top_k and request.temperature and "top_k" not in NEUTRAL[can.family]:
        return f"the server is not known to take top_k, which is {request.top_k} in this request"
    return None


def _plain(request: Generate, formed: Generate, asking: Asking, chat: bool) -> Prompted | Refusal:
    if asking.tokenizer is None:
        return Prompted(formed, formed.prompt, None)
    made = prepare(
        request,
        asking.tokenizer,
        seq_len=ANY_VOCABULARY if asking.limit is None else asking.limit,
        rows=ANY_VOCABULARY,
        asking=ChatMode(chat=chat, max_new_tokens=asking.mode.max_new_tokens),
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
    return Prompted(formed, made.tokens, len(made.tokens), made.truncated, chat)


def _conversation(formed: Generate, asking: Asking) -> Prompted | Refusal:
    tokens = None
    if asking.tokenizer is not None and not asking.remote:
        found = asking.tokenizer.chat(formed.turns)
        tokens = None if isinstance(found, Refusal) else len(found)
    limit = asking.limit
    if tokens is not None and limit is not None and tokens + formed.max_new_tokens > limit:
        return too_long(tokens, formed.max_new_tokens, limit)
    return Prompted(formed, None, tokens, chat=True)


def too_long(tokens: int, new: int, limit: int) -> Refusal:
    """Return the refusal of a prompt that does not fit, with the numbers."""
    return Refusal(
        f"the prompt has {tokens} tokens and {new} may follow, {TAKES} {limit} in all; "
        f"--eval-seq-len {limit} cuts a plain prompt on its left, --eval-max-new-tokens asks for fewer new ones"
    )


def text_calls(one: Prompted, owner: int, asking: Asking) -> list[TextCall]:
    """Return the calls for the samples of a prompt that may differ: one, or one for each where the server gives a
    single text at a time."""
    count, can = one.request.different, asking.asked.abilities
    if can.several or count == 1:
        return [TextCall(_call(one, count, one.request.seed, owner, asking), one)]
    return [TextCall(_call(one, 1, one.request.seed + number, owner, asking), one) for number in range(count)]


def _call(one: Prompted, count: int, seed: int, owner: int, asking: Asking) -> Call[list[Generated]]:
    can, request, chat = asking.asked.abilities, one.request, one.prompt is None
    stops = request.stop if can.stops is None else request.stop[: can.stops]
    body: dict[str, Any] = {
        **NEUTRAL[can.family],
        can.limit: request.max_new_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "seed": seed % _SEEDS,
    }
    if request.top_k:
        body["top_k"] = request.top_k
    if stops:
        body["stop"] = list(stops)
    if count > 1:
        body["n"] = count
    if can.token_ids:
        body["return_token_ids"] = True
    if not chat:
        body["prompt"] = one.prompt if isinstance(one.prompt, str) else list(one.prompt or ())
    else:
        body["messages"] = [{"role": turn.role, "content": turn.text} for turn in request.turns]
        if request.turns[-1].role == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    tokens = None if chat or isinstance(one.prompt, str) else one.tokens
    texts = [turn.text for turn in request.turns] if chat else [request.prompt]
    wanted = Wanted(
        count=count,
        limit=request.max_new_tokens,
        stops=request.stop,
        prompt=texts[-1],
        chat=chat,
        least=0 if tokens is not None else _fewest(texts, one.tokens),
        ends=can.ends,
    )

    def read(data: Any) -> list[Generated]:
        if tokens is not None:
            check_prompt(data, tokens)
        # The tokens of a chat may be those of a reasoning, too, which is no part of the answer.
        decoder = None if chat or asking.remote else asking.tokenizer
        return read_texts(data, wanted, decoder)

    return asking.asked.call("chat/completions" if chat else "completions", body, read, owner)


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
