"""A file of answers as a checkpoint (``--checkpoint answers:FILE``), and the engine that gives its answers.

Requests come with the rows that answer them (``AnsweredRequest``), which ``plugin.answered`` has found. Texts end at
the benchmark's own stop sequences, as those of any checkpoint do; programs are taken as they are.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.checkpoints.info import LACKS, clean_name
from pytest_touchstone.core.errors import CheckpointError, DataError
from pytest_touchstone.core.reasoning import AUTO, delimiters_of, without_trace
from pytest_touchstone.core.requests import (
    Answer,
    Generate,
    GenerateAnswer,
    Generated,
    Loglikelihood,
    LoglikelihoodAnswer,
    Refusal,
    Request,
    earliest_stop,
)
from pytest_touchstone.core.text import count
from pytest_touchstone.engines.answers.files import AnswerFile, AnswerRow, RecordedChoice, read_answers
from pytest_touchstone.engines.base import Done, Engine, EngineFactory
from pytest_touchstone.engines.settings import ModelSettings

TARGET: Final = "answers:"
NAME: Final = "answers"


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request with the rows of a file that answer it."""

    request: Request
    rows: tuple[AnswerRow, ...]


def answers_of(path: Path, options: Mapping[str, str]) -> AnswerFile:
    """Return the answers of a file, read once. Raises ``DataError``."""
    changed = 0
    with suppress(OSError, ValueError):  # which reading the file says
        changed = path.stat().st_mtime_ns
    return _read(path, changed, options.get("answer", ""), options.get("id", ""))


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed: int, answer: str, id_field: str) -> AnswerFile:
    return read_answers(path, answer=answer, id_field=id_field)


class AnswersFactory(EngineFactory):
    """The factory of engines for ``answers:FILE``."""

    name = NAME
    targets = (TARGET,)
    options: Mapping[str, str] = MappingProxyType(
        {
            "answer": "the field of the answers, where it is to be no other",
            "id": "the field that names the row that is answered",
        }
    )

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Read the file. Raises ``CheckpointError`` where it holds no answers."""
        path = Path(str(path).removeprefix(TARGET)).expanduser()
        options = dict(asked.options)
        try:
            file = answers_of(path, options)
        except DataError as error:
            raise CheckpointError(str(error)) from None
        has_texts = any(row.texts for row in file.rows)
        serves: tuple[type[Request], ...] = (Generate,) if has_texts else (Loglikelihood,)
        facts = {
            "file": os.path.abspath(path),  # noqa: PTH100 -- Path.resolve would follow links
            "kind": file.kind,
            "sha256": file.sha256,
            "rows": len(file.rows),
            "samples": file.samples,
            "asked": dict(file.asked),
            "options": options,
        }
        return CheckpointInfo(
            name=clean_name(file.model or path.stem),
            source=asked.source,
            path=path,
            kind="causal",
            format=NAME,
            model_type="",
            architecture=f"{file.kind}, {count(len(file.rows), 'row')}",
            seq_len=0,
            serves=serves,
            engine=NAME,
            extra={LACKS: f"has {'texts' if has_texts else 'log-likelihoods'} alone"},
            engine_facts={"answers": facts},
        )

    def fingerprint(self, info: CheckpointInfo) -> str:
        """Return the hash of the file, and of the fields that are read."""
        identity = [info.answers["sha256"], *sorted(info.answers["options"].items())]
        return hashlib.sha256(repr(identity).encode("utf-8", "backslashreplace")).hexdigest()

    def open(self, info: CheckpointInfo, _: ModelSettings, /) -> AnswersEngine:
        """Return an engine for the file."""
        return AnswersEngine(info)


class AnswersEngine(Engine):
    """An engine that gives the answers of the rows that come with each request."""

    def __init__(self, info: CheckpointInfo) -> None:
        self.info = info

    def answer(self, requests: Sequence[Any], done: Done | None = None) -> list[Answer | Refusal]:
        """Return the recorded answers, or refusals where the rows have none."""
        del done  # all answers are there at once
        return [_answer(answered.request, answered.rows) for answered in requests]


def _answer(request: Request, rows: Sequence[AnswerRow]) -> Answer | Refusal:
    if isinstance(request, Generate):
        return _texts(request, rows)
    if not isinstance(request, Loglikelihood):
        return Refusal(f"the file has no answer to a {type(request).__name__}")
    choices = rows[0].choices
    alike = [choice for choice in choices if choice.continuation.strip() == request.continuation.strip()]
    if not alike:
        return Refusal(f"the file has no log-likelihood of {request.continuation[:40]!r}")
    choice = max(alike, key=lambda choice: _common_end(choice, request))
    provenance = rows[0].provenance if choice is choices[0] else None
    return LoglikelihoodAnswer(choice.logprob, choice.is_greedy, tokens=-1, provenance=provenance)


def _common_end(choice: RecordedChoice, request: Loglikelihood) -> int:
    """Return the number of letters in which two contexts end alike."""
    pairs = zip(reversed(choice.context.rstrip()), reversed(request.context.rstrip()), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _texts(request: Generate, rows: Sequence[AnswerRow]) -> GenerateAnswer | Refusal:
    """Return the samples of a row: as many as are asked for, and all of a program."""
    provenance, chat = rows[0].provenance, rows[0].chat
    samples = [Generated(text, "length" if row.cut else "eos", 0) for row in rows for text in row.texts]
    if provenance.program:
        return GenerateAnswer(tuple(samples), 0, provenance=provenance)
    if len(samples) < request.samples:
        return Refusal(f"the file has {count(len(samples), 'sample')} of it, not {request.samples}")
    whole = GenerateAnswer(tuple(samples[: request.samples]), 0, chat=chat, provenance=provenance)
    answer = without_trace(whole, delimiters_of(AUTO))
    stops = request.stop if request.turns_stop is None or not chat else request.turns_stop
    ended = tuple(_ended(sample, stops) for sample in answer.samples)
    return GenerateAnswer(ended, 0, chat=chat, provenance=provenance)


def _ended(sample: Generated, stops: Sequence[str]) -> Generated:
    """Return a sample up to the first of the benchmark's stop sequences."""
    if (at := earliest_stop(sample.text, stops)) is None:
        return sample
    return Generated(sample.text[:at], "stop", 0, sample.reasoning, sample.reasoning_tokens)
