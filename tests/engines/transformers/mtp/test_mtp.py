"""Files of multi-token-prediction models: names, LoRA, value heads, and what is no such file."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perf.mtp_memory import MIB, measured
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, GenerateAnswer, Loglikelihood, Request
from pytest_touchstone.engines.transformers.mtp import put, read_pt
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer
from tests.support.lines import naming
from tests.support.pt_files import payload
from tests.support.references import independent_logits
from tests.support.tiny import CORPUS
from tests.support.tiny_mtp import PARAMS, head_logits, info_of, mtp_engine, random_state, save_mtp

IDS = [(37 * number + 11) % 400 for number in range(20)]


def logits(path: Path, **settings: Any) -> Any:
    import torch

    engine = mtp_engine(info_of(path), **settings)
    with torch.no_grad():
        return engine.loaded.model(torch.tensor([IDS])).logits[0].numpy()


def refusal(path: Path) -> str:
    """The one line that loading ends in."""
    with pytest.raises(CheckpointError) as found:
        mtp_engine(info_of(path))
    assert str(found.value).startswith(f"{path}: ")
    assert "\n" not in str(found.value)
    return str(found.value)


def low_rank(state: dict[str, Any], rank: int = 2) -> dict[str, Any]:
    """LoRA weights of the queries of a layer and the output of a head, by name."""
    import torch

    numbers = torch.Generator().manual_seed(1)
    found = {}
    for name in ("layers.1.attention.wq", "extra_heads.0.attention.wo"):
        rows, columns = state[f"{name}.weight"].shape
        found[f"{name}.lora_A"] = torch.randn((rank, columns), generator=numbers) * 0.3
        found[f"{name}.lora_B"] = torch.randn((rows, rank), generator=numbers) * 0.3
    return found


@pytest.mark.parametrize(
    "prefix",
    ["module.", "transformer.", "adapter.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.adapter."],
)
def test_prefixes_of_wrappers_are_taken_off(prefix: str, tmp_path: Path) -> None:
    state = random_state()
    plain = logits(save_mtp(tmp_path / "a", state))
    wrapped = logits(save_mtp(tmp_path / "b", {prefix + name: tensor for name, tensor in state.items()}))
    assert (plain == wrapped).all()


def test_a_plain_state_dict_loads_too(tmp_path: Path) -> None:
    import torch

    path = save_mtp(tmp_path, random_state())
    plain = logits(path)
    torch.save(random_state(), path)
    (tmp_path / "params.json").write_text(json.dumps(PARAMS), encoding="utf-8")
    assert (logits(path) == plain).all()


def test_a_file_and_a_folder_of_params_are_recognised_and_answer_alike(tmp_path: Path) -> None:
    import torch

    state = random_state()
    (one,) = resolve(str(save_mtp(tmp_path / "a", state)), seq_len=None)
    path = save_mtp(tmp_path / "b", state, name="consolidated.00.pth")
    torch.save(state, path)
    (tmp_path / "b" / "params.json").write_text(json.dumps(PARAMS), encoding="utf-8")
    (other,) = resolve(str(tmp_path / "b"), seq_len=None)
    assert one.format == other.format == "mtp"
    assert other.path == path
    asked: list[Request] = [
        Loglikelihood("The quick", " brown fox"),
        Generate("The quick", max_new_tokens=12),
    ]
    assert mtp_engine(one).answer(asked) == mtp_engine(other).answer(asked)


@pytest.mark.parametrize("place", ["table", "model", "flat"])
@pytest.mark.parametrize("ending", ["", ".weight", ".default.weight"])
def test_lora_weights_are_added_with_alpha_over_rank(place: str, ending: str, tmp_path: Path) -> None:
    import torch

    state = random_state()
    extra = low_rank(state)
    added = dict(state)
    for name in ("layers.1.attention.wq", "extra_heads.0.attention.wo"):
        change = extra[f"{name}.lora_B"].double() @ extra[f"{name}.lora_A"].double()
        added[f"{name}.weight"] = state[f"{name}.weight"].double() + 8.0 * change
    wanted = independent_logits(added, PARAMS, IDS)
    config: dict[str, Any] = {
        "table": {"model": dict(PARAMS), "lora": {"rank": 2, "alpha": 16}},
        "model": {"model": {**PARAMS, "lora": {"r": 2, "lora_alpha": 16.0}}},
        "flat": {"model": dict(PARAMS), "training": {"lora_rank": 2, "lora_alpha": 16}},
    }[place]
    names = {name + ending: tensor for name, tensor in extra.items()}
    wrapped = "layers.1.attention.wq.{}weight".format("base_layer." if ending else "")
    weight = {wrapped: state["layers.1.attention.wq.weight"]}
    rest = {name: tensor for name, tensor in state.items() if name != "layers.1.attention.wq.weight"}
    path = save_mtp(tmp_path, {**rest, **weight, **names}, config=config)
    engine = mtp_engine(info_of(path))
    with torch.no_grad():
        for head in (0, 1):
            assert (
                abs(
                    head_logits(engine.loaded.model, head, torch.tensor([IDS]))[0].numpy() - wanted[head]
                ).max()
                < 1e-4
            )


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        ({}, {}, "lora rank None"),
        ({}, {"lora": {"rank": -1, "alpha": 1}}, "lora rank -1"),
        ({}, {"training": {"rank": 2, "alpha": 1}}, "lora rank None"),
        ({}, {"lora": {"rank": 2}}, "lora alpha None"),
        ({}, {"lora": {"rank": 3, "alpha": 1}}, "by rank 3"),
        ({"layers.1.attention.wq.lora_B": None}, {"lora": {"rank": 2, "alpha": 1}}, "wq.lora_B' is missing"),
        ({"layers.9.attention.wq.lora_A": 1}, {"lora": {"rank": 2, "alpha": 1}}, "layers.9.attention.wq"),
        ({"layers.1.feed_forward.w1.lora_A": 1}, {"lora": {"rank": 2, "alpha": 1}}, "w1.lora_A"),
    ],
)
def test_lora_weights_that_do_not_fit_are_named(
    change: dict[str, Any], config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    import torch

    state = random_state()
    state |= low_rank(state)
    for name, what in change.items():
        state.pop(name, None)
        if what is not None:
            state[name] = torch.ones(2, 2)
    assert message in refusal(save_mtp(tmp_path, state, config={"model": dict(PARAMS), **config}))


def test_a_value_head_is_left_out_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch

    state = random_state()
    plain = logits(save_mtp(tmp_path / "a", state))
    state |= {"module.value_head.weight": torch.ones(1, 32), "value_head.bias": torch.ones(1)}
    path = save_mtp(tmp_path / "b", state)
    with caplog.at_level(logging.WARNING, logger="pytest_touchstone"):
        engine = mtp_engine(info_of(path))
    with torch.no_grad():
        assert (engine.loaded.model(torch.tensor([IDS])).logits[0].numpy() == plain).all()
    (note,) = engine.usage["notes"]
    assert naming(path, "value_head.weight", "value_head.bias").search(note)
    assert [record.getMessage() for record in caplog.records] == [note]


def test_frequencies_that_older_code_saves_must_be_the_configs(tmp_path: Path) -> None:
    import torch

    state = random_state()
    state["rope.freqs"] = (10000.0 ** -(torch.arange(0, 8, 2) / 8)).bfloat16()
    logits(save_mtp(tmp_path / "a", state))
    state["rope.freqs"] = 500000.0 ** -(torch.arange(0, 8, 2) / 8)
    assert "rope_theta=10000" in refusal(save_mtp(tmp_path / "b", state))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"layers.1.attention.wq.weight": None},
            "1 tensor of the model missing: layers.1.attention.wq.weight",
        ),
        ({"norm.weight": None, "extra_heads.0.ffn_norm.weight": None}, "2 tensors of the model missing"),
        ({"critic.weight": (2, 2)}, "1 tensor without a place in the model: critic.weight"),
        ({"layers.2.attention.wq.weight": (32, 32)}, "without a place in the model: layers.2"),
        (
            {"extra_heads.0.attention.wk.weight": (32, 32)},
            "extra_heads.0.attention.wk.weight [32, 32] in the file",
        ),
        ({"tok_embeddings.weight": (401, 32)}, "[401, 32] in the file, [400, 32] by the config"),
        ({"module.norm.weight": (32,)}, "'module.norm.weight' is there twice"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    change: dict[str, tuple[int, ...] | None], message: str, tmp_path: Path
) -> None:
    import torch

    state = random_state()
    for name, shape in change.items():
        state.pop(name, None)
        if shape is not None:
            state[name] = torch.ones(shape)
    assert message in refusal(save_mtp(tmp_path, state))


def evil(path: Path) -> str:
    save_mtp(path.parent, random_state(), extra=payload(path.parent / "ran"))
    return "wants posix.system, which may run code"


def evil_optimizer(path: Path) -> str:
    save_mtp(path.parent, random_state(), optimizer_state_dict={"state": payload(path.parent / "ran")})
    return "wants posix.system, which may run code"


def numpy_scalar(path: Path) -> str:
    import numpy

    save_mtp(path.parent, random_state(), val_metrics={"val_loss": numpy.float64(1.5)})
    return "wants numpy"


def cut_off(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-1000])
    return "cut off or broken"


def empty(path: Path) -> str:
    path.write_bytes(b"")
    return "an empty file"


def other_format(path: Path) -> str:
    import torch

    torch.save({"model_state_dict": random_state()}, path, _use_new_zipfile_serialization=False)
    return "not a zip archive"


def no_dict(path: Path) -> str:
    import torch

    torch.save(torch.ones(3), path)
    return "has no 'model_state_dict'"


def no_tensors(path: Path) -> str:
    import torch

    torch.save({"epoch": 3, "config": {}}, path)
    return "has no 'model_state_dict'"


def no_tensor_among_them(path: Path) -> str:
    save_mtp(path.parent, {**random_state(), "step": 3})
    return "holds 'step', which is no tensor"


def whole_numbers(path: Path) -> str:
    state = random_state()
    save_mtp(path.parent, {**state, "norm.weight": state["norm.weight"].int()})
    return "'norm.weight' is I32"


def stretched(path: Path) -> str:
    import torch

    save_mtp(path.parent, {**random_state(), "output.weight": torch.ones(1).expand(400, 32)})
    return "a tensor of shape [400, 32] needs"


@pytest.mark.parametrize(
    "break_",
    [
        evil,
        evil_optimizer,
        numpy_scalar,
        cut_off,
        empty,
        other_format,
        no_dict,
        no_tensors,
        no_tensor_among_them,
        whole_numbers,
        stretched,
    ],
)
def test_a_file_that_is_no_such_checkpoint_ends_in_one_line(
    break_: Callable[[Path], str], tmp_path: Path
) -> None:
    path = save_mtp(tmp_path, random_state())
    message = break_(path)
    assert message in refusal(path)
    assert not (tmp_path / "ran").exists()


def test_a_petabyte_that_the_config_wants_is_not_allocated(tmp_path: Path) -> None:
    path = save_mtp(tmp_path, random_state())
    with pytest.raises(CheckpointError, match="shape mismatch"):
        mtp_engine(info_of(path, vocab_size=2**48))


def resident() -> int:
    """Bytes of this process in memory."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc/self/statm")
def test_the_optimizers_state_is_not_read_and_mapped_pages_are_let_go(tmp_path: Path) -> None:
    import torch

    size = 48 * 2**20
    state = {**random_state(), "output.weight": torch.rand(400, 32)}
    optimizer = {"state": {0: {"exp_avg": torch.ones(size // 4)}}}
    path = save_mtp(tmp_path, state, optimizer_state_dict=optimizer)
    del optimizer
    logits(path)  # what loading anything takes is there
    before = resident()
    logits(path)
    assert resident() - before < size / 4
    torch.save({"model_state_dict": {"big": torch.ones(size // 4)}}, path)
    before = resident()
    found = read_pt(path).tensors["big"]
    copy = torch.empty(size // 4)
    put(found[...], copy)
    assert resident() - before < 1.2 * size
    assert float(copy.sum()) == float(found[...].sum()) == size / 4


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="there is no /proc/self/clear_refs")
def test_loading_takes_a_fifth_more_memory_than_the_weights_at_most(tmp_path: Path) -> None:
    found = measured(tmp_path, weights=100 * MIB, optimizer=200 * MIB)
    assert found["file"] > 300 * MIB
    assert found["peak"] <= 1.2 * found["weights"]


def test_without_speculation_extra_heads_are_checked_but_not_held(tmp_path: Path) -> None:
    path = save_mtp(tmp_path, random_state())
    assert (logits(path, speculative="off") == logits(path)).all()
    engine = mtp_engine(info_of(path), speculative="off")
    assert engine.loaded.model.drafts == 0
    assert engine.loaded.model._heads.wo.numel() == 0


def test_sentencepieces_tokenizer_loads_and_puts_bos_in_front(tmp_path: Path) -> None:
    import io

    import sentencepiece

    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3),
        model_writer=made,
        vocab_size=390,
        character_coverage=0.98,
        model_type="bpe",
        byte_fallback=True,
        add_dummy_prefix=True,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    path = save_mtp(tmp_path, random_state())
    for file in tmp_path.glob("*.json"):
        file.unlink()
    (tmp_path / "tokenizer.model").write_bytes(made.getvalue())
    theirs = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    engine = mtp_engine(info_of(path))
    for text in (*CORPUS, "def f(x):\n    return  x"):
        assert TextTokenizer(engine.loaded.tokenizer).prompt(text) == (theirs.bos_id(), *theirs.encode(text))
    assert TextTokenizer(engine.loaded.tokenizer).end == theirs.eos_id()
    (answer,) = engine.answer([Generate(CORPUS[0], max_new_tokens=5)])
    assert isinstance(answer, GenerateAnswer)


def test_a_sentencepiece_tokenizer_says_which_package_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_mtp(tmp_path, random_state())
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(CheckpointError, match=r"needs the package protobuf; .*\[llama\]"):
        mtp_engine(info_of(path))


def test_a_tokenizer_without_named_ends_gets_the_usual_ones(tmp_path: Path) -> None:
    path = save_mtp(tmp_path, random_state())
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).unlink(missing_ok=True)
    engine = mtp_engine(info_of(path))
    assert TextTokenizer(engine.loaded.tokenizer).end == TextTokenizer(engine.loaded.tokenizer).start == 0
    engine.answer([Loglikelihood("", "The")])


@pytest.mark.parametrize("content", [None, "{", '{"model": {}}'])
def test_a_missing_or_broken_tokenizer_is_named(content: str | None, tmp_path: Path) -> None:
    path = save_mtp(tmp_path, random_state())
    file = tmp_path / "tokenizer.json"
    file.unlink() if content is None else file.write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json") as found:
        mtp_engine(info_of(path))
    assert "\n" not in str(found.value)
