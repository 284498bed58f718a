"""A model of a known shape with random weights, made on its device; the same for the same seed, device and torch.

It imports nothing of this project, so that another tool's Python can make the same model.
"""

from __future__ import annotations

from typing import Any

SPREAD = 0.05
"""The standard deviation of a masked model's weights.

It is larger than usual: with nearly flat answers rounding would decide which token comes first.
"""

GAIN = 1.5
"""The root mean square of what a causal model's matrices make of numbers whose own is 1.

With less, a text would repeat its last token for ever, and equal texts would mean nothing.
"""

UNKNOWN = -1e4
"""The bias of the rows of a masked model without a token in the tokenizer, so that none of them is an answer."""


def made(
    kind: str,
    model_type: str,
    config: dict[str, Any],
    *,
    dtype: str,
    device: str,
    known: int | None = None,
    seed: int = 0,
) -> Any:
    """Return a model of Transformers, in evaluation mode.

    Of the rows of its tables, only the first ``known`` have a token. A causal model's others are 0, so that none of
    them is ever the most probable token.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    auto = AutoModelForMaskedLM if kind == "masked" else AutoModelForCausalLM
    torch.manual_seed(seed)
    with torch.device(device):
        model = auto.from_config(AutoConfig.for_model(model_type, **config), dtype=getattr(torch, dtype))
    if device == "meta":
        return model.eval()
    output, table = model.get_output_embeddings(), model.get_input_embeddings().weight
    with torch.no_grad():
        for parameter in model.parameters():
            if kind == "masked" and parameter.dim() > 1:
                parameter.normal_(0.0, SPREAD)
            elif parameter.dim() > 1 and parameter is not table and parameter is not output.weight:
                parameter.normal_(0.0, GAIN / parameter.shape[1] ** 0.5)
        if known is not None and output.bias is not None:
            output.bias[known:] = UNKNOWN
        elif known is not None:
            output.weight[known:] = 0.0
    return model.eval()
