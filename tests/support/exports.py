"""A made-up run whose items have requests and answers, as it is exported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_touchstone.compare.formats.export import ExportedSample
from pytest_touchstone.results.aggregate import summarize
from pytest_touchstone.results.item_view import AnswerChoice, ItemView, Question
from pytest_touchstone.results.summary import Summary
from tests.support.summaries import DECLARATIONS, collect, score


def choice_exchange(continuation: str, logprob: float) -> dict[str, Any]:
    request = {"context": "Question: ?\nAnswer:", "continuation": continuation}
    answer = {"logprob": logprob, "is_greedy": logprob > -2, "tokens": 1}
    return {"kind": "Loglikelihood", "request": request, "answer": answer}


def sample_of(one: Any, exchanges: list[dict[str, Any]], asked: Question) -> ExportedSample:
    told = replace(one, exchanges=exchanges, row="hash")
    view = ItemView(
        example=one.example,
        benchmark=one.benchmark,
        checkpoint=one.checkpoint,
        group=one.group,
        status="scored",
        scores=one.scores,
        right=None,
        message=None,
        asked=(asked,),
        extracted={"strict": None, "flexible": "7"},
        gold="8",
    )
    return ExportedSample(told, [each["request"] for each in exchanges], {"question": "?"}, view)


def finished(benchmarks: list[str]) -> tuple[Summary, list[ExportedSample]]:
    """A run with its samples, each with two choices of which the second is right."""
    items = collect(benchmarks, ["runs/a"], 12)
    records = score(items)
    manifest = {"began": 1767323045.25, "settings": {"limit": None, "seed": 1234}}
    summary = summarize(
        records,
        DECLARATIONS,
        items,
        run_id="r",
        directory="r",
        manifest=manifest,
        checkpoints=[{"name": "runs/a"}],
    )
    exchanges = [choice_exchange(" no", -1.5), choice_exchange(" yes", -2.5)]
    asked = Question(
        "choices", "?", (AnswerChoice("no", -1.5, True, False), AnswerChoice("yes", -2.5, False, True))
    )
    return summary, [sample_of(one, exchanges, asked) for one in records]
