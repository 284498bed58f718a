"""The next checkpoint is loaded beside the one that answers, where that changes no answer and memory allows it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoints import CheckpointInfo, resolve
from harness.core.errors import CheckpointError
from harness.core.requests import Loglikelihood
from harness.engines.base import Engine
from harness.engines.settings import Dtype
from harness.engines.transformers import load_ahead
from harness.engines.transformers.compat import collector_paused
from harness.engines.transformers.factory import ModelSettings, load, load_weights
from harness.engines.transformers.load_ahead import LoadAhead
from harness.engines.transformers.pool import EnginePool
from harness.engines.transformers.read_ahead import ReadAhead, available_bytes
from tests.engines.transformers.test_shared_prefix import FAMILIES, model_of
from tests.support.tiny import tiny_causal, tiny_masked

SETTINGS = ModelSettings(device="cpu", threads=1)
ASKED = [Loglikelihood("The answer is", f" {word}") for word in ("42", "the river", "small")]
PLENTY = 1 << 40


def recognised(source: Path | str) -> CheckpointInfo:
    (found,) = resolve(str(source), seq_len=None)
    return found


@pytest.fixture(scope="module")
def infos(tmp_path_factory: pytest.TempPathFactory) -> list[CheckpointInfo]:
    """Two checkpoints of different weights."""
    folder = tmp_path_factory.mktemp("tiny")
    return [recognised(tiny_causal(folder / str(seed), seed=seed)) for seed in range(2)]


@pytest.fixture
def info(infos: list[CheckpointInfo]) -> CheckpointInfo:
    return infos[0]


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside an accelerator; there is none where these tests run."""
    monkeypatch.setattr(load_ahead, "BESIDE", ("cpu",))


@pytest.fixture
def pool() -> Iterator[EnginePool]:
    pool = EnginePool(SETTINGS)
    pool._next = LoadAhead(SETTINGS, lambda: PLENTY)
    yield pool
    pool.close()


def tensors(model: Any) -> dict[str, Any]:
    return dict([*model.named_parameters(), *model.named_buffers()])


def answers(engine: Engine) -> list[Any]:
    return engine.answer(ASKED)


def ahead(settings: ModelSettings = SETTINGS, memory: int | None = PLENTY, **environ: str) -> LoadAhead:
    return LoadAhead(settings, lambda: memory, environ)


def test_what_was_loaded_ahead_answers_as_if_loaded_when_asked_for(
    pool: EnginePool, infos: list[CheckpointInfo], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(load(infos[1], SETTINGS))
    first = pool.engine(infos[0])
    before = answers(first)
    assert pool.load_ahead(infos[1], beside=first)
    assert answers(first) == before
    assert pool._next._thread is not None
    pool._next._thread.join()
    monkeypatch.setattr("harness.engines.transformers.loading.load_model", None)  # it is not loaded again
    assert answers(pool.engine(infos[1])) == expected


def test_another_that_is_asked_for_is_loaded_as_ever(pool: EnginePool, infos: list[CheckpointInfo]) -> None:
    expected = answers(load(infos[0], SETTINGS))
    assert pool.load_ahead(infos[1], beside=pool.engine(infos[0]))
    pool._let_go()
    assert answers(pool.engine(infos[0])) == expected


def test_one_that_is_in_memory_is_not_loaded_again(pool: EnginePool, info: CheckpointInfo) -> None:
    engine = pool.engine(info)
    assert not pool.load_ahead(info, beside=engine)


def test_nothing_is_loaded_beside_an_engine_of_somebody_else(
    pool: EnginePool, infos: list[CheckpointInfo]
) -> None:
    pool.engine(infos[0])
    assert not pool.load_ahead(infos[1], beside=load(infos[0], SETTINGS))


def test_what_cannot_be_loaded_is_said_when_it_is_asked_for(
    pool: EnginePool, info: CheckpointInfo, tmp_path: Path
) -> None:
    gone = replace(info, name="gone", path=tmp_path / "gone")
    assert pool.load_ahead(gone, beside=pool.engine(info))
    with pytest.raises(CheckpointError, match="gone"):
        pool.engine(gone)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", [*FAMILIES, "bert", "deberta-v2", "distilbert"])
def test_a_model_loaded_beside_another_is_the_same_in_every_tensor(
    family: str, dtype: Dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    known = family in FAMILIES
    folder = model_of(tmp_path, family) if known else tiny_masked(tmp_path / "masked", model_type=family)
    info = recognised(folder)
    settings = replace(SETTINGS, dtype=dtype)
    usual = tensors(load_weights(info, settings).model)
    one = ahead(settings)
    types: list[Any] = []
    monkeypatch.setattr(torch, "set_default_dtype", types.append)
    assert one.begin(info)
    assert one._thread is not None
    one._thread.join()
    monkeypatch.undo()
    loaded = one.take(info)
    assert loaded is not None
    assert set(types) <= {torch.float32}, "another type for the whole process"
    made = tensors(loaded.model)
    assert made.keys() == usual.keys()
    for name, tensor in usual.items():
        assert tensor.dtype == made[name].dtype, name
        assert torch.equal(tensor, made[name]), name


def test_a_tensor_of_another_type_than_usual_has_the_model_loaded_again(info: CheckpointInfo) -> None:
    one = ahead()
    assert one.begin(info)
    assert one._thread is not None
    one._thread.join()
    assert one._loaded is not None
    one._loaded.model.lm_head.weight.data = one._loaded.model.lm_head.weight.data.half()
    assert one.take(info) is None


def test_beside_a_cpu_that_computes_the_files_alone_are_read(
    info: CheckpointInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    one = ahead()
    assert not one.begin(info)
    assert one._files._thread is not None
    one.close()


def test_code_of_the_checkpoint_does_not_run_beside_another(info: CheckpointInfo) -> None:
    one = ahead()
    assert not one.begin(replace(info, trust_remote_code=True))
    one.close()


def test_memory_that_is_short_or_unknown_is_left_alone(info: CheckpointInfo) -> None:
    assert info.parameters is not None
    enough = 2 * 4 * info.parameters
    for memory, workers, loads in (
        (enough, "1", True),
        (enough - 1, "1", False),
        (enough, "2", False),
        (2 * enough, "2", True),
        (None, "1", False),
    ):
        one = ahead(memory=memory, PYTEST_XDIST_WORKER_COUNT=workers)
        assert one.begin(info) is loads, (memory, workers)
        one.close()


def test_each_is_loaded_ahead_once(info: CheckpointInfo) -> None:
    one = ahead()
    assert one.begin(info)
    assert one.take(info) is not None
    assert one.take(info) is None
    assert not one.begin(info)
    one.close()


def test_a_model_is_freed_when_another_is_asked_for_though_nothing_is_collected(
    infos: list[CheckpointInfo],
) -> None:
    pool = EnginePool(SETTINGS)
    model: weakref.ref[Any] = weakref.ref(pool.engine(infos[0])._engine._loaded.model)  # type: ignore[attr-defined]
    gc.disable()
    try:
        pool._let_go()
        assert model() is None
    finally:
        gc.enable()
    pool.close()


def test_a_model_that_does_not_fit_on_its_device_is_one_line(
    pool: EnginePool, infos: list[CheckpointInfo], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaForCausalLM

    def out_of_memory(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA out of memory.\nTried to allocate 3 GiB")

    first = pool.engine(infos[0])
    assert pool.load_ahead(infos[1], beside=first)
    monkeypatch.setattr(LlamaForCausalLM, "to", out_of_memory)
    with pytest.raises(
        CheckpointError, match=r"1: cannot be put on cpu \(RuntimeError: CUDA out of .*; free memory"
    ):
        pool.engine(infos[1])
    with pytest.raises(CheckpointError, match="0: cannot be put on cpu"):
        load(infos[0], SETTINGS)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_when_a_model_is_loaded(enabled: bool) -> None:
    assert gc.isenabled()
    try:
        if not enabled:
            gc.disable()
        with collector_paused():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


def test_the_collector_is_as_before_when_a_model_cannot_be_loaded(
    info: CheckpointInfo, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError):
        EnginePool(SETTINGS).engine(replace(info, path=tmp_path / "gone"))
    assert gc.isenabled()


def test_files_are_read_once(info: CheckpointInfo) -> None:
    files = ReadAhead(lambda: PLENTY)
    assert files.begin(info)
    files.close()
    assert not files.begin(info)


def test_no_files_are_read_where_memory_is_short_or_unknown(info: CheckpointInfo) -> None:
    size = (info.path / "model.safetensors").stat().st_size
    assert not ReadAhead(lambda: size).begin(info)
    assert not ReadAhead(lambda: None).begin(info)


def test_files_that_have_gone_are_left_to_whoever_loads_them(info: CheckpointInfo, tmp_path: Path) -> None:
    files = ReadAhead(lambda: PLENTY)
    files.begin(replace(info, path=tmp_path / "gone"))
    files.close()


def test_reading_ends_when_the_run_does(info: CheckpointInfo, tmp_path: Path) -> None:
    large = tmp_path / "large.gguf"
    with large.open("wb") as file:
        file.truncate(1 << 34)
    files = ReadAhead(lambda: PLENTY)
    assert files.begin(replace(info, format="gguf", path=large))
    files.close()


def test_linux_says_how_much_memory_there_is() -> None:
    assert (available_bytes() or 1) > 0


def test_a_fake_checkpoint_has_no_files() -> None:
    fake = recognised("fake:causal")
    assert not ReadAhead().begin(fake)
    assert not ahead().begin(fake)
