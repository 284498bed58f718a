"""The next steps: the checkpoint to go on from, comparisons that need more items, and commands.

Everything rests on numbers of this study. Where it holds none, the advice is "no evidence", with the reason.

- **The checkpoint**: the best one, as everywhere (``compare.standings``); where only totals are known the one measured
  best by a composite, else by the primary metric that most checkpoints have. The earliest of its series that cannot be
  told from it is named too.
- **Expected** of it on further items of the kind: its value and interval after allowing for the choice.
- **More items**: for the best series against each other one that cannot be told from it. The number is that with which
  a drop of the measured size is found with power 0.8 (``statistics.power``), among as many comparisons.

``find`` makes everything that a study finds by comparing its series, once for all reports.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pytest_touchstone.compare.load import select
from pytest_touchstone.compare.standings import best_checkpoint
from pytest_touchstone.core.tasks import shipped_names, translated
from pytest_touchstone.core.text import place_text
from pytest_touchstone.statistics.best_of_many import best_of
from pytest_touchstone.statistics.comparison import Comparison, z_quantile
from pytest_touchstone.statistics.contrasts import Contrast
from pytest_touchstone.statistics.curves import CURVE_DRAWS
from pytest_touchstone.statistics.power import design_of_comparison, items_for_drop
from pytest_touchstone.statistics.verdicts import POWER
from pytest_touchstone.study.between import UNTOLD, Between, Contest, Duel, between, by_length
from pytest_touchstone.study.choice import complete_points, expected_of, measure_of, standings_in
from pytest_touchstone.study.forgetting import Forgetting, forgetting
from pytest_touchstone.study.points import Measure, Point, Study
from pytest_touchstone.study.pool import MeasureNoise, Pool, noise, pool_over, pools_of

MOST: Final = 3
"""The comparisons for which commands are given."""

FROM: Final = "from"
"""The key of ``[tool.touchstone.series]`` that names the checkpoint at which a training began."""

PAIRED: Final = (
    "scored on the same items they are compared item by item, which takes fewer; how many is not known yet"
)
NO_ERROR: Final = "nothing is known of the error"
NO_DIFFERENCE: Final = "no difference to be told"
TOO_MANY: Final = "more than ten million items"
NO_GAIN: Final = (
    "no evidence: of no series is it known that it began at a checkpoint of this study (`from` in "
    "[tool.touchstone.series.NAME] tells it)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The checkpoint to go on from: the one measured best, which cannot be told from its ``rivals``.

    ``expected`` is what further items would give. ``earliest`` is the rival with the least training in its own series,
    where that is less than the chosen one's.
    """

    point: Point
    measure: Measure
    value: float
    of: int
    rivals: tuple[Point, ...]
    expected: Contrast | None
    earliest: Point | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreItems:
    """A comparison that the data cannot decide, its number of items, and how many it takes; None with ``why``.

    Of a composite they count the items of all its benchmarks, which grow alike.
    """

    measure: Measure
    duel: Duel
    items: int
    needed: int | None
    why: str = ""

    @property
    def times(self) -> float | None:
        """The factor by which the items must grow."""
        return self.needed / self.items if self.needed and self.items else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextCommand:
    """A command to type, its aim, and the outcome to expect."""

    aim: str
    command: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """All of it; ``why`` says why there is no checkpoint to advise."""

    checkpoint: Chosen | None
    why: str
    more_items: tuple[MoreItems, ...]
    plan: tuple[NextCommand, ...]


def advice(study: Study, pools: Mapping[str, Pool], found: Sequence[Between]) -> Advice:
    """The advice that the study supports."""
    main = min(found, key=lambda one: _order(pools[one.measure.key]), default=None)
    chosen = None if main is None else choose(study, pools[main.measure.key])
    more = [] if main is None else _more_items(main, study.level)
    return Advice(
        checkpoint=chosen,
        why="" if chosen else "no evidence: no measure with two checkpoints whose noise is known",
        more_items=tuple(more),
        plan=(
            *([_go_on(study, pools[main.measure.key], chosen)] if main and chosen else []),
            *(_decide(one, study.level) for one in more[:MOST]),
        ),
    )


def _order(pool: Pool) -> tuple[bool, bool, int, str]:
    """The order of measures to decide by, in whatever order files have them: one whose noise is known, a composite
    before others, the one of most checkpoints, the first by name."""
    known = len(pool.points) > 1 and pool.noise(range(len(pool.points))) is not None
    return (
        not (known and pool.measure.primary),
        pool.measure.composite is None,
        -len(pool.points),
        pool.measure.key,
    )


def choose(study: Study, main: Pool) -> Chosen | None:
    """The checkpoint to go on from: the best one (``compare.standings``), where only totals are known the one measured
    best by the main measure; None for fewer than two, or without their noise."""
    standing, pool = best_checkpoint(study.once(standings_in)), main
    if standing is not None and (measure := measure_of(study, standing)) is not None:
        pool = pool_over(study, measure, complete_points(study, measure.benchmarks))
    places = list(range(len(pool.points)))
    noise = pool.noise(places)
    if len(places) < 2 or noise is None:
        return None
    choice = best_of(pool.means, noise, level=study.level, draws=CURVE_DRAWS)
    place, rivals = choice.place, pool.rivals(choice.place, places, study.level)
    if standing is not None and standing.checkpoint in pool.index:
        place = pool.index[standing.checkpoint]
        rivals = [other for other in places if pool.points[other].name in standing.rivals]
    best, measure = pool.points[place], pool.measure
    series = study.series_of(best)
    before = series.points[: series.points.index(best)]
    return Chosen(
        point=best,
        measure=measure,
        value=measure.sign * choice.measured,
        of=len(places),
        rivals=tuple(pool.points[place] for place in sorted(rivals, key=lambda place: -pool.means[place])),
        expected=expected_of(study, pool, place, choice),
        earliest=next((point for point in before if set(pool.places([point])) & set(rivals)), None),
    )


# More items


def _more_items(main: Between, level: float) -> list[MoreItems]:
    """The best series against those that cannot be told from it, the nearest to being told first."""
    others = [one.series for one in main.bests if one is not main.overall]
    duels = [main.duel(main.overall.series, one) for one in others] if main.overall else []
    found = [
        _needed(main.measure, duel, len(main.duels), level)
        for duel in duels
        if duel is not None and duel.told == UNTOLD
    ]
    return sorted(found, key=lambda one: (one.needed is None, one.needed or 0))


def _needed(measure: Measure, duel: Duel, family: int, level: float) -> MoreItems:
    design = design_of_comparison(duel.as_measured)
    moved = abs(duel.comparison.difference or 0.0)
    plain = MoreItems(measure=measure, duel=duel, items=duel.items, needed=None, why=NO_ERROR)
    if design is None or not duel.items:
        return plain
    if not moved:
        return replace(plain, why=NO_DIFFERENCE)
    found = items_for_drop(design, moved, power=POWER, family=family, margin=0.0, alpha=1 - level)
    if found is None:
        return replace(plain, why=TOO_MANY)
    return replace(plain, needed=math.ceil(duel.items * found / design.items), why="")


# Commands


def _go_on(study: Study, pool: Pool, chosen: Chosen) -> NextCommand:
    return NextCommand(
        aim=f"after training on from {chosen.point.name}: score the new checkpoints",
        command=_command(chosen.measure, [chosen.point], "--checkpoint 'runs/NEW/checkpoint-*'"),
        expected=_gains(study, pool) or NO_GAIN,
    )


def _gains(study: Study, pool: Pool) -> str:
    """The gains of the series that are known to have begun at a checkpoint of the study (``from``), over it."""
    places = {point.candidate.name: pool.places([point]) for point in study.points}
    texts = []
    for series in study.series:
        start = select([point.candidate for point in study.points], series.about.told.get(FROM, ""))
        began = places[start[0].name] if len(start) == 1 else []
        reached = pool.places(series.points)
        if began and reached:
            duel = Contest(study, pool, [(series, began), (series, reached)]).duel(0, 1)
            moved = _difference(duel.comparison, pool.measure)
            texts.append(f"{series.name} reached {moved} over its start, {duel.first.point.name}")
    return f"{'; '.join(texts)}: one training is no range" if len(texts) == 1 else "; ".join(texts)


def _difference(one: Comparison, measure: Measure) -> str:
    """The difference with its interval, as text."""
    if one.difference is None:
        return "no known difference"
    unit = measure.told_in
    limits = (
        "" if one.low is None or one.high is None else f" [{unit.moved(one.low)}, {unit.moved(one.high)}]"
    )
    return f"{unit.told(one.difference)}{limits}"


def _decide(one: MoreItems, level: float) -> NextCommand:
    first, second = one.duel.first.point, one.duel.second.point
    entries = [point.candidate.entries[name] for point in (first, second) for name in one.measure.benchmarks]
    given = [_given(first), _given(second)]
    command = _command(one.measure, (first, second), " ".join(given)) if all(given) else ""
    room = min(max(entry.saved.of, entry.saved.scored) / max(entry.saved.scored, 1) for entry in entries)
    if not all(entry.items.examples for entry in entries):
        expected = PAIRED
    elif one.times is None or one.times > room:
        takes = one.why if one.times is None else f"it takes {place_text(one.times, 2)} times the items"
        more = f"{place_text(room, 2)} times as many" if room > 1 else "no more"
        command, expected = "", f"cannot be decided with this data: {takes}, and there are {more}"
    else:
        limit = "all" if len(one.measure.benchmarks) > 1 else f"{one.needed}"
        command, expected = f"{command} --eval-limit {limit}" if command else "", _range(one, level)
    return NextCommand(
        aim=f"decide {first.name} against {second.name} by {one.measure.label}",
        command=command,
        expected=expected,
    )


def _range(one: MoreItems, level: float) -> str:
    """The difference that so many further items would measure, were it what it is here."""
    known = one.duel.comparison
    if known.difference is None or not known.stderr or not one.needed:
        return "not known"
    half = z_quantile(level) * known.stderr * math.sqrt(1 + one.items / one.needed)
    further = replace(known, low=known.difference - half, high=known.difference + half)
    return f"a difference within {_difference(further, one.measure)}"


def _given(point: Point) -> str:
    """The option that names the checkpoint; empty where no run knew its path."""
    path = next(filter(None, (entry.saved.path for entry in point.candidate.entries.values())), "")
    return f"--checkpoint {shlex.quote(path)}" if path else ""


def _command(measure: Measure, points: Iterable[Point], given: str) -> str:
    """The command that scores checkpoints on these benchmarks: of the shipped ones, or of the files here; empty
    where somebody's file names a benchmark that there is none of."""
    shipped = shipped_names()
    terms: dict[str, bool] = {}
    for entry in (point.candidate.entries[name] for point in points for name in measure.benchmarks):
        saved = entry.saved
        names = translated(saved.benchmark, shipped, theirs=saved.published)
        known = all(name.partition("/")[0] in shipped for name in names)
        if saved.published and not known:
            return ""
        terms |= {name if known else saved.benchmark: known for name in names}
    tasks = shlex.quote(",".join(terms))
    if all(terms.values()):
        return f"touchstone run --tasks {tasks} {given}"
    return f"pytest {given} --eval-tasks {tasks}"


# All findings of a study


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Series against series, by length, what was forgotten, the noise of measures, and what to do next."""

    between: tuple[Between, ...]
    lengths: tuple[Duel, ...]
    forgetting: tuple[Forgetting, ...]
    noise: tuple[MeasureNoise, ...]
    advice: Advice


def find(study: Study) -> Findings:
    """The findings of a study; ``study.once(find)`` keeps them."""
    pools = study.once(pools_of)
    found = between(study, pools)
    return Findings(
        between=tuple(found),
        lengths=tuple(by_length(found, study.level)),
        forgetting=tuple(forgetting(study)),
        noise=tuple(noise(study, pools)),
        advice=advice(study, pools, found),
    )
