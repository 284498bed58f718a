"""The exit codes of a run and of the command ``touchstone``; 0 to 5 are pytest's own."""

from __future__ import annotations

from enum import IntEnum


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
    FAILED = 1, "an ordinary test failed; of `touchstone conformance`, verdicts differ"
    INTERRUPTED = 2, "stopped by hand, because a server is gone, or by `-x` under xdist"
    INTERNAL_ERROR = 3, "an error inside pytest or a plugin"
    MISTAKE = 4, "a mistake in what was asked for, said in one line"
    NOTHING = 5, "nothing to run"
    WORSE = 8, "a gate failed"
    NOT_VALID = (
        9,
        "the run is not valid: an item ended in error or was lost, one of several checkpoints failed to load, or, with "
        "`--eval-strict`, a result is not valid",
    )
