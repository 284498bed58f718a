"""Data frames; pandas is imported when somebody wants one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_touchstone.core.errors import HarnessError

if TYPE_CHECKING:
    import pandas


def frame(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> pandas.DataFrame:
    """Return the rows as a data frame that begins with these columns; raise ``HarnessError`` without pandas."""
    try:
        import pandas
    except ImportError as error:
        raise HarnessError("to_pandas() needs pandas, which is not installed: pip install pandas") from error
    others = dict.fromkeys(name for row in rows for name in row if name not in columns)
    return pandas.DataFrame(rows, columns=[*columns, *others])
