"""Recommends a checkpoint, comparisons that need more items, and commands; reports the noise of benchmarks.

All advice rests on numbers of the study. Without them it is "no evidence", with the reason.

- **The checkpoint** is the best by ``compare.standings``. If only totals are known, it is the one measured best by a
  composite, else by the primary metric that most checkpoints have. The earliest point of its series that does not
  differ significantly is named too.
- **Expected** is its value on further items of the same kind, corrected for the selection, with an interval.
- **More items**: the number of items that finds a drop of the measured size with power 0.8 (``statistics.power``), for
  the best series against each undecided one, corrected for the number of comparisons.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from pytest_touchstone.compare.load import select
from pytest_touchstone.compare.standings import best_checkpoint
from pytest_touchstone.core.tasks import shipped_names, translate_task
from pytest_touchstone.core.text import count, format_step, join_names
from pytest_touchstone.document import COMMAND, Facts, Part, Section, Table
from pytest_touchstone.document.formatting import NOTHING
from pytest_touchstone.statistics.best_of_many import best_of
from pytest_touchstone.statistics.comparison import Comparison, z_quantile
from pytest_touchstone.statistics.contrasts import Contrast
from pytest_touchstone.statistics.curves import CURVE_DRAWS, LAST
from pytest_touchstone.statistics.power import design_of_comparison, items_for_drop
from pytest_touchstone.statistics.verdicts import POWER
from pytest_touchstone.study.points import MOST_IN_LINE, Point, Study, StudyMetric, facts_of
from pytest_touchstone.study.pool import JointMeans, MeasureNoise, measure_noise, pool_points, pools_of
from pytest_touchstone.study.selection_bias import complete_points, expected_value, measure_of, standings_in
from pytest_touchstone.study.series_comparison import UNDECIDED, BestVsBest, SeriesContest, compare_series

MOST: Final = 3
"""The most comparisons that get a command."""

FROM: Final = "from"
"""The key of ``[tool.touchstone.series]`` that names the checkpoint at which a training began."""

PAIRED: Final = (
    "scored on the same items they are compared item by item, which takes fewer; how many is not known yet"
)
NO_ERROR: Final = "nothing is known of the error"
NO_GAIN: Final = (
    "no evidence: of no series is it known that it began at a checkpoint of this study (`from` in "
    "[tool.touchstone.series.NAME] tells it)"
)
UNSAVED: Final = "it was scored in memory during its training and is not on disk"
NO_CHECKPOINT: Final = "no evidence: no measure with two checkpoints whose noise is known"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedCheckpoint:
    """The checkpoint to continue from, which does not differ significantly from its ``rivals``.

    ``of`` is the number of points. ``expected`` is the value on further items. ``earliest`` is the first rival before
    the checkpoint in its series.
    """

    point: Point
    measure: StudyMetric
    value: float
    of: int
    rivals: tuple[Point, ...]
    expected: Contrast | None
    earliest: Point | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreItems:
    """An undecided comparison, its number of items, and the number it needs; None with ``why``.

    The numbers of a composite are summed over its benchmarks, which grow in proportion.
    """

    measure: StudyMetric
    duel: BestVsBest
    items: int
    needed: int | None
    why: str = ""

    @property
    def times(self) -> float | None:
        """The factor by which the number of items must grow."""
        return self.needed / self.items if self.needed and self.items else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextCommand:
    """A command to type, its aim, and the outcome to expect."""

    aim: str
    command: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommended checkpoint, or why there is none, comparisons that need more items, and the next commands."""

    checkpoint: RecommendedCheckpoint | None
    why: str
    more_items: tuple[MoreItems, ...]
    plan: tuple[NextCommand, ...]


def advice(study: Study) -> Advice:
    """Return the advice that the study supports; use ``study.compute_once(advice)``."""
    pools = study.compute_once(pools_of)

    def order(pool: JointMeans) -> tuple[bool, bool, int, str]:
        """Rank measures whatever the order of files: known noise, composites, most points, name."""
        has_noise = len(pool.points) > 1 and pool.noise(range(len(pool.points))) is not None
        primary = has_noise and pool.measure.primary
        return not primary, pool.measure.composite is None, -len(pool.points), pool.measure.key

    main = min(
        study.compute_once(compare_series), key=lambda row: order(pools[row.measure.key]), default=None
    )
    if main is None:
        return Advice(checkpoint=None, why=NO_CHECKPOINT, more_items=(), plan=())
    pool = pools[main.measure.key]
    recommended = recommend(study, pool)
    rivals = [best.series for best in main.bests if best is not main.overall]
    duels = [main.duel(main.overall.series, series) for series in rivals] if main.overall else []
    more = sorted(
        (
            _items_needed(duel, len(main.duels), study.level)
            for duel in duels
            if duel is not None and duel.told == UNDECIDED
        ),
        key=lambda row: (row.needed is None, row.needed or 0),
    )
    plan = [_decision_command(row, study.level) for row in more[:MOST]]
    if recommended is not None:
        point = recommended.point
        go_on = NextCommand(
            aim=f"after training on from {point.name}: score the new checkpoints",
            command=_scoring_command(
                recommended.measure, [point], f"--checkpoint {shlex.quote(_new_checkpoints(point))}"
            ),
            expected=_gains(study, pool) or NO_GAIN,
        )
        plan = [go_on, *plan]
    return Advice(
        checkpoint=recommended,
        why="" if recommended else NO_CHECKPOINT,
        more_items=tuple(more),
        plan=tuple(plan),
    )


def recommend(study: Study, main: JointMeans) -> RecommendedCheckpoint | None:
    """Return the checkpoint to continue from; None for fewer than two, or with unknown noise.

    It is the best by ``compare.standings``; if only totals are known, the one measured best by the main measure.
    """
    standing, pool = best_checkpoint(study.compute_once(standings_in)), main
    if standing is not None and (measure := measure_of(study, standing)) is not None:
        pool = pool_points(study, measure, complete_points(study, measure.benchmarks))
    indices = list(range(len(pool.points)))
    noise = pool.noise(indices)
    if len(indices) < 2 or noise is None:
        return None
    choice = best_of(pool.means, noise, level=study.level, draws=CURVE_DRAWS)
    best, rivals = choice.place, pool.rivals(choice.place, indices, study.level)
    if standing is not None and standing.checkpoint in pool.index:
        best = pool.index[standing.checkpoint]
        rivals = [index for index in indices if pool.points[index].name in standing.rivals]
    point, measure = pool.points[best], pool.measure
    series = study.series_of(point)
    before = series.points[: series.points.index(point)]
    return RecommendedCheckpoint(
        point=point,
        measure=measure,
        value=measure.sign * choice.measured,
        of=len(indices),
        rivals=tuple(pool.points[index] for index in sorted(rivals, key=lambda index: -pool.means[index])),
        expected=expected_value(study, pool, best, choice),
        earliest=next((point for point in before if set(pool.places([point])) & set(rivals)), None),
    )


def _items_needed(duel: BestVsBest, family: int, level: float) -> MoreItems:
    """Return the number of items that decides a comparison, corrected for a family of comparisons."""
    design = design_of_comparison(duel.as_measured)
    gap = abs(duel.comparison.difference or 0.0)
    needed, why = None, NO_ERROR
    if design is not None and duel.items:
        why = "no detectable difference"
        if gap:
            why = "more than ten million items"
            size = items_for_drop(design, gap, power=POWER, family=family, margin=0.0, alpha=1 - level)
            if size is not None:
                needed, why = math.ceil(duel.items * size / design.items), ""
    return MoreItems(measure=duel.measure, duel=duel, items=duel.items, needed=needed, why=why)


# Commands


def _path_of(point: Point) -> str:
    """Return the path of a checkpoint, which need not exist here; empty for a row of a published table."""
    return next((entry.saved.path for entry in point.candidate.entries.values() if entry.saved.path), "")


def _is_unsaved(point: Point) -> bool:
    """Return whether a checkpoint was scored in memory by its training, and has not been saved."""
    engines = {entry.saved.checkpoint_info.get("engine") for entry in point.candidate.entries.values()}
    return engines == {"live"} and not Path(_path_of(point)).exists()


def _new_checkpoints(point: Point) -> str:
    """Return a pattern for the checkpoints of a new training, beside that of a checkpoint on disk."""
    path = Path(_path_of(point))
    runs = path.parent.parent if _path_of(point) and path.exists() else Path("runs")
    return str(runs / "NEW" / "checkpoint-*")


def _gains(study: Study, pool: JointMeans) -> str:
    """Describe the gains of series that started at a checkpoint of the study (``from``)."""
    indices = {point.candidate.name: pool.places([point]) for point in study.points}
    texts = []
    for series in study.series:
        start = select([point.candidate for point in study.points], series.about.declared.get(FROM, ""))
        began = indices[start[0].name] if len(start) == 1 else []
        reached = pool.places(series.points)
        if began and reached:
            duel = SeriesContest(study, pool, [(series, began), (series, reached)]).duel(0, 1)
            gain = _difference_text(duel.comparison, pool.measure)
            texts.append(f"{series.name} reached {gain} over its start, {duel.first.point.name}")
    return f"{'; '.join(texts)}: one training is no range" if len(texts) == 1 else "; ".join(texts)


def _difference_text(comparison: Comparison, measure: StudyMetric) -> str:
    """Format a difference with its interval."""
    if comparison.difference is None:
        return "no known difference"
    limits = measure.difference_range(comparison)
    return measure.difference_unit.told(comparison.difference) + ("" if limits == NOTHING else f" {limits}")


def _decision_command(row: MoreItems, level: float) -> NextCommand:
    """Return the command that decides between two checkpoints, or the reason for none."""
    points = row.duel.first.point, row.duel.second.point
    entries = [point.candidate.entries[name] for point in points for name in row.measure.benchmarks]
    room = min(max(entry.saved.of, entry.saved.scored) / max(entry.saved.scored, 1) for entry in entries)
    paths = ["" if _is_unsaved(point) else _path_of(point) for point in points]
    options = " ".join(f"--checkpoint {shlex.quote(path)}" for path in paths)
    command = _scoring_command(row.measure, points, options) if all(paths) else ""
    if not all(entry.items.examples for entry in entries):
        expected = PAIRED
    elif row.times is None or row.times > room:
        takes = row.why if row.times is None else f"it takes {format_step(row.times, 2)} times the items"
        more = f"{format_step(room, 2)} times as many" if room > 1 else "no more"
        command, expected = "", f"cannot be decided with this data: {takes}, and there are {more}"
    else:
        limit = "all" if len(row.measure.benchmarks) > 1 else f"{row.needed}"
        command = f"{command} --eval-limit {limit}" if command else ""
        comparison, expected = row.duel.comparison, "not known"
        if comparison.difference is not None and comparison.stderr and row.needed:
            half = z_quantile(level) * comparison.stderr * math.sqrt(1 + row.items / row.needed)
            low, high = comparison.difference - half, comparison.difference + half
            expected = f"a difference within {_difference_text(replace(comparison, low=low, high=high), row.measure)}"
    return NextCommand(
        aim=f"decide {points[0].name} against {points[1].name} by {row.measure.label}",
        command=command,
        expected=expected,
    )


def _scoring_command(measure: StudyMetric, points: Iterable[Point], options: str) -> str:
    """Return the command that scores checkpoints on the benchmarks of a measure.

    Benchmarks are shipped, or in test files here. Empty if a published file names an unknown benchmark.
    """
    shipped = shipped_names()
    terms: dict[str, bool] = {}
    for entry in (point.candidate.entries[name] for point in points for name in measure.benchmarks):
        saved = entry.saved
        names = translate_task(saved.benchmark, shipped, theirs=saved.published)
        is_shipped = all(name.partition("/")[0] in shipped for name in names)
        if saved.published and not is_shipped:
            return ""
        terms |= {name if is_shipped else saved.benchmark: is_shipped for name in names}
    tasks = shlex.quote(",".join(terms))
    if all(terms.values()):
        return f"touchstone run --tasks {tasks} {options}"
    return f"pytest {options} --eval-tasks {tasks}"


# The sections


OF_ALL: Final = "of all benchmarks of the composite together, in the same proportions; "
NEEDED: Final = (
    f"they find a true difference as large as the corrected gap with a chance of {100 * POWER:.0f} %, corrected for "
    "all pairs. Finding a smaller one takes more."
)


def advice_section(study: Study) -> Section:
    """Return the section with the advice, or the reason for none."""
    study_advice = study.compute_once(advice)
    first: Part = f"{study_advice.why[:1].upper()}{study_advice.why[1:]}."
    if study_advice.checkpoint is not None:
        facts = list(_reasons(study_advice.checkpoint))
        for row in study_advice.more_items[:1]:
            first_series, second_series = row.duel.series
            takes = row.why
            if row.needed and row.times:
                takes = f"takes {row.needed:,} items, x {format_step(row.times, 2)}"
            facts.append(
                (
                    "undecided",
                    f"{first_series.name} against {second_series.name} by {row.measure.label}: {takes}",
                )
            )
        first = Facts(tuple(facts))
    plan = [
        Facts(
            (
                ("to do", step.aim),
                *([(COMMAND, step.command)] if step.command else []),
                ("expect", step.expected),
            )
        )
        for step in study_advice.plan
    ]
    more: list[Part] = []
    if study_advice.more_items:
        proportions = OF_ALL if study_advice.more_items[0].measure.composite else ""
        more = [_items_table(study_advice.more_items), f"needed: {proportions}{NEEDED}"]
    return Section(
        key="advice",
        title="What to do next",
        parts=(first, *plan, *more),
        brief_parts=min(2, 1 + len(plan)),
        data=facts_of(study_advice),
    )


def _reasons(best: RecommendedCheckpoint) -> Iterable[tuple[str, str]]:
    """Yield facts on the recommended checkpoint and the reasons for it."""
    measure, others = best.measure, best.of - 1
    extreme = "highest" if measure.higher_is_better else "lowest"
    yield (
        "go on from",
        f"{best.point.name}: {measure.label} {measure.text(best.value)}, the {extreme} measured",
    )
    if _is_unsaved(best.point):
        yield "not saved", UNSAVED
    elif (path := _path_of(best.point)) and Path(path).exists():
        yield "path", path
    if best.rivals:
        names = join_names((point.name for point in best.rivals), 2)
        rivals = (
            f"nothing better is known; {len(best.rivals)} of {others} others cannot be told apart from it"
        )
        yield "reason", f"{rivals}: {names}"
    else:
        yield "reason", f"it is told apart from all {others} others"
    if best.earliest is not None:
        yield "earlier", f"{best.earliest.name} had less training and cannot be told apart from it"
    if best.expected is not None:
        low, high = measure.amount(best.expected.low), measure.text(best.expected.high)
        yield "expect", f"on further items {low} to {high}: the best of {best.of} is partly luck"


def _items_table(rows: Sequence[MoreItems]) -> Table:
    unit = rows[0].measure.difference_unit
    return Table(
        title=f"{rows[0].measure.label}: not told apart from {rows[0].duel.first.series.name} with the items there are",
        header=("series", "gap", "corrected", "items", "needed", "times"),
        rows=tuple(
            (
                row.duel.second.series.name,
                unit.moved(row.duel.as_measured.difference),
                unit.moved(row.duel.comparison.difference),
                f"{row.items:,}" if row.items else NOTHING,
                f"{row.needed:,}" if row.needed else NOTHING,
                f"x {format_step(row.times, 2)}" if row.times else row.why,
            )
            for row in rows
        ),
        words=True,
    )


# The noise of measures


LEGEND: Final = (
    ("signal", f"the largest difference of two series, each at the mean of its last {LAST} checkpoints"),
    ("noise", "the standard deviation of those checkpoints within a series, on average"),
    ("SNR", "signal / noise (Heineman et al. 2025); equal series exceed the limit in 5 of 100 cases"),
    ("floor", "two single checkpoints that differ by less differ by noise"),
    ("items", "the standard error of one checkpoint that its number of items leaves"),
)

WORDS: Final = {
    "can decide": "the signal is more than the noise of checkpoints and of items",
    "too noisy": "equal series would differ as much from checkpoint to checkpoint",
    "too few items": "the series differ by more than checkpoints do, but not by more than the error of their items",
}


def noise_section(study: Study) -> Section | None:
    """Return the section on which benchmarks can carry a decision; None without measures."""
    rows = study.compute_once(measure_noise)
    if not rows:
        return None
    whys = dict.fromkeys(row.why for row in rows if row.why)
    labels: dict[str, list[str]] = {}
    for row in rows:
        labels.setdefault(row.verdict, []).append(row.measure.label)
    if any(row.found is not None for row in rows):
        words = [(verdict, WORDS[verdict]) for verdict in labels if verdict in WORDS]
        parts: list[Part] = [
            Table(
                header=("measure", "signal", "noise", "SNR", "limit", "floor", "items", "verdict"),
                rows=tuple(map(_noise_row, rows)),
                words=True,
            ),
            Facts((*LEGEND, *words, *(("no evidence", why) for why in whys))),
        ]
        texts = [f"{verdict}: {join_names(names, MOST_IN_LINE)}" for verdict, names in labels.items()]
        line = "; ".join(texts if "can decide" in labels else ["none tells series apart", *texts])
    else:
        line = f"no evidence: {next(iter(whys), '')}"
        parts = [f"No{line[2:]}."]
    return Section(
        key="noise",
        title="Which benchmarks can carry a decision",
        parts=tuple(parts),
        line=line,
        data=[
            {
                **facts_of(row),
                "definition": f"Heineman et al. 2025, last {count(LAST, 'checkpoint')} of each series",
                **(asdict(row.found) if row.found else {}),
            }
            for row in rows
        ],
    )


def _noise_row(row: MeasureNoise) -> tuple[str, ...]:
    measure, ratio = row.measure, row.found
    cells = [NOTHING] * 5
    if ratio is not None:
        ratios = (NOTHING if value is None else f"{value:.1f}" for value in (ratio.ratio, ratio.limit))
        cells = [*map(measure.amount, (ratio.spread, ratio.deviation)), *ratios, measure.amount(ratio.floor)]
    return measure.label, *cells, measure.amount(row.items), row.verdict
