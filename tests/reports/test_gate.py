"""Reports of a gate say the same everywhere, and no name in them becomes a command, a link or a tag."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.baselines import BaselineSource
from pytest_touchstone.compare.gate.config import GateConfig
from pytest_touchstone.compare.gate.decide import cases_of, decide
from pytest_touchstone.compare.gate.result import gate_json, shown_lines
from pytest_touchstone.core.text import escape_ci_commands
from pytest_touchstone.document import formatting
from pytest_touchstone.reports import ci
from pytest_touchstone.reports.gate import decision_text
from pytest_touchstone.reports.pages import run_page
from pytest_touchstone.reports.terminal import render
from pytest_touchstone.results.summary import Summary, summary_from_json, summary_json
from tests.support.entries import entry, right, source
from tests.support.lines import missing
from tests.support.summaries import sample

EVIL = "::error::x|`]<b>@all %0A\n::warning::y"


def summary(
    checkpoint: str = "new", *, mode: str | None = "plain", best: int = 8, count: int = 150
) -> Summary:
    """A run whose gate has found its only benchmark worse than the best of several."""
    draw = [entry(right(200 + n, 400), checkpoint=f"old{n}", benchmark="winogrande") for n in range(best)]
    mine = entry(right(count, 400), checkpoint=checkpoint, benchmark="winogrande", run_id="now", began=9.0)
    where = source(*draw) if draw else BaselineSource(name="best", kind="best")
    gate = decide(cases_of([mine], []), where, GateConfig(mode=mode))
    return replace(sample(benchmarks=["winogrande"]), gate=gate_json(gate, decision_text(gate)))


def test_the_terminal_shows_verdict_numbers_both_baselines_and_last_the_decision() -> None:
    short, text = (render(summary(), 100, color=False, details=details) for details in (False, True))
    words = " ".join(text.split())
    for shown in (short, text):
        assert "worse winogrande acc 0.3750, -14.02 [" in " ".join(shown.split())
        assert re.search(
            r"old7 of run run-old7, best of 8: 0\.5175 as measured \(-14\.25 points\), 0\.51\d\d after allowing",
            " ".join(shown.split()),
        )
    assert words.endswith("gate failed (exit code 8): winogrande acc is worse (-14.02 points)")
    assert max(map(len, short.splitlines()[:-1])) <= 100


def test_a_run_without_a_gate_says_nothing_of_one() -> None:
    plain = sample()
    assert plain.gate is None
    assert "gate" not in render(plain, 100, color=False)
    assert "<h2>Gate" not in run_page(plain)
    assert ci.gate_commands(plain) == []


def test_the_gate_stays_in_the_summary_and_is_shown_again() -> None:
    found = summary_from_json(summary_json(summary()))
    assert found.gate == summary().gate
    assert render(found, 90, color=False) == render(summary(), 90, color=False)


def test_the_page_has_the_gate_with_names_escaped() -> None:
    page = run_page(summary(EVIL))
    assert ">Gate</h2>" in page
    assert "<b>@all" not in page


def test_markdown_has_the_decision_the_verdicts_and_the_scores() -> None:
    text = ci.markdown_page(summary())
    assert re.search(r":x: \*\*gate failed .*8\): winogrande acc", text)
    (row,) = [line for line in text.splitlines() if line.startswith("| **worse** | new |")]
    assert not missing(row, "winogrande acc", "0.3750")
    assert re.search(r"\*\*checkpoint-100 .*\n\n.*\n.*\n\| winogrande 5-shot \|", text)


def test_markdown_of_more_results_than_a_comment_holds_has_a_row_per_checkpoint() -> None:
    few, many = (ci.markdown_page(sample(count, faults=False)) for count in (16, 24))
    assert few.count("| metric | value |") == 16
    assert "metric | value" not in many
    assert len(re.findall(r"^\| checkpoint-\d+ \|", many, re.MULTILINE)) == 24


def test_a_name_in_markdown_neither_formats_nor_mentions_nor_ends_anything() -> None:
    text = ci.markdown_page(summary(EVIL))
    assert "<b>" not in re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)  # but for spans of code
    assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
    rows = [line for line in text.splitlines() if line.startswith("| **worse**")]
    assert len(rows) == 1
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 8


@given(st.text(max_size=30))
def test_a_code_span_is_one_line_that_its_text_cannot_end(text: str) -> None:
    span = formatting.markdown_code(text)
    assert len(span.splitlines()) == 1
    fence = re.match("`+", span)
    assert fence is not None
    assert span.endswith(fence[0])
    inside = span[len(fence[0]) : -len(fence[0])]
    assert all(len(run) != len(fence[0]) for run in re.findall("`+", inside))
    assert not re.search(r"(?<!\\)\|", inside)


@given(st.text(max_size=30))
def test_plain_text_in_markdown_has_no_sign_that_means_anything(text: str) -> None:
    shown = re.sub(r"&#\d+;", "", formatting.markdown_text(text))
    assert not set("<>`*[]|\\~") & set(shown)
    assert not re.search(r"(?<![A-Za-z0-9])@(?!\u200b)", shown)
    assert len(f"x{shown}".splitlines()) == 1


def test_github_is_told_of_every_line_that_fails_and_of_the_decision() -> None:
    first, last = ci.gate_commands(summary())
    assert first.startswith("::error title=new%3A winogrande acc worse::-1")
    assert last.startswith("::error title=touchstone gate::gate failed")
    assert "(exit code 8)" in last
    (only,) = ci.gate_commands(summary(best=0))
    assert only.startswith("::notice title=touchstone gate::gate passed")
    (shown,) = ci.gate_commands(summary(mode=None))
    assert shown.startswith("::notice title=touchstone gate::verdicts: 1 worse")


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_command_is_one_line_whose_title_and_message_come_back(title: str, message: str) -> None:
    text = ci.command("error", title, message)
    assert "\n" not in text
    assert "\r" not in text
    found = re.fullmatch(r"::error title=([^:,]*)::(.*)", text, re.DOTALL)
    assert found is not None

    def back(escaped: str) -> str:
        for code, sign in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            escaped = escaped.replace(code, sign)
        return escaped

    assert back(found[1]) == title
    assert "%3A" in message or "%2C" in message or back(found[2]) == message


@pytest.mark.parametrize("line", ["::error::x", "   ::stop-commands::t", "a ##[error]x", "##[add-mask]y"])
def test_no_line_of_a_report_is_a_command_of_github(line: str) -> None:
    changed = escape_ci_commands(line)
    assert not changed.lstrip().startswith("::")
    assert "##[" not in changed
    assert escape_ci_commands("a::b [::] c") == "a::b [::] c"


def test_the_jobs_summary_is_added_to_and_a_fault_is_told(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    assert ci.append_summary({"GITHUB_STEP_SUMMARY": str(path)}, "after") is None
    assert path.read_text() == "before\nafter\n"
    assert "cannot write" in (ci.append_summary({"GITHUB_STEP_SUMMARY": str(tmp_path)}, "x") or "")
    assert ci.append_summary({}, "x") is None


def test_junit_gets_every_metric_and_every_verdict() -> None:
    found: dict[str, Any] = dict(ci.properties(summary()))
    assert "touchstone.checkpoint-100.winogrande.acc" in found
    assert found["touchstone.gate.decision"] == "failed"
    assert found["touchstone.gate.exit_code"] == "8"
    assert found["touchstone.gate.new.winogrande"] == "worse"
    assert all("\x00" not in name for name, _ in ci.properties(summary("a\x00b")))


def test_junit_has_a_test_case_for_each_line_of_the_gate_and_those_that_fail_have_failed() -> None:
    cases = ci.gate_cases(summary("a\x00b"))
    gate = summary("a\x00b").gate
    assert gate is not None
    assert len(cases) == len(shown_lines(gate))
    assert [case.failed for case in cases] == [bool(line.fails or line.invalid) for line in shown_lines(gate)]
    worse = cases[0]
    assert (worse.failed, worse.name.split()[0]) == (True, "winogrande")
    assert worse.text.startswith("worse: -")
    assert len({(case.classname, case.name) for case in cases}) == len(cases)
    assert not any("\x00" in text for case in cases for text in case[:3])


def test_junit_fails_for_a_gate_that_could_not_be_judged_and_for_none_that_only_shows() -> None:
    gate = verdicts(2)
    shown = {**gate, "mode": None, "decision": "shown", "exit_code": 0}
    assert not any(case.failed for case in ci.gate_cases(replace(sample(), gate=shown)))
    for decision in ("mistake", "not valid"):
        broken = {**gate, "lines": [], "pooled": [], "decision": decision, "text": "gate not judged: x"}
        (case,) = ci.gate_cases(replace(sample(), gate=broken))
        assert (case.failed, case.text) == (True, "gate not judged: x")
    assert ci.gate_cases(replace(sample(), gate=None)) == []


def verdicts(count: int, *, new: int = 0) -> dict[str, Any]:
    """A gate that finds the first benchmark worse and so many others not worse, and ``new`` ones without a baseline."""
    names = [f"b{number:02}" for number in range(count + 1)]
    old = [entry(right(300, 400), checkpoint="old", benchmark=name) for name in names]
    mine = [
        entry(
            right(200 if name == "b00" else 300, 400),
            checkpoint="now",
            benchmark=name,
            run_id="now",
            began=9.0,
        )
        for name in (*names, *(f"new{number}" for number in range(new)))
    ]
    plan = GateConfig(mode="plain", margin=0.2)
    gate = decide(cases_of(mine, []), source(*old), plan)
    return gate_json(gate, decision_text(gate))


def told(gate: dict[str, Any], *, details: bool = False) -> list[str]:
    """The lines of a report from the gate on."""
    lines = render(replace(sample(), gate=gate), 100, color=False, details=details).splitlines()
    return lines[next(place for place, line in enumerate(lines) if line.startswith("gate  ")) :]


def test_a_short_report_shows_each_comparison_and_names_what_is_new_in_one_line() -> None:
    lines = told(verdicts(5, new=6))
    at = lines.index("")
    assert [line[:9].strip() for line in lines[1:at] if line[0] != " "] == [
        "worse",
        *["not worse"] * 5,
        "first",
        "pooled",
    ]
    (first,) = [line for line in lines if line.startswith("first ")]
    assert not missing(first, 6, "new0 acc, new1 acc, new2", "3 more")
    assert not missing(lines[-1], 8, "b00 acc")
    assert sum("baseline old" in line for line in lines) == 1  # of the line that fails
    assert sum("baseline old" in line for line in told(verdicts(5, new=6), details=True)) == 6


def test_of_very_many_comparisons_those_that_pass_share_a_line() -> None:
    lines = told(verdicts(30))
    assert lines[1].startswith("worse      b00 acc")
    (passed,) = [line for line in lines if line.startswith("not worse")]
    assert not missing(passed, 30, "b01 acc, b02 acc, b03", "27 more")
    assert sum(line.startswith("not worse") for line in told(verdicts(30), details=True)) == 30
