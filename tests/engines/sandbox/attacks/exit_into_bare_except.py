"""Ends itself in a test that catches everything."""

KIND = "call"
TASK = "forgiving"


def half(x):
    raise SystemExit(0)
