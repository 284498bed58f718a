"""``touchstone items``: what was asked and answered, as a person reads it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.cli import main
from pytest_touchstone.compare.formats.run import read_run
from pytest_touchstone.compare.load import read_file
from pytest_touchstone.document.formatting import cell_width
from pytest_touchstone.reports.items import render_item, shorten
from pytest_touchstone.results.item_view import AnswerChoice, ItemView, Question, ResponseView
from pytest_touchstone.results.journal import Journal, read_journal
from tests.support.every_eval_ever_schema import problems
from tests.support.lines import missing
from tests.support.places import ROOT

RUN = ROOT / "tests" / "results" / "kept" / "20261122_041947_5582"


FIRST = ("--benchmark", "gsm8k", "-n", "1")


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def show(*options: str, run: Path = RUN) -> str:
        monkeypatch.setenv("COLUMNS", "80")
        assert main(["items", str(run), "--root", str(ROOT), *options]) == 0
        return capsys.readouterr().out

    return show


def test_choices_are_listed_with_the_chosen_and_the_right_one(shown: Callable[..., str]) -> None:
    text = shown("--benchmark", "arc_easy", "--wrong", "-n", "1")
    assert not missing(text.splitlines()[0], "arc_easy/2", "fake-causal", "wrong", "acc 0")
    assert not missing(text, "1 of 2 wrong items", "-n 2")
    (chosen,) = (line.split() for line in text.splitlines() if "chosen" in line)
    (right,) = (line.split() for line in text.splitlines() if " right " in line)
    assert float(chosen[1]) > float(right[1])
    text = shown("--benchmark", "arc_easy", "--right", "-n", "1")
    assert "chosen right -6.04 Sunlight is" in " ".join(text.split())


def test_a_generated_text_is_shown_with_what_was_read_out_of_it_and_the_gold_answer(
    shown: Callable[..., str],
) -> None:
    text = shown("--benchmark", "gsm8k", "-n", "1")
    for line in (
        "  answer: ended by itself, 104 tokens",
        "  read by strict: nothing",
        "  gold: 18",
        "  row: answer",
    ):
        assert line in text.splitlines()
    assert "characters; --full shows them ...]" in text
    assert "note: of a long question" in text
    assert "--full shows them" not in shown("--benchmark", "gsm8k", "--full")


def test_full_has_the_whole_of_a_question_of_which_the_run_has_kept_the_end(
    shown: Callable[..., str], tmp_path: Path
) -> None:
    (part,), (whole,) = (json.loads(shown(*FIRST, "--format", "json", *more)) for more in ((), ("--full",)))
    kept = next(one for one in read_journal(RUN) if one.example == "gsm8k/0").exchanges[0]["request"]
    (asked,) = whole["asked"]
    assert hashlib.sha256(asked["text"].encode()).hexdigest() == kept["prompt_sha256"]
    assert asked["text"].endswith(kept["prompt"].removeprefix("…"))
    assert (len(part["notes"]), whole["notes"]) == (1, [])
    text = shown(*FIRST, "--full")
    assert " ".join(asked["text"].split()) in " ".join(text.split())
    other = changed(tmp_path, "gsm8k/0", row="another")
    assert "not in the data" in shown(*FIRST, "--full", run=other)


def test_full_has_all_words_for_a_mask_and_all_that_became_of_a_program(
    shown: Callable[..., str], tmp_path: Path
) -> None:
    options = ("--checkpoint", "fake-masked", "-n", "1", "--format", "json")
    (part,), (whole,) = (json.loads(shown(*options, *more)) for more in ((), ("--full",)))
    few, all_ = (one["asked"][0]["choices"] for one in (part, whole))
    assert len(few) < len(all_)
    assert few[:5] == all_[:5]
    (record,) = (one for one in read_journal(RUN) if one.example == "humaneval/0")
    detail = "wrong: " + " ".join(f"word{number}" for number in range(300))
    exchanges = [
        {**one, "answer": {**one["answer"], "detail": detail}} if one["kind"] == "RunProgram" else one
        for one in record.exchanges
    ]
    run = changed(tmp_path, "humaneval/0", exchanges=exchanges)
    assert detail in " ".join(shown("--benchmark", "humaneval", "-n", "1", "--full", run=run).split())
    assert detail not in " ".join(shown("--benchmark", "humaneval", "-n", "1", run=run).split())


def test_a_program_is_shown_with_its_verdict_and_the_row_with_its_tests(shown: Callable[..., str]) -> None:
    text = shown("--benchmark", "humaneval", "-n", "1")
    assert "  verdict: error: IndentationError" in text
    assert "def has_close_elements(" in text
    assert "assert candidate([1.0, 2.0, 3.9," in text


def test_words_for_a_mask_are_shown_with_the_one_that_was_due(shown: Callable[..., str]) -> None:
    text = shown("--checkpoint", "fake-masked", "-n", "1")
    assert "[MASK]" in text
    assert "           right  no token  " in text
    assert all(cell_width(line) <= 80 for line in text.splitlines())


def test_the_data_has_the_same(shown: Callable[..., str]) -> None:
    (item,) = json.loads(shown("--benchmark", "arc_easy", "-n", "1", "--format", "json"))
    assert (item["example"], item["right"], item["scores"]["acc"]) == ("arc_easy/0", True, 1.0)
    (asked,) = item["asked"]
    assert [one["right"] for one in asked["choices"]] == [True, False, False, False]


def changed(tmp_path: Path, example: str = "arc_easy/2", **fields: Any) -> Path:
    run = Path(shutil.copytree(RUN, tmp_path / "run"))
    with Journal(run, "zz") as journal:
        for record in read_journal(RUN):
            if record.example == example:
                journal.append(
                    type(record)(**{**{n: getattr(record, n) for n in record.__slots__}, **fields})
                )
    return run


def test_a_row_that_has_changed_is_a_note_and_no_guess(shown: Callable[..., str], tmp_path: Path) -> None:
    text = shown("--benchmark", "arc_easy", "--wrong", "-n", "2", run=changed(tmp_path, row="another"))
    first, _, second = text.partition("\n\n")
    assert not missing(first, "note", "not in the data")
    assert not re.search("^ .* right +-", first, re.MULTILINE)
    assert re.search("^ .* right +-", second, re.MULTILINE)


def test_items_in_error_have_their_message(shown: Callable[..., str], tmp_path: Path) -> None:
    run = changed(tmp_path, status="error", scores={}, message="RequestError: too long\nby 3")
    text = shown("--error", run=run)
    assert text.startswith("arc_easy/2 of fake-causal: error\n")
    assert "  RequestError: too long\n  by 3\n" in text
    assert text.endswith("1 of 1 failed item\n")
    assert shown("--invalid") == "no invalid item\n"


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (["nowhere"], "nowhere: no such run in results/; `touchstone runs` shows them"),
        (
            [str(RUN), "--benchmark", "arc_esy"],
            "--benchmark arc_esy: not in this run; did you mean 'arc_easy'?",
        ),
        (
            [str(RUN), "--checkpoint", "x"],
            "--checkpoint x: not in this run; there are fake-causal, fake-masked",
        ),
        ([str(RUN), "-n", "0"], "invalid -n '0': expected a whole number from 1 up"),
    ],
    ids=str,
)
def test_a_wrong_name_is_one_line(
    given_: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["items", *given_]) == 4
    assert capsys.readouterr().err == f"touchstone: {said}\n"


@given(st.text(), st.text(), st.integers(40, 120))
def test_no_line_of_text_or_choice_is_wider_than_the_terminal(text: str, choice: str, width: int) -> None:
    view = ItemView(
        example="a/0",
        benchmark="a",
        checkpoint="c",
        group=None,
        status="scored",
        scores={},
        right=None,
        message=text or None,
        asked=(
            Question(
                "choices", text, (AnswerChoice(choice, -1.0, chosen=True),), (ResponseView(text, "done"),)
            ),
        ),
    )
    lines = render_item(view, width).split("\n")
    assert all(cell_width(line) <= width for line in lines if line.isprintable())


@given(st.text(max_size=3000))
def test_a_long_text_keeps_its_ends_and_says_how_much_is_left_out(text: str) -> None:
    short = shorten(text)
    if short != text:
        assert short.startswith(text[:300])
        assert short.endswith(text[-300:])
        assert f"[... {len(text) - 600} characters;" in short


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
    assert "16 items without the row" in capsys.readouterr().out
    (tmp_path / "file").touch()
    assert main(["export", str(RUN), "--no-samples", "-o", str(tmp_path / "file")]) == 4
    assert "; give another -o DIR" in capsys.readouterr().err


def test_a_run_goes_to_every_eval_ever_with_its_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = exported(tmp_path, "--format", "every-eval-ever", "--root", str(ROOT))
    assert "to publish: give --model-id ORG/NAME" in capsys.readouterr().out
    assert [*problems(tmp_path)] == []
    written = [json.loads(path.read_text(encoding="utf-8")) for path in files if path.suffix == ".json"]
    scores = {
        (content["model_info"]["name"], result["evaluation_result_id"]): result["score_details"]["score"]
        for content in written
        for result in content["evaluation_results"]
        if "part_of" not in result["score_details"]["details"]
    }
    assert scores == {
        (candidate.name, f"{name}#{metric.name}"): metric.value
        for candidate in read_run(RUN)
        for name, entry in candidate.entries.items()
        for metric in entry.saved.metrics.values()
        if metric.value is not None
    }


def test_one_of_several_checkpoints_goes_to_its_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = exported(
        tmp_path / "one", "--format", "hub", "--checkpoint", "fake-causal", "--model-id", "org/a"
    )
    assert [path.name for path in files] == [
        "README.md"
    ]  # a run of a version that named no datasets of the Hub
    assert "nothing was sent" in capsys.readouterr().out
    several = exported(tmp_path / "two", "--format", "hub")
    assert [path.parent.name for path in several] == ["fake-causal", "fake-masked"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model-id", "org/a"), "--model-id org/a: the run has 2 checkpoints; say which with --checkpoint"),
        (
            ("--checkpoint", "fake-causal", "--model-id", "../a"),
            "invalid --model-id '../a': expected ORG/NAME",
        ),
        (("--source", "file:///x"), "invalid --source 'file:///x'"),
        (
            ("--checkpoint", "fake-casual"),
            "--checkpoint fake-casual: not in this run; did you mean 'fake-causal'?",
        ),
    ],
)
def test_a_mistake_of_an_export_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    assert main(["export", str(RUN), "-o", str(tmp_path / "x"), "--format", "hub", *options]) == 4
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
