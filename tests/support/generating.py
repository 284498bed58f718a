"""The way in which an engine generates texts."""

from __future__ import annotations

from harness.engines.transformers.causal import CausalEngine
from harness.engines.transformers.compat import quiet
from harness.engines.transformers.generation.batch import BatchGenerator


def generates_together(engine: CausalEngine) -> bool:
    """Return whether many texts are generated at once; found out with a probe before the first."""
    with quiet():
        return isinstance(engine._generator(), BatchGenerator)
