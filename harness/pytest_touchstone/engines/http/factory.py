"""``HttpFactory``: served models as checkpoints, ``--checkpoint http://HOST:PORT/v1``.

``inspect`` asks the server what it can do (``probe``), and everything found is in ``CheckpointInfo.served``, as plain
data: the processes that share a run ask with the same knowledge. Little is imported before that.

A served model has no files to be known by. Its fingerprint is made of what the server says of itself, and marked weak
(``WEAK``): the same may be said of other weights. Where the server was started here (``children``), it is of the
weights, the server and its version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints.fingerprint import WEAK, fingerprint
from pytest_touchstone.checkpoints.formats.base import Asked
from pytest_touchstone.checkpoints.info import CheckpointInfo, info_from_plain
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.base import EngineFactory
from pytest_touchstone.engines.http.server import TARGETS, Address, parse_address
from pytest_touchstone.engines.settings import ModelSettings

if TYPE_CHECKING:
    from pytest_touchstone.engines.http.engine import HttpEngine
    from pytest_touchstone.engines.http.planning import Planner
    from pytest_touchstone.engines.http.probe import ProbedServer
    from pytest_touchstone.engines.http.tokens import AskAll
    from pytest_touchstone.engines.http.transport import HttpTransport

PROBE_ATTEMPTS: Final = 3
PROBE_SECONDS: Final = 120.0
"""The attempts at a probe's request, and the seconds of each: a server may compile something first."""

GONE_SECONDS: Final = 120.0
GONE_HERE_SECONDS: Final = 15.0
"""The seconds that a server may be away before the run stops; one that was started here does not come back."""

_TOLD: Final = ("model", "server", "version", "system_fingerprint", "tokens")
_STARTED: Final = ("server", "version", "arguments")
"""The parts of a weak fingerprint, and those beside the weights, by the names in ``CheckpointInfo.served``."""


class HttpFactory(EngineFactory):
    """Opens models at servers."""

    name = "http"
    targets = TARGETS
    options: Mapping[str, str] = MappingProxyType(
        {
            "model": "the model to ask, where the server has several",
            "tokenizer": "a folder, Hub id or checkpoint with the model's tokenizer",
        }
    )

    def inspect(self, path: Path, asked: Asked) -> CheckpointInfo:
        """Describe a served model. Raises ``CheckpointError`` where it cannot be asked."""
        del path  # in which two slashes are one
        return inspect_server(parse_address(asked.source), asked)

    def fingerprint(self, info: CheckpointInfo) -> str:
        """Return the fingerprint of the weights and their server, where they are here, else the weak one of what the
        server says of itself."""
        if info.served.get("weights"):
            weights = fingerprint(info_from_plain(info.served["weights"]))
            told = [weights, *(info.served.get(name) for name in _STARTED)]
            return hashlib.sha256(json.dumps(told).encode()).hexdigest()
        told = [info.served.get(name) for name in _TOLD]
        return WEAK + hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def open(self, info: CheckpointInfo, settings: ModelSettings) -> HttpEngine:
        """Return the model, ready to be asked. Raises ``CheckpointError``."""
        gone = GONE_HERE_SECONDS if info.served.get("child") else GONE_SECONDS
        transport = _transport(info.served["base"], settings, gone)
        from pytest_touchstone.engines.http.engine import HttpEngine  # which imports aiohttp

        return HttpEngine(info, transport, planner_of(info, settings, transport), settings)


def planner_of(
    info: CheckpointInfo, settings: ModelSettings, transport: HttpTransport | None = None
) -> Planner:
    """Return what plans calls for a model; ``transport`` is needed for a tokenizer at the server."""
    from pytest_touchstone.engines.http.planning import Planner
    from pytest_touchstone.engines.http.tokens import named_tokens

    name = info.served["tokenizer"]
    ask_all: AskAll = (lambda _, bodies: [None] * len(bodies)) if transport is None else _remote(transport)
    tokens = (
        None if name is None else named_tokens(name, lambda path, body: ask_all(path, [body])[0], ask_all)
    )
    return Planner(info, settings, tokens)


def inspect_server(address: Address, asked: Asked, limit: int | None = None) -> CheckpointInfo:
    """Describe the model at an address. Raises ``CheckpointError`` where it cannot be asked.

    ``limit`` is the most tokens that it takes, for a server that does not say it itself.
    """
    from pytest_touchstone.engines.http.calls import Call, Failure
    from pytest_touchstone.engines.http.probe import METRICS, Probe

    transport = _transport(address.base, ModelSettings(request_timeout=PROBE_SECONDS))

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | Failure:
        end = transport.one(Call(path, body, lambda found: found, text=path == METRICS), PROBE_ATTEMPTS)
        return end if isinstance(end, Failure) else end.value

    try:
        found = Probe(address, ask).run(asked.options.get("model"), asked.options.get("tokenizer"))
    finally:
        transport.close()
    found.limit = found.limit or limit
    return described(address, found, asked)


def described(address: Address, found: ProbedServer, asked: Asked) -> CheckpointInfo:
    """Return the checkpoint that a probe found."""
    from pytest_touchstone.engines.http.planning import ASSUMED

    place = Path(f"{address.url}?model={found.model}")
    limit = found.limit
    seq_len = asked.limited(address.url, limit or asked.seq_len or ASSUMED)
    notes = list(found.notes)
    if limit is None and asked.seq_len is None:
        notes.append(
            "the server does not say how many tokens it takes: texts are not checked before they are sent"
        )
    return CheckpointInfo(
        name=Path(found.model.rstrip("/")).name,
        source=asked.source,
        path=place,
        kind="causal",
        format="served",
        model_type=f"served by {' '.join(filter(None, (found.server, found.version))) or 'an unknown server'}",
        architecture=found.model,
        seq_len=seq_len,
        serves=found.abilities.serves,
        engine=HttpFactory.name,
        served={
            "url": address.url,
            "base": address.base,
            "api": address.api,
            "model": found.model,
            "server": found.server,
            "version": found.version,
            "system_fingerprint": found.fingerprint,
            "limit": limit,
            "cut": asked.seq_len is not None,
            "tokenizer": None if found.tokens is None else found.tokens.name,
            "tokens": None if found.tokens is None else found.tokens.identity,
            "template": found.template,
            "abilities": found.abilities.plain(),
            "lacks": found.abilities.why,
            "notes": notes,
        },
    )


def _transport(base: str, settings: ModelSettings, gone: float = GONE_SECONDS) -> HttpTransport:
    if find_spec("aiohttp") is None:
        raise CheckpointError(
            "a served model needs aiohttp, which is not installed: pip install 'pytest-touchstone[http]'"
        )
    from pytest_touchstone.engines.http.calls import CallLimits
    from pytest_touchstone.engines.http.transport import HttpTransport

    limits = CallLimits(
        attempt_seconds=settings.request_timeout,
        item_seconds=settings.item_timeout,
        run_seconds=settings.run_timeout,
        gone_seconds=gone,
        concurrency_most=settings.concurrency,
    )
    return HttpTransport(base, limits)


def _remote(transport: HttpTransport) -> AskAll:
    from pytest_touchstone.engines.http.calls import Call, CallReply, Failure

    def ask_all(path: str, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        said: list[Any] = [None] * len(bodies)

        def done(number: int, end: CallReply[Any] | Failure) -> None:
            said[number] = end.value if isinstance(end, CallReply) else None

        transport.run(
            [Call(path, body, lambda found: found, number) for number, body in enumerate(bodies)], done
        )
        return said

    return ask_all
