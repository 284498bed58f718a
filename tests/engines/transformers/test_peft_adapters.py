"""Adapters that PEFT applies: each kind scores as PEFT's own model, and leaves base and other adapters alone."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import fingerprint
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import GenerateAnswer, RollingAnswer, RollingLoglikelihood
from pytest_touchstone.engines.registry import EnginePool, open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.pool import SharedModel
from tests.support.by_peft import MASKED, WRITTEN, best_filling, by_peft, expected, loaded, logprobs
from tests.support.lines import naming
from tests.support.resolved import only
from tests.support.tiny import tiny_adapter, tiny_causal, tiny_masked

SETTINGS = ModelSettings(device="cpu", threads=1)
QV = ["q_proj", "v_proj"]

LORA: dict[str, dict[str, Any]] = {
    "PiSSA": {"init_lora_weights": "pissa"},
    "OLoRA": {"init_lora_weights": "olora"},
    "DoRA": {"use_dora": True},
    "rsDoRA with patterns": {"use_dora": True, "use_rslora": True, "rank_pattern": {"q_proj": 2}},
    "biases of its own": {"lora_bias": True},
    "modules trained whole": {"modules_to_save": ["lm_head", "norm"]},
    "embeddings trained whole": {"modules_to_save": ["embed_tokens"]},
    "tokens": {"trainable_token_indices": [3, 4, 40]},
    "embeddings": {"target_modules": ["q_proj", "embed_tokens"]},
    "output layer": {"target_modules": ["q_proj", "lm_head"]},
    "parameters": {"target_parameters": ["mlp.gate_proj.weight"]},
    "parameters only": {"target_modules": [], "target_parameters": ["mlp.gate_proj.weight"]},
    "layers again": {"layer_replication": [[0, 2], [0, 2]]},
    "KaSA": {"kasa_config": {}},
    "BD-LoRA": {
        "use_bdlora": {"target_modules_bd_a": ["q_proj"], "target_modules_bd_b": ["v_proj"], "nblocks": 2}
    },
}

KINDS: dict[str, dict[str, Any]] = {
    "ADALORA": {"total_step": 100},
    "ADAPTION_PROMPT": {"adapter_len": 4, "adapter_layers": 1, "target_modules": "self_attn"},
    "BEFT": {},
    "BOFT": {"boft_block_size": 8},
    "C3A": {"block_size": 8},
    "DEFT": {},
    "DELORA": {},
    "FOURIERFT": {"n_frequency": 50},
    "FROD": {},
    "GLORA": {},
    "GRALORA": {},
    "HIRA": {},
    "HRA": {},
    "IA3": {"target_modules": ["v_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
    "LN_TUNING": {"target_modules": ["input_layernorm", "norm"]},
    "LOHA": {},
    "LOKR": {},
    "MISS": {"r": 4},
    "OFT": {"oft_block_size": 8, "r": 0},
    "OSF": {},
    "PEANUT": {},
    "PSOFT": {"r": 4},
    "PVERA": {},
    "RANDLORA": {"r": 4},
    "ROAD": {"group_size": 8},
    "SHIRA": {"r": 4},
    "SUPERTUNING": {},
    "TINYLORA": {},
    "TRAINABLE_TOKENS": {"token_indices": [3, 4, 40], "target_modules": ["embed_tokens"]},
    "UNILORA": {},
    "VBLORA": {"num_vectors": 8, "vector_length": 8},
    "VERA": {"save_projection": False},
    "WAVEFT": {"n_frequency": 50},
}

BY_DAY = {
    *("ADALORA", "ADAPTION_PROMPT", "IA3", "LN_TUNING", "LOHA", "MISS", "OFT", "RANDLORA", "SHIRA"),
    *("TRAINABLE_TOKENS", "VBLORA", "VERA"),
}
"""Kinds that differ in where they sit and what they keep: in layers, in the model, shared by layers, no matrices. PEFT
applies all of them by the same code of ours; each night all are tried."""


def nightly(names: Iterable[str]) -> list[Any]:
    """The names, and the mark of slow tests on kinds that are not tried by day."""
    by_night = KINDS.keys() - BY_DAY
    return [pytest.param(name, marks=pytest.mark.slow) if name in by_night else name for name in names]


ALL = {**{name: ("LORA", {"r": 4, **options}) for name, options in LORA.items()}} | {
    kind: (kind, options) for kind, options in KINDS.items()
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal(tmp_path_factory.mktemp("base") / "model", num_key_value_heads=4)


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that trains the adapter of a name, once."""
    folder = tmp_path_factory.mktemp("adapters")

    def made(name: str) -> Path:
        place = folder / name.replace(" ", "-")
        return place if place.is_dir() else trained(place, base, *ALL[name])

    return made


def trained(folder: Path, base: Path, kind: str, options: dict[str, Any], *, masked: bool = False) -> Path:
    """An adapter after a few steps of training, as PEFT saves it."""
    import peft
    import torch
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    known = {one.value: config for one, config in PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    if kind not in known:
        pytest.skip(f"this version of PEFT has no {kind}")
    options = {"target_modules": QV, "task_type": None if masked else "CAUSAL_LM", **options}
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        model = peft.get_peft_model(loaded(base, masked=masked), known[kind](**options))
        changed = [one for one in model.parameters() if one.requires_grad]
        steps, tokens = torch.optim.SGD(changed, lr=0.3), torch.randint(5, 90, (2, 12))
        for _ in range(2):
            model(input_ids=tokens, labels=tokens).loss.backward()
            steps.step()
            steps.zero_grad()
        for one in changed:
            one.data.add_(torch.randn_like(one) * 0.05)
        model.peft_config["default"].base_model_name_or_path = str(base)
        model.save_pretrained(str(folder))
    return folder


def scored(folder: Path) -> list[float]:
    engine = open_engine(only(folder), SETTINGS)
    found = logprobs(engine)
    engine.close()
    return found


def fault(folder: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_engine(only(folder, **options), SETTINGS).close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def change_config(folder: Path, **values: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")


@pytest.mark.parametrize("name", nightly(ALL))
def test_an_adapter_scores_as_pefts_own_model(base: Path, adapter: Callable[[str], Path], name: str) -> None:
    folder = adapter(name)
    info = only(folder)
    assert info.by_peft
    assert scored(folder) == pytest.approx(expected(base, folder), abs=1e-3)


@pytest.mark.slow
def test_adapters_of_all_kinds_share_one_base_in_any_order(
    base: Path, adapter: Callable[[str], Path]
) -> None:
    import torch

    folders = [adapter(name) for name in ALL]
    opened: Any = SharedModel(SETTINGS)
    first = opened(only(folders[0]))
    weights = {name: one.clone() for name, one in opened._plain.model.named_parameters()}
    engines = [first, *(opened(only(folder)) for folder in folders[1:])]
    for _ in range(2):
        for folder, engine in [*zip(folders, engines, strict=True)][::-1]:
            assert logprobs(engine) == pytest.approx(expected(base, folder), abs=1e-3), folder.name
    for name, one in opened._plain.model.named_parameters():
        assert torch.equal(one, weights[name]), name
    own = loaded(base)
    assert all(torch.equal(one, weights[name]) for name, one in own.named_parameters())
    shared = {one.data_ptr() for one in opened._plain.model.parameters()}
    for engine in engines:
        held = [one for one in engine.loaded.model.parameters() if one.data_ptr() in shared]
        assert len(held) >= len(weights) - 4, "all but what it changes is the base's own"


@pytest.mark.slow
def test_base_plain_lora_and_these_in_one_session_score_as_alone(
    base: Path, adapter: Callable[[str], Path], tmp_path: Path
) -> None:
    plain = tiny_adapter(tmp_path / "plain", base)
    folders = [base, adapter("PiSSA"), plain, adapter("IA3"), base, adapter("OLoRA"), plain, base]
    alone = {folder: scored(folder) for folder in folders}
    pool = EnginePool(SETTINGS)
    assert [logprobs(pool.engine(only(folder))) for folder in folders] == [alone[one] for one in folders]
    pool.close()


@pytest.mark.parametrize("name", ["DoRA", "IA3", "layers again", "ADAPTION_PROMPT", "modules trained whole"])
def test_texts_are_those_of_peft(base: Path, adapter: Callable[[str], Path], name: str) -> None:
    import torch
    from transformers import AutoTokenizer

    engine = open_engine(only(adapter(name)), SETTINGS)
    found = [one.samples[0].text for one in engine.answer(WRITTEN) if isinstance(one, GenerateAnswer)]
    engine.close()
    model, tokenizer = by_peft(base, adapter(name)), AutoTokenizer.from_pretrained(base)
    for asked, text in zip(WRITTEN, found, strict=True):
        tokens = tokenizer.encode(asked.prompt)
        given = len(tokens)
        for _ in range(asked.max_new_tokens):
            with torch.inference_mode():
                best = int(model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax())
            if best == model.config.eos_token_id:
                break
            tokens.append(best)
        assert text == tokenizer.decode(tokens[given:], skip_special_tokens=True)


def test_experts_that_transformers_has_merged_since_are_converted(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    base = tiny_causal(tmp_path / "base", model_type="mixtral")
    folder = trained(tmp_path / "old", base, "LORA", {"r": 4, "target_modules": ["q_proj"]})
    change_config(folder, target_modules=["q_proj", "w1", "w2", "w3"])
    tensors = load_file(folder / "adapter_model.safetensors")
    sizes = loaded(base).config
    numbers = torch.Generator().manual_seed(1)
    for layer in range(sizes.num_hidden_layers):
        for expert in range(sizes.num_local_experts):
            place = f"base_model.model.model.layers.{layer}.block_sparse_moe.experts.{expert}"
            for name in ("w1", "w2", "w3"):
                gives, takes = sizes.intermediate_size, sizes.hidden_size
                if name == "w2":
                    gives, takes = takes, gives
                for letter, shape in (("A", (4, takes)), ("B", (gives, 4))):
                    one = torch.randn(shape, generator=numbers) * 0.3
                    tensors[f"{place}.{name}.lora_{letter}.weight"] = one
    save_file(tensors, folder / "adapter_model.safetensors")
    assert scored(folder) == pytest.approx(expected(base, folder), abs=1e-3)


@pytest.mark.parametrize("options", [{"use_dora": True}, {"modules_to_save": ["cls"]}], ids=["DoRA", "head"])
def test_masked_models_take_them_too(tmp_path: Path, options: dict[str, Any]) -> None:

    from pytest_touchstone.core.requests import FillMask, FillMaskAnswer

    base = tiny_masked(tmp_path / "base")
    options = {"r": 4, "target_modules": ["query", "value"], **options}
    folder = trained(tmp_path / "lora", base, "LORA", options, masked=True)
    engine = open_engine(only(folder), SETTINGS)
    (answer,) = engine.answer([FillMask(MASKED, 1)])
    engine.close()
    assert isinstance(answer, FillMaskAnswer)
    assert answer.candidates[0].logprob == pytest.approx(best_filling(base, folder), abs=1e-3)


@pytest.mark.parametrize("name", nightly([*KINDS, "DoRA", "modules trained whole", "tokens", "parameters"]))
def test_a_tensor_that_is_missing_or_has_no_place_is_named(
    adapter: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    import shutil

    import torch
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(adapter(name), tmp_path / "copy"))
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file(
        {**tensors, "base_model.model.extra.lora_A.weight": torch.zeros(4, 4)},
        folder / "adapter_model.safetensors",
    )
    assert "extra.lora_A" in fault(folder)
    for gone in {min(tensors), max(tensors)}:
        rest = {key: value for key, value in tensors.items() if key != gone}
        rest = rest or {"base_model.model.extra.lora_A.weight": torch.zeros(4, 4)}
        save_file(rest, folder / "adapter_model.safetensors")
        assert str(folder) in fault(folder)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"peft_type": "PREFIX_TUNING"}, "peft_type 'PREFIX_TUNING' puts virtual tokens before every text"),
        ({"peft_type": "P_TUNING"}, "puts virtual tokens"),
        ({"peft_type": "LILY"}, "peft_type 'LILY' is not supported"),
        ({"peft_type": "XLORA"}, "peft_type 'XLORA' is not supported"),
        ({"peft_type": "SHADOW"}, "peft_type 'SHADOW' is not supported"),
        ({"peft_type": "BONE"}, "does not know peft_type 'BONE'"),
        ({"init_lora_weights": "pissa_niter_4"}, "path_initial_model_for_weight_conversion"),
        ({"init_lora_weights": "corda"}, "init_lora_weights='corda'"),
        ({"init_lora_weights": "lora_ga"}, "init_lora_weights='lora_ga'"),
        ({"init_lora_weights": "loftq"}, "init_lora_weights='loftq'"),
        ({"alora_invocation_tokens": [5]}, "alora_invocation_tokens depends on the tokens before it"),
        ({"megatron_config": {"a": 1}, "megatron_core": "os"}, "megatron_config names code to run"),
        ({"sample_at_inference": True}, "sample_at_inference draws random numbers"),
        ({"modules_to_save": ["(a+)+"]}, "cannot be used"),
        ({"exclude_modules": ".*.*.*.*.*.*.*.*x"}, "cannot be used"),
        ({"r": 10**9}, "r=1000000000"),
        ({"use_dora": True, "modules_to_save": ["norm"]}, "norm"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else None,
)
def test_what_cannot_be_restored_or_scored_is_refused_by_name(
    adapter: Callable[[str], Path], tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    import shutil

    folder = Path(shutil.copytree(adapter("DoRA"), tmp_path / "copy"))
    change_config(folder, **values)
    assert said in fault(folder)


def test_random_numbers_in_loading_are_noticed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = "pissa_niter_4"
    monkeypatch.setattr("pytest_touchstone.checkpoints.formats.lora._INITIAL", ("true", random))
    folder = trained(
        tmp_path / "random", base, "LORA", {"r": 4, "init_lora_weights": random, "use_dora": True}
    )
    assert naming("random numbers").search(fault(folder))


def test_an_embedding_with_more_rows_than_the_bases_is_refused(base: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = trained(tmp_path / "more", base, "LORA", {"r": 4, "modules_to_save": ["embed_tokens"]})
    tensors = load_file(folder / "adapter_model.safetensors")
    name = "base_model.model.model.embed_tokens.weight"
    tensors[name] = tensors[name].repeat(2, 1)
    save_file(tensors, folder / "adapter_model.safetensors")
    said = fault(folder)
    assert "embed_tokens" in said
    assert "--eval-base-model" in said


def test_settings_that_peft_does_not_know_are_noted(adapter: Callable[[str], Path], tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(adapter("DoRA"), tmp_path / "copy"))
    change_config(folder, of_a_later_version=3)
    engine: Any = open_engine(only(folder), SETTINGS)
    assert any(naming("settings of_a_later_version").search(note) for note in engine.notes)
    engine.close()


def test_the_lack_of_peft_is_one_line(
    adapter: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_touchstone.engines.transformers import adapters

    monkeypatch.setattr(adapters, "find_spec", lambda _: None)
    assert "pip install 'pytest-touchstone[peft]'" in fault(adapter("DoRA"))


def test_every_setting_and_tensor_counts_in_the_fingerprint(
    adapter: Callable[[str], Path], tmp_path: Path
) -> None:
    import shutil

    folder = Path(shutil.copytree(adapter("IA3"), tmp_path / "copy"))
    before = fingerprint(only(folder))
    assert before == fingerprint(only(adapter("IA3")))
    change_config(folder, feedforward_modules=[])
    assert fingerprint(only(folder)) != before


ADDED = ("<|im_start|>", "<|im_end|>")

GROWN: dict[str, dict[str, Any]] = {
    "embeddings stored by PEFT": {},
    "embeddings trained whole": {"modules_to_save": ["embed_tokens", "lm_head"]},
    "embeddings adapted": {"target_modules": ["q_proj", "embed_tokens", "lm_head"]},
    "embeddings padded to a multiple of 64": {"modules_to_save": ["embed_tokens", "lm_head"], "rows": 448},
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", GROWN)
def test_an_adapter_with_added_tokens_scores_as_the_model_that_was_trained(
    kind: str, tied: bool, tmp_path: Path
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoTokenizer

    settings = dict(GROWN[kind])
    if tied and "lm_head" in settings.get("modules_to_save", []):
        settings["modules_to_save"] = ["embed_tokens"]
    base = tiny_causal(tmp_path / "base", tie_word_embeddings=tied)
    before = logprobs(open_engine(only(base), SETTINGS))
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.add_special_tokens({"additional_special_tokens": list(ADDED)})
    model = loaded(base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.resize_token_embeddings(settings.pop("rows", len(tokenizer)))
        trained = get_peft_model(model, LoraConfig(r=4, **{"target_modules": QV, **settings}))
        for parameter in trained.parameters():
            if parameter.requires_grad:
                parameter.data.add_(torch.randn(parameter.shape) * 0.2)
        trained.peft_config["default"].base_model_name_or_path = str(base)
        trained.save_pretrained(str(tmp_path / "adapter"))
    tokenizer.save_pretrained(tmp_path / "adapter")

    engine = open_engine(only(tmp_path / "adapter"), SETTINGS)
    trained.eval()
    for text in ("The answer is", f"{ADDED[0]}The river was{ADDED[1]}"):
        ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]
        with torch.no_grad():
            expected_logprobs = trained(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
        total = sum(float(expected_logprobs[place, token]) for place, token in enumerate(ids[1:]))
        (answer,) = engine.answer([RollingLoglikelihood(text)])
        assert isinstance(answer, RollingAnswer)
        assert answer.logprob == pytest.approx(total, abs=1e-3)
    assert logprobs(open_engine(only(base), SETTINGS)) == pytest.approx(before, abs=1e-4)
