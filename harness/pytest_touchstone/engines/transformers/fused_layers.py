"""Decoder layers of Llama's form, or of Qwen3's, computed by fewer and larger operations.

transformers computes such a layer by some sixty operations. In a pass that continues few texts, most of them take
longer to start than to compute. Here queries, keys and values are one product, and so are gate and up of the
feed-forward part; a norm is one operation, and a rotation four. The last layer has no feed-forward part for tokens of
which nothing more is wanted (``wanted``).

Qwen3's layers differ in two norms, of the heads of queries and of keys. A layer is computed this way only where it has
these parts, and where a trial with random hidden states, and all else as the model gives it, gives what the layer's own
code gives, up to rounding. Attention is whatever the model is set to. The layer's own code stays for arithmetic in
another number type (``in_float32``).

Steps that continue texts by a token each or a few go by one call of the CPU's kernels (``cpu.StepKernels``). A product
takes tens of microseconds there, so that all else counts: calls of modules, views for each layer, and every small
operation. Only passes of a ``SlotCache`` or several are such steps, without hooks on any layer. All others are computed
by the model's own code. So is everything where there are no kernels, and where a probe finds other logits; a note says
so (``causal``).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from copy import deepcopy
from ctypes import ArgumentError
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.agreement import CANNOT
from pytest_touchstone.engines.transformers.compat import cache_argument
from pytest_touchstone.engines.transformers.kv_cache import SlotCache, SlotCaches
from pytest_touchstone.engines.transformers.split_attention import FEW, NAME, attached_parts

if TYPE_CHECKING:
    import torch


_CLOSE: Final = {"torch.float32": 1e-5, "torch.bfloat16": 5e-2, "torch.float16": 1e-2}
"""The difference that counts as rounding, relative to the largest number that a layer adds, by number type; layers of
other types stay as they are."""

_DEVICES: Final = frozenset({"cpu", "cuda"})

_TRIED: Final = 5
"""The tokens that a layer is tried with, some of them at the model's last positions."""

_PLAIN: Final = (bool, int, float, str, type(None))

_QKV: Final = ("q_proj", "k_proj", "v_proj")

_GATE_UP: Final = ("gate_proj", "up_proj")

_NORMS: Final = ("input_layernorm", "post_attention_layernorm")

_HEAD_NORMS: Final = ("q_norm", "k_norm")

_SWAPPED: Final = "touchstone_swapped"


def fuse(model: Any, then: Callable[[Any], object] | None = None) -> int:
    """Fuse the decoder layers of a model where this gives the same numbers; return how many are fused.

    ``then`` is called with each of them before the next is fused, so that the next can have the memory that it frees.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        return 0
    layers = [layer for layer in model.modules() if _is_fusable(layer)]
    # A pass leaves its mark on models without such layers: BigBird attends otherwise then.
    arguments = _layer_arguments(model, layers) if layers else {}
    first = {_layer_kind(layer): layer for layer in reversed(arguments)}
    right = {kind for kind, layer in first.items() if _agrees(layer, arguments[layer])}
    files = cpu.MappedFiles()
    layers = [layer for layer in arguments if _layer_kind(layer) in right]
    for layer in layers:
        _fuse(layer, files)
        if then is not None:
            then(layer)
    return len(layers)


def _is_fusable(layer: Any) -> bool:
    """Return whether a module has the parts of Llama's or Qwen3's decoder layers, with weights on one device."""
    import torch

    if {name for name, _ in layer.named_children()} != {"self_attn", "mlp", *_NORMS}:
        return False
    attention, feed = layer.self_attn, layer.mlp
    parts = dict(attention.named_children())
    if parts.keys() not in ({*_QKV, "o_proj"}, {*_QKV, "o_proj", *_HEAD_NORMS}):
        return False
    if {name for name, _ in feed.named_children()} != {*_GATE_UP, "down_proj", "act_fn"}:
        return False
    linear = [*(getattr(attention, name) for name in _QKV), *(getattr(feed, name) for name in _GATE_UP)]
    if any(
        type(projection) is not torch.nn.Linear or "forward" in vars(projection) or projection._forward_hooks
        for projection in linear
    ):
        return False
    kinds = {
        (projection.weight.dtype, projection.weight.device, projection.in_features) for projection in linear
    }
    weight = linear[0].weight
    if len(kinds) > 1 or str(weight.dtype) not in _CLOSE or weight.device.type not in _DEVICES:
        return False
    return len({getattr(norm, "variance_epsilon", None) for norm in head_norms(attention)}) <= 1


def head_norms(attention: Any) -> tuple[Any, ...]:
    """Return the norms of query and key heads, as in Qwen3's attention; none for Llama's."""
    return (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else ()


def _layer_arguments(model: Any, layers: Sequence[Any]) -> dict[Any, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return the arguments of each layer in a pass, without hidden states; empty if the pass fails."""
    import torch

    arguments: dict[Any, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def passed(layer: Any, hidden_states: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
        arguments[layer] = more, named
        return hidden_states

    for layer in layers:
        layer.forward = functools.partial(passed, layer)
    try:
        most = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2 * _TRIED
        places = torch.tensor([[*range(_TRIED - 2), most - 2, most - 1]], device=model.device)
        with torch.inference_mode(False), torch.no_grad():
            model.base_model(input_ids=places % 2, position_ids=places, use_cache=False)
    except CANNOT:
        return {}
    finally:
        for layer in layers:
            del layer.forward
    return arguments


def _layer_kind(layer: Any) -> Hashable:
    """Return what a layer's code depends on, except for tensors and ``layer_idx``."""
    return tuple(
        (
            type(module),
            *(
                (name, value)
                for name, value in vars(module).items()
                if name != "layer_idx" and (isinstance(value, _PLAIN) or callable(value))
            ),
        )
        for module in layer.modules()
    )


def _agrees(layer: Any, given: tuple[tuple[Any, ...], dict[str, Any]]) -> bool:
    """Return whether a fused copy of a layer gives the layer's own numbers for random hidden states."""
    import torch

    weight, (more, named) = layer.self_attn.q_proj.weight, given
    hidden = torch.randn((1, _TRIED, weight.shape[1]), generator=torch.Generator().manual_seed(1))
    hidden = hidden.to(weight.device, weight.dtype)
    with torch.inference_mode(False), torch.no_grad():
        trial = deepcopy(layer)
        _fuse(trial, cpu.MappedFiles())
        try:
            before, after = layer(hidden, *more, **named), trial(hidden, *more, **named)
            most = (before - hidden).float().abs().max()
        except (*CANNOT, ArgumentError):
            return False
    return bool(((after - before).float().abs() <= _CLOSE[str(before.dtype)] * most + 1e-30).all())


def _fuse(layer: Any, files: cpu.MappedFiles) -> None:
    """Fuse a layer; the memory of plain weights that are mapped from ``files`` is released."""
    import torch

    attention, feed = layer.self_attn, layer.mlp
    with torch.inference_mode(False), torch.no_grad():
        layer.qkv_proj, layer.gate_up_proj = (
            _merge_projections(attention, _QKV),
            _merge_projections(feed, _GATE_UP),
        )
    layer.own_type, layer.head_norms = layer.qkv_proj.weight.dtype, head_norms(attention)
    plain: Any = type(layer)
    layer.__class__ = _fused_class(plain)
    for parent, names, merged in ((attention, _QKV, layer.qkv_proj), (feed, _GATE_UP, layer.gate_up_proj)):
        first = 0
        for name in names:
            projection = getattr(parent, name)
            setattr(parent, name, _slice_class()(merged, first, projection.out_features))
            first += projection.out_features
            files.let_go(projection.weight)


def _merge_projections(parent: Any, names: tuple[str, ...]) -> torch.nn.Linear:
    """Return linear layers with the same input as one layer, their outputs concatenated."""
    import torch

    some = [getattr(parent, name) for name in names]
    count = sum(projection.out_features for projection in some)
    merged = torch.nn.Linear(some[0].in_features, count, bias=False, device="meta")
    merged.weight = torch.nn.Parameter(
        torch.cat([projection.weight for projection in some]), requires_grad=False
    )
    if any(projection.bias is not None for projection in some):
        biases = [
            projection.weight.new_zeros(projection.out_features)
            if projection.bias is None
            else projection.bias
            for projection in some
        ]
        merged.bias = torch.nn.Parameter(torch.cat(biases), requires_grad=False)
    merged.computed = None  # type: ignore[assignment] # an input, and its outputs while parts of them are asked for
    return merged


@functools.cache
def _slice_class() -> type[torch.nn.Module]:
    """Return the class of linear layers that are a slice of a merged one, once torch is imported."""
    import torch

    class LinearSlice(torch.nn.Linear):
        """Outputs [..., ``first`` to ``first + count``] of a larger layer, which is a module elsewhere."""

        def __init__(self, whole: torch.nn.Linear, first: int, count: int) -> None:
            torch.nn.Module.__init__(self)
            self.in_features, self.out_features = whole.in_features, count
            self.whole, self.part = (whole,), slice(first, first + count)

        @property
        def weight(self) -> torch.Tensor:  # type: ignore[override]
            """The weights [out, in] of this part."""
            return self.whole[0].weight[self.part]

        @property
        def bias(self) -> torch.Tensor | None:  # type: ignore[override]
            """The biases [out] of this part."""
            return None if self.whole[0].bias is None else self.whole[0].bias[self.part]

        def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - as torch.nn.Linear has it
            """Return this part of the outputs, which are computed once for all parts of the same input."""
            whole: Any = self.whole[0]
            if whole.computed is None or whole.computed[0] is not input:
                whole.computed = input, whole(input)
            outputs: torch.Tensor = whole.computed[1][..., self.part]
            if self.part.stop == whole.out_features:  # the last part
                whole.computed = None
            return outputs

    return LinearSlice


@functools.cache
def _fused_class(plain: Any) -> type[Any]:
    """Return the class of fused layers whose own code is ``plain``."""
    import torch
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    cache_name = cache_argument(plain)
    eager = getattr(sys.modules[plain.__module__], "eager_attention_forward", None)
    silu = torch.nn.functional.silu

    def forward(
        self: Any,
        hidden_states: torch.Tensor,
        *,
        attention_mask: torch.Tensor | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        **more: Any,
    ) -> torch.Tensor:
        """Return hidden states [rows, tokens, width]."""
        if hidden_states.dtype != self.own_type or position_embeddings is None or self.training:
            more |= {"attention_mask": attention_mask, "position_embeddings": position_embeddings}
            unfused: torch.Tensor = plain.forward(self, hidden_states, **more)
            return unfused
        cache = more.pop(cache_name, None)
        attention, by_kernels = self.self_attn, cpu.has_kernels_for(hidden_states)
        rows, length, _ = hidden_states.shape
        hidden: torch.Tensor = apply_norm(self.input_layernorm, hidden_states, by_kernels=by_kernels)
        heads = _merged_outputs(self.qkv_proj, attention, _QKV, hidden).view(
            rows, length, -1, attention.head_dim
        )
        keys = heads.shape[2] // (attention.num_key_value_groups + 2)
        if by_kernels:
            count = heads.shape[2] - keys
            norms = zip(self.head_norms, (count - keys, keys), strict=False)
            cpu.apply_rotary(heads, count, *position_embeddings, list(norms))
            both = heads[:, :, :-keys].transpose(1, 2)
        else:
            both = apply_rotary(
                apply_head_norms(self.head_norms, heads, keys), *position_embeddings
            ).transpose(1, 2)
        key, value = both[:, -keys:], heads[:, :, -keys:].transpose(1, 2)
        if cache is not None:
            key, value = cache.update(key, value, attention.layer_idx)
        attended = None
        if by_kernels and attention.config._attn_implementation == "sdpa":
            attended = cpu.attend(both[:, :-keys], (key, value), attention_mask, attention.scaling)
        if attended is None:
            attend = ALL_ATTENTION_FUNCTIONS.get_interface(attention.config._attn_implementation, eager)
            given = both[:, :-keys], key, value, attention_mask
            attended, _ = attend(attention, *given, dropout=0.0, scaling=attention.scaling, **more)
        attended = attended.reshape(rows, length, -1)
        if self.wanted is not None:
            attended, hidden_states = (
                states[self.wanted].unsqueeze(0) for states in (attended, hidden_states)
            )
        hidden = attention.o_proj(attended).add_(hidden_states)
        between = apply_norm(self.post_attention_layernorm, hidden, by_kernels=by_kernels)
        gates_and_ups = _merged_outputs(self.gate_up_proj, self.mlp, _GATE_UP, between)
        if by_kernels:
            between = cpu.silu_gate(gates_and_ups)
        else:
            gate, up = gates_and_ups.chunk(2, -1)
            between = silu(gate).mul_(up)
        hidden.add_(self.mlp.down_proj(between))
        return hidden

    members = {"forward": forward, "__module__": plain.__module__, "wanted": None}
    return type(plain.__name__, (plain,), members)


def _merged_outputs(merged: Any, parent: Any, names: tuple[str, ...], hidden: torch.Tensor) -> torch.Tensor:
    """Return the outputs of a merged layer, changed by the hooks on its parts, such as an adapter's."""
    import torch

    outputs: torch.Tensor = merged(hidden)
    parts = [getattr(parent, name) for name in names]
    if not any(projection._forward_hooks for projection in parts):
        return outputs
    changed = []
    for projection in parts:
        output = outputs[..., projection.part]
        for hook in projection._forward_hooks.values():
            given = hook(projection, (hidden,), output)
            output = output if given is None else given
        changed.append(output)
    return torch.cat(changed, dim=-1)


def apply_norm(norm: Any, states: torch.Tensor, *, by_kernels: bool) -> torch.Tensor:
    """Return states [..., width] normalised by an RMSNorm; with ``by_kernels`` by the CPU's kernels."""
    import torch

    if by_kernels and norm.weight.dtype == states.dtype:
        return cpu.rms_norm(states, norm)
    return torch.rms_norm(states, states.shape[-1:], norm.weight, norm.variance_epsilon)


def apply_head_norms(norms: tuple[Any, ...], heads: torch.Tensor, keys: int) -> torch.Tensor:
    """Return the normalised query and key heads.

    Args:
        norms: The norms of query and key heads; none leaves the heads as they are.
        heads: Heads [rows, tokens, heads, width] of queries, then keys, then values.
        keys: The number of key heads.


    """
    import torch

    if not norms:
        return heads[:, :, :-keys]
    parts = zip(norms, (heads[:, :, : -2 * keys], heads[:, :, -2 * keys : -keys]), strict=True)
    return torch.cat([apply_norm(norm, normed, by_kernels=False) for norm, normed in parts], dim=2)


def apply_rotary(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return heads [rows, tokens, heads, width] rotated by rotary embeddings [rows, tokens, width]."""
    import torch

    half = cos.shape[-1] // 2
    if (swapped := getattr(sin, _SWAPPED, None)) is None:
        swapped = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1).unsqueeze(2)
        setattr(sin, _SWAPPED, swapped)  # the same in all layers of a pass
    return torch.addcmul(heads * cos.unsqueeze(2), heads.roll(half, -1), swapped)


_GIVEN: Final = {"input_ids", "position_ids", "use_cache", "attention_mask"}
"""The arguments of a step, beside the cache."""

_PARTS: Final = {"embed_tokens", "layers", "norm", "rotary_emb"}


def fuse_steps(model: Any) -> bool:
    """Make a model with fused layers compute its decoding steps by the CPU's kernels; return whether it does."""
    if (
        steps_are_fused(model)
        or _child_names(model) != {"model", "lm_head"}
        or _child_names(model.model) != _PARTS
    ):
        return False
    if not len(model.model.layers) or not all(hasattr(layer, "qkv_proj") for layer in model.model.layers):
        return False
    model.step_kernels = None
    model.step_modules = tuple(model.model.modules())
    plain: Any = type(model)
    model.__class__ = _stepping_class(plain)
    return True


def prepare_steps(model: Any) -> bool:
    """Pack the weights for decoding steps, before the first one; return whether steps go by the kernels."""
    cpu.pack_for_steps(model)
    if steps_are_fused(model):
        with suppress(ValueError):  # other layers than the kernels compute
            model.step_kernels = cpu.StepKernels(list(model.model.layers))
    return getattr(model, "step_kernels", None) is not None


def steps_are_fused(model: Any) -> bool:
    """Return whether a model has been made to compute fused steps."""
    return hasattr(type(model), "steps_of")


def last_layer(model: Any) -> Any | None:
    """Return the last layer of a fused model, which may compute wanted positions only; else None."""
    return None if not steps_are_fused(model) or _has_hooks(model) else model.model.layers[-1]


def _child_names(module: Any) -> set[str]:
    return {name for name, _ in getattr(module, "named_children", tuple)()}


@functools.cache
def _stepping_class(plain: Any) -> type[Any]:
    """Return the class of models with fused steps whose own code is ``plain``."""
    cache_name = cache_argument(plain)
    arguments = {*_GIVEN, cache_name}

    @functools.wraps(plain.forward)
    def forward(self: Any, *given: Any, **more: Any) -> Any:
        from transformers.modeling_outputs import CausalLMOutputWithPast

        is_step = (
            self.step_kernels is not None
            and not given
            and more.keys() == arguments
            and type(more[cache_name]) in (SlotCache, SlotCaches)
            and more["input_ids"].shape[1] <= FEW
            and self.config._attn_implementation == NAME
            and not self.training
            and not _has_hooks(self)
        )
        hidden = _compute_step(self, more[cache_name], more) if is_step else None
        if hidden is None:
            return plain.forward(self, *given, **more)
        return CausalLMOutputWithPast(logits=self.lm_head(hidden))

    return type(
        plain.__name__, (plain,), {"forward": forward, "__module__": plain.__module__, "steps_of": plain}
    )


def _has_hooks(model: Any) -> bool:
    """Return whether any module of a model has hooks."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.step_modules)


def _compute_step(model: Any, past: SlotCache | SlotCaches, given: dict[str, Any]) -> torch.Tensor | None:
    """Return the hidden states [rows, tokens, width] of a step; None where the kernels do not support it."""
    inner = model.model
    states = inner.embed_tokens(given["input_ids"])
    turn = inner.rotary_emb(states, position_ids=given["position_ids"])
    caches = [past] if isinstance(past, SlotCache) else past.caches
    masks = given["attention_mask"]
    by_kind = masks if isinstance(masks, dict) else {None: masks}
    each: dict[str | None, Sequence[torch.Tensor]] = {
        kind: attached_parts(mask) or [mask] for kind, mask in by_kind.items()
    }
    only = next(iter(each.values())) if len(each) == 1 else None
    kinds = getattr(inner.config, "layer_types", None) or [None] * len(inner.layers)
    if not model.step_kernels.compute(states, turn, caches, [only or each[kind] for kind in kinds]):
        return None
    hidden: torch.Tensor = inner.norm(states)
    return hidden
