"""A metric of which less is better, with an aggregation of a project's own: table, files, gate, comparison, ranking."""

from __future__ import annotations

import json
import re

import pytest

from pytest_touchstone.results.summary import load_summary
from tests.support.lines import missing
from tests.support.toys import make, score, told


def test_a_lower_is_better_metric_goes_through_table_gate_comparison_and_ranking(
    pytester: pytest.Pytester,
) -> None:
    project = make(pytester.path)
    first = score(pytester, 40, "first")
    assert first.returncode == 0, first.stdout
    assert re.search(r"toys +error_rate 0\.2000 \[0\.1505, 0\.2609\] 200/200", first.stdout)
    assert "lower is better for error_rate" in " ".join(first.stdout.split())
    details = told(project, "report", "first", "-v")
    assert re.search(r"wait +2\.1111 ", details)
    assert "error_rate, error, seconds, wait" in " ".join(details.split())
    assert "error_rate, lower is better" in (project / "results/first/report.html").read_text()

    worse = score(pytester, 90, "worse", "--gate")
    assert worse.returncode == 8
    assert not missing(worse.stdout, "exit code 8", "toys error_rate", "+25.00 points")
    # With workers the aggregating process has not imported the benchmark; the best is the lowest of the two.
    better = score(pytester, 10, "better", "--gate", "--eval-set", "gate_metric=wait", "-n", "1")
    assert better.returncode == 0, better.stdout
    assert "gate passed: 1 better" in better.stdout
    gate = load_summary(project / "results" / "better").gate
    assert gate is not None
    assert gate["lines"][0]["against"]["run_id"] == "first"
    waited, against = (
        load_summary(project / "results" / name).results[0].metrics["wait"].value
        for name in ("better", "first")
    )
    assert (gate["lines"][0]["value"], gate["lines"][0]["against"]["measured"]) == (waited, against)

    [pair] = json.loads(told(project, "compare", "first", "worse", "--format", "json"))["pairs"]
    assert (pair["regressions"], pair["benchmarks"][0]["points"]) == (["toys"], pytest.approx(25))
    files = [f"results/{name}/details/fake-causal_results.json" for name in ("worse", "better")]
    found = json.loads(told(project, "compare", *files, "--metric", "error_rate", "--format", "json"))
    assert found["pairs"][0]["improvements"] == ["toys"]


def test_an_aggregation_that_fails_leaves_the_other_numbers(pytester: pytest.Pytester) -> None:
    project = make(pytester.path)
    text = (project / "test_toys.py").read_text()
    (project / "test_toys.py").write_text(text.replace("// 10])", "// 10] / 0)"))
    run = score(pytester, 40, "first")
    metrics = load_summary(project / "results" / "first").results[0].metrics
    assert (run.returncode, metrics["error_rate"].value, metrics["wait"].value) == (0, 0.2, None)
    assert str(metrics["wait"].why).startswith("its aggregation fails: TypeError: ")
