"""The files that a study is written as: by ``FILES``, each a function of the study and its sections."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from harness.compare.study.points import Study
from harness.core.errors import HarnessError
from harness.core.files import write_atomic
from harness.reports import plots
from harness.reports.study.markdown import study_page
from harness.reports.study.section import Section
from harness.reports.study.sections import study_facts

Files: TypeAlias = Mapping[str, str | bytes]


def _texts(study: Study, sections: Sequence[Section]) -> Files:
    data = json.dumps(
        study_facts(study, sections), ensure_ascii=False, indent=1, allow_nan=False, default=str
    )
    return {"study.md": study_page(sections), "study.json": f"{data}\n"}


def _page(study: Study, sections: Sequence[Section]) -> Files:
    from harness.reports.page.builder import FILE, study_page

    return {FILE: study_page(study, sections)}


FILES: Final[tuple[Callable[[Study, Sequence[Section]], Files], ...]] = (_texts, _page)


def write_files(folder: Path, study: Study, sections: Sequence[Section]) -> list[Path]:
    """Write every file into the folder and return their paths. Raises ``HarnessError`` where it cannot be written."""
    return [path for make in FILES for path in _write(folder, make(study, sections), "-o DIR")]


def write_plots(folder: Path, study: Study, *, bars: str = "bars") -> list[Path]:
    """Write the pictures of ``harness.reports.plots`` into the folder and return their paths; names of bar charts
    begin with ``bars``.

    Raises ``HarnessError`` without matplotlib, and where the folder cannot be written."""
    plots.check_plots()
    return _write(folder, plots.study_plots(study, bars), "--plots DIR")


def write_comparisons(folder: Path, study: Study) -> list[Path]:
    """Write a bar chart of the checkpoints for each benchmark, ``comparison_BENCHMARK.png``, as ``write_plots``
    does."""
    plots.check_plots()
    found = plots.bar_plots(study, "comparison")
    return _write(
        folder, {name: data for name, data in found.items() if name.endswith(".png")}, "--plots DIR"
    )


def _write(folder: Path, files: Files, option: str) -> list[Path]:
    for name, content in files.items():
        try:
            write_atomic(folder / name, content)
        except OSError as error:
            raise HarnessError(
                f"cannot write {folder / name}: {error.strerror}; give another {option}"
            ) from None
    return [folder / name for name in files]
