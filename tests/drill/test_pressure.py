"""Very many items in bounded memory, very long outputs, and texts that a terminal, a page or a table would obey."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from perf.overhead import BENCHMARK
from pytest_touchstone.core.text import INVISIBLE
from pytest_touchstone.results.journal import iter_records, read_journal
from tests.drill.conftest import Drill
from tests.support.forking import Forks
from tests.support.killed_runs import Command, words

PEAK = """
import atexit


def peak():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    print("peak", int(line.split()[1]) * 1024)


atexit.register(peak)
"""

MOST_BYTES = 4000
"""The memory that an item may cost the process that merges it."""

MOST_OF_SHARDS = 5500
"""The memory that an item of any shard may cost each shard: all are collected before those of others are left out."""

MOST_OF_PAGE = 30
"""The bytes of an item that says nothing in the page of its run."""


def trivial(folder: Path, items: int) -> Path:
    """A project of so many items."""
    (folder / "data" / "trivial").mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_trivial.py").write_text(BENCHMARK)
    with (folder / "data" / "trivial" / "test.jsonl").open("w") as file:
        file.writelines(f'{{"text": " word {number}"}}\n' for number in range(items))
    return folder


def peak(forks: Forks, folder: Path, command: Command) -> int:
    """The most memory that a command took."""
    process = forks.start(*words(command), cwd=folder, before=PEAK)
    assert process.wait(7200) == 0, process.output
    return int(process.output.rpartition("peak ")[2])


def scores_of(run: Path) -> dict[str, float]:
    """The score of each example."""
    return {one.example: one.scores["acc"] for one in iter_records(run, exchanges=False)}


RUN = ("pytest", "--checkpoint", "fake:causal")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells a process's peak")
def test_an_item_more_costs_each_shard_a_few_kilobytes(
    forks: Forks, drill: Drill, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A million items (``--drill-items 1000000``) take half an hour."""
    items = pytestconfig.getoption("--drill-items") or (30_000 if drill.whole else 4_000)
    shards = 2 if items < 100_000 else 10
    few = peak(forks, trivial(tmp_path / "few", 1000), RUN)
    folder = trivial(tmp_path / "many", items)
    peaks = [
        peak(forks, folder, (*RUN, "--eval-shard", f"{number}/{shards}")) for number in range(1, shards + 1)
    ]
    merging = peak(forks, folder, ("touchstone", "merge", "results", "-o", "whole"))
    assert max(peaks) - few < MOST_OF_SHARDS * items, (
        f"{(max(peaks) - few) / items:.0f} bytes for each item of all shards"
    )
    assert merging - few < MOST_BYTES * items, f"{(merging - few) / items:.0f} bytes for each item"
    summary = json.loads((folder / "whole" / "summary.json").read_text())
    assert summary["totals"]["scored"] == items
    scores = scores_of(folder / "whole")
    assert len(scores) == items
    assert summary["results"][0]["metrics"]["acc"]["value"] == sum(scores.values()) / items
    (one_run,) = (tmp_path / "few" / "results").glob("*/run.json")
    assert scores_of(one_run.parent).items() <= scores.items(), "the same rows in a run without shards"
    assert (folder / "whole" / "report.html").stat().st_size < 200_000 + MOST_OF_PAGE * items
    drill.figure("items of the largest run, in shards", items)
    drill.figure(
        "bytes of memory for each of its items, at the most, in a shard", (max(peaks) - few) // items
    )
    drill.figure("bytes of memory for each of its items, in merging", (merging - few) // items)


HOSTILE = (
    "\n::error::owned\r  ::set-output name=x::y\x1b]0;title\x07\x9b2J\u202eright\u200bleft\u2066 ##[group]x"
    "</script><b onload=alert(1)>|\ud800\x00,=1+1\"'`{{7*7}}$\\"
)

SAYING = f"""
import dataclasses

from pytest_touchstone.checkpoints import formats
from pytest_touchstone.core.requests import Generate
from pytest_touchstone.engines.fake import FakeEngine

HOSTILE = {HOSTILE!r}
inspect, answer = formats.FakeFormat.inspect, FakeEngine._answer


def saying(self, request):
    found = answer(self, request)
    if not isinstance(request, Generate):
        return found
    long = "long " * LENGTH if request.prompt.startswith("0 ") else ""
    samples = tuple(dataclasses.replace(one, text=one.text + HOSTILE + long) for one in found.samples)
    return dataclasses.replace(found, samples=samples)


def named(self, path, asked):
    return dataclasses.replace(inspect(self, path, asked), name="fake" + HOSTILE.replace("/", ""))


formats.FakeFormat.inspect, FakeEngine._answer = named, saying
"""

TEXTS = f"""
from pytest_touchstone import Generate, benchmark

HOSTILE = {HOSTILE!r}


@benchmark(name="texts", version=1, data="texts/test", asks=Generate, primary="acc")
def test_texts(example):
    answer = yield Generate(example["q"] + HOSTILE, max_new_tokens=4)
    print(answer.text[:1000])
    if example["n"] == 1:
        raise RuntimeError(HOSTILE)
    return {{"acc": float(len(answer.text) % 2)}}
"""

COMMANDS: tuple[Command, ...] = (
    ("items", "first"),
    ("items", "first", "--full"),
    ("items", "first", "--format", "json"),
    ("report", "first"),
    ("report", "first", "-v"),
    ("report", "first", "--format", "csv"),
    ("report", "first", "--format", "json"),
    ("report", "first", "--format", "markdown"),
    ("report", "first", "--format", "latex"),
    ("report", "first", "-o", "page.html"),
    ("compare", "first", "second"),
    ("compare", "first", "second", "--format", "json"),
    ("compare", "first", "second", "--format", "markdown"),
    ("score", "first"),
    ("score", "first", "-o", "rescored.csv"),
    ("export", "first", "-o", "lm-eval"),
    ("export", "first", "--format", "every-eval-ever", "-o", "every"),
    ("runs",),
    ("baseline", "list"),
)


def obeyed(text: str) -> list[str]:
    """The lines of a log that GitHub takes for commands, and the signs that a terminal obeys."""
    lines = [line for line in re.split("[\r\n]", text) if line.lstrip().startswith("::") or "##[" in line]
    return [*lines, *(found[0] for found in INVISIBLE.finditer(text))]


def test_nothing_that_a_model_says_or_is_called_is_obeyed_and_everything_stays_readable(
    forks: Forks, drill: Drill, tmp_path: Path
) -> None:
    (tmp_path / "data" / "texts").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words_of_long = 2_000_000 if drill.whole else 100_000
    (tmp_path / "conftest.py").write_text(SAYING.replace("LENGTH", str(words_of_long)))
    (tmp_path / "test_texts.py").write_text(TEXTS)
    rows = [{"n": n, "id": f"=cmd{HOSTILE}{n}", "q": f"{n} {HOSTILE}"} for n in range(4)]
    (tmp_path / "data" / "texts" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "job.md")}
    for name in ("first", "second"):
        command: Command = (*RUN, "--eval-run-id", name, "--eval-set", "markdown=out.md", "-rA")
        process = forks.start(*words(command), cwd=tmp_path, environment=github)
        assert process.wait(600) == 9, process.output
        assert obeyed(process.output) == []
    for arguments in COMMANDS:
        process = forks.start(*words(("touchstone", *arguments)), cwd=tmp_path, environment=github)
        assert process.wait(600) == 0, f"{arguments}: {process.output[-3000:]}"
        assert "Traceback" not in process.output, arguments
        assert obeyed(process.output) == [], arguments
        if "json" in arguments:
            json.loads(process.output)
        if "csv" in arguments:
            assert len({len(row) for row in csv.reader(io.StringIO(process.output))}) == 1
        drill.figure("commands about hostile texts, none obeyed", 1)
    kept = [
        path for path in tmp_path.rglob("*") if path.is_file() and not {"data", "__pycache__"} & {*path.parts}
    ]
    for path in kept:
        text = path.read_text(encoding="utf-8")  # which has no lone surrogates
        if path.suffix == ".json":
            json.loads(text)
        if path.suffix == ".jsonl":
            assert all(json.loads(line) for line in text.splitlines())
        if path.suffix in (".md", ".html", ".log"):
            assert not re.search("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text), path
        if path.suffix == ".html":
            assert "<b onload" not in text, path
    (longest,) = (one for one in read_journal(tmp_path / "results" / "first") if one.example.endswith("0"))
    assert len(longest.exchanges[0]["answer"]["samples"][0]["text"]) > 5 * words_of_long
    drill.figure("bytes of the longest output", 5 * words_of_long)
