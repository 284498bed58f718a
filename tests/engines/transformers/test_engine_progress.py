"""While an engine answers it says how far it is, and that never falls."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import FillMask, GenerateAnswer, Loglikelihood, Request
from pytest_touchstone.engines.base import EngineProgress
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import scoring
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.masked import MaskedEngine
from pytest_touchstone.engines.transformers.pool import load_weights
from tests.support.engines import DEVICE, before_each_pass, engine_for
from tests.support.generating import prompts
from tests.support.tiny import CORPUS, tiny_causal, tiny_masked


def some_requests() -> list[Loglikelihood]:
    return [
        Loglikelihood(f"{CORPUS[0]} {text}", f" {word}") for text in CORPUS for word in ("the answer", "학교")
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal(tmp_path_factory.mktemp("progress") / "c")


@pytest.fixture(params=["CPU", "GPU"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of work on a CPU, and on a GPU: scores are read after the next pass has begun."""
    if request.param == "GPU":
        monkeypatch.setattr(scoring, "_UNREAD", {DEVICE: 1})


def watched(engine: CausalEngine | MaskedEngine, requests: list[Request]) -> list[EngineProgress]:
    """What the engine says before each pass, and at the end."""
    seen: list[EngineProgress] = []
    before_each_pass(engine, lambda _: seen.append(engine.progress()))
    engine.answer(requests)
    return [*seen, engine.progress()]


def check_grows(seen: list[EngineProgress]) -> None:
    tokens = [progress.tokens for progress in seen]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) > 2


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.usefixtures("kind")
def test_tokens_of_scores_are_counted_while_others_are_computed(folder: Path, together: bool) -> None:
    engine = engine_for(folder, batch=4, together=together)
    seen = watched(engine, list(some_requests()))
    check_grows(seen)
    assert seen[-1].tokens == engine.work_done.computed


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.usefixtures("kind")
def test_tokens_of_texts_are_counted_while_they_grow(folder: Path, together: bool) -> None:
    engine = engine_for(folder, batch=4, together=together)
    asked = prompts()
    check_grows(watched(engine, list(asked)))
    before = engine.work_done.generated
    answers = [one for one in engine.answer(asked) if isinstance(one, GenerateAnswer)]
    generated = sum(answer.samples[0].tokens for answer in answers)
    assert generated - len(answers) <= engine.work_done.generated - before <= generated


def test_masks_that_are_filled_are_counted(tmp_path: Path) -> None:
    (info,) = resolve(str(tiny_masked(tmp_path / "m")), seq_len=None)
    engine = MaskedEngine(info, load_weights(info, ModelSettings(device=DEVICE)), ModelSettings(batch=2))
    seen = watched(engine, [FillMask(f"{text[:20]} [MASK]") for text in CORPUS])
    check_grows(seen)
