"""The gold answer of a MATH solution: what stands in its last box."""

from __future__ import annotations

from typing import Final

BARE: Final = "\\boxed "
COMMANDS: Final = ("\\boxed", "\\fbox")


def boxed_answer(solution: str) -> str | None:
    """What the last ``\\boxed{}`` of the solution holds, or the last ``\\fbox{}`` where there is no boxed.

    If ``\\boxed`` is followed by a space anywhere, the answer is what follows the last such place, up to a
    ``$``. None when there is no box, or its braces are not balanced. As ``last_boxed_only_string`` of
    lm-evaluation-harness 0.4.13 (after Hendrycks), which fails for an ``\\fbox`` and where there is no box.
    """
    if BARE in solution:
        return solution.rpartition(BARE)[2].partition("$")[0]
    start = next((at for command in COMMANDS if (at := solution.rfind(command)) >= 0), -1)
    if start < 0:
        return None
    depth, opened = 0, 0
    for at in range(start, len(solution)):
        if solution[at] == "{":
            opened = opened or at + 1
            depth += 1
        elif solution[at] == "}":
            depth -= 1
            if depth == 0:
                return solution[opened:at]
    return None
