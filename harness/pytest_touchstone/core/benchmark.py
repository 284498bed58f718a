"""``@benchmark``: declares a generator test as a benchmark.

    @benchmark("gsm8k", version=1, asks=Generate, primary="right", shots=Shots(5, lambda row: Shot(...)),
               data=Dataset("openai/gsm8k", "main", split="test", fewshot="train"))
    def test_gsm8k(example: Row, fewshot: FewShot) -> Scores:
        '''GSM8K (Cobbe et al. 2021), ...'''
        answer = yield fewshot.generate(prompt(example), stop=("Question:",), max_new_tokens=256)
        return {"right": ...}

The function is a generator: it yields one request or a list of them, is sent the answer or the list of answers, and
may yield again. It returns its scores: a dict of finite numbers, or a grade that also has the number of generated
texts without an answer (``core.grade``). Generator tests are refused by pytest, so the decorator hides it in
a plain function. Argument names stay readable through ``__wrapped__``, so fixtures and parametrize work.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

import pytest

from pytest_touchstone.core.aggregation import Aggregation
from pytest_touchstone.core.errors import BenchmarkError
from pytest_touchstone.core.few_shot import Shot
from pytest_touchstone.core.grade import PASSED, Grader
from pytest_touchstone.core.requests import REQUEST_KINDS, Judge, Request
from pytest_touchstone.core.text import did_you_mean

ATTRIBUTE: Final = "__touchstone_benchmark__"

CHECKPOINT_FIXTURE: Final = "touchstone_checkpoint"
"""The parameter with an item's checkpoint, which the fixtures ``checkpoint`` and ``model_engine`` pass on."""

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

_TAG: Final = re.compile(r"[A-Za-z0-9_]+(-[A-Za-z0-9_]+)*")

MOST_UNUSABLE: Final = 0.1
"""The largest share of outputs without an answer, or ending at the limit, with which a result is valid."""


Rows: TypeAlias = Sequence[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]
"""Rows, or a function that returns them."""


LIST_OF_DICTS: Final = (
    "rows=[...], a list of dicts: list(...) of a generator, table.to_dict('records') of a DataFrame"
)


@dataclass(frozen=True, slots=True)
class Dataset:
    """The source of a benchmark's rows.

    On the Hub (``--eval-data hub``) they are ``datasets.load_dataset(path, config, split=split)``; without ``path``
    they are not there. ``config`` may be a tuple of several, whose rows follow each other; each is then a file
    (``group="file"``), as in a folder. ``files`` are files of JSON lines in the repository, for a set with a script,
    which ``datasets`` does not run. In a folder of data they are ``local``, as ``NAME/FILE`` (or ``NAME/FOLDER``,
    one file per group); without it, ``NAME`` is the last part of ``path`` and ``FILE`` the split. A ``local`` that ends
    in ``.jsonl`` is a file beside the benchmark's module, one that ends in ``/`` a folder of such files. ``rows`` are
    rows themselves, or a function that returns them. All these belong to the benchmark and are used whatever the data.
    ``fewshot`` is where few-shot examples come from: another split (in a folder, another file of NAME), or another
    dataset.
    """

    path: str | None = None
    config: str | tuple[str, ...] | None = None
    _: KW_ONLY
    split: str = "test"
    fewshot: str | Dataset | None = None
    local: str | None = None
    rows: Rows | None = None
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.path is not None and self.path.endswith(".jsonl"):
            raise BenchmarkError(f"Dataset({self.path!r}): a file is local={self.path!r}")
        if self.path is None and self.local is None and self.rows is None:
            raise BenchmarkError(
                "Dataset: give the dataset's path on the Hub, local='NAME/FILE', or rows=[...]"
            )
        rows = isinstance(self.rows, Sequence) and not isinstance(self.rows, str)
        if self.rows is not None and not (rows or callable(self.rows)):
            raise BenchmarkError(f"rows of type {type(self.rows).__name__}: write {LIST_OF_DICTS}")

    @property
    def name(self) -> str:
        """``NAME/FILE``, the file's name, or empty for rows."""
        if self.local is not None or self.path is None:
            return self.local or ""
        return f"{self.path.rpartition('/')[2]}/{self.split}"

    @property
    def on_hub(self) -> dict[str, str]:
        """Its ``path``, ``split`` and single ``config`` on the Hub; empty where it is not there."""
        if self.path is None or self.rows is not None:
            return {}
        config = {"config": self.config} if isinstance(self.config, str) else {}
        return {"path": self.path, **config, "split": self.split}

    @property
    def shots(self) -> Dataset | None:
        """The dataset of few-shot examples, None where they come from the rows themselves."""
        if not isinstance(self.fewshot, str):
            return self.fewshot
        folder, slash, _ = self.name.rpartition("/")
        local = folder + slash + self.fewshot
        return Dataset(self.path, self.config, split=self.fewshot, local=local)


@dataclass(frozen=True, slots=True)
class LmEval:
    """The task of lm-evaluation-harness whose few-shot examples ``--eval-set fewshot=lm-eval`` draws.

    They come from ``data.fewshot``, or from the evaluation rows where the task has no other split. ``rows`` is the
    number of rows in the published split, so that a draw from fewer says so. ``drops_own`` says that the task's fewshot
    split is its test split, or that it names neither: then one more is drawn, and the row itself is dropped.
    """

    rows: int | None = None
    drops_own: bool = False


ShotPick: TypeAlias = Callable[[Sequence[Any], int, Any, Random], Sequence[Any]]
"""A function that is called with the rows that few-shot examples may come from, how many are wanted, the row that they
are for, and a generator of random numbers that is the row's own. It returns that many of these rows, in order."""


@dataclass(frozen=True, slots=True)
class Shots:
    """The few-shot examples of a benchmark: their number, and the ``shot`` function that formats a row.

    They come from ``data.fewshot`` (same group as the example, or any with ``for_all``; a row without
    a group serves all) or, without it, from the
    evaluation rows themselves, never the example itself. ``pick`` is "first" (file order), "sample" (seeded, one draw
    for all examples), "lm-eval" (the rows have them already) or a function of one's own. With ``fixed`` they are the
    prompt itself (a paper's), and come with the benchmark whatever the data. ``lm_eval`` says how another harness
    draws them.
    """

    count: int = 0
    shot: Callable[[Any], str | Shot] | None = None
    _: KW_ONLY
    pick: Literal["first", "sample", "lm-eval"] | ShotPick = "sample"
    for_all: bool = False
    fixed: bool = False
    lm_eval: LmEval | None = None

    @property
    def picked(self) -> str:
        """How they are picked, in a word."""
        return self.pick if isinstance(self.pick, str) else getattr(self.pick, "__name__", "own")


@dataclass(frozen=True, slots=True)
class Published:
    """The published size, paper and source of a benchmark.

    Results over fewer rows say so.

    ``rows`` is the number of rows of the published set (one number, or one per group), ``paper`` and ``source`` where
    it is described. ``own_rows`` describes the shipped rows where none of them was published.
    """

    rows: int | Mapping[str, int] | None = None
    _: KW_ONLY
    paper: str = ""
    source: str = ""
    own_rows: str = ""

    @property
    def places(self) -> str:
        """Paper and source in one text."""
        return "; ".join(filter(None, (self.paper, self.source)))


class FinalAnswer(NamedTuple):
    """The end of a published solution.

    ``before`` is the text that leads to the answer, ``right`` the answer, and ``wrong`` are answers in its place.
    """

    before: str
    right: str
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """The published solution of a row.

    Its likelihood scores a generative benchmark without generating (``metrics.solutions``).

    ``text`` is the solution, ``between`` what stands between the prompt and it. ``final`` finds its end in a row as it
    is in the file; None for a row that has none to set wrong ones against.
    """

    text: Callable[[Any], str]
    _: KW_ONLY
    between: str = " "
    final: Callable[[Any], FinalAnswer | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """The rules that turn the rows of a dataset into those of a benchmark.

    ``keep`` selects the rows that belong to the benchmark; ``prepare`` brings other forms of a row into the one that
    ``row`` describes. Of more than ``most_rows`` rows that number is drawn with the run's seed. Rows with the field
    ``own_prompt`` bring the whole prompt, and there are no few-shot examples then. ``cluster`` is the field of what
    items share (a text), for honest intervals. ``missing`` says what to do where there are no rows.
    """

    keep: Callable[[dict[str, Any]], bool] | None = None
    prepare: Callable[[dict[str, Any]], Any] | None = None
    most_rows: int | None = None
    own_prompt: str | None = None
    cluster: str | None = None
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkCode:
    """The code of a benchmark: its ``rule`` for readers, the ``folder`` of its module, and its packages.

    ``needs`` maps packages that its scorer imports to how they are installed. ``form_of`` is the function of the
    benchmark that this one is a form of, None for others. ``digest`` is a hash of everything else that determines
    prompts and scores.
    """

    rule: str = ""
    folder: Path = Path()
    needs: Mapping[str, str] = field(default_factory=dict)
    form_of: Callable[..., Any] | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """The declaration of a benchmark.

    ``data`` says where its rows come from, a text stands for ``Dataset(local=...)``; ``row`` is a TypedDict that
    every row is checked against (of ``typing_extensions`` below Python 3.12); ``asks`` the kinds of request it
    yields; ``group`` the row's field that splits the results (``file``: the name of the file, which is a
    field of each row then); ``subsets`` the field that splits the results where its rows have several values of it
    (the sources of a set), without a place in the items' ids. ``tags`` are words by which
    benchmarks are chosen together, beside those that follow from ``asks`` (``core.tasks``). ``metrics`` names
    the scores that the function may return, so that a gate's metrics are checked before it runs, not after it.
    ``shots`` are its few-shot examples. ``aggregate`` adds metrics, or
    replaces the mean of the score with the same name. ``published`` says what was published of it. ``most_unusable``
    is the share of generated texts that may have no answer in them, or end at the limit of tokens, before the result
    counts as not valid. ``temperature`` is that of ``p_right`` (``metrics.soft``), None for the usual one of its
    primary score. ``grader`` has its programs run and judged. ``solution`` is the published
    answer to a row, by which the benchmark has forms that generate nothing. ``judge`` are the questions that it asks
    the judge of the run, without texts.
    """

    name: str
    version: int
    data: Dataset
    asks: tuple[type[Request], ...]
    primary: str
    metrics: tuple[str, ...] = ()
    row: Any = None
    shots: Shots = Shots()
    published: Published = Published()
    group: str | None = None
    subsets: str | None = None
    tags: tuple[str, ...] = ()
    aggregate: Mapping[str, Aggregation] = field(default_factory=dict)
    most_unusable: float = MOST_UNUSABLE
    temperature: float | None = None
    grader: Grader | None = None
    solution: Solution | None = None
    judge: tuple[Judge, ...] = ()
    row_rules: RowRules = RowRules()
    code: BenchmarkCode = field(default_factory=BenchmarkCode)

    @property
    def base(self) -> Benchmark:
        """The benchmark that this is a form of, whose few-shot examples it shares; otherwise itself."""
        return declaration_of(self.code.form_of) or self

    @property
    def primary_score(self) -> str:
        """The item score from which the primary metric is computed."""
        made = self.aggregate.get(self.primary)
        return self.primary if made is None else made.score

    def letter_score(self, scores: Mapping[str, float]) -> float | None:
        """Return the score that an item's letter shows, 1 for right.

        It is None where a lower score is better.
        """
        made = self.aggregate.get(self.primary)
        better = made is None or made.higher_score_is_better
        return scores.get(self.primary_score) if better else None


GROUPED: Final = {
    "shots=Shots(5, shot=..., pick=...)": ("num_fewshot", "fewshot", "shot", "pick", "lm_eval"),
    "published=Published(1319, paper=..., source=...)": ("paper", "source", "published_rows", "own_rows"),
}
"""What stands in a group, under the names by which one may look for it."""

OPTIONAL: Final = frozenset(
    declared_field.name
    for declared_field in fields(Benchmark)
    if declared_field.default is not MISSING or declared_field.default_factory is not MISSING
)
"""The fields of a benchmark that a declaration may leave out."""

EXAMPLES: Final = {"name": '"NAME"', "version": "version=1", "asks": "asks=Loglikelihood"}
"""The arguments that every declaration has, as one writes them."""


def _require_arguments(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Raise ``BenchmarkError``, not ``TypeError``, for missing or unknown arguments.

    The message shows what to write.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: _Given.args, **more: _Given.kwargs) -> _Made:
        if unknown := sorted(more.keys() - signature.parameters):
            group = next((text for text, fields in GROUPED.items() if unknown[0] in fields), "")
            near = f"write {group}" if group else did_you_mean(unknown[0], signature.parameters)
            where = f"benchmark {args[0]!r}" if args else "@benchmark"
            raise BenchmarkError(f"{where}: unknown field {unknown[0]!r}; {near}".rstrip("; "))
        try:
            arguments = signature.bind_partial(*args, **more).arguments
        except TypeError as error:
            raise BenchmarkError(f"@benchmark: {error}") from None
        if callable(arguments.get("name")):
            raise BenchmarkError(
                f"@benchmark without arguments; write @benchmark({', '.join(EXAMPLES.values())})"
            )
        if lacking := [text for name, text in EXAMPLES.items() if name not in arguments]:
            where = f"benchmark {arguments['name']!r}" if "name" in arguments else "@benchmark"
            names = ", ".join(text.partition("=")[0] for text in lacking)
            raise BenchmarkError(f"{where}: no {names}; write {', '.join(lacking)}")
        return function(*args, **more)

    return checked


@_require_arguments
def benchmark(
    name: str,
    *,
    version: int,
    asks: type[Request] | Iterable[type[Request]],
    primary: str = PASSED,
    data: Dataset | Path | str | None = None,
    rows: Rows | None = None,
    metrics: tuple[str, ...] = (),
    row: Any = None,
    shots: Shots = Shots(),
    published: Published = Published(),
    group: str | None = None,
    subsets: str | None = None,
    tags: tuple[str, ...] = (),
    cluster: str | None = None,
    aggregate: Mapping[str, Aggregation] = MappingProxyType({}),
    keep: Callable[[dict[str, Any]], bool] | None = None,
    prepare: Callable[[dict[str, Any]], Any] | None = None,
    own_prompt: str | None = None,
    missing: str = "",
    most_rows: int | None = None,
    needs: Mapping[str, str] = MappingProxyType({}),
    most_unusable: float = MOST_UNUSABLE,
    temperature: float | None = None,
    grader: Grader | None = None,
    solution: Solution | None = None,
    judge: Any = (),
    rule: str = "",
    folder: Path | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the decorated generator function as a benchmark; the arguments are the fields of ``Benchmark``.

    ``rows=[...]`` stands for ``data=Dataset(rows=[...])``; a path is that of a file or folder of rows. Without
    ``primary`` the function asserts.

    Raises ``BenchmarkError`` when a field is unknown or wrong.
    """
    given = locals()
    more = {name: value for name, value in given.items() if name in OPTIONAL}
    more["row_rules"] = RowRules(**{rule.name: given[rule.name] for rule in fields(RowRules)})
    several = isinstance(asks, Iterable) and not isinstance(asks, (str, type))
    kinds: tuple[Any, ...] = tuple(cast(Iterable[Any], asks)) if several else (asks,)
    _check(name, kinds, primary, more)
    if rows is not None and data is not None:
        raise BenchmarkError(f"benchmark {name!r}: data and rows: give one of them")
    dataset = _dataset(name, data if rows is None else Dataset(rows=rows))
    more |= {"judge": _check_questions(name, kinds, judge), "aggregate": dict(aggregate)}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        written = getattr(inspect.unwrap(function), "__code__", None)
        module_folder = Path() if written is None else Path(written.co_filename).absolute().parent
        code = BenchmarkCode(
            rule=rule or inspect.getdoc(function) or "", folder=folder or module_folder, needs=dict(needs)
        )
        spec = Benchmark(
            name=name, version=version, data=dataset, asks=kinds, primary=primary, code=code, **more
        )
        return declare(function, spec)

    return decorate


def declare(function: Callable[..., Any], spec: Benchmark) -> Callable[..., Any]:
    """Hide a generator function in a plain function that carries the declaration ``spec``.

    Pytest refuses generator tests.
    """

    @functools.wraps(function)
    def run_without_plugin(*_: object, **__: object) -> None:
        raise BenchmarkError(
            f"{function.__name__} is a benchmark: only pytest with the harness plugin can run it "
            "(install pytest-touchstone, and do not disable the plugin with -p no:pytest_touchstone.plugin)"
        )

    setattr(run_without_plugin, ATTRIBUTE, spec)
    marked: Callable[..., Any] = pytest.mark.usefixtures(CHECKPOINT_FIXTURE)(run_without_plugin)
    return marked


def _check(name: str, kinds: Iterable[object], primary: str, more: Mapping[str, Any]) -> None:
    """Raise ``BenchmarkError`` for an invalid field of a declaration."""
    where = f"benchmark {name!r}"
    for kind in kinds:
        if kind not in REQUEST_KINDS:
            kind_names = ", ".join(k.__name__ for k in REQUEST_KINDS)
            raise BenchmarkError(f"{where}: asks={kind!r} is no kind of request; use {kind_names}")
    if "/" in name or "[" in name or not name:
        raise BenchmarkError(f"benchmark name {name!r}: use letters, digits, '_' and '-'")
    for group, kind in (("shots", Shots), ("published", Published)):
        if not isinstance(given := more[group], kind):
            raise BenchmarkError(f"{where}: {group}={given!r}; write {group}={kind.__name__}(...)")
    temperature = more["temperature"]
    numeric = isinstance(temperature, int | float) and 0 < temperature < float("inf")
    if temperature is not None and not numeric:
        raise BenchmarkError(f"{where}: temperature={temperature!r}; give a number above 0")
    metrics = more["metrics"]
    if isinstance(metrics, str) or not all(isinstance(metric, str) for metric in metrics):
        raise BenchmarkError(f"{where}: metrics={metrics!r}; give the names of its scores in a tuple")
    tags = more["tags"]
    if isinstance(tags, str) or not all(isinstance(tag, str) and _TAG.fullmatch(tag) for tag in tags):
        raise BenchmarkError(f"{where}: tags={tags!r}; give words of letters, digits, '_' and '-' in a tuple")
    if metrics and primary not in (*metrics, *more["aggregate"]):
        raise BenchmarkError(
            f"{where}: its primary score {primary!r} is not among its metrics: {', '.join(metrics)}"
        )
    for aggregation in more["aggregate"].values():
        aggregation.plain()  # raises for a function that could not be found again
    if more.get("subsets") and more.get("group"):
        raise BenchmarkError(f"{where}: group and subsets: give one of them")


def _check_questions(name: str, kinds: Iterable[object], judge: object) -> tuple[Judge, ...]:
    """Check the questions to the judge, and return them as a tuple.

    They are conditions of the result, so they are declared.
    """
    questions = judge if isinstance(judge, tuple) else (judge,)
    if not all(isinstance(question, Judge) and not question.texts for question in questions):
        raise BenchmarkError(
            f"benchmark {name!r}: judge={judge!r}; give Judge(PROMPT, choices=...), without texts"
        )
    if bool(questions) != (Judge in kinds):
        lacking = "judge=Judge(PROMPT, choices=...)" if Judge in kinds else "Judge in asks"
        raise BenchmarkError(f"benchmark {name!r}: asks a judge, and has no {lacking}; add it")
    return questions


def _dataset(name: str, data: object) -> Dataset:
    if data is None:
        raise BenchmarkError(
            f"benchmark {name!r}: no rows; give data='NAME/FILE', data=Dataset(...) or rows=[...]"
        )
    if isinstance(data, Dataset):
        return data
    if not isinstance(data, Path | str):
        what = f"data is of type {type(data).__name__}, no path or Dataset"
        raise BenchmarkError(f"benchmark {name!r}: {what}; write {LIST_OF_DICTS}")
    return Dataset(local=f"{data}/" if isinstance(data, Path) and data.is_dir() else str(data))


def declaration_of(function: object) -> Benchmark | None:
    """Return the declaration of a decorated function, None for any other object."""
    spec = getattr(function, ATTRIBUTE, None)
    return spec if isinstance(spec, Benchmark) else None


def generator_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function below the decorator."""
    while (inner := getattr(function, "__wrapped__", None)) is not None:  # inspect.unwrap, ten times as fast
        function = inner
    return function
