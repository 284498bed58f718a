"""The benchmarks for causal models, asked directly: what they ask, byte for byte, and how they score scripted
answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from pytest_touchstone.core.aggregation import perplexity
from pytest_touchstone.core.benchmark import Benchmark, declaration_of, generator_function
from pytest_touchstone.core.few_shot import FewShot
from pytest_touchstone.core.files import load_module
from pytest_touchstone.core.requests import Loglikelihood, LoglikelihoodAnswer
from pytest_touchstone.metrics.mmlu import MMLU_CATEGORIES
from tests.support.places import ROOT

SHIPPED = ROOT / "fixtures" / "data"
FILES = (
    *("test_lambada", "test_hellaswag", "test_winogrande", "test_arc"),
    *("test_mmlu", "test_mmlu_stem", "test_mmlu_continuation"),
)
KOBEST = tuple(f"test_kobest_{name}" for name in ("boolq", "copa", "hellaswag", "sentineg", "wic"))
OTHERS = ("test_boolq", *KOBEST, "test_openbookqa")
CHOICE_SCORES = {"acc", "acc_norm", "acc_bytes", "acc_tokens"}

MODULES = {
    name: load_module(ROOT / "evals" / f"{name}.py", f"causal_evals_{name}") for name in (*FILES, *OTHERS)
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    spec.name: function
    for module in MODULES.values()
    for function in vars(module).values()
    if (spec := declaration_of(function)) is not None
}

ASKED = sorted(name for name in FUNCTIONS if not name.startswith(("boolq", "kobest", "openbookqa")))
"""The benchmarks that this file is about; others are in ``test_choices``."""


def declaration(name: str) -> Benchmark:
    """What a benchmark declares."""
    found = declaration_of(FUNCTIONS[name])
    assert found is not None
    return found


def checked(name: str, row: dict[str, Any]) -> Any:
    """A row as the harness hands it to the benchmark."""
    spec = declaration(name)
    return TypeAdapter(spec.row).validate_python(
        spec.row_rules.prepare(dict(row)) if spec.row_rules.prepare else row
    )


def rows(name: str, place: str) -> list[Any]:
    """The shipped rows of a benchmark."""
    lines = (SHIPPED / f"{place}.jsonl").read_text(encoding="utf-8").split("\n")
    return [checked(name, json.loads(line)) for line in lines if line]


def ask(name: str, row: Any, shots: str = "") -> list[Loglikelihood]:
    """What the benchmark asks about a row."""
    asked = next(generator_function(FUNCTIONS[name])(row, FewShot(shots)))
    return asked if isinstance(asked, list) else [asked]


def score(name: str, row: Any, answers: Sequence[LoglikelihoodAnswer]) -> dict[str, float]:
    """The scores for scripted answers."""
    generator = generator_function(FUNCTIONS[name])(row, FewShot())
    asked = next(generator)
    assert len(ask(name, row)) == len(answers)
    with pytest.raises(StopIteration) as end:
        generator.send(list(answers) if isinstance(asked, list) else answers[0])
    scores: dict[str, float] = end.value.value
    return scores


def preferring(place: int, count: int) -> list[LoglikelihoodAnswer]:
    """Answers that prefer one choice by far, whatever the lengths."""
    return [LoglikelihoodAnswer(-0.001 if number == place else -1e6, False, 2) for number in range(count)]


def prefix(name: str, shots: Sequence[Any]) -> str:
    """Few-shot examples as the harness joins them."""
    render = declaration(name).shots.shot
    assert render is not None
    return "".join(f"{render(row)}\n\n" for row in shots)


@pytest.mark.parametrize(
    ("name", "data", "primary", "num_fewshot", "hub"),
    [
        ("lambada", "lambada_openai/test", "acc", 0, "EleutherAI/lambada_openai"),
        ("hellaswag", "hellaswag/validation", "acc_norm", 0, "Rowan/hellaswag"),
        ("winogrande", "winogrande/dev", "acc", 0, "allenai/winogrande"),
        ("arc_easy", "arc_easy/test", "acc", 0, "allenai/ai2_arc"),
        ("arc_challenge", "arc_challenge/test", "acc_norm", 0, "allenai/ai2_arc"),
        ("mmlu", "mmlu/test", "acc", 5, "cais/mmlu"),
        ("mmlu_stem", "mmlu/test", "acc", 5, "cais/mmlu"),
    ],
)
def test_each_benchmark_declares_its_settings(
    name: str, data: str, primary: str, num_fewshot: int, hub: str
) -> None:
    spec = declaration(name)
    assert (spec.data.name, spec.primary, spec.shots.count) == (data, primary, num_fewshot)
    assert spec.asks == (Loglikelihood,)
    assert spec.data.path == hub
    assert "arXiv" in spec.published.places
    assert "lm-evaluation-harness 0.4.13" in spec.published.places
    assert primary in spec.code.rule


@pytest.mark.parametrize("name", ASKED)
def test_every_shipped_row_is_asked_and_rewards_only_its_right_answer(name: str) -> None:
    spec = declaration(name)
    subjects = spec.published.rows if isinstance(spec.published.rows, dict) else {}
    places = [f"{spec.data.name}/{subject}" for subject in subjects] or [spec.data.name]
    shipped = [row for place in places for row in rows(name, place)]
    assert len(shipped) == (4 * len(subjects) or 32)
    for row in shipped:
        asked = ask(name, row)
        assert all(request.context and request.continuation.startswith(" ") for request in asked)
        if len(asked) == 1:
            continue
        outcomes = [score(name, row, preferring(place, len(asked))) for place in range(len(asked))]
        for rule in outcomes[0].keys() - {"bits_per_byte"}:
            assert sum(outcome[rule] for outcome in outcomes) == 1.0


def test_few_shot_examples_go_before_the_question_unchanged() -> None:
    row = rows("winogrande", "winogrande/dev")[0]
    bare, after = ask("winogrande", row), ask("winogrande", row, "SHOTS\n\n")
    assert [request.context for request in after] == ["SHOTS\n\n" + request.context for request in bare]
    assert [request.continuation for request in after] == [request.continuation for request in bare]


def test_lambada_asks_for_the_last_word_after_a_space() -> None:
    row = rows("lambada", "lambada_openai/test")[0]
    context = (
        "In my palm is a clear stone, and inside it is a small ivory statuette. A guardian "
        'angel.\n\n"Figured '
        "if you're going to be out at night getting hit by cars, you might as well have some backup.\"\n\nI "
        "look "
        "at him, feeling stunned. Like this is some sort of sign. But as I stare at Harlin, his mouth "
        "curved in a "
        "confident grin, I don't care about"
    )
    assert ask("lambada", row) == [Loglikelihood(context, " signs")]
    assert prefix("lambada", [row]) == context + "  signs\n\n"


def test_lambada_parts_words_at_single_spaces_only() -> None:
    row = checked("lambada", {"text": "one  two\nthree"})
    assert ask("lambada", row) == [Loglikelihood("one ", " two\nthree")]


@pytest.mark.parametrize("greedy", [True, False])
def test_lambada_scores_the_greedy_word_and_keeps_its_logprob(greedy: bool) -> None:
    row = rows("lambada", "lambada_openai/test")[0]
    assert score("lambada", row, [LoglikelihoodAnswer(-2.5, greedy, 1)]) == {
        "acc": float(greedy),
        "logprob": -2.5,
    }
    assert declaration("lambada").aggregate == {"perplexity": perplexity("logprob")}


HELLASWAG_QUERY = (
    "Personal Care and Style: How to apply different styles of eyeshadow. Apply a sheer colour all over "
    "your lid, "
    "up to your eyebrow.. Softly line your eye with a pencil liner. It should be a dark or medium shade, "
    "like black "
    "or grey."
)
HELLASWAG_ENDINGS = [
    "Smudge the liner upwards to create a small line, rather than in a dramatic swoop. If you use the "
    "pencil, smudge "
    "it slightly with your finger before closing your eyes.",
    " Apply a shade of eyeliner with the darkest eyeshadow you can think of. Use tiny dots to close your "
    "eyelid, so "
    "the shade doesn't come out behind your eye.",
    " Focus on the edges of your eyes, blending with the darkest edge. This will make your eyeshadow blend "
    "more "
    "quickly and take away from the normal depth of intensity.",
    "The line should go from the inner corner to the outer corner. Use the same pencil to dot below your "
    "your lower "
    "lashes.",
]


def test_hellaswag_cleans_query_and_endings() -> None:
    row = rows("hellaswag", "hellaswag/validation")[19]
    assert ask("hellaswag", row) == [
        Loglikelihood(HELLASWAG_QUERY, " " + ending) for ending in HELLASWAG_ENDINGS
    ]
    assert prefix("hellaswag", [row]) == f"{HELLASWAG_QUERY} {HELLASWAG_ENDINGS[3]}\n\n"


def test_hellaswag_capitalizes_the_second_part_and_lowers_its_rest() -> None:
    scene = {"activity_label": "Cooking", "ctx_a": "A Man stirs.", "ctx_b": "then HE Eats", "label": "1"}
    row = checked("hellaswag", {**scene, "endings": ["a  b   c [x] d", "[a\nb] e"]})
    assert ask("hellaswag", row) == [
        Loglikelihood("Cooking: A Man stirs. Then he eats", " a b  c d"),
        Loglikelihood("Cooking: A Man stirs. Then he eats", " [a\nb] e"),
    ]


@pytest.mark.parametrize("label", ["1", 1], ids=["text", "number"])
def test_hellaswag_takes_labels_as_text_or_number(label: str | int) -> None:
    scene = {"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": ["x", "four"], "label": label}
    answers = [LoglikelihoodAnswer(-2.0, False, 1), LoglikelihoodAnswer(-4.0, False, 1)]
    scores = score("hellaswag", checked("hellaswag", scene), answers)
    assert scores.pop("bits_per_byte") > 0
    assert scores == {"acc": 0.0, "acc_norm": 1.0, "acc_bytes": 1.0, "acc_tokens": 0.0}


def test_winogrande_puts_the_options_into_the_context() -> None:
    row = rows("winogrande", "winogrande/dev")[1]
    after = " confesses at the dinner party."
    before = "Angela thinks her husband might be cheating with Lindsey, and "
    assert ask("winogrande", row) == [
        Loglikelihood(before + "Angela", after),
        Loglikelihood(before + "Lindsey", after),
    ]
    assert prefix("winogrande", [row]) == before + "Lindsey confesses at the dinner party.\n\n"


def test_winogrande_strips_the_rest_and_puts_one_space_before_it() -> None:
    row = {"sentence": "_'s hat fell , ", "option1": "Ann", "option2": "Bo", "answer": "1"}
    checked_row = checked("winogrande", row)
    assert ask("winogrande", checked_row) == [
        Loglikelihood("Ann", " 's hat fell ,"),
        Loglikelihood("Bo", " 's hat fell ,"),
    ]
    assert prefix("winogrande", [checked_row]) == "Ann 's hat fell ,\n\n"


def test_winogrande_prefers_the_first_option_on_a_tie() -> None:
    row = rows("winogrande", "winogrande/dev")[0]
    assert row["answer"] == "2"
    tie = [LoglikelihoodAnswer(-3.0, False, 2)] * 2
    assert score("winogrande", row, tie)["acc"] == 0.0
    assert score("winogrande", {**row, "answer": "1"}, tie)["acc"] == 1.0


def test_winogrande_counts_the_bits_of_the_text_after_the_right_option() -> None:
    row = checked("winogrande", {"sentence": "The _ é.", "option1": "a", "option2": "b", "answer": "2"})
    answers = [LoglikelihoodAnswer(-9.0, False, 2), LoglikelihoodAnswer(-3 * math.log(2), False, 2)]
    assert score("winogrande", row, answers) == {"acc": 1.0, "bits_per_byte": pytest.approx(1.0)}


@pytest.mark.parametrize("name", ["arc_easy", "arc_challenge"])
def test_arc_asks_for_each_choice_without_showing_them(name: str) -> None:
    row = rows(name, "arc_easy/test")[0]
    stem = "Which statement best explains why photosynthesis is the foundation of most food webs?"
    context = f"Question: {stem}\nAnswer:"
    assert ask(name, row) == [
        Loglikelihood(context, " Sunlight is the source of energy for nearly all ecosystems."),
        Loglikelihood(context, " Most ecosystems are found on land instead of in water."),
        Loglikelihood(context, " Carbon dioxide is more available than other gases."),
        Loglikelihood(context, " The producers in all ecosystems are plants."),
    ]
    shots = prefix(name, rows(name, "arc_easy/train")[:2])
    assert shots == (
        "Question: Which factor will most likely cause a person to develop a fever?\n"
        "Answer: a bacterial population in the bloodstream\n\n"
        "Question: Lichens are symbiotic organisms made of green algae and fungi. What do the green algae "
        "supply to "
        "the fungi in this symbiotic relationship?\nAnswer: food\n\n"
    )
    assert ask(name, row, shots)[0].context == shots + context


@pytest.mark.parametrize(("labels", "key", "gold"), [("ABC", "C", 2), ("1234", "2", 1), ("ABCDE", "E", 4)])
def test_arc_finds_the_right_answer_by_its_label(labels: str, key: str, gold: int) -> None:
    choices = [{"text": f"choice {label}", "label": label} for label in labels]
    row = {"id": "x", "question": {"stem": "Why?", "choices": choices}, "answerKey": key}
    scores = score("arc_easy", checked("arc_easy", row), preferring(gold, len(labels)))
    bits = 0.001 / math.log(2) / len(f"choice {key}")
    assert scores == {**dict.fromkeys(CHOICE_SCORES, 1.0), "bits_per_byte": pytest.approx(bits)}


def test_arc_takes_the_rows_of_the_hub() -> None:
    published = rows("arc_easy", "arc_easy/test")[0]
    choices = published["question"]["choices"]
    hub = {
        "id": published["id"],
        "question": published["question"]["stem"],
        "choices": {"text": [c["text"] for c in choices], "label": [c["label"] for c in choices]},
        "answerKey": published["answerKey"],
    }
    assert checked("arc_easy", hub) == published


MMLU_SHOT = (
    "Which of the following is not a way to form recombinant DNA?\nA. Translation\nB. Conjugation\n"
    "C. Specialized transduction\nD. Transformation\nAnswer: A\n\n"
)
MMLU_QUESTION = (
    "In a population of giraffes, an environmental change occurs that favors individuals that are tallest. "
    "As a "
    "result, more of the taller individuals are able to obtain nutrients and survive to pass along their "
    "genetic "
    "information. This is an example of\nA. directional selection.\nB. stabilizing selection.\nC. sexual "
    "selection.\n"
    "D. disruptive selection.\nAnswer:"
)
MMLU_HEADER = "The following are multiple choice questions (with answers) about high school biology.\n\n"


@pytest.mark.parametrize("count", [0, 1])
def test_mmlu_asks_for_letters_after_header_and_examples(count: int) -> None:
    row = rows("mmlu_stem", "mmlu/test/high_school_biology")[0]
    shots = prefix("mmlu_stem", rows("mmlu_stem", "mmlu/dev/high_school_biology")[:count])
    context = MMLU_HEADER + MMLU_SHOT * count + MMLU_QUESTION
    assert ask("mmlu_stem", row, shots) == [Loglikelihood(context, f" {letter}") for letter in "ABCD"]


def test_mmlu_strips_the_question_but_not_the_answers() -> None:
    row = {"question": " Q?\n", "subject": "machine_learning", "choices": ["a ", " b", "c", ""], "answer": 3}
    header = "The following are multiple choice questions (with answers) about machine learning.\n\n"
    context = ask("mmlu_stem", checked("mmlu_stem", row))[0].context
    assert context == header + "Q?\nA. a \nB.  b\nC. c\nD. \nAnswer:"


@pytest.mark.parametrize("change", [{"choices": ["a", "b", "c"]}, {"answer": 4}, {"answer": "A"}])
def test_mmlu_refuses_rows_that_are_not_of_its_form(change: dict[str, Any]) -> None:
    row = {"question": "Q", "subject": "machine_learning", "choices": list("abcd"), "answer": 0}
    with pytest.raises(ValidationError):
        checked("mmlu_stem", {**row, **change})


@pytest.mark.parametrize(("name", "kept"), [("mmlu", [True, True]), ("mmlu_stem", [False, True])])
def test_mmlu_leaves_out_rows_of_other_subjects(name: str, kept: list[bool]) -> None:
    keep = declaration(name).row_rules.keep
    assert keep is not None
    assert [keep({"subject": subject}) for subject in ("anatomy", "machine_learning")] == kept
    assert not keep({"subject": "botany"})
    assert keep({})  # such a row is wrong, and is to be said so


def published(name: str) -> dict[str, int]:
    """The rows of each subject as published."""
    found = declaration(name).published.rows
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(("name", "subjects", "count"), [("mmlu", 57, 14_042), ("mmlu_stem", 14, 2386)])
def test_mmlu_counts_the_published_rows_of_its_subjects(name: str, subjects: int, count: int) -> None:
    assert (len(published(name)), sum(published(name).values())) == (subjects, count)
    assert published(name).items() <= published("mmlu").items()


def test_mmlu_has_four_categories_of_the_authors_sizes() -> None:
    sizes = {name: (len(subjects), sum(subjects.values())) for name, subjects in MMLU_CATEGORIES.items()}
    assert sizes == {
        "stem": (18, 3018),
        "humanities": (13, 4705),
        "social_sciences": (12, 3077),
        "other": (14, 3242),
    }


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("subject", "metric"),
    [
        ("astronomy", "acc_stem"),
        ("anatomy", "acc_other"),
        ("formal_logic", "acc_humanities"),
        ("sociology", "acc_social_sciences"),
    ],
)
def test_mmlu_scores_a_question_for_its_category_too(subject: str, metric: str, right: bool) -> None:
    row = rows("mmlu", f"mmlu/test/{subject}")[0]
    place = row["answer"] if right else (row["answer"] + 1) % 4
    assert score("mmlu", row, preferring(place, 4)) == {"acc": float(right), metric: float(right)}


def test_mmlu_has_five_examples_for_each_of_its_subjects() -> None:
    assert published("mmlu").keys() == {path.stem for path in (SHIPPED / "mmlu/test").glob("*.jsonl")}
    assert published("mmlu").keys() == {path.stem for path in (SHIPPED / "mmlu/dev").glob("*.jsonl")}
    for subject in published("mmlu"):
        assert len(rows("mmlu", f"mmlu/dev/{subject}")) == 5


def test_mmlu_and_its_part_ask_the_same() -> None:
    row = rows("mmlu", "mmlu/test/machine_learning")[1]
    assert ask("mmlu", row, "SHOTS") == ask("mmlu_stem", row, "SHOTS")


@pytest.mark.parametrize("name", ["arc_easy", "arc_challenge"])
def test_the_shipped_examples_are_enough_for_twenty_five_shots(name: str) -> None:
    shots = prefix(name, rows(name, f"{name}/train"))
    assert shots.count("\nAnswer: ") == 25
    assert shots.endswith("\n\n")


@pytest.mark.parametrize("name", sorted({declaration(name).data.name.partition("/")[0] for name in ASKED}))
def test_every_shipped_pack_says_where_it_comes_from(name: str) -> None:
    text = (SHIPPED / name / "README.md").read_text(encoding="utf-8")
    assert "Licence" in text
    assert "Source" in text


def test_scores_are_finite_plain_floats() -> None:
    row = rows("hellaswag", "hellaswag/validation")[0]
    scores = score("hellaswag", row, preferring(0, 4))
    assert all(type(value) is float and math.isfinite(value) for value in scores.values())
