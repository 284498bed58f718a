"""Waits of the host for the device, counted on a CPU: while it reads the scores of a pass, the device computes more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_touchstone.core.requests import Generate, Loglikelihood
from pytest_touchstone.engines.transformers import scoring
from pytest_touchstone.engines.transformers.causal import CausalEngine
from tests.support.engines import ON_CPU, before_each_pass, engine_for
from tests.support.families import SHOTS, causal_of
from tests.support.generating import texts

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


def test_the_count_sees_the_wait_for_each_token_of_a_text(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_for(llama)
    texts(engine, [Generate("a", max_new_tokens=1)])
    with events_of(engine, monkeypatch) as events:
        texts(engine, [Generate(SHOTS, max_new_tokens=20)])
    assert turns(events) > 15


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
