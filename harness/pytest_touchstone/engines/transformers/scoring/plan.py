"""Plans the work of a causal model: from requests to token sequences, and from sequences to batches.

Nothing here runs a model. A request becomes one ``TokenWork`` (a continuation) or several (the windows of a long
text). Sequences of any requests are computed together, in any order, and their sums are put together again by request
number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from pytest_touchstone.core.requests import (
    Answer,
    FillMask,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    Refusal,
    Request,
    RollingAnswer,
    RollingLoglikelihood,
    RunProgram,
)
from pytest_touchstone.engines.base import EngineProgress
from pytest_touchstone.engines.transformers.generation.acceptance import Acceptance
from pytest_touchstone.engines.transformers.independence import ANY, Company
from pytest_touchstone.engines.transformers.memory import BatchBudget
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer

Scored: TypeAlias = Loglikelihood | RollingLoglikelihood | FillMask | PseudoLoglikelihood | RunProgram
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


class Slow(NamedTuple):
    """The amount that a slow way has computed, and the amount that would have been enough."""

    computed: int
    enough: int


@dataclass(slots=True)
class WorkDone:
    """Counts of what went through the model.

    Of tokens it counts all, those that only filled rows up, and the different ones asked for (each, with the tokens
    before it, once per call). Of logits it counts the positions at which they were computed.

    Of the tokens, some were prompts to be continued, and some were generated tokens fed again for the next one.
    ``accepted`` counts what became of proposed tokens; ``slow`` has the cost of each slow way that was taken, by its
    name (tokens, logits).

    Kept up to date while a call is under way: passes that continued texts (``steps``), the tokens ``generated`` by
    them, and those that went through the model in them (``continued``). Of the call itself it counts sequences
    ``scored`` and ``to_score``, and their tokens ``known`` and ``to_know``.
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
    scored: int = 0
    to_score: int = 0
    known: int = 0
    to_know: int = 0
    accepted: Acceptance = field(default_factory=Acceptance)
    slow: dict[str, Slow] = field(default_factory=dict)

    def slowly(self, way: str, computed: int, enough: int) -> None:
        """Count what a slow way has cost."""
        before = self.slow.get(way, Slow(0, 0))
        self.slow[way] = Slow(before.computed + computed, before.enough + enough)

    def begin(self, sequences: int, tokens: int) -> None:
        """Begin a call that scores so many sequences, for which so many tokens must be computed."""
        self.scored, self.to_score = 0, sequences
        self.known, self.to_know = 0, tokens

    def stepped(self, tokens: int) -> None:
        """Count a pass that continued texts by so many tokens in all."""
        self.steps += 1
        self.generated += tokens

    def progress(self, growing: Iterable[tuple[int, int]] = ()) -> EngineProgress:
        """Return the work so far as engines report it."""
        return EngineProgress(
            tokens=self.computed - self.continued,
            steps=self.steps,
            generated=self.generated,
            scored=self.scored,
            to_score=self.to_score,
            share=min(1.0, self.known / self.to_know) if self.to_know else 0.0,
            growing=tuple(growing),
        )

    def usage(
        self, budget: BatchBudget, notes: Sequence[str] = (), reasons: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the same as reports have it (see ``results.usage``); ``reasons`` say why slow ways were
        taken."""
        counts = {"tokens": self.computed, "padding": self.padded, "distinct": self.distinct}
        counts |= {"prefilled": self.prefilled, "decoded": self.decoded, "logits": self.logits}
        proposed = {"speculative": self.accepted.counts()} if self.accepted.passes else {}
        slow = [
            {"way": way, "reason": (reasons or {}).get(way, ""), **cost._asdict()}
            for way, cost in self.slow.items()
        ]
        more = {**proposed, **({"slow": slow} if slow else {})}
        return {**counts, **more, "batch_tokens": budget.tokens, "notes": list(notes)}

    def reset(self) -> None:
        """Start counting from 0 again."""
        self.computed = self.padded = self.distinct = self.logits = self.prefilled = self.decoded = 0
        self.continued = self.steps = self.generated = self.scored = self.to_score = 0
        self.known = self.to_know = 0
        self.accepted, self.slow = Acceptance(), {}


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """The work of one request, and the parts of its answer besides the score."""

    work: tuple[TokenWork, ...]
    truncated: int = 0
    spans_join: bool = False
    rolling: bool = False

    def answer(self, scores: Sequence[Score]) -> Answer:
        """Return the answer, from the scores of ``work`` in the same order."""
        logprob = sum(score.logprob for score in scores)
        tokens = sum(len(work.targets) for work in self.work)
        if self.rolling:
            return RollingAnswer(logprob, tokens, self.truncated)
        greedy = all(score.is_greedy for score in scores)
        return LoglikelihoodAnswer(logprob, greedy, tokens, self.truncated, self.spans_join)


def texts_of(requests: Iterable[Request]) -> Iterator[str]:
    """Yield the texts that ``plan`` has tokenized for these requests."""
    for request in requests:
        match request:
            case Loglikelihood(context, continuation):
                yield context + continuation
            case RollingLoglikelihood(text):
                yield text


def plan(request: Scored, tokenizer: TextTokenizer, *, seq_len: int, rows: int) -> ScoringPlan | Refusal:
    """Return the work that answers a request; the model takes ``seq_len`` tokens and has ``rows`` embeddings."""
    match request:
        case Loglikelihood(context, continuation):
            made = _plan_pair(tokenizer, context, continuation, seq_len)
        case RollingLoglikelihood(text):
            made = _plan_text(tokenizer, text, seq_len)
        case FillMask() | PseudoLoglikelihood():
            return Refusal("a causal language model fills no masks; give a masked language model")
        case RunProgram():
            return Refusal("programs are run by the sandbox, not by a checkpoint")
    if isinstance(made, ScoringPlan) and any(max(work.inputs + work.targets) >= rows for work in made.work):
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


def batches(
    works: Sequence[TokenWork],
    *,
    size: int | None,
    most_tokens: int,
    most_logits: int,
    vocabulary: int,
    company: Company = ANY,
) -> Iterator[list[int]]:
    """Return the indices of ``works``, each once, in batches of similar length, the longest first.

    Rows that may not be computed together are never in one batch.

    With ``size``, each batch has that many. Without, it has as many as keep rows x longest row within ``most_tokens``
    and needed logits within ``most_logits`` numbers (at least one). The longest come first, so that a lack of memory
    shows at once.
    """
    order = sorted(range(len(works)), key=lambda index: (-len(works[index].inputs), index))
    batch: list[int] = []
    logits = 0
    for index in order:
        needed = len(works[index].targets) * vocabulary
        longest = len(works[batch[0]].inputs) if batch else 0
        if size is not None:
            full = len(batch) >= size
        else:
            full = longest * (len(batch) + 1) > most_tokens or logits + needed > most_logits
        apart = company.rows == "one" or company.group(longest) != company.group(len(works[index].inputs))
        if batch and (full or apart):
            yield batch
            batch, logits = [], 0
        batch.append(index)
        logits += needed
    if batch:
        yield batch


def _plan_text(tokenizer: TextTokenizer, text: str, seq_len: int) -> ScoringPlan | Refusal:
    tokens = tokenizer.text(text)
    if isinstance(tokens, Refusal):
        return tokens
    start = tokenizer.start
    assert start is not None, "TextTokenizer.text refuses without a start token"
    return ScoringPlan(tuple(windows(tokens, start, seq_len)), rolling=True)


def _plan_pair(tokenizer: TextTokenizer, context: str, continuation: str, seq_len: int) -> ScoringPlan | Refusal:
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
    whole = (*pair.context, *pair.continuation)
    truncated = max(0, len(whole) - seq_len - 1)
    return ScoringPlan(
        (TokenWork(whole[truncated:-1], pair.continuation),), truncated=truncated, spans_join=pair.spans_join
    )
