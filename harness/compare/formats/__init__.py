"""The registry of result formats; a file is read by the first that knows it."""

from __future__ import annotations

from pathlib import Path

from harness.compare.formats.base import GROUP, ResultFormat
from harness.core.errors import DataError
from harness.core.plugins import plugins


def result_formats() -> tuple[ResultFormat, ...]:
    """Ours in order, the more special first, then those of installed packages. Raises ``DataError``."""
    from harness.compare.formats.korean_mlm import KoreanStudy
    from harness.compare.formats.lm_eval import LmEval
    from harness.compare.formats.run import RunFolder
    from harness.compare.formats.task_json import TaskFile

    return (RunFolder(), LmEval(), KoreanStudy(), TaskFile(), *plugins(GROUP, DataError))


def format_of(path: Path) -> ResultFormat | None:
    """Return the format of a file or folder, None for what no format knows."""
    return next((one for one in result_formats() if one.sniff(path)), None)
