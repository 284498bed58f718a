"""The whole table of speed and equality on one device: a command, in parts that can be run singly.

    python -m perf accelerator --device cuda --dtype bfloat16 --json all.json --markdown all.md
    python -m perf accelerator --part score --models qwen2.5-7b --lm-eval-python PYTHON --json score.json
    python -m perf accelerator --join limits.json score.json generate.json --markdown all.md
    python -m perf accelerator --device cpu --small

Models are random weights of known shapes, made on the device; nothing is fetched. Parts: *limits* of the device,
*score*, *generate*, *masked*, *load*, *programs* and *host*. ``--budget-seconds`` is the time of all parts that are
asked for; what does not fit is left out, and the table says so. ``--small`` has shapes for a CPU, which only show that
the program runs (*host* measures there too). ``--plain`` measures our side a second time without its fast ways, and
``--settings`` gives it others (``speculative=off``).
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from perf.accelerator_parts import generate, host, limits, load, masked, programs, score
from perf.accelerator_parts.budget import Budget
from perf.accelerator_parts.findings import Findings, Row, from_plain, join, markdown
from perf.accelerator_parts.models import BUILTIN, Setup, about, shapes_for, tokenizer_of
from perf.accelerator_parts.shapes import named
from pytest_touchstone.engines.settings import ModelSettings

PARTS: Final[Mapping[str, tuple[Callable[[Setup, Budget], Iterator[Row]], float]]] = {
    "limits": (limits.measure, 0.5),
    "score": (score.measure, 3.0),
    "generate": (generate.measure, 3.0),
    "masked": (masked.measure, 1.0),
    "load": (load.measure, 1.5),
    "programs": (programs.measure, 1.5),
    "host": (host.measure, 1.0),
}
"""The parts in their order, each with its weight in sharing the time."""

SECONDS = 480.0


def main() -> None:
    """Measure or join, then print and write the table."""
    options = _options()
    if options.write_tokenizer:
        tokenizer_of("causal").save_pretrained(options.write_tokenizer)
        return
    if options.join:
        found = join(_read(options.join))
        _write(found, options)
    else:
        for found in measured(options):
            _write(found, options)
    print(markdown(found))


def _write(found: Findings, options: argparse.Namespace) -> None:
    if options.json:
        options.json.write_text(json.dumps(found.plain(), indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(markdown(found), encoding="utf-8")


def _options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--part", action="append", choices=list(PARTS), help="one part; may come again (default: all)")
    add("--device", help="cuda, cuda:INDEX or cpu (default: cuda where there is one)")
    add("--dtype", choices=["bfloat16", "float16", "float32"], help="default: bfloat16; on a CPU float32")
    add("--models", metavar="A,B", help="beginnings of names (default: all)")
    add("--small", action="store_true", help="small shapes, for a CPU")
    add("--budget-seconds", type=float, default=SECONDS, metavar="N", help=f"default: {SECONDS:.0f}")
    add("--plain", action="store_true", help="measure our side without its fast ways too")
    add("--settings", metavar="NAME=VALUE,...", help="other fields of ModelSettings for our side")
    add("--data", metavar="DIR", help="folder of datasets (default: the shipped ones)")
    add("--tokenizer", metavar="FOLDER", default=BUILTIN, help="another tokenizer for causal models")
    add("--write-tokenizer", type=Path, metavar="FOLDER", help="write the one used here, and end")
    add("--lm-eval-python", type=Path, metavar="PYTHON", help="one that has lm_eval (default: this one)")
    add("--vllm-python", type=Path, metavar="PYTHON", help="one that has vLLM (default: this one)")
    add("--join", type=Path, nargs="+", metavar="FILE", help="put --json files together, measure nothing")
    add("--json", type=Path, metavar="FILE")
    add("--markdown", type=Path, metavar="FILE")
    return parser.parse_args(words)


def _read(paths: Sequence[Path]) -> dict[str, Findings]:
    found = {}
    for path in paths:
        try:
            found[str(path)] = from_plain(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"--join {path}: no file of --json ({type(error).__name__}: {error})") from None
    return found


def measured(options: argparse.Namespace) -> Iterator[Findings]:
    """Run the parts, each in its share of the time that is left; yield the findings so far after each row.

    So a run that is stopped from outside leaves a file with what it has found.
    """
    setup = setup_of(options)
    names = [name for name in PARTS if name in (options.part or PARTS)]
    seconds: dict[str, float] = {}
    command = " ".join(["perf accelerator", *sys.argv[1:]])
    facts: dict[str, Any] = {**about(setup), "seconds": seconds, "command": command}
    rows: list[Row] = []
    whole = Budget(options.budget_seconds)
    for number, name in enumerate(names):
        weights = [PARTS[one][1] for one in names[number:]]
        began = time.monotonic()
        for row in PARTS[name][0](setup, Budget(whole.left * weights[0] / sum(weights))):
            rows.append(row)
            seconds[name] = round(time.monotonic() - began, 1)
            yield Findings(facts, tuple(rows))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    yield Findings(facts, tuple(rows))


def setup_of(options: argparse.Namespace) -> Setup:
    """Return the options that the parts share. Raises ``SystemExit`` for a device that is not there."""
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    device = "cuda:0" if device == "cuda" else device
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit(
            f"--device {device}: torch sees no GPU here; --device cpu --small shows that it runs"
        )
    if not device.startswith("cuda") and not options.small:
        raise SystemExit(f"--device {device}: the models are too large for it; add --small")
    setup = Setup(
        device=device,
        dtype=options.dtype or ("bfloat16" if device.startswith("cuda") else "float32"),
        models=(),
        small=options.small,
        plain=options.plain,
        data=options.data,
        tokenizer=options.tokenizer,
        settings=settings_of(options.settings),
        lm_eval_python=options.lm_eval_python,
        vllm_python=options.vllm_python,
    )
    return replace(setup, models=shapes_for(named(options.models), setup.small, setup.tokenizer))


def settings_of(text: str | None) -> dict[str, Any]:
    """Return fields of ``ModelSettings`` from ``NAME=VALUE,...``; raise ``SystemExit`` for one that is none."""
    found: dict[str, Any] = {}
    for one in text.split(",") if text else ():
        name, _, value = one.partition("=")
        if name not in ModelSettings.__dataclass_fields__:
            known = ", ".join(ModelSettings.__dataclass_fields__)
            raise SystemExit(f"--settings {one}: no such setting; there are {known}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):  # a plain word
            found[name] = value
    return found


if __name__ == "__main__":
    main()
