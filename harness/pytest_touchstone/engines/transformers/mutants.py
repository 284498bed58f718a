"""Faults of loaders, converters and quantisers in a loaded model, for the proof of a suite.

A mutant finds its places by kind, in any family of Transformers, and keeps the model runnable. No number is written in
place: damaged weights are new parameters and buffers, and all else is an attribute, so that ``live.at_rest`` gives the
model back to the bit. A tokenizer is damaged in a copy.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Turn
from pytest_touchstone.engines.transformers.adapters import scale_adapter
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer, special_token_frame

if TYPE_CHECKING:
    import torch

Damage: TypeAlias = Callable[[Any, Any], Any]
"""Changes a model; returns a changed copy of its tokenizer, or None where that stays."""

CONTROL: Final = "control"
"""The class of what is no fault: the same model with other rounding."""

TEXTS_ONLY: Final = ("template", "eos")
"""The classes that change generated texts alone."""


class NotApplicableError(CheckpointError):
    """Says why a model cannot have a mutant."""


def _need(found: Any, lacking: str) -> Any:
    """Return what was found; raise ``NotApplicableError`` where that is nothing."""
    if not found:
        raise NotApplicableError(lacking)
    return found


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault by its name and class; ``damage`` raises ``NotApplicableError`` for a model that cannot have it."""

    name: str
    kind: str
    damage: Damage


# Places


def _config(model: Any) -> Any:
    return model.config.get_text_config()


def _layers(model: Any) -> Any:
    """Return the list of the model's decoder layers."""
    import torch

    length = _config(model).num_hidden_layers
    lists = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == length
    ]
    return _need(lists, "no list of layers is as long as its config says")[0]


def _late_layer(model: Any) -> Any:
    """Return the layer three quarters down, where mutants damage one layer alone."""
    return _layers(model)[int(0.75 * len(_layers(model)))]


def _is_norm(module: Any) -> bool:
    return "norm" in type(module).__name__.lower() and getattr(module, "weight", None) is not None


def _matrices(root: Any) -> list[Any]:
    """Return the modules below ``root`` that own a matrix."""
    return [
        module
        for module in root.modules()
        if (weight := module._parameters.get("weight")) is not None and weight.dim() == 2
    ]


def _attention(layer: Any) -> Any:
    """Return the part of a layer that attends."""
    parts = [child for name, child in layer.named_children() if "att" in name.lower() and _matrices(child)]
    return _need(parts, "no part of its layers is called attention")[0]


def _frequencies(model: Any) -> list[tuple[Any, str]]:
    """Return the modules and names of the rotary frequencies that are used."""
    names: list[tuple[Any, str]] = [
        (module, name)
        for module in model.modules()
        for name in module._buffers
        if name.endswith("inv_freq") and "original" not in name
    ]
    return _need(names, "its positions are not rotary")  # type: ignore[no-any-return]


def _rows(module: Any) -> torch.Tensor:
    """Return a module's matrix as [out, in]; GPT-2's modules store the transposed one."""
    weight: torch.Tensor = module.weight.detach()
    return weight.T if type(module).__name__ == "Conv1D" else weight


def _set_rows(module: Any, rows: torch.Tensor) -> None:
    """Give a module another matrix [out, in]."""
    _set(module, "weight", rows.T if type(module).__name__ == "Conv1D" else rows)


def _set(module: Any, name: str, numbers: torch.Tensor) -> None:
    """Give a module a new parameter of the old one's type; modules tied to it keep theirs."""
    import torch

    former = getattr(module, name)
    numbers = numbers.to(former.device, former.dtype).contiguous()
    setattr(module, name, torch.nn.Parameter(numbers, requires_grad=False))


def _move_rows(module: Any, indices: torch.Tensor, sources: torch.Tensor) -> None:
    """Give the rows at ``indices`` of a module's matrix and bias what those at ``sources`` have."""
    rows, bias = _rows(module), getattr(module, "bias", None)
    indices, sources = indices.flatten().to(rows.device), sources.flatten().to(rows.device)
    _set_rows(module, rows.index_copy(0, indices, rows[sources]))
    if bias is not None:
        _set(module, "bias", bias.detach().index_copy(0, indices, bias.detach()[sources]))


def _heads(attention: Any, config: Any) -> tuple[tuple[Any, torch.Tensor], tuple[Any, torch.Tensor]]:
    """Return the query and key modules, each with the row indices [heads, width of a head].

    Three forms are known: a matrix for each, one that has them after each other, and GPT-NeoX's, which has query, key
    and value of a head together.
    """
    import torch

    heads = config.num_attention_heads
    keys = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(attention, "head_dim", None) or config.hidden_size // heads
    query_rows, key_rows = (torch.arange(count * width).view(count, width) for count in (heads, keys))
    if hasattr(attention, "q_proj") and hasattr(attention, "k_proj"):
        return (attention.q_proj, query_rows), (attention.k_proj, key_rows)
    if (fused := getattr(attention, "query_key_value", None)) is not None:
        rows = torch.arange(3 * heads * width).view(heads, 3, width)
        return (fused, rows[:, 0]), (fused, rows[:, 1])
    names = [name for name in ("qkv_proj", "c_attn") if hasattr(attention, name)]
    fused = getattr(attention, _need(names, "its queries and keys are in matrices of an unknown form")[0])
    return (fused, query_rows), (fused, key_rows + heads * width)


def _output(attention: Any) -> Any:
    """Return the module that ends attention."""
    modules = [getattr(attention, name, None) for name in ("o_proj", "out_proj", "dense", "c_proj")]
    return _need(list(filter(None, modules)), "the last matrix of its attention has an unknown name")[0]


# Positions


def _change_frequencies(model: Any, _: Any, *, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    for module, name in _frequencies(model):
        setattr(module, name, change(getattr(module, name)))


def _exponents(frequencies: torch.Tensor) -> torch.Tensor:
    """Return i / n of base ** (-i / n)."""
    import torch

    return torch.arange(len(frequencies), device=frequencies.device) / len(frequencies)


def _drop_scaling(model: Any, _: Any) -> None:
    parameters = getattr(_config(model), "rope_parameters", None) or {}
    tables = {
        place: parameters.get(place[1].removesuffix("_inv_freq"), parameters) for place in _frequencies(model)
    }
    scaled = {
        place: table for place, table in tables.items() if table.get("rope_type", "default") != "default"
    }
    for (module, name), table in _need(scaled, "its rotary positions are not scaled").items():
        setattr(module, name, float(table["rope_theta"]) ** -_exponents(getattr(module, name)))
        setattr(module, f"{name.removesuffix('inv_freq')}attention_scaling", 1.0)


def _open_window(model: Any, _: Any) -> None:
    config = _config(model)
    holders = [holder for holder in (config, *model.modules()) if getattr(holder, "sliding_window", None)]
    for holder in _need(holders, "no layer has a sliding window"):
        holder.sliding_window = config.max_position_embeddings


# Norms


def _set_epsilon(model: Any, _: Any, *, epsilon: float) -> None:
    for norm in filter(_is_norm, model.modules()):
        for name in {"variance_epsilon", "eps"} & vars(norm).keys():
            setattr(norm, name, epsilon)


def _adds_one(norm: Any) -> bool:
    """Return whether a norm multiplies by 1 + its weight, as Gemma's does."""
    import torch

    zeros = {name: torch.zeros_like(parameter) for name, parameter in norm.named_parameters()}
    signs = 1 - 2 * (torch.arange(norm.weight.numel(), device=norm.weight.device) % 2)
    return bool(torch.func.functional_call(norm, zeros, (signs.to(norm.weight.dtype)[None, None],)).any())


def _skip_norm(model: Any, _: Any, *, final: bool) -> None:
    """Give a norm the weight of a new model: 1, or 0 where 1 is added."""
    import torch

    layers = _layers(model) if final else _late_layer(model)
    inside = list(filter(_is_norm, layers.modules()))
    outside = [norm for norm in filter(_is_norm, model.modules()) if norm not in inside]
    norm = _need(outside[::-1] if final else inside, "it has no such norm")[0]
    _set(norm, "weight", torch.full_like(norm.weight, 0.0 if _adds_one(norm) else 1.0))


def _shift_norms(model: Any, _: Any) -> None:
    """Forget that a norm adds 1 to its weight; or add it where none does."""
    for norm in filter(_is_norm, model.modules()):
        _set(norm, "weight", norm.weight.detach() + (-1 if _adds_one(norm) else 1))


# Layers


def _skip_layer(model: Any, _: Any, *, last: bool) -> None:
    layer = _layers(model)[-1] if last else _late_layer(model)

    def skip(_layer: Any, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
        hidden = given[0] if given else named["hidden_states"]
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    layer.register_forward_hook(skip, with_kwargs=True)


def _swap_layers(model: Any, _: Any) -> None:
    """Exchange the weights of two neighbouring layers, which keep their places in the cache."""
    layers = _layers(model)
    index = max(1, int(0.75 * len(layers)))
    pair = layers[index - 1], layers[index]
    for first, second in zip(*(layer.modules() for layer in pair), strict=True):
        vars(first)["_parameters"], vars(second)["_parameters"] = second._parameters, first._parameters


def _drop_biases(model: Any, _: Any) -> None:
    import torch

    biased = [module for module in _matrices(_layers(model)) if getattr(module, "bias", None) is not None]
    for module in _need(biased, "no matrix of its layers has a bias"):
        _set(module, "bias", torch.zeros_like(module.bias))


# Heads


def _reset_head(model: Any, _: Any) -> None:
    """Give the head new weights, as when a tied head is saved without them."""
    import torch

    head = model.get_output_embeddings()
    draw = torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(1))
    _set(head, "weight", getattr(_config(model), "initializer_range", 0.02) * draw)


def _tie_head(model: Any, _: Any) -> None:
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    _need(head.weight is not embeddings.weight, "its head is tied already")
    head.weight = embeddings.weight


def _interleave_heads(model: Any, _: Any) -> None:
    """Reorder the rows of queries and keys into neighbouring rotary pairs, as in Meta's files."""
    module, name = _frequencies(model)[0]
    for layer in _layers(model):
        for projection, rows in _heads(_attention(layer), _config(model)):
            turned = rows[:, : 2 * len(getattr(module, name))]
            _move_rows(projection, turned, turned.reshape(len(rows), 2, -1).transpose(1, 2))


def _transpose_output(model: Any, _: Any) -> None:
    output = _output(_attention(_late_layer(model)))
    _set_rows(output, _rows(output).T)


# Activation and attention


_OTHER_ACTIVATION: Final = {"silu": "gelu", "swish": "gelu", "gelu": "relu"}


def _change_activation(model: Any, _: Any) -> None:
    from transformers.activations import ACT2FN

    settings = [
        getattr(_config(model), name, None)
        for name in ("hidden_activation", "hidden_act", "activation_function")
    ]
    other = _OTHER_ACTIVATION.get(next(filter(None, settings), ""), "silu")
    names = ("act_fn", "act", "activation_fn")
    places = [
        (module, name) for module in _layers(model).modules() for name in names if hasattr(module, name)
    ]
    for module, name in _need(places, "its activation has an unknown name"):
        setattr(module, name, ACT2FN[other])


def _scale_attention(model: Any, _: Any) -> None:
    """Scale scores as if heads were twice as wide."""
    for attention in map(_attention, _layers(model)):
        attention.scaling *= math.sqrt(0.5)


def _tile_groups(model: Any, _: Any) -> None:
    """Let query head h use key head h mod n instead of its group's: tiled instead of repeated keys."""
    import torch

    for attention in map(_attention, _layers(model)):
        (query, rows), (_key, key_rows) = _heads(attention, _config(model))
        _need(1 < len(key_rows) < len(rows), "its query heads share no keys, or share all of them")
        order = torch.arange(len(rows)).view(-1, len(key_rows)).T.flatten()
        _move_rows(query, rows, rows[order])
        output, columns = _output(attention), torch.arange(rows.numel()).view(rows.shape)[order].flatten()
        _set_rows(output, _rows(output)[:, columns])


def _drop_cap(model: Any, _: Any) -> None:
    _need(getattr(_config(model), "final_logit_softcapping", None), "its logits have no soft cap")
    _config(model).final_logit_softcapping = None


# Weights


def _change_matrices(model: Any, _: Any, *, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change the matrices [out, in] of all layers, which are what quantisers change."""
    for module in _matrices(_layers(model)):
        _set_rows(module, change(_rows(module).float()))


def _add_noise(model: Any, _: Any, *, share: float) -> None:
    """Add normal noise, of this share of the standard deviation of each matrix."""
    import torch

    draw = partial(torch.randn, generator=torch.Generator().manual_seed(1))
    _change_matrices(
        model, None, change=lambda rows: rows + share * rows.std() * draw(rows.shape).to(rows.device)
    )


def _round_int4(rows: torch.Tensor, *, group: int | None) -> torch.Tensor:
    """Round to symmetric 4-bit integers, with one scale per ``group`` of a row, or per row."""
    grouped = rows.reshape(-1, group if group and not rows.shape[1] % group else rows.shape[1])
    scale = (grouped.abs().amax(dim=1, keepdim=True) / 7).clamp(min=1e-30)
    return ((grouped / scale).round().clamp(-8, 7) * scale).view(rows.shape)


def _round_fp8(rows: torch.Tensor) -> torch.Tensor:
    """Return what float8 (e4m3) holds, with one scale for the matrix."""
    import torch

    scale = (rows.abs().max() / torch.finfo(torch.float8_e4m3fn).max).clamp(min=1e-30)
    return (rows / scale).to(torch.float8_e4m3fn).float() * scale


def _truncate(model: Any, _: Any) -> None:
    """Cut the lower half of each number's bits off, instead of rounding to bfloat16."""
    import torch

    owned = [
        (module, name) for module in model.modules() for name, _ in module.named_parameters(recurse=False)
    ]
    for module, name in owned:
        bits = getattr(module, name).detach().float().contiguous().view(torch.int32)
        _set(module, name, (bits & -65536).view(torch.float32))


def _round_activations(model: Any, _: Any) -> None:
    """Round what every matrix and norm gives to bfloat16, as an engine in that type does."""
    for module in (*_matrices(_layers(model)), *filter(_is_norm, model.modules())):
        module.register_forward_hook(lambda _module, _given, output: output.bfloat16().to(output.dtype))


# Adapters


def _scale_adapter(model: Any, _: Any, *, factor: float) -> None:
    _need(scale_adapter(model, factor), "the checkpoint is no LoRA adapter")


# Tokenizer, template and end of text


def _begin_with(_: Any, tokenizer: Any, *, times: int, usual: int) -> Any:
    """Return a tokenizer that puts another number of BOS tokens before a text than the ``usual``."""
    from tokenizers.processors import TemplateProcessing

    bos, front = tokenizer.bos_token, special_token_frame(tokenizer)[0]
    begins = f"its tokenizer has no BOS, or does not begin texts with {'it' if usual else 'the text alone'}"
    _need(bos and front == (tokenizer.bos_token_id,) * usual, begins)
    changed = copy.deepcopy(tokenizer)
    changed.backend_tokenizer.post_processor = TemplateProcessing(
        single=[*[bos] * times, "$A"], special_tokens=[(bos, tokenizer.bos_token_id)]
    )
    return changed


def _drop_merge(_: Any, tokenizer: Any) -> Any:
    """Return a tokenizer without one merge: that of `` the``, or the first that makes three characters."""
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    merges = state["model"].get("merges") or []
    spelt = ["".join(merge if isinstance(merge, list) else merge.split(" ", 1)) for merge in merges]
    wanted = sorted((text for text in spelt if len(text) >= 3), key=lambda text: text not in ("Ġthe", "▁the"))
    del merges[spelt.index(_need(wanted, "its tokenizer has no merges")[0])]
    changed = copy.deepcopy(tokenizer)
    changed._tokenizer = Tokenizer.from_str(json.dumps(state))
    return changed


def _change_chat(_: Any, tokenizer: Any, *, role: str = "user", **options: Any) -> Any:
    """Return a tokenizer whose template gets questions by another role, and other options."""
    _need(getattr(tokenizer, "chat_template", None), "its tokenizer has no chat template")

    def render(turns: list[dict[str, str]], **given: Any) -> Any:
        turns = [{**turn, "role": role if turn["role"] == "user" else turn["role"]} for turn in turns]
        return tokenizer.apply_chat_template(turns, **{**given, **options})

    changed = copy.deepcopy(tokenizer)
    changed.apply_chat_template = render
    written = TextTokenizer(changed).conversation((Turn("user", "a"),))
    _need(isinstance(written, str), f"its chat template refuses a question by the role {role!r}")
    return changed


def _lose_eos(model: Any, tokenizer: Any) -> Any:
    """Return a tokenizer whose texts end with another token than those of the model."""
    changed, special = copy.deepcopy(tokenizer), set(tokenizer.all_special_ids)
    other = max(token for token in tokenizer.get_vocab().values() if token not in special)
    changed.eos_token = tokenizer.convert_ids_to_tokens(other)
    model.generation_config.eos_token_id = other
    return changed


SOUND: Final = Mutant("sound", CONTROL, lambda _model, _tokenizer: None)
"""No fault at all."""

ROUNDING: Final = Mutant("bfloat16 activations", CONTROL, _round_activations)
"""The same model with other rounding, which decides what is a change."""

MUTANTS: Final = (
    Mutant(
        "rope base a tenth",
        "positions",
        partial(_change_frequencies, change=lambda numbers: numbers * 10.0 ** _exponents(numbers)),
    ),
    Mutant(
        "rope positions halved", "positions", partial(_change_frequencies, change=lambda numbers: numbers / 2)
    ),
    Mutant("rope scaling lost", "positions", _drop_scaling),
    Mutant("sliding window off", "positions", _open_window),
    Mutant("norm epsilon 1e-2", "norms", partial(_set_epsilon, epsilon=1e-2)),
    Mutant("norm epsilon 1e-3", "norms", partial(_set_epsilon, epsilon=1e-3)),
    Mutant("one norm weight skipped", "norms", partial(_skip_norm, final=False)),
    Mutant("final norm weight skipped", "norms", partial(_skip_norm, final=True)),
    Mutant("norm offset of 1 wrong", "norms", _shift_norms),
    Mutant("late layer left out", "layers", partial(_skip_layer, last=False)),
    Mutant("last layer left out", "layers", partial(_skip_layer, last=True)),
    Mutant("two layers swapped", "layers", _swap_layers),
    Mutant("biases dropped", "layers", _drop_biases),
    Mutant("head untied and new", "heads", _reset_head),
    Mutant("head tied", "heads", _tie_head),
    Mutant("q and k rows in the other rope order", "heads", _interleave_heads),
    Mutant("one output matrix transposed", "heads", _transpose_output),
    Mutant("other activation", "activation", _change_activation),
    Mutant("attention scale of heads twice as wide", "attention", _scale_attention),
    Mutant("GQA groups tiled", "attention", _tile_groups),
    Mutant("soft cap of logits off", "attention", _drop_cap),
    Mutant("noise of 1 %", "weights", partial(_add_noise, share=0.01)),
    Mutant("noise of 3 %", "weights", partial(_add_noise, share=0.03)),
    Mutant("noise of 10 %", "weights", partial(_add_noise, share=0.1)),
    Mutant("int4, groups of 64", "weights", partial(_change_matrices, change=partial(_round_int4, group=64))),
    Mutant(
        "int4, one scale a row", "weights", partial(_change_matrices, change=partial(_round_int4, group=None))
    ),
    Mutant("float8 e4m3", "weights", partial(_change_matrices, change=_round_fp8)),
    Mutant("bfloat16 truncated", "weights", _truncate),
    Mutant("adapter not merged", "adapter", partial(_scale_adapter, factor=0.0)),
    Mutant("adapter merged twice", "adapter", partial(_scale_adapter, factor=2.0)),
    Mutant("adapter with half of alpha", "adapter", partial(_scale_adapter, factor=0.5)),
    Mutant("BOS missing", "tokenizer", partial(_begin_with, times=0, usual=1)),
    Mutant("BOS doubled", "tokenizer", partial(_begin_with, times=2, usual=1)),
    Mutant("BOS added", "tokenizer", partial(_begin_with, times=1, usual=0)),
    Mutant("one merge missing", "tokenizer", _drop_merge),
    Mutant("question by the role system", "template", partial(_change_chat, role="system")),
    Mutant("question by the role assistant", "template", partial(_change_chat, role="assistant")),
    Mutant("no generation prompt", "template", partial(_change_chat, add_generation_prompt=False)),
    Mutant("another end of text", "eos", _lose_eos),
)
"""The faults, by class."""

CLASSES: Final = tuple(dict.fromkeys(mutant.kind for mutant in MUTANTS))
