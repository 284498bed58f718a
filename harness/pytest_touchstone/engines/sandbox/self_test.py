"""The self-test of a sandbox before anything is run in it: a program that attempts what programs must not do."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pytest_touchstone.core.errors import SandboxError
from pytest_touchstone.core.requests import InputOutputTests, RunProgram, RunProgramAnswer

_ATTEMPTS: Final = Path(__file__).with_name("self_test_program.py")

_MEMORY: Final = 256
_FILES: Final = 64


def check_isolation(run: Callable[[RunProgram], RunProgramAnswer]) -> None:
    """Raise ``SandboxError`` naming the attempts that succeeded, or the reason why programs cannot be run at all.

    ``run`` is the sandbox's. The host takes part: this file, its variables and two sockets are there to be reached.
    """
    here = [str(Path.cwd()), str(Path.home()), sysconfig.get_path("stdlib")]
    here += ["/", "/usr", "/dev", "/proc", "/var/tmp", str(Path(__file__).parent), "/touchstone/guest"]
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_UNIX) as local:
        name = f"\0touchstone-{secrets.token_hex(8)}"
        local.bind(name)
        local.listen()
        given = {
            "file": __file__,
            # /tmp is private, and programs may write there
            "folders": [one for one in here if one != "/tmp"],
            "environment": {name: value for name, value in os.environ.items() if name not in _SHARED},
            "port": listening.getsockname()[1],
            "local": name,
            "interpreter": os.path.realpath("/proc/self/exe"),
            "memory": 4 * _MEMORY,
            "files": _FILES,
        }
        request = RunProgram(
            _ATTEMPTS.read_text(encoding="utf-8"),
            InputOutputTests(((json.dumps(given), ""),)),
            task="self-test",
            seconds=20.0,
            memory=_MEMORY,
        )
        found = run(request)
    if found.outcome != "passed":
        raise SandboxError(_sentence(found))


_SHARED: Final = ("LANG", "HOME", "PATH", "PWD", "PYTHONHASHSEED", "HOSTNAME", "TERM")
"""Variables that programs or containers have too."""


def _sentence(found: RunProgramAnswer) -> str:
    if found.outcome == "wrong":
        escaped = found.detail.partition("printed ")[2]
        return (
            f"the sandbox does not hold: a program got through with {escaped}; nothing is run in it. Try "
            "--eval-sandbox docker, or, for programs that you trust, --eval-sandbox none"
        )
    return (
        f"programs cannot be run in the sandbox ({found.outcome}: {found.detail}); unprivileged user namespaces may be "
        "forbidden here (sysctl kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces). Allow them, "
        "or use --eval-sandbox docker"
    )
