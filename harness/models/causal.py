"""The engine of causal language models: log-likelihoods of continuations and of whole texts.

Rows of a batch are padded on the right. Under a causal mask no token sees what stands to its right, so
padding changes nothing, and positions count from 0 as in a single row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from harness.checkpoints import CheckpointInfo
from harness.models.loading import Loaded, quiet
from harness.models.needed import NeededLogits
from harness.models.tokenization import TextTokenizer
from harness.models.work import Plan, Score, TokenWork, batches, plan
from harness.requests import Answer, Refusal, Request

_TOKENS: Final = {"cpu": 512, "cuda": 32768, "mps": 8192}
"""Tokens computed at once when no batch size is given."""

_LOGITS: Final = {"cpu": 2**25, "cuda": 2**28, "mps": 2**26}
"""Logits held at once when no batch size is given; four bytes each, a few copies of them."""


class CausalEngine:
    """Answers ``Loglikelihood`` and ``RollingLoglikelihood``."""

    def __init__(self, info: CheckpointInfo, loaded: Loaded, *, batch: int | None = None) -> None:
        self._info = info
        self._batch = batch
        self._loaded: Loaded | None = loaded
        self._tokenizer = TextTokenizer(loaded.tokenizer)
        self._needed = NeededLogits(loaded.model)
        self._vocabulary = int(loaded.model.get_input_embeddings().weight.shape[0])
        with quiet():
            probe = [TokenWork(tuple(range(length)), (0,)) for length in (min(5, info.seq_len), 3)]
            self._needed.verify(self._inputs(probe))

    @property
    def info(self) -> CheckpointInfo:
        """What the checkpoint is."""
        return self._info

    @property
    def gathers(self) -> bool:
        """Whether logits are computed at the needed positions only."""
        return self._needed.gathers

    def answer(self, requests: Sequence[Request]) -> list[Answer | Refusal]:
        """One answer a request, in the order asked; what cannot be answered gets a ``Refusal``."""
        seq_len, rows = self._info.seq_len, self._vocabulary
        plans = [plan(request, self._tokenizer, seq_len=seq_len, rows=rows) for request in requests]
        works = [work for made in plans if isinstance(made, Plan) for work in made.work]
        with quiet():
            scores = iter(self._score_all(works))
        return [
            made.answer([next(scores) for _ in made.work]) if isinstance(made, Plan) else made
            for made in plans
        ]

    def close(self) -> None:
        """Frees the model's memory; the engine cannot answer afterwards."""
        self._needed.close()
        self._loaded = None
        del self._needed

    def _score_all(self, works: Sequence[TokenWork]) -> list[Score]:
        """The scores of all sequences, in their order, whatever the batches."""
        kind = self._model.device.type
        scores: dict[int, Score] = {}
        for batch in batches(
            works,
            size=self._batch,
            most_tokens=_TOKENS.get(kind, _TOKENS["cpu"]),
            most_logits=_LOGITS.get(kind, _LOGITS["cpu"]),
            vocabulary=self._vocabulary,
        ):
            scores.update(zip(batch, self._score([works[index] for index in batch]), strict=True))
        return [scores[index] for index in range(len(works))]

    def _score(self, works: Sequence[TokenWork]) -> list[Score]:
        """One forward pass. Sums are taken in float64 on the CPU, so that their order cannot matter."""
        import torch

        rows = [row for row, work in enumerate(works) for _ in work.targets]
        positions = [
            position
            for work in works
            for position in range(len(work.inputs) - len(work.targets), len(work.inputs))
        ]
        targets = [target for work in works for target in work.targets]
        logprobs = self._needed.logprobs(self._inputs(works), rows, positions)
        wanted = torch.tensor(targets, device=logprobs.device)
        chosen = logprobs.gather(1, wanted[:, None])[:, 0].cpu().double()
        greedy = (logprobs.argmax(dim=1) == wanted).cpu()
        ends = list(accumulate(len(work.targets) for work in works))
        return [
            Score(float(chosen[begin:end].sum()), bool(greedy[begin:end].all()))
            for begin, end in zip([0, *ends], ends, strict=False)
        ]

    def _inputs(self, works: Sequence[TokenWork]) -> dict[str, Any]:
        """Input ids and attention mask [rows, longest], padded on the right with any token."""
        import torch

        longest = max(len(work.inputs) for work in works)
        ids = torch.zeros((len(works), longest), dtype=torch.long)
        mask = torch.zeros((len(works), longest), dtype=torch.long)
        for row, work in enumerate(works):
            ids[row, : len(work.inputs)] = torch.tensor(work.inputs)
            mask[row, : len(work.inputs)] = 1
        device = self._model.device
        return {"input_ids": ids.to(device), "attention_mask": mask.to(device), "use_cache": False}

    @property
    def _model(self) -> Any:
        assert self._loaded is not None, "the engine is closed"
        return self._loaded.model
