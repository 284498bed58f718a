"""``--eval-engine``: where the replicas of a model are, and how many.

ray                a replica for each accelerator of the cluster, or one for each node without any
ray:4              four, in the cluster of RAY_ADDRESS, else in one that runs on this machine, else in a new one
ray://HOST:10001   in a cluster that is reached as Ray's clients reach it; ray:4://HOST:10001 four of them
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RayTarget:
    """A number of replicas (None: as many as fit) in a cluster of Ray (None: that of the environment, or its own)."""

    text: str
    count: int | None = None
    address: str | None = None


def parse_engine(text: str) -> str:
    """Return the option's text if ``target_of`` takes it; else raise ``ValueError`` with what was expected."""
    target_of(text)
    return text


def target_of(text: str) -> RayTarget:
    """Return what the option means; raise ``ValueError`` with what was expected."""
    found = re.fullmatch(r"ray(?::([1-9][0-9]{0,4}))?(?:://([^/\s]+))?", text)
    if found is None:
        raise ValueError("ray, ray:NUMBER, ray://HOST:PORT or ray:NUMBER://HOST:PORT")
    count, address = found.groups()
    return RayTarget(text, int(count) if count else None, address)
