"""Steps that continue texts by a token each or a few, for models of Llama's form or Qwen3's.

Within such a step a product takes tens of microseconds, so that all else counts: calls of modules, views for each
layer, and every small operation. Here a step is one function over all layers (``fused_layers``).

Only passes of that kind come here: those of a ``SlotCache`` or several, without hooks on any layer. All others are
computed by the model's own code. So is everything where that code is not known; and where a probe finds other logits,
steps are too, and a note says so (``causal``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.compat import cache_argument
from pytest_touchstone.engines.transformers.fused_layers import body_of, normed_heads, turned
from pytest_touchstone.engines.transformers.kv_cache import SlotCache, SlotCaches
from pytest_touchstone.engines.transformers.split_attention import FEW, NAME, attended, beside

if TYPE_CHECKING:
    import torch

_GIVEN: Final = {"input_ids", "position_ids", "use_cache", "attention_mask"}
"""The arguments of a step, beside the cache."""

_PARTS: Final = {"embed_tokens", "layers", "norm", "rotary_emb"}

_KNOWN: Final = ("llama", "mistral", "qwen2", "qwen3")
"""The families of transformers whose code around the layers is what a step does."""


def fuse_steps(model: Any) -> bool:
    """Make a model whose layers are fused compute its steps this way, if it can; return whether it does."""
    if not _can(model):
        return False
    plain: Any = type(model)
    model.step_kernels = None
    model.step_modules = tuple(model.model.modules())
    model.__class__ = _stepping_class(plain)
    return True


def prepare_steps(model: Any) -> bool:
    """Pack a model's weights for steps, before the first of them; return whether whole steps go by the kernels."""
    cpu.pack_for_steps(model)
    if steps_are_fused(model):
        with suppress(ValueError):  # other layers than the kernels compute
            model.step_kernels = cpu.StepKernels(list(model.model.layers))
    return getattr(model, "step_kernels", None) is not None


def leave_kernels(model: Any) -> None:
    """Let fused steps go by torch's operations."""
    model.step_kernels = None


def steps_are_fused(model: Any) -> bool:
    """Return whether a model computes its steps this way."""
    return hasattr(type(model), "steps_of")


def last_layer(model: Any) -> Any | None:
    """Return the last layer of a model, of which only ``WantedPlaces`` may be computed; None for other models."""
    if not steps_are_fused(model) or _has_hooks(model):
        return None
    layer = model.model.layers[-1]
    return layer if hasattr(layer, "wanted") else None


def leave_steps(model: Any) -> None:
    """Let a model whose steps are fused compute them by its own code again."""
    model.__class__ = type(model).steps_of


def _can(model: Any) -> bool:
    import torch

    if not isinstance(model, torch.nn.Module) or steps_are_fused(model):
        return False
    if {name for name, _ in model.named_children()} != {"model", "lm_head"}:
        return False
    inner: Any = model.model
    if {name for name, _ in inner.named_children()} != _PARTS or type(
        inner.embed_tokens
    ) is not torch.nn.Embedding:
        return False
    if not len(inner.layers) or not all(hasattr(layer, "qkv_proj") for layer in inner.layers):
        return False
    if any("forward" in vars(one) for one in model.modules()):
        return False
    norm = inner.layers[0].input_layernorm
    codes = body_of(type(inner).forward), body_of(type(model).forward)
    return type(inner.norm) is type(norm) and None not in codes and codes in _known_codes()


@functools.cache
def _known_codes() -> frozenset[tuple[str | None, str | None]]:
    """Return the code around the layers, and around those, of each family that is known."""
    from importlib import import_module

    found = set()
    for family in _KNOWN:
        module = import_module(f"transformers.models.{family}.modeling_{family}")
        kinds = [getattr(module, f"{family.capitalize()}{kind}", None) for kind in ("Model", "ForCausalLM")]
        if None not in kinds:
            found.add((body_of(kinds[0].forward), body_of(kinds[1].forward)))  # type: ignore[union-attr]
    return frozenset(found)


@functools.cache
def _stepping_class(plain: Any) -> type[Any]:
    """Return the class of models that compute steps this way, whose own code is ``plain``."""
    cache_name = cache_argument(plain)
    arguments = {*_GIVEN, cache_name}

    @functools.wraps(plain.forward)
    def forward(self: Any, *given: Any, **more: Any) -> Any:
        if given or more.keys() != arguments or not _is_step(self, more[cache_name], more):
            return plain.forward(self, *given, **more)
        hidden = self.model.embed_tokens(more["input_ids"])
        from transformers.modeling_outputs import CausalLMOutputWithPast

        return CausalLMOutputWithPast(
            logits=self.lm_head(_hidden(self.model, self.step_kernels, hidden, more[cache_name], more))
        )

    return type(
        plain.__name__, (plain,), {"forward": forward, "__module__": plain.__module__, "steps_of": plain}
    )


def _is_step(model: Any, cache: Any, given: dict[str, Any]) -> bool:
    """Return whether a pass gives each row of slots few tokens, with nothing else to do on the way."""
    return (
        type(cache) in (SlotCache, SlotCaches)
        and given["input_ids"].shape[1] <= FEW
        and model.config._attn_implementation == NAME
        and not model.training
        and not _has_hooks(model)
    )


def _has_hooks(model: Any) -> bool:
    """Return whether something looks at what a module within a model computes."""
    return any(one._forward_hooks or one._forward_pre_hooks for one in model.step_modules)


def _hidden(
    model: Any,
    kernels: cpu.StepKernels | None,
    embedded: torch.Tensor,
    cache: SlotCache | SlotCaches,
    given: dict[str, Any],
) -> torch.Tensor:
    """Return the last hidden states [rows, tokens, width] of a step from embedded tokens [rows, tokens, width]."""
    import torch

    rms_norm, silu = torch.rms_norm, torch.nn.functional.silu
    rows, length, width = embedded.shape
    turn = model.rotary_emb(embedded, position_ids=given["position_ids"])
    hidden = embedded.view(rows * length, width)
    attend = _Attention(cache, given["attention_mask"])
    kinds = getattr(model.config, "layer_types", None) or [None] * len(model.layers)
    norm = model.norm
    if kernels is not None and kernels.compute(embedded, turn, *attend.parts(kinds)):
        return rms_norm(embedded, (width,), norm.weight, norm.variance_epsilon)
    for layer, kind in zip(model.layers, kinds, strict=True):
        parts = layer._modules
        attention, feed = parts["self_attn"], parts["mlp"]
        norm = parts["input_layernorm"]
        between = rms_norm(hidden, (width,), norm.weight, norm.variance_epsilon)
        heads = parts["qkv_proj"].forward(between).view(rows, length, -1, attention.head_dim)
        own = heads.shape[2] // (attention.num_key_value_groups + 2)
        both = turned(normed_heads(layer.head_norms, heads, own), *turn)
        found = attend(attention, kind, both, heads[:, :, -own:], own)
        hidden = attention._modules["o_proj"].forward(found).add_(hidden)
        norm = parts["post_attention_layernorm"]
        between = rms_norm(hidden, (width,), norm.weight, norm.variance_epsilon)
        gate, up = parts["gate_up_proj"].forward(between).chunk(2, -1)
        hidden.add_(feed._modules["down_proj"].forward(silu(gate).mul_(up)))
    return rms_norm(hidden, (width,), model.norm.weight, model.norm.variance_epsilon).view(
        rows, length, width
    )


class _Attention:
    """Attends for the rows of one cache or several."""

    def __init__(self, past: SlotCache | SlotCaches, masks: Any) -> None:
        self._caches = [past] if isinstance(past, SlotCache) else past.caches
        by_kind = masks if isinstance(masks, dict) else {None: masks}
        self._masks: dict[str | None, Sequence[torch.Tensor]] = {
            kind: beside(mask) or [mask] for kind, mask in by_kind.items()
        }
        self._only = next(iter(self._masks.values())) if len(self._masks) == 1 else None

    def parts(self, kinds: Sequence[str | None]) -> tuple[Sequence[SlotCache], list[Sequence[torch.Tensor]]]:
        """Return the caches, and the masks for each of the layers of so many kinds."""
        return self._caches, [self._only or self._masks[kind] for kind in kinds]

    def __call__(
        self, attention: Any, kind: str | None, turned_heads: torch.Tensor, values: torch.Tensor, own: int
    ) -> torch.Tensor:
        """Return what a layer's heads attend to [rows * tokens, heads * width], from turned queries and keys [rows,
        tokens, heads, width] and values; ``own`` is the number of keys."""
        import torch

        masks = self._only or self._masks[kind]
        asked, keys = turned_heads[:, :, :-own].transpose(1, 2), turned_heads[:, :, -own:]
        found, first = [], 0
        for cache, mask in zip(self._caches, masks, strict=True):
            end = first + cache.count
            part = slice(first, end) if len(self._caches) > 1 else slice(None)
            own_parts = cache.store(
                keys[part].transpose(1, 2), values[part].transpose(1, 2), attention.layer_idx
            )
            few = attended(asked[part], own_parts, mask, attention.scaling)
            found.append(few.flatten(2))
            first = end
        return (found[0] if len(found) == 1 else torch.cat(found)).flatten(0, 1)
