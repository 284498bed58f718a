"""Scoring: tokens per second and the share of the device's peak, against lm-evaluation-harness and a plain loop.

Prompts are those of the shipped benchmarks. Where the shipped rows are too few to keep a device busy, they are asked
several times, with a number before the question, so that no question is asked twice.

*Tokens* are those of all requests, each counted as if it were computed by itself. The share of the peak counts what
must be computed at least: distinct tokens once, logits where they are needed (``perf.arithmetic``).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from perf.accelerator_parts import lm_eval_peer
from perf.accelerator_parts.attempt import attempt
from perf.accelerator_parts.budget import Budget, as_many, until
from perf.accelerator_parts.findings import OURS, Figure, Row
from perf.accelerator_parts.limits import peaks, shape_speed
from perf.accelerator_parts.models import Setup, bare_model, causal_engine, opened
from perf.accelerator_parts.score_items import BASE, Case, begun, case_of, repeated
from perf.accelerator_parts.shapes import Shape, sizes
from perf.accelerator_parts.timing import peak_mebibytes, timed
from perf.prompts import Item, items_of
from pytest_touchstone.core.requests import LoglikelihoodAnswer
from pytest_touchstone.engines.transformers.cpu import in_float32
from pytest_touchstone.engines.transformers.token_work import TokenWork
from pytest_touchstone.plugin.batches import DEFAULT_SIZE, GPU_SIZE

PART = "score"

CASES = (("arc_easy", 5), ("mmlu", 5), ("hellaswag", 10), ("arc_easy", 0))
"""Benchmarks and their few-shot examples, the most telling first: what does not fit into the time is left out."""

SUBJECTS = ("college_biology", "machine_learning")
"""The subjects of MMLU, whose examples differ."""

COMPARED = 32
"""The requests whose log-probabilities are compared with float32's."""

LEAST = 8
"""The requests that are computed one by one whatever the time."""

LOOP = "plain forward, one by one"
LM_EVAL = "lm_eval --model hf"
PLAIN = "ours, without fast ways"


@dataclass(frozen=True, slots=True)
class Side:
    """The seconds of one side for its first requests, and their log-probabilities."""

    seconds: float
    logprobs: Sequence[float]


def measure(setup: Setup, budget: Budget) -> Iterator[Row]:
    """Yield the rows of all causal models."""
    for number, shape in enumerate(setup.causal):
        share = budget.split(len(setup.causal) - number)
        if not share.enough():
            yield from (Row(PART, shape.name, named(*case), note="left out: no time") for case in CASES)
            continue
        work = partial(_model, shape, setup, share)
        yield from attempt(work, part=PART, model=shape.name, device=setup.device)


def named(benchmark: str, shots: int) -> str:
    """Return a case's name in the table."""
    return f"{benchmark}, {shots}-shot"


def _model(shape: Shape, setup: Setup, budget: Budget) -> list[Row]:
    """Measure our side first, then those that are given a model of their own."""
    cases: list[Case] = []
    sides: dict[str, dict[str, Side]] = {}
    rows: list[Row] = []
    left_out: list[Row] = []
    with opened(shape, setup) as engine:
        kept = lm_eval_peer.least(setup)  # for the process that comes last
        ours = Budget(0.5 * (budget.left - kept))
        for number, (benchmark, shots) in enumerate(CASES):
            part = ours.split(len(CASES) - number)
            if not part.enough(0.5):
                left_out.append(Row(PART, shape.name, named(benchmark, shots), note="left out: no time"))
                continue
            case, side = _ours(engine, shape, setup, part, benchmark=benchmark, shots=shots)
            cases.append(case)
            sides[case.name] = {OURS: side}
        memory = peak_mebibytes(setup.device)
    if setup.plain:
        with opened(shape, setup, plain=True) as engine:
            for number, case in enumerate(cases):
                part = Budget((budget.left - kept) / (4 * (len(cases) - number)))
                sides[case.name][PLAIN] = _without_ways(engine, case, part)
    exact = _beside(shape, setup, cases, sides, Budget(0.7 * (budget.left - kept)))
    theirs = lm_eval_peer.scores(shape, setup, {one.name: one.requests for one in cases}, budget.left)
    if not isinstance(theirs, str):
        for name, (seconds, logprobs) in theirs.items():
            sides[name][LM_EVAL] = Side(seconds, logprobs)
    for case in cases:
        found = sides[case.name]
        rows += [
            _row(
                shape,
                setup,
                case,
                side,
                sides=found,
                exact=exact[case.name],
                memory=memory if side == OURS else None,
            )
            for side in found
        ]
        if LM_EVAL not in found:
            why = theirs if isinstance(theirs, str) else "left out: no time"
            rows.append(Row(PART, shape.name, case.name, LM_EVAL, note=why))
    return rows + left_out


# Our side


def _ours(
    engine: Any, shape: Shape, setup: Setup, budget: Budget, *, benchmark: str, shots: int
) -> tuple[Case, Side]:
    """Answer as many items as fit into the time, in batches as a run has them."""
    subjects = SUBJECTS if benchmark == "mmlu" else ()
    base = items_of(benchmark, data=setup.data, limit=BASE, shots=shots, subjects=subjects)[:BASE]
    for mark in ("A. ", "B. "):  # the second time nothing is new but the texts
        pilot = [begun(item, mark) for item in base[: 8 if setup.small else BASE]]
        seconds, _ = timed(setup.device, lambda pilot=pilot: _answered(engine, pilot))  # type: ignore[misc]
    most = 2 * len(base) if setup.small else 2048
    items = repeated(base, as_many(most, seconds / len(pilot), 0.5 * budget.left))
    seconds, logprobs = timed(setup.device, lambda: _answered(engine, items))
    case = case_of(named(benchmark, shots), items, causal_engine(engine), sizes(shape))
    return case, Side(seconds, logprobs)


def _answered(engine: Any, items: Sequence[Item]) -> list[float]:
    """Answer the items in batches, the next one prepared meanwhile; return all log-probabilities."""
    size = GPU_SIZE if engine.loaded.model.device.type == "cuda" else DEFAULT_SIZE
    batches = [items[first : first + size] for first in range(0, len(items), size)]
    asked = [[request for item in batch for request in item.requests] for batch in batches]
    found: list[float] = []
    engine.prepare(asked[0])
    for now, then in pairwise([*asked, []]):
        engine.prepare(then)
        for answer in engine.answer(now):
            assert isinstance(answer, LoglikelihoodAnswer), answer
            found.append(answer.logprob)
    return found


# The other sides


def _without_ways(engine: Any, case: Case, budget: Budget) -> Side:
    found: list[float] = []
    batches = [case.items[first : first + 16] for first in range(0, len(case.items), 16)]
    seconds, _ = timed(
        engine.loaded.model.device.type,
        lambda: until(lambda batch: found.extend(_answered(engine, batch)), batches, budget.left),
    )
    return Side(seconds, found)


def _beside(
    shape: Shape, setup: Setup, cases: Sequence[Case], sides: dict[str, dict[str, Side]], budget: Budget
) -> dict[str, list[float]]:
    """Add the plain loop to the sides; return the first log-probabilities of each case in float32 arithmetic."""
    model = bare_model(shape, setup)
    exact: dict[str, list[float]] = {}
    _logprob(model, TokenWork((1, 2, 3), (4,)))
    for number, case in enumerate(cases):
        each = budget.left / (len(cases) - number)
        found: list[float] = []

        def take(work: TokenWork, found: list[float] = found) -> None:
            found.append(_logprob(model, work))

        order = _shortened(case.works, setup.small)
        seconds, _ = timed(
            setup.device,
            lambda each=each, order=order, take=take: until(take, order, 0.6 * each, least=LEAST),  # type: ignore[misc]
        )
        sides[case.name][LOOP] = Side(seconds, found)
        precise: list[float] = []
        exact[case.name] = precise

        def take_precisely(work: TokenWork, precise: list[float] = precise) -> None:
            precise.append(_logprob(model, work))

        if setup.dtype == "float32":
            precise += found[:COMPARED]
        else:
            with in_float32():
                until(take_precisely, case.works[: min(COMPARED, len(found))], 0.4 * each, least=LEAST)
    return exact


def _shortened(works: Sequence[TokenWork], few: bool) -> Sequence[TokenWork]:
    return works[:COMPARED] if few else works


def _logprob(model: Any, work: TokenWork) -> float:
    """Return the log-probability of the targets: one pass over the whole sequence, as a script without a harness."""
    import torch

    with torch.inference_mode():
        ids = torch.tensor([work.inputs], device=model.device)
        logits = model(input_ids=ids).logits[0, -len(work.targets) :].float().log_softmax(-1)
        targets = torch.tensor(work.targets, device=model.device)[:, None]
        return float(logits.gather(1, targets).sum())


# The table


def _row(
    shape: Shape,
    setup: Setup,
    case: Case,
    side: str,
    *,
    sides: dict[str, Side],
    exact: Sequence[float],
    memory: float | None,
) -> Row:
    mine, one = sides[OURS], sides[side]
    part = case.part(len(one.logprobs))
    operations = case.sizes.operations(part.distinct, part.logits)
    rate = len(one.logprobs) / one.seconds
    figures: dict[str, Figure] = {
        "requests": len(one.logprobs),
        "tokens/s": part.total / one.seconds,
        "requests/s": rate,
        "ours / it": len(mine.logprobs) / mine.seconds / rate,
        "share of peak": operations / one.seconds / peaks(setup.device, setup.dtype, setup.small).matrix,
    }
    if side == OURS:
        rows = 512 if setup.small else 8192
        figures["share of its shapes' torch.mm"] = (
            operations / one.seconds / shape_speed(case.sizes, rows, setup)
        )
    apart = [abs(a - b) for a, b in zip(one.logprobs, exact, strict=False)]
    if apart:
        figures["logprob off float32, largest"] = max(apart)
        figures["logprob off float32, median"] = statistics.median(apart)
    if memory is not None:
        figures["peak MiB"] = memory
    return Row(PART, shape.name, case.name, side, figures)
