"""A host, runs and a model of live tests, made by hand."""

from __future__ import annotations

from dataclasses import replace

from foretrace.capture import Device, HostSpeed, Row, TrainingSettings
from foretrace.validate.live.host import LiveHost
from foretrace.workload import Transformer
from tests.models import transformer

CPU = Device("cpu", "CPU of a test", ("fp32",))
MIB = 1 << 20


def gpt(settings: TrainingSettings) -> Transformer:
    """The model that the training program trains, as the workload floor describes models."""
    like = transformer("gpt2")
    return replace(
        like,
        num_layers=settings.layers,
        hidden=settings.hidden,
        vocabulary=settings.vocabulary,
        attention=replace(
            like.attention,
            num_heads=settings.heads,
            num_kv_heads=settings.heads,
            head_size=settings.hidden // settings.heads,
        ),
        feed_forward=replace(like.feed_forward, width=settings.feed_forward),
    )


def row(collective: str, num_ranks: int, num_bytes: int, time_ns: float, **more: object) -> Row:
    """One row of a table of collectives."""
    spread = {"time_ns_p10": 0.8 * time_ns, "time_ns_p90": 1.2 * time_ns, "cores": 0.5}
    return {
        "collective": collective,
        "num_gpus": num_ranks,
        "message_bytes": num_bytes,
        "time_ns": time_ns,
        **spread,
        **more,
    }


def host(*rows: Row) -> LiveHost:
    """Two cores, and these collectives."""
    speed = HostSpeed(num_cores=2, speed=(1.0, 0.95, 0.64, 0.48), spread=(0.0,) * 4)
    return LiveHost(CPU, speed, rows)
