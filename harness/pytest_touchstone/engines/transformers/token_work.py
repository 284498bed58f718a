"""Requests as tokens that a causal model is given (sequences to score, prompts to continue), and counts of the work.
Runs no model.

A request for scores becomes one ``TokenWork`` (a continuation) or several (the windows of a long text). Sequences of
any requests are computed together, in any order, and their sums are put together again by request number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

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
from pytest_touchstone.engines.base import EngineProgress
from pytest_touchstone.engines.settings import Chat, ModelSettings
from pytest_touchstone.engines.transformers.tokenizer import THINKING, TextTokenizer

Scored: TypeAlias = Loglikelihood | RollingLoglikelihood | FillMask | PseudoLoglikelihood | RunProgram | Judge
"""Requests that are answered with scores, or refused."""


@dataclass(frozen=True, slots=True)
class TokenWork:
    """``inputs`` are fed to the model; its last ``len(targets)`` positions predict the ``targets``."""

    inputs: tuple[int, ...]
    targets: tuple[int, ...]


class TargetScore(NamedTuple):
    """The sum of the targets' log-probabilities (nats), and whether each target is the most probable token."""

    logprob: float
    is_greedy: bool


def sum_scores(scores: Iterable[tuple[float, bool]]) -> TargetScore:
    """Return the score of parts together; Python's floats are added, so that their order cannot matter."""
    logprobs, greedy = zip(*scores, strict=True)
    return TargetScore(sum(logprobs), all(greedy))


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """The work of one request, and the parts of its answer besides the score."""

    work: tuple[TokenWork, ...]
    truncated: int = 0
    spans_join: bool = False
    after_bos: bool = False
    rolling: bool = False

    @property
    def longest(self) -> int:
        """The most tokens in memory at once."""
        return max((len(work.inputs) for work in self.work), default=0)

    def answer(self, scores: Sequence[TargetScore]) -> Answer:
        """Return the answer, from the scores of ``work`` in the same order."""
        score = sum_scores(scores)
        tokens = sum([len(work.targets) for work in self.work])
        if self.rolling:
            return RollingAnswer(score.logprob, tokens, self.truncated, self.after_bos)
        return LoglikelihoodAnswer(*score, tokens, self.truncated, self.spans_join)


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
            tokens = tokenizer.text(text)
            if isinstance(tokens, Refusal):
                return tokens
            assert tokenizer.start is not None, "TextTokenizer.text refuses without a start token"
            after_bos = tokenizer.begins(tokenizer.front_of(text))
            made = ScoringPlan(
                tuple(windows(tokens, tokenizer.start, seq_len)), after_bos=after_bos, rolling=True
            )
        case FillMask() | PseudoLoglikelihood():
            return Refusal("a causal language model fills no masks; give a masked language model")
        case RunProgram() | Judge():
            return Refusal("programs are run by the sandbox, and verdicts are a judge's")
    if (
        isinstance(made, ScoringPlan)
        and tokenizer.most_tokens > rows
        and any(max(map(max, (work.inputs, work.targets))) >= rows for work in made.work)
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


def _plan_pair(
    tokenizer: TextTokenizer, context: str, continuation: str, seq_len: int
) -> ScoringPlan | Refusal:
    """Return the work for context and continuation, truncated on the left to one token more than the model takes.

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
    are refused. A limit of new tokens may replace the request's own. Unless the template ``takes_system`` turns, that
    of a request begins the user's first turn.
    """

    chat: bool = False
    only_chat: bool = False
    max_new_tokens: int | None = None
    system: str | None = None
    takes_system: bool = True

    def fault(self, chat: bool) -> str | None:
        """Return why a question cannot be asked through the chat template, or without it; None where it can."""
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
            f"{info.path}: --eval-set thinking={thinking}, but its chat template is not used, or knows no "
            "enable_thinking; leave the option out"
        )
    if (
        settings.system is not None
        and (why := _system_prompt_fault(tokenizer, settings.system, chat)) is not None
    ):
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
        takes_system=template and chat != "off" and takes_system_turn(TextTokenizer(tokenizer)),
    )


PROBE_SYSTEM: Final = "You answer in rhymes."


def takes_system_turn(tokenizer: TextTokenizer) -> bool:
    """Return whether a chat template writes a system turn; some fail with one, others leave it out."""
    written = tokenizer.conversation((Turn("system", PROBE_SYSTEM), Turn("user", "x")))
    return isinstance(written, str) and PROBE_SYSTEM in written


def _system_prompt_fault(tokenizer: Any, system: str, chat: Chat) -> str | None:
    """Return why a checkpoint takes no system prompt; None where its chat template writes it."""
    if chat == "off" or not getattr(tokenizer, "chat_template", None):
        return "its chat template is not used, or missing"
    written = TextTokenizer(tokenizer).conversation((Turn("system", system), Turn("user", "x")))
    if isinstance(written, Refusal):
        return "its chat template takes no system prompt"
    return None if system in written else "its chat template leaves system prompts out"


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """A request and the tokens of its prompt that the model is given.

    ``truncated`` counts those cut off on the left; ``chat`` says that they come from its turns.
    """

    request: Generate
    tokens: tuple[int, ...]
    truncated: int
    chat: bool = False

    @property
    def longest(self) -> int:
        """The most tokens in memory at once."""
        return len(self.tokens) + self.request.max_new_tokens

    def answer(self, outcomes: Sequence[Generated | None]) -> GenerateAnswer | Refusal:
        """Return the answer, made of the samples in order; a ``Refusal`` where a sample's logits hold NaN."""
        texts = [outcome for outcome in outcomes if outcome is not None]
        if len(texts) < len(outcomes):
            return Refusal(
                "the checkpoint's logits hold NaN; its weights are broken, or overflow: "
                "try --eval-dtype float32"
            )
        texts *= self.request.samples // len(texts)
        return GenerateAnswer(tuple(texts), len(self.tokens), self.truncated, self.chat)


def prepare(
    request: Generate, tokenizer: TextTokenizer, *, seq_len: int, rows: int, asking: ChatMode = ChatMode()
) -> TokenizedPrompt | Refusal:
    """Return the prompt as it is given to the model, which has ``rows`` embeddings.

    It is cut from the left to ``seq_len`` - ``max_new_tokens`` tokens, special tokens at the start included, to leave
    room for the new ones, as lm-evaluation-harness does.
    """
    if (fault := request.fault()) is not None:
        return Refusal(fault)
    chat = asking.chat and bool(request.turns)
    if (fault := asking.fault(chat)) is not None:
        return Refusal(fault)
    request = apply_chat_mode(request, chat, asking)
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
    return TokenizedPrompt(request, tokens[truncated:], truncated, chat)


def apply_chat_mode(request: Generate, chat: bool, asking: ChatMode) -> Generate:
    """Return the request with the stop sequences, limit and turns of the chat or plain form.

    A limit that a person sets takes precedence over both; a system prompt stands before the request's own.
    """
    stop, most, turns = request.stop, request.max_new_tokens, request.turns
    if chat:
        stop = stop if request.turns_stop is None else request.turns_stop
        most = request.turns_max_new_tokens or most
        if asking.system is not None:
            request_system = turns[0].text if turns[0].role == "system" else ""
            if not request_system.startswith(asking.system):
                request_system = "\n\n".join(filter(None, (asking.system, request_system)))
            turns = (Turn("system", request_system), *turns[turns[0].role == "system" :])
        if not asking.takes_system and len(turns) > 1 and turns[0].role == "system":
            turns = (replace(turns[1], text=f"{turns[0].text}\n\n{turns[1].text}"), *turns[2:])
    return replace(request, stop=stop, max_new_tokens=asking.max_new_tokens or most, turns=turns)


@dataclass(slots=True)
class Acceptance:
    """The counts of accepted proposals.

    ``lengths`` counts how often a pass of a row gave so many tokens, head 0's own among them. ``asked`` and ``right``
    count the proposals of each extra head, from 1, at places that the text reached, and those that were the token
    there. A head is asked at every place from which texts went on, whether or not the heads before it were right.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    asked: Counter[int] = field(default_factory=Counter)
    right: Counter[int] = field(default_factory=Counter)

    @property
    def passes(self) -> int:
        """The number of rows that went through the model with proposals."""
        return self.lengths.total()

    @property
    def mean_length(self) -> float:
        """The mean number of tokens per pass, 0 without any."""
        tokens = sum(length * number for length, number in self.lengths.items())
        return tokens / self.passes if self.passes else 0.0

    def judge(self, proposals: Sequence[tuple[int, list[int]]], tokens: Sequence[int]) -> int:
        """Count which proposals of an ended text were right; return the tokens from passes with proposals.

        Args:
            proposals: The index of the first proposed token in the text, and the proposed tokens, of each pass.
            tokens: The tokens of the text.

        """
        came = 0
        for start, proposed in proposals:
            pairs = list(zip(proposed, tokens[start:], strict=False))
            wrong = (at for at, (proposal, token) in enumerate(pairs) if proposal != token)
            length = min(next(wrong, len(pairs)) + 1, len(tokens) - start)
            for head, (proposal, token) in enumerate(pairs, 1):
                self.asked[head] += 1
                self.right[head] += proposal == token
            if length:  # none where the pass gave no number
                self.lengths[length] += 1
                came += length
        return came

    def counts(self) -> dict[str, Any]:
        """Return the counts by length and by head, both from 1, which can be added up over processes.

        With them go what they amount to: the mean length, and the share of each head's proposals that were right
        (None without any).
        """
        longest, heads = max(self.lengths, default=0), max(self.asked, default=0)
        return {
            "lengths": [self.lengths[length] for length in range(1, longest + 1)],
            "asked": [self.asked[head] for head in range(1, heads + 1)],
            "right": [self.right[head] for head in range(1, heads + 1)],
            "mean_length": round(self.mean_length, 4) if self.passes else None,
            "accuracy": [round(self.right[head] / self.asked[head], 4) for head in range(1, heads + 1)],
        }


@dataclass
class WorkDone:
    """Counts of what went through the model.

    Of tokens it counts all, those that only filled rows up, and the different ones asked for (each, with the tokens
    before it, once per call). Of logits it counts the positions at which they were computed.

    Of the tokens, some were prompts to be continued, and some were generated tokens fed again for the next one.
    ``accepted`` counts what became of proposed tokens; ``slow`` has the cost of each slow way that was taken, by its
    name: what it has ``computed`` (tokens, logits), and what would have been ``enough``.

    Kept up to date while a call is under way: passes that continued texts (``steps``), the tokens ``generated`` by
    them, and those that went through the model in them (``continued``).
    """

    computed: int = 0
    padded: int = 0
    distinct: int = 0
    logits: int = 0
    prefilled: int = 0
    decoded: int = 0
    continued: int = 0
    steps: int = 0
    generated: int = 0
    accepted: Acceptance = field(default_factory=Acceptance)
    slow: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def slowly(self, way: str, computed: int, enough: int) -> None:
        """Count what a slow way has cost."""
        self.slow[way].update(computed=computed, enough=enough)

    def passed(self, computed: int, unpadded: int, *, logits: int) -> None:
        """Count a forward pass.

        Args:
            computed: The tokens of the pass, padding included.
            unpadded: The tokens of the pass without padding.
            logits: The number of positions at which logits are computed.

        """
        self.computed += computed
        self.padded += computed - unpadded
        self.logits += logits

    def stepped(self, tokens: int) -> None:
        """Count a pass that added ``tokens`` tokens to texts in all."""
        self.steps += 1
        self.generated += tokens

    def progress(self) -> EngineProgress:
        """Return the work so far as engines report it."""
        return EngineProgress(tokens=self.computed - self.continued + self.generated)

    def usage(self, reasons: Mapping[str, str]) -> dict[str, Any]:
        """Return the counts as reports have them (see ``results.usage``), with the reason of each slow way."""
        proposed = {"speculative": self.accepted.counts()} if self.accepted.passes else {}
        slow = [{"way": way, "reason": reasons.get(way, ""), **cost} for way, cost in self.slow.items()]
        return {
            "tokens": self.computed,
            "padding": self.padded,
            "distinct": self.distinct,
            "prefilled": self.prefilled,
            "decoded": self.decoded,
            "logits": self.logits,
            **proposed,
            **({"slow": slow} if slow else {}),
        }

    def reset(self) -> None:
        """Start counting from 0 again."""
        self.__dict__.update(vars(WorkDone()))
