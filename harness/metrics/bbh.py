"""BIG-Bench Hard: what each of the 27 tasks is about, and the answer that ends a chain of thought."""

from __future__ import annotations

import re
from typing import Final

DESCRIPTIONS: Final = {
    "boolean_expressions": "Evaluate the result of a random Boolean expression.",
    "causal_judgement": "Answer questions about causal attribution.",
    "date_understanding": "Infer the date from context.",
    "disambiguation_qa": "Clarify the meaning of sentences with ambiguous pronouns.",
    "dyck_languages": "Correctly close a Dyck-n word.",
    "formal_fallacies": "Distinguish deductively valid arguments from formal fallacies.",
    "geometric_shapes": "Name geometric shapes from their SVG paths.",
    "hyperbaton": "Order adjectives correctly in English sentences.",
    **dict.fromkeys(
        (f"logical_deduction_{count}_objects" for count in ("five", "seven", "three")),
        "A logical deduction task which requires deducing the order of a sequence of objects.",
    ),
    "movie_recommendation": "Recommend movies similar to the given list of movies.",
    "multistep_arithmetic_two": "Solve multi-step arithmetic problems.",
    "navigate": "Given a series of navigation instructions, determine whether one would end up back at the starting "
    "point.",
    "object_counting": "Questions that involve enumerating objects and asking the model to count them.",
    "penguins_in_a_table": "Answer questions about a table of penguins and their attributes.",
    "reasoning_about_colored_objects": "Answer extremely simple questions about the colors of objects on a surface.",
    "ruin_names": "Select the humorous edit that 'ruins' the input movie or musical artist name.",
    "salient_translation_error_detection": "Detect the type of error in an English translation of a German source "
    "sentence.",
    "snarks": "Determine which of two sentences is sarcastic.\n\nAccording to Cambridge University Dictionary, sarcasm "
    "is \"the use of remarks that clearly mean the opposite of what they say, made in order to hurt someone's feelings "
    'or to criticize something in a humorous way." Sarcastic sentences often contain satirical or ironic utterances, '
    "hyperboles, ambivalent or witty remarks.",
    "sports_understanding": "Determine whether an artificially constructed sentence relating to sports is plausible "
    "or not.",
    "temporal_sequences": "Task description: Answer questions about which times certain events could have occurred.",
    **dict.fromkeys(
        (f"tracking_shuffled_objects_{count}_objects" for count in ("five", "seven", "three")),
        "A task requiring determining the final positions of a set of objects given their initial positions and a "
        "description of a sequence of swaps.",
    ),
    "web_of_lies": "Evaluate a random boolean function expressed as a word problem.",
    "word_sorting": "Sort a list of words.",
}
"""The first lines of the authors' prompts, by task."""

ROWS: Final = {
    name: {"causal_judgement": 187, "penguins_in_a_table": 146, "snarks": 178}.get(name, 250)
    for name in DESCRIPTIONS
}
"""The number of examples of each task, 6511 in all."""


def answer_of(text: str) -> str | None:
    """The answer of a chain of thought: what follows the first "the answer is " of a line, but for the last character
    of the line, which is a full stop in the authors' examples; None where there is none."""
    found = re.search(r"(?<=the answer is )(.*)(?=.)", text)
    return found[1].strip() if found else None
