"""Computes logits only where they are needed.

The vocabulary head is the widest layer of a small model, and most positions' logits are thrown away. A hook before
the model's own output layer picks the hidden states of the needed positions. So everything from there on (bias, ties,
softcaps, scales) is the model's own code, on fewer rows. Where the layers are fused, the last of them picks already,
after its attention.

``verify`` tests whether that holds for a model: it compares both ways on a probe when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.agreement import UnsupportedError, difference
from pytest_touchstone.engines.transformers.devices import AsyncHostCopy, all_to_device
from pytest_touchstone.engines.transformers.fused_layers import last_layer
from pytest_touchstone.engines.transformers.token_work import WorkDone

if TYPE_CHECKING:
    import torch

_AT_ONCE: Final = 8
"""The rows of logits whose exponentials a CPU computes at once; measured for 2 to 150."""


class SelectiveLogits:
    """Runs a model and returns the float32 logits at chosen positions."""

    def __init__(self, model: Any, done: WorkDone) -> None:
        """Set up the selection; ``done`` receives the cost if all logits are computed."""
        self._model, self._done = model, done
        self._heap = cpu.GrowingHeap(model.device)
        self._where: tuple[torch.Tensor, torch.Tensor] | None = None
        self._called = 0
        self._picks_early = False
        layer = model.get_output_embeddings()
        self._hook = layer.register_forward_pre_hook(self._gather) if layer is not None else None

    @property
    def gathers(self) -> bool:
        """Whether only the needed logits are computed; else all are computed, and the needed ones picked."""
        return self._hook is not None

    def logits(
        self, inputs: dict[str, torch.Tensor], rows: Sequence[int], positions: Sequence[int]
    ) -> torch.Tensor:
        """Return logits [N, vocabulary] in float32 at the N places (rows[i], positions[i]) of a batch."""
        row, position = all_to_device([list(rows), list(positions)], inputs["input_ids"].device)
        return self.logits_at(inputs, (row, position))

    def logits_at(
        self, inputs: dict[str, torch.Tensor], where: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """Return float32 logits [N, vocabulary] at rows and positions [N] that are on the device."""
        import torch

        with torch.inference_mode():
            if self.gathers:
                logits = self._gathered(inputs, where).float()
            else:
                self._done.slowly("logits", inputs["input_ids"].numel(), len(where[0]))
                logits = self._full(inputs, where).float()
        self._heap.trim()
        return logits

    def verify(self, inputs: dict[str, torch.Tensor]) -> str | None:
        """Compare selected logits with the full ones on a probe; compute all if they differ.

        Return None where they agree, else the difference.
        """
        import torch

        if self._hook is None:
            return "the model has no output layer of its own"
        rows, columns = inputs["input_ids"].shape
        # Places out of their natural order, one of them twice, so that a chance agreement is unlikely.
        places = [[rows - 1, 0, 0], [columns // 2, columns - 1, columns // 2]]
        row, column = torch.tensor(places, device=inputs["input_ids"].device)
        with torch.inference_mode():
            different = difference(
                self._model,
                lambda: self._full(inputs, (row, column)).float(),
                lambda: self._gathered(inputs, (row, column)).float(),
            )
        if different is not None:
            self.close()
        return different

    def close(self) -> None:
        """Remove the hook from the model."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _full(
        self, inputs: dict[str, torch.Tensor], where: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        logits: torch.Tensor = self._model(**inputs).logits
        return logits[where[0].to(logits.device), where[1].to(logits.device)]

    def _gathered(
        self, inputs: dict[str, torch.Tensor], where: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        self._where, self._called = where, 0
        layer: Any = last_layer(self._model)
        self._picks_early = layer is not None and len(where[0]) < inputs["input_ids"].numel()
        if self._picks_early:
            layer.wanted = where
        try:
            logits: torch.Tensor = self._model(**inputs).logits
        finally:
            self._where = None
            if self._picks_early:
                layer.wanted = None
        if self._called != 1:
            raise UnsupportedError(f"the output layer ran {self._called} times in one forward pass")
        return logits[0]

    def _gather(self, _module: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Apply the hook: [batch, length, width] -> [1, N, width]; it does nothing outside ``_gathered``."""
        if self._where is None:
            return None
        self._called += 1
        hidden = args[0]
        if self._picks_early and hidden[..., 0].numel() == len(self._where[0]):
            return None  # the last layer has done it
        row, column = (places.to(hidden.device) for places in self._where)  # of a model on several devices
        return (hidden[row, column].unsqueeze(0), *args[1:])


class TargetScores:
    """The log-probabilities of targets, on their way to the host.

    ``log_softmax`` is not used: on a CPU its float32 sums over a large vocabulary are off by 1e-5 per token, always
    in the same direction, ten times as much as those of ``sum``.
    """

    def __init__(self, logits: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor) -> None:
        """Row ``rows[i]`` of the logits [N, vocabulary] is where ``targets[i]`` is asked for."""
        import torch

        row, target = rows.to(logits.device), targets.to(logits.device)  # of a model on several devices
        sums, tokens = _log_sums(logits)
        logprobs = logits[row, target] - sums[row]
        self._found = AsyncHostCopy(torch.stack((logprobs, (tokens[row] == target).to(logprobs.dtype))))

    def read(self) -> list[tuple[float, bool]]:
        """Return for each target its log-probability, and whether it is the most probable token."""
        logprobs, greedy = self._found.numbers()
        return list(zip(logprobs, map(bool, greedy), strict=True))


def _log_sums(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-sum-exp and the argmax of each row of logits [N, vocabulary].

    On a CPU without kernels, a few rows at a time, which stay in a core's cache, and take no second memory of the same
    size.
    """
    import torch

    if logits.dtype == torch.float32 and cpu.has_kernels_for(logits):
        return cpu.log_sums(logits)
    best, tokens = logits.max(dim=-1)  # on a CPU four times as fast as ``argmax``
    most = best.masked_fill(best.isinf(), 0.0)  # infinity less infinity is no number
    at_once = min(len(logits), _AT_ONCE) if logits.device.type == "cpu" else len(logits)
    kept, sums = torch.empty_like(logits[:at_once]), torch.empty_like(best)
    for first in range(0, len(logits), max(1, at_once)):
        rows = slice(first, first + at_once)
        below = torch.sub(logits[rows], most[rows, None], out=kept[: len(best[rows])])
        torch.sum(below.exp_(), dim=-1, out=sums[rows])
    return sums.log_().add_(most), tokens


def read_targets(
    logits: torch.Tensor, rows: Sequence[int], targets: Sequence[int]
) -> list[tuple[float, bool]]:
    """Return for each target its log-probability, and whether it is the most probable token."""
    return TargetScores(logits, *all_to_device([list(rows), list(targets)], logits.device)).read()
