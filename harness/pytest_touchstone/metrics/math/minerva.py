"""``minerva_exact``: the answer after Minerva's closing sentence, normalised, compared with SymPy's help.

"I hope it is correct." is appended to the output, then the first "Final Answer: The final answer is (answer).
I hope it is correct." on one line gives the prediction. Each full stop of that sentence stands for any one
character. So an output that was cut off right after "answer. " still has an answer, one that ends without
that space has none.

Normalisation is that of Lewkowycz et al. (2022, appendix D), with the corrections of lm-evaluation-harness 0.4.13
(``tasks/minerva_math``, version 3). Keep what follows the last equals sign. Remove unit words, whole words first,
then also parts of words, but never inside a LaTeX command. Unwrap formulas, text, bold, overlines and boxes. Give
``\\frac`` and ``\\sqrt`` their braces. Delete ``$``, and commas that separate thousands of a number (a tuple keeps
its commas).

The same text is right, unless it is empty. Else both are parsed as LaTeX, and the difference has to simplify to zero.
Tuples, intervals, sets and matrices cannot be parsed, so those must be the same text.
"""

from __future__ import annotations

import re
from typing import Final

CLOSING: Final = "I hope it is correct."
SENTENCE: Final = re.compile(r"Final Answer: The final answer is(.*?). I hope it is correct.")

REPLACED: Final = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    (r"\$", ""),
    (r"\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (r",\text{and}", ","),
    (r"\text{and}", ","),
    (r"\text{m}", r"\text{}"),
)

REMOVED: Final = (
    *("square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units"),
    r"\ldots",
    *("sue", "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters"),
    *("meals", "edges", "students", "childrentickets", "multiples"),
    *(r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3", "\\text{\n}", r"\text{}"),
    *(r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots"),
)
"""In the order of removal: removing one can make another."""

UNWRAPPED: Final = (
    (re.compile(r".*?\$(.*?)\$.*"), r"$\1$"),
    (re.compile(r"\\text\{(.*?)\}"), r"\1"),
    (re.compile(r"\\textbf\{(.*?)\}"), r"\1"),
    (re.compile(r"\\overline\{(.*?)\}"), r"\1"),
    (re.compile(r"\\boxed\{(.*)\}"), r"\1"),
    (re.compile(r"frac([^{])(.)"), r"frac{\1}{\2}"),
    (re.compile(r"sqrt(\[[^\]]*\])(\w)"), r"sqrt\1{\2}"),
    (re.compile(r"sqrt(?!\[)([^{])"), r"sqrt{\1}"),
)
COMMAND: Final = re.compile(r"(\\[a-zA-Z]+)")
THOUSANDS: Final = re.compile(r"-?\d{1,3}(?:,\d{3})+")


def prediction(output: str) -> str | None:
    """The answer of the closing sentence; None where there is none."""
    match = SENTENCE.search(output + CLOSING)
    return match[1].strip() if match else None


def normalized(answer: str) -> str:
    """The answer as it is compared."""
    text = answer.rpartition("=")[2]
    for word in filter(str.isalpha, REMOVED):
        text = re.sub(rf"(?<!\\)\b{word}\b", "", text)
    for before, after in REPLACED:
        text = text.replace(before, after)
    for expression in REMOVED:
        text = _without_word(text, expression) if expression.isalpha() else text.replace(expression, "")
    for pattern, kept in UNWRAPPED if text.count("$") > 1 else UNWRAPPED[1:]:  # the first would only be slow
        text = pattern.sub(kept, text)
    text = text.replace("$", "")
    return text.replace(",", "") if THOUSANDS.fullmatch(text) else text


def difference_is_zero(left: str, right: str) -> bool:
    """Return whether SymPy reads both as LaTeX and simplifies their difference to zero; that may take for ever.

    Runs in the process that checks answers, never in that of the tests.
    """
    import sympy
    from sympy.parsing.latex import parse_latex

    return bool(sympy.simplify(parse_latex(left) - parse_latex(right)) == 0)


def _without_word(text: str, word: str) -> str:
    """Removes the word wherever it occurs outside the names of LaTeX commands."""
    pieces = COMMAND.split(text)
    pieces[::2] = [piece.replace(word, "") for piece in pieces[::2]]
    return "".join(pieces)
