"""The same error of many items is one block with their number; a wrong name is answered with those that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pytest_touchstone.core.requests import Generate, LoglikelihoodAnswer, Turn
from pytest_touchstone.plugin.item_errors import assertion_message, hint, place_of
from tests.support.lines import missing

BENCHMARK = """
from pytest_touchstone import Loglikelihood, Shots, benchmark
import pytest

ROWS = [{{"question": f"q{{n}}", "answer": f"a{{n}}"}} for n in range(30)]


@pytest.fixture(scope="module")
def broken():
    raise OSError("no such grammar")


@benchmark("b", version=1, rows=ROWS, asks=Loglikelihood, primary="acc")
def test_b(example{arguments}):
    answer = yield Loglikelihood(example["question"], example["answer"])
    {body}
    return {{"acc": 1.0}}
"""


def run(pytester: pytest.Pytester, body: str, *arguments: str, fixture: str = "") -> pytest.RunResult:
    text = BENCHMARK.format(body=body, arguments=f", {fixture}" if fixture else "")
    pytester.makepyfile(test_b=text)
    return pytester.runpytest("--checkpoint", "fake:causal", "-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_same_error_of_many_items_is_one_block(pytester: pytest.Pytester, workers: str) -> None:
    done = run(pytester, "example['anser']", "-n", workers)
    assert done.ret == 9
    text = done.stdout.str()
    assert text.count("E       KeyError: 'anser'") == 1
    assert not missing(text, "question, answer", "did you mean 'answer'?")
    assert len(re.findall(r"^_+ test_b.py::test_b\[b/\d+\] .*\b29 more _+$", text, re.MULTILINE)) == 1
    assert "short test summary" not in text  # the report names each error with its first item
    assert len(re.findall(r"30 items, first\s+test_b.py::test_b\[b/\d+\]:\s+KeyErr", text)) == 1
    done.assert_outcomes(failed=30)
    (log,) = pytester.path.glob("results/*/details/errors.log")
    assert log.read_text().count("KeyError: 'anser'; ") == 30


def test_errors_of_other_lines_and_types_are_blocks_of_their_own(pytester: pytest.Pytester) -> None:
    body = "if example['answer'] < 'a2': raise ValueError(example['answer'])\n    assert example['answer'] == 'a2'"
    text = run(pytester, body).stdout.str()
    blocks = re.findall(r"^_+ test_b.py::test_b\[(.*)\]( and \d+ more)? _+$", text, re.MULTILINE)
    assert blocks == [("b/0", " and 11 more"), ("b/3", " and 16 more")]


def test_a_fixture_that_fails_is_one_block(pytester: pytest.Pytester) -> None:
    done = run(pytester, "", fixture="broken")
    assert done.stdout.str().count("OSError: no such grammar") <= 4
    done.stdout.fnmatch_lines(["*ERROR *test_b.py::test_b?b/0? *29 more *"])
    done.assert_outcomes(errors=30)


def test_twice_verbose_shows_every_error_whole(pytester: pytest.Pytester) -> None:
    done = run(pytester, "example['anser']", "-vv", "--eval-limit", "3")
    assert done.stdout.str().count("E       KeyError: 'anser'") == 3


def test_a_broken_contract_is_one_line_with_the_place_of_the_function(pytester: pytest.Pytester) -> None:
    done = run(pytester, "return 3", "--eval-limit", "2")
    done.stdout.fnmatch_lines(["test_b.py:12: benchmark b (b/0)*3*int;*dict*"])
    done.stdout.fnmatch_lines(["error*2 items, *test_b.py::test_b?b/0?:*returned 3*"])


def raised(function: object) -> BaseException:
    try:
        function()  # type: ignore[operator]
    except Exception as error:
        return error
    raise AssertionError("it raises nothing")


ANSWER = LoglikelihoodAnswer(-1.0, is_greedy=False, tokens=1)


def unpack() -> None:
    _, _ = ANSWER  # type: ignore[misc]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("anser"), "the row has the fields question, answer; did you mean 'answer'?"),
        (KeyError("other"), "the row has the fields question, answer"),
        (KeyError("answer"), ""),  # of something else
        (KeyError(3), ""),
        (KeyError(), ""),
        (raised(lambda: ANSWER.logprobs), "a LoglikelihoodAnswer has logprob, is_greedy, tokens"),  # type: ignore[attr-defined]
        (
            raised(lambda: Generate("", max_new_tokens=1).text),  # type: ignore[attr-defined]
            "this is the request; its answer has such: answer = yield",
        ),
        (raised(lambda: "".nothing), ""),  # type: ignore[attr-defined]
        (raised(unpack), "a single request has a single answer"),
        (raised(lambda: ANSWER[0]), "a single request has a single answer"),  # type: ignore[index]
        (raised(lambda: list(ANSWER)), "a single request has a single answer"),  # type: ignore[call-overload]
        (TypeError("cannot unpack non-iterable int object"), ""),
        (raised(lambda: Generate("", max_new_tokens=1, stops="")), "a Generate has prompt, stop, "),  # type: ignore[call-arg]
        (raised(lambda: Generate("", max_new_tokens=1, tools=[])), "models are sent texts"),  # type: ignore[call-arg]
        (raised(lambda: Turn("user", "", 3)), ""),  # type: ignore[call-arg]
        (ValueError("x"), ""),
    ],
)
def test_a_hint_tells_what_there_is(error: BaseException, words: str) -> None:
    found = hint(error, {"question": "q", "answer": "a"})
    assert found.startswith(words) if words else not found


def test_an_explanation_names_methods_without_their_addresses() -> None:
    told = assertion_message(AssertionError(f"assert 'x' in 'y'\n +  where 'y' = {'Y'.lower!r}()"))
    assert told.partition("\n") == ("assert 'x' in 'y'", "\n", " +  where 'y' = lower()")


def test_the_place_of_an_error_is_the_last_in_the_projects_files() -> None:
    error = raised(lambda: __import__("json").loads("{"))
    assert re.fullmatch(r".*test_item_errors\.py:\d+", place_of(error, Path(__file__).parent))
    assert "json" in place_of(error, Path("/nowhere"))
    assert place_of(ValueError("never raised"), Path(__file__).parent) == ""


def test_an_error_of_shot_says_of_which_row_and_what_fields_that_has(pytester: pytest.Pytester) -> None:
    text = BENCHMARK.format(body="pass", arguments=", fewshot")
    text = text.replace('primary="acc"', "primary='acc', shots=Shots(1, lambda row: row['anser'])")
    pytester.makepyfile(test_b=text)
    done = pytester.runpytest("--checkpoint", "fake:causal", "-p", "no:cacheprovider", "--eval-limit", "2")
    assert done.ret == 9
    told = "which has the fields question, answer; did you mean 'answer'?"
    assert told in " ".join(done.stdout.str().split())
    (log,) = pytester.path.glob("results/*/details/errors.log")
    assert log.read_text().count(told) == 2


def test_a_declaration_without_a_version_is_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_b=BENCHMARK.format(body="pass", arguments="").replace("version=1, ", ""))
    done = pytester.runpytest("--checkpoint", "fake:causal", "-p", "no:cacheprovider")
    assert done.ret == 4
    done.stderr.fnmatch_lines(["ERROR: test_b.py:*: benchmark 'b': *version=1"])
    assert "Traceback" not in done.stdout.str()


@pytest.mark.parametrize("score", ["1e155", "1e308 * (-1) ** int(example['answer'][1:])", "-1e200"])
def test_scores_too_large_for_a_mean_leave_their_metric_undefined_and_the_run_whole(
    pytester: pytest.Pytester, score: str
) -> None:
    done = run(
        pytester, f"return {{'acc': 1.0, 'seconds': {score}}}", "--eval-limit", "4", "--eval-run-id", "r"
    )
    assert done.ret == 0
    (result,) = json.loads((pytester.path / "results/r/summary.json").read_text())["results"]
    assert result["metrics"]["acc"]["value"] == 1.0
    assert result["metrics"]["seconds"]["value"] is None
    assert "too large" in result["metrics"]["seconds"]["why"]
