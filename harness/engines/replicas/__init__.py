"""Replicas: checkpoints in several processes, on one machine or on many.

units        requests -> what is sent at once
schedule     which unit goes to which replica, and what becomes of those whose replica dies
series       which replica holds which checkpoint, and which it loads next
transport    what carries units to replicas and back
driving      the schedules and a transport together
engine       that as an engine for each checkpoint
ray_replicas the transport of Ray; ray_actor its other side, ray_cluster what the cluster has
target       the option
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.engines.settings import ModelSettings

if TYPE_CHECKING:
    from harness.engines.replicas.engine import ReplicatedSeries


def open_replicas(settings: ModelSettings) -> ReplicatedSeries:
    """Return replicas as ``--eval-engine`` asks for them, which load whatever checkpoint is opened.

    Raises ``CheckpointError`` where that cannot be.
    """
    from harness.engines.replicas.engine import ReplicatedSeries
    from harness.engines.replicas.ray_replicas import RayReplicas
    from harness.engines.replicas.target import target_of

    assert settings.engine is not None
    return ReplicatedSeries(RayReplicas(settings, target_of(settings.engine)))
