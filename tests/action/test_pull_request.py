"""The action in somebody's repository: a main branch, a pull request that makes the model worse, and what follows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.lines import missing
from tests.support.project import ALONE
from tests.support.runner import ACTION, Job, Runner
from tests.support.toys import told

BENCHMARK = '''\
from pathlib import Path

from pytest_touchstone import Loglikelihood, benchmark


@benchmark("skills", version=1, rows=[{"n": n} for n in range(200)], asks=Loglikelihood, primary="acc")
def test_skills(example):
    """Right as often as the checkpoint's file "skill" says."""
    yield Loglikelihood(f"{example['n']}", " b")
    return {"acc": float(example["n"] < int(Path("skill").read_text()))}
'''

QUIET = " ".join(("-q", *ALONE))


class Repository:
    """A repository with a benchmark and the action; ``skill`` is what its training makes of the checkpoint."""

    def __init__(self, place: Path) -> None:
        self.place, self.main, self.jobs = place, place / "main", 0
        self.runner = Runner(place, ACTION)
        self.main.mkdir()
        (self.main / "test_skills.py").write_text(BENCHMARK)
        (self.main / "pyproject.toml").write_text("[tool.touchstone.gate.benchmarks.skills]\nmargin = 0.02\n")

    def job(self, event: str, skill: int, **inputs: Any) -> Job:
        """A job in a fresh checkout, or what follows in one that there is."""
        if "after" not in inputs:
            self.jobs += 1
            self.checkout = self.place / f"job-{self.jobs}"
            shutil.copytree(self.main, self.checkout)
        (self.checkout / "skill").write_text(str(skill))
        given: dict[str, Any] = {
            "checkpoint": "fake:causal",
            "tests": "test_skills.py",
            "install": "none",
            "args": QUIET,
        } | inputs
        return self.runner.play(self.checkout, event, **given)

    def comment(self) -> str:
        """The file of the last job's comment."""
        return (self.checkout / "touchstone.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Repository, Job]:
    """A repository whose main branch was pushed, with the job of that."""
    repository = Repository(tmp_path_factory.mktemp("pushed"))
    return repository, repository.job("push", 150)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def restored(repository: Repository, pushed: Repository) -> None:
    """Give a repository the cache of one whose main branch was pushed."""
    shutil.copytree(pushed.runner.cache, repository.runner.cache)


def test_a_pull_request_is_red_then_accepted_and_a_further_drop_is_red_again(
    repository: Repository, pushed: tuple[Repository, Job]
) -> None:
    before, first = pushed
    restored(repository, before)
    assert first.code == 0, first.log
    assert "this run is the first" in first.summary
    assert "keep saved results" in first.ran

    worse = repository.job("pull_request", 100)
    assert worse.code == 8, worse.log
    assert "keep saved results" not in worse.ran
    assert worse.summary.split() == repository.comment().split()
    run = worse.outputs["gate"]["run"]
    head = worse.summary.partition("\n| ")[0]
    for words in (
        "**skills acc of fake-causal**: 0.7500 to 0.5000, -25.00 &#91;",  # what dropped, by how much
        "p &#60; 0.0001 over 200 items, against fake-causal of run ",  # against what, how sure
        f"`touchstone compare '{first.outputs['gate']['run']}#fake-causal' '{run}#fake-causal'",  # how to look
        f"`touchstone accept {run} --benchmark skills --because ",  # how to accept
    ):
        assert words in head
    assert len(head.splitlines()) <= 10
    assert "](https://github.example/runs/1001/artifacts/1)" in worse.summary
    assert not missing(worse.summary, "gh run download 1001", "--name touchstone-results", "--dir results")
    artifact = repository.runner.artifacts / "touchstone-results"
    assert (artifact / run / "report.html").is_file()

    # Somebody looks at the artifact in a clone, and accepts.
    clone = repository.main
    shutil.copytree(artifact, clone / "results")
    assert "skills" in told(clone, "compare", f"{first.outputs['gate']['run']}", run)
    subprocess.run(["git", "init", "-q"], cwd=clone, check=True)
    subprocess.run(["git", "config", "user.name", "Ann"], cwd=clone, check=True)
    told(clone, "accept", run, "--benchmark", "skills", "--because", "half the data | **as agreed**")
    shutil.rmtree(clone / "results")
    (entry,) = json.loads((clone / "touchstone-accepted.json").read_text())["accepted"]
    assert (entry["from"], entry["to"], entry["by"].partition(" <")[0]) == (0.75, 0.5, "Ann")

    accepted = repository.job("pull_request", 100)
    assert accepted.code == 0, accepted.log
    assert "1 accepted" in accepted.summary
    assert "&#124; &#42;&#42;as agreed&#42;&#42;" in accepted.summary
    further = repository.job("pull_request", 70)
    assert further.code == 8, further.log
    assert not missing(further.log, "0.3500", "0.5000", "Ann")

    shutil.rmtree(repository.runner.cache)
    assert repository.job("pull_request", 70).code == 8


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"checkpoint": "/nowhere/checkpoint"}, "no such file or folder"),
        ({"args": "--nonsense"}, "unknown option --nonsense"),
    ],
    ids=str,
)
def test_a_job_that_cannot_begin_has_a_summary_a_comment_and_an_annotation(
    repository: Repository, inputs: dict[str, str], said: str
) -> None:
    job = repository.job("pull_request", 100, **inputs)
    assert job.code == 4
    assert said in job.summary
    assert said in repository.comment()
    assert "\n::error title=touchstone" in f"\n{job.log}"
    assert "upload the run" not in job.ran


@pytest.mark.parametrize(
    "args",
    [
        "--eval-limit 50 --baseline 'main",
        '--eval-set system="a',
        "--eval-set system='one\ntwo'",
        "-k 'a\rb'",
        "a\\",
    ],
    ids=repr,
)
def test_arguments_that_are_not_whole_stop_the_job(repository: Repository, args: str) -> None:
    job = repository.job("pull_request", 100, args=args)
    assert job.code == 4
    assert not list(repository.checkout.glob("results/*/run.json"))
    for place in (job.summary, repository.comment(), job.log):
        assert "args: " in place
    assert re.search("^::error title=touchstone::.*4, .*args: ", job.log, re.MULTILINE)


def baselines(job: Job) -> str:
    """What a job says of what it was compared with."""
    assert job.code in (0, 8), job.log
    return "first" if "this run is the first" in job.summary else "compared"


@pytest.mark.slow
def test_gates_of_a_repository_have_their_own_baselines(repository: Repository) -> None:
    def pushed(**where: Any) -> str:
        return baselines(repository.job("push", 150, **where))

    first, second = {"n": "1"}, {"n": "2"}
    assert pushed() == "first"
    gates: list[dict[str, Any]] = [
        {"cache_key": "touchstone-gpu"},
        {"job_id": "other"},
        {"workflow": "other.yml"},
        {"matrix": first},
    ]
    assert [pushed(**gate) for gate in gates] == ["first"] * 4
    assert pushed(matrix=second, same_run=True) == "first"
    assert [pushed(**gate) for gate in (*gates, {"matrix": second}, {})] == ["compared"] * 6


@pytest.mark.slow
def test_two_uses_of_the_action_in_a_job_keep_two_caches(repository: Repository) -> None:
    for found in ("first", "compared"):
        one = repository.job("push", 150, results="one")
        other = repository.job("push", 150, results="other", same_run=True, after=one)
        assert (baselines(one), baselines(other)) == (found, found)
        assert one.outputs["name"] != other.outputs["name"]


def test_a_matrix_whose_values_change_keeps_its_baseline_by_a_name_of_its_own(repository: Repository) -> None:
    for found in ("first", "compared"):
        job = repository.job("push", 150, matrix={"checkpoint": found}, named={"matrix": "small"})
        assert baselines(job) == found


@pytest.mark.parametrize(
    ("event", "keep", "kept"),
    [
        ("push", "auto", True),
        ("push", "false", False),
        ("pull_request", "auto", False),
        ("pull_request_target", "auto", False),
        ("pull_request_target", "true", False),
        ("merge_group", "auto", False),
        ("issue_comment", "auto", False),
        ("workflow_run", "auto", False),
        ("schedule", "auto", False),
        ("schedule", "true", True),
    ],
)
def test_only_what_was_pushed_becomes_a_baseline_unless_one_says_so(
    repository: Repository, event: str, keep: str, kept: bool
) -> None:
    job = repository.job(event, 150, checkpoint="/nowhere", keep=keep)
    assert ("keep saved results" in job.ran) is kept


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    [{"event": "push", "ref": "refs/tags/v1"}, {"event": "pull_request", "keep": "true"}],
    ids=["tag", "fork"],
)
def test_a_tag_and_a_fork_are_compared_with_the_main_branch_and_are_no_baseline_of_it(
    repository: Repository, where: dict[str, Any]
) -> None:
    assert baselines(repository.job("push", 100)) == "first"
    assert baselines(repository.job(skill=150, **where)) == "compared"
    after = repository.job("push", 100)  # worse than that
    assert (baselines(after), after.code) == ("compared", 0)


def test_the_project_decides_unless_an_input_does_and_what_nobody_knows_is_a_warning(
    repository: Repository, pushed: tuple[Repository, Job]
) -> None:
    with (repository.main / "pyproject.toml").open("a") as file:
        file.write('[tool.touchstone.gate]\nmode = "strict"\n')
    restored(repository, pushed[0])
    assert repository.job("pull_request", 147).code == 8
    unsure = repository.job("pull_request", 147, gate="plain")
    assert unsure.code == 0
    assert ":warning:" in unsure.summary
    assert re.search("^::warning title=touchstone gate::.* 1 inconclusive", unsure.log, re.MULTILINE)
    part = repository.job("pull_request", 150, args=f"{QUIET} --eval-limit 4", gate="plain")
    assert part.code == 0
    assert re.search(r":warning: .*WITHOUT A COMPARISON", part.summary)
    assert re.search("^::warning title=.*WITHOUT A COMPARISON", part.log, re.MULTILINE)
