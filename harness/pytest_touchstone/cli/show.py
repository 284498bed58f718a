"""``touchstone show PATH``: a checkpoint's properties, without loading it; ``touchstone fetch NAME`` brings a builtin
one into the user's cache.

Of the shipped benchmarks it names those that the checkpoint can answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo, resolve
from pytest_touchstone.checkpoints.builtin import fetch
from pytest_touchstone.checkpoints.formats.base import Lasting
from pytest_touchstone.cli.command import Output, say
from pytest_touchstone.core.keys import masked_value
from pytest_touchstone.core.requests import NOT_OF_CHECKPOINTS
from pytest_touchstone.core.tasks import shipped_names
from pytest_touchstone.core.text import visible
from pytest_touchstone.engines.http.abilities import HELLO, abilities_of
from pytest_touchstone.engines.registry import identity
from pytest_touchstone.plugin.selection import shipped_specs

_WIDTH: Final = 18


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("source", metavar="PATH", help="anything that --checkpoint takes")
    parser.add_argument("--base-model", metavar="PATH", help="the model that a LoRA adapter is applied to")


def run(options: argparse.Namespace) -> Output:
    """A table per checkpoint."""
    with Lasting(lambda text: say(visible(text), sys.stderr)) as lasting:
        found = rows(options.source, base_model=options.base_model, lasting=lasting)
    return Output(found, "\n\n".join("\n".join(lines(row)) for row in found))


def fetch_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``fetch``."""
    parser.add_argument("name", metavar="NAME", help="smollm2-135m")


def fetch_run(options: argparse.Namespace) -> Output:
    """Fetch it and report progress, with ``--json`` on stderr."""
    stream = sys.stderr if options.json else sys.stdout
    path = fetch(options.name, say=lambda text: print(text, file=stream))
    return Output({"name": options.name, "path": str(path)})


def rows(
    source: str, *, base_model: str | None = None, lasting: Lasting | None = None
) -> list[dict[str, Any]]:
    """Each of the checkpoints as a table of plain values. Raises ``CheckpointError``."""
    return [_row(info) for info in resolve(source, seq_len=None, base_model=base_model, lasting=lasting)]


def lines(row: dict[str, Any]) -> Iterator[str]:
    """The table for people, without the values that are not known."""
    for name, value in row.items():
        address = name == "path" and row.get("served")  # which is no path
        if (
            value not in (None, {}, [], "", False)
            and name not in ("takes_adapters", "cacheable")
            and not address
        ):
            yield from _lines(name, value)


def _lines(name: str, value: Any) -> Iterator[str]:
    """The lines about one property."""
    if name == "training":
        for number, line in enumerate(_settings("", value)):
            yield f"{'' if number else name:{_WIDTH}} {line}"
    elif name == "params":
        sizes = (f"{key} {one}" for key, one in value.items() if one is not None)
        yield f"{'sizes':{_WIDTH}} {', '.join(sizes)}"
    elif name == "extra":
        for key, one in value.items():
            yield f"{key:{_WIDTH}} {int(one):,}" if one.isdecimal() else f"{key:{_WIDTH}} {one}"
    elif name == "base":
        yield f"{'base':{_WIDTH}} {value['source']} ({value['architecture']})"
    elif name == "served":
        yield from _served(value)
    elif name == "parameters":
        yield f"{name:{_WIDTH}} {value:,}"
    elif isinstance(value, (list, dict)):
        parts = value if isinstance(value, list) else [f"{key}={one}" for key, one in value.items()]
        yield f"{name:{_WIDTH}} {', '.join(map(str, parts))}"
    else:
        yield f"{name:{_WIDTH}} {value}"


def _served(told: dict[str, Any]) -> Iterator[str]:
    """The lines about a server: what it is, how it is asked, and what it lacks."""
    can = abilities_of(told["abilities"])
    scores = {"prompt_logprobs": "by token ids with prompt_logprobs", "echo": "by token ids with echo"}
    texts = (["completions, " + ("by token ids" if can.tokens else "as text")] if can.completions else []) + (
        ["chats"] if can.chat else []
    )
    added = told["template"]
    limit = told["limit"]
    for name, text in (
        ("address", told["url"]),
        ("model", told["model"]),
        ("server", " ".join(filter(None, (told["server"], told["version"]))) or "unknown"),
        ("system", told["system_fingerprint"] or ""),
        ("tokenizer", told["tokenizer"] or "none: --eval-tokenizer PATH"),
        ("takes", "not said" if limit is None else f"{limit:,} tokens, prompt and text together"),
        ("scores", scores[can.scoring] if can.scoring else f"none: {told['lacks']}"),
        ("whole texts", f"not scored: {told['lacks']}" if can.scoring and not can.whole_texts else ""),
        ("choices", "of one token in one request (logprob_token_ids)" if can.choices else ""),
        ("cache", f"blocks of {can.block} tokens: short choices token by token" if can.block else ""),
        ("texts", "; ".join(texts)),
        ("chat template", "" if added is None or not can.chat else f"makes {added} tokens of {HELLO!r}"),
        *(("note", note) for note in told["notes"]),
    ):
        if text:
            yield f"{name:{_WIDTH}} {text}"


def _row(info: CheckpointInfo) -> dict[str, Any]:
    row: dict[str, Any] = masked_value(info.plain())
    row["fingerprint"] = identity(info)
    row["answers"] = row.pop("serves")
    specs = sorted(shipped_specs(shipped_names()), key=lambda spec: spec.name)
    row["benchmarks"] = [spec.name for spec in specs if {*spec.asks} <= {*info.serves, *NOT_OF_CHECKPOINTS}]
    return row


def _settings(prefix: str, table: dict[str, Any]) -> Iterator[str]:
    """Nested settings, one per line, with dotted names."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _settings(f"{prefix}{key}.", value)
        elif value is not None:
            yield f"{prefix}{key} = {value}"
