"""Forms of a benchmark of generated texts that generate nothing, by the likelihood of its published solutions.

    ==================  ====================================================================================
    ``NAME:bpb``        bits per byte of the published solution after the benchmark's prompt
    ``NAME:contrast``   the right final answer against wrong ones, after the prompt and the published reasoning
    ==================  ====================================================================================

They have the rows, few-shot examples and plain prompts of the benchmark, which declares ``solution=Solution(...)``, and
are collected only where ``--eval-tasks`` names them.

``bits_per_byte`` divides by the bytes of the solution in UTF-8, without the space before it, and a benchmark's value is
the mean over its rows. olmo-eval, whose name ``bpb`` is, counts the space too, so that its value of a row of n bytes is
n / (n + 1) of ours where a space stands there, and equal elsewhere; of code it takes the mean weighted by bytes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from pytest_touchstone.core.aggregation import BITS_PER_BYTE
from pytest_touchstone.core.benchmark import (
    Benchmark,
    FinalAnswer,
    Published,
    Solution,
    declaration_of,
    declare,
    generator_function,
)
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.grade import Scores
from pytest_touchstone.core.requests import Generate, Loglikelihood
from pytest_touchstone.metrics.multiple_choice import (
    BITS,
    CHOICE_METRICS,
    ask_answers,
    bits_per_byte,
)

WRONG_NUMBERS: Final = 4

_INTEGER: Final = re.compile(r"-?(\d+|\d{1,3}(,\d{3})+)")


def wrong_numbers(right: str) -> tuple[str, ...]:
    """Return four wrong whole numbers near a right one, in its format (with commas or without); none for other texts.

    They are the first four of n + 1, n - 1, 2 n, 10 n, n + 2, n - 2, n + 3 that differ from n and from each other:
    slips by one, by a factor, by a decimal place.
    """
    if not _INTEGER.fullmatch(right):
        return ()
    gold = int(right.replace(",", ""))
    slips = (gold + 1, gold - 1, 2 * gold, 10 * gold, gold + 2, gold - 2, gold + 3)
    wrong = [number for number in dict.fromkeys(slips) if number != gold][:WRONG_NUMBERS]
    return tuple(f"{number:,}" if "," in right else str(number) for number in wrong)


def final_number(before: str, right: str, head: str = "", tail: str = "") -> FinalAnswer | None:
    """Return a right whole number after a text against wrong ones, each between ``head`` and ``tail``.

    None if ``right`` is not a whole number.
    """
    texts = [f"{head}{number}{tail}" for number in (right, *wrong_numbers(right))]
    return FinalAnswer(before, texts[0], tuple(texts[1:])) if len(texts) > 1 else None


# The forms


def function_named(module: ModuleType, name: str) -> Any:
    """Return the test function, or the form of one, with a name in a module, or None."""
    base, colon, _ = name.partition(":")
    function = getattr(module, base, None)
    return next((form for form in forms_of(function) if form.__name__ == name), None) if colon else function


def forms_of(function: object) -> Iterator[Callable[..., Any]]:
    """Yield the forms of a declared function, each a declared function too; none if it has no ``solution``.

    Raises ``BenchmarkError`` for a function with other arguments than ``example`` and ``fewshot``.
    """
    spec = declaration_of(function)
    if spec is None or spec.solution is None or spec.code.form_of is not None or not callable(function):
        return
    given = list(inspect.signature(generator_function(function)).parameters)
    if sorted(given) != ["example", "fewshot"]:
        raise BenchmarkError(
            f"benchmark {spec.name!r}: solution= is for a function of example and fewshot; it takes "
            f"{', '.join(given) or 'nothing'}"
        )
    yield _form(function, spec, spec.solution, "bpb")
    if spec.solution.final is not None:
        yield _form(function, spec, spec.solution, "contrast")


def _form(function: Callable[..., Any], spec: Benchmark, solution: Solution, form: str) -> Callable[..., Any]:
    original, final = generator_function(function), solution.final
    ask = _ask_bits if final is None or form == "bpb" else _ask_final

    def asked(example: Any, fewshot: FewShot) -> Scores:
        generator = original(example=example, fewshot=fewshot)
        request = next(generator)
        generator.close()
        if not isinstance(request, Generate):
            raise BenchmarkError(f"{spec.name}: solution= is for a benchmark that asks for a text first")
        return (yield from ask(solution, example, request.prompt))

    def keep(row: dict[str, Any]) -> bool:
        return (spec.row_rules.keep is None or spec.row_rules.keep(row)) and (
            final is None or final(row) is not None
        )

    asked.__name__ = f"{original.__name__}:{form}"
    asked.__module__, asked.__doc__ = original.__module__, inspect.getdoc(ask)
    fields: dict[str, Any] = {"primary": BITS_PER_BYTE, "metrics": (BITS_PER_BYTE,)}
    if form != "bpb":
        fields = {
            "primary": "acc",
            "metrics": (*CHOICE_METRICS, BITS_PER_BYTE),
            "row_rules": replace(spec.row_rules, keep=keep),
            "published": Published(paper=spec.published.paper, source=spec.published.source),
        }
    made = replace(
        spec,
        name=f"{spec.name}:{form}",
        asks=(Loglikelihood,),
        aggregate=BITS,
        grader=None,
        code=replace(
            spec.code,
            rule=f"{asked.__doc__}\n\nThe benchmark itself:\n\n{spec.code.rule}",
            needs={},
            form_of=function,
        ),
        **fields,
    )
    return declare(asked, made)


def _ask_bits(solution: Solution, row: Any, prompt: str) -> Scores:
    """Score the published solution by its likelihood after the benchmark's prompt; nothing is generated.

    - ``bits_per_byte`` (primary): bits that the solution costs per UTF-8 byte, without the space before it; the mean
      over the rows. Lower is better.

    Good for following a pretraining: it moves long before texts are right. It measures the style of the solutions as
    well as knowledge, so that fine-tuning in another style raises it without a loss of skill. Not comparable: olmo-eval
    counts the space as a byte, and of code weighs rows by their bytes.
    """
    text = solution.text(row)
    answer = yield Loglikelihood(prompt, solution.between + text)
    return {BITS_PER_BYTE: bits_per_byte(answer.logprob, text)}


def _ask_final(solution: Solution, row: Any, prompt: str) -> Scores:
    """Score the right final answer against wrong ones by their likelihood; nothing is generated.

    They follow the benchmark's prompt and the published reasoning. Rows whose answer is not an integer are left out.

    The wrong ones are four numbers: the first of n + 1, n - 1, 2 n, 10 n, n + 2, n - 2, n + 3 that differ from the
    right n and from each other.

    - ``acc`` (primary): the right answer has the highest summed log-probability; chance is 0.2.
    - ``acc_norm``, ``acc_bytes``, ``acc_tokens``, ``bits_per_byte``: as in other choices by likelihood.

    It asks whether the reasoning is followed to its end, and not whether it is found: the published steps often say the
    answer. Not comparable with the benchmark's own score.
    """
    final = solution.final(row) if solution.final is not None else None
    if final is None:
        raise BenchmarkError("its row has no final answer to set wrong ones against")
    context = f"{prompt}{solution.between}{final.before}"
    return (yield from ask_answers(FewShot(), context, (final.right, *final.wrong), 0))
