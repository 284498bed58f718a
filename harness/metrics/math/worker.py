"""The process that checks answers: SymPy and math-verify, without torch, under a limit.

Started by ``MathJudge`` as ``python -m harness.metrics.math.worker``. An item is ``["minerva", left, right]``
or ``["math_verify", solution, output]``.
"""

from __future__ import annotations

from typing import Any

from harness.metrics.limited import serve
from harness.metrics.math.minerva import difference_is_zero
from harness.metrics.math.verify import verified


def warm() -> None:
    """Imports and first uses everything slow; raises ``ImportError`` with what to install."""
    try:
        import math_verify  # noqa: F401

        difference_is_zero("1", "1")
        verified("$1$", "$1$")
    except ImportError as error:
        raise ImportError(f"{error}; install the extra: pip install 'pytest-touchstone[math]'") from error


def answer(item: list[str]) -> Any:
    """What the rule named first in the item says of its two texts."""
    rule, gold, output = item
    return difference_is_zero(gold, output) if rule == "minerva" else verified(gold, output)


if __name__ == "__main__":
    serve(warm, answer)
