"""Distributed checkpoints in the folders of trainings."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import fingerprint, format_of, resolve
from pytest_touchstone.checkpoints.resolve import find_checkpoints, parse_steps
from pytest_touchstone.core.errors import CheckpointError
from tests.support.distributed_files import save_distributed
from tests.support.resolved import only
from tests.support.tiny import trainer_state


def tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """A run with config and tokenizer, and checkpoints of FSDP and of torchtitan."""
    folder = tmp_path / "a"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    for step in (1000, 200):
        checkpoint = folder / f"checkpoint-{step}"
        save_distributed({"model": tensors(whole)}, checkpoint / "pytorch_model_fsdp_0")
        save_distributed({"optimizer": tensors(whole)}, checkpoint / "optimizer_0")
        trainer_state(checkpoint, global_step=step, epoch=1.0)
        (checkpoint / "scheduler.pt").write_bytes(b"x")
        (checkpoint / "rng_state_0.pth").write_bytes(b"x")
    save_distributed(tensors(whole), folder / "step-50")
    return folder


def test_a_run_is_the_series_of_its_checkpoints_by_step(run: Path) -> None:
    found = find_checkpoints([str(run)])
    assert [(info.name, info.step) for info in found.infos] == [
        ("checkpoint-200", 200),
        ("checkpoint-1000", 1000),
        ("step-50", 50),
    ]
    assert not found.failed
    assert [info.name for info in find_checkpoints([f"{run}/step-*"]).infos] == ["step-50"]
    chosen = find_checkpoints([str(run)], steps=parse_steps("100:500"))
    assert [info.name for info in chosen.infos] == ["checkpoint-200"]
    everything = find_checkpoints([f"{run}/**"]).infos
    assert {info.path.name for info in everything} == {"checkpoint-200", "checkpoint-1000", "step-50"}


def test_a_folder_of_another_name_is_one_checkpoint(run: Path) -> None:
    (run / "checkpoint-200").rename(run / "last")
    assert [info.name for info in resolve(str(run), seq_len=None)].count("last") == 1
    assert len(resolve(str(run), seq_len=None)) == 3


def test_the_folder_of_the_weights_itself_is_the_checkpoint_around_it(run: Path) -> None:
    info = only(run / "checkpoint-200" / "pytorch_model_fsdp_0")
    assert (info.name, info.training.global_step, info.training.epoch) == ("checkpoint-200", 200, 1.0)


def test_whole_weights_beside_the_shards_are_preferred(run: Path, whole: Path) -> None:
    shutil.copytree(whole, run / "checkpoint-200", dirs_exist_ok=True)
    assert only(run / "checkpoint-200").format == "folder"


def test_what_a_trainer_leaves_beside_does_not_count(run: Path, whole: Path) -> None:
    folder = run / "checkpoint-200"
    info = only(folder)
    before = fingerprint(info)
    assert info.weights.parameters == only(whole).weights.parameters
    assert not [path for path in format_of(info).files(info) if "optim" in str(path.parent.name)]
    shutil.rmtree(folder / "optimizer_0")
    (folder / "scheduler.pt").unlink()
    assert fingerprint(only(folder)) == before == fingerprint(only(whole))


def test_without_a_config_the_line_says_where_one_may_come_from(run: Path, whole: Path) -> None:
    (run / "config.json").unlink()
    with pytest.raises(CheckpointError, match="--eval-base-model"):
        only(run / "step-50")
    assert only(run / "step-50", base_model=str(whole)).tokenizer == whole


def test_a_config_of_a_quantized_model_is_refused(run: Path) -> None:
    import json

    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(CheckpointError, match="names a quantization"):
        only(run / "step-50")


def test_a_config_of_another_model_is_refused(run: Path) -> None:
    import json

    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    (run / "config.json").write_text(json.dumps({**config, "vocab_size": 10}), encoding="utf-8")
    with pytest.raises(CheckpointError, match="vocab_size=10"):
        only(run / "step-50")


def test_a_broken_one_of_several_is_listed_apart(run: Path) -> None:
    (run / "step-50" / "__0_0.distcp").unlink()
    found = find_checkpoints([str(run)])
    assert [one.name for one in found.failed] == ["step-50"]
    assert "__0_0.distcp: missing" in found.failed[0].message
    assert len(found.infos) == 2
