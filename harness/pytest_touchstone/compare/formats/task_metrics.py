"""The metrics of one task in a results file, with their errors and numbers of items, by this harness's names.

    METRIC                          METRIC
    METRIC,none                     METRIC
    exact_match,strict-match        exact_match_strict
    exact_match,flexible-extract    exact_match_flexible
    METRIC,FILTER                   METRIC_FILTER

and METRIC_stderr, METRIC_stderr,FILTER or METRIC,FILTER_stderr for their errors. Larger must be better: a
perplexity gets the mean log-probability beside it, -ln(perplexity) with the error by the delta method, and is compared
by that. Other metrics that are better when lower are left out, and so are numbers that count something. Per cent become
shares. Fields that are none of this are left out too, and named in a note.

Programs write an accuracy as 0.6 or as 60.1, and some write both into one file: lm-evaluation-harness has SQuAD's
scores, BLEU, chrF and ROUGE in per cent, and all else as shares. A value above 1 cannot be a share. One of at most 1
may be either, so its own error decides, or how the same metric is written elsewhere in the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints.config_files import finite_number
from pytest_touchstone.compare.candidate import inferred_items, published
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.tasks import filtered_metric
from pytest_touchstone.core.text import join_names
from pytest_touchstone.results.summary import Metric

SHARE: Final = 1
PER_CENT: Final = 100

_SHARES: Final = re.compile(
    r"(.*_)?(acc|accuracy|em|exact|exact_match|f1|(avg|maj|pass)(@|_at_)\d+|precision|recall|match|mcc|math_verify|rate)"
    r"(_.*)?"
)
"""Metrics that are shares by their meaning, and so are per cent where they are above 1."""

_TEXTS: Final = re.compile(r"(sacre)?bleu.*|chrf.*|rouge.*|meteor.*|bertscore.*")
_TEXTS_OF_LM_EVAL: Final = re.compile(r"bleu|chrf|(bleu|rouge[\dL]*)_(max|diff)")
"""Scores of texts, which many programs write in per cent, and those that lm-evaluation-harness always does."""

_SQUAD: Final = re.compile(r"([^,]*[_-])?\w*quad(_?v?\d.*|[_-].*)?", re.IGNORECASE)
_OF_SQUAD: Final = re.compile(r"(exact|f1|exact_match)|(HasAns|NoAns|best)_(exact|f1)")

_OTHERWISE: Final = 3.0
"""The factor by which a share's error may exceed that of right and wrong answers; in per cent it is over ten."""


class ReportedMetric(NamedTuple):
    """A metric as written in a file, without the filter in its name; ``n`` and ``error`` may be unknown."""

    task: str
    name: str
    value: float
    error: float | None = None
    n: int = 0


def divisor_of(one: ReportedMetric, *, mixed: bool = False, lm_eval: bool = False) -> int | None:
    """Return the divisor that turns a value into a fraction, 1 or 100; None if the scale is unknown.

    A metric of another kind that is at most 1 gives 1. ``mixed``: the same metric is above 1 in another task of the
    file.
    """
    name, value = one.name, abs(one.value)
    if not (_SHARES.fullmatch(name) or _TEXTS.fullmatch(name)):
        return SHARE if one.value <= 1 else None
    if value > 1:
        return PER_CENT if value <= PER_CENT else None
    if lm_eval and (_TEXTS_OF_LM_EVAL.fullmatch(name) or _is_squad(one)):
        return PER_CENT
    if one.error and one.n > 1 and value > 0:
        binary = math.sqrt(value * (1 - value) / (one.n - 1))
        return PER_CENT if one.error > _OTHERWISE * binary else SHARE
    return None if mixed and value else SHARE


def mixed_names(found: Iterable[ReportedMetric]) -> frozenset[str]:
    """Return the metrics that are above 1 in some task, apart from SQuAD's own scores."""
    return frozenset(one.name for one in found if one.value > 1 and not _is_squad(one))


def _is_squad(one: ReportedMetric) -> bool:
    return _SQUAD.fullmatch(one.task) is not None and _OF_SQUAD.fullmatch(one.name) is not None


# The metrics of a task


_FAMILIES: Final = (
    ("kobest_hellaswag_masked", ("acc",)),
    *((name, ("acc_norm",)) for name in ("hellaswag", "kobest_hellaswag", "piqa", "openbookqa")),
    ("ifeval", ("prompt_level_strict_acc",)),
    ("ifbench", ("prompt_level_loose_acc",)),
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
PERPLEXITIES: Final = ("ppl", "perplexity", "word_perplexity", "byte_perplexity")
_LESS_IS_BETTER: Final = (
    *("bits_per_byte", "brier_score", "mse", "rmse", "mae", "wer", "cer", "ter", "loss"),
    *("likelihood_difference", "pct_stereotype"),  # crows_pairs
)
_STDERR: Final = "_stderr"
_NO_METRICS: Final = (
    *("samples", "of", "mark", "template", "alias", "sample_len", "name"),
    *("not_valid", "unsandboxed", "weak_tests"),
)
_COUNTS: Final = re.compile(
    r"(num|n|count)(_.*)?|total|solved(_avg)?|.*_(num|count|total|std|std_err|stddev)"
)
"""Numbers beside the metrics: how many, and the spread of repeats, which is no error over items (Evalchemy)."""


class TaskMetrics(NamedTuple):
    """The metrics of a task by name, and what was noticed about them.

    There are the aggregations of those that are not means, the names of those that were written in per cent, texts on
    those whose scale is unknown, and the fields that are not understood.
    """

    metrics: dict[str, Metric]
    aggregate: dict[str, dict[str, str]]
    per_cent: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


class MetricScales(NamedTuple):
    """What is known about the scales in a file.

    These are the metrics that are above 1 somewhere (``scales.mixed_names``), and whether lm-evaluation-harness wrote
    it.
    """

    mixed: frozenset[str] = frozenset()
    lm_eval: bool = False


def primary_of(task: str, metrics: Collection[str]) -> str:
    """Return the primary metric of a task.

    Of several scorers it is the one that this harness uses for the benchmark. A filter that only extracts programs from
    a text (``pass@1_create_test``) is not another scorer.
    """
    own = next((scorers for family, scorers in _FAMILIES if _is_of(task, family)), ())
    wanted = (*own, *_USUAL)
    plain = {_unfiltered(name): name for name in reversed([*metrics])} | {name: name for name in metrics}
    return next((plain[name] for name in wanted if name in plain), next(iter(metrics)))


def _is_of(task: str, family: str) -> bool:
    """Return whether the task has the family's name, perhaps with more after it: ``gsm8k_cot``,
    ``arc_challenge_chat``."""
    return re.fullmatch(rf"{family}([_-].*)?", task) is not None


def _unfiltered(name: str) -> str:
    """Return ``pass@1`` for ``pass@1_create_test``; any other name unchanged."""
    return re.sub(r"^(pass@\d+|pass_at_\d+)_.*$", r"\1", name)


def metric_name(key: str) -> str:
    """Return this harness's name for a key of a results file: ``acc_stderr`` for ``acc_stderr,none``."""
    name, _, filtered = key.removesuffix(_STDERR).partition(",")
    metric = name.removesuffix(_STDERR)
    return f"{filtered_metric(metric, filtered or 'none')}{_STDERR if key.endswith(_STDERR) or metric != name else ''}"


def metrics_of(
    values: Mapping[str, Any],
    *,
    where: str,
    task: str = "",
    n: object = None,
    default: int | None = None,
    scales: MetricScales | None = None,
    made_by: Mapping[str, str] = MappingProxyType({}),
) -> TaskMetrics:
    """Return the metrics of one task, without the values that are not numbers.

    Args:
        values: The task's fields in the file.
        where: The file and task, for messages.
        task: The task's name, by which some scales are known.
        n: The number of items in the file.
        default: The number of items if the file has none.
        scales: What is known about the scales in the file. None: values are used as written.
        made_by: The aggregations that are not means, by metric.

    Raises:
        DataError: If ``n`` is not a number of items.

    """
    items = _count(n, where) or default or 0
    metrics: dict[str, Metric] = {}
    aggregate: dict[str, dict[str, str]] = {}
    per_cent, unknown = list[str](), list[str]()
    for name, one in written(task, values, items):
        if scales is not None and _COUNTS.fullmatch(one.name):
            continue
        if one.name in PERPLEXITIES:
            if one.value > 0:
                mean = f"{name}_logprob"
                relative = None if one.error is None else one.error / one.value
                metrics[mean] = published(mean, -math.log(one.value), stderr=relative, n=items)
                metrics[name] = published(name, one.value, stderr=one.error, n=items)
                aggregate[name] = {"by": "perplexity", "of": mean}
        elif one.name not in _LESS_IS_BETTER:
            divisor = divisor_of(one, mixed=one.name in scales.mixed, lm_eval=scales.lm_eval) if scales else 1
            if divisor is None:
                unknown.append(f"{name} {one.value:g}")
                continue
            per_cent += [name] if divisor == PER_CENT else []
            if one.name in made_by:
                aggregate[name] = {"by": made_by[one.name], "of": name}
            value, error = one.value / divisor, None if one.error is None else one.error / divisor
            metrics[name] = published(name, value, stderr=error, n=items or inferred_items(value, error) or 0)
    most = max((one.n for one in metrics.values()), default=0)
    sized = {name: replace(one, n=one.n or most) for name, one in metrics.items()}
    return TaskMetrics(sized, aggregate, tuple(per_cent), tuple(unknown), _ignored(values))


def _ignored(values: Mapping[str, Any]) -> tuple[str, ...]:
    names = {metric_name(key): value for key, value in values.items()}
    known = {
        name for name, value in names.items() if finite_number(value) is not None or _COUNTS.fullmatch(name)
    }
    return tuple(
        key
        for key, value in values.items()
        if value is not None and metric_name(key).removesuffix(_STDERR) not in {*known, *_NO_METRICS}
    )


def scales_of(results: Mapping[str, Mapping[str, Any]], *, lm_eval: bool = False) -> MetricScales:
    """Return what is known about the scales of another program's file."""
    return MetricScales(
        mixed_names(one for task, values in results.items() for _, one in written(task, values)), lm_eval
    )


def metric_notes(file: str, found: Mapping[str, TaskMetrics]) -> list[str]:
    """Return notes by task on the scales of a file's metrics, and on fields that are not understood."""
    texts = {
        "written in per cent, taken as shares": {task: one.per_cent for task, one in found.items()},
        "left out, as neither a share nor surely in per cent": {
            task: one.unknown for task, one in found.items()
        },
        "left out, as not understood": {task: one.ignored for task, one in found.items()},
    }
    return [
        f"{file}: {text}: {join_names(named)}"
        for text, by_task in texts.items()
        if (named := [f"{task} {' '.join(names)}" for task, names in by_task.items() if names])
    ]


def written(task: str, values: Mapping[str, Any], n: int = 0) -> Iterator[tuple[str, ReportedMetric]]:
    """Yield the numbers of a task that are metrics, by this harness's names, with their errors."""
    keys = {metric_name(key): (key, value) for key, value in values.items()}
    for name, (key, value) in keys.items():
        found, base = finite_number(value), key.partition(",")[0]
        if name in _NO_METRICS or name.endswith(_STDERR) or found is None:
            continue
        yield (
            name,
            ReportedMetric(task, base, found, finite_number(keys.get(f"{name}{_STDERR}", ("", None))[1]), n),
        )


def _count(n: object, where: str) -> int | None:
    if n is None:
        return None
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise DataError(f"{where}: {n!r} is no number of items; give a whole number")
    return n
