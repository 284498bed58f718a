"""Becomes another user, or root again."""

KIND = "call"
import os


def add(a, b):
    before = os.getresuid()
    for who in (0, 1, 1000, 65534):
        for change in (
            os.setuid,
            os.setgid,
            lambda who: os.setgroups([who]),
            lambda who: os.setresuid(who, who, who),
        ):
            try:
                change(who)
            except OSError:
                pass
    if os.getresuid() != before:
        raise RuntimeError(f"ESCAPED: {before} became {os.getresuid()}")
