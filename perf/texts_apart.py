"""The places where two greedy texts of one prompt part: the first tokens apart, and how near the weights hold them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from perf.generation import GSM8K
from perf.prompts import asked_first
from pytest_touchstone import GenerateAnswer
from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.engines.transformers.loading import load_model
from pytest_touchstone.engines.transformers.token_work import ChatMode, TokenizedPrompt, prepare
from pytest_touchstone.engines.transformers.tokenizer import TextTokenizer


def explain(
    pairs: Mapping[str, tuple[GenerateAnswer, GenerateAnswer]], folder: str, data: str | None, limit: int
) -> list[str]:
    """Return a line per pair of texts: the first tokens apart, and their log-probabilities by the weights here."""
    import torch

    (info,) = resolve(folder, seq_len=None)
    loaded = load_model(info, ModelSettings(dtype="float32", device="cpu"))
    tokenizer = TextTokenizer(loaded.tokenizer)
    prompts = asked_first(GSM8K, data=data, limit=limit)
    lines = []
    for example, (a, b) in pairs.items():
        asking = ChatMode(chat=a.chat)
        prompt = prepare(prompts[example], tokenizer, seq_len=info.seq_len, rows=2**30, asking=asking)
        assert isinstance(prompt, TokenizedPrompt)
        mine, theirs = ([*loaded.tokenizer.encode(one.text), loaded.tokenizer.eos_token_id] for one in (a, b))
        common = [x for x, _ in takewhile(lambda two: two[0] == two[1], zip(mine, theirs, strict=False))]
        with torch.no_grad():
            logits = loaded.model(input_ids=torch.tensor([[*prompt.tokens, *common]])).logits[0, -1]
        place = len(common)
        values = logits.log_softmax(-1)[[mine[place], theirs[place]]].tolist()
        told = [f"{loaded.tokenizer.decode([ids[place]])!r}" for ids in (mine, theirs)]
        lines.append(
            f"  {example}: new token {place + 1}: here {told[0]} ({values[0]:.5f}), served {told[1]} "
            f"({values[1]:.5f}), {abs(values[0] - values[1]):.1e} apart"
        )
    return lines
