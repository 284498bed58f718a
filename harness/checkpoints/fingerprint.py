"""The identity of a checkpoint, whatever it is called: a hash over its content.

SHA-256 over what the format says decides the answers (``Format.content``): every tensor, config, tokenizer, chat
template. The same tensors in one file or in several, as safetensors or pickled, are the same. What a trainer leaves
beside them (optimizer, log) does not count. An adapter's is over its own tensors and settings and the fingerprint of
its base.

Where that is known already, and no file has changed, nothing is read (``harness.checkpoints.fingerprint_cache``).
"""

from __future__ import annotations

import hashlib
from typing import Final

from harness.checkpoints.fingerprint_cache import FingerprintCache, stamps
from harness.checkpoints.info import CheckpointInfo
from harness.checkpoints.registry import format_of
from harness.core.errors import CheckpointError

_HEADER: Final = b"touchstone-fingerprint-2\n"


def fingerprint(info: CheckpointInfo, cache: FingerprintCache | None = None) -> str:
    """The fingerprint (hex). Two copies of a checkpoint have the same one; one changed byte gives another.

    ``cache`` holds known ones, by default the user's. Raises ``CheckpointError`` when a file cannot be read, or changes
    while it is.
    """
    form = format_of(info)
    cache = cache or FingerprintCache.of_user()
    files = form.files(info)
    before = stamps(files)
    own = cache.find(str(info.path), before) if before else None
    if own is None:
        began = cache.clock() if before else 0
        digest = hashlib.sha256(_HEADER)
        for text in form.content(info):
            digest.update(text.encode("utf-8", "backslashreplace"))
        own = digest.hexdigest()
        if stamps(files) != before:
            raise CheckpointError(f"{info.path}: was written to while it was read; wait until it is complete")
        if before:
            cache.keep(str(info.path), before, own, began)
    if info.base is None:
        return own
    return hashlib.sha256(f"{own}\0{fingerprint(info.base, cache)}".encode()).hexdigest()
