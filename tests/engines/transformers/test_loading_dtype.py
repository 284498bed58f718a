"""The number type that the config in a ``.pt`` file names for its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.cli.checkpoint import format_row
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.loading import choose_dtype
from tests.support.lines import naming
from tests.support.pt_files import SIZES, llama_pt
from tests.support.tiny import bytelevel_tokenizer


def info(dtype: Any, folder: Path) -> CheckpointInfo:
    bytelevel_tokenizer().save_pretrained(folder)
    config = {"model": {**SIZES, "dtype": dtype}}
    (found,) = resolve(str(llama_pt(folder / "checkpoint_best.pt", config=config)), seq_len=None)
    return found


def chosen(one: CheckpointInfo, device: str, dtype: Any = "auto") -> str:
    import torch

    return str(choose_dtype(one, ModelSettings(dtype=dtype), torch.device(device)))


@pytest.mark.parametrize(
    ("said", "named"),
    [
        *(("float16", "float16"), ("fp16", "float16"), ("half", "float16"), ("torch.float16", "float16")),
        *(("bfloat16", "bfloat16"), ("bf16", "bfloat16"), ("torch.bfloat16", "bfloat16")),
        *(("float32", "float32"), ("fp32", "float32"), ("float", "float32"), (" BF16 ", "bfloat16")),
    ],
)
def test_on_an_accelerator_auto_is_what_the_config_says(said: str, named: str, tmp_path: Path) -> None:
    found = info(said, tmp_path)
    assert found.weights.config_dtype == said
    for device in ("cuda", "mps"):
        assert chosen(found, device) == f"torch.{named}"
    assert chosen(found, "cpu") == "torch.float32"
    assert chosen(found, "cuda", "float32") == "torch.float32"


def test_torchs_own_types_are_read_too(tmp_path: Path) -> None:
    import torch

    found = info(torch.bfloat16, tmp_path)
    assert chosen(found, "cuda") == "torch.bfloat16"
    assert f"{'config_dtype':14}".strip() in "\n".join(format_row(found.plain()))


@pytest.mark.parametrize("said", [None, "auto"])
def test_a_config_that_names_none_leaves_the_type_of_the_file(said: str | None, tmp_path: Path) -> None:
    assert chosen(info(said, tmp_path), "cuda") == "auto"


@pytest.mark.parametrize("said", ["int8", "float8_e4m3fn", "float64", "16", "", ["float16"]])
def test_a_name_that_is_no_type_is_one_clear_line_where_it_matters(said: Any, tmp_path: Path) -> None:
    found = info(said, tmp_path)
    with pytest.raises(CheckpointError, match=naming("float32, bfloat16, float16", "--eval-dtype")):
        chosen(found, "cuda")
    assert chosen(found, "cuda", "float16") == "torch.float16"
    assert chosen(found, "cpu") == "torch.float32"


def test_a_checkpoint_without_such_a_config_is_as_before() -> None:
    plain = CheckpointInfo("c", "c", Path("c"), "causal", "folder", "llama", "L", 128)
    assert chosen(plain, "cuda") == "auto"
    assert chosen(replace(plain, path=Path("c.gguf"), format="gguf"), "cuda") == "torch.float32"
