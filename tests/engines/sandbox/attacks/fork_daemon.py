"""Leaves a daemon, twice forked and in a session of its own, that touches a file for ever."""

KIND = "call"
import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            try:
                with open("/tmp/touchstone_attack_daemon", "a") as file:
                    file.write("here\n")
            except OSError:
                pass
            time.sleep(0.01)
    os._exit(0)


def add(a, b):
    return None
