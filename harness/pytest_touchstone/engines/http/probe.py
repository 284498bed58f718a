"""The abilities of a server, found out before the first item is asked.

A server that ignores ``echo`` gives every choice the sum 0, and a benchmark exact chance; one that puts a second
beginning-of-sequence token before a prompt gives every score a little wrong. So nothing is believed that was not
tried. A known text goes to the server as token ids, and must get as many log-probabilities as it has tokens, none of
them missing, and not all of them 0. Those of a text that the server has just drawn must be those it was drawn with.

Everything is asked once, and before anything else. Where a way to scores fails, the next is tried;
``ServerCapabilities.why`` then says what failed, in the words of the last.
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
from pytest_touchstone.engines.http.calls import AWAY, Failure, MalformedReplyError
from pytest_touchstone.engines.http.capabilities import HELLO, NEUTRAL, Family, ServerCapabilities, Way
from pytest_touchstone.engines.http.generating import (
    WantedTexts,
    check_end,
    check_new,
    check_uncut,
    fewest_tokens,
)
from pytest_touchstone.engines.http.replies import (
    choice_count,
    choices,
    limit_of,
    logprob,
    model_rows,
    text_of,
    token_number,
    usage_count,
)
from pytest_touchstone.engines.http.scoring import next_tokens, whole_prompt_call
from pytest_touchstone.engines.http.server import Address, choose_model
from pytest_touchstone.engines.http.tokens import KNOWN, Tokens, find_tokens
from pytest_touchstone.engines.transformers.token_work import Score, TokenWork

T = TypeVar("T")

Ask: TypeAlias = Callable[[str, Mapping[str, Any] | None], Any | Failure]
"""Sends a call to a path below the server's base, GET where the body is None; returns the reply's JSON, or its text
from ``METRICS``, or a failure."""

METRICS: Final = "/metrics"
"""The page on which vLLM tells, among others, how its cache is set up, in the text format of Prometheus."""

TOLERANCE: Final = 0.25
"""Nats by which one token's log-probability may differ between two ways of computing it: rounding in bfloat16 is a
tenth of that, a wrong token several nats."""

_LONGEST_REASON: Final = 160
"""The characters of a refusal that are shown: some servers name every form that a prompt may have."""

_DRAWN: Final = 4
"""The number of tokens that are drawn, and then scored."""

_NO_START: Final = "the tokenizer has neither a BOS nor an EOS token to begin a text with"

_STOPS: Final = tuple(f"<stop {number}>" for number in range(5))
"""One more stop sequence than OpenAI's API takes."""

_ENDPOINTS: Final = (("completions", "completions", KNOWN), ("chat", "chats", HELLO))
"""The endpoints, their names in messages, and what each is asked first."""

_FAMILIES: Final[Mapping[str, tuple[Family, str]]] = {
    "vllm": ("vllm", "vLLM"),
    "llamacpp": ("llama.cpp", "llama.cpp"),
    "sglang": ("other", "SGLang"),
}


@dataclass(slots=True)
class ProbedServer:
    """A server as its probe saw it.

    ``names`` are those by which the model's files may be found here. ``limit`` is the most tokens that it takes,
    prompt and text together, None where it does not say. ``template`` is the number of tokens that the chat template
    adds to ``HELLO``.
    """

    model: str
    server: str = ""
    version: str = ""
    fingerprint: str | None = None
    limit: int | None = None
    names: tuple[str, ...] = ()
    tokens: Tokens | None = None
    abilities: ServerCapabilities = field(default_factory=ServerCapabilities)
    template: int | None = None
    notes: list[str] = field(default_factory=list)


class Probe:
    """Asks one server; ``ask`` must not raise."""

    def __init__(self, address: Address, ask: Ask) -> None:
        self._address, self._ask = address, ask
        self._found = ProbedServer("")

    def run(self, model: str | None, tokenizer: str | None) -> ProbedServer:
        """Return what was found. Raises ``CheckpointError`` where the server answers nothing that could be asked."""
        self._identify(model)
        self._find_texts()
        found = self._found
        can = found.abilities
        if not can.completions and not can.chat:
            raise CheckpointError(
                f"{self._address.url}: {found.model} answers neither completions nor chats ({can.why}); "
                "check the address and the model"
            )
        names = dict.fromkeys((*found.names, found.model))
        found.tokens = find_tokens(tokenizer, list(names), self._remote_all)
        self._check_template()
        if can.completions:
            self._find_scores()
            self._find_ways_of_sampling()
        return found

    # The server and its model

    def _identify(self, wanted: str | None) -> None:
        said = self._ask(f"{self._address.api}/models", None)
        if isinstance(said, Failure):
            _raise_fatal(self._address, said, named=wanted is not None)
        rows = model_rows(said)
        self._found.model = model = choose_model(self._address, wanted, [str(row["id"]) for row in rows])
        row = next((row for row in rows if row["id"] == model), {})
        family, name = self._family(str(row.get("owned_by", "")))
        self._found.server = name
        self._found.abilities = ServerCapabilities(family=family)
        self._found.names = tuple(text for text in (row.get("root"),) if isinstance(text, str) and text)
        self._found.limit = limit_of(row) or self._found.limit

    def _family(self, owner: str) -> tuple[Family, str]:
        """Return what kind of server it is, and note its version and limit where it says them."""
        family, name = _FAMILIES.get(owner, ("other", ""))
        if family == "vllm":
            said = self._ask("/version", None)
            self._found.version = text_of(said, "version")
        elif family == "llama.cpp" or not name:
            said = self._ask("/props", None)
            if not isinstance(said, Failure) and (build := text_of(said, "build_info")):
                self._found.version = build
                settings = said.get("default_generation_settings")
                size = settings.get("n_ctx") if isinstance(settings, Mapping) else None
                self._found.limit = size if isinstance(size, int) and size > 0 else None
                return "llama.cpp", "llama.cpp"
        # llama-cpp-python's server says neither; its owner is "me".
        return ("llama.cpp", "llama-cpp-python") if owner == "me" else (family, name)

    # Texts

    def _find_texts(self) -> None:
        why = []
        for endpoint, name, prompt in _ENDPOINTS:
            if self._address.only not in (None, endpoint):
                continue
            said, limit = self._chat() if endpoint == "chat" else (self._complete(prompt), "max_tokens")
            if lack := _lack(said) or self._unsound(said, name, prompt):
                why.append(f"{name}: {lack}")
                continue
            can = self._found.abilities
            self._found.abilities = replace(
                can,
                completions=can.completions or endpoint == "completions",
                chat=endpoint == "chat",
                limit=limit,
                continues=endpoint == "chat" and can.family == "vllm",
                answers_as=tuple(dict.fromkeys(filter(None, (*can.answers_as, text_of(said, "model"))))),
                ends=tuple(dict.fromkeys((*can.ends, *self._ends(said)))),
            )
            self._found.fingerprint = text_of(said, "system_fingerprint") or self._found.fingerprint
            self._found.template = usage_count(said, "prompt_tokens") if endpoint == "chat" else None
        self._found.abilities = replace(self._found.abilities, why="; ".join(why))

    def _complete(self, prompt: str | Sequence[int]) -> Any:
        return self._post("completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0.0})

    def _unsound(self, said: Any, endpoint: str, prompt: str) -> str:
        """Return, and note, why the texts of an endpoint cannot be believed; nothing where they can.

        Raises ``CheckpointError`` where the server cuts prompts, which it would do at any endpoint.
        """
        try:
            check_uncut(said, fewest_tokens(prompt))
        except MalformedReplyError as error:
            raise CheckpointError(f"{self._address.url}: a known text was sent, and {error}") from None
        (choice,) = said["choices"][:1]
        text = choice.get("text")
        try:
            check_end(choice, said)
            check_new(text if isinstance(text, str) else "", WantedTexts(prompt=prompt), None)
        except MalformedReplyError as error:
            self._found.notes.append(f"{endpoint} are not asked for: {error}")
            return str(error)
        return ""

    def _ends(self, said: Any) -> tuple[str, ...]:
        """Return, and note, the name of an end that no API is known to have, if there is one in a sound reply."""
        if (name := check_end(said["choices"][0], said)) is None:
            return ()
        note = (
            f"the server ends texts with finish_reason {name}, which says nothing: a text counts as cut off where it "
            "has as many tokens as it may have"
        )
        if note not in self._found.notes:
            self._found.notes.append(note)
        return (name,)

    def _chat(self) -> tuple[Any, str]:
        """Return the reply to a greeting, and the name of the limit with which it was asked."""
        said: Any = None
        for limit in ("max_tokens", "max_completion_tokens"):
            said = self._post(
                "chat/completions", {"messages": [{"role": "user", "content": HELLO}], limit: 1}
            )
            if not isinstance(said, Failure) or "max_completion_tokens" not in said.said:
                return said, limit
        return said, "max_tokens"

    def _check_template(self) -> None:
        """Give up chats where the server puts two beginning-of-sequence tokens before them."""
        found, tokens = self._found, self._found.tokens
        if found.template is None or tokens is None or not tokens.template:
            return
        ids = tokens.text.chat((Turn("user", HELLO),))
        if isinstance(ids, tuple) and tokens.text.begins(ids) and found.template == len(ids) + 1:
            note = (
                "chats are not asked for: the server puts two beginning-of-sequence tokens before them, which no "
                "model has seen in training"
            )
            if not found.abilities.completions:
                raise CheckpointError(f"{self._address.url}: {note}")
            found.abilities = replace(found.abilities, chat=False)
            found.notes.append(note)
        elif isinstance(ids, tuple) and found.template != len(ids):
            found.notes.append(
                f"the chat template makes {found.template} tokens of {HELLO!r} at the server, and {len(ids)} by the "
                f"tokenizer {tokens.name}"
            )

    # Scores

    def _find_scores(self) -> None:
        """Find the way to the log-probabilities of a prompt, and say why there is none."""
        try:
            ids, tokens = self._find_token_ids()
        except MalformedReplyError as error:
            self._no_scores(str(error))
            return
        self._found.abilities = can = replace(self._found.abilities, tokens=True)
        why = ""
        for way, new, most in _ways(can.family):
            tried = replace(can, scoring=way, new=new, prompt_logprobs=most)
            try:
                self._check_scores(tried, ids)
            except MalformedReplyError as error:
                why = str(error)
                continue
            start = tokens.text.start is not None
            self._found.abilities = replace(tried, whole_texts=start, why="" if start else _NO_START)
            self._find_choices(ids)
            return
        self._no_scores(why)

    def _find_token_ids(self) -> tuple[tuple[int, ...], Tokens]:
        """Return the known text as token ids, which the server takes, and the tokenizer.

        Raises ``MalformedReplyError`` where it takes none.
        """
        tokens = self._found.tokens
        if tokens is None:
            raise MalformedReplyError(
                "has no tokenizer that is found here, and texts are scored by token ids; give --eval-set tokenizer=PATH"
            )
        ids = tokens.text.prompt(KNOWN)
        self._check_same_tokens(tokens, ids)
        said = ids if isinstance(ids, Refusal) else self._complete(list(ids))
        if isinstance(ids, Refusal) or isinstance(said, (Failure, Refusal)):
            raise MalformedReplyError(
                f"takes no prompt as token ids: {shorten(said.reason, _LONGEST_REASON)}"
            )
        if (counted := usage_count(said, "prompt_tokens")) is not None and counted != len(ids):
            raise MalformedReplyError(
                "puts a beginning-of-sequence token before token ids that have one: two of them, which no model has "
                "seen in training"
                if counted == len(ids) + 1 and tokens.text.begins(ids)
                else f"counts {counted} tokens in a prompt of {len(ids)} token ids"
            )
        return ids, tokens

    def _check_scores(self, tried: ServerCapabilities, ids: tuple[int, ...]) -> None:
        """Raise ``MalformedReplyError`` where a way does not give the scores with which the server itself draws."""
        self._score(TokenWork(ids[:-1], ids[1:]), tried)
        new, expected = self._draw(ids)
        again = self._score(TokenWork((*ids, *new[:-1]), new), tried)
        if abs(again.logprob - expected) > TOLERANCE * len(new):
            raise MalformedReplyError(
                f"gives {count(len(new), 'token')} that it has just drawn the log-probability {again.logprob:.2f} as a "
                f"prompt, and drew them with {expected:.2f}"
            )

    def _score(self, work: TokenWork, tried: ServerCapabilities) -> Score:
        body, read = whole_prompt_call(work, tried)
        said = self._post("completions", body)
        try:
            return _read(read, said)[0]
        except MalformedReplyError as error:
            does = "refuses" if isinstance(said, Failure) else "ignores"
            raise MalformedReplyError(f"{does} {tried.scoring}: {error}") from None

    def _draw(self, ids: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        """Return tokens that the server draws after a prompt, and their log-probability as it draws them."""
        can = self._found.abilities
        body = {
            **NEUTRAL[can.family],
            "prompt": list(ids),
            "max_tokens": _DRAWN,
            "temperature": 1.0,
            "top_p": 1.0,
            "seed": 1,
            "logprobs": 1,
        }
        if can.family == "vllm":
            body |= {"return_token_ids": True, "return_tokens_as_token_ids": True, "ignore_eos": True}
        try:
            new, sums = _read(lambda said: self._drawn(ids, said), self._post("completions", body))
        except MalformedReplyError as error:
            raise MalformedReplyError(
                f"gives no log-probabilities of the tokens that it draws: {error}"
            ) from None
        if not new:
            raise MalformedReplyError("does not say which tokens it draws, so its scores cannot be checked")
        return new, sums

    def _drawn(self, ids: tuple[int, ...], said: Any) -> tuple[tuple[int, ...], float]:
        """Return the tokens of a reply, as far as they can be told, and their log-probability."""
        (choice,) = choices(said, 1)
        told = choice.get("logprobs")
        values = told.get("token_logprobs") if isinstance(told, Mapping) else None
        if not isinstance(told, Mapping) or not isinstance(values, list) or not values:
            raise MalformedReplyError("the reply has none")
        new = self._drawn_ids(ids, choice, told)
        return new, sum(logprob(value, "a token that it draws") for value in values[: len(new)])

    def _drawn_ids(self, ids: tuple[int, ...], choice: Any, told: Any) -> tuple[int, ...]:
        """Return the ids of the tokens drawn: as the server says them, else as far as its text has them."""
        stated, names = choice.get("token_ids"), told.get("tokens")
        if isinstance(stated, list) and stated and all(isinstance(one, int) for one in stated):
            return tuple(stated)
        if not isinstance(names, list):
            return ()
        numbers = [number for name in names if (number := token_number(name)) is not None]
        if len(numbers) == len(names):
            return tuple(numbers)
        assert self._found.tokens is not None
        text = choice.get("text")
        again = self._found.tokens.text.prompt(KNOWN + text) if isinstance(text, str) and text else ()
        matches = (
            isinstance(again, tuple) and again[: len(ids)] == ids and len(again) == len(ids) + len(names)
        )
        return again[len(ids) :] if isinstance(again, tuple) and matches else ()

    def _find_choices(self, ids: tuple[int, ...]) -> None:
        """Find out whether the log-probabilities of chosen next tokens can be had, and are the same."""
        can = self._found.abilities
        if can.family != "vllm":
            return
        wanted = [ids[-1], ids[0] if ids[0] != ids[-1] else ids[1]]
        body, read = next_tokens(ids[:-1], wanted, can)
        try:
            given = _read(read, self._post("completions", body))[0]
            known = self._score(TokenWork(ids[:-1], ids[-1:]), can)
        except MalformedReplyError:
            return
        same = abs(given.logprob - known.logprob) <= TOLERANCE
        block = _block(self._ask(METRICS, None)) if same else 0
        self._found.abilities = replace(can, choices=same, block=block)

    def _no_scores(self, why: str) -> None:
        name = self._found.server or "the server"
        self._found.abilities = replace(self._found.abilities, scoring=None, why=f"{name} {why}")

    def _check_same_tokens(self, tokens: Tokens, mine: tuple[int, ...] | Refusal) -> None:
        """Note where the server itself would cut the known text otherwise."""
        said = self._remote("/tokenize", {"prompt": KNOWN, "content": KNOWN, "add_special": True})
        theirs = said.get("tokens") if isinstance(said, Mapping) else None
        if isinstance(theirs, list) and isinstance(mine, tuple) and tuple(theirs) != mine:
            self._found.notes.append(
                f"the tokenizer {tokens.name} cuts a text into {len(mine)} tokens and the server into {len(theirs)} or "
                "others: it may be another model's"
            )

    # Ways of sampling

    def _find_ways_of_sampling(self) -> None:
        can = self._found.abilities
        drawn = {"prompt": HELLO, "max_tokens": 1, "temperature": 1.0, "seed": 1}
        several = self._post("completions", {**drawn, "n": 2})
        stops = self._post("completions", {**drawn, "stop": list(_STOPS)})
        ids = self._post("completions", {**drawn, "return_token_ids": True}) if can.family == "vllm" else {}
        self._found.abilities = replace(
            can,
            several=choice_count(several) == 2 and not can.ends,  # their tokens are counted together
            stops=len(_STOPS) - 1 if isinstance(stops, Failure) else None,
            token_ids=choice_count(ids) == 1 and isinstance(ids["choices"][0].get("token_ids"), list),
        )

    def _post(self, endpoint: str, body: Mapping[str, Any]) -> Any:
        """Return the reply, or the failure that says what the server cannot do.

        Raises ``CheckpointError`` for one that says only that it is busy or away: what it can do is not known then.
        """
        said = self._ask(f"{self._address.api}/{endpoint}", {"model": self._found.model, **body})
        if isinstance(said, Failure) and (_busy(said) or (said.kind == "gone" and self._away())):
            raise CheckpointError(
                f"{self._address.url}: {said.reason}; what the server can do is not known before it answers that: "
                "try again later"
            )
        return said

    def _away(self) -> bool:
        """Return whether the server is there for no question: some break off those that they do not understand."""
        said = self._ask(f"{self._address.api}/models", None)
        return isinstance(said, Failure) and said.kind == "gone"

    def _remote(self, path: str, body: Mapping[str, Any]) -> Any:
        said = self._ask(path, {"model": self._found.model, **body})
        return None if isinstance(said, Failure) else said

    def _remote_all(self, path: str, bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [self._remote(path, body) for body in bodies]


def _ways(family: Family) -> Sequence[tuple[Way, int, int]]:
    """Return the ways to scores in the order in which they are tried: way, new tokens, and how many beside each."""
    echo: list[tuple[Way, int, int]] = [("echo", 0, 0), ("echo", 1, 0)]
    own: list[tuple[Way, int, int]] = [("prompt_logprobs", 1, 0), ("prompt_logprobs", 1, 1)]
    return [*own, *echo] if family == "vllm" else echo


def _block(said: Any) -> int:
    """Return the number of tokens in a block of vLLM's prefix cache, 0 where it has none or does not say it."""
    lines = said.splitlines() if isinstance(said, str) else []
    told = next((line for line in lines if line.startswith("vllm:cache_config_info{")), "")
    labels = dict(re.findall(r'(\w+)="([^"]*)"', told))
    size = labels.get("block_size", "")
    return int(size) if labels.get("enable_prefix_caching") == "True" and size.isdecimal() else 0


def _read(read: Callable[[Any], T], said: Any) -> T:
    """Return what a reader makes of a reply. Raises ``MalformedReplyError``, for a failure too."""
    if isinstance(said, Failure):
        raise MalformedReplyError(said.reason)
    return read(said)


def _raise_fatal(address: Address, failure: Failure, *, named: bool) -> None:
    """Raise ``CheckpointError`` where nothing more need be asked: nobody answers, now or at all, or a key is wanted;
    or no model is ``named``, and the list of them cannot be read."""
    if failure.status in (401, 403):
        raise CheckpointError(
            f"{address.url}: {failure.reason}; the key is taken from OPENAI_API_KEY or TOUCHSTONE_API_KEY"
        )
    if failure.kind in ("gone", "deadline"):
        raise CheckpointError(f"{address.url}: {failure.reason}; start the server, or check the address")
    if _busy(failure):
        raise CheckpointError(f"{address.url}: {failure.reason}; try again later")
    if failure.kind in ("malformed", "refused") and failure.status is None and not named:
        raise CheckpointError(
            f"{address.url}: {failure.reason}; check the address, or name the model with --eval-set model_name if "
            "there is no list of them"
        )


def _busy(failure: Failure) -> bool:
    return failure.kind in ("deadline", "limited") or failure.status in AWAY


def _lack(said: Any) -> str:
    """Return why a reply shows that an endpoint is not there, nothing where it is."""
    if isinstance(said, Failure):
        return said.reason
    return "" if choice_count(said) else "the reply has no choices"
