"""``touchstone study``, from the command line to what is printed and written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from tests.support.lines import missing
from tests.support.published import published
from tests.support.runs import run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What the command prints; of a mistake its one line."""
    assert main(["study", *arguments]) == code
    out, err = capsys.readouterr()
    if code:
        assert (out, err.count("\n")) == ("", 1)
    return err if code else out


def test_the_published_study_fits_two_screens_and_ends_with_the_advice_and_the_rest(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(capsys, published(here).name).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 80
    text = " ".join(" ".join(lines).split())
    for told in (
        "33 checkpoints in 5 series, 4 measures",
        "20 of 33 checkpoints have a composite in the data that does not follow from the",
        "66.04 [64.12, 67.91] at 3 ~",
        "curves 1 of 49 changes of curves: Real@1 of combined/1536, trend per epoch +0.97 "
        "[+0.37, +1.57] (only totals are known: taken as runs on different items)",
        "early_stopping none of 12 drops from a peak",
        "forgetting no evidence: item scores are missing",
        "noise none tells series apart; too few items: Real@1, LAMBADA@1, score",
        "E entity_ft ? 3,000 ? 3,800 ? 3,000 ? 3,800",
        "go on from entity_ft/2048/checkpoint-1600: score 63.14 %, the highest measured",
        "type touchstone run --tasks real_coref,ko_lambada \\ --checkpoint 'runs/NEW/checkpoint-*'",
    ):
        assert told in text
    assert not missing(text, "More: -v", "-o DIR", "--section NAME[,NAME]")
    assert text.endswith("noise, matrix, advice.")


def test_series_are_held_against_each_other_epoch_by_epoch_and_in_a_closing_matrix(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = published(here).name
    lines = [line.split() for line in printed(capsys, name, "--section", "between").splitlines()]
    table = lines.index(
        ["Real@1", "at", "equal", "epochs:", "the", "mean", "difference,", "second", "less", "first"]
    )
    assert lines[table + 2][:6] == ["mlm_v2/1536", "mlm_v2/2048", "0.5", "to", "4.5", "(9)"]
    assert lines[table + 4] == ["1", "+0.51"]
    assert lines[table + 6] == ["2", "+0.50"]
    assert ["Real@5:", "the", "best", "of", "each", "series,", "gaps", "in", "points"] in lines
    lines = [line.split() for line in printed(capsys, name, "--section", "matrix").splitlines()]
    head = ["series", "beginning", "best", "speed", "stability", "efficiency", "better", "worse"]
    assert head in lines
    assert ["combined/1536", "62.92", "%", "66.75", "%", "3", "0.96", "+0.97", "0", "0"] in lines
    matrices = json.loads(printed(capsys, name, "--section", "matrix", "--format", "json"))["matrix"]
    (matrix,) = (one for one in matrices if one["measure"] == "real_coref:real@1")
    first = matrix["at_a_glance"][0]
    assert (first["series"], first["beginning"], first["best"]) == ("mlm_v2/1536", 0.6558, 0.6604)


def test_a_checkpoint_is_named_by_its_path_where_its_results_lie_beside_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (5, 10):
        path = here / f"runs/a/checkpoint-{step}_eval_results.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"checkpoint": f"runs/a/checkpoint-{step}", "real1": step / 100}))
    (here / "runs/a/checkpoint-10").mkdir()
    assert "2 checkpoints in 1 series" in printed(capsys, "runs/a/checkpoint-5", "runs/a/checkpoint-10/")


def test_a_section_is_shown_by_its_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(
        capsys, published(here).name, "--section", "best,faults_of_data,checkpoints,early_stopping"
    )
    assert max(map(len, text.splitlines())) <= 80
    for line in (
        "33 checkpoints in 5 series, 4 measures",
        "Real@1     entity_ft/2048/checkpoint-1600  67.78 %  [66.14, 69.38]  epoch 2.84",
        "20 of 33 checkpoints have a composite in the data that does not follow from the",
        "checkpoint-390   390      3   66.04*    81.58       34.33   61.19",
        "mlm_v2/1536    66.04 at 3    64.67 at 5  -1.37  [-4.06, +1.32]  64.54   1.000",
        "mlm_v2/2048  65.31 at 0.5  64.53 at 4.5  -0.78  [-3.12, +1.56]  64.11   1.000",
    ):
        assert line in text
    assert "8 of the curves" in text
    assert "Series against series" not in text
    found = json.loads(
        printed(capsys, "checkpoints.csv", "--section", "advice", "--section", "noise", "--format", "json")
    )
    assert {"noise", "advice"} == {"noise", "advice", "matrix", "curves", "best"} & set(found)


def test_details_fit_the_terminal_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, published(here).name, "-v")
    assert max(map(len, text.splitlines())) <= 80
    assert "[64.12, 67.91]" in text


def test_json_markdown_and_files_say_the_same(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = published(here).name
    found = json.loads(printed(capsys, table, "--format", "json", "-o", "written"))
    (curve,) = (
        one
        for one in found["curves"]
        if (one["series"], one["measure"]) == ("mlm_v2/1536", "real_coref:real@1")
    )
    assert (curve["peak"]["at"], curve["peak"]["value"]) == (3.0, 0.6604)
    assert curve["drop"]["verdict"] == "not more than noise"
    assert len(found["faults_of_data"]["contradictions"]) == 20
    assert json.loads((here / "written" / "study.json").read_text()) == found
    page = printed(capsys, table, "--format", "markdown")
    written, _, pictures = (here / "written" / "study.md").read_text().partition("\n## Pictures\n")
    assert written == page
    shown = re.findall(r"\[!\[[^]]+\]\(([^)]+\.png)\)\]\(([^)]+\.svg)\)", pictures)
    drawn = {path.name for path in (here / "written").glob("*.png")}
    assert {png for png, _ in shown} == drawn != set()
    assert all((here / "written" / svg).is_file() for _, svg in shown)
    assert "| **66.04** |" in page


def test_runs_of_a_results_folder_are_the_default(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, name in enumerate(("checkpoint-100", "checkpoint-200")):
        run(here / "results", name, name, seed=seed)
    assert "2 checkpoints" in printed(capsys)


def test_what_is_known_of_series_is_shown_and_what_is_not_is_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "pyproject.toml").write_text('[tool.touchstone.series.mlm_v2]\ndata = "KLUE"\n')
    text = printed(capsys, published(here).name, "--section", "best")
    assert "mlm_v2/1536    KLUE" in text
    assert not missing(text, "Not known: data of", "combined/1536, combined/2048, entity_ft", "method of all")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "nothing: no such run, file, folder or pattern of them, nor in results/"),
        ([], "results: no such run"),
        (["checkpoints.csv", "--items", "nope=3"], "--items: no benchmark 'nope'"),
        (["checkpoints.csv#step-7"], "no checkpoint 'step-7'"),
        (["checkpoints.csv", "--section", "curve"], "invalid --section 'curve': did you mean 'curves'?"),
        (
            ["checkpoints.csv", "--section", ""],
            "this study has the sections best, faults_of_data, checkpoints",
        ),
    ],
)
def test_mistakes_are_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    published(here)
    assert said in printed(capsys, *arguments, code=4)


@pytest.mark.parametrize("language", ["ko", "zh"])
def test_commands_in_another_language_leave_no_english_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], language: str
) -> None:
    """Names, options and commands stay; three English words in a row are a text that no catalogue has."""
    run(here / "results", "one", "checkpoint-100", "checkpoint-200", seed=1, when=1000)
    run(here / "results", "two", "checkpoint-100", seed=5, when=2000)
    table = published(here).name
    for words in (
        ["study", table, "-v", "--all-metrics"],
        ["study", "one", "two", "-v"],
        ["compare", "one#checkpoint-100", "one#checkpoint-200", "two", "--show-flips", "1"],
        ["report", "one", "-v"],
        ["best", "one", "two"],
        ["best", table],
    ):
        assert main([*words, "--language", language]) == 0
        text = re.sub(r"--section NAME.*|touchstone \w+ .*|et al\.", "", capsys.readouterr().out)
        assert not re.findall(r"[a-z']{2,} [a-z']{2,} [a-z']{2,}", text), words


def test_best_as_json_has_what_the_choice_costs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(here / "results", "one", *(f"checkpoint-{step}" for step in (100, 200, 300)), seed=1, when=1000)
    assert main(["best", "one", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cost"]
    for one in found["cost"]:
        assert one["low"] <= one["expected"] <= one["measured"] <= one["high"]
        assert one["luck"] == pytest.approx(one["measured"] - one["expected"])


@pytest.mark.parametrize("place", ["0", "-3", "nan", "inf", "last"])
def test_only_a_step_or_an_epoch_can_be_forecast(
    here: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    assert main(["study", published(here).name, f"--forecast={place}"]) == 4
    assert not missing(capsys.readouterr().err, "--forecast", f"'{place}'", "epoch")
