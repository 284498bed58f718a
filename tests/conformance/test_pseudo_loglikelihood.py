"""Pseudo-log-likelihoods of texts are those of another program: ``record_minicons.py`` has recorded them."""

from __future__ import annotations

import pytest

from fixtures.build.record_minicons import RECORDED
from pytest_touchstone import PseudoLoglikelihood, RollingAnswer
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from tests.conformance.kit import kits
from tests.support.places import ROOT
from tests.support.rows import read_jsonl

CASES = read_jsonl(RECORDED)


def test_the_texts_are_those_of_the_benchmark() -> None:
    (kit,) = [kit for kit in kits() if kit.spec.name == "kobest_copa_masked"]
    loaded = kit.loaded(0)
    asked = [one for example in kit.examples for one in kit.begin(example, loaded)[1]]
    assert asked == [PseudoLoglikelihood(case["text"]) for case in CASES[: len(asked)]]
    assert len(asked) >= 40


def test_every_score_is_the_references() -> None:
    (info,) = resolve(str(ROOT / CASES[0]["model"]), seq_len=None)
    found = open_engine(info, ModelSettings(device="cpu")).answer(
        [PseudoLoglikelihood(case["text"]) for case in CASES]
    )
    for case, answer in zip(CASES, found, strict=True):
        assert isinstance(answer, RollingAnswer)
        assert answer.tokens == case["tokens"], case["text"]
        assert answer.logprob == pytest.approx(case["logprob"], abs=1e-3), case["text"]
