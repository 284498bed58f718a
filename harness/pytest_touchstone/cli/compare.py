"""``touchstone compare``: its options and what is printed; ``compare`` reads and compares."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from pytest_touchstone.cli.command import Output, add_items, add_language, add_output, add_value, terminal
from pytest_touchstone.compare.answers import shown_answers
from pytest_touchstone.compare.gate.config import number_of
from pytest_touchstone.compare.load import find_candidates, only, parse_sizes
from pytest_touchstone.compare.pair import PairComparison, compare_pair, split_by_group
from pytest_touchstone.core.composite import project_composites
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.settings import parse_integer
from pytest_touchstone.document.language import translate
from pytest_touchstone.reports.comparison import Flip, FlipsByBenchmark, pair_facts
from pytest_touchstone.statistics.verdicts import ALPHA, MARGIN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
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
    add_value(parser, "--margin", parse_share, text, metavar="D", zero=True)
    text = "chance of a false verdict (default: 0.05)"
    add_value(parser, "--alpha", parse_share, text, metavar="P", default=str(ALPHA))
    text = "print up to N gained and N lost items of each benchmark"
    add_value(parser, "--show-flips", parse_integer, text, default="0")
    add_language(parser)


def run(options: argparse.Namespace) -> Output:
    """Compare every result with the first, or with the one that is named. Raises ``HarnessError`` for a mistake."""
    margin, alpha = options.margin, options.alpha
    candidates = find_candidates(options.what, output=options.output, sizes=parse_sizes(options.items))
    if options.against is not None:
        baseline = only(candidates, options.against, "--against")
        candidates = [baseline, *(candidate for candidate in candidates if candidate is not baseline)]
    first, *others = map(split_by_group, candidates) if options.groups else candidates
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
    flips = [flips_of(pair, options.show_flips) for pair in pairs] if options.show_flips else []

    def text() -> str:
        from pytest_touchstone.reports.comparison import render

        table = render(pairs, flips, **terminal())
        if options.against is not None or len(others) < 2:
            return table
        how = (
            f"each of {len(others)} is compared with the first, {candidates[0].name}; with another: "
            f"--against {shlex.quote(candidates[1].name)}"
        )
        return f"{translate(how)}\n\n{table}"

    def markdown() -> str:
        from pytest_touchstone.reports.ci import comparison_page

        return comparison_page(pairs, flips).rstrip("\n")

    facts = [pair_facts(pair, flips[index] if flips else None) for index, pair in enumerate(pairs)]
    usual = MARGIN if margin is None else margin
    data = {"schema": SCHEMA, "kind": "comparison", "margin": usual, "alpha": alpha, "pairs": facts}
    return Output(data, text, markdown=markdown)


def flips_of(pair: PairComparison, most: int) -> FlipsByBenchmark:
    """Return the first gained and lost items of each benchmark that was compared by items."""
    flips: dict[str, list[Flip]] = {}
    for name, line in pair.judged.items():
        if line.flips is None or line.is_unchanged:
            continue
        chosen = dict.fromkeys(line.flips.gained[:most], True) | dict.fromkeys(line.flips.lost[:most], False)
        baseline, new = (
            shown_answers(side.entries[name], line.metric, chosen) for side in (pair.baseline, pair.new)
        )
        flips[name] = []
        for example, gained in chosen.items():
            before, after = baseline.get(example), new.get(example)
            right = after if gained else before  # the right choice is known only from the side that is right
            sides = [answer for answer in (right, after, before) if answer is not None]
            flips[name].append(
                Flip(
                    example=example,
                    gained=gained,
                    question=next(
                        (answer.question for answer in (after, before) if answer is not None), None
                    ),
                    baseline=None if before is None else before.answer,
                    new=None if after is None else after.answer,
                    gold=next((answer.gold for answer in sides if answer.gold), None),
                )
            )
    return flips


def parse_share(text: str, *, zero: bool = False) -> float:
    """Parse a proportion below 1, above 0 or, with ``zero``, from 0. Raises ``ValueError``."""
    value = number_of(text)
    if value is None or not (0 < value < 1 or (zero and value == 0)):
        raise ValueError(f"a number {'from' if zero else 'above'} 0, and below 1: 0.01, or 1%, is one point")
    return value
