"""Run a suite on the mutants of a checkpoint, each in memory after the sound model, and compare.

Every mutant is a run of its own in the output folder, found again by its fingerprint: a proof that was stopped goes on
with the same call. The weights are loaded once, by this process, which answers the runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.compare.proof import (
    Proof,
    ProofCell,
    RunScores,
    logprob_changes,
    measure,
    read_scores,
)
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import from_plain
from pytest_touchstone.core.requests import Generate, Loglikelihood
from pytest_touchstone.core.text import one_line
from pytest_touchstone.document.formatting import clip, duration
from pytest_touchstone.engines.live import RAISED
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.plugin.evaluate import (
    EvaluationError,
    Paths,
    check_evaluation,
    check_settings,
    evaluate_with,
)
from pytest_touchstone.plugin.finished_run import FinishedRun

if TYPE_CHECKING:
    from pytest_touchstone.engines.transformers.mutants import Mutant
    from pytest_touchstone.engines.transformers.mutated import MutatedModel

LONGEST: Final = 160
"""The characters of an error that a report has."""

_FIRST: Final = 2
"""The items of a benchmark whose logits are compared, beside its longest one."""


def prove(
    info: CheckpointInfo,
    given: Mapping[str, Any],
    benchmarks: Paths | None,
    *,
    classes: Sequence[str] = (),
    device: str = "auto",
    say: Callable[[str], None] = lambda _: None,
) -> Proof:
    """Return what a suite catches of a checkpoint's mutants.

    Args:
        info: A causal checkpoint.
        given: The settings of each run, as of ``evaluate``.
        benchmarks: Files or folders of benchmarks; None for the shipped ones.
        classes: The classes of mutants; all if empty.
        device: The device of the model.
        say: Is told of the progress, a line for each mutant.

    Raises:
        HarnessError: For a mistake in what is given, before the weights are loaded, or a run without results.

    """
    check_settings(given, live=True)
    check_evaluation({**given, "checkpoint": "fake:causal"}, benchmarks, None)
    from pytest_touchstone.engines.transformers.mutants import MUTANTS
    from pytest_touchstone.engines.transformers.mutated import MutatedModel

    chosen = [mutant for mutant in MUTANTS if not classes or mutant.kind in classes]
    with MutatedModel(info, ModelSettings(device=device)) as model:
        suite = _Suite(model, given, benchmarks, say)
        cells: list[ProofCell] = []
        began = time.monotonic()
        for index, mutant in enumerate(chosen):
            left = (time.monotonic() - began) * (len(chosen) / index - 1) if index else 0.0
            until = f", {duration(left)} left" if index else ""
            say(f"{index + 1} of {len(chosen)}: {mutant.name} ({mutant.kind}){until}")
            cells += suite.cells_of(mutant)
    return Proof(
        checkpoint=info.name, benchmarks=suite.sizes, cells=tuple(cells), control=tuple(suite.control)
    )


class _Suite:
    """The benchmarks of a proof with the sound model's scores and replies, against which mutants are held."""

    def __init__(
        self,
        model: MutatedModel,
        given: Mapping[str, Any],
        benchmarks: Paths | None,
        say: Callable[[str], None],
    ) -> None:
        """Score the sound model, then the one with other rounding."""
        from pytest_touchstone.engines.transformers.mutants import ROUNDING, SOUND

        self._model, self._given, self._benchmarks = model, given, benchmarks
        say("before the mutants: the sound model")
        with model.damaged(SOUND):
            run = self._score(None)
            if not any(result.scored for result in run.summary.results):
                why = one_line(run.problems[0]) if run.problems else "no item is left"
                raise EvaluationError(f"the sound model is not scored: {why}", run.output)
            self._requests = probes_of(run)
            self._replies = {name: model.replies(requests) for name, requests in self._requests.items()}
        self._sound = read_scores(run.directory)
        entries = self._sound.entries
        self.sizes = {name: entry.saved.scored for name, entry in entries.items() if entry.saved.scored}
        for name in sorted(entries.keys() - self.sizes.keys()):
            say(f"{name}: left out, since no item of the sound model is scored")
        say("before the mutants: the sound model with other rounding")
        with model.damaged(ROUNDING):
            rounded = read_scores(self._score(list(self.sizes)).directory)
        self._changes = {
            name: logprob_changes(self._sound.logprobs.get(name, {}), rounded.logprobs.get(name, {}))
            for name in self.sizes
        }
        self.control = [self._measured(cell, rounded) for cell in self._cells(ROUNDING)]

    def cells_of(self, mutant: Mutant) -> list[ProofCell]:
        """Return a mutant's cells, of a run on the benchmarks to which it applies."""
        from pytest_touchstone.engines.transformers.mutants import NotApplicableError

        damaged = None
        try:
            with self._model.damaged(mutant):
                cells = [
                    replace(
                        cell,
                        why=self._model.reason_not_applicable(
                            mutant, self._replies[cell.benchmark], self._requests[cell.benchmark]
                        ),
                    )
                    for cell in self._cells(mutant)
                ]
                if names := [cell.benchmark for cell in cells if not cell.why]:
                    damaged = read_scores(self._score(names).directory)
        except NotApplicableError as error:
            return [replace(cell, why=str(error)) for cell in self._cells(mutant)]
        except HarnessError as error:  # lack of memory, for instance: the sound model has none
            reason = clip(str(error).removeprefix(f"{mutant.name}: "), LONGEST)
            return [replace(cell, error=reason) for cell in self._cells(mutant)]
        return [cell if damaged is None or cell.why else self._measured(cell, damaged) for cell in cells]

    def _cells(self, mutant: Mutant) -> list[ProofCell]:
        return [ProofCell(mutant=mutant.name, kind=mutant.kind, benchmark=name) for name in self.sizes]

    def _measured(self, cell: ProofCell, damaged: RunScores) -> ProofCell:
        return measure(cell, self._sound, damaged, self._changes[cell.benchmark])

    def _score(self, names: Sequence[str] | None) -> FinishedRun:
        """Return a run of the model. Raises ``HarnessError`` where its code failed, which no item is to blame for."""
        given = self._given if names is None else {**self._given, "tasks": names}
        run = evaluate_with(given, self._benchmarks, self._model)
        if raised := [fault["message"] for fault in run.summary.faults if RAISED in fault["message"]]:
            raise HarnessError(raised[0])
        return run


def probes_of(run: FinishedRun) -> dict[str, list[Loglikelihood | Generate]]:
    """Return requests of each benchmark in full: of its first items, and of its longest, where a window shows.

    Benchmarks that ask for other things have none.
    """
    kinds: dict[str, Any] = {"Loglikelihood": Loglikelihood, "Generate": Generate}
    items = [item for item in run.items if item.status == "scored"]
    requests: dict[str, list[Loglikelihood | Generate]] = {}
    for name in dict.fromkeys(item.benchmark for item in items):
        own = [item for item in items if item.benchmark == name]
        longest = max(own, key=lambda item: max(map(len, item.prompts), default=0))
        exchanges = [item.again().exchanges[-1] for item in (*own[:_FIRST], longest)]
        requests[name] = [
            from_plain(kinds[exchange["kind"]], exchange["request"])
            for exchange in exchanges
            if exchange["kind"] in kinds
        ]
    return requests
