"""``PlannedItem``: an item of a run, what a benchmark asks of a checkpoint about a row.

The record is made once, when everybody has chosen among the items, and kept on pytest's item. The run's folder keeps
items, their benchmarks and composites as plain data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest

from pytest_touchstone.checkpoints import CheckpointInfo
from pytest_touchstone.core.aggregation import aggregation_of
from pytest_touchstone.core.benchmark import CHECKPOINT_FIXTURE, Benchmark, generator_function
from pytest_touchstone.core.composite import ATTRIBUTE as COMPOSITES
from pytest_touchstone.core.composite import Composite, project_composites, unique_composites
from pytest_touchstone.core.dataset import count_rows
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.eval_config import is_shipped
from pytest_touchstone.core.grade import NO_ANSWER
from pytest_touchstone.core.requests import NOT_OF_CHECKPOINTS, REQUEST_KINDS, Request
from pytest_touchstone.engines.answers.files import AnswerRow
from pytest_touchstone.metrics.samples import sample_metrics
from pytest_touchstone.metrics.soft import soft_names, temperature_of
from pytest_touchstone.plugin import project_file
from pytest_touchstone.plugin.collection import OWN_ARGUMENTS, OWN_NAMES, CollectedExample, collected_example
from pytest_touchstone.plugin.dispatch import CAUGHT
from pytest_touchstone.plugin.driver import ItemJob, TimeLimit, identity
from pytest_touchstone.results.records import Record, Status
from pytest_touchstone.results.reuse import ItemKey
from pytest_touchstone.results.summary import CollectedItem, Declaration

ALONE_MARKS: Final = ("skip", "skipif", "xfail")
"""Marks with which pytest decides about items one by one, so that they are never run for another item's sake."""


class BenchmarkFunction(NamedTuple):
    """What the items of a function have in common.

    Its ``arguments`` are those that pytest passes to the ``generator`` function. With ``no_parameters`` of the user's,
    checkpoint and example alone identify an item. ``free_file``: no fixture is set up for it, nor one of its file.
    """

    generator: Callable[..., Any]
    arguments: tuple[str, ...]
    no_parameters: bool
    free_file: bool


@dataclass(slots=True, eq=False)
class PlannedItem:
    """An item of a run; ``spec`` is its benchmark, named after the result that it counts for.

    Its benchmark's ``limit`` of time is the same for all items of a checkpoint. ``answers`` are the rows that answer it
    of a checkpoint that is a file of answers.
    """

    item: pytest.Function
    info: CheckpointInfo
    given: CollectedExample
    spec: Benchmark
    function: BenchmarkFunction
    limit: TimeLimit | None
    answers: tuple[AnswerRow, ...] = ()

    @property
    def nodeid(self) -> str:
        """The node id of the item."""
        return self.item.nodeid

    @property
    def series(self) -> tuple[str, str]:
        """The names of the checkpoint and of the result that the item belongs to."""
        return self.info.name, self.spec.name

    @property
    def key(self) -> ItemKey:
        """What the item has in common with that of another run."""
        return ItemKey(*self.series, self.given.example.id)

    @property
    def marked(self) -> bool:
        """Whether a mark says that the item is never run for another's sake."""
        return any(mark.name in ALONE_MARKS for mark in self.item.iter_markers())

    @property
    def stands_alone(self) -> bool:
        """Whether the item needs nothing but its example and its checkpoint, and no fixture of its file."""
        return self.function.no_parameters and self.function.free_file

    def alike(self, leader: PlannedItem) -> bool:
        """Return whether the item can run under the leader's fixtures.

        The two may differ only in their examples, unless they need no fixtures.
        """
        if self.info is leader.info and self.stands_alone and leader.stands_alone:
            return True
        parameters, leader_parameters = self.item.callspec.params, leader.item.callspec.params
        # By value, since pytest renumbers the values of a plain parameter for every item.
        return parameters.keys() == leader_parameters.keys() and all(
            leader_parameters[name] is value
            for name, value in parameters.items()
            if name not in OWN_ARGUMENTS
        )

    def job(self, leader: PlannedItem) -> ItemJob:
        """Return what the driver runs, with the fixtures of the leader."""
        given, fixtures = self.given, leader.item.funcargs
        wanted = {
            name: OWN_ARGUMENTS[name](given)
            if name in OWN_ARGUMENTS
            else fixtures[name]
            if name in fixtures
            else self.item.callspec.params[name]
            for name in self.function.arguments
        }
        start = given.loaded.start(functools.partial(self.function.generator, **wanted), given.example)
        identity = self.nodeid, self.spec, given.example, self.info.name
        return ItemJob(*identity, start, given.loaded.asking, self.limit, self.answers)

    def record(self, status: Status, message: str) -> Record:
        """Return the record of the item where it has not run."""
        fields = identity(self.nodeid, self.spec, self.given.example, self.info.name)
        return Record(**fields, status=status, message=message)

    def first_requests(self, *, shipped: bool = True) -> list[Request]:
        """Return what the item asks a model first, as engines get it; its generator is closed again.

        By default nothing but of the shipped benchmarks, which have no effects: other people's functions are started
        once per item.
        """
        if not self.stands_alone or (shipped and not is_shipped(self.spec)):
            return []
        generator = None
        try:
            generator = self.job(self).start()
            yielded = next(generator)
            asked = [yielded] if isinstance(yielded, REQUEST_KINDS) else list(yielded)
            return [
                self.given.loaded.asking.request(request)
                for request in asked
                if isinstance(request, REQUEST_KINDS) and not isinstance(request, NOT_OF_CHECKPOINTS)
            ]
        except (*CAUGHT, StopIteration):
            return []  # told when it is the item's turn
        finally:
            if generator is not None:
                with suppress(*CAUGHT):
                    generator.close()


PLANNED: Final = pytest.StashKey[PlannedItem]()


def planned_of(item: pytest.Item) -> PlannedItem | None:
    """Return the record of a benchmark item, None for any other item."""
    return item.stash.get(PLANNED, None)


def planned_items(items: Iterable[pytest.Item]) -> list[PlannedItem]:
    """Return the records of the benchmark items among these."""
    return [planned for item in items if (planned := planned_of(item)) is not None]


def plan_items(items: Iterable[pytest.Item], *, several: bool) -> None:
    """Create the records of the benchmark items, and attach each to its item.

    Each combination of the user's own parameters is a result of its own. With ``several`` checkpoints, node ids have
    the checkpoint's name. Raises ``BenchmarkError`` if two combinations have one name, and for a benchmark that asks
    for a function-scoped fixture.
    """
    functions: dict[tuple[Any, str], BenchmarkFunction] = {}
    results: dict[str, tuple[Benchmark, list[str]]] = {}
    limits: dict[tuple[str, str], TimeLimit] = {}
    for item in items:
        if (given := collected_example(item)) is None:
            continue
        assert isinstance(item, pytest.Function)
        spec, key = given.loaded.spec, (item.parent, item.originalname)
        if (function := functions.get(key)) is None:  # item.function is slow
            function = functions[key] = _function_of(item, spec)
        info = item.callspec.params[CHECKPOINT_FIXTURE]
        assert isinstance(info, CheckpointInfo)
        ids: list[str] = []
        if not function.no_parameters:
            # Private: the public ``id`` joins them with a sign that they may contain.
            ids = list(item.callspec._idlist)
            # See generate(): of equal ones the example's is the last, and the checkpoint's the first.
            del ids[len(ids) - 1 - ids[::-1].index(given.example.id)]
            if several:
                ids.remove(info.name)
        name = spec.name + (f"[{'-'.join(ids).replace('/', '_')}]" if ids else "")
        if name not in results:
            results[name] = replace(spec, name=name) if ids else spec, ids
        spec, former = results[name]
        if former != ids:
            raise BenchmarkError(
                f"two combinations of parameters are both named {name}; give their values other ids"
            )
        seconds = given.loaded.asking.seconds
        limit = None if seconds is None else limits.setdefault((info.name, name), TimeLimit(seconds))
        item.stash[PLANNED] = PlannedItem(item, info, given, spec, function, limit)


def _function_of(item: pytest.Function, spec: Benchmark) -> BenchmarkFunction:
    """Return what the items of a function have in common; raise ``BenchmarkError`` for a function-scoped fixture.

    A batch's generators run together under its first item, so what they share must live longer than one item.
    """
    # Private: the public ``fixturenames`` also has fixtures that are no arguments, and nothing public has scopes.
    fixtures, parameters = item._fixtureinfo, item.callspec.params
    arguments = tuple(fixtures.argnames)
    for name in arguments:
        definitions = () if name in parameters else fixtures.name2fixturedefs.get(name, ())
        if definitions and definitions[-1].scope == "function":
            ours = f", or ask for {CHECKPOINT_FIXTURE!r}, which nobody overrides" * (name == "checkpoint")
            raise BenchmarkError(
                f"benchmark {spec.name}: fixture {name!r} is function-scoped, but items run together; "
                f"give the fixture scope='module' or wider{ours}"
            )
    return BenchmarkFunction(
        generator=generator_function(item.function),
        arguments=arguments,
        no_parameters=parameters.keys() <= OWN_NAMES,
        free_file={*item.fixturenames} <= OWN_NAMES,
    )


# As plain data, as the run's folder keeps them


def check_composites(items: Sequence[pytest.Item]) -> None:
    """Raise ``BenchmarkError`` for the first composite that is declared wrongly."""
    parts = {
        (component.benchmark, component.metric): composite.name
        for composite in declared_composites(items)
        for component in composite.parts
    }
    specs = {planned.given.loaded.spec.name: planned.spec for planned in planned_items(items)}
    for (name, metric), composite in parts.items():
        aggregate = (
            {key: aggregation.plain() for key, aggregation in specs[name].aggregate.items()}
            if name in specs
            else {}
        )
        if not aggregation_of(aggregate, metric).higher_is_better:
            raise BenchmarkError(
                f"composite {composite!r}: of {name}:{metric} less is better; give parts of which more is"
            )


def collected_items(items: Iterable[pytest.Item]) -> list[CollectedItem]:
    """Return the benchmark items, as plain data."""
    return [
        CollectedItem(
            planned.nodeid,
            planned.spec.name,
            planned.info.name,
            planned.given.example.id,
            planned.given.example.group,
        )
        for planned in planned_items(items)
    ]


def declarations_of(items: Sequence[pytest.Item]) -> dict[str, Declaration]:
    """Return the items' benchmarks as plain data, by the names of their results."""
    declarations = {}
    composites = declared_composites(items)
    for name, planned in {planned.spec.name: planned for planned in planned_items(items)}.items():
        loaded, spec = planned.given.loaded, planned.spec
        soft = soft_names(spec)
        more = (*soft, *sample_metrics(spec, loaded.sampling.samples)) if spec.metrics else ()
        declarations[name] = Declaration(
            name=name,
            version=spec.version,
            primary=spec.primary,
            aggregate={key: aggregation.plain() for key, aggregation in spec.aggregate.items()},
            grouped=any(example.group is not None for example in loaded.dataset.examples),
            clustered=spec.row_rules.cluster is not None,
            dataset=loaded.dataset.info,
            few_shot={} if planned.info.answers else loaded.shots.description(),
            rule=spec.code.rule,
            source=spec.published.places,
            most_unusable=spec.most_unusable,
            code=loaded.code,
            scores=sorted({*spec.metrics, *more} - {NO_ANSWER}),
            extents=count_rows(spec, loaded.dataset, loaded.sampling.seed),
            own_rows=spec.published.own_rows,
            composites=[composite.plain() for composite in composites if name in composite.benchmarks],
            settings=loaded.asking.settings,
            file=str(planned.item.path),
            temperature=temperature_of(spec) if soft else None,
            hub=spec.data.on_hub,
        )
    return declarations


def declared_composites(items: Sequence[pytest.Item]) -> list[Composite]:
    """Return the composites of pyproject.toml, of conftests and plug-ins, and of the items' modules.

    Raises ``BenchmarkError`` where one name has two formulas.
    """
    if not items:
        return []
    config = items[0].config
    files = dict.fromkeys(item.parent for item in items)
    modules = [*config.pluginmanager.get_plugins(), *(getattr(file, "module", None) for file in files)]
    composites = project_composites(project_file(config))
    for module in dict.fromkeys(module for module in modules if isinstance(module, ModuleType)):
        composites += vars(module).get(COMPOSITES, ())
    return unique_composites(composites)
