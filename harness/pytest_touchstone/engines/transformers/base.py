"""The common part of the engines of causal and of masked models: a loaded model and the counts of its work.

A thread of its own tokenizes requests before they are asked for. A fast tokenizer works outside Python's lock, so
texts can be tokenized while the model computes.

Only that thread tokenizes: transformers sets the tokenizer's truncation and padding before every text, which two
threads must not do at once. Meanwhile the thread that runs the model uses the tokenizer only to decode generated
tokens, which changes nothing in it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.requests import Request
from pytest_touchstone.engines.base import SLOW_WAYS, Engine, EngineProgress
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.adapters import Adapters
from pytest_touchstone.engines.transformers.agreement import (
    BatchingConstraint,
    IndependenceProbe,
    VerifiedKernels,
)
from pytest_touchstone.engines.transformers.compat import heard, quiet
from pytest_touchstone.engines.transformers.devices import copies_notes, devices_of, first_batch_budget
from pytest_touchstone.engines.transformers.loading import LoadedModel
from pytest_touchstone.engines.transformers.logits import SelectiveLogits
from pytest_touchstone.engines.transformers.token_work import TokenWork, WorkDone

_LOG: Final = logging.getLogger(__name__)

Made = TypeVar("Made")


class ModelEngine(Engine, Generic[Made]):
    """The common part of engines with a model; ``Made`` is the type of a prepared request.

    ``loaded`` is the model and its tokenizer, until the engine is closed. ``work_done`` counts what has gone through
    the model so far; ``budget`` limits what is computed at once. Where engines share the model, ``adapters`` are those
    of it, and ``adapter`` is the name of this engine's own, None for the base. ``has_neighbours``: others of the base's
    adapters, by PEFT, are in memory too.
    """

    def __init__(
        self,
        info: CheckpointInfo,
        loaded: LoadedModel,
        make: Callable[[Sequence[Request]], list[Made]],
        settings: ModelSettings,
    ) -> None:
        self.info = info
        self.adapters: Adapters | None = None
        self.adapter: str | None = None
        self.has_neighbours = False
        self.loaded = loaded
        self._ahead = PretokenizeQueue(make)
        self.work_done = WorkDone()
        self._needed = SelectiveLogits(loaded.model, self.work_done)
        self._rows = int(loaded.model.get_input_embeddings().weight.shape[0])
        self.budget = first_batch_budget(loaded.model, self._rows, settings, info.path)
        self._devices = devices_of(loaded.model)
        copies = copies_notes(settings.device, loaded.model.device, settings.processes)
        self._loaded_notes, self._slow = (*loaded.notes, *copies), dict[str, str]()

    @property
    def usage(self) -> dict[str, Any]:
        """The counts of the work done so far."""
        return {
            **self.work_done.usage(self._slow),
            "batch_tokens": self.budget.tokens,
            "notes": list(self._loaded_notes),
            **({"devices": self._devices} if self._devices else {}),
        }

    @property
    def notes(self) -> list[str]:
        """Notes on what works differently from usual with this checkpoint."""
        return [*self._loaded_notes, *map(self._slow_note, self._slow)]

    def progress(self) -> EngineProgress:
        """Return the work so far, also while a call is under way."""
        return self.work_done.progress()

    def prepare(self, requests: Sequence[Request]) -> None:
        """Tokenize texts of coming requests, while the model computes."""
        self._ahead.begin(requests)

    def close(self) -> None:
        """Free the model's memory; the engine cannot answer afterwards."""
        self._ahead.close()
        self._needed.close()
        if self.adapters is not None and self.adapter is not None:
            self.adapters.drop(self.adapter)
        self.adapters = None
        del self.loaded, self._needed

    def _put_on_adapter(self) -> None:
        """Make a model that engines share this engine's own."""
        if self.adapters is not None:
            self.adapters.put_on(self.adapter)

    def _goes_slowly(self, way: str, reason: str) -> None:
        """Record and log a slow way (``SLOW_WAYS``), each reason once; the run's report has its cost."""
        is_logged = reason in self._slow.values()
        self._slow[way] = reason
        if not is_logged:
            _LOG.warning("%s", self._slow_note(way))

    def _company(
        self, inputs: Callable[[Sequence[TokenWork]], dict[str, Any]], ways: VerifiedKernels, *, causal: bool
    ) -> BatchingConstraint:
        """Probe which rows may be computed together; the report has the cost if not all may.

        Raises ``CheckpointError`` where the model is not what it should be (``IndependenceProbe``).
        """
        probe = IndependenceProbe(
            self.loaded.model,
            lambda rows: inputs([TokenWork(row, (0,)) for row in rows]),
            path=self.info.path,
            vocabulary=self._rows,
            seq_len=self.info.seq_len,
            ways=ways,
        )
        company = probe.company(causal=causal)
        if company.reason:
            self._goes_slowly("batching", company.reason)
            if (
                getattr(self.loaded.model, "hf_quantizer", None) is not None
            ):  # scores depend on it, not time alone
                self._note(f"texts are computed apart: {company.reason}")
        return company

    def _note(self, text: str) -> None:
        """Add a note of what works differently from usual, and log it once."""
        self.note_all([f"{self.info.path}: {text}"])

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Keep libraries from the terminal within the block; what they warn of is noted."""
        with heard() as warnings, quiet():
            yield
        self.note_all(warnings.notes(self.info.path))

    def note_all(self, notes: Iterable[str]) -> None:
        """Add notes that name the checkpoint, and log each of them once."""
        for note in notes:
            if note not in self._loaded_notes:
                self._loaded_notes = (*self._loaded_notes, note)
                _LOG.warning("%s", note)

    def _slow_note(self, way: str) -> str:
        return f"{self.info.path}: {SLOW_WAYS[way][0]}, which is slow: {self._slow[way]}"


_CALLS: Final = 2
"""Calls of ``begin`` for which prepared work is kept: the batch that computes, and the next."""


class PretokenizeQueue(Generic[Made]):
    """Prepares requests ahead in a thread; ``make`` returns one result per request of a list."""

    def __init__(self, make: Callable[[Sequence[Request]], list[Made]]) -> None:
        self._make = make
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="touchstone-ahead")
        self._begun: deque[tuple[dict[Request, int], Future[list[Made]]]] = deque(maxlen=_CALLS)

    def begin(self, requests: Sequence[Request]) -> None:
        """Start preparing requests, and return at once."""
        numbers = {request: number for number, request in enumerate(dict.fromkeys(requests))}
        if numbers:
            self._begun.append((numbers, self._thread.submit(self._make, list(numbers))))

    def made(self, requests: Sequence[Request]) -> list[Made]:
        """Return one result per request, in order; raise what ``make`` raises for these requests."""
        prepared: dict[Request, Made] = {}
        missing = dict.fromkeys(requests)
        for numbers, future in self._begun:
            begun = [request for request in missing if request in numbers]
            # If a list could not be prepared, only the caller with the faulty request gets its error.
            if begun and future.exception() is None:
                made = future.result()
                prepared.update((request, made[numbers[request]]) for request in begun)
                missing = dict.fromkeys(request for request in missing if request not in prepared)
        others = [request for request in requests if request in missing]  # equal ones are made one by one
        rest = iter(self._thread.submit(self._make, others).result() if others else ())
        return [next(rest) if request in missing else prepared[request] for request in requests]

    def close(self) -> None:
        """End the thread."""
        self._begun.clear()
        self._thread.shutdown(cancel_futures=True)
