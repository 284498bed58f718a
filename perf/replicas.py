"""The cost of replicas by Ray: against one process, two against one, a million items, and what a unit costs.

python -m perf replicas [overhead] [two] [items] [costs] [--items 1000000] [--pairs 3] [--json FILE]

overhead   one actor with one thread against this process with one thread, scoring and generating
two        two actors with one thread each against one
items      so many items of the fake checkpoint through two actors: the driver's peak memory and its CPU for an item
costs      of a unit and an item: seconds and bytes, and of loading a GB

Without a name all of them. Each measurement is a process of its own. Seconds are those of answering, without loading.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import sub
from pathlib import Path
from typing import Any

from perf.measure import OURS, cpu_of, in_turn, ratios, run, spread, table
from perf.overhead import write

PARTS = ("overhead", "two", "items", "costs")


def main() -> None:
    """Run the parts that are named, and print their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--requests", type=int, default=4096, help="for scoring; a quarter as many texts")
    parser.add_argument("--hidden", type=int, default=256, help="the width of the model")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--one", metavar="MEASUREMENT", help=argparse.SUPPRESS)
    options, words = parser.parse_known_args()
    if options.one is not None:
        print(json.dumps(ONE[options.one](*options.parts, *words)))
        return
    found: dict[str, Any] = {}
    for part in PARTS:
        if part in (options.parts or PARTS):
            with tempfile.TemporaryDirectory(prefix="replicas-") as folder:
                found[part] = globals()[f"measure_{part}"](Path(folder), options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


# The parts


def measure_overhead(folder: Path, options: argparse.Namespace) -> Any:
    """One actor against this process."""
    return _compared(folder, options, {"one actor": "ray:1", "in process": "-"})


def measure_two(folder: Path, options: argparse.Namespace) -> Any:
    """Two actors against one."""
    return _compared(folder, options, {"one actor": "ray:1", "two actors": "ray:2"})


def _compared(folder: Path, options: argparse.Namespace, sides: dict[str, str]) -> Any:
    from tests.support.tiny import tiny_causal

    size = {"hidden_size": options.hidden, "intermediate_size": 4 * options.hidden, "num_hidden_layers": 4}
    model = tiny_causal(folder / "model", seed=0, seq_len=512, **size)
    found = {}
    (first, engine), (second, other) = sides.items()
    for kind, count in (("scoring", options.requests), ("generating", options.requests // 4)):

        def asked(_: int, target: str, kind: str = kind, count: int = count) -> dict[str, Any]:
            return _one(folder, "answer", str(model), target, kind, str(count))

        mine, theirs = in_turn(options.pairs, partial(asked, target=engine), partial(asked, target=other))
        rows = []
        for name in ("seconds", "CPU"):
            above, below = [one[name] for one in mine], [one[name] for one in theirs]
            rows.append([name, spread(above), spread(below), ratios(above, below)])
        print(f"\n{kind}, {count} requests, {options.pairs} pairs\n")
        print(table(["", first, second, f"{first} / {second}"], rows), flush=True)
        found[kind] = {first: mine, second: theirs}
    return found


def measure_items(folder: Path, options: argparse.Namespace) -> Any:
    """Return the time for items through two actors, and in this process."""
    write(folder, options.items)
    rows, found = [], {}
    for name, engine in (("two actors", ["--eval-engine", "ray:2"]), ("in process", [])):
        words = ["test_trivial.py", "--checkpoint", "fake:causal", "--eval-data", str(folder / "data")]
        words += ["-q", "-p", "no:cacheprovider", "--eval-run-id", name.replace(" ", "-"), *engine]
        one = _one(folder / "ours", "session", *words)
        journal = folder / "ours" / "results" / name.replace(" ", "-") / "items" / "items-main.jsonl"
        one["journal"] = journal.stat().st_size / options.items
        one["counted"] = sum(1 for _ in journal.open("rb"))
        found[name] = one
        rows.append(
            [
                name,
                one["seconds"],
                one["CPU"] / options.items * 1e6,
                one["peak"] / 2**20,
                one["journal"],
                one["counted"],
            ]
        )
    print(f"\n{options.items} items of the fake checkpoint\n")
    head = [
        "",
        "seconds",
        "driver's CPU, us an item",
        "driver's peak, MiB",
        "journal, bytes an item",
        "items",
    ]
    print(table(head, rows), flush=True)
    return found


def measure_costs(folder: Path, options: argparse.Namespace) -> Any:
    """Return a unit's and an item's cost, and that of loading."""
    from tests.support.tiny import tiny_causal

    model = tiny_causal(
        folder / "model", seed=0, hidden_size=1024, intermediate_size=4096, num_hidden_layers=8
    )
    size = (model / "model.safetensors").stat().st_size
    write(folder, 20_000)
    words = ["test_trivial.py", "--checkpoint", "fake:causal", "--eval-data", str(folder / "data"), "-q"]
    session = _one(folder / "ours", "session", *words, "-p", "no:cacheprovider")["CPU"] / 20_000
    batch = _one(folder, "batches", str(folder))
    del options
    found = {"unit": _one(folder, "unit"), "load": _one(folder, "load", str(model))}
    unit, load = found["unit"], found["load"]
    found |= {"session": session, "batches": batch}
    rows = [
        ["driver's CPU for an item, all in all, us", session * 1e6],
        ["of these, to start it in its batch, us", batch["start"] * 1e6],
        ["of these, while replicas compute, us", batch["handle"] * 1e6],
        ["driver's CPU for a unit, us", unit["unit_cpu"] * 1e6],
        ["driver's CPU for a request, us", unit["request_cpu"] * 1e6],
        ["time of a unit of one request, us", unit["latency"] * 1e6],
        ["a request for a log-probability, bytes", unit["request_bytes"]],
        ["its answer, bytes", unit["answer_bytes"]],
        ["loading a GB, seconds", load["seconds"] / size * 1e9],
        ["loading a GB, seconds of CPU", load["CPU"] / size * 1e9],
    ]
    print(f"\ncosts; the loaded model has {size / 2**20:.0f} MiB, in the system's cache\n")
    print(table(["", ""], rows), flush=True)
    return found


def _one(folder: Path, name: str, *words: str) -> dict[str, Any]:
    """Return what a measurement in a process of its own prints at its end."""
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "perf.replicas", "--one", name, "--", *words]
    run(command, cwd=folder, log=log, env={**OURS, "PYTHONPATH": OURS["PYTHONPATH"]})
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    found: dict[str, Any] = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
    return found


# A measurement, in a process of its own


def _engine(target: str, engine: str) -> Any:
    from pytest_touchstone.checkpoints.resolve import find_checkpoints
    from pytest_touchstone.engines.registry import open_engine
    from pytest_touchstone.engines.replicas.engine import Replicas, ReplicatedEngine
    from pytest_touchstone.engines.replicas.ray_cluster import target_of
    from pytest_touchstone.engines.settings import ModelSettings

    info = find_checkpoints([target]).infos[0]
    if engine == "-":
        return open_engine(info, ModelSettings(device="cpu", threads=1))
    _start_ray(int(engine.partition(":")[2]))
    settings = ModelSettings(device="cpu", threads=1, engine=engine)
    return ReplicatedEngine(Replicas(settings, target_of(engine)), info)


def _start_ray(cpus: int) -> None:
    import ray

    ray.init(
        "local", num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )


def _wait_for_all(engine: Any, count: int, requests: Sequence[Any]) -> None:
    """Return when all replicas hold the model, and have answered something."""
    replicas = engine._replicas
    while list(replicas._idle.values()).count(replicas._checkpoint) < count:
        replicas.step((), deque())
    for _ in range(count):
        engine.answer(requests)


def _requests(kind: str, count: int) -> list[Any]:
    from pytest_touchstone.core.requests import Generate, Loglikelihood

    texts = [f"{number * 7919 % count} and then " * (2 + number % 9) for number in range(count)]
    if kind == "scoring":
        return [Loglikelihood(text, f" {number}") for number, text in enumerate(texts)]
    return [Generate(text, max_new_tokens=32) for text in texts]


def answer(model: str, engine: str, kind: str, count: str) -> dict[str, Any]:
    """Return the seconds of answering, and the CPU of this process and its actors."""
    opened = _engine(model, engine)
    opened.answer(_requests(kind, 64))
    if engine != "-":
        _wait_for_all(opened, int(engine.partition(":")[2]), _requests(kind, 64))
    requests = _requests(kind, int(count))
    began, cpu = time.perf_counter(), cpu_of(os.getpid())
    found = opened.answer(requests)
    seconds, cpu = time.perf_counter() - began, cpu_of(os.getpid()) - cpu
    assert len(found) == len(requests)
    return {"seconds": seconds, "CPU": cpu}


def session(*words: str) -> dict[str, Any]:
    """Return a run of pytest in this process, its own CPU and its peak memory."""
    import pytest

    if "ray:2" in words:
        _start_ray(2)
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    code = pytest.main(list(words))
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert code == 0, code
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": time.perf_counter() - began, "CPU": cpu, "peak": after.ru_maxrss * 1024}


def unit() -> dict[str, Any]:
    """Units of one request and of a hundred, one after the other: their time and the driver's CPU."""
    engine = _engine("fake:causal", "ray:1")
    requests = _requests("scoring", 2000)
    engine.answer(requests)

    def asked(sizes: Sequence[int]) -> tuple[float, float]:
        began, cpu, at = time.perf_counter(), time.process_time(), 0
        for size in sizes:
            engine.answer(requests[at : at + size])
            at += size
        return time.perf_counter() - began, time.process_time() - cpu

    single, cpu = asked([1] * 400)
    _, hundreds = asked([100] * 20)
    each = (hundreds / 20 - cpu / 400) / 99
    found = engine.answer(requests[:100])
    return {
        "latency": single / 400,
        "unit_cpu": cpu / 400 - each,
        "request_cpu": each,
        "request_bytes": len(pickle.dumps(requests)) / len(requests),
        "answer_bytes": len(pickle.dumps(found)) / len(found),
    }


def batches(folder: str) -> dict[str, Any]:
    """Yield the driver's CPU for an item of a batch: to start it, and from its answer to its line in the journal."""
    from pytest_touchstone.checkpoints.resolve import find_checkpoints
    from pytest_touchstone.core.benchmark import Benchmark, Dataset
    from pytest_touchstone.core.dataset import Example
    from pytest_touchstone.core.requests import Loglikelihood
    from pytest_touchstone.engines.fake import FakeEngine
    from pytest_touchstone.plugin.driver import ItemJob, RunningBatch
    from pytest_touchstone.results.journal import Journal

    spec = Benchmark(
        name="x",
        version=1,
        data=Dataset(local="x/x"),
        asks=(Loglikelihood,),
        primary="acc",
        metrics=("acc",),
    )

    def item(n: int) -> Any:
        answer = yield Loglikelihood("a", f" word {n}")
        return {"acc": float(answer.is_greedy)}

    engine = FakeEngine(find_checkpoints(["fake:causal"]).infos[0])
    count, times = 16_384, [0.0, 0.0, 0.0]
    asked = [Loglikelihood("a", f" word {n}") for n in range(count)]
    with Journal(Path(folder), "main") as journal:
        for begin in range(0, count, 4096):
            marks = [time.process_time()]
            jobs = [
                ItemJob(f"t::{n}", spec, Example(f"x/{n}", None, {}, "hash"), "c", partial(item, n))
                for n in range(begin, begin + 4096)
            ]
            batch = RunningBatch(jobs, engine, journal)
            marks.append(time.process_time())
            batch.run(engine)
            marks.append(time.process_time())
            engine.answer(asked[begin : begin + 4096])
            marks.append(time.process_time())
            times = [sum(one) for one in zip(times, map(sub, marks[1:], marks), strict=True)]
    start, handle, answering = (one / count for one in times)
    return {"start": start, "handle": handle - answering}


def load(model: str) -> dict[str, Any]:
    """Time the second loading of a checkpoint, when its file is in the system's cache."""
    _engine(model, "-").close()
    began, cpu = time.perf_counter(), time.process_time()
    _engine(model, "-")
    return {"seconds": time.perf_counter() - began, "CPU": time.process_time() - cpu}


ONE: dict[str, Callable[..., dict[str, Any]]] = {
    "answer": answer,
    "session": session,
    "unit": unit,
    "batches": batches,
    "load": load,
}


if __name__ == "__main__":
    main()
