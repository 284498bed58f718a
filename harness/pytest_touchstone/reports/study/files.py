"""The files that a study is written as: Markdown, JSON, a page and pictures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pytest_touchstone.compare.study.points import Study
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import write_atomic
from pytest_touchstone.reports import plots
from pytest_touchstone.reports.drawing import drawing
from pytest_touchstone.reports.study.markdown import study_page
from pytest_touchstone.reports.study.section import Section
from pytest_touchstone.reports.study.sections import study_facts

Files: TypeAlias = Mapping[str, str | bytes]


def write_files(
    folder: Path, study: Study, sections: Sequence[Section], pictures: Sequence[Path] = ()
) -> list[Path]:
    """Write every file into the folder and return their paths; ``study.md`` shows the pictures.

    Raises ``HarnessError`` where a file cannot be written.
    """
    from pytest_touchstone.reports.page.builder import FILE
    from pytest_touchstone.reports.page.builder import study_page as html_page

    facts = study_facts(study, sections)
    # In one line: the indented form takes nearly five times as long, since only Python code writes it.
    data = json.dumps(facts, ensure_ascii=False, allow_nan=False, default=str)
    shown = [Path(os.path.relpath(path, folder)).as_posix() for path in pictures]
    return [
        *_write(folder, {"study.md": study_page(sections, shown), "study.json": f"{data}\n"}, "-o DIR"),
        *_write(folder, {FILE: html_page(study, sections)}, "-o DIR"),
    ]


class Drawn(NamedTuple):
    """Pictures that are being drawn: their paths, and the function that writes them when all are there."""

    paths: list[Path]
    write: Callable[[], object]


@contextmanager
def plots_into(folder: Path, study: Study, *, bars: str = "bars") -> Iterator[Drawn]:
    """Begin to draw the pictures of ``reports.plots`` into the folder; names of bar charts begin with ``bars``.

    Raises ``HarnessError`` without matplotlib, and where the folder cannot be written.
    """
    plots.check_plots()
    jobs = plots.study_jobs(study, bars)
    with drawing(jobs) as files:
        paths = [folder / f"{name}.{form}" for name, _, _ in jobs for form in ("png", "svg")]
        yield Drawn(paths, lambda: _write(folder, files(), "--plots DIR"))


def write_comparisons(folder: Path, study: Study) -> list[Path]:
    """Write a bar chart of the checkpoints for each benchmark, ``comparison_BENCHMARK.png``, and return their paths.

    Raises as ``plots_into`` does.
    """
    plots.check_plots()
    with drawing(plots.bar_jobs(study, "comparison")) as files:
        found = {name: data for name, data in files().items() if name.endswith(".png")}
        return _write(folder, found, "--plots DIR")


def _write(folder: Path, files: Files, option: str) -> list[Path]:
    for name, content in files.items():
        try:
            write_atomic(folder / name, content)
        except OSError as error:
            raise HarnessError(
                f"cannot write {folder / name}: {error.strerror}; give another {option}"
            ) from None
    return [folder / name for name in files]
