"""Blocks of steps, as on an accelerator, on a CPU: against the plain step, and the waits of the host counted."""

from __future__ import annotations

import cProfile
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_touchstone.core.requests import Generate, Loglikelihood
from pytest_touchstone.engines.transformers import causal, scoring
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.generation import ahead, sequence
from pytest_touchstone.engines.transformers.generation.ahead import STEPS, AheadStepper
from pytest_touchstone.engines.transformers.split_attention import operation_for
from tests.support.engines import ON_CPU, before_each_pass, engine_for
from tests.support.families import SHOTS, causal_of
from tests.support.generating import prompts, texts, with_samples

pytestmark = ON_CPU

_WAITS = ("tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__")


class _Waits(TorchDispatchMode):
    """Notes operations whose result's shape or value the host must know, which is a wait on an accelerator."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self._events = events

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        indices = args[1] if name in ("aten::index", "aten::index_put_") else ()
        masks = [one for one in indices if one is not None and one.dtype == torch.bool]
        if masks or name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"):
            self._events.append("wait")
        if name == "aten::lift_fresh":
            self._events.append("sent")
        return func(*args, **(kwargs or {}))


@contextmanager
def events_of(engine: CausalEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The passes of the model, the host's waits for the device, and what it sends, in their order."""
    events: list[str] = []

    def noted(right: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*arguments: Any, **more: Any) -> Any:
            events.append("wait")
            return right(*arguments, **more)

        return wait

    before_each_pass(engine, lambda _shape: events.append("pass"))
    with monkeypatch.context() as patch, _Waits(events):
        for name in _WAITS:
            patch.setattr(torch.Tensor, name, noted(getattr(torch.Tensor, name)))
        yield events


def turns(events: list[str]) -> int:
    """How often the host waited with nothing given to the device since: a wait after another waits for nothing."""
    return sum(kind == "wait" for kind, _ in groupby(one for one in events if one != "sent"))


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal, "AHEAD", {"cpu"})


def stepper_of(engine: CausalEngine) -> Any:
    return engine._generator()._stepper  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "family",
    [
        *("llama", "gemma2"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "qwen2 sliding")),
    ],
)
def test_texts_in_blocks_are_those_of_plain_steps(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = causal_of(tmp_path, family)
    asked = [*prompts(), *with_samples()]
    asked += [Generate(one.prompt, max_new_tokens=25, stop=("a", "e ")) for one in prompts()[:4]]
    plain = engine_for(model)
    wanted = texts(plain, asked)
    assert not isinstance(stepper_of(plain), AheadStepper)
    monkeypatch.setattr(causal, "AHEAD", {"cpu"})
    engine = engine_for(model)
    assert isinstance(stepper_of(engine), AheadStepper)
    assert texts(engine, asked) == wanted
    assert texts(engine_for(model, batch=3), asked) == wanted
    assert engine.notes == []


def test_a_step_that_is_replayed_gives_the_same_texts(
    llama: Path, monkeypatch: pytest.MonkeyPatch, in_blocks: None
) -> None:
    asked = [
        Generate(f"{SHOTS} {word}", max_new_tokens=50, temperature=temperature, samples=samples, seed=4)
        for word in ("one", "two")
        for temperature, samples in ((0.0, 1), (1.0, 3))
    ]
    with monkeypatch.context() as patch:
        patch.setattr(causal, "AHEAD", frozenset())
        wanted = texts(engine_for(llama), asked)
    replayed = []

    class Replay:
        def __init__(self, step: Callable[[], None]) -> None:
            self._step = step

        def replay(self) -> None:
            replayed.append(1)
            self._step()

    engine = engine_for(llama)
    monkeypatch.setattr(stepper_of(engine), "_capture", Replay)
    assert texts(engine, asked) == wanted
    assert len(replayed) > STEPS


@given(st.integers(1, 600))
def test_rows_are_rounded_up_by_less_than_8_or_a_quarter_to_few_numbers(rows: int) -> None:
    found = ahead.rounded(rows)
    assert 0 <= found - rows < max(8, rows / 4)
    assert found == ahead.rounded(found)
    assert len({ahead.rounded(one) for one in range(1, 257)}) == 16


class Shapes:
    """Stands for what makes graphs, and notes how many rows each step has that was captured or replayed."""

    def __init__(self, stepper: Any) -> None:
        self.captured: list[tuple[int, ...]] = []
        self.replayed = self.launched = 0
        right = stepper._run

        def run(block: Any, caches: Any) -> None:
            self.now, self.launched = block.shape.rows, self.launched + 1
            right(block, caches)

        stepper._run, stepper._capture = run, self

    def __call__(self, step: Callable[[], None]) -> Any:
        self.captured.append(self.now)

        def replay() -> None:
            self.replayed += 1
            step()

        return SimpleNamespace(replay=replay)


def test_rows_that_end_one_after_the_other_need_few_graphs(llama: Path, in_blocks: None) -> None:
    asked = [
        Generate(f"{SHOTS} {number}", max_new_tokens=2 + number, temperature=0.7, seed=number)
        for number in range(40)
    ]
    engine = engine_for(llama)
    shapes = Shapes(stepper_of(engine))
    engine.answer(asked)
    assert len(shapes.captured) <= len({ahead.rounded(one) for one in range(1, 41)}) + 1, (
        "one more, once trimmed"
    )
    assert shapes.replayed > shapes.launched // 2


def test_rows_at_their_most_tokens_stand_still_while_others_go_on(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cut no block short, and take no position that the model does not have."""
    asked = [
        Generate(f"{SHOTS} {word}", max_new_tokens=tokens)
        for word, tokens in (("one", 3), ("two", 4), ("three", 2 + 2 * STEPS))
    ]
    wanted = texts(engine_for(llama), asked)
    assert [some[0][2] for some in wanted] == [3, 4, 2 + 2 * STEPS], "no text ends by itself"
    monkeypatch.setattr(causal, "AHEAD", {"cpu"})
    engine = engine_for(llama)
    blocks: list[int] = []
    right = AheadStepper._load

    def load(self: Any, *arguments: Any) -> None:
        blocks.append(arguments[-1])
        right(self, *arguments)

    monkeypatch.setattr(AheadStepper, "_load", load)
    beyond: list[bool] = []
    step = AheadStepper._step

    def stepped(self: Any, block: Any, caches: Any) -> None:
        step(self, block, caches)
        beyond.append(bool((block.columns > block.last).any()))

    monkeypatch.setattr(AheadStepper, "_step", stepped)
    assert texts(engine, asked) == wanted
    assert blocks == [STEPS, STEPS, 1]
    assert len(beyond) > 2 * STEPS
    assert not any(beyond[-2 * STEPS - 1 :])


@pytest.mark.parametrize("stop", [(), ("zq",), ("e q",)])
def test_a_row_adds_few_calls_to_a_step(llama: Path, in_blocks: None, stop: tuple[str, ...]) -> None:
    """Rows whose token cannot end a text are not looked at one by one."""

    def calls(rows: int, tokens: int) -> int:
        asked = [Generate(f"{SHOTS} {row % 7}{row}", max_new_tokens=tokens, stop=stop) for row in range(rows)]
        engine.answer(asked)  # what each token may end is known from then on
        profile = cProfile.Profile()
        profile.runcall(engine.answer, asked)
        return sum(one.callcount for one in profile.getstats())

    engine = engine_for(llama, batch=64)
    few, many = ((calls(rows, 1 + 4 * STEPS) - calls(rows, 1 + STEPS)) / (3 * STEPS) for rows in (4, 60))
    assert (many - few) / 56 < 5


def test_a_block_whose_top_p_needs_the_whole_vocabulary_goes_on_with_it(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_samples()
    wanted = texts(engine_for(llama), asked)
    monkeypatch.setattr(causal, "AHEAD", {"cpu"})
    monkeypatch.setattr(sequence, "_LIKELIEST", 3)
    engine = engine_for(llama)
    assert texts(engine, asked) == wanted
    assert stepper_of(engine)._complete


@pytest.mark.parametrize("temperature", [0.0, 1.1])
def test_the_host_waits_once_per_block_and_sends_its_numbers_once(
    llama: Path, monkeypatch: pytest.MonkeyPatch, in_blocks: None, temperature: float
) -> None:
    asked = [
        Generate(f"{SHOTS} {word}", max_new_tokens=1 + 4 * STEPS, temperature=temperature, top_p=0.9, seed=3)
        for word in ("one", "two", "three")
    ]
    engine = engine_for(llama)
    stepper_of(engine)  # the probe waits
    with events_of(engine, monkeypatch) as events:
        (first, *_) = texts(engine, asked)
    steps = first[0][2] - 1
    passes, blocks = events.count("pass"), -(-steps // STEPS)
    assert passes > steps > STEPS, "the texts are long enough to tell"
    fills = passes - blocks * STEPS
    assert turns(events) <= blocks + fills
    assert events.count("sent") < 2 * blocks + 16 * fills


def test_the_host_waits_for_each_token_without_blocks(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_for(llama)
    stepper_of(engine)
    with events_of(engine, monkeypatch) as events:
        texts(engine, [Generate(SHOTS, max_new_tokens=20)])
    assert turns(events) > 15, "the count sees waits"


@pytest.mark.parametrize("family", ["llama", "opt", "gemma2"])
def test_scores_are_read_after_the_next_pass_has_begun(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = causal_of(tmp_path, family)
    asked = [
        Loglikelihood(f"{SHOTS[:number]} one", f" {word}") for number in range(9, 60, 7) for word in "abcd"
    ]
    wanted = engine_for(model, batch=3).answer(asked)
    monkeypatch.setattr(scoring, "_UNREAD", {"cpu": 1})
    engine = engine_for(model, batch=3)
    assert engine.shares
    with events_of(engine, monkeypatch) as events:
        assert engine.answer(asked, lambda *_: events.append("answer")) == wanted
    order = [one for one in events if one != "sent"]
    passes = order.count("pass")
    assert passes > 3
    assert order.count("wait") <= passes, "one list per pass, however many rows it has"
    assert order.count("answer") == len(asked)
    assert "pass" in order[order.index("answer") :], (
        "answers are handed on while the device computes the others"
    )
    # Two passes have begun before the first is read.
    assert order[: order.index("wait")].count("pass") >= 2


def test_blocks_that_differ_are_not_used_and_the_notes_say_so(
    llama: Path, monkeypatch: pytest.MonkeyPatch, in_blocks: None
) -> None:
    wanted = texts(engine_for(llama), prompts())
    right = ahead.AheadStepper._alone

    def alone(self: Any, slots: Any, ids: Any, columns: Any, until: int) -> Any:
        return right(self, slots, ids, columns - 1 if isinstance(self, AheadStepper) else columns, until)

    monkeypatch.setattr(ahead.AheadStepper, "_alone", alone)
    engine = engine_for(llama)
    assert not isinstance(stepper_of(engine), AheadStepper)
    assert texts(engine, prompts()) == wanted
    (note,) = engine.notes
    assert "the host waits for each token" in note


class Graph:
    """One of torch's, which needs no GPU."""

    def pool(self) -> object:
        return self


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The memory that each capture is given, where the host stands for a GPU."""
    given: list[object] = []

    @contextmanager
    def captured(graph: Graph, *, pool: object, capture_error_mode: str) -> Iterator[None]:
        given.append(pool)
        assert not gc.isenabled(), "a graph that is freed meanwhile ends the capture"
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", captured)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: device)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    return given


def test_graphs_share_the_memory_of_the_first_one_which_stays(pools: list[object]) -> None:
    graphs = ahead.CudaGraphs(torch.device("cuda", 0))
    first = weakref.ref(graphs(lambda: None))
    assert isinstance(graphs(lambda: None), Graph)
    gc.collect()
    assert pools == [None, first()]
    assert first() is not None
    assert graphs.reason is None
    assert gc.isenabled()


def test_a_step_that_cannot_be_captured_says_why(pools: list[object]) -> None:
    def refused() -> None:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nfor debugging ...")

    graphs = ahead.CudaGraphs(torch.device("cuda", 0))
    assert graphs(refused) is None
    said = "RuntimeError: CUDA error: operation not permitted when stream is capturing"
    assert graphs.reason == f"a step cannot be captured ({said})"
    assert gc.isenabled()


def test_a_step_that_is_not_captured_is_told_once_and_launched(
    llama: Path, monkeypatch: pytest.MonkeyPatch, in_blocks: None
) -> None:
    asked = [Generate(f"{SHOTS} {word}", max_new_tokens=50) for word in ("one", "two")]
    wanted = texts(engine_for(llama), asked)
    engine = engine_for(llama)
    told: list[int] = []
    monkeypatch.setattr(stepper_of(engine), "_capture", lambda step: None)
    monkeypatch.setattr(stepper_of(engine), "_refused", lambda: told.append(1))
    assert texts(engine, asked) == wanted
    assert told == [1]


@pytest.mark.parametrize(
    ("device", "dtype", "width", "name"),
    [
        ("cpu", "torch.float32", 64, "flash_attention_for_cpu"),
        ("cuda", "torch.bfloat16", 128, "flash_attention"),
        ("cuda", "torch.float16", 256, "flash_attention"),
        ("cuda", "torch.float32", 128, "efficient_attention"),
        ("cuda", "torch.bfloat16", 512, "efficient_attention"),
        ("cuda", "torch.bfloat16", 60, None),
        ("mps", "torch.float16", 64, None),
    ],
)
def test_the_operation_over_a_shared_prefix_suits_the_device(
    device: str, dtype: str, width: int, name: str | None
) -> None:
    assert operation_for(device, dtype, width) == name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torch_has_these_operations_with_such_results(dtype: torch.dtype) -> None:
    """On tensors without numbers: the operations of a GPU cannot run here."""
    from pytest_touchstone.engines.transformers.split_attention import over_all_by

    asked = torch.empty((1, 2, 45, 64), dtype=dtype, device="meta")
    keys = torch.empty((1, 2, 70, 64), dtype=dtype, device="meta")
    name = operation_for("cuda", str(dtype), 64)
    assert name is not None
    over_all = over_all_by(name, asked, keys, keys)
    assert over_all is not None
    found, sums = over_all
    assert found.shape == asked.shape
    assert (sums.shape, sums.dtype) == ((1, 2, 45), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("keys", [70, 200])
def test_many_queries_of_a_row_attend_to_its_own_keys_by_efficient_attention(
    dtype: torch.dtype, keys: int
) -> None:
    """On tensors without numbers: the operations of a GPU cannot run here."""
    from pytest_touchstone.engines.transformers.split_attention import over_own

    asked, own = (torch.empty((3, 2, count, 64), dtype=dtype, device="meta") for count in (3 * keys, keys))
    mask = torch.empty((3, 1, 3 * keys, keys), dtype=dtype, device="meta")
    found, sums = over_own("flash_attention", asked, own, own, mask)
    assert (found.shape, found.dtype) == (asked.shape, dtype)
    assert (sums.shape, sums.dtype) == ((3, 2, 3 * keys), torch.float32)


def test_products_over_own_keys_are_what_the_operation_gives() -> None:
    from pytest_touchstone.engines.transformers.split_attention import over_own

    torch.manual_seed(0)
    asked, keys, values = torch.randn(3, 2, 4, 8), torch.randn(3, 2, 9, 8), torch.randn(3, 2, 9, 8)
    mask = torch.zeros(3, 1, 4, 9)
    mask[1, :, :, 5:] = torch.finfo(torch.float32).min
    for found, expected in zip(
        over_own("flash_attention", asked, keys, values, mask),
        over_own("flash_attention_for_cpu", asked, keys, values, mask),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)
