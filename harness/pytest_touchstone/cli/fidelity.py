"""``touchstone fidelity``: how far a quantised, converted, merged or served checkpoint is from the one it was made of.

touchstone fidelity models/a models/a-q4.gguf                       on shipped texts
touchstone fidelity models/a                                        asked again in the other number type
touchstone fidelity models/a models/b --text docs.jsonl --max-kl 0.01
touchstone fidelity models/a http://localhost:8000/v1               lower bounds, from a server's most probable tokens

``--json`` prints the fields of ``compare.fidelity.Fidelity``, and ``verdicts`` by option.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from typing import Any, Final

from pytest_touchstone.cli.command import Output, terminal
from pytest_touchstone.compare.fidelity import TEXT, Fidelity, fidelity, verdict_at_limit
from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.settings import integer, number, read_as
from pytest_touchstone.core.text import count
from pytest_touchstone.reports.document import Facts, Part, Section, Table, render_text
from pytest_touchstone.results.summary import finite
from pytest_touchstone.statistics.intervals import Estimate

_ROWS: Final = {
    "kl_mean": "KL divergence, mean (nats per token)",
    "kl_median": "  median",
    "kl_p99": "  99th percentile",
    "kl_p999": "  99.9th percentile",
    "kl_max": "  maximum",
    "top_agreement": "same top token (share)",
    "reference_perplexity": "perplexity of the reference",
    "candidate_perplexity": "perplexity of the candidate",
    "perplexity_ratio": "  ratio",
    "logprob_difference": "log-probability, difference (nats)",
}

_LIMITS: Final = {"max_kl": ("kl_mean", False, math.inf), "min_top_agreement": ("top_agreement", True, 1.0)}
"""By option: the value that it limits, whether a higher one is better, and the largest limit."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("reference", metavar="REFERENCE", help="a causal language model, as --checkpoint takes it")
    text = "what was made of it (default: itself, in bfloat16 beside float32)"
    add("candidate", nargs="?", metavar="CANDIDATE", help=text)
    text = f"a text, a folder of texts, or JSON lines with a field text (default: {TEXT[1]})"
    add("--text", metavar="PATH", help=text)
    add("--limit", metavar="N", help="only the first N documents")
    add("--length", metavar="N", help="tokens of a window (default: 512, or what both models take)")
    add("--dtype", default="auto", metavar="DTYPE", help="number type, as of --eval-dtype (default: auto)")
    add("--candidate-dtype", metavar="DTYPE", help="the candidate's (default: the same)")
    add("--device", default="auto", metavar="DEVICE", help="auto, cpu, cuda, cuda:INDEX or mps")
    add("--base-model", metavar="PATH", help="the model that a LoRA adapter is applied to")
    add("--trust-remote-code", action="store_true", help="run Python code of the checkpoints")
    add("--max-kl", metavar="NATS", help="exit with 8 where the mean divergence is above this")
    add(
        "--min-top-agreement", metavar="SHARE", help="exit with 8 where the same top token is rarer than this"
    )


def run(options: argparse.Namespace) -> Output:
    """Measure. Raises ``HarnessError`` for a mistake."""
    limits = {
        option: read_as(_flag(option), given, number, most=most)
        for option, (_, _, most) in _LIMITS.items()
        if (given := getattr(options, option)) is not None
    }
    others: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("text", "dtype", "candidate_dtype", "device", "base_model", "trust_remote_code")
    }
    for name in ("limit", "length"):
        if (given := getattr(options, name)) is not None:
            others[name] = read_as(_flag(name), given, integer, least=1)
    candidate = options.candidate
    if candidate is None:
        candidate = options.reference
        others["dtype"] = "float32" if options.dtype == "auto" else options.dtype
        other = "bfloat16" if others["dtype"] == "float32" else "float32"
        others["candidate_dtype"] = options.candidate_dtype or other
    found = fidelity(options.reference, candidate, **others)
    verdicts = {}
    for option, limit in limits.items():
        field, higher, _ = _LIMITS[option]
        kind = verdict_at_limit(getattr(found, field), limit, higher_is_better=higher)
        if found.most_probable and field == "kl_mean" and kind == "not worse":
            kind = "inconclusive"  # it is a lower bound
        verdicts[option] = {"limit": limit, "verdict": kind}
    facts = {"schema": SCHEMA, "kind": "fidelity", **finite(asdict(found)), "verdicts": verdicts}
    worse = any(one["verdict"] == "worse" for one in verdicts.values())
    return Output(facts, lambda: _text(found, verdicts), ExitCode.WORSE if worse else ExitCode.OK)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _text(found: Fidelity, verdicts: dict[str, dict[str, Any]]) -> str:
    size = f"{count(found.documents, 'document')}, {found.tokens:,} tokens"
    vocabulary = f"{found.vocabulary:,} tokens"
    if found.left_out:
        vocabulary += f"; {found.left_out:,} more of one model are left out"
    rows = [
        ("reference", f"{found.reference} ({found.reference_dtype})"),
        ("candidate", f"{found.candidate} ({found.candidate_dtype})"),
        ("text", f"{found.text}, sha256 {found.sha256[:8]}: {size}, windows of {found.length}"),
        ("vocabulary", vocabulary),
        *(("note", note) for note in found.notes),
    ]
    if found.most_probable:
        told_tokens = f"at least: from the server's {found.most_probable} most probable tokens at each place"
        rows.append(("divergences", told_tokens))
    values = {label: getattr(found, name) for name, label in _ROWS.items()}
    table = Table(
        header=("", "", f"95 % interval, by {found.units}"),
        rows=tuple(
            (label, _number(value), "")
            if isinstance(value, float)
            else (label, _number(value.value), _interval(value))
            for label, value in values.items()
        ),
        words=True,
    )
    told = [(_flag(option), f"{one['limit']:g}: {one['verdict']}") for option, one in verdicts.items()]
    parts: list[Part] = [Facts(tuple(rows)), table, *([Facts(tuple(told))] if told else [])]
    width, color = terminal()
    return render_text([Section(parts=tuple(parts))], width=width, color=color)


def _number(value: float | None) -> str:
    """Return four digits: a divergence may be a millionth."""
    return "-" if value is None else f"{value:.4g}"


def _interval(found: Estimate) -> str:
    unknown = found.low is None and found.high is None
    return "-" if unknown else f"[{_number(found.low)}, {_number(found.high)}]"
