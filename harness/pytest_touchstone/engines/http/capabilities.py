"""The abilities of a server, as its probe found them: plain values, which travel to the processes that ask it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, TypeAlias

from pytest_touchstone.core.requests import Generate, Loglikelihood, Request, RollingLoglikelihood
from pytest_touchstone.engines.http.calls import Call, Json
from pytest_touchstone.engines.http.replies import check_model

Way: TypeAlias = Literal["prompt_logprobs", "echo"]
"""The ways to the log-probabilities of a prompt: a list of vLLM's own, or the echo of OpenAI's first API."""

Family: TypeAlias = Literal["vllm", "llama.cpp", "other"]
"""The kinds of servers whose parameters of sampling go beyond OpenAI's."""

NEUTRAL: Final[Mapping[Family, Mapping[str, float]]] = {
    "vllm": {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    "llama.cpp": {"top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0},
    "other": {},
}
"""The values that switch off what such a server does to probabilities by default."""

HELLO: Final = "Hi"
"""The message that shows what a chat template adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCapabilities:
    """The abilities of a server, beside answering at all.

    ``completions`` and ``chat`` are the endpoints that it has. ``tokens``: it takes prompts as token ids.
    ``scoring`` is the way to log-probabilities of a prompt; with ``new`` tokens generated after it, which the server
    wants, and ``why`` says why there is no way. ``whole_texts``: the tokenizer has a token to begin a text with.
    ``choices``: it gives the log-probabilities of chosen next tokens; ``block`` is the number of tokens in a block of
    its prefix cache, 0 where there is none or it is not known.

    Of texts: ``token_ids`` come with them; ``several`` samples come of one request; ``stops`` is the most stop
    sequences that it takes, None where no limit was met; ``limit`` is its name for the limit of new tokens.
    ``continues``: a chat may go on from a text that the assistant has begun.

    ``answers_as`` are the names under which the model answers. ``ends`` are names for the end of a text that no API is
    known to have.
    """

    family: Family = "other"
    completions: bool = False
    chat: bool = False
    tokens: bool = False
    scoring: Way | None = None
    new: int = 0
    prompt_logprobs: int = 0
    why: str = ""
    whole_texts: bool = False
    choices: bool = False
    block: int = 0
    token_ids: bool = False
    several: bool = False
    stops: int | None = None
    limit: str = "max_tokens"
    continues: bool = False
    answers_as: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()

    @property
    def serves(self) -> tuple[type[Request], ...]:
        """The kinds of request that it can answer."""
        return tuple(
            kind
            for kind, can in (
                (Loglikelihood, self.scoring is not None),
                (RollingLoglikelihood, self.scoring is not None and self.whole_texts),
                (Generate, self.completions or self.chat),
            )
            if can
        )

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


def capabilities_from_plain(row: Mapping[str, Any]) -> ServerCapabilities:
    """Return the abilities that ``ServerCapabilities.plain`` described, now or in an earlier version."""
    known = {one.name: row[one.name] for one in fields(ServerCapabilities) if one.name in row}
    return ServerCapabilities(
        **{**known, **{name: tuple(known.get(name, ())) for name in ("answers_as", "ends")}}
    )


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model at a server: the path of its API, its name, and what the server can do."""

    api: str
    model: str
    abilities: ServerCapabilities

    def call(
        self,
        endpoint: str,
        body: Mapping[str, Any],
        read: Callable[[Any], Any],
        owner: int,
        as_sent: Callable[[Json], Json] = lambda body: body,
    ) -> Call[Any]:
        """Return a call whose reply must be of this model; ``as_sent`` is that of ``Call``."""

        def checked(data: Any) -> Any:
            check_model(data, self.abilities.answers_as)
            return read(data)

        return Call(f"{self.api}/{endpoint}", {"model": self.model, **body}, checked, owner, as_sent=as_sent)
