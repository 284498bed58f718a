"""Requests as the tokens that a causal model is given: sequences to score, and prompts to continue. Runs no model.

A request for scores becomes one ``TokenWork`` (a continuation) or several (the windows of a long text). Sequences of
any requests are computed together, in any order, and their sums are put together again by request number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    Answer,
    FillMask,
    Generate,
    GenerateAnswer,
    Generated,
    Judge,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    Refusal,
    Request,
    RollingAnswer,
    RollingLoglikelihood,
    RunProgram,
    Turn,
)
from pytest_touchstone.engines.settings import Chat, ModelSettings
from pytest_touchstone.engines.transformers.tokenizer import THINKING, TextTokenizer

Scored: TypeAlias = Loglikelihood | RollingLoglikelihood | FillMask | PseudoLoglikelihood | RunProgram | Judge
"""Requests that are answered with scores, or refused."""


@dataclass(frozen=True, slots=True)
class TokenWork:
    """``inputs`` are fed to the model; its last ``len(targets)`` positions predict the ``targets``."""

    inputs: tuple[int, ...]
    targets: tuple[int, ...]


class Score(NamedTuple):
    """The sum of the targets' log-probabilities (nats), and whether each target is the most probable token."""

    logprob: float
    is_greedy: bool


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """The work of one request, and the parts of its answer besides the score."""

    work: tuple[TokenWork, ...]
    truncated: int = 0
    spans_join: bool = False
    rolling: bool = False

    def answer(self, scores: Sequence[Score]) -> Answer:
        """Return the answer, from the scores of ``work`` in the same order."""
        logprobs, greedy = zip(*scores, strict=True)
        tokens = sum([len(work.targets) for work in self.work])
        if self.rolling:
            return RollingAnswer(sum(logprobs), tokens, self.truncated)
        return LoglikelihoodAnswer(sum(logprobs), all(greedy), tokens, self.truncated, self.spans_join)


def texts_of(requests: Iterable[Request], asking: ChatMode) -> Iterator[str]:
    """Yield the texts that ``plan`` and ``prepare`` have tokenized for these requests, but for those of chats."""
    for request in requests:
        match request:
            case Loglikelihood(context, continuation):
                yield context + continuation
            case RollingLoglikelihood(text):
                yield text
            case Generate(prompt) if not (asking.chat and request.turns):
                yield prompt


def plan(request: Scored, tokenizer: TextTokenizer, *, seq_len: int, rows: int) -> ScoringPlan | Refusal:
    """Return the work that answers a request; the model takes ``seq_len`` tokens and has ``rows`` embeddings."""
    match request:
        case Loglikelihood(context, continuation):
            made = _plan_pair(tokenizer, context, continuation, seq_len)
        case RollingLoglikelihood(text):
            made = _plan_text(tokenizer, text, seq_len)
        case FillMask() | PseudoLoglikelihood():
            return Refusal("a causal language model fills no masks; give a masked language model")
        case RunProgram() | Judge():
            return Refusal("programs are run by the sandbox, and verdicts are a judge's")
    if (
        isinstance(made, ScoringPlan)
        and tokenizer.most_tokens > rows
        and any(max(map(max, (one.inputs, one.targets))) >= rows for one in made.work)
    ):
        return Refusal(f"the text has a token that the model, with {rows} embeddings, does not know")
    return made


def windows(tokens: Sequence[int], start: int, seq_len: int) -> Iterator[TokenWork]:
    """Return windows of at most ``seq_len`` inputs that predict every token once.

    The first window begins with ``start``. Every later one is filled up on the left with tokens already scored (at
    least one), so a token is always predicted from as much text as fits.
    """
    first = min(seq_len, len(tokens))
    yield TokenWork((start, *tokens[: first - 1]), tuple(tokens[:first]))
    for begin in range(first, len(tokens), seq_len):
        end = min(begin + seq_len, len(tokens))
        yield TokenWork(tuple(tokens[max(0, end - seq_len - 1) : end - 1]), tuple(tokens[begin:end]))


def _plan_text(tokenizer: TextTokenizer, text: str, seq_len: int) -> ScoringPlan | Refusal:
    tokens = tokenizer.text(text)
    if isinstance(tokens, Refusal):
        return tokens
    start = tokenizer.start
    assert start is not None, "TextTokenizer.text refuses without a start token"
    return ScoringPlan(tuple(windows(tokens, start, seq_len)), rolling=True)


def _plan_pair(
    tokenizer: TextTokenizer, context: str, continuation: str, seq_len: int
) -> ScoringPlan | Refusal:
    """Cut from the left so that context and continuation together are one token longer than the model takes.

    The last token is only predicted, never fed; hence the one more.
    """
    pair = tokenizer.pair(context, continuation)
    if isinstance(pair, Refusal):
        return pair
    if len(pair.continuation) > seq_len:
        return Refusal(
            f"the continuation has {len(pair.continuation)} tokens, the checkpoint takes {seq_len}; "
            "nothing can be cut off"
        )
    inputs = pair.context + pair.continuation[:-1]
    truncated = max(0, len(inputs) - seq_len)
    return ScoringPlan(
        (TokenWork(inputs[truncated:], pair.continuation),), truncated=truncated, spans_join=pair.spans_join
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMode:
    """The way in which texts are asked for.

    With ``chat``, requests with turns go through the chat template; with ``only_chat``, or a ``system`` prompt, others
    are refused. A limit of new tokens may replace the request's own.
    """

    chat: bool = False
    only_chat: bool = False
    max_new_tokens: int | None = None
    system: str | None = None

    def fault(self, chat: bool) -> str | None:
        """Return why a question cannot be asked in a form, through the chat template or not; None where it can."""
        if chat or not (self.only_chat or self.system is not None):
            return None
        if self.only_chat:
            return "the question has no turns for a chat template; ask it with --eval-chat off or auto"
        return "the question is no chat, which a system prompt needs; leave --eval-set system out"


def chat_mode_of(info: CheckpointInfo, tokenizer: Any, settings: ModelSettings) -> ChatMode:
    """Return the way in which a checkpoint is asked.

    Raises ``CheckpointError`` where a template is demanded and missing, or is to be told what it does not know.
    """
    written = getattr(tokenizer, "chat_template", None)
    template, chat, thinking = bool(written), settings.chat, settings.thinking
    if thinking is not None and not (chat != "off" and any(name in str(written) for name in THINKING)):
        raise CheckpointError(
            f"{info.path}: --eval-thinking {thinking}, but its chat template is not used, or knows no enable_thinking; "
            "leave the option out"
        )
    if settings.system is not None and (why := _no_place(tokenizer, settings.system, chat)) is not None:
        raise CheckpointError(f"{info.path}: --eval-set system, but {why}; leave the option out")
    if chat == "on" and not template:
        raise CheckpointError(
            f"{info.path}: --eval-chat on, but its tokenizer has no chat template; "
            "use --eval-chat off, or save the template with the tokenizer"
        )
    return ChatMode(
        chat=template and chat != "off",
        only_chat=chat == "on",
        max_new_tokens=settings.max_new_tokens,
        system=settings.system,
    )


def _no_place(tokenizer: Any, system: str, chat: Chat) -> str | None:
    """Return why a checkpoint takes no system prompt; None where its chat template writes it."""
    if chat == "off" or not getattr(tokenizer, "chat_template", None):
        return "its chat template is not used, or missing"
    written = TextTokenizer(tokenizer).conversation((Turn("system", system), Turn("user", "x")))
    if isinstance(written, Refusal):
        return "its chat template takes no system prompt"
    return None if system in written else "its chat template leaves system prompts out"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request and the tokens of its prompt that the model is given.

    ``truncated`` counts those cut off on the left; ``chat`` says that they come from its turns.
    """

    request: Generate
    tokens: tuple[int, ...]
    truncated: int
    chat: bool = False

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
    if (fault := asking.fault(chat)) is not None:
        return Refusal(fault)
    request = in_form(request, chat, asking)
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


def in_form(request: Generate, chat: bool, asking: ChatMode) -> Generate:
    """Return the request with the stop sequences, the limit and the turns of the form in which it is asked.

    A limit that a person sets takes precedence over both; a system prompt stands before the request's own.
    """
    stop, most, turns = request.stop, request.max_new_tokens, request.turns
    if chat:
        stop = stop if request.turns_stop is None else request.turns_stop
        most = request.turns_max_new_tokens or most
        if asking.system is not None:
            own = turns[0].text if turns[0].role == "system" else ""
            system = Turn("system", "\n\n".join(filter(None, (asking.system, own))))
            turns = (system, *turns[bool(own) :])
    return replace(request, stop=stop, max_new_tokens=asking.max_new_tokens or most, turns=turns)
