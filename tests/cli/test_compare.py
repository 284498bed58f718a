"""``touchstone compare`` and ``touchstone baseline import``, from the command line to what is printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from tests.support.installed import run_python
from tests.support.korean_table import row, write
from tests.support.lines import missing
from tests.support.project import ALONE
from tests.support.runs import run

ROWS = (
    row("plain", 390, real1="0.6604", real5="0.8158", lambada="0.3433", score="0.6152"),
    row("mixed", 1188, real1="0.6613", real5="0.8163", lambada="0.3533"),
    row("ft", 1600, real1="0.6778", real5="0.8244", lambada="0.3767", seq_len="2048", sizes="3200,600"),
    row("great", 5, real1="0.9000", real5="0.9500", lambada="0.3433"),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with a terminal of 140 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    return tmp_path


@pytest.fixture
def table(here: Path) -> str:
    """A table of four checkpoints, of which the first has a wrong composite."""
    return write(here / "checkpoints.csv", *ROWS).name


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What the command prints; of a mistake its one line."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    if code:
        assert (out, err.count("\n")) == ("", 1)
    return err if code else out


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(capsys, *arguments, "--format", "json"))
    return found


# compare


def test_two_rows_of_a_table_within_noise_cannot_be_told(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "compare", f"{table}#plain/390", f"{table}#mixed/1188")
    assert not missing(text, "plain/1536/checkpoint-390", "line 2", "step 390", "epoch 3.9", "1536 tokens")
    nothing = re.findall("^(.+?)  +none$", text, re.MULTILINE)
    assert nothing == ["improvements", "regressions", "not worse"]
    assert re.search(r"^inconclusive +real_coref: \+0\.09", text, re.MULTILINE)
    assert not missing(text, "score test of two shares", "Newcombe interval")


def test_rows_of_other_lengths_have_their_unpaired_p_and_interval(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "compare", f"{table}#plain", f"{table}#ft")
    (line,) = [line for line in text.splitlines() if line.startswith("real_coref ")]
    cells = ("+1.74", "[-0.75, +4.24]", "+2.6 %", "0.170", "2400/3200", "-", "not worse")
    assert tuple(line.split("  ")[-1:]) == ("not worse",)
    assert all(cell in line for cell in cells)
    assert not missing(text, "not asked alike", "seq_len 1536 and 2048", "2 benchmarks")


@pytest.mark.parametrize(
    "words", [("ko", "벤치마크", "95 % 신뢰 구간", "저하 없음"), ("zh", "基准", "95 % 置信区间", "未变差")]
)
@pytest.mark.parametrize("columns", ["80", "140"])
def test_a_comparison_in_another_language_has_the_same_numbers_and_names(
    table: str,
    words: tuple[str, ...],
    columns: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    what = ("compare", f"{table}#plain", f"{table}#ft")
    english = printed(capsys, *what)
    text = printed(capsys, *what, "--language", words[0])
    assert all(word in text for word in words[1:])
    numbers = r"[+-]?\d(?:[\d,.]*\d)?|real_\w+|ko_\w+|checkpoint-"
    assert sorted(re.findall(numbers, text)) == sorted(re.findall(numbers, english))
    assert printed(capsys, *what) == english


def test_a_language_that_there_is_not_is_a_mistake_and_so_is_one_of_json(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ("compare", f"{table}#plain", f"{table}#ft", "--language")
    text = printed(capsys, *what, "fr", code=4)
    assert all(part in text for part in ("--language", "'fr'", "en", "ko", "zh"))
    assert "--language ko: is for text" in printed(capsys, *what, "ko", "--format", "json", code=4)


def test_several_are_each_compared_with_the_first(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, "compare", *(f"{table}#{name}" for name in ("plain", "mixed", "great")))
    assert [pair["baseline"]["series"] for pair in found["pairs"]] == ["plain", "plain"]
    assert [pair["improvements"] for pair in found["pairs"]] == [[], ["real_coref"]]
    assert found["pairs"][1]["mean"]["points"] == pytest.approx((23.96 + 0) / 2)


def test_several_say_what_they_are_compared_with_and_how_another_is_chosen(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["plain/1536/checkpoint-390", "mixed/1536/checkpoint-1188", "great/1536/checkpoint-5"]
    what = [f"{table}#{name}" for name in names]
    assert main(["compare", *what]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert not missing(first, "each of 2", names[0], f"--against {names[1]}")
    assert main(["compare", *what, "--against", names[2]]) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("A  ")] == [names[2]] * 2
    assert [line.split()[1] for line in out.splitlines() if line.startswith("B  ")] == names[:2]
    assert main(["compare", *what, "--against", "nothing"]) == 4
    assert not missing(capsys.readouterr().err, "--against", "'nothing'", names[0])
    assert main(["compare", *what[:2]]) == 0
    assert "--against" not in capsys.readouterr().out


def test_two_runs_are_compared_item_by_item(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(here / "results", "one", "base", when=1)
    run(here / "results", "two", "tuned", seed=3, when=2)
    found = facts(capsys, "compare", "one", "two")
    lines = {(line["benchmark"], line["metric"]): line for line in found["pairs"][0]["benchmarks"]}
    line = lines["winogrande", "acc"]
    assert (line["paired"], line["n"], line["level"]) == (True, 24, 0.95)
    assert line["gained"] - line["lost"] == pytest.approx(24 * line["difference"])
    assert ("real_coref", "real@5") in lines
    assert found == facts(capsys, "compare")  # the two newest runs
    text = printed(capsys, "compare", "one", "two")
    assert not missing(text, "A base run one", "step 100", "epoch 1", "512 tokens")
    assert f"+{line['gained']} -{line['lost']}" in text


def test_flips_are_printed_with_their_ids_also_where_answers_are_gone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(here / "results", "one", "base", when=1)
    run(here / "results", "two", "tuned", seed=3, when=2)
    text = printed(capsys, "compare", "one", "two", "--show-flips", "2")
    assert len(re.findall("^gained +winogrande/", text, re.MULTILINE)) == 2
    assert len(re.findall("^lost +winogrande/", text, re.MULTILINE)) == 2
    (pair,) = facts(capsys, "compare", "one", "two", "--show-flips", "1")["pairs"]
    assert [flip["gained"] for flip in pair["benchmarks"][0]["flips"]] == [True, False]


def test_markdown_is_printed_instead(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "compare", f"{table}#plain", f"{table}#great", "--format", "markdown")
    assert text.startswith("## great/1536/checkpoint-5 against plain/1536/checkpoint-390\n")
    assert not missing(text, "0.6604 | 0.9000 | +23.96", "(+36.3 %)")


def test_a_margin_and_another_alpha_are_obeyed(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = (f"{table}#plain", f"{table}#great")
    assert facts(capsys, "compare", *names, "--margin", "0.3")["pairs"][0]["improvements"] == []
    (pair,) = facts(capsys, "compare", *names, "--alpha", "0.1")["pairs"]
    assert pair["benchmarks"][0]["level"] == pytest.approx(0.9)
    assert "90 % interval" in printed(capsys, "compare", *names, "--alpha", "0.1")


def test_sizes_that_a_file_does_not_give_come_from_the_option(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "t.csv", "a,0.5", "b,0.9", header="checkpoint,real1")
    bare = printed(capsys, "compare", "t.csv#a", "t.csv#b")
    assert not missing(bare, "--items real_coref=N")
    found = facts(capsys, "compare", "t.csv#a", "t.csv#b", "--items", "real=400")
    assert found["pairs"][0]["improvements"] == ["real_coref"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["nothing", "here"],
            "nothing: no such file, run or checkpoint with results in results/; there are: none",
        ),
        (
            ["checkpoints.csv", "checkpoints.csv#ft"],
            "has 4 checkpoints; say which, as checkpoints.csv#plain/",
        ),
        (["checkpoints.csv#nobody", "checkpoints.csv#ft"], "no checkpoint 'nobody'; there are: "),
        (["checkpoints.csv#ft"], "is one checkpoint, ft/2048/checkpoint-1600; name another"),
        ([], "0 runs in results/; name two"),
        (
            ["checkpoints.csv#ft", "checkpoints.csv#plain", "--margin", "5"],
            "invalid --margin '5': expected a number from 0, and below 1",
        ),
        (
            ["checkpoints.csv#ft", "checkpoints.csv#plain", "--alpha", "0"],
            "invalid --alpha '0': expected a number above 0",
        ),
        (
            ["checkpoints.csv#ft", "checkpoints.csv#plain", "--show-flips", "x"],
            "invalid --show-flips 'x': expected a whole number",
        ),
        (
            ["checkpoints.csv#ft", "checkpoints.csv#plain", "--items", "x"],
            "invalid --items 'x': expected BENCHMARK=N",
        ),
        (
            ["checkpoints.csv#ft", "checkpoints.csv#plain", "--metric", "f1"],
            "no benchmark has the metric 'f1'",
        ),
        (["broken.json", "checkpoints.csv#ft"], "broken.json: not valid JSON"),
        (["notes.txt", "checkpoints.csv#ft"], "notes.txt: no results file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_four(
    table: str, here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    (here / "broken.json").write_text("{", encoding="utf-8")
    (here / "notes.txt").write_text("x", encoding="utf-8")
    assert said in printed(capsys, "compare", *arguments, code=4)


# import


def test_an_import_names_what_is_wrong_and_makes_the_rows_known_by_name(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "t.csv", *ROWS, row("bad", 7, real1="66.0"))
    text = printed(capsys, "baseline", "import", "t.csv")
    assert not missing(text.splitlines()[0], 4, "t.csv", "results/saved/", "real_coref, ko_lambada")
    assert not missing(text, "plain/1536/checkpoint-390: score", "0.6152", "0.6119", "+0.33 points")
    assert not missing(text, "1 row that cannot be", "line 6", "real1: '66.0'", "from 0 to 1")
    assert "inconclusive  ko_lambada" in printed(capsys, "compare", "plain/390", "mixed/1188")


def test_an_import_as_json_has_the_same_content(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, "baseline", "import", table)
    assert [one["name"] for one in found["imported"]][:2] == [
        "plain/1536/checkpoint-390",
        "mixed/1536/checkpoint-1188",
    ]
    assert found["imported"][0]["metrics"]["real_coref:real@1"] == 0.6604
    assert [one["name"] for one in found["contradictions"]] == ["plain/1536/checkpoint-390"]
    assert found["not_read"] == []


def test_an_import_says_of_what_the_number_of_items_is_missing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "t.csv", "a,0.5", header="checkpoint,real1")
    assert not missing(printed(capsys, "baseline", "import", "t.csv"), "real_coref", "--items NAME=N")
    assert "not known" not in printed(capsys, "baseline", "import", "t.csv", "--items", "real_coref=400")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("checkpoint,real1\na,5\n", "nothing could be read; line 2, real1: '5': give a share"),
        ("checkpoint,real1\n", "nothing could be read; it has no results"),
        ("x,y\n", "has none of the columns"),
        (None, "t.csv: no such file"),
    ],
)
def test_a_file_with_nothing_to_import_is_a_mistake(
    here: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    if content is not None:
        (here / "t.csv").write_text(content, encoding="utf-8")
    assert said in printed(capsys, "baseline", "import", "t.csv", code=4)
    assert not (here / "results").exists()


# With pytest

BENCHMARK = """
from pytest_touchstone import Loglikelihood, Shots, benchmark


@benchmark(name="sums", version=1, data="sums/test", asks=Loglikelihood, primary="acc",
           shots=Shots(shot=lambda row: row["q"]))
def test_sums(example, fewshot):
    '''Which of two sums is likelier.'''
    right, wrong = yield [Loglikelihood(fewshot.text + example["q"], " " + option) for option in example["options"]]
    return {"acc": right.logprob > wrong.logprob}
"""


def test_runs_of_pytest_are_compared_with_questions_and_answers(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "test_sums.py").write_text(BENCHMARK, encoding="utf-8")
    (here / "data" / "sums").mkdir(parents=True)
    rows = [{"q": f"{n}+1=", "options": [str(n + 1), f"{n} wrong"]} for n in range(40)]
    lines = "".join(json.dumps(one) + "\n" for one in rows)
    (here / "data" / "sums" / "test.jsonl").write_text(lines, encoding="utf-8")
    for run_id, shots in (("none", "0"), ("two", "2")):
        common = ["--checkpoint", "fake:causal", "--eval-data", "data", *ALONE, "-q"]
        given = ["test_sums.py", *common, "--eval-run-id", run_id, "--eval-shots", shots]
        done = run_python("-m", "pytest", *given, cwd=here)
        assert done.returncode == 0, done.stdout + done.stderr
    assert main(["compare", "none", "two", "--show-flips", "1"]) == 0
    text = capsys.readouterr().out
    assert "A  fake-causal (run none)" in text
    assert not missing(text, "not asked alike", "shots 0 and 2")
    shown = [line.split() for line in text[text.index("\ngained ") + 1 :].splitlines()]
    number = int(shown[0][1].removeprefix("sums/"))
    assert shown[1][-1] == f"{number}+1="
    assert shown[2:5] == [["A", f"{number}", "wrong"], ["B", f"{number + 1}"], ["gold", f"{number + 1}"]]


def test_letters_that_the_output_has_not_are_a_mistake(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    write(here / "checkpoints.csv", *ROWS)
    command = "import sys; from pytest_touchstone.cli import main; sys.exit(main(sys.argv[1:]))"
    what = ["compare", "checkpoints.csv#plain", "checkpoints.csv#ft", "--language", "ko"]
    # A fork keeps the encoding that it began with.
    done = subprocess.run(
        [sys.executable, "-c", command, *what], cwd=here, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert not missing(line, "ascii", "PYTHONIOENCODING=utf-8")
