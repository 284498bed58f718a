"""Measure how well the progress line knows the time left: run pytest in a terminal, and compare what the line said
after 25, 50 and 75 % of the run's time with the truth.

    python -m perf time_left evals/ [any option of pytest]

The run ends with pytest's process, so the time after the last answer counts too.
"""

from __future__ import annotations

import os
import pty
import re
import sys
import time

LINE = re.compile(rb"touchstone: [^\x1b]*")
LEFT = re.compile(r"about (?:(\d+):)?(\d+):(\d\d) left")


def main() -> None:
    """Run pytest with this program's arguments, print the table, and exit as pytest did."""
    lines: list[tuple[float, str]] = []
    began = time.monotonic()
    process, terminal = pty.fork()
    if not process:
        os.execvpe(
            sys.executable,
            [sys.executable, "-m", "pytest", *sys.argv[1:]],
            {**os.environ, "TERM": "xterm"},
        )
    while True:
        try:
            written = os.read(terminal, 65536)
        except OSError:  # the terminal of a process that has ended
            break
        lines += [(time.monotonic() - began, text.decode("ascii")) for text in LINE.findall(written)]
    _, status = os.waitpid(process, 0)
    end = time.monotonic() - began
    print(f"{end:.0f} s in all")
    for share in (0.25, 0.5, 0.75):
        text = next((line for at, line in reversed(lines) if at <= share * end), "")
        truth = (1.0 - share) * end
        error = "nothing said"
        if said := LEFT.search(text):
            hours, minutes, seconds = (int(number or 0) for number in said.groups())
            error = f"{(3600 * hours + 60 * minutes + seconds) / truth - 1.0:+.0%}"
        print(f"{share:4.0%}  truth {truth:4.0f} s  {error:>12}  {text}")
    raise SystemExit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
