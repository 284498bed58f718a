"""The engine of causal language models: log-likelihoods of continuations and of whole texts.

Sequences are scored with every shared beginning computed once (``shared_prefix``), or one a row (``plain``)
where a model, tried with a probe when it is loaded, does not give the same scores that way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from harness.checkpoints import CheckpointInfo
from harness.models.ahead import Ahead
from harness.models.budget import Budget, first_budget
from harness.models.loading import Loaded, quiet
from harness.models.masks import attention_of
from harness.models.needed import TOLERANCE, NeededLogits
from harness.models.plain import Plain
from harness.models.shared_prefix import SharedPrefix
from harness.models.tokenization import TextTokenizer
from harness.models.work import Plan, TokenWork, WorkDone, plan
from harness.requests import Answer, Refusal, Request

_LOG: Final = logging.getLogger(__name__)

_PROBE_TOKENS: Final = 24


class CausalEngine:
    """Answers ``Loglikelihood`` and ``RollingLoglikelihood``.

    ``notes`` say what works otherwise than usual with this checkpoint; each is logged once.
    """

    def __init__(self, info: CheckpointInfo, loaded: Loaded, *, batch: int | None = None) -> None:
        self._info = info
        self._loaded: Loaded | None = loaded
        self._tokenizer = TextTokenizer(loaded.tokenizer)
        self._ahead: Ahead[Plan | Refusal] = Ahead(self._plans)
        self._needed = NeededLogits(loaded.model)
        self._vocabulary = int(loaded.model.get_input_embeddings().weight.shape[0])
        self._done = WorkDone()
        self._budget = first_budget(loaded.model, self._vocabulary)
        self.notes: list[str] = []
        how: dict[str, Any] = {"vocabulary": self._vocabulary, "budget": self._budget, "batch": batch}
        self._plain = Plain(loaded.model, self._needed, **how, done=self._done)
        self._shared: SharedPrefix | None = None
        with quiet():
            probe = [TokenWork(tuple(range(length)), (0,)) for length in (min(5, info.seq_len), 3)]
            self._needed.verify(self._plain.inputs(probe))
            self._shared = self._verified(how)
        self._done.reset()

    @property
    def info(self) -> CheckpointInfo:
        """What the checkpoint is."""
        return self._info

    @property
    def gathers(self) -> bool:
        """Whether logits are computed at the needed positions only."""
        return self._needed.gathers

    @property
    def shares(self) -> bool:
        """Whether shared beginnings are computed once."""
        return self._shared is not None

    @property
    def work_done(self) -> WorkDone:
        """What has gone through the model so far."""
        return self._done

    @property
    def budget(self) -> Budget:
        """How much is computed at once."""
        return self._budget

    @property
    def effort(self) -> dict[str, Any]:
        """What answering has cost so far."""
        return self._done.effort(self._budget, self.notes)

    def answer(self, requests: Sequence[Request]) -> list[Answer | Refusal]:
        """One answer a request, in the order asked; what cannot be answered gets a ``Refusal``."""
        plans = self._ahead.made(requests)
        works = [work for made in plans if isinstance(made, Plan) for work in made.work]
        with quiet():
            scores = iter((self._shared or self._plain).score(works))
        return [
            made.answer([next(scores) for _ in made.work]) if isinstance(made, Plan) else made
            for made in plans
        ]

    def prepare(self, requests: Sequence[Request]) -> None:
        """Cuts texts that will be asked about into tokens, while the model computes."""
        self._ahead.begin(requests)

    def close(self) -> None:
        """Frees the model's memory; the engine cannot answer afterwards."""
        self._ahead.close()
        self._needed.close()
        self._loaded = self._shared = None
        del self._needed, self._plain

    def _plans(self, requests: Sequence[Request]) -> list[Plan | Refusal]:
        seq_len, rows = self._info.seq_len, self._vocabulary
        return [plan(request, self._tokenizer, seq_len=seq_len, rows=rows) for request in requests]

    def _verified(self, how: dict[str, Any]) -> SharedPrefix | None:
        """The shared way, if the model can go it and gives a probe's scores alike; else None and a note."""
        attention = attention_of(self._model)
        if isinstance(attention, str):
            self._note(attention)
            return None
        shared = SharedPrefix(self._model, self._needed, attention, **how, done=self._done)
        works = _probe(min(_PROBE_TOKENS, self._info.seq_len), self._vocabulary)
        tolerance = TOLERANCE.get(str(self._model.dtype).removeprefix("torch."), 1e-3)
        different = shared.verify(
            works, self._plain.score, tolerance * max(len(work.targets) for work in works)
        )
        if different is not None:
            self._note(different)
            return None
        return shared

    def _note(self, reason: str) -> None:
        self.notes.append(f"{self._info.path}: every sequence is computed by itself, which is slow: {reason}")
        _LOG.warning("%s", self.notes[-1])

    @property
    def _model(self) -> Any:
        assert self._loaded is not None, "the engine is closed"
        return self._loaded.model


def _probe(length: int, vocabulary: int) -> list[TokenWork]:
    """Sequences up to ``length`` tokens with a beginning, three branches at different depths, and one of
    another beginning."""
    tokens = [(7 * number + 3) % min(vocabulary, 997) for number in range(2 * length)]
    stem, half = tokens[: length // 2], length // 4
    paths = [
        [*stem, *tokens[length : length + half]],
        [*stem, *tokens[length : length + half // 2], *tokens[2 : 2 + half]],
        [*stem, *tokens[3 : 3 + half // 2]],
        tokens[5 : 5 + half + 1],
        stem,
    ]
    works = []
    for number, path in enumerate(path for path in paths if path):
        targets = tokens[number : number + min(3, len(path))]
        works.append(TokenWork(tuple(path), tuple(targets)))
    return works
