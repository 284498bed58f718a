"""The requests of a task's documents, and their scores, both made by the task itself.

Contexts are made in the order of the documents, since the generator of few-shot examples goes on from one to the next:
a document that is asked alone has the prompt of the whole run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.few_shot import Sampling
from pytest_touchstone.core.grade import Graded
from pytest_touchstone.core.requests import (
    Generate,
    GenerateAnswer,
    Loglikelihood,
    LoglikelihoodAnswer,
    Request,
    RollingLoglikelihood,
)
from pytest_touchstone.core.tasks import LM_EVAL_PREFIX, filtered_metric
from pytest_touchstone.metrics.lm_eval.tasks import LoadedTask

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

RAW: Final = "raw_"
"""The beginning of the name of a fact: the raw value of a metric that is no mean, as JSON."""


class Documents:
    """The documents of a task, and the requests about each (lm-evaluation-harness's instances)."""

    def __init__(self, loaded: LoadedTask, *, chat: bool, system: str | None = None) -> None:
        """With ``chat``, texts are asked for as conversations too, which begin with a ``system`` prompt."""
        self.name, self.task = loaded.name, loaded.task
        self._state, self._chat, self._system = loaded.state, chat, system
        with self._state.applied():
            self.rows: list[Any] = list(self.task.eval_docs)
        self._made: list[tuple[list[Instance], list[Request]] | Exception] = []

    def plain_rows(self) -> list[dict[str, Any]]:
        """Return the documents as plain data."""
        return [
            {"doc_id": index, "doc": json.loads(json.dumps(row, default=str))}
            for index, row in enumerate(self.rows)
        ]

    def requests(self, index: int) -> tuple[list[Instance], list[Request]]:
        """Return what is asked about a document, as instances and as our requests."""
        with self._state.applied():
            while len(self._made) <= index:
                try:
                    self._made.append(self._make(len(self._made)))
                except Exception as error:  # which is told when it is the document's turn
                    self._made.append(error)
        if isinstance(made := self._made[index], Exception):
            raise made
        return made

    def _make(self, index: int) -> tuple[list[Instance], list[Request]]:
        task, doc = self.task, self.rows[index]
        sampler = getattr(task, "sampler", None)
        before = sampler.rnd.getstate() if sampler is not None else None
        context = self._context(doc)
        turns: Sequence[Any] = ()
        if self._chat and task.OUTPUT_TYPE == "generate_until" and sampler is not None:
            sampler.rnd.setstate(before)  # a conversation has the examples of the text
            chat = {"fewshot_as_multiturn": True, "apply_chat_template": True}
            turns = json.loads(self._context(doc, system_instruction=self._system, **chat))
        instances = task.construct_requests(
            doc=doc,
            ctx=context,
            metadata=(self.name, index, task.config.repeats or 1),
            apply_chat_template=False,
            chat_template=None,
        )
        instances = instances if isinstance(instances, list) else [instances]
        instances = sorted(instances, key=lambda instance: instance.idx)
        return instances, [self._request(instance, turns) for instance in instances]

    def _context(self, doc: Any, **chat: Any) -> Any:
        task = self.task
        arguments: dict[str, Any] = {
            "system_instruction": None,
            "apply_chat_template": False,
            "fewshot_as_multiturn": False,
            "chat_template": lambda turns, **_: json.dumps(turns),
            "gen_prefix": task.doc_to_prefix(doc),
        }
        return task.fewshot_context(doc, num_fewshot=task.config.num_fewshot or 0, **{**arguments, **chat})

    def _request(self, instance: Instance, turns: Sequence[Any]) -> Request:
        match instance.request_type:
            case "loglikelihood":
                return Loglikelihood(*instance.args)
            case "loglikelihood_rolling":
                return RollingLoglikelihood(*instance.args)
            case "generate_until":
                prompt, arguments = instance.args
                return self._generate(prompt, arguments, instance, turns)
        raise BenchmarkError(
            f"{LM_EVAL_PREFIX}{self.name}: asks {instance.request_type}, which is not supported"
        )

    def _generate(self, prompt: str, arguments: Any, instance: Instance, turns: Sequence[Any]) -> Generate:
        from lm_eval.models.utils import normalize_gen_kwargs

        given = normalize_gen_kwargs(arguments or {})
        return Generate(
            prompt,
            stop=tuple(given["until"]),
            max_new_tokens=given["max_gen_toks"],
            temperature=given.get("temperature", 0.0),
            top_p=given.get("top_p", 1.0),
            top_k=given.get("top_k", 0),
            samples=instance.repeats or 1,
            seed=Sampling().of(self.name, str(instance.doc_id)).seed,
            turns=turns,
        )

    def grade(self, index: int, answers: Sequence[Any], corpus: Sequence[str]) -> Graded:
        """Return the task's own scores of the answers about a document.

        Metrics in ``corpus`` are no means: their raw values are kept beside a number.
        """
        task = self.task
        instances = [
            replace(instance, resps=_responses(answer, instance.repeats or 1), filtered_resps={})
            for instance, answer in zip(self.requests(index)[0], answers, strict=True)
        ]
        for ensemble in task._filters:
            ensemble.apply(instances)
        scores: dict[str, float] = {}
        raw: dict[str, str] = {}
        extracted: dict[str, str | None] = {}
        for filtering in instances[0].filtered_resps:
            results = [instance.filtered_resps[filtering] for instance in instances]
            values = task.process_results(instances[0].doc, results)
            if not isinstance(values, Mapping):
                raise BenchmarkError(f"{LM_EVAL_PREFIX}{self.name}: process_results returns {values!r}")
            for metric, value in values.items():
                name = filtered_metric(metric, filtering)
                number = item_number(value)
                if name in corpus:
                    raw[RAW + name] = json.dumps(value, default=_plain)
                elif number is None:
                    raise BenchmarkError(
                        f"{LM_EVAL_PREFIX}{self.name}: {name} is {value!r}, which has no mean"
                    )
                if name in corpus or math.isfinite(number or 0.0):
                    scores[name] = number if number is not None and math.isfinite(number) else 0.0
                if isinstance(answers[0], GenerateAnswer) and isinstance(results[0], str):
                    extracted[name] = results[0]
        return Graded(scores, extracted=extracted, raw=raw)


def _responses(answer: Any, repeats: int) -> list[Any]:
    """Return an answer as lm-evaluation-harness's models give it, once for each repeat."""
    if isinstance(answer, GenerateAnswer):
        return [sample.text for sample in answer.samples]
    if isinstance(answer, LoglikelihoodAnswer):
        return [(answer.logprob, answer.is_greedy)] * repeats
    return [answer.logprob] * repeats


def item_number(value: Any) -> float | None:
    """Return the number of an item for a raw value: itself, or what a pair shows.

    Of a gold answer and a prediction that is 1 where they are equal, of a log-likelihood and a size the former.
    """
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, (tuple, list)) and len(value) == 2:
        first, second = (
            part.item() if hasattr(part, "item") and getattr(part, "ndim", 0) == 0 else part for part in value
        )
        if isinstance(first, float):
            return first
        if isinstance(first, int | str) and type(first) is type(second):
            return float(first == second)
    return None


def _plain(value: Any) -> Any:
    """Return arrays as lists and anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
