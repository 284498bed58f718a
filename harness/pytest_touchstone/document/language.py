"""Reports in other languages: English texts are translated as they are drawn.

Reports are written in English, which is the identity of a message, as gettext has it; JSON and files stay so.
``labelled``, ``open_table`` and ``console_of`` (``document.formatting``) ask here for each text that they draw, and
without a language get it back unchanged. A language is a catalogue ``locale/NAME.po``.

The contexts (``msgctxt``) of its messages:

    heading   the title of a section or a column, or the label beside a text
    word      all of a cell, or of one line of it: the verdicts
    (none)    a sentence, or what stands between two of the signs . ; : , in one

A field in a message stands for what varies, and its name says what that may be (``FIELDS``): numbers and names stay as
they are, and only ``{text}`` and ``{names}`` are themselves translated, as far as there are sentences in them. What no
catalogue knows stays in English.
"""

from __future__ import annotations

import gettext
import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.text import Text

FOLDER: Final = Path(__file__).parents[1] / "locale"
ENGLISH: Final = "en"
LONGEST: Final = 1000
"""The characters of the longest line that is translated."""

FIELD: Final = re.compile(r"\{(\w+)\}")
FIELDS: Final = {
    "n": r"[\d,.]*\d",
    "p": r"(?:< ?)?\d[\d.e+-]*",
    "moved": r"[+-][\d.]+(?: \[[^\]]*\])?",
    "interval": r"\[[^\]]*\]",
    "text": ".+?",
    "names": ".+?",
}
"""What a field matches, by its name without digits; one of any other name a name, which ends before a comma."""

_LINE: Final = re.compile(r'(?:(msgctxt|msgid|msgstr) )?(".*")')
_BREAKS: Final = tuple(re.compile(rf"(?<={sign}) (?![^\[]*\])") for sign in (r"\.", ";", ":", ","))
_COLUMNS: Final = re.compile("( {2,})")
_PADDED: Final = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)
_END: Final = re.compile(r"[.;:,]?$")
_NODE: Final = re.compile(r"<(\w+)([^>]*)>([^<]+)(?=<)")
_LITERAL: Final = frozenset({"code", "desc", "kbd", "span", "style", "text", "title"})
"""Elements of HTML whose texts are commands, names of settings, or labels of drawings."""

_NAMES: Final = frozenset({"A", "B", "benchmark", "checkpoint", "metric", "measure", "series"})
"""The titles of columns whose cells are names."""


class Catalogue(gettext.NullTranslations):
    """The messages of a language."""

    def __init__(self, text: str, name: str = ENGLISH) -> None:
        super().__init__()
        self.name = name
        self._messages = {
            key: translation for key, translation in read_messages(text).items() if key[1]
        }  # without the head
        forms = [key for key in self._messages if FIELD.search(key[1])]
        # The message that says most comes first: another may be a part of it.
        forms.sort(key=lambda key: -len(FIELD.sub("", key[1])))
        self._forms = [
            (context, _message_pattern(message), self._messages[context, message])
            for context, message in forms
        ]

    def pgettext(self, context: str, message: str) -> str:
        """Return the translation of a whole message in this context, or the message."""
        return self._found(context, message) or message

    def gettext(self, message: str) -> str:
        """Return a text, sentence by sentence and part by part, as far as they are known."""
        lines = (_COLUMNS.split(line) for line in message.split("\n"))
        return "\n".join("".join(map(self._sentence, parts)) for parts in lines)

    def _found(self, context: str, message: str) -> str | None:
        if (translation := self._messages.get((context, message))) is not None:
            return translation
        for form_context, pattern, template in self._forms:
            if form_context == context and (match := pattern.fullmatch(message)):
                fields = {name: self._field(name, text) for name, text in match.groupdict().items()}
                return template.format_map(fields)
        return None

    def _field(self, name: str, text: str) -> str:
        return self.gettext(text) if name.rstrip("23") in ("text", "names") else text

    def _sentence(self, text: str, level: int = 0) -> str:
        before, plain, after = _PADDED.fullmatch(text).groups()  # type: ignore[union-attr]  # it matches any
        if not plain or len(plain) > LONGEST:
            return text
        end = _END.search(plain)[0]  # type: ignore[index]  # it is found in any
        translation = self._found("", plain.removesuffix(end))
        if translation is not None:
            return f"{before}{translation}{end}{after}"
        for deeper in range(level, len(_BREAKS)):
            if match := _BREAKS[deeper].search(plain):
                first, remainder = plain[: match.start()], plain[match.end() :]
                return (
                    f"{before}{self._sentence(first, deeper + 1)} {self._sentence(remainder, deeper)}{after}"
                )
        return text


def read_messages(text: str) -> dict[tuple[str, str], str]:
    """Return the translations of a ``.po`` file by context and message; its head is the message without text."""
    messages: dict[tuple[str, str], str] = {}
    entry: dict[str, str] = {}
    keyword = ""
    for line in [*text.splitlines(), ""]:
        if match := _LINE.fullmatch(line):
            keyword = match[1] or keyword
            entry[keyword] = entry.get(keyword, "") + json.loads(match[2])
        elif not line and entry:
            messages[entry.get("msgctxt", ""), entry["msgid"]] = entry["msgstr"]
            entry = {}
    return messages


def _message_pattern(message: str) -> re.Pattern[str]:
    """Return what a message with fields matches."""
    pieces = [re.escape(piece) for piece in FIELD.split(message)]
    for index in range(1, len(pieces), 2):
        kind = FIELDS.get(pieces[index].rstrip("23"), "(?:(?![;:,] ).)+?")
        pieces[index] = f"(?P<{pieces[index]}>{kind})"
    return re.compile("".join(pieces))


_SPOKEN: ContextVar[Catalogue | None] = ContextVar("spoken", default=None)


def languages() -> list[str]:
    """Return the names of the languages that there are."""
    return [ENGLISH, *sorted(path.stem for path in FOLDER.glob("*.po"))]


@contextmanager
def use_language(name: str) -> Iterator[None]:
    """Draw reports in this language, one of ``languages``."""
    catalogue = None if name == ENGLISH else Catalogue((FOLDER / f"{name}.po").read_text("utf-8"), name)
    token = _SPOKEN.set(catalogue)
    try:
        yield
    finally:
        _SPOKEN.reset(token)


def translate(text: str | Text, *contexts: str) -> str | Text:
    """Return a text in the chosen language.

    A whole message of one of the contexts is looked up first, then its lines, then its sentences. The spaces around it
    keep their width, and the parts of a text in several styles their styles.
    """
    if (catalogue := _SPOKEN.get()) is None:
        return text
    if isinstance(text, str):
        return _translate_text(catalogue, text, contexts)
    from rich.text import Text

    edges = sorted({edge for span in text.spans for edge in (span.start, span.end)} - {0, len(text)})
    translated = text.blank_copy()
    for piece in text.divide(edges):
        piece_contexts = contexts if not edges else ("heading",) if piece.plain.endswith("  ") else ()
        style = piece.spans[0].style if piece.spans else ""
        translated.append_text(Text(_translate_text(catalogue, piece.plain, piece_contexts), style=style))
    return translated


def translate_html(text: str) -> str:
    """Return HTML with its texts in the chosen language; cells of the class ``name`` and commands stay."""
    if _SPOKEN.get() is None:
        return text

    def put(match: re.Match[str]) -> str:
        element, attributes, inner = match.groups()
        if element in _LITERAL or 'class="name' in attributes:
            return match[0]
        plain = html.unescape(re.sub(r"\s+", " ", inner) if element == "p" else inner)
        translated = translate(plain, "word" if element in ("td", "dd") else "heading")
        return f"<{element}{attributes}>{html.escape(str(translated), quote=False)}"

    return _NODE.sub(put, text)


def current_language() -> str:
    """Return the name of the language that is spoken."""
    return catalogue.name if (catalogue := _SPOKEN.get()) is not None else ENGLISH


def translate_cell(title: str, text: str | Text) -> str | Text:
    """Return a cell in the language that is spoken; names stay, by the title of their column."""
    return text if title.partition("\n")[0].strip() in _NAMES else translate(text, "word")


def _translate_text(catalogue: Catalogue, text: str, contexts: tuple[str, ...]) -> str:
    from rich.cells import cell_len

    before, plain, after = _PADDED.fullmatch(text).groups()  # type: ignore[union-attr]  # it matches any
    if len(plain) > LONGEST:
        return text
    flat = " ".join(plain.split())
    for context in contexts:
        if (translation := catalogue.pgettext(context, flat)) != flat:
            padding = cell_len(plain) + len(after) - cell_len(translation) if len(after) > 1 else len(after)
            return f"{before}{translation}{' ' * max(padding, min(len(after), 1))}"
    if contexts and "\n" in plain:
        return "\n".join(_translate_text(catalogue, line, contexts) for line in text.split("\n"))
    return catalogue.gettext(text)
