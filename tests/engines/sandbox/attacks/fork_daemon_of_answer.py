"""Leaves a child that holds the descriptors open and ends itself, so that an end of file never comes."""

KIND = "call"
import os
import time


def add(a, b):
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    os._exit(0)
