"""The fidelity of a quantised, merged or served checkpoint: how far its distributions are from a reference's.

``fidelity`` computes it over given texts, with ``touchstone checkpoint diff`` and in a test. Tokens of a text depend on
each other, so intervals are by document; with a single document, by its windows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.checkpoints.resolve import find
from pytest_touchstone.core.dataset import OWN_FILES, RawRow, read_lines, read_text
from pytest_touchstone.core.errors import CheckpointError, DataError, OptionError
from pytest_touchstone.core.files import shipped, shown_path
from pytest_touchstone.core.settings import settings_table
from pytest_touchstone.core.text import join_names
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.divergence import MOST, ComparedCheckpoint, divergences
from pytest_touchstone.statistics.comparison import Comparison, VerdictKind
from pytest_touchstone.statistics.intervals import (
    Estimate,
    mean_estimate,
    perplexity_estimate,
    quantile_estimate,
)
from pytest_touchstone.statistics.verdicts import ROUNDING, kind_of

TEXT: Final = ("data", "lambada_openai", "test.jsonl")
"""The shipped texts: 32 passages of novels, in English (CC BY 4.0)."""

LENGTH: Final = 512
"""The tokens of a window: as many as llama.cpp takes."""

_ENDINGS: Final = (".txt", ".md", *OWN_FILES)
"""The files of a folder that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityConditions:
    """The conditions under which a fidelity was measured.

    ``sha256`` is that of the documents taken from ``text``. Intervals are over ``units`` ("document" or "window"), and
    ``length`` is the length of windows. Of the ``vocabulary``, ``left_out`` are tokens of one model only. If
    ``most_probable`` is not None, the candidate is served, and its divergences are lower bounds from this number of
    tokens at each position.
    """

    reference_dtype: str
    candidate_dtype: str
    text: str
    sha256: str
    documents: int
    tokens: int
    length: int
    units: str
    vocabulary: int
    left_out: int
    most_probable: int | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """The distance of a candidate's distributions of the next token from those of a reference, in nats.

    ``kl_mean``, ``kl_median``, ``kl_p99`` and ``kl_p999`` (percentiles) and ``kl_max`` are of the Kullback-Leibler
    divergence of the candidate from the reference, per token. ``top_agreement`` is the share of tokens for which both
    find the same token most probable; ``perplexity_ratio`` is the candidate's perplexity over the reference's, and
    ``logprob_difference`` the mean of the candidate's log-probability less the reference's.
    """

    reference: str
    candidate: str
    conditions: FidelityConditions
    kl_mean: Estimate
    kl_median: Estimate
    kl_p99: Estimate
    kl_p999: Estimate
    kl_max: float
    top_agreement: Estimate
    reference_perplexity: Estimate
    candidate_perplexity: Estimate
    perplexity_ratio: Estimate
    logprob_difference: Estimate


def fidelity(
    reference: str | Path,
    candidate: str | Path,
    *,
    text: str | Path | None = None,
    limit: int | None = None,
    length: int | None = None,
    dtype: str = "auto",
    candidate_dtype: str | None = None,
    device: str = "auto",
    base_model: str | None = None,
    trust_remote_code: bool = False,
) -> Fidelity:
    """Return how far the candidate's distributions over the vocabulary are from the reference's.

    Both are what ``--checkpoint`` takes, one causal model each; the reference is loaded by this process, and the
    candidate may be served, if its server gives vLLM's ``prompt_logprobs``. ``text`` is a file, a
    folder of files, or JSON lines with a field ``text``: a document per file or line (default: a shipped one), of which
    the first ``limit`` are taken, in windows of ``length`` tokens (default: 512, or what the models take). ``dtype``
    and ``candidate_dtype`` are number types as of ``--eval-dtype``, the second by default the first.

    Raises ``HarnessError`` for a mistake, in one line, before a model is loaded as far as that can tell.
    """
    dtypes = [
        settings_table()["dtype"].read(requested, option)
        for requested, option in ((dtype, "dtype"), (candidate_dtype or dtype, "candidate_dtype"))
    ]
    device = settings_table()["device"].read(device, "device")
    infos = [
        causal_checkpoint(
            str(source), str(reference), base_model=base_model, trust_remote_code=trust_remote_code
        )
        for source in (reference, candidate)
    ]
    if infos[0].served:
        raise CheckpointError(
            f"{reference}: a server tells its most probable tokens only, and of the reference all of the vocabulary "
            "is needed; give the weights that it serves"
        )
    if infos[1].served and candidate_dtype is not None:
        raise OptionError(
            f"invalid candidate_dtype {candidate_dtype!r}: a server computes in a number type of its own; leave it out"
        )
    # A server wants room for the token that a text begins with, and for one that it generates.
    most = min(info.seq_len - 2 if info.served else info.seq_len for info in infos)
    taken = min(LENGTH if length is None else length, most)
    if length is not None and not 0 < length <= taken:
        raise OptionError(
            f"invalid length {length}: expected tokens from 1 to {taken}, which both models take"
        )
    if limit is not None and limit < 1:
        raise OptionError(f"invalid limit {limit}: expected a number of documents from 1 up")
    path = shipped(*TEXT) if text is None else Path(text)
    documents = list(_documents(path))[:limit]
    if not documents:
        raise DataError(f"{shown_path(path)}: has no text; give a file, a folder of files, or JSON lines")
    sides = []
    for info, model_dtype in zip(infos, dtypes, strict=True):
        cut = replace(info, seq_len=taken)
        sides.append(
            ComparedCheckpoint(
                cut, partial(open_engine, cut, ModelSettings(dtype=model_dtype, device=device))
            )
        )
    return _measured(sides, path, documents)


def verdict_at_limit(
    estimate: Estimate, limit: float, *, higher_is_better: bool, lower_bound: bool = False
) -> VerdictKind:
    """Return "worse", "not worse" or "inconclusive": a value beside a limit, by its whole interval.

    ``lower_bound``: the true value may be any larger one.
    """
    value, low, high = (
        None if bound is None else bound - limit for bound in (estimate.value, estimate.low, estimate.high)
    )
    comparison = Comparison(
        difference=value,
        low=low,
        high=None if lower_bound else high,
        n=0,
        units=0,
        higher_is_better=higher_is_better,
    )
    most = comparison.oriented.high
    return kind_of(comparison, significant=most is not None and most < 0, margin=ROUNDING)


def causal_checkpoint(source: str, tokenizer: str, **how: Any) -> CheckpointInfo:
    """Return the one checkpoint that is named, a served one asked in the tokens of ``tokenizer``.

    Raises ``CheckpointError`` where it has no distributions of the next token.
    """
    options = {} if source == tokenizer else {"tokenizer": tokenizer}
    resolved = find(source, seq_len=None, options=options, **how)
    if resolved.failed:
        raise CheckpointError(resolved.failed[0].message)
    info, *others = resolved.infos
    if others:
        names = join_names([checkpoint.name for checkpoint in (info, *others)], 3)
        raise CheckpointError(f"{source}: has {len(others) + 1} checkpoints ({names}); name one")
    if info.served:
        return info
    if info.engine != "transformers" or info.kind != "causal":
        what = "a masked model" if info.kind == "masked" else f"answered by the engine {info.engine}"
        raise CheckpointError(
            f"{source}: is {what}, without distributions of the next token; give a causal language model"
        )
    return info


def _documents(path: Path) -> Iterator[str]:
    """Yield the documents of a file or folder that are more than white space, files by name.

    Raises ``DataError`` where one cannot be read.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.name.endswith(_ENDINGS))
    for file in files:
        rows = file.name.endswith(OWN_FILES)
        texts = map(_text_of, read_lines(file)) if rows else iter([read_text(file)])
        yield from (text for text in texts if text.strip())


def _text_of(row: RawRow) -> str:
    text = row.data.get("text")
    if not isinstance(text, str):
        raise DataError(f"{row.path}, row {row.number}: has no string 'text'; write each document as one")
    return text


def _measured(sides: Sequence[ComparedCheckpoint], path: Path, documents: Sequence[str]) -> Fidelity:
    divergence = divergences(documents, *sides)
    units, clusters = (
        ("document", divergence.documents) if len(documents) > 1 else ("window", divergence.windows)
    )
    change = [new - old for old, new in zip(divergence.reference, divergence.candidate, strict=True)]
    mean = mean_estimate(divergence.kl, clusters, bounded=False) if any(divergence.kl) else _exactly(0.0)
    conditions = FidelityConditions(
        reference_dtype=divergence.dtypes[0],
        candidate_dtype=divergence.dtypes[1],
        text=shown_path(path),
        sha256=hashlib.sha256("\0".join(documents).encode("utf-8", "surrogatepass")).hexdigest(),
        documents=len(documents),
        tokens=len(divergence.kl),
        length=sides[0].info.seq_len,
        units=units,
        vocabulary=divergence.vocabulary,
        left_out=divergence.left_out,
        most_probable=MOST if sides[1].info.served else None,
        notes=divergence.notes,
    )
    return Fidelity(
        reference=sides[0].info.source,
        candidate=sides[1].info.source,
        conditions=conditions,
        kl_mean=replace(mean, low=None if mean.low is None else max(0.0, mean.low)),
        kl_median=quantile_estimate(divergence.kl, 0.5, clusters),
        kl_p99=quantile_estimate(divergence.kl, 0.99, clusters),
        kl_p999=quantile_estimate(divergence.kl, 0.999, clusters),
        kl_max=max(divergence.kl),
        top_agreement=mean_estimate(divergence.same_top, clusters),
        reference_perplexity=perplexity_estimate(divergence.reference, clusters),
        candidate_perplexity=perplexity_estimate(divergence.candidate, clusters),
        perplexity_ratio=perplexity_estimate(change, clusters) if any(change) else _exactly(1.0),
        logprob_difference=mean_estimate(change, clusters, bounded=False) if any(change) else _exactly(0.0),
    )


def _exactly(value: float) -> Estimate:
    """Return the estimate for models that differ in no token: equal computation is equal on any text."""
    return Estimate(value, value, value, 0.0, "no token differs")
