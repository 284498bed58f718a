"""Checkpoints of every kind of file, which are opened and asked as a run does."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from pytest_touchstone.checkpoints import resolve
from pytest_touchstone.core.errors import HarnessError
from pytest_touchstone.core.requests import (
    Generate,
    Loglikelihood,
    LoglikelihoodAnswer,
    PseudoLoglikelihood,
    Refusal,
    Request,
    Turn,
)
from pytest_touchstone.engines.registry import open_engine
from pytest_touchstone.engines.settings import ModelSettings
from pytest_touchstone.plugin.dispatch import refuse_nan
from tests.drill.readers import CHECKPOINTS, Reader, check_refusal, folder_of
from tests.support.pt_files import SIZES, llama_pt
from tests.support.tiny import (
    bytelevel_tokenizer,
    sentencepiece_model,
    tiny_adapter,
    tiny_causal,
    tiny_masked,
)

ASKED: Final[tuple[Request, ...]] = (
    *(Loglikelihood("The answer is", f" {word}") for word in ("42", "the river")),
    Loglikelihood("", "a boat, 학교"),
    Generate("The river was", max_new_tokens=4),
)
MASKED: Final = PseudoLoglikelihood("the answer is 42.")
TURNS: Final = (Turn("user", "Which is it?"), Turn("assistant", "42"), Turn("user", "Why?"))
SETTINGS: Final = ModelSettings(device="cpu", threads=1)


def answers(path: Path) -> list[object]:
    """What a run gets of the checkpoint of a file: finite numbers, texts, and refusals. Raises ``HarnessError``."""
    source = path if path.suffix in (".pt", ".gguf") else folder_of(path)
    (info,) = resolve(str(source), seq_len=None)
    with closing(open_engine(info, SETTINGS)) as engine:
        if info.kind == "masked":
            return [*map(refuse_nan, engine.answer([MASKED]))]
        found: list[object] = [engine.conversation(TURNS), *map(refuse_nan, engine.answer(ASKED))]
    for one in found:
        if isinstance(one, Refusal):
            check_refusal(HarnessError(one.reason))
        elif isinstance(one, LoglikelihoodAnswer):
            assert math.isfinite(one.logprob)
    return found


# Files that only loading reads


def _of_class(made: Path, name: str) -> None:
    """The folder has no tokenizer.json, and names the class that reads older files."""
    (made / "tokenizer.json").unlink()
    (made / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}), encoding="utf-8")


def _sentencepiece(folder: Path) -> Path:
    made = tiny_causal(folder / "checkpoint-7")
    _of_class(made, "LlamaTokenizer")
    (made / "tokenizer.model").write_bytes(
        sentencepiece_model("bpe", "identity", byte_fallback=True, remove_extra_whitespaces=False)
    )
    return made / "tokenizer.model"


def _vocabulary(name: str) -> Callable[[Path], Path]:
    """The vocabulary and the merges of a GPT-2."""

    def example(folder: Path) -> Path:
        made = tiny_causal(folder / "checkpoint-7", model_type="gpt2")
        bytelevel_tokenizer().backend_tokenizer.model.save(str(made))
        _of_class(made, "GPT2Tokenizer")
        return made / name

    return example


def _words(folder: Path) -> Path:
    made = tiny_masked(folder / "checkpoint-7")
    table = json.loads((made / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    _of_class(made, "BertTokenizer")
    (made / "vocab.txt").write_text("".join(f"{one}\n" for one in sorted(table, key=table.get)), "utf-8")
    return made / "vocab.txt"


TEMPLATE: Final = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def _template(folder: Path) -> Path:
    made = tiny_causal(folder / "checkpoint-7")
    (made / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return made / "chat_template.jinja"


def _shard(folder: Path) -> Path:
    return _example("model.safetensors.index.json")(folder).with_name("model-00001-of-00002.safetensors")


def _pickled_index(folder: Path) -> Path:
    path = _example("pytorch_model.bin")(folder)
    import torch

    tensors = torch.load(path, weights_only=True)
    shard = path.rename(path.with_name("pytorch_model-00001-of-00001.bin"))
    index = path.with_name("pytorch_model.bin.index.json")
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(tensors, shard.name)}), "utf-8")
    return index


def _pickled_adapter(folder: Path) -> Path:
    import torch
    from safetensors.torch import load_file

    path = _example("adapter_model.safetensors")(folder)
    torch.save(load_file(path), path.with_name("adapter_model.bin"))
    path.unlink()
    return path.with_name("adapter_model.bin")


def _sizes(folder: Path) -> Path:
    """The sizes of a Llama, beside weights that do not say them."""
    path = _example("llama .pt")(folder)
    llama_pt(path, config={"training": {}})
    (folder / "params.json").write_text(json.dumps(SIZES), encoding="utf-8")
    return folder / "params.json"


def _of_peft(folder: Path) -> Path:
    return tiny_adapter(folder / "lora", tiny_causal(folder / "base"), use_dora=True) / "adapter_config.json"


def _example(name: str) -> Callable[[Path], Path]:
    (found,) = (one.example for one in CHECKPOINTS if one.name == name)
    return found


MODELS: Final = {
    one.name: one
    for one in (
        *(
            Reader(each.name, each.example, answers)
            for each in CHECKPOINTS
            if each.name != "replies of a server"
        ),
        Reader("shard of weights", _shard, answers),
        Reader("pytorch_model.bin.index.json", _pickled_index, answers),
        Reader("adapter_model.bin", _pickled_adapter, answers),
        Reader("tokenizer.model", _sentencepiece, answers),
        Reader("vocab.json", _vocabulary("vocab.json"), answers),
        Reader("merges.txt", _vocabulary("merges.txt"), answers),
        Reader("vocab.txt", _words, answers),
        Reader("chat_template.jinja", _template, answers),
        Reader("adapter of PEFT", _of_peft, answers),
        Reader("params.json", _sizes, lambda path: answers(path.with_name("checkpoint_best.pt"))),
    )
}

TEXTS: Final = ("merges.txt", "vocab.txt", "chat_template.jinja")
"""Of which a part is as right as the whole: what is cut off them does not show."""

INDEXES: Final = (*("model.safetensors.index.json", "pytorch_model.bin.index.json", "trainer_state.json"),)
"""Files that change no answer, whatever they say."""


# Damage to tables of tensors


def misdescribed(content: bytes, draw: random.Random) -> bytes:
    """A file of safetensors whose header says something else of one tensor, over the same numbers."""
    size = int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + size])
    flat = [name for name, one in header.items() if name != "__metadata__" and len(set(one["shape"])) > 1]
    name = draw.choice(flat)
    one = header[name]
    how = draw.choice(("type", "halves", "turned", "longer", "renamed", "gone", "flat", "deeper"))
    if how == "type":
        one["dtype"] = draw.choice(("I32", "U32"))
    elif how == "halves":
        one["dtype"] = draw.choice(("F16", "BF16", "I16"))
        one["shape"] = [*one["shape"][:-1], 2 * one["shape"][-1]]
    elif how == "turned":
        one["shape"] = one["shape"][::-1]
    elif how == "longer":
        one["shape"][draw.randrange(2)] *= draw.choice((2, 10**9, 1 << 40))
    elif how == "renamed":
        header[draw.choice((f"{name}.weight", f"x.{name}", name.upper(), name + "\0"))] = header.pop(name)
    elif how == "gone":
        del header[name]
    elif how == "flat":
        one["shape"] = [math.prod(one["shape"])]
    else:
        one["shape"] = [1, *one["shape"]]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]
