"""Continues prompts one by one with transformers' own ``generate``, as any causal model can.

Only the choice of a token and the end of a text are ours, so that both ways of generating give the same texts.

With some models (RoBERTa, XLM, XLNet) ``generate`` computes the steps after the prompt otherwise than a pass over the
whole text. ``verify`` finds that out; then each token is computed from the whole text before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pytest_touchstone.engines.transformers.agreement import difference
from pytest_touchstone.engines.transformers.compat import plain_generation
from pytest_touchstone.engines.transformers.generation.sequence import (
    EndedPrompt,
    Ends,
    GeneratedSequence,
    choose,
    samples_of,
)
from pytest_touchstone.engines.transformers.prefix_tree import group
from pytest_touchstone.engines.transformers.scoring import padded
from pytest_touchstone.engines.transformers.token_work import Prompt, TokenWork
from pytest_touchstone.engines.transformers.work_done import WorkDone

if TYPE_CHECKING:
    import torch

_PROBE_STEPS: Final = 3

ChooseNext: TypeAlias = "Callable[[torch.Tensor], int | None]"
"""Takes the logits [1, vocabulary] of the next token, and returns that token; None where the text ends."""


class SequentialGenerator:
    """Generates every sample by itself."""

    def __init__(self, model: Any, ends: Ends, *, done: WorkDone) -> None:
        self._model, self._ends, self._done = model, ends, done
        self.from_the_beginning = False
        self._prefixes: set[tuple[int, ...]] = set()

    def run(self, prompts: Sequence[Prompt]) -> Generator[EndedPrompt, None, None]:
        """Yield each prompt once its samples have ended, in order."""
        enough = self._enough(prompts)
        for number, prompt in enumerate(prompts):
            samples = [self._sample(sample) for sample in samples_of(prompt, self._ends)]
            again = sum(max(0, len(sample.tokens) - 1) for sample in samples)
            computed = len(samples) * len(prompt.tokens)
            self._done.slowly("generating", computed + again, enough[number] + again)
            yield EndedPrompt(number, samples)

    def _enough(self, prompts: Sequence[Prompt]) -> dict[int, int]:
        """Return the number of tokens of each prompt that batched generation would compute, by the prompt's number.

        Those of a shared prefix count once, and those after it once for all samples.
        """
        enough = {number: len(prompt.tokens) for number, prompt in enumerate(prompts)}
        for prefix in group([prompt.tokens for prompt in prompts]):
            shared = prompts[prefix.members[0]].tokens[: prefix.shared]
            for number in prefix.members if shared in self._prefixes else prefix.members[1:]:
                enough[number] -= prefix.shared
            self._prefixes.add(shared)
        return enough

    def verify(
        self, probe: tuple[int, ...], plain: Callable[[Sequence[TokenWork]], torch.Tensor]
    ) -> str | None:
        """Compare the logits of ``generate`` after a probe's beginning with ``plain``, those of passes over the whole.

        Return None where they agree, else the difference.
        """
        import torch

        least = max(1, len(probe) - _PROBE_STEPS)
        tokens = probe[least:]

        def expected() -> torch.Tensor:
            return plain([TokenWork(probe[:length], (0,)) for length in range(least, len(probe) + 1)])

        def steps() -> torch.Tensor:
            found: list[torch.Tensor] = []

            def choose_next(scores: torch.Tensor) -> int | None:
                found.append(scores[0].float())
                return tokens[len(found) - 1] if len(found) <= len(tokens) else None

            self._generate(probe[:least], len(tokens) + 1, choose_next)
            return torch.stack(found)

        return difference(self._model, expected, steps)

    def _sample(self, sample: GeneratedSequence) -> GeneratedSequence:
        prompt = sample.prompt

        def choose_next(scores: torch.Tensor) -> int | None:
            """Return the sample's next token; None where the text ends with it."""
            (token,) = choose(scores.float(), [sample.draw])
            over = sample.take(token)
            self._done.stepped(1)
            return None if over else token or 0

        generate = self._generate_from_the_beginning if self.from_the_beginning else self._generate
        generate(prompt.tokens, prompt.request.max_new_tokens, choose_next)
        steps = max(0, len(sample.tokens) - 1)
        again = steps
        if self.from_the_beginning:
            again = sum(len(prompt.tokens) + step for step in range(1, steps + 1))
        self._done.prefilled += len(prompt.tokens)
        self._done.decoded += steps
        self._done.computed += len(prompt.tokens) + again
        self._done.continued += again
        self._done.logits += len(sample.tokens)
        return sample

    def _generate(self, tokens: Sequence[int], most: int, choose_next: ChooseNext) -> None:
        """Have ``generate`` continue a prompt by up to ``most`` tokens."""
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        over = False

        def choice(_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            """Keep only the chosen token in the logits of the next token."""
            nonlocal over
            token = choose_next(scores)
            over = token is None
            only = torch.full_like(scores, float("-inf"))
            only[:, token or 0] = 0.0
            return only

        def stop(ids: torch.Tensor, _scores: torch.Tensor) -> torch.Tensor:
            """Return whether the text ends, after the token has been added."""
            return torch.full((ids.shape[0],), over, dtype=torch.bool, device=ids.device)

        ids = torch.tensor([list(tokens)], device=self._model.device)
        with plain_generation(self._model):
            self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=GenerationConfig(max_new_tokens=most, do_sample=False, pad_token_id=0),
                logits_processor=LogitsProcessorList([choice]),
                stopping_criteria=StoppingCriteriaList([stop]),
            )

    def _generate_from_the_beginning(self, tokens: Sequence[int], most: int, choose_next: ChooseNext) -> None:
        """Continue a prompt by up to ``most`` tokens, each by a pass over the whole text before it."""
        import torch

        text = list(tokens)
        with torch.inference_mode():
            for _ in range(most):
                inputs = padded([tuple(text)], 0, self._model.device)
                token = choose_next(self._model(**inputs, use_cache=False).logits[:, -1])
                if token is None:
                    return
                text.append(token)
