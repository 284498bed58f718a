"""Requests take lists and dicts where a person writes them, and name the field of what is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_touchstone import CallTests, Generate, InputOutputTests, Turn
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.few_shot import ChatForm, FewShot
from tests.support.lines import naming

USER = {"role": "user", "content": "hello"}


@pytest.mark.parametrize("stop", [["\n"], ("\n",), "\n"])
@pytest.mark.parametrize(
    "turn",
    [
        USER,
        {"role": "user", "text": "hello"},
        {**USER, "tool_calls": None},
        {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]},
        Turn("user", ["hello"]),  # type: ignore[arg-type]
    ],
)
def test_a_request_is_the_same_however_it_is_written(stop: Any, turn: Any) -> None:
    asked = Generate("hello", stop=stop, max_new_tokens=1, turns=[turn], turns_stop=stop)
    plain = Generate(
        "hello", stop=("\n",), max_new_tokens=1, turns=(Turn("user", "hello"),), turns_stop=("\n",)
    )
    assert asked == plain
    assert hash(asked) == hash(plain)
    assert replace(asked, samples=2).stop == ("\n",)


def test_few_shot_requests_and_programs_take_lists_too() -> None:
    asked = FewShot().generate("q", stop=["\n"], max_new_tokens=1, chat=ChatForm("q", stop=["#"]))
    assert (asked.stop, asked.turns_stop) == (("\n",), ("#",))
    assert hash(InputOutputTests([["1", "2"]])) == hash(InputOutputTests((("1", "2"),)))
    assert CallTests("f()", names=["f"]) == CallTests("f()", names=("f",))


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"stop": [1]}, ("stop", "[1]", "text")),
        ({"stop": [["\n"]]}, ("stop", "[['\\n']]", "text")),
        ({"turns_stop": 3}, ("turns_stop", 3, "text")),
        ({"turns": "hello"}, ("turns", "'hello'", "list")),
        ({"turns": [3]}, ("turns[0]", 3, "{'role': 'user', 'content': 'TEXT'}")),
        ({"turns": [USER, {"role": "tool", "content": "x"}]}, ("turns[1]", "'tool'", "system, user")),
        ({"turns": [{**USER, "tool_calls": []}]}, ("turns[0]", "'tool_calls'")),
        ({"turns": [{"role": "user", "content": [{"type": "image_url"}]}]}, ("'image_url'", "texts")),
        ({"turns": [{"role": "user"}]}, ("turns[0]", "None")),
        ({"prompt": [USER]}, ("text", "turns")),
    ],
)
def test_what_no_request_can_carry_is_refused_by_name(
    given: dict[str, Any], names: tuple[object, ...]
) -> None:
    with pytest.raises(BenchmarkError, match=naming(*names)):
        Generate(**{"prompt": "hello", "max_new_tokens": 1, **given})
