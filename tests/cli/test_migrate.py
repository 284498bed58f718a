"""``touchstone migrate`` turns command lines and configs of lm-evaluation-harness into ours, and names what has no
counterpart."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from pytest_touchstone.cli import main
from tests.support.lines import missing
from tests.support.places import ROOT


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
        "--eval-shots 25 --eval-batch auto --eval-limit 10 --eval-set fewshot=lm-eval:7 --eval-chat on --eval-data hub"
    )
    assert rows.startswith("  --eval-data hub: whole published sets")
    assert not missing(sample, "--eval-limit 10", "sample")


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
    assert "--tasks arc_easy,lm_eval:gsm8k_cot " in command
    assert not missing(task, "lm_eval:gsm8k_cot", "pytest-touchstone[lm-eval]", "nearest of ours: gsm8k")
    assert part == "  no counterpart: load_in_4bit of --model_args"
    assert text == "  no counterpart: until of --gen_kwargs"


def test_defaults_of_lm_eval_that_are_not_ours_become_options(capsys: pytest.CaptureFixture[str]) -> None:
    given = (
        "lm_eval --model vllm --model_args pretrained=Q,tensor_parallel_size=4 --wandb_args project=a,name=b"
    )
    command, *_ = migrated(capsys, *shlex.split(f"{given} --tasks minerva_math"))
    assert "--checkpoint vllm:Q --eval-set 'server_args=--tensor-parallel-size 4'" in command
    assert "--wandb --eval-set wandb_project=a" in command
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
    expected = (
        "touchstone run --tasks arc_easy,gsm8k --checkpoint x --eval-limit 100 --eval-set fewshot=lm-eval"
    )
    for words in ([str(path)], ["lm_eval", "--config", str(path)]):
        command, *_ = migrated(capsys, *words)
        assert command.startswith(expected)
    command, *_ = migrated(capsys, "lm_eval", "--config", str(path), "--limit", "5")
    assert "--eval-limit 5" in command
    assert "--eval-limit 100" not in command


def test_tasks_that_are_files_are_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "lm_eval", "--tasks", "mine/task.yaml"]) == 4
    assert not missing(
        capsys.readouterr().err, "no counterpart", "task mine/task.yaml", "--eval-lm-eval-path"
    )


def test_a_folder_of_tasks_is_ours_too(capsys: pytest.CaptureFixture[str]) -> None:
    (command, *_) = migrated(capsys, "lm_eval", "--tasks", "mine", "--include_path", "tasks")
    assert "--tasks lm_eval:mine --eval-lm-eval-path tasks" in command


REFUSED = (
    "find . -name model.txt",
    "cat out/*.json | jq -s 'sort_by(.real1) | reverse | .[0]'",
    "python train.py --pipelines abc",
    "python finetune.py --model gpt2 --dataset gsm8k --output-dir runs/a --epochs 3",
    "python analyze_logs.py --input web.log",
    "python compare_prices.py a.csv b.csv",
    "python foo.py --model gpt2 --tasks arc_easy",
    "python scripts/evaluate_checkpoint.py --checkpoint runs/a/checkpoint-5",
    "./run_evaluation.sh --endpoint http://h:8000/v1 --run-id a",
    "configs/eval_config.json",
    "for p in a b; do lm_eval --model_args pretrained=$p --tasks arc_easy; done",
    "make all",
    "nohup",
)


@pytest.mark.parametrize("typed", REFUSED)
def test_what_is_not_lm_eval_is_refused_in_one_line_that_names_the_page(
    capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    for words in ([typed], typed.split()):
        assert main(["migrate", *words]) == 4
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1)
        assert "docs/coming-from-scripts.md" in printed.err
    assert (ROOT / "docs" / "coming-from-scripts.md").is_file()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("task: a\noutput_type: multiple_choice\n", "is no config of lm_eval"),
        ("task: a\ndoc_to_text: !function utils.f\n", "cannot read"),
        ("- a", "is no config of lm_eval"),
        ("a: [", "cannot read"),
    ],
)
def test_yaml_that_is_no_config_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, line: str
) -> None:
    (tmp_path / "task.yaml").write_text(text)
    assert main(["migrate", str(tmp_path / "task.yaml")]) == 4
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert line in printed.err


LM_EVAL = "lm_eval --model hf --model_args pretrained=x --tasks arc_easy"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_that_end_in_a_backslash_are_one(capsys: pytest.CaptureFixture[str], end: str) -> None:
    assert migrated(capsys, LM_EVAL.replace(" --", f" \\{end}    --")) == migrated(capsys, LM_EVAL)


@pytest.mark.parametrize(
    "before", ["python -m", "uv run", "nohup /usr/bin/python3.12 -u -m", "accelerate launch -m", "--"]
)
def test_what_starts_lm_eval_is_left_out(capsys: pytest.CaptureFixture[str], before: str) -> None:
    wanted = migrated(capsys, LM_EVAL)
    assert migrated(capsys, *before.split(), *LM_EVAL.split(), "&") == wanted
    command, *_ = migrated(
        capsys, "CUDA_VISIBLE_DEVICES=1", *LM_EVAL.replace("lm_eval", "lm-eval run").split()
    )
    assert command == f"CUDA_VISIBLE_DEVICES=1 {wanted[0]}"


def test_an_option_that_is_unknown_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    *_, line = migrated(capsys, *LM_EVAL.split(), "--num-fewshots", "5")
    assert not missing(line, "no counterpart", "--num_fewshots", "--num_fewshot")


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
