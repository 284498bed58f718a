"""A checkpoint format of somebody else's: a Transformers folder in a zip archive."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_touchstone.checkpoints import CheckpointInfo, CheckpointRequest, resolve
from pytest_touchstone.checkpoints.formats.content import file_lines
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.loading import LoadedModel, load_model


class Zipped:
    name = "zip"

    def detect(self, path: Path) -> bool:
        return path.suffix == ".zip" and path.is_file()

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        with unpacked(path) as folder:
            (info,) = resolve(str(folder), seq_len=asked.seq_len)
        return replace(
            info, name=path.stem, source=asked.source, path=path, format=self.name, takes_adapters=False
        )

    def files(self, info: CheckpointInfo) -> list[Path]:
        return [info.path]

    def content(self, info: CheckpointInfo) -> Iterable[str]:
        return file_lines([info.path], "model.zip")

    def load(self, info: CheckpointInfo, settings: ModelSettings) -> LoadedModel:
        with unpacked(info.path) as folder:
            return load_model(replace(info, path=folder), settings)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
        yield Path(folder)
