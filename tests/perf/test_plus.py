"""``perf.plus``: what it makes of verdicts that others have published."""

from __future__ import annotations

import json
from pathlib import Path

from perf.plus import Files, Verdict, differences, said

RIGHT, BASE_ONLY = Verdict("T/0", True, True), Verdict("T/0", True, False)


def files(*given: tuple[str, str]) -> Files:
    """The files of samples that have these texts."""
    return Files(Path(), "humaneval_plus", Path(), Path(), list(given), list(given))


def test_evalplus_results_are_found_by_task_and_program_in_any_order(tmp_path: Path) -> None:
    results = {
        task: [{"task_id": task, "solution": "p", "base_status": "pass", "plus_status": plus}]
        for task, plus in (("T/1", "fail"), ("T/0", "pass"))
    }
    path = tmp_path / "samples_eval_results.json"
    path.write_text(json.dumps({"eval": results}))
    asked = files(("T/0", "p"), ("T/1", "p"))
    told = said(asked, [path], [RIGHT, Verdict("T/1", False, False)])
    assert told == [RIGHT, Verdict("T/1", True, False)]


def test_equal_samples_of_several_files_keep_their_order(tmp_path: Path) -> None:
    paths = []
    for number, passed in enumerate((True, False)):
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text(json.dumps({"task_id": "T/0", "completion": "p", "passed": passed}) + "\n")
    told = said(files(("T/0", "p"), ("T/0", "p")), paths, [BASE_ONLY, BASE_ONLY])
    assert told == [BASE_ONLY, Verdict("T/0", False, False)]


def test_only_samples_that_are_judged_differently_are_listed() -> None:
    asked = files(("T/0", "a"), ("T/0", "b"))
    found = list(differences(asked, ("ours", [RIGHT, RIGHT]), ("published", [RIGHT, BASE_ONLY])))
    assert found == [
        {
            "task": "T/0",
            "program": "b",
            "first": "ours base True, all True",
            "second": "published base True, all False",
        }
    ]
