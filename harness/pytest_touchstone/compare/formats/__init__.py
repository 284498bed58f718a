"""The registry of result formats; a file is read by the first that knows it."""

from __future__ import annotations

from pathlib import Path

from pytest_touchstone.compare.formats.base import GROUP, ResultFormat
from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.hooks import load_plugins


def result_formats() -> tuple[ResultFormat, ...]:
    """Ours in order, the more special first, then those of installed packages. Raises ``DataError``."""
    from pytest_touchstone.compare.formats.korean_mlm import KoreanStudy
    from pytest_touchstone.compare.formats.lm_eval import LmEvalFormat
    from pytest_touchstone.compare.formats.references import ReferenceFile
    from pytest_touchstone.compare.formats.run import RunFolder
    from pytest_touchstone.compare.formats.task_json import TaskFile

    return (
        RunFolder(),
        ReferenceFile(),
        LmEvalFormat(),
        KoreanStudy(),
        TaskFile(),
        *load_plugins(GROUP, DataError),
    )


def format_of(path: Path) -> ResultFormat | None:
    """Return the format of a file or folder, None for what no format knows."""
    return next((one for one in result_formats() if one.sniff(path)), None)
