"""Parses a GGUF file once instead of three times while transformers loads it.

transformers reads the header anew for the config, the tokenizer and the weights, and builds the table of
tensor names anew for every module; both are pure Python and take most of the time that a small model needs to
load. Within the block the two functions of the ``gguf`` package remember what they gave.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gguf_parsed_once() -> Iterator[None]:
    """``gguf.GGUFReader`` and ``gguf.get_tensor_name_map`` give the same object for the same arguments."""
    import gguf

    reader, name_map = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader = functools.cache(reader)
    gguf.get_tensor_name_map = functools.cache(name_map)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = reader, name_map
