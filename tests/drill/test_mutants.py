"""The drill finds what it is for: each of these changes of the product, which take out one of its safeguards."""

from __future__ import annotations

import inspect
import random
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from pytest_touchstone.core import disk as layer
from pytest_touchstone.core import files
from pytest_touchstone.engines.sandbox import cache
from pytest_touchstone.results import journal, merging, reuse, store
from tests.drill import test_crash_points as crashes
from tests.drill import test_disk_errors as errors
from tests.drill.conftest import Drill
from tests.drill.disk import PowerCut, SimulatedDisk
from tests.drill.kept import Question

ONE: Final = Question(1, batch=1)
TWO: Final = Question(1, ("step-1", "step-2"), batch=2)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A function of the product in which ``old`` is ``new``, and the part of the drill that finds it."""

    name: str
    owner: Any
    function: str
    old: str
    new: str
    found_by: Callable[[SimulatedDisk], object]

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        original = inspect.getattr_static(self.owner, self.function)
        function = inspect.unwrap(getattr(original, "__func__", original))
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{self.name}: {self.old!r} is not once in {self.function}"
        made: dict[str, Any] = {}
        program = "from __future__ import annotations\n" + source.replace(self.old, self.new)
        exec(compile(program, self.name, "exec"), vars(sys.modules[function.__module__]), made)
        importers = [one for name, one in sys.modules.items() if name.startswith("pytest_touchstone.")]
        for owner in {self.owner, *importers}:
            if vars(owner).get(self.function) is original:
                patch.setattr(owner, self.function, made[self.function])


def _crash(disk: SimulatedDisk) -> object:
    return crashes.every_crash(disk, ONE)


def _crash_two(disk: SimulatedDisk) -> object:
    return crashes.every_crash(disk, TWO)


def _flip(only: str) -> Callable[[SimulatedDisk], object]:
    return lambda disk: errors.flip(disk, random.Random(2), 3, only=only)


def _short(disk: SimulatedDisk) -> object:
    return errors.take_parts(disk, crashes.SMALL)


MUTANTS: Final = (
    Mutant("the journal's sync", journal.Journal, "sync", "disk.sync(self._descriptor)", "pass", _crash),
    Mutant("the sync of a new journal's name", layer, "open_to_append", "if new:", "if False:", _crash),
    Mutant("the sync of a new folder's name", layer, "make_folder", "sync_folder(folder.parent)", "pass", _crash),
    Mutant("the sync of a file before it is renamed", files, "write_atomic", "disk.sync(descriptor)", "pass", _crash),
    Mutant(
        "the sync of the folder after it is renamed",
        files, "write_atomic", "disk.sync_folder(path.parent)", "pass", _crash,
    ),
    Mutant(
        "the temporary name",
        files, "write_atomic", 'path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")', "path",
        crashes.cut_others,
    ),
    Mutant("the rule of the torn line", journal, "_iter_lines", '.endswith(b"\\n")', "", _crash),
    Mutant("appending", layer, "open_file", "os.O_APPEND", "0", errors.write_at_once),
    Mutant("writing the rest", layer, "write_all", "while left:", "if left:", _short),
    Mutant(
        "the end after a refusal",
        journal.Journal, "_writable", "self._refused = error", "pass", errors.append_after_refusal,
    ),
    Mutant("the checksum of lines", journal, "_parse_record", "not has_checksum(line)", "False",
           _flip("items-main")),
    Mutant("the checksum of files", files, "read_checked", "has_checksum(data)", "True", _flip("/fingerprints/")),
    Mutant("the checkpoint in the key", reuse.Reuse, "_places", "(source.checkpoint, benchmark, example)",
           "next((key for key in stored.places if key[1:] == (benchmark, example)), None)", _crash_two),
    Mutant("the settings in the key", reuse, "_is_same_benchmark", "same_answers(*asked)", "True",
           errors.ask_otherwise),
    Mutant("the order of an entry and its scores", store.ResultStore, "save",
           "write_checked(path.with_suffix(ITEMS_SUFFIX), items_json(items))",
           "write_checked(path, saved_json(saved)); write_checked(path.with_suffix(ITEMS_SUFFIX), items_json(items))",
           _crash),
    Mutant("the former merge until the new one is there", merging, "_replace_journal",
           "write_atomic(journal, map(encode_record, records))", "[disk.unlink(old) for old in journal_files(target)]; "
           "write_atomic(journal, map(encode_record, records))", crashes.cut_merges),
    Mutant("the error of a packed text", cache.TextFiles, "find", ", zlib.error", "", _flip("/texts/")),
    Mutant("the claim of a folder", layer, "open_file", "os.O_EXCL if new", "os.O_TRUNC if new", errors.claim_at_once),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_drill_finds_what_is_taken_out(
    drill: Drill, mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant.apply(monkeypatch)
    with crashes.on_a_disk() as disk, pytest.raises((Exception, pytest.fail.Exception)) as found:
        mutant.found_by(disk)
    assert not isinstance(found.value, (PowerCut, NameError, SyntaxError))
    drill.figure("mutants found", 1)
