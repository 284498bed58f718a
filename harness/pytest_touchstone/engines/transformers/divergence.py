"""How far a candidate's distributions of the next token are from a reference's, at every token of texts.

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


class Side(NamedTuple):
    """A checkpoint, and the function that opens it."""

    info: CheckpointInfo
    open: Callable[[], Engine]


@dataclass(slots=True)
class Divergences:
    """A value for each token of the texts, in any order.

    ``documents`` and ``windows`` are the numbers of its text and of its sequence, ``kl`` is the divergence (nats),
    ``same_top`` whether both models have the same most probable token; ``reference`` and ``candidate`` are the token's
    log-probabilities (nats). ``dtypes`` are the types that the models computed in; ``vocabulary`` counts the tokens
    compared, ``left_out`` those that only one model has, which are no tokens of any text here.
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


def divergences(texts: Sequence[str], reference: Side, candidate: Side) -> Divergences:
    """Return the divergences of the candidate at every token of the texts; of a served one the lower bounds.

    Raises ``CheckpointError`` where the tokenizers differ, before a model is loaded, where a checkpoint cannot be
    loaded, or does not make a distribution of a text, and where a divergence is infinite.
    """
    if not candidate.info.served:  # whose tokens have been checked by asking for them
        _check_tokenizers(texts, reference.info, candidate.info)
    found = Divergences()
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
        for batch, part, expected in zip(batches, parts, waiting, strict=True):
            if isinstance(second, CausalEngine):
                _compare(found, part, expected, second.logits(part), candidate.info)
            else:
                _bound(found, part, expected, second.most_probable(part, MOST))
            tokens = [number for number in batch for _ in works[number].targets]
            found.windows += tokens
            found.documents += [owners[number] for number in tokens]
        found.dtypes = (about[0], _dtype(second))
        own = second.notes if isinstance(second, CausalEngine) else candidate.info.served["notes"]
        found.notes = (*dict.fromkeys((*about[1:], *own)),)
    return found


def _dtype(engine: Engine) -> str:
    if isinstance(engine, CausalEngine):
        return str(engine.loaded.model.dtype).removeprefix("torch.")
    return "the server's"


def _check_tokenizers(texts: Sequence[str], reference: CheckpointInfo, candidate: CheckpointInfo) -> None:
    """Raise ``CheckpointError`` unless texts are the same tokens to both, and the tokens the same text."""
    one, other = (_tokenizer(info) for info in (reference, candidate))
    pieces, others = ({number: piece for piece, number in each.get_vocab().items()} for each in (one, other))
    added = {
        *one.added_tokens_decoder,
        *other.added_tokens_decoder,
    }  # which may be renamed, and are in no text
    both = sorted((pieces.keys() & others.keys()) - added)
    apart = next((token for token in both if pieces[token] != others[token]), None)
    first, second = TextTokenizer(one), TextTokenizer(other)
    what = ""
    if apart is not None:
        what = f"token {apart} is {pieces[apart]!r} to the reference and {others[apart]!r} to the candidate"
    elif first.start != second.start:
        what = f"texts begin with token {first.start} for the reference and {second.start} for the candidate"
    else:
        number = next((n for n, text in enumerate(texts, 1) if first.text(text) != second.text(text)), 0)
        what = f"document {number} has other tokens" if number else ""
    if what:
        raise CheckpointError(
            f"{candidate.source}: its tokenizer is not that of {reference.source} ({what}); distributions over "
            "different vocabularies have no divergence: compare their scores on benchmarks"
        )


def _tokenizer(info: CheckpointInfo) -> Any:
    if info.base is not None and info.tokenizer != info.path:
        info = info.base
    return load_mtp_tokenizer(info) if info.format == "mtp" else load_tokenizer(info)


def _reference_logits(
    first: CausalEngine, parts: Sequence[Sequence[TokenWork]], kept: ExitStack
) -> Iterator[torch.Tensor]:
    """Return the logits of each batch: computed when they are asked for, beside the other model, where there is room
    for it; else computed now, and read from a file. Then the engine is closed.

    Raises ``CheckpointError`` where there is no room for the file either.
    """
    model, rows = first.loaded.model, first.budget.vocabulary
    free = free_memory(model.device)
    if free is None or free > _BESIDE * bytes_of_weights(model):
        return map(first.logits, parts)
    needed = 4 * rows * sum(len(work.targets) for part in parts for work in part)
    if shutil.disk_usage(tempfile.gettempdir()).free < needed:
        raise CheckpointError(
            f"{first.info.source}: no room in memory for both models, nor for {shown_size(needed)} of logits in "
            f"{tempfile.gettempdir()}; set TMPDIR to a larger disk, or compare fewer documents"
        )
    file = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the rest
    for part in parts:
        first.logits(part).cpu().numpy().tofile(file)
    file.seek(0)
    device = model.device
    del model
    kept.close()
    kept.enter_context(file)
    release(device)
    return (_read(file, part, rows) for part in parts)


def _read(file: Any, part: Sequence[TokenWork], rows: int) -> torch.Tensor:
    import numpy as np
    import torch

    numbers = np.fromfile(file, np.float32, rows * sum(len(work.targets) for work in part))
    return torch.from_numpy(numbers.reshape(-1, rows))


def _compare(
    found: Divergences,
    part: Sequence[TokenWork],
    expected: torch.Tensor,
    given: torch.Tensor,
    candidate: CheckpointInfo,
) -> None:
    """Add the divergences of a batch; both have logits [tokens, vocabulary].

    Raises ``CheckpointError`` where one is not finite.
    """
    import torch

    rows = sorted((expected.shape[1], given.shape[1]))
    found.vocabulary, found.left_out = rows[0], rows[1] - rows[0]
    device = torch.device("cpu") if given.device.type == "mps" else given.device  # which has no float64
    targets = torch.tensor([target for work in part for target in work.targets])
    for begin in range(0, len(targets), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        logits = [one[some, : rows[0]].to(device).double() for one in (expected, given)]
        p, q = (one.log_softmax(-1) for one in logits)
        # What the reference never says adds nothing, whatever the candidate makes of it.
        terms = torch.where(p.isneginf(), 0.0, p.exp() * (p - q))
        asked = targets[some, None].to(device)
        columns = terms.sum(-1).clamp(min=0.0), p.gather(1, asked)[:, 0], q.gather(1, asked)[:, 0]
        for values, more in zip((found.kl, found.reference, found.candidate), columns, strict=True):
            values.extend(more.tolist())
            if not all(map(math.isfinite, values[-len(more) :])):
                raise CheckpointError(
                    f"{candidate.source}: a divergence or a log-probability is not finite: a model rules out what "
                    "occurs, or its weights are broken; try --dtype float32"
                )
        found.same_top += (p.argmax(-1) == q.argmax(-1)).tolist()


def _bound(
    found: Divergences,
    part: Sequence[TokenWork],
    expected: torch.Tensor,
    told: Sequence[list[dict[int, float]]],
) -> None:
    """Add the lower bounds of a batch; the reference has logits [tokens, vocabulary].

    Raises ``CheckpointError`` where a token is none of the reference's.
    """
    import torch

    found.vocabulary = expected.shape[1]
    targets = [target for work in part for target in work.targets]
    places = [one for rows in told for one in rows]
    for row, target, known in zip(expected, targets, places, strict=True):
        if max(known) >= found.vocabulary:
            raise CheckpointError(
                f"the server knows a token {max(known)}, and the reference {found.vocabulary:,} tokens: "
                "it serves another model"
            )
        p = row.cpu().double().log_softmax(-1)
        mine = p[list(known)]
        theirs = torch.tensor(list(known.values()), dtype=torch.float64)
        rest = [max(_LEAST_REST, 1 - float(one.exp().sum())) for one in (mine, theirs)]
        bound = float((mine.exp() * (mine - theirs)).sum()) + rest[0] * math.log(rest[0] / rest[1])
        found.kl.append(max(0.0, bound))
        found.reference.append(float(p[target]))
        found.candidate.append(known[target])
        found.same_top.append(int(p.argmax()) == max(known, key=known.__getitem__))
