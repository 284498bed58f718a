"""``EvaluationCallback``: benchmarks while a Trainer of Transformers, TRL or the like trains.

    trainer = Trainer(..., callbacks=[EvaluationCallback(tasks=["arc_easy", "hellaswag"], every=500, limit=200)])

The model is scored in memory, between two steps (``engines.transformers.live``). Each time leaves a run in
``OUTPUT_DIR/results``, in which the model has the place of ``OUTPUT_DIR/checkpoint-STEP``. Checkpoints that the trainer
saves are scored beside the training by ``touchstone watch``.

A run takes what runs before it have scored of the same weights. So a training that was killed, and goes on, scores
nothing twice: neither what it had scored in part, nor the steps that it repeats.
"""

from __future__ import annotations

import copy
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback  # noqa: TID253 -- whoever imports this trains with it
from transformers.trainer_callback import CallbackHandler  # noqa: TID253

from pytest_touchstone.checkpoints.config_files import step_of_row
from pytest_touchstone.core.errors import HarnessError, OptionError
from pytest_touchstone.core.text import one_line
from pytest_touchstone.engines.transformers.live import FirstProcess, LiveModel
from pytest_touchstone.plugin.evaluate import Paths, check_evaluation, check_settings, evaluate_with
from pytest_touchstone.plugin.finished_run import FinishedRun
from pytest_touchstone.results.summary import SUMMARY, Summary, load_summary, whole_results

LOG: Final = logging.getLogger("pytest_touchstone")

PREFIX: Final = "eval_"
"""The beginning of the names of values in the trainer's log, as of the trainer's own."""

WORSE_RUNNING: Final = "eval_worse_running"
"""The name of the count of verdicts "worse" without another between them."""


class EvaluationCallback(TrainerCallback):  # type: ignore[misc]
    """Scores the model every ``every`` steps, logs the values, and may stop the training.

    ``tasks``, ``benchmarks`` and ``settings`` (``limit=200``) are those of ``pytest_touchstone.evaluate``. The last
    step is scored, too.

    ``stop_after`` is a number of consecutive verdicts "worse" against the best so far, after which the training ends.
    ``output`` is the folder of the runs (default: ``results`` in the trainer's ``output_dir``), ``tokenizer`` that of
    the model if the trainer has none.

    The trainer's log gets ``eval_BENCHMARK_METRIC`` of each benchmark and composite with the ends of its 95 % interval
    (``..._low``, ``..._high``), and ``eval_worse_running``. ``metric_for_best_model`` may name a value.

    Raises ``HarnessError`` for mistakes, here or before the first step. Later errors are warnings of one line.
    """

    def __init__(
        self,
        tasks: str | Sequence[str],
        *,
        every: int = 500,
        stop_after: int | None = None,
        output: str | Path | None = None,
        tokenizer: Any = None,
        benchmarks: Paths | None = None,
        **settings: Any,
    ) -> None:
        for name, value in (("every", every), ("stop_after", 1 if stop_after is None else stop_after)):
            if type(value) is not int or value < 1:
                raise OptionError(f"invalid {name} {value!r}: expected a whole number from 1 up")
        if not tasks:
            raise OptionError(f"invalid tasks {tasks!r}: name one at least")
        if wrong := next((name for name in ("checkpoint", "run_id") if name in settings), None):
            raise OptionError(f"{wrong} is the callback's own; leave it out")
        judged = {} if stop_after is None else {"baseline": settings.get("baseline") or "best", "gate": True}
        self._settings = {"tasks": tasks, **settings, **judged}
        check_settings(self._settings, live=True)
        self._every, self._stop_after = every, stop_after
        self._output, self._tokenizer, self._benchmarks = output, tokenizer, benchmarks
        self._log: Any = None
        self._first_process: FirstProcess | None = None
        self._worse = 0
        self._values: tuple[int, dict[str, float]] = (-1, {})

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Check everything that can be checked, and take up what an earlier life of the training has found."""
        del control
        self._first_process = FirstProcess()
        self._log = _handler_above()
        self._settings["output"] = str(self._output or Path(args.output_dir, "results"))
        fault = None
        if state.is_world_process_zero:
            try:
                name = self._best_metric(args)
                is_known = args.eval_strategy == "steps" and not state.eval_steps % self._every
                if name is not None and not is_known:
                    raise OptionError(
                        f"metric_for_best_model={name} is known every {self._every} steps, and the trainer asks for it "
                        "at others; let it evaluate by steps, with eval_steps a multiple of every"
                    )
                with self._live(args, state, more) as live:
                    check_evaluation(self._settings, self._benchmarks, live)
                for step, worse in sorted(dict(self._verdicts(args)).items()):
                    if step <= state.global_step:
                        self._count_verdict(worse)
            except HarnessError as error:
                fault = error
        if (fault := self._first_process.broadcast(fault)) is not None:
            raise fault

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Score the model if it is time to."""
        due = not state.global_step % self._every or state.global_step >= state.max_steps
        if not due or self._first_process is None:
            return
        values: dict[str, float] = {}
        if state.is_world_process_zero:
            try:
                with self._live(args, state, more) as live:
                    run = evaluate_with(self._settings, self._benchmarks, live)
                self._count_verdict(gate_failed(run.summary))
                for problem in run.problems[:1]:
                    LOG.warning("%s", one_line(f"{run.directory}: {problem}"))
                values = dict(values_of(run))
                if self._stop_after is not None:
                    values[WORSE_RUNNING] = float(self._worse)
            except Exception as error:  # the training goes on
                kind = "" if isinstance(error, HarnessError) else f"{type(error).__name__}: "
                message = f"step {state.global_step} is not scored, and the training goes on: {kind}{error}"
                LOG.warning("%s", one_line(message))
            self._write(values, args, state, control)
        values, worse = self._first_process.broadcast((values, self._worse))
        self._values = state.global_step, values
        is_over = self._stop_after is not None and worse >= self._stop_after
        if is_over and not control.should_training_stop:
            control.should_training_stop = True
            text = "step %d: worse than the best so far, %d times running; the training stops (stop_after=%d)"
            LOG.warning(text, state.global_step, worse, self._stop_after)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **more: Any) -> None:
        """Give the trainer the values of this step beside its own, for ``metric_for_best_model``."""
        del control, more
        step, values = self._values
        if metrics is not None and step == state.global_step:
            metrics.update(values)
            if (name := self._best_metric(args)) is not None:
                metrics.setdefault(name, float("nan"))  # scoring failed: it is not the best

    def _live(self, args: Any, state: Any, more: Mapping[str, Any]) -> LiveModel:
        tokenizer = self._tokenizer or more.get("processing_class") or more.get("tokenizer")
        path = Path(args.output_dir, f"checkpoint-{state.global_step}")
        return LiveModel(more["model"], tokenizer, str(path), state)

    def _count_verdict(self, worse: bool | None) -> None:
        """Count a verdict, unless the gate found nothing."""
        if worse is not None:
            self._worse = self._worse + 1 if worse else 0

    def _write(self, values: dict[str, float], args: Any, state: Any, control: Any) -> None:
        """Log values of this step, as the trainer logs its own: to its history, and to every tracker."""
        if not values:
            return
        logged = {**values, "epoch": state.epoch}
        state.log_history.append({**logged, "step": state.global_step})
        if self._log is not None:
            before = control.should_log
            self._log.on_log(args, copy.copy(state), control, logged)
            control.should_log = before

    def _verdicts(self, args: Any) -> Iterator[tuple[int, bool | None]]:
        """Yield the step of each finished run of this training with its verdict, the newest run of a step last."""
        paths = Path(self._settings["output"]).glob(f"*/{SUMMARY}")
        for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns):
            try:
                summary = load_summary(path.parent)
            except HarnessError:
                continue
            for row in summary.checkpoints:
                step = step_of_row(row)
                if step is not None and Path(str(row.get("path"))).parent == Path(args.output_dir):
                    yield int(step), gate_failed(summary)

    def _best_metric(self, args: Any) -> str | None:
        """Return the value by which the trainer chooses its best checkpoint, if it is one of this callback."""
        name, tasks = args.metric_for_best_model or "", self._settings["tasks"]
        name = name if name.startswith(PREFIX) else f"{PREFIX}{name}"
        prefixes = [logged_name(str(task), "") for task in ([tasks] if isinstance(tasks, str) else tasks)]
        return name if name.startswith(tuple(prefixes)) else None


def values_of(run: FinishedRun) -> Iterator[tuple[str, float]]:
    """Yield the names and values for the trainer's log: primary metrics of whole benchmarks, composites, intervals."""
    whole = {(result.benchmark, result.primary): result.name for result in whole_results(run.summary)}
    for row in run.results:
        if row.group is None and ((row.benchmark, row.metric) in whole or row.metric == "composite"):
            name = logged_name(whole.get((row.benchmark, row.metric), row.benchmark), row.metric)
            for ending, value in (("", row.value), ("_low", row.low), ("_high", row.high)):
                if value is not None:
                    yield f"{name}{ending}", value


def logged_name(benchmark: str, metric: str) -> str:
    """Return the name of a value in letters, digits, ``_`` and ``-``, which every tracker accepts."""
    return PREFIX + re.sub(r"[^\w-]+", "_", f"{benchmark}_{metric}")


def gate_failed(summary: Summary) -> bool | None:
    """Return whether the gate found the checkpoint worse; None where it found nothing, or was not asked."""
    return {"failed": True, "passed": False}.get((summary.gate or {}).get("decision", ""))


def _handler_above() -> Any:
    """Return the list of callbacks that has called; None where another trainer calls.

    Callbacks are not told of the trainer, whose ``log`` would reach every tracker.
    """
    frame: Any = sys._getframe()
    while frame is not None:
        if isinstance(handler := frame.f_locals.get("self"), CallbackHandler):
            return handler
        frame = frame.f_back
    return None
