"""The engine of masked language models: what could stand at the mask, and how likely the tokens of a text are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.requests import (
    MASK,
    Answer,
    Candidate,
    FillMask,
    FillMaskAnswer,
    PseudoLoglikelihood,
    Refusal,
    Request,
    RollingAnswer,
)
from pytest_touchstone.engines.base import Done
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.agreement import KnownWays, folder_for
from pytest_touchstone.engines.transformers.base import ModelEngine
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.devices import Reading, to_device
from pytest_touchstone.engines.transformers.loading import LoadedModel
from pytest_touchstone.engines.transformers.logits import read_targets
from pytest_touchstone.engines.transformers.scoring import in_batches, padded
from pytest_touchstone.engines.transformers.token_work import TokenWork
from pytest_touchstone.engines.transformers.tokenizer import Vocabulary, frame, not_text


@dataclass(frozen=True, slots=True)
class MaskedText:
    """Token ids with special tokens around them; the one mask is at ``position``."""

    ids: tuple[int, ...]
    position: int
    truncated: int


@dataclass(frozen=True, slots=True)
class PlainText:
    """Token ids of a text without a mask, and without special tokens; each token is masked in turn."""

    ids: tuple[int, ...]
    room: int

    @property
    def truncated(self) -> int:
        """The number of tokens that each of the others is read without."""
        return max(0, len(self.ids) - self.room)


class _Masked(NamedTuple):
    """One token of a text: the input in which it is to be masked, and its place there."""

    ids: tuple[int, ...]
    position: int


class _Question(NamedTuple):
    """A request that can be answered, with its number among the requests."""

    number: int
    request: FillMask
    text: MaskedText


class MaskedEngine(ModelEngine[MaskedText | PlainText | Refusal]):
    """Answers ``FillMask`` and ``PseudoLoglikelihood``."""

    def __init__(
        self,
        info: CheckpointInfo,
        loaded: LoadedModel,
        settings: ModelSettings | None = None,
        *,
        remembers: bool = False,
    ) -> None:
        """With ``remembers``, what an earlier probe has shown is not tried again."""
        settings = settings or ModelSettings()
        super().__init__(info, loaded, self._tokenize_all, settings)
        self._vocabulary = Vocabulary(loaded.tokenizer)
        self._known = max(loaded.tokenizer.get_vocab().values()) + 1
        self._frame = frame(loaded.tokenizer, loaded.tokenizer.mask_token or "a")
        ways = KnownWays(loaded.model, folder_for(loaded.model) if remembers else None)
        with quiet():
            self.company = self._company(
                lambda works: self._inputs([work.inputs for work in works]), ways, causal=False
            )
            text = tuple(loaded.tokenizer.encode("a a a a"))
            probe = [text] if self.company.rows == "one" else [text, text[:-1]]
            different = ways.tried("logits", lambda: self._needed.verify(self._inputs(probe)))
        if different is not None:
            self._goes_slowly("logits", different)
        self.work_done.reset()

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in the order asked; a request that cannot be answered gets a ``Refusal``."""
        del done  # no answer is there long before the others
        self._put_on_adapter()
        answers: dict[int, Answer | Refusal] = {}
        questions: list[_Question] = []
        texts: list[tuple[int, PlainText]] = []
        for number, (request, text) in enumerate(zip(requests, self._ahead.made(requests), strict=True)):
            if isinstance(text, Refusal):
                answers[number] = text
            elif isinstance(text, PlainText):
                texts.append((number, text))
            elif isinstance(request, FillMask):
                questions.append(_Question(number, request, text))
        masked = [[*self._masked(text)] for _, text in texts]
        flat = [one for some in masked for one in some]
        how: dict[str, Any] = {"budget": self.budget, "company": self.company, "done": self.work_done}
        how["device"] = self.loaded.model.device
        with self._quiet():
            works = [TokenWork(question.text.ids, (0,)) for question in questions]
            filled = in_batches(works, questions, self._fill, **how)
            works = [TokenWork(one.ids, (0,)) for one in flat]
            scored = iter(in_batches(works, flat, self._true_tokens, **how))
        answers.update((question.number, one) for question, one in zip(questions, filled, strict=True))
        for (number, text), some in zip(texts, masked, strict=True):
            total = sum(next(scored) for _ in some)
            answers[number] = RollingAnswer(total, len(some), text.truncated)
        return [answers[number] for number in range(len(requests))]

    def too_long(self, requests: Sequence[Request]) -> list[int]:
        """Return the numbers of the requests whose texts would be cut."""
        texts = enumerate(self._tokenize_all(requests))
        return [number for number, one in texts if not isinstance(one, Refusal) and one.truncated]

    def _tokenize_all(self, requests: Sequence[Request]) -> list[MaskedText | PlainText | Refusal]:
        """Return the texts with the checkpoint's own mask token, each cut around it to the length that fits; those
        without a mask as they are."""
        tokenizer = self.loaded.tokenizer
        mask, token = tokenizer.mask_token_id, tokenizer.mask_token
        found: list[MaskedText | PlainText | Refusal] = []
        ids: Iterator[list[int]] = iter(())
        texts = [
            one.text.replace(MASK, token) if isinstance(one, FillMask) else one.text
            for one in requests
            if mask is not None
            and isinstance(one, FillMask | PseudoLoglikelihood)
            and not_text(one.text) is None
        ]
        if texts:
            # All at once: calling a fast tokenizer takes as long as tokenizing a sentence.
            lean = dict.fromkeys(
                ("add_special_tokens", "return_attention_mask", "return_token_type_ids"), False
            )
            ids = iter(tokenizer(texts, **lean)["input_ids"])
        for request in requests:
            if not isinstance(request, FillMask | PseudoLoglikelihood):
                kind = type(request).__name__
                found.append(Refusal(f"a masked language model does not answer {kind}; give a causal one"))
            elif mask is None:
                found.append(Refusal("the tokenizer has no mask token"))
            elif (fault := not_text(request.text)) is not None:
                found.append(fault)
            elif isinstance(request, PseudoLoglikelihood):
                found.append(self._plain(next(ids)))
            else:
                found.append(self._framed(next(ids), mask))
        return found

    def _plain(self, ids: list[int]) -> PlainText | Refusal:
        """Return a text's tokens, each of which is to be masked."""
        if not ids:
            return Refusal("the text is empty; there is nothing to score")
        room = self._room(ids)
        return room if isinstance(room, Refusal) else PlainText(tuple(ids), room)

    def _room(self, ids: Sequence[int]) -> int | Refusal:
        """Return how many tokens of a text the model takes."""
        if max(ids) >= self._rows:
            return Refusal(
                f"the text has a token that the model, with {self._rows} embeddings, does not know"
            )
        room = self.info.seq_len - sum(map(len, self._frame))
        if room < 1:
            return Refusal(
                f"{self.info.seq_len} tokens leave no room for the mask; give a larger --eval-seq-len"
            )
        return room

    def _masked(self, text: PlainText) -> Iterator[_Masked]:
        """Yield each token of a text, with the tokens nearest to it that fit."""
        front, back = self._frame
        whole = (*front, *text.ids, *back)
        for place in range(len(text.ids)):
            if not text.truncated:
                yield _Masked(whole, len(front) + place)  # one tuple for all of them
                continue
            start, end = around(place, len(text.ids), text.room)
            yield _Masked((*front, *text.ids[start:end], *back), len(front) + place - start)

    def _true_tokens(self, batch: Sequence[_Masked]) -> list[float]:
        """Run one forward pass, and return the log-probabilities of the tokens that were masked."""
        mask = self.loaded.tokenizer.mask_token_id
        rows = [(*one.ids[: one.position], mask, *one.ids[one.position + 1 :]) for one in batch]
        inputs = self._inputs(rows)
        logits = self._needed.logits(inputs, range(len(batch)), [one.position for one in batch])
        true = [one.ids[one.position] for one in batch]
        self._count(inputs, rows)
        return [logprob for logprob, _ in read_targets(logits, range(len(batch)), true)]

    def _framed(self, ids: list[int], mask: int) -> MaskedText | Refusal:
        """Return a text's tokens, cut and with special tokens around them."""
        if (masks := ids.count(mask)) != 1:
            return Refusal(f"the text has {masks} masks; exactly one {MASK} can be filled")
        room = self._room(ids)
        if isinstance(room, Refusal):
            return room
        front, back = self._frame
        start, end = around(ids.index(mask), len(ids), room)
        position = len(front) + ids.index(mask) - start
        return MaskedText((*front, *ids[start:end], *back), position, len(ids) - (end - start))

    def _fill(self, batch: Sequence[_Question]) -> list[FillMaskAnswer]:
        """Run one forward pass for every number of candidates asked for."""
        inputs = self._inputs([question.text.ids for question in batch])
        places = [question.text.position for question in batch]
        logits = self._needed.logits(inputs, range(len(batch)), places)
        total = logits.logsumexp(dim=-1, keepdim=True)
        known = logits[:, : self._known]  # rows beyond the vocabulary are padding of the table
        top = known.topk(min(max(question.request.top_k for question in batch), known.shape[1]))
        # All are on their way before the first is waited for.
        readings = Reading(top.indices), Reading(top.values - total)
        best = self._targets(batch, known, total)
        tokens, logprobs = (reading.numbers() for reading in readings)
        self._count(inputs, [question.text.ids for question in batch])
        return [
            FillMaskAnswer(
                self._candidates(tokens[row], logprobs[row], question.request.top_k),
                *best[row],
                question.text.truncated,
            )
            for row, question in enumerate(batch)
        ]

    def _count(self, inputs: dict[str, Any], texts: Sequence[tuple[int, ...]]) -> None:
        """Count the work of a forward pass with one mask per text."""
        tokens = sum(map(len, texts))
        self.work_done.passed(inputs["input_ids"].numel(), tokens, logits=len(texts))
        self.work_done.distinct += tokens

    def _targets(
        self, batch: Sequence[_Question], known: Any, total: Any
    ) -> list[tuple[bool | None, float | None]]:
        """Return whether each question's target is a token, and the log-probability of the likeliest such token."""
        targets = (question.request.target for question in batch)
        ids = [[] if target is None else self._vocabulary.by_plain_text.get(target, []) for target in targets]
        rows = [row for row, tokens in enumerate(ids) for _ in tokens]
        flat = [token for tokens in ids for token in tokens]
        values: Iterator[float] = iter(())
        if rows:
            row, token = (to_device(some, known.device) for some in (rows, flat))
            values = iter(Reading(known[row, token] - total[row, 0]).numbers())
        found: list[tuple[bool | None, float | None]] = []
        for one, tokens in zip(batch, ids, strict=True):
            best = max((next(values) for _ in tokens), default=None)
            found.append((None if one.request.target is None else bool(tokens), best))
        return found

    def _candidates(
        self, tokens: Sequence[int], logprobs: Sequence[float], count: int
    ) -> tuple[Candidate, ...]:
        made = []
        for token, logprob in zip(tokens[:count], logprobs[:count], strict=True):
            made.append(Candidate(self._vocabulary.token(token), self._vocabulary.plain(token), logprob))
        return tuple(made)

    def _inputs(self, texts: Sequence[tuple[int, ...]]) -> dict[str, Any]:
        """Return input ids and attention mask [rows, longest], padded on the right with the model's own padding
        token.

        RoBERTa and its kin number positions by the place of the padding token, so no other token will do.
        """
        model, tokenizer = self.loaded.model, self.loaded.tokenizer
        given = getattr(model.config, "pad_token_id", None)
        return padded(texts, given if given is not None else tokenizer.pad_token_id or 0, model.device)


def around(position: int, length: int, room: int) -> tuple[int, int]:
    """Return the start and end of the ``room`` tokens (or all) nearest to ``position``, which is always among them.

    The tokens farthest from the position are cut off first, on a tie from the right.
    """
    if length <= room:
        return 0, length
    start = min(max(0, position - room // 2), length - room)
    return start, start + room
