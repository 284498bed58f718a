"""``touchstone checkpoint``: checkpoints before a run.

touchstone checkpoint show models/a                       its properties, without loading it
touchstone checkpoint fetch smollm2-135m                  a builtin one into the user's cache
touchstone checkpoint diff models/a models/a-q4.gguf      how far a quantised, converted, merged or served one is
touchstone checkpoint diff models/a models/b --text docs.jsonl --max-kl 0.01
touchstone checkpoint noise models/a                      the same one in the other number type

Of the shipped benchmarks ``show`` names those that the checkpoint can answer. ``--format json`` of a distance has the
fields of ``compare.fidelity.Fidelity`` and its conditions, and ``verdicts`` by option.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.checkpoints.builtin import fetch
from pytest_touchstone.checkpoints.config_files import seq_len_of_row
from pytest_touchstone.checkpoints.formats.base import CheckpointResources
from pytest_touchstone.cli.command import Output, add_settings, add_value, say, terminal
from pytest_touchstone.compare.fidelity import TEXT, Fidelity, fidelity, verdict_at_limit
from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.core.files import SCHEMA
from pytest_touchstone.core.keys import redact_value
from pytest_touchstone.core.requests import NOT_OF_CHECKPOINTS
from pytest_touchstone.core.settings import parse_integer, parse_number
from pytest_touchstone.core.tasks import shipped_names
from pytest_touchstone.core.text import count, escape_invisible
from pytest_touchstone.document import Facts, Part, Section, Table, render_text
from pytest_touchstone.engines.http.capabilities import HELLO, capabilities_from_plain
from pytest_touchstone.engines.registry import identity
from pytest_touchstone.plugin.selection import shipped_specs
from pytest_touchstone.results.summary import replace_non_finite
from pytest_touchstone.statistics.intervals import Estimate

_WIDTH: Final = 18


def show_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``checkpoint show``."""
    parser.add_argument("source", metavar="PATH", help="anything that --checkpoint takes")
    add_settings(parser, "base_model")


def show_run(options: argparse.Namespace) -> Output:
    """Show the properties of each checkpoint."""
    with CheckpointResources(lambda text: say(escape_invisible(text), sys.stderr)) as resources:
        checkpoints = checkpoint_rows(options.source, base_model=options.base_model, lasting=resources)
    return Output(checkpoints, "\n\n".join("\n".join(format_row(row)) for row in checkpoints))


def fetch_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``checkpoint fetch``."""
    parser.add_argument("name", metavar="NAME", help="smollm2-135m")


def fetch_run(options: argparse.Namespace) -> Output:
    """Download a builtin checkpoint. With JSON the progress goes to standard error."""
    stream = sys.stderr if options.format == "json" else sys.stdout
    path = fetch(options.name, say=lambda text: print(text, file=stream))
    return Output({"name": options.name, "path": str(path)})


def checkpoint_rows(
    source: str, *, base_model: str | None = None, lasting: CheckpointResources | None = None
) -> list[dict[str, Any]]:
    """Return the properties of each checkpoint as plain values. Raises ``CheckpointError``."""
    specs = sorted(shipped_specs(shipped_names()), key=lambda spec: spec.name)
    tables = []
    for info in resolve(source, seq_len=None, base_model=base_model, lasting=lasting):
        row: dict[str, Any] = redact_value(info.plain())
        row["seq_len"] = seq_len_of_row(row)
        row["fingerprint"] = identity(info)
        row["answers"] = row.pop("serves")
        answers = {*info.serves, *NOT_OF_CHECKPOINTS}
        row["benchmarks"] = [spec.name for spec in specs if {*spec.asks} <= answers]
        tables.append(row)
    return tables


def format_row(row: dict[str, Any]) -> Iterator[str]:
    """Yield the known properties of a checkpoint as lines of text."""
    hidden = (
        "takes_adapters",
        "cacheable",
        *(["path"] if row.get("served") else []),
    )  # an address is no path
    for name, value in row.items():
        if value not in (None, {}, [], "", False) and name not in hidden:
            yield from (f"{label:{_WIDTH}} {text}" for label, text in _facts(name, value))


def _facts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the labels and texts about one property."""
    if name == "training":
        yield from (("" if index else name, line) for index, line in enumerate(_settings("", value)))
    elif name == "params":
        yield "sizes", ", ".join(f"{key} {size}" for key, size in value.items() if size is not None)
    elif name == "extra":
        yield from ((key, f"{int(text):,}" if text.isdecimal() else text) for key, text in value.items())
    elif name == "base":
        yield "base", f"{value['source']} ({value['architecture']})"
    elif name == "served":
        yield from _server_facts(value)
    elif name == "parameters":
        yield name, f"{value:,}"
    elif isinstance(value, (list, dict)):
        parts = value if isinstance(value, list) else [f"{key}={setting}" for key, setting in value.items()]
        yield name, ", ".join(map(str, parts))
    else:
        yield name, str(value)


def _server_facts(served: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the labelled facts about a server: model, API, and limits."""
    supports = capabilities_from_plain(served["abilities"])
    scores = {"prompt_logprobs": "by token ids with prompt_logprobs", "echo": "by token ids with echo"}
    texts = (
        [f"completions, {'by token ids' if supports.tokens else 'as text'}"] if supports.completions else []
    )
    texts += ["chats"] if supports.chat else []
    limit = served["limit"]
    for name, text in (
        ("address", served["url"]),
        ("model", served["model"]),
        ("server", " ".join(filter(None, (served["server"], served["version"]))) or "unknown"),
        ("system", served["system_fingerprint"] or ""),
        ("tokenizer", served["tokenizer"] or "none: --eval-set tokenizer=PATH"),
        ("takes", "not said" if limit is None else f"{limit:,} tokens, prompt and text together"),
        ("scores", scores[supports.scoring] if supports.scoring else f"none: {served['lacks']}"),
        (
            "whole texts",
            f"not scored: {served['lacks']}" if supports.scoring and not supports.whole_texts else "",
        ),
        ("choices", "of one token in one request (logprob_token_ids)" if supports.choices else ""),
        (
            "cache",
            f"blocks of {supports.block} tokens: short choices token by token" if supports.block else "",
        ),
        ("texts", "; ".join(texts)),
        (
            "chat template",
            ""
            if served["template"] is None or not supports.chat
            else f"makes {served['template']} tokens of {HELLO!r}",
        ),
        *(("note", note) for note in served["notes"]),
    ):
        if text:
            yield name, text


def _settings(prefix: str, table: dict[str, Any]) -> Iterator[str]:
    """Yield nested settings, one per line, with dotted names."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _settings(f"{prefix}{key}.", value)
        elif value is not None:
            yield f"{prefix}{key} = {value}"


# How far one is from another


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

_LIMITS: Final = {"max_kl": ("kl_mean", False), "min_top_agreement": ("top_agreement", True)}
"""By option: the value that it limits, and whether a higher one is better."""


def _add_distance(parser: argparse.ArgumentParser) -> None:
    text = f"a text, a folder of texts, or JSON lines with a field text (default: {TEXT[1]})"
    parser.add_argument("--text", metavar="PATH", help=text)
    add_value(parser, "--limit", parse_integer, "only the first N documents", least=1)
    text = "tokens of a window (default: 512, or what both models take)"
    add_value(parser, "--length", parse_integer, text, least=1)
    add_settings(parser, "dtype", "device", "base_model", "trust_remote_code")
    text = "the number type of the candidate (default: the same; of noise, bfloat16 beside float32)"
    parser.add_argument("--candidate-dtype", metavar="DTYPE", help=text)
    text = "exit with 8 where the mean divergence is above this"
    add_value(parser, "--max-kl", parse_number, text, metavar="NATS")
    text = "exit with 8 where the same top token is rarer than this"
    add_value(parser, "--min-top-agreement", parse_number, text, metavar="SHARE", most=1.0)


def diff_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``checkpoint diff``."""
    text = "a causal language model, as --checkpoint takes it"
    parser.add_argument("reference", metavar="REFERENCE", help=text)
    parser.add_argument("candidate", metavar="CANDIDATE", help="what was made of it")
    _add_distance(parser)


def noise_add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``checkpoint noise``."""
    text = "a causal language model, which is asked in two number types"
    parser.add_argument("reference", metavar="PATH", help=text)
    _add_distance(parser)


def noise_run(options: argparse.Namespace) -> Output:
    """Compare a checkpoint with itself in another number type. Raises ``HarnessError`` for a mistake."""
    options.candidate = options.reference
    options.dtype = "float32" if options.dtype in (None, "auto") else options.dtype
    other = "bfloat16" if options.dtype == "float32" else "float32"
    options.candidate_dtype = options.candidate_dtype or other
    return diff_run(options)


def diff_run(options: argparse.Namespace) -> Output:
    """Measure how far two checkpoints differ. Raises ``HarnessError``."""
    names = (
        "text",
        "dtype",
        "device",
        "limit",
        "length",
        "candidate_dtype",
        "base_model",
        "trust_remote_code",
    )
    arguments = {name: value for name in names if (value := getattr(options, name)) is not None}
    divergence = fidelity(options.reference, options.candidate, **arguments)
    verdicts = {}
    for option, (field, higher) in _LIMITS.items():
        limit = getattr(options, option)
        if limit is None:
            continue
        kind = verdict_at_limit(
            getattr(divergence, field),
            limit,
            higher_is_better=higher,
            lower_bound=field == "kl_mean" and divergence.conditions.most_probable is not None,
        )
        verdicts[option] = {"limit": limit, "verdict": kind}
    fields = asdict(divergence)
    facts = {
        "schema": SCHEMA,
        "kind": "fidelity",
        **fields.pop("conditions"),
        **replace_non_finite(fields),
        "verdicts": verdicts,
    }
    worse = any(verdict["verdict"] == "worse" for verdict in verdicts.values())
    return Output(facts, lambda: _text(divergence, verdicts), ExitCode.WORSE if worse else ExitCode.OK)


def _text(divergence: Fidelity, verdicts: dict[str, dict[str, Any]]) -> str:
    conditions = divergence.conditions
    size = f"{count(conditions.documents, 'document')}, {conditions.tokens:,} tokens"
    vocabulary = f"{conditions.vocabulary:,} tokens"
    if conditions.left_out:
        vocabulary += f"; {conditions.left_out:,} more of one model are left out"
    rows = [
        ("reference", f"{divergence.reference} ({conditions.reference_dtype})"),
        ("candidate", f"{divergence.candidate} ({conditions.candidate_dtype})"),
        (
            "text",
            f"{conditions.text}, sha256 {conditions.sha256[:8]}: {size}, windows of {conditions.length}",
        ),
        ("vocabulary", vocabulary),
        *(("note", note) for note in conditions.notes),
    ]
    if conditions.most_probable:
        lower_bound = (
            f"at least: from the server's {conditions.most_probable} most probable tokens at each place"
        )
        rows.append(("divergences", lower_bound))
    values = {label: getattr(divergence, name) for name, label in _ROWS.items()}
    table = Table(
        header=("", "", f"95 % interval, by {conditions.units}"),
        rows=tuple(
            (label, _number(value), "")
            if isinstance(value, float)
            else (label, _number(value.value), _interval(value))
            for label, value in values.items()
        ),
        words=True,
    )
    parts: list[Part] = [Facts(tuple(rows)), table]
    if verdicts:
        flags = [f"--{name.replace('_', '-')}" for name in verdicts]
        limits = [f"{row['limit']:g}: {row['verdict']}" for row in verdicts.values()]
        parts.append(Facts(tuple(zip(flags, limits, strict=True))))
    return render_text([Section(parts=tuple(parts))], **terminal())


def _number(value: float | None) -> str:
    """Return a number with four significant digits."""
    return "-" if value is None else f"{value:.4g}"


def _interval(estimate: Estimate) -> str:
    unknown = estimate.low is None and estimate.high is None
    return "-" if unknown else f"[{_number(estimate.low)}, {_number(estimate.high)}]"
