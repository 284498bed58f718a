"""A benchmark's question with few-shot examples before it, as plain text and as a chat.

answer = yield fewshot.generate(prompt(example), stop=("\\n",), max_new_tokens=64)
answers = yield [fewshot.loglikelihood(prompt(example), " " + choice) for choice in example["choices"]]
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from pytest_touchstone.core.requests import Generate, Loglikelihood, Turn


class Shot(NamedTuple):
    """A few-shot example as question and answer: two turns of a chat.

    ``between`` stands between them in plain text. ``turns`` are the two as a chat has them, where they read
    differently there.
    """

    question: str
    answer: str
    between: str = " "
    turns: tuple[str, str] | None = None

    @property
    def text(self) -> str:
        """The example as plain text."""
        return self.question + self.between + self.answer


class ChatForm(NamedTuple):
    """The form of a question in a chat, where it reads differently there.

    The answer goes on from ``begun``. ``stop`` and ``max_new_tokens`` are those of the plain form where they are None.
    """

    question: str
    begun: str = ""
    stop: Sequence[str] | None = None
    max_new_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling parameters of a benchmark whose answers are samples.

    ``samples`` of them, greedy at ``temperature`` 0; ``seed`` is the run's until ``of`` makes it an example's.
    """

    samples: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def of(self, benchmark: str, example: str) -> Sampling:
        """Return the parameters with the example's own seed.

        The seed depends on the names and the run's seed alone.
        """
        digest = hashlib.sha256(f"{self.seed}\0{benchmark}\0{example}\0samples".encode()).digest()
        return replace(self, seed=int.from_bytes(digest[:6], "big"))

    def arguments(self) -> dict[str, Any]:
        """Return the fields of a ``Generate`` request that the parameters set."""
        return asdict(self)


GREEDY: Final = Sampling()
"""One sample, the most probable token at each place."""


@dataclass(frozen=True, slots=True)
class FewShot:
    """The argument ``fewshot``: makes requests of an example's question.

    ``text`` are the few-shot examples as they stand before the question, ``turns`` the same as a chat has them (empty
    where the benchmark renders them in one piece); ``sampling`` has the run's sampling
    parameters.
    """

    text: str = ""
    turns: tuple[Turn, ...] = ()
    sampling: Sampling = GREEDY

    def loglikelihood(self, context: str, continuation: str, *, header: str = "") -> Loglikelihood:
        """Request log P(continuation | header, few-shot examples, context)."""
        return Loglikelihood(f"{header}{self.text}{context}", continuation)

    def generate(
        self,
        prompt: str,
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        chat: ChatForm | None = None,
        header: str = "",
        sampled: bool = False,
        **more: Any,
    ) -> Generate:
        """Request the text after few-shot examples and prompt.

        With a chat template the request is ``chat``, by default the prompt as a turn of the user.

        ``header`` is text before the few-shot examples; in a chat it begins the first turn.

        Greedy, unless it is ``sampled``: then the run's sampling parameters count, and one answer has all samples.
        ``more`` are other fields of ``Generate``.
        """
        asked = chat or ChatForm(prompt)
        whole = self.text if not self.turns else ""  # examples in one piece are a part of the question
        begun = (Turn("assistant", asked.begun),) if asked.begun else ()
        fields = self.sampling.arguments() if sampled else {}
        turns = (*self.turns, Turn("user", whole + asked.question))
        return Generate(
            header + self.text + prompt,
            stop=stop,
            max_new_tokens=max_new_tokens,
            turns=(replace(turns[0], text=header + turns[0].text), *turns[1:], *begun),
            turns_stop=asked.stop,
            turns_max_new_tokens=asked.max_new_tokens,
            **{**fields, **more},
        )
