"""The process that checks answers: SymPy and math-verify, without torch, under a limit.

Started by ``MathJudge`` as ``python -m pytest_touchstone.metrics.math_worker``. An item is ``["minerva", left, right]``
or ``["math_verify", solution, output]``.

``math_verify``: the math-verify library's verdict on a whole solution and a whole output.

Both texts are parsed with the library's defaults: LaTeX within math delimiters and plain expressions, boxes
first, else the last that can be read, together with its text. Then ``verify(gold, target)``, which is not
symmetric: the gold answer comes first. Sets, intervals, matrices, percent signs and equations are its
business (https://github.com/huggingface/Math-Verify); lm-evaluation-harness 0.4.13 does the same in
``tasks/minerva_math``.

The library's own time limits need SIGALRM and hence the main thread; they are off, and everything here runs in the
process that checks answers, under its limit. Texts that are equal are right whatever SymPy would say of them, by the
library's rule; that is checked first, so that it costs no time.
"""

from __future__ import annotations

from typing import Any

from pytest_touchstone.metrics.subprocess_worker import serve


def warm() -> None:
    """Import and try everything slow; raise ``ImportError`` with the packages to install."""
    try:
        import math_verify  # noqa: F401

        difference_is_zero("1", "1")
        verified("$1$", "$1$")
    except ImportError as error:
        raise ImportError(f"{error}; install the extra: pip install 'pytest-touchstone[math]'") from error


def answer(item: list[str]) -> Any:
    """Return the verdict on the item's two texts by the rule that it names first."""
    rule, gold, output = item
    return difference_is_zero(gold, output) if rule == "minerva" else verified(gold, output)


def difference_is_zero(left: str, right: str) -> bool:
    """Return whether SymPy reads both as LaTeX and simplifies their difference to zero; that may take for ever."""
    import sympy
    from sympy.parsing.latex import parse_latex

    return bool(sympy.simplify(parse_latex(left) - parse_latex(right)) == 0)


def verified(solution: str, output: str) -> dict[str, Any]:
    """Return ``correct``, and ``answer``: the text of the output that the library tried first, None for none."""
    from math_verify import parse, verify

    # The library takes None for "no limit" and says so in its documentation, not in its annotation.
    parsed: list[Any] = parse(output, parsing_timeout=None)
    if not parsed:
        return {"correct": False, "answer": None}
    gold: list[Any] = parse(solution, parsing_timeout=None)
    texts = [value for value in parsed if isinstance(value, str)]
    plain = [value for value in gold if isinstance(value, str)]
    correct = bool(plain and texts and verify(plain, texts, timeout_seconds=None)) or bool(
        verify(gold, parsed, timeout_seconds=None)
    )
    return {"correct": correct, "answer": texts[0] if texts else ""}


if __name__ == "__main__":
    serve(warm, answer)
