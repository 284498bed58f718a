"""Tiny checkpoint folders for tests: real architectures, random weights, tokenizers made in memory.

``tiny_causal`` and ``tiny_masked`` write what ``save_pretrained`` writes, in well under a second once torch
is imported, and the same bytes for the same seed. torch and transformers are imported inside the functions.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CORPUS = (
    "The quick brown fox jumps over the lazy dog. A question: what is the answer? Answer: the answer is 42.",
    "Language models are trained on text, and a checkpoint is what training leaves behind.",
    "She said that the river was wide, and the boat was small; they went back before the evening.",
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))  # three\n",
    "서울은 대한민국의 수도이며 한강이 도시를 가로질러 흐른다. 서울의 인구는 약 천만 명이다.",
    "학교에서 학생들이 책을 읽고 선생님은 역사와 과학을 가르친다. 학교는 언덕 위에 있다.",
    "고양이와 개는 사람과 함께 사는 동물이다. 고양이는 밤에 활동한다.",
)

_SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}

_MADE: dict[str, dict[str, bytes]] = {}
"""The files of each checkpoint that was made in this process, by what it was made of: many tests want the same."""

_OWN_SIZES = ("funnel", "xlnet")
"""Model types that take none of the usual names of sizes."""


def bytelevel_tokenizer(vocab_size: int = 400) -> Any:
    """A byte-level BPE tokenizer as GPT-2 and most causal models have it; ``<|endoftext|>`` is its BOS and
    EOS."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=end)


def metaspace_tokenizer(vocab_size: int = 400) -> Any:
    """A sentencepiece-like unigram tokenizer with byte fallback that puts ``<s>`` in front, as Llama 2
    does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
    count = vocab_size - len(special)
    pieces = _pieces([f"▁{word}" for word in " ".join(CORPUS).split()], count, inner=str)
    vocab = [(name, 0.0) for name in special]
    vocab += [(piece, -10.0 + min(len(piece), 8)) for piece in pieces]
    vocab += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
    )


def wordpiece_tokenizer(vocab_size: int = 500) -> Any:
    """A WordPiece tokenizer as BERT has it: ``##`` marks a continuation, ``[CLS]`` and ``[SEP]`` stand around
    the text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = re.findall(r"\w+|[^\w\s]", " ".join(CORPUS).lower())
    pieces = _pieces(words, vocab_size - len(special), inner="##{}".format)
    vocab = {piece: number for number, piece in enumerate([*special, *pieces])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def sentencepiece_model(kind: str, rule: str, **how: Any) -> bytes:
    """A model of sentencepiece's own that has learnt some 400 pieces."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*CORPUS, "ABC 12 fine the the"] * 3),
        model_writer=model,
        vocab_size=400,
        model_type=kind,
        normalization_rule_name=rule,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=3,
        **how,
    )
    return model.getvalue()


def tiny_causal(
    folder: Path, *, seed: int = 0, model_type: str = "llama", seq_len: int = 128, **config: Any
) -> Path:
    """Writes a causal language model of any ``model_type`` with a byte-level tokenizer; returns the
    folder."""
    from transformers import AutoModelForCausalLM

    settings = {**_SIZE, "num_key_value_heads": 2, "max_position_embeddings": seq_len, **config}
    if model_type == "gpt2":
        settings = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": seq_len, **config}
    if model_type in _OWN_SIZES:
        settings = config
    return _save(folder, AutoModelForCausalLM, model_type, bytelevel_tokenizer, seed=seed, settings=settings)


def tiny_masked(
    folder: Path, *, seed: int = 0, model_type: str = "bert", seq_len: int = 128, **config: Any
) -> Path:
    """Writes a masked language model of any ``model_type`` with a WordPiece tokenizer; returns the folder."""
    from transformers import AutoModelForMaskedLM

    settings = {**_SIZE, "max_position_embeddings": seq_len, **config}
    if model_type == "distilbert":
        settings = {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
        settings |= {"max_position_embeddings": seq_len, **config}
    if model_type in _OWN_SIZES:
        settings = config
    return _save(folder, AutoModelForMaskedLM, model_type, wordpiece_tokenizer, seed=seed, settings=settings)


def tiny_adapter(
    folder: Path,
    base: Path | str,
    *,
    seed: int = 1,
    rank: int = 4,
    targets: Sequence[str] = ("q_proj", "v_proj"),
    **config: Any,
) -> Path:
    """Writes a LoRA adapter with random weights for the base, as PEFT saves one; returns the folder."""
    import torch
    from peft import LoraConfig, get_peft_model

    base_model = _base_model(base)
    settings = LoraConfig(r=rank, target_modules=list(targets), **config)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's, about what it saves
        torch.manual_seed(seed)
        model = get_peft_model(base_model, settings)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.data.normal_(0.0, 0.3)
        model.peft_config["default"].base_model_name_or_path = str(base)
        model.save_pretrained(str(folder))
    return folder


def _base_model(base: Path | str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    masked = (AutoConfig.from_pretrained(base).architectures or [""])[0].endswith("ForMaskedLM")
    return (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_pretrained(base)


def trainer_state(folder: Path, *, global_step: int, epoch: float) -> Path:
    """Turn a checkpoint folder into one as transformers' Trainer leaves it."""
    state = {"global_step": global_step, "epoch": epoch, "log_history": []}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder


def _pieces(words: Sequence[str], count: int, *, inner: Callable[[str], str]) -> list[str]:
    """At most ``count`` pieces: every first letter, every later one as ``inner`` writes it, then the
    commonest beginnings and ends of words.

    The trainers of these two kinds go through hash tables in another order in every process, so that what
    they learn differs from run to run.
    """
    letters = sorted({word[0] for word in words} | {inner(letter) for word in words for letter in word[1:]})
    found = Counter(
        piece
        for word in words
        for cut in range(2, len(word) + 1)
        for piece in (word[:cut], *([inner(word[-cut:])] if cut < len(word) else []))
    )
    common = sorted(set(found) - set(letters), key=lambda piece: (-found[piece], -len(piece), piece))
    return [*letters, *common][:count]


def _save(
    folder: Path,
    auto: Any,
    model_type: str,
    tokenizer: Callable[[], Any],
    *,
    seed: int,
    settings: dict[str, Any],
) -> Path:
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    made_of = repr((auto.__name__, model_type, tokenizer.__name__, seed, sorted(settings.items())))
    folder.mkdir(parents=True, exist_ok=True)
    if made_of not in _MADE:
        with tempfile.TemporaryDirectory() as place:
            _make(Path(place), auto, model_type, tokenizer(), seed=seed, settings=settings)
            _MADE[made_of] = {path.name: path.read_bytes() for path in Path(place).iterdir()}
    for name, content in _MADE[made_of].items():
        (folder / name).write_bytes(content)
    return folder


def _make(
    folder: Path, auto: Any, model_type: str, tokenizer: Any, *, seed: int, settings: dict[str, Any]
) -> None:
    import torch
    from transformers import AutoConfig

    ids = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    config = AutoConfig.for_model(model_type, **{"vocab_size": len(tokenizer), **ids, **settings})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = auto.from_config(config)
        # Random weights of the usual size give nearly flat answers; larger ones tell a right answer from a
        # wrong one.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1 or name.endswith("bias"):
                    parameter.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def pickle_weights(folder: Path) -> None:
    """Writes the weights of a folder as torch's pickle."""
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def split_weights(folder: Path) -> None:
    """Writes the weights of a folder as two shards and their index."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for shard, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / shard, {"format": "pt"})
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8"
    )
