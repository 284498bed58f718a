"""Warnings of libraries that may mean another number are notes of the checkpoint; the others are not."""

from __future__ import annotations

import json
import logging
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.requests import Generate, RollingLoglikelihood
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.library_warnings import heard
from tests.support.engines import before_each_pass, engine_for
from tests.support.tiny import tiny_causal

LOGGER = logging.getLogger("transformers.modeling_utils")


def changed(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **values}
    path.write_text(
        json.dumps({name: one for name, one in config.items() if one is not None}), encoding="utf-8"
    )
    return folder


def scaled(folder: Path, **scaling: Any) -> Path:
    """A Llama whose config has that scaling of positions."""
    made = tiny_causal(folder, model_type="llama")
    return changed(made, rope_parameters=None, rope_theta=10000.0, rope_scaling=scaling)


@pytest.mark.parametrize(
    ("scaling", "said"),
    [
        ({"factor": 8.0}, "Unrecognized keys"),
        ({"type": "yarn", "factor": 8.0, "orig_max": 3}, "'orig_max'"),
        ({"type": "linear", "factor": 0.5}, "factor field must be"),
    ],
    ids=["no type", "an unknown key", "a factor below 1"],
)
def test_a_scaling_of_positions_that_is_not_taken_as_it_stands_is_noted(
    scaling: dict[str, Any], said: str, tmp_path: Path
) -> None:
    engine = engine_for(scaled(tmp_path, **scaling))
    assert sum(said in note for note in engine.notes) == 1
    assert any(said in note for note in engine.usage["notes"])
    engine.close()


def test_a_warning_that_transformers_gives_once_is_noted_of_every_checkpoint(tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder = scaled(tmp_path / name, type="yarn", factor=8.0, original_max_position_embeddings=64)
        engine = engine_for(folder)
        assert any("does not match" in note and str(folder) in note for note in engine.notes)
        engine.close()


def test_an_honest_checkpoint_has_no_notes(tmp_path: Path) -> None:
    folder = changed(tiny_causal(tmp_path, model_type="llama"), torch_dtype="float32", pad_token_id=-1)
    (folder / "generation_config.json").write_text('{"temperature": 0.6, "top_p": 0.9, "eos_token_id": 0}')
    engine = engine_for(folder)
    assert engine.notes == []
    engine.close()


def notes_of(*messages: str) -> tuple[str, ...]:
    with heard() as found, quiet():
        for message in messages:
            LOGGER.warning(message)
    return found.notes("a/model")


def test_a_note_is_one_line_without_control_characters_bounded_and_told_once() -> None:
    noted = notes_of("\x1b[31mwrong\x1b[0m\x07\n\tnumber\u202e", "wrong number", "wrong\nnumber", "x" * 5000)
    assert noted[0] == "a/model: transformers warns: wrong<U+0007> number<U+202E>"
    assert noted[1] == "a/model: transformers warns: wrong number"
    assert len(noted) == 3
    assert len(noted[2]) < 400


def test_of_many_warnings_the_first_are_noted_and_the_others_counted() -> None:
    noted = notes_of(*(f"warning {number}" for number in range(25)))
    assert len(noted) == 11
    assert noted[-1] == "a/model: and 15 more warnings of libraries"


@pytest.mark.parametrize(
    "message",
    [
        "`torch_dtype` is deprecated! Use `dtype` instead!",
        "Model config: pad_token_id must be `None` or an integer within the vocabulary",
        "The fast path is not available because one of `(selective_state_update)` is None. Falling back",
        "LlamaForCausalLM LOAD REPORT from: a/model",
    ],
)
def test_what_changes_no_number_is_not_noted(message: str) -> None:
    assert notes_of(message) == ()


def test_warnings_of_python_are_noted_but_for_names_that_will_change() -> None:
    with heard() as found, quiet():
        warnings.warn("another number", UserWarning, stacklevel=1)
        warnings.warn("another name", FutureWarning, stacklevel=1)
    assert len(found.notes("a/model")) == 1
    assert found.notes("a/model")[0].endswith("warns: another number")


def test_a_warning_goes_to_the_blocks_of_its_own_thread_and_to_all_from_a_thread_without_one() -> None:
    inside, told = threading.Event(), threading.Event()
    theirs: list[tuple[str, ...]] = []

    def other() -> None:
        with heard() as found, quiet():
            inside.set()
            assert told.wait(20)
            LOGGER.warning("of the other")
        theirs.append(found.notes("b"))

    thread = threading.Thread(target=other)
    with heard() as found, quiet():
        thread.start()
        assert inside.wait(20)
        LOGGER.warning("of this one")
        helper = threading.Thread(target=LOGGER.warning, args=("of nobody",))
        helper.start()
        helper.join()
        told.set()
        thread.join()
    assert found.notes("a") == ("a: transformers warns: of this one", "a: transformers warns: of nobody")
    assert theirs == [("b: transformers warns: of nobody", "b: transformers warns: of the other")]


def test_nothing_that_is_noted_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    assert notes_of("another number")
    assert capfd.readouterr().err == ""


def test_a_warning_while_the_model_is_tried_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import LlamaForCausalLM

    from pytest_touchstone.checkpoints.resolve import resolve
    from pytest_touchstone.engines.transformers import TransformersFactory

    forward = LlamaForCausalLM.forward

    def warned(self: Any, *given: Any, **named: Any) -> Any:
        LOGGER.warning("another number")
        return forward(self, *given, **named)

    monkeypatch.setattr(LlamaForCausalLM, "forward", warned)
    (info,) = resolve(str(tiny_causal(tmp_path, model_type="llama")), seq_len=None)
    engine: Any = TransformersFactory().open(info, ModelSettings())
    assert any("another number" in note for note in engine.notes)
    engine.close()


def test_a_warning_while_the_model_answers_is_noted_once(tmp_path: Path) -> None:
    engine = engine_for(tiny_causal(tmp_path, model_type="llama"))
    before_each_pass(engine, lambda _: LOGGER.warning("another number"))
    engine.answer([RollingLoglikelihood("The quick brown fox")])
    engine.answer([Generate("The quick", max_new_tokens=3)])
    assert [note for note in engine.usage["notes"] if "another number" in note] == engine.notes
    assert len(engine.notes) == 1
    engine.close()


def test_errors_of_transformers_are_still_printed_and_noted_too(caplog: pytest.LogCaptureFixture) -> None:
    LOGGER.parent.addHandler(caplog.handler)  # type: ignore[union-attr]
    try:
        with heard() as found, quiet():
            LOGGER.error("cannot set the field")
            LOGGER.warning("another number")
    finally:
        LOGGER.parent.removeHandler(caplog.handler)  # type: ignore[union-attr]
    assert [record.getMessage() for record in caplog.records] == ["cannot set the field"]
    assert len(found.notes("a")) == 2
