"""Work-arounds of other libraries: they work, they are still needed, and what they patch is still there.

A test that fails after an update says what to look at: the library does by itself now what ours is for, or it does
otherwise what ours relies on.
"""

from __future__ import annotations

import inspect
import io
import json
import logging
import logging as standard
import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, RollingLoglikelihood
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import compat
from pytest_touchstone.engines.transformers.compat import heard, quiet
from tests.support.engines import before_each_pass, engine_for
from tests.support.families import causal_of
from tests.support.lines import naming
from tests.support.tiny import bytelevel_tokenizer, tiny_causal


def state() -> tuple[int, list[standard.Handler], bool, bool]:
    """What decides about what transformers prints: its logger's level and handlers, and its bars."""
    from transformers.utils import logging

    logger = standard.getLogger("transformers")
    return logging.get_verbosity(), list(logger.handlers), logger.propagate, logging.is_progress_bar_enabled()


def is_quiet() -> bool:
    """Whether transformers has no bars, and gives its warnings to a listener alone."""
    level, handlers, propagates, bars = state()
    listens = [type(one).__name__ for one in handlers] == ["_Listener"]
    return listens and (level, propagates, bars) == (standard.WARNING, False, False)


def test_nothing_is_printed_within_and_all_is_as_before_afterwards() -> None:
    before = state()
    with quiet():
        assert is_quiet()
        with quiet():
            warnings.warn("of no interest", UserWarning, stacklevel=1)
        assert is_quiet()
    assert state() == before


@pytest.mark.parametrize("first_to_leave", ["the thread", "this one"])
def test_blocks_of_several_threads_may_overlap(first_to_leave: str) -> None:
    before = state()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with quiet():
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=other)
    if first_to_leave == "the thread":
        thread.start()
        assert inside.wait(20)
        with quiet():
            leave.set()
            thread.join()
            assert is_quiet()
    else:
        with quiet():
            thread.start()
            assert inside.wait(20)
        assert is_quiet()
        leave.set()
        thread.join()
    assert state() == before


def test_warnings_of_other_threads_are_left_alone() -> None:
    with quiet():
        pass  # what this imports first adds filters of its own
    filters = list(warnings.filters)
    seen: list[bool] = []

    def other() -> None:
        with quiet():
            seen.append(list(warnings.filters) == filters)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [True]


def test_every_workaround_is_in_the_table_with_a_test_and_the_version_it_was_checked_with() -> None:
    rows = re.findall(r"^    (\w+) +(\w+) ([\d.]+) ", compat.__doc__ or "", re.MULTILINE)
    tests = Path(__file__).read_text(encoding="utf-8")
    own = {
        name
        for name, one in vars(compat).items()
        if callable(one) and getattr(one, "__module__", "") == compat.__name__ and not name.startswith("_")
    }
    parts, more = {"release_pages", "MappedFiles", "collector_paused"}, {"MISMATCHES"}
    assert {name for name, _, _ in rows} == own - parts | more
    assert all(name in tests for name, _, _ in rows)


def test_import_libraries_keeps_what_they_make_from_the_collector() -> None:
    program = (
        "import gc\n"
        "from pytest_touchstone.engines.transformers.compat import import_libraries\n"
        "import_libraries()\n"
        "print(gc.get_freeze_count(), gc.isenabled())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    frozen, collects = done.stdout.split()
    assert int(frozen) > 100_000
    assert collects == "True"


def test_quiet_is_needed_for_ggufs_bar_which_knows_no_setting() -> None:
    from tqdm.auto import tqdm  # type: ignore[import-untyped]
    from transformers import modeling_gguf_pytorch_utils

    assert modeling_gguf_pytorch_utils.tqdm is tqdm


def test_gguf_parsed_once_patches_what_transformers_imports_where_it_is_used() -> None:
    from transformers import modeling_gguf_pytorch_utils as theirs

    sources = [
        inspect.getsource(one) for one in (theirs.load_gguf_checkpoint, theirs.get_gguf_hf_weights_map)
    ]
    assert "        from gguf import GGUFReader" in sources[0]
    assert "        from gguf import MODEL_ARCH_NAMES, get_tensor_name_map" in sources[1]
    assert not any("cache" in line for line in sources[0].splitlines() if "GGUFReader" in line)
    import gguf

    llama = gguf.MODEL_ARCH.LLAMA
    before = (gguf.GGUFReader, gguf.get_tensor_name_map)
    with compat.gguf_parsed_once():
        assert gguf.get_tensor_name_map(llama, 1) is gguf.get_tensor_name_map(llama, 1)
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before
    assert gguf.get_tensor_name_map(llama, 1) is not gguf.get_tensor_name_map(llama, 1)


def test_pages_let_go_patches_the_function_that_copies_a_tensor() -> None:
    from transformers import core_model_loading as theirs

    copy = theirs._materialize_copy
    assert list(inspect.signature(copy).parameters) == ["tensor", "device", "dtype"]
    assert "madvise" not in inspect.getsource(theirs)
    with compat.pages_let_go():
        assert (theirs._materialize_copy is copy) == (sys.platform != "linux")
    assert theirs._materialize_copy is copy


def changed(folder: Path, **values: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")
    return folder


def test_mismatches_are_named_by_the_report_alone(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = changed(tiny_causal(tmp_path / "c"), intermediate_size=72)
    with quiet():
        _, report = AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, **compat.MISMATCHES
        )
        with pytest.raises(RuntimeError) as error:
            AutoModelForCausalLM.from_pretrained(folder)
    (name, file, model) = min(report["mismatched_keys"])
    assert (name.endswith("mlp.down_proj.weight"), tuple(file) == tuple(model)) == (True, False)
    assert "down_proj" not in str(error.value)


def test_no_length_limit_keeps_a_tokenizer_from_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import tokenization_utils_base

    said: list[str] = []
    monkeypatch.setattr(tokenization_utils_base.logger, "warning", said.append)
    limited, free = (bytelevel_tokenizer() for _ in range(2))
    limited.model_max_length = free.model_max_length = 3
    compat.no_length_limit(free).encode("She was very glad of the river")
    assert not said
    limited.encode("She was very glad of the river")
    assert "longer than the specified maximum" in said[0]


class OlderModel:
    def forward(self, input_ids: Any, past_key_values: Any = None) -> None: ...


class NewerModel:
    def __call__(self, input_ids: Any, cache: Any = None) -> None: ...


def test_no_look_for_padding_keeps_gpt2_from_asking_for_its_tokens(tmp_path: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(causal_of(tmp_path, "gpt2"))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.config.pad_token_id = 0
    ids = torch.zeros((1, 4), dtype=torch.long, device="meta")
    with pytest.raises(RuntimeError, match="meta"):
        model(input_ids=ids)
    compat.no_look_for_padding(model)
    assert model(input_ids=ids).logits.shape[:2] == (1, 4)


def test_cache_argument_is_the_name_by_which_a_model_takes_its_cache(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache

    assert (compat.cache_argument(OlderModel), compat.cache_argument(NewerModel)) == (
        "past_key_values",
        "cache",
    )
    with quiet():
        model: Any = AutoModelForCausalLM.from_pretrained(tiny_causal(tmp_path / "c")).eval()
    cache = DynamicCache()
    model(torch.tensor([[1, 2, 3]]), use_cache=True, **{compat.cache_argument(type(model)): cache})
    assert cache.get_seq_length() == 3  # and no warning of a name that is no longer used


def test_plain_generation_takes_a_models_own_settings_away(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    with quiet():
        model: Any = AutoModelForCausalLM.from_pretrained(tiny_causal(tmp_path / "c")).eval()
    ids = torch.tensor([[1, 2, 3]])
    greedy = GenerationConfig(max_new_tokens=8, do_sample=False, pad_token_id=0)

    def texts() -> list[int]:
        found = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=greedy)
        return [int(token) for token in found[0]]

    model.generation_config = GenerationConfig()
    plain = texts()
    own = model.generation_config = GenerationConfig(suppress_tokens=[plain[3]])
    assert texts() != plain  # transformers adds the model's to those it is given
    with compat.plain_generation(model):
        assert texts() == plain
    assert model.generation_config is own


def test_layer_values_are_had_of_a_config_that_refuses_to_say_one_for_all() -> None:
    from transformers import AutoConfig

    config = AutoConfig.for_model("gemma4_text")
    with pytest.raises(RuntimeError, match="per-layer"):
        _ = config.head_dim
    assert len(compat.layer_values(config, "head_dim")) == 2
    assert compat.layer_values(config, "hidden_size") == [config.hidden_size]
    assert compat.layer_values(config, "no_such_setting") == [None]


def test_check_sentencepiece_names_what_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compat.check_sentencepiece(tmp_path)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(CheckpointError, match=naming("protobuf", "pytest-touchstone[llama]")):
        compat.check_sentencepiece(tmp_path)


def test_is_panic_knows_one_of_tokenizers_which_is_no_exception(capfd: pytest.CaptureFixture[str]) -> None:
    from tokenizers import Tokenizer

    normalizer = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    with pytest.raises(BaseException, match="precompiled_charsmap") as error:
        Tokenizer.from_str(json.dumps({"version": "1.0", "normalizer": normalizer, "model": model}))
    assert not isinstance(error.value, Exception)
    assert compat.is_panic(error.value)
    assert not compat.is_panic(KeyboardInterrupt())


def test_refused_global_finds_the_name_in_torchs_text() -> None:
    import torch

    content = io.BytesIO()
    torch.save({"weights": os.system}, content)
    content.seek(0)
    with pytest.raises(Exception, match="GLOBAL") as error:
        torch.load(content, weights_only=True)
    assert compat.refused_global(error.value) == f"{os.name}.system"
    assert compat.refused_global(ValueError("no such thing")) is None


def test_is_out_of_memory_knows_main_memory_by_torchs_text() -> None:
    import torch

    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 60)
    assert not isinstance(error.value, torch.OutOfMemoryError)
    assert compat.is_out_of_memory(error.value)
    assert not compat.is_out_of_memory(RuntimeError("shapes differ"))


LOGGER = logging.getLogger("transformers.modeling_utils")


def with_config(folder: Path, **values: Any) -> Path:
    path = folder / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **values}
    path.write_text(
        json.dumps({name: one for name, one in config.items() if one is not None}), encoding="utf-8"
    )
    return folder


def scaled(folder: Path, **scaling: Any) -> Path:
    """A Llama whose config has that scaling of positions."""
    made = tiny_causal(folder, model_type="llama")
    return with_config(made, rope_parameters=None, rope_theta=10000.0, rope_scaling=scaling)


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
    folder = with_config(tiny_causal(tmp_path, model_type="llama"), torch_dtype="float32", pad_token_id=-1)
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
    assert naming("a/model", "15 more").search(noted[-1])


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
    assert [note.rpartition(": ")[2] for note in found.notes("a")] == ["of this one", "of nobody"]
    ((first, second),) = theirs
    assert naming("b", "transformers", "of nobody").search(first)
    assert naming("b", "transformers", "of the other").search(second)


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
