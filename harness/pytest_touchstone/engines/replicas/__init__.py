"""Replicas: checkpoints in several processes, on one machine or on many.

engine       requests in units, and the actors of Ray as an engine for each checkpoint
replica      an actor's side; ray_cluster has the option and what the cluster has
programs     the sandboxes of a cluster's nodes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_touchstone.engines.settings import ModelSettings

if TYPE_CHECKING:
    from pytest_touchstone.engines.registry import EnginePool
    from pytest_touchstone.engines.sandbox import SandboxSettings
    from pytest_touchstone.engines.sandbox.soundness import SelfCheckingSandbox


def open_pool(settings: ModelSettings) -> EnginePool:
    """Return the engines of a session: those of replicas if the settings ask for any, else of this process."""
    from pytest_touchstone.engines.registry import EnginePool

    if settings.engine is None:
        return EnginePool(settings)
    from pytest_touchstone.engines.replicas.engine import ReplicatedPool

    return ReplicatedPool(settings)


def open_programs(
    settings: SandboxSettings, model: ModelSettings, say: Callable[[str], object]
) -> SelfCheckingSandbox:
    """Return the sandbox for programs: the cluster nodes' if replicas answer, else this machine's.

    ``say`` gets a line about each node that is not used. Raises ``SandboxError`` if programs cannot be run safely.
    """
    if model.engine is None:
        from pytest_touchstone.engines.sandbox import open_checked

        return open_checked(settings)
    from pytest_touchstone.engines.replicas.programs import open_on_nodes
    from pytest_touchstone.engines.replicas.ray_cluster import target_of

    return open_on_nodes(settings, target_of(model.engine), say)
