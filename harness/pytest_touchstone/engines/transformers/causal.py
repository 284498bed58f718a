"""The engine of causal language models: log-likelihoods of continuations and of whole texts, and generated texts.

Sequences are scored with every shared prefix computed once (``PrefixTreeScorer``). A probe is tried when the model is
loaded; if its scores differ that way, sequences are computed one per row (``PaddedScorer``).

Texts are generated many at once (``batch``). A second probe is tried before the first of them; if it differs, texts
are generated one by one (``step``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Answer, Generate, Refusal, Request, RollingLoglikelihood, Turn
from pytest_touchstone.core.text import join_names
from pytest_touchstone.engines.base import Done, Receiver
from pytest_touchstone.engines.settings import ModelSettings, finds_vllm
from pytest_touchstone.engines.transformers import cpu
from pytest_touchstone.engines.transformers.agreement import VerifiedKernels, folder_for
from pytest_touchstone.engines.transformers.base import ModelEngine
from pytest_touchstone.engines.transformers.compat import quiet
from pytest_touchstone.engines.transformers.fused_layers import prepare_steps
from pytest_touchstone.engines.transformers.generation.batch import BatchGenerator, most_rows
from pytest_touchstone.engines.transformers.generation.sequence import StopTokens, stop_tokens_of
from pytest_touchstone.engines.transformers.generation.step import (
    DecodeStep,
    SequentialGenerator,
    SpeculativeStepper,
)
from pytest_touchstone.engines.transformers.loading import LoadedModel
from pytest_touchstone.engines.transformers.scoring import SPLITS, PaddedScorer, PrefixTreeScorer, batches
from pytest_touchstone.engines.transformers.split_attention import attention_of
from pytest_touchstone.engines.transformers.token_work import (
    ScoringPlan,
    TargetScore,
    TokenizedPrompt,
    TokenWork,
    WorkDone,
    chat_mode_of,
    plan,
    prepare,
    texts_of,
)
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer, special_token_frame

if TYPE_CHECKING:
    import torch

_PROBE_TOKENS: Final = 24

VLLM_ON: Final = frozenset({"cuda"})
"""The kinds of devices on which vLLM writes texts unless something else is asked for."""

NO_VLLM: Final = (
    "this process writes the texts, many times as slowly as vLLM would: pip install vllm, in an environment of its own "
    "if need be, whose bin folder you put at the end of PATH, and pip install 'pytest-touchstone[http]'"
)
"""A note on texts on CUDA where ``--eval-set texts`` finds no vLLM."""


class CausalEngine(ModelEngine[ScoringPlan | TokenizedPrompt | Refusal]):
    """Answers ``Loglikelihood``, ``RollingLoglikelihood`` and ``Generate``."""

    def __init__(
        self,
        info: CheckpointInfo,
        loaded: LoadedModel,
        settings: ModelSettings | None = None,
        *,
        together: bool = True,
        remembers: bool = False,
    ) -> None:
        """Probe the model, and choose how it scores and generates.

        Args:
            info: The checkpoint.
            loaded: The model and its tokenizer.
            settings: The settings of the run.
            together: Whether sequences may share prefixes and batches; else each is computed by itself.
            remembers: Whether ways of computing that an earlier probe verified are not probed again.

        Raises:
            CheckpointError: If the settings demand a chat template that is missing, or the model is not causal.

        """
        settings = settings or ModelSettings()
        super().__init__(info, loaded, self._plans, settings)
        self._asking = chat_mode_of(info, loaded.tokenizer, settings)
        self._tokenizer = TextTokenizer(loaded.tokenizer).with_reasoning(
            settings.think_end, settings.thinking
        )
        if end := special_token_frame(loaded.tokenizer)[1]:
            what = join_names([repr(loaded.tokenizer.decode([token])) for token in end], 3)
            self._note(
                f"its tokenizer puts {what} after a text, which is left out: a text that is asked about goes on"
            )
        self._texts = settings.texts
        self._generation: BatchGenerator | SequentialGenerator | None = None
        self._plain = PaddedScorer(loaded.model, self._needed, budget=self.budget, done=self.work_done)
        self._shared: PrefixTreeScorer | None = None
        self._ways = VerifiedKernels(loaded.model, folder_for(loaded.model) if remembers else None)
        with quiet():
            self.company = self._plain.company = self._company(self._plain.inputs, self._ways, causal=True)
            rows = 1 if self.company.rows == "one" else 2
            probe = [TokenWork(tuple(range(min(length, info.seq_len))), (0,)) for length in (5, 3)[:rows]]
            inputs = self._plain.inputs(probe)
            different = self._ways.tried("logits", lambda: self._needed.verify(inputs))
            if different is not None:
                self._goes_slowly("logits", different)
            self._shared = self._verified() if together else None
        self.work_done.reset()

    @property
    def shares(self) -> bool:
        """Return whether shared prefixes are computed once."""
        return self._shared is not None

    @property
    def continues(self) -> bool:
        """Whether running texts go on after a receiver has raised, as batched generation allows.

        False beside adapters, whose own texts would take as much memory.
        """
        if self.has_neighbours or (self.adapters is not None and not self.adapters.none):
            return False
        return isinstance(self._generation, BatchGenerator) or (self._generation is None and self.shares)

    @property
    def texts_together(self) -> int:
        """The most texts that a decoding step continues; 1 where each is generated by itself."""
        return most_rows(self._model.device.type, self.budget.batch) if self.shares else 1

    def submit(self, requests: Sequence[Request], receiver: Receiver) -> None:
        """Queue requests; a text requested while an answer is handed on may reuse the KV cache of that answer."""
        if isinstance(self._generation, BatchGenerator):
            self._generation.asked |= any(isinstance(request, Generate) for request in requests)
        super().submit(requests, receiver)

    def answer(self, requests: Sequence[Request], done: Done | None = None) -> list[Answer | Refusal]:
        """Return one answer per request, in order; a request that cannot be answered gets a ``Refusal``.

        ``done`` receives each answer as soon as it is final: scores at the end, or while a device computes the others,
        and generated texts one request after the other.
        """
        self._put_on_adapter()
        answers_by_index: dict[int, Answer | Refusal] = {}
        with closing(self._answers(self._ahead.made(requests))) as answers:
            for number, answer in answers:
                answers_by_index[number] = answer
                if done is not None:
                    done(number, answer)
        return [answers_by_index[number] for number in range(len(requests))]

    def _answers(
        self, plans: Sequence[ScoringPlan | TokenizedPrompt | Refusal]
    ) -> Generator[tuple[int, Answer | Refusal], None, None]:
        """Yield the index of each request and its answer, as soon as it is final.

        Between two answers the model is at rest, and transformers' warnings are as usual.
        """
        scored = {number: made for number, made in enumerate(plans) if isinstance(made, ScoringPlan)}
        prompts = {number: made for number, made in enumerate(plans) if isinstance(made, TokenizedPrompt)}
        yield from ((number, made) for number, made in enumerate(plans) if isinstance(made, Refusal))
        with closing(self._scored(scored)) as answers:
            yield from answers
        if not prompts:
            return
        numbers = list(prompts)
        with self._quiet():
            running = self._generator().run(list(prompts.values()))
        with closing(running):
            while True:
                with self._quiet():
                    ended = next(running, None)
                if ended is None:
                    return
                number = numbers[ended.number]
                yield number, prompts[number].answer([sample.outcome for sample in ended.samples])

    def _scored(
        self, plans: Mapping[int, ScoringPlan]
    ) -> Generator[tuple[int, Answer | Refusal], None, None]:
        """Yield the index and the answer of each request for scores."""
        works = [work for made in plans.values() for work in made.work]
        owners = [number for number, made in plans.items() for _ in made.work]
        scores_of: dict[int, dict[int, TargetScore]] = {number: {} for number in plans}
        with closing((self._shared or self._plain).scored(works)) as running:
            while True:
                with self._quiet():
                    completed = next(running, None)
                if completed is None:
                    return
                for at, score in completed:
                    parts = scores_of[owners[at]]
                    parts[at] = score
                    if len(parts) == len(plans[owners[at]].work):
                        yield (
                            owners[at],
                            plans[owners[at]].answer([parts[work_index] for work_index in sorted(parts)]),
                        )

    def conversation(self, turns: Sequence[Turn]) -> str | Refusal | None:
        """Return turns as the chat template writes them; None where it is not used, or there is none."""
        return self._tokenizer.conversation(turns) if self._asking.chat else None

    @property
    def marks(self) -> frozenset[str]:
        """The texts that are special tokens."""
        return self._tokenizer.marks

    def windows(self, texts: Sequence[str]) -> list[tuple[TokenWork, ...]]:
        """Return for each text the sequences that together predict each of its tokens once.

        Raises ``CheckpointError`` for a text that cannot be scored.
        """
        works = []
        for number, made in enumerate(self._ahead.made([RollingLoglikelihood(text) for text in texts]), 1):
            if not isinstance(made, ScoringPlan):
                why = made.reason if isinstance(made, Refusal) else "it is no text"
                raise CheckpointError(f"{self.info.path}: document {number}: {why}")
            works.append(made.work)
        return works

    def batches(self, works: Sequence[TokenWork]) -> list[list[int]]:
        """Return the indices of the sequences in batches whose ``logits`` fit into memory."""
        return list(batches(works, self.budget, self.company))

    def logits(self, works: Sequence[TokenWork]) -> torch.Tensor:
        """Return float32 logits [targets, vocabulary] at the targets of a batch, one sequence after the other."""
        self._put_on_adapter()
        with self._quiet():
            return self._plain.logits(works)

    def close(self) -> None:
        """Free the model's memory; the engine cannot answer afterwards."""
        super().close()
        self._shared = self._generation = None
        del self._plain

    def too_long(self, requests: Sequence[Request]) -> list[int]:
        """Return the indices of the requests whose contexts would be truncated."""
        plans = enumerate(self._plans(requests))
        return [number for number, plan in plans if not isinstance(plan, Refusal) and plan.truncated]

    def _plans(self, requests: Sequence[Request]) -> list[ScoringPlan | TokenizedPrompt | Refusal]:
        """Return the tokenized requests; a refusal for one that is invalid or too long for ``--eval-set memory``."""
        seq_len, asking = self.info.seq_len, self._asking
        tokenizer = self._tokenizer.with_encoded(texts_of(requests, asking))
        plans: list[ScoringPlan | TokenizedPrompt | Refusal] = []
        for request in requests:
            made: ScoringPlan | TokenizedPrompt | Refusal
            if isinstance(request, Generate):
                made = prepare(request, tokenizer, seq_len=seq_len, rows=self._rows, asking=asking)
            else:
                made = plan(request, tokenizer, seq_len=seq_len, rows=self._rows)
            longest = 0 if isinstance(made, Refusal) else made.longest
            reason = self.budget.allowance.too_long(longest)
            plans.append(made if reason is None else Refusal(reason))
        return plans

    def _verified(self) -> PrefixTreeScorer | None:
        """Return the scorer of prefix trees if a probe verifies it; else None, after a note."""
        attention = attention_of(self._model) if self.company.rows == "any" else self.company.reason
        if isinstance(attention, str):
            self._goes_slowly("scoring", attention)
            return None
        shared = PrefixTreeScorer(
            self._model, self._needed, attention, budget=self.budget, done=self.work_done
        )
        works = _probe(min(_PROBE_TOKENS, self.info.seq_len), self._rows)
        different = self._ways.tried("scores", lambda: shared.verify(works, self._plain.logits))
        if different is not None:
            self._goes_slowly("scoring", different)
            return None
        if self._model.device.type in SPLITS:
            shared.splits = True
            shared.splits = self._admits(
                "split scores",
                lambda: shared.verify(works, self._plain.logits),
                "scores after shared prefixes take the model's own attention",
            )
        return shared

    def _admits(self, way: str, probe: Callable[[], str | None], otherwise: str) -> bool:
        """Return whether a probe verifies a way of computing; else add a note on what is done instead."""
        different = self._ways.tried(way, probe)
        if different is not None:
            self._note(f"{otherwise}: {different}")
        return different is None

    def _generator(self) -> BatchGenerator | SequentialGenerator:
        """Return the generator of texts, chosen by a probe at the first call.

        It batches texts if a probe verifies their logits; else it generates one by one, after a note.
        """
        if self._generation is not None:
            return self._generation
        if self._model.device.type in VLLM_ON and self._texts == "auto" and not finds_vllm():
            self._note(NO_VLLM)
        ends = stop_tokens_of(self._model, self._tokenizer)
        probe = _tails(min(_PROBE_TOKENS, self.info.seq_len), self._rows)
        if self._shared is not None:
            self._generation = self._together(self._shared, ends, probe)
        elif "scoring" in self._slow:
            self._goes_slowly("generating", self._slow["scoring"])
        if self._generation is None:
            generator = SequentialGenerator(self._model, ends, done=self.work_done)
            # A model of our own has no ``generate``.
            generator.from_the_beginning = not hasattr(self._model, "generate") or not self._admits(
                "generate",
                lambda: generator.verify(probe[0], self._plain.logits),
                "each token of a text is computed from the text's beginning, since steps differ",
            )
            self._generation = generator
        return self._generation

    def _together(
        self, shared: PrefixTreeScorer, ends: StopTokens, probe: list[tuple[int, ...]]
    ) -> BatchGenerator | None:
        """Return the batched generator; None, with the reason in the report, where a probe differs."""
        # A model with extra heads proposes tokens ahead.
        kind = SpeculativeStepper if getattr(self._model, "drafts", 0) else DecodeStep

        def generator(scorer: PrefixTreeScorer, done: WorkDone, **limits: int) -> BatchGenerator:
            stepper = kind(self._model, self._needed, shared.attention, budget=self.budget, done=done)
            return BatchGenerator(self._model, stepper, scorer, ends, budget=self.budget, **limits)

        # It has a cache of its own, so that no prefix of the probe is found among stored ones.
        trial = PrefixTreeScorer(
            self._model, self._needed, shared.attention, budget=self.budget, done=WorkDone()
        )

        def verify(*, several_groups: bool = False) -> str | None:
            return generator(trial, WorkDone()).verify(
                probe, self._plain.logits, several_groups=several_groups
            )

        by_kernels = prepare_steps(self._model)
        if not by_kernels and (reason := cpu.missing_kernels(self._model)) is not None:
            self._note(f"texts are generated more slowly than they could be: {reason}")
        if by_kernels and not self._admits(
            "steps by kernels", verify, "each step goes by torch's operations"
        ):
            by_kernels, self._model.step_kernels = False, None
        if not by_kernels and (different := self._ways.tried("texts", verify)) is not None:
            self._goes_slowly("generating", different)
            return None
        different = self._ways.tried("lanes", lambda: verify(several_groups=True))
        return generator(shared, self.work_done, **({} if different is None else {"most_groups": 1}))

    @property
    def _model(self) -> Any:
        return self.loaded.model


def _tails(length: int, vocabulary: int) -> list[tuple[int, ...]]:
    """Return sequences of different lengths up to ``length`` tokens with a common prefix, the longest first."""
    tokens = [(11 * number + 5) % min(vocabulary, 997) for number in range(3 * length)]
    past = length // 2
    tails = (tokens[past:length], tokens[length : length + past // 2], tokens[2 * length :][:3])
    return [(*tokens[:past], *tail) for tail in tails if len(tail) > 2]


def _probe(length: int, vocabulary: int) -> list[TokenWork]:
    """Return probe sequences up to ``length`` tokens: a prefix with three branches, and one of another prefix."""
    tokens = [(7 * number + 3) % min(vocabulary, 997) for number in range(2 * length)]
    stem, half = tokens[: length // 2], length // 4
    paths = [
        [*stem, *tokens[length : length + half]],
        [*stem, *tokens[length : length + half // 2], *tokens[2 : 2 + half]],
        [*stem, *tokens[3 : 3 + half // 2]],
        tokens[5 : 5 + half + 1],
        stem,
    ]
    works = []
    for number, path in enumerate(path for path in paths if path):
        targets = tokens[number : number + min(3, len(path))]
        works.append(TokenWork(tuple(path), tuple(targets)))
    return works
