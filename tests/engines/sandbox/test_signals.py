"""An exception of the program is itself in the tests, or ends them, and is never a signal to the interpreter."""

from __future__ import annotations

import pytest

from pytest_touchstone.core.requests import CallTests, RunProgram, RunProgramAnswer
from pytest_touchstone.engines.sandbox.sandbox import Sandbox
from tests.support.lines import naming


def judged(sandbox: Sandbox, program: str, tests: str) -> RunProgramAnswer:
    return sandbox.run(RunProgram(program, CallTests(tests), task="signals", seconds=1.0))


CONSTRUCTS = {
    "map": "assert list(map(f, [1, 2])) in ([], [1])",
    "zip of map": "for x, y in zip(map(f, [1, 2]), [5, 6]): assert x == y",
    "filter": "assert next(filter(f, [1, 2]), None) is None",
    "starmap": "import itertools\nassert not list(itertools.starmap(f, [(1,)]))",
    "takewhile": "import itertools\nassert not list(itertools.takewhile(f, [1]))",
    "accumulate": "import itertools\nassert list(itertools.accumulate([1, 2], f)) == [1]",
    "groupby": "import itertools\nassert not list(itertools.groupby([1], f))",
    "called until": "for x in iter(lambda: f(1), 7): assert x == 7",
    "generator": "try:\n    assert not list(f(x) for x in [1])\nexcept RuntimeError:\n    pass",
    "yield from": "def g():\n    yield from map(f, [1])\nassert not list(g())",
    "next with a default": "assert next(map(f, [1]), 3) == 3",
    "sorting": "try:\n    sorted([1, 2], key=f)\nexcept Exception:\n    pass",
    "dict": "assert dict(zip([1], map(f, [1]))) == {}",
    "unpacking": "assert [*map(f, [1])] == []",
    "bare except": "try:\n    f(1)\nexcept:\n    pass",
    "finally": "def t():\n    try:\n        f(1)\n    finally:\n        return 1\nassert t() == 1",
    "suppress": "import contextlib\nwith contextlib.suppress(BaseException):\n    f(1)",
    "context manager": "import contextlib\n@contextlib.contextmanager\ndef c():\n    yield\n"
    "with c():\n    f(1)",
    "exit stack": "import contextlib\nwith contextlib.ExitStack() as s:\n    s.push(lambda *_: True)\n    f(1)",
    "unittest": "import unittest\nclass T(unittest.TestCase):\n    def test(self): f(1)\n"
    "unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T))",
    "thread": "import threading\nt = threading.Thread(target=f, args=(1,))\nt.start()\nt.join()",
    "callback": "assert g(lambda x: f(x)) in (0, 1)",
    "as an item": "class S:\n    __getitem__ = f\nassert list(S()) == []",
    "as a length": "class S:\n    __len__ = f\n    __iter__ = lambda s: iter(())\nassert list(S()) == []",
    "as an attribute": "class S:\n    __getattr__ = f\nassert not hasattr(S(), 'x')",
}


@pytest.mark.parametrize("signal", ["StopIteration", "StopAsyncIteration", "GeneratorExit"])
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_a_signal_of_the_programs_is_an_error_whatever_calls_it(
    sandbox: Sandbox, construct: str, signal: str
) -> None:
    program = (
        f"def f(*_):\n    raise {signal}('at once')\n\n\n"
        "def g(function):\n    try:\n        return function(1)\n    except BaseException:\n        return 0\n"
    )
    found = judged(sandbox, program, CONSTRUCTS[construct])
    assert (found.outcome, found.detail) == ("error", f"{signal} (line 2): at once")


@pytest.mark.parametrize(
    ("construct", "error"),
    [("as an item", "IndexError"), ("as an attribute", "AttributeError"), ("as a length", "TypeError")],
)
def test_an_exception_that_no_test_has_seen_is_an_error_too(
    sandbox: Sandbox, construct: str, error: str
) -> None:
    found = judged(sandbox, f"def f(*_):\n    raise {error}('at once')\n", CONSTRUCTS[construct])
    assert (found.outcome, found.detail) == ("error", f"{error} (line 2): at once")


@pytest.mark.parametrize("error", ["IndexError", "StopIteration"])
def test_a_sequence_that_lacks_its_items_does_not_end_a_loop_over_it_backwards(
    sandbox: Sandbox, error: str
) -> None:
    program = f"class S:\n    def __len__(s): return 2\n    def __getitem__(s, i): raise {error}\n\n\nf = S\n"
    found = judged(sandbox, program, "s = f()\nassert len(s) == 2\nfor x in reversed(s): assert x == 1")
    assert (found.outcome, found.detail) == ("error", f"{error} (line 3)")


@pytest.mark.parametrize("ending", ["import sys; sys.exit(0)", "import os; os._exit(0)", "exit()"])
def test_the_end_of_the_program_is_its_end_where_a_test_catches_everything(
    sandbox: Sandbox, ending: str
) -> None:
    found = judged(sandbox, f"def f(x): {ending}\n", CONSTRUCTS["bare except"])
    assert found.outcome == "crashed"


RIGHT = {
    "an exception that a test catches": (
        "def f(x): raise ValueError('odd')",
        "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == 'odd'\nelse:\n    assert False",
    ),
    "one that map passes on": (
        "def f(x): raise KeyError(x)",
        "try:\n    list(map(f, [1]))\nexcept KeyError:\n    pass\nelse:\n    assert False",
    ),
    "one that assertRaises calls": (
        "def f(x): raise IndexError(x)",
        "import unittest\nunittest.TestCase().assertRaises(IndexError, f, 1)",
    ),
    "one that assertRaises waits for": (
        "def f(x): raise TypeError(x)",
        "import unittest\nwith unittest.TestCase().assertRaises(TypeError):\n    f(1)",
    ),
    "one that is suppressed": (
        "def f(x): raise OSError(x)",
        "import contextlib\nwith contextlib.suppress(OSError):\n    f(1)",
    ),
    "one that sorting passes on": (
        "def f(x): raise AttributeError(x)",
        "try:\n    sorted([1, 2], key=f)\nexcept AttributeError:\n    pass",
    ),
    "one that a callback's caller hears of": (
        "def f(x): raise LookupError(x)\ndef g(function):\n    try: function(1)\n    except LookupError: return 7",
        "import functools\nassert g(functools.partial(f)) == 7\nassert g(lambda x: f(x)) == 7",
    ),
    "one in every turn of a loop": (
        "def f(x): raise ValueError",
        "for x in range(50):\n    try:\n        f(x)\n    except ValueError:\n        continue\n    assert False",
    ),
    "a generator": (
        "def f(n): yield from range(n)",
        "assert list(f(3)) == [0, 1, 2]\nassert [x for x in f(2)] == [0, 1]\nassert list(f(0)) == []\n"
        "assert sum(f(4)) == 6\na, b = f(2)\nassert all(x == y for x, y in zip(f(3), range(3)))\nassert 2 in f(3)",
    ),
    "the end of a generator": (
        "def f(n): yield from range(n)",
        "g = f(1)\nassert next(g) == 0\nassert next(g, 5) == 5\n"
        "try:\n    next(g)\nexcept StopIteration:\n    pass\nelse:\n    assert False\n"
        "import unittest\nunittest.TestCase().assertRaises(StopIteration, next, f(0))",
    ),
    "an iterator of its own": (
        "class C:\n    def __init__(s, n): s.n = n\n    def __iter__(s): return s\n"
        "    def __next__(s):\n        if not s.n: raise StopIteration\n        s.n -= 1\n        return s.n\n",
        "assert list(C(3)) == [2, 1, 0]\nassert next(iter(C(1))) == 0\nassert next(C(0), None) is None\n"
        "assert list(map(lambda x: x + 1, C(2))) == [2, 1]\nassert max(C(4)) == 3",
    ),
    "a sequence of the old kind": (
        "class S:\n    def __len__(s): return 2\n    def __getitem__(s, i):\n        if i > 1: raise IndexError\n"
        "        return i\n",
        "assert list(S()) == [0, 1]\nassert list(reversed(S())) == [1, 0]\nassert 1 in S()\nassert S()[1] == 1\n"
        "try:\n    S()[2]\nexcept IndexError:\n    pass\nelse:\n    assert False",
    ),
    "an object that has something and lacks something": (
        "class N:\n    def __init__(s): s.value = 1\n",
        "n = N()\nassert hasattr(n, 'value')\nassert not hasattr(n, 'next')\nassert getattr(n, 'next', 4) == 4",
    ),
    "an iterable without a length": (
        "class W:\n    def __iter__(s): return iter([1, 2])\n    def __len__(s): raise TypeError('none')\n",
        "assert list(W()) == [1, 2]",
    ),
    "a coroutine": (
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1\n"
        "async def bad(): raise ValueError('odd')",
        "import asyncio\nassert asyncio.run(f(1)) == 2\n"
        "async def main():\n    assert await f(2) == 3\n"
        "    assert await asyncio.gather(f(1), f(2)) == [2, 3]\n"
        "    try:\n        await bad()\n    except ValueError:\n        return 7\n"
        "assert asyncio.run(main()) == 7",
    ),
    "a generator that is closed early": (
        "def f():\n    while True: yield 1",
        "for x in f():\n    assert x == 1\n    break\ng = f()\nnext(g)\ng.close()\nassert next(g, 2) == 2",
    ),
}


@pytest.mark.parametrize("what", RIGHT)
def test_right_programs_pass_whose_exceptions_and_iterators_mean_what_they_say(
    sandbox: Sandbox, what: str
) -> None:
    program, tests = RIGHT[what]
    assert judged(sandbox, program, tests).outcome == "passed", judged(sandbox, program, tests)


def test_a_wrong_answer_stays_one_after_an_exception_was_taken_for_an_end(sandbox: Sandbox) -> None:
    program = "def f(x): raise StopIteration"
    found = judged(sandbox, program, "try:\n    f(1)\nexcept:\n    pass\nassert False, 'no'")
    assert found.outcome in ("wrong", "error")


@pytest.mark.parametrize("error", ["StopIteration", "ValueError", "SystemExit"])
def test_what_a_coroutine_raises_fails_the_program(sandbox: Sandbox, error: str) -> None:
    program = f"async def f(x):\n    raise {error}\n"
    found = judged(sandbox, program, "import asyncio\nassert asyncio.run(f(1)) == 2")
    assert found.outcome == ("crashed" if error == "SystemExit" else "error")


def test_tests_that_need_what_the_sandbox_has_not_are_nobodys_answer(sandbox: Sandbox) -> None:
    found = judged(sandbox, "def f(x): return x", "import numpy as np\nassert f(1) == 1")
    assert found.outcome == "fault"
    assert naming("numpy", "sandbox").search(found.detail)
    program = "def f(x):\n    import numpy\n"
    assert judged(sandbox, program, "assert f(1) == 1").outcome == "error"
    optional = "try:\n    import numpy\nexcept ImportError:\n    pass\nassert f(1) == 1"
    assert judged(sandbox, "def f(x): return x", optional).outcome == "passed"
