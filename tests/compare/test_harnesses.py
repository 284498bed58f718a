"""The parts of a difference between harnesses add up to it, and each is of the items that it comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.compare.harnesses import Cause, HarnessAnswer, causes_of
from tests.cli.test_score import OWN
from tests.support.installed import touchstone
from tests.support.rows import write_jsonl


def answer(score: float, verdict: float | None = None, text: str = "x", prompt: str = "p") -> HarnessAnswer:
    return HarnessAnswer(
        prompt=prompt,
        prompt_sha256=prompt,
        answer=text,
        read="",
        read_there="",
        verdict=score if verdict is None else verdict,
        score=score,
        scores={},
        has_verdict=verdict is not None,
    )


def sizes(a: dict[str, HarnessAnswer], b: dict[str, HarnessAnswer]) -> dict[str, float]:
    return {cause.name: cause.size for cause in causes_of(a, b) if cause.items}


def test_another_verdict_on_the_same_answer_is_scoring() -> None:
    assert sizes({"1": answer(1.0), "2": answer(0.0)}, {"1": answer(1.0, 0.0), "2": answer(0.0)}) == {
        "scoring": -0.5
    }


def test_an_answer_that_begins_another_is_length() -> None:
    assert sizes({"1": answer(0.0, text="It is")}, {"1": answer(1.0, text="It is 4.")}) == {"length": 1.0}


def test_other_answers_are_told_by_their_prompts() -> None:
    a = {"1": answer(0.0), "2": answer(0.0)}
    assert sizes(a, {"1": answer(1.0, text="y", prompt="q"), "2": answer(0.0)}) == {"prompts": 0.5}
    assert sizes(a, {"1": answer(1.0, text="y"), "2": answer(0.0)}) == {"answers": 0.5}


def test_items_of_one_side_are_rows() -> None:
    assert sizes({"1": answer(0.0)}, {"1": answer(0.0), "2": answer(1.0)}) == {"rows": 0.5}
    assert sizes({"1": answer(1.0)}, {"2": answer(0.0)}) == {"rows": -1.0}


SIDES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        answer,
        st.sampled_from([0.0, 0.5, 1.0]),
        st.sampled_from([None, 0.0, 1.0]),
        st.sampled_from(["", "a", "ab", "b"]),
        st.sampled_from("pq"),
    ),
    min_size=1,
)


@given(SIDES, SIDES)
def test_the_parts_add_up_to_the_difference(a: dict[str, HarnessAnswer], b: dict[str, HarnessAnswer]) -> None:
    means = [sum(one.verdict for one in side.values()) / len(side) for side in (a, b)]
    causes: list[Cause] = causes_of(a, b)
    assert sum(cause.size for cause in causes) == pytest.approx(means[1] - means[0])
    assert all(cause.items or abs(cause.size) < 1e-9 for cause in causes if cause.name != "rows")


def test_two_files_are_compared_with_the_reasons_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "test_sums.py").write_text(OWN)
    rows: dict[str, list[dict[str, Any]]] = {
        "one": [{"prompt": f"What is {n} and {n}?", "response": str(2 * n), "acc": 1.0} for n in range(4)],
        "two": [
            {"prompt": f"Say: What is {n} and {n}?", "response": "7", "acc": n == 3} for n in range(1, 4)
        ],
    }
    for name, lines in rows.items():
        write_jsonl(tmp_path / f"{name}.jsonl", lines)
        done = touchstone("score", "test_sums.py", f"{name}.jsonl", "--eval-run-id", name, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(touchstone("compare", "one", "two", "--format", "json", cwd=tmp_path).stdout)
    why = found["pairs"][0]["harnesses"]["sums"]
    assert why["verdicts"] == [1.0, pytest.approx(1 / 3)]
    assert why["scores"] == [1.0, 0.0]
    causes = {cause["name"]: cause["size"] for cause in why["causes"] if cause["items"]}
    assert causes == {
        "scoring": pytest.approx(1 / 3),
        "rows": pytest.approx(0.0),
        "prompts": pytest.approx(-1.0),
    }
    assert why["settings"]["rows"] == [4, 3]
    assert why["items"]["sums/3"][1]["verdict"] == 1.0
    assert why["items"]["sums/3"][1]["prompt"] == "Say: What is 3 and 3?"
    for form in ("text", "markdown"):
        told = touchstone("compare", "one", "two", "--format", form, cwd=tmp_path).stdout
        assert "sums: why A and B differ" in told
    touchstone("report", "one", "two", "--format", "html", "-o", "page.html", cwd=tmp_path)
    assert "sums: why A and B differ" in (tmp_path / "page.html").read_text()
