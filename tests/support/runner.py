"""Plays the runner of GitHub for a composite action: its steps in order, with bash, as in a job.

Expressions have literals, ``inputs``, ``github``, ``matrix`` and ``steps.ID.outputs``, ``always()``, ``toJSON()``, and
``== != && || !``. Of the actions of others that it uses, the cache and the artifacts are folders of this machine. A
cache belongs to a ref: a job finds those of its own ref, of the branch that a pull request is for, and of the main
branch, and each key is written once.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tests.support.forking import commands
from tests.support.places import ROOT, SOURCE

EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
TOKEN = re.compile(r"\s*('(?:[^']|'')*'|toJSON\(\w+\)|[\w-]+(?:\.[\w-]+)*(?:\(\))?|&&|\|\||==|!=|!|\(|\))")
MAIN = "refs/heads/main"
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
FAKED = ("actions/cache/restore", "actions/cache/save", "actions/upload-artifact")


@dataclass
class Job:
    """What a job has left: the exit code of the action, its log, its summary, and the outputs of steps."""

    code: int = 0
    log: str = ""
    summary: str = ""
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


class Runner:
    """A repository on GitHub: its cache and its artifacts, for jobs one after the other."""

    def __init__(self, place: Path, action: Path) -> None:
        self.cache, self.artifacts = place / "cache", place / "artifacts"
        self.folder = action
        self.action: dict[str, Any] = yaml.safe_load((action / "action.yml").read_text(encoding="utf-8"))
        self._runs = 0

    def play(
        self,
        checkout: Path,
        event: str,
        *,
        stubs: Path | None = None,
        ref: str = "",
        job_id: str = "gate",
        workflow: str = "gate.yml",
        matrix: Mapping[str, str] | None = None,
        same_run: bool = False,
        after: Job | None = None,
        named: Mapping[str, str] | None = None,
        **inputs: str,
    ) -> Job:
        """Run the action in a checkout, for this event; of a push, ``ref`` is what was pushed.

        ``same_run`` makes it a job of the last workflow run, ``after`` a further step of that job; ``named``
        are inputs by their own names.
        """
        self._runs += not same_run
        if not ref:
            ref = f"refs/pull/{self._runs}/merge" if event == "pull_request" else MAIN
        github = {
            "event_name": event,
            "run_id": str(1000 + self._runs),
            "run_attempt": "1",
            "ref": ref,
            "job": job_id,
            "workflow_ref": f"me/it/.github/workflows/{workflow}@{ref}",
        }
        job = Job(environment={} if after is None else dict(after.environment))
        known: dict[str, Any] = {"github": github, "matrix": matrix}
        names = {name.replace("-", "_"): name for name in self.action["inputs"]}
        values = {name: filled(one.get("default", ""), known) for name, one in self.action["inputs"].items()}
        values |= {names[name]: value for name, value in inputs.items()} | dict(named or {})
        for step in self.action["runs"]["steps"]:
            steps = {name: {"outputs": found} for name, found in job.outputs.items()}
            known |= {"inputs": values, "steps": steps}
            condition = str(step.get("if", "success()"))
            fine = job.code == 0 or "always()" in condition
            if not fine or not truth(evaluate(condition, known)):
                continue
            job.ran.append(step["name"])
            texts = {
                name: filled(text, known)
                for name, text in {**step.get("env", {}), **step.get("with", {})}.items()
            }
            if "uses" in step:
                found = self._use(step["uses"], checkout, texts, github)
            else:
                found = self._bash(job, step["run"], checkout, texts | github_variables(github), stubs)
            if "id" in step:
                job.outputs[step["id"]] = found
        return job

    def _bash(
        self, job: Job, script: str, cwd: Path, given: Mapping[str, str], stubs: Path | None
    ) -> dict[str, str]:
        files = {name: cwd.parent / f"{cwd.name}.{name}" for name in ("output", "summary", "env")}
        for file in files.values():
            file.write_text("")
        places = [
            *([str(stubs)] if stubs is not None else []),
            str(commands()),
            str(Path(sys.executable).parent),
        ]
        environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("PYTEST_", "GITHUB_"))
            },
            **given,
            "PATH": os.pathsep.join([*places, os.environ["PATH"]]),
            "PYTHONPATH": str(SOURCE),
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(self.folder),
            "GITHUB_OUTPUT": str(files["output"]),
            "GITHUB_STEP_SUMMARY": str(files["summary"]),
            "GITHUB_ENV": str(files["env"]),
            **job.environment,
        }
        with TemporaryDirectory() as temporary:  # a runner's own is gone after the job, too
            done = subprocess.run(
                [*BASH, script],
                cwd=cwd,
                env={**environment, "TMPDIR": temporary},
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        job.log += done.stdout + done.stderr
        job.summary += files["summary"].read_text(encoding="utf-8")
        job.code = job.code or done.returncode
        job.environment |= _values(files["env"])
        return _values(files["output"])

    def _use(
        self, used: str, cwd: Path, given: Mapping[str, str], github: Mapping[str, str]
    ) -> dict[str, str]:
        name, _, version = used.partition("@")
        assert name in FAKED, used
        assert re.fullmatch(r"[0-9a-f]{40}", version), f"{used} is not pinned"
        paths = [path for line in given["path"].split() for path in glob.glob(str(cwd / line))]  # noqa: PTH207
        mine = self.cache / github["ref"].replace("/", "_")
        if name == "actions/cache/restore":
            for folder in (mine, self.cache / MAIN.replace("/", "_")):
                if kept := sorted(folder.glob(f"{given['restore-keys']}*"), key=_run_of):
                    shutil.copytree(kept[-1], cwd, dirs_exist_ok=True)
                    break
            return {}
        target = mine / given["key"] if name == "actions/cache/save" else self.artifacts / given["name"]
        top = cwd if name == "actions/cache/save" else Path(os.path.commonpath(paths))
        if name == "actions/cache/save" and target.exists():
            return {}  # with a warning
        shutil.rmtree(target, ignore_errors=True)
        for path in map(Path, paths):
            shutil.copytree(path, target / path.relative_to(top), dirs_exist_ok=True)
        where = f"https://github.example/runs/{github['run_id']}/artifacts/1"
        return {"artifact-url": where} if name == "actions/upload-artifact" else {}


def _values(file: Path) -> dict[str, str]:
    """What a step has written for later ones."""
    return dict(line.split("=", 1) for line in file.read_text(encoding="utf-8").splitlines())


def _run_of(cache: Path) -> int:
    """The run that a cache was written by: of several the newest is restored."""
    return int(cache.name.split("-")[-2])


def github_variables(github: Mapping[str, str]) -> dict[str, str]:
    """The variables of the environment that say the same as ``github``."""
    return {f"GITHUB_{name.upper()}": value for name, value in github.items()}


def filled(text: Any, known: Mapping[str, Any]) -> str:
    """The text with its expressions evaluated."""
    return EXPRESSION.sub(lambda found: str(evaluate(found[1], known)), str(text))


def truth(value: Any) -> bool:
    """Whether a value counts as true in a condition."""
    return value not in ("", False, None, "false", "0")


def evaluate(text: str, known: Mapping[str, Any]) -> Any:
    """The value of an expression of a workflow."""
    tokens = TOKEN.findall(text)
    assert "".join(tokens) == re.sub(r"\s+(?=(?:[^']*'[^']*')*[^']*$)", "", text.strip()), text

    def either() -> Any:
        value = both()
        while tokens[:1] == ["||"]:
            tokens.pop(0)
            other = both()
            value = value if truth(value) else other
        return value

    def both() -> Any:
        value = compared()
        while tokens[:1] == ["&&"]:
            tokens.pop(0)
            other = compared()
            value = other if truth(value) else value
        return value

    def compared() -> Any:
        value = single()
        if tokens[:1] in (["=="], ["!="]):
            equal = tokens.pop(0) == "=="
            return (value == single()) == equal
        return value

    def single() -> Any:
        token = tokens.pop(0)
        if token == "!":
            return not truth(single())
        if token == "(":
            value = either()
            assert tokens.pop(0) == ")"
            return value
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        if token in ("always()", "success()"):
            return True
        if token.startswith("toJSON("):
            return json.dumps(known[token[len("toJSON(") : -1]], indent=2)
        found: Any = known
        for name in token.split("."):
            found = found.get(name, "") if isinstance(found, Mapping) else ""
        return found

    found = either()
    assert not tokens, text
    return found


ACTION = ROOT / "action"
