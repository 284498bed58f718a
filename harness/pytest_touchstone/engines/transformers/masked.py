"""The engine of masked language models: tokens for a mask, and likelihoods of a text's tokens."""

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
from pytest_touchstone.engines.transformers.agreement import VerifiedKernels, folder_for
from pytest_touchstone.engines.transformers.base import ModelEngine
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.devices import AsyncHostCopy, to_device
from pytest_touchstone.engines.transformers.loading import LoadedModel
from pytest_touchstone.engines.transformers.logits import read_targets
from pytest_touchstone.engines.transformers.scoring import compute_in_batches, pad_rows
from pytest_touchstone.engines.transformers.token_work import TokenWork
from pytest_touchstone.engines.transformers.tokenizer import Vocabulary, special_token_frame, text_fault


@dataclass(frozen=True, slots=True)
class MaskedText:
    """Token ids with special tokens around them; the one mask is, or is to be, at ``position``."""

    ids: tuple[int, ...]
    position: int
    truncated: int


@dataclass(frozen=True, slots=True)
class PlainText:
    """Token ids of a text without mask and special tokens; each token is masked in turn."""

    ids: tuple[int, ...]
    room: int

    @property
    def truncated(self) -> int:
        """The number of tokens that each of the others is read without."""
        return max(0, len(self.ids) - self.room)


class _MaskedQuestion(NamedTuple):
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
        self._frame = special_token_frame(loaded.tokenizer, loaded.tokenizer.mask_token or "a")
        ways = VerifiedKernels(loaded.model, folder_for(loaded.model) if remembers else None)
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
        questions: list[_MaskedQuestion] = []
        texts: list[tuple[int, PlainText]] = []
        for number, (request, text) in enumerate(zip(requests, self._ahead.made(requests), strict=True)):
            if isinstance(text, Refusal):
                answers[number] = text
            elif isinstance(text, PlainText):
                texts.append((number, text))
            elif isinstance(request, FillMask):
                questions.append(_MaskedQuestion(number, request, text))
        masked = [[*self._masked(text)] for _, text in texts]
        flat = [text for some in masked for text in some]
        how: dict[str, Any] = {"budget": self.budget, "company": self.company, "done": self.work_done}
        how["device"] = self.loaded.model.device
        with self._quiet():
            works = [TokenWork(question.text.ids, (0,)) for question in questions]
            filled = compute_in_batches(works, questions, self._fill, **how)
            works = [TokenWork(text.ids, (0,)) for text in flat]
            scored = iter(compute_in_batches(works, flat, self._true_tokens, **how))
        answers.update((question.number, answer) for question, answer in zip(questions, filled, strict=True))
        for (number, text), some in zip(texts, masked, strict=True):
            total = sum(next(scored) for _ in some)
            answers[number] = RollingAnswer(total, len(some), text.truncated)
        return [answers[number] for number in range(len(requests))]

    def too_long(self, requests: Sequence[Request]) -> list[int]:
        """Return the numbers of the requests whose texts would be cut."""
        texts = enumerate(self._tokenize_all(requests))
        return [number for number, text in texts if not isinstance(text, Refusal) and text.truncated]

    def _tokenize_all(self, requests: Sequence[Request]) -> list[MaskedText | PlainText | Refusal]:
        """Return the tokenized texts, cut around their masks, with the tokenizer's mask token."""
        tokenizer = self.loaded.tokenizer
        mask, token = tokenizer.mask_token_id, tokenizer.mask_token
        texts = [
            request.text.replace(MASK, token) if isinstance(request, FillMask) else request.text
            for request in requests
            if mask is not None
            and isinstance(request, FillMask | PseudoLoglikelihood)
            and text_fault(request.text) is None
        ]
        ids: Iterator[list[int]] = iter(())
        if texts:
            # All at once: calling a fast tokenizer takes as long as tokenizing a sentence.
            options = ("add_special_tokens", "return_attention_mask", "return_token_type_ids")
            ids = iter(tokenizer(texts, **dict.fromkeys(options, False))["input_ids"])
        made: list[MaskedText | PlainText | Refusal] = []
        for request in requests:
            if not isinstance(request, FillMask | PseudoLoglikelihood):
                kind = type(request).__name__
                made.append(Refusal(f"a masked language model does not answer {kind}; give a causal one"))
            elif mask is None:
                made.append(Refusal("the tokenizer has no mask token"))
            elif (fault := text_fault(request.text)) is not None:
                made.append(fault)
            else:
                made.append(self._cut(request, next(ids), mask))
        return made

    def _cut(
        self, request: FillMask | PseudoLoglikelihood, ids: list[int], mask: int
    ) -> MaskedText | PlainText | Refusal:
        """Return the tokens of a text: those around its mask that fit, or all if each is masked in turn."""
        fills = isinstance(request, FillMask)
        if fills and (masks := ids.count(mask)) != 1:
            return Refusal(f"the text has {masks} masks; exactly one {MASK} can be filled")
        if not ids:
            return Refusal("the text is empty; there is nothing to score")
        if max(ids) >= self._rows:
            return Refusal(
                f"the text has a token that the model, with {self._rows} embeddings, does not know"
            )
        front, back = self._frame
        room = self.info.seq_len - len(front) - len(back)
        if room < 1:
            return Refusal(
                f"{self.info.seq_len} tokens leave no room for the mask; give a larger --eval-seq-len"
            )
        if not fills:
            return PlainText(tuple(ids), room)
        start, end = window_around(ids.index(mask), len(ids), room)
        position = len(front) + ids.index(mask) - start
        return MaskedText((*front, *ids[start:end], *back), position, len(ids) - (end - start))

    def _masked(self, text: PlainText) -> Iterator[MaskedText]:
        """Yield each token of a text, with the tokens nearest to it that fit."""
        front, back = self._frame
        whole = (*front, *text.ids, *back)
        for index in range(len(text.ids)):
            if not text.truncated:
                yield MaskedText(whole, len(front) + index, 0)  # one tuple for all of them
                continue
            start, end = window_around(index, len(text.ids), text.room)
            ids = (*front, *text.ids[start:end], *back)
            yield MaskedText(ids, len(front) + index - start, text.truncated)

    def _true_tokens(self, batch: Sequence[MaskedText]) -> list[float]:
        """Run one forward pass, and return the log-probabilities of the tokens that were masked."""
        mask = self.loaded.tokenizer.mask_token_id
        rows = [(*text.ids[: text.position], mask, *text.ids[text.position + 1 :]) for text in batch]
        inputs = self._inputs(rows)
        logits = self._needed.logits(inputs, range(len(batch)), [text.position for text in batch])
        true = [text.ids[text.position] for text in batch]
        self._count(inputs, rows)
        return [logprob for logprob, _ in read_targets(logits, range(len(batch)), true)]

    def _fill(self, batch: Sequence[_MaskedQuestion]) -> list[FillMaskAnswer]:
        """Run one forward pass for every number of candidates asked for."""
        import torch

        inputs = self._inputs([question.text.ids for question in batch])
        places = [question.text.position for question in batch]
        logits = self._needed.logits(inputs, range(len(batch)), places)
        total = logits.logsumexp(dim=-1, keepdim=True)
        vocabulary_logits = logits[:, : self._known]  # rows beyond the vocabulary are padding of the table
        top = vocabulary_logits.topk(
            min(max(question.request.top_k for question in batch), vocabulary_logits.shape[1])
        )
        targets = [question.request.target for question in batch]
        ids = [[] if target is None else self._vocabulary.by_plain_text.get(target, []) for target in targets]
        # All are on their way before the first is waited for.
        token_ids, logprobs = AsyncHostCopy(top.indices), AsyncHostCopy(top.values - total)
        of_targets = [
            AsyncHostCopy(
                vocabulary_logits[row, to_device(tokens, vocabulary_logits.device, torch.long)]
                - total[row, 0]
            )
            for row, tokens in enumerate(ids)
        ]
        self._count(inputs, [question.text.ids for question in batch])
        answers = []
        for row, (top_ids, top_logprobs) in enumerate(
            zip(token_ids.numbers(), logprobs.numbers(), strict=True)
        ):
            count = batch[row].request.top_k
            candidates = [
                Candidate(self._vocabulary.token(token), self._vocabulary.plain(token), logprob)
                for token, logprob in zip(top_ids[:count], top_logprobs[:count], strict=True)
            ]
            answers.append(
                FillMaskAnswer(
                    tuple(candidates),
                    None if targets[row] is None else bool(ids[row]),
                    max(of_targets[row].numbers(), default=None),
                    batch[row].text.truncated,
                )
            )
        return answers

    def _count(self, inputs: dict[str, Any], texts: Sequence[tuple[int, ...]]) -> None:
        """Count the work of a forward pass with one mask per text."""
        tokens = sum(map(len, texts))
        self.work_done.passed(inputs["input_ids"].numel(), tokens, logits=len(texts))
        self.work_done.distinct += tokens

    def _inputs(self, texts: Sequence[tuple[int, ...]]) -> dict[str, Any]:
        """Return input ids and attention mask [rows, longest], padded on the right with the model's padding token.

        RoBERTa and its kin number positions by the place of the padding token, so no other token will do.
        """
        model, tokenizer = self.loaded.model, self.loaded.tokenizer
        given = getattr(model.config, "pad_token_id", None)
        return pad_rows(texts, given if given is not None else tokenizer.pad_token_id or 0, model.device)


def window_around(position: int, length: int, room: int) -> tuple[int, int]:
    """Return the start and end of the ``room`` tokens nearest to ``position``, which is among them.

    The tokens farthest from the position are cut off first, on a tie from the right.
    """
    if length <= room:
        return 0, length
    start = min(max(0, position - room // 2), length - room)
    return start, start + room
