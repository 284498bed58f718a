"""The process of the tests: judges one job after the other, each with a program's process of its own."""

from __future__ import annotations

import os
import random
import signal
import socket
from typing import Any, Final

from . import frames, jail, tester

LONGEST_JOB: Final = 2**30
"""Bytes of a job with its tests."""

_MEMORY: Final = 2048
_USERS: Final = 1000
"""Between the users that programs run as and those that tests do."""

_CPU: Final = 1e6
"""Seconds for all jobs; each has a limit of its own."""


def serve(descriptor: int, slot: int, system_calls: bytes) -> None:
    """Judges what comes over a connection of the hub; does not return."""
    try:
        os.setsid()
        if system_calls:
            jail.drop_user(slot + _USERS)
        jail.die_with_parent()
        if system_calls:
            jail.lock(jail.Limits(cpu=_CPU, memory=_MEMORY), system_calls)
        with socket.socket(fileno=descriptor) as hub:
            while True:
                _, descriptors, _, _ = socket.recv_fds(hub, 1, 1)
                if not descriptors:
                    break
                job = frames.receive(descriptor, longest=LONGEST_JOB)
                frames.send(descriptor, _verdict(job, descriptors[0]))
                os.close(descriptors[0])
    except frames.Closed:
        pass  # the hub has ended, or given this process up
    finally:
        os._exit(0)


def _verdict(job: dict[str, Any], program: int) -> dict[str, Any]:
    """The verdict on one job. The tests have a limit of CPU time too, since comparing what a program answers may
    take as long as it likes; the process ends at that."""
    signal.setitimer(signal.ITIMER_PROF, job["cpu"])
    random.seed(0)  # no job depends on those before it
    try:
        return tester.reference(program, job) if job["reference"] else tester.Judge(program).verdict(job)
    except Exception as error:
        return {"outcome": "fault", "detail": f"the tests cannot run: {error}"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
