"""The prompt of a request, as the tokens that a causal model continues. Runs no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, GenerateAnswer, Generated, Refusal
from pytest_touchstone.engines.settings import Chat
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMode:
    """The way in which texts are asked for.

    With ``chat``, requests with turns go through the chat template; with ``only_chat``, others are refused. A limit
    of new tokens may replace the request's own.
    """

    chat: bool = False
    only_chat: bool = False
    max_new_tokens: int | None = None


def chat_mode_of(info: CheckpointInfo, tokenizer: Any, chat: Chat, max_new_tokens: int | None) -> ChatMode:
    """Return the way in which a checkpoint is asked.

    Raises ``CheckpointError`` where a template is demanded and missing.
    """
    template = bool(getattr(tokenizer, "chat_template", None))
    if chat == "on" and not template:
        raise CheckpointError(
            f"{info.path}: --eval-chat on, but its tokenizer has no chat template; "
            "use --eval-chat off, or save the template with the tokenizer"
        )
    return ChatMode(chat=template and chat != "off", only_chat=chat == "on", max_new_tokens=max_new_tokens)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request and the tokens of its prompt that the model is given.

    ``truncated`` counts those cut off on the left; ``chat`` says that they come from its turns.
    """

    request: Generate
    tokens: tuple[int, ...]
    truncated: int
    chat: bool = False

    @property
    def different(self) -> int:
        """Return the number of samples that may differ from each other: one if greedy."""
        return self.request.different

    def answer(self, outcomes: Sequence[Generated | None]) -> GenerateAnswer | Refusal:
        """Return the answer, made of the different samples, in order."""
        texts = [one for one in outcomes if one is not None]
        if len(texts) < len(outcomes):
            return Refusal(
                "the checkpoint's logits hold NaN; its weights are broken, or overflow: "
                "try --eval-dtype float32"
            )
        texts *= self.request.samples // len(texts)
        return GenerateAnswer(tuple(texts), len(self.tokens), self.truncated, self.chat)


def prepare(
    request: Generate, tokenizer: TextTokenizer, *, seq_len: int, rows: int, asking: ChatMode = ChatMode()
) -> Prompt | Refusal:
    """Return the prompt as it is given to the model, which has ``rows`` embeddings.

    It is cut from the left to ``seq_len`` - ``max_new_tokens`` tokens, special tokens at the start included, to leave
    room for the new ones, as lm-evaluation-harness does.
    """
    if (fault := request.fault()) is not None:
        return Refusal(fault)
    chat = asking.chat and bool(request.turns)
    request = in_form(request, chat, asking.max_new_tokens)
    if asking.only_chat and not chat:
        return Refusal("the question has no turns for a chat template; ask it with --eval-chat off or auto")
    tokens = tokenizer.chat(request.turns) if chat else tokenizer.prompt(request.prompt)
    if isinstance(tokens, Refusal):
        return tokens
    room = seq_len - request.max_new_tokens
    if room < 1:
        return Refusal(
            f"{request.max_new_tokens} new tokens leave no room for the prompt in {seq_len}; "
            "ask for fewer with --eval-max-new-tokens, or give a larger --eval-seq-len"
        )
    if max(tokens) >= rows:
        return Refusal(f"the prompt has a token that the model, with {rows} embeddings, does not know")
    truncated = max(0, len(tokens) - room)
    return Prompt(request, tokens[truncated:], truncated, chat)


def in_form(request: Generate, chat: bool, max_new_tokens: int | None) -> Generate:
    """Return the request with the stop sequences and the limit of the form in which it is asked.

    A limit that a person sets takes precedence over both.
    """
    stop, most = request.stop, request.max_new_tokens
    if chat:
        stop = stop if request.turns_stop is None else request.turns_stop
        most = request.turns_max_new_tokens or most
    return replace(request, stop=stop, max_new_tokens=max_new_tokens or most)
