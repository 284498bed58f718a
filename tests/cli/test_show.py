"""What ``touchstone show`` tells of checkpoints, and that pickles are read as torch reads them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoints import CheckpointInfo, resolve
from harness.checkpoints.formats.tensors import Tensor
from harness.checkpoints.formats.torch_pickle import read_pickled
from harness.cli import main
from tests.support.pt_files import SIZES, llama_pt, state_dict
from tests.support.tiny import tiny_adapter, tiny_causal, trainer_state

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal(tmp_path_factory.mktemp("whole") / "checkpoint-7")


@pytest.fixture
def place(whole: Path, tmp_path: Path) -> Path:
    """A folder with a tokenizer in it."""
    shutil.copy(whole / "tokenizer.json", tmp_path)
    return tmp_path


def only(source: Path, **options: Any) -> CheckpointInfo:
    (info,) = resolve(str(source), seq_len=None, **options)
    return info


def shown(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> dict[str, Any]:
    assert main(["show", str(path), "--json", *options]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert isinstance(row, dict)
    return row


def test_a_pt_file_tells_what_its_training_wrote_into_it(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = llama_pt(place / "checkpoint_best.pt")
    row = shown(capsys, path)
    assert (row["name"], row["kind"], row["format"], row["model_type"]) == (
        "checkpoint_best",
        "causal",
        "mtp",
        "mtp",
    )
    assert row["parameters"] == sum(tensor.numel() for tensor in state_dict().values())
    assert (row["dtype"], row["epoch"], row["val_loss"], row["seq_len"]) == ("float32", 3.0, 1.5, 64)
    assert row["params"]["n_future_tokens"] == 4
    assert row["training"]["config"]["training"] == {"lr": 1e-4, "batch_size": 8}
    assert row["training"]["train_metrics"] == {"train_loss": 1.75}
    assert {"humaneval", "mbpp", "gsm8k", "lambada"} <= set(row["benchmarks"])
    assert "real_coref" not in row["benchmarks"]
    assert main(["show", str(path)]) == 0
    text = capsys.readouterr().out
    for line in ("val_loss           1.5", " config.training.lr = 0.0001", "n_future_tokens 4"):
        assert line in text


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module.", "transformer.", "adapter.transformer."])
def test_wrappers_prefixes_do_not_matter(place: Path, prefix: str) -> None:
    assert only(llama_pt(place / "x.pt", prefix=prefix)).params["n_future_tokens"] == 4


def test_sizes_and_tokenizer_are_found_where_the_training_had_its_model(place: Path, tmp_path: Path) -> None:
    model = tmp_path / "models" / "7B"
    model.mkdir(parents=True)
    hub_names = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 5,
        "max_position_embeddings": 32,
    }
    (model / "config.json").write_text(json.dumps(hub_names), encoding="utf-8")
    (place / "tokenizer.json").rename(model / "tokenizer.json")
    (tmp_path / "storage").mkdir()
    path = llama_pt(tmp_path / "storage" / "checkpoint_epoch_2.pt", config={"model": {"path": str(model)}})
    info = only(path)
    assert (info.tokenizer, info.seq_len) == (model, 32)
    assert {key: info.params[key] for key in ("dim", "n_heads", "n_layers")} == {
        "dim": 16,
        "n_heads": 2,
        "n_layers": 5,
    }
    moved = llama_pt(tmp_path / "storage" / "moved.pt", config={"model": {"path": "gone"}})
    assert only(moved, base_model=str(model)).tokenizer == model


def test_a_folder_with_params_json_is_a_plain_llama(place: Path) -> None:
    import torch

    torch.save(state_dict(heads=1, layers=5), place / "consolidated.00.pth")
    (place / "params.json").write_text(json.dumps(SIZES), encoding="utf-8")
    info = only(place)
    assert (info.format, info.path.name, info.params["n_future_tokens"]) == ("mtp", "consolidated.00.pth", 1)
    assert info.name == place.name
    assert "1 prediction head" in info.architecture


def test_epochs_of_a_glob_are_in_order(place: Path) -> None:
    for epoch in (10, 2, 1):
        llama_pt(place / f"checkpoint_epoch_{epoch}.pt", epoch=epoch)
    infos = resolve(str(place / "checkpoint_epoch_*.pt"), seq_len=None)
    assert [info.epoch for info in infos] == [1, 2, 10]


def test_the_optimizers_state_is_not_read(place: Path) -> None:
    import torch

    large = {
        "state": {0: {"exp_avg": torch.zeros(8_000_000), "step": torch.tensor(3.0)}},
        "param_groups": [{"lr": 1}],
    }
    path = llama_pt(place / "checkpoint_best.pt", optimizer_state_dict=large)
    tracemalloc.start()
    info = only(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert info.parameters == sum(tensor.numel() for tensor in state_dict().values())


def test_a_pt_file_is_recognised_without_torch(place: Path) -> None:
    path = llama_pt(place / "checkpoint_best.pt")
    code = (
        "import sys; from harness.cli import main; main(['show', sys.argv[1]]);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False, cwd=ROOT).returncode == 0


def test_a_trainer_folder_tells_its_last_validation_loss(whole: Path, tmp_path: Path) -> None:
    folder = trainer_state(Path(shutil.copytree(whole, tmp_path / "c")), global_step=20, epoch=2.0)
    path = folder / "trainer_state.json"
    log = [{"step": 10, "eval_loss": 3.0}, {"step": 20, "loss": 2.0}, {"step": 20, "eval_loss": 2.5}]
    state = {**json.loads(path.read_text(encoding="utf-8")), "log_history": log, "max_steps": 100}
    path.write_text(json.dumps(state), encoding="utf-8")
    assert (only(folder).val_loss, only(folder).training["max_steps"]) == (2.5, 100)


def test_an_adapter_is_shown_with_its_base(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = tiny_adapter(tmp_path / "lora", whole)
    row = shown(capsys, adapter)
    assert (row["format"], row["base"]["name"]) == ("adapter", "checkpoint-7")
    assert shown(capsys, adapter, "--base-model", str(whole))["fingerprint"] == row["fingerprint"]
    assert main(["show", str(adapter)]) == 0
    assert f"base               {whole} (LlamaForCausalLM)" in capsys.readouterr().out


def test_tensors_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    """Types, shapes, views of one storage, and the very bytes."""
    import torch

    storage = torch.arange(24, dtype=torch.float32)
    held = {
        "plain": torch.randn(3, 4),
        "view": storage[4:10].view(2, 3),
        "whole": storage,
        "transposed": torch.randn(3, 5).T,
        "number": torch.tensor(2.5),
        "empty": torch.zeros(0, 7),
        "half": torch.randn(4).half(),
        "bfloat16": torch.randn(4, 2).bfloat16(),
        "truth": torch.tensor([True, False]),
        "unsigned": torch.arange(5).to(torch.uint16),
        "long": torch.arange(5),
        "float8": torch.randn(8).to(torch.float8_e4m3fn),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
    }
    torch.save(held, tmp_path / "x.pt")
    found = read_pickled(tmp_path / "x.pt")
    assert found.keys() == held.keys()
    content = (tmp_path / "x.pt").read_bytes()
    for name, tensor in held.items():
        one = found[name]
        assert isinstance(one, Tensor)
        assert one.shape == tuple(tensor.shape)
        if tensor.is_contiguous():
            flat = tensor.detach().reshape(-1)
            wanted = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
            assert content[one.begin : one.end] == wanted
            assert one.strides is None
        else:
            assert one.strides is not None


def test_plain_values_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    import torch

    held = {
        "a": [1, 2.5, None, True, "한국어"],
        "b": {"c": (1, (2, 3))},
        "big": 1 << 70,
        "size": torch.Size([2, 3]),
    }
    torch.save(held, tmp_path / "x.pt")
    found = read_pickled(tmp_path / "x.pt")
    assert found == held


def test_a_pickle_that_names_one_thing_many_times_is_cut_short(place: Path) -> None:
    """Nine times nine ... a few bytes of a pickle that would be gigabytes of text."""
    bomb: Any = "x" * 100
    for _ in range(12):
        bomb = [bomb] * 9
    info = only(llama_pt(place / "x.pt", train_metrics={"bomb": bomb}))
    assert len(json.dumps(info.training)) < 500_000
