"""A loaded checkpoint that is damaged by one mutant at a time, for runs that score it in memory.

Nothing of the sound model serves a mutant. The layers are neither fused nor packed, each engine is new, with its own
caches of prefixes, and probes each way of computing again. The fingerprint, by which scores of earlier runs are found,
is made of the checkpoint's, the mutant's name, and the code of this folder; so a run that was stopped goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_touchstone.checkpoints import CheckpointInfo, fingerprint
from pytest_touchstone.checkpoints.info import clean_name
from pytest_touchstone.core.errors import CheckpointError
from pytest_touchstone.core.requests import Generate, Loglikelihood, Refusal
from pytest_touchstone.engines.base import Engine
from pytest_touchstone.engines.live import TARGET
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.adapters import Adapters
from pytest_touchstone.engines.transformers.agreement import hash_code
from pytest_touchstone.engines.transformers.compat import collector_paused, import_libraries
from pytest_touchstone.engines.transformers.live import LiveModel, at_rest
from pytest_touchstone.engines.transformers.loading import LoadedModel, one_line_errors
from pytest_touchstone.engines.transformers.mutants import SOUND, TEXTS_ONLY, Mutant
from pytest_touchstone.engines.transformers.pool import engine_of, load_weights, with_own_tokenizer
from pytest_touchstone.engines.transformers.token_work import chat_mode_of, plan, prepare
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer

if TYPE_CHECKING:
    import torch

EQUAL: Final = 1e-4
"""The difference of a float32 logit below which a mutant does not differ from the model."""

_REMEDY: Final = "free memory, or leave its class out"

_LAST: Final = 8
"""The places at the end of a request whose logits are compared."""


class ProbeReply(NamedTuple):
    """The tokens that a request becomes, and float32 logits [places, vocabulary] at its last places.

    A request that is refused has no tokens, and no logits.
    """

    tokens: tuple[int, ...]
    logits: torch.Tensor | None

    def differs(self, other: ProbeReply) -> bool:
        """Return whether tokens differ, or a logit by ``EQUAL`` or more; NaN differs from everything."""
        if self.logits is None or other.logits is None or self.tokens != other.tokens:
            return self.tokens != other.tokens
        return not bool((self.logits - other.logits).abs().max() < EQUAL)


class MutatedModel(LiveModel):
    """A checkpoint in memory, in float32; ``damaged`` puts a mutant into it."""

    def __init__(self, info: CheckpointInfo, settings: ModelSettings) -> None:
        """Load the checkpoint once. Raises ``CheckpointError`` for one that cannot be damaged in memory."""
        if info.engine != "transformers" or info.kind != "causal" or info.by_peft:
            raise CheckpointError(
                f"{info.source}: mutants are made of the weights of a causal model, or of a LoRA adapter's; "
                "give the folder of such a checkpoint"
            )
        import_libraries()
        loaded = load_weights(info.base or info, replace(settings, dtype="float32"))
        if getattr(loaded.model, "hf_quantizer", None) is not None:
            raise CheckpointError(f"{info.source}: is quantized; give the checkpoint that it was made of")
        if info.base is not None:
            adapters = Adapters(loaded.model)
            adapters.put_on(adapters.add(info))
            loaded = with_own_tokenizer(info, loaded)
        super().__init__(loaded.model, loaded.tokenizer, info.name)
        self._checkpoint, self._settings = info, settings
        self._loaded, self._print = loaded, fingerprint(info)
        self._mutant = SOUND

    @contextmanager
    def damaged(self, mutant: Mutant) -> Iterator[None]:
        """Make the model that mutant within the block.

        Afterwards it is the sound one to the bit. Raises ``NotApplicableError`` for a mutant that it cannot have, and
        ``CheckpointError`` where putting it in fails.
        """
        loaded, sound_info = self._loaded, self.info
        name = clean_name(f"{self._checkpoint.name}-{mutant.name}")
        with at_rest(loaded.model):
            try:
                with one_line_errors(f"{mutant.name}: cannot be put in", _REMEDY):
                    tokenizer = mutant.damage(loaded.model, loaded.tokenizer)
                self._loaded = replace(loaded, tokenizer=tokenizer or loaded.tokenizer)
                self._mutant, self.info = mutant, replace(sound_info, name=name, source=f"{TARGET}{name}")
                yield
            finally:
                self._loaded, self._mutant, self.info = loaded, SOUND, sound_info

    def fingerprint(self) -> str:
        """Return the identity of the checkpoint with its mutant."""
        return hashlib.sha256(f"{self._print}\0{self._mutant.name}\0{hash_code()}".encode()).hexdigest()

    def open(self, info: CheckpointInfo, settings: ModelSettings) -> Engine:
        """Return a new engine of the model in its present state."""
        loaded = LoadedModel(self._loaded.model, self._loaded.tokenizer)
        with collector_paused():
            return engine_of(info, loaded, settings, remembers=False)

    def replies(self, requests: Sequence[Loglikelihood | Generate]) -> list[ProbeReply]:
        """Return the tokens of requests and their logits, by the model's own code.

        Raises ``CheckpointError`` where that fails.
        """
        import torch

        model, tokenizer = self._loaded.model, TextTokenizer(self._loaded.tokenizer)
        asking = chat_mode_of(self.info, self._loaded.tokenizer, self._settings)
        rows = int(model.get_input_embeddings().weight.shape[0])
        limits: dict[str, Any] = {"seq_len": self.info.seq_len, "rows": rows}
        replies = []
        with torch.no_grad(), one_line_errors(f"{self._mutant.name}: cannot be computed", _REMEDY):
            for request in requests:
                if isinstance(request, Generate):
                    prompt = prepare(request, tokenizer, asking=asking, **limits)
                    tokens = () if isinstance(prompt, Refusal) else prompt.tokens
                else:
                    scoring = plan(request, tokenizer, **limits)
                    tokens = () if isinstance(scoring, Refusal) else scoring.work[0].inputs
                inputs = torch.tensor([tokens], device=model.device)
                logits = model(input_ids=inputs, use_cache=False).logits[0, -_LAST:] if tokens else None
                replies.append(ProbeReply(tokens, None if logits is None else logits.float().cpu()))
        return replies

    def reason_not_applicable(
        self, mutant: Mutant, sound: Sequence[ProbeReply], requests: Sequence[Any]
    ) -> str:
        """Return why requests cannot show the mutant that is in the model; empty where they may."""
        if mutant.kind in TEXTS_ONLY and not any(isinstance(request, Generate) for request in requests):
            return "it changes generated texts alone"
        if mutant.kind == "eos" or not requests:  # the end of a text shows in no logit
            return ""
        differs = any(map(ProbeReply.differs, self.replies(requests), sound))
        return "" if differs else f"the float32 logits of its requests differ by less than {EQUAL:g}"
