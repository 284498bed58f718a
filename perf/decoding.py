"""A pass that continues texts by one token each, against what its products and its weights' bytes take at least.

    python -m perf decoding --rows 1 4 32 --prefix 700 --own 100 [--dtype bfloat16] [--threads 1 2]

The products' floor is the time of ``torch.mm`` with the same shapes, one product after the other, as fast as it is for
``--mm-rows`` rows. The bytes' floor is the time in which all weights are read once, at the speed of a sum over as many
bytes. Attention has a floor of its own, which comes on top: its products at the same speed, or its keys and values read
once, whichever takes longer. Times are the least of ``--repeats``.

Beside them stand the parts of the pass, each measured alone: the model's own products, one after the other, and the
attention of all layers by torch. The rest is what remains, less than nothing where the kernels compute whole steps. The
choice of the most probable tokens comes after the pass. With ``--plain`` the pass goes through the model's own code
around the layers. ``--threads`` may name several numbers.

A row alone has its prefix in its own slot, as where texts are generated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from perf.measure import table
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.attention_masks import Attention, attention_of
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.fused_layers import fuse
from pytest_touchstone.engines.transformers.fused_steps import fuse_steps, prepare_steps
from pytest_touchstone.engines.transformers.generation.sequence import DrawKey, SamplingParams, choose
from pytest_touchstone.engines.transformers.generation.step import DecodeStep
from pytest_touchstone.engines.transformers.kv_cache import SlotCache
from pytest_touchstone.engines.transformers.logits import SelectiveLogits
from pytest_touchstone.engines.transformers.memory import first_batch_budget
from pytest_touchstone.engines.transformers.pool import load_weights
from pytest_touchstone.engines.transformers.scoring import PrefixTreeScorer
from pytest_touchstone.engines.transformers.split_attention import attended, splitting
from pytest_touchstone.engines.transformers.work_done import WorkDone


def main() -> None:
    """Print a row for each number of rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", default="builtin:smollm2-135m")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 32, 64])
    parser.add_argument("--prefix", type=int, default=700, help="tokens before all rows")
    parser.add_argument("--own", type=int, default=100, help="tokens of each row")
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--plain", action="store_true", help="do not fuse the steps")
    parser.add_argument("--mm-rows", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    import torch

    (info,) = resolve(options.checkpoint, seq_len=None)
    found = []
    with quiet(), torch.inference_mode():
        model = load_weights(info, ModelSettings(dtype=options.dtype, device="cpu")).model
        shapes = [
            (one.in_features, one.out_features) for one in model.modules() if isinstance(one, torch.nn.Linear)
        ]
        fuse(model)
        cpu.Packer(model).pack(model)
        if not options.plain:
            fuse_steps(model)
            prepare_steps(model)
        size = sum(inner * outer for inner, outer in shapes)
        for threads in options.threads:
            torch.set_num_threads(threads)
            reading = _reading(size, model.dtype, options.repeats)
            for rows in options.rows:
                floor = _products(shapes, rows, model.dtype, options)
                attention = _attention_floor(model, rows, options, floor / (rows * size), reading / size)
                floors = _Floors(floor, reading, attention)
                found.append((threads, rows, floors, _pass(model, info.seq_len, rows, options)))
    print(table(_COLUMNS, [_row(*one) for one in found]))


_COLUMNS: Final = [
    *("threads", "rows", "ms", "products' floor, ms", "reading, ms", "attention's floor, ms"),
    *("share of the higher floor", "with attention's"),
    *("products, ms", "attention, ms", "rest, ms", "choice, ms"),
]


class _Parts(NamedTuple):
    """Seconds of a pass, and of its parts."""

    whole: float
    products: float
    attention: float
    choice: float


class _Floors(NamedTuple):
    """Seconds that a pass takes at least: by its products or by reading its weights, and for its attention beside."""

    products: float
    reading: float
    attention: float


def _row(threads: int, rows: int, floors: _Floors, took: _Parts) -> list[str]:
    higher = max(floors.products, floors.reading)
    times = [took.whole, *floors]
    parts = [took.products, took.attention, took.whole - took.products - took.attention, took.choice]
    shares = [f"{one / took.whole:.0%}" for one in (higher, higher + floors.attention)]
    return [str(threads), str(rows), *map(_shown, times), *shares, *map(_shown, parts)]


def _shown(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def _pass(model: Any, seq_len: int, rows: int, options: argparse.Namespace) -> _Parts:
    """Return the seconds of a pass with so many rows."""
    attention = attention_of(model)
    assert isinstance(attention, Attention), attention
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    done, budget = WorkDone(), first_batch_budget(model, vocabulary)
    needed = SelectiveLogits(model, done)
    stepper = DecodeStep(model, needed, attention, budget=budget, done=done)
    scorer = PrefixTreeScorer(model, needed, attention, budget=budget, done=done)
    slots = SlotCache(scorer.prefix(tuple((11 * at + 5) % 997 for at in range(options.prefix))))
    if rows == 1:
        slots.own()
    with splitting(model):
        stepper.fill(slots, [[(3 * at + row) % 997 for at in range(options.own)] for row in range(rows)])
        assert max(slots.lengths) + slots.past < seq_len

        def once() -> Any:
            logits = stepper.step_all([slots], [[5] * rows])
            slots.lengths = [length - 1 for length in slots.lengths]
            return logits

        logits = once()
        whole = _least(once, options.repeats)
    needed.close()
    greedy = [DrawKey(SamplingParams(), 0, 0, 0)] * rows
    return _Parts(
        whole,
        _least(_own_products(model, rows), options.repeats),
        _least(_own_attention(model, slots, rows), options.repeats),
        _least(lambda: choose(logits, greedy), options.repeats),
    )


def _own_products(model: Any, rows: int) -> Callable[[], None]:
    """Return what computes the model's linear layers, one after the other, with so many rows."""
    import torch

    layers = [
        one for one in model.modules() if isinstance(one, torch.nn.Linear) and not hasattr(one, "whole")
    ]
    inputs = {one.in_features: torch.randn(rows, one.in_features, dtype=model.dtype) for one in layers}

    def compute() -> None:
        for one in layers:
            one.forward(inputs[one.in_features])

    return compute


def _own_attention(model: Any, slots: SlotCache, rows: int) -> Callable[[], None]:
    """Return what attends for each layer, once for each row, to what the slots hold."""
    import torch

    config = model.config.get_text_config()
    until = max(slots.lengths) + 1
    slots.aim(0, rows, until - 1, until)
    width = slots.seen(0)[0].shape[-1]
    asked = torch.randn(rows, config.num_attention_heads, 1, width, dtype=model.dtype)
    mask = torch.zeros(rows, 1, 1, until, dtype=model.dtype)

    def compute() -> None:
        for layer in range(config.num_hidden_layers):
            attended(asked, slots.seen(layer), mask, width**-0.5).flatten(2)

    return compute


def _products(shapes: list[tuple[int, int]], rows: int, dtype: Any, options: argparse.Namespace) -> float:
    """Return the seconds that the products of so many rows take at the speed of ``torch.mm``."""
    import torch

    seconds = 0.0
    for (inner, outer), count in {one: shapes.count(one) for one in shapes}.items():
        left = torch.randn(options.mm_rows, inner, dtype=dtype)
        right = torch.randn(inner, outer, dtype=dtype)
        took = _least(lambda left=left, right=right: torch.mm(left, right), 5)  # type: ignore[misc]
        seconds += count * took * rows / options.mm_rows
    return seconds


def _attention_floor(
    model: Any, rows: int, options: argparse.Namespace, per_product: float, per_number: float
) -> float:
    """Return the seconds that attention takes at least, at so many per product and per number that is read."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    own_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    seconds = 0.0
    for tokens, copies in ((options.prefix, 1), (options.own + 1, rows)):
        products, numbers = rows * heads * tokens, copies * own_heads * tokens
        seconds += 2 * width * max(products * per_product, numbers * per_number)
    return float(seconds * config.num_hidden_layers)


def _reading(count: int, dtype: Any, repeats: int) -> float:
    """Return the seconds in which so many numbers are read."""
    import torch

    numbers = torch.zeros(count * dtype.itemsize // 4, dtype=torch.float32)
    return _least(numbers.sum, repeats)


def _least(work: Callable[[], object], repeats: int) -> float:
    found = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found[2:])


if __name__ == "__main__":
    main()
