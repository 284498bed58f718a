"""A model in memory as a checkpoint: its description, its fingerprint, and that it is left as it was."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
import threading
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from pytest_touchstone.checkpoints import fingerprint, resolve
from pytest_touchstone.core.errors import CheckpointError, ServerError
from pytest_touchstone.core.requests import Generate, Loglikelihood, Request
from pytest_touchstone.engines.live import LiveEngine, LiveFactory, serve
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.live import FirstProcess, LiveModel, at_rest, is_plain
from tests.support.lines import naming
from tests.support.tiny import tiny_causal, tiny_masked

pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")

REQUESTS: list[Request] = [
    Loglikelihood("The quick brown", " fox"),
    Loglikelihood("The quick brown", " dog jumps"),
    Generate("She said", max_new_tokens=5),
]


def loaded(folder: Path, kind: Any = AutoModelForCausalLM) -> tuple[Any, Any]:
    return kind.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def model(tmp_path: Path) -> tuple[Any, Any]:
    return loaded(tiny_causal(tmp_path / "tiny", attention_dropout=0.1))


def adapted(model: Any) -> Any:
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config)


def saved_print(model: Any, tokenizer: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (info,) = resolve(str(folder), seq_len=None)
    return fingerprint(info)


def live_print(model: Any, tokenizer: Any) -> str:
    with LiveModel(model, tokenizer) as live:
        return live.fingerprint()


@pytest.mark.parametrize(
    ("make", "kind", "model_type"),
    [
        (tiny_causal, AutoModelForCausalLM, "gpt2"),  # with tied weights
        (tiny_causal, AutoModelForCausalLM, "mixtral"),  # whose experts are one tensor in memory
        (tiny_masked, AutoModelForMaskedLM, "bert"),
    ],
)
def test_the_fingerprint_is_that_of_the_same_model_saved(
    make: Any, kind: Any, model_type: str, tmp_path: Path
) -> None:
    model, tokenizer = loaded(make(tmp_path / "made", model_type=model_type), kind)
    assert live_print(model, tokenizer) == saved_print(model, tokenizer, tmp_path / "saved")
    model.to(torch.bfloat16)
    assert live_print(model, tokenizer) == saved_print(model, tokenizer, tmp_path / "half")


def test_one_changed_weight_gives_another_fingerprint_and_an_unchanged_model_the_same(model: Any) -> None:
    with LiveModel(*model) as live:
        before = live.fingerprint()
        assert live.fingerprint() == before
        with torch.no_grad():
            next(model[0].parameters())[3, 5] += 1e-6
        assert live.fingerprint() != before


def test_the_fingerprint_of_a_model_with_adapters_knows_their_weights_and_which_of_them_work(
    model: Any,
) -> None:
    plain = live_print(*model)
    peft = adapted(model[0])
    known = [live_print(peft, model[1])]
    with peft.disable_adapter():
        known.append(live_print(peft, model[1]))
    with torch.no_grad():
        next(one for name, one in peft.named_parameters() if "lora_A" in name)[0, 0] += 1e-6
    known.append(live_print(peft, model[1]))
    assert len({plain, *known}) == 4


def test_it_answers_as_the_saved_checkpoint_does(model: Any, tmp_path: Path) -> None:
    saved_print(model[0], model[1], tmp_path / "saved")
    (info,) = resolve(str(tmp_path / "saved"), seq_len=None)
    engine = open_engine(info, ModelSettings())
    expected = engine.answer(REQUESTS)
    engine.close()
    model[0].train()
    with LiveModel(*model) as live:
        own = live.open(live.info, ModelSettings())
        found = own.answer(REQUESTS)
        own.close()
    for one, other in zip(found[:2], expected[:2], strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)  # type: ignore[union-attr]
    assert found[2] == expected[2]


def test_an_adapter_is_active_and_not_merged(model: Any) -> None:
    peft = adapted(model[0])
    with torch.no_grad():
        tokens = model[1]("The quick brown fox", return_tensors="pt")["input_ids"]
        expected = peft.eval()(tokens).logits[0, -2].log_softmax(-1)[tokens[0, -1]]
    peft.train()
    request = Loglikelihood(model[1].decode(tokens[0, :-1]), model[1].decode(tokens[0, -1:]))
    with LiveModel(peft, model[1]) as live:
        engine = live.open(live.info, ModelSettings())
        (answer,) = engine.answer([request])
        engine.close()
        assert live.info.architecture.endswith("with adapters (by PEFT)")
    assert answer.logprob == pytest.approx(float(expected), abs=1e-4)  # type: ignore[union-attr]
    assert not any(one.merged_adapters for one in peft.modules() if hasattr(one, "merged_adapters"))


def attributes(model: Any) -> list[Any]:
    """What each module has, tensors by identity."""
    found = []
    for name, module in model.named_modules():
        table = {
            key: sorted((inner, id(one)) for inner, one in value.items())
            if isinstance(value, dict)
            else id(value)
            for key, value in vars(module).items()
        }
        found.append((name, module.training, table))
    return found


def test_a_training_finds_everything_as_it_was(model: Any) -> None:
    """With frozen parts in evaluation mode, a hook, autocast's wrapper, and gradients that are there."""
    trained, tokenizer = model
    trained.train()
    trained.model.layers[0].eval()
    trained.config.use_cache = False
    trained.activation_checkpointing_enable()
    trained._original_forward = trained.forward
    trained.forward = lambda *given, **named: pytest.fail("the trainer's wrapper")
    trained.model.register_forward_hook(lambda *_: None)
    first = next(trained.parameters())
    first.grad = torch.ones_like(first)
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    before, config = attributes(trained), copy.deepcopy(trained.config.to_dict())
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
    tokens = tokenizer.backend_tokenizer.to_str(), tokenizer.model_max_length
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with LiveModel(trained, tokenizer) as live:
            engine = live.open(live.info, ModelSettings())
            scored = engine.answer(REQUESTS)
            torch.rand(3)
            engine.close()
        assert torch.is_autocast_enabled("cpu")
        assert torch.is_grad_enabled()
    assert all(isinstance(one.logprob, float) for one in scored[:2])  # type: ignore[union-attr]
    assert attributes(trained) == before
    assert trained.config.to_dict() == config
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states  # type: ignore[index]
    assert (tokenizer.backend_tokenizer.to_str(), tokenizer.model_max_length) == tokens
    assert first.grad is not None
    assert bool((first.grad == 1).all())


def test_what_a_model_changes_in_itself_at_rest_is_undone() -> None:
    """As rotary embeddings do that grow with the text: a tensor made in inference mode would break the training."""
    module = torch.nn.Linear(2, 2)
    module.register_buffer("table", torch.zeros(2), persistent=False)
    module.device = torch.device("cpu")  # type: ignore[assignment]
    table = module.table
    with at_rest(module), torch.inference_mode():
        module.table = torch.ones(3)
        module.longest = 3  # type: ignore[assignment]
    assert module.table is table
    assert not hasattr(module, "longest")


def test_a_compiled_or_replicated_model_is_scored_by_its_own_code(model: Any) -> None:
    expected = live_print(*model)
    assert live_print(torch.compile(model[0], backend="eager"), model[1]) == expected
    assert live_print(torch.nn.DataParallel(model[0]), model[1]) == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda model: (model, None), "run: a model is scored with its tokenizer; give tokenizer="),
        (
            lambda model: ("llama", 1),
            "model is a str, which is no model; give a loaded one, or checkpoint=PATH",
        ),
        (
            lambda model: (copy.deepcopy(model).to("meta"), 1),
            "is on the meta device, without numbers; load the model first",
        ),
        (
            lambda model: (torch.nn.Linear(2, 2), 1),
            "Linear is no model of Transformers or PEFT, with a config",
        ),
        (lambda model: (model, "words"), "run: cannot be scored (AttributeError: 'str' object"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_a_line(given: Any, told: str, model: Any) -> None:
    scored, tokenizer = given(model[0])
    with pytest.raises(CheckpointError) as raised:
        LiveModel(scored, tokenizer, "runs/a/run")
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_sharded_model_is_refused(model: Any) -> None:
    next(iter(model[0].parameters())).ds_status = "not here"
    with pytest.raises(CheckpointError, match=naming("sharded", "gather", "saved")):
        LiveModel(*model)


def test_its_name_is_its_class_or_its_place_in_a_training(model: Any) -> None:
    with LiveModel(*model) as live:
        assert (live.info.name, live.info.training.global_step) == ("LlamaForCausalLM", None)
    with LiveModel(model[0], model[1], "runs/a/checkpoint-40") as live:
        info = live.info
        assert (info.name, str(info.path), info.training.global_step) == (
            "checkpoint-40",
            "runs/a/checkpoint-40",
            40,
        )


RANK = """
import sys
import torch.distributed as distributed
from pytest_touchstone.engines.transformers.live import FirstProcess

rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
first = FirstProcess()
print([first.broadcast((rank, step) if rank == 0 else None) for step in range(3)])
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_the_processes_of_a_training_learn_what_the_first_one_finds(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RANK]
    started = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    assert {process.communicate(timeout=300)[0] for process in started} == {"[(0, 0), (0, 1), (0, 2)]\n"}


def test_a_training_of_one_process_waits_for_none() -> None:
    assert FirstProcess().broadcast("all") == "all"


# Between the processes


class Answering:
    """A model that answers with the texts it is asked, in reverse order."""

    info = SimpleNamespace(name="live")

    def fingerprint(self) -> str:
        raise CheckpointError("gone")

    def open(self, info: Any, settings: Any) -> Any:
        return self

    texts_together = 3
    usage: dict[str, Any] = {"tokens": 7}  # noqa: RUF012

    def answer(self, requests: Any, done: Any = None) -> list[Any]:
        if requests == ["break"]:
            raise ZeroDivisionError("by zero")
        for number in reversed(range(1, len(requests))):
            done(number, requests[number])
        return list(requests)

    def too_long(self, requests: Any) -> list[int]:
        return [1]

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def engine() -> Any:
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve, args=(Answering(), ours))
    thread.start()
    yield LiveEngine(SimpleNamespace(name="live"), theirs, ModelSettings())  # type: ignore[arg-type]
    theirs.close()
    thread.join(10)
    assert not thread.is_alive()


def test_answers_come_one_by_one_and_in_the_end_in_order(engine: Any) -> None:
    seen: list[Any] = []
    assert engine.answer(["a", "b", "c"], lambda *one: seen.append(one)) == ["a", "b", "c"]
    assert seen == [(2, "c"), (1, "b"), (0, "a")]
    assert (engine.texts_together, engine.usage, engine.too_long(["a"])) == (3, {"tokens": 7}, [1])


def test_what_a_receiver_raises_leaves_the_engine_able_to_answer(engine: Any) -> None:
    def done(number: int, answer: Any) -> None:
        raise KeyError(number)

    with pytest.raises(KeyError, match="2"):
        engine.answer(["a", "b", "c"], done)
    with pytest.raises(RuntimeError, match="ZeroDivisionError: by zero"):
        engine.answer(["break"])
    assert engine.answer(["d"]) == ["d"]


def test_a_process_that_ends_takes_the_run_with_it() -> None:
    ours, theirs = Pipe()
    ours.close()
    with pytest.raises(ServerError, match=naming("ended", "same call")):
        LiveEngine(SimpleNamespace(name="live"), theirs, ModelSettings())  # type: ignore[arg-type]


@pytest.mark.parametrize("number", ["", "none", "987"])
def test_nobody_can_name_a_model_in_memory_from_outside(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOUCHSTONE_LIVE", number)
    with pytest.raises(CheckpointError, match=naming("live:x", "evaluate(model=...)", "path")):
        resolve("live:x", seq_len=None)
    assert LiveFactory.targets == ("live:",)


def test_ways_are_taken_from_memory_for_a_model_that_computes_as_a_loaded_one(whole: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(whole)
    assert is_plain(model)
    hook = model.lm_head.register_forward_hook(lambda *_: None)
    assert not is_plain(model)
    hook.remove()
    model.lm_head.forward = lambda rows: rows
    assert not is_plain(model)
    del model.lm_head.forward
    assert is_plain(model)

    class Own(torch.nn.Linear):
        pass

    model.lm_head = Own(2, 2)
    assert not is_plain(model)
