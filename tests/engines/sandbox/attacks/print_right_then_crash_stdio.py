"""Prints something and kills itself, so that the end of its output is not the end of the program."""

KIND = "stdio"
import os
import signal

print("0 0", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
