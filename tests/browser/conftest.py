"""A Chromium per module of tests of the page, and pages of made-up items."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser; Debian has it as the package chromium.

    Playwright keeps an event loop running in its thread, so it ends before other modules' tests, which have their own.
    """
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs the command chromium (apt-get install chromium)")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Make a page of made-up items once, and return its address."""
    known: dict[str, str] = {}
    folder = tmp_path_factory.mktemp("pages")

    def address(**what: Any) -> str:
        name = repr(sorted(what.items()))
        if name not in known:
            path = folder / f"{len(known)}.html"
            path.write_text(pages.page(*pages.made(**what)), encoding="utf-8")
            known[name] = path.as_uri()
        return known[name]

    return address


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Open an address in a fresh context. Afterwards no page may have raised an error or asked for anything."""
    contexts = []
    faults: list[str] = []

    def note_request(request: Any) -> None:
        if not request.url.startswith(("file:", "blob:null/")):
            faults.append(f"asked for {request.url}")

    def page_at(address: str, **context: Any) -> Page:
        contexts.append(chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **context}))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: faults.append(f"raised {error}"))
        page.on("request", note_request)
        page.on("console", lambda one: faults.append(one.text) if one.type == "error" else None)
        page.on("dialog", lambda one: faults.append(f"asked {one.message}"))
        page.goto(address)
        return page

    yield page_at
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture
def items(made: Callable[..., str], opened: Callable[..., Page]) -> Callable[..., Page]:
    """Open the items of a made-up page, with their texts in brief."""

    def page_of(filters: str = "", *, context: dict[str, Any] | None = None, **what: Any) -> Page:
        page = opened(f"{made(**what)}#{filters or 'items='}", **context or {})
        page.wait_for_selector("#rows .row .asked", state="attached")
        return page

    return page_of
