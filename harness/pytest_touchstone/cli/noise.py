"""``touchstone noise``: asks the same checkpoint again in other ways, and says what differs by nothing but that.

The ways are other batches, the opposite order of items, the other number type, and other engines that can open it. As a
plug-in of pytest (``-p pytest_touchstone.cli.noise``) it turns the order of items around. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.cli.command import Output, add_output, say, terminal
from pytest_touchstone.compare.noise import FOLDER, MeasuredNoise, Noise, noise_between, save_noise
from pytest_touchstone.core.errors import ExitCode, HarnessError
from pytest_touchstone.core.text import count
from pytest_touchstone.results.journal import each_record, latest
from pytest_touchstone.statistics.units import unit_of

if TYPE_CHECKING:
    import pytest

    from pytest_touchstone.plugin.api.finished_run import FinishedRun

LIMIT: Final = "32"

SERVERS: Final[Mapping[str, Callable[[Path], bool]]] = {
    "vllm": lambda path: (path / "config.json").is_file(),
    "llama-server": lambda path: path.suffix == ".gguf",
}
"""Programs that are another engine where they are on PATH, and what each opens."""


class Way(NamedTuple):
    """Another way of asking: its name, the settings that differ, further arguments of pytest, and whether the number
    type and the engine stay."""

    name: str
    settings: Mapping[str, Any]
    arguments: Sequence[str] = ()
    same: bool = True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turn the order of items around."""
    items.reverse()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="one checkpoint, as --checkpoint takes it")
    add("--tasks", metavar="NAME,...", help="benchmarks (default: all that it can answer)")
    text = f"items of each benchmark, or all (default: {LIMIT})"
    add("--limit", default=LIMIT, metavar="N", help=text)
    add("--data", metavar="DIR", help="a folder of datasets, or hub")
    add("--dtype", metavar="DTYPE", help="the number type of the first run (default: auto)")
    add("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:INDEX or mps")
    text = "the same weights elsewhere, such as vllm:PATH or http://HOST:PORT/v1; may be given several times"
    add("--also", action="append", default=[], metavar="CHECKPOINT", help=text)
    add_output(parser)


def run(options: argparse.Namespace) -> Output:
    """Ask again in each way, save what differs, and show it. Raises ``HarnessError`` where the first run has no
    results, or no other has."""
    from pytest_touchstone.plugin.api.evaluate import EvaluationError, evaluate

    names = ("tasks", "limit", "data", "dtype", "device")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    given |= {"checkpoint": options.checkpoint, "no_cache": True, "output": str(options.output / FOLDER)}

    def asked(name: str, **more: Any) -> FinishedRun:
        say(f"touchstone: asking {options.checkpoint}: {name}", sys.stderr)
        return evaluate(**{**given, **more})

    first = asked("as usual")
    (info, *others) = first.summary.checkpoints
    if others:
        raise HarnessError(f"{options.checkpoint}: {1 + len(others)} checkpoints; name one of them")
    records, rows, failed = _records(first), list[Noise](), list[str]()
    for way in ways(options, first.summary.manifest["settings"]):
        try:
            again = asked(way.name, **way.settings, arguments=way.arguments)
        except EvaluationError as error:
            failed.append(f"{way.name}: {error}")
            continue
        rows += noise_between(first.summary, records, again.summary, _records(again), way.name, same=way.same)
    if not rows:
        raise HarnessError(f"{options.checkpoint}: nothing could be asked again; {'; '.join(failed)}")
    measured = MeasuredNoise(
        checkpoint=str(info["name"]),
        fingerprint=str(info.get("fingerprint") or ""),
        dtype=options.dtype or "auto",
        rows=tuple(rows),
    )
    path = save_noise(options.output, measured, first.run_id)
    data = {**asdict(measured), "saved": str(path), "failed": failed}
    return Output(data, lambda: _table(measured, path, failed), ExitCode.NOT_VALID if failed else ExitCode.OK)


def _records(run: FinishedRun) -> list[Any]:
    return list(latest(each_record(run.directory)).values())


def ways(options: argparse.Namespace, settings: Mapping[str, Any]) -> Iterator[Way]:
    """Yield the other ways; ``settings`` are those of the first run."""
    yield Way("one request at a time", {"batch": 1})
    yield Way("items in batches of 5", {"batch_items": 5})
    yield Way("opposite order", {}, ("-p", __name__))
    in_float32 = options.dtype == "float32" or (
        options.dtype in (None, "auto") and settings.get("device_kind") == "cpu"
    )
    other = "bfloat16" if in_float32 else "float32"
    yield Way(other, {"dtype": other}, same=False)
    path = Path(options.checkpoint)
    found = [f"{name}:{path}" for name, opens in SERVERS.items() if shutil.which(name) and opens(path)]
    for one in dict.fromkeys([*options.also, *found]):
        yield Way(one, {"checkpoint": one}, same=False)


def _table(measured: MeasuredNoise, path: Path, failed: Sequence[str]) -> str:
    from pytest_touchstone.reports.formatting import NOTHING, console_of, open_table, written

    console = console_of(terminal()[0], color=terminal()[1])
    table = open_table(2)
    for head in ("benchmark", "asked again"):
        table.add_column(head, overflow="fold")
    for head in ("items", "flips", "change", "largest", "mean", "same texts"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in measured.rows:
        unit = unit_of(row.unit, share=True)
        change = unit.told(row.change) if row.unit else unit.moved(row.change)
        sizes = (NOTHING if value is None else f"{value:.2g}" for value in (row.largest, row.mean))
        texts = f"{row.same_texts} of {row.texts}" if row.texts else NOTHING
        table.add_row(row.benchmark, row.way, str(row.items), str(row.flips), change, *sizes, texts)
    console.print(f"{measured.checkpoint}, asked again with nothing else changed")
    console.print(table)
    console.print(
        "change: of the primary metric, in points unless a unit stands there; largest, mean: absolute differences of "
        "log-probabilities (nats)"
    )
    for line in failed:
        console.print(f"not asked: {line}")
    console.print(f"saved {path}: gates say where a loss is no larger ({count(len(measured.rows), 'row')})")
    return written(console)
