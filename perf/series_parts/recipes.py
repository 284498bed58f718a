"""Series of checkpoints, each made from the same start by one kind of change that grows from checkpoint to checkpoint.

Of the trainings the number of a checkpoint is that of its steps; each step takes four texts. ``usual`` is full
fine-tuning on GSM8K's training rows at the usual rate, ``tenfold`` the same at ten times the rate. ``shuffled`` is
``tenfold`` with each answer under the question of another row. ``lora`` trains an adapter of rank 8 on the same texts,
``korean`` all weights on Korean Wikipedia. ``merged`` goes back from the end of ``korean``: its number is the
percentage of the change that is left (linear interpolation of the weights).

Without a training: ``noise`` adds normal noise to the matrices, with the percentage of each matrix's own standard
deviation; ``rounded`` rounds the matrices of the layers to so many bits, symmetrically, with one scale per row (the
embedding stays), except that 16 is bfloat16. All are stored in float32.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

Weights = Mapping[str, torch.Tensor]

SEED: Final = 49
TEXTS: Final = 4
LONGEST: Final = 128
"""The tokens of a text at most."""

USUAL: Final = 2e-5
RANK: Final = 8
TARGETS: Final = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass(frozen=True, slots=True)
class Training:
    """What a training reads and how fast it learns."""

    texts: Callable[[Path], list[str]]
    rate: float
    adapter: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """The numbers of a series' checkpoints, least changed first, and the way in which they are made."""

    numbers: tuple[int, ...]
    how: Training | Callable[[Weights, int], Iterator[tuple[str, torch.Tensor]]] | str
    """A training, the changed tensors of the start for a number, or the series whose end is merged back."""


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def gsm8k(data: Path) -> list[str]:
    """Return questions with their solutions, in the form in which the benchmark shows them."""
    return [
        f"Question: {row['question']}\nAnswer: {row['answer']}"
        for row in _rows(data / "gsm8k" / "train.jsonl")
    ]


def shuffled(data: Path) -> list[str]:
    """Return questions with the solutions of others."""
    rows = list(_rows(data / "gsm8k" / "train.jsonl"))
    return [
        f"Question: {row['question']}\nAnswer: {other['answer']}"
        for row, other in zip(rows, rows[1:] + rows[:1], strict=True)
    ]


def korean(data: Path) -> list[str]:
    """Return articles of Korean Wikipedia."""
    return [row["text"] for row in _rows(data / "korean" / "kowiki_extract.jsonl")]


def noisy(weights: Weights, percent: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the matrices with noise, that of a smaller percentage scaled."""
    draw = torch.Generator().manual_seed(SEED)
    for name, tensor in weights.items():
        if tensor.ndim == 2:
            noise = torch.randn(tensor.shape, generator=draw)
            yield name, tensor + percent / 100 * tensor.std() * noise


def rounded(weights: Weights, bits: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in bfloat16 for 16 bits, else the layers' matrices on 2 ** bits - 1 steps per row."""
    for name, tensor in weights.items():
        if bits == 16:
            yield name, tensor.bfloat16().float()
        elif tensor.ndim == 2 and ".layers." in name:
            most = 2 ** (bits - 1) - 1
            step = tensor.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / most
            yield name, (tensor / step).round() * step


STEPS: Final = (6, 12, 24)

RECIPES: Final[Mapping[str, Recipe]] = {
    "noise": Recipe((5, 10, 15, 20), noisy),
    "rounded": Recipe((16, 8, 5, 4), rounded),
    "korean": Recipe((*STEPS, 48), Training(korean, 3e-4)),
    "tenfold": Recipe(STEPS, Training(gsm8k, 10 * USUAL)),
    "merged": Recipe((25, 50, 75), "korean"),
    "lora": Recipe(STEPS, Training(gsm8k, 1e-3, adapter=True)),
    "shuffled": Recipe(STEPS, Training(shuffled, 10 * USUAL)),
    "usual": Recipe(STEPS, Training(gsm8k, USUAL)),
}
"""The series, in the order in which they are made and scored."""

START: Final = "start"


def folder_of(folder: Path, series: str, number: int) -> Path:
    """Return the place of a checkpoint."""
    return folder / series / f"checkpoint-{number}"


def make(series: str, start: Path, data: Path, folder: Path) -> list[Path]:
    """Return the checkpoints of a series, least changed first, made if any is missing."""
    recipe = RECIPES[series]
    places = [folder_of(folder, series, number) for number in recipe.numbers]
    if all(place.is_dir() for place in places):
        return places
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(start)

    def save(made: Any, number: int) -> None:
        place = folder_of(folder, series, number)
        shutil.rmtree(place, ignore_errors=True)
        unfinished = place.with_name(f"{place.name}.unfinished")
        made.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        unfinished.rename(place)

    if isinstance(recipe.how, Training):
        _train(model, tokenizer, recipe.how.texts(data), recipe, save)
        return places
    weights = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    if isinstance(recipe.how, str):
        end = make(recipe.how, start, data, folder)[-1]
        trained = dict(AutoModelForCausalLM.from_pretrained(end, dtype=torch.float32).named_parameters())
    for number in recipe.numbers:
        if isinstance(recipe.how, str):
            changed = {
                name: torch.lerp(tensor, trained[name].detach(), number / 100)
                for name, tensor in weights.items()
            }
        else:
            changed = dict(recipe.how(weights, number))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(changed.get(name, weights[name]))
        save(model, number)
    return places


def _train(
    model: Any, tokenizer: Any, texts: list[str], recipe: Recipe, save: Callable[[Any, int], None]
) -> None:
    """Train with AdamW at a constant rate, and save after each of the recipe's numbers of steps."""
    training = recipe.how
    assert isinstance(training, Training)
    if training.adapter:
        from peft import LoraConfig, get_peft_model

        settings = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=TARGETS, task_type="CAUSAL_LM")
        model = get_peft_model(model, settings)
    optimizer = torch.optim.AdamW(
        [one for one in model.parameters() if one.requires_grad], lr=training.rate, weight_decay=0.0
    )
    draw = random.Random(SEED)
    order = draw.sample(texts, min(len(texts), TEXTS * recipe.numbers[-1]))
    model.train()
    for step in range(1, recipe.numbers[-1] + 1):
        losses = []
        for text in (order[(TEXTS * step + which) % len(order)] for which in range(TEXTS)):
            ids = tokenizer.encode(text, return_tensors="pt")[:, :LONGEST]
            loss = model(input_ids=ids, labels=ids).loss / TEXTS
            loss.backward()
            losses.append(float(loss.detach()))
        optimizer.step()
        optimizer.zero_grad()
        print(f"  step {step}: loss {sum(losses):.3f}", flush=True)
        if step in recipe.numbers:
            save(copy.deepcopy(model).merge_and_unload() if training.adapter else model, step)
