"""The metrics of one task in a results file, with their errors and numbers of items, by this harness's names.

    METRIC                          METRIC
    METRIC,none                     METRIC
    exact_match,strict-match        exact_match_strict
    exact_match,flexible-extract    exact_match_flexible
    METRIC,FILTER                   METRIC_FILTER

and METRIC_stderr, METRIC_stderr,FILTER for their errors. Larger must be better: a perplexity gets the mean
log-probability beside it, -ln(perplexity) with the error by the delta method, and is compared by that; other metrics
that are better when lower are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from harness.compare.candidate import inferred_items, published
from harness.core.errors import DataError
from harness.results.summary import Metric

_FAMILIES: Final = (
    ("kobest_hellaswag_masked", ("acc",)),
    *((name, ("acc_norm",)) for name in ("hellaswag", "kobest_hellaswag", "piqa", "openbookqa")),
    ("ifeval", ("prompt_level_strict_acc",)),
    ("arc_challenge", ("acc_norm",)),
    ("gsm8k", ("exact_match_flexible", "exact_match", "exact_match_strict")),
    ("drop", ("f1",)),
)
"""The scorers of a task that begins so, the best first, where that is not the first of ``_USUAL`` that the file has.
The best is the primary metric of this harness's own benchmark."""

_USUAL: Final = (
    "math_verify",  # every task that has it has others too, which are stricter about the form
    "acc",
    "exact_match",
    "exact_match_flexible",
    "f1",
    "pass@1",
    "pass_at_1",
    "real@1",
    "lambada@1",
    "acc_norm",
)
FILTERS: Final = {"none": "", "strict-match": "_strict", "flexible-extract": "_flexible"}
PERPLEXITIES: Final = ("ppl", "perplexity", "word_perplexity", "byte_perplexity")
_LESS_IS_BETTER: Final = (
    *("bits_per_byte", "brier_score", "mse", "rmse", "mae", "wer", "loss"),
    *("likelihood_difference", "pct_stereotype"),  # crows_pairs
)
_STDERR: Final = "_stderr"
_NO_METRICS: Final = (
    *("samples", "of", "mark", "template", "alias", "sample_len", "name"),
    *("not_valid", "unsandboxed", "weak_tests"),
)


class TaskMetrics(NamedTuple):
    """The metrics by name, and the aggregations of those that are not means."""

    metrics: dict[str, Metric]
    aggregate: dict[str, dict[str, str]]


def primary_of(task: str, metrics: Collection[str]) -> str:
    """The metric by which a task is judged: of several scorers the one that judges this harness's own benchmark. A
    filter that only takes programs out of a text (``pass@1_create_test``) makes no other scorer."""
    own = next((scorers for family, scorers in _FAMILIES if _is_of(task, family)), ())
    wanted = (*own, *_USUAL)
    plain = {_unfiltered(name): name for name in reversed([*metrics])} | {name: name for name in metrics}
    return next((plain[name] for name in wanted if name in plain), next(iter(metrics)))


def _is_of(task: str, family: str) -> bool:
    """Return whether the task has the family's name, perhaps with more after it: ``gsm8k_cot``,
    ``arc_challenge_chat``."""
    return re.fullmatch(rf"{family}([_-].*)?", task) is not None


def _unfiltered(name: str) -> str:
    """``pass@1`` for ``pass@1_create_test``; any other name as it is."""
    return re.sub(r"^(pass@\d+|pass_at_\d+)_.*$", r"\1", name)


def metric_name(key: str) -> str:
    """A key of a results file by this harness's names; ``acc_stderr,none`` is ``acc_stderr``."""
    name, _, filtered = key.partition(",")
    end = FILTERS.get(filtered, f"_{filtered}") if filtered else ""
    if name.endswith(_STDERR):
        return f"{name.removesuffix(_STDERR)}{end}{_STDERR}"
    return name + end


def metrics_of(
    values: Mapping[str, Any],
    *,
    where: str,
    n: object = None,
    default: int | None = None,
    less_is_better: frozenset[str] = frozenset(),
) -> TaskMetrics:
    """The metrics of one task; values that are not numbers are left out. ``n`` is the number of items that the file
    gives, ``default`` stands in for it. Raises ``DataError`` where ``n`` is none.
    """
    written = {metric_name(key): (key, value) for key, value in values.items()}
    items = _count(n, where) or default or 0
    metrics: dict[str, Metric] = {}
    aggregate: dict[str, dict[str, str]] = {}
    for name, (key, value) in written.items():
        found = _finite(value)
        if name in _NO_METRICS or name.endswith(_STDERR) or found is None:
            continue
        stderr = _finite(written.get(f"{name}{_STDERR}", ("", None))[1])
        base = key.partition(",")[0]
        if base in PERPLEXITIES:
            if found > 0:
                mean = f"{name}_logprob"
                relative = None if stderr is None else stderr / found
                metrics[mean] = published(mean, -math.log(found), stderr=relative, n=items)
                metrics[name] = published(name, found, stderr=stderr, n=items)
                aggregate[name] = {"by": "perplexity", "of": mean}
        elif base not in less_is_better and base not in _LESS_IS_BETTER:
            count = items or inferred_items(found, stderr) or 0
            metrics[name] = published(name, found, stderr=stderr, n=count)
    most = max((one.n for one in metrics.values()), default=0)
    return TaskMetrics({name: replace(one, n=one.n or most) for name, one in metrics.items()}, aggregate)


def _finite(value: object) -> float | None:
    """The number; None for NaN, infinities and values that are not numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _count(n: object, where: str) -> int | None:
    if n is None:
        return None
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise DataError(f"{where}: {n!r} is no number of items; give a whole number")
    return n
