"""The capabilities of a server: plain values that can be sent to other processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, TypeAlias

from pytest_touchstone.core.requests import Generate, Loglikelihood, Request, RollingLoglikelihood
from pytest_touchstone.engines.http.calls import Call, Json
from pytest_touchstone.engines.http.replies import check_model

ScoringMethod: TypeAlias = Literal["prompt_logprobs", "echo"]
"""The methods to get the log-probabilities of a prompt: vLLM's ``prompt_logprobs``, or OpenAI's ``echo``."""

Family: TypeAlias = Literal["vllm", "llama.cpp", "other"]
"""The kinds of servers, by the sampling parameters that they have beyond OpenAI's."""

NEUTRAL: Final[Mapping[Family, Mapping[str, float]]] = {
    "vllm": {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    "llama.cpp": {"top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0},
    "other": {},
}
"""The values that switch off a server's default changes to the probabilities."""

HELLO: Final = "Hi"
"""The message that shows how many tokens a chat template adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCapabilities:
    """The capabilities of a server, as its probe found them.

    Attributes:
        family: The kind of server.
        completions: It has the endpoint ``completions``.
        chat: It has the endpoint ``chat/completions``.
        tokens: It accepts prompts as token ids.
        scoring: The method to get the log-probabilities of a prompt, None if there is none.
        new: The new tokens that it must generate when it scores a prompt.
        prompt_logprobs: The value of vLLM's parameter of that name.
        why: The reason why it scores no prompts, or no whole texts.
        whole_texts: The tokenizer has a token to begin a text with.
        choices: It gives the log-probabilities of chosen next tokens.
        block: The tokens per block of its prefix cache, 0 if there is none or it is not reported.
        token_ids: Its texts come with their token ids.
        several: It gives several samples for one request.
        stops: The maximum number of stop sequences, None if no limit was met.
        limit: Its name for the limit of new tokens.
        continues: A chat may continue a text that the assistant has begun.
        answers_as: The names under which the model answers.
        ends: Its values of ``finish_reason`` that no known API has.

    """

    family: Family = "other"
    completions: bool = False
    chat: bool = False
    tokens: bool = False
    scoring: ScoringMethod | None = None
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
        """The types of requests that it can answer."""
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
    """Return the capabilities from the output of ``plain``, of this or an earlier version."""
    values = {field.name: row[field.name] for field in fields(ServerCapabilities) if field.name in row}
    return ServerCapabilities(
        **{**values, **{name: tuple(values.get(name, ())) for name in ("answers_as", "ends")}}
    )


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model at a server: the path of its API, its name, and the server's capabilities."""

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
        """Return a call whose reply must come from this model; for the arguments see ``Call``."""

        def read_checked(reply: Any) -> Any:
            check_model(reply, self.abilities.answers_as)
            return read(reply)

        return Call(
            f"{self.api}/{endpoint}", {"model": self.model, **body}, read_checked, owner, as_sent=as_sent
        )
