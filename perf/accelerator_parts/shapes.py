"""The known shapes whose models are made on the spot, and what a pass through each must at least do.

The sizes are those of the published configs. ``small`` has the same architectures in sizes for a CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Kind: TypeAlias = Literal["causal", "mtp", "masked"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's name, kind and config; ``seq_len`` is the number of tokens that it is asked to take at most."""

    name: str
    kind: Kind
    model_type: str
    config: Mapping[str, Any]
    seq_len: int

    @property
    def texts(self) -> bool:
        """Return whether it continues texts."""
        return self.kind != "masked"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model: its numbers outside the embeddings (``inside``), its ``output`` layer, and all (``whole``).

    ``matrices`` says how many of each shape [out, in] are inside; ``keys_values`` counts the numbers that a token
    leaves in all layers.
    """

    inside: int
    output: tuple[int, int]
    matrices: Mapping[tuple[int, int], int]
    keys_values: int
    whole: int

    @property
    def read(self) -> int:
        """Return the numbers that a step reads: all outside the embeddings, and the output layer."""
        return self.inside + self.output[0] * self.output[1]

    def operations(self, tokens: int, logits: int) -> float:
        """Return the operations of so many tokens and places with logits, attention's products left out."""
        return 2.0 * self.inside * tokens + 2.0 * self.output[0] * self.output[1] * logits


def _llama(
    widths: tuple[int, int], layers: int, heads: tuple[int, int], vocabulary: int, **more: Any
) -> dict[str, Any]:
    """Return a config: ``widths`` of the layers and of their feed-forward part, ``heads`` of queries and of keys."""
    return {
        **{"hidden_size": widths[0], "intermediate_size": widths[1], "num_hidden_layers": layers},
        **{"num_attention_heads": heads[0], "num_key_value_heads": heads[1], "vocab_size": vocabulary},
        **{"max_position_embeddings": 8192, "tie_word_embeddings": True, **more},
    }


_DEBERTA: Final = {
    **{"vocab_size": 128_100, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12},
    **{"num_attention_heads": 12, "relative_attention": True, "position_buckets": 256},
    **{"max_relative_positions": -1, "share_att_key": True, "pos_att_type": ["p2c", "c2p"]},
    **{"norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0},
    "layer_norm_eps": 1e-7,
}

_MTP: Final = {
    **{
        "dim": 4096,
        "n_layers": 32,
        "n_heads": 32,
        "n_kv_heads": 32,
        "vocab_size": 32_000,
        "multiple_of": 256,
    },
    **{"norm_eps": 1e-5, "rope_theta": 10_000.0, "max_seq_len": 4096, "n_future_tokens": 4},
}

SHAPES: Final = (
    Shape(
        *("SmolLM2-135M", "causal", "llama"),
        _llama((576, 1536), 30, (9, 3), 49_152, rope_theta=100_000.0),
        4096,
    ),
    Shape(
        *("Qwen2.5-0.5B", "causal", "qwen2"),
        _llama((896, 4864), 24, (14, 2), 151_936, rope_theta=1e6, rms_norm_eps=1e-6),
        4096,
    ),
    Shape(
        *("Llama-3.2-1B", "causal", "llama"),
        _llama((2048, 8192), 16, (32, 8), 128_256, head_dim=64, rope_theta=500_000.0),
        4096,
    ),
    Shape(
        *("Qwen2.5-7B", "causal", "qwen2"),
        _llama(
            (3584, 18_944), 28, (28, 4), 152_064, rope_theta=1e6, rms_norm_eps=1e-6, tie_word_embeddings=False
        ),
        4096,
    ),
    Shape("MTP-6.7B", "mtp", "mtp", _MTP, 4096),
    Shape("BERT-base", "masked", "bert", {"vocab_size": 30_522}, 512),
    Shape("BERT-base 2048", "masked", "bert", {"vocab_size": 30_522, "max_position_embeddings": 2048}, 2048),
    Shape("DeBERTa-v3-base", "masked", "deberta-v2", {**_DEBERTA, "max_position_embeddings": 512}, 512),
    Shape(
        "DeBERTa-v3-base 2048", "masked", "deberta-v2", {**_DEBERTA, "max_position_embeddings": 2048}, 2048
    ),
)

_SMALL: Final[Mapping[Kind, Mapping[str, Any]]] = {
    "causal": {
        **{"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "head_dim": 32},
        **{"num_attention_heads": 4, "num_key_value_heads": 2},
    },
    "mtp": {"dim": 128, "n_layers": 5, "n_heads": 4, "n_kv_heads": 4, "multiple_of": 16},
    "masked": {
        **{"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4},
    },
}


def small(shape: Shape, vocabulary: int) -> Shape:
    """Return the same architecture in a size for a CPU, with as many embeddings as the tokenizer has tokens."""
    config = {**shape.config, **_SMALL[shape.kind], "vocab_size": vocabulary}
    return Shape(f"{shape.name}, small", shape.kind, shape.model_type, config, shape.seq_len)


def named(names: str | None) -> tuple[Shape, ...]:
    """Return the shapes by their names, in the order of the list above; ``None`` stands for all.

    A beginning of a name stands for all that begin so. Raises ``SystemExit`` for a name that is none.
    """
    if names is None:
        return SHAPES
    asked = [name.strip().lower() for name in names.split(",")]
    unknown = [one for one in asked if not any(shape.name.lower().startswith(one) for shape in SHAPES)]
    if unknown or not all(asked):
        known = ", ".join(shape.name for shape in SHAPES)
        raise SystemExit(f"unknown model {unknown[0] if unknown else ''!r}; there are {known}")
    return tuple(shape for shape in SHAPES if any(shape.name.lower().startswith(one) for one in asked))


def sizes(shape: Shape) -> Sizes:
    """Return the sizes of a model, counted without its numbers."""
    return _mtp_sizes(shape) if shape.kind == "mtp" else _counted(shape)


def _mtp_sizes(shape: Shape) -> Sizes:
    """Count head 0's way through the model; extra heads are no part of a plain pass."""
    from pytest_touchstone.engines.transformers.mtp.model import config_of

    config = config_of(shape.config, shape.name)
    vocabulary = int(shape.config["vocab_size"])
    every = {name: one for name, one in config.shapes(vocabulary).items() if "extra_heads" not in name}
    output = every.pop("output.weight")
    embeddings = every.pop("tok_embeddings.weight")
    matrices = Counter((one[0], one[1]) for one in every.values() if len(one) == 2)
    inside = sum(_product(one) for one in every.values())
    own = 2 * config.blocks * config.n_kv_heads * config.head_dim
    whole = sum(_product(one) for one in config.shapes(vocabulary).values())
    return Sizes(inside, (embeddings[0], output[1]), dict(matrices), own, whole)


def _counted(shape: Shape) -> Sizes:
    import torch

    from perf.accelerator_parts.random_model import made

    model = made(shape.kind, shape.model_type, dict(shape.config), dtype="float32", device="meta")
    table, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    inside = [one for one in model.parameters() if one is not table and one is not output]
    tables = {id(one.weight) for one in model.modules() if isinstance(one, torch.nn.Embedding)}
    matrices = Counter(
        (one.shape[0], one.shape[1]) for one in inside if one.dim() == 2 and id(one) not in tables
    )
    config = model.config
    heads = int(config.num_attention_heads)
    own = int(getattr(config, "num_key_value_heads", None) or heads)
    head = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return Sizes(
        inside=sum(one.numel() for one in inside if id(one) not in tables),
        output=(output.shape[0], output.shape[1]),
        matrices=dict(matrices),
        keys_values=2 * int(config.num_hidden_layers) * own * head,
        whole=sum(one.numel() for one in model.parameters()),
    )


def _product(shape: tuple[int, ...]) -> int:
    found = 1
    for one in shape:
        found *= one
    return found
