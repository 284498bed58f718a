"""Makes what an engine needs for a request, its tokens, in a thread of its own, before it is asked for.

A fast tokenizer works outside of Python's lock, so a text can be cut while the model computes. Texts are cut in
that one thread alone: transformers sets how a tokenizer cuts (truncation, padding) before every text, which two
threads must not do at once. The thread that runs the model uses the tokenizer meanwhile, but only to read
generated tokens, which changes nothing about it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from harness.requests import Request

Made = TypeVar("Made")

_CALLS: Final = 2
"""What is prepared counts for so many calls of ``begin``: the unit that computes, and the next."""


class Ahead(Generic[Made]):
    """Calls ``make`` with lists of requests; it gives one result a request, whatever else is in the list."""

    def __init__(self, make: Callable[[Sequence[Request]], list[Made]]) -> None:
        self._make = make
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="touchstone-ahead")
        self._begun: deque[tuple[dict[Request, int], Future[list[Made]]]] = deque(maxlen=_CALLS)

    def begin(self, requests: Sequence[Request]) -> None:
        """Returns at once; the results will be there when they are asked for."""
        numbers = {request: number for number, request in enumerate(dict.fromkeys(requests))}
        if numbers:
            self._begun.append((numbers, self._thread.submit(self._make, list(numbers))))

    def made(self, requests: Sequence[Request]) -> list[Made]:
        """One result a request, in order; raises what ``make`` raises for these requests."""
        found = [self._find(request) for request in requests]
        missing = [request for request, one in zip(requests, found, strict=True) if one is None]
        rest = iter(self._thread.submit(self._make, missing).result() if missing else ())
        return [next(rest) if one is None else one[0] for one in found]

    def close(self) -> None:
        """Ends the thread."""
        self._begun.clear()
        self._thread.shutdown(cancel_futures=True)

    def _find(self, request: Request) -> tuple[Made] | None:
        """What was prepared for a request, once it is ready; nothing where a list could not be prepared, so
        that only the one who asks for a faulty request gets its error."""
        for numbers, future in self._begun:
            if (number := numbers.get(request)) is not None and future.exception() is None:
                return (future.result()[number],)
        return None
