"""`LiveHost`: the machine that a live test runs on, measured apart from what it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from foretrace.answer import percent_text
from foretrace.base import CollectiveKind, ModelError, write_whole
from foretrace.capture import Device, HostSpeed, Row, measured_collectives, measured_host
from foretrace.simulate import Cores

COLLECTIVES = (CollectiveKind.ALL_REDUCE.in_tables, CollectiveKind.SEND_RECV.in_tables)
# Of transfers whose share of a core is looked at: below, a call is more waiting than work.
_LEAST_BYTES = 1 << 20
BUSY = 0.1  # one process alone is so much faster at one time than at another: it is not alone
_CALM_SECONDS, _MOST_TRIES = 10.0, 3
_NUM_REPEATS = 2  # of the measurement of collectives, so that its medians are not of one moment


@dataclass(frozen=True)
class LiveHost:
    """What predictions may know of the machine, beside the base's recording."""

    device: Device  # of each rank
    speed: HostSpeed
    collectives: tuple[Row, ...]  # as `foretrace measure` writes them

    @property
    def cores(self) -> Cores:
        """The processor cores that ranks share, and what transfers take of them."""
        shares = [
            float(str(row["cores"]))
            for row in self.collectives
            if row["num_gpus"] == 2 and int(str(row["message_bytes"])) >= _LEAST_BYTES  # noqa: PLR2004  a pair has a core each
        ]
        transfers = min(1.0, float(np.median(shares))) if shares else 0.0
        return Cores(speed=self.speed.speed, transfers=transfers)

    @property
    def is_busy(self) -> bool:
        """Whether something else computed while it was described."""
        return self.speed.spread[0] > BUSY

    def unrest(self, num_ranks: int) -> float:
        """How far the speed of so many processes was from its middle, on a logarithmic scale.

        Half of the way from the slowest to the fastest turn, which is nearly the middle 80% of so
        few turns; the largest number of processes that was measured stands for more.
        """
        spread = self.speed.spread
        return math.log1p(spread[min(num_ranks, len(spread)) - 1]) / 2


def described_host(
    device: Device,
    ranks: Sequence[int],
    *,
    seconds: float,
    progress: Callable[[str, int, int], None] | None = None,
) -> LiveHost:
    """Measure this machine for jobs of so many ranks.

    Args:
        device: that each rank computes on.
        ranks: sizes of groups to measure collectives in; the largest is the most processes that
            compute at once.
        seconds: for all of it, the start of processes not counted.
        progress: called with what is done, how much of it is over, and all of it.

    Raises:
        ModelError: if a process fails.
    """
    tell = progress or (lambda *_: None)
    parts = 1 + _NUM_REPEATS * len(ranks)
    tell("measuring processes at once", 0, parts)
    speed = _calm_speed(max(ranks, default=1), seconds=seconds / 3, progress=tell)
    rows: list[Row] = []
    for repeat in range(_NUM_REPEATS):
        for number, count in enumerate(ranks):
            tell("measuring collectives", 1 + repeat * len(ranks) + number, parts)
            rows += measured_collectives(
                device,
                count,
                seconds=seconds * 2 / 3 / (parts - 1),
                collectives=COLLECTIVES,
            )
    return LiveHost(device, speed, tuple(rows))


def _calm_speed(
    num_processes: int, *, seconds: float, progress: Callable[[str, int, int], None]
) -> HostSpeed:
    """The speed of processes on a machine that does nothing else, or nearly: waited for.

    Of several tries, that in which one process alone was steadiest.
    """
    tries = [measured_host(num_processes, seconds=seconds)]
    while tries[-1].spread[0] > BUSY and len(tries) < _MOST_TRIES:
        off = percent_text(100 * tries[-1].spread[0])
        progress(f"this machine is busy ({off} apart): measuring again", len(tries), _MOST_TRIES)
        time.sleep(_CALM_SECONDS)
        tries.append(measured_host(num_processes, seconds=seconds))
    return min(tries, key=lambda one: one.spread[0])


def write_host(host: LiveHost, path: Path) -> None:
    """Keep it as JSON."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(host), indent=1))


def read_host(path: Path) -> LiveHost:
    """What `write_host` wrote.

    Raises:
        ModelError: if it is not there or not whole.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=LiveHost)
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelError(
            f"no description of the machine in {str(path)!r} ({error}): measure with "
            "`foretrace validate live --out FOLDER` first"
        ) from error
