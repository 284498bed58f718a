"""The report of a proof: its cells, the suite as rules of a gate, and its plain data."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from pytest_touchstone.compare.gate.config import read_gate_config
from pytest_touchstone.compare.proof import ERRORS, MetricTest, Proof, ProofCell, ProvenSuite
from pytest_touchstone.document import render_markdown, render_text
from pytest_touchstone.document.language import use_language
from pytest_touchstone.reports.proof import gate_lines, proof_facts, proof_sections


def cell(mutant: str, benchmark: str, z: float, **more: object) -> ProofCell:
    tests = (
        MetricTest(metric="acc", difference=-0.05, z=-1.0, items=784),
        MetricTest(metric="log_odds", difference=-0.2, z=z, items=40),
    )
    given = {"kind": "norms", "n": 100, "tests": tests, "moved": 1.0, "items_to_move": 2, **more}
    return ProofCell(mutant=mutant, benchmark=benchmark, **given)  # type: ignore[arg-type]


PROOF = Proof(
    checkpoint="m",
    benchmarks={"x": 100, "y": 100},
    cells=(
        *(cell("loud", "x", -5.0), cell("loud", "y", -0.5)),
        *(cell("quiet", "x", -1.0), cell("quiet", "y", -1.0, moved=0.05, items_to_move=None)),
        *(cell("broken", "x", -1.0), cell("broken", "y", -1.0, faults=3)),
        *(ProofCell(mutant="no", kind="eos", benchmark=name, why="it has none") for name in ("x", "y")),
        *(ProofCell(mutant="big", kind="norms", benchmark=name, error="MemoryError") for name in ("x", "y")),
    ),
    control=tuple(
        cell("rounded", name, 0.1, kind="control", moved=float("nan"), items_to_move=None)
        for name in ("x", "y")
    ),
)


def test_every_form_tells_what_is_caught_missed_and_not_applicable() -> None:
    sections = proof_sections(PROOF, {"norms": ["quiet"]}, {"norms": ["big"]})
    for text in (render_text(sections, width=200, color=False), "\n".join(render_markdown(sections))):
        lines = {
            name: next(line for line in text.splitlines() if name in line)
            for name in ("loud", "quiet", "broken")
        }
        assert "log_odds 40 / 2" in lines["loud"]
        assert lines["quiet"].count("missed") == 2
        assert "failed items / 1" in lines["broken"]
        assert "no: it has none" in text
        assert "norms must be caught, and survive: quiet" in text
        assert "big: could not be run: MemoryError" in text
        assert "norms must be caught, and could not be run: big" in text


@pytest.mark.parametrize("language", ["ko", "zh"])
def test_the_report_is_told_in_other_languages(language: str) -> None:
    with use_language(language):
        sections = proof_sections(PROOF, {"norms": ["quiet"]}, {"norms": ["big"]})
        text = render_text(sections, width=200, color=False).replace("it has none", "")
    words = set(
        re.findall(r"[A-Za-z_]{2,}", re.sub(r"touchstone run .*|\[tool.*|metrics = .*|margin = .*", "", text))
    )
    names = {cell.mutant for cell in (*PROOF.cells, *PROOF.control)} | {cell.kind for cell in PROOF.cells}
    assert words <= {*names, "control", "acc", "log_odds", "nan", "pyproject", "toml", "MemoryError"}


def test_the_plain_data_has_every_cell_and_no_number_that_json_has_not() -> None:
    facts = json.loads(json.dumps(proof_facts(PROOF), allow_nan=False))
    states = {(cell["mutant"], cell["benchmark"]): cell["state"] for cell in facts["cells"]}
    assert states["loud", "x"] == "caught"
    assert states["quiet", "x"] == "missed"
    assert states["no", "y"] == "not applicable"
    assert states["big", "y"] == "not run"
    assert list(facts["failed"]) == ["big"]
    assert (facts["cells"][0]["worse"], facts["cells"][-1]["moved"]) == ([40, "log_odds"], None)
    assert facts["suites"]["worse"] == {
        "items": {"x": 40, "y": 1},
        "metrics": {"x": ["log_odds"], "y": []},
        "catches": ["loud", "broken"],
    }
    assert facts["effects"] == {"x": {"log_odds": 0.2}}


def test_the_rules_of_a_gate_are_read_by_the_gate(tmp_path: Path) -> None:
    suite = ProvenSuite(
        {"x": 40, "gsm8k:bpb": 9, "y": 1}, {"x": ["acc", "log_odds"], "gsm8k:bpb": ["acc"], "y": []}, ()
    )
    text = "\n".join(gate_lines(suite))
    assert set(tomllib.loads(text)["tool"]["touchstone"]["gate"]["benchmarks"]) == {"x", "gsm8k:bpb"}
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    config = read_gate_config(tmp_path / "pyproject.toml", required=True)
    assert config.rules_of("x").metrics == ("acc", "log_odds")
    assert config.rules_of("gsm8k:bpb").metrics == ("acc",)
    assert ERRORS.metric not in text
