"""Has threads call the tests' function when nobody has asked for anything."""

KIND = "call"
TASK = "applied"
import threading

kept = []


def call():
    while True:
        for function in kept:
            try:
                function(2)
            except BaseException:
                continue


for _ in range(3):
    threading.Thread(target=call, daemon=True).start()


def apply(function, x):
    kept.append(function)
    return None
