"""The few-shot examples of a benchmark, drawn in one of the ways of ``core.draws``.

They depend neither on the selected items, nor on their order, nor on the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.dataset import DatasetRows, Example, load_shots
from pytest_touchstone.core.draws import TOUCHSTONE, Wanted, draw_of
from pytest_touchstone.core.errors import ShotsError
from pytest_touchstone.core.few_shot import GREEDY, FewShot, Sampling, Shot
from pytest_touchstone.core.requests import Turn
from pytest_touchstone.core.text import did_you_mean, listed

SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class DrawnShots:
    """The few-shot examples of one benchmark: so many before each row, by the row's id; what results ``told`` of
    them."""

    count: int
    before: Mapping[str, Sequence[Example]]
    told: Mapping[str, Any]

    def description(self) -> dict[str, Any]:
        """The few-shot examples as results describe them, with a hash over those that were drawn."""
        return {"num_fewshot": self.count, **self.told}

    def few_shot(self, spec: Benchmark, example: Example, sampling: Sampling = GREEDY) -> FewShot:
        """The argument ``fewshot`` for one example, with the run's ``sampling``.

        Each example of the prompt is followed by a blank line. As a chat it is a question of the user and an answer
        of the assistant, unless the benchmark renders its examples in one piece.
        """
        rendered = self._rendered(spec, example)
        text = "".join((one.text if isinstance(one, Shot) else one) + SEPARATOR for one in rendered)
        pairs = (one.turns or (one.question, one.answer) for one in rendered if isinstance(one, Shot))
        turns = tuple(
            turn for asked, said in pairs for turn in (Turn("user", asked), Turn("assistant", said))
        )
        return FewShot(text, turns, sampling.of(spec.name, example.id))

    def _rendered(self, spec: Benchmark, example: Example) -> list[str | Shot]:
        if not self.count or spec.shot is None:
            return []
        return [_example_of(spec.shot, shot) for shot in self.before[example.id]]


def _example_of(shot: Callable[[Any], str | Shot], example: Example) -> str | Shot:
    """Return what the benchmark makes of a row; an error of its says of which row, and what fields that has."""
    try:
        return shot(example.row)
    except Exception as error:
        note = f"in shot= of row {example.id}"
        if isinstance(error, KeyError) and isinstance(example.row, Mapping):
            near = did_you_mean(str(error.args[0]), example.row).strip() if error.args else ""
            note += "; ".join(filter(None, (f", which has the fields {listed(example.row)}", near)))
        error.add_note(note)
        raise


def shots_of(
    spec: Benchmark, dataset: DatasetRows, data: str | None, shots: int | None, seed: int, *, draw: str
) -> DrawnShots:
    """Return that many few-shot examples for each row of ``dataset``, or as many as the benchmark declares.

    Raises ``DataError`` as ``load_shots`` and ``draw_shots`` do, and ``ShotsError`` where the rows take none.
    """
    count = spec.num_fewshot if shots is None else shots if spec.shot is not None else 0
    if spec.own_prompt and any(example.row.get(spec.own_prompt) for example in dataset.examples):
        if shots and count:
            raise ShotsError(
                f"{spec.name}: its rows have prompts of their own ({spec.own_prompt}), "
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
    """Return ``count`` few-shot examples for each row of ``dataset``, from ``source`` or from the dataset itself.

    ``draw`` is a value of ``--eval-fewshot``, ``seed`` the run's. Raises ``ShotsError`` when the benchmark cannot
    render any, or when there are too few.
    """
    if not count:
        return DrawnShots(0, {}, dict.fromkeys(("from", "pick", "sha256")))
    if spec.shot is None:
        raise ShotsError(
            f"{spec.name}: num_fewshot={count}, but no shot=, which makes an example of a row; add "
            "shot=lambda row: ..., or ask with --eval-shots 0"
        )
    way, seed = draw_of(draw, seed)
    wanted = Wanted(spec, count, seed, dataset, source)
    drawn = way(wanted)
    origin = f"{wanted.chosen.info.name}, {wanted.chosen.info.origin}"
    return DrawnShots(count, drawn.before, {"from": origin, **drawn.told})
