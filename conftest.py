"""Makes the checkout's own harness the plugin, also where the package is not installed."""

from __future__ import annotations

pytest_plugins = ["pytest_touchstone.plugin"]
