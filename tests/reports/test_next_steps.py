"""Results that are not valid: what is said of them, and what may help."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_touchstone.reports import next_steps
from pytest_touchstone.reports.terminal import render
from pytest_touchstone.results.journal import Journal
from pytest_touchstone.results.records import Record
from pytest_touchstone.results.summary import Summary
from tests.support.lines import missing
from tests.support.summaries import sample


def words(text: str) -> str:
    return " ".join(text.split())


def cut_off(whole: Summary, *names: str) -> Summary:
    """The run with texts that all ended at the limit of so many benchmarks."""
    results = [
        replace(one, outputs=10, at_limit=10, no_answer=2, invalid="10 of 10 outputs ended at the limit; bad")
        if one.benchmark in names
        else one
        for one in whole.results
    ]
    return replace(whole, results=results, manifest={**whole.manifest, "settings": {"max_new_tokens": 32}})


def test_what_is_not_valid_has_one_line_with_the_remedy_and_the_command():
    whole = cut_off(sample(1, faults=False), "winogrande", "real_coref")
    text = render(whole, 160, False)
    assert (
        "not valid winogrande: 10 of 10 texts hit the limit of tokens, 2 of 10 texts had no answer; "
        "real_coref: 10 of 10 texts hit the limit of tokens, 2 of 10 texts had no answer; --eval-max-new-tokens 64"
    ) in words(text)
    command = "pytest evals/ --checkpoint 'runs/*' --eval-max-new-tokens 64"
    assert f"next        {command}   for valid results" in text.splitlines()
    assert text.count("NOT VALID") == 2


def test_a_judge_that_is_cut_has_a_remedy_of_its_own():
    whole = sample(1, faults=False)
    reason = "the judge gave no verdict 6 of 10 times; more than 10% is too many"
    for cut, remedy in ((0, "look at some of them"), (5, "--eval-set=judge_tokens=128")):
        first, *rest = whole.results
        judged = replace(first, judged=10, no_verdict=6, verdicts_at_limit=cut, invalid=reason)
        manifest = {**whole.manifest, "settings": {"judge_tokens": 64}}
        run = replace(whole, results=[judged, *rest], manifest=manifest)
        assert next_steps.remedy_lines(run) == [f"{first.name}: {reason}; {remedy}"]


def test_the_last_lines_of_a_run_name_what_is_not_valid_and_what_lacks_items():
    whole = sample(2)
    results = [one for one in whole.results if one.benchmark != "mmlu_stem"]
    assert next_steps.invalid_paragraphs(cut_off(replace(whole, results=results), "real_coref"), 100) == [
        "not valid: real_coref of 2 checkpoints; --eval-max-new-tokens 64",
        "not valid: checkpoint-100 winogrande: 1 of 24 items ended in error, 1 of 24 items timed out, 1 of 24",
        "  items never finished; errors.log says why",
    ]


def journal_of(folder: Path, texts: Mapping[str, Sequence[str]]) -> None:
    """Write texts of benchmarks, each of which ended at a limit of 16 tokens."""
    with Journal(folder, "main") as journal:
        for name, some in texts.items():
            for number, text in enumerate(some):
                answer = {"samples": [{"text": text, "tokens": 16, "finish_reason": "length"}]}
                request = {"prompt": "?", "max_new_tokens": 16}
                journal.append(
                    Record(
                        item=f"t.py::t[{name}/{number}]",
                        benchmark=name,
                        example=f"{name}/{number}",
                        checkpoint="checkpoint-100",
                        status="scored",
                        exchanges=[{"kind": "Generate", "request": request, "answer": answer}],
                    )
                )


def test_a_longer_limit_is_proposed_only_where_enough_texts_do_not_repeat_themselves(tmp_path):
    names = ("winogrande", "real_coref")
    whole = cut_off(sample(1, benchmarks=list(names), faults=False), *names)
    repeating = {"winogrande": 9, "real_coref": 1}
    results = [replace(one, repeating=repeating[one.benchmark]) for one in whole.results]
    manifest = {**whole.manifest, "settings": {}}
    whole = replace(whole, results=results, directory=str(tmp_path), manifest=manifest)
    journal_of(tmp_path, {name: ["and then we add the two of them"] for name in names})
    text = words(render(whole, 200, False))
    told = dict(re.findall(r"(winogrande|real_coref): 10 of 10 texts ([^:]*)", text))
    assert not missing(told["winogrande"], "9 repeat themselves", "no text that repeats")
    assert not missing(told["real_coref"], "1 repeats itself", "--eval-max-new-tokens 32")
    assert f"touchstone items {tmp_path} --benchmark winogrande --invalid the texts" in text
    assert [remedy for remedy in next_steps.results_by_remedy(whole) if remedy.startswith("--")] == [
        "--eval-max-new-tokens 32"
    ]
    assert not missing(
        text, "--eval-max-new-tokens 32 for valid", "results of real_coref"
    )  # and not of winogrande
