"""Products, attention and whole steps in float32 by code of our own, where a CPU and its system can run it.

``kernels.c`` is the code, ``library`` compiles and loads it, ``steps`` continues texts with it. Everything has another
way by torch's own operations, so that nothing but speed depends on it.
"""
