"""Steps that continue texts by a token each or a few, by one call of the CPU's kernels, for models of Llama's form.

Within such a step a product takes tens of microseconds, so that all else counts: calls of modules, views for each
layer, and every small operation. Here all layers are one call (``cpu.StepKernels``).

Only passes of that kind come here: those of a ``SlotCache`` or several, without hooks on any layer. All others are
computed by the model's own code. So is everything where there are no kernels, and where a probe finds other logits; a
note says so (``causal``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.compat import cache_argument
from pytest_touchstone.engines.transformers.kv_cache import SlotCache, SlotCaches
from pytest_touchstone.engines.transformers.split_attention import FEW, NAME, beside

if TYPE_CHECKING:
    import torch

_GIVEN: Final = {"input_ids", "position_ids", "use_cache", "attention_mask"}
"""The arguments of a step, beside the cache."""

_PARTS: Final = {"embed_tokens", "layers", "norm", "rotary_emb"}


def fuse_steps(model: Any) -> bool:
    """Make a model whose layers are fused compute its steps this way, if it can; return whether it does."""
    if not _can(model):
        return False
    model.step_kernels = None
    model.step_modules = tuple(model.model.modules())
    plain: Any = type(model)
    model.__class__ = _stepping_class(plain)
    return True


def prepare_steps(model: Any) -> bool:
    """Pack a model's weights for steps, before the first of them; return whether they go by the kernels."""
    cpu.pack_for_steps(model)
    if steps_are_fused(model):
        with suppress(ValueError):  # other layers than the kernels compute
            model.step_kernels = cpu.StepKernels(list(model.model.layers))
    return getattr(model, "step_kernels", None) is not None


def leave_steps(model: Any) -> None:
    """Let a model compute its steps by its own code again."""
    model.step_kernels = None


def steps_are_fused(model: Any) -> bool:
    """Return whether a model can compute its steps this way."""
    return hasattr(type(model), "steps_of")


def last_layer(model: Any) -> Any | None:
    """Return the last layer of a model, of which only ``WantedPlaces`` may be computed; None for other models."""
    return None if not steps_are_fused(model) or _has_hooks(model) else model.model.layers[-1]


def _can(model: Any) -> bool:
    """Return whether a model has the parts of Llama's, all layers are fused, and nothing is done yet."""
    if steps_are_fused(model) or _names(model) != {"model", "lm_head"} or _names(model.model) != _PARTS:
        return False
    return len(model.model.layers) > 0 and all(hasattr(layer, "qkv_proj") for layer in model.model.layers)


def _names(module: Any) -> set[str]:
    return {name for name, _ in getattr(module, "named_children", tuple)()}


@functools.cache
def _stepping_class(plain: Any) -> type[Any]:
    """Return the class of models that compute steps this way, whose own code is ``plain``."""
    cache_name = cache_argument(plain)
    arguments = {*_GIVEN, cache_name}

    @functools.wraps(plain.forward)
    def forward(self: Any, *given: Any, **more: Any) -> Any:
        hidden = None
        if not given and more.keys() == arguments and _is_step(self, more[cache_name], more):
            hidden = _hidden(self, more[cache_name], more)
        if hidden is None:
            return plain.forward(self, *given, **more)
        from transformers.modeling_outputs import CausalLMOutputWithPast

        return CausalLMOutputWithPast(logits=self.lm_head(hidden))

    return type(
        plain.__name__, (plain,), {"forward": forward, "__module__": plain.__module__, "steps_of": plain}
    )


def _is_step(model: Any, cache: Any, given: dict[str, Any]) -> bool:
    """Return whether a pass gives each row of slots few tokens, with nothing else to do on the way."""
    return (
        model.step_kernels is not None
        and type(cache) in (SlotCache, SlotCaches)
        and given["input_ids"].shape[1] <= FEW
        and model.config._attn_implementation == NAME
        and not model.training
        and not _has_hooks(model)
    )


def _has_hooks(model: Any) -> bool:
    """Return whether something looks at what a module within a model computes."""
    return any(one._forward_hooks or one._forward_pre_hooks for one in model.step_modules)


def _hidden(model: Any, past: SlotCache | SlotCaches, given: dict[str, Any]) -> torch.Tensor | None:
    """Return the last hidden states [rows, tokens, width] of a step; None where the kernels do not compute it."""
    inner = model.model
    states = inner.embed_tokens(given["input_ids"])
    turn = inner.rotary_emb(states, position_ids=given["position_ids"])
    caches = [past] if isinstance(past, SlotCache) else past.caches
    masks = given["attention_mask"]
    by_kind = masks if isinstance(masks, dict) else {None: masks}
    each: dict[str | None, Sequence[torch.Tensor]] = {
        kind: beside(mask) or [mask] for kind, mask in by_kind.items()
    }
    only = next(iter(each.values())) if len(each) == 1 else None
    kinds = getattr(inner.config, "layer_types", None) or [None] * len(inner.layers)
    if not model.step_kernels.compute(states, turn, caches, [only or each[kind] for kind in kinds]):
        return None
    hidden: torch.Tensor = inner.norm(states)
    return hidden
