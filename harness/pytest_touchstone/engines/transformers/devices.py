"""The devices of this machine: their choice, their memory, and copies to and from the host.

Workers of xdist are spread over the GPUs, worker k on GPU k modulo their number, each with weights of its own. With
``--eval-set device_map=auto`` one process spreads a model over all of them instead, layer after layer.

``MemoryBudget`` splits ``--eval-set memory`` into the parts of an engine's work. ``BatchBudget`` has the tokens that go
through the model at once; it is halved whenever memory runs out nevertheless.

Neither the host nor the device waits for a copy. On a GPU a copy is asynchronous only where the host's side is pinned
memory. Elsewhere there is nothing to wait for, and the plain way is the fastest.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.settings import ModelSettings, bytes_of, free_bytes, shown_size
from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.compat import layer_values

if TYPE_CHECKING:
    import torch


_LOG: Final = logging.getLogger(__name__)

_MOST_TOKENS: Final = {"cpu": 512, "cuda": 32768, "mps": 8192}
"""The number of tokens beyond which larger batches are no faster; on a CPU they only leave its caches."""

_MOST_LOGITS: Final = {"cpu": 2**25, "cuda": 2**30, "mps": 2**25}
"""The same for numbers of logits. On a GPU memory is the limit: answers of many tokens fill a pass otherwise."""

_MOST_KEPT: Final = {"cpu": 2**28, "cuda": 2**31, "mps": 2**29}
"""The most bytes of prefixes that are kept from call to call."""

_USEFUL_ROWS: Final = 2**29
"""Bytes of keys and values that are always useful on a CPU. More than the weights have are not: a step reads both."""

_LEAST_TOKENS: Final = 16

_DEFAULT: Final = "50%"


@dataclass(frozen=True, slots=True)
class MemoryCosts:
    """Bytes that a model takes.

    ``token`` is for a token that goes through it, ``logit`` for a number of its logits. ``row`` is for a token's keys
    and values in all layers, ``copied`` for those that one layer copies. ``pair`` is for a token and a key that it
    sees, as a mask, and ``scores`` the same in ``split_attention``.
    """

    token: int = 0
    logit: int = 0
    row: int = 0
    copied: int = 0
    pair: int = 0
    scores: int = 0


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The bytes that an engine may take beside its weights; None where the free memory is unknown.

    ``asked`` is ``--eval-set memory`` as it was given.
    """

    whole: int | None = None
    costs: MemoryCosts = MemoryCosts()
    asked: str | None = None

    def part(self, eighths: int) -> int | None:
        """Return a number of eighths of the whole."""
        return None if self.whole is None else self.whole * eighths // 8

    @property
    def passes(self) -> int | None:
        """The bytes that a pass computes, apart from its logits."""
        return self.part(2)

    @property
    def rows(self) -> int | None:
        """The bytes of keys and values at work."""
        return self.part(4)

    def kept(self, device: Any) -> int:
        """Return the bytes of prefixes that are kept from call to call."""
        most, eighth = _limit_for(_MOST_KEPT, device), self.part(1)
        return most if eighth is None else min(most, eighth)

    def too_long(self, tokens: int) -> str | None:
        """Return why a text of ``tokens`` tokens does not fit into the given memory; None if it does."""
        needed = tokens * self.costs.row * 3 // 2  # while they grow, a copy is there too
        if self.asked is None or self.rows is None or needed <= self.rows:
            return None
        return (
            f"--eval-set memory={self.asked} is too little: keys and values of a text of {tokens:,} tokens need "
            f"{shown_size(needed)}, half of it; give {shown_size(2 * needed)} or more"
        )


class BatchBudget:
    """``tokens`` and ``logits`` (numbers) of a batch; halved for good when memory runs out.

    By the ``allowance``, a pass over rows that see many keys takes fewer tokens. ``vocabulary`` is the numbers of a
    token's logits, ``batch`` the rows that a person has asked for.
    """

    def __init__(
        self,
        tokens: int,
        logits: int,
        allowance: MemoryBudget = MemoryBudget(),
        *,
        vocabulary: int = 1,
        batch: int | None = None,
    ) -> None:
        self.tokens, self.logits, self.allowance = tokens, logits, allowance
        self.vocabulary, self.batch = vocabulary, batch
        self._told = False

    @property
    def logit_positions(self) -> int:
        """The most positions of a pass at which logits are computed."""
        return self.logits // self.vocabulary

    def within(self, keys: int, width: int, *, split: bool = False) -> int:
        """Return the most tokens of a pass.

        Args:
            keys: The keys of earlier passes that each row sees.
            width: The tokens of a row.
            split: Whether the keys are not copied for the rows, while all scores of attention are in memory at once.

        """
        passes = self.allowance.passes
        if passes is None:
            return self.tokens
        costs, seen = self.allowance.costs, keys + width
        attention = seen * costs.scores if split else seen * costs.pair + -(-seen // width) * costs.copied
        return max(1, min(self.tokens, passes // (costs.token + attention)))

    def halve(self) -> bool:
        """Halve both; return False, and do nothing, when that would leave next to nothing. Logged once per run."""
        if self.tokens < 2 * _LEAST_TOKENS:
            return False
        self.tokens, self.logits = self.tokens // 2, max(1, self.logits // 2)
        if not self._told:
            self._told = True
            _LOG.warning(
                "out of memory: batches now hold %d tokens, and fewer if need be; "
                "--eval-batch N sets their size",
                self.tokens,
            )
        return True


def first_batch_budget(
    model: Any, vocabulary: int, settings: ModelSettings | None = None, path: object = "the model"
) -> BatchBudget:
    """Return the batch budget that fits the memory and is still useful on the device.

    Raises ``CheckpointError`` where a few tokens are too many for a size that was given.
    """
    device, settings = model.device, settings or ModelSettings()
    free = bytes_of(settings.memory or _DEFAULT, free_memory(device))
    whole = (
        None if free is None else free // processes_per_device(settings.device, device, settings.processes)
    )
    allowance = MemoryBudget(whole, _costs(model), settings.memory)
    tokens, logits = _limit_for(_MOST_TOKENS, device), _limit_for(_MOST_LOGITS, device)
    for_logits, costs = allowance.part(1), allowance.costs
    least = max(4 * _LEAST_TOKENS * costs.token, 8 * vocabulary * costs.logit)
    if settings.memory is not None and whole is not None and whole < least:
        raise CheckpointError(
            f"{path}: --eval-set memory={settings.memory} is too little: a pass of {_LEAST_TOKENS} tokens and their "
            f"logits need {shown_size(least)} beside the weights"
        )
    if allowance.passes is not None and for_logits is not None:
        tokens = max(_LEAST_TOKENS, min(tokens, allowance.passes // costs.token))
        logits = max(vocabulary, min(logits, for_logits // costs.logit))
    return BatchBudget(tokens, logits, allowance, vocabulary=vocabulary, batch=settings.batch)


def useful_rows(model: Any, allowance: MemoryBudget) -> int | None:
    """Return the largest useful number of tokens in the KV cache; None without a limit."""
    if (most := allowance.rows) is None:
        return None
    if model.device.type == "cpu":
        most = min(most, max(_USEFUL_ROWS, bytes_of_weights(model)))
    return most // allowance.costs.row


def bytes_of_weights(model: Any) -> int:
    """Return the bytes of a model's weights, each once, in whatever layout (``cpu``).

    Shapes count: a layout for a library's kernels may have much room that takes hardly any memory.
    """
    sizes: dict[int, int] = {}
    for module in getattr(model, "modules", tuple)():
        for name, parameter in module.named_parameters(recurse=False):
            if name != cpu.PACKED:
                sizes[id(parameter)] = parameter.numel() * parameter.element_size()
            elif "weight" not in module._parameters:
                sizes[id(parameter)] = module.in_features * module.out_features * parameter.element_size()
    return sum(sizes.values())


def _costs(model: Any) -> MemoryCosts:
    config = model.config.get_text_config()
    size, held = model.dtype.itemsize, cpu.stored_type(model.dtype, model.device).itemsize

    def most(name: str, otherwise: int) -> int:
        values = layer_values(config, name)
        flat = [
            number for value in values for number in (value if isinstance(value, list | tuple) else [value])
        ]
        return max((int(value) for value in flat if value), default=otherwise)

    width = most("hidden_size", 1024)
    inner = most("intermediate_size", 4 * width)
    heads = most("num_attention_heads", 1)
    kv_heads = most("num_key_value_heads", heads)
    head = most("head_dim", width // heads)
    eager = getattr(config, "_attn_implementation", "sdpa") == "eager"
    scores = heads * (3 * 4 + size)  # scores, as put together, as weights, and in the model's own type
    return MemoryCosts(
        # A layer's hidden states and their copies, its queries, keys and values, and the wide part of its MLP.
        token=held * (12 * width + 4 * inner),
        logit=size + 2 * 4,  # as computed, as float32, and one copy
        row=2 * most("num_hidden_layers", 1) * kv_heads * head * held,
        copied=2
        * head
        * held
        * (kv_heads + heads),  # put together, and repeated for the heads that share them
        pair=scores if eager else 3 * held,
        scores=scores,
    )


def _limit_for(table: dict[str, int], device: Any) -> int:
    return table.get(device.type, table["cpu"])


def free_memory(device: Any) -> int | None:
    """Return the free bytes on a device; None where they are not known."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return free_bytes() if device.type == "cpu" else None


def free_share(wanted: str) -> tuple[str, float]:
    """Return the kind of device that ``--eval-device`` means, and the share of its memory that is free."""
    device = choose_device(wanted)
    if device.type == "cuda":
        import torch

        free, whole = torch.cuda.mem_get_info(device)
    else:
        free, whole = free_bytes() or 0, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return device.type, free / whole


def release(device: Any) -> None:
    """Return unused memory of this process to the device, so that smaller batches find room."""
    if device.type == "cuda":
        import torch

        torch.cuda.empty_cache()
    cpu.trim_heap(device)


PINNED: Final = frozenset({"cuda"})
"""The kinds of devices that copy from and to pinned memory while the host goes on."""


def gpu_count() -> int:
    """Return the number of GPUs that torch sees."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def worker_number(environ: Mapping[str, str] = os.environ) -> int:
    """Return N in a process that is the xdist worker ``gwN``, 0 in any other."""
    named = re.fullmatch(r"gw(\d+)", environ.get("PYTEST_XDIST_WORKER", ""))
    return int(named[1]) if named else 0


def choose_device(wanted: str, environ: Mapping[str, str] = os.environ) -> torch.device:
    """Return the device to load onto; without an index, workers are spread over the GPUs.

    Raises ``CheckpointError`` when the machine does not have that device.
    """
    import torch

    gpus = gpu_count()
    mps = torch.backends.mps.is_available()
    if wanted == "auto":
        wanted = "cuda" if gpus else "mps" if mps else "cpu"
    if wanted.startswith("cuda"):
        index = int(wanted[5:]) if wanted[5:] else worker_number(environ) % max(1, gpus)
        if index >= gpus:
            raise CheckpointError(
                f"--eval-device {wanted}: torch sees {gpus} GPUs here; use cpu or a lower index"
            )
        return torch.device("cuda", index)
    if wanted == "mps" and not mps:
        raise CheckpointError("--eval-device mps: torch does not see it on this machine; use cpu or auto")
    return torch.device(wanted)


def processes_per_device(wanted: str, device: torch.device, processes: int) -> int:
    """Return how many of the run's processes share the device; ``wanted`` is ``--eval-device``."""
    if device.type != "cuda" or wanted.startswith("cuda:"):
        return max(1, processes)
    return max(1, -(-processes // max(1, gpu_count())))


def copies_notes(wanted: str, device: torch.device, processes: int) -> tuple[str, ...]:
    """Return a note if several processes of the run hold copies of the weights on one GPU."""
    if device.type != "cuda" or (held := processes_per_device(wanted, device, processes)) < 2:
        return ()
    gpus = gpu_count()
    return (
        f"{held} of the run's {processes} processes compute on {device}, each with its own copy of the weights; "
        f"-n {gpus if wanted in ('auto', 'cuda') else 0} keeps one per GPU",
    )


def check_device_map(device: torch.device) -> None:
    """Raise ``CheckpointError`` where a model cannot be spread over GPUs."""
    if device.type != "cuda":
        raise CheckpointError(
            f"--eval-set device_map=auto spreads a model over GPUs, and this run computes on {device.type}; leave it "
            "out"
        )
    from importlib.util import find_spec

    if find_spec("accelerate") is None:
        raise CheckpointError(
            "--eval-set device_map=auto needs the package accelerate: pip install accelerate"
        )


def devices_of(model: Any) -> list[str]:
    """Return the accelerators that hold a model's weights, sorted; none for a model on a CPU."""
    parameters = getattr(model, "parameters", tuple)
    return sorted(
        {str(parameter.device) for parameter in parameters() if parameter.device.type not in ("cpu", "meta")}
    )


def to_device(values: Sequence[Any], device: torch.device, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return numbers of the host as a tensor on the device."""
    import torch

    return move_to_device(torch.tensor(values, dtype=dtype), device)


def all_to_device(
    parts: Sequence[Sequence[Any] | torch.Tensor], device: torch.device
) -> tuple[torch.Tensor, ...]:
    """Return arrays of integers as tensors on the device, sent by a single copy."""
    import torch

    tensors = [torch.as_tensor(values, dtype=torch.long) for values in parts]
    if device.type not in PINNED:
        return tuple(tensor.to(device) for tensor in tensors)
    whole = move_to_device(torch.cat([tensor.flatten() for tensor in tensors]), device)
    sent = torch.split(whole, [tensor.numel() for tensor in tensors])
    return tuple(flat.view(shaped.shape) for flat, shaped in zip(sent, tensors, strict=True))


def move_to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the host on the device."""
    if device.type not in PINNED:
        return tensor if device.type == "cpu" else tensor.to(device)
    return tensor.pin_memory().to(
        device, non_blocking=True
    )  # torch keeps the pinned memory until it is copied


class AsyncHostCopy:
    """An asynchronous copy of a tensor to the host; later work on the device does not delay it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        import torch

        self._host = tensor
        self._there: Any = None
        if tensor.device.type in PINNED:
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            event: Any = torch.cuda.Event  # torch has no types for it
            self._there = event()
            self._there.record(torch.cuda.current_stream(tensor.device))

    def numbers(self) -> list[Any]:
        """Wait for the copy, and return it as a list."""
        if self._there is not None:
            self._there.synchronize()
        numbers: list[Any] = self._host.tolist()
        return numbers
