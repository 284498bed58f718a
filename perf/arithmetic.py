"""The speed of scoring as a share of the machine's.

Useful arithmetic counts each distinct token once (a token after a prefix that no other request had before), with 2
operations per parameter without the embeddings. It adds the output layer at each distinct place whose logits are
needed, and leaves out the products of attention. It is compared with ``torch.mm`` on the same threads, with matrices
of the model's own shapes in the same proportions.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.requests import Loglikelihood
from pytest_touchstone.engines.settings import Dtype, ModelSettings
from pytest_touchstone.engines.transformers.loading import load_model
from pytest_touchstone.engines.transformers.token_work import ScoringPlan, plan
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer

REPEATS = 7


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of all requests one by one, distinct ones, and distinct places whose logits are needed."""

    total: int
    distinct: int
    logits: int


@dataclass(frozen=True, slots=True)
class Share:
    """The operations that scoring cannot do without, and the operations per second of ``torch.mm`` on such
    matrices."""

    tokens: Tokens
    parameters: int
    operations: float
    mm: float
    threads: int

    def of(self, seconds: float) -> float:
        """Return the share of that speed that was reached."""
        return self.operations / seconds / self.mm


def measure(
    model: Path, requests: Iterable[Loglikelihood], *, dtype: Dtype, device: str, threads: int, rows: int
) -> Share:
    """Count the requests' tokens and time ``torch.mm`` with ``rows`` rows."""
    import torch

    (info,) = resolve(str(model), seq_len=None)
    loaded = load_model(info, ModelSettings(dtype=dtype, device=device, threads=threads))
    table = loaded.model.get_input_embeddings().weight
    tokenizer = TextTokenizer(loaded.tokenizer)
    plans = [plan(one, tokenizer, seq_len=info.seq_len, rows=len(table)) for one in requests]
    tokens = count(
        (work.inputs, work.targets) for made in plans if isinstance(made, ScoringPlan) for work in made.work
    )
    output = loaded.model.get_output_embeddings().weight
    inside = [one for one in loaded.model.parameters() if one is not table and one is not output]
    parameters = sum(one.numel() for one in inside)
    shapes = Counter(tuple(one.shape) for one in inside if one.dim() == 2)
    operations = 2.0 * parameters * tokens.distinct + 2.0 * output.numel() * tokens.logits
    seconds_token = sum(many * _seconds_a_row(shape, table, rows) for shape, many in shapes.items())
    seconds_logit = _seconds_a_row(tuple(output.shape), table, rows)
    within = 2.0 * sum(many * shape[0] * shape[1] for shape, many in shapes.items())
    multiplied = within * tokens.distinct + 2.0 * output.numel() * tokens.logits
    least = seconds_token * tokens.distinct + seconds_logit * tokens.logits
    return Share(tokens, parameters, operations, multiplied / least, torch.get_num_threads())


def count(sequences: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Tokens:
    """Count over the tree of all prefixes; a sequence is its inputs, and targets for the last of them."""
    numbers: dict[tuple[int, int], int] = {}
    needed: set[int] = set()
    total = 0
    for inputs, targets in sequences:
        node = 0
        total += len(inputs)
        for position, token in enumerate(inputs):
            node = numbers.setdefault((node, token), len(numbers) + 1)
            if position >= len(inputs) - len(targets):
                needed.add(node)
    return Tokens(total, len(numbers), len(needed))


def _seconds_a_row(shape: tuple[int, ...], like: Any, rows: int) -> float:
    """Return the seconds per row that ``torch.mm`` takes with a matrix of this shape: the median of several calls."""
    import torch

    weight = torch.randn(shape, dtype=torch.float32).to(like)
    given = torch.randn((rows, shape[1]), dtype=torch.float32).to(like)

    def multiply() -> None:
        torch.mm(given, weight.t())

    with torch.no_grad():
        return _median_seconds(multiply, like.device.type) / rows


def _median_seconds(work: Callable[[], None], device: str) -> float:
    import torch

    def finish() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    taken = []
    for _ in range(REPEATS + 2):
        finish()
        began = time.perf_counter()
        work()
        finish()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[2:])
