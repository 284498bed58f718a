"""Starts other programs through subprocess and a shell."""

KIND = "call"
import os
import subprocess
import sys

for words in (["sh", "-c", "sleep 1000 &"], [sys.executable, "-c", "import time; time.sleep(1000)"], ["id"]):
    try:
        subprocess.Popen(words, start_new_session=True)
    except Exception:
        pass
try:
    os.system("sleep 1000 & echo passed")
except Exception:
    pass


def add(a, b):
    return None
