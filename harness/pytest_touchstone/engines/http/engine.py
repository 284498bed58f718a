"""Served models as checkpoints (``--checkpoint http://HOST:PORT/v1``), and the engine that queries their servers.

``inspect`` probes the server; all findings are in ``CheckpointInfo.served`` as plain data, so that all processes of a
run plan their calls alike. Little is imported before that.

A served model has no files to hash. Its fingerprint is made of what the server reports about itself, and marked weak
(``WEAK``), since other weights may give the same report. For a server that was started here (``managed_servers``), the
fingerprint is that of the weights, the server and its version.

Canary requests are sent at the beginning and at the end, since a server may change its model in between. If the server
gives log-probabilities, those of known texts are compared; rounding changes them far less than another model does.
Otherwise short greedy texts are compared, some of which rounding may change. They are sent twice at either end, so that
an engine whose answers depend on its batches is not taken for another model (``simulations.engines``).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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
from pytest_touchstone.engines.http.calls import TOKENS, Call, CallFailure, CallLimits, CallReply
from pytest_touchstone.engines.http.server import TARGETS, ServerAddress, parse_address
from pytest_touchstone.engines.settings import ModelSettings

if TYPE_CHECKING:
    from pytest_touchstone.engines.http.planning import PlannedCalls, Planner
    from pytest_touchstone.engines.http.probe import ProbedServer
    from pytest_touchstone.engines.http.tokens import AskAll
    from pytest_touchstone.engines.http.transport import HttpTransport
    from pytest_touchstone.engines.transformers.token_work import TokenWork

PROBE_ATTEMPTS: Final = 3
PROBE_SECONDS: Final = 120.0
"""The attempts at a probe's request, and the seconds for each; a server may compile something first."""

GONE_SECONDS: Final = 120.0
GONE_HERE_SECONDS: Final = 15.0
"""The seconds that a server may be away before the run stops; one that was started here does not come back."""

_IDENTITY_FIELDS: Final = ("model", "server", "version", "system_fingerprint", "tokens")
_MANAGED_FIELDS: Final = ("server", "version", "arguments")
"""The fields of ``CheckpointInfo.served`` in a weak fingerprint, and those beside the weights."""


class HttpFactory(EngineFactory):
    """The factory of engines for served models."""

    name = "http"
    targets = TARGETS
    options: Mapping[str, str] = MappingProxyType(
        {
            "model": "the model to ask, where the server has several",
            "tokenizer": "a folder, Hub id or checkpoint with the model's tokenizer",
        }
    )

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Describe a served model. Raises ``CheckpointError`` if the server cannot be used."""
        del path  # in which two slashes are one
        return inspect_server(parse_address(asked.source), asked)

    def fingerprint(self, info: CheckpointInfo) -> str:
        """Return the fingerprint of local weights and their server, else a weak one of the server's own report."""
        if info.served.get("weights"):
            weights = fingerprint(info_from_plain(info.served["weights"]))
            identity = [weights, *(info.served.get(name) for name in _MANAGED_FIELDS)]
            return hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        identity = [info.served.get(name) for name in _IDENTITY_FIELDS]
        return WEAK + hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def open(self, info: CheckpointInfo, settings: ModelSettings) -> HttpEngine:
        """Return an engine for the model. Raises ``CheckpointError``."""
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
    """Return the planner of calls for a model; a tokenizer at the server needs a ``transport``."""
    from pytest_touchstone.engines.http.planning import Planner
    from pytest_touchstone.engines.http.tokens import tokenizer_by_name

    name = info.served["tokenizer"]
    ask: AskAll = (lambda _, bodies: [None] * len(bodies)) if transport is None else _asker(transport)
    return Planner(info, settings, None if name is None else tokenizer_by_name(name, ask))


def inspect_server(
    address: ServerAddress, asked: CheckpointRequest, limit: int | None = None
) -> CheckpointInfo:
    """Probe the server at an address and describe its model. Raises ``CheckpointError``.

    ``limit`` is the maximum number of tokens for a server that does not report one.
    """
    from pytest_touchstone.engines.http.probe import METRICS, Probe

    limits = CallLimits(attempt_seconds=PROBE_SECONDS, attempts=PROBE_ATTEMPTS, gone_seconds=None)
    transport = _transport(address.base, limits)

    def ask(path: str, body: Mapping[str, Any] | None) -> Any | CallFailure:
        (end,) = transport.ask([Call(path, body, lambda reply: reply, text=path == METRICS)])
        return end if isinstance(end, CallFailure) else end.value

    try:
        server = Probe(address, ask).run(asked.options.get("model"), asked.options.get("tokenizer"))
    finally:
        transport.close()
    server.limit = server.limit or limit
    return served_checkpoint(address, server, asked)


def served_checkpoint(
    address: ServerAddress, server: ProbedServer, asked: CheckpointRequest
) -> CheckpointInfo:
    """Return the checkpoint for a probed server."""
    from pytest_touchstone.engines.http.planning import DEFAULT_LIMIT

    path_and_model = Path(f"{address.url}?model={server.model}")
    limit = server.limit
    seq_len = asked.limited(address.url, limit or asked.seq_len or DEFAULT_LIMIT)
    notes = list(server.notes)
    if limit is None and asked.seq_len is None:
        notes.append(
            "the server does not say how many tokens it takes: texts are not checked before they are sent"
        )
    return CheckpointInfo(
        name=Path(server.model.rstrip("/")).name,
        source=asked.source,
        path=path_and_model,
        kind="causal",
        format="served",
        model_type=f"served by {' '.join(filter(None, (server.server, server.version))) or 'an unknown server'}",
        architecture=server.model,
        seq_len=seq_len,
        serves=server.abilities.serves,
        engine=HttpFactory.name,
        engine_facts={
            "served": {
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
            }
        },
    )


def _transport(base: str, limits: CallLimits) -> HttpTransport:
    if find_spec("aiohttp") is None:
        raise CheckpointError(
            "a served model needs aiohttp, which is not installed: pip install 'pytest-touchstone[http]'"
        )
    from pytest_touchstone.engines.http.transport import HttpTransport

    return HttpTransport(base, limits)


def _asker(transport: HttpTransport) -> AskAll:
    def ask_all(path: str, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        ends = transport.ask(
            [Call(path, body, lambda reply: reply, number) for number, body in enumerate(bodies)]
        )
        return [end.value if isinstance(end, CallReply) else None for end in ends]

    return ask_all


MOST_PER_TOKEN: Final = 0.05
"""Nats by which the mean log-probability of a text's tokens may differ between the beginning and the end."""

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
    """Return the canary requests for a server that answers these types of requests."""
    return _SCORES if Loglikelihood in serves else _GREEDY


ASKED: Final = 2
"""How often canary requests are sent at either end: what differs from itself tells of no other model."""

Asked: TypeAlias = Sequence[Sequence[Answer | Refusal]]
"""The answers to the canary requests, each time that they were sent."""


def describe_drift(before: Asked, after: Asked) -> str | None:
    """Describe how the canary answers at the end differ from those at the beginning; None if they agree.

    A log-probability has to differ from each at the beginning, by more than rounding. Of the texts that were the same
    each time at either end, most have to differ. Refusals are not compared.
    """
    steady = different = 0
    for olds, news in _comparable(before, after):
        if isinstance(olds[0], GenerateAnswer):
            (old_texts, new_texts) = ({*map(_full_text, answers)} for answers in (olds, news))
            steady, different = steady + 1, different + (old_texts != new_texts)
            continue
        old, new = min(product(olds, news), key=lambda pair: abs(pair[0].logprob - pair[1].logprob))
        if old.tokens != new.tokens or abs(old.logprob - new.logprob) > MOST_PER_TOKEN * old.tokens:
            return (
                "the server answers otherwise than at the beginning: a known text had the log-probability "
                f"{old.logprob:.2f} then and {new.logprob:.2f} at the end"
            )
    if different > steady / 2:
        return (
            f"the server answers otherwise than at the beginning: {different} of {steady} known prompts, asked "
            "greedily, have other texts at the end"
        )
    return None


def _comparable(before: Asked, after: Asked) -> Iterator[tuple[Any, Any]]:
    """Yield the answers of each canary that tell the server's model, those at the beginning and those at the end."""
    for olds, news in zip(zip(*before, strict=True), zip(*after, strict=True), strict=True):
        types = {*map(type, (*olds, *news))}
        if types == {LoglikelihoodAnswer} or (
            types == {GenerateAnswer}
            and all(len({*map(_full_text, answers)}) == 1 for answers in (olds, news))
        ):
            yield olds, news


def _full_text(answer: GenerateAnswer) -> str:
    """Return a text with its reasoning, because the end of a run may split the two differently."""
    return (answer.samples[0].reasoning or "") + answer.text.strip()


class HttpEngine(Engine):
    """An engine for ``Loglikelihood``, ``RollingLoglikelihood`` and ``Generate``, as far as its server answers them.

    Canary requests are sent before the first answer, and again by ``check``.
    """

    def __init__(
        self, info: CheckpointInfo, transport: HttpTransport, planner: Planner, settings: ModelSettings
    ) -> None:
        self.info = info
        self._transport, self._planner, self._price = transport, planner, settings.price
        self._canaries = canary_requests(info.serves)
        self._before: Asked | None = None
        self._drift: str | None = None
        self._unchecked = False
        self._since = 0
        self._fingerprints: Counter[str] = Counter()

    @property
    def usage(self) -> dict[str, Any]:
        """The cost so far (requests, tokens as the server counts them, money), and notes on doubtful answers."""
        from pytest_touchstone.engines.http.planning import token_cost

        counts = {name: self._transport.counts[name] for name in ("requests", "retries", *TOKENS)}
        cost = token_cost(counts["prompt_tokens"], counts["completion_tokens"], self._price)
        return {
            **counts,
            "troubles": dict(self._transport.troubles),
            "notes": self._notes(),
            **({} if cost is None else {"cost": cost}),
            **({"drift": self._drift} if self._drift else {}),
        }

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in order; each is passed to ``done`` as soon as it is complete.

        Raises ``ServerError`` if the server is gone.
        """
        if self._before is None:
            self._before = self._ask_canaries()
        self._since += len(requests)
        return self._ask(self._planner.plan(requests), done)

    def conversation(self, turns: Sequence[Turn]) -> str | Refusal | None:
        """Render turns with the model's chat template; None if there is no template here."""
        return self._planner.conversation(turns)

    @property
    def marks(self) -> frozenset[str]:
        """The special tokens of the tokenizer, as texts; empty if the tokenizer is at the server."""
        return self._planner.marks

    def most_probable(self, works: Sequence[TokenWork], most: int) -> list[list[dict[int, float]]]:
        """Return the log-probabilities of the most probable tokens at each target.

        Args:
            works: The token sequences.
            most: The number of tokens per target; the target itself is added to them.

        Returns:
            For each work and each of its targets, the log-probabilities by token id.

        Raises:
            CheckpointError: If the server does not report them.

        """
        from pytest_touchstone.engines.http.scoring import top_tokens_call

        served_model = self._planner.served_model
        if served_model.abilities.scoring != "prompt_logprobs":
            why = served_model.abilities.why or "it has no prompt_logprobs, as vLLM has them"
            raise CheckpointError(
                f"{self.info.source}: does not say which tokens it finds most probable in a prompt: {why}"
            )
        calls = [
            served_model.call("completions", *top_tokens_call(work, served_model.abilities, most), index)
            for index, work in enumerate(works)
        ]
        rows = []
        for end in self._transport.ask(calls):
            if isinstance(end, CallFailure):
                raise CheckpointError(f"{self.info.source}: {end.reason}")
            rows.append(end.value)
        return rows

    def check(self) -> None:
        """Send the canary requests again, unless nothing was sent since; ``usage`` has the outcome."""
        if self._before is None or not self._since:
            return
        self._since, self._unchecked = 0, True
        after = self._ask_canaries()
        self._drift = self._drift or describe_drift(self._before, after)
        self._unchecked = not any(_comparable(self._before, after))

    def _ask_canaries(self) -> Asked:
        return [self._ask(self._planner.plan(self._canaries)) for _ in range(ASKED)]

    def expect_traces(self, *, opened: bool) -> None:
        """Send no stop sequences from now on; with ``opened``, a text cut off before a delimiter is a trace."""
        self._planner.traces.shown = True
        self._planner.traces.opened |= opened

    def progress(self) -> EngineProgress:
        """Return the progress so far, in tokens as the server counts them."""
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

        def ended(number: int, end: CallReply[Any] | CallFailure) -> None:
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
                f"{self.info.name}: the server gave no answers, or others each time, to the canary requests, so it is "
                "unknown whether it was the same at the end"
            )
        return notes
