"""Ends the process at once, without clean-up, with status 0."""

KIND = "call"
import os

os._exit(0)
