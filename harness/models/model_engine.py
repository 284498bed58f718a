"""What the engines of causal and of masked models have in common: a loaded model and the counts of its work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from harness.checkpoints import CheckpointInfo
from harness.effort import SLOW_WAYS
from harness.models.ahead import Ahead
from harness.models.budget import Budget, first_budget
from harness.models.loading import Loaded
from harness.models.needed import NeededLogits
from harness.models.work import WorkDone
from harness.requests import Request

_LOG: Final = logging.getLogger(__name__)

Made = TypeVar("Made")


class ModelEngine(Generic[Made]):
    """The common part of engines with a model; what they make of requests ahead of time is ``Made``."""

    def __init__(
        self, info: CheckpointInfo, loaded: Loaded, make: Callable[[Sequence[Request]], list[Made]]
    ) -> None:
        self._info = info
        self._loaded: Loaded | None = loaded
        self._ahead = Ahead(make)
        self._done = WorkDone()
        self._needed = NeededLogits(loaded.model, self._done)
        self._rows = int(loaded.model.get_input_embeddings().weight.shape[0])
        self._budget = first_budget(loaded.model, self._rows)
        self._loaded_notes, self._slow = loaded.notes, dict[str, str]()

    @property
    def info(self) -> CheckpointInfo:
        """What the checkpoint is."""
        return self._info

    @property
    def gathers(self) -> bool:
        """Whether logits are computed at the needed positions only."""
        return self._needed.gathers

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
        return self._done.effort(self._budget, self._loaded_notes, self._slow)

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
        self._loaded = None
        del self._needed

    def _goes_slowly(self, way: str, reason: str) -> None:
        """Logs that a slow way (``SLOW_WAYS``) has to be gone, each reason once; what it costs is told in the run's
        report."""
        known = reason in self._slow.values()
        self._slow[way] = reason
        if not known:
            _LOG.warning("%s", self._slow_note(way))

    def _slow_note(self, way: str) -> str:
        return f"{self._info.path}: {SLOW_WAYS[way][0]}, which is slow: {self._slow[way]}"

    @property
    def _open(self) -> Loaded:
        assert self._loaded is not None, "the engine is closed"
        return self._loaded
