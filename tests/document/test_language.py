from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import pytest_touchstone
from pytest_touchstone.document.formatting import console_of, labelled, open_table, written
from pytest_touchstone.document.language import (
    ENGLISH,
    FIELD,
    FOLDER,
    Catalogue,
    languages,
    read_messages,
    translate,
    use_language,
)

OTHERS = [name for name in languages() if name != ENGLISH]
PACKAGE = Path(pytest_touchstone.__file__).parent


def messages(name: str) -> dict[tuple[str, str], str]:
    found = read_messages((FOLDER / f"{name}.po").read_text("utf-8"))
    return {key: text for key, text in found.items() if key[1]}


@cache
def texts_of_the_code() -> str:
    """The texts in what draws and what it draws, each on a line of its own."""
    found = []
    for folder in ("core", "statistics", "compare", "document", "study", "reports", "cli"):
        for path in (PACKAGE / folder).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            found += [
                one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
    others = ((PACKAGE / "reports/page").glob("*.j2"), (PACKAGE / "engines/transformers").glob("mut*.py"))
    found += [path.read_text("utf-8") for paths in others for path in paths]
    return "\n".join(" ".join(text.split()) for text in found)


SPEAKING = (
    *(
        f"reports/{name}.py"
        for name in ("comparison", "gate", "notes", "best", "proof", "run_report", "result_tables")
    ),
    *("document/formatting.py", "reports/next_steps.py", "reports/page/summary.py"),
    *(f"study/{name}.py" for name in ("advice", "curve_sections", "forgetting", "overview", "pool")),
    *(f"study/{name}.py" for name in ("sections", "sparklines", "versus")),
    *("compare/baselines.py", "compare/prompts.py", "compare/gate/decide.py", "compare/gate/accepted.py"),
)
"""The modules whose texts a person reads in the terminal and on pages."""

ENGLISH_ALONE = {"no best is marked", "touchstone baseline set", r"after Holm over \d+ tests"}
"""Texts of what is always English: a table for a paper, a command, a pattern."""


def sentences_of(path: Path) -> set[str]:
    """The texts of three words or more that a module draws, without docstrings, errors and keys."""
    tree = ast.parse(path.read_text("utf-8"))
    others: list[ast.AST] = [one for one in ast.walk(tree) if isinstance(one, ast.Raise | ast.Compare)]
    others += [
        one for one in ast.walk(tree) if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    ]
    left = {id(inner) for one in others for inner in ast.walk(one)}
    texts = [
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in left
    ]
    pieces = {piece.strip(" .;:,") for text in texts for piece in re.split(r"[.;:,?] |\n|[()]", text)}
    return {piece for piece in pieces if len(re.findall(r"(?<!\S)[A-Za-z']+(?!\S)", piece)) > 2}


def _bare(words: str) -> str:
    return words.lstrip("(").rstrip("s,;:.)")


def is_said(text: str) -> bool:
    """Return whether a text is in the code, maybe in several pieces; a plural may have its s from elsewhere."""
    words = text.split()
    while words:
        starts = (" ".join(words[:end]) for end in range(len(words), 0, -1))
        end = next((len(one.split()) for one in starts if _bare(one) in texts_of_the_code()), 0)
        if not end:
            return False
        words = words[end:]
    return True


def test_there_are_korean_and_chinese_besides_english():
    assert languages() == ["en", "ko", "zh"]


def test_the_catalogues_have_the_same_messages():
    assert messages("ko").keys() == messages("zh").keys()


@pytest.mark.parametrize("name", OTHERS)
def test_a_translation_has_the_fields_of_its_message(name):
    for (_, message), text in messages(name).items():
        assert text.strip(), message
        assert sorted(FIELD.findall(text)) == sorted(FIELD.findall(message)), message


def test_each_message_is_one_that_a_report_has():
    lost = [
        message
        for _, message in messages("ko")
        if not all(is_said(piece) for piece in FIELD.split(message)[::2])
    ]
    assert not lost


def test_each_text_of_a_report_is_in_the_catalogues():
    """A new text that has none stays English in every language: translate it in each ``locale/NAME.po``."""
    known = "\n".join(message for _, message in messages("ko"))
    paths = [path for pattern in SPEAKING for path in PACKAGE.glob(pattern)]
    new = [text for path in paths for text in sorted(sentences_of(path)) if text not in known]
    assert set(new) <= ENGLISH_ALONE


def test_no_message_is_without_words_of_its_own():
    """One that is only fields would take any text for its own."""
    for _, message in messages("ko"):
        assert len(re.findall("[A-Za-z%]", FIELD.sub("", message))) > 1, message


@pytest.mark.parametrize("name", OTHERS)
def test_numbers_and_names_stay_in_a_sentence(name):
    text = "arc_easy: +1.20 points [-0.30, +2.70]: at most 1 point worse; about 57,812 items would"
    text += " decide"
    with use_language(name):
        made = str(translate(text))
    for part in ("arc_easy:", "+1.20", "[-0.30, +2.70]", "57,812"):
        assert part in made
    assert not re.search("[a-z]{2,}", made.replace("arc_easy", ""))


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "text",
    [
        "touchstone run --tasks real_coref,ko_lambada_wiki --checkpoint 'runs/NEW/checkpoint-*'",
        "results/two/   report.html   summary.json   results.csv",
        "last",
        "best",
        "peak of noise",
        "",
        "  ",
        "\n",
    ],
)
def test_commands_paths_and_names_stay(name, text):
    with use_language(name):
        assert translate(text) == text


def test_a_text_is_what_it_was_where_no_language_is_asked_for():
    with use_language(ENGLISH):
        assert translate("not worse", "word") == "not worse"
    assert translate("not worse", "word") == "not worse"


def test_a_language_ends_with_its_report():
    with pytest.raises(RuntimeError), use_language("ko"):
        raise RuntimeError
    assert translate("not worse", "word") == "not worse"


def test_a_long_text_of_others_takes_no_time():
    with use_language("ko"):
        text = "and more of the items, p = " * 4000
        assert translate(text) == text


def test_columns_stay_below_each_other_in_wide_letters():
    from rich.cells import cell_len

    with use_language("ko"):
        console = console_of(60, color=False)
        table = open_table(2)
        for title in ("benchmark", "value", "verdict"):
            table.add_column(title)
        table.add_row("worse", "0.5000", "worse")
        table.add_row("arc_easy", "0.2500", "not worse")
        console.print(table)
        console.print(labelled([("note", "lower is better for loss"), ("inconclusive", "none")]))
    head, first, second, note, none = written(console).split("\n")
    assert first.startswith("worse ")  # a benchmark's name
    assert cell_len(head[: head.index("판정")]) == first.index("저하") == second.index("저하 없음")
    assert cell_len(note[: note.index("loss")]) == cell_len(none[: none.index("없음")])


def test_messages_are_read_as_gettext_writes_them():
    text = '# about it\nmsgctxt "word"\nmsgid ""\n"a "\n"\\"b\\""\nmsgstr "c\\n"\n\nmsgid "{n} items"\nmsgstr "{n}개"\n'
    assert read_messages(text) == {("word", 'a "b"'): "c\n", ("", "{n} items"): "{n}개"}
    assert Catalogue(text).gettext("1,200 items; none") == "1,200개; none"
