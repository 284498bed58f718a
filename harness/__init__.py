"""pytest-touchstone: benchmarks as test suites, for people who train language models."""

from __future__ import annotations

__version__ = "0.1.0"
