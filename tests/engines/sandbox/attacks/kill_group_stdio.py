"""Kills its process group in the place of printing."""

KIND = "stdio"
import os
import signal

os.kill(0, signal.SIGKILL)
