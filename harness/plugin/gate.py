"""The gate in a run of pytest: its options, what is checked before anything is asked, and the judging at the end.

    --gate [plain|strict]     the exit code depends on the verdicts
    --baseline WHAT           what the run is held against; without --gate verdicts are only shown
    --gate-config FILE        margins, floors and the rest; by default pyproject.toml

Only the controlling process has a gate.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from harness.compare.baseline_source import open_source
from harness.compare.baselines import ITEMS, BaselineSource
from harness.compare.gate.config import MODES, GateConfig, check_names, parse_mode, read_gate_config
from harness.compare.gate.decide import Early, cases_of, decide
from harness.compare.gate.result import MISTAKE, NOT_VALID, GateResult, gate_json
from harness.compare.gate.validate import check_plan
from harness.compare.items import Entry
from harness.compare.sequential import LookSchedule, SequentialMonitor, Series
from harness.core.conditions import condition_names
from harness.core.errors import GateError, HarnessError
from harness.plugin.options import Settings
from harness.plugin.ordering import schedules_from_json
from harness.reports.gate import decision_text
from harness.results.run_directory import RunDirectory
from harness.results.store_entry import ItemScores, StoredResult
from harness.results.summary import Collected, Declaration, Summary, wholes

AS_CONFIGURED: Final = "as configured"
"""What ``--gate`` without a word means: the mode of the configuration, else plain."""


FINE: Final = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
"""pytest's exit codes of sessions that came to their end."""


def add_gate_options(parser: pytest.Parser) -> None:
    """Adds the options to pytest's, in the group of the others."""
    group = parser.getgroup("touchstone", "benchmarks of language models")
    group.addoption(
        "--gate",
        nargs="?",
        const=AS_CONFIGURED,
        default=None,
        metavar="strict",
        help="exit with 8 when a checkpoint is worse than the baseline, with 9 when that cannot be judged; "
        "strict: with 8 also when nobody can tell",
    )
    group.addoption(
        "--baseline",
        default=None,
        metavar="WHAT",
        help="what the run is held against: best (of the saved results; the default of --gate), a run's id, folder or "
        "file, a name given by `touchstone baseline set`, or none",
    )
    group.addoption(
        "--baseline-allow",
        action="append",
        default=[],
        metavar="NAME,...",
        help="conditions in which the baseline may differ all the same: shots, data, items, ...",
    )
    group.addoption(
        "--gate-metric",
        action="append",
        default=[],
        metavar="METRIC",
        help="choose the best and compare by this metric or composite (score) instead of each benchmark's primary one; "
        "may be given several times",
    )
    group.addoption(
        "--gate-sequential",
        action="store_true",
        help="ask the items in a drawn order and stop a benchmark once its verdict is settled",
    )
    group.addoption(
        "--gate-config",
        default=None,
        metavar="FILE",
        help="TOML file with the gate's margins, floors and so on (default: [tool.touchstone.gate] of pyproject.toml)",
    )


def apart(arguments: Sequence[str], folder: Path | None = None) -> list[str]:
    """The arguments with what follows a bare ``--gate`` kept from being taken for its value unless it is one, so that
    ``pytest --gate evals/`` means what it says. A word that is neither a mode nor in ``folder`` is taken for a mode,
    which is then refused."""
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    found = list(arguments)
    for place in (place for place in range(end) if found[place] == "--gate"):
        after = found[place + 1] if place + 1 < end else "-"
        word = folder is not None and after.isidentifier() and not _exists(folder / after)
        if not after.startswith("-") and after not in MODES and not word:
            found[place] = f"--gate={AS_CONFIGURED}"
    return found


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long, for one
        return False


def keep_apart(config: pytest.Config, parser: pytest.Parser, arguments: list[str]) -> None:
    """Does this to the arguments of a run, before pytest looks at them for the last time."""
    changed = apart(arguments, config.invocation_params.dir)
    if changed != arguments:
        arguments[:] = changed
        known = parser.parse_known_args(arguments, namespace=copy.copy(config.option))
        known.confcutdir = config.known_args_namespace.confcutdir
        config.known_args_namespace = known


class GateSession:
    """The gate of a run; ``plan`` is None where nobody asked for one."""

    def __init__(self, config: pytest.Config, settings: Settings, output: Path) -> None:
        self._output = output
        self._folder = config.invocation_params.dir
        self._root = config.rootpath
        self._exit_code = 0
        self._asked = bool(settings.checkpoints)
        self._checkpoints: list[str] = []
        try:
            self.plan = _plan(config)
            if self.plan is not None:
                self.source()
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from None
        except OSError as error:
            raise pytest.UsageError(f"--baseline: cannot read {error.filename}: {error.strerror}") from None

    def source(self) -> BaselineSource:
        """Where the baselines come from, as it stands now."""
        assert self.plan is not None
        return open_source(self.plan.baseline, self._output, folder=self._folder)

    def check(
        self, items: Sequence[Collected], declared: Mapping[str, Declaration], checkpoints: Iterable[str]
    ) -> None:
        """Checks the plan against what was collected; raises ``pytest.UsageError``. ``checkpoints`` are all of the run,
        also those that no item asks."""
        self._checkpoints = list(checkpoints) if self._asked else []
        if self.plan is None:
            return
        files = {self._root / item.item.partition("::")[0] for item in items}
        try:
            saved = open_source("best", self._output, folder=self._folder).saved
            check_plan(self.plan, declared, saved, files)
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from None

    def judge(
        self,
        summary: Summary,
        results: Iterable[tuple[StoredResult, ItemScores]],
        *,
        fault: str | None = None,
        status: int | pytest.ExitCode = 0,
    ) -> Summary:
        """The summary with what the gate found, and the exit code that the run then ends with.

        ``fault`` is what besides the results speaks against the run, ``status`` its exit code without a gate."""
        if self.plan is None:
            return summary
        gate = self._decide([Entry(*one) for one in results], summary)
        silent = [
            name for name in self._checkpoints if name not in {one.checkpoint for one in summary.results}
        ]
        if gate.broken is None and silent:
            gate = replace(gate, broken=f"no benchmark of this run could be asked of {', '.join(silent)}")
        if fault is not None and gate.broken is None:
            gate = replace(gate, broken=fault)
        self._exit_code = gate.exit_code
        # Another code than the gate's where the run was stopped by hand, for one, which is 2.
        code = int(self.exit_code(status)) if gate.exit_code else None
        return replace(summary, gate=gate_json(gate, decision_text(gate, code), code))

    def watch(
        self,
        directory: RunDirectory,
        courses: Mapping[Series, LookSchedule],
        declarations: Mapping[str, Declaration],
    ) -> SequentialMonitor:
        """What follows the run's journal and says which items are not needed any more."""
        assert self.plan is not None
        return SequentialMonitor(directory, courses, declarations, self.source(), self.plan)

    def _early(self, summary: Summary) -> dict[Series, Early]:
        """The verdicts that were settled by a look, from the run's own notes and journal."""
        assert self.plan is not None
        if not self.plan.sequential:
            return {}
        directory = RunDirectory(Path(summary.directory))
        declared = {one.name: one for one in summary.declarations}
        return self.watch(directory, schedules_from_json(directory.read_courses()), declared).early()

    def _decide(self, entries: Sequence[Entry], summary: Summary) -> GateResult:
        assert self.plan is not None
        plain = GateResult(
            mode=self.plan.mode, baseline=self.plan.baseline, margin=self.plan.margin, alpha=self.plan.alpha
        )
        try:
            early = self._early(summary)
            gate = decide(cases_of(entries, summary.composites), self.source(), self.plan, early)
            return _with_asked(gate, summary) if self.plan.sequential else gate
        except GateError as error:
            return replace(plain, mistake=str(error))
        except (HarnessError, OSError, ValueError) as error:
            return replace(plain, broken=str(error))

    def nothing_ran(self, session: pytest.Session) -> str | None:
        """Why a session that has no benchmark in it passes no gate; notes the exit code. None where nobody asked, and
        where pytest says itself why the session has failed."""
        if self.plan is None or self.plan.mode is None or session.config.option.collectonly:
            return None
        if session.exitstatus not in (*FINE, pytest.ExitCode.NO_TESTS_COLLECTED):
            return None
        self._exit_code = NOT_VALID
        code = int(self.exit_code(session.exitstatus))
        return f"gate not valid (exit code {code}): no benchmark was run"

    def exit_code(self, status: int | pytest.ExitCode) -> int | pytest.ExitCode:
        """The run's exit code: of a mistake 4, else 9 before 8 before what pytest says of ordinary tests."""
        if status not in (*FINE, NOT_VALID) or not self._exit_code:
            return status
        return status if status == NOT_VALID and self._exit_code != MISTAKE else self._exit_code


def _with_asked(gate: GateResult, summary: Summary) -> GateResult:
    """The gate with what stopping early has saved."""
    total = sum(result.collected for result in wholes(summary))
    asked = total - sum(result.skipped for result in wholes(summary))
    saved = f"{(total - asked) / total:.0%}" if total else "nothing"
    note = f"benchmarks stop once they are settled: {asked} of {total} items were asked, {saved} saved"
    return replace(gate, asked=(asked, total), notes=(*gate.notes, note))


def _plan(config: pytest.Config) -> GateConfig | None:
    """What the options and the configuration ask for together; None where neither --gate nor --baseline is given."""
    mode, baseline = config.getoption("--gate"), config.getoption("--baseline")
    path, metrics = config.getoption("--gate-config"), config.getoption("--gate-metric")
    allow = [name for given in config.getoption("--baseline-allow") for name in given.split(",") if name]
    if mode is None and baseline is None:
        alone = {
            "--gate-sequential": config.getoption("--gate-sequential"),
            "--gate-config": path,
            "--gate-metric": metrics,
            "--baseline-allow": allow,
        }
        lone = next((name for name, given in alone.items() if given), None)
        if lone is not None:
            raise GateError(f"{lone} does nothing alone; give --gate, or --baseline to see verdicts only")
        return None
    plan = (
        read_gate_config(config.rootpath / "pyproject.toml", required=False)
        if path is None
        else read_gate_config(config.invocation_params.dir / path, required=True)
    )
    plan = replace(
        plan,
        mode=_mode(mode, plan),
        baseline=baseline or plan.baseline,
        metrics=tuple(dict.fromkeys(metrics)) or plan.metrics,
        sequential=config.getoption("--gate-sequential"),
        allow=tuple(name.replace("-", "_") for name in (*plan.allow, *allow)),
    )
    if plan.sequential:
        _check_sequential(plan)
    check_names(plan.allow, [*condition_names(), ITEMS], "--baseline-allow", "condition")
    if plan.baseline == "none" and not plan.floors:
        raise GateError(
            "--baseline none, and no floors: nothing to judge; configure floors, or leave --gate out"
        )
    return plan


def _check_sequential(plan: GateConfig) -> None:
    """Raises ``GateError`` for metrics that no look can settle."""
    for named in (plan.metrics, *(own.metrics for own in plan.benchmarks.values())):
        if len(named) > 1:
            raise GateError(
                f"--gate-sequential settles a benchmark by one metric; {', '.join(named)} are {len(named)}: name one"
            )


def _mode(given: str | None, plan: GateConfig) -> str | None:
    if given is None:
        return None
    if given == AS_CONFIGURED:
        return plan.mode or "plain"
    try:
        return parse_mode(given, "--gate")
    except GateError as error:
        raise GateError(f"{error}; before a path write --gate=plain") from None
