"""``touchstone report``: pages of saved results, in a browser or in files."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from perf.page import make_run
from pytest_touchstone.cli import main
from tests.support.lines import missing
from tests.support.pages import chunk_items, unpacked
from tests.support.places import ROOT

KEPT = ROOT / "tests" / "results" / "kept" / "20261122_041947_5582"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = Path(shutil.copytree(KEPT, "results/kept"))
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**manifest, "rootdir": str(ROOT)}))
    return folder


def test_a_run_gets_a_page_with_its_items(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "kept", "--format", "html"]) == 0
    assert capsys.readouterr().out == "results/kept/report.html\n"
    page = (run / "report.html").read_text()
    texts = [chunk_items(unpacked(one)) for one in re.findall(r'id="texts-\d+-0">(.*?)<', page)]
    (arc, gsm8k, _, _) = texts
    assert len(arc[0]["asked"][0]["choices"]) == 4
    assert "Janet" in gsm8k[0]["asked"][0]["question"]


def test_a_run_that_is_named_twice_and_one_that_is_not_there_are_one_line(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "kept", "results/kept", "--open"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert not missing(line, "kept, results/kept", "twice", "differ")
    assert main(["report", "kep", "--open"]) == 4
    assert "did you mean 'kept'?" in capsys.readouterr().err
    assert main(["report", "kept", "-o", "results"]) == 4
    assert capsys.readouterr().err.startswith("touchstone: cannot write results: ")


@pytest.fixture
def training(run: Path) -> Path:
    """A run with two checkpoints, 100 and 200."""
    return make_run(run.with_name("training"), 24, 2)


def checkpoints_of(page: Path) -> list[str]:
    """The checkpoints that a page has, each with its number of items."""
    (found,) = re.findall(r'id="page-meta">(.*?)</script>', page.read_text())
    meta = json.loads(found)
    items: dict[str, int] = {}
    for part in meta["parts"]:
        name = meta["runs"][part["run"]]["checkpoints"][part["checkpoint"]]["name"]
        items[name] = items.get(name, 0) + part["items"]
    return [f"{name}: {many}" for name, many in items.items()]


def test_a_page_of_one_checkpoint_has_its_items_alone_and_says_so(
    training: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "training#200", "--format", "html"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.parent == Path("results/training")
    assert path.name.startswith("report-model_checkpoint-200")
    assert checkpoints_of(path) == ["model/checkpoint-200: 24"]
    text = path.read_text()
    assert not missing(text, "2 checkpoints of run training", "model/checkpoint-200")
    assert "checkpoint-100" not in text
    assert not (training / "report.html").exists()


def test_checkpoints_of_one_run_or_of_several_stand_side_by_side(
    training: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "training#200", "training#100", "-o", "both.html"]) == 0
    assert checkpoints_of(Path("both.html")) == ["model/checkpoint-200: 24", "model/checkpoint-100: 24"]
    assert (
        ">model/checkpoint-100 (training) against model/checkpoint-200 (training)</h2>"
        in Path("both.html").read_text()
    )
    make_run(training.with_name("again"), 24, 1, seed=3)
    assert main(["report", "last:100", "training#100", "--open"]) == 0
    assert capsys.readouterr().out.endswith("comparison.html\n")
    assert checkpoints_of(Path("comparison.html")) == ["model/checkpoint-100: 48"]


def test_mistakes_about_checkpoints_are_one_line(training: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for targets, said in {
        "training#300": "results/training: no checkpoint '300'; there are: model/checkpoint-100, ",
        "training#model": "results/training: 'model' means 2 checkpoints; say which: model/checkpoint-100, ",
        "trainin#100": "trainin: no such run in results/; did you mean 'training'? ",
        "training#100 training#100": "a checkpoint is named twice; name checkpoints that differ",
        "training training#100": "a checkpoint is part of a run that is named too; leave one out",
    }.items():
        for how in ("--open", "--format=html"):
            assert main(["report", *targets.split(), how]) == 4
            told = capsys.readouterr().err
            assert said in told
            assert told.count("\n") == 1


def test_each_form_can_be_written_to_a_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form, start in (
        ("csv", "checkpoint,"),
        ("latex", "% "),
        ("markdown", "| checkpoint |"),
        ("json", "{"),
    ):
        assert main(["report", "kept", "--format", form]) == 0
        printed = capsys.readouterr().out
        assert main(["report", "kept", "--format", form, "-o", "out/report"]) == 0
        assert capsys.readouterr().out == "out/report\n"
        text = Path("out/report").read_bytes().decode()
        assert text.startswith(start)
        assert text.strip() == printed.strip()


def test_the_page_is_opened_where_there_is_a_display_and_else_prints_its_path(
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
    assert main(["report", "last", "--open"]) == 0
    assert capsys.readouterr().out.endswith("; open results/kept/report.html\n")
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["report", "kept", "--open"]) == 0
    assert capsys.readouterr().out == "results/kept/report.html\n"
    assert opened == [(run / "report.html").resolve().as_uri()]
