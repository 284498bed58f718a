"""What the engines of causal and of masked models have in common: a loaded model and the counts of its work.

Makes what an engine needs for a request, its tokens, in a thread of its own, before it is asked for.

A fast tokenizer works outside of Python's lock, so a text can be cut while the model computes. Texts are cut in
that one thread alone: transformers sets how a tokenizer cuts (truncation, padding) before every text, which two
threads must not do at once. The thread that runs the model uses the tokenizer meanwhile, but only to read
generated tokens, which changes nothing about it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from harness.checkpoints import CheckpointInfo
from harness.core.requests import Request
from harness.engines.base import SLOW_WAYS
from harness.engines.transformers.loading import Loaded
from harness.engines.transformers.logits import SelectiveLogits
from harness.engines.transformers.memory import first_batch_budget
from harness.engines.transformers.scoring.plan import WorkDone

_LOG: Final = logging.getLogger(__name__)

Made = TypeVar("Made")


class ModelEngine(Generic[Made]):
    """The common part of engines with a model; what they make of requests ahead of time is ``Made``.

    ``work_done``: what has gone through the model so far; ``budget``: how much is computed at once.
    """

    def __init__(
        self, info: CheckpointInfo, loaded: Loaded, make: Callable[[Sequence[Request]], list[Made]]
    ) -> None:
        self.info = info
        self._held: Loaded | None = loaded
        self._ahead = PretokenizeQueue(make)
        self.work_done = WorkDone()
        self._needed = SelectiveLogits(loaded.model, self.work_done)
        self._rows = int(loaded.model.get_input_embeddings().weight.shape[0])
        self.budget = first_batch_budget(loaded.model, self._rows)
        self._loaded_notes, self._slow = loaded.notes, dict[str, str]()

    @property
    def gathers(self) -> bool:
        """Whether logits are computed at the needed positions only."""
        return self._needed.gathers

    @property
    def effort(self) -> dict[str, Any]:
        """What answering has cost so far."""
        return self.work_done.effort(self.budget, self._loaded_notes, self._slow)

    @property
    def notes(self) -> list[str]:
        """What works otherwise than usual with this checkpoint."""
        return [*self._loaded_notes, *map(self._slow_note, self._slow)]

    def prepare(self, requests: Sequence[Request]) -> None:
        """Cuts texts that will be asked about into tokens, while the model computes."""
        self._ahead.begin(requests)

    def close(self) -> None:
        """Frees the model's memory; the engine cannot answer afterwards."""
        self._ahead.close()
        self._needed.close()
        self._held = None
        del self._needed

    def _goes_slowly(self, way: str, reason: str) -> None:
        """Logs that a slow way (``SLOW_WAYS``) has to be gone, each reason once; what it costs is told in the run's
        report."""
        known = reason in self._slow.values()
        self._slow[way] = reason
        if not known:
            _LOG.warning("%s", self._slow_note(way))

    def _slow_note(self, way: str) -> str:
        return f"{self.info.path}: {SLOW_WAYS[way][0]}, which is slow: {self._slow[way]}"

    @property
    def loaded(self) -> Loaded:
        """The model and its tokenizer, until the engine is closed."""
        assert self._held is not None, "the engine is closed"
        return self._held


_CALLS: Final = 2
"""What is prepared counts for so many calls of ``begin``: the unit that computes, and the next."""


class PretokenizeQueue(Generic[Made]):
    """Calls ``make`` with lists of requests; it gives one result a request, whatever else is in the list."""

    def __init__(self, make: Callable[[Sequence[Request]], list[Made]]) -> None:
        self._make = make
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="touchstone-ahead")
        self._begun: deque[tuple[dict[Request, int], Future[list[Made]]]] = deque(maxlen=_CALLS)

    def begin(self, requests: Sequence[Request]) -> None:
        """Returns at once; the results will be there when they are asked for."""
        numbers = {request: number for number, request in enumerate(dict.fromkeys(requests))}
        if numbers:
            self._begun.append((numbers, self._thread.submit(self._make, list(numbers))))

    def made(self, requests: Sequence[Request]) -> list[Made]:
        """One result a request, in order; raises what ``make`` raises for these requests."""
        found = [self._find(request) for request in requests]
        missing = [request for request, one in zip(requests, found, strict=True) if one is None]
        rest = iter(self._thread.submit(self._make, missing).result() if missing else ())
        return [next(rest) if one is None else one[0] for one in found]

    def close(self) -> None:
        """Ends the thread."""
        self._begun.clear()
        self._thread.shutdown(cancel_futures=True)

    def _find(self, request: Request) -> tuple[Made] | None:
        """What was prepared for a request, once it is ready; nothing where a list could not be prepared, so
        that only the one who asks for a faulty request gets its error."""
        for numbers, future in self._begun:
            if (number := numbers.get(request)) is not None and future.exception() is None:
                return (future.result()[number],)
        return None
