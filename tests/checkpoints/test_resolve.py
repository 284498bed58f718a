"""Recognising checkpoints: good ones are described, broken ones give one line that names the file and the
fault."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.checkpoints import default_checkpoints, fingerprint, resolve, unique_names
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import (
    FillMask,
    Generate,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    Refusal,
    RollingLoglikelihood,
)
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from tests.support.lines import naming
from tests.support.model_server import serving
from tests.support.places import ROOT
from tests.support.resolved import only
from tests.support.tiny import split_weights, tiny_causal, tiny_masked, trainer_state


@pytest.fixture(scope="session")
def masked_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_masked(tmp_path_factory.mktemp("masked") / "final")


def fault(source: Path | str, seq_len: int | None = None) -> str:
    with pytest.raises(CheckpointError) as caught:
        resolve(str(source), seq_len=seq_len)
    return one_line(caught.value)


def one_line(error: CheckpointError) -> str:
    text = str(error)
    assert "\n" not in text
    assert ";" in text, "it says what to do"
    return text


def change_config(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **values}
    path.write_text(
        json.dumps({key: value for key, value in config.items() if value is not None}), encoding="utf-8"
    )


def change_tensors(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def write_gguf(path: Path, pairs: dict[str, str | int | list[str]], *, tensors: int = 1) -> Path:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(pairs))
    for key, value in pairs.items():
        out += text(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, int):
            out += struct.pack("<II", 4, value)
        else:
            out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    for number in range(tensors):
        out += text(f"t{number}") + struct.pack("<IQIQ", 1, 32, 0, 128 * number)
    path.write_bytes(out + bytes(-len(out) % 32 + 128 * tensors))
    return path


def test_a_whole_is_described(whole: Path) -> None:
    info = only(whole)
    assert (info.name, info.kind, info.format, info.model_type) == (
        "checkpoint-7",
        "causal",
        "folder",
        "llama",
    )
    assert (info.architecture, info.seq_len, info.training.global_step) == ("LlamaForCausalLM", 128, 7)
    assert info.serves == (Loglikelihood, RollingLoglikelihood, Generate)


def test_a_masked_folder_is_described(masked_folder: Path) -> None:
    info = only(masked_folder)
    assert (info.name, info.kind, info.model_type, info.training.global_step) == (
        "final",
        "masked",
        "bert",
        None,
    )
    assert info.serves == (FillMask, PseudoLoglikelihood)


def test_a_trainer_folder_tells_step_and_epoch(folder: Path) -> None:
    trainer_state(folder, global_step=655, epoch=2.5)
    assert (only(folder).training.global_step, only(folder).training.epoch) == (655, 2.5)


def test_model_type_decides_without_architectures(folder: Path) -> None:
    change_config(folder, architectures=None)
    assert only(folder).kind == "causal"


def test_recognition_does_not_import_torch(whole: Path) -> None:
    code = (
        "import sys; from pytest_touchstone.checkpoints import resolve; resolve(sys.argv[1], seq_len=None);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    command = [sys.executable, "-c", code, str(whole)]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 0


def test_sharded_weights_are_read_and_a_missing_shard_is_named(folder: Path) -> None:
    split_weights(folder)
    assert only(folder).kind == "causal"
    open_engine(only(folder), ModelSettings(device="cpu", threads=1)).close()
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors: missing" in fault(folder)


def test_pickled_weights_are_read(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    engine = open_engine(only(folder), ModelSettings(device="cpu", threads=1))
    assert len(engine.answer([Loglikelihood("the", " answer")])) == 1
    engine.close()
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert "pytorch_model.bin: an empty file" in fault(folder)


def test_a_glob_is_sorted_by_folder_then_step(whole: Path, tmp_path: Path) -> None:
    for name in ("b/checkpoint-9", "a/checkpoint-100", "a/checkpoint-20"):
        shutil.copytree(whole, tmp_path / name)
    (tmp_path / "a" / "checkpoint-notes.txt").write_text("no checkpoint", encoding="utf-8")
    infos = resolve(str(tmp_path / "*" / "checkpoint-*"), seq_len=None)
    assert [f"{info.path.parent.name}/{info.path.name}" for info in infos] == [
        "a/checkpoint-20",
        "a/checkpoint-100",
        "b/checkpoint-9",
    ]
    assert "matches no folder" in fault(tmp_path / "z*")


def test_names_are_unique_and_fit_into_node_ids(whole: Path) -> None:
    info = only(whole)
    infos = [
        replace(info, path=Path("runs/one/checkpoint-7")),
        replace(info, path=Path("runs/two [b]/checkpoint-7")),
        replace(info, path=Path("runs/two [b]/checkpoint-8"), name="checkpoint-8"),
    ]
    named = unique_names([*infos, infos[0]])
    assert [info.name for info in named] == ["one-checkpoint-7", "two-b-checkpoint-7", "checkpoint-8"]


def test_two_lengths_of_one_checkpoint_get_two_names(whole: Path) -> None:
    named = unique_names([*resolve(str(whole), seq_len=64), only(whole)])
    assert len({info.name for info in named}) == 2


def test_fake_checkpoints_need_no_files() -> None:
    assert [only(f"fake:{kind}").kind for kind in ("causal", "masked")] == ["causal", "masked"]
    assert only("fake:causal").model_type == "fake"
    assert "use fake:causal or fake:masked" in fault("fake:other")


def test_the_scheme_of_a_target_has_no_case_and_a_path_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert only("FAKE:causal").source == only("Fake:causal").source == "fake:causal"
    with serving(folder) as server:
        for scheme in ("HTTP", "Http"):
            info = only(f"{scheme}://{server.url.partition('://')[2]}/v1")
            assert info.source == f"{server.url}/v1"
    monkeypatch.chdir(folder.parent)
    folder.rename(folder.parent / "HTTP:x")
    assert only("HTTP:x").path.name == "HTTP:x"
    assert fault("Nobody:x").startswith("Nobody:x: no such file")


def test_a_gguf_header_is_read(tmp_path: Path) -> None:
    pairs: dict[str, str | int | list[str]] = {
        "tokenizer.ggml.tokens": ["a", "b"],
        "general.architecture": "llama",
        "llama.context_length": 512,
    }
    info = only(write_gguf(tmp_path / "small.Q8_0.gguf", pairs))
    assert (info.name, info.kind, info.format, info.seq_len) == ("small.Q8_0", "causal", "gguf", 512)
    assert (info.weights.parameters, info.weights.dtype) == (32, "F32")
    whole = info.path.read_bytes()
    info.path.write_bytes(whole[:-1])
    assert "cut off" in fault(info.path)


@pytest.mark.parametrize("content", [b"", b"GGML....", b"GGUF\x03", b"GGUF" + struct.pack("<IQQ", 3, 1, 9)])
def test_a_broken_gguf_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    assert "x.gguf: " in fault(tmp_path / "x.gguf")


def test_a_missing_path_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    assert naming("nowhere/deep/x", "no such file").search(fault("nowhere/deep/x"))
    assert "an empty folder" in fault(tmp_path)
    (tmp_path / "notes.txt").write_text("text", encoding="utf-8")
    assert "no config.json" in fault(tmp_path)
    assert "notes.txt: neither" in fault(tmp_path / "notes.txt")


def test_the_name_of_a_builtin_checkpoint_alone_tells_how_it_is_asked_for() -> None:
    assert fault("smollm2-135m").endswith("the builtin checkpoint is builtin:smollm2-135m")


def test_a_folder_of_checkpoints_stands_for_them(folder: Path) -> None:
    assert only(folder.parent).path == folder


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (["model.safetensors"], "no weights"),
        (["config.json"], "config.json: missing, though weights are there"),
        (["tokenizer.json", "tokenizer_config.json"], "no tokenizer files"),
    ],
)
def test_a_missing_part_is_named(folder: Path, gone: list[str], said: str) -> None:
    for name in gone:
        (folder / name).unlink()
    assert said in fault(folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"model_type": "llama",', "not valid JSON"),
        ("{}", "'model_type' is missing"),
        ("[1]", "config.json: "),
        ('{"model_type": "llama", "vocab_size": "many"}', "vocab_size='many'"),
        ('{"model_type": "something-new"}', "model type 'something-new' is unknown"),
        ('{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}', "encoder-decoder"),
        ('{"model_type": "bert", "architectures": ["BertModel"]}', "no language-model head"),
    ],
)
def test_a_wrong_config_is_named(folder: Path, content: str, said: str) -> None:
    (folder / "config.json").write_text(content, encoding="utf-8")
    message = fault(folder)
    assert "config.json: " in message
    assert said in message


def test_truncated_safetensors_are_found_at_every_length(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for length in (0, 4, 8, 50, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "model.safetensors: " in fault(folder)
    path.write_bytes(b"\xff" * 100)
    assert "no safetensors file" in fault(folder)
    path.write_bytes(struct.pack("<Q", 10) + b"not a json")
    assert "no safetensors file" in fault(folder)


def test_more_tokens_than_the_checkpoint_takes_is_a_mistake(whole: Path) -> None:
    assert only(whole, seq_len=100).seq_len == 100
    assert "--eval-seq-len 129 is more" in fault(whole, seq_len=129)


def test_a_vocabulary_of_another_size_is_found_without_loading(folder: Path) -> None:
    change_config(folder, vocab_size=17)
    assert "shape mismatch, model.embed_tokens.weight has" in fault(folder)


@pytest.mark.parametrize("model_type", ["bert", "roberta", "deberta-v2"])
def test_extended_position_tables_are_used_whole(tmp_path: Path, model_type: str) -> None:
    more = {"relative_attention": True, "position_buckets": -1} if model_type == "deberta-v2" else {}
    folder = tiny_masked(tmp_path / "m", model_type=model_type, seq_len=256, **more)
    change_config(folder, max_position_embeddings=128)
    info = only(folder)
    assert info.weights.overrides["max_position_embeddings"] == 256
    assert info.seq_len == (256 - 1 if model_type == "roberta" else 256)
    engine = open_engine(info, ModelSettings(device="cpu", threads=1))
    (answer,) = engine.answer([FillMask("a " * 200 + "[MASK]", 1)])
    assert getattr(answer, "truncated", None) == 0
    engine.close()


def test_a_position_table_shorter_than_the_config_is_a_mistake(tmp_path: Path) -> None:
    folder = tiny_masked(tmp_path / "m", seq_len=64)
    change_config(folder, max_position_embeddings=128)
    assert naming("64 rows", "max_position_embeddings=128").search(fault(folder))


def load_fault(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_engine(only(folder), ModelSettings(device="cpu", threads=1))
    return one_line(caught.value)


def test_tensors_of_another_shape_are_listed_at_load(folder: Path) -> None:
    change_config(folder, intermediate_size=48)
    message = load_fault(folder)
    assert re.search(r"mlp\.down_proj\.weight \[32, 64\] .*?\[32, 48\]", message)


def test_missing_tensors_are_listed_at_load(folder: Path) -> None:
    def behead(tensors: dict[str, object]) -> None:
        del tensors["lm_head.weight"]

    change_tensors(folder, behead)
    assert naming("1 tensor", "LlamaForCausalLM", "lm_head.weight").search(load_fault(folder))


def test_a_masked_model_without_its_head_is_a_mistake(masked_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(masked_folder, tmp_path / "m"))

    def behead(tensors: dict[str, object]) -> None:
        for name in [name for name in tensors if name.startswith("cls.")]:
            del tensors[name]

    change_tensors(folder, behead)
    assert "cls.predictions" in load_fault(folder)


def test_left_over_tensors_are_listed_at_load(folder: Path) -> None:
    def add(tensors: dict[str, object]) -> None:
        tensors["model.layers.9.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"].clone()  # type: ignore[attr-defined]

    change_tensors(folder, add)
    assert "model.layers.9.mlp.up_proj.weight" in load_fault(folder)


def test_pooler_and_old_buffers_do_not_stop_a_checkpoint(masked_folder: Path, tmp_path: Path) -> None:
    import torch

    folder = Path(shutil.copytree(masked_folder, tmp_path / "m"))

    def add(tensors: dict[str, object]) -> None:
        tensors["bert.pooler.dense.weight"] = torch.zeros(32, 32)
        tensors["cls.seq_relationship.weight"] = torch.zeros(2, 32)
        tensors["bert.embeddings.position_ids"] = torch.arange(128)[None]

    change_tensors(folder, add)
    open_engine(only(folder), ModelSettings(device="cpu", threads=1)).close()


def test_tied_weights_may_be_left_out_of_the_file(tmp_path: Path) -> None:
    folder = tiny_causal(tmp_path / "c", tie_word_embeddings=True)
    open_engine(only(folder), ModelSettings(device="cpu", threads=1)).close()


def test_a_tokenizer_with_more_tokens_than_the_model_is_a_mistake(tmp_path: Path) -> None:
    other = tiny_causal(tmp_path / "other", vocab_size=300)
    assert "the model only 300 embeddings" in load_fault(other)


def test_a_token_added_without_an_embedding_harms_only_texts_that_hold_it(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    size = len(content["model"]["vocab"])
    content["added_tokens"].append({**content["added_tokens"][0], "id": size, "content": "<|late|>"})
    path.write_text(json.dumps(content), encoding="utf-8")
    engine = open_engine(only(folder), ModelSettings(device="cpu", threads=1))
    good, bad = engine.answer([Loglikelihood("the", " answer"), Loglikelihood("the", "<|late|>")])
    assert isinstance(good, LoglikelihoodAnswer)
    assert isinstance(bad, Refusal)


def test_a_fingerprint_follows_the_content_not_the_name(folder: Path, whole: Path) -> None:
    before = fingerprint(only(folder))
    assert before == fingerprint(only(whole))
    trainer_state(folder, global_step=3, epoch=1.0)
    assert fingerprint(only(folder)) == before
    change_config(folder, rms_norm_eps=1e-5)
    assert fingerprint(only(folder)) != before


def test_a_hub_id_is_downloaded_by_name(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def download(name: str, **_: object) -> Path:
        asked.append(name)
        return whole

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert [only("hub:some-org/Some.Model").name, only("some-org/other").name] == ["Some.Model", "other"]
    assert asked == ["some-org/Some.Model", "some-org/other"]
    assert "no Hub id" in fault("hub:some-org")


def test_a_hub_failure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **_: object) -> Path:
        raise OSError(f"401 for {name}\nRepository Not Found\nPlease log in")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    assert naming("Hub", "401 for some-org/other", "HF_TOKEN").search(fault("some-org/other"))


def test_a_mistyped_path_does_not_reach_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **_: pytest.fail(f"asked the Hub for {name}")
    )
    assert "no such file or folder" in fault("runs/chekpoint-5")


def test_builtin_series_give_the_last_step_and_any_saved_one(
    masked_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_touchstone.checkpoints import builtin

    monkeypatch.setattr(builtin, "shipped", tmp_path.joinpath)
    monkeypatch.setenv("TOUCHSTONE_CACHE", str(tmp_path / "cache"))
    assert default_checkpoints() == []
    assert "no checkpoint in" in fault("builtin:ko-mlm-tiny")
    for step in (1000, 300):
        shutil.copytree(masked_folder, tmp_path / "models" / "ko-mlm-tiny" / "nouns" / f"checkpoint-{step}")
    last, early = only("builtin:ko-mlm-tiny"), only("builtin:ko-mlm-tiny/nouns/checkpoint-300")
    assert (last.name, last.path.name, last.training.global_step) == ("ko-mlm-tiny", "checkpoint-1000", 1000)
    assert (early.name, early.training.global_step) == ("checkpoint-300", 300)
    assert [info.name for info in default_checkpoints()] == ["ko-mlm-tiny"]
    assert "there are builtin:ko-mlm-tiny/nouns/checkpoint-300, " in fault(
        "builtin:ko-mlm-tiny/nouns/checkpoint-4"
    )
    assert "run: touchstone checkpoint fetch smollm2-135m" in fault("builtin:smollm2-135m")
    assert "unknown" in fault("builtin:gpt-9")


def test_a_gguf_file_without_tensors_is_found_before_a_model_of_default_size_is_built(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", {"general.architecture": "llama"}, tensors=0)
    assert "holds no tensors" in fault(path)


def test_a_gpu_that_is_not_there_is_one_line(whole: Path) -> None:
    with pytest.raises(CheckpointError, match="torch sees"):
        open_engine(only(whole), ModelSettings(device="cuda:99"))
