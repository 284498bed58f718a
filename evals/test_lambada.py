"""LAMBADA, the version that OpenAI prepared: can a model guess the last word of a passage?"""

from __future__ import annotations

from typing_extensions import TypedDict

from pytest_touchstone import (
    Dataset,
    FewShot,
    LmEval,
    Loglikelihood,
    Published,
    Scores,
    Shots,
    benchmark,
    perplexity,
)


class Passage(TypedDict):
    """A passage whose last word is to be guessed."""

    text: str


def context_and_word(passage: Passage) -> tuple[str, str]:
    """Return the text before the last single space, and the word after it (a newline does not separate words)."""
    context, _, word = passage["text"].rpartition(" ")
    return context, word


@benchmark(
    "lambada",
    version=1,
    data=Dataset("EleutherAI/lambada_openai", "default"),
    published=Published(
        5153,
        paper="Paperno et al. 2016, arXiv 1606.06031",
        source="data as in Radford et al. 2019 (GPT-2); lm-evaluation-harness 0.4.13, task lambada_openai",
    ),
    row=Passage,
    asks=Loglikelihood,
    primary="acc",
    metrics=("acc", "logprob"),
    aggregate={"perplexity": perplexity("logprob")},
    # between context and word stand the delimiter, and the target's own space
    shots=Shots(shot=lambda passage: "  ".join(context_and_word(passage)), lm_eval=LmEval()),
)
def test_lambada(example: Passage, fewshot: FewShot) -> Scores:
    """LAMBADA (Paperno et al. 2016), OpenAI's version (5153 passages in its lambada_test.jsonl), 0-shot.

    The text is cut at single spaces. Context: everything but the last word. Continuation: one space and the
    last word.

    - ``acc`` (primary): 1 when every token of the word is the model's most probable one.
    - ``perplexity``: exp(-mean over passages of the word's summed log-probability): per word, not per token.
      ``logprob`` is that mean itself, in nats.

    Not comparable: the other published version (cimec/lambada: lower case, tokenized) is other data. Splitting on any
    white space changes the context of passages with line breaks. Letting the model generate the word, or comparing it
    without punctuation, is another task. With few-shot examples, which the reference takes from the test rows, it
    writes two spaces before their last word, and so does this.
    """
    context, word = context_and_word(example)
    answer = yield fewshot.loglikelihood(context, " " + word)
    return {"acc": float(answer.is_greedy), "logprob": answer.logprob}
