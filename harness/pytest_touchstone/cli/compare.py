"""``touchstone compare``: its options and what is printed; ``compare`` reads and compares."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_touchstone.cli.command import Output, add_items, add_output, terminal
from pytest_touchstone.compare.answers import Shown, shown_answers
from pytest_touchstone.compare.candidate import CheckpointResults
from pytest_touchstone.compare.gate.config import number_of
from pytest_touchstone.compare.load import find_candidates, only, parse_sizes
from pytest_touchstone.compare.pair import PairComparison, by_group, compare_pair
from pytest_touchstone.core.composite import project_composites
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.settings import integer, read_as
from pytest_touchstone.reports.comparison import Flip, Flips, pair_facts
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
    text = "a loss that does not matter (default: 0.01, one point)"
    add("--margin", default=str(MARGIN), metavar="D", help=text)
    add("--alpha", default=str(ALPHA), metavar="P", help="chance of a false verdict (default: 0.05)")
    text = "print so many items gained and lost of each benchmark"
    add("--show-flips", default="0", metavar="N", help=text)


def run(options: argparse.Namespace) -> Output:
    """Compare every result with the first, or with the one that is named. Raises ``HarnessError`` for a mistake."""
    margin = read_as("--margin", options.margin, _rate, zero=True)
    alpha = read_as("--alpha", options.alpha, _rate)
    count = read_as("--show-flips", options.show_flips, integer)
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
    flips = [flips_of(pair, count) for pair in pairs] if count else []

    def text() -> str:
        from pytest_touchstone.reports.comparison_terminal import render

        width, color = terminal()
        shown = render(pairs, flips, width=width, color=color)
        return f"{_each(found)}\n\n{shown}" if options.against is None and len(found) > 2 else shown

    def markdown() -> str:
        from pytest_touchstone.reports.markdown import comparison_page

        return comparison_page(pairs, flips).rstrip("\n")

    facts = [pair_facts(pair, flips[place] if flips else None) for place, pair in enumerate(pairs)]
    data = {"schema": SCHEMA, "kind": "comparison", "margin": margin, "alpha": alpha, "pairs": facts}
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
        if line.flips is None or line.identical:
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
