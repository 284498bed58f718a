"""A line on each checkpoint during a training, and alerts about those that are worse.

An alert is a stop file or a command. A command gets the checkpoint's path, the benchmark, the metric, the verdict and
the run as variables (``WATCH_CHECKPOINT`` ...), never as part of its text, because names of folders are chosen by
others.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.benchmark_comparison import BenchmarkComparison
from pytest_touchstone.compare.gate.result import lines_from_json, ordered
from pytest_touchstone.core.files import shown_path, write_atomic
from pytest_touchstone.core.text import join_names, one_line
from pytest_touchstone.document import Section, Table
from pytest_touchstone.document.formatting import interval, number
from pytest_touchstone.results.summary import Summary, whole_results

COMMAND_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAlert:
    """The score and the verdict of a checkpoint of a training, and whether the training got worse.

    ``invalid`` means that the result decides nothing, ``gated`` that the exit code depends on it. ``facts`` are passed
    to commands about a worse checkpoint, by name.
    """

    checkpoint: str
    score: str = ""
    verdict: str = ""
    worse: bool = False
    invalid: bool = False
    gated: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)


def alerts_section(alerts: Iterable[CheckpointAlert]) -> Section:
    """Return a line for each checkpoint, with its score and verdict."""
    rows = tuple((alert.checkpoint, alert.score, alert.verdict) for alert in alerts)
    return Section(key="alerts", parts=(Table(header=("", "", ""), rows=rows, text_columns=3),), urgent=True)


def checkpoint_alert(summary: Summary, others: Mapping[str, Mapping[str, Any]]) -> CheckpointAlert:
    """Return the alert for the checkpoint of a run.

    The newest checkpoint is scored first, and older ones are compared with it. An older checkpoint below a later one
    means that the training improved. If it is better than the best later one, the later one is worse.

    Args:
        summary: The run of the checkpoint.
        others: The checkpoints of other runs of the training by run id, with path and step.

    """
    checkpoint, gate = summary.checkpoints[0], summary.gate or {}
    step = checkpoint.get("step")

    def later(line: BenchmarkComparison) -> Mapping[str, Any] | None:
        """Return the checkpoint that a line compares with, None if earlier."""
        other = None if line.against is None else others.get(line.against.run_id)
        if other is None or other.get("step") is None or step is None:
            return None
        return other if other["step"] > step else None

    def worse(line: BenchmarkComparison) -> bool:
        if later(line):
            return line.kind == "better" or any(failure.startswith("floor ") for failure in line.fails)
        return bool(line.fails) or line.kind == "worse"

    lines = sorted(ordered(tuple(lines_from_json(gate))), key=lambda line: not worse(line))
    top_line = lines[0] if lines else None
    verdict, facts = "", {}
    if top_line is not None:
        verdict = _verdict(top_line, later=later(top_line) is not None)
        about = (later(top_line) or checkpoint) if top_line.kind == "better" else checkpoint
        facts = {
            "checkpoint": str(about["path"]),
            "benchmark": top_line.benchmark,
            "metric": top_line.metric,
            "verdict": "worse" if top_line.kind == "better" else top_line.kind,
            "run": summary.run_id,
        }
    return CheckpointAlert(
        checkpoint=str(checkpoint["name"]),
        score=_score(summary, top_line, len(lines)),
        verdict=verdict,
        worse=any(map(worse, lines)),
        invalid=bool(summary.faults) or any(line.invalid for line in lines),
        gated=gate.get("mode") is not None,
        facts=facts,
    )


def _score(summary: Summary, line: BenchmarkComparison | None, lines: int) -> str:
    """Return benchmark, score and interval of a line, or without one of the first result.

    ``+1`` stands for a further line.
    """
    more = f" +{lines - 1}" if lines > 1 else ""
    for result in whole_results(summary):
        metric = result.metrics[result.primary] if line is None else result.metrics.get(line.metric)
        if metric is not None and (line is None or line.benchmark == result.benchmark):
            return f"{result.benchmark}{more} {number(metric.value)} {interval(metric.low, metric.high)}"
    return "" if line is None else f"{line.benchmark}{more} {number(line.comparison.new)}"


def _verdict(line: BenchmarkComparison, *, later: bool) -> str:
    """Return a verdict in a few words."""
    other = line.against.checkpoint if line.against is not None else "the best"
    words = {
        "worse": f"WORSE than {other}",
        "failed": f"FAILED: {join_names(line.fails, 2)}",
        "better": f"better than {other}",
        "not worse": f"not worse than {other}",
        "inconclusive": f"unclear vs {other}",
        "accepted": f"an accepted drop from {other}",
        "first": "the first",
    }
    if later and line.kind in ("worse", "better"):
        return f"below later {other}" if line.kind == "worse" else f"WORSE since: {other}"
    reason = next(iter(line.invalid), line.comparison.why).partition("; ")[0]
    return words.get(line.kind, f"{line.kind}: {reason}")


# Who is told of a worse one


def send_alert(finding: CheckpointAlert, commands: Sequence[str], stop_file: Path | None) -> Iterator[str]:
    """Write the stop file and run the commands for a worse checkpoint. Yield a line per failure."""
    if stop_file is not None:
        try:
            text = f"{finding.checkpoint}  {finding.score}  {finding.verdict}"
            write_atomic(stop_file, f"{one_line(text)}\n")
        except OSError as error:
            yield f"cannot write --stop-file {shown_path(stop_file)}: {error.strerror}"
    for command in commands:
        if why := _run_command(command, finding.facts):
            yield f"--on-worse CMD: {why}"


def _run_command(command: str, facts: Mapping[str, str]) -> str:
    """Run a shell command and return the failure, empty for success.

    Facts are environment variables, never part of the command.
    """
    variables = {f"WATCH_{name.upper()}": value for name, value in facts.items()}
    process = subprocess.Popen(
        command, shell=True, env=os.environ | variables, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        code = process.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        return f"was still at work after {COMMAND_SECONDS:g} s, and was killed"
    finally:
        kill_group(process)
    return f"ended with exit code {code}" if code else ""


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all its children."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
