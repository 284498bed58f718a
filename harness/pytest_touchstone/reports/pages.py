"""The pages of a run, of runs side by side, of a study, and of a training that goes on: sections above their items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.document import Section
from pytest_touchstone.reports.page.builder import assemble_page, sections_html
from pytest_touchstone.reports.page.payload import JudgedPair, PageItems, compare_all_pairs
from pytest_touchstone.reports.page.security import Redaction, refuse_keys
from pytest_touchstone.reports.page.summary import comparison_sections, study_sections
from pytest_touchstone.reports.run_report import run_report
from pytest_touchstone.results.journal import journal_size
from pytest_touchstone.results.summary import SUMMARY, Summary, load_summary
from pytest_touchstone.study.points import Study

FILE: Final = "report.html"

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
    title = f"Results of {summary.run_id}"
    text = sections_html(title, run_report(summary, details=True, items=run), redaction)
    facts = {"title": title, "kind": "run", "notes": reader_notes}
    return _page(text, items, compare_all_pairs(items.runs), facts, redaction)


def comparison_page(summaries: Sequence[Summary], reader_notes: Sequence[str] = ()) -> str:
    """Return the page of several runs side by side, the first of which is the baseline.

    Raises ``HarnessError`` where they have nothing in common, and as ``run_page`` does.
    """
    items = PageItems(redaction := Redaction())
    for summary in summaries:
        refuse_keys(summary.manifest, summary.run_id)
        items.read(summary, compared=True)
    pairs = compare_all_pairs(items.runs)
    text = sections_html("Side by side", comparison_sections(items.runs, pairs), redaction)
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
    shown = study_sections(study, sections)
    if size > MOST_BYTES:
        note = (
            f"The items of these {len(run_folders)} runs ({size / 2**20:.0f} MiB) are not on this page: "
            "`touchstone report RUN --open` makes one of a run, `touchstone report RUN RUN --open` of two "
            "side by side."
        )
        shown.append(Section(key="items", parts=(note,), urgent=True))
        run_folders = []
    summaries = []
    for folder in run_folders:
        with suppress(HarnessError):  # its numbers come from elsewhere; only its items are left out
            summaries.append(load_summary(folder))
    for summary in summaries:
        refuse_keys(summary.manifest, summary.run_id)
        items.read(summary, compared=False)
    title = "Study of checkpoints"
    text = sections_html(title, shown, redaction)
    return _page(text, items, [], {"title": title, "kind": "study", "notes": ()}, redaction)


def live_page(sections: Iterable[Section], *, title: str, reload: int | None = None) -> str:
    """Return a page without items, which loads itself again after ``reload`` seconds, if any."""
    redaction = Redaction()
    text = sections_html(title, sections, redaction)
    meta = {"title": title, "notes": redaction.notes()}
    return assemble_page(text, redaction.value(meta, "names"), [], reload=reload)


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
