"""Ways that a probe admitted are remembered; what was refused, and other models, are tried again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from pytest_touchstone.engines.transformers import causal, known_ways
from pytest_touchstone.engines.transformers.agreement import KnownWays, folder_for
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.generation.batch import BatchGenerator
from pytest_touchstone.engines.transformers.pool import load_weights
from tests.support.engines import ON_CPU, generates_together
from tests.support.families import causal_of

pytestmark = ON_CPU


@pytest.fixture
def probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The probes that are run, in their order; the cache is a folder of the test's own."""
    found: list[str] = []
    tried = KnownWays.tried

    def noted(self: KnownWays, way: str, probe: Callable[[], str | None]) -> str | None:
        def run() -> str | None:
            found.append(way)
            return probe()

        return tried(self, way, run)

    monkeypatch.setattr(KnownWays, "tried", noted)
    monkeypatch.setattr(causal, "folder_for", lambda _model: tmp_path / "ways")
    return found


def start(folder: Path, dtype: Dtype = "float32", *, remembers: bool = True) -> CausalEngine:
    (info,) = resolve(str(folder), seq_len=None)
    settings = ModelSettings(device="cpu", dtype=dtype, threads=1)
    engine = CausalEngine(info, load_weights(info, settings), settings, remembers=remembers)
    generates_together(engine)
    return engine


ALL = [
    *("without the future of 24 tokens", "beside any rows"),
    *("logits", "scores", "split scores", "texts", "lanes", "proposals"),
]


def test_the_second_start_needs_no_probe(llama: Path, probes: list[str]) -> None:
    for engine in (start(llama), start(llama)):
        assert engine.gathers
        assert engine.shares
        assert generates_together(engine)
    assert probes == ALL


def test_other_weights_of_the_same_model_need_none_and_another_model_or_type_does(
    llama: Path, tmp_path: Path, probes: list[str]
) -> None:
    start(llama)
    start(causal_of(tmp_path / "seed", "llama", seed=7))
    assert probes == ALL
    start(llama, "bfloat16")
    start(causal_of(tmp_path / "tied", "llama tied"))
    assert probes == 3 * ALL


def test_other_code_is_tried_again(llama: Path, probes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    start(llama)
    monkeypatch.setattr(known_ways, "_code", lambda: "edited")
    start(llama)
    assert probes == 2 * ALL


def test_what_was_refused_is_tried_again(
    llama: Path, probes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(BatchGenerator, "verify", lambda *_: "a logit is 7 off")
        assert "a logit is 7 off" in start(llama).notes[0]
    tried = [*ALL[: ALL.index("texts") + 1], "generate"]
    assert probes == tried
    assert start(llama).notes == []
    assert probes == [*tried, *ALL[ALL.index("texts") :]]


def test_nothing_is_remembered_unless_asked_for(llama: Path, tmp_path: Path, probes: list[str]) -> None:
    start(llama, remembers=False)
    start(llama, remembers=False)
    assert probes == 2 * ALL
    assert not (tmp_path / "ways").exists()


@pytest.mark.parametrize("content", ["", "{", "7", '{"scores": true}', "[1, 2]"])
def test_a_damaged_file_is_as_good_as_none(
    content: str, llama: Path, tmp_path: Path, probes: list[str]
) -> None:
    start(llama)
    (file,) = (tmp_path / "ways").iterdir()
    assert json.loads(file.read_text()) == sorted(ALL)
    file.write_text(content)
    start(llama)
    assert probes == 2 * ALL


def test_a_small_model_is_always_tried(llama: Path) -> None:
    assert folder_for(start(llama, remembers=False).loaded.model) is None
