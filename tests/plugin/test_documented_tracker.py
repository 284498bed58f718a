"""The tracker of docs/trackers.md, with a stand-in for its service's package."""

from __future__ import annotations

import json
import re

from tests.support.places import ROOT
from tests.support.project import Project

STAND_IN = """
import json, pathlib

class Error(Exception): pass

class Run:
    def __init__(self, **about):
        self.about, self.steps = about, []
    def log(self, numbers, *, step):
        self.steps.append([step, numbers])
    def __enter__(self):
        return self
    def __exit__(self, *_):
        told = {"about": self.about, "steps": self.steps}
        pathlib.Path("sent.json").write_text(json.dumps(told, default=str))

def init(**about):
    if pathlib.Path("down").exists():
        raise Error("no answer")
    return Run(**about)
"""


def test_the_documented_tracker_sends_every_number_and_a_service_that_is_down_costs_a_line(
    project: Project,
) -> None:
    text = (ROOT / "docs" / "trackers.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 30
    (project.path / "wandb.py").write_text(STAND_IN)
    (project.path / "conftest.py").write_text(code)
    project.pytester.syspathinsert()
    result = project.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["W&B: 1 curves"])
    sent = json.loads((project.path / "sent.json").read_text())
    (found,) = project.summary["results"]
    values = {f"sums/{name}": one["value"] for name, one in found["metrics"].items()}
    assert sent["steps"] == [[0, values]]
    assert sent["about"]["config"]["seed"] == 1234
    (project.path / "down").touch()
    result = project.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["warning: W&B has not all of this run: no answer"])
