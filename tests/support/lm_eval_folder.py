"""Tasks of lm-evaluation-harness over local rows: every output type, sampler, filter and form of a group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

ROWS: Final = 12

UTILS: Final = """
import random

import numpy as np


def even(dataset):
    return dataset.filter(lambda row: row["number"] % 2 == 0)


def shuffled(dataset):
    return dataset.shuffle(seed=random.randrange(1000))


def question(doc):
    return f"{doc['question']}? Answer:"


def question_and_shuffled_choices(doc):
    choices = list(doc["choices"])
    random.shuffle(choices)
    return f"{doc['question']}? One of {', '.join(choices)}. Answer:"


def examples():
    return [{"question": f"Is {n} a number", "choices": ["yes", "no"], "gold": 0, "answer": "yes"} for n in range(4)]


def score_choices(doc, results):
    logprobs = [logprob for logprob, _ in results]
    return {"acc": float(int(np.argmax(logprobs)) == doc["gold"]), "margin": float(max(logprobs) - min(logprobs))}


def score_target(doc, results):
    logprob, is_greedy = results[0]
    return {"bits": (logprob, len(doc["answer"])), "acc": int(is_greedy)}


def bits(items):
    return -sum(logprob for logprob, _ in items) / sum(size for _, size in items)


def score_rolling(doc, results):
    return {"per_word": (results[0], len(doc["text"].split()))}


def score_text(doc, results):
    text = results[0] if isinstance(results[0], str) else results[0][0]
    return {"length": len(text), "first": [doc["answer"], text[:1]], "maybe": float("nan") if doc["gold"] else 1.0}


def distinct(items):
    return len({text for _, text in items}) / len(items)


def reverse(resps, docs):
    return [[text[::-1] for text in texts] for texts in resps]
"""

CLASS_TASK: Final = """
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean
from lm_eval.api.task import ConfigurableTask


class TwoKinds(ConfigurableTask):
    VERSION = 3

    def __init__(self, config=None):
        config = {key: value for key, value in config.items() if key != "class"}
        super().__init__(config={**config, "metadata": {"version": self.VERSION}})

    def construct_requests(self, doc, ctx, **kwargs):
        kwargs.pop("apply_chat_template", False)
        kwargs.pop("chat_template", False)
        text = {"until": ["\\n"], "max_gen_toks": 8}
        return [
            Instance(request_type="generate_until", doc=doc, arguments=(ctx, text), idx=0, **kwargs),
            Instance(request_type="loglikelihood", doc=doc, arguments=(ctx, " unanswerable"), idx=0, **kwargs),
        ]

    def process_results(self, doc, results):
        text, (logprob, _) = results
        return {"exact": float(text.strip() == doc["answer"]), "pair": (text, logprob)}

    def aggregation(self):
        return {"exact": mean, "pair": lambda items: sum(logprob for _, logprob in items)}

    def higher_is_better(self):
        return {"exact": True, "pair": True}
"""

TEXT_OF_WORDS: Final = (
    "the river runs past a small stone bridge and the old mill where people sell bread and fish"
)
WORDS: Final = TEXT_OF_WORDS.split(" ")


def _rows(split: str) -> list[dict[str, Any]]:
    start = {"test": 0, "train": 100}[split]
    rows = []
    for number in range(start, start + ROWS):
        choices = [WORDS[(number + step) % len(WORDS)] for step in (1, 4, 7)]
        text = " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 14))
        rows.append(
            {
                "number": number,
                "question": f"Which word follows {WORDS[number % len(WORDS)]} ({number})",
                "choices": choices,
                "gold": number % 3,
                "golds": [number % 3, (number + 1) % 3],
                "answer": choices[number % 3],
                "answers": [choices[number % 3], "e"],
                "context": text,
                "contexts": [f"{text} {choice}" for choice in choices],
                "text": f"{text}. {text}",
            }
        )
    return rows


def _metrics(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"metric": name, "aggregation": "mean", "higher_is_better": True, **more} for name in names]


def _as(**how: str) -> list[dict[str, Any]]:
    return [{"metric": name, "aggregation": by, "higher_is_better": True} for name, by in how.items()]


CHOICE: Final = {
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}?\nAnswer:",
    "doc_to_choice": "choices",
    "doc_to_target": "gold",
    "metric_list": _metrics("acc", "acc_norm"),
}
TARGET: Final = {
    "output_type": "loglikelihood",
    "doc_to_text": "{{question}}?",
    "doc_to_target": " {{answer}}",
    "metric_list": _as(perplexity="perplexity", acc="mean"),
}
ROLLING: Final = {
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "text",
    "metric_list": _as(word_perplexity="weighted_perplexity", byte_perplexity="weighted_perplexity"),
}
TEXT: Final = {
    "output_type": "generate_until",
    "doc_to_text": "{{question}}?\nAnswer:",
    "doc_to_target": "answer",
    "generation_kwargs": {"until": ["\n"], "max_gen_toks": 12, "do_sample": False},
    "metric_list": _metrics("exact_match"),
}
TRAIN: Final = {"num_fewshot": 3, "fewshot_split": "train", "training_split": "train"}


def _filter(name: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "filter": list(steps)}


def _step(function: str, **more: Any) -> dict[str, Any]:
    return {"function": function, **more}


FIRST: Final = _step("take_first")

TASKS: Final[dict[str, dict[str, Any]]] = {
    "mc_plain": CHOICE,
    "mc_few": {**CHOICE, **TRAIN},
    "mc_few_own": {**CHOICE, "num_fewshot": 2, "fewshot_split": "test"},
    "mc_first_n": {**CHOICE, **TRAIN, "fewshot_config": {"sampler": "first_n"}},
    "mc_samples": {
        **CHOICE,
        "num_fewshot": 2,
        "fewshot_config": {
            "samples": [{"question": f"q{n}", "choices": ["a", "b"], "gold": n % 2} for n in range(3)]
        },
    },
    "mc_samples_function": {**CHOICE, "num_fewshot": 2, "fewshot_config": {"samples": "!utils.examples"}},
    "mc_shot_form": {
        **CHOICE,
        **TRAIN,
        "fewshot_delimiter": "\n###\n",
        "fewshot_config": {"doc_to_text": "Q: {{question}}", "target_delimiter": " -> "},
    },
    "mc_no_delimiter": {**CHOICE, "target_delimiter": ""},
    "mc_contexts": {
        **CHOICE,
        "doc_to_text": "gold",
        "doc_to_choice": "contexts",
        "doc_to_target": " and the end",
        "metric_list": _metrics("acc"),
    },
    "mc_targets": {**CHOICE, "doc_to_target": "golds"},
    "mc_all_metrics": {
        **CHOICE,
        "metric_list": [
            *_metrics("acc", "acc_norm", "acc_bytes", "exact_match"),
            {"metric": "mcc", "aggregation": "matthews_corrcoef", "higher_is_better": True},
            {"metric": "brier_score", "aggregation": "brier_score", "higher_is_better": False},
        ],
    },
    "mc_f1": {
        **CHOICE,
        "doc_to_choice": ["no", "yes"],
        "doc_to_target": "{{number % 2}}",
        "metric_list": _as(f1="f1", acc="mean"),
    },
    "mc_mutual": {**CHOICE, "metric_list": _metrics("acc", "acc_mutual_info")},
    "mc_named_gold": {**CHOICE, "doc_to_target": "answer"},
    "mc_description": {**CHOICE, **TRAIN, "description": "Find the word.\n\n", "gen_prefix": "It is"},
    "mc_process_docs": {**CHOICE, "process_docs": "!utils.even"},
    "mc_shuffled_docs": {**CHOICE, **TRAIN, "process_docs": "!utils.shuffled"},
    "mc_random_text": {**CHOICE, "doc_to_text": "!utils.question_and_shuffled_choices"},
    "mc_process_results": {
        **CHOICE,
        "process_results": "!utils.score_choices",
        "metric_list": [*_metrics("acc"), *_metrics("margin", higher_is_better=False)],
    },
    "mc_default_metrics": {key: value for key, value in CHOICE.items() if key != "metric_list"},
    "ll_plain": TARGET,
    "ll_few": {**TARGET, **TRAIN, "doc_to_target": "{{' ' + answer}}"},
    "ll_own_function": {
        **TARGET,
        "process_results": "!utils.score_target",
        "metric_list": [
            {"metric": "bits", "aggregation": "!utils.bits", "higher_is_better": False},
            *_metrics("acc"),
        ],
    },
    "roll_plain": ROLLING,
    "roll_bits": {
        **ROLLING,
        "metric_list": [
            {"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}
        ],
    },
    "roll_own": {
        **ROLLING,
        "process_results": "!utils.score_rolling",
        "metric_list": [{"metric": "per_word", "aggregation": "!utils.bits", "higher_is_better": False}],
    },
    "gen_plain": TEXT,
    "gen_few": {**TEXT, **TRAIN, "doc_to_text": "!utils.question"},
    "gen_stops": {**TEXT, "generation_kwargs": {"until": ["e", " a", "\n\n"], "max_new_tokens": 16}},
    "gen_one_stop": {
        **TEXT,
        "generation_kwargs": {"until": "s", "max_tokens": 10, "do_sample": False, "temperature": 0.7},
    },
    "gen_two_filters": {
        **TEXT,
        "metric_list": _metrics("exact_match", ignore_case=True, ignore_punctuation=True),
        "filter_list": [
            _filter("strict-match", _step("regex", regex_pattern=r"is (\w+)"), FIRST),
            _filter("flexible-extract", _step("regex", regex_pattern=r"(\w)", group_select=-1), FIRST),
        ],
    },
    "gen_majority": {
        **TEXT,
        "repeats": 3,
        "filter_list": [
            _filter("maj", _step("regex", regex_pattern=r"(\w+)"), _step("majority_vote"), FIRST),
            _filter("first-two", _step("take_first_k", k=2), _step("take_first")),
        ],
    },
    "gen_letters": {
        **TEXT,
        "doc_to_text": "{{question}}?\n(A) {{choices[0]}}\n(B) {{choices[1]}}\nAnswer:",
        "filter_list": [
            _filter("pick", _step("multi_choice_regex", group_select=-1, regex_pattern=r"(\([A-Z]\))"), FIRST)
        ],
    },
    "gen_cases": {
        **TEXT,
        "filter_list": [
            _filter("low", _step("lowercase"), _step("remove_whitespace"), FIRST),
            _filter("up", _step("uppercase"), FIRST),
            _filter("mapped", FIRST, _step("map", mapping_dict={"a": "b"}, default_value="?")),
        ],
    },
    "gen_custom_filter": {
        **TEXT,
        "filter_list": [_filter("reversed", _step("custom", filter_fn="!utils.reverse"), FIRST)],
    },
    "gen_corpus": {**TEXT, "metric_list": _as(bleu="bleu", chrf="chrf", ter="ter")},
    "gen_targets": {**TEXT, "doc_to_target": "answers"},
    "gen_choice": {**TEXT, "doc_to_choice": "choices", "doc_to_target": "gold"},
    "gen_own_function": {
        **TEXT,
        "process_results": "!utils.score_text",
        "metric_list": [
            *_metrics("length"),
            {"metric": "first", "aggregation": "!utils.distinct", "higher_is_better": True},
            {"metric": "maybe", "aggregation": "nanmean", "higher_is_better": True},
        ],
    },
    "gen_begun": {
        **TEXT,
        **TRAIN,
        "description": "Answer with a word.",
        "gen_prefix": "It is",
        "fewshot_delimiter": "\n###\n",
    },
    "gen_parquet": {**TEXT, "dataset_path": "parquet"},
    "two_kinds": {"class": "!two_kinds.TwoKinds", **TEXT},
}
"""The tasks by name; ``!FILE.NAME`` stands for a function."""

INLINE: Final = {**CHOICE, "doc_to_text": "Inline: {{question}}"}

GROUPS: Final[dict[str, dict[str, Any]]] = {
    "by_size": {
        "task": ["mc_plain", "mc_process_docs"],
        "aggregate_metric_list": [{"metric": "acc", "weight_by_size": True}],
    },
    "alike": {
        "task": ["mc_plain", "mc_process_docs"],
        "aggregate_metric_list": [
            {"metric": "acc", "weight_by_size": False},
            {"metric": "acc_norm", "weight_by_size": False, "filter_list": "none"},
        ],
    },
    "nested": {"task": ["alike", "mc_targets"], "aggregate_metric_list": [{"metric": "acc_norm"}]},
    "filtered": {
        "task": ["gen_two_filters"],
        "aggregate_metric_list": [{"metric": "exact_match", "filter_list": ["flexible-extract"]}],
    },
    "inline": {"task": [{"task": "mc_inline"}], "aggregate_metric_list": [{"metric": "acc"}]},
    "plain_group": {"task": ["ll_plain", "roll_plain"]},
}


def _yaml(value: Any) -> str:
    """JSON, which is YAML too, with ``!function`` tags."""
    import re

    text = json.dumps(value, indent=1, ensure_ascii=False)
    return re.sub(r'"!([\w.]+)"', r"!function \1", text)


def write_lm_eval_folder(folder: Path, rows_folder: Path) -> Path:
    """Write the tasks into ``folder``, and their rows into another; return the folder of tasks."""
    import pandas

    folder.mkdir(parents=True, exist_ok=True)
    rows_folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, dict[str, str]] = {"json": {}, "parquet": {}}
    for split in ("train", "test"):
        path = rows_folder / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in _rows(split)))
        pandas.DataFrame(_rows(split)).to_parquet(path.with_suffix(".parquet"))
        files["json"][split], files["parquet"][split] = str(path), str(path.with_suffix(".parquet"))
    (folder / "utils.py").write_text(UTILS)
    (folder / "two_kinds.py").write_text(CLASS_TASK)

    def whole(config: dict[str, Any]) -> dict[str, Any]:
        kind = config.get("dataset_path", "json")
        return {
            "dataset_path": kind,
            "dataset_kwargs": {"data_files": files[kind]},
            "test_split": "test",
            "num_fewshot": 0,
            "metadata": {"version": 1.5},
            **config,
        }

    for name, config in TASKS.items():
        task = {"task": name, "tag": [f"tag_{name.partition('_')[0]}"], **whole(config)}
        (folder / f"{name}.yaml").write_text(_yaml(task))
    for name, group in GROUPS.items():
        members = [
            whole({**INLINE, **member}) if isinstance(member, dict) else member for member in group["task"]
        ]
        (folder / f"group_{name}.yaml").write_text(_yaml({"group": name, **group, "task": members}))
    return folder
