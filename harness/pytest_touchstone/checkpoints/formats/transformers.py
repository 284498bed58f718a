"""Checkpoint folders of the Transformers library: masked and causal language models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pytest_touchstone.checkpoints.formats.base import Asked
from pytest_touchstone.checkpoints.formats.config_files import (
    GenerationConfig,
    ModelConfig,
    TokenizerConfig,
    read_json,
)
from pytest_touchstone.checkpoints.formats.content import TOKENIZER, file_lines, matching, tensor_lines
from pytest_touchstone.checkpoints.formats.foreign import foreign
from pytest_touchstone.checkpoints.formats.paths import check_inside
from pytest_touchstone.checkpoints.formats.sizes import check_sizes, check_vocabulary, length_of
from pytest_touchstone.checkpoints.formats.tensors import count_parameters, main_dtype, shapes_of
from pytest_touchstone.checkpoints.formats.weights import (
    INDEX,
    PICKLED,
    WEIGHTS,
    check_gathered,
    check_types,
    weight_files,
    weights_of,
)
from pytest_touchstone.checkpoints.info import LACKS, SERVES, CheckpointInfo, Kind
from pytest_touchstone.checkpoints.training_state import progress_of
from pytest_touchstone.core.errors import CheckpointError

TOKENIZER_FILES: Final = (
    *("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json"),
    *("spiece.model", "spm.model", "sentencepiece.bpe.model"),
)

_PATTERNS: Final = ("config.json", "generation_config.json", *TOKENIZER)
"""Files that count for the fingerprint beside the weights."""


class Transformers:
    """A folder that ``save_pretrained`` or a Trainer wrote."""

    name = "folder"

    def detect(self, path: Path) -> bool:
        """Return whether a config is there, or weights, which Llama's reference code may have too."""
        if (path / "config.json").is_file():
            return True
        patterns = ("*.safetensors", "pytorch_model*.bin")
        return not (path / "params.json").is_file() and any(next(path.glob(one), None) for one in patterns)

    def inspect(self, path: Path, asked: Asked) -> CheckpointInfo:
        """Describe the checkpoint: config, weights and tokenizer, all there and in agreement.

        Raises ``CheckpointError`` naming the missing or broken file.
        """
        check_inside(path)
        config = _config(path)
        if not asked.trust_remote_code:
            check_no_code(path / "config.json", config)
        kind, architecture = kind_of(path / "config.json", config)
        by = sees_later_tokens(config)
        tensors = weights_of(path)
        shapes = shapes_of(tensors)
        check_tokenizer(path)
        check_gathered(path, tensors)
        if getattr(config, "quantization_config", None) is None:
            check_types(path, tensors)
        check_vocabulary(path, config, shapes)
        check_sizes(path / "config.json", config, shapes)
        tokens = _tokenizer_length(path, config, asked.trust_remote_code)
        length = length_of(path, kind, config, shapes, tokens)
        if (path / "generation_config.json").is_file():
            read_json(path / "generation_config.json", GenerationConfig)
        return CheckpointInfo(
            name=path.resolve().name,
            source=asked.source,
            path=path,
            kind=kind,
            format=self.name,
            model_type=config.model_type,
            architecture=architecture,
            seq_len=asked.limited(path, length.seq_len),
            serves=SERVES[kind],
            overrides=length.overrides,
            parameters=count_parameters(tensors),
            dtype=main_dtype(tensors),
            trust_remote_code=asked.trust_remote_code,
            takes_adapters=True,
            extra={} if by is None else {LACKS: f"{by} in its config.json, so its tokens see later ones"},
            **asdict(progress_of(path)),
        )

    def files(self, info: CheckpointInfo) -> list[Path]:
        """Weights with their index, config, tokenizer; code where it is run."""
        index = [path for path in info.path.glob("*.index.json") if path.is_file()]
        return [*weight_files(info.path), *index, *matching(info.path, _patterns(info))]

    def content(self, info: CheckpointInfo) -> Iterator[str]:
        """The files but the weights, then tensors; a pickle without a header counts as a file."""
        yield from file_lines(matching(info.path, _patterns(info)))
        tensors = weights_of(info.path)
        yield from tensor_lines(tensors) if tensors else file_lines(weight_files(info.path), "weights")


def _patterns(info: CheckpointInfo) -> tuple[str, ...]:
    return (*_PATTERNS, "*.py") if info.trust_remote_code else _PATTERNS


def has_tokenizer(folder: Path) -> bool:
    """Return whether a tokenizer's files are in the folder."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def check_tokenizer(folder: Path) -> None:
    """Raises ``CheckpointError`` where there is none, or ``tokenizer.json`` is cut off. The rest is found out when it
    is loaded, before the weights are: reading a large vocabulary takes long."""
    if not has_tokenizer(folder):
        raise CheckpointError(
            f"{folder}: no tokenizer files (tokenizer.json, vocab.txt, tokenizer.model ...); "
            "save the tokenizer into the folder with tokenizer.save_pretrained"
        )
    path = folder / "tokenizer.json"
    if path.is_file():
        with path.open("rb") as file:
            first = file.read(64).lstrip()[:1]
            file.seek(max(0, path.stat().st_size - 64))
            last = file.read().rstrip()[-1:]
        if (first, last) != (b"{", b"}"):
            raise CheckpointError(f"{path}: cut off or no JSON; copy it from the model that was trained")


def _config(folder: Path) -> ModelConfig:
    path = folder / "config.json"
    whole = any((folder / name).is_file() for name in (WEIGHTS, INDEX, PICKLED))
    if path.is_file():
        if (folder / "adapter_config.json").is_file():
            raise CheckpointError(
                f"{folder}: holds a whole model and an adapter; move one of the two into a folder of its own"
            )
        return read_json(path, ModelConfig)
    if not any(folder.iterdir()):
        raise CheckpointError(
            f"{folder}: an empty folder; give a folder that save_pretrained or a Trainer wrote"
        )
    if whole:
        raise CheckpointError(
            f"{path}: missing, though weights are there; copy it from the model that was trained"
        )
    inner = sorted(child.name for child in folder.iterdir() if (child / "config.json").is_file())
    hint = (
        f"give one of the folders in it ({inner[0]}), or '{folder}/*'"
        if inner
        else foreign(folder) or "give a folder with config.json"
    )
    raise CheckpointError(f"{folder}: no checkpoint folder (no config.json); {hint}")


def _tokenizer_length(folder: Path, config: ModelConfig, trusted: bool) -> float | None:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    found = read_json(path, TokenizerConfig)
    if found.auto_map and not trusted and not config.auto_map and not (folder / "tokenizer.json").is_file():
        raise CheckpointError(
            f"{path}: wants to run code of its own for its tokenizer, which is not run; "
            "--eval-trust-remote-code allows it, if you trust the checkpoint as much as a program"
        )
    return found.model_max_length


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
_CAUSAL_ENDINGS: Final = ("ForCausalLM", "LMHeadModel", "ModelWithLMHead", "BertGenerationDecoder")

_XLM: Final = frozenset({"flaubert", "xlm"})
"""Model types with one class for both kinds, whose tokens see later ones unless the config says ``causal``."""


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
    if architecture.endswith(_MASKED_ENDINGS) or sees_later_tokens(config) is not None:
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


def sees_later_tokens(config: ModelConfig) -> str | None:
    """The field by which a model saved as a causal one is a masked one: its tokens see later ones, and its head is
    the same. None for all others."""
    architecture = (config.architectures or [""])[0]
    of_both_kinds = config.model_type in MASKED_TYPES and architecture.endswith(_CAUSAL_ENDINGS)
    extra = config.model_extra or {}
    if of_both_kinds and not extra.get("is_decoder"):
        return "is_decoder is not true"
    if config.model_type in _XLM and not extra.get("causal"):
        return "causal is not true"
    return None


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
