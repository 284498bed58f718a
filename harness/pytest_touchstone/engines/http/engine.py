"""Served models as checkpoints, ``--checkpoint http://HOST:PORT/v1``, and the engine that asks their servers.

``inspect`` asks the server what it can do (``probe``), and everything found is in ``CheckpointInfo.served``, as plain
data: the processes that share a run ask with the same knowledge. Little is imported before that.

A served model has no files to be known by. Its fingerprint is made of what the server says of itself, and marked weak
(``WEAK``): the same may be said of other weights. Where the server was started here (``managed_servers``), it is of the
weights, the server and its version.

Known questions are asked at the beginning and at the end: a server may have another model by then. Where it gives
log-probabilities, those of known texts are compared; they differ by rounding alone, which is far less than between two
models. Else short greedy texts are compared, some of which rounding may change.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints.fingerprint import WEAK, fingerprint
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.checkpoints.info import CheckpointInfo, info_from_plain
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    Answer,
    Generate,
    GenerateAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    Turn,
)
from pytest_touchstone.engines.base import Done, Engine, EngineFactory, EngineProgress
from pytest_touchstone.engines.http.calls import TOKENS, Call, CallLimits, CallReply, Failure
from pytest_touchstone.engines.http.server import TARGETS, Address, parse_address
from pytest_touchstone.engines.settings import ModelSettings

if TYPE_CHECKING:
    from pytest_touchstone.engines.http.planning import PlannedCalls, Planner
    from pytest_touchstone.engines.http.probe import ProbedServer
    from pytest_touchstone.engines.http.tokens import AskAll
    from pytest_touchstone.engines.http.transport import HttpTransport
    from pytest_touchstone.engines.transformers.token_work import TokenWork

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

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
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
        limits = CallLimits(
            attempt_seconds=settings.request_timeout,
            item_seconds=settings.item_timeout,
            run_seconds=settings.run_timeout,
            gone_seconds=GONE_HERE_SECONDS if info.served.get("child") else GONE_SECONDS,
            concurrency_most=settings.concurrency,
        )
        transport = _transport(info.served["base"], limits)
        return HttpEngine(info, transport, planner_of(info, settings, transport), settings)


def planner_of(
    info: CheckpointInfo, settings: ModelSettings, transport: HttpTransport | None = None
) -> Planner:
    """Return what plans calls for a model; ``transport`` is needed for a tokenizer at the server."""
    from pytest_touchstone.engines.http.planning import Planner
    from pytest_touchstone.engines.http.tokens import named_tokens

    name = info.served["tokenizer"]
    ask: AskAll = (lambda _, bodies: [None] * len(bodies)) if transport is None else _remote(transport)
    return Planner(info, settings, None if name is None else named_tokens(name, ask))


def inspect_server(address: Address, asked: CheckpointRequest, limit: int | None = None) -> CheckpointInfo:
    """Describe the model at an address. Raises ``CheckpointError`` where it cannot be asked.

    ``limit`` is the most tokens that it takes, for a server that does not say it itself.
    """
    from pytest_touchstone.engines.http.probe import METRICS, Probe

    limits = CallLimits(attempt_seconds=PROBE_SECONDS, attempts=PROBE_ATTEMPTS, gone_seconds=None)
    transport = _transport(address.base, limits)

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | Failure:
        (end,) = transport.ask([Call(path, body, lambda data: data, text=path == METRICS)])
        return end if isinstance(end, Failure) else end.value

    try:
        server = Probe(address, ask).run(asked.options.get("model"), asked.options.get("tokenizer"))
    finally:
        transport.close()
    server.limit = server.limit or limit
    return served_checkpoint(address, server, asked)


def served_checkpoint(address: Address, server: ProbedServer, asked: CheckpointRequest) -> CheckpointInfo:
    """Return the checkpoint that a probe found."""
    from pytest_touchstone.engines.http.planning import ASSUMED

    place = Path(f"{address.url}?model={server.model}")
    limit = server.limit
    seq_len = asked.limited(address.url, limit or asked.seq_len or ASSUMED)
    notes = list(server.notes)
    if limit is None and asked.seq_len is None:
        notes.append(
            "the server does not say how many tokens it takes: texts are not checked before they are sent"
        )
    return CheckpointInfo(
        name=Path(server.model.rstrip("/")).name,
        source=asked.source,
        path=place,
        kind="causal",
        format="served",
        model_type=f"served by {' '.join(filter(None, (server.server, server.version))) or 'an unknown server'}",
        architecture=server.model,
        seq_len=seq_len,
        serves=server.abilities.serves,
        engine=HttpFactory.name,
        served={
            "url": address.url,
            "base": address.base,
            "api": address.api,
            "model": server.model,
            "server": server.server,
            "version": server.version,
            "system_fingerprint": server.fingerprint,
            "limit": limit,
            "cut": asked.seq_len is not None,
            "tokenizer": None if server.tokens is None else server.tokens.name,
            "tokens": None if server.tokens is None else server.tokens.identity,
            "template": server.template,
            "abilities": server.abilities.plain(),
            "lacks": server.abilities.why,
            "notes": notes,
        },
    )


def _transport(base: str, limits: CallLimits) -> HttpTransport:
    if find_spec("aiohttp") is None:
        raise CheckpointError(
            "a served model needs aiohttp, which is not installed: pip install 'pytest-touchstone[http]'"
        )
    from pytest_touchstone.engines.http.transport import HttpTransport

    return HttpTransport(base, limits)


def _remote(transport: HttpTransport) -> AskAll:
    def ask_all(path: str, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        ends = transport.ask(
            [Call(path, body, lambda data: data, number) for number, body in enumerate(bodies)]
        )
        return [end.value if isinstance(end, CallReply) else None for end in ends]

    return ask_all


MOST_PER_TOKEN: Final = 0.05
"""Nats by which the mean log-probability of a text's tokens may differ."""

_TEXTS: Final = (
    ("The capital of France", " is Paris, and the capital of Italy is Rome."),
    ("서울은", " 대한민국의 수도이며 가장 큰 도시이다."),
)

_PROMPTS: Final = ("The capital of France is", "2 + 2 =", "def add(a, b):", "Once upon a time")

_NEW: Final = 8

_SCORES: Final[tuple[Request, ...]] = tuple(Loglikelihood(*text) for text in _TEXTS)

_GREEDY: Final[tuple[Request, ...]] = tuple(
    Generate(prompt, max_new_tokens=_NEW, turns=(Turn("user", prompt),)) for prompt in _PROMPTS
)


def canary_requests(serves: Sequence[type[Request]]) -> tuple[Request, ...]:
    """Return the questions for a server that answers these kinds of request."""
    return _SCORES if Loglikelihood in serves else _GREEDY


def drift(before: Sequence[Answer | Refusal], after: Sequence[Answer | Refusal]) -> str | None:
    """Return in words how the answers at the end differ from those at the beginning; None where they agree.

    A question without an answer says nothing.
    """
    pairs, apart = 0, 0
    for old, new in zip(before, after, strict=True):
        if isinstance(old, LoglikelihoodAnswer) and isinstance(new, LoglikelihoodAnswer):
            nats = abs(old.logprob - new.logprob)
            if old.tokens != new.tokens or nats > MOST_PER_TOKEN * old.tokens:
                return (
                    "the server answers otherwise than at the beginning: a known text had the log-probability "
                    f"{old.logprob:.2f} then and {new.logprob:.2f} at the end"
                )
        elif isinstance(old, GenerateAnswer) and isinstance(new, GenerateAnswer):
            pairs, apart = pairs + 1, apart + (_whole(old) != _whole(new))
    if apart > pairs / 2:
        return (
            f"the server answers otherwise than at the beginning: {apart} of {pairs} known prompts, asked "
            "greedily, have other texts at the end"
        )
    return None


def _whole(answer: GenerateAnswer) -> str:
    """Return a text with its reasoning: what is known of a server's texts by the end may take that away."""
    return (answer.samples[0].reasoning or "") + answer.text.strip()


class HttpEngine(Engine):
    """Answers ``Loglikelihood``, ``RollingLoglikelihood`` and ``Generate``, as far as its server does.

    Before the first answer, and when it is told that no more is asked, it asks known questions (``canary``).
    """

    def __init__(
        self, info: CheckpointInfo, transport: HttpTransport, planner: Planner, settings: ModelSettings
    ) -> None:
        self.info = info
        self._transport, self._planner, self._price = transport, planner, settings.price
        self._canaries = canary_requests(info.serves)
        self._before: list[Answer | Refusal] | None = None
        self._drift: str | None = None
        self._unchecked = False
        self._since = 0
        self._fingerprints: Counter[str] = Counter()

    @property
    def usage(self) -> dict[str, Any]:
        """The cost of answering so far: requests, tokens as the server counts them, money; and what speaks against the
        answers."""
        from pytest_touchstone.engines.http.planning import money

        counts = {name: self._transport.counts[name] for name in ("requests", "retries", *TOKENS)}
        cost = money(counts["prompt_tokens"], counts["completion_tokens"], self._price)
        return {
            **counts,
            "troubles": dict(self._transport.troubles),
            "notes": self._notes(),
            **({} if cost is None else {"cost": cost}),
            **({"drift": self._drift} if self._drift else {}),
        }

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in the order asked; each is passed to ``done`` when it is there.

        Raises ``ServerError`` where the server is gone.
        """
        if self._before is None:
            self._before = self._ask(self._planner.plan(self._canaries))
        self._since += len(requests)
        return self._ask(self._planner.plan(requests), done)

    def conversation(self, turns: Sequence[Turn]) -> str | Refusal | None:
        """Return turns as the model's chat template writes them; None where that is not known here."""
        return self._planner.conversation(turns)

    @property
    def marks(self) -> frozenset[str]:
        """The texts that are special tokens, as far as the tokenizer is here."""
        return self._planner.marks

    def most_probable(self, works: Sequence[TokenWork], most: int) -> list[list[dict[int, float]]]:
        """Return, for each work, the log-probabilities of the ``most`` most probable tokens and of the target, by
        token, at each target.

        Raises ``CheckpointError`` where the server does not give them.
        """
        from pytest_touchstone.engines.http.scoring import most_probable

        asked = self._planner.asked
        if asked.abilities.scoring != "prompt_logprobs":
            why = asked.abilities.why or "it has no prompt_logprobs, as vLLM has them"
            raise CheckpointError(
                f"{self.info.source}: does not say which tokens it finds most probable in a prompt: {why}"
            )
        calls = [
            asked.call("completions", *most_probable(work, asked.abilities, most), number)
            for number, work in enumerate(works)
        ]
        rows = []
        for end in self._transport.ask(calls):
            if isinstance(end, Failure):
                raise CheckpointError(f"{self.info.source}: {end.reason}")
            rows.append(end.value)
        return rows

    def check(self) -> None:
        """Ask the known questions again, unless nothing was asked since; ``usage`` says what was found."""
        if self._before is None or not self._since:
            return
        self._since, self._unchecked = 0, True
        after = self._ask(self._planner.plan(self._canaries))
        self._drift = self._drift or drift(self._before, after)
        self._unchecked = all(isinstance(answer, Refusal) for answer in after)

    def expect_traces(self, *, opened: bool) -> None:
        """Send no stop sequences from now on; with ``opened``, a text that is cut off without a delimiter is a
        trace."""
        self._planner.traces.shown = True
        self._planner.traces.opened |= opened

    def progress(self) -> EngineProgress:
        """Return the work so far, as the server counts it."""
        return EngineProgress(
            tokens=sum(self._transport.counts[name] for name in TOKENS), trouble=self._transport.trouble
        )

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def _ask(self, planned: PlannedCalls, done: Done | None = None) -> list[Answer | Refusal]:
        answers: dict[int, Answer | Refusal] = {}

        def take(number: int, answer: Answer | Refusal) -> None:
            answers[number] = answer
            if done is not None:
                done(number, answer)

        def ended(number: int, end: CallReply[Any] | Failure) -> None:
            if isinstance(end, CallReply) and end.fingerprint is not None:
                self._fingerprints[end.fingerprint] += 1
            for request, answer in planned.take(number, end):
                take(request, answer)

        for number, answer in planned.ready.items():
            take(number, answer)
        self._transport.run(planned.calls, ended)
        return [answers[number] for number in range(len(answers))]

    def _notes(self) -> list[str]:
        notes = [f"{self.info.name}: {note}" for note in self.info.served["notes"]]
        if self._planner.traces.withheld:
            notes.append(
                f"{self.info.name}: its texts show a reasoning, so it is sent no stop sequences; --eval-set think_end "
                "TOKEN sends none from the beginning"
            )
        if len(self._fingerprints) > 1:
            notes.append(
                f"{self.info.name}: the server answered with {len(self._fingerprints)} different system_fingerprints: "
                "its replies are not all of one system"
            )
        if self._unchecked:
            notes.append(
                f"{self.info.name}: the server gave no answer to the known questions at the end, so nobody knows "
                "whether it was still the same"
            )
        return notes
