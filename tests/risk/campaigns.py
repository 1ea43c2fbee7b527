"""Campaigns for tests, in the units that papers use."""

from __future__ import annotations

from foretrace.risk import Campaign, Checkpoint, Fleet, Preemption, Replicas, WhileDown

MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS


def minutes(value: float) -> int:
    """Minutes in ns."""
    return round(value * MINUTE_NS)


def campaign(
    num_hosts: int,
    per_1000_host_days: float,
    interval: float,
    *,
    restart: float = 5.0,
    blocking: float = 0.0,
    background: float = 0.0,
    queue: float = 0.0,
    detection: float = 0.0,
    while_down: WhileDown = WhileDown.NONE,
    fleet: Fleet | None = None,
    preemption: Preemption | None = None,
    replicas: Replicas | None = None,
) -> Campaign:
    """A campaign; times in minutes."""
    return Campaign(
        num_hosts=num_hosts,
        failures_per_host_day=per_1000_host_days / 1000,
        checkpoint=Checkpoint(
            interval_ns=minutes(interval),
            blocking_ns=minutes(blocking),
            background_ns=minutes(background),
        ),
        restart_ns=minutes(restart),
        queue_ns=minutes(queue),
        detection_ns=minutes(detection),
        while_down=while_down,
        fleet=fleet or Fleet(),
        preemption=preemption,
        replicas=replicas,
    )
