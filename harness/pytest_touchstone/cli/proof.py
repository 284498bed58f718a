"""``touchstone proof CHECKPOINT``: damage a checkpoint on purpose, and say which faults a suite would notice.

touchstone proof models/a --tasks arc_easy,piqa --limit 100
touchstone proof models/a evals/ --must-catch positions,norms      exit code 8 if one of these survives, 9 if not run
touchstone proof models/a --tasks piqa -o proof                    proof.md, proof.json and the page too
"""

from __future__ import annotations

import argparse
import json
import sys

from pytest_touchstone.cli.command import (
    Output,
    add_language,
    add_output,
    add_settings,
    add_target,
    format_output,
    say,
    terminal,
    write,
)
from pytest_touchstone.compare.fidelity import causal_checkpoint
from pytest_touchstone.core.errors import ExitCode
from pytest_touchstone.core.text import did_you_mean, escape_invisible
from pytest_touchstone.document import render_markdown, render_text
from pytest_touchstone.engines.transformers.mutants import CLASSES
from pytest_touchstone.plugin.proof import prove
from pytest_touchstone.reports.proof import proof_facts, proof_sections

_SETTINGS = ("tasks", "limit", "data", "seed", "shots")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("source", metavar="CHECKPOINT", help="a causal checkpoint, or a LoRA adapter of one")
    text = "files or folders of benchmarks (default: the shipped ones)"
    parser.add_argument("benchmarks", nargs="*", metavar="BENCHMARKS", help=text)
    add_settings(parser, *_SETTINGS, "device", "base_model")
    text = f"mutants of these classes alone: {', '.join(CLASSES)}"
    parser.add_argument("--classes", type=_parse_classes, default=[], metavar="CLASS,...", help=text)
    text = "exit with 8 if a mutant of these classes is not found worse, with 9 if one could not be run"
    parser.add_argument("--must-catch", type=_parse_classes, default=[], metavar="CLASS,...", help=text)
    add_language(parser)
    add_output(parser)
    add_target(parser, "write proof.md, proof.json and the page there")


def run(options: argparse.Namespace) -> Output:
    """Run the suite on every mutant. Raises ``HarnessError``."""
    info = causal_checkpoint(options.source, options.source, base_model=options.base_model)
    given = {name: getattr(options, name) for name in _SETTINGS}
    proof = prove(
        info,
        {**given, "output": str(options.output / "proof")},
        options.benchmarks or None,
        classes=options.classes and [*options.classes, *options.must_catch],
        device=options.device or "auto",
        say=lambda text: say(escape_invisible(text), sys.stderr),
    )
    kinds = {cell.mutant: cell.kind for cell in proof.cells}
    survivors, failed = (
        {
            kind: chosen
            for kind in options.must_catch
            if (chosen := [name for name in names if kinds[name] == kind])
        }
        for names in (proof.missed, proof.failed)
    )
    sections, facts = proof_sections(proof, survivors, failed), proof_facts(proof, list(survivors))

    output = Output(
        facts,
        lambda: render_text(sections, **terminal()),
        markdown=lambda: "\n\n".join(render_markdown(sections)),
        exit_code=ExitCode.WORSE if survivors else ExitCode.NOT_VALID if failed else ExitCode.OK,
    )
    if options.to is not None:
        from pytest_touchstone.reports.pages import FILE, live_page

        markdown = argparse.Namespace(format="markdown")
        write(options.to / "proof.md", f"{format_output(output, markdown)}\n", "DIR")
        write(options.to / "proof.json", json.dumps(facts, ensure_ascii=False, indent=1) + "\n", "DIR")
        write(options.to / FILE, live_page(sections, title=f"Proof of {proof.checkpoint}"), "DIR")
    return output


def _parse_classes(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in CLASSES]:
        hint = did_you_mean(unknown[0], CLASSES) or f"there are {', '.join(CLASSES)}"
        raise argparse.ArgumentTypeError(f"no class {unknown[0]!r}; {hint}")
    return names
