"""``touchstone items RUN``: its items."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Final

from pytest_touchstone.cli.command import Output, add_places, add_run, run_folder, terminal
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.text import count, did_you_mean, join_names
from pytest_touchstone.plugin.finished_run import Item, Items, build_item_view
from pytest_touchstone.plugin.replay import Replay
from pytest_touchstone.reports.items import render_item
from pytest_touchstone.results.run_directory import RunDirectory
from pytest_touchstone.results.summary import base_name, replace_non_finite

KINDS: Final[dict[str, tuple[str, Callable[[Item], bool]]]] = {
    "wrong": ("only those with a primary score below 1", lambda item: item.right is False),
    "right": ("only those with a primary score of 1", lambda item: item.right is True),
    "invalid": (
        "only those with a text that was cut off at the limit of tokens, or held no answer",
        lambda item: item.invalid,
    ),
    "error": ("only those that should have been scored and were not", lambda item: item.failed),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    text = "only these items, by example (arc_easy/1) or node id"
    parser.add_argument("items", nargs="*", metavar="ITEM", help=text)
    parser.add_argument("--benchmark", metavar="NAME", help="only items of this benchmark")
    parser.add_argument("--checkpoint", metavar="NAME", help="only items of this checkpoint")
    kinds = parser.add_mutually_exclusive_group()
    for name, (text, _) in KINDS.items():
        kinds.add_argument(f"--{name}", dest="kind", action="store_const", const=name, help=text)
    parser.add_argument("-n", metavar="N", help="how many (default: 5, or all that are named)")
    parser.add_argument("--full", action="store_true", help="cut no text")
    add_places(parser)


def run(options: argparse.Namespace) -> Output:
    """Show items. Raises ``HarnessError`` for a name that does not occur in the run."""
    if options.n is not None and (not options.n.isdecimal() or int(options.n) < 1):
        raise HarnessError(f"invalid -n {options.n!r}: expected a whole number from 1 up")
    folder = run_folder(options, "collected.json")
    collected, declarations, _ = RunDirectory(folder).read_collected()
    benchmarks = {item.benchmark for item in collected} | {base_name(item.benchmark) for item in collected}
    check_name("--benchmark", options.benchmark, benchmarks)
    check_name("--checkpoint", options.checkpoint, {item.checkpoint for item in collected})
    names = {name for item in collected for name in (item.example, item.item)} if options.items else ()
    for name in options.items:
        check_name("ITEM", name, names)
    replay = Replay(folder, data=options.data, root=options.root)
    items = Items(folder, list(declarations.values()), replay)
    has_kind = (lambda _: True) if options.kind is None else KINDS[options.kind][1]
    chosen = [
        item
        for item in items
        if (not options.items or item.example in options.items or item.record.item in options.items)
        and options.benchmark in (None, item.benchmark, base_name(item.benchmark))
        and options.checkpoint in (None, item.checkpoint)
        and has_kind(item)
    ]
    most = int(options.n or (len(chosen) if options.items else 5))
    views = [build_item_view(item, full=options.full) for item in chosen[:most]]

    def text() -> str:
        width = terminal()["width"]
        blocks = [render_item(view, width, full=options.full) for view in views]
        if not chosen:
            return f"no {options.kind} item" if options.kind else "no item"
        kind = "failed" if options.kind == "error" else options.kind
        matching = count(len(chosen), f"{kind} item" if kind else "item")
        more = f"; -n {len(chosen)} shows all" if len(chosen) > len(views) else ""
        return "\n\n".join([*blocks, f"{len(views)} of {matching}{more}"])

    return Output([replace_non_finite(asdict(view)) for view in views], text)


def check_name(option: str, name: str | None, names: Collection[str]) -> None:
    """Raise ``HarnessError`` for a name that does not occur in the run."""
    if name is not None and name not in names:
        near = did_you_mean(name, names) or f"there are {join_names(sorted(names))}"
        raise HarnessError(f"{option} {name}: not in this run; {near.rstrip()}")
