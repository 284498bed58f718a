"""``python -m pytest_touchstone.cli``: the command, where no script is installed."""

from __future__ import annotations

import sys

from pytest_touchstone.cli import main

sys.exit(main())
