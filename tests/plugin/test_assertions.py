"""A benchmark may assert, as any test does: what holds is a score, and skips and expected failures do not count."""

from __future__ import annotations

import pytest

from pytest_touchstone.plugin.item_errors import LONGEST, assertion_message
from tests.support.project import Project

RETURNS = 'return {"acc": right.logprob > wrong.logprob, "margin": right.logprob - wrong.logprob}'


def asserting(project: Project, *lines: str, mark: str = "", declared: str = "") -> None:
    """Make the project's benchmark one that has these lines in place of its scores, and no primary score but
    ``declared``."""
    text = (project.path / "test_sums.py").read_text()
    text = text.replace("    pass\n", "").replace(RETURNS, "\n    ".join(lines) or "pass")
    text = text.replace(' primary="acc",', declared).replace("@benchmark", f"{mark}\n@benchmark")
    (project.path / "test_sums.py").write_text("import pytest\n" + text)


HOLDS_FOR_MOST = "assert example['n'] != 2, f'not {example[\"n\"]}'"


def test_what_is_asserted_is_the_score_and_a_failure_is_explained(project: Project) -> None:
    asserting(project, "assert right.logprob == pytest.approx(right.logprob)", HOLDS_FOR_MOST)
    result = project.run("--eval-limit", "4", apart=True)
    assert result.ret == 0
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_sums.py ++-+ *", "  sums * passed 0.7500 *"])
    assert [record.scores["passed"] for record in project.records.values()] == [1.0, 1.0, 0.0, 1.0]
    message = project.records["sums/2"].message or ""
    assert message.splitlines()[:2] == ["not 2", "assert 2 != 2"]


@pytest.mark.parametrize("line", ["raise AssertionError", "pytest.fail('no')"])
def test_every_way_to_fail_a_test_scores_0(project: Project, line: str) -> None:
    asserting(project, line)
    assert project.run("--eval-limit", "1").ret == 0
    (record,) = project.records.values()
    assert (record.scores, record.message) == ({"passed": 0.0}, "no" if "no" in line else line)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_skipped_items_and_expected_failures_do_not_count(project: Project, workers: str) -> None:
    asserting(
        project,
        "if example['n'] == 1: pytest.skip('odd')",
        "if example['n'] == 2: pytest.xfail('known')",
        "assert right.logprob < 0",
    )
    result = project.run("--eval-limit", "4", "-n", workers)
    assert result.ret == 0
    result.assert_outcomes(passed=2, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["  sums *1.0000 *2/20 1 skipped, 1 xfailed"])
    (found,) = project.summary["results"]
    assert (found["scored"], found["skipped"], found["xfailed"], found["errors"]) == (2, 2, 1, 0)
    assert project.records["sums/2"].message == "known"


def test_items_marked_as_expected_to_fail_do_not_count_where_they_do(project: Project) -> None:
    asserting(project, HOLDS_FOR_MOST, mark="@pytest.mark.xfail(reason='known')")
    result = project.run("--eval-limit", "4")
    assert result.ret == 0
    result.assert_outcomes(xfailed=1, xpassed=3)
    result.stdout.fnmatch_lines(["  sums *1.0000 *3/20 1 xfailed"])
    assert project.records["sums/2"].status == "xfailed"


def test_an_assertion_beside_another_primary_score_is_an_error_that_says_so(project: Project) -> None:
    asserting(project, HOLDS_FOR_MOST, "return {'acc': 1.0}", declared=' primary="acc",')
    result = project.run("--eval-limit", "4")
    assert result.ret == 9
    assert "without another primary" in (project.records["sums/2"].message or "")


def test_an_assertion_before_anything_was_asked_is_no_score(project: Project) -> None:
    text = (project.path / "test_sums.py").read_text().replace(' primary="acc",', "").replace(RETURNS, "pass")
    (project.path / "test_sums.py").write_text(
        text.replace("    right, wrong", "    assert not example\n    right, wrong")
    )
    assert project.run("--eval-limit", "1").ret == 9


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("return {'acc': None}", "score 'acc' = None; return a number"),
        ("pass", "returned nothing; return a dict"),
    ],
)
def test_no_score_is_answered_with_what_to_return(project: Project, line: str, said: str) -> None:
    asserting(project, "if example['n']:", "    return {'acc': 1.0}", line, declared=' primary="acc",')
    assert project.run("--eval-limit", "1").ret == 9
    (record,) = project.records.values()
    assert said in (record.message or "")


def test_a_long_explanation_is_cut() -> None:
    assert len(assertion_message(AssertionError("x" * 10 * LONGEST))) < LONGEST + 10
    assert assertion_message(AssertionError("")) == ""
