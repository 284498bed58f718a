"""While an engine answers it says how far it is, and that never falls."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import FillMask, GenerateAnswer, Loglikelihood, Request
from pytest_touchstone.engines.base import EngineProgress
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import causal, scoring
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
    """The order of work on a CPU, and on a GPU: steps in blocks, scores read after the next pass has begun."""
    if request.param == "GPU":
        monkeypatch.setattr(causal, "AHEAD", {DEVICE})
        monkeypatch.setattr(scoring, "_UNREAD", {DEVICE: 1})


def watched(engine: CausalEngine | MaskedEngine, requests: list[Request]) -> list[EngineProgress]:
    """What the engine says before each pass, and at the end."""
    seen: list[EngineProgress] = []
    before_each_pass(engine, lambda _: seen.append(engine.progress()))
    engine.answer(requests)
    return [*seen, engine.progress()]


def never_falls(seen: list[EngineProgress], *names: str) -> None:
    for name in names:
        values = [getattr(one, name) for one in seen]
        assert values == sorted(values), name


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.usefixtures("kind")
def test_scores_that_are_known_are_counted_while_others_are_computed(folder: Path, together: bool) -> None:
    engine = engine_for(folder, batch=4, together=together)
    seen = watched(engine, list(some_requests()))
    never_falls(seen, "tokens", "scored", "share")
    assert len({one.scored for one in seen}) > 2
    assert (seen[-1].scored, seen[-1].share) == (seen[-1].to_score, 1.0)
    assert seen[-1].to_score == len(set(some_requests()))
    assert seen[-1].tokens == engine.work_done.computed
    assert not seen[-1].growing


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.usefixtures("kind")
def test_texts_are_told_while_they_grow(folder: Path, together: bool) -> None:
    engine = engine_for(folder, batch=4, together=together)
    asked = prompts()
    seen = watched(engine, list(asked))
    never_falls(seen, "tokens", "steps", "generated")
    growing = [pair for one in seen for pair in one.growing]
    assert {number for number, _ in growing} <= set(range(len(asked)))
    assert all(tokens <= asked[number].max_new_tokens for number, tokens in growing)
    assert max(len(one.growing) for one in seen) == (4 if together else 1)
    assert not seen[-1].growing
    answers = [one for one in engine.answer(asked) if isinstance(one, GenerateAnswer)]
    told = engine.progress().generated - seen[-1].generated
    generated = sum(answer.samples[0].tokens for answer in answers)
    assert generated - len(answers) <= told <= generated


def test_masks_that_are_filled_are_counted(tmp_path: Path) -> None:
    (info,) = resolve(str(tiny_masked(tmp_path / "m")), seq_len=None)
    engine = MaskedEngine(info, load_weights(info, ModelSettings(device=DEVICE)), ModelSettings(batch=2))
    seen = watched(engine, [FillMask(f"{text[:20]} [MASK]") for text in CORPUS])
    never_falls(seen, "tokens", "scored", "share")
    assert (seen[-1].scored, seen[-1].to_score, seen[-1].share) == (len(CORPUS), len(CORPUS), 1.0)
