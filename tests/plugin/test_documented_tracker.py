"""The tracker of docs/trackers.md, with a stand-in for its service's package."""

from __future__ import annotations

import json
import re

from tests.support.places import ROOT
from tests.support.project import Project

STAND_IN = """
import json, pathlib

class SummaryWriter:
    def __init__(self, folder):
        self.folder, self.points = pathlib.Path(folder), []
    def add_scalar(self, name, value, step):
        self.points.append([name, value, step])
    def close(self):
        self.folder.mkdir(parents=True)
        (self.folder / "sent.json").write_text(json.dumps(self.points))
"""


def test_the_documented_tracker_sends_every_number_and_one_that_fails_costs_a_line(project: Project) -> None:
    text = (ROOT / "docs" / "trackers.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 30
    (project.path / "tensorboardX.py").write_text(STAND_IN)
    (project.path / "conftest.py").write_text(code)
    project.pytester.syspathinsert()
    result = project.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["TensorBoard: curves of 1 series"])
    (path,) = (project.path / "tensorboard").rglob("sent.json")
    sent = json.loads(path.read_text())
    (found,) = project.summary["results"]
    assert sent == [[f"sums/{name}", one["value"], 0] for name, one in found["metrics"].items()]
    result = project.run()  # the stand-in refuses to write a folder again
    assert result.ret == 1
    assert len(project.runs) == 2
    result.stdout.fnmatch_lines(["pytest_touchstone_run_finished of conftest.py failed: FileExistsError*"])
