"""The items that a file of answers answers (``--checkpoint answers:FILE``); the others are not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_touchstone.core.errors import DataError
from pytest_touchstone.core.requests import Generate, Loglikelihood
from pytest_touchstone.core.text import join_names
from pytest_touchstone.engines.answers.engine import answers_of
from pytest_touchstone.engines.answers.files import IDS, AnswerFile
from pytest_touchstone.engines.answers.matching import SHOWN, AskedRow, Matching, match_rows
from pytest_touchstone.plugin.planned import PlannedItem, planned_items


def select_answered(items: list[pytest.Item]) -> list[pytest.Item]:
    """Remove and return the items that a file of answers does not answer; give the others their rows.

    Raises ``pytest.UsageError`` for a file that answers no item of a benchmark.
    """
    series: dict[tuple[str, str], list[PlannedItem]] = {}
    for planned in planned_items(items):
        if planned.info.answers:
            series.setdefault(planned.series, []).append(planned)
    unanswered: set[pytest.Item] = set()
    for members in series.values():
        info, benchmark = members[0].info, members[0].spec.name
        try:
            file = answers_of(info.path, info.answers["options"])
        except DataError as error:
            raise pytest.UsageError(str(error)) from None
        given = members[0].given
        rows = [
            replace(members[0], given=replace(given, example=row)) for row in given.loaded.dataset.examples
        ]
        matching = match_rows(file, list(map(_asked, rows)))
        for planned in members:
            planned.answers = tuple(matching.rows.get(planned.given.example.id, ()))
        used = sum(len(planned.answers) for planned in members)
        if not used:
            raise pytest.UsageError(_nothing(file, benchmark, members, matching))
        unanswered |= {planned.item for planned in members if not planned.answers}
        info.answers.setdefault("matched", {})[benchmark] = matching.summary(file, benchmark, used)
    dropped = [item for item in items if item in unanswered]
    if dropped:
        items[:] = [item for item in items if item not in unanswered]
    return dropped


def _asked(planned: PlannedItem) -> AskedRow:
    """Return an item as its benchmark asks it."""
    requests = planned.first_requests(shipped=False)
    prompts = [request.prompt for request in requests if isinstance(request, Generate)]
    prompts += [request.context for request in requests if isinstance(request, Loglikelihood)]
    return AskedRow(planned.given.example.id, planned.given.example.row, tuple(dict.fromkeys(prompts)))


def _nothing(file: AnswerFile, benchmark: str, members: Sequence[PlannedItem], matching: Matching) -> str:
    """Return the line about a file whose rows answer no selected item: what was tried."""
    if matching.rows:
        return (
            f"{file.path}: {matching.summary(file, benchmark, 0)}; select others "
            f"({join_names(list(matching.rows), SHOWN)})"
        )
    example = members[0].given.example
    ids = " or ".join([example.id, *(f"{name} {example.row[name]}" for name in IDS if name in example.row)])
    return (
        f"{file.path}: none of its {len(file.rows)} rows answers {benchmark}: not by prompt, by the words of the "
        f"question, nor by id ({ids}; the file has {join_names([row.name for row in file.rows], SHOWN)}); give the "
        "benchmark that it belongs to, and its data with --eval-data"
    )
