"""Plain LoRA: recognised with their base, applied as PEFT applies them, and one base in memory for all."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import fingerprint
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    FillMask,
    FillMaskAnswer,
    GenerateAnswer,
)
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.registry import EnginePool, open_engine
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.by_peft import ASKED, MASKED, WRITTEN, best_filling, by_peft, expected, logprobs
from tests.support.engines import DEVICE, generates_together
from tests.support.lines import naming
from tests.support.resolved import only
from tests.support.tiny import tiny_adapter, tiny_causal, tiny_masked, trainer_state

SETTINGS = ModelSettings(device=DEVICE, threads=1)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_adapter(tmp_path_factory.mktemp("lora") / "checkpoint-6000", base)


@pytest.fixture
def copied(adapter: Path, tmp_path: Path) -> Path:
    """A fresh copy to break."""
    return Path(shutil.copytree(adapter, tmp_path / "checkpoint-6000"))


def change_config(folder: Path, **values: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")


def texts(engine: Engine) -> list[str]:
    answers = engine.answer(WRITTEN)
    return [answer.samples[0].text for answer in answers if isinstance(answer, GenerateAnswer)]


def test_an_adapter_is_described_with_its_base(base: Path, copied: Path) -> None:
    trainer_state(copied, global_step=6000, epoch=1.5)
    info = only(copied)
    assert (info.name, info.kind, info.format, info.training.global_step) == (
        "checkpoint-6000",
        "causal",
        "adapter",
        6000,
    )
    assert naming("LlamaForCausalLM", "LoRA", "rank 4", "4 modules").search(info.architecture)
    assert info.base is not None
    assert (info.base.path, info.seq_len) == (base, 128)
    assert info.weights.parameters == (info.base.weights.parameters or 0) + int(
        info.extra["adapter_parameters"]
    )


@pytest.mark.parametrize(
    ("model_type", "options"),
    [
        ("llama", {}),
        ("llama", {"use_rslora": True, "lora_alpha": 3, "rank": 3}),
        ("llama", {"targets": ("q_proj", "up_proj", "down_proj", "lm_head"), "lora_alpha": 32}),
        ("llama", {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"layers.1.self_attn.v_proj": 5}}),
        ("gpt2", {"targets": ("c_attn", "c_proj"), "fan_in_fan_out": True}),
        ("qwen2", {"targets": ("q_proj", "k_proj", "gate_proj")}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_scores_are_those_of_peft(tmp_path: Path, model_type: str, options: dict[str, Any]) -> None:
    base = tiny_causal(tmp_path / "base", model_type=model_type)
    adapter = tiny_adapter(tmp_path / "lora", base, **options)
    engine = open_engine(only(adapter), SETTINGS)
    assert logprobs(engine) == pytest.approx(expected(base, adapter), abs=1e-4)
    engine.close()


@pytest.mark.parametrize("initial", ["gaussian", "orthogonal", "mica", False])
def test_how_plain_lora_was_initialized_does_not_matter(base: Path, tmp_path: Path, initial: object) -> None:
    adapter = tiny_adapter(tmp_path / "lora", base, init_lora_weights=initial)
    info = only(adapter)
    assert not info.by_peft
    engine = open_engine(info, SETTINGS)
    assert logprobs(engine) == pytest.approx(expected(base, adapter), abs=1e-4)
    engine.close()


def test_an_adapter_of_a_tied_output_layer_leaves_the_embeddings_alone(tmp_path: Path) -> None:
    """PEFT saves the base's embeddings along, as they are."""
    base = tiny_causal(tmp_path / "base", tie_word_embeddings=True)
    adapter = tiny_adapter(tmp_path / "lora", base, targets=("q_proj", "lm_head"))
    engine = open_engine(only(adapter), SETTINGS)
    assert logprobs(engine) == pytest.approx(expected(base, adapter), abs=1e-4)
    engine.close()


def test_texts_are_those_of_peft(base: Path, adapter: Path) -> None:
    import torch
    from transformers import AutoTokenizer

    engine = open_engine(only(adapter), SETTINGS)
    model, tokenizer = by_peft(base, adapter), AutoTokenizer.from_pretrained(base)
    found = []
    for asked in WRITTEN:
        ids = torch.tensor([tokenizer.encode(asked.prompt)])
        made = model.generate(input_ids=ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
        found.append(tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))
    assert texts(engine) == found
    engine.close()


def test_a_masked_models_adapter_fills_masks_as_peft_does(tmp_path: Path) -> None:

    base = tiny_masked(tmp_path / "base")
    adapter = tiny_adapter(tmp_path / "lora", base, targets=("query", "value", "dense"))
    engine = open_engine(only(adapter), SETTINGS)
    (answer,) = engine.answer([FillMask(MASKED, 1)])
    engine.close()
    assert isinstance(answer, FillMaskAnswer)
    assert answer.candidates[0].logprob == pytest.approx(best_filling(base, adapter), abs=1e-4)


def test_base_and_adapters_share_one_model_and_answer_as_they_do_alone(
    base: Path, adapter: Path, tmp_path: Path
) -> None:
    other = tiny_adapter(tmp_path / "other", base, seed=9, targets=("k_proj", "down_proj"))
    infos = [only(path) for path in (base, adapter, other)]
    alone = []
    for info in infos:
        engine = open_engine(info, SETTINGS)
        alone.append((logprobs(engine), texts(engine)))
        engine.close()
    pool = EnginePool(SETTINGS)
    engines = [pool.engine(info) for info in infos]
    for _ in range(2):  # in turn: an adapter must leave nothing behind
        assert [(logprobs(engine), texts(engine)) for engine in engines] == alone
    assert alone[0] != alone[1] != alone[2]
    models = {id(engine.loaded.model) for engine in engines}  # type: ignore[attr-defined]
    assert len(models) == 1
    assert [pool.engine(info) for info in infos] == engines, "each is made once"
    pool.close()


def test_an_adapter_goes_the_fast_ways_too(adapter: Path) -> None:
    engine: Any = open_engine(only(adapter), SETTINGS)
    assert engine.shares
    assert generates_together(engine)
    assert engine.notes == []
    engine.close()


def test_a_base_is_freed_when_another_is_loaded(base: Path, tmp_path: Path) -> None:
    import gc
    import weakref

    pool = EnginePool(SETTINGS)
    engine: Any = pool.engine(only(base))
    model = weakref.ref(engine.loaded.model)
    other = pool.engine(only(tiny_causal(tmp_path / "other", seed=5)))
    gc.collect()
    assert model() is None
    assert other.answer(ASKED)
    pool.close()


def test_the_base_may_be_named_by_the_user(base: Path, copied: Path) -> None:
    change_config(copied, base_model_name_or_path="somewhere/that-is-gone")
    (copied.parent / "somewhere").mkdir()
    info = only(copied, base_model=str(base))
    assert info.base is not None
    assert info.base.path == base


def fault(folder: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_engine(only(folder, **options), SETTINGS).close()
    assert "\n" not in str(caught.value)
    assert str(folder.name) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"r": 8}, "its rank is 8"),
        ({"rank_pattern": {"(a+)+": 3}}, "cannot be used"),
        ({"base_model_name_or_path": None}, "names no base model; give --eval-base-model"),
        (
            {"target_modules": ["q_proj", "v_proj", "k_proj"]},
            "targets 2 modules for which there are no tensors",
        ),
        ({"r": "four"}, "r='four'"),
    ],
    ids=lambda value: str(value)[:24] if isinstance(value, dict) else None,
)
def test_a_config_that_does_not_fit_is_refused_by_name(
    copied: Path, values: dict[str, Any], said: str
) -> None:
    change_config(copied, **values)
    assert said in fault(copied)


def test_an_adapter_of_another_model_is_refused(copied: Path, tmp_path: Path) -> None:
    wider = tiny_causal(tmp_path / "wider", hidden_size=64)
    assert re.search(r"q_proj \[32, 32\] .*\[64, 64\]", fault(copied, base_model=str(wider)))
    gpt2 = tiny_causal(tmp_path / "gpt2", model_type="gpt2")
    assert naming("4 modules", "base").search(fault(copied, base_model=str(gpt2)))
    assert "an adapter itself" in fault(copied, base_model=str(copied))


def test_a_tensor_without_its_other_half_is_named(copied: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(copied / "adapter_model.safetensors")
    tensors.pop("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight")
    save_file(tensors, copied / "adapter_model.safetensors")
    assert "without its other half" in fault(copied)
    (copied / "adapter_model.safetensors").unlink()
    assert "no weights of the adapter" in fault(copied)


def test_pickled_adapters_are_read_too(base: Path, copied: Path) -> None:
    import torch
    from safetensors.torch import load_file

    before = fingerprint(only(copied))
    engine = open_engine(only(copied), SETTINGS)
    scores = logprobs(engine)
    engine.close()
    torch.save(load_file(copied / "adapter_model.safetensors"), copied / "adapter_model.bin")
    (copied / "adapter_model.safetensors").unlink()
    engine = open_engine(only(copied), SETTINGS)
    assert logprobs(engine) == scores
    engine.close()
    assert fingerprint(only(copied)) == before


def test_an_adapters_fingerprint_follows_its_base_and_its_tensors(
    adapter: Path, copied: Path, tmp_path: Path
) -> None:
    assert fingerprint(only(adapter)) == fingerprint(only(copied))
    other = tiny_causal(tmp_path / "other", seed=3)
    assert fingerprint(only(copied, base_model=str(other))) != fingerprint(only(adapter))
    change_config(copied, lora_alpha=64)
    assert fingerprint(only(copied)) != fingerprint(only(adapter))
