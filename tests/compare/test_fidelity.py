"""Fidelity: the divergence of a checkpoint's distributions from those of the one that it was made of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_touchstone import Fidelity, HarnessError, fidelity
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.resolve import FoundCheckpoints
from pytest_touchstone.cli import main
from pytest_touchstone.compare import fidelity as module
from pytest_touchstone.compare.fidelity import FidelityConditions, verdict_at_limit
from pytest_touchstone.engines.transformers import divergence
from pytest_touchstone.statistics.intervals import Estimate
from tests.support.lines import missing
from tests.support.model_server import serving
from tests.support.tiny import CORPUS, tiny_adapter, tiny_causal, tiny_masked

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in CORPUS), encoding="utf-8")
    return path


def changed(folder: Path, to: Path, change: Callable[[str, Any], Any]) -> Path:
    """A copy of a checkpoint whose tensors are changed, by name."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, to)
    tensors = {name: change(name, tensor) for name, tensor in load_file(to / "model.safetensors").items()}
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    return to


def in_int8(name: str, tensor: Any) -> Any:
    """Matrices rounded to 255 steps a row, as a quantisation of weights does."""
    if tensor.dim() < 2:
        return tensor
    step = tensor.abs().amax(1, keepdim=True) / 127
    return (tensor / step).round() * step


def with_an_error(name: str, tensor: Any) -> Any:
    """One layer's output too large by 38 %, as by a wrong scale of a converter."""
    return tensor * 1.38 if name == "model.layers.1.mlp.down_proj.weight" else tensor


def test_a_checkpoint_diverges_by_exactly_0_from_itself(whole: Path, texts: Path) -> None:
    found = fidelity(whole, whole, text=texts)
    assert (found.kl_mean.value, found.kl_mean.high, found.kl_max, found.kl_p999.value) == (0, 0, 0, 0)
    assert (found.top_agreement.value, found.perplexity_ratio.value, found.logprob_difference.value) == (
        1,
        1,
        0,
    )
    assert (found.conditions.documents, found.conditions.units, found.conditions.notes) == (
        len(CORPUS),
        "document",
        (),
    )
    assert (found.conditions.reference_dtype, found.conditions.candidate_dtype, found.conditions.length) == (
        "float32",
        "float32",
        128,
    )


def test_divergences_are_those_of_the_formula(whole: Path, texts: Path, tmp_path: Path) -> None:
    """Computed again with NumPy, from the logits of transformers' own model."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    other = changed(whole, tmp_path / "int8", in_int8)
    tokenizer = AutoTokenizer.from_pretrained(whole)
    logs: list[Any] = []
    asked: list[int] = []
    for folder in (whole, other):
        model, rows = AutoModelForCausalLM.from_pretrained(folder).eval(), []
        asked = []
        for text in CORPUS:
            ids = [tokenizer.bos_token_id, *tokenizer.encode(text)]
            with torch.no_grad():
                rows.append(model(torch.tensor([ids[:-1]])).logits[0].double().numpy())
            asked += ids[1:]
        logits = np.concatenate(rows)
        logs.append(logits - np.log(np.exp(logits).sum(1, keepdims=True)))
    p, q = logs
    kl = (np.exp(p) * (p - q)).sum(1)
    found = fidelity(whole, other, text=texts)
    assert found.conditions.tokens == len(kl)
    told = [found.kl_mean.value, found.kl_median.value, found.kl_p99.value, found.kl_p999.value, found.kl_max]
    expected = [kl.mean(), *np.quantile(kl, [0.5, 0.99, 0.999]), kl.max()]
    assert told == pytest.approx(expected, rel=1e-3, abs=1e-7)
    assert found.top_agreement.value == (p.argmax(1) == q.argmax(1)).mean()
    change = (q - p)[range(len(asked)), asked].mean()
    assert found.logprob_difference.value == pytest.approx(change, abs=1e-5)
    assert found.perplexity_ratio.value == pytest.approx(np.exp(-change), abs=1e-5)
    perplexity = np.exp(-p[range(len(asked)), asked].mean())
    assert found.reference_perplexity.value == pytest.approx(perplexity, rel=1e-5)


def test_an_error_of_38_per_cent_in_one_layer_is_found_and_one_of_rounding_is_not(
    whole: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = changed(whole, tmp_path / "wrong", with_an_error)
    rounded = changed(whole, tmp_path / "rounded", in_int8)
    how = ["--text", str(texts), "--max-kl", "0.01", "--format", "json"]
    assert main(["checkpoint", "diff", str(whole), str(rounded), *how]) == 0
    passed = json.loads(capsys.readouterr().out)
    assert main(["checkpoint", "diff", str(whole), str(wrong), *how]) == 8
    failed = json.loads(capsys.readouterr().out)
    assert passed["verdicts"]["max_kl"] == {"limit": 0.01, "verdict": "not worse"}
    assert failed["verdicts"]["max_kl"] == {"limit": 0.01, "verdict": "worse"}
    assert failed["kl_mean"]["low"] > 10 * passed["kl_mean"]["high"]
    estimates = {one.name for one in fields(Fidelity)} - {"conditions"}
    assert estimates | {one.name for one in fields(FidelityConditions)} < failed.keys()


def test_without_room_for_both_the_reference_waits_on_disk_and_nothing_is_rounded(
    whole: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = changed(whole, tmp_path / "int8", in_int8)
    together = fidelity(whole, other, text=texts)
    monkeypatch.setattr(divergence, "free_memory", lambda _: 0)
    assert fidelity(whole, other, text=texts) == together
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(HarnessError, match=r"no room .*\d+MiB"):
        fidelity(whole, other, text=texts)


def test_adapters_are_measured_against_their_base(whole: Path, texts: Path, tmp_path: Path) -> None:
    found = fidelity(whole, tiny_adapter(tmp_path / "lora", whole), text=texts)
    assert found.kl_mean.low is not None
    assert found.kl_mean.low > 0.01


def test_embeddings_that_are_no_tokens_are_left_out(texts: Path, tmp_path: Path) -> None:
    one = tiny_causal(tmp_path / "one")
    size = json.loads((one / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    larger = changed(one, tmp_path / "two", _two_rows_more)
    config = json.loads((larger / "config.json").read_text(encoding="utf-8"))
    (larger / "config.json").write_text(json.dumps({**config, "vocab_size": size + 2}), encoding="utf-8")
    found = fidelity(one, larger, text=texts)
    assert (found.conditions.vocabulary, found.conditions.left_out) == (size, 2)
    assert found.kl_max < 1e-9


def _two_rows_more(name: str, tensor: Any) -> Any:
    import torch

    return (
        torch.cat([tensor, tensor[:2]]) if name in ("model.embed_tokens.weight", "lm_head.weight") else tensor
    )


def test_a_single_document_has_intervals_by_its_windows(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(CORPUS), encoding="utf-8")
    found = fidelity(whole, whole, text=tmp_path / "a.txt", candidate_dtype="bfloat16", length=32)
    assert (found.conditions.documents, found.conditions.units, found.conditions.candidate_dtype) == (
        1,
        "window",
        "bfloat16",
    )
    assert found.kl_mean.low is not None
    assert 0 < found.kl_mean.low < found.kl_mean.high < 0.05  # type: ignore[operator]


def test_a_folder_is_read_by_name_and_limited(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in {"b.txt": "the boat", "a.md": "the river", "c.bin": "\0", "d.txt": " \n"}.items():
        (folder / name).write_text(text, encoding="utf-8")
    both, one = (fidelity(whole, whole, text=folder, limit=limit) for limit in (None, 1))
    assert (both.conditions.documents, one.conditions.documents) == (2, 1)
    assert both.conditions.sha256 != one.conditions.sha256


def test_other_tokenizers_are_refused_before_a_model_is_loaded(
    whole: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = shutil.copytree(whole, tmp_path / "other")
    path = other / "tokenizer.json"
    made = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = made["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(made), encoding="utf-8")
    monkeypatch.setattr(module, "open_engine", lambda *_: pytest.fail("a model is loaded"))
    with pytest.raises(HarnessError, match=r"its tokenizer .*distributions"):
        fidelity(whole, other, text=texts)


def test_broken_weights_are_told_in_one_line(whole: Path, texts: Path, tmp_path: Path) -> None:
    nan = changed(whole, tmp_path / "nan", lambda name, one: one * float("nan") if "lm_head" in name else one)
    with pytest.raises(HarnessError, match=r"not finite|NaN|are the same"):
        fidelity(whole, nan, text=texts)


def test_a_checkpoint_without_whole_distributions_is_refused(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_causal(tmp_path / "runs" / "checkpoint-1")
    tiny_causal(tmp_path / "runs" / "checkpoint-2")
    for source, why in {
        str(tiny_masked(tmp_path / "masked")): "is a masked model, without distributions of the next token",
        "fake:causal": "is answered by the engine fake, without distributions",
        str(tmp_path / "runs"): "has 2 checkpoints .checkpoint-1, checkpoint-2.; name one",
    }.items():
        with pytest.raises(HarnessError, match=why):
            fidelity(whole, source)
    (info,) = resolve(str(whole), seq_len=None)
    found = FoundCheckpoints([replace(info, engine_facts={"served": {"url": "http://a"}})], [], [])
    monkeypatch.setattr(module, "find", lambda *_, **__: found)
    with pytest.raises(HarnessError, match=r"server .*most probable"):
        fidelity("http://a", whole)


def test_the_divergence_of_a_served_model_is_a_lower_bound_of_the_true_one(
    whole: Path, texts: Path, tmp_path: Path
) -> None:
    for change, least in ((in_int8, 0.0), (with_an_error, 0.3)):
        other = changed(whole, tmp_path / change.__name__, change)
        true = fidelity(whole, other, text=texts, length=64)
        with serving(other) as server:
            found = fidelity(whole, f"{server.url}/v1", text=texts, length=64)
        assert (found.conditions.most_probable, found.conditions.tokens, found.conditions.sha256) == (
            20,
            true.conditions.tokens,
            true.conditions.sha256,
        )
        assert found.kl_mean.value is not None
        assert true.kl_mean.value is not None
        assert least * true.kl_mean.value < found.kl_mean.value <= true.kl_mean.value
        assert found.kl_max <= true.kl_max + 1e-5
        assert found.top_agreement.value == pytest.approx(true.top_agreement.value, abs=0.005)
        assert found.perplexity_ratio.value == pytest.approx(true.perplexity_ratio.value, abs=1e-5)


def test_a_served_model_does_not_diverge_from_its_own_weights_and_proves_nothing_by_that(
    whole: Path, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(whole) as server:
        how = ["--text", str(texts), "--limit", "2", "--max-kl", "1"]
        assert main(["checkpoint", "diff", str(whole), server.url, *how]) == 0
    out = capsys.readouterr().out
    assert not missing(out, "at least", "20 most probable tokens")
    assert "1: inconclusive" in out
    (mean,) = (line for line in out.splitlines() if line.startswith("KL divergence, mean"))
    assert float(mean.split()[-3]) < 1e-5, mean


def test_a_server_is_not_asked_for_a_number_type(
    whole: Path, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(whole) as server:
        how = ["--text", str(texts), "--limit", "1"]
        typed = ["checkpoint", "diff", str(whole), server.url, *how, "--candidate-dtype", "bfloat16"]
        assert main(typed) == main(["checkpoint", "noise", server.url, *how]) == 4
    told = capsys.readouterr()
    assert not told.out
    refusals = [line for line in told.err.splitlines() if line.startswith("touchstone: ")]
    assert "candidate_dtype" in refusals[0]
    assert "give the weights" in refusals[1]


def test_a_server_without_the_most_probable_tokens_of_a_prompt_is_refused(whole: Path, texts: Path) -> None:
    with (
        serving(whole, style="openai") as server,
        pytest.raises(HarnessError, match="it has no prompt_logprobs"),
    ):
        fidelity(whole, server.url, text=texts)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--length 129", "invalid length 129: expected tokens from 1 to 128, which both models take"),
        ("--length 0", "invalid --length '0': expected a whole number from 1 up"),
        ("--limit x", "invalid --limit 'x': expected a whole number from 1 up"),
        ("--max-kl -1", "invalid --max-kl '-1': expected a number from 0 up"),
        ("--min-top-agreement 2", "invalid --min-top-agreement '2': expected a number from 0 to 1"),
        ("--dtype int8", "invalid --dtype 'int8': expected auto, float32, bfloat16 or float16"),
        ("--candidate-dtype int8", "invalid candidate_dtype 'int8': expected auto, float32"),
        ("--device tpu", "invalid --device 'tpu': expected auto, cpu, cuda, cuda:0 or mps"),
        ("--text nosuch.txt", "nosuch.txt: cannot be read: No such file or directory"),
        ("--text rows.jsonl", "rows.jsonl, row 1: has no string 'text'; write each document as one"),
        ("--text empty", "empty: has no text; give a file, a folder of files, or JSON lines"),
        ("--text latin.txt", "latin.txt: not UTF-8 text (byte 0); save it as UTF-8"),
    ],
)
def test_a_mistake_is_one_line(  # noqa: PLR0917
    options: str,
    said: str,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("rows.jsonl").write_text('{"question": "a"}\n', encoding="utf-8")
    Path("latin.txt").write_bytes(b"\xe9")
    assert main(["checkpoint", "diff", str(whole), str(whole), *options.split()]) == 4
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"touchstone: {said}")


@pytest.mark.parametrize(
    ("dtype", "dtypes"), [("auto", ("float32", "bfloat16")), ("bfloat16", ("bfloat16", "float32"))]
)
def test_a_checkpoint_alone_is_asked_again_in_the_other_number_type(
    whole: Path, texts: Path, capsys: pytest.CaptureFixture[str], dtype: str, dtypes: tuple[str, str]
) -> None:
    words = ["checkpoint", "noise", str(whole), "--dtype", dtype, "--text", str(texts), "--limit", "2"]
    assert main([*words, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["reference"], told["candidate"]) == (str(whole), str(whole))
    assert (told["reference_dtype"], told["candidate_dtype"]) == dtypes
    assert 0 < told["kl_mean"]["value"] < 0.01


def test_the_report_fits_a_terminal_and_names_conditions(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wrong = changed(whole, tmp_path / "wrong", with_an_error)
    how = ["--limit", "3", "--length", "64", "--max-kl", "0.0001", "--min-top-agreement", "0.9"]
    assert main(["checkpoint", "diff", str(whole), str(wrong), *how]) == 8
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    for said in (
        "(float32)",
        "lambada_openai/test.jsonl",
        "807 tokens",
        "windows of 64",
        "95 % interval, by document",
        "99.9th percentile",
        "--max-kl             0.0001: worse",
        "--min-top-agreement  0.9: ",
    ):
        assert said in out, said


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.2, 0.3, "worse"), (0.0, 0.1, "not worse"), (0.05, 0.2, "inconclusive")]
)
def test_a_limit_is_judged_by_the_whole_interval(low: float, high: float, verdict: str) -> None:
    estimate = Estimate((low + high) / 2, low, high, None, "t")
    assert verdict_at_limit(estimate, 0.1, higher_is_better=False) == verdict
    mirrored = Estimate(-(low + high) / 2, -high, -low, None, "t")
    assert verdict_at_limit(mirrored, -0.1, higher_is_better=True) == verdict
    assert (
        verdict_at_limit(Estimate(low, None, None, None, "none"), 0.1, higher_is_better=False)
        == "inconclusive"
    )
