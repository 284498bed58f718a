"""Tiny multi-token-prediction checkpoints for tests: random weights as scripts save them, tokenizers made in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_touchstone.checkpoints import CheckpointInfo, WeightsInfo
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.mtp.model import _Block, _Pass, config_of
from tests.support.tiny import bytelevel_tokenizer

SEQ_LEN = 256

LETTERS = "abcdefg"
"""The letters that ``letter_tokenizer`` has tokens for; with the end of text, eight tokens in all."""

PARAMS: dict[str, Any] = {
    "dim": 32,
    "n_layers": 5,
    "n_heads": 4,
    "n_kv_heads": 2,
    "vocab_size": 400,
    "multiple_of": 16,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_seq_len": SEQ_LEN,
    "n_future_tokens": 4,
}


def random_state(seed: int = 0, **params: Any) -> dict[str, Any]:
    """Tensors of a model, large enough to tell tokens apart."""
    import torch

    config = config_of({**PARAMS, **params}, "test")
    numbers = torch.Generator().manual_seed(seed)
    state = {}
    for name, shape in config.shapes(config.vocab_size or 400).items():
        spread, middle = (0.1, 1.0) if len(shape) == 1 else (0.2, 0.0)
        state[name] = torch.randn(shape, generator=numbers) * spread + middle
    return state


def head_logits(model: Any, number: int, ids: Any) -> Any:
    """Logits [rows, length, vocabulary] of one head, 0 or an extra one, over whole texts."""
    import torch

    state = _Pass(model._rotations_of(torch.arange(ids.shape[1], device=model.device)[None]), None, None)
    hidden = model._embeddings(ids)
    for layer in model._layers[:-1]:
        hidden = model._forward_block(layer, hidden, state, 0)
    last = _Block(*(part[number - 1].squeeze(0) for part in model._heads)) if number else model._layers[-1]
    return model._output(model._rms_norm(model._forward_block(last, hidden, state, 0), model._norm))


def letter_tokenizer() -> Any:
    """A tokenizer of eight tokens, one per letter. With so few, proposals of random heads are often right."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.WordLevel({"</s>": 0} | {letter: number for number, letter in enumerate(LETTERS, 1)}, "</s>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def save_mtp(
    folder: Path,
    state: dict[str, Any],
    *,
    name: str = "checkpoint_best.pt",
    tokenizer: Any = None,
    **more: Any,
) -> Path:
    """Writes a file as training scripts do, and a tokenizer beside it; returns the file. ``config`` and other entries
    of the file can be given."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    (tokenizer or bytelevel_tokenizer()).save_pretrained(folder)
    content = {
        "model_state_dict": state,
        "optimizer_state_dict": {"state": {0: {"exp_avg": torch.ones(8)}}, "param_groups": [{"lr": 1e-3}]},
        "epoch": 2,
        "train_metrics": {"loss": 1.5},
        "val_metrics": {"val_loss": 1.25},
        "config": {"model": dict(PARAMS), "training": {"lr": 1e-3}, "dataset": "test"},
        **more,
    }
    torch.save(content, folder / name)
    return folder / name


def info_of(path: Path, **params: Any) -> CheckpointInfo:
    """The checkpoint as recognising the file would describe it, whatever is wrong with it."""
    return CheckpointInfo(
        name=path.stem,
        source=str(path),
        path=path,
        kind="causal",
        format="mtp",
        model_type="mtp",
        architecture="mtp",
        seq_len=SEQ_LEN,
        weights=WeightsInfo(params={**PARAMS, **params}),
        tokenizer=path.parent,
    )


def mtp_engine(info: CheckpointInfo, **settings: Any) -> CausalEngine:
    """The engine, on the CPU."""
    engine = open_engine(info, ModelSettings(**{"device": "cpu", "threads": 1, **settings}))
    assert isinstance(engine, CausalEngine)
    return engine


def letters_info(folder: Path, seed: int = 0, **params: Any) -> CheckpointInfo:
    """A checkpoint of random weights over the tokens of ``letter_tokenizer``."""
    made = {"vocab_size": len(LETTERS) + 1, **params}
    return info_of(save_mtp(folder, random_state(seed, **made), tokenizer=letter_tokenizer()), **made)
