"""Errors of items for readers: a hint at the likely mistake, its place, one block for equal errors."""

from __future__ import annotations

import os
import re
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from pytest_touchstone.core.errors import BenchmarkError, HarnessError
from pytest_touchstone.core.files import shown_path
from pytest_touchstone.core.keys import redact
from pytest_touchstone.core.requests import REQUEST_KINDS, Turn, plain_text
from pytest_touchstone.core.text import did_you_mean, join_names, redact_home

SAME: Final = "touchstone_error"
"""The attribute of a report that is equal for the same error of other items: its type and place."""

_UNKNOWN: Final = re.compile(r"^(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'")

ELSEWHERE: Final = ("tools", "tool_choice", "functions", "images", "image", "audio")
"""Arguments of other libraries for what no request can carry."""

_METHOD: Final = re.compile(r"<(?:built-in|bound) method (?:\w+\.)*(\w+) of [^<>]*(?: at 0x[0-9a-f]+)?>")

LONGEST: Final = 4000
"""The characters that are kept of what an error says."""

_UNPACKED: Final = re.compile(r"(unpack|not iterable|not subscriptable|has no len).*Answer|Answer.* is not")


@contextmanager
def forbid_exit() -> Iterator[None]:
    """Turn ``os._exit`` in an item into an error of the item: it would end the run silently."""
    end, process, thread = os._exit, os.getpid(), threading.get_ident()

    def refused(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != (process, thread):  # of a process that the item has forked
            end(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refused
    try:
        yield
    finally:
        os._exit = end


def hint(error: BaseException, row: Mapping[str, Any]) -> str:
    """Return a hint for a wrong field name, or for a single answer taken for several; else empty."""
    name = error.args[0] if len(error.args) == 1 else None
    if isinstance(error, KeyError) and isinstance(name, str) and name not in row:
        return _missing_name_hint("the row has the fields", name, row)
    if isinstance(error, AttributeError) and isinstance(error.obj, REQUEST_KINDS):
        return f"this is the request; its answer has such: answer = yield {type(error.obj).__name__}(...)"
    if isinstance(error, AttributeError) and is_dataclass(error.obj) and not isinstance(error.obj, type):
        names = [field.name for field in fields(error.obj)]
        return _missing_name_hint(f"a {type(error.obj).__name__} has", str(error.name), names)
    if isinstance(error, TypeError):
        return _type_error_hint(str(error))
    if isinstance(error, AssertionError):
        return "only assertions about answers are scores, and only of a benchmark without another primary"
    return ""


def _type_error_hint(text: str) -> str:
    if _UNPACKED.search(text):
        return "a single request has a single answer; yield a list to be sent a list"
    fields_of = {kind.__name__: [field.name for field in fields(kind)] for kind in (*REQUEST_KINDS, Turn)}
    if (unknown := _UNKNOWN.search(text)) is None or unknown[1] not in fields_of:
        return ""
    if unknown[2] in ELSEWHERE:
        return "models are sent texts, without images and tools"
    return _missing_name_hint(f"a {unknown[1]} has", unknown[2], fields_of[unknown[1]])


def _missing_name_hint(what: str, name: str, names: Iterable[str]) -> str:
    near = did_you_mean(name, names).strip()
    return f"{what} {join_names(names)}" + (f"; {near}" if near else "")


def assertion_message(error: BaseException) -> str:
    """Return why an assertion failed: in pytest's words, without addresses of methods, else the line of code."""
    text = _METHOD.sub(r"\1", _shown(str(error)))
    for frame in traceback.extract_tb(error.__traceback__)[-1:] if not text else ():
        text = frame.line or ""
    return text


def _shown(text: str) -> str:
    """Return the beginning of a text without keys and the home folder, cut so that none is halved."""
    text = redact_home(redact(plain_text(text[: 2 * LONGEST]).strip()))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def sentence(error: BaseException) -> str:
    """Return the explanation of an error as journalled, else the error with its type."""
    text = _shown(str(error))
    if isinstance(error, (HarnessError, pytest.skip.Exception, pytest.fail.Exception)) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def whole_sentence(error: BaseException) -> str:
    """Return the same, with what was noted about the error on its way."""
    return "; ".join([sentence(error), *map(_shown, getattr(error, "__notes__", ()))])


def place_of(error: BaseException, root: Path) -> str:
    """Return the last place in the project's own files where the error passed, as ``FILE:LINE``; else its origin."""
    frames = traceback.extract_tb(error.__traceback__)
    project_frames = [frame for frame in frames if Path(frame.filename).is_relative_to(root)]
    last = (project_frames or frames)[-1:]
    return "".join(f"{frame.filename}:{frame.lineno}" for frame in last)


def declaration_error(error: BaseException, path: Path) -> str:
    """Return the error of a declaration with its line in the file that was being imported."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), 1)
    return f"{shown_path(path)}:{line}: {error}"


def one_line(error: BaseException, item: pytest.Item) -> str:
    """Return an error of ours, that of a benchmark after the line of its file: the function's first."""
    if not isinstance(error, BenchmarkError):
        return str(error)
    _, line, _ = item.location
    path = os.path.relpath(item.path, item.config.invocation_params.dir)
    return f"{path}:{(line or 0) + 1}: {error}"


def first_of_each_error(reports: Iterable[Any]) -> list[Any]:
    """Return the first report of each error, headed by its node id and the number of others."""
    by_error: dict[object, list[Any]] = {}
    for report in reports:
        by_error.setdefault(getattr(report, SAME, None) or id(report), []).append(report)
    for first, *others in by_error.values():
        if hasattr(first, SAME):
            more = f" and {len(others)} more" if others else ""
            first.location = (*first.location[:2], f"{first.nodeid}{more}")
    return [reports[0] for reports in by_error.values()]
