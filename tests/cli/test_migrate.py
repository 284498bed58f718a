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
from pytest_touchstone.cli.lm_eval_task import of_task, read_yaml
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.files import load_module
from pytest_touchstone.plugin.listing import find_benchmarks
from tests.support.places import ROOT

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


def migrated(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The lines that the command prints."""
    assert main(["migrate", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_options_of_lm_eval_have_ours(capsys: pytest.CaptureFixture[str]) -> None:
    model = "--model hf --model_args pretrained=gpt2,dtype=float16,max_length=99"
    given = f"{model} --tasks arc_easy,lambada_openai -f 25 -b auto:4 --limit 10.0 --seed 0,1,2,7"
    command, rows, sample = migrated(capsys, *shlex.split(f"lm_eval {given} --apply_chat_template"))
    assert command == (
        "touchstone run --tasks arc_easy,lambada --checkpoint gpt2 --eval-dtype float16 --eval-seq-len 99 "
        "--eval-shots 25 --eval-batch auto --eval-limit 10 --eval-fewshot lm-eval:7 --eval-chat on --eval-data hub"
    )
    assert rows.startswith("  --eval-data hub: whole published sets")
    assert sample == "  --eval-limit 10: a sample, and results say so; without it, whole sets"


def test_a_folder_of_copies_takes_the_place_of_the_hub(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOUCHSTONE_DATA", str(tmp_path))
    (command,) = migrated(capsys, *shlex.split("lm_eval --model_args pretrained=x --tasks arc_easy"))
    assert "--eval-data" not in command


def test_what_lm_eval_has_alone_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    given = "lm_eval --tasks arc_easy,gsm8k_cot --model_args pretrained=x,peft=y,load_in_4bit=True --gen_kwargs until=a"
    command, _, task, part, text = migrated(capsys, *shlex.split(given))
    assert "--checkpoint y --eval-base-model x" in command
    assert task == "  no counterpart: task gsm8k_cot (nearest: gsm8k)"
    assert part == "  no counterpart: load_in_4bit of --model_args"
    assert text == "  no counterpart: until of --gen_kwargs"


def test_defaults_of_lm_eval_that_are_not_ours_become_options(capsys: pytest.CaptureFixture[str]) -> None:
    given = (
        "lm_eval --model vllm --model_args pretrained=Q,tensor_parallel_size=4 --wandb_args project=a,name=b"
    )
    command, *_ = migrated(capsys, *shlex.split(f"{given} --tasks minerva_math"))
    assert "--checkpoint vllm:Q --eval-server-args '--tensor-parallel-size 4'" in command
    assert "--wandb --wandb-project a" in command
    assert "--eval-max-new-tokens 256" in command
    (command, *_) = migrated(capsys, *shlex.split("lm_eval --tasks mmlu_virology,mmlu_anatomy"))
    assert "--tasks 'mmlu/virology 0-shot,mmlu/anatomy' " in command
    (command, *_) = migrated(capsys, *shlex.split("lm_eval --tasks mmlu_virology --num_fewshot 5"))
    assert "--tasks mmlu/virology " in command


def test_a_config_of_lm_eval_is_the_command_that_it_stands_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "model: hf\nmodel_args: {pretrained: x}\ntasks: [arc_easy, gsm8k]\nlimit: 100\nlog_samples: false\n"
    )
    expected = "touchstone run --tasks arc_easy,gsm8k --checkpoint x --eval-limit 100 --eval-fewshot lm-eval"
    for words in ([str(path)], ["lm_eval", "--config", str(path)]):
        command, *_ = migrated(capsys, *words)
        assert command.startswith(expected)
    command, *_ = migrated(capsys, "lm_eval", "--config", str(path), "--limit", "5")
    assert "--eval-limit 5" in command
    assert "--eval-limit 100" not in command


def test_tasks_that_are_all_unknown_are_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "lm_eval", "--tasks", "nonesuch"]) == 4
    assert "no counterpart: task nonesuch; `touchstone benchmarks` lists" in capsys.readouterr().err


LOOP = """for c in runs/mlm_1536/checkpoint-*; do
    n=$(basename "$c" | sed "s/checkpoint-//")
    if [ "$n" -ge 300 ]; then
        python scripts/evaluate_checkpoint.py --checkpoint "$c" --seq-len 1536
    fi
done"""
KOREAN = "touchstone run --tasks real_coref,ko_lambada,ko_lambada_wiki --checkpoint"
CODE = "--eval-samples 20 --eval-temperature 0.2 --eval-max-new-tokens 512 --eval-program-seconds 5"
SUBJECTS = "drop,winogrande,gsm8k,math_5000,mmlu_stem"


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (
            "python scripts/evaluate_checkpoint.py --checkpoint runs/a/checkpoint-5",
            [f"{KOREAN} runs/a/checkpoint-5 --eval-beside"],
        ),
        (
            "CUDA_VISIBLE_DEVICES=-1 python evaluate_checkpoint.py --checkpoint c --seq-len 1536 --output-dir ./d",
            [f"CUDA_VISIBLE_DEVICES=-1 {KOREAN} c --eval-seq-len 1536 --eval-output ./d"],
        ),
        (
            "nohup bash scripts/evaluate_all_mlm_v2_checkpoints.sh &",
            [f"{KOREAN} 'runs/*/checkpoint-*' --eval-beside"],
        ),
        (
            LOOP,
            [f"{KOREAN} 'runs/mlm_1536/checkpoint-*' --eval-seq-len 1536 --eval-beside --eval-steps 300:"],
        ),
        (
            "find runs/mlm_* -name '*_eval_results.json' -exec jq -r '.real1' {} \\; | sort -rn",
            ["touchstone study 'runs/mlm_*'"],
        ),
        ("cat out/*.json | jq -s 'sort_by(.real1) | reverse | .[0]'", ["touchstone study out"]),
        (
            "python analyze_checkpoints.py checkpoints.csv --output study",
            ["touchstone study checkpoints.csv -o study"],
        ),
        (
            "python -m weighted_mtp evaluate --checkpoint a.pt",
            [f"touchstone run --tasks humaneval {CODE} --mlflow --checkpoint a.pt"],
        ),
        (
            "uv run python -m weighted_mtp.cli.evaluate --checkpoint a.pt --dataset mbpp --max-tasks 9 --no-mlflow",
            [f"touchstone run --tasks mbpp {CODE} --checkpoint a.pt --eval-limit 9 --eval-data hub"],
        ),
        ("python compare_results.py", ["touchstone compare"]),
        ("python compare_results.py a.json b.json", ["touchstone compare a.json b.json"]),
        (
            "./run_evaluation.sh --endpoint http://h:8000/v1/completions --gpu 0 --batch-size 8 --run-id a --dry-run",
            [
                "touchstone run --eval-config configs/eval_config.json --checkpoint http://h:8000/v1/completions "
                "--eval-run-id a --eval-dry-run --eval-data hub"
            ],
        ),
        ("./run_evaluation.sh --validate-config", ["touchstone validate configs/eval_config.json"]),
        ("./run_evaluation.sh --list-benchmarks --config c", ["touchstone benchmarks --config c"]),
        (
            "python eval_simple.py",
            [
                f"touchstone run --tasks {SUBJECTS} --eval-shots 0 --eval-limit 0.2 --eval-batch 16 "
                "--eval-dtype bfloat16 --eval-chat off --checkpoint BASE --checkpoint ADAPTER --eval-data hub",
                "touchstone compare last",
            ],
        ),
    ],
)
def test_commands_of_scripts_have_ours(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    typed: str,
    wanted: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    found = migrated(capsys, typed)
    assert [line for line in found if not line.startswith("  ")] == wanted
    assert not [line for line in found if "no counterpart" in line]


@pytest.mark.parametrize(
    "typed",
    [
        "find . -name model.txt",
        "find results -name '*_eval_results.json'",
        "cat notes.txt",
        "jq empty configs/eval_config.json",
        "cat results/evalchemy_summary.json | jq .",
        "python train.py --pipelines abc",
        "python finetune.py --model gpt2 --dataset gsm8k --output-dir runs/a --epochs 3",
        "python analyze_logs.py --input web.log",
        "python compare_prices.py a.csv b.csv",
        "python foo.py --model gpt2 --max_length 5",
        "python -m weighted_mtp --config configs/baseline.yaml",
        "python -m weighted_mtp train --pipeline critic",
        "for p in a b; do echo $p; done",
        "for p in a b; do lm_eval --model_args pretrained=$p --tasks nonesuch; done",
        "for p in $(ls runs); do lm_eval --model_args pretrained=$p --tasks arc_easy; done",
    ],
)
def test_what_is_no_evaluation_that_is_known_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    for words in ([typed], shlex.split(typed) if "for " not in typed else [typed]):
        assert main(["migrate", *words]) == 4
        found = capsys.readouterr()
        assert (found.out, found.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    "typed",
    [
        "python -m weighted_mtp evaluate --checkpoint a.pt --dataset mbpp --seed 1",
        "python scripts/evaluate_checkpoint.py --checkpoint runs/a/checkpoint-655 --seq-len 1536",
        "lm_eval --model hf --model_args pretrained=x --tasks arc_easy",
        "./run_evaluation.sh --endpoint http://h:8000/v1 --run-id a",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_that_end_in_a_backslash_are_one(
    capsys: pytest.CaptureFixture[str], typed: str, end: str
) -> None:
    assert migrated(capsys, typed.replace(" --", f" \\{end}    --")) == migrated(capsys, typed)


PIPELINES = """for p in base critic; do
    python -m weighted_mtp{} \\
        --checkpoint storage/checkpoints/{}/checkpoint_best.pt \\
        --dataset humaneval
done"""


@pytest.mark.parametrize("program", [" evaluate", ".cli.evaluate"])
@pytest.mark.parametrize("variable", ["$p", "${p}"])
def test_a_loop_over_names_has_a_checkpoint_for_each(
    capsys: pytest.CaptureFixture[str], program: str, variable: str
) -> None:
    (command,) = migrated(capsys, PIPELINES.format(program, variable))
    paths = " ".join(
        f"--checkpoint storage/checkpoints/{name}/checkpoint_best.pt" for name in ("base", "critic")
    )
    assert command == f"touchstone run --tasks humaneval {CODE} --mlflow {paths}"


def test_a_loop_over_something_else_has_a_command_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    line = "lm_eval --model_args pretrained={},dtype=float16 --tasks {}"
    loop = "for {} in a b; do " + line + "; done"
    command, *_ = migrated(capsys, loop.format("p", '"$p"', "arc_easy"))
    assert "--checkpoint a --checkpoint b --eval-dtype" in command
    first, second, *_ = migrated(capsys, loop.format("t", "x", "mmlu_$t").replace("a b", "virology anatomy"))
    assert "--tasks 'mmlu/virology 0-shot' " in first
    assert "--tasks 'mmlu/anatomy 0-shot' " in second


def test_a_script_that_is_here_says_what_it_asks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("eval_simple.py").write_text(
        'base_model_path = "Q"\nadapter_path = "saves/a"\noutput_dir = "o"\nlimit=0.5,\n'
    )
    run, compare, *_ = migrated(capsys, "python", "eval_simple.py")
    assert "--eval-limit 0.5 " in run
    assert "--checkpoint Q --checkpoint saves/a --eval-output o " in run
    assert compare == "touchstone compare last --output o"
    Path("evaluate_all_checkpoints.sh").write_text(
        'evaluate "runs/a" 512\nevaluate "runs/b" 512\nls "runs/a"\n'
    )
    run, *_ = migrated(capsys, "sh", "evaluate_all_checkpoints.sh")
    assert run == f"{KOREAN} runs/a --checkpoint runs/b --eval-beside"


def test_an_option_of_a_script_that_is_unknown_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    *_, line = migrated(capsys, *["x.py", "--checkpoint", "c", "--tasks", "arc_easy", "--seqlen", "5"])
    assert line == "  no counterpart: --seqlen (is it --seq-len?)"
    assert main(["migrate", "x.py", "--foo"]) == 4
    assert "'x.py' is not known: expected lm_eval, a script" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "name"), [(CHOICE, "my_boolq"), (TEXTS, "my-sums")], ids=["choice", "texts"]
)
def test_a_task_becomes_a_benchmark_that_pytest_collects(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "task.yaml").write_text(text)
    text, lines = of_task(read_yaml(tmp_path / "task.yaml"), tmp_path / "task.yaml")
    path = tmp_path / f"test_{name}.py"
    path.write_text(text)
    (one,) = find_benchmarks([path])
    assert one.spec.name == name
    if name == "my_boolq":
        assert lines == ("no counterpart: should_decontaminate", "no counterpart: metric bleu")
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
        ("- a", "is no task or config: expected a table of keys"),
        ("a: [", "cannot read"),
    ],
)
def test_a_task_of_another_form_is_refused(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "task.yaml").write_text(text)
    with pytest.raises(HarnessError, match=line):
        of_task(read_yaml(tmp_path / "task.yaml"), tmp_path / "task.yaml")


def test_the_command_prints_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"tasks": {"arc_easy": {"limit": 1}}}))
    assert main(["migrate", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        f"touchstone run --eval-config {path} --checkpoint PATH --eval-data hub"
    )
    for words in (["lm_eval --tasks arc_easy"], ["--", "lm_eval", "--tasks", "arc_easy"]):
        assert main(["migrate", *words]) == 0
        assert "--tasks arc_easy" in capsys.readouterr().out
    assert main(["migrate", "make", "all"]) == 4
    assert "'make' is not known: expected lm_eval" in capsys.readouterr().err


@pytest.mark.parametrize("page", ["choosing.md", "coming-from-scripts.md"])
def test_the_commands_of_the_pages_print_what_they_show(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: str
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(
        r"    \$ touchstone (migrate .*)\n((?:    .*\n)+)", (ROOT / "docs" / page).read_text(encoding="utf-8")
    )
    assert blocks
    for command, shown in blocks:
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().out == textwrap.dedent(shown)
