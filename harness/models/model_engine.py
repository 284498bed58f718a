"""What the engines of causal and of masked models have in common: a loaded model and the counts of its work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from harness.checkpoints import CheckpointInfo
from harness.models.ahead import Ahead
from harness.models.budget import Budget, first_budget
from harness.models.loading import Loaded
from harness.models.needed import NeededLogits
from harness.models.work import WorkDone
from harness.requests import Request

Made = TypeVar("Made")


class ModelEngine(Generic[Made]):
    """The common part of engines with a model; what they make of requests ahead of time is ``Made``.

    ``notes`` say what works otherwise than usual with this checkpoint.
    """

    def __init__(
        self, info: CheckpointInfo, loaded: Loaded, make: Callable[[Sequence[Request]], list[Made]]
    ) -> None:
        self._info = info
        self._loaded: Loaded | None = loaded
        self._ahead = Ahead(make)
        self._needed = NeededLogits(loaded.model)
        self._rows = int(loaded.model.get_input_embeddings().weight.shape[0])
        self._budget = first_budget(loaded.model, self._rows)
        self._done = WorkDone()
        self.notes: list[str] = []

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
        return self._done.effort(self._budget, self.notes)

    def prepare(self, requests: Sequence[Request]) -> None:
        """Cuts texts that will be asked about into tokens, while the model computes."""
        self._ahead.begin(requests)

    def close(self) -> None:
        """Frees the model's memory; the engine cannot answer afterwards."""
        self._ahead.close()
        self._needed.close()
        self._loaded = None
        del self._needed

    @property
    def _open(self) -> Loaded:
        assert self._loaded is not None, "the engine is closed"
        return self._loaded
