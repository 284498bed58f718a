"""``python -m harness.cli``: the command, where no script is installed."""

from __future__ import annotations

import sys

from harness.cli import main

sys.exit(main())
