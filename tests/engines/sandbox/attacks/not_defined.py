"""Deletes the function."""

KIND = "call"
del add
