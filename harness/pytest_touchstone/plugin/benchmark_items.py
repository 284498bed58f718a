"""Items of benchmarks that cost little while they wait, and when they have run: a run may have a million of them.

pytest makes one item for all rows of a function, a checkpoint and other parameters. Its siblings have the same
fixtures, marks and keywords, and differ in their rows. So each of them knows its example and what it shares, and makes
what pytest and plugins look at when they do: its name, its keywords, its ``callspec``. What can be changed is then kept
by the item. ``rest`` lets go of it again where nobody has changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from _pytest.python import _ascii_escaped_by_config  # private: ids as pytest writes them
from _pytest.skipping import xfailed_key  # private, as the next: what pytest leaves on an item that has run
from _pytest.tmpdir import tmppath_result_key

if TYPE_CHECKING:
    from pytest_touchstone.core.dataset import Example

EXAMPLE: Final = "example"
"""The parameter by which siblings differ."""

NODE_ID: Final = "_id" if hasattr(pytest.Item, "_id") else "_nodeid"
"""The attribute in which pytest keeps an item's node id; private, since the public one cannot be set."""

LEFT: Final = (xfailed_key, tmppath_result_key)
"""The notes that pytest leaves on each item, which nobody needs after its run."""


class RowsParameter:
    """The parameter ``example`` of the item that pytest makes for all rows.

    ``given`` makes the parameter of an example's own item. ``direct`` are the parameters whose index is the number of
    the item.
    """

    def __init__(self, examples: Sequence[Example], given: Callable[[Example], Any]) -> None:
        self.examples = examples
        self.given = given
        self.direct: Sequence[str] = ()

    def parametrize(self, metafunc: pytest.Metafunc, names: Sequence[str]) -> None:
        """Let pytest make a single item of all rows; the other names are arguments that have no values here."""
        values = tuple(self if name == EXAMPLE else None for name in names)
        metafunc.parametrize(names, [values], ids=[self.examples[0].id])
        # Private: nothing public tells it.
        self.direct = [name for name, kind in metafunc._params_directness.items() if kind == "direct"]


def _escaped(name: str, config: pytest.Config) -> str:
    """Return an example's id as node ids have it."""
    if name.isascii() and name.isprintable() and "\\" not in name:
        return name
    return _ascii_escaped_by_config(name, config)


class Siblings:
    """The common part of the items of a function, a checkpoint and other parameters.

    ``template`` is the item that pytest has made for all of them, ``first`` the number of the first.
    """

    def __init__(self, template: pytest.Function, rows: RowsParameter, first: int) -> None:
        callspec = template.callspec
        self.template: Any = template
        self.given = rows.given
        self.first = first
        self.direct = rows.direct
        self.own_arguments: Sequence[str] = ()
        self.result: str | None = None
        ids = list(callspec._idlist)
        first_id = _escaped(rows.examples[0].id, template.config)
        place = len(ids) - 1 - ids[::-1].index(first_id)  # the last parameter, unless a plugin comes later
        self._ids = ids[:place], ids[place + 1 :]
        self._before = "".join(f"{one}-" for one in self._ids[0])
        self._after = "".join(f"-{one}" for one in self._ids[1])
        self.node = template.nodeid.removesuffix(f"[{callspec.id}]")
        path, line, domain = template.location
        self.location = path, line, domain.removesuffix(template.name)
        known = (template.name, callspec.id)
        own: Any = template.keywords
        # Private: the public mapping has the parents' own too.
        self.keywords = {name: value for name, value in own._markers.items() if name not in known}

    def id_of(self, example: Example) -> str:
        """Return the parameters of an example's item as node ids have them."""
        return f"{self._before}{_escaped(example.id, self.template.config)}{self._after}"

    def params(self, example: Example) -> dict[str, Any]:
        """Return the values of an example's parameters."""
        return {**self.template.callspec.params, EXAMPLE: self.given(example)}

    def callspec(self, number: int, example: Example) -> Any:
        """Return the parameters of an item as pytest has them."""
        callspec, (before, after) = self.template.callspec, self._ids
        return type(callspec)(
            params=self.params(example),
            indices=callspec.indices | dict.fromkeys(self.direct, self.first + number),
            _arg2scope=callspec._arg2scope,
            _idlist=[*before, _escaped(example.id, self.template.config), *after],
            marks=list(callspec.marks),
        )


class BenchmarkItem(pytest.Function):
    """An item of a benchmark for one example; ``number`` counts its siblings, ``made_id`` is the node id that pytest
    would give it."""

    __slots__ = ("example", "made_id", "number", "siblings")

    example: Example
    made_id: str
    number: int
    siblings: Siblings

    @classmethod
    def of(cls, siblings: Siblings, number: int, example: Example) -> BenchmarkItem:
        """Return the item of an example, which pytest's constructor does not make."""
        item: BenchmarkItem = cls.__new__(cls)
        template = siblings.template
        item.config, item.session = template.config, template.session
        item.parent, item.path = template.parent, template.path
        item.siblings, item.number, item.example = siblings, number, example
        item.made_id = f"{siblings.node}[{siblings.id_of(example)}]"
        return item

    def __getattr__(self, name: str) -> Any:
        make = MADE.get(name)
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return make(self)

    @property
    def given(self) -> Any:
        """The parameter ``example``."""
        return self.siblings.given(self.example)

    @property
    def nodeid(self) -> str:
        """The node id, as pytest writes it, or as another plugin has set it."""
        made = self.made_id
        try:
            found = str(object.__getattribute__(self, NODE_ID))
        except AttributeError:
            return made
        return made if found == made else found

    def _initrequest(self) -> None:
        super()._initrequest()
        if self.siblings.own_arguments:
            own = vars(self).get("callspec")  # as somebody has changed it
            params = own.params if own is not None else self.siblings.params(self.example)
            self.funcargs.update((name, params[name]) for name in self.siblings.own_arguments)

    def rest(self, *, ran: bool = False) -> None:
        """Let go of what can be made again; of an item that ``ran`` also of what its reports have."""
        own = vars(self)
        left = {name: value for name, value in own.items() if not self._as_made(name, value, ran=ran)}
        kept = self.nodeid != self.made_id
        for name in (*(() if kept else (NODE_ID,)), *(() if "stash" in left else ("_store",))):
            with suppress(AttributeError):
                delattr(self, name)
        if left:
            self.__dict__ = left
        else:
            del self.__dict__

    def _as_made(self, name: str, value: Any, *, ran: bool) -> bool:
        """Return whether an attribute is as it would be made again, or is needed no more."""
        template = self.siblings.template
        if name == "keywords":
            return bool(value._markers == _keywords(self)._markers)
        if name == "own_markers":
            return bool(value == template.own_markers)
        if name == "stash":
            return len(value) == sum(key in value for key in LEFT)
        if name == "callspec":
            return bool(value == _callspec(self))
        return (ran and name in RUN) or (name in EMPTY and not value)


class _Location:
    """The attribute ``location``: made each time, unless somebody has set another."""

    def __get__(self, item: BenchmarkItem | None, kind: object = None) -> Any:
        if item is None:
            return self
        path, line, domain = item.siblings.location
        return path, line, f"{domain}{item.name}"


BenchmarkItem.location = _Location()  # type: ignore[assignment]


# What is made on demand


def _callspec(item: BenchmarkItem) -> Any:
    return item.siblings.callspec(item.number, item.example)


def _keywords(item: BenchmarkItem) -> Any:
    found = type(item.siblings.template.keywords)(item)
    found.update(item.siblings.keywords)
    found[item.siblings.id_of(item.example)] = True
    return found


def _node_id(item: BenchmarkItem) -> Any:
    assert item.parent is not None
    found: Any = item.parent.id.child(item.originalname)
    return found.with_params(item.siblings.id_of(item.example))


def _store(item: BenchmarkItem) -> pytest.Stash:
    item._store = item.stash
    return item.stash


def _requested(name: str) -> Callable[[BenchmarkItem], Any]:
    def make(item: BenchmarkItem) -> Any:
        item._initrequest()
        return vars(item)[name]

    return make


def _object(item: BenchmarkItem) -> Any:
    if not isinstance(item.parent, pytest.Module):
        raise AttributeError("_obj")  # a method has an instance of its own
    return item.siblings.template.obj


def _kept(name: str, make: Callable[[BenchmarkItem], Any]) -> Callable[[BenchmarkItem], Any]:
    def keep(item: BenchmarkItem) -> Any:
        value = make(item)
        setattr(item, name, value)
        return value

    return keep


def _shared(name: str) -> Callable[[BenchmarkItem], Any]:
    return lambda item: getattr(item.siblings.template, name)


MADE: Final[dict[str, Callable[[BenchmarkItem], Any]]] = {
    "name": lambda item: f"{item.siblings.template.originalname}[{item.siblings.id_of(item.example)}]",
    **{name: _shared(name) for name in ("originalname", "fixturenames", "_fixtureinfo")},
    "_obj": _object,
    "_nodeid": lambda item: item.made_id,
    "_store": _store,
    "funcargs": _requested("funcargs"),
    "_request": _requested("_request"),
    "_id": _kept("_id", _node_id),
    "callspec": _kept("callspec", _callspec),
    "keywords": _kept("keywords", _keywords),
    "own_markers": _kept("own_markers", lambda item: list(item.siblings.template.own_markers)),
    "extra_keyword_matches": _kept("extra_keyword_matches", lambda _: set()),
    "stash": _kept("stash", lambda _: pytest.Stash()),
    "user_properties": _kept("user_properties", lambda _: []),
    "_report_sections": _kept("_report_sections", lambda _: []),
}
"""The attributes that an item does not have until they are looked at."""

EMPTY: Final = frozenset({"extra_keyword_matches", "user_properties", "_report_sections"})
"""Attributes that are let go of where they are empty."""

RUN: Final = frozenset({"user_properties", "_report_sections", "funcargs", "_request", "_obj", "_instance"})
"""Attributes that nobody needs when the item has run: reports have what is in them."""


# From pytest's items


def one_per_row(found: object) -> Any:
    """Return what pytest has made of a function, with an item of its own for each row."""
    if not isinstance(found, list):
        return found
    items: list[Any] = []
    for template in found:
        rows = rows_of(template)
        items += [template] if rows is None else _of_rows(template, rows, len(items))
    return items


def rows_of(item: object) -> RowsParameter | None:
    """Return the rows of an item that pytest has made for all of them, None for any other item."""
    callspec = getattr(item, "callspec", None)
    rows = callspec.params.get(EXAMPLE) if callspec is not None else None
    return rows if isinstance(rows, RowsParameter) else None


def _of_rows(template: pytest.Function, rows: RowsParameter, first: int) -> Iterable[pytest.Function]:
    siblings = Siblings(template, rows, first)
    numbered = enumerate(rows.examples)
    if type(template) is pytest.Function:
        return (BenchmarkItem.of(siblings, number, example) for number, example in numbered)
    return (_like(template, siblings, number, example) for number, example in numbered)


def _like(template: Any, siblings: Siblings, number: int, example: Example) -> pytest.Function:
    """Return the item of an example, of the kind that another plugin has made."""
    callspec = siblings.callspec(number, example)
    return type(template).from_parent(  # type: ignore[no-any-return]
        template.parent,
        name=f"{template.originalname}[{callspec.id}]",
        callspec=callspec,
        fixtureinfo=template._fixtureinfo,
        keywords={callspec.id: True},
        originalname=template.originalname,
    )


class LightItems:
    """Hooks of a process that runs items: pytest keeps each of them, and its three reports, to the end of the session.

    So an item lets go of what can be made again, and its reports share what is alike.
    """

    def __init__(self) -> None:
        self._item: BenchmarkItem | None = None
        self._first: pytest.TestReport | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if not isinstance(item, BenchmarkItem):
            return (yield)
        self._item = item
        try:
            return (yield)
        finally:
            self._item = self._first = None
            item.rest(ran=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._item is None:
            return
        if self._first is None:
            self._first = report
        for name in ("keywords", "location"):
            if getattr(report, name) == (known := getattr(self._first, name)):
                setattr(report, name, known)
