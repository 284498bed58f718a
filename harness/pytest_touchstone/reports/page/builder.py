"""Puts a page together: its summary, the data of its items, and the scripts that show them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.text import INVISIBLE, escape_invisible
from pytest_touchstone.document import Section, formatting
from pytest_touchstone.document.language import current_language, translate_html
from pytest_touchstone.reports import gate, notes
from pytest_touchstone.reports.page.payload import DataBlock, JudgedPair, PageItems, compare_all_pairs
from pytest_touchstone.reports.page.security import Redaction, policy, redact_own_text, refuse_keys
from pytest_touchstone.reports.page.summary import comparison_content, run_content, study_content
from pytest_touchstone.results.journal import journal_size
from pytest_touchstone.results.summary import SUMMARY, Summary, load_summary
from pytest_touchstone.study.points import Study

FILE: Final = "report.html"
FOLDER: Final = Path(__file__).parent
STYLES: Final = ("page.css", "items.css")
SCRIPTS: Final = ("core", "texts", "data", "filters", "list", "item", "controls", "downloads", "page")
"""The scripts in the order in which they are joined: each uses those before it."""

MOST_BYTES: Final = 256 * 2**20
"""Journals that are larger in all stay out of the page of a study: their runs have pages of their own."""


def run_page(summary: Summary, reader_notes: Sequence[str] = ()) -> str:
    """Return the page of a run; names, messages and texts of others cannot become markup.

    ``reader_notes`` are notes for the reader.

    Raises ``HarnessError`` where a setting holds what looks like a key, or the journal cannot be read.
    """
    refuse_keys(summary.manifest, summary.run_id)
    items = PageItems(redaction := Redaction())
    run = items.read(summary, compared=len(summary.checkpoints) > 1)
    text = _render_template("summary.html.j2", run_content(run), redaction)
    facts = {"title": f"Results of {summary.run_id}", "kind": "run", "notes": reader_notes}
    return _page(text, items, compare_all_pairs(items.runs), facts, redaction)


def comparison_page(summaries: Sequence[Summary], reader_notes: Sequence[str] = ()) -> str:
    """Return the page of several runs side by side; the first is the baseline.

    Raises ``HarnessError`` where they have nothing in common, and as ``run_page`` does.
    """
    items = PageItems(redaction := Redaction())
    for summary in summaries:
        refuse_keys(summary.manifest, summary.run_id)
        items.read(summary, compared=True)
    pairs = compare_all_pairs(items.runs)
    text = _render_template("comparison.html.j2", comparison_content(items.runs, pairs), redaction)
    ids = dict.fromkeys(summary.run_id for summary in summaries)
    title = f"{' and '.join(ids)}, side by side" if len(ids) > 1 else f"Checkpoints of {summaries[0].run_id}"
    return _page(text, items, pairs, {"title": title, "kind": "comparison", "notes": reader_notes}, redaction)


def study_page(study: Study, sections: Sequence[Section]) -> str:
    """Return the page of a study, with the items of its runs where these are not too many.

    Raises ``HarnessError`` where a setting of a run holds what looks like a key.
    """
    items = PageItems(redaction := Redaction())
    entries = (entry for point in study.points for entry in point.candidate.entries.values())
    folders = dict.fromkeys(entry.answers for entry in entries if entry.answers is not None)
    run_folders = [folder for folder in folders if (folder / SUMMARY).is_file()]
    size = sum(map(journal_size, run_folders))
    reader_notes = []
    if size > MOST_BYTES:
        reader_notes = [
            f"The items of these {len(run_folders)} runs ({size / 2**20:.0f} MiB) are not on this page: "
            "`touchstone report RUN --open` makes one of a run, `touchstone report RUN RUN --open` of two "
            "side by side."
        ]
        run_folders = []
    summaries = []
    for folder in run_folders:
        with suppress(HarnessError):  # its numbers come from elsewhere; only its items are left out
            summaries.append(load_summary(folder))
    for summary in summaries:
        refuse_keys(summary.manifest, summary.run_id)
        items.read(summary, compared=False)
    title = "Study of checkpoints"
    text = _study_html(study, sections, title, reader_notes, redaction)
    return _page(text, items, [], {"title": title, "kind": "study", "notes": ()}, redaction)


def live_page(
    study: Study | None,
    sections: Sequence[Section],
    *,
    title: str,
    reader_notes: Sequence[str] = (),
    reload: int | None = None,
) -> str:
    """Return the page of a study that grows, without items.

    ``reader_notes`` is what a reader must know first; the page loads itself again after ``reload`` seconds.
    """
    redaction = Redaction()
    text = _study_html(study, sections, title, reader_notes, redaction)
    meta = {"title": title, "notes": redaction.notes()}
    return assemble_page(text, redaction.value(meta, "names"), [], reload=reload)


def _study_html(
    study: Study | None,
    sections: Sequence[Section],
    title: str,
    reader_notes: Sequence[str],
    redaction: Redaction,
) -> str:
    shown = [section for section in sections if section.key != "sparklines"]  # the page draws the curves
    data = {"sections": shown, "title": title, "told": reader_notes, **study_content(study)}
    return _render_template("study.html.j2", data, redaction)


def _page(
    summary: str,
    items: PageItems,
    pairs: Sequence[JudgedPair],
    facts: Mapping[str, Any],
    redaction: Redaction,
) -> str:
    """Return the page around a summary that is HTML already."""
    meta, blocks = items.meta_and_blocks(pairs, facts)
    meta["notes"] = [*facts["notes"], *redaction.notes()]
    return assemble_page(summary, redaction.value(meta, "names"), blocks)


def assemble_page(
    summary: str,
    meta: Mapping[str, Any],
    blocks: Sequence[DataBlock],
    *,
    reload: int | None = None,
) -> str:
    """Return the page of a summary in HTML and of data without keys.

    It has items if there are blocks of them. It loads itself again after ``reload`` seconds, if any.
    """
    from markupsafe import Markup

    style = "".join(map(_text, STYLES))
    scripts = ["\n".join(_text(f"script/{name}.js") for name in SCRIPTS)] if blocks else []
    text: str = (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=meta["title"],
            language=current_language(),
            notes=meta["notes"],
            reload=reload,
            policy=policy(scripts, style),
            style=Markup(style),
            scripts=[Markup(script) for script in scripts],
            summary=Markup(summary),
            data=blocks and [DataBlock("page-meta", _json(meta)), *blocks],
        )
    )
    return text.lstrip()


def _render_template(template: str, data: Mapping[str, Any], redaction: Redaction) -> str:
    text = _environment().get_template(template).render(**data)
    return redaction.text(translate_html(text), "the summary")


@functools.cache
def _environment() -> Any:
    """Return the templates, which are compiled once in a process."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_displayed,
    )
    environment.globals |= {"formatting": formatting, "gate": gate, "notes": notes, "plain": _plain}
    return environment


def _displayed(value: Any) -> Any:
    """Return a value for display; HTML is kept."""
    return escape_invisible(redact_own_text(value)) if type(value) is str else value


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _json(value: object) -> Any:
    """Return JSON that cannot end its HTML element, without control characters of screens."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    text = INVISIBLE.sub(lambda match: json.dumps(match[0])[1:-1], text)
    return Markup(text)


def _plain(value: Any) -> str:
    """Return a setting as text, or as JSON if it is not one."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
