"""The action and the workflows beside it are well-formed, and their scripts do what they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.support.places import ROOT, SOURCE
from tests.support.runner import evaluate, truth

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action" / "action.yml").read_text(encoding="utf-8"))
STEPS: dict[str, Any] = {one["name"]: one for one in ACTION["runs"]["steps"]}
SCRIPTS = ("install", "name the gate", "score and judge", "link the run")
GITHUB, SELF_HOSTED, GITLAB, GITLAB_ON_RUNNER = (
    yaml.safe_load((ROOT / "docs" / "action" / f"{name}.yml").read_text(encoding="utf-8"))
    for name in ("github", "github-self-hosted", "gitlab", "gitlab-self-hosted")
)
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")


def stub(folder: Path, name: str, code: int = 0) -> Path:
    """A program that notes its arguments in ``NAME.given`` and ends with this code; the folder for PATH."""
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{folder}/{name}.given"\nexit {code}\n')
    program.chmod(0o755)
    return program.parent


def given(folder: Path, name: str) -> list[str]:
    """The arguments that a stub has noted."""
    return (folder / f"{name}.given").read_text().splitlines()


def step(name: str, cwd: Path, stubs: Path | None = None, **inputs: str) -> int:
    """Execute a script of the action in a folder, with its inputs by name; the exit code."""
    values = {key: str(one.get("default", "")) for key, one in ACTION["inputs"].items()} | inputs
    variables = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found[1]], text)
        for key, text in STEPS[name]["env"].items()
    }
    return execute(STEPS[name]["run"], cwd, stubs, variables)


def execute(script: str, cwd: Path, stubs: Path | None, variables: Mapping[str, str]) -> int:
    """Execute a script as a job does; its exit code."""
    places = [*([str(stubs)] if stubs is not None else []), str(Path(sys.executable).parent)]
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        **variables,
        "PATH": os.pathsep.join([*places, os.environ["PATH"]]),
        "PYTHONPATH": str(SOURCE),
        "GITHUB_OUTPUT": str(cwd / "output"),
        "GITHUB_ACTION_PATH": str(ROOT / "action"),
        "GITHUB_STEP_SUMMARY": str(cwd / "job-summary"),
    }
    with TemporaryDirectory() as temporary:  # a runner's own is gone after the job, too
        environment["TMPDIR"] = temporary
        return subprocess.run([*BASH, script], env=environment, cwd=cwd, check=False).returncode


def test_every_input_that_is_used_is_declared_and_described() -> None:
    text = (ROOT / "action" / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert all(one["description"] for one in ACTION["inputs"].values())
    assert ACTION["runs"]["using"] == "composite"
    assert all("shell" in one or "uses" in one for one in ACTION["runs"]["steps"])


def test_no_input_stands_in_a_script_itself() -> None:
    scripts = [one["run"] for one in ACTION["runs"]["steps"] if "run" in one]
    assert len(scripts) == len(SCRIPTS)
    assert not [script for script in scripts if "${{" in script]


@pytest.mark.parametrize("code", [0, 8, 9])
def test_the_script_hands_its_inputs_to_pytest_and_its_exit_code_on(tmp_path: Path, code: int) -> None:
    stubs = stub(tmp_path, "touchstone", code)
    inputs = {"checkpoint": "runs/a b; touch x", "args": "-k 'real_coref and not x' -q", "tasks": "a,'b c'"}
    assert step("score and judge", tmp_path, stubs, tests="my evals/", **inputs) == code
    assert given(tmp_path, "touchstone") == [
        *("run", "my evals/", "--tasks=a,'b c'", "--checkpoint", "runs/a b; touch x", "--gate"),
        *("--eval-output", "results", "--eval-set", "markdown=touchstone.md"),
        *("--junitxml", "touchstone.xml", "-k", "real_coref and not x", "-q"),
    ]
    assert (tmp_path / "output").read_text() == f"exit-code={code}\nrun=\n"
    assert step("score and judge", tmp_path, stubs, checkpoint="c", baseline="main", gate="strict") == code
    assert given(tmp_path, "touchstone")[:8] == [
        *("run", "--checkpoint", "c", "--gate", "--baseline", "main", "--eval-gate-mode", "strict")
    ]


@pytest.mark.parametrize("install", ["self", "none", "pytest-touchstone[all]==1.2"])
def test_the_action_installs_its_own_version_or_what_it_is_told(tmp_path: Path, install: str) -> None:
    stubs = stub(tmp_path, "pip")
    assert step("install", tmp_path, stubs, install=install) == 0
    if install == "none":
        assert not (tmp_path / "pip.given").exists()
    elif install == "self":
        _, _, constraints, project = given(tmp_path, "pip")
        assert Path(constraints).samefile(ROOT / "constraints.txt")
        assert Path(project.removesuffix("[all]")).samefile(ROOT)
    else:
        assert given(tmp_path, "pip") == ["install", install]


def test_workflows_use_the_action_with_inputs_it_has_and_artifacts_that_are_there() -> None:
    for workflow in (GITHUB, SELF_HOSTED):
        steps = workflow["jobs"]["gate"]["steps"]
        (used,) = [one for one in steps if "pytest-touchstone/action@v" in one.get("uses", "")]
        assert set(used["with"]) <= set(ACTION["inputs"])
    uploaded, downloaded = (
        next(one["with"] for one in GITHUB["jobs"][job]["steps"] if f"{kind}-artifact" in one.get("uses", ""))
        for job, kind in (("train", "upload"), ("gate", "download"))
    )
    assert uploaded == downloaded
    assert GITHUB["jobs"]["gate"]["needs"] == "train"


def test_no_job_of_gitlab_shares_a_cache_and_both_keep_what_the_action_keeps() -> None:
    job = GITLAB["touchstone"]
    assert not [one for one in (GITLAB, GITLAB_ON_RUNNER) if "cache" in str(one)]
    paths = STEPS["keep saved results"]["with"]["path"].replace("${{ inputs.results }}", "results")
    assert job["artifacts"]["paths"] == ["touchstone.md", *paths.split()]
    assert {job["stage"], GITLAB["train"]["stage"]} == set(GITLAB["stages"])


def test_whatever_is_installed_is_pinned() -> None:
    from importlib.metadata import version

    texts = [json.dumps(one) for one in (GITHUB, SELF_HOSTED, GITLAB, GITLAB_ON_RUNNER)]
    texts += [(ROOT / "action" / name).read_text() for name in ("README.md", "action.yml")]
    for used in re.findall(r"uses: ?\"?([\w./-]+@[\w.]+)", "\n".join(texts).replace('"uses": ', "uses: ")):
        own = used.startswith("OWNER/pytest-touchstone/")
        assert re.fullmatch(r".*@v[\d.]+" if own else r".*@[0-9a-f]{40}", used), used
    (bound,) = re.findall(r"^torch<=(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    commands = [text for text in texts if "pip install torch" in text]
    assert len(commands) == 2
    for text in commands:
        assert f"pip install torch=={bound} --index-url " in text
        assert "EXTRA_INDEX" not in text
    assert f"--branch v{version('pytest-touchstone')} " in texts[2]


@pytest.mark.parametrize("workflow", [GITHUB, SELF_HOSTED])
def test_the_token_of_a_workflow_may_read_and_no_more_unless_a_job_says_so(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    allowed = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert allowed in ({}, {"gate": {"contents": "read", "pull-requests": "write"}})


def event(name: str = "pull_request", *, head: str | None = "me/it", actor: str = "ann") -> dict[str, Any]:
    """The context of a workflow of ``me/it``, for a pull request from this repository; None for one that is gone."""
    repo = None if head is None else {"full_name": head}
    github = {"event_name": name, "repository": "me/it", "actor": actor}
    return {"github": {**github, "event": {"pull_request": {"head": {"repo": repo}}}}}


def test_a_fork_and_dependabot_get_no_comment_and_run_nothing_on_a_machine_of_ones_own() -> None:
    comment = GITHUB["jobs"]["gate"]["steps"][-1]["if"]
    job = SELF_HOSTED["jobs"]["gate"]["if"]
    (rule,) = GITLAB_ON_RUNNER["touchstone"]["rules"]
    assert rule["if"].endswith("$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID")
    for head, commented in (("me/it", True), ("stranger/it", False), (None, False)):
        assert truth(evaluate(comment, event(head=head))) is commented
        assert truth(evaluate(job, event(head=head))) is commented
    assert not truth(evaluate(comment, event(actor="dependabot[bot]")))
    assert not truth(evaluate(comment, event("push")))


GH = """#!{python}
import json, os, sys
from pathlib import Path
state = Path({state!r})
comments = json.loads(state.read_text())
words = sys.argv[1:]
if "--jq" in words:
    jq = words[words.index("--jq") + 1]
    start = "<!-- " + os.environ["NAME"] + " -->"
    assert 'select(.user.login == "github-actions[bot]" and (.body | startswith(' in jq
    for one in comments:
        if one["user"] == "github-actions[bot]" and one["body"].startswith(start):
            print(one["id"])
else:
    body = Path(words[words.index("--field") + 1].removeprefix("body=@")).read_text()
    if "PATCH" in words:
        (path,) = [word for word in words if word.startswith("repos/")]
        (found,) = [one for one in comments if str(one["id"]) == path.rpartition("/")[2]]
        found["body"] = body
    else:
        comments.append({{"id": len(comments), "user": "github-actions[bot]", "body": body}})
    state.write_text(json.dumps(comments))
"""


def test_a_gate_writes_its_own_comment_and_no_other(tmp_path: Path) -> None:
    comment = GITHUB["jobs"]["gate"]["steps"][-1]
    state = tmp_path / "comments.json"
    foreign = [
        {"id": 0, "user": "github-actions[bot]", "body": "coverage 80 %"},
        {"id": 1, "user": "stranger", "body": "<!-- touchstone-1 -->\nmine"},
    ]
    state.write_text(json.dumps(foreign))
    stubs = stub(tmp_path, "gh")
    (stubs / "gh").write_text(GH.format(python=sys.executable, state=str(state)))
    for name, text in (("1", "red"), ("2", "other"), ("1", "green")):
        (tmp_path / "touchstone.md").write_text(text)
        variables = {"NUMBER": "7", "GITHUB_REPOSITORY": "me/it", "NAME": f"touchstone-{name}"}
        assert execute(comment["run"], tmp_path, stubs, variables) == 0
    written = json.loads(state.read_text())
    assert written[:2] == foreign
    assert [one["body"] for one in written[2:]] == [
        "<!-- touchstone-1 -->\ngreen",
        "<!-- touchstone-2 -->\nother",
    ]


def test_a_runner_of_gitlab_asks_the_same_of_a_path_on_it() -> None:
    (name,) = GITLAB_ON_RUNNER
    own, usual = GITLAB_ON_RUNNER[name], GITLAB[name]
    assert own["tags"]
    assert "needs" not in own
    assert own["artifacts"] == {**usual["artifacts"], "paths": ["touchstone.md"]}
    assert Path(own["variables"]["CHECKPOINT"]).is_absolute()
    mine, theirs = (" ".join(one["script"]) for one in (own, usual))
    added = " --eval-data /data/sets --baseline /data/results/main/summary.json"
    assert mine.replace('"$CHECKPOINT"', "checkpoint").replace(added, "") == theirs


def kept(results: Path, folder: Path) -> Path:
    """A fresh checkout to which the cache was restored."""
    folder.mkdir()
    for name in ("saved", "baselines"):
        if (results / name).is_dir():
            shutil.copytree(results / name, folder / "results" / name)
    return folder


def test_github_scores_the_main_branch_and_then_a_pull_request_of_another_repository(tmp_path: Path) -> None:
    inputs = {"checkpoint": "fake:causal", "tasks": "arc_easy", "args": "--eval-limit 8 -q"}
    decisions = []
    for place in ("main", "request"):
        folder = kept(tmp_path / "main" / "results", tmp_path / place)
        assert step("score and judge", folder, None, **inputs) == 0
        (summary,) = (folder / "results").glob("*/summary.json")
        decisions += [line["verdict"] for line in json.loads(summary.read_text())["gate"]["lines"]]
        assert "arc_easy" in (folder / "touchstone.md").read_text()
        assert "touchstone.gate.decision" in (folder / "touchstone.xml").read_text()
    assert decisions == [None, "not worse"]  # the first is compared with nothing


CURL = """#!{python}
import sys
from pathlib import Path
kept, words = Path({kept!r}), sys.argv[1:]
if kept.is_file():
    Path(words[words.index("--output") + 1]).write_bytes(kept.read_bytes())
print({status} if kept.is_file() or {status} != 200 else 404, end="")
"""


def gitlab_job(
    tmp_path: Path, place: str, checkpoint: str, *, branch: str = "", status: int = 200
) -> tuple[int, Path]:
    """Run the script for GitLab as a job of a merge request, or of a branch; its exit code, and its folder."""
    job = GITLAB["touchstone"]
    folder = tmp_path / place
    folder.mkdir()
    stubs = stub(tmp_path, "pip")
    stub(tmp_path, "git")
    kept = str(tmp_path / "kept.zip")
    (stubs / "curl").write_text(CURL.format(python=sys.executable, kept=kept, status=status))
    (stubs / "curl").chmod(0o755)
    names = {
        "CI_DEFAULT_BRANCH": "main",
        "CI_JOB_NAME": "touchstone",
        "CI_PROJECT_ID": "1",
        "CI_JOB_TOKEN": "t",
    }
    names |= {"CI_API_V4_URL": "https://HOST/api/v4", "CI_BUILDS_DIR": "/builds", "CI_COMMIT_BRANCH": branch}
    for line in (*job["before_script"], *job["script"]):
        script = line.replace("--checkpoint checkpoint", f"--checkpoint {checkpoint}")
        script = re.sub(r"--tasks \S+", "--tasks real_coref --eval-limit 100", script)
        if code := execute(script, folder, stubs, names):
            return code, folder
    return 0, folder


@pytest.mark.slow
def test_a_merge_request_without_results_of_the_main_branch_is_not_judged(tmp_path: Path) -> None:
    assert gitlab_job(tmp_path, "request", "fake:masked")[0] == 4
    assert gitlab_job(tmp_path, "refused", "fake:masked", branch="main", status=500)[0] == 4
    code, first = gitlab_job(tmp_path, "main", "fake:masked", branch="main")
    assert code == 0
    assert (first / "results" / "saved").is_dir()


@pytest.mark.slow
def test_a_worse_checkpoint_is_red_with_the_script_for_gitlab(tmp_path: Path) -> None:
    paths = GITLAB["touchstone"]["artifacts"]["paths"]
    code, main = gitlab_job(tmp_path, "main", "builtin:ko-mlm-tiny/nouns/checkpoint-1200", branch="main")
    assert code == 0
    shutil.make_archive(str(tmp_path / "kept"), "zip", main, "results")
    code, request = gitlab_job(tmp_path, "request", "builtin:ko-mlm-tiny/mlm/checkpoint-25")
    assert code == 8
    assert (request / paths[0]).is_file()
    suite = ElementTree.parse(request / "touchstone.xml").getroot()[0]
    assert suite.attrib["failures"] == "1"
    assert given(tmp_path, "pip")[:2] == ["install", "-c"]


def test_the_commands_of_the_documentation_have_options_and_benchmarks_that_there_are() -> None:
    from pytest_touchstone.core.settings import SET, settings_table
    from tests.conformance.kit import kits

    (command,) = [shlex.split(line) for line in GITLAB["touchstone"]["script"]]
    flags = {SET, *(flag for row in settings_table().values() for flag in (row.short, row.long_flag))}
    given = [word for word in command if word.startswith("--")]
    assert set(given) - flags == {"--tasks", "--junitxml"}
    names = {kit.spec.name for kit in kits()}
    steps = GITHUB["jobs"]["gate"]["steps"]
    asked = [command[command.index("--tasks") + 1]]
    asked += [one["with"]["tasks"] for one in steps if "tasks" in one.get("with", {})]
    assert {name for text in asked for name in text.split(",")} <= names


def test_the_configuration_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    from pytest_touchstone.compare.gate.config import read_gate_config

    text = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(block, encoding="utf-8")
    plan = read_gate_config(tmp_path / "pyproject.toml", required=True)
    assert plan.rules_of("real_coref").floors[0].text == "real@1 >= 0.6"
    assert plan.metrics == ("score",)
