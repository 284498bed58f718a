"""A run with --eval-config: each benchmark by its own options, in the order of priority, within its time."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

from pytest_touchstone.core.dataset import Example
from pytest_touchstone.core.eval_config import BenchmarkOptions
from pytest_touchstone.core.requests import Loglikelihood, LoglikelihoodAnswer
from pytest_touchstone.plugin.driver import ItemJob, RunningBatch, TimeLimit
from pytest_touchstone.results.journal import Journal, latest_records, read_journal
from tests.plugin.test_driver import SPEC, CountingEngine
from tests.support.lines import missing

Project = Any

ROOT = Path(__file__).resolve().parents[2]
EVALS, SHIPPED = ROOT / "evals", ROOT / "fixtures" / "data"

CHOICE = """
from pytest_touchstone import Loglikelihood, Shots, benchmark

for name in ("first", "second", "third"):

    def asked(example, fewshot):
        answer = yield fewshot.loglikelihood(example["q"], " 1")
        return {"acc": answer.logprob, "shots": float(fewshot.text.count("+"))}

    made = benchmark(
        name, version=1, data="sums/test", asks=Loglikelihood, primary="acc", metrics=("acc", "shots"),
        shots=Shots(shot=lambda row: row["q"] + "\\n"),
    )(asked)
    globals()[f"test_{name}"] = made
"""


def configured(project: Project, tasks: dict[str, Any]) -> None:
    (project.path / "c.json").write_text(json.dumps({"tasks": tasks}))
    (project.path / "test_sums.py").write_text(CHOICE)


def test_a_file_gives_each_benchmark_its_options(project: Project) -> None:
    tasks = {
        "first": {
            "limit": 3,
            "num_fewshot": 2,
            "priority": "low",
            "log_samples": False,
            "metrics": ["shots"],
            "output_path": "out",
        },
        "second": {"limit": None, "priority": "high", "timeout": 0.000001},
        "third": {"enabled": False},
    }
    configured(project, tasks)
    result = project.run("--eval-config", "c.json", "--eval-limit", "4", "-v")
    result.stdout.fnmatch_lines(["--eval-config c.json: first, second*of 3)"])
    records = list(project.records.values())
    assert [record.benchmark for record in records] == ["second"] * 4 + ["first"] * 4
    assert {record.status for record in records[:4]} == {"timeout"}
    assert not missing(records[0].message or "", "second", "timeout of 1e-06 s", "--eval-config")
    assert {record.scores["shots"] for record in records[4:]} == {2}
    assert not any(record.exchanges for record in records)
    assert result.ret == 9
    (run,) = project.runs
    log = (run / "first.log").read_text().splitlines()
    assert not missing(log[0], "first", "priority low", "shots 2")
    assert [line.partition(" s: ")[2] for line in log[1:5]] == ["shots 2"] * 4
    assert not missing(log[5], "fake-causal first", "shots 2.0000", "4 of 4 items")
    assert "timeout fake-causal second/0 " in (run / "second.log").read_text()
    results = (run / "first_results.json").read_text()
    assert (project.path / "out" / f"first_{run.name}.json").read_text() == results
    assert json.loads(results)["results"][0]["metrics"]["acc"]["n"] == 4


def test_examples_of_a_file_are_those_of_options(project: Project) -> None:
    """25-shot ARC and 10-shot HellaSwag, as in files of others."""
    shutil.copytree(SHIPPED, project.path / "data", dirs_exist_ok=True)
    rows = (SHIPPED / "hellaswag" / "validation.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (project.path / "data" / "hellaswag" / "train.jsonl").write_text("".join(rows[12:]), encoding="utf-8")
    shots = {"arc_easy": 25, "arc_challenge": 25, "hellaswag": 10}
    tasks = {name: {"num_fewshot": count, "limit": 3, "batch_size": 2} for name, count in shots.items()}
    (project.path / "c.json").write_text(json.dumps({"tasks": tasks}), encoding="utf-8")
    asked = {"file": ["--eval-config", "c.json"]} | {
        str(count): ["--eval-shots", str(count), "--eval-limit", "3", "--eval-tasks", names]
        for count, names in ((25, "arc_easy,arc_challenge"), (10, "hellaswag"))
    }
    found: dict[str, dict[str, Any]] = {}
    for name, options in asked.items():
        project.run(
            *(str(EVALS / file) for file in ("test_arc.py", "test_hellaswag.py")),
            *options,
            "--eval-run-id",
            name,
        )
        records = latest_records(read_journal(project.path / "results" / name)).values()
        found[name] = {one.example: (one.scores, one.exchanges) for one in records}
    assert len(found["file"]) == 9
    assert found["file"] == found["25"] | found["10"]


def test_a_name_that_nothing_has_ends_the_run_before_it_begins(project: Project) -> None:
    configured(project, {"frist": {}})
    result = project.run("--eval-config", "c.json")
    assert result.ret == 4
    line = "ERROR: c.json: tasks.frist: 'frist': no such benchmark or tag; did you mean first?"
    assert [one for one in result.stderr.lines if one] == [line]
    assert not project.runs


def test_a_metric_that_the_benchmark_lacks_is_refused(project: Project) -> None:
    configured(project, {"first": {"metrics": ["acc", "shot"]}})
    result = project.run("--eval-config", "c.json")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*tasks.first: *'shot'; did you mean 'shots'?*"])


def test_workers_share_what_a_file_asks(project: Project) -> None:
    configured(project, {"first": {"limit": 4, "output_path": "out/first.json"}})
    assert project.run("--eval-config", "c.json", "-n", "2").ret == 0
    assert json.loads((project.path / "out" / "first.json").read_text())["results"][0]["scored"] == 4
    configured(project, {"first": {"output_path": "test_sums.py/x"}})
    result = project.run("--eval-config", "c.json")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: c.json: tasks.first, output_path test_sums.py/x:*"])


class Clock(TimeLimit):
    """Over when it has been asked so often."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        super().__init__(5.0)
        self.left = left

    def past(self) -> bool:
        self.left -= 1
        return self.left < 0


class Streaming(CountingEngine):
    """Hands each answer on at once."""

    def answer(self, requests: Any, done: Any = None) -> Any:
        found = super().answer(requests)
        for number, one in enumerate(found):
            if done is not None:
                done(number, one)
        return found


def test_the_rest_of_a_batch_goes_on_where_one_benchmark_is_past_its_time(tmp_path: Path) -> None:
    def asked(text: str) -> Any:
        answer: LoglikelihoodAnswer = yield Loglikelihood("a", text)
        return {"acc": -answer.logprob}

    limit, engine = Clock(5), Streaming()
    late = {"t::0": limit, "t::1": limit, "t::2": limit}
    jobs = [
        ItemJob(f"t::{n}", SPEC, Example(f"x/{n}", None, {}, "h"), "c", functools.partial(asked, "b" * (n + 1)),
        BenchmarkOptions(),
            late.get(f"t::{n}"))
        for n in range(5)
    ]  # fmt: skip
    with Journal(tmp_path, "main") as journal:
        RunningBatch(jobs, engine, journal).run(engine)
    records = {record.item: record for record in read_journal(tmp_path)}
    assert [records[f"t::{n}"].status for n in range(5)] == [
        "scored",
        "scored",
        "timeout",
        "scored",
        "scored",
    ]
    assert [records[f"t::{n}"].scores.get("acc") for n in range(5)] == [1, 2, None, 4, 5]


def test_entries_of_shipped_benchmarks_that_are_not_collected_are_checked_too(project: Project) -> None:
    configured(project, {"first": {}, "gsm8k": {"metrics": ["bleu"]}})
    result = project.run("test_sums.py", "--eval-config", "c.json", "--eval-limit", "1")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*c.json: tasks.gsm8k: *'bleu'; there are exact_match_*"])
    configured(project, {"first": {}, "gsm8k": {"metrics": ["exact_match"]}})
    assert project.run("test_sums.py", "--eval-config", "c.json", "--eval-limit", "1").ret == 0
