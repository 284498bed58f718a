"""The settings for loading and running checkpoints: plain values, which can be made without torch."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, TypeAlias

from pytest_touchstone.core.reasoning import AUTO

Dtype: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
Chat: TypeAlias = Literal["auto", "on", "off"]
Speculative: TypeAlias = Literal["auto", "off"]
Texts: TypeAlias = Literal["auto", "vllm", "own"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings of a model engine.

    ``dtype`` "auto": float32 on a CPU, the checkpoint's own type on an accelerator. ``device``: auto, cpu, cuda,
    cuda:INDEX or mps. ``device_map`` "auto" spreads a model over all GPUs. ``batch``: sequences computed at once, None
    for as many as a budget of tokens allows. ``threads``: CPU threads, None for torch's default. ``memory``: what the
    engines may take beside the weights, as ``engines.machine_memory`` reads it, in all of so many
    ``processes``; None for half of what is free.

    ``chat``: whether texts are generated through the checkpoint's chat template; "auto" uses it where there is one.
    ``system`` is the system prompt of every chat. ``think_end`` is the delimiter that ends a reasoning
    (``core.reasoning``), and by ``thinking`` the chat template is told whether to begin one; None leaves that to it.
    ``max_new_tokens``: a limit in place of the benchmark's own. ``speculative``: whether extra heads propose
    tokens; it changes no answer, only the time. ``texts``: who writes texts (``engines.texts``).

    Of served models: ``concurrency`` requests may be under way at once in this process. ``request_timeout``,
    ``item_timeout`` and ``run_timeout`` are seconds. ``price`` is that of a million prompt tokens and of a million new
    ones.

    ``engine``: where replicas of the model answer (``replicas.ray_cluster``), None for this process.
    """

    dtype: Dtype = "auto"
    device: str = "auto"
    device_map: Literal["auto"] | None = None
    batch: int | None = None
    threads: int | None = None
    memory: str | None = None
    processes: int = 1
    chat: Chat = "auto"
    system: str | None = None
    think_end: str = AUTO
    thinking: Literal["on", "off"] | None = None
    max_new_tokens: int | None = None
    speculative: Speculative = "auto"
    texts: Texts = "auto"
    concurrency: int = 64
    request_timeout: float = 600.0
    item_timeout: float = 1800.0
    run_timeout: float | None = None
    price: tuple[float, float] | None = None
    engine: str | None = None


def finds_vllm() -> bool:
    """Return whether vLLM is on PATH, and the package by which this process asks servers is installed."""
    return shutil.which("vllm") is not None and find_spec("aiohttp") is not None
