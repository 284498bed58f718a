"""The gate in a run of pytest: its options, checks before the run, and the decision at the end.

    --gate                    the exit code depends on the verdicts
    --eval-gate-mode MODE     so too, by a mode: plain or strict
    --baseline WHAT           what the run is compared with; without --gate verdicts are only shown
    --eval-set gate_config=FILE   margins, floors and the rest; by default pyproject.toml

Only the controlling process has a gate. With ``gate_sequential`` all processes know which items are no longer needed
(``InterimGate``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.compare.baseline_source import open_source
from pytest_touchstone.compare.baselines import ITEMS, BaselineSource, expected_refusal
from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.compare.gate.config import (
    GateConfig,
    check_names,
    check_plan,
    declared_composites,
    metric_names,
    read_gate_config,
)
from pytest_touchstone.compare.gate.decide import EarlyVerdict, cases_of, decide
from pytest_touchstone.compare.gate.result import GateResult, gate_json
from pytest_touchstone.compare.prompts import PROMPTS
from pytest_touchstone.compare.sequential import InterimSchedule, SequentialMonitor, Series, draw_schedule
from pytest_touchstone.core.errors import ExitCode, GateError, HarnessError
from pytest_touchstone.core.files import SCHEMA, from_plain, read_checked, shown_path, write_checked
from pytest_touchstone.core.settings import condition_names, settings_table
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.registry import identity
from pytest_touchstone.plugin import project_file
from pytest_touchstone.plugin.driver import cluster_of
from pytest_touchstone.plugin.options import Settings, runs_nothing
from pytest_touchstone.plugin.planned import planned_items, planned_of
from pytest_touchstone.reports.gate import decision_text
from pytest_touchstone.results import file_path
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.results.store_entry import ItemScores, StoredResult, stored_result
from pytest_touchstone.results.summary import CollectedItem, Declaration, Summary, whole_results

if TYPE_CHECKING:
    from pytest_touchstone.compare.plan import GatePlan

SCHEDULES: Final = "schedules.json"


class InterimGate:
    """The interim analyses as a process sees them: the items that are no longer needed.

    Each benchmark's items of a checkpoint keep their places among all items, but among themselves come in the order
    that ``statistics.sequential.item_order`` draws. Once an interim analysis of those so far has settled the verdict
    (``compare.sequential``), the others are skipped. The order is in the run's folder, where the gate finds it at the
    end.

    Batches are planned without regard to it. Of a batch, the items up to the next analysis run together; the others are
    asked about when their turn comes.
    """

    def __init__(self, seed: int, gate: GateSession) -> None:
        self._seed, self._gate = seed, gate
        self._schedules: dict[Series, InterimSchedule] = {}
        self._part: dict[str, tuple[Series, int]] = {}
        self._monitor: SequentialMonitor | None = None

    def arrange(self, items: list[pytest.Item]) -> None:
        """Put the items into their drawn order, in place."""
        members: dict[Series, list[int]] = {}
        for index, item in enumerate(items):
            if (planned := planned_of(item)) is not None:
                members.setdefault(planned.series, []).append(index)
        for series, indices in members.items():
            series_items = [items[index] for index in indices]
            records = planned_items(series_items)
            order, schedule = draw_schedule(
                [planned.nodeid for planned in records],
                [planned.given.example.id for planned in records],
                [planned.given.example.sha256 for planned in records],
                [cluster_of(planned.spec, planned.given.example) for planned in records],
                seed=self._seed,
            )
            self._schedules[series] = schedule
            for index, drawn in zip(indices, order, strict=True):
                items[index] = series_items[drawn]
            for index, nodeid in enumerate(schedule.items):
                self._part[nodeid] = series, sum(analysis <= index for analysis in schedule.analyses)

    def begin(self, directory: RunDirectory, declarations: Mapping[str, Declaration]) -> None:
        """Store the order of items in the run's folder, and begin to follow records.

        Every process stores the same order.
        """
        write_schedules(directory.path, self._schedules)
        self._monitor = self._gate.watch(directory, self._schedules, declarations)

    def not_needed(self, item: str) -> str | None:
        """Return why an item is no longer needed; None if it is."""
        return self._monitor.settled(item) if self._monitor is not None else None

    def together(self, item: str, other: str) -> bool:
        """Return whether no analysis comes between two items of a benchmark."""
        return self._part.get(item) == self._part.get(other)


def write_schedules(folder: Path, schedules: Mapping[Series, InterimSchedule]) -> None:
    """Write the schedules into a run's folder."""
    rows = [
        {"checkpoint": checkpoint, "benchmark": benchmark, **schedule._asdict()}
        for (checkpoint, benchmark), schedule in schedules.items()
    ]
    write_checked(file_path(folder, SCHEDULES), {"schema": SCHEMA, "schedules": rows})


def read_schedules(folder: Path) -> dict[Series, InterimSchedule]:
    """Return what ``write_schedules`` wrote; nothing for a run that does not stop early. Raises ``GateError``."""
    if not (path := file_path(folder, SCHEDULES)).is_file():
        return {}
    try:
        return {
            (row["checkpoint"], row["benchmark"]): from_plain(
                InterimSchedule, [row[key] for key in InterimSchedule._fields]
            )
            for row in read_checked(path)["schedules"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GateError(f"{shown_path(path)}: cannot be read ({error}); start the run anew") from None


FINE: Final = (ExitCode.OK, ExitCode.FAILED)
"""pytest's exit codes of sessions that ran to their end."""

ALONE: Final = ("gate_sequential", "gate_config", "gate_metric", "baseline_allow")
"""Settings that need a gate or a baseline."""


class GateSession:
    """The gate of a run; ``plan`` is None without --gate."""

    def __init__(self, config: pytest.Config, plan: GateConfig | None, output: Path) -> None:
        self._config, self._output = config, output
        self._exit_code = ExitCode.OK
        self.published: list[StoredResult] = []  # of somebody's file that is named as the baseline
        self.plan = plan
        try:
            if self.plan is not None:
                source = self.source()
                self.published = [saved for saved in source.saved if saved.published and source.kind == "run"]
        except OSError as error:
            raise GateError(f"--baseline: cannot read {error.filename}: {error.strerror}") from None

    def source(self) -> BaselineSource:
        """Open the source of the baselines in its current state."""
        assert self.plan is not None
        return self._opened(self.plan.baseline)

    def _opened(self, name: str) -> BaselineSource:
        return open_source(name, self._output, folder=self._config.invocation_params.dir)

    def check(self, items: Sequence[CollectedItem], declared: Mapping[str, Declaration]) -> None:
        """Check the plan against what was collected; raise ``GateError`` and the like."""
        if self.plan is not None:
            files = {self._config.rootpath / item.item.partition("::")[0] for item in items}
            check_plan(self.plan, declared, self._opened("best").saved, files)

    def check_baselines(
        self,
        items: Iterable[CollectedItem],
        declared: Mapping[str, Declaration],
        manifest: Mapping[str, Any],
        infos: Sequence[CheckpointInfo],
    ) -> None:
        """Raise ``GateError`` if a gate could not compare what will be run, as far as is known.

        ``manifest`` has the run's beginning and settings, ``infos`` are the checkpoints that items ask.
        """
        if self.plan is None or self.plan.mode is None:
            return
        rows = {info.name: info.plain() for info in infos}
        for info in infos:
            with suppress(HarnessError):  # the manifest says what is wrong with it
                rows[info.name]["fingerprint"] = identity(info)
        source = self.source()
        examples: dict[Series, list[str]] = {}
        for item in items:
            examples.setdefault((item.checkpoint, item.benchmark), []).append(item.example)
        refused: dict[str, str] = {}
        for (checkpoint, benchmark), names in examples.items():
            expected = stored_result(
                declared[benchmark],
                manifest,
                rows[checkpoint],
                run_id="",
                directory="",
                checkpoint=checkpoint,
                chat=False,
                metrics={},
                collected=len(names),
            )
            if reason := expected_refusal(expected, frozenset(names), source, self.plan.allow):
                refused.setdefault(benchmark, reason)
        if refused:
            benchmark, reason = next(iter(refused.items()))
            more = f"; and {count(len(refused) - 1, 'other benchmark')} likewise" if len(refused) > 1 else ""
            raise GateError(f"--baseline {source.name}, {benchmark}: {reason}{more}")

    def make_plan(self, items: Sequence[CollectedItem], declared: Mapping[str, Declaration]) -> GatePlan:
        """Return what the gate could decide about these items; raise ``GateError`` and the like."""
        from pytest_touchstone.compare.plan import make_plan, planned_benchmarks_of_run

        assert self.plan is not None
        self.check(items, declared)
        counts = Counter((item.checkpoint, item.benchmark) for item in items).items()
        # Of each benchmark the items of the checkpoint with the most.
        sizes = {benchmark: size for (_, benchmark), size in sorted(counts, key=itemgetter(1))}
        asked = replace(self.plan, composites=tuple(declared_composites(declared)))
        return make_plan(
            planned_benchmarks_of_run(declared, sizes, asked), self.source(), self._opened("best"), asked
        )

    def judge(
        self,
        summary: Summary,
        results: Iterable[tuple[StoredResult, ItemScores]],
        asked: Iterable[str] = (),
        *,
        fault: str | None = None,
        status: int | pytest.ExitCode = 0,
    ) -> Summary:
        """Return the summary with what the gate found, and the exit code with which the run then ends.

        ``asked`` are the checkpoints that a person has named, ``fault`` is what speaks against the run besides the
        results, ``status`` its exit code without a gate.
        """
        if self.plan is None:
            return summary
        entries = [BenchmarkScores(*result) for result in results]
        gate = apply_gate(self.plan, entries, summary, self.source, lambda: self._early(summary))
        if self.plan.sequential and not (gate.fault or gate.mistake):
            total = sum(result.collected for result in whole_results(summary))
            skipped = sum(result.skipped for result in whole_results(summary))
            note = (
                f"benchmarks stop once they are settled: {total - skipped} of {total} items were asked, "
                f"{f'{skipped / total:.0%}' if total else 'nothing'} saved"
            )
            gate = replace(gate, asked=(total - skipped, total), notes=(*gate.notes, note))
        answering = {result.checkpoint for result in summary.results}
        if silent := [name for name in asked if name not in answering]:
            fault = f"no benchmark of this run could be asked of {', '.join(silent)}"
        gate = replace(gate, fault=gate.fault or fault)
        self._exit_code = gate.exit_code
        # Another code than the gate's, for example 2 where the run was stopped by hand.
        code = int(self.exit_code(status)) if gate.exit_code else None
        return replace(summary, gate=gate_json(gate, decision_text(gate, code), code))

    def watch(
        self,
        directory: RunDirectory,
        schedules: Mapping[Series, InterimSchedule],
        declarations: Mapping[str, Declaration],
    ) -> SequentialMonitor:
        """Return the monitor that follows the run's journal and names the items that are no longer needed."""
        assert self.plan is not None
        return SequentialMonitor(directory, schedules, declarations, self.source(), self.plan)

    def _early(self, summary: Summary) -> dict[Series, EarlyVerdict]:
        """Return the verdicts that an interim analysis settled, from the run's own notes and journal."""
        assert self.plan is not None
        if not self.plan.sequential:
            return {}
        directory = RunDirectory(Path(summary.directory))
        declarations = {declaration.name: declaration for declaration in summary.declarations}
        return self.watch(directory, read_schedules(directory.path), declarations).early()

    def nothing_ran(self, status: int | pytest.ExitCode) -> str | None:
        """Return why a session without benchmarks passes no gate, and set the exit code.

        None without --gate, and if pytest itself says why the session has failed.
        """
        asked = self.plan is not None and self.plan.mode is not None and not runs_nothing(self._config)
        if not asked or status not in (*FINE, ExitCode.NOTHING):
            return None
        self._exit_code = ExitCode.NOT_VALID
        return f"gate not valid (exit code {int(self.exit_code(status))}): no benchmark was run"

    def exit_code(self, status: int | pytest.ExitCode) -> int | pytest.ExitCode:
        """Return the run's exit code: 4 for a mistake, else 9, else 8, else pytest's code for ordinary tests."""
        if status not in (*FINE, ExitCode.NOT_VALID) or not self._exit_code:
            return status
        invalid = status == ExitCode.NOT_VALID and self._exit_code != ExitCode.MISTAKE
        return status if invalid else self._exit_code


def apply_gate(
    plan: GateConfig,
    entries: Sequence[BenchmarkScores],
    summary: Summary,
    source: Callable[[], BaselineSource],
    early: Callable[[], Mapping[Series, EarlyVerdict]],
) -> GateResult:
    """Return the gate's decision about a run, or the fault or mistake that prevents one.

    Saved results that it cannot settle are marked, so that no later run takes one for the best.
    """
    plain = GateResult(mode=plan.mode, baseline=plan.baseline, margin=plan.margin, alpha=plan.alpha)
    try:
        gate = decide(cases_of(entries, summary.composites), source(), plan, early())
        unsettled: dict[Series, dict[str, str]] = {}
        for line in gate.lines:
            if not line.is_reference:
                unsettled.setdefault((line.checkpoint, line.benchmark), {})[line.metric] = line.kind
        store = ResultStore(Path(summary.directory).parent)
        for entry in entries:
            if verdicts := unsettled.get((entry.saved.checkpoint, entry.saved.benchmark)):
                store.note_verdicts(entry.saved, verdicts)
        return gate
    except GateError as error:
        return replace(plain, mistake=str(error))
    except (HarnessError, OSError, ValueError) as error:
        return replace(plain, fault=str(error))


def gate_plan(config: pytest.Config, settings: Settings) -> GateConfig | None:
    """Return what the options and the configuration ask for together; None without --gate and --baseline.

    Raises ``GateError``.
    """
    gate = settings.gate or settings.gate_mode is not None
    if not gate and settings.baseline is None:
        for name in ALONE:
            if settings.values[name]:
                flag = settings_table()[name].flag
                raise GateError(f"{flag} does nothing alone; give --gate, or --baseline to see verdicts only")
        return None
    project, here = project_file(config), config.invocation_params.dir
    root = project.parent if project.is_file() else here
    required = settings.gate_config is not None
    path = here / settings.gate_config if required else project
    allow = (name for given in settings.baseline_allow for name in given.split(",") if name)
    plan = read_gate_config(path, required=required, root=root)
    plan = replace(
        plan,
        mode=settings.gate_mode or plan.mode or "plain" if gate else None,
        baseline=settings.baseline or plan.baseline,
        metrics=metric_names(settings.gate_metric) or plan.metrics,
        sequential=settings.gate_sequential,
        allow=tuple(name.replace("-", "_") for name in allow),
    )
    check_names(plan.allow, [*condition_names(), ITEMS, PROMPTS], "--eval-baseline-allow", "condition")
    if plan.baseline == "none" and not (plan.floors or plan.accepted):
        raise GateError(
            "--baseline none, and no floors: nothing to judge; configure floors, or leave --gate out"
        )
    return plan
