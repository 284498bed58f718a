"""The pytest plugin: the part that a session without a benchmark sees.

Everything is imported inside the hooks, and only when needed. The rest of the package is imported when the first
benchmark is collected, or an ordinary test asks for ``checkpoint`` or ``model_engine``. From then on
``plugin.session`` and ``plugin.controller`` have the hooks of the run.

PYTEST_DONT_REWRITE: no assert in here needs rewriting, and start-up time counts.
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
import time
import tomllib
from collections.abc import Generator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from pytest_touchstone import UNSUPPORTED

if TYPE_CHECKING:
    from pytest_touchstone.checkpoints import CheckpointInfo
    from pytest_touchstone.engines.base import Engine
    from pytest_touchstone.plugin.controller import Controller
    from pytest_touchstone.plugin.session import EvalSession

TABLE: Final = Path(__file__).parents[1] / "core" / "settings.toml"
ACTIONS: Final = {"value": "store", "append": "append", "switch": "store_true"}
PROJECT_FILE: Final = "pyproject.toml"
SHIPPED: Final = {Path(__file__).resolve().parents[level] / "evals" for level in (1, 3)}
"""The folders of the shipped benchmarks, in a wheel and in a checkout."""
LM_EVAL_FILE: Final = "test_lm_eval.py"
"""The shipped file whose benchmarks are tasks of lm-evaluation-harness."""
NO_CHECKPOINT: Final = "no checkpoint; give --checkpoint PATH"
STOPPED_EARLY: Final = "stopped before anything was asked"
OURS_ALONE: Final = "pytest_touchstone.plugin.default_files"
"""The plugin that ``touchstone run`` starts pytest with."""
MEETING: Final = pytest.StashKey[dict[str, Any]]()
SESSION: Final = pytest.StashKey["EvalSession"]()


# Options: the long names are ours. Another plugin may have the short ones too: they are added when
# all plugins and the first conftests have been loaded.


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the options of the table; argparse takes every value as text."""
    for name, row in _options().items():
        _add_option(parser, _long(name), name, argparse.SUPPRESS if "short" in row else row["help"])
    text = "any key of [tool.touchstone], such as top_p=0.9 (docs/options.md); may be given several times"
    _group(parser).addoption("--eval-set", dest="eval_set", help=text, action="append", metavar="KEY=VALUE")
    if any(name.endswith("conftest.py") for name, _ in pluginmanager.list_name_plugin()):
        _add_short_names(parser)  # this plugin is loaded by a conftest, later than the next hook


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Keep the values of names that are added only later from being taken for paths of tests."""
    long = {row["short"]: _long(name) for name, row in _options().items() if "short" in row}
    if any(arg.partition("=")[0] in long for arg in args):
        renamed = [arg if "=" in arg else long.get(arg, arg) for arg in args]
        namespace = parser.parse_known_args(renamed, namespace=copy.copy(early_config.option))
        namespace.confcutdir = early_config.known_args_namespace.confcutdir
        early_config.known_args_namespace = namespace
    result = yield
    _add_short_names(parser)
    if not any(arg.startswith("--") for arg in args):
        return result
    ours_alone = early_config.pluginmanager.has_plugin(OURS_ALONE)
    message = None
    try:
        _, unknown = parser.parse_known_and_unknown_args(args, namespace=copy.copy(early_config.option))
        if any(arg.startswith("--") for arg in unknown):
            from pytest_touchstone.plugin.options import unknown_option_message

            # An unknown option that is meant for us; pytest refuses others itself.
            if (message := unknown_option_message(unknown, args, ours_alone=ours_alone)) is not None:
                raise pytest.UsageError(message)
    except pytest.UsageError as error:
        # A mistake in the options of somebody else's tests is pytest's to tell.
        if message or ours_alone or _given(early_config.known_args_namespace):
            from pytest_touchstone.plugin.reporters import tell_failure

            markdown = markdown_given(early_config.known_args_namespace)
            tell_failure(
                early_config.invocation_params.dir, markdown, pytest.ExitCode.USAGE_ERROR, str(error)
            )
        raise
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | None, int | None]:
    """Tell jobs of continuous integration of a run of benchmarks that ends without results, whatever its exit code."""
    message = ""
    code: int | None = pytest.ExitCode.INTERNAL_ERROR
    try:
        code = yield
        return code
    except pytest.UsageError as error:
        code, message = pytest.ExitCode.USAGE_ERROR, str(error)
        raise
    finally:
        session: Any = config.stash.get(SESSION, None)
        if code and session is not None and not (session.worker or session.only_plans):
            session.tell_failure(int(code), message)


@functools.cache
def _options() -> dict[str, dict[str, Any]]:
    """Return the rows of the table that are options, by name."""
    sections = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {
        name: {**row, "help": " ".join(row["help"].split())}
        for section in sections.values()
        for name, row in section.items()
        if row.get("option", True) and not row.get("key")
    }


def markdown_given(options: argparse.Namespace) -> str | None:
    """Return the file that ``--eval-set markdown=FILE`` names, before settings are read."""
    given = (word.partition("=") for word in options.eval_set or ())
    return next((file for key, _, file in given if key == "markdown"), None)


def _group(parser: pytest.Parser) -> pytest.OptionGroup:
    return parser.getgroup("touchstone", "benchmarks of language models")


def _add_option(parser: pytest.Parser, flag: str, name: str, text: str) -> None:
    row = _options()[name]
    kind = {"metavar": row["metavar"]} if "metavar" in row else {}
    action = ACTIONS[row.get("action", "value")]
    _group(parser).addoption(flag, dest=f"eval_{name}", help=text, action=action, default=None, **kind)


def _long(name: str) -> str:
    return f"--eval-{name.replace('_', '-')}"


def _add_short_names(parser: pytest.Parser) -> None:
    """Add the short option names that no other plugin has; ``--help`` names those that are taken."""
    options = {option.dest: option for option in _group(parser).options}
    for name, row in _options().items():
        if (short := row.get("short")) is None:
            continue
        try:
            _add_option(parser, short, name, row["help"])
        except (ValueError, argparse.ArgumentError):
            options[f"eval_{name}"].attrs()["help"] = f"{row['help']} ({short} is another plugin's here)"


# Waking up


def _session(config: pytest.Config) -> EvalSession:
    """Return the session of this process; the first call makes it, with the hooks that go with it."""
    if SESSION in config.stash:
        return config.stash[SESSION]
    if UNSUPPORTED:  # a system that benchmarks do not run on
        raise pytest.UsageError(UNSUPPORTED)
    session: EvalSession
    if hasattr(config, "workerinput"):
        from pytest_touchstone.plugin.session import WorkerSession

        session = WorkerSession(config, config.workerinput.get("touchstone", {}))
    else:
        from pytest_touchstone.plugin.controller import Controller

        worker_input: dict[str, Any] = config.stash.get(MEETING, {})
        session = Controller(config, worker_input)
    config.pluginmanager.register(session)
    config.stash[SESSION] = session
    return session


def _given(options: argparse.Namespace, word: str = "") -> bool:
    """Return whether an option of ours whose name contains the word was given on the command line.

    The environment counts once there is a benchmark: it may be set for other sessions than this one.
    """
    return any(value and name.startswith("eval_") and word in name for name, value in vars(options).items())


def _set(word: str = "") -> bool:
    """Return whether the environment has an option of ours whose name contains the word.

    ``TOUCHSTONE_DATA`` does not count: it is set for a whole machine, and every process reads it for itself.
    """
    return any(
        os.environ.get(f"TOUCHSTONE_{name.upper()}") for name in _options() if name != "data" and word in name
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Register our fixtures, except for names that exist already, and our hooks if they are implemented.

    Ctrl-C while benchmarks are collected is one line in place of a line of a user's code.
    """
    # Private: nothing public tells whether a fixture has a name.
    fixtures_named = session._fixturemanager.getfixturedefs
    for function in (checkpoint, model_engine):
        name = function.__name__
        if not fixtures_named(name, session):
            # Functions of a module are no methods, which pytest deprecates as fixtures.
            holder = ModuleType(f"touchstone_{name}")
            setattr(holder, name, pytest.fixture(scope="session")(function))
            session.config.pluginmanager.register(holder, f"touchstone-{name}")
    if any(name.startswith("pytest_touchstone_") for name in vars(session.config.hook)):
        from pytest_touchstone.core.hooks import add_specifications

        add_specifications(session.config.pluginmanager)
    option = session.config.option
    alone = session.config.pluginmanager.has_plugin(OURS_ALONE)
    try:
        if any(_given(option, word) or (alone and _set(word)) for word in ("gate", "checkpoint")):
            # A gate fails where no benchmark is found, and a checkpoint that is not there is said before files are
            # read.
            run = _session(session.config)
            if not run.worker:  # its controller ends the run
                run.raise_fault()
        return (yield)
    except KeyboardInterrupt:
        if option.fulltrace or not (alone or _given(option) or SESSION in session.config.stash):
            raise
        raise pytest.exit.Exception(STOPPED_EARLY, pytest.ExitCode.INTERRUPTED) from None


def pytest_exception_interact(node: Any, call: Any, report: object) -> None:
    """Show an invalid declaration as one line with the place in the user's file."""
    if UNSUPPORTED and isinstance(report, pytest.CollectReport) and UNSUPPORTED in str(call.excinfo.value):
        report.outcome, report.longrepr = "skipped", (str(node.path), 0, f"Skipped: {UNSUPPORTED}")
        return
    if not isinstance(report, pytest.CollectReport) or node.config.option.continue_on_collection_errors:
        return
    from pytest_touchstone.core.errors import HarnessError

    error = call.excinfo.value
    if isinstance(error, HarnessError):
        from pytest_touchstone.plugin.item_errors import declaration_error

        session = _session(node.config)
        is_declared = not is_lm_eval_file(node.path)  # whose tasks no line of a file declares
        session.fault = session.fault or (declaration_error(error, node.path) if is_declared else str(error))
        if session.worker:  # its controller ends the run with that one line
            report.outcome, report.longrepr = "passed", None


def is_lm_eval_file(path: Path) -> bool:
    """Return whether a file is the shipped one that stands for the tasks of lm-evaluation-harness."""
    return path.name == LM_EVAL_FILE and path.resolve().parent in SHIPPED


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect the file that stands for the tasks of lm-evaluation-harness."""
    if not is_lm_eval_file(module_path):
        return None
    session = _session(parent.config)
    if session.fault is not None:
        return None
    from pytest_touchstone.plugin.lm_eval_tasks import LmEvalModule

    return LmEvalModule.from_collection(parent, path=module_path, collection=session.collection)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, obj: object
) -> list[pytest.Item] | None:
    if not _benchmark(obj):
        return None
    _session(collector.config)
    # A form was left in its module by a former session.
    return [] if vars(obj)["__touchstone_benchmark__"].code.form_of is not None else None


@pytest.hookimpl(specname="pytest_pycollect_makeitem", wrapper=True, tryfirst=True)
def pytest_pycollect_makeitem_of_forms(
    collector: pytest.Module | pytest.Class, obj: object
) -> Generator[None, object, object]:
    """Add the items of a benchmark's forms, where options name some."""
    items = yield
    if not isinstance(items, list) or not items or not _benchmark(obj):
        return items
    from pytest_touchstone.plugin.collection import form_items

    return [*items, *form_items(collector, obj, _session(collector.config).collection)]


def _benchmark(obj: object) -> bool:
    # By exact type: objects of other people's modules may do anything when an attribute is read.
    return type(obj) in (FunctionType, staticmethod) and "__touchstone_benchmark__" in vars(obj)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "touchstone_checkpoint" in metafunc.fixturenames:
        _session(metafunc.config).give_checkpoints(metafunc)


# Fixtures of ordinary tests


def checkpoint(touchstone_checkpoint: CheckpointInfo) -> CheckpointInfo:
    """Return a checkpoint under test; a test that takes it runs once per checkpoint of --checkpoint."""
    return touchstone_checkpoint


def model_engine(touchstone_checkpoint: CheckpointInfo, pytestconfig: pytest.Config) -> Engine:
    """Return the loaded model of a checkpoint; a test that takes it runs once per checkpoint of --checkpoint."""
    return _session(pytestconfig).engine(touchstone_checkpoint)


@pytest.fixture(scope="session")
def touchstone_checkpoint() -> None:
    """Provide the parameter of benchmarks and of both fixtures."""
    pytest.skip(NO_CHECKPOINT)


# xdist: its workers collect, so they know first


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Create the session, if there will be one, before the first worker can fail.

    It shows what no worker shows.
    """
    if _given(config.option) and not config.option.pyargs:
        for argument in config.args:
            if not (config.invocation_params.dir / argument.partition("::")[0]).exists():
                raise pytest.UsageError(f"file or directory not found: {argument}")
    _meeting(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Make workers agree on the run's folder, and on the checkpoints that options name."""
    node.workerinput["touchstone"] = _meeting(node.config)


def _controller(config: pytest.Config) -> Controller:
    """Return the session of the process that has xdist's workers."""
    return cast("Controller", _session(config))


def _meeting(config: pytest.Config) -> dict[str, Any]:
    """Return what every worker receives: the session's input, or where to start a session."""
    project = project_file(config)
    is_configured = project.is_file() and b"[tool.touchstone]" in project.read_bytes()
    if _given(config.option) or is_configured or _set_for_benchmarks(config):
        return _controller(config).for_workers()
    run = config.invocation_params.dir / "results" / new_run_id(time.time())
    return config.stash.setdefault(MEETING, {"run": str(run), "token": new_token()})


def new_run_id(began: float) -> str:
    """Return an id that no other run has, on whatever machine: ``YYYYMMDD_HHMMSS_RANDOM`` in local time.

    Ids sort by when the runs began: the last part begins with the milliseconds.
    """
    moment = time.strftime("%Y%m%d_%H%M%S", time.localtime(began))
    return f"{moment}_{int(began * 1000) % 1000:03}{os.urandom(3).hex()}"


def new_token() -> str:
    """Return a unique token by which the processes of a run find their folder."""
    return os.urandom(16).hex()


def _set_for_benchmarks(config: pytest.Config) -> bool:
    """Return whether options of ours are set in the environment and a given file may have benchmarks."""
    if not _set():
        return False
    if config.option.pyargs:
        return True
    paths = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    files = (file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py")))
    return any(
        not {".venv", "site-packages"}.intersection(file.parts) and b"pytest_touchstone" in file.read_bytes()
        for file in files
    )


def project_file(config: pytest.Config) -> Path:
    """Return the nearest pyproject.toml above what is run, or above the current folder; it need not exist.

    Shipped benchmarks belong to no project. pytest's root folder counts only where a person gives ``--rootdir`` or
    ``-c``. Else pytest finds it from values of options too, such as ``--checkpoint PATH``: a checkpoint elsewhere
    moves it.
    """
    # As `touchstone run` says.
    is_apart = config.option.inifilename == os.devnull and config.option.rootdir == "."
    if not is_apart and (config.option.rootdir or config.option.inifilename):
        return config.rootpath / PROJECT_FILE
    here = config.invocation_params.dir
    given = [Path(os.path.realpath(here / argument.partition("::")[0])) for argument in config.args]
    project_paths = [path for path in given if path.exists() and not SHIPPED & {path, *path.parents}]
    candidates = (
        folder / PROJECT_FILE for start in (*project_paths, here) for folder in (start, *start.parents)
    )
    return next((path for path in candidates if path.is_file()), config.rootpath / PROJECT_FILE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    if Path(_meeting(node.config)["run"], "details", "collected.json").is_file():
        _controller(node.config).workers_collected()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if worker_output := getattr(node, "workeroutput", {}).get("touchstone"):  # one that died has no output
        _controller(node.config).worker_ended(worker_output)
