"""Mutants: each is what its name says, in any family, and leaves no trace; nothing of the sound model serves it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama import modeling_llama

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, Loglikelihood, LoglikelihoodAnswer, Request, Turn
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import agreement
from pytest_touchstone.engines.transformers.generation.sequence import stop_tokens_of
from pytest_touchstone.engines.transformers.mutants import (
    CLASSES,
    MUTANTS,
    ROUNDING,
    SOUND,
    Mutant,
    NotApplicableError,
)
from pytest_touchstone.engines.transformers.mutated import MutatedModel, ProbeReply
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.families import CAUSAL, SHOTS, causal_of
from tests.support.resolved import only
from tests.support.tiny import metaspace_tokenizer, tiny_adapter, tiny_causal, tiny_masked

FAMILIES = [
    *("llama", "llama tied", "mistral", "qwen2", "qwen2 sliding", "qwen3"),
    *("gemma2", "gemma3_text", "gpt_neox", "gpt2", "opt", "phi3"),
]
BY_NAME = {mutant.name: mutant for mutant in (*MUTANTS, ROUNDING)}
REQUESTS: list[Loglikelihood | Generate] = [
    Loglikelihood(SHOTS[:160], SHOTS[160:180]),
    Generate("She said", max_new_tokens=5),
]
SETTINGS = ModelSettings(threads=1)


def lively(folder: Path, family: str = "llama", **config: Any) -> Path:
    """A tiny checkpoint whose norms and biases are not those of a new model, and whose logits are far apart."""
    made = (
        causal_of(folder, family) if family in CAUSAL and not config else tiny_causal(folder / "c", **config)
    )
    model = AutoModelForCausalLM.from_pretrained(made)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
            else:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lively(tmp_path_factory.mktemp("llama"))


@pytest.fixture
def llama_model(llama_folder: Path) -> Iterator[MutatedModel]:
    with MutatedModel(only(llama_folder), SETTINGS) as model:
        yield model


def tensors(model: MutatedModel) -> dict[str, torch.Tensor]:
    module = model._loaded.model
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    return {name: tensor.detach().clone() for name, tensor in named}


def changed(model: MutatedModel, mutant: Mutant) -> dict[str, torch.Tensor]:
    """The tensors that a mutant changes, as it changes them."""
    sound = tensors(model)
    with model.damaged(mutant):
        return {
            name: tensor for name, tensor in tensors(model).items() if not torch.equal(tensor, sound[name])
        }


def same(one: list[ProbeReply], other: list[ProbeReply]) -> bool:
    """Whether two models reply alike to the bit."""
    return all(
        a.tokens == b.tokens
        and a.logits is not None
        and b.logits is not None
        and torch.equal(a.logits, b.logits)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mutant_keeps_the_model_runnable_and_is_undone_to_the_bit(family: str, tmp_path: Path) -> None:
    applicable = set()
    with MutatedModel(only(lively(tmp_path, family)), SETTINGS) as model:
        weights, sound = tensors(model), model.replies(REQUESTS)
        for mutant in BY_NAME.values():
            try:
                with model.damaged(mutant):
                    replies = model.replies(REQUESTS)
                assert all(reply.logits is not None and reply.logits.isfinite().all() for reply in replies)
                if any(reply.differs(other) for reply, other in zip(replies, sound, strict=True)):
                    applicable.add(mutant.name)
            except NotApplicableError:
                pass
            after = tensors(model)
            assert after.keys() == weights.keys()
            assert all(torch.equal(after[name], weights[name]) for name in weights), mutant.name
            assert same(model.replies(REQUESTS), sound), mutant.name
    assert len(applicable) >= 18, applicable


def test_there_is_a_mutant_of_every_class_and_no_name_twice() -> None:
    assert (
        *("positions", "norms", "layers", "heads", "activation", "attention", "weights"),
        *("adapter", "tokenizer", "template", "eos"),
    ) == CLASSES
    assert len(BY_NAME) == len(MUTANTS) + 1 >= 17


LAYER = "model.layers.1."
MATRICES = {
    f"model.layers.{index}.{name}.weight"
    for index in (0, 1)
    for name in (
        *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
        *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    )
}
NORMS = {
    *(
        f"model.layers.{index}.{name}_layernorm.weight"
        for index in (0, 1)
        for name in ("input", "post_attention")
    ),
    "model.norm.weight",
}
ROPE = {"model.rotary_emb.inv_freq"}
CHANGED: dict[str, set[str]] = {
    "rope base a tenth": ROPE,
    "rope positions halved": ROPE,
    "norm epsilon 1e-2": set(),
    "norm epsilon 1e-3": set(),
    "one norm weight skipped": {f"{LAYER}input_layernorm.weight"},
    "final norm weight skipped": {"model.norm.weight"},
    "norm offset of 1 wrong": NORMS,
    "late layer left out": set(),
    "last layer left out": set(),
    "two layers swapped": MATRICES | NORMS - {"model.norm.weight"},
    "head untied and new": {"lm_head.weight"},
    "head tied": {"lm_head.weight"},
    "q and k rows in the other rope order": {
        name for name in MATRICES if name.endswith(("q_proj.weight", "k_proj.weight"))
    },
    "one output matrix transposed": {f"{LAYER}self_attn.o_proj.weight"},
    "other activation": set(),
    "attention scale of heads twice as wide": set(),
    "GQA groups tiled": {name for name in MATRICES if name.endswith(("q_proj.weight", "o_proj.weight"))},
    **dict.fromkeys(("noise of 1 %", "noise of 3 %", "noise of 10 %"), MATRICES),
    **dict.fromkeys(("int4, groups of 64", "int4, one scale a row", "float8 e4m3"), MATRICES),
    "bfloat16 truncated": MATRICES | NORMS | {"lm_head.weight", "model.embed_tokens.weight"},
    **{name: set() for name in ("BOS added", "one merge missing", "another end of text", ROUNDING.name)},
}
"""The tensors of a Llama that each mutant changes; those that are not here do not apply to it."""


def test_exactly_the_tensors_that_a_mutant_names_change(llama_model: MutatedModel) -> None:
    found: dict[str, set[str]] = {}
    for mutant in BY_NAME.values():
        try:
            found[mutant.name] = set(changed(llama_model, mutant))
        except NotApplicableError:
            continue
    assert found == CHANGED


def test_a_tied_head_becomes_new_without_its_embeddings(tmp_path: Path) -> None:
    with MutatedModel(only(lively(tmp_path, "llama tied")), SETTINGS) as model:
        assert set(changed(model, BY_NAME["head untied and new"])) == {"lm_head.weight"}
        with pytest.raises(NotApplicableError), model.damaged(BY_NAME["head tied"]):
            pass


# What a mutant is, by another way to make it: a damaged folder, freshly loaded


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(
            json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8"
        )

    return edit


def edit_model(change: Callable[[Any], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            change(model)
        model.save_pretrained(folder)

    return edit


def drop_layer(model: Any) -> None:
    del model.model.layers[1]
    model.config.num_hidden_layers = 1


def swap_layers(model: Any) -> None:
    first, second = model.model.layers
    weights = [
        {name: tensor.clone() for name, tensor in layer.state_dict().items()} for layer in (first, second)
    ]
    first.load_state_dict(weights[1])
    second.load_state_dict(weights[0])


def drop_biases(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("proj.bias"):
            parameter.zero_()


def forget_offset(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.sub_(1)


ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
LLAMA3 = {
    **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    **{"original_max_position_embeddings": 16, "rope_theta": 10000.0},
}
FOLDERS: dict[str, tuple[str, dict[str, Any], Callable[[Path], None]]] = {
    "rope base a tenth": ("llama", {}, edit_config(rope_parameters={**ROTARY, "rope_theta": 1000.0})),
    "rope positions halved": (
        "llama",
        {},
        edit_config(rope_parameters={**ROTARY, "rope_type": "linear", "factor": 2.0}),
    ),
    "rope scaling lost": (
        "llama",
        {"model_type": "llama", "rope_parameters": LLAMA3},
        edit_config(rope_parameters=ROTARY),
    ),
    "sliding window off": ("mistral", {}, edit_config(sliding_window=None)),
    "norm epsilon 1e-2": ("llama", {}, edit_config(rms_norm_eps=1e-2)),
    "norm epsilon 1e-3": ("gpt2", {}, edit_config(layer_norm_epsilon=1e-3)),
    "one norm weight skipped": (
        "qwen2",
        {},
        edit_model(lambda model: model.model.layers[1].input_layernorm.weight.fill_(1)),
    ),
    "final norm weight skipped": ("gemma2", {}, edit_model(lambda model: model.model.norm.weight.fill_(0))),
    "norm offset of 1 wrong": ("gemma3_text", {}, edit_model(forget_offset)),
    "last layer left out": ("llama", {}, edit_model(drop_layer)),
    "two layers swapped": ("llama", {}, edit_model(swap_layers)),
    "biases dropped": ("qwen2", {}, edit_model(drop_biases)),
    "head tied": (
        "llama",
        {},
        edit_model(lambda model: model.lm_head.weight.copy_(model.model.embed_tokens.weight)),
    ),
    "one output matrix transposed": (
        "llama",
        {},
        edit_model(
            lambda model: (weight := model.model.layers[1].self_attn.o_proj.weight).copy_(weight.clone().T)
        ),
    ),
    "other activation": ("llama", {}, edit_config(hidden_act="gelu")),
    "soft cap of logits off": ("gemma2", {}, edit_config(final_logit_softcapping=None)),
    "attention scale of heads twice as wide": ("gemma2", {}, edit_config(query_pre_attn_scalar=512)),
}


def answers(engine: Engine) -> list[float]:
    asked: list[Request] = [
        Loglikelihood(SHOTS[:160], SHOTS[160:180]),
        Loglikelihood(SHOTS[:160], SHOTS[180:190]),
        Loglikelihood("The quick brown", " fox"),
    ]
    replies = engine.answer(asked)
    engine.close()
    return [answer.logprob for answer in replies if isinstance(answer, LoglikelihoodAnswer)]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_mutant_after_the_sound_model_answers_as_the_damaged_folder_does(name: str, tmp_path: Path) -> None:
    family, config, edit = FOLDERS[name]
    folder = lively(tmp_path, family, **config)
    if name.startswith("attention scale"):
        edit_config(query_pre_attn_scalar=256)(folder)
    damaged = Path(shutil.copytree(folder, tmp_path / "damaged"))
    edit(damaged)
    expected = answers(open_engine(only(damaged), SETTINGS))
    with MutatedModel(only(folder), SETTINGS) as model:
        with model.damaged(SOUND):
            sound = answers(model.open(model.info, SETTINGS))
        with model.damaged(BY_NAME[name]):
            found = answers(model.open(model.info, SETTINGS))
        with model.damaged(SOUND):
            assert answers(model.open(model.info, SETTINGS)) == sound
    assert found == pytest.approx(expected, abs=2e-4)
    assert found != pytest.approx(sound, abs=1e-3)


def test_the_other_rope_order_is_what_the_conversion_of_metas_files_undoes(llama_model: MutatedModel) -> None:
    sound = tensors(llama_model)
    for name, rows in changed(llama_model, BY_NAME["q and k rows in the other rope order"]).items():
        heads = 4 if "q_proj" in name else 2
        converted = rows.view(heads, len(rows) // heads // 2, 2, -1).transpose(1, 2).reshape(rows.shape)
        assert torch.equal(converted, sound[name])


def test_tiled_groups_are_those_of_keys_that_are_tiled(
    llama_model: MutatedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with llama_model.damaged(BY_NAME["GQA groups tiled"]):
        (found, _) = llama_model.replies(REQUESTS)
    monkeypatch.setattr(modeling_llama, "repeat_kv", lambda states, times: states.repeat(1, times, 1, 1))
    module = llama_model._loaded.model
    module.set_attn_implementation("eager")
    (expected, _) = llama_model.replies(REQUESTS)
    assert not found.differs(expected)


def test_left_out_layers_and_the_other_scale_leave_gpt2_without_them(tmp_path: Path) -> None:
    with MutatedModel(only(lively(tmp_path, "gpt2")), SETTINGS) as model:
        module = model._loaded.model
        with model.damaged(BY_NAME["last layer left out"]):
            (found, _) = model.replies(REQUESTS)
        with model.damaged(SOUND):
            module.transformer.h[1].forward = lambda hidden_states, *_, **__: hidden_states
            (expected, _) = model.replies(REQUESTS)
        assert not found.differs(expected)
        scale = module.transformer.h[0].attn.scaling
        with model.damaged(BY_NAME["attention scale of heads twice as wide"]):
            assert module.transformer.h[0].attn.scaling == pytest.approx(scale / 2**0.5)
        assert module.transformer.h[0].attn.scaling == scale


@pytest.mark.parametrize(
    ("name", "share"), [("noise of 1 %", 0.01), ("noise of 3 %", 0.03), ("noise of 10 %", 0.1)]
)
def test_noise_is_the_said_share_of_a_matrix(name: str, share: float, llama_model: MutatedModel) -> None:
    sound = tensors(llama_model)
    for matrix, rows in changed(llama_model, BY_NAME[name]).items():
        assert float((rows - sound[matrix]).std() / sound[matrix].std()) == pytest.approx(share, rel=0.15)


def test_round_trips_hold_what_their_types_hold(llama_model: MutatedModel) -> None:
    sound = tensors(llama_model)
    for matrix, rows in changed(llama_model, BY_NAME["int4, one scale a row"]).items():
        scale = sound[matrix].abs().amax(dim=1, keepdim=True) / 7
        steps = rows / scale
        assert torch.allclose(steps, steps.round(), atol=1e-4)
        assert bool(((rows - sound[matrix]).abs() <= scale / 2 + 1e-6).all())
    groups = changed(llama_model, BY_NAME["int4, groups of 64"])[f"{LAYER}mlp.down_proj.weight"]
    assert all(len(row.unique()) <= 15 for row in groups.view(-1, 64))
    for matrix, rows in changed(llama_model, BY_NAME["float8 e4m3"]).items():
        assert float((rows - sound[matrix]).abs().max() / sound[matrix].abs().max()) < 1 / 16
        assert len(rows.unique()) <= 253
    for matrix, rows in changed(llama_model, BY_NAME["bfloat16 truncated"]).items():
        assert torch.equal(rows.bfloat16().float(), rows)
        assert bool((rows.abs() <= sound[matrix].abs()).all())


# Tokenizer, template, end of text


def test_bos_is_missing_or_doubled_where_there_is_one_and_added_where_there_is_none(tmp_path: Path) -> None:
    folder = lively(tmp_path)
    ids: dict[str, list[int]] = {}
    with MutatedModel(only(folder), SETTINGS) as model:
        with model.damaged(BY_NAME["BOS added"]):
            ids["added"] = model._loaded.tokenizer("The fox").input_ids
        plain = model._loaded.tokenizer
        assert ids["added"] == [plain.bos_token_id, *plain("The fox").input_ids]
    metaspace_tokenizer(vocab_size=144).save_pretrained(folder)
    with MutatedModel(only(folder), SETTINGS) as model:
        tokenizer = model._loaded.tokenizer
        first, *others = tokenizer("The fox").input_ids
        for name, expected in {"BOS missing": others, "BOS doubled": [first, first, *others]}.items():
            with model.damaged(BY_NAME[name]):
                assert model._loaded.tokenizer("The fox").input_ids == expected
                engine = model.open(model.info, SETTINGS)
                assert isinstance(engine.answer([Loglikelihood("The fox", " jumps")])[0], LoglikelihoodAnswer)
                engine.close()
        assert tokenizer("The fox").input_ids == [first, *others]
        for name in ("BOS added", "one merge missing"):
            with pytest.raises(NotApplicableError), model.damaged(BY_NAME[name]):
                pass


def test_one_merge_is_missing(llama_model: MutatedModel) -> None:
    tokenizer = llama_model._loaded.tokenizer
    with llama_model.damaged(BY_NAME["one merge missing"]):
        changed_tokenizer = llama_model._loaded.tokenizer
        assert changed_tokenizer.decode(changed_tokenizer("over the dog").input_ids) == "over the dog"
        assert len(changed_tokenizer("over the dog").input_ids) > len(tokenizer("over the dog").input_ids)
        assert changed_tokenizer("fox").input_ids == tokenizer("fox").input_ids
        assert len(changed_tokenizer) == len(tokenizer)


TEMPLATE = (
    "{% for turn in messages %}<{{ turn['role'] }}>{{ turn['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def test_template_mutants_change_what_the_template_is_given(tmp_path: Path) -> None:
    folder = lively(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    written = {}
    with MutatedModel(only(folder), SETTINGS) as model:
        for name in ("question by the role system", "question by the role assistant", "no generation prompt"):
            with model.damaged(BY_NAME[name]):
                written[name] = TextTokenizer(model._loaded.tokenizer).conversation((Turn("user", "Why?"),))
                question = Generate("Why?", max_new_tokens=5, turns=(Turn("user", "Why?"),))
                for requests, reason in (
                    ([question], ""),
                    ([REQUESTS[0]], "it changes generated texts alone"),
                ):
                    sound = [ProbeReply((1,), torch.zeros(1, 1))]
                    assert model.reason_not_applicable(BY_NAME[name], sound, requests) == reason
    assert written == {
        "question by the role system": "<system>Why?\n<assistant>",
        "question by the role assistant": "<assistant>Why?\n<assistant>",
        "no generation prompt": "<user>Why?\n",
    }
    tokenizer.chat_template = "{% if messages[0]['role'] != 'user' %}{{ raise_exception('no') }}{% endif %}x"
    tokenizer.save_pretrained(folder)
    with MutatedModel(only(folder), SETTINGS) as model, pytest.raises(NotApplicableError, match="refuses"):
        model.damaged(BY_NAME["question by the role system"]).__enter__()


def test_texts_end_with_another_token_and_scores_are_not_touched(llama_model: MutatedModel) -> None:
    def ends() -> frozenset[int]:
        loaded = llama_model._loaded
        return stop_tokens_of(loaded.model, TextTokenizer(loaded.tokenizer)).tokens

    sound, replies, mutant = ends(), llama_model.replies(REQUESTS), BY_NAME["another end of text"]
    with llama_model.damaged(mutant):
        assert ends().isdisjoint(sound)
        assert same(llama_model.replies(REQUESTS), replies)
        assert llama_model.reason_not_applicable(mutant, replies, REQUESTS) == ""
        assert llama_model.reason_not_applicable(mutant, replies[:1], REQUESTS[:1])
    assert ends() == sound


# Adapters


def test_an_adapter_is_left_out_added_twice_and_halved(tmp_path: Path) -> None:
    base = lively(tmp_path)
    adapter = tiny_adapter(tmp_path / "adapter", base)
    found = {}
    with MutatedModel(only(adapter), SETTINGS) as model:
        found["sound"] = answers(model.open(model.info, SETTINGS))
        for name in ("adapter not merged", "adapter merged twice", "adapter with half of alpha"):
            with model.damaged(BY_NAME[name]):
                found[name] = answers(model.open(model.info, SETTINGS))
        assert answers(model.open(model.info, SETTINGS)) == found["sound"]
    expected = {"adapter not merged": base, "sound": adapter}
    for name, factor in (("adapter merged twice", 2), ("adapter with half of alpha", 0.5)):
        expected[name] = Path(shutil.copytree(adapter, tmp_path / name))
        path = expected[name] / "adapter_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**config, "lora_alpha": config["lora_alpha"] * factor}), encoding="utf-8")
    for name, folder in expected.items():
        assert found[name] == pytest.approx(answers(open_engine(only(folder), SETTINGS)), abs=2e-4), name


# Nothing of the sound model serves a mutant


def test_the_fingerprint_is_of_one_checkpoint_and_one_mutant(
    llama_model: MutatedModel, llama_folder: Path
) -> None:
    prints = []
    for mutant in (SOUND, *MUTANTS[:1], ROUNDING, SOUND):
        with llama_model.damaged(mutant):
            prints.append(llama_model.fingerprint())
    assert prints[0] == prints[3]
    assert len(set(prints)) == 3
    with MutatedModel(only(llama_folder), SETTINGS) as again, again.damaged(MUTANTS[0]):
        assert again.fingerprint() == prints[1]


def test_ways_that_a_probe_admitted_are_neither_taken_nor_kept(
    llama_model: MutatedModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(agreement, "_LEAST", 0)
    monkeypatch.setattr(agreement, "cache_folder", lambda _: tmp_path)
    module, damage = llama_model._loaded.model, BY_NAME["rope base a tenth"]
    kinds = [type(layer) for layer in module.modules()]
    with llama_model.damaged(damage):
        engine: Any = llama_model.open(llama_model.info, SETTINGS)
        assert [type(layer) for layer in module.modules()] == kinds
        assert engine.shares
        engine.close()
    assert not list(tmp_path.iterdir())


def test_a_mutant_whose_logits_are_equal_is_not_applicable(llama_model: MutatedModel) -> None:
    sound = llama_model.replies(REQUESTS)
    equal = Mutant("nothing", "weights", lambda model, tokenizer: None)
    with llama_model.damaged(equal):
        assert llama_model.reason_not_applicable(equal, sound, REQUESTS)
    with llama_model.damaged(MUTANTS[0]):
        assert llama_model.reason_not_applicable(MUTANTS[0], sound, REQUESTS) == ""


def test_an_error_of_a_models_code_leaves_no_trace(llama_model: MutatedModel) -> None:
    def break_shape(model: Any, _: Any) -> None:
        model.model.norm.weight = torch.nn.Parameter(torch.ones(3))

    def fail(model: Any, _: Any) -> None:
        model.model.norm.weight = torch.nn.Parameter(torch.ones(3))
        raise KeyError("no such part")

    sound = llama_model.replies(REQUESTS)
    broken = Mutant("broken", "norms", break_shape)
    with pytest.raises(CheckpointError, match=r"broken: .*RuntimeError"), llama_model.damaged(broken):
        llama_model.reason_not_applicable(broken, sound, REQUESTS)
    with (
        pytest.raises(CheckpointError, match=r"x: .*no such part"),
        llama_model.damaged(Mutant("x", "norms", fail)),
    ):
        pass
    assert same(llama_model.replies(REQUESTS), sound)


@pytest.mark.parametrize(
    ("left", "right", "differs"), [(0.0, 9e-5, False), (0.0, 2e-4, True), (0.0, float("nan"), True)]
)
def test_replies_differ_from_a_tenth_of_a_thousandth_on(left: float, right: float, differs: bool) -> None:
    one, other = (ProbeReply((1, 2), torch.full((2, 3), value)) for value in (left, right))
    assert one.differs(other) is differs
    assert one.differs(ProbeReply((1, 3), one.logits))
    assert one.differs(ProbeReply((), None))


def test_a_masked_model_has_no_mutants(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="causal"):
        MutatedModel(only(tiny_masked(tmp_path / "masked")), SETTINGS)
