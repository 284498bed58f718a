"""The known questions at both ends of what an engine is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_touchstone.core.errors import ServerError
from pytest_touchstone.engines.http.calls import Call, CallReply, Failure
from pytest_touchstone.engines.http.engine import HttpEngine
from pytest_touchstone.engines.http.factory import planner_of
from pytest_touchstone.engines.http.transport import HttpTransport
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.recorded import TEXTS, RecordedServer, probed

SETTINGS = ModelSettings()


class Replayed(HttpTransport):
    """A transport to a recorded server; ``end`` is what comes of every call from then on."""

    def __init__(self, server: RecordedServer) -> None:
        super().__init__("http://h")
        self.server = server
        self.end: Failure | ServerError | None = None

    def run(self, calls: Sequence[Call[Any]], done: Callable[[int, Any], None]) -> None:
        for number, call in enumerate(calls):
            if isinstance(self.end, ServerError):
                raise self.end
            said = self.end or self.server.ask(call.path, call.body)
            done(number, said if isinstance(said, Failure) else CallReply(value=call.read(said), seconds=0.0))


@pytest.mark.parametrize(
    ("end", "noted"),
    [
        (None, False),
        (Failure("HTTP 500", "server", 500), True),
        (ServerError("it has not answered for 120 s"), True),
    ],
    ids=["answered", "refused", "gone"],
)
def test_a_server_that_cannot_be_checked_at_the_end_is_told_of(
    end: Failure | ServerError | None, noted: bool
) -> None:
    server = RecordedServer("llama-server-b11434")
    transport, info = Replayed(server), probed(server.ask)
    engine = HttpEngine(info, transport, planner_of(info, SETTINGS, transport), SETTINGS)
    engine.answer(TEXTS)
    transport.end = end
    if isinstance(end, ServerError):
        with pytest.raises(ServerError):
            engine.check()
    else:
        engine.check()
    assert any("nobody knows whether" in note for note in engine.usage["notes"]) == noted
