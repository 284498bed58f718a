"""The benchmarks of programs, asked directly: what they ask, what they have run, how they score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_touchstone.core.dataset import subsample
from pytest_touchstone.core.errors import ShotsError
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.requests import CallTests, Generate, InputOutputTests, RunProgramAnswer
from pytest_touchstone.metrics.code.grader import called_names
from pytest_touchstone.plugin.collection import load_benchmark
from tests.support.code_runs import Bench, by_word, functions
from tests.support.lines import naming

SAMPLED = Sampling(5, 0.2, 0.95, 1234)
SHIPPED = {
    **{"humaneval": 164, "mbpp": 32, "mbpp_sanitized": 32, "mbpp_docstring": 32, "codecontests": 12},
    "livecodebench": 16,
}


@pytest.fixture(scope="module")
def benches() -> dict[str, Bench]:
    return {name: Bench(name, SAMPLED) for name in SHIPPED}


def test_every_benchmark_asks_for_texts_and_for_programs() -> None:
    assert set(functions()) == {*SHIPPED, "apps_stdin"}
    for bench in (Bench(name) for name in SHIPPED):
        assert [kind.__name__ for kind in bench.spec.asks] == ["Generate", "RunProgram"]
        assert bench.spec.primary == "pass@1"


@pytest.mark.parametrize("name", SHIPPED)
def test_all_shipped_rows_are_asked_with_the_runs_sampling(benches: dict[str, Bench], name: str) -> None:
    bench = benches[name]
    assert len(bench.loaded.dataset.examples) == SHIPPED[name]
    seeds = set()
    for place in range(SHIPPED[name]):
        asked = bench.ask(place, ["x = 1"] * 5, by_word)
        request = asked.generate
        assert (request.samples, request.temperature, request.top_p) == (5, 0.2, 0.95)
        assert request.fault() is None
        seeds.add(request.seed)
        assert len(asked.programs) == 5
        assert {program.task.startswith(f"{name}/") for program in asked.programs} == {True}
        assert hash(tuple(asked.programs))
    assert len(seeds) == SHIPPED[name]


def test_an_examples_seed_depends_on_nothing_but_names_and_the_runs_seed() -> None:
    seed = SAMPLED.of("humaneval", "humaneval/3").seed
    assert seed == Sampling(20, 0.8, 1.0, 1234).of("humaneval", "humaneval/3").seed
    others = (SAMPLED.of("mbpp", "humaneval/3"), SAMPLED.of("humaneval", "humaneval/4"))
    assert seed not in {other.seed for other in (*others, Sampling(seed=1).of("humaneval", "humaneval/3"))}
    assert 0 <= seed < 2**48


def test_one_sample_is_greedy_by_default() -> None:
    request = Bench("humaneval").ask(0, [""], by_word).generate
    assert (request.samples, request.temperature, request.top_p) == (1, 0.0, 1.0)


def test_humaneval_completes_the_published_prompt(benches: dict[str, Bench]) -> None:
    bench = benches["humaneval"]
    row = bench.loaded.dataset.examples[0].row
    asked = bench.ask(0, ["    return right\n\n# more"] * 2 + ["    x\n"] * 2 + [""], by_word)
    assert asked.generate == Generate(
        row["prompt"],
        stop=("\nclass", "\ndef", "\n#", "\nif", "\nprint"),
        max_new_tokens=512,
        turns=asked.generate.turns,
        turns_stop=asked.generate.turns_stop,
        turns_max_new_tokens=768,
        **SAMPLED.of("humaneval", "humaneval/0").arguments(),
    )
    assert asked.programs[0].program == f"{row['prompt']}    return right\n"
    assert isinstance(asked.programs[0].tests, CallTests)
    assert asked.scores == {"pass@1": pytest.approx(0.4), "pass@5": 1.0, "no_answer": 1.0}


def test_mbpp_shows_tasks_2_3_and_4_with_their_programs_and_three_assertions(
    benches: dict[str, Bench],
) -> None:
    bench = benches["mbpp"]
    row = bench.loaded.dataset.examples[0].row
    request = bench.ask(0, ["right"] * 5, by_word).generate
    parts = request.prompt.split("\n[BEGIN]\n")
    assert len(parts) == 5
    assert parts[-1] == ""
    assert [part.count("[DONE]") for part in parts] == [0, 1, 1, 1, 0]
    assert parts[0] == (
        "You are an expert Python programmer, and here is your task: Write a function to find the similar elements "
        "from the given two tuple lists. Your code should pass these tests:\n\n"
        "assert similar_elements((3, 4, 5, 6),(5, 7, 4, 10)) == (4, 5)\n"
        "assert similar_elements((1, 2, 3, 4),(5, 4, 3, 7)) == (3, 4)\n"
        "assert similar_elements((11, 12, 14, 13),(17, 15, 14, 13)) == (13, 14)"
    )
    assert parts[1].startswith(
        "def similar_elements(test_tup1, test_tup2):\r\n  res = tuple(set(test_tup1) & set(test_tup2))\r\n"
        "  return (res) \n[DONE]\n\nYou are an expert"
    )
    assert "is_not_prime" in parts[1]
    assert "heap_queue_largest" in parts[2]
    assert parts[3].endswith("\n".join(row["test_list"]))
    assert request.stop == ("[DONE]",)
    assert [turn.role for turn in request.turns] == ["user", "assistant"] * 4


QUESTION = (
    "Please provide a self-contained Python script that solves the following problem in a markdown code block:\n"
    "```\n{}\n```\n"
)
ANSWER = (
    "Below is a Python script with a self-contained function that solves the problem and passes corresponding tests:\n"
    "```python\n"
)
CODE = {name: Bench(name) for name in ("humaneval", "mbpp", "mbpp_sanitized", "mbpp_docstring")}


@pytest.mark.parametrize("name", CODE)
def test_a_chat_is_asked_in_evalplus_words_and_may_answer_with_definitions(name: str) -> None:
    row = CODE[name].loaded.dataset.examples[0].row
    request = CODE[name].ask(0, [""], by_word, chat=True).generate
    shown = 1 if name == "mbpp_docstring" else 3
    problem = (
        row["prompt"].strip()
        if name == "humaneval"
        else "\n".join(['"""', row["text"], *row["test_list"][:shown], '"""'])
    )
    asked, begun = request.turns[-2:]
    assert (asked.role, asked.text) == ("user", QUESTION.format(problem))
    assert (begun.role, begun.text) == ("assistant", ANSWER)
    assert request.turns_max_new_tokens == 768
    assert request.turns_stop is not None
    assert "\n```\n" in request.turns_stop
    whole = (
        "import re\nclass A:\n    pass\n\ndef f(x):\n    return x\n\nif 1:\n    y = 2\n# end\nprint(f(1))\n"
    )
    assert not any(stop in whole for stop in request.turns_stop)


def test_the_examples_of_a_chat_are_turns_with_whole_programs_in_blocks() -> None:
    turns = CODE["mbpp"].ask(0, [""], by_word, chat=True).generate.turns
    assert turns[0].text == QUESTION.format(
        '"""\nWrite a function to find the similar elements from the given two tuple lists.\n'
        "assert similar_elements((3, 4, 5, 6),(5, 7, 4, 10)) == (4, 5)\n"
        "assert similar_elements((1, 2, 3, 4),(5, 4, 3, 7)) == (3, 4)\n"
        'assert similar_elements((11, 12, 14, 13),(17, 15, 14, 13)) == (13, 14)\n"""'
    )
    assert turns[1].text == (
        ANSWER + "def similar_elements(test_tup1, test_tup2):\n"
        "  res = tuple(set(test_tup1) & set(test_tup2))\n  return (res)\n```"
    )


@pytest.mark.parametrize("name", CODE)
def test_of_a_chats_answer_runs_what_the_tests_call_and_of_a_completion_what_the_stops_leave(
    name: str,
) -> None:
    row = CODE[name].loaded.dataset.examples[0].row
    entry = row["entry_point"] if name == "humaneval" else called_names(row)[0]
    function = f"def {entry}(*given):\n    return half(given)\n"
    text = f"import math\n\n{function}\ndef half(x):\n    return 'right'\n\nprint({entry}(1))\nassert {entry}(2) == 3"
    asked = CODE[name].ask(0, [text], by_word, chat=True)
    assert asked.programs[0].program == f"import math\n{function}def half(x):\n    return 'right'\n"
    assert asked.scores == {"pass@1": 1.0, "no_answer": 0.0}
    plain = CODE[name].ask(0, [text], by_word).programs[0].program
    assert plain != asked.programs[0].program


@pytest.mark.parametrize("name", CODE)
@pytest.mark.parametrize("text", ["", "\n\n", "I cannot help with that, sorry.", "# to do\n"])
def test_a_chats_answer_without_code_is_no_answer(name: str, text: str) -> None:
    assert CODE[name].ask(0, [text], by_word, chat=True).scores == {"pass@1": 0.0, "no_answer": 1.0}


def test_mbpp_without_examples_and_as_a_docstring(benches: dict[str, Bench]) -> None:
    bench = benches["mbpp_docstring"]
    row = bench.loaded.dataset.examples[0].row
    asked = bench.ask(0, ["def f(): right\nassert f()"] * 5, by_word)
    assert asked.generate.prompt == f'"""\n{row["text"]}\n{row["test_list"][0]}\n"""\n'
    assert asked.programs[0].program == "def f(): right"


def test_sanitized_mbpp_shows_three_of_its_assertions_and_runs_all(tmp_path: Path) -> None:
    row = {
        "task_id": 20,
        "prompt": "Do it.",
        "code": "def f(): right",
        "test_imports": ["import math"],
        "test_list": [f"assert f({n})" for n in range(4)],
    }
    (tmp_path / "mbpp").mkdir()
    (tmp_path / "mbpp" / "sanitized_test.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    asked = Bench("mbpp_sanitized", data=str(tmp_path)).ask(0, ["right"], by_word)
    assert "assert f(2)\n[BEGIN]" in asked.generate.prompt
    assert "assert f(3)" not in asked.generate.prompt
    tests = asked.programs[0].tests
    assert isinstance(tests, CallTests)
    assert tests.code == "import math\n" + "".join(f"assert f({n})\n" for n in range(4))


def test_codecontests_asks_for_a_program_in_a_block(benches: dict[str, Bench]) -> None:
    bench = benches["codecontests"]
    row = bench.loaded.dataset.examples[0].row
    asked = bench.ask(0, ["print('right')"] * 5, by_word)
    assert asked.generate.prompt.startswith(row["description"].strip())
    assert asked.generate.prompt.endswith("standard output.\n\n```python\n")
    assert (asked.generate.stop, asked.generate.max_new_tokens) == (("\n```",), 1024)
    request = asked.programs[0]
    assert (request.seconds, request.memory, request.reference) == (2.0, 256, row["solution"])
    assert isinstance(request.tests, InputOutputTests)
    assert len(request.tests.pairs) == len(row["tests"])


def test_apps_is_asked_as_its_authors_ask(tmp_path: Path) -> None:
    row = {"id": 3, "description": "D", "test_list": [{"input": "1", "output": ["2"]}], "starter_code": ""}
    called = {**row, "starter_code": "class Solution:"}
    (tmp_path / "apps_stdin").mkdir()
    text = "".join(json.dumps(one) + "\n" for one in (called, row))
    (tmp_path / "apps_stdin" / "selected.jsonl").write_text(text, encoding="utf-8")
    bench = Bench("apps_stdin", data=str(tmp_path))
    assert len(bench.loaded.dataset.examples) == 1
    asked = bench.ask(0, ["print(2)\n---"], by_word)
    assert asked.generate.prompt == "\nQUESTION:\nD\nUse Standard Input format\nANSWER:\n"
    assert asked.programs[0].program == "print(2)"


def test_of_very_many_problems_as_many_as_declared_are_drawn_with_the_seed() -> None:
    bench = Bench("codecontests")
    examples: list[Any] = list(range(1500))
    some = subsample(bench.spec, examples, 1)
    assert len(some) == bench.spec.row_rules.most_rows == 1000
    assert [*some] == sorted({*examples} & {*some})
    assert subsample(bench.spec, examples, 1) == some
    assert subsample(bench.spec, examples, 2) != some
    assert subsample(bench.spec, examples[:1000], 1) == examples[:1000]
    assert subsample(Bench("humaneval").spec, examples, 1) == examples


def test_both_graders_verdicts_are_scores() -> None:
    def judge(request: Any) -> RunProgramAnswer:
        return RunProgramAnswer("wrong", reference_outcome="passed")

    scores = Bench("humaneval").ask(0, ["    pass"], judge).scores
    assert scores == {"pass@1": 0.0, "reference_pass@1": 1.0, "graders_differ": 1, "no_answer": 0.0}


def test_training_rows_are_asked_as_the_published_ones(tmp_path: Path) -> None:
    bench = Bench("humaneval")
    row = bench.loaded.dataset.examples[5].row
    form = {
        "instruction": row["prompt"],
        "input": "",
        "output": row["canonical_solution"],
        "task_id": row["task_id"],
        "metadata": {
            "source": "humaneval",
            "test": row["test"],
            "entry_point": row["entry_point"],
            "has_tests": True,
        },
    }
    (tmp_path / "humaneval").mkdir()
    (tmp_path / "humaneval" / "HumanEval.jsonl").write_text(json.dumps(form) + "\n", encoding="utf-8")
    same = Bench("humaneval", data=str(tmp_path)).ask(0, ["    pass"], by_word)
    published = bench.ask(5, ["    pass"], by_word)
    assert same.programs == published.programs
    assert same.generate.prompt == published.generate.prompt


def training_bench(tmp_path: Path, name: str, **change: Any) -> Bench:
    row = {
        "instruction": "Write a function one() that returns 1.",
        "input": "",
        "output": "def one():\n    return 1\n",
        "task_id": "train/7",
        "metadata": {"source": name, "test": ["assert one() == 1"], "entry_point": "one", "has_tests": True},
        **change,
    }
    path = (tmp_path / Bench(name).spec.data.name).with_suffix(".jsonl")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return Bench(name, data=str(tmp_path))


@pytest.mark.parametrize("name", ["humaneval", "mbpp", "mbpp_docstring", "codecontests"])
@pytest.mark.parametrize("more", ["", "The tests call it without arguments."])
def test_training_rows_are_asked_by_their_own_prompt(tmp_path: Path, name: str, more: str) -> None:
    bench = training_bench(tmp_path, name, input=more)
    instruction = "Write a function one() that returns 1." + (f"\n\n{more}" if more else "")
    program = "class A:\n    pass\n\ndef one():\n    return 1\n\nif 1:\n    right = 1\n"
    asked = bench.ask(0, [program], by_word)
    assert asked.generate.prompt == instruction
    assert not any(stop in program for stop in asked.generate.stop)
    assert asked.programs[0].program == program
    assert instruction in asked.generate.turns[0].text
    assert [turn.role for turn in asked.generate.turns] == ["user", "assistant"]
    assert bench.loaded.shots.description()["num_fewshot"] == 0
    talk = f"Here it is:\n```python\n{program}```\nIt returns 1."
    fenced = bench.ask(0, [talk], by_word)
    assert not any(stop in talk for stop in fenced.generate.stop)
    assert fenced.programs[0].program == program


@pytest.mark.parametrize("name", ["humaneval", "mbpp", "mbpp_docstring"])
def test_a_chats_answer_to_a_training_row_is_cut_to_its_entry_point(tmp_path: Path, name: str) -> None:
    function = "def one():\n    return 1\n"
    asked = training_bench(tmp_path, name).ask(0, [f"{function}\nprint(one())\n"], by_word, chat=True)
    assert asked.programs[0].program == function


def test_examples_that_are_asked_for_with_rows_that_take_none_are_refused(tmp_path: Path) -> None:
    training_bench(tmp_path, "mbpp")
    with pytest.raises(ShotsError, match=naming("prompts", "--eval-shots 0")):
        load_benchmark(Bench("mbpp").spec, str(tmp_path), 3, SAMPLED)
    assert load_benchmark(Bench("mbpp").spec, str(tmp_path), 0, SAMPLED).shots.count == 0


@pytest.mark.parametrize("words", ["", "Complete this function.\n\n"])
def test_words_in_front_of_a_functions_beginning_are_asked_and_not_run(tmp_path: Path, words: str) -> None:
    begun = 'import math\n\ndef one():\n    """One."""\n'
    bench = training_bench(tmp_path, "humaneval", instruction=f"{words}{begun}", output="    return 1\n")
    asked = bench.ask(0, ["    return 1\n\ndef more():"], by_word)
    assert asked.generate.prompt == f"{words}{begun}"
    assert asked.programs[0].program.lstrip() == f"{begun}    return 1\n"
    assert asked.programs[0].reference == asked.programs[0].program
