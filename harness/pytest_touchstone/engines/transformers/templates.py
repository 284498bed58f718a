"""Chat templates in bounded time and memory: each is a program that comes with a checkpoint.

jinja2's sandbox keeps a template from files and from Python's insides, not from loops without end or huge texts. So a
render that takes too long is stopped from another thread, and operations that make large values out of small ones are
refused before they are done.
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

SECONDS: Final = 5.0
"""The longest that a template may take for one conversation; templates that people use take a millisecond."""

MOST: Final = 1 << 24
"""The most characters of a text, and entries of a list, that a template may make."""

_MOST_BITS: Final = 4096
_WIDTH: Final = re.compile(r"[0-9]{6,}")

Result = TypeVar("Result")


class TemplateLimitError(Exception):
    """A chat template takes too long or makes too much."""


class _StopError(Exception):
    """Raised in the thread of a template that takes too long."""


def limited(work: Callable[[], Result]) -> Result:
    """Return what the work returns; raises ``TemplateLimitError`` where it takes more than ``SECONDS``."""
    lock, over = threading.Lock(), False
    thread = ctypes.c_ulong(threading.get_ident())

    def stop() -> None:
        with lock:
            if not over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_StopError))

    timer = threading.Timer(SECONDS, stop)
    timer.daemon = True
    try:
        try:
            timer.start()
            return work()
        finally:
            with lock:  # once it is ours, what is to be raised is raised before the next line ends
                over = True
            timer.cancel()
    except _StopError:
        raise TemplateLimitError(f"it takes more than {SECONDS:g} s") from None


@functools.cache
def bound_templates() -> None:
    """From now on transformers compiles chat templates for an environment that refuses to make huge values."""
    from transformers.utils import chat_template_utils

    plain: Any = chat_template_utils.ImmutableSandboxedEnvironment

    class Bounded(plain):  # type: ignore[misc]
        intercepted_binops = frozenset(("+", "*", "**", "%"))

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            filters = dict[str, Any](vars(self)["filters"])
            self.filters = {name: _checked(one) for name, one in filters.items()}

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            _check_operation(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def call(self, context: Any, called: Any, *args: Any, **more: Any) -> Any:
            own = (getattr(called, "__self__", None), *args, *more.values())
            _check_arguments(own, getattr(called, "__name__", ""))
            return super().call(context, called, *args, **more)

        def wrap_str_format(self, value: Any) -> Any:
            made = super().wrap_str_format(value)
            return None if made is None else _checked(made, value.__self__)

        @staticmethod
        def concat(parts: Iterable[str]) -> str:
            size, kept = 0, []
            for part in parts:
                size += len(part)
                if size > MOST:
                    raise TemplateLimitError(f"it writes more than {MOST:,} characters")
                kept.append(part)
            return "".join(kept)

    chat_template_utils.ImmutableSandboxedEnvironment = Bounded


def _checked(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """Return a filter that looks at its arguments first, with the marks by which jinja2 knows what it takes."""

    @functools.wraps(function)
    def checked(*args: Any, **more: Any) -> Any:
        _check_arguments((*first, *args, *more.values()), function.__name__)
        return function(*args, **more)

    return checked


def _check_arguments(values: Sequence[Any], name: str = "") -> None:
    """Raise for arguments that make huge values: widths, counts, and texts to be put many times into others."""
    for value in values:
        if isinstance(value, int) and abs(value) > MOST:
            raise TemplateLimitError("it gives a function a huge number")
        if isinstance(value, str) and ("%" in value or "{" in value) and _WIDTH.search(value):
            raise TemplateLimitError("it formats a text to a huge width")
    texts = [one for one in values if isinstance(one, str)]
    if name.endswith("replace") and len(texts) > 2:
        made = len(texts[0]) + texts[0].count(texts[1]) * len(texts[2])
    elif name.endswith("join"):
        parts = [one for one in values if isinstance(one, (list, tuple))]
        between = sum(map(len, texts))
        made = sum(between + (len(text) if isinstance(text, str) else 0) for one in parts for text in one)
    else:
        made = 0
    if made > MOST:
        raise TemplateLimitError(f"it makes a text of more than {MOST:,} characters")


def _check_operation(operator: str, left: Any, right: Any) -> None:
    sizes = [len(one) if isinstance(one, (str, list, tuple)) else None for one in (left, right)]
    if operator == "+" and None not in sizes:
        made = sum(one or 0 for one in sizes)
    elif operator == "*" and sizes != [None, None]:
        number = right if sizes[1] is None else left
        made = (sizes[0] or sizes[1] or 0) * number if isinstance(number, int) else 0
    elif operator == "%" and isinstance(left, str):
        made = MOST + 1 if _WIDTH.search(left) or "*" in left else 0
    elif isinstance(left, int) and isinstance(right, int) and operator in ("*", "**"):
        bits = left.bit_length()
        made = (
            MOST + 1 if (bits * right if operator == "**" else bits + right.bit_length()) > _MOST_BITS else 0
        )
    else:
        made = 0
    if made > MOST:
        raise TemplateLimitError(f"it makes a value that is too large, with {operator}")
