"""The items of a page in a browser: filters, searches, order, the open item, the address, downloads, keys."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import pages
from tests.support.lines import missing
from tests.support.pages import unpacked

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow
Items = Any


def names(page: Page) -> list[str]:
    """The examples in sight, from the top."""
    shown = page.eval_on_selector_all(
        "#rows .row",
        "rows => rows.map((row) => [Number(row.ariaRowIndex), row.querySelector('.example').title])",
    )
    return [name for _, name in sorted(shown)]


def settled(page: Page, text: str) -> None:
    """Wait until the line of counts has this text."""
    page.wait_for_function("(text) => document.querySelector('#counts').textContent.includes(text)", arg=text)


def columns(page: Page, part: int) -> dict[str, Any]:
    """What the page holds of a part, unpacked by Python."""
    text = page.evaluate("id => document.getElementById(id).textContent", f"columns-{part}")
    found: dict[str, Any] = json.loads(unpacked(text))
    return found


def test_only_the_rows_in_sight_are_elements_and_scrolling_shows_the_last(items: Items) -> None:
    page = items(benchmarks=("facts",), checkpoints=1, items=5000)
    assert page.locator("#rows .row").count() < 60
    assert page.get_attribute("#grid", "aria-rowcount") == "5001"
    page.evaluate("document.querySelector('#grid').scrollTop = 1e9")
    page.wait_for_selector("[title='facts/4999']")
    assert page.locator("#rows .row").count() < 60
    page.wait_for_function(
        "() => document.querySelector('#row-4999 .asked')?.textContent.startsWith('Question: number 4999')"
    )


FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "right=wrong": lambda one: one["right"] == 0,
    "right=none": lambda one: one["right"] is None,
    "status=timeout": lambda one: one["status"] == 3,
    "error=RuntimeError": lambda one: one["error"] == "RuntimeError",
    "group=physics": lambda one: one["group"] == 1,
    "invalid=1": lambda one: one["invalid"] == 1,
    "field.source=book&field.level=2": lambda one: one["source"] == "book" and one["level"] == 2,
    "has.url=ORG/29": lambda one: "org/29" in one["url"],
    "min.seconds=0.5&max.seconds=0.75": lambda one: 0.5 <= one["seconds"] <= 0.75,
    "max.acc=0.5": lambda one: one["acc"] == 0,
    "example=facts/1": lambda one: "facts/1" in one["example"],
}


def test_filters_leave_the_items_that_pass_all_of_them(items: Items) -> None:
    page = items(benchmarks=("facts",), checkpoints=2)
    all_items = pages.items_of(columns(page, 1))
    for filters, wanted in FILTERS.items():
        page.goto(f"{page.url.split('#')[0]}#items=&{filters}&sort=example")
        left = [one["example"] for one in all_items if wanted(one)]
        settled(page, f"{len(left)} of 300 items")
        assert 0 < len(left) < 300, filters
        assert names(page)[:10] == left[:10], filters


def test_the_controls_set_filters_that_chips_remove_and_the_address_keeps(items: Items) -> None:
    page = items()
    page.click("#filters-button")
    page.get_by_label("right or wrong").select_option("wrong")
    page.get_by_label("tokens, at least").fill("30")
    page.get_by_label("tokens, at least").press("Tab")
    page.wait_for_function(
        "() => location.hash.includes('min.tokens=30') && location.hash.includes('right=wrong')"
    )
    left = page.inner_text("#counts")
    page.reload()
    page.wait_for_selector("#rows .row")
    assert page.inner_text("#counts") == left != ""
    page.get_by_role("button", name="Remove the filter tokens ≥ 30").click()
    page.get_by_role("button", name="Remove the filter wrong").click()
    settled(page, "900 of 900 items")
    assert "tokens" not in page.url


def test_a_search_finds_texts_and_patterns_in_prompts_and_answers_and_marks_them(items: Items) -> None:
    page = items("items=&benchmark=sums&q=NUMBER 17:")
    settled(page, "1 of 300 items")
    assert names(page) == ["sums/17"]
    page.fill("#find", r"/^#### (4|5)\d\d$/m")
    page.wait_for_function("() => document.querySelector('#counts').textContent.match(/^\\d\\d of 300/)")
    page.select_option("#find-in", "prompt")
    settled(page, "0 of 300 items")
    page.select_option("#find-in", "answer")
    page.wait_for_selector("#rows .row")
    page.click("#rows .row")
    assert page.locator("#item mark").first.inner_text().startswith("####")


def test_what_few_shot_examples_share_is_found_also_across_their_end(items: Items) -> None:
    page = items("items=&benchmark=facts&q=\n\nQuestion: number 29")
    settled(page, "11 of 300 items")  # 29 and 290 to 299
    page.wait_for_function("() => parts[6].columns")
    shared = page.evaluate("(async () => (await texts.item(6, 3)).asked[0].question.slice(10, 60))()")
    page.fill("#find", shared)
    settled(page, "100 of 300 items")  # those of its group


def test_a_pattern_that_is_none_is_said_and_leaves_all_items(items: Items) -> None:
    page = items("items=&benchmark=sums&q=/(/")
    settled(page, "the search was left out: Invalid regular expression")
    settled(page, "300 of 300 items")
    assert page.get_attribute("#find", "aria-invalid") == "true"


def test_a_pattern_that_does_not_end_is_given_up_and_the_next_search_works(items: Items) -> None:
    page = items("items=&benchmark=sums")
    page.evaluate("texts.prepare(chunksInView())")
    page.evaluate("Texts.patience = 500")
    page.fill("#find", r"/^(\w+\s?)+$/")
    settled(page, "it takes too long")
    page.evaluate("Texts.patience = 20000")
    page.fill("#find", "number 17:")
    settled(page, "1 of 300 items")


def test_what_a_search_has_found_so_far_is_shown_while_it_goes(items: Items) -> None:
    page = items("items=&a=*")
    page.evaluate(
        """() => {
            window.drawn = [];
            const draw = drawRows;
            window.drawRows = (hits, note) => {
                const place = draw(hits, note);
                drawn.push([note, left.length]);
                return place;
            };
        }"""
    )
    page.evaluate("(q) => update({q})", r"/(\w+ )+the total is \d+|number \d+1:/")
    drawn = page.evaluate("drawn")
    assert len(drawn) > 1
    assert all(re.search(r"\d+ %", note) for note, _ in drawn[:-1])
    assert drawn[-1][0] == ""
    found = [many for _, many in drawn]
    assert found == sorted(found)
    assert found[0] < found[-1] == 3 * (300 + 2 * 29)


def test_columns_sort_both_ways(items: Items) -> None:
    page = items("items=&benchmark=facts")
    page.get_by_role("button", name="example").click()
    page.wait_for_selector("[aria-sort=ascending]")
    assert names(page)[:3] == ["facts/0", "facts/1", "facts/2"]
    page.get_by_role("button", name="example").click()
    page.wait_for_selector("[aria-sort=descending]")
    assert names(page)[0] == "facts/299"
    page.select_option("#sort", "seconds")
    page.wait_for_function("() => location.hash.includes('sort=seconds')")
    seconds = columns(page, 6)["seconds"]
    assert names(page)[0] == f"facts/{seconds.index(max(seconds))}"


def test_an_item_shows_its_question_answers_choices_programs_and_what_was_read(items: Items) -> None:
    page = items("items=&benchmark=facts")
    page.click("#rows .row >> nth=1")
    page.wait_for_selector("#item table.choices")
    shown = page.inner_text("#item")
    assert "shared with other items" in shown
    assert shown.count("◀ chosen") == 1
    assert shown.count("✓ right") >= 1  # the choice that is due
    assert "Question: number 1:" in shown
    assert "topic" in shown
    page.goto(page.url.split("#")[0] + "#item=sums/2&on=sums")
    page.wait_for_selector("#item >> text=read out of the answer")
    shown = page.inner_text("#item")
    assert not missing(shown, "stop sequence", "61 tokens")
    assert "flexible\nnothing" in shown
    page.goto(page.url.split("#")[0] + "#item=programs/2&on=programs")
    page.wait_for_selector("#item >> text=program 4 of 4")
    shown = page.inner_text("#item")
    assert "AssertionError: f(1) == 2" in shown
    assert "answer 4 of 4".upper() in shown.upper()
    assert "You write programs." in shown


def test_repeats_of_an_item_are_one_row(items: Items) -> None:
    page = items("items=&benchmark=programs")
    assert page.inner_text("#row-0 .example") == "0 ×4"


def test_samples_of_an_item_show_how_many_are_right(items: Items) -> None:
    page = items("items=&benchmark=programs")
    right = columns(page, 8)["right"][0]
    assert page.inner_text("#row-0 .verdict") == ("2 of 4 right" if right else "1 of 4 right")


def test_runs_of_one_checkpoint_are_one_row_that_unfolds(items: Items) -> None:
    page = items("items=&benchmark=facts", runs=2, checkpoints=1)
    assert page.input_value("#pick-a") == "step-100, 2 runs"
    settled(page, "300 of 300 items")
    rights = list(zip(columns(page, 0)["right"], columns(page, 3)["right"], strict=True))
    place = next(place for place, pair in enumerate(rights) if sorted(map(str, pair)) == ["0", "1"])
    page.evaluate(f"list.go({place})")
    assert page.inner_text(f"#row-{place} .verdict") == "1 of 2 right"
    assert page.get_attribute(f"#row-{place}", "aria-expanded") == "false"
    page.focus("#grid")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f"#row-{place + 2}.member")
    assert page.get_attribute(f"#row-{place}", "aria-expanded") == "true"
    assert page.get_attribute(f"#row-{place + 1}", "aria-level") == "2"
    words = {1: "✓ right", 0: "✗ wrong"}
    shown = [page.inner_text(f"#row-{place + run + 1} .verdict") for run in range(2)]
    assert shown == [words[right] for right in rights[place]]
    assert page.inner_text(f"#row-{place + 2} .checkpoint") == "run 1"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert page.get_attribute("#grid", "aria-activedescendant") == f"row-{place}"
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".member", state="detached")
    page.click(f"#row-{place} .fold")
    page.wait_for_selector(f"#row-{place + 2}.member")


def test_filters_and_searches_apply_to_any_run_of_a_row_which_then_speaks_for_it(items: Items) -> None:
    page = items("items=&benchmark=sums&right=wrong", runs=2, checkpoints=1)
    rights = list(zip(columns(page, 1)["right"], columns(page, 4)["right"], strict=True))
    settled(page, f"{sum(0 in pair for pair in rights)} of 300 items")
    second = next(place for place, pair in enumerate(rights) if pair == (1, 0))
    page.goto(f"{page.url.split('#')[0]}#item=sums/{second}&benchmark=sums&right=wrong")
    page.wait_for_selector("#item-title")
    assert "run 1" in page.inner_text(".item-who")
    page.get_by_role("button", name="run 0").click()
    page.wait_for_function("() => document.querySelector('.item-who').textContent.includes('run 0')")
    assert "of=run+0" in page.url
    page.get_by_role("button", name="Remove the filter wrong").click()
    settled(page, "300 of 300 items")
    page.select_option("#pick-b", "run 1")
    page.wait_for_selector("#item .sides")
    assert page.input_value("#pick-a") == "run 0"
    both = kept(page, "#keep-csv").count("run 1")
    assert both == int(page.inner_text("#counts").split(" of")[0])


def test_a_link_opens_its_item_among_its_filters(items: Items, opened: Any) -> None:
    page = items("items=&benchmark=sums&right=wrong")
    page.click("#rows .row >> nth=3")
    page.wait_for_selector("#item-title")
    name = page.inner_text("#item-title")
    link = page.get_by_role("link", name="Link to this item").get_attribute("href")
    assert link is not None
    assert link.startswith("#item=")
    other = opened(page.url.split("#")[0] + link)
    other.wait_for_selector("#item-title")
    assert other.inner_text("#item-title") == name
    assert other.inner_text("#counts") == page.inner_text("#counts")
    assert other.get_attribute("#grid", "aria-activedescendant") == "row-3"


def test_an_item_that_the_filters_leave_out_is_said(items: Items) -> None:
    page = items("item=sums/17&benchmark=sums&q=number 18:")
    settled(page, "the item sums/17 is not among them")


def test_two_candidates_are_compared_with_flips_first_and_a_test_over_the_pairs(items: Items) -> None:
    page = items("items=&a=step-100&b=step-300&benchmark=facts")
    before, after = columns(page, 0)["right"], columns(page, 6)["right"]
    pairs = [
        (one, two) for one, two in zip(before, after, strict=True) if one is not None and two is not None
    ]
    gained, lost = pairs.count((0, 1)), pairs.count((1, 0))
    text = page.inner_text("#paired")
    from scipy.stats import binomtest

    p = binomtest(gained, gained + lost).pvalue
    assert f"over {len(pairs)} pairs: {gained} gained, {lost} lost; p = {p:.2g} (McNemar, exact)." in text
    assert "chosen" not in text
    assert page.inner_text("#row-0 .verdict") == "✗ lost"
    page.click("#filters-button")
    page.get_by_label("flipped, A → B").select_option("gained")
    settled(page, f"{gained} of 300 items")
    assert page.inner_text("#row-0 .verdict") == "✓ gained"
    assert "chosen by filters" in page.inner_text("#paired")


def test_side_by_side_marks_the_words_that_differ(items: Items) -> None:
    page = items("items=&a=step-100&b=step-300&benchmark=programs")
    page.click("#rows .row >> nth=0")
    page.wait_for_selector("#item .sides")
    page.wait_for_selector("#item ins")
    sides = page.locator("#item .sides").first
    before = sides.locator("> div").nth(0).locator("pre").first.text_content()
    after = sides.locator("> div").nth(1).locator("pre").first
    gone, new = after.locator("del").all_text_contents(), after.locator("ins").all_text_contents()
    mixed = after.text_content()
    assert before
    assert mixed
    assert gone
    assert new
    assert all(text in before for text in gone)
    assert len(mixed) == len(before) + sum(map(len, new))


def test_every_candidate_is_a_row_of_its_own_where_all_are_asked_for(items: Items) -> None:
    page = items("items=&benchmark=facts")
    page.select_option("#pick-a", "*")
    settled(page, "900 of 900 items")
    assert page.is_disabled("#pick-b")
    page.click("#rows .row >> nth=0")
    page.wait_for_selector("#item >> text=the same example, by candidate")
    assert page.locator(".everywhere button").count() == 3


def kept(page: Page, button: str) -> str:
    with page.expect_download() as download:
        page.click(button)
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_what_is_filtered_can_be_downloaded(items: Items) -> None:
    page = items("items=&benchmark=sums&right=wrong&sort=seconds")
    rows = list(csv.DictReader(io.StringIO(kept(page, "#keep-csv"))))
    lines = [json.loads(line) for line in kept(page, "#keep-jsonl").splitlines()]
    count = int(page.inner_text("#counts").split(" of")[0])
    assert len(rows) == len(lines) == count
    assert [one["example"] for one in rows] == [one["example"] for one in lines]
    assert [float(one["seconds"]) for one in rows] == sorted(float(one["seconds"]) for one in rows)
    assert {one["right"] for one in rows} == {"wrong"}
    assert all(one["asked"][0]["question"].endswith("Answer:") and one["gold"] for one in lines)


def test_everything_can_be_done_with_keys_alone(items: Items) -> None:
    page = items("items=&benchmark=facts")
    for key in ("j", "j", "ArrowDown", "k"):
        page.keyboard.press(key)
    assert page.get_attribute("#grid", "aria-activedescendant") == "row-1"
    page.keyboard.press("Enter")
    page.wait_for_selector("#item-title")
    page.wait_for_function("() => document.activeElement.id === 'item'")
    page.keyboard.press("j")
    page.wait_for_function("() => document.querySelector('#item-title').textContent === 'facts/2'")
    page.keyboard.press("Escape")
    page.wait_for_selector("#item", state="hidden")
    assert page.evaluate("document.activeElement.id") == "grid"
    page.keyboard.press("End")
    page.wait_for_selector("[title='facts/299']")
    page.keyboard.press("/")
    page.keyboard.type("number 12:")
    settled(page, "1 of 300 items")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    assert page.is_visible("#filters")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Escape")
    assert not page.is_visible("#help")
    page.keyboard.press("s")
    page.wait_for_selector("#summary")
    assert page.is_hidden("#items")


def test_the_theme_is_switched_and_kept(items: Items) -> None:
    page = items(context={"color_scheme": "light"})
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.inner_text("#theme") == "Theme: dark"
    dark = page.evaluate(colour)
    assert dark != light
    page.reload()
    page.wait_for_selector("#rows .row")
    assert page.evaluate(colour) == dark


def test_a_phone_shows_list_and_item_without_scrolling_sideways(items: Items) -> None:
    page = items(
        "items=&benchmark=sums", context={"viewport": {"width": 390, "height": 800}, "has_touch": True}
    )
    wide = "[document.documentElement, byId('grid')].some((one) => one.scrollWidth > innerWidth)"
    assert not page.evaluate(wide)
    page.tap("#rows .row >> nth=2")
    page.wait_for_selector("#item-title")
    assert page.is_hidden("#grid")
    assert not page.evaluate(wide)
    page.tap("[aria-label='Close the item']")
    assert page.is_visible("#grid")


def test_texts_are_unpacked_before_anybody_searches(items: Items) -> None:
    page = items(items=1000)
    page.wait_for_function(
        "() => chunksInView().length > 3 && chunksInView().every((key) => texts.sent.has(key)) && !texts.calls.size"
    )


def test_a_first_search_finds_what_a_later_one_finds(items: Items) -> None:
    """It looks through JSON before any item is read, and later through texts."""
    page = items("items=&a=*", items=300, hostile=True)
    page.evaluate("texts.ahead = async () => {}")
    wanted = {
        "Number 17:": 9,
        "\x1b[31mred": 9,
        'harmed = "script"': 9,
        "?\nAnswer:": 2700,
        "extracted": 0,
        "17": 143,
    }
    for text, many in wanted.items():
        page.evaluate("texts.restart()")
        found = []
        for _ in range(2):
            page.evaluate("(q) => update({ q })", text)
            found.append(page.evaluate("[...left]"))
            page.evaluate("Texts.prototype.ahead.call(texts, chunksInView())")
        assert found[0] == found[1], text
        assert len(found[0]) == many, text


def test_texts_are_searched_also_where_the_browser_has_no_workers(made: Any, opened: Any) -> None:
    page = opened("about:blank")
    page.add_init_script("delete window.Worker")
    page.goto(f"{made()}#items=&benchmark=sums&q=number 17:")
    page.wait_for_selector("#rows .row")
    settled(page, "1 of 300 items")


def test_a_comparison_begins_with_its_two_runs_side_by_side(items: Items) -> None:
    page = items(runs=2, checkpoints=1, kind="comparison")
    assert page.input_value("#pick-a") == "run 0"
    assert page.input_value("#pick-b") == "run 1"
    assert page.inner_text("#row-0 .verdict") == "✗ lost"
    assert "(McNemar, exact)" in page.inner_text("#paired")
