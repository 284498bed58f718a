"""Runs of pytest in a user's project, as in the tests of the plug-in."""

from __future__ import annotations

from tests.plugin.conftest import imported, no_job

__all__ = ["imported", "no_job"]
