"""The draw of few-shot examples, which depends neither on the selected items, nor on their order, nor on the workers.

Drawn from (seed, benchmark, group) alone, so that all examples of a group share one prefix. Where a benchmark has no
file for them, they come from the evaluation rows. One more is drawn than needed, and an example that was drawn itself
is left out of its prefix. This is lm-evaluation-harness's rule for such tasks too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

from harness.core.benchmark import Benchmark
from harness.core.dataset import DatasetRows, Example, seeded
from harness.core.errors import ShotsError
from harness.core.few_shot import GREEDY, FewShot, Sampling, Shot
from harness.core.requests import Turn

SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class DrawnShots:
    """The few-shot examples of one benchmark by group; ``own`` when they come from the evaluation rows
    themselves."""

    count: int
    drawn: dict[str | None, tuple[Example, ...]]
    own: bool
    origin: str
    pick: Literal["first", "sample"]

    def description(self) -> dict[str, Any]:
        """The few-shot examples as results describe them, with a hash over those that were drawn."""
        lines = [f"{group}\t{shot.sha256}" for group, drawn in self.drawn.items() for shot in drawn]
        drawn = hashlib.sha256("\n".join(lines).encode("utf-8", "backslashreplace")).hexdigest()
        told = {"from": self.origin, "pick": self.pick, "sha256": drawn}
        return {"num_fewshot": self.count, **(told if self.count else dict.fromkeys(told))}

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
        drawn = self.drawn[example.group]
        if self.own:
            drawn = tuple(shot for shot in drawn if shot.id != example.id)
        return [spec.shot(shot.row) for shot in drawn[: self.count]]


def draw_shots(
    spec: Benchmark, count: int, seed: int, dataset: DatasetRows, source: DatasetRows | None
) -> DrawnShots:
    """``count`` few-shot examples for each group of ``dataset``, from ``source`` or from the dataset itself.

    Raises ``ShotsError`` when the benchmark cannot render any, or when there are too few.
    """
    if count and spec.shot is None:
        raise ShotsError(
            f"{spec.name} has no few-shot form; run it with --eval-shots 0, or leave it out with -k 'not {spec.name}'"
        )
    own = source is None
    chosen = dataset if source is None else source
    groups = {example.group for example in dataset.examples}
    drawn = (
        {group: _draw(spec, count, seed, chosen, group, own=own) for group in sorted(groups, key=str)}
        if count
        else {}
    )
    return DrawnShots(count, drawn, own, f"{chosen.info.name}, {chosen.info.origin}", spec.shots_pick)


def _draw(
    spec: Benchmark, count: int, seed: int, source: DatasetRows, group: str | None, *, own: bool
) -> tuple[Example, ...]:
    any_group = spec.shots_for_all or spec.subsets is not None
    rows = [example for example in source.examples if any_group or example.group == group]
    needed = count + own
    if len(rows) < needed:
        which = source.info.name + (f" ({group})" if group else "")
        raise ShotsError(
            f"{spec.name}: {count} few-shot examples asked for, but {which} has {len(rows)} rows; lower --eval-shots"
        )
    if spec.shots_pick == "first":
        return tuple(rows[:needed])
    return tuple(seeded(seed, spec.name, group).sample(rows, needed))
