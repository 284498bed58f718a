"""A process's work is booked by what has grown, and nothing of the watch is left when a run has ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.engines.base import EngineProgress
from pytest_touchstone.plugin.so_far import Asked, BatchSoFar, ItemSoFar, Length
from pytest_touchstone.plugin.watch import Books, share_of_steps
from pytest_touchstone.results.live import BINS, Part, Workload

LOAD = Workload(
    parts=(
        Part(checkpoint="c", benchmark="arc", items=8, requests=4.0, tokens=9.0),
        Part(checkpoint="c", benchmark="gsm8k", items=4, tokens=9.0, texts=1.0, limit=160, programs=True),
    ),
    parameters={"c": 1},
)
PART_OF = {**{f"arc{number}": 0 for number in range(8)}, **{f"gsm{number}": 1 for number in range(4)}}


def books() -> Books:
    made = Books("main", LOAD, PART_OF)
    made.does("answering", "c")
    return made


def scored(number: int, done: int, ended: bool = False) -> ItemSoFar:
    return ItemSoFar(f"arc{number}", ended, Asked(4), Asked(done), done / 4, ())


def text(number: int, tokens: int = 0, **more: bool) -> ItemSoFar:
    """An item with one text, which has ended if it has ``tokens``."""
    lengths = [Length(tokens, tokens >= 160)] if tokens else []
    ended = more.get("ended", bool(tokens))
    programs = Asked(0, 1, int(more.get("asked", False)))
    return ItemSoFar(
        f"gsm{number}", ended, programs, Asked(0, int(bool(tokens)), 0), float(bool(tokens)), lengths
    )


def batch(
    *items: ItemSoFar, growing: tuple[tuple[str, int], ...] = (), advancing: str | None = None
) -> BatchSoFar:
    return BatchSoFar(items, growing, advancing)


def test_time_goes_to_the_parts_whose_items_are_open_and_to_tokens_or_steps():
    made, now = books(), EngineProgress(tokens=100)
    made.look(2.0, now, now, batch(scored(0, 0), scored(1, 0)))
    assert made.state.parts[0].seconds == 2.0
    assert (made.state.costs["c"].tokens, made.state.costs["c"].seconds) == (100, 2.0)
    stepped = EngineProgress(steps=10, generated=40)
    made.look(3.0, stepped, stepped, batch(text(0), text(1), growing=(("gsm0", 10), ("gsm1", 10))))
    assert made.state.costs["c"].steps == {3: [10.0, 40.0, 3.0]}
    assert made.state.parts[1].seconds == 0.0
    assert made.state.growing == [[1, 10], [1, 10]]
    assert made.state.tokens == 140


def test_what_the_engine_has_computed_of_a_call_counts_before_it_answers():
    made = books()
    now = EngineProgress(tokens=7, scored=2, to_score=8, share=0.5)
    made.look(1.0, now, now, batch(scored(0, 0), scored(1, 0)))
    part = made.state.parts[0]
    assert (part.open, part.partial, part.requests) == (2, 1.0, [2.0, 8.0])
    made.close([scored(0, 4, ended=True), scored(1, 4, ended=True)])
    made.between(0.5)
    part = made.state.parts[0]
    assert (part.ended, part.open, part.partial, part.requests) == (2, 0, 0.0, [8.0, 8.0])
    assert part.seconds == 1.5


def test_an_engine_that_has_computed_nothing_for_a_batch_tells_of_the_one_before():
    made = books()
    former = EngineProgress(scored=8, to_score=8, share=1.0)
    made.look(1.0, former, EngineProgress(), batch(scored(0, 0)))
    assert (made.state.parts[0].partial, made.state.parts[0].requests) == (0.0, [0.0, 4.0])


def test_lengths_of_texts_are_counted_by_sixteenths_of_the_limit():
    made = books()
    now = EngineProgress(steps=1)
    made.look(1.0, now, now, batch(text(0, 25), text(1, 160), text(2), growing=(("gsm2", 30),)))
    part = made.state.parts[1]
    assert [place for place, many in enumerate(part.lengths) if many] == [2, BINS]
    assert (part.texts, part.partial) == ([2, 3], 1.0)


@pytest.mark.parametrize(
    ("seen", "doing"),
    [
        (batch(text(0, 9, ended=False, asked=True)), "programs"),
        (batch(text(0, 9, ended=False, asked=True), text(1)), "answering"),
        (batch(text(0), advancing="gsm0"), "grading"),
    ],
)
def test_while_the_engine_rests_programs_or_grading_are_what_happens(seen, doing):
    made = books()
    made.look(1.0, EngineProgress(), EngineProgress(), seen)
    assert made.state.doing == doing
    part = made.state.parts[1]
    seconds = {"programs": (1.0, 0.0), "grading": (0.0, 1.0), "answering": (0.0, 0.0)}
    assert (part.waited, part.seconds) == seconds[doing]


def test_what_holds_up_an_engine_is_told_as_long_as_it_does():
    made, seen = books(), []
    for trouble in ("no answer for 9 s (of 120)", "", "the server asks to wait 5 s"):
        now = EngineProgress(trouble=trouble)
        made.look(1.0, now, now, batch(scored(0, 0)))
        seen.append(made.state.trouble)
    made.between(1.0)
    assert [*seen, made.state.trouble] == [
        "no answer for 9 s (of 120)",
        "",
        "the server asks to wait 5 s",
        "",
    ]


def test_a_pass_that_takes_longer_than_from_look_to_look_is_booked_whole():
    made, step = books(), EngineProgress(steps=1, generated=2)
    growing = (("gsm0", 10), ("gsm1", 10))
    for more in (EngineProgress(), EngineProgress(), step):
        made.look(1.0, step, more, batch(text(0), text(1), growing=growing))
    assert made.state.costs["c"].steps == {2: [1.0, 2.0, 3.0]}
    for more in (EngineProgress(), EngineProgress(tokens=50)):
        made.look(1.0, step, more, batch(scored(0, 0)))
    assert (made.state.costs["c"].tokens, made.state.costs["c"].seconds) == (50, 2.0)
    made.look(1.0, step, EngineProgress(), batch(scored(0, 0)))
    made.close([scored(0, 4, ended=True)])
    assert made.state.parts[0].seconds == 3.0


def test_time_since_the_last_pass_ended_belongs_to_the_next_one():
    made, now = books(), EngineProgress(tokens=100)
    made.look(0.5, now, now, batch(scored(0, 0)), resting=0.2)
    assert made.state.costs["c"].seconds == pytest.approx(0.3)
    made.look(0.5, now, EngineProgress(), batch(scored(0, 0)), resting=0.7)
    assert made.state.costs["c"].seconds == pytest.approx(0.3)
    made.look(0.5, now, now, batch(scored(0, 0)), resting=0.1)
    assert made.state.costs["c"].tokens == 200
    assert made.state.costs["c"].seconds == pytest.approx(1.4)
    made.close([scored(0, 4, ended=True)])
    assert made.state.parts[0].seconds == pytest.approx(1.5)


def test_loading_is_nobody_s_time_and_items_that_are_never_asked_end_too():
    made = books()
    made.does("loading", "c")
    made.between(9.0)
    made.settled("arc0")
    made.settled("unknown")
    made.between(1.0)
    assert made.state.parts[0].ended == 1
    assert made.state.parts[0].seconds == 0.0


@given(tokens=st.integers(0, 10**6), steps=st.integers(0, 10**4), rows=st.integers(1, 64))
def test_the_share_of_steps_is_a_share(tokens, steps, rows):
    share = share_of_steps(EngineProgress(tokens=tokens, steps=steps, generated=steps * rows))
    assert 0.0 <= share <= 1.0
    assert share == 0.0 or steps
    assert share == 1.0 or tokens or not steps


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-x", "--maxfail=1")])
def test_nothing_of_it_is_left_in_the_folder_of_a_run_that_has_ended(project, arguments):
    project.write("assert 'n' not in example or example['n'] != 15")
    project.run(*arguments)
    (run,) = project.runs
    assert not [
        path.name for path in Path(run).iterdir() if "progress" in path.name or "workload" in path.name
    ]
