"""Small trainings with the callback, in this process and as a program: ``python -m tests.support.trainings STEPS``.

The program goes on from its last whole checkpoint, and trains so many steps more; it says each step on a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_touchstone.training import EvaluationCallback
from tests.support.tiny import CORPUS, tiny_causal

BENCHMARK = """
from pytest_touchstone import Loglikelihood, benchmark

ROWS = [{"n": n} for n in range(24)]

@benchmark("small", version=1, rows=ROWS, asks=Loglikelihood, primary="acc")
def test_small(example):
    one, other = yield [Loglikelihood(str(example["n"]), text) for text in (" a", " the")]
    return {"acc": float(one.logprob < other.logprob)}
"""


class Trained(NamedTuple):
    """What a training leaves: the losses it logged, the final weights, and the rows of its batches in order."""

    losses: list[float]
    weights: dict[str, Any]
    batches: list[list[int]]
    trainer: Any


def write_project(folder: Path) -> None:
    """Write the benchmark and the model that is trained."""
    (folder / "test_small.py").write_text(BENCHMARK)
    tiny_causal(folder / "base", attention_dropout=0.2)


def train(
    output: str, callbacks: Sequence[Any], *, resume: str | None = None, model: Any = None, **how: Any
) -> Trained:
    """Train the model in the current folder; ``how`` are more of the trainer's arguments."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained("base")
    rows = [
        {"number": number, "input_ids": tokenizer(text)["input_ids"][:40]}
        for number, text in enumerate(CORPUS * 8)
    ]
    batches: list[list[int]] = []

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        batches.append([row["number"] for row in batch])
        longest = max(len(row["input_ids"]) for row in batch)
        ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in batch])
        return {"input_ids": ids, "labels": ids}

    fixed: dict[str, Any] = {"per_device_train_batch_size": 2, "logging_steps": 1, "report_to": [], "seed": 3}
    fixed |= {"use_cpu": True, "disable_tqdm": True, "remove_unused_columns": False, "learning_rate": 1e-3}
    model = model or AutoModelForCausalLM.from_pretrained("base")
    trainer = Trainer(
        model=model,
        args=TrainingArguments(output, **fixed | how),
        train_dataset=rows,
        eval_dataset=rows[:2],
        data_collator=collate,
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )
    trainer.train(resume_from_checkpoint=resume)
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return Trained(losses, {name: one.clone() for name, one in model.state_dict().items()}, batches, trainer)


def last_checkpoint(output: Path) -> Path | None:
    """Return the newest checkpoint that was written to its end."""

    def whole(folder: Path) -> bool:
        try:
            return bool(json.loads((folder / "trainer_state.json").read_text()))
        except (OSError, ValueError):
            return False

    found = [folder for folder in output.glob("checkpoint-*") if whole(folder)]
    return max(found, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


def main() -> None:
    """Go on with the training in the current folder."""
    from transformers import TrainerCallback

    class Steps(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            print("step", state.global_step, flush=True)

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            print("end of step", state.global_step, flush=True)

    checkpoint = last_checkpoint(Path("runs/a"))
    before = 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])
    callback = EvaluationCallback("small", benchmarks="test_small.py", every=2, stop_after=99)
    train(
        "runs/a",
        [Steps(), callback],
        resume=None if checkpoint is None else str(checkpoint),
        max_steps=before + int(sys.argv[1]),
        save_steps=2,
        lr_scheduler_type="constant",
    )


if __name__ == "__main__":
    main()
