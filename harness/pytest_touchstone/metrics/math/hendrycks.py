"""``hendrycks_exact``: the texts are the same once both are rewritten in one way.

The prediction is the text between the first and the last ``$`` of the output, the whole output if there are fewer
than two. Both answers are rewritten by the same steps in this order. They are those of Hendrycks et al. (2021,
``math_equivalence.py``), as lm-evaluation-harness 0.4.13 runs them in ``tasks/hendrycks_math``.

1. Newlines, ``\\!``, one of two backslashes, ``\\left`` and ``\\right``, degrees, ``\\$`` go; ``tfrac`` and
   ``dfrac`` become ``frac``.
2. What follows ``\\text{ `` is a unit and goes; ``\\%`` goes (a bare percent sign stays).
3. A decimal point without a digit before it gets its zero. "k = " goes if at most two characters stand left
   of the only equals sign.
4. ``\\sqrt3`` gets its braces; spaces go; ``\\frac12`` gets its braces. A whole text ``0.5`` becomes one half,
   and a whole text a/b of two integers becomes a fraction.

A step may be impossible for one of the two: two units, a root of nothing, a/b of which one is not an integer. Then
the reference compares both as they came, and so do we: "x/2" and "x/2 " differ.

The gold answer of a MATH solution is the content of its last box.
"""

from __future__ import annotations

from typing import Final

REWRITTEN: Final = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)
UNIT: Final = "\\text{ "


class _CannotBeDoneError(Exception):
    """A step of the rewriting does not apply to the text."""


def prediction(output: str) -> str:
    """The text between the first and the last dollar sign; all of it where there are fewer than two."""
    first, last = output.find("$"), output.rfind("$")
    return output[first + 1 : last] if first < last else output


def same_text(left: str | None, right: str | None) -> bool:
    """Return whether two answers are the same text once rewritten; two missing ones are, by the reference's rule."""
    if left is None or right is None:
        return left is right
    try:
        return rewritten(left) == rewritten(right)
    except _CannotBeDoneError:
        return left == right


def rewritten(text: str) -> str:
    """The answer after all steps; raises where the reference gives up."""
    for before, after in REWRITTEN:
        text = text.replace(before, after)
    text, *units = text.split(UNIT)
    if len(units) > 1:
        raise _CannotBeDoneError
    text = text.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text.startswith("."):
        text = f"0{text}"
    name, equals, value = text.partition("=")
    if equals and "=" not in value and len(name) <= 2:
        text = value
    text = _braced_fractions(_braced_roots(text).replace(" ", ""))
    return _slash_as_fraction("\\frac{1}{2}" if text == "0.5" else text)


def _braced_roots(text: str) -> str:
    head, *parts = text.split("\\sqrt")
    if not all(parts):
        raise _CannotBeDoneError
    braced = (part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}" for part in parts)
    return "\\sqrt".join((head, *braced))


def _braced_fractions(text: str) -> str:
    head, *parts = text.split("\\frac")
    braced = [head]
    for part in parts:
        if not part:
            raise _CannotBeDoneError
        if part[0] == "{":
            braced.append(part)
        elif len(part) == 1:
            return text
        else:
            below = part[1] if part[1] == "{" else f"{{{part[1]}}}"
            braced.append(f"{{{part[0]}}}{below}{part[2:]}")
    return "\\frac".join(braced)


def _slash_as_fraction(text: str) -> str:
    if text.count("/") != 1:
        return text
    above, _, below = text.partition("/")
    try:
        top, bottom = str(int(above)), str(int(below))
    except ValueError as error:
        raise _CannotBeDoneError from error
    return f"\\frac{{{top}}}{{{bottom}}}" if (above, below) == (top, bottom) else text


BARE: Final = "\\boxed "
COMMANDS: Final = ("\\boxed", "\\fbox")


def boxed_answer(solution: str) -> str | None:
    """The content of the last ``\\boxed{}`` of the solution, or of the last ``\\fbox{}`` where there is no boxed.

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
