"""Steps on an accelerator that the host does not wait for.

A step's tokens are the next step's input, and stay on the device. The host gives the device a block of ``STEPS`` steps,
one after the other, and reads the tokens of the first while the others run. So there is one wait per block, at its
end, and stop sequences are looked for while the device computes. The tokens of a row after its end are dropped.

What a block begins with is sent at once, and the random numbers of its draws. A step has static shapes (``_Block``):
the rows and the columns that they see are rounded up, and a row that has its most tokens stands still. Hence, where the
same shapes and buffers come again, a step on a GPU is captured as a CUDA graph and replayed from then on, which saves
the launches of its kernels. That takes as long as two launched steps. Elsewhere the same function runs without capture;
the tests compare it with the plain step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.engines.transformers.compat import collector_paused, is_out_of_memory
from pytest_touchstone.engines.transformers.devices import Reading, to_device
from pytest_touchstone.engines.transformers.generation.sequence import (
    SHORT,
    SamplingParams,
    Warps,
    draw,
    numbers_of,
    warps_of,
)
from pytest_touchstone.engines.transformers.generation.step import DecodeStep, Groups
from pytest_touchstone.engines.transformers.kv_cache import SlotCache, enlarged

if TYPE_CHECKING:
    import torch

AHEAD: Final = frozenset({"cuda"})
"""The kinds of devices that the host does not wait for."""

STEPS: Final = 8
"""The steps of a block. A row that ends computes at most so many tokens for nothing, less one."""

_COLUMNS: Final = 256
"""Columns are rounded up to multiples of this, so that shapes come again."""

_ROWS: Final = 8
"""Rows are rounded up to multiples of this, or of an eighth of the next power of two (``rounded``)."""

_BLOCKS: Final = 8
"""The number of shapes for which buffers and graphs are kept."""


def rounded(rows: int) -> int:
    """Return the number of rows that a step computes for so many, up to 8 or a quarter more; there are 16 up to 256.

    Each number has graphs of its own, and making one takes as long as two launched steps.
    """
    multiple = max(_ROWS, 2 ** ((rows - 1).bit_length() - 3)) if rows > 1 else _ROWS
    return -(-rows // multiple) * multiple


class _Shape(NamedTuple):
    """All that is fixed in a step: the caches' buffers, the rows of each and the columns that they see, and the rows
    that are drawn."""

    stamps: tuple[Hashable, ...]
    rows: tuple[int, ...]
    until: tuple[int, ...]
    warps: Warps
    complete: bool


class _Block:
    """A block's buffers on the device: ``numbers`` and ``out`` [steps, rows], ``ids``, ``columns`` and ``last`` [rows,
    1]; ``last`` is the column where a row stands still."""

    def __init__(self, shape: _Shape, steps: int, device: torch.device) -> None:
        import torch

        self.shape, rows = shape, sum(shape.rows)
        self._begin = torch.zeros((3, rows, 1), dtype=torch.long, device=device)
        self.ids, self.columns, self.last = self._begin
        self.numbers = torch.zeros((steps, rows), dtype=torch.float64, device=device)
        self.out = torch.zeros((steps, rows), dtype=torch.long, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.where = torch.arange(rows, device=device), torch.zeros(rows, dtype=torch.long, device=device)
        self.places: dict[SamplingParams, torch.Tensor] = {
            warp: to_device(numbers, device) for warp, numbers in shape.warps
        }
        self.logits: torch.Tensor | None = None
        self.ran = False
        self.graph: Any = None

    def load(
        self,
        ids: Sequence[int],
        columns: Sequence[int],
        last: Sequence[int],
        numbers: Sequence[Sequence[float]],
    ) -> None:
        """Send what a block begins with."""
        import torch

        device = self.ids.device
        begin = to_device([ids, columns, last], device, torch.long)
        self._begin.copy_(begin[:, :, None], non_blocking=True)
        if self.places:
            sent = to_device(numbers, device, torch.float64)
            self.numbers[: len(numbers)].copy_(sent, non_blocking=True)
        self.at.zero_()


class AheadStepper(DecodeStep):
    """Runs blocks of steps; ``capture`` makes a graph of one that comes again, None where steps are not captured."""

    def __init__(
        self,
        *arguments: Any,
        capture: Capture | None = None,
        refused: Callable[[], None] | None = None,
        **more: Any,
    ) -> None:
        """``refused`` is called where a step cannot be captured."""
        super().__init__(*arguments, **more)
        self._capture, self._refused = capture, refused
        self._blocks: OrderedDict[_Shape, _Block] = OrderedDict()
        self._complete: set[SamplingParams] = set()

    def reaches(self, longest: int) -> int:
        """Return the columns that a slot needs for the next block, where it holds ``longest`` tokens."""
        return -(-(longest + STEPS) // _COLUMNS) * _COLUMNS

    def advance_all(self, groups: Groups) -> Iterator[list[list[list[int | None]]]]:
        """Yield the next token of each sample, step by step, while the device computes the others of a block.

        There are as many steps as the row that may become longest has left; no row goes beyond its most tokens.
        """
        samples = [sample for _, some in groups for sample in some]
        left = [one.prompt.request.max_new_tokens - len(one.tokens) for one in samples]
        steps = min(STEPS, max(left))
        drawn = max([one.prompt.request.temperature for one in samples]) > 0
        warps = warps_of([sample.draw for sample in samples]) if drawn else ()
        block, rows = self._block([slots for slots, _ in groups], warps)
        self._load(block, groups, rows, left, steps)
        readings = []
        for at in range(steps):
            self._run(block, [slots for slots, _ in groups])
            readings.append(Reading(block.out[at]))
        block.logits = None  # a vocabulary for each row
        for at, reading in enumerate(readings):
            tokens = reading.numbers()
            mine = [tokens[row] for row in rows]
            if SHORT in mine:
                # The whole vocabulary has to be sorted; the next block begins with this step again.
                self._complete |= block.places.keys()
                return
            for slots, _ in groups:
                slots.lengths = [length + 1 for length in slots.lengths]
            self._done.stepped(sum([more > at for more in left]))
            self._done.decoded += len(rows)
            found: list[list[int | None]] = [[token if token >= 0 else None] for token in mine]
            ends = accumulate(len(some) for _, some in groups)
            yield [found[end - len(some) : end] for end, (_, some) in zip(ends, groups, strict=True)]

    def logits_of(self, slots: Sequence[SlotCache], tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return what ``step_all`` returns, computed as a block's step: often enough that a graph is replayed."""
        import torch

        block, rows = self._block(slots, ())
        ids, columns = (
            _padded(block.shape.rows, tokens),
            _padded(block.shape.rows, [one.lengths for one in slots]),
        )
        for _ in range(3):  # launched, captured, replayed
            block.load(ids, columns, [column + 1 for column in columns], ())
            self._run(block, slots)
        for one in slots:
            one.lengths = [length + 1 for length in one.lengths]
        assert block.logits is not None, "a step has logits"
        return block.logits[torch.tensor(rows, device=block.logits.device)].clone()

    def _block(self, caches: Sequence[SlotCache], warps: Warps) -> tuple[_Block, list[int]]:
        """Return the buffers for such a step, and the row in them of each row of the caches."""
        until = tuple(self.reaches(max(slots.lengths)) for slots in caches)
        for slots, end in zip(caches, until, strict=True):
            slots.reserve(len(slots.lengths), enlarged(slots.columns, end))
        # Rows beyond those in use compute what nobody reads; their slots are filled before they are used.
        counts = tuple(
            max(len(slots.lengths), min(slots.rows, rounded(len(slots.lengths)))) for slots in caches
        )
        rows = [
            sum(counts[:number]) + row
            for number, slots in enumerate(caches)
            for row in range(len(slots.lengths))
        ]
        # Where all are drawn alike, so are the rows beyond them: the shape does not change with each row that ends.
        alike = len(warps) == 1 and len(warps[0][1]) == len(rows)
        placed = tuple(
            (warp, tuple(range(sum(counts))) if alike else tuple(rows[one] for one in some))
            for warp, some in warps
        )
        complete = any(warp in self._complete for warp, _ in warps)
        shape = _Shape(tuple(slots.stamp for slots in caches), counts, until, placed, complete)
        if (block := self._blocks.pop(shape, None)) is None:
            block = _Block(shape, STEPS, self._model.device)
        self._blocks[shape] = block
        while len(self._blocks) > _BLOCKS:
            self._blocks.popitem(last=False)
        return block, rows

    def _load(
        self, block: _Block, groups: Groups, rows: Sequence[int], left: Sequence[int], steps: int
    ) -> None:
        counts = block.shape.rows
        ids = _padded(counts, [[sample.tokens[-1] for sample in some] for _, some in groups])
        columns = _padded(counts, [slots.lengths for slots, _ in groups])
        last = columns.copy()
        for row, more in zip(rows, left, strict=True):
            last[row] += more
        numbers: list[list[float]] = []
        if block.places:
            draws = [sample.draw for _, some in groups for sample in some]
            for ahead in range(steps):
                numbers.append([0.0] * len(ids))
                for row, number in zip(rows, numbers_of(draws, ahead), strict=True):
                    numbers[-1][row] = number
        block.load(ids, columns, last, numbers)

    def _run(self, block: _Block, caches: Sequence[SlotCache]) -> None:
        """Give the device the next step of a block."""
        self._done.computed += len(block.ids)
        self._done.continued += len(block.ids)
        self._done.padded += len(block.ids) - sum(len(slots.lengths) for slots in caches)
        self._done.logits += len(block.ids)
        if block.ran and block.graph is None and self._capture is not None:
            block.graph = self._capture(lambda: self._step(block, caches))
            if block.graph is None:
                self._capture = None
                if self._refused is not None:
                    self._refused()
        block.ran = True
        if block.graph is None:
            self._step(block, caches)
        else:
            block.graph.replay()

    def _step(self, block: _Block, caches: Sequence[SlotCache]) -> None:
        """Compute a step from the block's buffers into them; nothing in it depends on numbers that are on the
        device."""
        import torch

        shape = block.shape
        if len(caches) == 1:
            caches[0].aim(0, shape.rows[0], block.columns, shape.until[0])
            inputs = self._alone(caches[0], block.ids, block.columns, shape.until[0])
        else:
            columns = torch.split(block.columns, list(shape.rows))
            inputs = self._beside(caches, columns, shape.until, block.ids)
        block.logits = logits = self._needed.logits_at(inputs, block.where)
        numbers = block.numbers.index_select(0, block.at)[0]
        tokens = draw(logits, block.places, numbers, complete=shape.complete)
        block.out.index_copy_(0, block.at, tokens[None])
        goes_on = block.columns < block.last
        block.ids.copy_(torch.where(goes_on, tokens.clamp(min=0)[:, None], block.ids))
        block.columns.add_(goes_on)
        block.at.add_(1)


Capture = Callable[[Callable[[], None]], Any]
"""Records what a function gives the device to do; returns an object with ``replay``, None where that cannot be."""


class CudaGraphs:
    """Captures steps as CUDA graphs, which share their memory; ``reason`` says why it could not be done."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.reason: str | None = None
        # With the last graph torch gives up the memory that they share, and takes no other one by that name. The first
        # one stays, so that it is never the last that goes.
        self._first: Any = None

    def __call__(self, step: Callable[[], None]) -> Any:
        """Return the graph of a step, which has run before and is not run now; None where it cannot be captured."""
        import torch

        graph = torch.cuda.CUDAGraph()
        pool = None if self._first is None else self._first.pool()
        try:
            # torch leaves its own stream for captures only where the end of the capture succeeds. A graph that the
            # garbage collector frees meanwhile would end the capture.
            with (
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                collector_paused(),
                torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"),
            ):
                step()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            what = str(error).partition("\n")[0]
            self.reason = f"a step cannot be captured ({type(error).__name__}: {what})"
            return None
        self._first = self._first or graph
        return graph


def _padded(counts: Sequence[int], groups: Sequence[Sequence[int]]) -> list[int]:
    """Return the numbers of all rows, 0 for those that only fill up."""
    return [
        number
        for count, some in zip(counts, groups, strict=True)
        for number in (*some, *[0] * (count - len(some)))
    ]
