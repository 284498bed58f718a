"""The requests of our benchmarks, item by item, without a model: rendered prompts, choices, the right answer.

Everything comes from the benchmark itself: its rows, its few-shot examples, the requests that its generator
yields, so that another harness can be given exactly the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from perf.measure import ROOT
from pytest_touchstone.core.benchmark import Benchmark, declaration_of, generator_function
from pytest_touchstone.core.dataset import apply_limit, load_dataset, load_shots
from pytest_touchstone.core.few_shot import GREEDY, FewShot, Sampling
from pytest_touchstone.core.few_shot_sampling import draw_shots
from pytest_touchstone.core.files import load_module
from pytest_touchstone.core.requests import Loglikelihood, LoglikelihoodAnswer

SEED = 1234
"""The default of ``--eval-seed``."""


class Place(NamedTuple):
    """The place of a benchmark: its file in ``evals/`` and its function."""

    file: str
    function: str

    @property
    def nodeid(self) -> str:
        """Return the argument with which pytest runs it."""
        return f"evals/{self.file}.py::{self.function}"


PLACES = {
    "arc_easy": Place("test_arc", "test_arc_easy"),
    "arc_challenge": Place("test_arc", "test_arc_challenge"),
    "hellaswag": Place("test_hellaswag", "test_hellaswag"),
    "winogrande": Place("test_winogrande", "test_winogrande"),
    "lambada": Place("test_lambada", "test_lambada"),
    "mmlu": Place("test_mmlu", "test_mmlu"),
}


@dataclass(frozen=True, slots=True)
class Item:
    """One item: its example id, its requests, and the number of the right one (None for a single request)."""

    id: str
    requests: tuple[Loglikelihood, ...]
    gold: int | None


def items_of(
    benchmark: str, *, data: str | None, limit: int | None, shots: int | None, subjects: Sequence[str] = ()
) -> list[Item]:
    """Return the items that a run with these options asks about, in its order."""
    spec, start = load_benchmark(PLACES[benchmark])
    dataset = load_dataset(spec, data)
    count = spec.shots.count if shots is None else shots
    source = load_shots(spec, data) if count else None
    drawn = draw_shots(spec, count, SEED, dataset, source)
    examples = apply_limit(dataset.examples, limit)
    if subjects:
        examples = [example for example in examples if example.group in subjects]
    return [
        _item(example.id, partial(_started, start, example.row, drawn.few_shot(spec, example)))
        for example in examples
    ]


def asked_first(
    place: Place, *, data: str | None, limit: int | None, sampling: Sampling = GREEDY
) -> dict[str, Any]:
    """Return what each item asks first, by its id, with the benchmark's own number of few-shot examples."""
    spec, start = load_benchmark(place)
    dataset = load_dataset(spec, data)
    source = load_shots(spec, data) if spec.shots.count else None
    drawn = draw_shots(spec, spec.shots.count, SEED, dataset, source)
    return {
        one.id: next(start(example=one.row, fewshot=drawn.few_shot(spec, one, sampling)))
        for one in apply_limit(dataset.examples, limit)
    }


def load_benchmark(place: Place) -> tuple[Benchmark, Callable[..., Any]]:
    """Return the benchmark's declaration and its generator function."""
    module = load_module(ROOT / "evals" / f"{place.file}.py", f"perf_{place.file}")
    function = getattr(module, place.function)
    found = declaration_of(function)
    assert found is not None
    return found, generator_function(function)


def _started(start: Callable[..., Any], row: dict[str, Any], fewshot: FewShot) -> tuple[Any, Any]:
    """Return the generator and what it asks first."""
    generator = start(example=row, fewshot=fewshot)
    return generator, next(generator)


def _item(name: str, begin: Callable[[], tuple[Any, Any]]) -> Item:
    """Return the item, its right answer found by trying which one scores."""
    _, asked = begin()
    if isinstance(asked, Loglikelihood):
        return Item(name, (asked,), None)
    right = [number for number in range(len(asked)) if _scores_with(begin, number, len(asked))]
    assert len(right) == 1, f"{name}: {len(right)} right answers"
    return Item(name, tuple(asked), right[0])


def _scores_with(begin: Callable[[], tuple[Any, Any]], best: int, count: int) -> bool:
    generator, _ = begin()
    try:
        generator.send([LoglikelihoodAnswer(-1.0 if n == best else -1000.0, False, 1) for n in range(count)])
    except StopIteration as end:
        return bool(end.value["acc"] == 1.0)
    raise AssertionError("the benchmark asks twice")
