"""Real series of checkpoints, made here, and which measure of the same answers sees what accuracy sees.

    python -m perf series make FOLDER --data DIR [--tasks arc_easy piqa,openbookqa ...] [--only korean noise ...]
    python -m perf series study FOLDER [--json FILE] [--csv FILE]

``perf.series_parts.recipes`` says how each series is made from ``builtin:smollm2-135m``. Every checkpoint is scored by
``touchstone run``, in float32, on files of DIR; each word of ``--tasks`` is one pass over all series, of which
FOLDER/runs keeps the journals. With ``--minutes`` no run begins later than that. What is there is not made again.
``study`` prints the tables of ``perf.series_parts.study``, the cases in which a measure parts from accuracy first;
``p_right`` at the temperature that is shipped, at that of ``study.temperature``, and at the one that needs least items.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perf import our_side
from perf.measure import OURS, run, table
from perf.series_parts import items, recipes, study
from perf.series_parts.recipes import RECIPES, START
from perf.series_parts.study import ACCURACY, PLAIN, Comparison, Measure
from pytest_touchstone.metrics.soft import TEMPERATURES


def main() -> None:
    """Make and score, or study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "study"))
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of datasets")
    parser.add_argument("--tasks", nargs="+", default=["arc_easy", "piqa", "hellaswag"], metavar="NAMES")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES), metavar="SERIES")
    parser.add_argument("--minutes", type=float, default=float("inf"), metavar="N")
    parser.add_argument("--limit", default="all", metavar="N", help="the first N items of each file")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--csv", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.what == "make":
        if options.data is None:
            parser.error("make needs --data DIR, the folder of datasets")
        make(options)
    else:
        show(options)


def make(options: argparse.Namespace) -> None:
    """Make the series and score them, pass by pass."""
    began = time.monotonic()
    folder, data = options.folder.resolve(), options.data.resolve()
    start = recipes.folder_of(folder, START, 0)
    if not start.is_dir():
        shutil.copytree(our_side.model_folder("builtin:smollm2-135m"), start)
    for tasks in options.tasks:
        for series in (START, *options.only):
            name = f"{series}.{tasks.replace(',', '-')}.{options.limit}"
            if (folder / "runs" / name / "summary.json").is_file():
                continue
            if time.monotonic() - began > 60 * options.minutes:
                return
            places = [start] if series == START else recipes.make(series, start, data, folder)
            made = time.monotonic()
            _score(places, ["--tasks", tasks, f"--eval-data={data}", f"--eval-limit={options.limit}"], name)
            print(f"{name}: {time.monotonic() - made:.0f} s", flush=True)


def _score(places: Sequence[Path], asked: Sequence[str], name: str) -> None:
    output = places[0].parent.parent / "runs"
    output.mkdir(exist_ok=True)
    command: list[str | Path] = [sys.executable, "-m", "pytest_touchstone.cli", "run", *asked]
    for place in places:
        command += ["--checkpoint", place]
    command += [
        f"--eval-output={output}",
        f"--eval-run-id={name}",
        "--eval-dtype=float32",
        "--eval-device=cpu",
    ]
    run(command, cwd=output, log=output / f"{name}.log", env=OURS)


# The study


def show(options: argparse.Namespace) -> None:
    """Print the tables, and write them."""
    scored = items.read(options.folder / "runs")
    found = list(study.comparisons(scored))
    by_benchmark = {
        benchmark: mine
        for benchmark in scored
        if (mine := [one for one in found if one.benchmark == benchmark])
    }
    slopes = {benchmark: study.slopes(mine) for benchmark, mine in by_benchmark.items()}
    temperatures = {
        benchmark: study.temperature(slopes[benchmark]) if study.any_decided(mine) else None
        for benchmark, mine in by_benchmark.items()
    }
    measures = {
        benchmark: [
            *(Measure("p_right", one) for one in _looked_at(benchmark, slopes[benchmark], chosen)),
            *(Measure(name) for name in PLAIN),
        ]
        for benchmark, chosen in temperatures.items()
    }
    rows = study.summary_of({name: [ACCURACY, *several] for name, several in measures.items()}, found)
    print("Where a measure parts from accuracy:")
    print(_rows(study.partings(rows)) or "nowhere")
    everything: dict[str, Any] = {
        "temperatures": {benchmark: one and asdict(one) for benchmark, one in temperatures.items()},
        "measures": {},
    }
    for benchmark, mine in by_benchmark.items():
        print(f"\n{benchmark}, {max(len(one.old.names) for one in mine)} items at most")
        everything["measures"][benchmark] = {
            str(measure): _measured(measure, mine, rows, scored)
            for measure in (ACCURACY, *measures[benchmark])
        }
        print(_table(everything["measures"][benchmark]))
        print(_slopes(slopes[benchmark]))
        print(temperatures[benchmark] or "The temperature is unknown: accuracy decides no comparison.")
    everything["slopes"] = {
        benchmark: [
            {
                "temperature": one.temperature,
                "slope": one.slope,
                "interval": one.interval,
                "series": one.series,
                "efficiency": one.efficiency,
            }
            for one in some
        ]
        for benchmark, some in slopes.items()
    }
    if options.json:
        options.json.write_text(json.dumps(_short(everything)) + "\n", encoding="utf-8")
    if options.csv:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(_short(rows))


def _measured(
    measure: Measure, mine: Sequence[Comparison], rows: Sequence[dict[str, Any]], scored: study.Scored
) -> dict[str, Any]:
    benchmark = mine[0].benchmark
    own = [row for row in rows if row["benchmark"] == benchmark and row["measure"] == str(measure)]
    return {
        "agreement": study.agreement(own),
        "spearman": study.rank_correlation(scored, benchmark, measure),
        "decision": study.decision_accuracy(mine, measure),
        "reach": study.reach(mine, measure),
        "false_alarms": study.false_alarms(mine, measure),
    }


def _looked_at(benchmark: str, some: Sequence[study.Slope], chosen: study.Temperature | None) -> list[float]:
    """Return the temperatures of the tables: that of the product, the chosen one, and the one that needs the fewest
    items of those whose slope may be 1; a larger one has ``p_right`` measure something else than accuracy."""
    found = {TEMPERATURES[items.PRIMARY[benchmark]]}
    if chosen is not None:
        near = [one for one in some if one.temperature <= chosen.largest]
        found |= {chosen.value, max(near, key=lambda one: one.efficiency).temperature}
    return sorted(found)


HEADS = (
    *(
        "measure",
        "comparisons",
        "decided",
        "same sign",
        "parted",
        "beyond",
        "items",
        "share",
        "told",
        "wrong",
    ),
    *("swapped", "centred", "Spearman"),
)


def _table(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the lines of a benchmark's measures; *items* are those needed, as a share of accuracy's."""
    lines = []
    for name, values in measured.items():
        same, reached, alarms = values["agreement"], values["reach"], values["false_alarms"]
        counts = [same[key] for key in ("comparisons", "decided", "same_sign", "parted", "beyond_accuracy")]
        shares = (same["share_of_items"][1], reached["share"], reached["told"], reached["wrong"])
        rest = (alarms["swapped"], alarms["centred"], values["spearman"].get("all"))
        lines.append([name, *counts, *(_cell(one) for one in (*shares, *rest))])
    return table(HEADS, lines)


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = ("benchmark", "series", "number", "before", "measure", "mean", "z", "accuracy", "accuracy_z")
    return table(heads, [[_cell(row[head]) for head in heads] for row in rows]) if rows else ""


def _slopes(some: Sequence[study.Slope]) -> str:
    heads = ("T", "slope", "low", "high", "efficiency")
    return table(heads, [[f"{one.temperature:g}", one.slope, *one.interval, one.efficiency] for one in some])


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _short(value: Any) -> Any:
    """Return the same with three digits of every number that is not whole, and None for one that is not finite."""
    if isinstance(value, Mapping):
        return {str(key): _short(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.3g}") if math.isfinite(value) else None
    return value


if __name__ == "__main__":
    main()
