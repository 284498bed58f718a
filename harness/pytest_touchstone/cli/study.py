"""``touchstone study``: checkpoints of one or several trainings, their curves, and what can be said of them."""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.cli.command import Output, add_items, add_language, add_output, add_target, terminal
from pytest_touchstone.compare.load import parse_sizes
from pytest_touchstone.core.composite import project_composites
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import SCHEMA, shown_path, unwritable_reason, write_atomic
from pytest_touchstone.core.text import count, did_you_mean
from pytest_touchstone.document import Section
from pytest_touchstone.study.points import Study
from pytest_touchstone.study.reading import load_study, project_series
from pytest_touchstone.study.sections import render_study, sections_of, study_facts, study_markdown
from pytest_touchstone.study.selection_bias import standings_in
from pytest_touchstone.study.sparklines import fit_encoding

NO_PNG: Final = "as PNG too with matplotlib: pip install 'pytest-touchstone[plots]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    text = (
        "runs (ids or folders), results files or tables, folders of either, or patterns of them; one checkpoint: "
        "RUN#NAME (default: all runs of the results folder)"
    )
    add("what", nargs="*", metavar="RUNS", help=text)
    add_output(parser)
    text = "the results of an experiment in MLflow (MLFLOW_TRACKING_URI); draws comparison_DATASET.png"
    add("--from-mlflow", metavar="EXPERIMENT", help=text)
    add("-v", "--verbose", action="store_true", help="show all sections with all tables")
    text = "show these sections alone, by the names that the brief report ends with: curves,advice"
    add("--section", action="append", default=[], metavar="NAME[,NAME]", help=text)
    add_target(
        parser, "write study.md, study.json, curves as SVG (as PNG too with the extra plots) and more there"
    )
    text = "forecast every series at this step or epoch, from the checkpoints before it"
    add("--forecast", type=_parse_step, metavar="PLACE", help=text)
    add("--all-metrics", action="store_true", help="every metric, not only those that decide")
    add_items(parser)
    add_language(parser)


def run(options: argparse.Namespace) -> Output:
    """Report on all given runs and checkpoints. Raises ``HarnessError``."""
    # Before numpy is imported: its matrices here are small, and threads that wait for each other cost more.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if options.to is not None and (why := unwritable_reason(options.to)) is not None:
        raise HarnessError(f"-o {shown_path(options.to)}: {why}; choose another folder")
    sizes, more = parse_sizes(options.items), {}
    if options.from_mlflow is not None:
        from pytest_touchstone.compare.mlflow import read_experiment

        more = {f"MLflow experiment {options.from_mlflow}": read_experiment(options.from_mlflow, sizes)}
    study = read_study(
        options.what, options.output, sizes=sizes, extra_tables=more, all_metrics=options.all_metrics
    )
    files: list[Path] = []
    sections = sections_of(study, options.forecast)
    chosen = _select_sections(sections, options.section)
    pictures, drawn = _pictures(options, study)
    if options.to is not None:
        from pytest_touchstone.reports.pages import FILE, study_page

        # In one line: the indented form takes nearly five times as long, since only Python code writes it.
        data = json.dumps(study_facts(study, sections), ensure_ascii=False, allow_nan=False, default=str)
        shown = [Path(os.path.relpath(path, options.to)).as_posix() for path in pictures]
        texts = {
            "study.md": study_markdown(sections, shown),
            "study.json": f"{data}\n",
            FILE: study_page(study, sections),
        }
        files = _write_files(options.to, texts)

    def text() -> str:
        brief = not (options.verbose or options.section)
        shown = render_study(chosen, **terminal(), brief=brief)
        lines = [*(f"written: {shown_path(path)}" for path in files), *drawn]
        return "\n".join([fit_encoding(shown, sys.stdout.encoding), *([""] if lines else []), *lines])

    facts = study_facts(study, chosen) if options.format == "json" else None
    return Output(facts, text, markdown=lambda: study_markdown(chosen).rstrip("\n"))


def read_study(what: Sequence[str], output: Path, **more: Any) -> Study:
    """Return the study of the given names, with the project's composites and series. Raises ``HarnessError``."""
    project = Path("pyproject.toml")
    composites, series = project_composites(project), project_series(project)
    enabled = gc.isenabled()
    gc.disable()  # hundreds of thousands of items are read, and all of them are kept
    try:
        return load_study(what, output=output, composites=composites, declared=series, **more)
    finally:
        if enabled:
            gc.enable()


def best_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    text = "runs, results files, folders of either, or checkpoints (RUN#NAME), as of study (default: last)"
    parser.add_argument("what", nargs="*", metavar="RUN", help=text)
    add_output(parser)
    add_language(parser)


def best_run(options: argparse.Namespace) -> Output:
    """Name the best checkpoint. Raises ``HarnessError``."""
    from pytest_touchstone.document import render_markdown, render_text
    from pytest_touchstone.reports.best import benchmarks_of, best_line, best_sections, cost_facts

    study = read_study(options.what or ["last"], options.output)

    standings = study.compute_once(standings_in)
    facts = {
        "schema": SCHEMA,
        "kind": "best",
        "text": best_line(standings, benchmarks_of(study)),
        "best": [standing._asdict() for standing in standings],
        "cost": cost_facts(study),
    }
    sections = best_sections(study)
    return Output(
        facts,
        lambda: render_text(sections, **terminal()),
        markdown=lambda: "\n\n".join(render_markdown(sections)),
    )


def _parse_step(text: str) -> float:
    """Parse a step or an epoch. Raises ``ArgumentTypeError``."""
    with suppress(ValueError):
        if 0 < (position := float(text)) < math.inf:
            return position
    raise argparse.ArgumentTypeError(f"invalid place {text!r}: give a step or an epoch, as 3000 or 2.5")


def _select_sections(sections: Sequence[Section], options_given: Sequence[str]) -> Sequence[Section]:
    """Return the requested sections, all by default. Raises ``HarnessError`` for an unknown one."""
    names = [name for text in options_given for name in text.split(",")]
    keys = [section.key for section in sections]
    for name in names:
        if name not in keys:
            near = did_you_mean(name, keys)
            raise HarnessError(
                f"invalid --section {name!r}: {near}this study has the sections {', '.join(keys)}"
            )
    return [section for section in sections if section.key in names] if names else sections


def _pictures(options: argparse.Namespace, study: Study) -> tuple[list[Path], list[str]]:
    """Draw the requested pictures, as PNG if possible; return the paths and a message."""
    from pytest_touchstone.reports.plots import bar_pictures, study_pictures, svg
    from pytest_touchstone.reports.png import available, png

    tracked = options.from_mlflow is not None
    if options.to is None and not tracked:
        return [], []
    folder = Path() if options.to is None else options.to
    if options.to is None:
        pictures = bar_pictures(study, "comparison")
        file_formats = ["png"] if available() else ["svg"]
    else:
        pictures = study_pictures(study, "comparison" if tracked else "bars")
        file_formats = ["png", "svg"] if available() else ["svg"]
    files: dict[str, str | bytes] = {}
    for picture in pictures:
        for file_format in file_formats:
            files[f"{picture.name}.{file_format}"] = (
                png(picture) if file_format == "png" else svg(picture, alone=True)
            )
    paths = _write_files(folder, files)
    if not paths:
        return [], ["nothing to draw"]
    if options.to is None:
        what = ", ".join(map(shown_path, paths)) + ("" if available() else f" ({NO_PNG})")
    else:
        how = "as PNG and SVG" if available() else f"as SVG ({NO_PNG})"
        what = f"{count(len(pictures), 'picture')}, {how}, in {shown_path(folder)}/"
    return paths, [f"drawn:   {what}"]


def _write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write files into the folder of ``-o`` and return their paths. Raises ``HarnessError``."""
    for name, content in files.items():
        try:
            write_atomic(folder / name, content)
        except OSError as error:
            raise HarnessError(
                f"cannot write {folder / name}: {error.strerror}; give another -o DIR"
            ) from None
    return [folder / name for name in files]
