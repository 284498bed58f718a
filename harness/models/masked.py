"""The engine of masked language models: what could stand at the mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from harness.checkpoints import CheckpointInfo
from harness.models.loading import Loaded, quiet
from harness.models.needed import NeededLogits
from harness.models.vocabulary import Vocabulary
from harness.models.work import TokenWork, batches
from harness.requests import MASK, Answer, Candidate, FillMask, FillMaskAnswer, Refusal, Request

_TOKENS: Final = {"cpu": 1024, "cuda": 65536, "mps": 16384}
"""Tokens computed at once when no batch size is given."""

_LOGITS: Final = 2**26


@dataclass(frozen=True, slots=True)
class MaskedText:
    """Token ids with special tokens around them; the one mask is at ``position``."""

    ids: tuple[int, ...]
    position: int
    truncated: int


class _Question(NamedTuple):
    """A request that can be answered, with its number among the requests."""

    number: int
    request: FillMask
    text: MaskedText


class MaskedEngine:
    """Answers ``FillMask``."""

    def __init__(self, info: CheckpointInfo, loaded: Loaded, *, batch: int | None = None) -> None:
        self._info = info
        self._batch = batch
        self._loaded: Loaded | None = loaded
        self._vocabulary = Vocabulary(loaded.tokenizer)
        self._by_text: dict[str, list[int]] | None = None
        self._needed = NeededLogits(loaded.model)
        self._rows = int(loaded.model.get_input_embeddings().weight.shape[0])
        self._known = max(loaded.tokenizer.get_vocab().values()) + 1
        self._frame = _frame(loaded.tokenizer)
        with quiet():
            probe = loaded.tokenizer.encode("a a a a")
            self._needed.verify(self._inputs([tuple(probe), tuple(probe[:-1])]))

    @property
    def info(self) -> CheckpointInfo:
        """What the checkpoint is."""
        return self._info

    @property
    def gathers(self) -> bool:
        """Whether logits are computed at the mask only."""
        return self._needed.gathers

    def answer(self, requests: Sequence[Request]) -> list[Answer | Refusal]:
        """One answer a request, in the order asked; what cannot be answered gets a ``Refusal``."""
        answers: dict[int, Answer | Refusal] = {}
        questions: list[_Question] = []
        for number, request in enumerate(requests):
            text = self.tokenize(request)
            if isinstance(text, Refusal):
                answers[number] = text
            elif isinstance(request, FillMask):
                questions.append(_Question(number, request, text))
        with quiet():
            for batch in self._batches(questions):
                answers.update(self._fill([questions[index] for index in batch]))
        return [answers[number] for number in range(len(requests))]

    def tokenize(self, request: Request) -> MaskedText | Refusal:
        """The text with the checkpoint's own mask token, cut around it to the length that fits."""
        if not isinstance(request, FillMask):
            return Refusal(
                f"a masked language model does not answer {type(request).__name__}; give a causal one"
            )
        tokenizer = self._open.tokenizer
        mask = tokenizer.mask_token_id
        if mask is None:
            return Refusal("the tokenizer has no mask token")
        ids = tokenizer.encode(request.text.replace(MASK, tokenizer.mask_token), add_special_tokens=False)
        if (masks := ids.count(mask)) != 1:
            return Refusal(f"the text has {masks} masks; exactly one {MASK} can be filled")
        if max(ids) >= self._rows:
            return Refusal(
                f"the text has a token that the model, with {self._rows} embeddings, does not know"
            )
        front, back = self._frame
        room = self._info.seq_len - len(front) - len(back)
        if room < 1:
            return Refusal(
                f"{self._info.seq_len} tokens leave no room for the mask; give a larger --eval-seq-len"
            )
        start, end = around(ids.index(mask), len(ids), room)
        position = len(front) + ids.index(mask) - start
        return MaskedText((*front, *ids[start:end], *back), position, len(ids) - (end - start))

    def close(self) -> None:
        """Frees the model's memory; the engine cannot answer afterwards."""
        self._needed.close()
        self._loaded = None
        del self._needed

    @property
    def _open(self) -> Loaded:
        assert self._loaded is not None, "the engine is closed"
        return self._loaded

    def _batches(self, questions: Sequence[_Question]) -> Iterator[list[int]]:
        kind = self._open.model.device.type
        works = [TokenWork(question.text.ids, (0,)) for question in questions]
        most = _TOKENS.get(kind, _TOKENS["cpu"])
        return batches(works, size=self._batch, most_tokens=most, most_logits=_LOGITS, vocabulary=self._rows)

    def _fill(self, batch: Sequence[_Question]) -> dict[int, FillMaskAnswer]:
        """One forward pass; the answers by the numbers of their requests."""
        inputs = self._inputs([question.text.ids for question in batch])
        places = [question.text.position for question in batch]
        logprobs = self._needed.logprobs(inputs, range(len(batch)), places).cpu()
        return {
            question.number: self._read(question.request, question.text, row)
            for question, row in zip(batch, logprobs, strict=True)
        }

    def _read(self, request: FillMask, text: MaskedText, logprobs: Any) -> FillMaskAnswer:
        """The answer from the log-probabilities [vocabulary] at the mask."""
        known = logprobs[: self._known]  # rows beyond the vocabulary are padding of the table
        top = known.topk(min(request.top_k, len(known)))
        candidates = tuple(
            Candidate(self._vocabulary.token(token), self._vocabulary.plain(token), logprob)
            for token, logprob in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        )
        if request.target is None:
            return FillMaskAnswer(candidates, truncated=text.truncated)
        ids = self._ids_of(request.target)
        best = max((float(known[token]) for token in ids), default=None)
        return FillMaskAnswer(candidates, bool(ids), best, text.truncated)

    def _ids_of(self, text: str) -> list[int]:
        """All tokens that read exactly so; the table is made at the first question with a target."""
        if self._by_text is None:
            self._by_text = self._vocabulary.by_plain_text()
        return self._by_text.get(text, [])

    def _inputs(self, texts: Sequence[tuple[int, ...]]) -> dict[str, Any]:
        """Input ids and attention mask [rows, longest], padded on the right with the model's own padding
        token.

        RoBERTa and its kin number positions by where the padding token is, so no other token will do.
        """
        import torch

        model, tokenizer = self._open.model, self._open.tokenizer
        given = getattr(model.config, "pad_token_id", None)
        padding = given if given is not None else tokenizer.pad_token_id or 0
        longest = max(map(len, texts))
        ids = torch.full((len(texts), longest), padding, dtype=torch.long)
        mask = torch.zeros((len(texts), longest), dtype=torch.long)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = torch.tensor(text)
            mask[row, : len(text)] = 1
        return {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}


def around(position: int, length: int, room: int) -> tuple[int, int]:
    """Begin and end of the ``room`` tokens (or all) that are nearest to ``position``, which is always among
    them.

    What is cut off is farthest from the position first, on a tie from the right.
    """
    if length <= room:
        return 0, length
    start = min(max(0, position - room // 2), length - room)
    return start, start + room


def _frame(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that the tokenizer puts before and after a text."""
    mask = tokenizer.mask_token or "a"
    bare, framed = tokenizer.encode(mask, add_special_tokens=False), tokenizer.encode(mask)
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare:
            return tuple(framed[:start]), tuple(framed[start + len(bare) :])
    return (), ()
