"""The action and the workflow of the documentation are well-formed, and the script does what it says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.places import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "action" / "action.yml").read_text(encoding="utf-8"))


def test_every_input_that_is_used_is_declared_and_described() -> None:
    text = (ROOT / "docs" / "action" / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert all(one["description"] for one in ACTION["inputs"].values())
    assert ACTION["runs"]["using"] == "composite"
    assert all("shell" in one or "uses" in one for one in ACTION["runs"]["steps"])


def test_no_input_stands_in_the_script_itself() -> None:
    (script,) = [one["run"] for one in ACTION["runs"]["steps"] if "run" in one]
    assert "${{" not in script


@pytest.mark.parametrize("code", [0, 8, 9])
def test_the_script_hands_its_inputs_to_pytest_and_its_exit_code_on(tmp_path: Path, code: int) -> None:
    (step,) = [one for one in ACTION["runs"]["steps"] if "run" in one]
    stub = tmp_path / "bin" / "pytest"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/given"\nexit {code}\n')
    stub.chmod(0o755)
    values = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
    values |= {"checkpoint": "runs/a b; touch x", "args": "-k 'real_coref and not x' -q"}
    given = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found[1]], text)
        for name, text in step["env"].items()
    }
    environment = {
        **os.environ,
        **given,
        "PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == code
    assert (tmp_path / "given").read_text().splitlines() == [
        *("evals/", "--checkpoint", "runs/a b; touch x", "--baseline", "best", "--eval-gate-mode", "plain"),
        *("--eval-output", "results", "--eval-markdown", "touchstone.md", "--junitxml", "touchstone.xml"),
        *("-k", "real_coref and not x", "-q"),
    ]
    assert (tmp_path / "output").read_text() == f"exit-code={code}\n"


def test_the_workflow_of_the_readme_uses_the_action_with_inputs_it_has() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    workflow = yaml.safe_load(block)
    steps = workflow["jobs"]["gate"]["steps"]
    (used,) = [one for one in steps if one.get("uses") == "./docs/action"]
    assert set(used["with"]) <= set(ACTION["inputs"])


def test_the_configuration_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    from harness.compare.gate.config import read_gate_config

    text = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(block, encoding="utf-8")
    plan = read_gate_config(tmp_path / "pyproject.toml", required=True)
    assert plan.own("real_coref").floors[0].text == "real@1 >= 0.6"
    assert plan.metrics == ("score",)
