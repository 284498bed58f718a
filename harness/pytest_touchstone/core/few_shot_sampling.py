"""The few-shot examples of a benchmark, drawn in one of the ways that ``--eval-set fewshot`` names.

``sample_fixed`` draws once per benchmark and group, from the seed alone, so that all prompts of a group begin alike.
Where a benchmark has no file of examples, they come from the evaluation rows: one more is drawn than needed, and an
example that was drawn itself is left out of its prompt.

``lm-eval`` draws as lm-evaluation-harness 0.4.13 does, so that its prompts can be met. One generator of random numbers
per task goes on from row to row in file order: the examples of a row depend on its place among all rows, and on
nothing that a run selects. A task that names no split for them, or the one that it tests, draws one more and drops the
row itself; any other takes what it draws, even the row itself. Examples that are picked in file order are the same
under both names.

Examples depend neither on the selected items, nor on their order, nor on the workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, TypeAlias

from pytest_touchstone.core.benchmark import Benchmark, ShotPick
from pytest_touchstone.core.dataset import DatasetRows, Example, load_shots, seeded_random
from pytest_touchstone.core.errors import ShotsError
from pytest_touchstone.core.few_shot import GREEDY, FewShot, Sampling, Shot
from pytest_touchstone.core.requests import Turn
from pytest_touchstone.core.text import did_you_mean, join_names

TOUCHSTONE: Final = "touchstone"

LM_EVAL: Final = "lm-eval"


@dataclass(frozen=True, slots=True)
class FewShotRequest:
    """An order for ``count`` examples, at least one, before each row of ``dataset``.

    They come from ``source``, or from the dataset itself where that is None.
    """

    spec: Benchmark
    count: int
    seed: int
    dataset: DatasetRows
    source: DatasetRows | None

    @property
    def own(self) -> bool:
        """Whether the examples come from the evaluation rows themselves."""
        return self.source is None

    @property
    def chosen(self) -> DatasetRows:
        """The rows that examples are drawn from."""
        return self.dataset if self.source is None else self.source

    def part(self, group: str | None) -> str | None:
        """Return the group whose examples a group shares: itself, or None for the whole benchmark."""
        return None if self.spec.shots.for_all or self.spec.subsets is not None else group

    def pools(self, needed: int) -> dict[str | None, list[Example]]:
        """Return the rows that each group's examples are drawn from.

        A row without a group is in all pools.

        Raises ``ShotsError`` where there are fewer than needed.
        """
        pools: dict[str | None, list[Example]] = {
            self.part(example.group): [] for example in self.dataset.examples
        }
        for example in self.chosen.examples:
            for key in pools if example.group is None else {self.part(example.group)} & pools.keys():
                pools[key].append(example)
        for key, rows in pools.items():
            if len(rows) < needed:
                raise self.too_few(key, len(rows))
        return pools

    def too_few(self, pool_key: str | None, rows: int) -> ShotsError:
        """Return the error for a pool of too few rows."""
        which = self.chosen.info.name + (f" ({pool_key})" if pool_key else "")
        most = max(0, rows - self.own)
        includes_question = ", one of which is the question" if self.own else ""
        lower = "--eval-shots" if self.count != self.spec.shots.count else "shots (or --eval-shots)"
        return ShotsError(
            f"{self.spec.name}: {self.count} few-shot examples asked for, "
            f"but {which} has {rows} rows{includes_question}; lower {lower} to {most}"
        )


@dataclass(frozen=True, slots=True)
class DrawnShots:
    """The few-shot examples of one benchmark.

    ``before`` has the ``count`` examples of each row by the row's id, ``told`` what results say of them: how they were
    picked, and a hash over them.
    """

    count: int
    before: Mapping[str, Sequence[Example]]
    told: Mapping[str, Any]

    def description(self) -> dict[str, Any]:
        """Return the few-shot examples as results describe them."""
        return {"num_fewshot": self.count, **self.told}

    def few_shot(self, spec: Benchmark, example: Example, sampling: Sampling = GREEDY) -> FewShot:
        """Return the argument ``fewshot`` for one example, with the run's ``sampling``.

        Each example of the prompt is followed by a blank line. As a chat it is a question of the user and an answer
        of the assistant, unless the benchmark renders its examples in one piece.
        """
        shot = spec.shots.shot
        drawn = self.before[example.id] if self.count else ()
        rendered = [] if shot is None else [_render_shot(shot, example) for example in drawn]
        text = "".join(
            (shot_or_text.text if isinstance(shot_or_text, Shot) else shot_or_text) + "\n\n"
            for shot_or_text in rendered
        )
        pairs = (
            shot_or_text.turns or (shot_or_text.question, shot_or_text.answer)
            for shot_or_text in rendered
            if isinstance(shot_or_text, Shot)
        )
        turns = tuple(
            turn for question, answer in pairs for turn in (Turn("user", question), Turn("assistant", answer))
        )
        return FewShot(text, turns, sampling.of(spec.name, example.id))


Draw: TypeAlias = Callable[[FewShotRequest], DrawnShots]


def sample_fixed(wanted: FewShotRequest) -> DrawnShots:
    """Draw once per group from the run's seed, or per row by the benchmark's function."""
    if callable(wanted.spec.shots.pick):
        return _pick_by_function(wanted, wanted.spec.shots.pick)
    spec, rows, needed = wanted.spec, wanted.dataset.examples, wanted.count + wanted.own
    pools = wanted.pools(needed)
    drawn: dict[str | None, Sequence[Example]] = {}
    for group in sorted({example.group for example in rows}, key=str):
        pool, generator = pools[wanted.part(group)], seeded_random(wanted.seed, spec.base.name, group)
        drawn[group] = pool[:needed] if spec.shots.pick == "first" else generator.sample(pool, needed)
    lines = (f"{group}\t{shot.sha256}" for group, shots in drawn.items() for shot in shots)
    before: dict[str, Sequence[Example]] = {example.id: drawn[example.group] for example in rows}
    if wanted.own:
        before = {name: [shot for shot in shots if shot.id != name] for name, shots in before.items()}
    before = {name: shots[: wanted.count] for name, shots in before.items()}
    return DrawnShots(wanted.count, before, {"pick": spec.shots.pick, "sha256": _sha256(lines)})


def _pick_by_function(wanted: FewShotRequest, pick: ShotPick) -> DrawnShots:
    """Let the benchmark's function pick each row's examples from the other rows.

    Raises ``ShotsError`` for a wrong number of rows, and for rows that were not offered.
    """
    pools = wanted.pools(wanted.count + wanted.own)
    before: dict[str, Sequence[Example]] = {}
    for example in wanted.dataset.examples:
        pool = pools[wanted.part(example.group)]
        candidates = {
            id(candidate.row): candidate
            for candidate in pool
            if not (wanted.own and candidate.id == example.id)
        }
        rows = [candidate.row for candidate in candidates.values()]
        number = example.id.removeprefix(wanted.spec.name)
        base = wanted.spec.base.name
        generator = seeded_random(wanted.seed, base, base + number)
        picked = [candidates.get(id(row)) for row in pick(rows, wanted.count, example.row, generator)]
        before[example.id] = [shot for shot in picked if shot is not None]
        if len(picked) != wanted.count or None in picked:
            raise ShotsError(
                f"{wanted.spec.name}: {wanted.spec.shots.picked}() picked {len(picked)} rows for {example.id}, "
                f"{picked.count(None)} of them unknown; return {wanted.count} of the rows that it is given"
            )
    lines = (f"{name}\t{shot.sha256}" for name, shots in before.items() for shot in shots)
    return DrawnShots(wanted.count, before, {"pick": wanted.spec.shots.picked, "sha256": _sha256(lines)})


def sample_like_lm_eval(wanted: FewShotRequest) -> DrawnShots:
    """Draw for each row, as lm-evaluation-harness draws for the benchmark's task.

    Raises ``ShotsError`` where the task, or its rows, are missing.
    """
    spec = wanted.spec
    if spec.shots.pick != "sample":
        return sample_fixed(wanted)
    task = spec.shots.lm_eval
    if task is None:
        raise ShotsError(
            f"{spec.name}: how {LM_EVAL} draws its few-shot examples is not known; "
            f"--eval-shots 0 asks without, --eval-set fewshot={TOUCHSTONE} draws others"
        )
    if wanted.own and spec.data.shots is not None:
        raise ShotsError(
            f"{spec.name}: {LM_EVAL} draws its few-shot examples from {spec.data.shots.name}, which the shipped data "
            "lack; give --eval-data DIR or --eval-data hub, or ask without (--eval-shots 0)"
        )
    pools = wanted.pools(wanted.count + task.drops_own)
    generators = {key: Random(wanted.seed) for key in pools}
    before = {}
    for example in wanted.dataset.examples:
        key = wanted.part(example.group)
        before[example.id] = _draw_like_lm_eval(wanted, generators[key], pools[key], example)
    lines = (f"{name}\t{shot.sha256}" for name, shots in before.items() for shot in shots)
    details = {"pick": LM_EVAL, "sha256": _sha256(lines)}
    rows = len(wanted.chosen.examples)
    if not wanted.own and task.rows not in (None, rows):
        details["part"] = f"{rows:,} of {task.rows:,} rows"
    return DrawnShots(wanted.count, before, details)


def _draw_like_lm_eval(
    wanted: FewShotRequest, generator: Random, pool: Sequence[Example], example: Example
) -> Sequence[Example]:
    """Draw the examples of one row.

    Rows that say the same as the example are dropped where the task does so. If too few remain, another draw is made
    from the rows that say something else.
    """
    count = wanted.count
    if wanted.spec.shots.lm_eval is None or not wanted.spec.shots.lm_eval.drops_own:
        return generator.sample(pool, count)
    drawn = [shot for shot in generator.sample(pool, count + 1) if shot.row != example.row]
    if len(drawn) >= count:
        return drawn[:count]
    others = [shot for shot in pool if shot.row != example.row]
    if len(others) < count:
        raise wanted.too_few(wanted.part(example.group), len(others))
    return generator.sample(others, count)


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "backslashreplace")).hexdigest()


DRAWS: Final[Mapping[str, Draw]] = {TOUCHSTONE: sample_fixed, LM_EVAL: sample_like_lm_eval}
"""The ways of drawing by name."""


def _render_shot(shot: Callable[[Any], str | Shot], example: Example) -> str | Shot:
    """Render a row as a few-shot example; an error names the row and its fields."""
    try:
        return shot(example.row)
    except Exception as error:
        note = f"in shot= of row {example.id}"
        if isinstance(error, KeyError) and isinstance(example.row, Mapping):
            near = did_you_mean(str(error.args[0]), example.row).strip() if error.args else ""
            note += "; ".join(filter(None, (f", which has the fields {join_names(example.row)}", near)))
        error.add_note(note)
        raise


def resolve_few_shot(
    spec: Benchmark, dataset: DatasetRows, data: str | None, shots: int | None, seed: int, *, draw: str
) -> DrawnShots:
    """Draw the few-shot examples of each row, by default as many as the benchmark declares.

    Raises ``DataError`` as ``load_shots`` and ``draw_shots`` do, and ``ShotsError`` where the rows take none.
    """
    if spec.shots.pick == LM_EVAL:  # its rows have examples before them already
        told = {
            "from": f"{dataset.info.name}, {dataset.info.origin}",
            "pick": LM_EVAL,
            "sha256": spec.code.digest,
        }
        return DrawnShots(spec.shots.count, {}, told if spec.shots.count else dict.fromkeys(told))
    count = spec.shots.count if shots is None else shots if spec.shots.shot is not None else 0
    if spec.row_rules.own_prompt and any(
        example.row.get(spec.row_rules.own_prompt) for example in dataset.examples
    ):
        if shots and count:
            raise ShotsError(
                f"{spec.name}: its rows have prompts of their own ({spec.row_rules.own_prompt}), "
                "which take no few-shot examples; --eval-shots 0 asks without"
            )
        count = 0
    source = load_shots(spec, data) if count else None
    return draw_shots(spec, count, seed, dataset, source, draw=draw)


def draw_shots(
    spec: Benchmark,
    count: int,
    seed: int,
    dataset: DatasetRows,
    source: DatasetRows | None,
    *,
    draw: str = TOUCHSTONE,
) -> DrawnShots:
    """Draw ``count`` few-shot examples for each row of ``dataset``.

    They come from ``source``, or from the dataset itself where that is None.

    ``draw`` is a value of ``--eval-set fewshot``, ``seed`` the run's. Raises ``ShotsError`` when the benchmark cannot
    render any, or when there are too few.
    """
    if not count:
        return DrawnShots(0, {}, dict.fromkeys(("from", "pick", "sha256")))
    if spec.shots.shot is None:
        raise ShotsError(
            f"{spec.name}: {count} few-shot examples, but no shot=, which makes one of a row; write "
            f"shots=Shots({count}, shot=lambda row: ...), or ask with --eval-shots 0"
        )
    name, _, own_seed = draw.partition(":")
    if name == LM_EVAL:
        seed = int(own_seed or 1234)  # lm-evaluation-harness's own, unless its --seed says otherwise
    wanted = FewShotRequest(spec, count, seed, dataset, source)
    drawn, info = DRAWS[name](wanted), wanted.chosen.info
    return replace(drawn, told={"from": f"{info.name}, {info.origin}", **drawn.told})
