"""The functions that make one metric of the values of a score over all items.

    aggregate={
        "perplexity": perplexity("logprob"),
        "error": mean("error", higher_is_better=False),
        "slowest": Aggregation("slowest", "seconds", function=slowest, higher_is_better=False, unit="s", margin=0.5),
    }

A function takes the score's values and the items' clusters (None where items share nothing). It returns an ``Estimate``
with an interval, or a
number, which then has none. It must stand at the top of a module: the process that sums up a run may not be the one
that collected it, and must find the function again by module, file and name.

Paired tests compare runs item by item by the score that a metric is the mean of. A perplexity has a substitute, the
mean of its log-probabilities, which is named beside its values. Any other metric is compared by its own value, which is
made anew of items that are drawn and exchanged (``statistics.resampling``).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.files import load_module

MACRO: Final = "_macro"
"""The suffix of a metric that is a mean over groups."""

SOFT: Final = "soft"
P_RIGHT: Final = "p_right"
LOG_ODDS: Final = "log_odds"
LOGPROB_MARGIN: Final = "logprob_margin"
BITS_PER_BYTE: Final = "bits_per_byte"
SOFT_METRICS: Final = (SOFT, P_RIGHT, LOG_ODDS, LOGPROB_MARGIN, BITS_PER_BYTE)
"""The scores of a choice beside right and wrong (``metrics.soft``)."""

Function: TypeAlias = Callable[..., Any]
"""Values and clusters, after an aggregation's arguments -> an ``Estimate``, or a number."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The function that makes a metric of a ``score``.

    ``by`` is the name that messages use. ``function`` is None for the aggregations of this package. ``rises`` says
    whether the metric rises with the score: a perplexity falls as the log-probability rises. ``unit`` stands beside
    differences; empty: they are in points where values lie in [0, 1]. ``margin`` is the loss that does not matter
    unless somebody says otherwise, in the unit; without a unit it is one point. ``at`` is the place where ``function``
    is found again. ``beside`` names facts that the benchmark tells of an item (``right`` and ``chosen`` of
    ``ChoiceScores``): ``function`` then gets tuples of the score and these. ``arguments`` are texts that it gets
    before the values, where one function makes the metrics of many benchmarks.
    """

    by: str
    score: str
    function: Function | None = None
    higher_is_better: bool = True
    rises: bool = True
    unit: str = ""
    margin: float | None = None
    at: tuple[str, str, str] | None = None
    beside: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    @property
    def higher_score_is_better(self) -> bool:
        """The direction of the score."""
        return self.higher_is_better == self.rises

    @property
    def is_mean(self) -> bool:
        """Whether the metric is the mean of the score."""
        return self.by == "mean" and self._is_built_in

    @property
    def is_perplexity(self) -> bool:
        """Whether the metric is compared by a substitute, the mean of its log-probabilities."""
        return self.by == "perplexity" and self._is_built_in

    @property
    def is_corpus_level(self) -> bool:
        """Whether the metric is not the mean of a score, such as macro F1.

        Paired tests then compare its own value.
        """
        return not (self.is_mean or self.is_perplexity)

    @property
    def _is_built_in(self) -> bool:
        return self.function is None and self.at is None

    @property
    def compared_higher_is_better(self) -> bool:
        """Whether higher is better for what paired tests compare: the score, or a corpus-level metric."""
        return self.higher_is_better if self.is_corpus_level else self.higher_score_is_better

    def compared(self, metric: str) -> str:
        """Return the metric's name beside compared values; that of a perplexity names its substitute."""
        return f"{metric} (by log-probability)" if self.is_perplexity else metric

    def plain(self) -> dict[str, Any]:
        """Return the aggregation as plain data, without default values.

        Raises ``BenchmarkError`` for a function without a name to find it by.
        """
        plain: dict[str, Any] = {"by": self.by, "of": self.score}
        options = {
            "higher_is_better": (self.higher_is_better, True),
            "rises": (self.rises, True),
            "unit": (self.unit, ""),
            "margin": (self.margin, None),
            "beside": (list(self.beside), []),
            "arguments": (list(self.arguments), []),
        }
        plain |= {name: value for name, (value, usual) in options.items() if value != usual}
        if self.function is None:
            return plain
        name, file = getattr(self.function, "__qualname__", ""), None
        if name.isidentifier():
            with suppress(TypeError):  # of C, or a callable object
                file = inspect.getfile(self.function)
        if file is None:
            raise BenchmarkError(
                f"aggregation {self.by!r}: its function has no name to find it by; define it at the top of a file"
            )
        module = str(getattr(self.function, "__module__", ""))
        return {**plain, "at": [module, str(Path(file).resolve()), name]}

    def resolve(self) -> Function | None:
        """Return the function, imported if needed; None for an aggregation of this package.

        Raises ``BenchmarkError`` where the function no longer exists.
        """
        function = self.function
        if function is None and self.at is not None:
            module, file, name = self.at
            function = getattr(_module(module, Path(file)), name, None)
            if not callable(function):
                raise BenchmarkError(f"aggregation {self.by!r}: {file} has no function {name!r} any more")
        return functools.partial(function, *self.arguments) if function and self.arguments else function


def facts_beside(aggregate: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of the facts that a declaration's metrics take beside scores."""
    return tuple(dict.fromkeys(name for how in aggregate.values() for name in how.get("beside", ())))


def is_soft(metric: str) -> bool:
    """Return whether a metric is a soft score, or its mean over groups.

    Files have soft scores; short reports do not.
    """
    return metric.removesuffix(MACRO) in SOFT_METRICS


def is_of_samples(metric: str) -> bool:
    """Return whether a metric is over several samples of each item (``metrics.samples``)."""
    return re.fullmatch(r"(avg|maj|pass)@\d+", metric.removesuffix(MACRO)) is not None


def mean(
    score: str, *, higher_is_better: bool = True, unit: str = "", margin: float | None = None
) -> Aggregation:
    """Aggregate a score by its arithmetic mean over the items.

    Every score without an aggregation gets this one.
    """
    return Aggregation("mean", score, higher_is_better=higher_is_better, unit=unit, margin=margin)


STANDARD: Final[Mapping[str, Aggregation]] = {
    LOG_ODDS: mean(LOG_ODDS, unit="nats"),
    LOGPROB_MARGIN: mean(LOGPROB_MARGIN, unit="nats"),
    BITS_PER_BYTE: mean(BITS_PER_BYTE, higher_is_better=False, unit="bits", margin=0.01),
}
"""The metrics of this package's own scores, where a benchmark, or a result of a former version, declares no other."""


def perplexity(score: str) -> Aggregation:
    """Aggregate a score, a log-probability in nats per item, by exp(-mean).

    It is per item, not per token; lower is better.
    """
    return Aggregation("perplexity", score, higher_is_better=False, rises=False)


def aggregation_of(aggregate: Mapping[str, Mapping[str, Any]], metric: str) -> Aggregation:
    """Return the aggregation of a metric from a declaration's plain data.

    A mean over groups has the direction and the unit of the metric, a score that of the metrics that are made of it.

    Results of versions that knew two aggregations say nothing of the direction: their perplexity is lower-is-better.
    """
    declared = aggregate.get(metric)
    if declared is None:
        plain = metric.removesuffix(MACRO)
        made = (
            aggregation_of(aggregate, name) for name, how in aggregate.items() if how["of"] == plain != name
        )
        better = next((aggregation.higher_score_is_better for aggregation in made), True)
        if metric in STANDARD:
            return STANDARD[metric]
        if plain != metric:
            how = aggregation_of(aggregate, plain)
            return mean(metric, higher_is_better=how.higher_is_better, unit=how.unit, margin=how.margin)
        return mean(metric, higher_is_better=better)
    if declared["by"] == "perplexity" and "at" not in declared:
        return perplexity(declared["of"])
    arguments = {
        name: declared[name] for name in ("higher_is_better", "rises", "unit", "margin") if name in declared
    }
    usual = STANDARD.get(metric)
    if (
        usual is not None and declared["by"] == usual.by
    ):  # former versions, and other programs, tell no unit or margin
        unit = arguments.setdefault("unit", usual.unit)
        arguments |= {"margin": usual.margin} if unit == usual.unit and "margin" not in arguments else {}
    arguments |= {name: tuple(declared.get(name, ())) for name in ("beside", "arguments")}
    return Aggregation(
        declared["by"], declared["of"], at=tuple(declared["at"]) if "at" in declared else None, **arguments
    )


def _module(name: str, path: Path) -> ModuleType:
    """Return the module of a file: loaded, installed, or executed anew."""
    imported = None
    with suppress(ImportError):
        imported = importlib.import_module(name)
    if imported is not None and Path(getattr(imported, "__file__", None) or ".").resolve() == path:
        return imported
    if imported is not None and name.startswith(
        f"{__name__.partition('.')[0]}."
    ):  # installed elsewhere, then
        return imported
    try:
        return load_module(path, f"touchstone_aggregation_{path.stem}")
    except (ImportError, OSError) as error:
        raise BenchmarkError(f"{path}: cannot be loaded for its aggregation ({error})") from None
