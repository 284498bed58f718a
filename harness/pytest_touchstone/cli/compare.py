"""``touchstone compare``: its options and what is printed; ``compare`` reads and compares."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pytest_touchstone.cli.command import Output, add_items, add_language, add_output, add_value, terminal
from pytest_touchstone.compare.answers import Shown, shown_answers
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.formats.base import ResultTable
from pytest_touchstone.compare.gate.config import number_of
from pytest_touchstone.compare.load import check_sizes, find_candidates, only, parse_sizes, read_file
from pytest_touchstone.compare.pair import PairComparison, by_group, compare_pair
from pytest_touchstone.core.composite import project_composites
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.settings import integer
from pytest_touchstone.core.text import count
from pytest_touchstone.document.language import said
from pytest_touchstone.reports.comparison import Flip, Flips, pair_facts
from pytest_touchstone.results.store import ResultStore
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    text = (
        "the baseline, then what is compared with it: a run, a results file, or the name, path or fingerprint of a "
        "checkpoint with saved results; one of several: RUN#NAME, FILE#NAME"
    )
    add("what", nargs="*", metavar="WHAT", help=text)
    add_output(parser)
    add("--metric", metavar="NAME", help="judge by this metric where a benchmark has it")
    add("--all-metrics", action="store_true", help="show every metric, not only the primary ones")
    add("--groups", action="store_true", help="compare the groups of a benchmark (subjects), not the whole")
    add_items(parser)
    text = "the baseline of all others, by its name among WHAT (default: the first)"
    add("--against", metavar="NAME", help=text)
    text = "a loss that does not matter (default: 0.01, one point; of a metric with a unit, the one that it declares)"
    add_value(parser, "--margin", _rate, text, metavar="D", zero=True)
    text = "chance of a false verdict (default: 0.05)"
    add_value(parser, "--alpha", _rate, text, metavar="P", default=str(ALPHA))
    text = "print so many items gained and lost of each benchmark"
    add_value(parser, "--show-flips", integer, text, default="0")
    add_language(parser)


def run(options: argparse.Namespace) -> Output:
    """Compare every result with the first, or with the one that is named. Raises ``HarnessError`` for a mistake."""
    margin, alpha, flipped = options.margin, options.alpha, options.show_flips
    found = find_candidates(options.what, output=options.output, sizes=parse_sizes(options.items))
    if options.against is not None:
        baseline = only(found, options.against, "--against")
        found = [baseline, *(one for one in found if one is not baseline)]
    first, *others = [by_group(one) for one in found] if options.groups else found
    composites = project_composites(Path("pyproject.toml"))
    pairs = [
        compare_pair(
            first,
            other,
            metric=options.metric,
            every=options.all_metrics,
            margin=margin,
            alpha=alpha,
            composites=composites,
        )
        for other in others
    ]
    flips = [flips_of(pair, flipped) for pair in pairs] if flipped else []

    def text() -> str:
        from pytest_touchstone.reports.comparison import render

        width, color = terminal()
        shown = render(pairs, flips, width=width, color=color)
        return f"{said(_each(found))}\n\n{shown}" if options.against is None and len(found) > 2 else shown

    def markdown() -> str:
        from pytest_touchstone.reports.ci import comparison_page

        return comparison_page(pairs, flips).rstrip("\n")

    facts = [pair_facts(pair, flips[place] if flips else None) for place, pair in enumerate(pairs)]
    usual = MARGIN if margin is None else margin
    data = {"schema": SCHEMA, "kind": "comparison", "margin": usual, "alpha": alpha, "pairs": facts}
    return Output(data, text, markdown=markdown)


def _each(found: Sequence[CheckpointResults]) -> str:
    """Return what several are compared with, and how another is chosen."""
    first, second, *_ = (one.name for one in found)
    return (
        f"each of {len(found) - 1} is compared with the first, {first}; with another: "
        f"--against {shlex.quote(second)}"
    )


def flips_of(pair: PairComparison, count: int) -> Flips:
    """The first items gained and lost of each benchmark that was compared by its items, ``count`` of each."""
    found: dict[str, list[Flip]] = {}
    for name, line in pair.judged.items():
        if line.flips is None or line.is_unchanged:
            continue
        chosen = dict.fromkeys(line.flips.gained[:count], True)
        chosen |= dict.fromkeys(line.flips.lost[:count], False)
        sides = (one.entries[name] for one in (pair.baseline, pair.new))
        a, b = (shown_answers(entry, line.metric, chosen) for entry in sides)
        found[name] = [
            Flip(
                example=example,
                gained=gained,
                question=next((one.question for one in _known(example, b, a)), None),
                baseline=a[example].answer if example in a else None,
                new=b[example].answer if example in b else None,
                # The right choice is known only from the side that is right.
                gold=next(
                    (one.gold for one in _known(example, *((b, a) if gained else (a, b))) if one.gold), None
                ),
            )
            for example, gained in chosen.items()
        ]
    return found


def _known(example: str, *sides: Mapping[str, Shown]) -> list[Shown]:
    return [side[example] for side in sides if example in side]


def _rate(text: str, *, zero: bool = False) -> float:
    value = number_of(text)
    if value is None or not (0 < value < 1 or (zero and value == 0)):
        raise ValueError(f"a number {'from' if zero else 'above'} 0, and below 1: 0.01, or 1%, is one point")
    return value


def import_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a .csv or .json file of published results")
    add_output(parser)
    add_items(parser, "items of a benchmark, where the file does not say")


def import_run(options: argparse.Namespace) -> Output:
    """Import the file. Raises ``HarnessError`` for a mistake and for a file with no result."""
    path: Path = options.file
    if not path.is_file():
        raise HarnessError(f"{path}: no such file; give a .csv or .json file of results")
    sizes = parse_sizes(options.items)
    table = read_file(path, sizes)
    if not any(one.entries for one in table.candidates):
        why = [*table.bad, *(note for one in table.candidates for note in one.notes), "it has no results"]
        raise HarnessError(f"{path}: nothing could be read; {why[0]}")
    benchmarks = dict.fromkeys(name for one in table.candidates for name in one.entries)
    check_sizes(sizes, benchmarks)
    store = ResultStore(options.output)
    try:
        for candidate in table.candidates:
            save(store, candidate, time.time())
    except OSError as error:
        raise HarnessError(
            f"cannot write into {store.folder}: {error.strerror}; give --output DIR"
        ) from error
    data = {
        "file": str(path),
        "saved": str(store.folder),
        "imported": [_row(one) for one in table.candidates],
        "contradictions": [one._asdict() for one in table.contradictions],
        "not_read": [asdict(one) for one in table.bad],
    }
    return Output(data, "\n".join(_lines(path, table, store)))


def save(store: ResultStore, candidate: CheckpointResults, now: float) -> None:
    """Save a candidate's results as if they were scored now."""
    for entry in candidate.entries.values():
        digest = entry.items.digest() if entry.items.examples else ""
        store.save(replace(entry.saved, began=now, items_sha256=digest), entry.items)


def _row(one: CheckpointResults) -> dict[str, Any]:
    metrics = {
        f"{name}:{metric.name}": metric.value
        for name, entry in one.entries.items()
        for metric in entry.saved.metrics.values()
    }
    return {"name": one.name, **one.about, "metrics": metrics}


def _lines(path: Path, table: ResultTable, store: ResultStore) -> Iterator[str]:
    benchmarks = dict.fromkeys(name for one in table.candidates for name in one.entries)
    yield (
        f"{count(len(table.candidates), 'checkpoint')} of {path.name} imported into {store.folder}/: "
        f"{', '.join(benchmarks)}"
    )
    for one in table.candidates:
        yield f"  {one.name}"
    unknown = [
        name
        for name in benchmarks
        if any(name in one.entries and not one.entries[name].saved.scored for one in table.candidates)
    ]
    if unknown:
        yield f"numbers of items are not known of {', '.join(unknown)}; --items NAME=N gives them"
    if table.contradictions:
        rows = count(len(table.contradictions), "row")
        yield f"{rows} with a composite that contradicts its own parts by more than rounding:"
        for wrong in table.contradictions:
            yield (
                f"  {wrong.name}: {wrong.composite} is {wrong.reported:.4f} there, {wrong.computed:.4f} by the formula "
                f"({100 * (wrong.reported - wrong.computed):+.2f} points)"
            )
        yield "(composites are always computed from their parts; the written ones are not used)"
    if table.bad:
        yield f"{count(len(table.bad), 'row')} that cannot be read:"
        for bad in table.bad:
            yield f"  {bad}"
    for note in (note for one in table.candidates for note in one.notes):
        yield f"note: {note}"
