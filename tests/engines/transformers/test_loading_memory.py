"""Loading a folder's weights takes little more memory than they do, whatever form and number type the file has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.transformers import loading
from tests.support.distributed_files import save_on_two_ranks
from tests.support.places import ROOT
from tests.support.tiny import tiny_causal

MOST = 1.2
"""Of the weights as they are in memory."""

KINDS = ("float32", "half", "sharded", "bin", "distributed")


def written(source: Path, folder: Path, kind: str, shard: str) -> Path:
    """The checkpoint in another form."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(source)
    model = model if kind == "float32" else model.half()
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    if kind == "bin":
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    elif kind == "distributed":
        save_on_two_ranks(model.state_dict(), folder / "pytorch_model_fsdp_0")
    else:
        model.save_pretrained(folder, max_shard_size=shard if kind == "sharded" else "5GB")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny one, and one whose weights outweigh what else loading takes."""
    root = tmp_path_factory.mktemp("models")
    large: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4}
    return tiny_causal(root / "tiny"), tiny_causal(root / "large", **large)


@pytest.fixture(scope="module")
def counts(
    models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, float]]:
    """The bytes of the weights and of the peak of each form."""
    root = tmp_path_factory.mktemp("forms")
    tiny, large = (
        [str(written(model, root / f"{model.name}-{kind}", kind, shard)) for kind in KINDS]
        for model, shard in zip(models, ("50KB", "10MB"), strict=True)
    )
    pairs = [path for pair in zip(large, tiny, strict=True) for path in pair]
    command = [sys.executable, "-m", "tests.support.loading_peak", *pairs]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert found.returncode == 0, found.stderr
    return dict(zip(KINDS, map(json.loads, found.stdout.splitlines()), strict=True))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="there is no /proc/self/clear_refs")
@pytest.mark.parametrize("kind", KINDS)
def test_loading_peaks_at_little_more_than_the_weights(
    kind: str, counts: dict[str, dict[str, float]]
) -> None:
    assert counts[kind]["weights"] > 50e6
    assert counts[kind]["peak"] <= MOST * counts[kind]["weights"]


def test_weights_that_are_converted_from_mapped_pages_are_the_files(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from tests.support.loading_peak import loaded

    for kind in ("half", "sharded", "bin"):
        folder = written(models[1], tmp_path / kind, kind, "10MB")
        ours = loaded(str(folder)).model.state_dict()
        plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
        assert ours.keys() == plain.keys()
        assert all(torch.equal(one, plain[name]) for name, one in ours.items())


def test_a_config_of_a_far_larger_model_than_the_weights_is_refused_before_memory_is_taken(
    models: tuple[Path, Path],
) -> None:
    from transformers import AutoConfig

    (info,) = resolve(str(models[0]), seq_len=None)
    config = AutoConfig.from_pretrained(models[0])
    loading._check_room(info, config)
    config.intermediate_size = 10**9
    with pytest.raises(
        CheckpointError,
        match=r"config.json: .* [\d,]+ numbers, .* [\d,]+;",
    ):
        loading._check_room(info, config)
