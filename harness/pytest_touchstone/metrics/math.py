r"""MATH: three rules for whether an output has the right answer, which differ by points.

===================  ==========================================  ===============================================
score                what is read out of the output              when it is right
===================  ==========================================  ===============================================
``hendrycks_exact``  between the first and the last ``$``        same text, after Hendrycks's normalisation
``minerva_exact``    after "Final Answer: The final answer is"   same text after Minerva's normalisation, or the
                                                                 difference simplifies to zero
``math_verify``      the last formula or number that the         ``verify`` of that library says so
                     math-verify library can read
===================  ==========================================  ===============================================

Never compare one with another.

``hendrycks_exact``: the texts are the same once both are rewritten in one way.

The prediction is the text between the first and the last ``$`` of the output, the whole output if there are fewer
than two. Both answers are rewritten by the same steps in this order. They are those of Hendrycks et al. (2021,
``math_equivalence.py``), as lm-evaluation-harness 0.4.13 runs them in ``tasks/hendrycks_math``.

1. Newlines, ``\!``, one of two backslashes, ``\left`` and ``\right``, degrees, ``\$`` go; ``tfrac`` and
   ``dfrac`` become ``frac``.
2. What follows ``\text{ `` is a unit and goes; ``\%`` goes (a bare percent sign stays).
3. A decimal point without a digit before it gets its zero. "k = " goes if at most two characters stand left
   of the only equals sign.
4. ``\sqrt3`` gets its braces; spaces go; ``\frac12`` gets its braces. A whole text ``0.5`` becomes one half,
   and a whole text a/b of two integers becomes a fraction.

A step may be impossible for one of the two: two units, a root of nothing, a/b of which one is not an integer. Then
the reference compares both as they came, and so do we: "x/2" and "x/2 " differ.

The gold answer of a MATH solution is the content of its last box.

``minerva_exact``: the answer after Minerva's closing sentence, normalised, compared with SymPy's help.

"I hope it is correct." is appended to the output, then the first "Final Answer: The final answer is (answer).
I hope it is correct." on one line gives the prediction. Each full stop of that sentence stands for any one
character. So an output that was cut off right after "answer. " still has an answer, one that ends without
that space has none.

Normalisation is that of Lewkowycz et al. (2022, appendix D), with the corrections of lm-evaluation-harness 0.4.13
(``tasks/minerva_math``, version 3). Keep what follows the last equals sign. Remove unit words, whole words first,
then also parts of words, but never inside a LaTeX command. Unwrap formulas, text, bold, overlines and boxes. Give
``\frac`` and ``\sqrt`` their braces. Delete ``$``, and commas that separate thousands of a number (a tuple keeps
its commas).

The same text is right, unless it is empty. Else both are parsed as LaTeX, and the difference has to simplify to zero.
Tuples, intervals, sets and matrices cannot be parsed, so those must be the same text.

``hendrycks_exact`` is a pure function of two texts. The others ask a ``MathJudge``; one that exceeds its time is wrong
and says ``timed_out``, as in the reference, where a comparison that takes too long is wrong as well.
"""

from __future__ import annotations

import atexit
import functools
import re
import sys
from dataclasses import dataclass, replace
from typing import Any, Final

from typing_extensions import TypedDict

from pytest_touchstone.core.benchmark import Dataset, FinalAnswer, Shots, Solution
from pytest_touchstone.core.few_shot import FewShot, Shot
from pytest_touchstone.core.grade import Graded, Scores
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.metrics.solutions import final_number
from pytest_touchstone.metrics.subprocess_worker import TimeLimitedWorker, WorkerReply

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


class _NotApplicableError(Exception):
    """A step of the rewriting does not apply to the text."""


def hendrycks_prediction(output: str) -> str:
    """Return the text between the first and the last dollar sign, or all of it if there are fewer than two."""
    first, last = output.find("$"), output.rfind("$")
    return output[first + 1 : last] if first < last else output


def is_same_text(left: str | None, right: str | None) -> bool:
    """Return whether two answers are equal after normalization; two missing ones are, as in the reference."""
    if left is None or right is None:
        return left is right
    try:
        return normalize_answer(left) == normalize_answer(right)
    except _NotApplicableError:
        return left == right


def normalize_answer(text: str) -> str:
    """Return the answer after all steps; raises where the reference gives up."""
    for before, after in REWRITTEN:
        text = text.replace(before, after)
    text, *units = text.split(UNIT)
    if len(units) > 1:
        raise _NotApplicableError
    text = text.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text.startswith("."):
        text = f"0{text}"
    name, equals, value = text.partition("=")
    if equals and "=" not in value and len(name) <= 2:
        text = value
    text = _brace_fractions(_brace_roots(text).replace(" ", ""))
    return _slash_as_fraction("\\frac{1}{2}" if text == "0.5" else text)


def _brace_roots(text: str) -> str:
    head, *pieces = text.split("\\sqrt")
    if not all(pieces):
        raise _NotApplicableError
    braced = (piece if piece[0] == "{" else f"{{{piece[0]}}}{piece[1:]}" for piece in pieces)
    return "\\sqrt".join((head, *braced))


def _brace_fractions(text: str) -> str:
    head, *pieces = text.split("\\frac")
    braced = [head]
    for piece in pieces:
        if not piece:
            raise _NotApplicableError
        if piece[0] == "{":
            braced.append(piece)
        elif len(piece) == 1:
            return text
        else:
            below = piece[1] if piece[1] == "{" else f"{{{piece[1]}}}"
            braced.append(f"{{{piece[0]}}}{below}{piece[2:]}")
    return "\\frac".join(braced)


def _slash_as_fraction(text: str) -> str:
    if text.count("/") != 1:
        return text
    above, _, below = text.partition("/")
    try:
        top, bottom = str(int(above)), str(int(below))
    except ValueError as error:
        raise _NotApplicableError from error
    return f"\\frac{{{top}}}{{{bottom}}}" if (above, below) == (top, bottom) else text


BARE: Final = "\\boxed "
COMMANDS: Final = ("\\boxed", "\\fbox")


def boxed_answer(solution: str) -> str | None:
    r"""Return the content of the last ``\boxed{}`` of the solution, else of the last ``\fbox{}``, else None.

    If ``\boxed`` is followed by a space anywhere, the answer is what follows the last such place, up to a ``$``. None
    if the braces are not balanced. As ``last_boxed_only_string`` of lm-evaluation-harness 0.4.13 (after Hendrycks),
    which fails for an ``\fbox`` and for a solution without a box.
    """
    if BARE in solution:
        return solution.rpartition(BARE)[2].partition("$")[0]
    start = next((position for command in COMMANDS if (position := solution.rfind(command)) >= 0), -1)
    if start < 0:
        return None
    depth, content_start = 0, 0
    for position in range(start, len(solution)):
        if solution[position] == "{":
            content_start = content_start or position + 1
            depth += 1
        elif solution[position] == "}":
            depth -= 1
            if depth == 0:
                return solution[content_start:position]
    return None


# ``minerva_exact``


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


def minerva_prediction(output: str) -> str | None:
    """Return the answer of the closing sentence, or None."""
    match = SENTENCE.search(output + CLOSING)
    return match[1].strip() if match else None


def normalize_minerva(answer: str) -> str:
    """Return the answer in the form that is compared."""
    text = answer.rpartition("=")[2]
    for word in filter(str.isalpha, REMOVED):
        text = re.sub(rf"(?<!\\)\b{word}\b", "", text)
    for before, after in REPLACED:
        text = text.replace(before, after)
    for expression in REMOVED:
        text = _remove_word(text, expression) if expression.isalpha() else text.replace(expression, "")
    for pattern, kept in UNWRAPPED if text.count("$") > 1 else UNWRAPPED[1:]:  # the first would only be slow
        text = pattern.sub(kept, text)
    text = text.replace("$", "")
    return text.replace(",", "") if THOUSANDS.fullmatch(text) else text


def _remove_word(text: str, word: str) -> str:
    """Remove the word wherever it occurs outside the names of LaTeX commands."""
    pieces = COMMAND.split(text)
    pieces[::2] = [piece.replace(word, "") for piece in pieces[::2]]
    return "".join(pieces)


# Verdicts


WORKER: Final = (sys.executable, "-P", "-W", "ignore", "-m", "pytest_touchstone.metrics.math_worker")
"""Modules of the working folder are not found by it."""

LIMIT_S: Final = 5.0
"""Seconds of processor time for one question to the judge."""


@dataclass(frozen=True, slots=True)
class MathVerdict:
    """The verdict of one rule on an output, and the answer read out of it (None: nothing)."""

    correct: bool
    answer: str | None
    timed_out: bool = False
    error: str | None = None

    @property
    def parsed(self) -> bool:
        """Return whether an answer was found in the output; one that took too long was."""
        return self.answer is not None or self.timed_out


class MathJudge:
    """A judge that asks SymPy and math-verify, in a process that is started when it is first needed."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self.worker = TimeLimitedWorker(WORKER)

    def ask(self, rule: str, gold: str, output: str) -> WorkerReply:
        """Return the reply of the process; its value is None if it exceeded the limit or failed."""
        return self.worker.ask([rule, gold, output], self.limit_s)

    def close(self) -> None:
        """End the process, if there is one."""
        self.worker.close()


@functools.cache
def shared_judge() -> MathJudge:
    """Return the judge that all items of this process share; starting one takes a second.

    It is closed when Python ends.
    """
    judge = MathJudge()
    atexit.register(judge.close)
    return judge


def hendrycks_exact(solution: str, output: str) -> MathVerdict:
    """Hendrycks's verdict; an output is always an answer, but a blank one counts as none."""
    gold, answer = boxed_answer(solution), hendrycks_prediction(output)
    return MathVerdict(gold is not None and is_same_text(answer, gold), answer if answer.strip() else None)


def minerva_exact(solution: str, output: str, judge: MathJudge) -> MathVerdict:
    """Minerva's verdict; ``answer`` is the normalised one. The judge is asked only if the texts differ."""
    gold, prediction = boxed_answer(solution), minerva_prediction(output)
    if prediction is None:
        return MathVerdict(False, None)
    answer = normalize_minerva(prediction)
    if gold is None:
        return MathVerdict(False, answer)
    gold_text = normalize_minerva(gold)
    if not answer or not gold_text or answer == gold_text:
        return MathVerdict(bool(answer) and answer == gold_text, answer)
    reply = judge.ask("minerva", answer, gold_text)
    # SymPy's errors are the rule's way of saying that two answers cannot be compared.
    return MathVerdict(reply.value is True, answer, reply.timed_out)


def math_verify(solution: str, output: str, judge: MathJudge) -> MathVerdict:
    """Return the verdict of the math-verify library."""
    reply = judge.ask("math_verify", solution, output)
    value: dict[str, Any] = reply.value or {"correct": False, "answer": None}
    return MathVerdict(value["correct"], value["answer"], reply.timed_out, reply.error)


def is_same_answer(left: str, right: str, judge: MathJudge | None = None) -> bool:
    r"""Return whether math-verify finds two answers equal, with either of them as the gold answer.

    It accepts ``(1,2)`` and ``2,1``, or ``-3<x\le 2`` and ``(-3,2]``, in one direction only.
    """
    judge = judge or shared_judge()
    return left == right or any(
        math_verify(f"${gold}$", f"${answer}$", judge).correct
        for gold, answer in ((left, right), (right, left))
    )


def grade_math(solution: str, output: str, judge: MathJudge | None = None) -> Graded:
    """Return all three verdicts on one output; ``solution`` is the gold solution with its boxed answer.

    Without a judge the shared one is used. Raises ``BenchmarkError`` if SymPy or math-verify is missing.
    """
    judge = judge or shared_judge()
    verdicts = {
        "hendrycks_exact": hendrycks_exact(solution, output),
        "minerva_exact": minerva_exact(solution, output, judge),
        "math_verify": math_verify(solution, output, judge),
    }
    return Graded(
        scores={name: float(verdict.correct) for name, verdict in verdicts.items()},
        no_answer=not verdicts["math_verify"].parsed,
        extracted={name: verdict.answer for name, verdict in verdicts.items()},
        gold=boxed_answer(solution),
        same=is_same_answer,
    )


# Rows and prompts


class MathRow(TypedDict):
    """A problem with its solution, in which the answer is boxed."""

    problem: str
    solution: str
    subject: str
    level: int


_METRICS: Final = tuple(
    f"{score}{level}"
    for score in ("math_verify", "minerva_exact", "hendrycks_exact")
    for level in ("", *(f"_level_{level}" for level in range(6)))
)


def _prepare_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with ``subject`` and a whole ``level``; the authors' files say ``type`` and "Level 3".

    Few-shot examples have neither.
    """
    if "subject" not in row and "type" not in row:
        return {**row, "subject": "", "level": 0}
    level = str(row["level"]).removeprefix("Level ").replace("?", "0")
    return {**row, "subject": row["subject"] if "subject" in row else row["type"], "level": int(level)}


def _prompt(row: MathRow) -> str:
    """Return the problem."""
    return f"Problem:\n{row['problem']}\n\nSolution:"


def _final_answer(row: dict[str, Any]) -> FinalAnswer | None:
    """Return the integer in the box at the end of a solution, from the last space before it."""
    solution = str(row.get("solution"))
    number = boxed_answer(solution) or ""
    box_start = solution.rfind(f"\\boxed{{{number}}}")
    before, space, head = solution[: max(box_start, 0)].rpartition(" ")
    return final_number(before, number, f"{head}\\boxed{{", "}") if space else None


MATH_SHOTS: Final = Dataset(local="minerva/shots")

MATH: Final[dict[str, Any]] = {
    "version": 1,
    "row": MathRow,
    "prepare": _prepare_row,
    "asks": Generate,
    "primary": "math_verify",
    "metrics": _METRICS,
    "tags": ("mathematics",),
    "shots": Shots(
        4, lambda row: Shot(_prompt(row), row["solution"]), pick="first", for_all=True, fixed=True
    ),
    "group": "subject",
    "solution": Solution(lambda row: row["solution"], final=_final_answer),
    "needs": dict.fromkeys(("sympy", "math_verify", "antlr4"), "pip install 'pytest-touchstone[math]'"),
}

MATH_SOURCE: Final = (
    "lm-evaluation-harness 0.4.13, tasks minerva_math (version 3.1) and hendrycks_math; Math-Verify 0.9"
)


def math_solution(row: MathRow, fewshot: FewShot) -> Scores:
    """Ask for a solution, and score it by the three rules."""
    answer = yield fewshot.generate(_prompt(row), stop=("Problem:",), max_new_tokens=512)
    grade = grade_math(row["solution"], answer.text)
    by_level = {f"{name}_level_{row['level']}": score for name, score in grade.scores.items()}
    return replace(grade, scores={**grade.scores, **by_level})
