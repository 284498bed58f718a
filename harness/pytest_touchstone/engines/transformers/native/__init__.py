"""Products, attention and whole steps by code of our own, where a CPU and its system can run it.

``source`` has the code in C, ``library`` compiles and loads it, ``steps`` continues texts with it, and ``operations``
has a layer's small parts. All of it has another way by torch's own operations: nothing but speed depends on it.
"""
