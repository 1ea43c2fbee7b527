"""What a replay would be without one class of dependency: the null models."""

from __future__ import annotations

from enum import Enum


class Ablation(Enum):
    """A class of dependency to take away."""

    DEVICE = "device"  # no edge from a device operation to anything: the host's chain alone
    RENDEZVOUS = "rendezvous"  # ranks do not wait for each other; recorded collective times
    INTER_STREAM = "inter-stream"  # streams do not wait for each other
