"""Measure a page of many items in Chromium: first paint, filters, searches, and the heap of the page and its workers.

    python perf/page_browser.py

Two pages of made-up items: 50,000 items of one checkpoint, and 20 checkpoints of 2,000 items. Times are of the wall
clock, from the call that a control makes to the next frame; each is the middle and the longest of five.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support import pages

PAGES: Final = {
    "50,000 items": {"benchmarks": ("facts", "sums"), "checkpoints": 1, "items": 25_000},
    "20 checkpoints of 2,000 items": {"benchmarks": ("sums",), "checkpoints": 20, "items": 2_000},
}
FILTERS: Final = {
    "wrong ones": {"right": "wrong"},
    "group and field": {"group": "law", "field.source": "web"},
    "tokens, at least 30": {"min.tokens": "30"},
    "sorted by example": {"sort": "example", "down": "1"},
    "sorted by seconds": {"sort": "seconds"},
}
SEARCHES: Final = {
    "text": "trains that never",
    "text of the few-shot examples": "Answer:",
    "pattern": r"/number \d+7: \w+ (quiet|long)/",
    "pattern, any case": "/total is (1|9)\\d\\d\\b/i",
    "pattern without a literal": r"/(\w+) \1 \1/",
}
PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
TIMED: Final = """async (changes) => {
  const began = performance.now();
  await update({...Object.fromEntries(filtersOf(state).map((name) => [name, ""])), sort: "", down: "", ...changes});
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return [performance.now() - began, shown.length];
}"""


def main() -> None:
    """Print what was measured, a line per figure."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place, sync_playwright() as started:
        chromium = shutil.which("chromium")
        if chromium is None:
            raise SystemExit("no chromium: apt-get install chromium")
        for title, size in PAGES.items():
            path = Path(place) / "page.html"
            path.write_text(pages.page(*pages.made(**size)), encoding="utf-8")  # type: ignore[arg-type]
            browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            print(f"\n{title}, {path.stat().st_size / 1e6:.1f} MB, Chromium {browser.version}")
            _measure(browser, path)
            browser.close()


def _measure(browser: Any, path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(f"{path.as_uri()}#items=")
    page.wait_for_selector("#rows .row")
    rows = page.evaluate("performance.now()")
    print(f"  first paint {page.evaluate(PAINTED) / 1e3:.2f} s, rows {rows / 1e3:.2f} s")
    began = time.perf_counter()
    page.evaluate("texts.prepare(chunksInView())")
    print(f"  all texts ready for searches {time.perf_counter() - began:.2f} s later")
    for kind, wanted in (("filter", FILTERS), ("search", {name: {"q": q} for name, q in SEARCHES.items()})):
        for name, changes in wanted.items():
            found = [page.evaluate(TIMED, changes) for _ in range(5)]
            times = [milliseconds for milliseconds, _ in found]
            median, longest = statistics.median(times), max(times)
            print(f"  {kind}, {name}: {median:.0f} ms, at most {longest:.0f} ms; {found[0][1]:,} items")
    page.evaluate("openRow(3, false)")
    print(f"  heap of the page and its workers {_heap(page) / 1e6:.0f} MB")


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
