"""What would not fit into memory is refused before it is tried."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from foretrace.base.errors import ModelError

_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container
_GB = 1e9


def check_fits(num_bytes: int, what: str, *, advice: str) -> None:
    """Refuse what takes more memory than this machine, container or process may have.

    Args:
        num_bytes: what it takes, roughly.
        what: in words, for the error: "a step of 3,000,000 operations".
        advice: what to ask for instead.

    Raises:
        ModelError: if it would not fit.
    """
    room = memory_bytes()
    if room is not None and num_bytes > room:
        raise ModelError(
            f"{what} would take {num_bytes / _GB:,.3g} GB of memory, and there are "
            f"{room / _GB:,.3g} GB: {advice}"
        )


def _held_bytes() -> int:
    """Address space of this process, where the system tells it."""
    with suppress(OSError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def memory_bytes() -> int | None:
    """What this process may have; `None` if the system does not tell."""
    found: list[int] = []
    with suppress(AttributeError, ValueError, OSError):  # no such names outside POSIX
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # "max" is no number
        found.append(int(_GROUP_LIMIT.read_text(encoding="ascii")))
    with suppress(ImportError):
        import resource  # POSIX only

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        found += [limit - _held_bytes()] if limit != resource.RLIM_INFINITY else []
    return min(found, default=None)
