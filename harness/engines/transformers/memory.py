"""The budget of what is computed at once: from free memory at first, halved whenever memory runs out."""

from __future__ import annotations

import logging
import os
from typing import Any, Final

_LOG: Final = logging.getLogger(__name__)

_MOST_TOKENS: Final = {"cpu": 512, "cuda": 32768, "mps": 8192}
"""The number of tokens beyond which larger batches are no faster; on a CPU they only leave its caches."""

_SHARE: Final = 0.25
"""The share of free memory to use; the rest is for other processes and the allocator."""

_LEAST_TOKENS: Final = 16


class BatchBudget:
    """``tokens`` and ``logits`` (numbers) of a batch; halved for good when memory runs out."""

    def __init__(self, tokens: int, logits: int) -> None:
        self.tokens, self.logits = tokens, logits
        self._told = False

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


def first_batch_budget(model: Any, vocabulary: int) -> BatchBudget:
    """Return the tokens that a quarter of the free memory holds, but no more than is useful on the model's device."""
    kind = model.device.type
    config = model.config.get_text_config()
    width = int(getattr(config, "hidden_size", 1024))
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    size = model.dtype.itemsize
    free = free_memory(model.device)
    most = _MOST_TOKENS.get(kind, _MOST_TOKENS["cpu"])
    if free is None:
        return BatchBudget(most, 2**25)
    # A layer's hidden states and their copies, its queries, keys and values, and the wide part of its MLP.
    token = size * (12 * width + 4 * inner)
    logit = size + 2 * 4  # as computed, as float32, and one copy
    tokens = max(_LEAST_TOKENS, min(most, int(_SHARE * free / 2) // token))
    useful = 2**25 if kind == "cpu" else 2**28
    logits = max(vocabulary, min(useful, int(_SHARE * free / 2) // logit))
    return BatchBudget(tokens, logits)


def free_memory(device: Any) -> int | None:
    """Return the free bytes on a device; None where they are not known."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def release(device: Any) -> None:
    """Return cached memory to an accelerator, so that smaller batches find room."""
    if device.type == "cuda":
        import torch

        torch.cuda.empty_cache()
