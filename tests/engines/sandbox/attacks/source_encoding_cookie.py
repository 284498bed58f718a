"""Says that its source is written in another encoding, in which comments are code."""  # -*- coding: utf-7 -*-

KIND = "call"
TASK = "script"
# +AAo-import os+AAo-os._exit(0)
# \u000aimport os\u000aos._exit(0)


def add(a, b):
    return None
