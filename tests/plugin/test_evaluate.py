"""``pytest_touchstone.evaluate``: a run from Python, which leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import pytest_touchstone
from pytest_touchstone.core.errors import OptionError
from tests.support.places import ROOT
from tests.support.tiny import tiny_causal

BENCHMARK = """
import time
from pytest_touchstone import Loglikelihood, benchmark

ROWS = [{{"n": n}} for n in range(6)]

@benchmark("small", version=1, rows=ROWS, asks=Loglikelihood, primary="acc")
def test_small(example):
    answer = yield Loglikelihood(str(example["n"]), " a")
    {then}
    return {{"acc": float(answer.logprob < 0)}}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the benchmark with one more statement into the current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return lambda then="pass": (tmp_path / "test_small.py").write_text(BENCHMARK.format(then=then))


def small(**more: Any) -> pytest_touchstone.FinishedRun:
    return pytest_touchstone.evaluate("fake:causal", benchmarks="test_small.py", **more)


def test_two_calls_read_the_file_anew_print_nothing_and_leave_nothing_in_this_process(
    write: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--nonsense-of-the-outer-run")
    Path("pytest.ini").write_text("[pytest]\naddopts = --eval-output=elsewhere --eval-run-id=mine")
    write()
    before = {name for name in sys.modules if not name.startswith("pytest_touchstone")}
    first = small(limit=4)
    write("[][example['n'] == 2 and example['n'] or slice(0)]")

    async def in_a_loop() -> pytest_touchstone.FinishedRun:
        return small(shots=0)

    second = asyncio.run(in_a_loop())
    new = {name for name in sys.modules if not name.startswith("pytest_touchstone")} - before
    assert not [name for name in new if name in ("torch", "transformers", "test_small") or "pytest" in name]
    assert capfd.readouterr() == ("", "")
    assert (len(first.items), first.valid, first.problems, first.exit_code) == (4, True, (), 0)
    assert (len(second.items), second.valid, second.exit_code) == (6, False, 9)
    (failed,) = [one.message for one in second.items if one.failed]
    assert str(failed).startswith("IndexError: ")
    assert "list index out of range" in second.problems[0]
    assert "1 failed" in second.output


def test_a_gate_that_fails_is_a_problem_and_verdicts_alone_are_none(write: Any) -> None:
    write()
    small(run_id="base")
    write("return {'acc': 0.0}")
    red = small(baseline="base", gate=True)
    assert red.gate is not None
    assert (red.exit_code, red.gate["decision"], red.gate["lines"][0]["kind"]) == (8, "failed", "worse")
    assert (red.valid, red.problems) == (False, (red.gate["text"],))
    shown = small(baseline="base")
    assert shown.gate is not None
    assert (shown.exit_code, shown.gate["decision"], shown.valid, shown.problems) == (0, "shown", True, ())


def test_a_run_that_is_asked_to_print_streams_the_text_of_pytest(
    write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write()
    found = pytest_touchstone.evaluate(
        Path("fake:causal"),
        benchmarks=[Path("test_small.py")],
        verbose=True,
        output=Path("elsewhere"),
        run_id="mine",
    )
    assert capsys.readouterr().out == found.output
    assert "6 passed" in found.output
    assert found.directory == Path("elsewhere/mine")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"limt": 3},
            "evaluate() has no setting 'limt'; did you mean 'limit'? docs/options.md has all of them",
        ),
        ({"limit": 0}, "invalid limit '0': expected an item count (50), a fraction below 1 (0.2), or all"),
        (
            {"limit": True},
            "invalid limit 'True': expected an item count (50), a fraction below 1 (0.2), or all",
        ),
        ({"dtype": "int8"}, "invalid dtype 'int8': expected auto, float32, bfloat16 or float16"),
        ({"dtype": ["auto", "auto"]}, "invalid dtype ['auto', 'auto']: expected one value"),
        ({"checkpoint": ""}, "checkpoint: the value is empty; give one, or leave the option out"),
        ({"no_cache": 1}, "invalid no_cache 1: expected True or False"),
        ({"workers": "two"}, "invalid workers 'two': expected a whole number from 0 up"),
        ({"benchmarks": "nowhere.py::test"}, "invalid benchmarks 'nowhere.py::test': no such file or folder"),
        ({"benchmarks": []}, "invalid benchmarks []: name a file or folder, or leave it out"),
        ({"system": "a\0b"}, "the run cannot be started: embedded null byte; look at its settings"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_one_line_before_anything_runs(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        pytest_touchstone.evaluate(**given)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tasks": "smal"}, "invalid --eval-tasks 'smal': no such benchmark or tag; did you mean small?"),
        (
            {"checkpoint": "fake:masked"},
            "nothing was scored: small: asks Loglikelihood, which fake-masked .*",
        ),
        ({"benchmarks": "broken.py"}, "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    ],
    ids=str,
)
def test_a_run_without_results_says_why_in_one_line(write: Any, given: dict[str, Any], said: str) -> None:
    write()
    Path("broken.py").write_text("import nowhere_to_be_found")
    with pytest.raises(pytest_touchstone.EvaluationError) as caught:
        pytest_touchstone.evaluate(**{"checkpoint": "fake:causal", "benchmarks": "test_small.py", **given})
    assert re.fullmatch(said.replace("?", r"\?"), str(caught.value))
    assert "test session starts" in caught.value.output


@pytest.mark.slow
def test_ctrl_c_goes_through_when_the_run_has_written_what_it_has(write: Any) -> None:
    write("time.sleep(60 * (example['n'] == 3))")

    def press() -> None:
        while not any(Path("results").glob("*/items/items-main.jsonl")):
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    try:
        threading.Thread(target=press, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            small(batch_items=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert {one.status for one in pytest_touchstone.load("last").items} == {"scored", "lost"}


def test_the_examples_of_the_document_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 3
    assert names["item"].right is False
    assert list(names["wide"].columns.get_level_values("benchmark").unique()) == ["arc_easy", "winogrande"]
    (shown,) = re.findall(r"```\n\n((?:    .*\n)+)", text)
    lines = [line.strip() for line in shown.splitlines()]
    assert [line.split() for line in lines[1:]] == [
        line.split() for line in repr(names["run"]).splitlines()[1 : len(lines)]
    ]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"checkpoint": "fake:causal"}, "checkpoint and model are both given; a run scores one or the other"),
        ({"workers": 2}, "invalid workers 2: a model in memory answers in one process; leave it out"),
        ({"device": "cpu"}, "invalid device 'cpu': the model is in memory already; leave it out"),
        ({"name": "x", "model": None}, "tokenizer and name belong to a model in memory; give model= too"),
    ],
)
def test_what_a_model_in_memory_does_not_take_is_refused_in_a_line(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError) as raised:
        pytest_touchstone.evaluate(**{"model": object(), **wrong})
    assert told in str(raised.value)


@pytest.mark.slow
def test_a_model_in_memory_is_scored_once_and_as_it_is_saved(write: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write()
    folder = tiny_causal(tmp_path / "tiny")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    model.save_pretrained("runs/checkpoint-9")
    tokenizer.save_pretrained("runs/checkpoint-9")
    known: dict[str, Any] = {"benchmarks": "test_small.py"}
    first = pytest_touchstone.evaluate("runs/checkpoint-9", **known)
    again = pytest_touchstone.evaluate(model=model, tokenizer=tokenizer, **known)
    assert [row.fingerprint for row in again.results] == [row.fingerprint for row in first.results]
    assert [one.reused for one in again.summary.results] == [6]
    model.model.norm.weight.data[0] += 0.5
    changed = pytest_touchstone.evaluate(model=model, tokenizer=tokenizer, name="runs/checkpoint-10", **known)
    assert [one.reused for one in changed.summary.results] == [0]
    assert (changed.results[0].checkpoint, changed.results[0].step) == ("checkpoint-10", 10)
