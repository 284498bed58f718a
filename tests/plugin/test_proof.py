"""``touchstone proof``: what a suite catches, exit codes, files, and that a proof that was stopped goes on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.engines.transformers import mutated
from pytest_touchstone.engines.transformers.mutants import Mutant
from tests.support.tiny import tiny_causal

BENCHMARK = """
from pytest_touchstone import Generate, Loglikelihood, benchmark

ROWS = [{"n": number} for number in range(40)]

@benchmark("choices", version=1, rows=ROWS, asks=Loglikelihood, primary="acc")
def test_choices(example):
    answers = []
    for word in ("fox", "river"):
        answers.append((yield Loglikelihood(f"The quick brown {example['n']}", f" {word}")))
    return {"acc": float(answers[0].logprob > answers[1].logprob)}

@benchmark("texts", version=1, rows=ROWS[:4], asks=Generate, primary="exact")
def test_texts(example):
    answer = yield Generate(f"The fox {example['n']}", max_new_tokens=3)
    return {"exact": float("a" in answer.text)}
"""


PROBES = 3
"""The forward passes of a mutant's probes: two items and the longest one."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a checkpoint and two benchmarks."""
    monkeypatch.chdir(tmp_path)
    tiny_causal(tmp_path / "model")
    (tmp_path / "test_both.py").write_text(
        BENCHMARK.replace("\nfrom pytest_touchstone.metrics import choice_scores", "")
    )
    return tmp_path


def prove(capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> tuple[Any, str]:
    """The plain data of a proof, and what it says meanwhile."""
    assert main(["proof", "model", "test_both.py", *more, "--format", "json"]) == code
    out, err = capsys.readouterr()
    return json.loads(out), err


def cells_of(proof: Any) -> dict[tuple[str, str], Any]:
    return {(cell["mutant"], cell["benchmark"]): cell for cell in proof["cells"]}


def test_a_proof_tells_caught_missed_and_not_applicable_apart_and_goes_on_where_it_was_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_engine = mutated.MutatedModel.open

    def noted(model: mutated.MutatedModel, *given: Any) -> Any:
        opened.append(model.info.name)
        return open_engine(model, *given)

    monkeypatch.setattr(mutated.MutatedModel, "open", noted)
    proof, progress = prove(capsys, "--classes", "positions,eos", "--must-catch", "eos", "-o", "out", code=8)
    cells = cells_of(proof)
    assert proof["benchmarks"] == {"choices": 40, "texts": 4}
    assert cells["sliding window off", "choices"]["why"] == "no layer has a sliding window"
    assert cells["another end of text", "choices"]["why"] == "it changes generated texts alone"
    assert cells["another end of text", "texts"]["state"] == "missed"
    rope = cells["rope base a tenth", "choices"]
    assert (rope["state"] == "missed") == (rope["worse"] is None)
    assert (rope["n"], rope["moved"] > 0.5, rope["tests"][0]["metric"]) == (40, True, "acc")
    assert cells["bfloat16 activations", "choices"]["moved"] <= 0.2
    assert "another end of text" in proof["missed"]
    assert proof["survivors"] == ["eos"]
    assert "5 of 5: another end of text (eos)" in progress
    assert proof["suites"]["other"]["items"]["choices"] <= 40
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == {"proof.md", "proof.json", "report.html"}
    assert json.loads((folder / "out" / "proof.json").read_text()) == proof
    for name in ("proof.md", "report.html"):
        text = (folder / "out" / name).read_text(encoding="utf-8")
        assert "rope base a tenth" in text
        assert "another end of text" in text
    assert len(opened) >= 4
    opened.clear()
    again, _ = prove(capsys, "--classes", "positions,eos")
    assert opened == []
    assert {**again, "survivors": ["eos"]} == proof


def test_a_mutant_that_the_engine_refuses_is_caught_by_items_in_error(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Mutant("broken head", "heads", _break_head)
    monkeypatch.setattr("pytest_touchstone.engines.transformers.mutants.MUTANTS", (broken,))
    proof, _ = prove(capsys, "--must-catch", "heads", "--tasks", "texts")
    cell = cells_of(proof)["broken head", "texts"]
    assert (cell["state"], cell["faults"], cell["worse"]) == ("caught", 4, [1, "failed items"])


def test_a_mutant_that_cannot_be_run_is_neither_caught_nor_not_applicable(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any, __: Any) -> None:
        raise MemoryError("no room")

    def exhaust(model: Any, _: Any) -> None:
        """Let the model compute the probes, and fail in the run of the suite."""
        import torch

        passes, head = itertools.count(), model.get_output_embeddings()
        head.weight = torch.nn.Parameter(2 * head.weight.detach(), requires_grad=False)

        def check(_module: Any, given: Any) -> None:
            if next(passes) > PROBES:
                raise RuntimeError("can't allocate memory")

        head.register_forward_pre_hook(check)

    faults = (Mutant("too big", "heads", fail), Mutant("too big later", "weights", exhaust))
    monkeypatch.setattr("pytest_touchstone.engines.transformers.mutants.MUTANTS", faults)
    proof, _ = prove(capsys, "--must-catch", "heads,weights", "--tasks", "choices", "-o", "out", code=9)
    cells = cells_of(proof)
    for mutant, reason in (("too big", "MemoryError: no room"), ("too big later", "can't allocate memory")):
        cell = cells[mutant, "choices"]
        assert (cell["state"], cell["worse"], cell["other"], cell["why"]) == ("not run", None, None, "")
        assert reason in cell["error"]
    assert (proof["missed"], proof["survivors"]) == ([], [])
    text = (folder / "out" / "proof.md").read_text()
    assert "too big: could not be run: cannot be put in (MemoryError: no room)" in text
    assert "heads must be caught, and could not be run: too big" in text


def test_a_benchmark_that_the_sound_model_has_no_score_of_is_left_out_and_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "test_both.py").write_text(BENCHMARK.replace('float("a" in answer.text)', "answer.missing"))
    proof, progress = prove(capsys, "--classes", "eos")
    assert proof["benchmarks"] == {"choices": 40}
    assert "texts: left out" in progress


def _break_head(model: Any, _: Any) -> None:
    import torch

    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.full_like(head.weight, float("nan")), requires_grad=False)


MISTAKES = {
    "proof": "touchstone: CHECKPOINT is missing",
    "proof model --classes rope": "touchstone: --classes: no class 'rope'; ",
    "proof model --must-catch positon": "touchstone: --must-catch: no class 'positon'; did you mean 'positions'?",
    "proof nowhere": "touchstone: nowhere: ",
    "proof model --tasks arc_esay": "touchstone: ",
    "proof model --limit 0": "touchstone: invalid --limit '0'",
    "proof model missing.py": "touchstone: invalid benchmarks 'missing.py'",
}


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_is_one_line_and_no_weights_are_loaded(
    arguments: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutated, "load_weights", lambda *_: pytest.fail("weights are loaded"))
    assert main(arguments.split()) == 4
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(MISTAKES[arguments])
