"""Numbers, intervals, p-values, changes and names as all reports write them, and a console that writes to memory."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints.config_files import seq_len_of_row, step_of_row
from pytest_touchstone.core import coverage
from pytest_touchstone.core.dataset import DatasetInfo
from pytest_touchstone.core.keys import redact
from pytest_touchstone.core.requests import MASK
from pytest_touchstone.core.text import INVISIBLE, count, escape_invisible, redact_home
from pytest_touchstone.document.language import translate, translate_cell
from pytest_touchstone.results.summary import Metric, Result, Summary, whole_results
from pytest_touchstone.statistics.comparison import fixed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

NOTHING: Final = "-"
SAMPLE: Final = "sample"
OWN: Final = "own rows"
"""Words beside a value: over a few of the published rows, or over none of them."""

HASH_SHOWN: Final = 8
USUAL_LEVELS: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1)

SMALLEST_P: Final = 1e-12
"""Below this, a p says only that chance is out of the question."""

_WORDS: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
"""The words of a command; a space in quotes ends none."""

_PIECES: Final = re.compile(r"\d{8}_\d{6}_\w+|[^_/ ]*[_/ ]|[^_/ ]+")
"""The pieces of a name that folds; the id of a run, which people copy, is one."""


# Numbers


def number(value: float | None) -> str:
    """Return four decimals for scores, fewer for larger numbers, ``-`` for what is undefined."""
    if value is None:
        return NOTHING
    if abs(value) < 10:
        return fixed(value, 4)
    return f"{value:.2f}" if abs(value) < 10_000 else f"{value:.4g}"


def in_percent(value: float) -> str:
    """Return a share in per cent, with two decimals and no sign of it."""
    return fixed(100 * value, 2, 100.0)


def interval(low: float | None, high: float | None, form: Callable[[float], str] = number) -> str:
    """Return ``[low, high]`` in a form of numbers, or ``-`` when a limit is undefined."""
    return NOTHING if low is None or high is None else f"[{form(low)}, {form(high)}]"


def p_exact(p: float | None) -> str:
    """Return three decimals, two digits below 0.001: for tables whose reader looks for small p-values."""
    if p is None:
        return NOTHING
    if p >= 0.001:
        return _just_above(p, f"{p:.3f}") or f"{p:.3f}"
    return f"{p:.1e}" if p >= SMALLEST_P else f"<{SMALLEST_P:.0e}"


def p_short(p: float | None) -> str:
    """Return two digits, ``< 0.0001`` below that: for verdicts."""
    if p is None:
        return NOTHING
    return "< 0.0001" if p < 0.0001 else _just_above(p, f"{p:.2g}").replace(">", "> ") or f"{p:.2g}"


def _just_above(p: float, text: str) -> str:
    """Return ``>0.05`` for a p just above a usual level that it would round to; else empty."""
    return f">{float(text):g}" if float(text) in USUAL_LEVELS and p > float(text) else ""


def duration(seconds: float) -> str:
    """Return whole seconds as ``0:07``, ``12:30`` or ``2:05:00``."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# Results, datasets and checkpoints


def asked(result: Result) -> str:
    """Return how a benchmark was run: ``5-shot``, ``5-shot as lm-eval``, ``5-shot, chat``, or empty.

    ``avg@4`` is added if scores are means over samples.
    """
    samples = (name for name in result.metrics if name.startswith("avg@"))
    return ", ".join(
        filter(None, (coverage.prompt_mark(result.shots, result.template, result.pick), *samples))
    )


def asked_alike(results: Sequence[Result]) -> str:
    """Return ``asked`` of all of them, empty unless all were asked alike."""
    labels = {asked(result) for result in results}
    return labels.pop() if len(labels) == 1 else ""


def checkpoint_label(result: Result, among: Sequence[Result]) -> str:
    """Return the checkpoint; if others were asked otherwise, with ``asked``."""
    label = "" if asked_alike(among) else asked(result)
    return f"{result.checkpoint} ({label})" if label else result.checkpoint


def common_mark(results: Sequence[Result]) -> str:
    """Return the mark that all of them have, empty where they differ."""
    marks = {result.mark for result in results}
    return marks.pop() if len(marks) == 1 else ""


def coverage_text(result: Result, *, own: bool) -> str:
    """Return ``32/2,376``: the scored items, and those published, else those in the data.

    It is ``32`` if neither is known. ``own``: the rows are not published ones.
    """
    return _of(result.metrics[result.primary].n, (not own and result.published) or result.of)


def of_parts(composite: Mapping[str, Any]) -> str:
    """Return the same for all benchmarks that a composite is made of, by the data that there is."""
    parts = {part["benchmark"]: (part["n"], part.get("of", 0)) for part in composite.get("parts", ())}
    return _of(sum(n for n, _ in parts.values()), sum(of for _, of in parts.values()))


def _of(n: int, of: int) -> str:
    return f"{n:,}/{of:,}" if of else f"{n:,}"


def own_rows(summary: Summary) -> set[str]:
    """Return the benchmarks that were run on shipped rows instead of published ones."""
    return {
        declaration.name
        for declaration in summary.declarations
        if declaration.own_rows and declaration.dataset.origin == coverage.SHIPPED
    }


def not_counted(skipped: int, xfailed: int) -> list[str]:
    """Return the counts of items that do not count, in pytest's words; ``skipped`` are all of them."""
    counts = {"skipped": skipped - xfailed, "xfailed": xfailed}
    return [f"{number} {word}" for word, number in counts.items() if number]


def is_sample(mark: str) -> bool:
    """Return whether a mark says that the rows are a shipped sample."""
    return SAMPLE in mark


def shown_metrics(result: Result) -> list[Metric]:
    """Return the metrics that tables show: every one of a whole benchmark, the primary one of a group."""
    metrics = list(result.metrics.values())
    return metrics if result.group is None else [m for m in metrics if m.name == result.primary]


def dataset_line(info: DatasetInfo) -> str:
    """Return a dataset in one line: name, rows, the start of its hash, its origin."""
    return f"{info.name}, {count(info.rows, 'row')}, {info.sha256[:HASH_SHOWN]}, {info.origin}"


def datasets(summary: Summary) -> list[DatasetInfo]:
    """Return every dataset of the run, once."""
    return list(
        {
            (result.dataset.name, result.dataset.sha256): result.dataset for result in whole_results(summary)
        }.values()
    )


def checkpoint(info: Mapping[str, Any]) -> str:
    """Return a checkpoint's kind, model type, training state and length in one line, without its name."""
    if info.get("answers"):  # a file has no model, but the name of one perhaps
        return str(info["architecture"])
    facts = [f"{info['kind']} LM" if info.get("kind") else "", info.get("model_type") or ""]
    base = info.get("base")
    facts.append(
        f"{'adapter' if info.get('by_peft') else 'LoRA'} on {base['name']}"
        if isinstance(base, Mapping)
        else ""
    )
    step = step_of_row(info)
    facts.append(f"step {step}" if step is not None else "")
    facts.append(f"epoch {info['epoch']:g}" if info.get("epoch") is not None else "")
    facts.append(f"validation loss {info['val_loss']:.4g}" if info.get("val_loss") is not None else "")
    seq_len = seq_len_of_row(info)
    facts.append(count(seq_len, "token") if seq_len else "")
    facts.append("its own code allowed" if info.get("trust_remote_code") else "")
    return ", ".join(fact for fact in facts if fact)


def checkpoints(summary: Summary) -> dict[str, str]:
    """Return the run's checkpoints by name, each with its description."""
    descriptions = {str(info.get("name")): checkpoint(info) for info in summary.checkpoints}
    names = dict.fromkeys(result.checkpoint for result in summary.results)
    return {name: descriptions.get(name, "") for name in names}


def place(summary: Summary) -> str:
    """Return the run's folder, relative to the current one if it lies below it."""
    folder = Path(summary.directory)
    try:
        return str(folder.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(folder)


# Text for terminals


def busy_text(load: float, cores: int) -> str:
    """Return a line on the load of the machine at the start of a run; empty if cores were free.

    The load is a mean over a minute, so that one more than there are cores may be a program that has just ended.
    """
    if load <= cores + 1:
        return ""
    return f"load {load:.1f} on {count(cores, 'core')}: other programs compute here, so times will be longer"


def cell_width(text: str) -> int:
    """Return the columns that a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def cut_name(name: str, width: int) -> str:
    """Return a name in at most that many columns, cut in its middle.

    The names of a series differ at their ends.
    """
    from rich.cells import chop_cells, set_cell_size

    if cell_width(name) <= width:
        return name
    end = "".join(reversed(chop_cells(name[::-1], width // 2)[0]))
    return f"{set_cell_size(name, width - 2 - cell_width(end)).rstrip()}..{end}"


def clip(text: str, width: int, *, end: bool = False) -> str:
    """Return at most ``width`` characters of a text, in one line.

    They are from the start of the text or, with ``end``, from its end, or around a mask, if there is one.
    """
    plain = " ".join(str(text).split())
    if len(plain) <= width:
        return plain
    at = plain.find(MASK)
    if at >= 0 and len(plain) - at + width // 2 > width:
        plain = f"{plain[: at + width // 2]}…"
        end = True
        if len(plain) <= width:
            return plain
    return f"…{plain[-(width - 1) :]}" if end else f"{plain[: width - 1]}…"


def console_of(width: int, *, color: bool) -> Console:
    """Return a console of rich that writes to memory, independent of the system and terminal.

    Signs that a terminal would obey or not show are named in its texts, before their width counts.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class Plain(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else escape_invisible(text), style, control)

        def print(self, *objects: Any, **options: Any) -> None:
            super().print(
                *(
                    translate(printed, "heading") if isinstance(printed, str | Text) else printed
                    for printed in objects
                ),
                **options,
            )

    return Plain(
        file=io.StringIO(),
        width=width,
        color_system="standard" if color else None,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def folded(text: str, width: int) -> list[str]:
    """Return the lines of a name in a column of this width, all with the indent of the first.

    It folds after ``_`` and ``/`` and at spaces, but never within the id of a run.
    """
    indent = text[: len(text) - len(text.lstrip())]
    lines = [indent]
    for piece in _PIECES.findall(text.strip()):
        if lines[-1] != indent and cell_width(lines[-1] + piece.rstrip()) > width:
            lines.append(indent)
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def longest_piece(text: str) -> int:
    """Return the columns that a name needs where it folds."""
    return max(map(cell_width, folded(text, 0)))


def wrapped(text: str, width: int) -> Sequence[str]:
    """Return the text in lines of at most ``width`` columns, where its words allow that."""
    return textwrap.wrap(
        text, max(width, 40), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def command_lines(command: str, width: int) -> list[str]:
    """Return a command in lines of at most ``width`` columns, cut before its options.

    What is longer than a line is also cut between its words; a word that is longer stays whole.
    """
    chunks: list[str] = []
    for word in _WORDS.findall(command):
        if chunks and not word.startswith("-") and len(chunks[-1]) + len(word) + 5 <= width:
            chunks[-1] += f" {word}"
        else:
            chunks.append(word)
    lines: list[str] = []
    for chunk in chunks:
        if lines and len(lines[-1]) + len(chunk) + 3 <= width:
            lines[-1] += f" {chunk}"
        else:
            lines.append(chunk if not lines else f"  {chunk}")
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def open_table(gap: int = 1) -> Table:
    """Return a table of rich without lines, its columns that many spaces apart."""
    from rich.table import Table

    class Translated(Table):
        def add_column(self, header: Any = "", *arguments: Any, **options: Any) -> None:
            self.titles = [*getattr(self, "titles", ()), str(header)]
            super().add_column(translate(header, "heading"), *arguments, **options)

        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*map(translate_cell, self.titles, cells), **options)

    return Translated(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


def labelled(rows: Iterable[tuple[str | Text, str | Text]], *, width: int = 0) -> Table:
    """Return labels, of at least this width, with their texts beside them, which may fold."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=width)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(translate(label, "heading", "word"), translate(text))
    return table


def written(console: Console) -> str:
    """Return the text that the console has written, without spaces at the ends of lines."""
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


# Text in Markdown

_SPECIAL: Final = re.compile(r"[&<>`*\[\]|\\#~!$]|_(?![A-Za-z0-9])|(?<![A-Za-z0-9])_|(?<=www)\.|:(?=//)")
_UNSEEN: Final = re.compile(rf"(?:[\t\n\r]|{INVISIBLE.pattern})+")
_MENTION: Final = re.compile(r"(?<![A-Za-z0-9])@")


def markdown_code(text: str) -> str:
    """Return the text in a code span that nothing in it can end, also inside a table."""
    clean = _clean(text).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", clean)), default=0) + 1)
    pad = " " if clean.startswith("`") or clean.endswith("`") or not clean.strip() else ""
    return f"{fence}{pad}{clean}{pad}{fence}"


def markdown_text(text: str) -> str:
    """Return the text with entities for all Markdown markup and mentions."""
    clean = _MENTION.sub("@\u200b", _clean(text))
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", clean)


def _clean(text: str) -> str:
    """Return a text in one line, without invisible characters, keys and paths in a home folder."""
    return _UNSEEN.sub(" ", redact_home(redact(text)))
