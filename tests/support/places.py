"""Where things are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""The repository."""

SOURCE: Final = ROOT / "harness"
"""What Python imports the package from."""

PACKAGE: Final = SOURCE / "pytest_touchstone"
