"""Replicas: one checkpoint in several processes, on one machine or on many.

units        requests -> what is sent at once
schedule     which unit goes to which replica, and what becomes of those whose replica dies
transport    what carries units to replicas and back
engine       the three together, as an engine
ray_replicas the transport of Ray; ray_actor its other side, ray_cluster what the cluster has
target       the option
"""

from __future__ import annotations

from harness.checkpoints import CheckpointInfo
from harness.engines.base import Engine
from harness.engines.settings import ModelSettings


def open_replicas(info: CheckpointInfo, settings: ModelSettings, fingerprint: str | None) -> Engine:
    """Return a checkpoint as ``--eval-engine`` asks for it. Raises ``CheckpointError`` where that cannot be."""
    from harness.engines.replicas.engine import ReplicatedEngine
    from harness.engines.replicas.ray_replicas import RayReplicas
    from harness.engines.replicas.target import target_of

    assert settings.engine is not None
    return ReplicatedEngine(info, RayReplicas(info, settings, target_of(settings.engine), fingerprint))
