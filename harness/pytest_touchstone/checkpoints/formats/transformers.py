"""Checkpoint folders of the Transformers library: masked and causal language models.

The sizes in ``config.json`` are checked against the weights. A model is built layer by layer and its tensors are
allocated by the config: a number that is far too large would cost hours or all memory before anything compared it with
the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from pytest_touchstone.checkpoints.config_files import (
    GenerationConfig,
    ModelConfig,
    TokenizerConfig,
    check_inside,
    check_table,
    progress_of,
    read_json,
)
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.checkpoints.formats.content import (
    TOKENIZER,
    Shapes,
    Tensor,
    Tensors,
    count_parameters,
    file_lines,
    main_dtype,
    matching_files,
    shapes_of,
    tensor_lines,
)
from pytest_touchstone.checkpoints.formats.dcp import is_distributed
from pytest_touchstone.checkpoints.formats.weights import (
    INDEX,
    PICKLED,
    WEIGHTS,
    check_gathered,
    check_types,
    foreign_format_advice,
    has_weights,
    weight_files,
    weights_of,
)
from pytest_touchstone.checkpoints.info import LACKS, SERVES, CheckpointInfo, ModelKind, WeightsInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.files import open_regular

_LENGTH_FIELDS: Final = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
_POSITION_TABLE: Final = re.compile(r"(^|\.)(position_embeddings|wpe|embed_positions)\.weight$")
_RELATIVE_TABLE: Final = re.compile(r"(^|\.)encoder\.rel_embeddings\.weight$")
_WORD_TABLE: Final = re.compile(r"(^|\.)(word_embeddings|embed_tokens|wte|embed_in|tok_embeddings)\.weight$")

_PADDING_TYPES: Final = (
    "camembert data2vec-text esm ibert longformer luke mpnet prophetnet roberta roberta-prelayernorm "
    "xlm-roberta xlm-roberta-xl xmod"
)
_PADDING_ROWS: Final = frozenset(_PADDING_TYPES.split())
"""Model types that number positions from the padding index on: ``pad_token_id + 1`` rows are never used. ESM does so
where it has a table; ESM-2 has none."""

HIDDEN_ROWS: Final = dict.fromkeys(
    ["bart", "biogpt", "mbart", "mra", "mvp", "nystromformer", "opt", "plbart", "trocr", "yoso"], 2
)
"""Model types whose table has more rows than the config's length says, with the number of extra rows: all that
transformers has. The first rows were for padding once, and are not used."""

_HIDDEN_WORDS: Final = {"mllama": 8, "moshi": 1}
"""Model types whose word table has more rows than the config says, with the number of extra rows."""

_DEFAULT: Final = {"masked": 512, "causal": 2048}
_SANE: Final = 10_000_000

_LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_SIDES: Final = (
    *("hidden_size", "n_embd", "dim", "d_model", "embedding_size", "intermediate_size", "n_inner"),
    *("hidden_dim", "ffn_dim", "vocab_size"),
)
_COUNTS: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads")

_DEEPEST: Final = 4
"""Tables within tables that are looked at."""


class ContextLength(NamedTuple):
    """``seq_len`` in tokens; ``overrides`` are config values that the tables in the file contradict."""

    seq_len: int
    overrides: dict[str, int]


def context_length(
    folder: Path, kind: str, config: ModelConfig, shapes: Shapes, tokenizer_length: float | None
) -> ContextLength:
    """Return the context length: by table, else config, else tokenizer, else the kind's default.

    A table longer than the config says is used whole. Raises ``CheckpointError`` when a table is shorter than
    the config says.
    """
    lengths = ((name, getattr(config, name)) for name in _LENGTH_FIELDS)
    declared = ((name, length) for name, length in lengths if length is not None and 0 < length < _SANE)
    field, configured = next(declared, (None, 0))
    rows = _rows(shapes, _POSITION_TABLE)
    overrides: dict[str, int] = {}
    if rows is not None:
        name, count = rows
        usable = count - HIDDEN_ROWS.get(config.model_type, 0)
        if field is not None and usable < configured:
            raise CheckpointError(
                f"{folder}: shape mismatch, {name} has {count} rows but config.json says "
                f"{field}={configured}; "
                "save the checkpoint again with its own config"
            )
        if field is not None and usable > configured:
            overrides[field] = usable
        configured = usable
    overrides |= _relative_override(folder, config, shapes, overrides)
    if rows is None and overrides.get("max_relative_positions", 0) > configured > 0 and field is not None:
        # No table of positions (position_biased_input false): how far it sees is how long it is.
        overrides[field] = configured = overrides["max_relative_positions"]
    if configured:
        unused = 0
        if config.model_type in _PADDING_ROWS and (config.model_type != "esm" or rows is not None):
            ahead = config.model_type == "prophetnet"  # it looks up the positions of coming tokens, too
            unused = (1 if config.pad_token_id is None else config.pad_token_id) + 1 + ahead
        return ContextLength(configured - unused, overrides)
    if tokenizer_length is not None and 0 < tokenizer_length < _SANE:
        return ContextLength(int(tokenizer_length), overrides)
    return ContextLength(_DEFAULT[kind], overrides)


def check_vocabulary(folder: Path, config: ModelConfig, shapes: Shapes) -> None:
    """Raise ``CheckpointError`` where the word table does not have ``vocab_size`` rows."""
    rows = _rows(shapes, _WORD_TABLE)
    if rows is None or config.vocab_size is None:
        return
    if rows[1] - _HIDDEN_WORDS.get(config.model_type, 0) != config.vocab_size:
        raise CheckpointError(
            f"{folder}: shape mismatch, {rows[0]} has {rows[1]} rows but config.json says "
            f"vocab_size={config.vocab_size}; "
            "save the checkpoint again with its own config"
        )


def _rows(shapes: Shapes, pattern: re.Pattern[str]) -> tuple[str, int] | None:
    """Return name and rows of the only table of a kind, else None.

    Several tables with equal numbers of rows count as one.
    """
    rows = {name: shape[0] for name, shape in shapes.items() if pattern.search(name) and len(shape) == 2}
    return min(rows.items()) if len(set(rows.values())) == 1 else None


def _relative_override(
    folder: Path, config: ModelConfig, shapes: Shapes, overrides: dict[str, int]
) -> dict[str, int]:
    """Return the config value that DeBERTa's relative table contradicts, if any.

    The table has two rows per bucket, or two per position where there are no buckets.
    """
    rows = _rows(shapes, _RELATIVE_TABLE)
    if rows is None:
        return {}
    if rows[1] % 2:
        raise CheckpointError(
            f"{folder}: shape mismatch, {rows[0]} has {rows[1]} rows, which are not two per distance; "
            "save the checkpoint again"
        )
    half = rows[1] // 2
    if (config.position_buckets or 0) > 0:
        return {} if half == config.position_buckets else {"position_buckets": half}
    given = config.max_relative_positions or 0
    if given < 1:
        # What the model falls back on, with the table of positions that it will have.
        given = overrides.get("max_position_embeddings", config.max_position_embeddings or 0)
    return {} if half == given else {"max_relative_positions": half}


def check_sizes(path: Path, config: ModelConfig, shapes: Shapes) -> None:
    """Raise ``CheckpointError`` for an impossible size.

    That is one below 1, one far above the sides of the tensors, or a negative number where none is allowed.
    """
    longest = max((side for shape in shapes.values() for side in shape), default=0)
    for name in (*_LAYERS, *_SIDES, *_COUNTS):
        value: Any = getattr(config, name, None)
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if value < 1:
            raise _size_error(path, name, value)
        # No model has a thousand layers; some share the tensors of one layer between all.
        if name in _LAYERS and shapes and value > max(1000, len(shapes)):
            raise CheckpointError(
                f"{path}: {name}={value}, but the weights have {len(shapes)} tensors; "
                "save the checkpoint again with its own config"
            )
        # Packed numbers have sides that are shorter than the config says.
        if name in _SIDES and shapes and value > 4 * longest:
            raise CheckpointError(
                f"{path}: {name}={value}, but the longest side of a tensor in the weights is {longest}; "
                "save the checkpoint again with its own config"
            )
    _check_numbers(path, config.model_dump())


_NOT_NEGATIVE: Final = re.compile(
    r"^(num|n|d)_|(^|_)(size|sizes|dim|dims|heads|layers|rank|experts|per_tok|groups|kernel|factor)$|eps(ilon)?$"
)
_POSITIVE: Final = re.compile(r"(^|_)(theta|base|base_freq|head_dim)$|^factor$")
_INNER: Final = ("text_config", "rope_parameters", "rope_scaling", "attn_config", "ffn_config")
"""Tables in a config that are about the language model; that of a quantization has numbers of other kinds."""


def _check_numbers(path: Path, config: Mapping[str, Any], within: str = "") -> None:
    """Raise ``CheckpointError`` for a number that makes transformers fail or compute nonsense."""
    for name, value in config.items():
        if isinstance(value, dict) and (within or name in _INNER) and within.count(".") < _DEEPEST:
            _check_numbers(path, value, f"{within}{name}.")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        positive, not_negative = _POSITIVE.search(name), _NOT_NEGATIVE.search(name)
        if (positive and not value > 0) or (not_negative and not value >= 0) or value == math.inf:
            raise _size_error(path, f"{within}{name}", value)
    window = config.get("sliding_window")
    if isinstance(window, int) and window < 1 and config.get("use_sliding_window") is not False:
        raise _size_error(path, f"{within}sliding_window", window)
    experts = [config.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts")]
    if (
        any(isinstance(number, int) and number > 0 for number in experts)
        and config.get("num_experts_per_tok") == 0
    ):
        raise _size_error(path, f"{within}num_experts_per_tok", 0)


def _size_error(path: Path, name: str, value: float) -> CheckpointError:
    return CheckpointError(
        f"{path}: {name}={value} is not possible; save the checkpoint again with its own config"
    )


# The format


TOKENIZER_FILES: Final = (
    *("tokenizer.json", "tokenizer.model", "vocab.txt", "vocab.json"),
    *("spiece.model", "spm.model", "sentencepiece.bpe.model", "tekken.json"),
)

PATTERNS: Final = ("config.json", "generation_config.json", *TOKENIZER)
"""Files that count for the fingerprint beside the weights."""


class TransformersFormat:
    """A folder that ``save_pretrained`` or a Trainer wrote."""

    name = "folder"

    def detect(self, path: Path) -> bool:
        """Return whether a config is there, or weights, which Llama's reference code may have too.

        A config alone may be that of the distributed checkpoints in the folder.
        """
        if (path / "config.json").is_file():
            return has_weights(path) or not any(
                is_distributed(child) for child in path.iterdir() if child.is_dir()
            )
        patterns = ("*.safetensors", "pytorch_model*.bin")
        return not (path / "params.json").is_file() and any(
            next(path.glob(pattern), None) for pattern in patterns
        )

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Describe the checkpoint: config, weights and tokenizer, all there and in agreement.

        Raises ``CheckpointError`` naming the missing or broken file.
        """
        check_inside(path)
        return describe_transformers(path, asked, path, _config(path), lambda: weights_of(path))

    def files(self, info: CheckpointInfo) -> list[Path]:
        """Return weights with their index, config, tokenizer, and code where it is run."""
        index = [path for path in info.path.glob("*.index.json") if path.is_file()]
        return [*weight_files(info.path), *index, *matching_files(info.path, _patterns(info))]

    def content(
        self,
        info: CheckpointInfo,
        tensors: Tensors | None = None,
        hashed: Callable[[Tensor], str] | None = None,
    ) -> Iterator[str]:
        """Yield the lines of all files but the weights, then those of the tensors.

        A pickle without a header counts as a file.

        ``tensors`` are those of a model in memory, in place of the files', and ``hashed`` is for them
        (``tensor_lines``).
        """
        yield from file_lines(matching_files(info.path, _patterns(info)))
        tensors = weights_of(info.path) if tensors is None else tensors
        yield from (
            tensor_lines(tensors, hashed) if tensors else file_lines(weight_files(info.path), "weights")
        )


def describe_transformers(
    path: Path, asked: CheckpointRequest, home: Path, config: ModelConfig, read: Callable[[], Tensors]
) -> CheckpointInfo:
    """Describe a checkpoint whose config and tokenizer are in ``home``.

    ``read`` returns its tensors.

    Raises ``CheckpointError`` naming the file that is missing or broken, or what does not agree.
    """
    if not asked.trust_remote_code:
        check_no_code(home / "config.json", config)
    kind, architecture = kind_of(home / "config.json", config)
    by = sees_later_tokens(config)
    if (length := TEXT_LENGTHS.get(config.model_type)) is not None:
        inner = {"max_position_embeddings": length, **(config.model_extra or {}).get("text_config", {})}
        config = check_table(
            home / "config.json", {**inner, **config.model_dump(exclude_none=True)}, ModelConfig
        )
    tensors = read()
    shapes = shapes_of(tensors)
    check_tokenizer(home)
    check_gathered(path, tensors)
    if getattr(config, "quantization_config", None) is None:
        check_types(path, tensors)
    check_vocabulary(path, config, shapes)
    check_sizes(home / "config.json", config, shapes)
    tokens = _tokenizer_length(home, config, asked.trust_remote_code)
    context = context_length(path, kind, config, shapes, tokens)
    if (home / "generation_config.json").is_file():
        read_json(home / "generation_config.json", GenerationConfig)
    return CheckpointInfo(
        name=path.resolve().name,
        source=asked.source,
        path=path,
        kind=kind,
        format=TransformersFormat.name,
        model_type=config.model_type,
        architecture=architecture,
        seq_len=asked.limited(path, context.seq_len),
        serves=SERVES[kind],
        weights=WeightsInfo(count_parameters(tensors), main_dtype(tensors), overrides=context.overrides),
        trust_remote_code=asked.trust_remote_code,
        takes_adapters=True,
        extra={} if by is None else {LACKS: f"{by} in its config.json, so its tokens see later ones"},
        training=progress_of(path),
    )


def _patterns(info: CheckpointInfo) -> tuple[str, ...]:
    return (*PATTERNS, "*.py") if info.trust_remote_code else PATTERNS


def has_tokenizer(folder: Path) -> bool:
    """Return whether a tokenizer's files are in the folder."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def check_tokenizer(folder: Path) -> None:
    """Raise ``CheckpointError`` where the tokenizer is missing, or ``tokenizer.json`` is cut off.

    Its content is checked when it is loaded, before the weights are: reading a large vocabulary takes long.
    """
    if not has_tokenizer(folder):
        raise CheckpointError(
            f"{folder}: no tokenizer files (tokenizer.json, vocab.txt, tokenizer.model ...); "
            "save the tokenizer into the folder with tokenizer.save_pretrained"
        )
    path = folder / "tokenizer.json"
    if path.is_file():
        with open_regular(path) as file:
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
        else foreign_format_advice(folder) or "give a folder with config.json"
    )
    raise CheckpointError(f"{folder}: no checkpoint folder (no config.json); {hint}")


def _tokenizer_length(folder: Path, config: ModelConfig, trusted: bool) -> float | None:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    tokenizer_config = read_json(path, TokenizerConfig)
    if (
        tokenizer_config.auto_map
        and not trusted
        and not config.auto_map
        and not (folder / "tokenizer.json").is_file()
    ):
        raise CheckpointError(
            f"{path}: wants to run code of its own for its tokenizer, which is not run; "
            "--eval-trust-remote-code allows it, if you trust the checkpoint as much as a program"
        )
    return tokenizer_config.model_max_length


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

TEXT_LENGTHS: Final = {
    **{"dots3_note": 524288, "emu3": 9216, "gemma3": 131072, "gemma3n": 32768, "gemma4": 131072},
    **{"gemma4_unified": 262144, "got_ocr2": 32768, "llama4": 131072, "mllama": 131072},
    **{"qwen3_5": 32768, "qwen3_5_moe": 32768},
}
"""Multimodal types of which Transformers' ``AutoModelForCausalLM`` takes the language model, with the length in tokens
that it has where ``text_config`` says none."""

_MASKED_ENDINGS: Final = ("ForMaskedLM", "BertForPreTraining")
_CAUSAL_ENDINGS: Final = ("ForCausalLM", "LMHeadModel", "ModelWithLMHead", "BertGenerationDecoder")

_XLM: Final = frozenset({"flaubert", "xlm"})
"""Model types with one class for both kinds, whose tokens see later ones unless the config says ``causal``."""


def kind_of(path: Path, config: ModelConfig) -> tuple[ModelKind, str]:
    """Return kind and name of the architecture, by ``architectures`` or else model type.

    Raises ``CheckpointError`` for encoder-decoders, models without a language-model head, and unknown types.
    """
    architecture = (config.architectures or [""])[0]
    if config.model_type in TEXT_LENGTHS:
        return "causal", architecture or f"{config.model_type} (causal)"
    conditional = architecture.endswith("ForConditionalGeneration")
    if conditional and {"text_config", "vision_config"} & (config.model_extra or {}).keys():
        raise CheckpointError(
            f"{path}: {architecture} is a multimodal model that Transformers does not load as a language model; score "
            "its texts at a server that is started for it: --checkpoint vllm:PATH"
        )
    if config.is_encoder_decoder or conditional:
        raise CheckpointError(
            f"{path}: {architecture or config.model_type} is an encoder-decoder model; only masked and causal language "
            "models can be scored"
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
    """Return the config field that makes a causal architecture masked, else None.

    Such a model is saved as a causal one, but its tokens see later ones, and its head is that of a masked model.
    """
    architecture = (config.architectures or [""])[0]
    of_both_kinds = config.model_type in MASKED_TYPES and architecture.endswith(_CAUSAL_ENDINGS)
    extra = config.model_extra or {}
    if of_both_kinds and not extra.get("is_decoder"):
        return "is_decoder is not true"
    if config.model_type in _XLM and not extra.get("causal"):
        return "causal is not true"
    return None


def check_no_code(path: Path, config: ModelConfig) -> None:
    """Raise ``CheckpointError`` where the config wants code that is not Transformers' own.

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
