"""Steps through all layers of Llama's form, or of Qwen3's, by one call of the kernels, computed in float32.

A step of few rows takes some forty operations of torch per layer, each of which takes longer to start than to compute.
Here a layer takes none, the rows' keys are written and read where they lie, and no thread waits for another but at the
layer's own seams.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_touchstone.engines.transformers.cpu.kernels import kernels, structure
from pytest_touchstone.engines.transformers.cpu.packing import (
    PACKED,
    BFloat16Kernels,
    NativeKernels,
    UpcastKernels,
)

if TYPE_CHECKING:
    import torch

_POINTER, _SIZE, _FLOAT = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_float

_Layer = structure(
    (_POINTER, "input_norm post_norm qkv qkv_bias o o_bias gate_up gate_up_bias down down_bias"),
    (_POINTER, "query_norm key_norm"),
    (_FLOAT, "input_eps post_eps scale head_eps"),
)

_KeyValues = structure((_POINTER, "keys values prefix_keys prefix_values mask"))

_Cache = structure(
    (_SIZE, "rows first until past row_stride head_stride key_stride value_stride mask_stride"),
    (_POINTER, "columns"),
)

_Step = structure(
    (_SIZE, "layers caches rows tokens hidden features heads groups width"),
    (_POINTER, "layer cache held cos sin states scratch"),
    (_SIZE, "threads next half_pieces half_cache type"),
)


class StepKernels:
    """All layers of a model whose weights are packed for the kernels."""

    def __init__(self, layers: Sequence[Any]) -> None:
        """Raise ``ValueError`` where there are no kernels, or where a layer is not one that they compute."""
        compiled = kernels()
        packed = [getattr(product, "kernels", None) for layer in layers for product in _linears(layer)]
        plain = [product.kernels if isinstance(product, UpcastKernels) else product for product in packed]
        kinds: set[tuple[Any, int]] = {(type(product), getattr(product, "type", 0)) for product in plain}
        (kind, self._type), *others = kinds or {(None, 0)}
        if (
            compiled is None
            or others
            or kind not in (NativeKernels, BFloat16Kernels)
            or not all(map(_is_supported, layers))
        ):
            raise ValueError("not a model for the kernels")
        self._kernels: Any = compiled
        self._kept: list[torch.Tensor] = []  # numbers that the kernels read as float32 ones
        self._half = kind is BFloat16Kernels
        self._weights = [weight for layer in layers for weight in _weights_of(layer)]
        self._layers = (_Layer * len(layers))(*map(self._entry, layers))
        attention = layers[0].self_attn
        self._width, self._groups = attention.head_dim, attention.num_key_value_groups
        self._heads = layers[0].qkv_proj.out_features // (self._groups + 2) // self._width
        self._features = layers[0].gate_up_proj.out_features // 2
        self._places: tuple[list[Any], Any] | None = None

    def compute(
        self,
        states: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        caches: Sequence[Any],
        masks: Sequence[Sequence[torch.Tensor]],
    ) -> bool:
        """Compute all layers in place, from embedded tokens to the last hidden states.

        Args:
            states: Hidden states [rows, tokens, hidden].
            turn: Cosines and sines [rows, tokens, width] of the rotary embeddings.
            caches: The slot caches, in the order of the rows.
            masks: For each layer the masks [rows, 1, tokens, keys] of all caches.

        Returns:
            False, with nothing changed, where the kernels do not support such a step.

        """
        import torch

        rows, tokens, _ = states.shape
        if any(owner.get(name) is not kept for owner, name, kept in self._weights):
            return False
        kinds = {id(some): some for some in masks}  # one for each kind of layer
        distinct = {key: [mask.float() for mask in some] for key, some in kinds.items()}
        if not all(
            _fits_cache(*pair, tokens)
            for some in distinct.values()
            for pair in zip(some, caches, strict=True)
        ):
            return False
        held = self._places_in(caches, states)
        if held is None:
            return False
        columns = [cache.write_columns(tokens) for cache in caches]
        described, first = (_Cache * len(caches))(), 0
        for entry, cache, at, mask in zip(described, caches, columns, distinct[id(masks[0])], strict=True):
            entry.rows, entry.first, entry.until, entry.past = cache.count, first, mask.shape[-1], cache.past
            entry.row_stride, entry.head_stride = cache.layers[0][0].stride()[:2]
            if cache.past:
                entry.key_stride, entry.value_stride = (tensor.stride(1) for tensor in cache.prefix.layers[0])
            entry.mask_stride, entry.columns = mask.stride(2), at.data_ptr()
            first += cache.count
        places = iter(held)
        for some in masks:
            for mask in distinct[id(some)]:
                next(places).mask = mask.data_ptr()
        cos, sin = (angles.float().expand(rows, tokens, self._width).contiguous() for angles in turn)
        wide = states.float()  # itself, where it is of that type
        # The pieces of 8 bits of a number that meet bfloat16 weights: all where the model computes in float32. Else a
        # tile unit waits for memory, so that one more than the model's own type has takes no time.
        pieces = 0
        if self._half:
            pieces = 3 if str(states.dtype) == "torch.float32" else 1 + self._kernels.by_tiles
        step = _Step(
            *(len(self._layers), len(caches), rows, tokens, states.shape[2], self._features),
            *(self._heads, self._groups, self._width),
            *(ctypes.addressof(array) for array in (self._layers, described, held)),
            *(cos.data_ptr(), sin.data_ptr(), wide.data_ptr(), None, torch.get_num_threads(), 0),
            *(pieces, caches[0].layers[0][0].dtype == torch.bfloat16, self._type),
        )
        scratch = wide.new_empty(self._kernels.scratch_size(ctypes.byref(step)))
        step.scratch = scratch.data_ptr()
        self._kernels.step(ctypes.byref(step))
        if wide is not states:
            states.copy_(wide)
        return True

    def _entry(self, layer: Any) -> Any:
        """Return a layer's weights as the kernels' structure."""
        norms, of_heads = _norms(layer), layer.head_norms
        pointers: list[int | None] = [self._read(norm.weight) for norm in norms]
        for linear in _linears(layer):
            pointers += [
                linear._parameters[PACKED].data_ptr(),
                None if linear.bias is None else self._read(linear.bias),
            ]
        pointers += [self._read(norm.weight) for norm in of_heads] or [None, None]
        eps = of_heads[0].variance_epsilon if of_heads else 0.0  # the same for both
        return _Layer(*pointers, *(norm.variance_epsilon for norm in norms), layer.self_attn.scaling, eps)

    def _read(self, numbers: torch.Tensor) -> int:
        """Return the address of numbers as float32."""
        self._kept.append(numbers.detach().float())
        return self._kept[-1].data_ptr()

    def _places_in(self, caches: Sequence[Any], like: torch.Tensor) -> Any | None:
        """Return the addresses of keys and values of all layers and caches; None for an unsupported layout."""
        shape = len(self._layers), self._heads, self._width
        for cache in caches:
            cache.make_buffers(*shape, like)
        where = [identity for cache in caches for identity in (cache.stamp, cache.prefix, cache.first)]
        if self._places is not None and list(map(id, self._places[0])) == list(map(id, where)):
            return self._places[1]
        held = (_KeyValues * (len(caches) * shape[0]))()
        places, first = iter(held), caches[0].layers[0][0]
        for layer in range(shape[0]):
            for cache in caches:
                parts = cache.layers[layer]
                before = cache.prefix.layers[layer] if cache.past else ()
                prefix = cache.prefix.layers[0] if cache.past else ()
                if any(tensor.dtype != first.dtype for tensor in (*parts, *before)):
                    return None
                if not _has_same_layout(parts, cache.layers[0]) or not _has_same_layout(before, prefix):
                    return None
                pointers = [tensor[cache.first :].data_ptr() for tensor in parts]
                pointers += [tensor.data_ptr() for tensor in before]
                addresses = next(places)
                for (name, _), pointer in zip(addresses._fields_, pointers, strict=False):
                    setattr(addresses, name, pointer)
        self._places = (where, held)
        return held


def _has_same_layout(parts: Sequence[torch.Tensor], first: Sequence[torch.Tensor]) -> bool:
    """Return whether keys and values [rows, heads, tokens, width] are laid out as the kernels expect.

    Tokens are dense, and strides are those of the first layer.
    """
    return all(
        str(tensor.dtype) in ("torch.float32", "torch.bfloat16")
        and tensor.device.type == "cpu"
        and (tensor.shape[2] == 1 or tensor.stride(2) == tensor.shape[3])
        and tensor.stride(3) == 1
        and tensor.stride()[:2] == other.stride()[:2]
        for tensor, other in zip(parts, first, strict=True)
    )


def _fits_cache(mask: torch.Tensor, cache: Any, tokens: int) -> bool:
    """Return whether a mask is dense, and covers the keys in the slots of a cache."""
    rows, _, length, keys = mask.shape
    dense = mask.stride(3) == 1 and (rows == 1 or mask.stride(0) == length * mask.stride(2))
    return (
        dense
        and (rows, length, keys) == (cache.count, tokens, cache.until)
        and str(mask.dtype) == "torch.float32"
    )


def _is_supported(layer: Any) -> bool:
    """Return whether the kernels can compute a fused layer's norms and heads."""
    attention = layer.self_attn
    products = _linears(layer)
    norms = *_norms(layer), *layer.head_norms
    numbers = [linear.weight for linear in norms] + [
        linear.bias for linear in products if linear.bias is not None
    ]
    return (
        all(tensor.is_contiguous() for tensor in numbers)
        and attention.head_dim % 2 == 0
        and attention.o_proj.in_features
        == layer.qkv_proj.out_features
        // (attention.num_key_value_groups + 2)
        * attention.num_key_value_groups
    )


def _norms(layer: Any) -> tuple[Any, Any]:
    return layer.input_layernorm, layer.post_attention_layernorm


def _linears(layer: Any) -> tuple[Any, Any, Any, Any]:
    return layer.qkv_proj, layer.self_attn.o_proj, layer.gate_up_proj, layer.mlp.down_proj


def _weights_of(layer: Any) -> list[tuple[dict[str, Any], str, torch.Tensor]]:
    """Return a layer's weights and the tables that hold them, so that a replaced weight is noticed."""
    norms = *_norms(layer), *layer.head_norms
    owners = [(linear, name) for linear in _linears(layer) for name in (PACKED, "bias")] + [
        (norm, "weight") for norm in norms
    ]
    return [
        (module._parameters, name, module._parameters[name])
        for module, name in owners
        if module._parameters.get(name) is not None
    ]
