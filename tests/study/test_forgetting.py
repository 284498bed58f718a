"""Items that a series learned and forgot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_touchstone.compare.candidate import BenchmarkScores
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.study.forgetting import Forgetting, find_forgetting
from pytest_touchstone.study.points import Study
from tests.support.compared import ran
from tests.support.known import known
from tests.support.studies import answers, of_items, of_totals, placed, study_of_candidates

CURVE = [
    [1.0, 0.0, 0.0, 1.0, 1.0],
    [1.0, 0.0, 1.0, 1.0, 0.0],
    [1.0, 0.0, 1.0, 0.0, 1.0],
]
"""Kept, never, learned at the second, lost at the third, unsteady."""


def found_in(study: Study) -> Forgetting:
    (found,) = find_forgetting(study)
    return found


def test_every_item_is_counted_by_its_way() -> None:
    found = found_in(of_items({"a": [{"b": scores} for scores in CURVE]}))
    assert (found.kept, found.never, found.learned, found.lost, found.unsteady) == (1, 1, 1, 1, 1)
    assert [(step.forgotten, step.learned) for step in found.steps] == [(1, 1), (1, 1)]
    assert [(one.item, one.before.name, one.after.name) for one in found.examples] == [
        ("b/0003", "a/2", "a/3")
    ]


def test_a_step_that_loses_much_is_told_and_one_that_only_churns_is_not() -> None:
    first, second, third = answers([0.7, 0.7, 0.5], 500, 1)
    found = found_in(of_items({"a": [first, second, third]}))
    assert known(found.steps[0].p) > 0.05
    assert found.steps[0].forgotten > 20
    assert known(found.steps[1].p) < 0.001


def test_sampled_answers_have_the_changes_that_chance_alone_makes(tmp_path: Path) -> None:
    curve = [[0.2, 0.6, 1.0, 0.0], [0.6, 0.2, 1.0, 0.0]]
    found = found_in(with_journals(tmp_path / "many", 0.2, curve, "pass@1", samples=5))
    assert (found.kind, found.samples) == ("sampled", 5)
    # Of four right ones among ten, two fall to either run in 120 of 252 ways; else just one has most of its own right.
    assert known(found.steps[0].by_chance) == pytest.approx(2 * (1 - 120 / 252))
    greedy = found_in(with_journals(tmp_path / "greedy", 0.0, curve, "pass@1"))
    assert (greedy.kind, greedy.steps[0].by_chance) == ("certain", 0.0)
    once = found_in(with_journals(tmp_path / "once", 0.2, curve, "pass@1"))
    assert (once.kind, once.steps[0].by_chance) == ("sampled", None)
    several = found_in(with_journals(tmp_path / "several", 0.2, curve, "pass@2", samples=5))
    assert (several.kind, several.samples) == ("sampled", 1)


def test_without_a_journal_it_is_not_known_how_answers_were_made() -> None:
    found = found_in(of_items({"a": [{"b": scores} for scores in CURVE]}))
    assert found.kind == "not known"
    assert {step.by_chance for step in found.steps} == {None}


def test_totals_hold_no_items() -> None:
    assert find_forgetting(of_totals({"a": [0.5, 0.6]})) == []


def with_journals(
    tmp_path: Path,
    temperature: float,
    curve: Sequence[list[float]] = CURVE,
    metric: str = "acc",
    samples: int = 1,
) -> Study:
    """A series, with what was asked and answered."""
    candidates = []
    for place, scores in enumerate(curve, start=1):
        folder = tmp_path / f"run{place}"
        folder.mkdir(parents=True)
        one = placed(ran(f"a/{place}", {"b": {metric: scores}}), "a", float(place))
        with Journal(folder, "main") as journal:
            for item, score in enumerate(scores):
                journal.append(
                    Record(
                        item=f"item {item}",
                        benchmark="b",
                        example=f"b/{item:04}",
                        checkpoint=f"a/{place}",
                        status="scored",
                        scores={metric: score},
                        exchanges=[
                            {
                                "kind": "Generate",
                                "request": {
                                    "prompt": f"question {item}",
                                    "temperature": temperature,
                                    "samples": samples,
                                },
                                "answer": {
                                    "samples": [
                                        {
                                            "text": f"answer {score:g} of a/{place}",
                                            "finish_reason": "eos",
                                            "tokens": 4,
                                        }
                                    ]
                                },
                            }
                        ],
                    )
                )
        entry = one.entries["b"]
        one.entries["b"] = BenchmarkScores(entry.saved, entry.items, folder)
        candidates.append(one)
    return study_of_candidates(candidates)


def test_examples_have_the_question_and_the_answers_before_and_after(tmp_path: Path) -> None:
    found = found_in(with_journals(tmp_path, 0.0))
    assert found.kind == "certain"
    (example,) = found.examples
    assert (example.item, example.question) == ("b/0003", "question 3")
    assert (example.answer_before, example.answer_after) == ("answer 1 of a/2", "answer 0 of a/3")


def test_answers_that_the_journal_shows_as_sampled_are_not_called_certain(tmp_path: Path) -> None:
    assert found_in(with_journals(tmp_path, 0.7)).kind == "sampled"
