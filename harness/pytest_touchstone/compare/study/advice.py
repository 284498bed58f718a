"""The next steps: the checkpoint to go on from, comparisons that need more items, and commands.

Everything rests on numbers of this study. Where it holds none, the advice is "no evidence", with the reason.

- **The checkpoint**: by a composite, else the primary metric that most checkpoints have. Of the checkpoints that cannot
  be told from the best of it, the one measured best that no other of them beats on another primary metric (Holm over
  these tests). The earliest of them in its series is named too.
- **Expected** of it on further items of the kind: its value and interval after allowing for the choice.
- **More items**: for the best series against each other one that cannot be told from it. The number is that with which
  a drop of the measured size is found with power 0.8 (``statistics.power``), among as many comparisons.

Everything that a study finds by comparing its series, made once for all reports.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.load import select
from pytest_touchstone.compare.study.between import Between, Duel, Lengths, between, by_length, gain
from pytest_touchstone.compare.study.forgetting import Forgetting, forgetting
from pytest_touchstone.compare.study.points import Measure, Point, Study, interval_of, on_further_items
from pytest_touchstone.compare.study.pool import MeasureNoise, Pool, noise, pools_of
from pytest_touchstone.core.lm_eval_names import translated
from pytest_touchstone.core.tasks import shipped_names
from pytest_touchstone.core.text import place_text
from pytest_touchstone.statistics.best_of_many import BestChoice, best_of
from pytest_touchstone.statistics.comparison import z_quantile
from pytest_touchstone.statistics.contrasts import Contrast, Weighted
from pytest_touchstone.statistics.curves import CURVE_DRAWS
from pytest_touchstone.statistics.power import design_of_comparison, items_for_drop
from pytest_touchstone.statistics.verdicts import POWER, ROUNDING, holm

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
    """The checkpoint to go on from: the one measured best of ``rivals`` + 1 that cannot be told apart.

    ``highest``: it is also the one measured best of all. ``expected`` is what further items would give; None where
    nothing is known of the noise. ``vetoed`` are rivals that another one beats on the measure beside them. ``earliest``
    is the rival with the least training in its own series, where that is less than the chosen one's.
    """

    point: Point
    measure: Measure
    value: float
    highest: bool
    of: int
    rivals: tuple[Point, ...]
    expected: Contrast | None
    vetoed: tuple[tuple[Point, Measure], ...] = ()
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

    chosen: Chosen | None
    why: str
    more: tuple[MoreItems, ...]
    plan: tuple[NextCommand, ...]


def advice(study: Study, pools: Mapping[str, Pool], found: Sequence[Between]) -> Advice:
    """The advice that the study supports."""
    main = _main(found, pools)
    chosen = None if main is None else choose(study, pools, main.measure)
    why = "" if chosen else "no evidence: no measure with two checkpoints whose noise is known"
    more = [] if main is None else _more_items(main, study.level)
    return Advice(chosen=chosen, why=why, more=tuple(more), plan=tuple(_plan(study, pools, chosen, more)))


def _main(found: Sequence[Between], pools: Mapping[str, Pool]) -> Between | None:
    """The measure that decides, in whatever order files have them: a composite before others, one whose noise is known,
    the one of most checkpoints, the first by name."""

    def order(one: Between) -> tuple[bool, bool, int, str]:
        pool = pools[one.measure.key]
        known = len(pool.points) > 1 and pool.noise(range(len(pool.points))) is not None
        return not known, one.measure.composite is None, -len(pool.points), one.measure.key

    return min(found, key=order, default=None)


def choose(study: Study, pools: Mapping[str, Pool], measure: Measure) -> Chosen | None:
    """The checkpoint to go on from by a measure; None for fewer than two, or without their noise."""
    pool = pools[measure.key]
    places = list(range(len(pool.points)))
    noise = pool.noise(places)
    if len(places) < 2 or noise is None:
        return None
    choice = best_of(pool.means, noise, level=study.level, draws=CURVE_DRAWS)
    rivals = pool.rivals(choice.place, places, study.level)
    candidates = sorted([choice.place, *rivals], key=lambda place: -pool.means[place])
    vetoed = _vetoed([pool.points[place] for place in candidates], study, pools, measure)
    names = {point.name for point, _ in vetoed}
    best, *others = [place for place in candidates if pool.points[place].name not in names] or candidates
    sign = 1 if measure.higher_is_better else -1
    kept = tuple(pool.points[place] for place in others)
    return Chosen(
        point=pool.points[best],
        measure=measure,
        value=sign * pool.means[best],
        highest=best == choice.place,
        of=len(places),
        rivals=kept,
        expected=_expected(study, pool, best, choice),
        vetoed=tuple(vetoed),
        earliest=_earliest(study, pool.points[best], kept),
    )


def _expected(study: Study, pool: Pool, place: int, choice: BestChoice) -> Contrast | None:
    """The value on further items with its interval, both after allowing for the choice."""
    own = interval_of(study.value(pool.points[place], pool.measure), pool.measure)
    if (
        own is None or abs(own.value - pool.means[place]) > ROUNDING
    ):  # a perplexity goes by its log-probabilities
        own = pool.contrast([Weighted(place, 1.0)], level=study.level)
    return on_further_items(own, choice, pool.measure)


def _vetoed(
    candidates: Sequence[Point], study: Study, pools: Mapping[str, Pool], measure: Measure
) -> list[tuple[Point, Measure]]:
    """The candidates that are worse than the best of them by another primary metric."""
    parts = (
        {(part.benchmark, part.metric) for part in measure.composite.parts} if measure.composite else set()
    )
    tests: list[tuple[Point, Measure, float | None]] = []
    for other in study.measures:
        inside = (other.benchmark, other.metric) in parts or other.key == measure.key
        if not other.primary or inside or other.composite is not None:
            continue
        pool = pools[other.key]
        places = pool.places(candidates)
        if len(places) < 2:
            continue
        best = max(places, key=lambda place: pool.means[place])
        tests += [
            (
                pool.points[place],
                other,
                pool.contrast([Weighted(best, 1.0), Weighted(place, -1.0)], level=study.level).p,
            )
            for place in places
            if place != best
        ]
    adjusted = holm([p for _, _, p in tests])
    return [
        (point, other)
        for (point, other, _), p in zip(tests, adjusted, strict=True)
        if p is not None and p <= 1 - study.level
    ]


def _earliest(study: Study, chosen: Point, rivals: Sequence[Point]) -> Point | None:
    """The rival of the same series with the least training, where that is less than the chosen one's."""
    series = study.series_of(chosen)
    order = {point.name: number for number, point in enumerate(series.points)}
    same = [point for point in rivals if point.name in order and order[point.name] < order[chosen.name]]
    return min(same, key=lambda point: order[point.name], default=None)


# More items


def _more_items(main: Between, level: float) -> list[MoreItems]:
    """The best series against those that cannot be told from it, the nearest to being told first."""
    if main.overall is None:
        return []
    best = main.overall.series.name
    mine = [one for one in main.duels if best in (one.first.series.name, one.second.series.name)]
    found = []
    for one in mine:
        if one.told != "cannot tell":
            continue
        duel = one if one.first.series.name == best else one.turned
        found.append(_needed(main.measure, duel, len(main.duels), level))
    return sorted(found, key=lambda one: (one.needed is None, one.needed or 0))


def _needed(measure: Measure, duel: Duel, family: int, level: float) -> MoreItems:
    design = design_of_comparison(duel.as_measured)
    moved = abs(duel.comparison.difference or 0.0)
    if design is None or not duel.items:
        return MoreItems(measure=measure, duel=duel, items=duel.items, needed=None, why=NO_ERROR)
    if not moved:
        return MoreItems(measure=measure, duel=duel, items=duel.items, needed=None, why=NO_DIFFERENCE)
    found = items_for_drop(design, moved, power=POWER, family=family, margin=0.0, alpha=1 - level)
    needed = None if found is None else math.ceil(duel.items * found / design.items)
    return MoreItems(
        measure=measure, duel=duel, items=duel.items, needed=needed, why="" if needed else TOO_MANY
    )


# Commands


def _plan(
    study: Study, pools: Mapping[str, Pool], chosen: Chosen | None, more: Sequence[MoreItems]
) -> list[NextCommand]:
    found = [_go_on(study, pools[chosen.measure.key], chosen)] if chosen else []
    return [*found, *(_decide(one, study.level) for one in more[:MOST])]


def _go_on(study: Study, pool: Pool, chosen: Chosen) -> NextCommand:
    entries = [chosen.point.candidate.entries[name] for name in _benchmarks(chosen.measure)]
    return NextCommand(
        aim=f"after training on from {chosen.point.name}: score the new checkpoints",
        command=_command(entries, "--checkpoint 'runs/NEW/checkpoint-*'"),
        expected=_gains(study, pool) or NO_GAIN,
    )


def _gains(study: Study, pool: Pool) -> str:
    """The gains of the series that are known to have begun at a checkpoint of the study (``from``), over it."""
    known = {point.candidate.name: point for point in study.points}
    texts = []
    for series in study.series:
        start = select([point.candidate for point in study.points], series.about.told.get(FROM, ""))
        found = gain(study, series, known[start[0].name], pool) if len(start) == 1 else None
        if found is None:
            continue
        one = found.comparison
        moved = _difference(one.difference, one.low, one.high, pool.measure)
        texts.append(f"{series.name} reached {moved} over its start, {found.first.point.name}")
    return f"{'; '.join(texts)}: one training is no range" if len(texts) == 1 else "; ".join(texts)


def _difference(value: float | None, low: float | None, high: float | None, measure: Measure) -> str:
    """The difference with its interval, as text."""
    if value is None:
        return "no known difference"
    unit = measure.told_in
    limits = "" if low is None or high is None else f" [{unit.moved(low)}, {unit.moved(high)}]"
    return f"{unit.told(value)}{limits}"


def _decide(one: MoreItems, level: float) -> NextCommand:
    first, second = one.duel.first.point, one.duel.second.point
    names = _benchmarks(one.measure)
    aim = f"decide {first.name} against {second.name} by {one.measure.label}"
    entries = [point.candidate.entries[name] for point in (first, second) for name in names]
    given = [_given(first), _given(second)]
    again = _command(entries, " ".join(given)) if all(given) else ""
    if not all(entry.items.examples for entry in entries):
        return NextCommand(aim=aim, command=again, expected=PAIRED)
    room = min(max(entry.saved.of, entry.saved.scored) / entry.saved.scored for entry in entries)
    if one.times is None or one.times > room:
        return NextCommand(aim=aim, command="", expected=_too_few(one, room))
    limit = "all" if len(names) > 1 else f"{one.needed}"
    return NextCommand(
        aim=aim, command=f"{again} --eval-limit {limit}" if again else "", expected=_range(one, level)
    )


def _too_few(one: MoreItems, room: float) -> str:
    takes = one.why if one.times is None else f"it takes {place_text(one.times, 2)} times the items"
    more = f"{place_text(room, 2)} times as many" if room > 1 else "no more"
    return f"cannot be decided with this data: {takes}, and there are {more}"


def _range(one: MoreItems, level: float) -> str:
    """The difference that so many further items would measure, were it what it is here."""
    known = one.duel.comparison
    if known.difference is None or not known.stderr or not one.needed:
        return "not known"
    error = known.stderr * math.sqrt(1 + one.items / one.needed)
    half = z_quantile(level) * error
    low, high = known.difference - half, known.difference + half
    return f"a difference within {_difference(known.difference, low, high, one.measure)}"


def _benchmarks(measure: Measure) -> list[str]:
    return measure.composite.benchmarks if measure.composite else [measure.benchmark]


def _given(point: Point) -> str:
    """The option that names the checkpoint; empty where no run knew its path."""
    paths = (entry.saved.path for entry in point.candidate.entries.values())
    path = next(filter(None, paths), "")
    return f"--checkpoint {shlex.quote(path)}" if path else ""


def _command(entries: Sequence[BenchmarkScores], given: str) -> str:
    """The command that scores checkpoints on these benchmarks: of the shipped ones, or of the files here; empty
    where somebody's file names a benchmark that there is none of."""
    shipped = shipped_names()
    terms: dict[str, bool] = {}
    for entry in entries:
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
    lengths: tuple[Lengths, ...]
    forgetting: tuple[Forgetting, ...]
    noise: tuple[MeasureNoise, ...]
    advice: Advice


def find(study: Study) -> Findings:
    """The findings of a study."""
    pools = study.once(pools_of)
    found = between(study, pools)
    return Findings(
        between=tuple(found),
        lengths=tuple(by_length(study, pools)),
        forgetting=tuple(forgetting(study)),
        noise=tuple(noise(study, pools)),
        advice=advice(study, pools, found),
    )
