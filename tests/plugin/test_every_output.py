"""One run, and every place that shows its figures: they are equal everywhere."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from xml.etree import ElementTree

import pytest

from pytest_touchstone.compare.mlflow import tracker_name
from pytest_touchstone.core.aggregation import is_soft
from tests.support.forking import python
from tests.support.mlflow_server import sent_to
from tests.support.project import ALONE
from tests.support.wandb_files import kept_in, offline

TASKS = "mmlu_stem,real_coref,ko_lambada_wiki,humaneval,lambada"
COMPOSITE = "composite"


class Key(NamedTuple):
    """A number's place: checkpoint, benchmark, group ("" for the whole), metric."""

    checkpoint: str
    benchmark: str
    group: str
    metric: str


class Figures(NamedTuple):
    """A value and its interval as they are shown, and the number of items ("" where it is not shown)."""

    value: str
    interval: str
    n: str


Shown: TypeAlias = dict[Key, Figures]


def shown(value: float | None) -> str:
    """A number with four decimals, two from 10 up: the form for people."""
    assert value is not None
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


class Run:
    """What a run has printed and written."""

    def __init__(self, folder: Path, terminal: str) -> None:
        self.folder = folder
        self.terminal = terminal
        self.summary: dict[str, Any] = json.loads((folder / "results" / "r" / "summary.json").read_text())
        self.exact: dict[Key, dict[str, Any]] = {}
        for result in self.summary["results"]:
            for metric in result["metrics"].values():
                place = (result["checkpoint"], result["benchmark"], result["group"] or "", metric["name"])
                self.exact[Key(*place)] = metric
        for one in self.summary["composites"]:
            n = sum({part["benchmark"]: part["n"] for part in one["parts"]}.values())
            self.exact[Key(one["checkpoint"], one["name"], "", COMPOSITE)] = {**one, "n": n}

    @property
    def expected(self) -> Shown:
        """Every number as it is shown."""
        return {
            key: Figures(shown(one["value"]), f"[{shown(one['low'])}, {shown(one['high'])}]", str(one["n"]))
            for key, one in self.exact.items()
        }


@pytest.fixture(scope="module")
def of_run(server: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of whole benchmarks, groups, several metrics, composites and programs, tracked in "every"."""
    folder = tmp_path_factory.mktemp("every")
    words = ["run", f"--tasks={TASKS}", "--checkpoint=fake:causal", "--checkpoint=fake:masked", "-v"]
    words += [
        "--eval-limit=3",
        "--eval-samples=5",
        "--eval-run-id=r",
        "--eval-set=mlflow_experiment=every",
        *ALONE,
    ]
    words += [
        "-p",
        "legacypath",
    ]  # pytest-json-report 1.5 asks for ``session.fspath``, which this plug-in gives
    words += ["--eval-set=wandb_project=every"]
    words += ["--junitxml=j.xml", "--json-report", "--json-report-file=r.json", "--eval-set=markdown=m.md"]
    left = ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY")
    environment = {name: value for name, value in os.environ.items() if name not in left}
    done = subprocess.run(
        [python(), "-P", "-m", "pytest_touchstone.cli", *words],
        cwd=folder,
        env={**environment, **offline(folder), "MLFLOW_TRACKING_URI": server, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(folder, done.stdout)


@pytest.mark.slow
def test_the_run_has_every_kind_of_number(of_run: Run) -> None:
    keys = of_run.exact.keys()
    assert len(keys) > 30
    assert {key.metric for key in keys} >= {"acc", "pass@1", "pass@5", "perplexity", "real@1", COMPOSITE}
    assert any(key.group for key in keys)
    assert len({one.value for one in of_run.expected.values()}) > 5


@pytest.mark.slow
def test_the_table_of_numbers_has_them_exactly(of_run: Run) -> None:
    found = {}
    with (of_run.folder / "results" / "r" / "results.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            key = Key(row["checkpoint"], row["benchmark"], row["group"], row["metric"])
            found[key] = [float(row[name]) for name in ("value", "low", "high", "n")]
    assert found == {
        key: [one[name] for name in ("value", "low", "high", "n")] for key, one in of_run.exact.items()
    }


@pytest.mark.slow
def test_the_json_report_has_the_summary(of_run: Run) -> None:
    report = json.loads((of_run.folder / "r.json").read_text(encoding="utf-8"))["eval"]
    for name in ("results", "composites", "totals"):
        assert report[name] == of_run.summary[name]


@pytest.mark.slow
def test_the_files_of_benchmarks_and_checkpoints_have_them_exactly(of_run: Run) -> None:
    folder = of_run.folder / "results" / "r"
    for name in {key.benchmark for key in of_run.exact if key.metric != COMPOSITE}:
        results = json.loads((folder / "details" / f"{name}_results.json").read_text(encoding="utf-8"))[
            "results"
        ]
        assert results == [one for one in of_run.summary["results"] if one["benchmark"] == name]
    for checkpoint in ("fake-causal", "fake-masked"):
        tasks = json.loads((folder / "details" / f"{checkpoint}_results.json").read_text(encoding="utf-8"))[
            "results"
        ]
        mine = {key: one for key, one in of_run.exact.items() if key.checkpoint == checkpoint}
        assert {
            (task, metric): tasks[task][metric]
            for task in tasks
            for metric in tasks[task]
            if any((key.benchmark, key.metric) == (task, metric) and not key.group for key in mine)
        } == {
            (key.benchmark, key.metric): one["value"]
            for key, one in mine.items()
            if not key.group and key.metric != COMPOSITE
        }


@pytest.mark.slow
def test_the_terminal_shows_them(of_run: Run) -> None:
    assert terminal_figures(of_run) == for_people(of_run)


def for_people(run: Run) -> Shown:
    """The numbers of the terminal and the page: groups are shown without soft scores."""
    return {key: one for key, one in run.expected.items() if not (key.group and is_soft(key.metric))}


def terminal_figures(run: Run) -> Shown:
    """The rows of the table with ``-v``: a heading per checkpoint, names only in a benchmark's first row, groups
    further in."""
    groups = {key.group.replace("_", " "): key.group for key in run.exact}
    names = {key.checkpoint for key in run.exact}
    checkpoint = benchmark = group = ""
    found: Shown = {}
    row = re.compile(r"( +)(.*?) +(\S+) +(-?[\d.]+) +(\[[^]]*\]) +(?:([\d,]+)(?:/[\d,]+)?)?(?: [a-z ]+)?$")
    for line in run.terminal.partition(" benchmarks ==")[2].splitlines():
        if (first := line.partition(" ")[0]) in names:
            checkpoint = first
        elif match := row.fullmatch(line):
            indent, name, metric, value, interval, n = match.groups()
            if name:
                inner = len(indent) > 2
                group = groups[name] if inner else ""
                benchmark = benchmark if inner else name.split()[0]
            found[Key(checkpoint, benchmark, group, metric)] = Figures(value, interval, n.replace(",", ""))
    return found


@pytest.mark.slow
def test_markdown_shows_the_primary_ones_and_composites(of_run: Run) -> None:
    found = {}
    names = {key.checkpoint for key in of_run.exact}
    for line in (of_run.folder / "m.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("&#91;", "[").replace("&#93;", "]") for cell in line.split("|")[1:-1]]
        if len(cells) == 7 and cells[0] in names:
            checkpoint, benchmark, metric = cells[0], cells[1].split()[0], cells[2]
            found[Key(checkpoint, benchmark, "", metric)] = Figures(*cells[3:6])
    assert found == {
        key: one._replace(n="") if key.metric == COMPOSITE else one for key, one in primary(of_run).items()
    }


def primary(run: Run) -> Shown:
    first = {(one["benchmark"], one["primary"]) for one in run.summary["results"]}
    return {
        key: one
        for key, one in run.expected.items()
        if not key.group and (key.metric == COMPOSITE or (key.benchmark, key.metric) in first)
    }


@pytest.mark.slow
def test_the_page_shows_them_without_a_script(of_run: Run) -> None:
    page = Tables()
    page.feed((of_run.folder / "results" / "r" / "report.html").read_text(encoding="utf-8"))
    found: Shown = {}
    for heading, head, cells in page.rows:
        if head[1:4] != ["checkpoint", "value", "95 % interval"] or head[0] == "part":
            continue  # parts are by lengths and fields of the data, and stand in no other output
        name, checkpoint, value, interval = cells[:4]
        n = cells[5] if len(cells) > 5 else ""
        if head[0] == "score":
            key = Key(checkpoint, name, "", COMPOSITE)
        elif head[0].startswith("group, "):
            key = Key(checkpoint, heading, name, head[0].removeprefix("group, "))
        else:
            key = Key(checkpoint, heading, "", name)
        found[key] = Figures(value, interval, n)
    assert found == {
        key: one._replace(n="") if key.metric == COMPOSITE else one for key, one in for_people(of_run).items()
    }


class Tables(HTMLParser):
    """The rows of all tables of a page, each with the heading above and its table's head; without small print."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, list[str], list[str]]] = []
        self._heading, self._head, self._cells = "", list[str](), list[str]()
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._open.append(tag)
        if tag == "h3":
            self._heading = ""
        elif tag == "tr":
            self._cells = []
        elif tag in ("td", "th"):
            self._cells.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass
        if tag == "thead":
            self._head = self._cells
        elif tag == "tr" and "thead" not in self._open:
            self.rows.append((self._heading, self._head, self._cells))

    def handle_data(self, data: str) -> None:
        if {"small", "svg", "a"} & {*self._open}:
            return
        if "h3" in self._open:
            self._heading += data.strip()
        elif {"td", "th"} & {*self._open}:
            self._cells[-1] += data.strip()


@pytest.mark.slow
def test_junit_has_those_of_whole_benchmarks(of_run: Run) -> None:
    root = ElementTree.parse(of_run.folder / "j.xml").getroot()
    told = {one.get("name"): one.get("value") for one in root.iter("property")}
    for key, one in of_run.exact.items():
        if not key.group:
            metric = "" if key.metric == COMPOSITE else f".{key.metric}"
            assert told[f"touchstone.{key.checkpoint}.{key.benchmark}{metric}"] == f"{one['value']:.6g}"


@pytest.mark.slow
def test_mlflow_has_them_exactly(of_run: Run, tracked: Any) -> None:
    runs = sent_to(tracked, "every")
    for key, one in of_run.exact.items():
        sent = runs[f"eval_{key.benchmark}_{key.checkpoint}"].data.metrics
        name = tracker_name(key.benchmark if key.metric == COMPOSITE else key.metric)
        name = f"{key.group}/{name}" if key.group else name
        limits = [sent[f"interval/{name}/{part}"] for part in ("low", "high")]
        assert [sent[name], *limits] == [one[part] for part in ("value", "low", "high")]
        if key.metric != COMPOSITE:
            assert sent[f"n/{name}"] == one["n"]
    assert set(numbers_of(runs)) == {key.benchmark for key in of_run.exact}


@pytest.mark.slow
def test_weights_and_biases_has_them_exactly(of_run: Run) -> None:
    runs = kept_in(of_run.folder / "wandb")
    assert {one.project for one in runs.values()} == {"every"}
    for key, one in of_run.exact.items():
        (sent,) = runs[f"eval_{key.benchmark}_{key.checkpoint}"].points.values()
        name = tracker_name(key.benchmark if key.metric == COMPOSITE else key.metric)
        name = f"{key.group}/{name}" if key.group else name
        limits = [sent[f"interval/{name}/{part}"] for part in ("low", "high")]
        assert [sent[name], *limits] == [one[part] for part in ("value", "low", "high")]


def numbers_of(runs: dict[str, Any]) -> Iterator[str]:
    """The benchmarks and composites that have a run."""
    for one in runs.values():
        yield from filter(None, (one.data.tags.get("benchmark"), one.data.tags.get("composite")))
