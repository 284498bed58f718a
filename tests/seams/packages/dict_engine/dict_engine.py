"""An engine of somebody else's: ``--checkpoint dict:answers.json`` answers from a table of prompts and texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pytest_touchstone.checkpoints import CheckpointInfo, CheckpointRequest
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Answer, Generate, GenerateAnswer, Generated, Refusal, Request
from pytest_touchstone.engines.base import Done, Engine, EngineFactory
from pytest_touchstone.engines.settings import ModelSettings


class DictFactory(EngineFactory):
    name = "dict"
    targets = ("dict:",)
    options: ClassVar = {"default": "the text where the table has none"}

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        file = Path(str(path).removeprefix("dict:"))
        if not file.is_file():
            raise CheckpointError(f"{asked.source}: no such file; give dict:FILE.json")
        return CheckpointInfo(
            name=file.stem,
            source=asked.source,
            path=file,
            kind="causal",
            format=self.name,
            model_type="dict",
            architecture=f"a table of {len(json.loads(file.read_text()))} answers",
            seq_len=asked.limited(file, 1000),
            serves=(Generate,),
            engine=self.name,
            extra=dict(asked.options),
        )

    def open(self, info: CheckpointInfo, settings: ModelSettings) -> DictEngine:
        return DictEngine(info)


class DictEngine(Engine):
    def __init__(self, info: CheckpointInfo) -> None:
        self.info = info
        self._table: dict[str, str] = json.loads(info.path.read_text())

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Answer | Refusal:
        assert isinstance(request, Generate)
        text = self._table.get(request.prompt, self.info.extra.get("default"))
        if text is None:
            return Refusal(f"the table has no {request.prompt!r}")
        return GenerateAnswer((Generated(text, "eos", 1),), 1)
