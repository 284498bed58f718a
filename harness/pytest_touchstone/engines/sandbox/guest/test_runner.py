"""The process of the tests: runs them and decides, one job after the other."""

from __future__ import annotations

import os
import random
import signal
import socket
from typing import Any, Final

from . import framing, jail, values
from .jail import ProgramClock
from .judge import TestProxy, compile_trusted, no_answer_verdict, plain_only
from .values import describe_exception, exception_summary, types_of


def computed(job: dict[str, Any]) -> dict[str, Any]:
    """Return the messages of the values of a list, computed by a task's own code alone."""
    space: dict[str, Any] = {"__name__": "tests"}
    texts: list[str] = []
    try:
        exec(compile_trusted(job["trusted"]), space)
        for value in eval(compile(job["compute"], "<task>", "eval", dont_inherit=True), space):
            texts.append(values.text(value, plain_only))
            del value  # it may be most of the memory
    except Exception as error:
        where = f"the task's own code fails at value {len(texts)}"
        return {"outcome": "fault", "detail": f"{where}: {exception_summary(error)}"}
    return {"outcome": "passed", "detail": "", "texts": texts}


def reference(descriptor: int, clock: ProgramClock, job: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict as human-eval finds it (openai/human-eval, execution.py).

    Program and tests run in one process, and the program is right unless something is raised. It can forge the verdict.
    """
    try:
        framing.send(descriptor, {"program": f"{job['program']}\n{job['code']}"}, wait=clock.wait)
        reply = framing.receive(descriptor, wait=clock.wait)
    except (framing.ConnectionClosed, framing.DeadlinePassed) as error:
        return no_answer_verdict(error)
    if isinstance(reply, dict) and "ready" in reply:
        return {"outcome": "passed", "detail": ""}
    raised = reply.get("error") if isinstance(reply, dict) else None
    if not isinstance(raised, dict):
        return {"outcome": "crashed", "detail": "an answer that is none"}
    verdict = describe_exception(raised)
    return {**verdict, "outcome": "wrong"} if "AssertionError" in types_of(raised) else verdict


LONGEST_JOB: Final = 2**30
"""The size limit, in bytes, of a job with its tests."""

_MEMORY: Final = 2048
_USERS: Final = 1000
"""Distance between the users of programs and those of tests."""

_CPU: Final = 1e6
"""Seconds for all jobs; each has a limit of its own."""


def serve(descriptor: int, slot: int, system_calls: bytes) -> None:
    """Judge the jobs that come over a connection of the supervisor; does not return."""
    try:
        os.setsid()
        if system_calls:
            jail.drop_user(slot + _USERS)
        jail.die_with_parent()
        if system_calls:
            jail.lock(jail.ProgramLimits(cpu=_CPU, memory=_MEMORY), system_calls)
        with socket.socket(fileno=descriptor) as supervisor:
            while True:
                _, descriptors, _, _ = socket.recv_fds(supervisor, 1, 1)
                if not descriptors:
                    break
                job = framing.receive(descriptor, longest=LONGEST_JOB)
                framing.send(descriptor, _verdict(job, descriptors[0]))
                os.close(descriptors[0])
    except framing.ConnectionClosed:
        pass  # the supervisor has ended, or given this process up
    finally:
        os._exit(0)


def _verdict(job: dict[str, Any], program: int) -> dict[str, Any]:
    """Return the verdict on one job.

    The tests have a limit of CPU time, too, which ends the process: a program's answers may make comparing them slow.
    """
    signal.setitimer(signal.ITIMER_PROF, job["cpu"])
    random.seed(0)  # no job depends on those before it
    try:
        if "compute" in job:
            return computed(job)
        clock = ProgramClock(program, job["wall"])
        return reference(program, clock, job) if job["reference"] else TestProxy(program, clock).verdict(job)
    except framing.ConnectionClosed as error:
        return no_answer_verdict(error)
    except Exception as error:
        return {"outcome": "fault", "detail": f"the tests cannot run: {error}"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
