"""Measure a page of many items in Chromium: first paint, filters, searches, and the heap of the page and its workers.

    python -m perf page_browser

Two pages of made-up items: 50,000 items of one checkpoint, and 20 checkpoints of 2,000 items, of which all are listed.
Times are milliseconds of the wall clock from the call that a control makes. "First" ends with the frame after the list
shows its first result, "whole" with the frame after it shows all of it. Each is the middle and the longest of five.
"Blocked" is the longest time in which the page could not have answered a key. All texts are unpacked before, except for
the search at once; the search after a second meets a page that has unpacked texts since it was opened.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support import pages

PAGES: Final[dict[str, tuple[dict[str, Any], dict[str, str]]]] = {
    "50,000 items": ({"benchmarks": ("facts", "sums"), "checkpoints": 1, "items": 25_000}, {}),
    "20 checkpoints of 2,000 items": (
        {"benchmarks": ("sums",), "checkpoints": 20, "items": 2_000},
        {"a": "*"},
    ),
}
FILTERS: Final = {
    "wrong ones": {"right": "wrong"},
    "group and field": {"group": "law", "field.source": "web"},
    "tokens, at least 30": {"min.tokens": "30"},
    "sorted by example": {"sort": "example", "down": "1"},
    "sorted by seconds": {"sort": "seconds"},
    "wrong ones by example": {"right": "wrong", "sort": "example"},
}
SEARCHES: Final = {
    "text": "trains that never",
    "text of the few-shot examples": "Answer:",
    "pattern": r"/number \d+7: \w+ (quiet|long)/",
    "pattern, any case": "/total is (1|9)\\d\\d\\b/i",
    "pattern with a back-reference": r"/(\w+) \1 \1/",
}
PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
TIMED: Final = """async (changes) => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const none = {...Object.fromEntries(filtersOf(state).map((name) => [name, ""])), sort: "", down: ""};
  await update(none);
  await frame();
  const began = performance.now();
  let [last, blocked, first] = [began, 0, null];
  const beat = setInterval(() => {
    const now = performance.now();
    blocked = Math.max(blocked, now - last);
    last = now;
  }, 4);
  const draw = window.drawRows;
  window.drawRows = (...all) => {
    const place = draw(...all);
    frame().then(() => { first ??= performance.now() - began; });
    return place;
  };
  await update({...none, ...changes});
  await frame();
  const whole = performance.now() - began;
  clearInterval(beat);
  window.drawRows = draw;
  return [first, whole, blocked, left.length];
}"""
TIMES: Final = 5
LIMITS: Final = {"first": 300, "blocked": 50}
"""Milliseconds in which the first result is promised, and for which the page may be blocked."""


def main() -> None:
    """Print what was measured, a line per figure."""
    argparse.ArgumentParser(description="a page of many items in Chromium").parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place, sync_playwright() as started:
        chromium = shutil.which("chromium")
        if chromium is None:
            raise SystemExit("no chromium: apt-get install chromium")
        for title, (size, chosen) in PAGES.items():
            path = Path(place) / "page.html"
            path.write_text(pages.page(*pages.made(**size)), encoding="utf-8")
            browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            print(f"\n{title}, {path.stat().st_size / 1e6:.1f} MB, Chromium {browser.version}")
            _measure(browser, path, chosen)
            browser.close()


def _measure(browser: Any, path: Path, chosen: dict[str, str]) -> None:
    page = _opened(browser, path)
    rows = page.evaluate("performance.now()")
    print(f"  first paint {page.evaluate(PAINTED) / 1e3:.2f} s, rows {rows / 1e3:.2f} s")
    page.evaluate("(chosen) => update(chosen)", chosen)
    print(f"  {'':48}{'first':>12} {'whole':>14} {'blocked':>8} {'items':>8}")
    _line("search at once, which unpacks the texts", [page.evaluate(TIMED, {"q": SEARCHES["text"]})])
    page.close()
    page = _opened(browser, path)
    page.evaluate("(chosen) => update(chosen)", chosen)
    page.wait_for_timeout(1000)
    _line("search after a second", [page.evaluate(TIMED, {"q": SEARCHES["text"]})])
    page.evaluate("texts.ahead(chunksInView())")
    for kind, wanted in (("filter", FILTERS), ("search", {name: {"q": q} for name, q in SEARCHES.items()})):
        for name, changes in wanted.items():
            _line(f"{kind}, {name}", [page.evaluate(TIMED, changes) for _ in range(TIMES)])
    page.evaluate("openRow(3, false)")
    print(f"  heap of the page and its workers {_heap(page) / 1e6:.0f} MB")


def _opened(browser: Any, path: Path) -> Any:
    """Return the page when its first rows are there."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{path.as_uri()}#items=")
    page.wait_for_selector("#rows .row")
    return page


def _line(title: str, found: list[list[float]]) -> None:
    """Print the middle and the longest of the times to the first and the whole result, and what they say."""
    first, whole, blocked, items = zip(*found, strict=True)
    over = [
        f"{name} over {limit} ms"
        for name, limit, worst in zip(LIMITS, LIMITS.values(), (max(first), max(blocked)), strict=True)
        if worst > limit
    ]
    print(
        f"  {title:48}{statistics.median(first):6.0f}/{max(first):.0f} {statistics.median(whole):8.0f}/{max(whole):.0f}"
        f" {max(blocked):8.0f} {int(items[0]):8,}  {', '.join(over)}".rstrip(),
        flush=True,
    )


def _heap(page: Any) -> float:
    """Return the bytes of all JavaScript heaps of the page after a collection, array buffers included."""
    session = page.context.new_cdp_session(page)
    total = 0.0
    answers: list[dict[str, Any]] = []
    workers: list[str] = []
    session.on("Target.attachedToTarget", lambda event: workers.append(event["sessionId"]))
    session.on("Target.receivedMessageFromTarget", lambda event: answers.append(json.loads(event["message"])))
    session.send(
        "Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False}
    )
    session.send("HeapProfiler.collectGarbage")
    total += _used(session.send("Runtime.getHeapUsage"))
    while len(workers) < len(page.workers):
        page.wait_for_timeout(50)
    for number, worker in enumerate(workers):
        for order, method in enumerate(("HeapProfiler.collectGarbage", "Runtime.getHeapUsage")):
            message = json.dumps({"id": 10 * number + order + 1, "method": method})
            session.send("Target.sendMessageToTarget", {"sessionId": worker, "message": message})
    while len(answers) < 2 * len(workers):
        page.wait_for_timeout(50)
    return total + sum(_used(one["result"]) for one in answers if one.get("result"))


def _used(heap: dict[str, float]) -> float:
    return heap["usedSize"] + heap.get("backingStorageSize", 0.0) + heap.get("embedderHeapUsedSize", 0.0)


if __name__ == "__main__":
    main()
