"""The errors that a user can meet, and the exit codes.

The message of each says what is wrong, which value, and what to do.

Mistakes in pytest's options are ``pytest.UsageError``; plugin code turns a ``CheckpointError`` or ``DataError`` into
one, so that the user sees one line and exit code 4, never a traceback.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from pytest_touchstone.core.keys import redact
from pytest_touchstone.core.text import collapse_lines, escape_ci_commands, is_ci_log


class HarnessError(Exception):
    """Base of all errors raised on purpose; the text is one line for the user, without keys."""

    def __str__(self) -> str:
        """Return the message; nothing that others wrote into it does more than be read."""
        text = collapse_lines(redact(super().__str__()))
        if len(text) > _LONGEST:
            text = f"{text[: 2 * _LONGEST // 3]} ... {text[-_LONGEST // 3 :]}"
        return escape_ci_commands(text) if is_ci_log() else text


_LONGEST: Final = 1200
"""The characters of a message; of a longer one the ends are kept, which say what is wrong and what to do."""


class CheckpointError(HarnessError):
    """A checkpoint cannot be used: the message names the file and the fault."""


class DataError(HarnessError):
    """A dataset cannot be used: the message names the file, the row number and the fault."""


class ShotsError(DataError):
    """A benchmark cannot give as many few-shot examples as were asked for; the others may."""


class MissingDataError(DataError):
    """A benchmark has no rows in the searched folder; the message names both."""


class BenchmarkError(HarnessError):
    """A benchmark function breaks its contract: the message names the function and what it did."""


class RequestError(BenchmarkError):
    """One request cannot be answered; thrown into the generator that asked, and ends that item only."""


class WireError(BenchmarkError):
    """A value is not plain data and cannot travel between processes or into the journal."""


class JournalError(HarnessError):
    """A journal file cannot be read or written: the message names the file and the line."""


class ServerError(HarnessError):
    """A server is gone, or the run's time is up.

    Finished items are kept; the repeated command goes on.
    """


class SandboxError(HarnessError):
    """Programs cannot be run safely here: the message names the reason and the remedy."""


class GateError(HarnessError):
    """A gate's configuration or baseline cannot be used.

    The message names the key, the value, and what to do.
    """


class OptionError(HarnessError):
    """A value of an option cannot be taken."""


# Exit codes


class ExitCode(IntEnum):
    """An exit code; ``sentence`` says what it means, as README and documents do."""

    sentence: str

    def __new__(cls, code: int, sentence: str = "") -> ExitCode:
        """Make the member of a number and its sentence."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.sentence = sentence
        return member

    OK = 0, "all items scored; with a gate, none worse and every floor kept"
    FAILED = 1, "an ordinary test failed; of `touchstone score --verdicts`, verdicts differ"
    INTERRUPTED = 2, "stopped by hand, because a server is gone, or by `-x` under xdist"
    INTERNAL_ERROR = 3, "an error inside pytest or a plugin"
    MISTAKE = 4, "invalid options or configuration, said in one line"
    NOTHING = 5, "no items to run"
    WORSE = 8, "a gate failed"
    NOT_VALID = (
        9,
        "the run is not valid: an item ended in error or was lost, one of several checkpoints failed to load, or, with "
        "`--gate` or `--eval-strict`, a result is not valid",
    )
