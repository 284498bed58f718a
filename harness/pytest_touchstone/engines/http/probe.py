"""Find out what a server can do, before the first item of a benchmark is sent.

A server that ignores ``echo`` gives every choice the sum 0, which looks like exact chance; a second
beginning-of-sequence token before a prompt makes every score slightly wrong. So nothing is assumed that has not been
tried. A known text is sent as token ids. The reply must have a log-probability for each token, and not all may be 0.
The server then draws some tokens and scores them as a prompt: both log-probabilities must agree.

Each question is asked once. If one method of scoring fails, the next is tried; ``ServerCapabilities.why`` has the
reason of the last failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import shorten
from typing import Any, Final, TypeAlias, TypeVar

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Refusal, Turn
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.http.calls import UNAVAILABLE_STATUSES, CallFailure, MalformedReplyError
from pytest_touchstone.engines.http.capabilities import (
    HELLO,
    NEUTRAL,
    Family,
    ScoringMethod,
    ServerCapabilities,
)
from pytest_touchstone.engines.http.generating import (
    ExpectedTexts,
    check_no_echo,
    check_prompt_uncut,
    min_tokens,
    unknown_finish_reason,
)
from pytest_touchstone.engines.http.replies import (
    choice_count,
    max_model_len,
    model_rows,
    parse_choices,
    parse_logprob,
    parse_token_id,
    text_of,
    usage_count,
)
from pytest_touchstone.engines.http.scoring import next_token_call, whole_prompt_call
from pytest_touchstone.engines.http.server import ServerAddress, choose_model
from pytest_touchstone.engines.http.tokens import PROBE_TEXT, ServedTokenizer, find_tokenizer
from pytest_touchstone.engines.transformers.token_work import TargetScore, TokenWork

T = TypeVar("T")

Ask: TypeAlias = Callable[[str, Mapping[str, Any] | None], Any | CallFailure]
"""Sends a call to a path below the server's base (GET if the body is None). Returns the JSON of the reply, the text of
``METRICS``, or a failure."""

SERVER_INFO: Final = "/server_info"
"""What vLLM answers with ``VLLM_SERVER_DEV_MODE=1`` alone."""

METRICS: Final = "/metrics"
"""vLLM's metrics in the text format of Prometheus; they include the settings of its cache."""

TOLERANCE: Final = 0.25
"""Nats by which one token's log-probability may differ between two ways of computing it. Rounding in bfloat16 makes a
tenth of that, a wrong token several nats."""

_LONGEST_REASON: Final = 160
"""The characters of a refusal that are shown; some servers list every form that a prompt may have."""

_DRAWN_TOKENS: Final = 4
"""The number of tokens that are drawn, and then scored."""

_NO_START: Final = "the tokenizer has neither a BOS nor an EOS token to begin a text with"

_STOPS: Final = tuple(f"<stop {number}>" for number in range(5))
"""One more stop sequence than OpenAI's API takes."""

_ENDPOINTS: Final = (("completions", "completions", PROBE_TEXT), ("chat", "chats", HELLO))
"""The endpoints, their names in messages, and the first prompt for each."""

_FAMILIES: Final[Mapping[str, tuple[Family, str]]] = {
    "vllm": ("vllm", "vLLM"),
    "llamacpp": ("llama.cpp", "llama.cpp"),
    "sglang": ("other", "SGLang"),
}


@dataclass(slots=True)
class ProbedServer:
    """A server and its model, as the probe saw them.

    ``names`` are paths or Hub ids that may lead to the model's files. ``limit`` is the maximum number of tokens, prompt
    and text together; None if the server does not say. ``template`` is the number of tokens of the chat ``HELLO``.
    """

    model: str
    server: str = ""
    version: str = ""
    fingerprint: str | None = None
    limit: int | None = None
    names: tuple[str, ...] = ()
    tokens: ServedTokenizer | None = None
    abilities: ServerCapabilities = field(default_factory=ServerCapabilities)
    template: int | None = None
    notes: list[str] = field(default_factory=list)


class Probe:
    """The questions to one server; ``ask`` must not raise."""

    def __init__(self, address: ServerAddress, ask: Ask) -> None:
        self._address, self._ask = address, ask
        self._server = ProbedServer("")

    def run(self, model: str | None, tokenizer: str | None) -> ProbedServer:
        """Ask the server everything and return what it can do.

        Raises ``CheckpointError`` if it answers neither completions nor chats.
        """
        self._identify(model)
        self._find_texts()
        server = self._server
        can = server.abilities
        if not can.completions and not can.chat:
            raise CheckpointError(
                f"{self._address.url}: {server.model} answers neither completions nor chats ({can.why}); "
                "check the address and the model"
            )
        names = dict.fromkeys((*server.names, server.model))
        server.tokens = find_tokenizer(
            tokenizer, list(names), lambda path, bodies: [self._ask_or_none(path, body) for body in bodies]
        )
        self._compare_chat_template()
        if can.completions:
            self._find_scores()
            self._find_sampling_options()
        return server

    # The server and its model

    def _identify(self, wanted: str | None) -> None:
        reply = self._ask(f"{self._address.api}/models", None)
        if isinstance(reply, CallFailure):
            _check_not_fatal(self._address, reply, named=wanted is not None)
        rows = model_rows(reply)
        self._server.model = model = choose_model(self._address, wanted, [str(row["id"]) for row in rows])
        row = next((row for row in rows if row["id"] == model), {})
        family, name = self._family(str(row.get("owned_by", "")))
        self._server.server = name
        self._server.abilities = ServerCapabilities(family=family)
        self._server.names = tuple(text for text in (row.get("root"),) if isinstance(text, str) and text)
        self._server.limit = max_model_len(row) or self._server.limit

    def _family(self, owner: str) -> tuple[Family, str]:
        """Return the kind of server and its name; store its version and limit if it reports them."""
        family, name = _FAMILIES.get(owner, ("other", ""))
        if family == "vllm":
            reply = self._ask("/version", None)
            self._server.version = text_of(reply, "version")
            self._note_batch_invariance()
        elif family == "llama.cpp" or not name:
            reply = self._ask("/props", None)
            if not isinstance(reply, CallFailure) and (build := text_of(reply, "build_info")):
                self._server.version = build
                settings = reply.get("default_generation_settings")
                size = settings.get("n_ctx") if isinstance(settings, Mapping) else None
                self._server.limit = size if isinstance(size, int) and size > 0 else None
                return "llama.cpp", "llama.cpp"
        # llama-cpp-python's server says neither; its owner is "me".
        return ("llama.cpp", "llama-cpp-python") if owner == "me" else (family, name)

    def _note_batch_invariance(self) -> None:
        """Add a note on vLLM's batch-invariant mode, of which a server in its development mode tells."""
        reply = self._ask(SERVER_INFO, None)
        variables = reply.get("vllm_env") if isinstance(reply, Mapping) else None
        value = variables.get("VLLM_BATCH_INVARIANT") if isinstance(variables, Mapping) else None
        if isinstance(value, (bool, int)):
            effect = (
                "equal questions have equal texts"
                if value
                else "texts may depend on what is asked beside them"
            )
            mode = "on" if value else "off"
            self._server.notes.append(f"VLLM_BATCH_INVARIANT is {mode} at the server: {effect}")

    # Texts

    def _find_texts(self) -> None:
        reasons = []
        for endpoint, name, prompt in _ENDPOINTS:
            if self._address.only not in (None, endpoint):
                continue
            reply, limit = self._chat() if endpoint == "chat" else (self._complete(prompt), "max_tokens")
            if reason := self._why_unusable(reply, name, prompt):
                reasons.append(f"{name}: {reason}")
                continue
            can = self._server.abilities
            self._server.abilities = replace(
                can,
                completions=can.completions or endpoint == "completions",
                chat=endpoint == "chat",
                limit=limit,
                continues=endpoint == "chat" and can.family == "vllm",
                answers_as=tuple(dict.fromkeys(filter(None, (*can.answers_as, text_of(reply, "model"))))),
                ends=tuple(dict.fromkeys((*can.ends, *self._note_finish_reason(reply)))),
            )
            self._server.fingerprint = text_of(reply, "system_fingerprint") or self._server.fingerprint
            self._server.template = usage_count(reply, "prompt_tokens") if endpoint == "chat" else None
        self._server.abilities = replace(self._server.abilities, why="; ".join(reasons))

    def _complete(self, prompt: str | Sequence[int]) -> Any:
        return self._post("completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0.0})

    def _why_unusable(self, reply: Any, endpoint: str, prompt: str) -> str:
        """Return why an endpoint cannot be used, or an empty text. Note it if the endpoint exists.

        Raises ``CheckpointError`` if the server cuts prompts, which it would do at any endpoint.
        """
        if isinstance(reply, CallFailure):
            return reply.reason
        if not choice_count(reply):
            return "the reply has no choices"
        try:
            check_prompt_uncut(reply, min_tokens(prompt))
        except MalformedReplyError as error:
            raise CheckpointError(f"{self._address.url}: a known text was sent, and {error}") from None
        (choice,) = reply["choices"][:1]
        text = choice.get("text")
        try:
            unknown_finish_reason(choice, reply)
            check_no_echo(text if isinstance(text, str) else "", ExpectedTexts(prompt=prompt), None)
        except MalformedReplyError as error:
            self._server.notes.append(f"{endpoint} are not asked for: {error}")
            return str(error)
        return ""

    def _note_finish_reason(self, reply: Any) -> tuple[str, ...]:
        """Return the ``finish_reason`` of a reply, with a note, if no known API has it."""
        if (name := unknown_finish_reason(reply["choices"][0], reply)) is None:
            return ()
        note = (
            f"the server ends texts with finish_reason {name}, which says nothing: a text counts as cut off where it "
            "has as many tokens as it may have"
        )
        if note not in self._server.notes:
            self._server.notes.append(note)
        return (name,)

    def _chat(self) -> tuple[Any, str]:
        """Return the reply to a greeting, and the name of the server's parameter for the limit of new tokens."""
        reply: Any = None
        for limit in ("max_tokens", "max_completion_tokens"):
            reply = self._post(
                "chat/completions", {"messages": [{"role": "user", "content": HELLO}], limit: 1}
            )
            if not isinstance(reply, CallFailure) or "max_completion_tokens" not in reply.server_message:
                return reply, limit
        return reply, "max_tokens"

    def _compare_chat_template(self) -> None:
        """Disable chats if the server puts two beginning-of-sequence tokens before them."""
        server, tokens = self._server, self._server.tokens
        if server.template is None or tokens is None or not tokens.template:
            return
        ids = tokens.text.chat((Turn("user", HELLO),))
        if isinstance(ids, tuple) and tokens.text.begins(ids) and server.template == len(ids) + 1:
            note = (
                "chats are not asked for: the server puts two beginning-of-sequence tokens before them, which no "
                "model has seen in training"
            )
            if not server.abilities.completions:
                raise CheckpointError(f"{self._address.url}: {note}")
            server.abilities = replace(server.abilities, chat=False)
            server.notes.append(note)
        elif isinstance(ids, tuple) and server.template != len(ids):
            server.notes.append(
                f"the chat template makes {server.template} tokens of {HELLO!r} at the server, and {len(ids)} by the "
                f"tokenizer {tokens.name}"
            )

    # Scores

    def _find_scores(self) -> None:
        """Find a method to get the log-probabilities of a prompt, or store why there is none."""
        try:
            ids, tokens = self._find_token_ids()
        except MalformedReplyError as error:
            self._note_no_scores(str(error))
            return
        self._server.abilities = can = replace(self._server.abilities, tokens=True)
        why = ""
        for way, new, most in _scoring_methods(can.family):
            capabilities = replace(can, scoring=way, new=new, prompt_logprobs=most)
            try:
                self._check_scores(capabilities, ids)
            except MalformedReplyError as error:
                why = str(error)
                continue
            start = tokens.text.start is not None
            self._server.abilities = replace(capabilities, whole_texts=start, why="" if start else _NO_START)
            self._find_choices(ids)
            return
        self._note_no_scores(why)

    def _find_token_ids(self) -> tuple[tuple[int, ...], ServedTokenizer]:
        """Return the token ids of the known text, and the tokenizer.

        Raises ``MalformedReplyError`` if the server does not accept token ids.
        """
        tokens = self._server.tokens
        if tokens is None:
            raise MalformedReplyError(
                "has no tokenizer that is found here, and texts are scored by token ids; give --eval-set tokenizer=PATH"
            )
        ids = tokens.text.prompt(PROBE_TEXT)
        self._check_same_tokens(tokens, ids)
        reply = ids if isinstance(ids, Refusal) else self._complete(list(ids))
        if isinstance(ids, Refusal) or isinstance(reply, (CallFailure, Refusal)):
            raise MalformedReplyError(
                f"takes no prompt as token ids: {shorten(reply.reason, _LONGEST_REASON)}"
            )
        if (counted := usage_count(reply, "prompt_tokens")) is not None and counted != len(ids):
            raise MalformedReplyError(
                "puts a beginning-of-sequence token before token ids that have one: two of them, which no model has "
                "seen in training"
                if counted == len(ids) + 1 and tokens.text.begins(ids)
                else f"counts {counted} tokens in a prompt of {len(ids)} token ids"
            )
        return ids, tokens

    def _check_scores(self, capabilities: ServerCapabilities, ids: tuple[int, ...]) -> None:
        """Raise ``MalformedReplyError`` if the scores differ from those with which the server draws tokens."""
        self._score(TokenWork(ids[:-1], ids[1:]), capabilities)
        drawn, expected = self._draw(ids)
        rescored = self._score(TokenWork((*ids, *drawn[:-1]), drawn), capabilities)
        if abs(rescored.logprob - expected) > TOLERANCE * len(drawn):
            raise MalformedReplyError(
                f"gives {count(len(drawn), 'token')} that it has just drawn the log-probability "
                f"{rescored.logprob:.2f} as a prompt, and drew them with {expected:.2f}"
            )

    def _score(self, work: TokenWork, capabilities: ServerCapabilities) -> TargetScore:
        body, read = whole_prompt_call(work, capabilities)
        reply = self._post("completions", body)
        try:
            return _parse(read, reply)[0]
        except MalformedReplyError as error:
            verb = "refuses" if isinstance(reply, CallFailure) else "ignores"
            raise MalformedReplyError(f"{verb} {capabilities.scoring}: {error}") from None

    def _draw(self, ids: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        """Let the server draw tokens after a prompt; return them and the sum of their log-probabilities."""
        can = self._server.abilities
        body = {
            **NEUTRAL[can.family],
            "prompt": list(ids),
            "max_tokens": _DRAWN_TOKENS,
            "temperature": 1.0,
            "top_p": 1.0,
            "seed": 1,
            "logprobs": 1,
        }
        if can.family == "vllm":
            body |= {"return_token_ids": True, "return_tokens_as_token_ids": True, "ignore_eos": True}
        try:
            new, sums = _parse(lambda reply: self._parse_drawn(ids, reply), self._post("completions", body))
        except MalformedReplyError as error:
            raise MalformedReplyError(
                f"gives no log-probabilities of the tokens that it draws: {error}"
            ) from None
        if not new:
            raise MalformedReplyError("does not say which tokens it draws, so its scores cannot be checked")
        return new, sums

    def _parse_drawn(self, ids: tuple[int, ...], reply: Any) -> tuple[tuple[int, ...], float]:
        """Return the drawn tokens whose ids can be recovered, and the sum of their log-probabilities."""
        (choice,) = parse_choices(reply, 1)
        logprobs = choice.get("logprobs")
        token_logprobs = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
        if not isinstance(logprobs, Mapping) or not isinstance(token_logprobs, list) or not token_logprobs:
            raise MalformedReplyError("the reply has none")
        new = self._drawn_token_ids(ids, choice, logprobs)
        return new, sum(parse_logprob(value, "a token that it draws") for value in token_logprobs[: len(new)])

    def _drawn_token_ids(self, ids: tuple[int, ...], choice: Any, logprobs: Any) -> tuple[int, ...]:
        """Return the ids of the drawn tokens: those that the server reports, else those of its tokenized text."""
        stated, names = choice.get("token_ids"), logprobs.get("tokens")
        if isinstance(stated, list) and stated and all(isinstance(token_id, int) for token_id in stated):
            return tuple(stated)
        if not isinstance(names, list):
            return ()
        token_ids = [token_id for name in names if (token_id := parse_token_id(name)) is not None]
        if len(token_ids) == len(names):
            return tuple(token_ids)
        assert self._server.tokens is not None
        text = choice.get("text")
        retokenized = (
            self._server.tokens.text.prompt(PROBE_TEXT + text) if isinstance(text, str) and text else ()
        )
        matches = (
            isinstance(retokenized, tuple)
            and retokenized[: len(ids)] == ids
            and len(retokenized) == len(ids) + len(names)
        )
        return retokenized[len(ids) :] if isinstance(retokenized, tuple) and matches else ()

    def _find_choices(self, ids: tuple[int, ...]) -> None:
        """Find out whether the server scores chosen next tokens correctly."""
        can = self._server.abilities
        if can.family != "vllm":
            return
        wanted = [ids[-1], ids[0] if ids[0] != ids[-1] else ids[1]]
        body, read = next_token_call(ids[:-1], wanted, can)
        try:
            chosen = _parse(read, self._post("completions", body))[0]
            reference = self._score(TokenWork(ids[:-1], ids[-1:]), can)
        except MalformedReplyError:
            return
        agrees = abs(chosen.logprob - reference.logprob) <= TOLERANCE
        block = _cache_block_size(self._ask(METRICS, None)) if agrees else 0
        self._server.abilities = replace(can, choices=agrees, block=block)

    def _note_no_scores(self, why: str) -> None:
        name = self._server.server or "the server"
        self._server.abilities = replace(self._server.abilities, scoring=None, why=f"{name} {why}")

    def _check_same_tokens(self, tokens: ServedTokenizer, local_ids: tuple[int, ...] | Refusal) -> None:
        """Add a note if the server tokenizes the known text differently."""
        reply = self._ask_or_none(
            "/tokenize", {"prompt": PROBE_TEXT, "content": PROBE_TEXT, "add_special": True}
        )
        server_ids = reply.get("tokens") if isinstance(reply, Mapping) else None
        if isinstance(server_ids, list) and isinstance(local_ids, tuple) and tuple(server_ids) != local_ids:
            self._server.notes.append(
                f"the tokenizer {tokens.name} cuts a text into {len(local_ids)} tokens and the server into "
                f"{len(server_ids)} or others: it may be another model's"
            )

    # Options of sampling

    def _find_sampling_options(self) -> None:
        can = self._server.abilities
        drawn = {"prompt": HELLO, "max_tokens": 1, "temperature": 1.0, "seed": 1}
        several = self._post("completions", {**drawn, "n": 2})
        stops = self._post("completions", {**drawn, "stop": list(_STOPS)})
        ids = self._post("completions", {**drawn, "return_token_ids": True}) if can.family == "vllm" else {}
        self._server.abilities = replace(
            can,
            several=choice_count(several) == 2 and not can.ends,  # their tokens are counted together
            stops=len(_STOPS) - 1 if isinstance(stops, CallFailure) else None,
            token_ids=choice_count(ids) == 1 and isinstance(ids["choices"][0].get("token_ids"), list),
        )

    def _post(self, endpoint: str, body: Mapping[str, Any]) -> Any:
        """Return the reply, or the failure that shows what the server cannot do.

        Raises ``CheckpointError`` if the server is busy or away: that says nothing about its abilities.
        """
        reply = self._ask(f"{self._address.api}/{endpoint}", {"model": self._server.model, **body})
        if isinstance(reply, CallFailure) and (_is_busy(reply) or (reply.kind == "gone" and self._is_gone())):
            raise CheckpointError(
                f"{self._address.url}: {reply.reason}; what the server can do is not known before it answers that: "
                "try again later"
            )
        return reply

    def _is_gone(self) -> bool:
        """Return whether no request is answered; some servers drop only those that they do not understand."""
        reply = self._ask(f"{self._address.api}/models", None)
        return isinstance(reply, CallFailure) and reply.kind == "gone"

    def _ask_or_none(self, path: str, body: Mapping[str, Any]) -> Any:
        reply = self._ask(path, {"model": self._server.model, **body})
        return None if isinstance(reply, CallFailure) else reply


def _scoring_methods(family: Family) -> Sequence[tuple[ScoringMethod, int, int]]:
    """Return the methods of scoring in the order of trial: method, new tokens, and alternatives per token."""
    echo: list[tuple[ScoringMethod, int, int]] = [("echo", 0, 0), ("echo", 1, 0)]
    prompt_logprobs: list[tuple[ScoringMethod, int, int]] = [
        ("prompt_logprobs", 1, 0),
        ("prompt_logprobs", 1, 1),
    ]
    return [*prompt_logprobs, *echo] if family == "vllm" else echo


def _cache_block_size(metrics: Any) -> int:
    """Return the tokens per block of vLLM's prefix cache; 0 if it has none or does not report it."""
    lines = metrics.splitlines() if isinstance(metrics, str) else []
    config_line = next((line for line in lines if line.startswith("vllm:cache_config_info{")), "")
    labels = dict(re.findall(r'(\w+)="([^"]*)"', config_line))
    size = labels.get("block_size", "")
    return int(size) if labels.get("enable_prefix_caching") == "True" and size.isdecimal() else 0


def _parse(read: Callable[[Any], T], reply: Any) -> T:
    """Parse a reply with a reader. Raises ``MalformedReplyError``, for a failure too."""
    if isinstance(reply, CallFailure):
        raise MalformedReplyError(reply.reason)
    return read(reply)


def _check_not_fatal(address: ServerAddress, failure: CallFailure, *, named: bool) -> None:
    """Raise ``CheckpointError`` if further questions are pointless.

    That is so if the server does not answer, if it requires a key, or if no model is ``named`` and the list of models
    cannot be read.
    """
    if failure.status in (401, 403):
        raise CheckpointError(
            f"{address.url}: {failure.reason}; the key is taken from OPENAI_API_KEY or TOUCHSTONE_API_KEY"
        )
    if failure.kind in ("gone", "deadline"):
        raise CheckpointError(f"{address.url}: {failure.reason}; start the server, or check the address")
    if _is_busy(failure):
        raise CheckpointError(f"{address.url}: {failure.reason}; try again later")
    if failure.kind in ("malformed", "refused") and failure.status is None and not named:
        raise CheckpointError(
            f"{address.url}: {failure.reason}; check the address, or name the model with --eval-set model_name if "
            "there is no list of them"
        )


def _is_busy(failure: CallFailure) -> bool:
    return failure.kind in ("deadline", "limited") or failure.status in UNAVAILABLE_STATUSES
