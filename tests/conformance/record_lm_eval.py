"""Writes the verdicts of lm-evaluation-harness 0.4.13 into ``verdicts/*.jsonl``.

    python tests/conformance/record_lm_eval.py [--check] [SCORER ...]

Run where ``lm-eval[math,ifeval]==0.4.13`` is installed; nothing of this project is needed. The reference's own code
scores every ``output`` against its ``gold``, of the scorers that are named, or of all. Files of scorers that the
reference does not have (``gsm8k_number``; ``plus_rules``, which ``record_evalplus.py`` writes) are left alone.
``--check`` only says which verdicts differ from those on record. What ``differences.jsonl`` says of the reference is
always checked, and never written.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lm_eval
import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter
from recording import record  # type: ignore[import-not-found]  # beside this script

TASKS = Path(lm_eval.__file__).parent / "tasks"


def task_code(name):
    path = TASKS / name / "utils.py"
    spec = importlib.util.spec_from_file_location(f"reference_{name.replace('/', '_')}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gsm8k(filter_name):
    config = yaml.safe_load((TASKS / "gsm8k" / "gsm8k.yaml").read_text(encoding="utf-8"))
    metric = {
        name: value
        for name, value in config["metric_list"][0].items()
        if name in ("ignore_case", "ignore_punctuation", "regexes_to_ignore")
    }
    steps = next(entry["filter"] for entry in config["filter_list"] if entry["name"] == filter_name)
    assert [step["function"] for step in steps] == ["regex", "take_first"]
    extract = RegexFilter(**{name: value for name, value in steps[0].items() if name != "function"})

    def verdict(gold, output):
        (answer,) = extract.apply([[output]], [{}])[0]
        found = exact_match_hf_evaluate(predictions=[answer], references=[gold], **metric)
        return bool(found["exact_match"])

    return verdict


def hendrycks():
    code = task_code("hendrycks_math")
    return lambda gold, output: bool(code.process_results({"solution": gold}, [output])["exact_match"])


def minerva(metric):
    code = task_code("minerva_math")

    def verdict(gold, output):
        answer = code.normalize_final_answer(code.remove_boxed(code.last_boxed_only_string(gold)))
        return bool(code.process_results({"solution": gold, "answer": answer}, [output])[metric])

    return verdict


def drop(metric):
    code = task_code("drop")

    def verdict(gold, output):
        prediction = [output] if isinstance(output, str) else output
        return float(code.process_results({"answers": [tuple(one) for one in gold]}, prediction)[metric])

    return verdict


def macro_f1():
    code = task_code("kobest")
    return lambda gold, output: round(float(code.macro_f1_score(list(zip(gold, output, strict=True)))), 12)


def ifeval(reading):
    """With its language detection seeded, as ours is."""
    import langdetect

    langdetect.DetectorFactory.seed = 0
    from lm_eval.tasks.ifeval import utils

    def verdict(gold, output):
        row = {"key": 0, "prompt": "", "instruction_id_list": gold["kinds"], "kwargs": gold["values"]}
        held = utils.process_results(row, [output])[f"inst_level_{reading}_acc"]
        return sum(held) / len(held)

    return verdict


def bbh():
    config = yaml.safe_load((TASKS / "bbh" / "cot_fewshot" / "_cot_fewshot_template_yaml").read_text())
    extract = RegexFilter(regex_pattern=config["filter_list"][0]["filter"][0]["regex_pattern"])

    def verdict(gold, output):
        (answer,) = extract.apply([[output]], [{}])[0]
        return bool(exact_match_hf_evaluate(predictions=[answer], references=[gold])["exact_match"])

    return verdict


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads the names of functions as texts."""


_Loader.add_constructor("!function", lambda _, node: node.value)


def bbh_flexible():
    folder, code = TASKS / "bbh" / "zeroshot", task_code("bbh/zeroshot")
    metric = yaml.load((folder / "_zeroshot_template_yaml").read_text(), _Loader)["metric_list"][0]
    folding = {name: metric[name] for name in ("ignore_case", "regexes_to_ignore")}

    def verdict(gold, output):
        task = yaml.load((folder / f"{gold['task']}.yaml").read_text(), _Loader)
        fields = dict(task["filter_list"][1]["filter"][0])
        name = fields.pop("function")
        kind = RegexFilter if name == "regex" else getattr(code, name.partition(".")[2])
        (answer,) = kind(**fields).apply([[output]], [{"input": gold["input"]}])[0]
        found = exact_match_hf_evaluate(predictions=[answer], references=[gold["target"]], **folding)
        return bool(found["exact_match"])

    return verdict


def mmlu_pro():
    config = yaml.load((TASKS / "mmlu_pro" / "_default_template_yaml").read_text(), _Loader)
    pattern = config["filter_list"][0]["filter"][0]["regex_pattern"]
    folding = {name: config["metric_list"][0][name] for name in ("ignore_case", "ignore_punctuation")}
    extract = RegexFilter(regex_pattern=pattern)

    def verdict(gold, output):
        (answer,) = extract.apply([[output]], [{}])[0]
        return bool(
            exact_match_hf_evaluate(predictions=[answer], references=[gold], **folding)["exact_match"]
        )

    return verdict


def truthfulqa():
    code = task_code("truthfulqa")

    def verdict(gold, output):
        row = {"mc2_targets": {"labels": gold}}
        found = float(code.process_results_mc2(row, [(one, False) for one in output])["acc"])
        return "nan" if math.isnan(found) else round(found, 12)

    return verdict


def bits():
    """Its metric of one text, which it has for texts that are scored whole."""
    from lm_eval.api.metrics import bits_per_byte
    from lm_eval.api.task import Task

    return lambda gold, output: round(bits_per_byte([(output, Task.count_bytes(gold))]), 12)


SCORERS: dict[str, Any] = {
    "gsm8k_strict": (gsm8k, "strict-match"),
    "gsm8k_flexible": (gsm8k, "flexible-extract"),
    "hendrycks_exact": (hendrycks,),
    "minerva_exact": (minerva, "exact_match"),
    "math_verify": (minerva, "math_verify"),
    "drop_f1": (drop, "f1"),
    "drop_em": (drop, "em"),
    "macro_f1": (macro_f1,),
    "ifeval_strict": (ifeval, "strict"),
    "ifeval_loose": (ifeval, "loose"),
    "bbh_exact": (bbh,),
    "bbh_flexible": (bbh_flexible,),
    "mmlu_pro_letter": (mmlu_pro,),
    "truthfulqa_mc2": (truthfulqa,),
    "bits_per_byte": (bits,),
}
"""What makes each scorer, and what it is given."""


def main():
    assert version("lm_eval") == "0.4.13", f"lm-eval 0.4.13 is the reference, not {version('lm_eval')}"
    named = [word for word in sys.argv[1:] if word != "--check"] or SCORERS
    record({name: SCORERS[name][0](*SCORERS[name][1:]) for name in named})


if __name__ == "__main__":
    main()
