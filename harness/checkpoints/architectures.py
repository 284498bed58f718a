"""From ``config.json`` to the kind of model: masked, causal, or none that can be scored."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.checkpoints.info import Kind
from harness.checkpoints.json_files import ModelConfig
from harness.errors import CheckpointError

_MASKED: Final = (
    "albert bert big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra "
    "ernie eurobert fnet funnel ibert layoutlm longformer luke megatron-bert mobilebert modernbert "
    "mpnet mra nomic_bert nystromformer rembert roberta roberta-prelayernorm roc_bert roformer "
    "squeezebert xlm-roberta xlm-roberta-xl xmod yoso"
)
MASKED_TYPES: Final = frozenset(_MASKED.split())
"""Model types that are masked language models when ``architectures`` does not say otherwise."""

_CAUSAL: Final = (
    "apertus arcee bamba biogpt bitnet bloom codegen cohere cohere2 ctrl deepseek_v2 deepseek_v3 "
    "ernie4_5 exaone4 falcon falcon_h1 falcon_mamba gemma gemma2 gemma3_text glm glm4 gpt2 "
    "gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite granitemoe helium internlm3 jamba lfm2 llama "
    "mamba mamba2 ministral mistral mixtral modernbert-decoder mpt nemotron olmo olmo2 olmo3 olmoe "
    "opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next recurrent_gemma rwkv "
    "seed_oss smollm3 stablelm starcoder2 xglm zamba zamba2"
)
CAUSAL_TYPES: Final = frozenset(_CAUSAL.split())
"""Model types that are causal language models when ``architectures`` does not say otherwise."""

_MASKED_ENDINGS: Final = ("ForMaskedLM", "BertForPreTraining")
_CAUSAL_ENDINGS: Final = ("ForCausalLM", "LMHeadModel")


def kind_of(path: Path, config: ModelConfig) -> tuple[Kind, str]:
    """The kind and the architecture's name, from ``architectures``, or from the model type where that is
    missing.

    Raises ``CheckpointError`` for encoder-decoders, models without a language-model head, and unknown types.
    """
    architecture = (config.architectures or [""])[0]
    if config.is_encoder_decoder or architecture.endswith("ForConditionalGeneration"):
        raise CheckpointError(
            f"{path}: {architecture or config.model_type} is an encoder-decoder or multimodal model; "
            "only masked and causal language models can be scored"
        )
    if architecture.endswith(_MASKED_ENDINGS):
        return "masked", architecture
    if architecture.endswith(_CAUSAL_ENDINGS):
        return "causal", architecture
    if architecture:
        raise CheckpointError(
            f"{path}: architecture {architecture!r} has no language-model head; "
            "give a checkpoint saved from a ...ForMaskedLM or ...ForCausalLM model"
        )
    if config.model_type in MASKED_TYPES:
        return "masked", f"{config.model_type} (masked)"
    if config.model_type in CAUSAL_TYPES:
        return "causal", f"{config.model_type} (causal)"
    raise CheckpointError(
        f"{path}: model type {config.model_type!r} is unknown and 'architectures' is missing; "
        "add 'architectures' to the config, for example [\"LlamaForCausalLM\"]"
    )


def check_no_code(path: Path, config: ModelConfig) -> None:
    """Raises ``CheckpointError`` where the config wants code that is not transformers' own.

    ``auto_map`` of a type that transformers knows itself is not obeyed, and no mistake: such checkpoints are
    older than their support. ``attn_implementation`` may name a kernel on the Hub, which would be fetched and run.
    """
    if config.auto_map and config.model_type not in MASKED_TYPES | CAUSAL_TYPES:
        (first, *_) = map(str, config.auto_map.values())
        raise CheckpointError(
            f"{path}: wants to run code of its own ({first}), which is not run; --eval-trust-remote-code allows "
            "it, if you trust the checkpoint as much as a program"
        )
    wanted = config.attn_implementation
    for name in wanted.values() if isinstance(wanted, dict) else [wanted]:
        if name is not None and name not in ("eager", "sdpa"):
            raise CheckpointError(
                f"{path}: wants the attention {str(name)!r}, which may be code from elsewhere; "
                "take 'attn_implementation' out of the config"
            )
