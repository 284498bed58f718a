"""Stops for somebody who is to type at a debugger or a prompt."""

KIND = "call"
import code
import pdb
import sys


def add(a, b):
    for wait in (breakpoint, pdb.set_trace, lambda: code.interact(local={}), input):
        try:
            wait()
        except BaseException:
            continue
    with open("/dev/tty") as terminal:
        terminal.read()
