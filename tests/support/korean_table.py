"""A made-up table of a Korean study: values by the formula, in the form that studies publish."""

from __future__ import annotations

from pathlib import Path

HEADER = "series,seq_len,checkpoint,step,epoch,real1,real5,lambada_top1,reported_score,coref_samples,lambada_samples"


def row(
    series: str = "plain",
    step: int = 100,
    *,
    real1: str = "0.6500",
    real5: str = "0.8000",
    lambada: str = "0.3500",
    score: str | None = None,
    seq_len: str = "1536",
    sizes: str = "2400,600",
) -> str:
    """A line; the score is the formula's, rounded as the other values are, unless it is given."""
    if score is None:
        score = f"{0.4 * float(real1) + 0.3 * float(real5) + 0.3 * float(lambada):.4f}"
    epoch = step / 100
    return f"{series},{seq_len},checkpoint-{step},{step},{epoch},{real1},{real5},{lambada},{score},{sizes}"


def write(path: Path, *rows: str, header: str = HEADER) -> Path:
    """A file of these lines."""
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path
