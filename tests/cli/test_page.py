"""``touchstone page`` and ``touchstone view``: pages of saved results."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from harness.cli import main
from harness.reports.page.items import unpacked
from tests.support.places import ROOT

FORMER = ROOT / "tests" / "results" / "former_version" / "20261122_041947_5582"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(FORMER, "results/former"))
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**manifest, "rootdir": str(ROOT)}))
    return folder


def test_a_run_of_a_former_version_gets_a_page_with_what_its_benchmarks_tell(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["page", "former"]) == 0
    assert capsys.readouterr().out == "results/former/report.html\n"
    page = (run / "report.html").read_text()
    texts = [unpacked(one) for one in re.findall(r'id="texts-\d+-0">(.*?)<', page)]
    (arc, gsm8k, _, _) = texts
    assert [one["right"] for one in arc[0]["asked"][0]["choices"]] == [True, False, False, False]
    assert gsm8k[0]["gold"] == "18"


def test_a_run_that_is_named_twice_and_one_that_is_not_there_are_one_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["page", "former", "results/former"]) == 4
    told = capsys.readouterr().err
    assert told == "touchstone: former, results/former: a run is named twice; name runs that differ\n"
    assert main(["page", "formr"]) == 4
    assert "did you mean 'former'?" in capsys.readouterr().err
    assert main(["page", "former", "-o", "results"]) == 4
    assert capsys.readouterr().err.startswith("touchstone: cannot write results: ")


def test_view_opens_the_page_where_there_is_a_display_and_else_prints_its_path(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def note(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", note)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["view", "last"]) == 0
    assert capsys.readouterr().out == "no browser could be started; open results/former/report.html\n"
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["view", "former"]) == 0
    assert capsys.readouterr().out == "results/former/report.html\n"
    assert opened == [(run / "report.html").resolve().as_uri()]
