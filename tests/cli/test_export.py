"""``touchstone export``: a saved run as the files of another program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.compare.load import read_file
from tests.support.places import ROOT

RUN = ROOT / "tests" / "results" / "former_version" / "20261122_041947_5582"


def exported(folder: Path, *options: str) -> list[Path]:
    assert main(["export", str(RUN), "-o", str(folder), *options]) == 0
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_saved_run_has_its_rows_and_whole_prompts_in_the_samples(tmp_path: Path) -> None:
    files = exported(tmp_path, "--root", str(ROOT))
    (gsm8k,) = (path for path in files if "samples_gsm8k_" in path.name)
    line = json.loads(gsm8k.read_text(encoding="utf-8").splitlines()[0])
    assert line["doc"]["question"] in line["arguments"]["gen_args_0"]["arg_0"]
    assert len(line["arguments"]["gen_args_0"]["arg_0"]) > 1000
    assert line["target"] == "18"


def test_totals_alone_have_the_values_of_the_run(tmp_path: Path) -> None:
    files = exported(tmp_path, "--no-samples")
    assert [path.parent.name for path in files] == ["fake-causal", "fake-masked"]
    summary = json.loads((RUN / "summary.json").read_text(encoding="utf-8"))
    ours = {
        (one["checkpoint"], one["benchmark"]): one["metrics"][one["primary"]]["value"]
        for one in summary["results"]
        if one["group"] is None
    }
    back = [candidate for path in files for candidate in read_file(path, {}).candidates]
    theirs = {
        (one.name, name): entry.saved.metrics[entry.saved.primary].value
        for one in back
        for name, entry in one.entries.items()
    }
    assert theirs
    assert theirs.items() <= ours.items()


def test_rows_that_cannot_be_had_are_counted_and_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(tmp_path / "x", "--data", str(tmp_path))
    assert "16 items without the row, and with the end of long prompts alone" in capsys.readouterr().out
    (tmp_path / "file").touch()
    assert main(["export", str(RUN), "--no-samples", "-o", str(tmp_path / "file")]) == 4
    assert "; give another folder with -o" in capsys.readouterr().err
