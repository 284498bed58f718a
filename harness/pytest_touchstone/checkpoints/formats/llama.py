"""Checkpoints of Llama's reference code, with one prediction head or several.

checkpoint_best.pt      a dictionary with ``model_state_dict`` and ``config``, as training scripts save it: beside them
                        ``epoch``, ``val_metrics``, ``train_metrics``, and the optimizer's state, which is not read
FOLDER                  ``params.json`` and one ``.pt`` or ``.pth`` file, a plain state dict
step-1000               a distributed checkpoint with these names, as torchtitan writes it (``formats.distributed``)

The sizes come from ``config`` (its table ``model``), from ``params.json`` in the folder that it names as the model's
``path``, or from one beside the file; layers, heads and vocabulary are counted in the weights. The tokenizer is looked
for in the same places, or where ``--eval-base-model`` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints.config_files import (
    LlamaParams,
    TrainingState,
    check_inside,
    check_table,
    finite_number,
    read_json,
    step_in_name,
    to_plain_values,
)
from pytest_touchstone.checkpoints.formats.base import CheckpointRequest
from pytest_touchstone.checkpoints.formats.content import (
    TOKENIZER,
    Tensors,
    count_parameters,
    file_lines,
    main_dtype,
    matching_files,
    table_line,
    tensor_lines,
)
from pytest_touchstone.checkpoints.formats.dcp import distributed_files, read_distributed
from pytest_touchstone.checkpoints.formats.torch_pickle import read_pickled
from pytest_touchstone.checkpoints.formats.transformers import has_tokenizer
from pytest_touchstone.checkpoints.formats.weights import foreign_format_advice, state_dict
from pytest_touchstone.checkpoints.info import SERVES, CheckpointInfo, WeightsInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.text import count

PREFIXES: Final = re.compile(r"^(?:(?:module|_orig_mod|transformer|adapter)\.)+")
"""The prefixes that wrappers put before the names of tensors, several at once."""

FILES: Final = (".pt", ".pth")

SIDE: Final = re.compile(
    r"(optimizer|optim|scheduler|scaler|rng_state|random_states|training_args|model_optim_rng"
    r"|(\w+_)?zero_pp_rank_|mp_rank_|common\.pt$)",
    re.ASCII,
)
"""Names of files that a trainer leaves beside the weights."""

_BLOCK: Final = re.compile(r"^(layers|extra_heads)\.(\d+)\.")
_LENGTH: Final = 2048


def has_params(folder: Path) -> bool:
    """Return whether it is a folder of Llama's reference code and not one of Transformers."""
    return (folder / "params.json").is_file() and not (folder / "config.json").is_file()


class LlamaFormat:
    """A ``.pt`` or ``.pth`` file, or a folder with one and ``params.json``."""

    name = "mtp"

    def detect(self, path: Path) -> bool:
        """Return whether a file's name ends so; a folder with several models is none, but may hold some."""
        if path.is_dir():
            models = (file for file in path.iterdir() if file.suffix in FILES and not SIDE.match(file.name))
            return has_params(path) and sum(1 for _ in models) <= 1
        return path.suffix in FILES and path.is_file()

    def inspect(self, path: Path, asked: CheckpointRequest) -> CheckpointInfo:
        """Describe the checkpoint; of tensors only names and shapes are read. Raises ``CheckpointError``."""
        if not path.is_dir():
            return _read(path, asked)
        check_inside(path)
        files = sorted(file for file in path.iterdir() if file.suffix in FILES)
        if len(files) != 1:
            raise CheckpointError(
                f"{path}: params.json is there, and {len(files)} files of weights (.pt, .pth); "
                + (
                    (not files and foreign_format_advice(path))
                    or "give a folder with one, parts of a model are not put together"
                )
            )
        return replace(_read(files[0], asked), name=path.resolve().name)

    def files(self, info: CheckpointInfo) -> list[Path]:
        """Return the weights and the tokenizer."""
        weights = distributed_files(info.path) if info.path.is_dir() else [info.path]
        return [*weights, *matching_files(info.tokenizer, TOKENIZER)]

    def content(self, info: CheckpointInfo) -> Iterator[str]:
        """Yield the lines of sizes, tokenizer and tensors."""
        yield table_line("params", info.weights.params)
        yield from file_lines(matching_files(info.tokenizer, TOKENIZER))
        folder = info.path.is_dir()
        yield from tensor_lines(
            read_distributed(info.path) if folder else tensors_of(info.path, read_pickled(info.path))
        )


def _read(path: Path, asked: CheckpointRequest) -> CheckpointInfo:
    """Inspect a file."""
    content = read_pickled(path)
    return describe_llama(path, asked, tensors_of(path, content), content if "config" in content else {})


def describe_llama(
    path: Path, asked: CheckpointRequest, tensors: Tensors, saved: Mapping[str, Any]
) -> CheckpointInfo:
    """Describe a checkpoint by its tensors; ``saved`` has the training's other values.

    Raises ``CheckpointError`` where the tensors, sizes or tokenizer are not all there.
    """
    config, metrics = _table_in(saved, "config"), _table_in(saved, "val_metrics")
    names = {PREFIXES.sub("", name) for name in tensors}
    base = None if asked.base_model is None else Path(asked.base_model).expanduser()
    folders = list(_candidate_folders(path, config, base))
    params = _load_params(path, config, names, folders)
    step = next((saved[key] for key in ("global_step", "step") if isinstance(saved.get(key), int)), None)
    losses = (finite_number(metrics.get(key)) for key in ("val_loss", "loss"))
    heads = params["n_future_tokens"]
    dtype = to_plain_values(_table_in(config, "model").get("dtype"))
    tokenizer = next((folder for folder in folders if folder.is_dir() and has_tokenizer(folder)), None)
    if tokenizer is None:
        raise CheckpointError(
            f"{path}: no tokenizer beside it (tokenizer.model, tokenizer.json ...); put it there, "
            "or name its folder with --eval-base-model"
        )
    return CheckpointInfo(
        name=path.resolve().name if path.is_dir() else path.stem,
        source=asked.source,
        path=path,
        kind="causal",
        format=LlamaFormat.name,
        model_type="mtp" if heads > 1 else "llama",
        architecture=f"Llama's reference code, {count(heads, 'prediction head')}",
        seq_len=asked.limited(path, params.get("max_seq_len") or _LENGTH),
        serves=SERVES["causal"],
        training=TrainingState(
            global_step=step if step is not None else step_in_name(path.stem),
            epoch=finite_number(saved.get("epoch")),
            val_loss=next((loss for loss in losses if loss is not None), None),
            settings=to_plain_values(
                {key: saved[key] for key in ("config", "train_metrics", "val_metrics") if key in saved}
            ),
        ),
        weights=WeightsInfo(
            parameters=count_parameters(tensors),
            dtype=main_dtype(tensors),
            config_dtype=None if dtype is None else str(dtype),
            params=params,
        ),
        tokenizer=tokenizer,
    )


def _table_in(saved: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = saved.get(name)
    return table if isinstance(table, dict) else {}


def tensors_of(path: Path, content: Any) -> Tensors:
    """Return the model's tensors in the content of a ``.pt`` file.

    Raises ``CheckpointError`` where there are none.
    """
    saved = content if isinstance(content, dict) else {}
    state = next(
        (saved[name] for name in ("model_state_dict", "state_dict") if isinstance(saved.get(name), dict)),
        None,
    )
    if state is not None:
        return state_dict(path, state)
    if has_params(path.parent):
        return state_dict(path, content)
    if {"model", "model_args"} <= saved.keys():
        raise CheckpointError(
            f"{path}: a checkpoint of nanoGPT; install the package for it (tests/seams/packages/nanogpt_checkpoints "
            "in the sources; docs/checkpoints.md, 'Your own formats'), or give it as a Transformers folder"
        )
    raise CheckpointError(
        f"{path}: has no 'model_state_dict', and no params.json is beside it; "
        "give a file that holds both model_state_dict and config, or a Transformers folder"
    )


def _candidate_folders(path: Path, config: dict[str, Any], base: Path | None) -> Iterator[Path]:
    """Yield the folders that may hold sizes and tokenizer.

    In order: the given one, those of the weights, and those of the training's model.
    """
    if base is not None:
        yield base if base.is_dir() else base.parent
    yield from [path, *path.resolve().parents[:2]] if path.is_dir() else [path.parent]
    for table in (config.get("model"), config):
        named = table.get("path") if isinstance(table, dict) else None
        if isinstance(named, str) and named and len(named) < 4096 and "\0" not in named:
            for root in (Path(), path.parent):
                folder = root / Path(named).expanduser()
                yield folder if folder.is_dir() else folder.parent


def _load_params(
    path: Path, config: dict[str, Any], names: set[str], folders: Iterable[Path]
) -> dict[str, Any]:
    """Return the sizes under Llama's own names, completed by counting the weights."""
    blocks = {kind: set[int]() for kind in ("layers", "extra_heads")}
    for name in names:
        if match := _BLOCK.match(name):
            blocks[match[1]].add(int(match[2]))
    absent = [name for name in ("tok_embeddings.weight", "norm.weight", "output.weight") if name not in names]
    if absent or not blocks["layers"]:
        raise CheckpointError(
            f"{path}: no model of Llama's reference code ({(*absent, 'layers.0')[0]!r} is missing); "
            "give a Transformers model as a folder with config.json"
        )
    table, where = _find_sizes(path, config, folders)
    sizes = check_table(where, table, LlamaParams)
    heads = 1 + len(blocks["extra_heads"])
    counted = {"n_future_tokens": heads, "n_layers": len(blocks["layers"]) + heads - 1}
    for what, number_of in counted.items():
        declared = getattr(sizes, what)
        if declared not in (None, number_of):
            raise CheckpointError(
                f"{path}: {what} is {declared} in {where}, but the weights have {number_of}; "
                "put the params.json of this model beside it"
            )
    declared_sizes = {
        name: value for name in LlamaParams.model_fields if (value := getattr(sizes, name)) is not None
    }
    return {**to_plain_values(sizes.model_extra or {}), **declared_sizes, **counted}


def _find_sizes(path: Path, config: dict[str, Any], folders: Iterable[Path]) -> tuple[dict[str, Any], Path]:
    """Return the table with the sizes, and its file."""
    model = config.get("model")
    for table in (model, config):
        if isinstance(table, dict):
            for name in ("params", "model_args", "architecture"):
                if isinstance(table.get(name), dict):
                    return table[name], path
            if {"dim", "hidden_size"} & table.keys() and {"n_heads", "num_attention_heads"} & table.keys():
                return table, path
    for folder in folders:
        for name in ("params.json", "config.json"):
            if (folder / name).is_file():
                return dict(
                    read_json(folder / name, LlamaParams).model_dump(exclude_none=True)
                ), folder / name
    raise CheckpointError(
        f"{path}: its config does not say the model's sizes (dim, n_heads ...); put params.json beside it, "
        "or name its folder with --eval-base-model"
    )
