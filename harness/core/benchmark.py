"""``@benchmark``: declares a generator test as a benchmark.

    @benchmark(name="winogrande", version=1, data="winogrande/dev", asks=Loglikelihood, primary="acc")
    def test_winogrande(example, shots):
        '''WinoGrande (Sakaguchi et al. 2020), partial scoring: ...'''
        answers = yield [Loglikelihood(...), Loglikelihood(...)]
        return {"acc": ...}

The function is a generator: it yields one request or a list of them, is sent the answer or the list of
answers, may yield again, and returns its scores: a dict of finite numbers. The score ``no_answer`` is special:
the number of generated texts in which no answer was found. pytest refuses generator tests, so
the decorator hides it in a plain function; argument names stay readable through ``__wrapped__``, so fixtures
and parametrize work.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

import pytest

from harness.core.aggregation import Aggregation
from harness.core.errors import BenchmarkError
from harness.core.requests import REQUEST_KINDS, Request

ATTRIBUTE: Final = "__touchstone_benchmark__"

CHECKPOINT_FIXTURE: Final = "checkpoint"
"""The session fixture with an item's checkpoint."""

ENGINE_FIXTURE: Final = "model_engine"
"""The session fixture with the engine of an item's checkpoint; asked for once a unit, not by every item."""

POOL_FIXTURE: Final = "model_pool"
"""The session fixture with all engines of this process, which knows what can be loaded beside one of them."""

MOST_UNUSABLE: Final = 0.1
"""The share of outputs that may have no answer, or end at the limit, before a result is not valid."""

NO_ANSWER: Final = "no_answer"
"""A score that counts the outputs in which no answer was found; it is no metric but says if a result is valid."""


class Shot(NamedTuple):
    """A few-shot example in two parts: what is asked and what is answered, which make two turns of a chat.

    ``between`` stands between them in plain text. ``turns`` are the two as a chat has them, where they read
    otherwise there.
    """

    question: str
    answer: str
    between: str = " "
    turns: tuple[str, str] | None = None

    @property
    def text(self) -> str:
        """The example as plain text."""
        return self.question + self.between + self.answer


@dataclass(frozen=True, slots=True)
class Sampling:
    """How texts are drawn for a benchmark whose answers are samples: the argument ``sampling``.

    ``samples`` of them, greedy at ``temperature`` 0; ``seed`` is the run's until ``of`` makes it an example's.
    """

    samples: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def of(self, benchmark: str, example: str) -> Sampling:
        """The same with the example's own seed, which depends on nothing but the names and the run's seed."""
        digest = hashlib.sha256(f"{self.seed}\0{benchmark}\0{example}\0samples".encode()).digest()
        return replace(self, seed=int.from_bytes(digest[:6], "big"))

    def arguments(self) -> dict[str, Any]:
        """The fields of a ``Generate`` request that it settles."""
        return {
            "samples": self.samples,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class HubData:
    """Where ``--eval-data hub`` finds the rows: ``datasets.load_dataset(path, config, split=split)``."""

    path: str
    split: str
    config: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """What a benchmark declares about itself.

    ``data`` is ``NAME/FILE`` in a data folder (or ``NAME/FOLDER``, one file a group); ``row`` a TypedDict
    (of ``typing_extensions``) that every row is checked against; ``asks`` the kinds of request it yields;
    ``group`` the row's field that splits the results (``file``: the name of the file); ``cluster`` the
    field of what items share (a text), for honest intervals; ``subsets`` the field that splits the results
    where its rows have several values of it (the sources of a set), without a place in the items' ids.
    ``metrics`` names the scores that the function may return, so that a gate's metrics are checked before it
    runs; without it they are read off the code where that shows them.
    Few-shot examples come from ``shots_from`` (same group as the example, or any with ``shots_for_all``)
    or, without that file, from the evaluation rows themselves, never the example itself; ``shot`` renders
    one of them, as text or as a ``Shot``.
    ``shots_pick`` is "first" (file order) or "sample" (seeded, one draw for all examples). With ``shots_fixed`` they
    are the prompt itself (a paper's), and come with the benchmark whatever the data. ``aggregate``
    adds metrics, or replaces the mean of the score with the same name. ``keep`` says which rows of a data
    set belong to the benchmark, ``prepare`` brings other forms of a row into the one that ``row``
    describes; where rows have the field ``own_prompt``, which holds a prompt of their own, there are no few-shot
    examples; of more than ``most_rows`` of them that number is drawn with the run's seed. ``published_rows``
    is how many rows the published set has (a number, or one for each group), so that results over fewer of them
    say so; ``own_rows`` says what the shipped rows are where none of them was published. ``needs`` maps
    packages that its scorer imports to how they are installed. ``most_unusable`` is the share of generated
    texts that may have no answer in them, or end at the limit of tokens, before the result counts as not
    valid. ``rule`` and ``source`` are for people.
    """

    name: str
    version: int
    data: str
    asks: tuple[type[Request], ...]
    primary: str
    metrics: tuple[str, ...] = ()
    row: Any = None
    num_fewshot: int = 0
    shots_from: str | None = None
    shots_pick: Literal["first", "sample"] = "sample"
    shots_for_all: bool = False
    shots_fixed: bool = False
    shot: Callable[[Any], str | Shot] | None = None
    group: str | None = None
    subsets: str | None = None
    cluster: str | None = None
    aggregate: Mapping[str, Aggregation] = field(default_factory=dict)
    hub: HubData | None = None
    hub_shots: HubData | None = None
    keep: Callable[[dict[str, Any]], bool] | None = None
    prepare: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    own_prompt: str | None = None
    missing: str = ""
    most_rows: int | None = None
    published_rows: int | Mapping[str, int] | None = None
    own_rows: str = ""
    needs: Mapping[str, str] = field(default_factory=dict)
    most_unusable: float = MOST_UNUSABLE
    rule: str = ""
    source: str = ""


def benchmark(
    *,
    name: str,
    version: int,
    data: str,
    asks: type[Request] | Iterable[type[Request]],
    primary: str,
    **more: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares the decorated generator function as a benchmark; the arguments are the fields of
    ``Benchmark``.

    Raises ``BenchmarkError`` when a field is unknown or wrong.
    """
    kinds = (asks,) if isinstance(asks, type) else tuple(asks)
    for kind in kinds:
        if kind not in REQUEST_KINDS:
            known = ", ".join(k.__name__ for k in REQUEST_KINDS)
            raise BenchmarkError(f"benchmark {name!r}: asks={kind!r} is no kind of request; use {known}")
    if "/" in name or "[" in name or not name:
        raise BenchmarkError(f"benchmark name {name!r}: use letters, digits, '_' and '-'")
    if unknown := sorted(set(more) - set(Benchmark.__dataclass_fields__)):
        raise BenchmarkError(f"benchmark {name!r}: unknown field {unknown[0]!r}")

    metrics = more.get("metrics", ())
    if isinstance(metrics, str) or not all(isinstance(metric, str) for metric in metrics):
        raise BenchmarkError(
            f"benchmark {name!r}: metrics={metrics!r}; give the names of its scores in a tuple"
        )
    if metrics and primary not in metrics:
        raise BenchmarkError(f"benchmark {name!r}: its primary score {primary!r} is not among its metrics")
    for one in more.get("aggregate", {}).values():
        one.plain()  # raises for a function that nobody could find again
    if more.get("subsets") and more.get("group"):
        raise BenchmarkError(f"benchmark {name!r}: group and subsets: give one of them")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        more.setdefault("rule", inspect.getdoc(function) or "")
        spec = Benchmark(name=name, version=version, data=data, asks=kinds, primary=primary, **more)

        @functools.wraps(function)
        def run_without_plugin(*_: object, **__: object) -> None:
            raise BenchmarkError(
                f"{function.__name__} is a benchmark: only pytest with the harness plugin can run it "
                "(install pytest-touchstone, and do not disable the plugin with -p no:harness.plugin)"
            )

        setattr(run_without_plugin, ATTRIBUTE, spec)
        marked: Callable[..., Any] = pytest.mark.usefixtures(CHECKPOINT_FIXTURE)(run_without_plugin)
        return marked

    return decorate


def declared(function: object) -> Benchmark | None:
    """The declaration of a decorated function, or None for any other object."""
    found = getattr(function, ATTRIBUTE, None)
    return found if isinstance(found, Benchmark) else None


def generator_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function below the decorator."""
    while (inner := getattr(function, "__wrapped__", None)) is not None:  # inspect.unwrap, ten times as fast
        function = inner
    return function
