"""What a page must not do: run or fetch anything that a model wrote, or keep a screen reader out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_touchstone.reports.pages import FILE, run_page
from pytest_touchstone.results.summary import load_summary
from tests.support import pages, runs

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("compared", ["", "&b=step-100"])
def test_markup_in_texts_does_nothing_and_is_shown_as_it_is(items: Any, compared: str) -> None:
    page = items(f"items=&benchmark=facts{compared}", hostile=True)
    for place, planted in enumerate(pages.HOSTILE):
        page.evaluate(f"update({{example: 'facts/{place}', sort: 'example', item: ''}})")
        page.wait_for_function(
            "start => document.querySelector('#row-0 .example')?.title.startsWith(start)",
            arg=f"facts/{place}",
        )
        page.click("#row-0")
        page.wait_for_function(
            "start => document.querySelector('#item-title')?.textContent.startsWith(start)",
            arg=f"facts/{place}",
        )
        shown = page.evaluate("document.querySelector('#item').textContent")
        plain = planted.replace("\x1b", "⟨U+001B⟩").replace("\x07", "⟨U+0007⟩").replace("\u202e", "⟨U+202E⟩")
        assert shown.count(plain) >= 10
    assert page.evaluate("window.harmed") is None
    made_of = "document.querySelectorAll('main :is(script, img, iframe, svg[onload], style, base)').length"
    assert page.evaluate(made_of) == 0
    assert page.evaluate("[...document.links].every((one) => one.getAttribute('href').startsWith('#'))")


def test_what_is_planted_in_an_address_is_text_too(made: Any, opened: Any) -> None:
    page = opened(
        f"{made()}#item=<img src=x onerror='window.harmed=1'>&a=<script>window.harmed=2</script>&status=<b>x"
        "&field.<i>=x&sort=__proto__&__proto__.x=1&q=/<img/"
    )
    page.wait_for_function("() => document.querySelector('#counts').textContent.startsWith('0 of')")
    assert page.evaluate("window.harmed") is None
    assert page.locator("main img, main b").count() == 0


def test_without_javascript_the_summary_is_read_and_the_items_are_said_to_need_it(
    made: Any, opened: Any
) -> None:
    page = opened(made(), java_script_enabled=False)
    assert page.is_visible("#summary")
    assert page.is_visible("noscript .note")
    assert page.is_hidden("#items")
    assert page.is_hidden("#bar")


def test_axe_finds_no_violation_in_rows_of_several_runs(items: Any) -> None:
    page = items(runs=2, checkpoints=2)
    page.focus("#grid")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#row-2.member")
    assert not violations(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_violation_in_any_view(items: Any, theme: str, width: int) -> None:
    page = items(context={"color_scheme": theme, "viewport": {"width": width, "height": 800}})
    found = {"list": violations(page)}
    page.click("#filters-button")
    found["filters"] = violations(page)
    page.click("#filters-button")
    page.click("#row-2")
    page.wait_for_selector("#item-title")
    found["item"] = violations(page)
    page.evaluate("update({b: 'step-100', benchmark: 'sums', q: 'total', right: 'wrong', item: ''})")
    page.wait_for_selector("#paired .warning", state="attached")
    found["pairs"] = violations(page)
    page.click("#row-0")
    page.wait_for_selector("#item .sides")
    found["side by side"] = violations(page)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    found["help"] = violations(page)
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    page.wait_for_selector("#summary")
    found["summary"] = violations(page)
    assert not {view: some for view, some in found.items() if some}


def test_axe_finds_no_violation_in_the_summary_of_a_run(opened: Any, tmp_path: Path) -> None:
    folder = runs.run(tmp_path, "one", "first", "second")
    (tmp_path / FILE).write_text(run_page(load_summary(folder)), encoding="utf-8")
    address = (tmp_path / FILE).as_uri()
    for theme in ("light", "dark"):
        for width in (1280, 390):
            page = opened(address, color_scheme=theme, viewport={"width": width, "height": 800})
            assert not violations(page)
    page.get_by_role("link", name="Items of winogrande").click()
    page.wait_for_selector("#rows .row")
    assert page.input_value("#pick-benchmark") == "winogrande"


def violations(page: Page) -> list[str]:
    """What axe finds, with the elements."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {[node['target'] for node in one['nodes']]}" for one in found]
