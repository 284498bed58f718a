"""Writes the prompts of lm-evaluation-harness 0.4.13 into ``fixtures/conformance/lm_eval_prompts.json``, as hashes.

    python tests/conformance/record_lm_eval_prompts.py [--data DIR] [--out FILE]
    python tests/conformance/record_lm_eval_prompts.py --made-up

Run where ``lm-eval[math,ifeval]==0.4.13`` is installed; nothing of this project is needed. Its own tasks, pointed at
local JSONL files by ``dataset_path: json``, are run with ``--log_samples`` and its dummy model. Of each document's
requests, the JSON of [[context, continuation], ...] or [prompt] is hashed; through a chat template that writes the
messages as JSON (``chat``), of [messages].

The files are the shipped ones, or those of ``--data``, with a stand-in for each training split that is not there: the
first 20 evaluation rows and the first 6 of them again, so that draws meet the question itself and rows that are there
twice. ``--made-up`` records what is asked of the made-up rows in ``fixtures/conformance/made_up``, of tasks whose rows
may not be shipped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "fixtures" / "conformance" / "lm_eval_prompts.json"
MADE_UP = ROOT / "fixtures" / "conformance" / "made_up"
RECORDED_OF_MADE_UP = MADE_UP / "lm_eval_prompts.json"
SUBJECTS = sorted(path.stem for path in (ROOT / "fixtures/data/mmlu/test").glob("*.jsonl"))
BBH = sorted(path.stem for path in (ROOT / "fixtures/data/bbh").glob("*.jsonl"))
PRO = (
    *(
        "biology",
        "business",
        "chemistry",
        "computer_science",
        "economics",
        "engineering",
        "health",
        "history",
    ),
    *("law", "math", "other", "philosophy", "physics", "psychology"),
)
CLICK = {
    "cul": ("economy", "geography", "history", "law", "politics", "kpop", "society", "tradition"),
    "lang": ("text", "grammar", "function"),
}
HAERAE = (
    ("general_knowledge", "gk", "general_knowledge"),
    ("history", "hi", "history"),
    ("loan_word", "lw", "loan_words"),
    ("rare_word", "rw", "rare_words"),
    ("standard_nomenclature", "sn", "standard_nomenclature"),
)
"""The tasks of HAE-RAE Bench, their names in the reference's files, and those of the data."""

STAND_IN = (20, 6)

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A task of the reference: its file, the files of its splits, the numbers of shots to record, and how a row of ours
    reads on the Hub. Through a chat template it is recorded with ``chat`` shots."""

    yaml: str
    splits: dict[str, str]
    shots: tuple[int, ...]
    hub: Callable[[Row], Row] = field(default=lambda row: row)
    chat: tuple[int, ...] = ()
    shuffled: bool = False
    """Whether the reference lists the answers in an order of its own, so that only the lines are compared."""


def arc(row: Row) -> Row:
    choices = row["question"]["choices"]
    listed = {name: [choice[name] for choice in choices] for name in ("text", "label")}
    return {"question": row["question"]["stem"], "choices": listed, "answerKey": row["answerKey"]}


def drop(row: Row) -> Row:
    date = {"day": "", "month": "", "year": ""}
    first, *others = row["answers"]
    answer = {"number": "", "date": date, "spans": first}
    more = {"number": [""] * len(others), "date": [date] * len(others), "spans": others}
    return {**row, "answer": answer, "validated_answers": more}


def winogrande(row: Row) -> Row:
    return {name: row[name] for name in ("sentence", "option1", "option2", "answer")}


def few_tests(row: Row) -> Row:
    return {name: row[name] for name in ("task_id", "text", "code", "test_list")}


def boolq(row: Row) -> Row:
    """The row as SuperGLUE has it."""
    passage = f"{row['title']} -- {row['passage']}"
    return {"question": row["question"], "passage": passage, "label": int(row["answer"])}


KOBEST = {
    "boolq": {"paragraph": "Text", "question": "Question"},
    "copa": {"premise": "sentence", "question": "question", "alternative_1": "1", "alternative_2": "2"},
    "hellaswag": {"context": "context", **{f"ending_{n}": f"choice{n}" for n in range(1, 5)}},
    "sentineg": {"sentence": "Text"},
    "wic": {"word": "Target", "context_1": "SENTENCE1", "context_2": "SENTENCE2"},
}
"""The fields of the Hub's rows of KoBEST, and those of the authors' files."""


def kobest(task: str) -> Callable[[Row], Row]:
    """What makes a row of KoBEST's file one of the Hub's."""

    def hub(row: Row) -> Row:
        told = next(row[name] for name in ("Answer", "ANSWER", "label", "Label") if name in row)
        label = {"true": 1, "false": 0}.get(told.strip().lower())
        number = int(told) - (task == "copa") if label is None else label
        return {name: row[field] for name, field in KOBEST[task].items()} | {"label": number}

    return hub


def plain_pro(row: Row) -> Row:
    """Without the field that only examples have."""
    return {name: value for name, value in row.items() if name != "cot_content"}


TASKS = {
    "arc_easy": Task(
        "arc/arc_easy", {"test": "arc_easy/test", "train": "arc_easy/train"}, (0, 1, 5, 25), arc
    ),
    "arc_challenge": Task(
        "arc/arc_challenge",
        {"test": "arc_challenge/test", "train": "arc_challenge/train"},
        (0, 1, 5, 25),
        arc,
    ),
    "hellaswag": Task(
        "hellaswag/hellaswag",
        {"validation": "hellaswag/validation", "train": "hellaswag/train"},
        (0, 1, 5, 10),
    ),
    "winogrande": Task(
        "winogrande/default",
        {"validation": "winogrande/dev", "train": "winogrande/train"},
        (0, 1, 5),
        winogrande,
    ),
    "piqa": Task("piqa/piqa", {"validation": "piqa/validation", "train": "piqa/train"}, (0, 1, 5)),
    "boolq": Task(
        "super_glue/boolq/default",
        {"validation": "boolq/validation", "train": "boolq/train"},
        (0, 1, 5),
        boolq,
    ),
    "openbookqa": Task(
        "openbookqa/openbookqa", {"test": "openbookqa/test", "train": "openbookqa/train"}, (0, 1, 5)
    ),
    "commonsense_qa": Task(
        "commonsense_qa/default",
        {"validation": "commonsense_qa/validation", "train": "commonsense_qa/train"},
        (0, 1, 5),
    ),
    **{
        f"kobest_{task}": Task(
            f"kobest/kobest_{task}",
            {"test": f"kobest/{task}/test", "train": f"kobest/{task}/train"},
            (0, 5),
            kobest(task),
        )
        for task in KOBEST
    },
    "mmlu_pro_letters": Task(
        "leaderboard/mmlu_pro/mmlu_pro",
        {"test": "mmlu_pro/test", "validation": "mmlu_pro/validation"},
        (0, 5),
        plain_pro,
    ),
    **{
        f"mmlu_pro/{category}": Task(
            f"mmlu_pro/mmlu_pro_{category}",
            {"test": "mmlu_pro/test", "validation": "mmlu_pro/validation"},
            (0, 5),
            lambda row: {"cot_content": "", **row},
        )
        for category in PRO
    },
    **{f"bbh/{task}": Task(f"bbh/cot_fewshot/{task}", {"test": f"bbh/{task}"}, (0, 3)) for task in BBH},
    **{f"bbh_zeroshot/{task}": Task(f"bbh/zeroshot/{task}", {"test": f"bbh/{task}"}, (0,)) for task in BBH},
    "ifeval": Task("ifeval/ifeval", {"train": "ifeval/input_data"}, (0,)),
    "lambada": Task("lambada/lambada_openai", {"test": "lambada_openai/test"}, (0, 1, 5)),
    "gsm8k": Task("gsm8k/gsm8k", {"test": "gsm8k/test", "train": "gsm8k/train"}, (0, 1, 5), chat=(0, 5)),
    "math": Task("minerva_math/minerva_math500", {"test": "math500/test"}, (0, 1, 4), chat=(4,)),
    "drop": Task("drop/default", {"validation": "drop/validation", "train": "drop/train"}, (0,), drop),
    "humaneval": Task("humaneval/humaneval", {"test": "humaneval/HumanEval"}, (0,)),
    "mbpp": Task("mbpp/mbpp", {"test": "mbpp/test"}, (0, 1, 3), few_tests),
    **{
        f"mmlu/{subject}": Task(
            f"mmlu/default/mmlu_{subject}",
            {"test": f"mmlu/test/{subject}", "dev": f"mmlu/dev/{subject}"},
            (0, 1, 5),
        )
        for subject in SUBJECTS
    },
    **{
        f"mmlu_continuation/{subject}": Task(
            f"mmlu/continuation/mmlu_{subject}",
            {"test": f"mmlu/test/{subject}", "dev": f"mmlu/dev/{subject}"},
            (0, 5),
        )
        for subject in SUBJECTS
    },
    **{
        f"kmmlu/{subject}": Task(
            f"kmmlu/default/kmmlu_{subject.lower().replace('-', '_')}",
            {"test": f"kmmlu/test/{subject}", "dev": f"kmmlu/dev/{subject}"},
            (0, 5),
        )
        for subject in ("Korean-History", "Math")
    },
    **{
        f"click/{category}": Task(
            f"click/click_{part}/click_{part}_{category}", {"train": "click/train"}, (0, 5)
        )
        for part, categories in CLICK.items()
        for category in categories
    },
    **{
        f"haerae_{name}": Task(f"haerae/haerae_{short}", {"test": f"haerae/{file}"}, (0,))
        for name, short, file in HAERAE
    },
    "truthfulqa_mc1": Task("truthfulqa/truthfulqa_mc1", {"validation": "truthfulqa/validation"}, (0,)),
    "truthfulqa_mc2": Task("truthfulqa/truthfulqa_mc2", {"validation": "truthfulqa/validation"}, (0,)),
    "gpqa": Task("gpqa/zeroshot/gpqa_main_zeroshot", {"train": "gpqa/main"}, (0,), shuffled=True),
}


def asked_of(source: Path) -> dict[str, Task]:
    """The tasks whose rows are there."""
    return {
        name: task
        for name, task in TASKS.items()
        if (source / f"{next(iter(task.splits.values()))}.jsonl").is_file()
    }


def data_folder(source: Path, target: Path) -> Path:
    """``target`` with the files of ``source`` that the tasks need, and a stand-in for each that is not there; of tasks
    whose rows are not there, none."""
    for task in asked_of(source).values():
        scored, *others = task.splits.values()
        lines = (source / f"{scored}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        for name in (scored, *others):
            found, path = source / f"{name}.jsonl", target / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            standing = [line for count in STAND_IN for line in lines[:count]]
            path.write_text(
                found.read_text(encoding="utf-8") if found.is_file() else "".join(standing), encoding="utf-8"
            )
    return target


def sha256(asked: list[Any]) -> str:
    """The hash of what is asked about one document."""
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def listed(task: Task, asked: list[Any]) -> list[Any]:
    """What is asked about a document, of a task that shuffles its answers as sorted lines without letters."""
    if not task.shuffled:
        return asked
    lines = [sorted(re.sub(r"^\([A-Z]\) ", "", line) for line in one[0].split("\n")) for one in asked]
    return [[context, one[1]] for context, one in zip(lines, asked, strict=True)]


def record(source: Path, only: Sequence[str] | None = None) -> dict[str, dict[str, list[str]]]:
    """The hashes of each task's prompts, by the number of shots, in the order of its documents; of ``only`` these
    tasks, or of benchmarks with many."""
    found: dict[str, dict[str, list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_DATASETS_CACHE"] = f"{folder}/cache"
        data = data_folder(source, Path(folder, "data"))
        for name, task in asked_of(source).items():
            if only and not {name, name.partition("/")[0]}.intersection(only):
                continue
            for shots, chat in [(n, False) for n in task.shots] + [(n, True) for n in task.chat]:
                form = f"{shots}{' chat' if chat else ''}"
                found.setdefault(name, {})[form] = run(name, task, data, shots, chat=chat)
    return found


def run(name: str, task: Task, data: Path, shots: int, *, chat: bool) -> list[str]:
    """The hashes of the prompts of one run of the reference."""
    called, folder = described(name, task, data)
    samples = samples_of(called, folder, model(), num_fewshot=shots, apply_chat_template=chat)
    return [hash_of(task, one[0]["arguments"], chat=chat) for one in samples]


def described(name: str, task: Task, data: Path) -> tuple[str, Path]:
    """The name of a task of the reference's that reads our rows, and the folder of its file, which is written."""
    folder = data / "tasks" / name.replace("/", "_")
    files = dict(local_files(task, data, folder))
    called = f"local_{name.replace('/', '_')}"
    asked: Row = {"include": str(tasks_folder() / f"{task.yaml}.yaml"), "task": called, "tag": None}
    asked |= {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}}
    (folder / f"{called}.yaml").write_text(json.dumps(asked), encoding="utf-8")
    return called, folder


def samples_of(called: str, folder: Path, model: Any, **more: Any) -> list[list[Row]]:
    """The samples of a run of the reference, by document: one of each filter."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    found = simple_evaluate(
        model=model,
        tasks=[called],
        log_samples=True,
        bootstrap_iters=0,
        fewshot_as_multiturn=bool(more.get("apply_chat_template")),
        confirm_run_unsafe_code=True,
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        **more,
    )
    by_document: dict[int, list[Row]] = {}
    for one in found["samples"][called]:
        by_document.setdefault(one["doc_id"], []).append(one)
    return [by_document[number] for number in sorted(by_document)]


def hash_of(task: Task, arguments: list[Any], *, chat: bool = False) -> str:
    """The hash of what is asked about a document."""
    return sha256(listed(task, [_asked(one, chat=chat) for one in arguments]))


def _asked(arguments: Any, *, chat: bool) -> Any:
    context, more = arguments
    if chat:
        return json.loads(context)
    return [context, more] if isinstance(more, str) else context


def local_files(task: Task, data: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """The files of the task's splits, written as the rows read on the Hub."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, name in task.splits.items():
        lines = (data / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
        rows = [task.hub(json.loads(line)) for line in lines if line]
        path = folder / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        yield split, str(path)


def tasks_folder() -> Path:
    import lm_eval

    return Path(lm_eval.__file__).parent / "tasks"


def model() -> Any:
    """Its dummy model, with a chat template that writes the messages as JSON."""
    from lm_eval.models.dummy import DummyLM

    class WithChat(DummyLM):  # type: ignore[misc]
        tokenizer_name = "messages as JSON"

        def apply_chat_template(self, chat_history: list[Row], add_generation_prompt: bool = True) -> str:
            return json.dumps(chat_history)

        def chat_template(self, chat_template: bool | str = False) -> str:
            return "messages as JSON"

    return WithChat()


def without_the_hub() -> None:
    """Lets the files of HumanEval's and MBPP's tasks be read, which fetch a metric and try it: a stand-in judges no
    program."""
    import evaluate

    class Judge:
        def compute(self, *_: Any, **__: Any) -> Any:
            return [{"pass@1": 0.0}]

    evaluate.load = lambda *_, **__: Judge()


def main() -> None:
    from importlib.metadata import version

    assert version("lm_eval") == "0.4.13", f"lm-eval 0.4.13 is the reference, not {version('lm_eval')}"
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=ROOT / "fixtures" / "data")
    parser.add_argument("--out", type=Path, default=RECORDED)
    parser.add_argument(
        "--only", nargs="*", metavar="TASK", help="tasks (default: all); others stay as recorded"
    )
    parser.add_argument(
        "--made-up", action="store_true", help="of the made-up rows, into the file beside them"
    )
    options = parser.parse_args()
    if options.made_up:
        options.data, options.out = MADE_UP, RECORDED_OF_MADE_UP
    os.environ["HF_HUB_OFFLINE"] = "1"
    without_the_hub()
    known = json.loads(options.out.read_text(encoding="utf-8")) if options.only else {}
    found = record(options.data, options.only)
    written = known | {
        name: {form: " ".join(one) for form, one in forms.items()} for name, forms in found.items()
    }
    options.out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print(
        sum(len(hashes) for forms in found.values() for hashes in forms.values()),
        "prompts of",
        len(found),
        "tasks",
    )


if __name__ == "__main__":
    main()
