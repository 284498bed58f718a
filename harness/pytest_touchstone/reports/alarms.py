"""A checkpoint in a line while its training goes on, and who is told where it is worse.

A stop file, a command or a web address is told of each worse checkpoint. A command gets the checkpoint's path, the
benchmark, the metric, the verdict and the run as variables (``WATCH_CHECKPOINT`` ...), never as part of its text: names
of folders are what others choose. An address gets the same as JSON.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.compare.gate.result import GateLine, lines_from_json, ordered
from pytest_touchstone.core.files import shown_path, write_atomic
from pytest_touchstone.core.text import listed, one_line
from pytest_touchstone.reports.formatting import interval, number
from pytest_touchstone.results.summary import Summary, wholes

COMMAND_SECONDS: Final = 600.0
POST_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The line of a checkpoint, and whether it is ``worse``, or could not be judged (``invalid``).

    ``line`` is the gate's that is the most pressing. ``gated``: the exit code depends on it."""

    text: str
    worse: bool = False
    invalid: bool = False
    gated: bool = False
    line: GateLine | None = None


def finding_of(summary: Summary, name: str) -> Finding:
    """Return what a run says of its checkpoint. A loss against a later checkpoint of the same watch (``name``) is none:
    the newest is scored first, and the training has got better since."""
    checkpoint, gate = summary.checkpoints[0], summary.gate or {}
    step = checkpoint.get("step")

    def later(line: GateLine) -> bool:
        one = line.against
        if one is None or one.step is None or step is None:
            return False
        return one.run_id.startswith(f"{name}-") and bool(one.step > step)

    def worse(line: GateLine) -> bool:
        floors = any(reason.startswith("floor ") for reason in line.fails)
        return floors or ((bool(line.fails) or line.kind == "worse") and not later(line))

    lines = sorted(ordered(tuple(lines_from_json(gate))), key=lambda line: not worse(line))
    first = lines[0] if lines else None
    parts = [str(checkpoint["name"]), _score(summary, first, len(lines))]
    parts += [] if first is None else [_verdict(first, later=later(first))]
    return Finding(
        text="  ".join(filter(None, parts)),
        worse=any(map(worse, lines)),
        invalid=bool(summary.faults) or any(line.invalid for line in lines),
        gated=gate.get("mode") is not None,
        line=first,
    )


def _score(summary: Summary, line: GateLine | None, lines: int) -> str:
    """Return benchmark, value and interval: those of a line, else of the first result."""
    more = f" (of {lines})" if lines > 1 else ""
    for one in wholes(summary):
        metric = one.metrics[one.primary] if line is None else one.metrics.get(line.metric)
        if metric is not None and (line is None or line.benchmark == one.benchmark):
            return f"{one.benchmark}{more} {number(metric.value)} {interval(metric.low, metric.high)}"
    return "" if line is None else f"{line.benchmark}{more} {number(line.value)}"


def _verdict(line: GateLine, *, later: bool) -> str:
    """Return a verdict in a few words of plain English."""
    other = line.against.checkpoint if line.against is not None else "the best"
    words = {
        "worse": f"WORSE than {other}",
        "failed": f"FAILED: {listed(line.fails, 2)}",
        "better": f"better than {other}",
        "not worse": f"not worse than {other}",
        "inconclusive": f"unclear against {other}",
        "accepted": f"an accepted drop from {other}",
        "first": "the first",
    }
    if later and line.kind in ("worse", "failed"):
        return f"below {other}, which is later"
    reason = next(iter(line.invalid), line.why).partition("; ")[0]
    return words.get(line.kind, f"{line.kind}: {reason}")


# Who is told of a worse one


def warn(finding: Finding, summary: Summary, targets: Sequence[str], stop_file: Path | None) -> Iterator[str]:
    """Write the stop file and tell commands and addresses of a worse checkpoint; give a line for each that failed."""
    line, checkpoint = finding.line, summary.checkpoints[0]
    facts = {
        "checkpoint": str(checkpoint["path"]),
        "benchmark": "" if line is None else line.benchmark,
        "metric": "" if line is None else line.metric,
        "verdict": "" if line is None else line.kind,
        "run": summary.run_id,
    }
    if stop_file is not None:
        try:
            write_atomic(stop_file, f"{one_line(finding.text)}\n")
        except OSError as error:
            yield f"cannot write --stop-file {shown_path(stop_file)}: {error.strerror}"
    for target in targets:
        by_web = re.match(r"https?://", target)
        why = _post(target, facts | {"text": finding.text}) if by_web else _call(target, facts)
        if why:
            yield f"--on-worse {'URL' if by_web else 'CMD'}: {why}"


def _call(command: str, facts: Mapping[str, str]) -> str:
    """Run a command in a shell; return what went wrong, if anything. What it is told is never part of the command."""
    told = {f"WATCH_{name.upper()}": value for name, value in facts.items()}
    process = subprocess.Popen(
        command, shell=True, env=os.environ | told, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        code = process.wait(COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        return f"was still at work after {COMMAND_SECONDS:g} s, and was killed"
    finally:
        kill_group(process)
    return f"ended with exit code {code}" if code else ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: what is told is for that address alone."""


def _post(url: str, facts: Mapping[str, str]) -> str:
    """Send facts as JSON; return what went wrong, if anything, within ``POST_SECONDS``."""
    said = [f"no reply within {POST_SECONDS:g} s"]

    def send() -> None:
        try:
            body = json.dumps(facts).encode()
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
            urllib.request.build_opener(_NoRedirect).open(request, timeout=POST_SECONDS).close()
            said[0] = ""
        except (OSError, ValueError, http.client.HTTPException) as error:
            said[0] = one_line(str(error) or type(error).__name__)[:200]

    # A server that sends a byte now and then would hold any time limit of a single read.
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(POST_SECONDS)
    return said[0]


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
