"""Generation: tokens per second at several numbers of rows, against Transformers' own ways and vLLM.

*Rows* are the texts that are asked for at once. A *step* gives each of them one token; its time is the difference
between long texts and short ones after the same number of prompts, so that prompts do not count. Its floor is what
reading the weights, keys and values takes at the measured bandwidth, or what the products take at the measured peak,
whichever is more; a prefix that all rows share counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any

from perf.accelerator_parts.attempt import attempt
from perf.accelerator_parts.budget import Budget, as_many, until
from perf.accelerator_parts.findings import OURS, Figure, Row
from perf.accelerator_parts.generate_peers import PEERS, SHORT, VLLM, Timing, in_transformers, in_vllm
from perf.accelerator_parts.limits import Peaks, peaks
from perf.accelerator_parts.models import Setup, opened
from perf.accelerator_parts.shapes import Shape, Sizes, sizes
from perf.accelerator_parts.timing import peak_mebibytes, timed
from perf.generation import GSM8K
from perf.programs import HUMANEVAL
from perf.prompts import asked_first
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.requests import Generate, GenerateAnswer
from pytest_touchstone.engines.transformers.token_work import TokenizedPrompt, prepare
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer

PART = "generate"

PLAIN = "ours, one text at a time"

SAMPLING = Sampling(samples=20, temperature=0.2, top_p=0.95)
"""The sampling of studies of generated programs."""


@dataclass(frozen=True, slots=True)
class Case:
    """Texts asked for at once: ``rows`` of them, ``samples`` for each prompt."""

    benchmark: str
    samples: int
    rows: int

    @property
    def name(self) -> str:
        """Return the case's name in the table."""
        sampled = f", {self.samples} samples" if self.samples > 1 else ""
        return f"{self.benchmark}{sampled}, {self.rows} row{'s' if self.rows > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Asked:
    """The prompts of a case, a new token's limit, and the texts that our side gave."""

    case: Case
    prompts: Sequence[TokenizedPrompt]
    tokens: int
    texts: Sequence[str] = field(default=())

    @property
    def shared(self) -> int:
        """Return the tokens with which all prompts begin."""
        columns = zip(*(one.tokens for one in self.prompts), strict=False)
        return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def cases(small: bool) -> list[Case]:
    """Return the cases, the most telling first: what does not fit into the time is left out."""
    some, most = (4, 16) if small else (32, 256)
    sampled = SAMPLING.samples
    first = [
        Case("gsm8k 5-shot", 1, most),
        Case("gsm8k 5-shot", 1, 1),
        Case("humaneval", sampled, max(sampled, most)),
        Case("humaneval", 1, 1),
        Case("gsm8k 5-shot", 1, some),
    ]
    if small:
        return first
    more = [Case("humaneval", 1, most), Case("humaneval", 1, some), Case("humaneval", sampled, some)]
    return first + more


def measure(setup: Setup, budget: Budget) -> Iterator[Row]:
    """Yield the rows of all models that continue texts."""
    for number, shape in enumerate(setup.causal):
        share = budget.split(len(setup.causal) - number)
        work = partial(_model, shape, setup, share)
        yield from attempt(work, part=PART, model=shape.name, device=setup.device)


def requests(case: Case, setup: Setup, mark: str, tokens: int) -> list[Generate]:
    """Return the requests of a case; ``mark`` before all prompts makes them new to the engine.

    Where the rows of the benchmark are too few, they come again, with a number before the prompt.
    """
    sampling = SAMPLING if case.samples > 1 else Sampling()
    place = GSM8K if case.benchmark.startswith("gsm8k") else HUMANEVAL
    count = -(-case.rows // case.samples)
    found = list(asked_first(place, data=setup.data, limit=count, sampling=sampling).values())
    return [
        replace(
            found[number % len(found)],
            prompt=mark + _again(found[number % len(found)].prompt, number // len(found)),
            max_new_tokens=tokens,
            samples=case.samples,
        )
        for number in range(count)
    ]


def _again(prompt: str, number: int) -> str:
    """Return a prompt that comes again with a number before its last paragraph."""
    cut = prompt.rfind("\n\nQuestion:") + 2 if "\n\nQuestion:" in prompt else 0
    return f"{prompt[:cut]}# {number}\n{prompt[cut:]}" if number else prompt


def _model(shape: Shape, setup: Setup, budget: Budget) -> list[Row]:
    ours = Budget(0.4 * budget.left)
    asked: list[Asked] = []
    found: dict[str, dict[str, Timing]] = {}
    rows: list[Row] = []
    left_out: list[Row] = []
    every = cases(setup.small)
    with opened(shape, setup) as engine:
        for number, case in enumerate(every):
            part = ours.split(len(every) - number)
            if not part.enough(1.0):
                left_out.append(Row(PART, shape.name, case.name, note="left out: no time"))
                continue
            one, timing = _ours(engine, case, setup, part)
            asked.append(one)
            found[case.name] = {OURS: timing}
        memory = peak_mebibytes(setup.device)
    if setup.plain:
        with opened(shape, setup, plain=True) as engine:
            for number, one in enumerate(asked):
                part = Budget(0.3 * budget.left / (len(asked) - number))
                found[one.case.name][PLAIN] = _one_by_one(engine, one, setup, part)
    missing, texts = in_transformers(shape, setup, asked, found, Budget(0.6 * budget.left))
    if isinstance(said := in_vllm(shape, setup, asked, found, budget.left), str):
        missing[VLLM] = said
    else:
        for name, one_said in said.items():
            texts.setdefault(name, {})[VLLM] = one_said
    for one in asked:
        sides = found[one.case.name]
        rows += [
            _row(
                shape,
                setup,
                one,
                side,
                sides=sides,
                memory=memory if side == OURS else None,
                texts=texts.get(one.case.name, {}),
            )
            for side in sides
        ]
        absent = [side for side in PEERS if side not in sides]
        rows += [
            Row(PART, shape.name, one.case.name, side, note=missing.get(side, "left out: no time"))
            for side in absent
        ]
    return rows + left_out


def _ours(engine: Any, case: Case, setup: Setup, budget: Budget) -> tuple[Asked, Timing]:
    """Ask for short texts twice (the first call warms up), then for texts as long as fit into the time."""

    def written(mark: str, tokens: int) -> tuple[float, list[GenerateAnswer]]:
        asked = requests(case, setup, mark, tokens)
        return timed(setup.device, lambda: engine.answer(asked))

    written("# A\n", SHORT)
    short, _ = written("# B\n", SHORT)
    most = 48 if setup.small else 512 if case.benchmark == "humaneval" else 256
    tokens = max(3 * SHORT, as_many(most, short / SHORT, 0.6 * budget.left))
    long, answers = written("", tokens)
    samples = [sample for one in answers for sample in one.samples]
    prompts = prompts_of(requests(case, setup, "", tokens), engine)
    step = (long - short) / (tokens - SHORT)
    timing = Timing(long, sum(one.tokens for one in samples), step)
    return Asked(case, prompts, tokens, [one.text for one in samples]), timing


def prompts_of(asked: Sequence[Generate], engine: Any) -> list[TokenizedPrompt]:
    """Return the prompts as the model gets them."""
    tokenizer = TextTokenizer(engine.loaded.tokenizer)
    rows = int(engine.loaded.model.get_input_embeddings().weight.shape[0])
    made = [prepare(one, tokenizer, seq_len=engine.info.seq_len, rows=rows) for one in asked]
    return [one for one in made if isinstance(one, TokenizedPrompt)]


def _one_by_one(engine: Any, asked: Asked, setup: Setup, budget: Budget) -> Timing:
    found: list[int] = []

    def write(one: TokenizedPrompt) -> None:
        (answer,) = engine.answer([replace(one.request, samples=1)])
        found.append(sum(sample.tokens for sample in answer.samples))

    seconds, _ = timed(setup.device, lambda: until(write, asked.prompts, budget.left))
    return Timing(seconds, sum(found), None, note=f"{len(found)} texts")


def floor(found: Sizes, asked: Asked, itemsize: int, most: Peaks) -> tuple[float, str]:
    """Return the seconds that a step takes at least, and the limit that says so."""
    lengths = [len(one.tokens) for one in asked.prompts for _ in range(asked.case.samples)]
    rows = len(lengths)
    own = sum(lengths) - rows * asked.shared + rows * asked.tokens / 2
    read = itemsize * (found.read + found.keys_values * (asked.shared + own)) / most.bandwidth
    products = 2.0 * rows * found.read / most.matrix
    return max((read, "reading"), (products, "products"))


def _row(
    shape: Shape,
    setup: Setup,
    asked: Asked,
    side: str,
    *,
    sides: dict[str, Timing],
    memory: float | None,
    texts: dict[str, str],
) -> Row:
    mine, one = sides[OURS], sides[side]
    figures: dict[str, Figure] = {
        "tokens/s": one.tokens / one.seconds,
        "ours / it": mine.tokens / mine.seconds / (one.tokens / one.seconds),
        "new tokens": asked.tokens,
    }
    if one.step is not None and one.step > 0:
        least, limit = floor(
            sizes(shape), asked, setup.itemsize, peaks(setup.device, setup.dtype, setup.small)
        )
        figures |= {"step, ms": 1e3 * one.step, "share of its floor": least / one.step, "floor": limit}
    if side in texts:
        figures["texts as ours"] = texts[side]
    if memory is not None:
        figures["peak MiB"] = memory
    return Row(PART, shape.name, asked.case.name, side, figures, one.note)
