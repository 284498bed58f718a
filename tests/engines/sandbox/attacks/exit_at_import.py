"""Ends the process with status 0 before a test can run."""

KIND = "call"
import sys

sys.exit(0)
