"""The divergence of a candidate's next-token distributions from a reference's, token by token.

With p of the reference and q of the candidate, over the whole vocabulary, the Kullback-Leibler divergence (1951, Annals
of Mathematical Statistics 22) in nats is

    KL(p || q) = sum of p (log p - log q)

Log-probabilities are computed in float64 from each model's float32 logits. Both models are given the same sequences in
the same batches, so that a model diverges by exactly 0 from itself. Without room for both, the reference goes first,
and its logits wait in a temporary file as they are: nothing is rounded.

A served candidate tells its most probable tokens K only. All others taken as one token, the divergence is at least

    sum over K of p (log p - log q)  +  p_rest (log p_rest - log q_rest)

(log-sum inequality, Cover and Thomas 2006, theorem 2.7.1). There is no upper bound: q of a token that is not told may
be as small as it likes.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.settings import shown_size
from pytest_touchstone.engines.transformers.causal import CausalEngine
from pytest_touchstone.engines.transformers.devices import bytes_of_weights, free_memory, release
from pytest_touchstone.engines.transformers.loading import load_tokenizer
from pytest_touchstone.engines.transformers.mtp import load_tokenizer as load_mtp_tokenizer
from pytest_touchstone.engines.transformers.token_work import TokenWork
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer

if TYPE_CHECKING:
    import torch

MOST: Final = 20
"""The most probable tokens that a server is asked for: as many as vLLM gives by default."""

_LEAST_REST: Final = 1e-6
"""The least probability that the tokens which are not told are taken to have: the told ones are rounded."""

_AT_ONCE: Final = 64
"""The distributions that are compared at once, in float64."""

_BESIDE: Final = 2
"""The memory that a second model takes while it is loaded, in weights of the first."""


class ComparedCheckpoint(NamedTuple):
    """A checkpoint, and the function that opens it."""

    info: CheckpointInfo
    open: Callable[[], Engine]


@dataclass(slots=True)
class Divergences:
    """The divergence at each token of the texts, in any order.

    Attributes:
        documents: The index of the text of each token.
        windows: The index of the sequence of each token.
        kl: The divergence (nats).
        same_top: Whether both models have the same most probable token.
        reference: The token's log-probability (nats) in the reference.
        candidate: The token's log-probability (nats) in the candidate.
        dtypes: The types that reference and candidate compute in.
        notes: The notes of both engines.
        vocabulary: The number of tokens compared.
        left_out: The number of tokens that only one model has; they are in no text here.

    """

    documents: list[int] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    same_top: list[bool] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    candidate: list[float] = field(default_factory=list)
    dtypes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    vocabulary: int = 0
    left_out: int = 0


def divergences(
    texts: Sequence[str], reference: ComparedCheckpoint, candidate: ComparedCheckpoint
) -> Divergences:
    """Return the divergences of a candidate at every token of the texts; lower bounds for a served one.

    Raises:
        CheckpointError: If the tokenizers differ (checked before a model is loaded), a checkpoint cannot be loaded, a
            model makes no distribution of a text, or a divergence is infinite.

    """
    if not candidate.info.served:  # whose tokens have been checked by asking for them
        _check_tokenizers(texts, reference.info, candidate.info)
    totals = Divergences()
    with ExitStack() as kept:
        first = kept.enter_context(closing(reference.open()))
        assert isinstance(first, CausalEngine), "the reference is a causal model of this engine"
        made = first.windows(texts)
        works = [work for sequences in made for work in sequences]
        owners = [number for number, sequences in enumerate(made) for _ in sequences]
        batches = first.batches(works)
        parts = [[works[number] for number in batch] for batch in batches]
        about = [_dtype(first), *first.notes]
        waiting = _reference_logits(first, parts, kept)
        second: Any = kept.enter_context(closing(candidate.open()))  # an ``HttpEngine`` of a served candidate
        if isinstance(second, CausalEngine):
            second.windows(texts)  # there may be a token that it does not know
        for batch, batch_works, expected in zip(batches, parts, waiting, strict=True):
            if isinstance(second, CausalEngine):
                _add_divergences(totals, batch_works, expected, second.logits(batch_works), candidate.info)
            else:
                _add_bounds(totals, batch_works, expected, second.most_probable(batch_works, MOST))
            tokens = [number for number in batch for _ in works[number].targets]
            totals.windows += tokens
            totals.documents += [owners[number] for number in tokens]
        totals.dtypes = (about[0], _dtype(second))
        notes = second.notes if isinstance(second, CausalEngine) else candidate.info.served["notes"]
        totals.notes = (*dict.fromkeys((*about[1:], *notes)),)
    return totals


def _dtype(engine: Engine) -> str:
    if isinstance(engine, CausalEngine):
        return str(engine.loaded.model.dtype).removeprefix("torch.")
    return "the server's"


def _check_tokenizers(texts: Sequence[str], reference: CheckpointInfo, candidate: CheckpointInfo) -> None:
    """Raise ``CheckpointError`` unless both tokenizers agree on the texts and on shared tokens."""
    tokenizers = [_tokenizer(info) for info in (reference, candidate)]
    tokens, candidate_tokens = (
        {token_id: token for token, token_id in tokenizer.get_vocab().items()} for tokenizer in tokenizers
    )
    # Added tokens may be renamed, and are in no text.
    added = {token_id for tokenizer in tokenizers for token_id in tokenizer.added_tokens_decoder}
    shared = sorted((tokens.keys() & candidate_tokens.keys()) - added)
    differing = next(
        (token_id for token_id in shared if tokens[token_id] != candidate_tokens[token_id]), None
    )
    first, second = map(TextTokenizer, tokenizers)
    difference = ""
    if differing is not None:
        difference = (
            f"token {differing} is {tokens[differing]!r} to the reference and {candidate_tokens[differing]!r} "
            "to the candidate"
        )
    elif first.start != second.start:
        difference = (
            f"texts begin with token {first.start} for the reference and {second.start} for the candidate"
        )
    else:
        number = next((n for n, text in enumerate(texts, 1) if first.text(text) != second.text(text)), 0)
        difference = f"document {number} has other tokens" if number else ""
    if difference:
        raise CheckpointError(
            f"{candidate.source}: its tokenizer is not that of {reference.source} ({difference}); distributions over "
            "different vocabularies have no divergence: compare their scores on benchmarks"
        )


def _tokenizer(info: CheckpointInfo) -> Any:
    if info.base is not None and info.tokenizer != info.path:
        info = info.base
    return load_mtp_tokenizer(info) if info.format == "mtp" else load_tokenizer(info)


def _reference_logits(
    first: CausalEngine, parts: Sequence[Sequence[TokenWork]], kept: ExitStack
) -> Iterator[torch.Tensor]:
    """Return an iterator of each batch's logits.

    They are computed on demand where there is memory for both models. Else they are computed now and read from a file,
    and the engine is closed.

    Raises:
        CheckpointError: If there is no room for the file either.

    """
    model, rows = first.loaded.model, first.budget.vocabulary
    free = free_memory(model.device)
    if free is None or free > _BESIDE * bytes_of_weights(model):
        return map(first.logits, parts)
    needed = 4 * rows * sum(len(work.targets) for batch_works in parts for work in batch_works)
    if shutil.disk_usage(tempfile.gettempdir()).free < needed:
        raise CheckpointError(
            f"{first.info.source}: no room in memory for both models, nor for {shown_size(needed)} of logits in "
            f"{tempfile.gettempdir()}; set TMPDIR to a larger disk, or compare fewer documents"
        )
    file = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the rest
    for batch_works in parts:
        first.logits(batch_works).cpu().numpy().tofile(file)
    file.seek(0)
    device = model.device
    del model
    kept.close()
    kept.enter_context(file)
    release(device)
    return (_read(file, batch_works, rows) for batch_works in parts)


def _read(file: Any, works: Sequence[TokenWork], rows: int) -> torch.Tensor:
    import numpy as np
    import torch

    numbers = np.fromfile(file, np.float32, rows * sum(len(work.targets) for work in works))
    return torch.from_numpy(numbers.reshape(-1, rows))


def _add_divergences(
    totals: Divergences,
    works: Sequence[TokenWork],
    expected: torch.Tensor,
    given: torch.Tensor,
    candidate: CheckpointInfo,
) -> None:
    """Add the divergences of a batch; both have logits [tokens, vocabulary].

    Raises ``CheckpointError`` where one is not finite.
    """
    import torch

    rows = sorted((expected.shape[1], given.shape[1]))
    totals.vocabulary, totals.left_out = rows[0], rows[1] - rows[0]
    device = torch.device("cpu") if given.device.type == "mps" else given.device  # which has no float64
    targets = torch.tensor([target for work in works for target in work.targets])
    for begin in range(0, len(targets), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        logits = [tensor[some, : rows[0]].to(device).double() for tensor in (expected, given)]
        p, q = (side_logits.log_softmax(-1) for side_logits in logits)
        # What the reference never says adds nothing, whatever the candidate makes of it.
        terms = torch.where(p.isneginf(), 0.0, p.exp() * (p - q))
        asked = targets[some, None].to(device)
        columns = terms.sum(-1).clamp(min=0.0), p.gather(1, asked)[:, 0], q.gather(1, asked)[:, 0]
        for values, more in zip((totals.kl, totals.reference, totals.candidate), columns, strict=True):
            values.extend(more.tolist())
            if not all(map(math.isfinite, values[-len(more) :])):
                raise CheckpointError(
                    f"{candidate.source}: a divergence or a log-probability is not finite: a model rules out what "
                    "occurs, or its weights are broken; try --dtype float32"
                )
        totals.same_top += (p.argmax(-1) == q.argmax(-1)).tolist()


def _add_bounds(
    totals: Divergences,
    works: Sequence[TokenWork],
    expected: torch.Tensor,
    served: Sequence[list[dict[int, float]]],
) -> None:
    """Add the lower bounds of a batch; the reference has logits [tokens, vocabulary].

    Raises ``CheckpointError`` where a token is none of the reference's.
    """
    import torch

    totals.vocabulary = expected.shape[1]
    targets = [target for work in works for target in work.targets]
    top_logprobs = [logprobs for rows in served for logprobs in rows]
    for row, target, logprobs in zip(expected, targets, top_logprobs, strict=True):
        if max(logprobs) >= totals.vocabulary:
            raise CheckpointError(
                f"the server knows a token {max(logprobs)}, and the reference {totals.vocabulary:,} tokens: "
                "it serves another model"
            )
        p = row.cpu().double().log_softmax(-1)
        p_top = p[list(logprobs)]
        q_top = torch.tensor(list(logprobs.values()), dtype=torch.float64)
        p_rest, q_rest = (max(_LEAST_REST, 1 - float(side.exp().sum())) for side in (p_top, q_top))
        bound = float((p_top.exp() * (p_top - q_top)).sum()) + p_rest * math.log(p_rest / q_rest)
        totals.kl.append(max(0.0, bound))
        totals.reference.append(float(p[target]))
        totals.candidate.append(logprobs[target])
        totals.same_top.append(int(p.argmax()) == max(logprobs, key=logprobs.__getitem__))
