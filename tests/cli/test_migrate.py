"""``touchstone migrate`` turns command lines, configs and tasks of others into ours, and names what has no
counterpart."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from pytest_touchstone.cli.migrate import of_lm_eval, of_served_script, of_task
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import load_module
from pytest_touchstone.plugin.listing import find_benchmarks
from tests.support.places import ROOT

KNOWN = ("arc_easy", "gsm8k", "lambada")

CHOICE = """
task: my_boolq
dataset_path: super_glue
dataset_name: boolq
output_type: multiple_choice
validation_split: validation
doc_to_text: "{{passage}}\\nQuestion: {{question}}?\\nAnswer:"
doc_to_target: label
doc_to_choice: ["no", "yes"]
num_fewshot: 2
should_decontaminate: true
metric_list:
  - metric: acc
  - metric: bleu
"""

TEXTS = """
task: my-sums
dataset_path: sums
output_type: generate_until
test_split: test
doc_to_text: "{{a}}+{{b}}="
doc_to_target: sum
target_delimiter: ""
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: false}
"""


def test_the_options_of_lm_eval_have_ours() -> None:
    model = "--model hf --model_args pretrained=gpt2,dtype=float16,max_length=99"
    given = f"{model} --tasks arc_easy,lambada_openai -f 25 -b auto:4 --limit 10.0 --seed 0,1,2,7"
    found = of_lm_eval(shlex.split(f"{given} --apply_chat_template"), KNOWN)
    assert shlex.join(found.command) == (
        "pytest evals/ --checkpoint gpt2 --eval-dtype float16 --eval-seq-len 99 --eval-tasks arc_easy,lambada "
        "--eval-shots 25 --eval-batch auto --eval-limit 10 --eval-fewshot lm-eval:7 --eval-chat on"
    )
    assert not found.lines


def test_what_lm_eval_has_alone_is_named() -> None:
    given = "--tasks gsm8k_cot --model_args pretrained=x,peft=y,load_in_4bit=True --wandb_args a=b"
    found = of_lm_eval(shlex.split(given), KNOWN)
    assert list(found.command[2:6]) == ["--checkpoint", "y", "--eval-base-model", "x"]
    task, part, flag = found.lines
    assert task == "no counterpart: task gsm8k_cot (nearest: gsm8k)"
    assert part == "no counterpart: load_in_4bit of --model_args"
    assert flag.startswith("no counterpart: --wandb_args")


def test_the_options_of_a_script_for_served_models_have_ours() -> None:
    given = "--endpoint http://h:8000/v1 --batch-size 8 --run-id a --config c.json --output o --gpu 1"
    found = of_served_script(shlex.split(f"{given} --max-length 2048 --log-level debug --dry-run"))
    assert shlex.join(found.command) == (
        "pytest evals/ --checkpoint http://h:8000/v1 --eval-batch 8 --eval-run-id a --eval-config c.json "
        "--eval-output o --eval-device cuda:1 --eval-seq-len 2048 --log-cli-level DEBUG --eval-dry-run"
    )
    assert of_served_script(["--list-benchmarks"]).command == ("touchstone", "benchmarks")
    assert of_served_script(["--validate-config", "--config", "c"]).command == ("touchstone", "validate", "c")
    assert of_served_script(["--end-point", "x"]).lines == (
        "no counterpart: --end-point (is it --endpoint?)",
    )


@pytest.mark.parametrize(
    ("text", "name"), [(CHOICE, "my_boolq"), (TEXTS, "my-sums")], ids=["choice", "texts"]
)
def test_a_task_becomes_a_benchmark_that_pytest_collects(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "task.yaml").write_text(text)
    found = of_task(tmp_path / "task.yaml")
    path = tmp_path / f"test_{name}.py"
    path.write_text(found.text or "")
    (one,) = find_benchmarks([path])
    assert one.spec.name == name
    if name == "my_boolq":
        assert found.lines == ("no counterpart: should_decontaminate", "no counterpart: metric bleu")
        shot = load_module(path, path.stem).shot({"passage": "P.", "question": "q", "label": 1})
        assert shot == "P.\nQuestion: q?\nAnswer: yes"
        assert (one.spec.shots.count, one.spec.data.path, one.spec.data.split) == (
            2,
            "super_glue",
            "validation",
        )
    else:
        assert load_module(path, path.stem).shot({"a": 1, "b": 2, "sum": 3}) == "1+2=3"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "task: a\noutput_type: loglikelihood_rolling\n",
            "output_type loglikelihood_rolling has no simple form",
        ),
        (
            "task: a\ndoc_to_text: !function utils.f\ndoc_to_target: b\n",
            "doc_to_text is a Python function; write that",
        ),
        ("task: a\ndoc_to_text: b\n", "doc_to_target is missing"),
        ("- a", "is no task: expected a table of keys"),
        ("a: [", "cannot read"),
    ],
)
def test_a_task_of_another_form_is_refused(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "task.yaml").write_text(text)
    with pytest.raises(HarnessError, match=line):
        of_task(tmp_path / "task.yaml")


def test_the_command_prints_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"tasks": {"arc_easy": {"limit": 1}}}))
    assert main(["migrate", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"pytest evals/ --eval-config {path}"
    for words in (["lm_eval --tasks arc_easy"], ["--", "lm_eval", "--tasks", "arc_easy"]):
        assert main(["migrate", *words]) == 0
        assert "--eval-tasks arc_easy" in capsys.readouterr().out
    assert main(["migrate", "make", "all"]) == 4
    assert "'make' is not known: expected lm_eval" in capsys.readouterr().err


def test_the_commands_of_the_page_print_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(
        r"    \$ touchstone (migrate .*)\n((?:    .*\n)+)", (ROOT / "docs" / "choosing.md").read_text()
    )
    assert len(blocks) == 2
    for command, shown in blocks:
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().out == textwrap.dedent(shown)
