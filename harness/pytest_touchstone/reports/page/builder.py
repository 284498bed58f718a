"""Puts a page together: its sections as HTML, the data of its items, and the scripts that show them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.core.text import INVISIBLE, escape_invisible
from pytest_touchstone.document import Section
from pytest_touchstone.document.language import current_language, translate_html
from pytest_touchstone.reports.page.payload import DataBlock
from pytest_touchstone.reports.page.security import Redaction, policy, redact_own_text

FOLDER: Final = Path(__file__).parent
STYLES: Final = ("page.css", "items.css")
SCRIPTS: Final = ("core", "texts", "data", "filters", "list", "item", "controls", "downloads", "page")
"""The scripts in the order in which they are joined: each uses those before it."""


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


def sections_html(title: str, sections: Iterable[Section], redaction: Redaction) -> str:
    """Return sections below the title of a page, in the language that is spoken."""
    shown = [section for section in sections if "page" in section.views and section.parts]
    text = _environment().get_template("sections.html.j2").render(title=title, sections=shown)
    return redaction.text(translate_html(text), "the summary")


@functools.cache
def _environment() -> Any:
    """Return the templates, which are compiled once in a process."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_displayed,
    )


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
