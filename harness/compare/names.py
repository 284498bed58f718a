"""Which of several checkpoints a person means, and lists of names for messages.

A name is meant by itself, or by parts that all fit it: ``mlm_v2/390`` and ``MLM v2/1536/checkpoint-390`` mean
``mlm_v2/1536/checkpoint-390``; a step is a part. Case does not matter, nor do spaces, ``-`` and ``_``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from harness.core.errors import DataError
from harness.core.text import LISTED, alike, listed


class Named(Protocol):
    """Something with a name, and perhaps other terms that it is known by."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> Mapping[str, Any]: ...


One = TypeVar("One", bound=Named)


def select(candidates: Sequence[One], wanted: str) -> list[One]:
    """Those that are meant: of exactly this name if there are any, else those that all parts fit."""
    exact = [one for one in candidates if one.name == wanted]
    if exact:
        return exact
    parts = [_plain(part) for part in wanted.split("/") if part.strip()]
    return [one for one in candidates if parts and all(part in _parts(one) for part in parts)]


def only(candidates: Sequence[One], wanted: str, where: str) -> One:
    """The one that is meant; raises ``DataError`` listing what there is, where it is none or several."""
    found = select(candidates, wanted)
    if len(found) == 1:
        return found[0]
    if found:
        names = listed(dict.fromkeys(one.name for one in found))
        raise DataError(f"{where}: {wanted!r} means {len(found)} checkpoints; say which: {names}")
    raise DataError(
        f"{where}: no checkpoint {wanted!r}; there are: {nearest(wanted, [one.name for one in candidates])}"
    )


def nearest(wanted: str, names: Iterable[str]) -> str:
    """The names for a message, those like the wanted one first."""
    known = list(dict.fromkeys(names))
    like = alike(wanted, known, LISTED, cutoff=0.3)
    return listed([*like, *(name for name in known if name not in like)])


def _parts(one: Named) -> set[str]:
    step = one.about.get("step")
    found = {one.name, *one.name.split("/")}
    found |= {str(one.about[key]) for key in ("series", "seq_len") if one.about.get(key) is not None}
    found |= set() if step is None else {str(step), f"step-{step}", f"checkpoint-{step}"}
    return {_plain(part) for part in found}


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", "-", text.strip()).casefold()
