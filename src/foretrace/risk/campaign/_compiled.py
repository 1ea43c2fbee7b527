"""Compiled loops over the events of a campaign; see `simulate`.

Times are int64 ns. `random` is a numpy Generator, which numba draws from bit by bit as numpy does.
What is drawn, and in which order, is part of what `tests/oracles/campaign.py` repeats: the time to
the next failure, the time to the next preemption (if there are any), then for a failure which
host it is and whether it is taken away.
"""

from __future__ import annotations

import numpy as np

from foretrace.base import Int64s, UInt8s, njit

# Positions in `spent`; `simulate.Account` names them in this order.
PRODUCTIVE, REWORK, CHECKPOINT, DETECTION, QUEUE, WAITING, RESTART, PREEMPTED = range(8)
STALL = 8
# Positions in `counts`.
FAILURES, RETURNED_LATE, EXCLUDED, PREEMPTIONS, FINISHED = range(5)
NO_FAILURES, AGAIN, ADD = range(3)  # `WhileDown`
FAR = 1 << 61  # ns that no campaign lasts
# Positions in `fleet`.
_HEALTHY, _LEMONS, _SPARE_HEAD, _SPARES, _REPAIR_HEAD, _REPAIRS = range(6)


@njit
def _time_to(random: np.random.Generator, per_ns: float) -> int:
    """An exponential time, at least 1 ns; nothing is drawn where nothing can come."""
    if per_ns <= 0.0:
        return FAR
    drawn = random.standard_exponential() / per_ns
    return FAR if drawn >= FAR else 1 + int(drawn)


@njit
def _spend(spent: Int64s, account: int, duration_ns: int, left_ns: int) -> int:
    """Add a duration to an account, as much as there is left; returns what was added."""
    added = min(duration_ns, left_ns)
    spent[account] += added
    return added


@njit
def _host_fails(
    random: np.random.Generator,
    clock_ns: int,
    lemon_factor: float,
    repaired_share: float,
    repair_ns: int,
    excluded_after: int,
    is_lemon: UInt8s,
    num_failed: Int64s,
    healthy: Int64s,
    lemons: Int64s,
    spares: Int64s,
    repaired: Int64s,
    back_ns: Int64s,
    fleet: Int64s,
    counts: Int64s,
) -> int:
    """Draw the host that fails, put another in its place; returns how long that is waited for.

    In and out: `is_lemon`, `num_failed` (by host); `healthy`, `lemons` (those that train),
    `spares` and `repaired` with `back_ns` (rings, first come first served), `fleet` (how many of
    each, and where the rings begin), `counts`. All are as long as there are hosts.
    """
    size = spares.size
    counts[FAILURES] += 1
    place = random.random() * (fleet[_HEALTHY] + lemon_factor * fleet[_LEMONS])
    is_bad = place >= fleet[_HEALTHY]
    if is_bad:
        index = min(int((place - fleet[_HEALTHY]) / lemon_factor), fleet[_LEMONS] - 1)
        host = lemons[index]
    else:
        index = int(place)
        host = healthy[index]
    if random.random() >= repaired_share:
        return 0
    num_failed[host] += 1
    if is_bad:
        fleet[_LEMONS] -= 1
        lemons[index] = lemons[fleet[_LEMONS]]
    else:
        fleet[_HEALTHY] -= 1
        healthy[index] = healthy[fleet[_HEALTHY]]
    if excluded_after > 0 and num_failed[host] >= excluded_after:
        counts[EXCLUDED] += 1
        num_failed[host] = 0
        is_lemon[host] = 0
    at = (fleet[_REPAIR_HEAD] + fleet[_REPAIRS]) % size
    repaired[at] = host
    back_ns[at] = clock_ns + repair_ns
    fleet[_REPAIRS] += 1
    while fleet[_REPAIRS] > 0 and back_ns[fleet[_REPAIR_HEAD]] <= clock_ns:
        spares[(fleet[_SPARE_HEAD] + fleet[_SPARES]) % size] = repaired[fleet[_REPAIR_HEAD]]
        fleet[_SPARES] += 1
        fleet[_REPAIR_HEAD] = (fleet[_REPAIR_HEAD] + 1) % size
        fleet[_REPAIRS] -= 1
    waiting_ns = 0
    if fleet[_SPARES] > 0:
        replacement = spares[fleet[_SPARE_HEAD]]
        fleet[_SPARE_HEAD] = (fleet[_SPARE_HEAD] + 1) % size
        fleet[_SPARES] -= 1
    else:
        counts[RETURNED_LATE] += 1
        replacement = repaired[fleet[_REPAIR_HEAD]]
        waiting_ns = back_ns[fleet[_REPAIR_HEAD]] - clock_ns
        fleet[_REPAIR_HEAD] = (fleet[_REPAIR_HEAD] + 1) % size
        fleet[_REPAIRS] -= 1
    if is_lemon[replacement]:
        lemons[fleet[_LEMONS]] = replacement
        fleet[_LEMONS] += 1
    else:
        healthy[fleet[_HEALTHY]] = replacement
        fleet[_HEALTHY] += 1
    return waiting_ns


@njit
def _restarts(
    random: np.random.Generator,
    failures_per_ns: float,
    lemon_factor: float,
    repaired_share: float,
    repair_ns: int,
    excluded_after: int,
    preemptions_per_ns: float,
    preempted_ns: int,
    has_notice: bool,
    interval_ns: int,
    blocking_ns: int,
    background_ns: int,
    detection_ns: int,
    queue_ns: int,
    restart_ns: int,
    while_down: int,
    wall_ns: int,
    work_ns: int,
    num_hosts: int,
    is_lemon: UInt8s,
    spent: Int64s,
    counts: Int64s,
) -> int:
    """A job that every failure stops as a whole; returns how long it ran.

    In: `failures_per_ns` of a host that is no lemon; `is_lemon`, uint8[hosts], of which the first
    `num_hosts` train (changed). Ends at `wall_ns`, or when `work_ns` are done.
    Out: `spent`, int64[accounts], zero before; `counts`, int64[5], zero before.
    """
    size = is_lemon.size
    num_failed = np.zeros(size, np.int64)
    healthy = np.empty(size, np.int64)
    lemons = np.empty(size, np.int64)
    spares = np.empty(size, np.int64)
    repaired = np.empty(size, np.int64)
    back_ns = np.empty(size, np.int64)
    fleet = np.zeros(6, np.int64)
    for host in range(size):
        if host >= num_hosts:
            spares[fleet[_SPARES]] = host
            fleet[_SPARES] += 1
        elif is_lemon[host]:
            lemons[fleet[_LEMONS]] = host
            fleet[_LEMONS] += 1
        else:
            healthy[fleet[_HEALTHY]] = host
            fleet[_HEALTHY] += 1
    segment_ns = interval_ns + blocking_ns
    clock_ns = 0
    done_ns = 0
    while clock_ns < wall_ns:
        # A run: what it lasts until, and what it leaves.
        to_failure_ns = _time_to(
            random, failures_per_ns * (fleet[_HEALTHY] + lemon_factor * fleet[_LEMONS])
        )
        to_preemption_ns = _time_to(random, preemptions_per_ns)
        length_ns = min(to_failure_ns, to_preemption_ns, wall_ns - clock_ns)
        missing_ns = work_ns - done_ns
        num_full = (missing_ns - 1) // interval_ns
        to_end_ns = missing_ns + num_full * blocking_ns
        if to_end_ns <= length_ns:
            spent[PRODUCTIVE] += missing_ns
            spent[CHECKPOINT] += num_full * blocking_ns
            counts[FINISHED] = 1
            return clock_ns + to_end_ns
        num_full = length_ns // segment_ns
        trained_ns = num_full * interval_ns + min(length_ns - num_full * segment_ns, interval_ns)
        is_over = length_ns == wall_ns - clock_ns
        is_failure = not is_over and to_failure_ns <= to_preemption_ns
        kept_ns = trained_ns
        if not is_over and (is_failure or not has_notice):
            kept_ns = 0
            if length_ns >= background_ns:
                kept_ns = (length_ns - background_ns) // segment_ns * interval_ns
        spent[PRODUCTIVE] += kept_ns
        spent[REWORK] += trained_ns - kept_ns
        spent[CHECKPOINT] += length_ns - trained_ns
        done_ns += kept_ns
        clock_ns += length_ns
        if is_over:
            break
        # Standing still, until a restart succeeds.
        if not is_failure:
            counts[PREEMPTIONS] += 1
            if has_notice:
                saving_ns = blocking_ns + background_ns
                clock_ns += _spend(spent, CHECKPOINT, saving_ns, wall_ns - clock_ns)
            clock_ns += _spend(spent, PREEMPTED, preempted_ns, wall_ns - clock_ns)
        pending = 1
        while pending > 0 and clock_ns < wall_ns:
            pending -= 1
            down_ns = queue_ns + restart_ns
            if is_failure:
                down_ns += detection_ns
                waiting_ns = _host_fails(
                    random, clock_ns, lemon_factor, repaired_share, repair_ns, excluded_after,
                    is_lemon, num_failed, healthy, lemons, spares, repaired, back_ns, fleet,
                    counts,
                )  # fmt: skip
                clock_ns += _spend(spent, DETECTION, detection_ns, wall_ns - clock_ns)
                clock_ns += _spend(spent, WAITING, waiting_ns, wall_ns - clock_ns)
            clock_ns += _spend(spent, QUEUE, queue_ns, wall_ns - clock_ns)
            per_ns = failures_per_ns * (fleet[_HEALTHY] + lemon_factor * fleet[_LEMONS])
            if while_down == AGAIN:
                to_failure_ns = _time_to(random, per_ns)
                if to_failure_ns < restart_ns:
                    pending += 1
                lasts_ns = min(restart_ns, to_failure_ns)
                clock_ns += _spend(spent, RESTART, lasts_ns, wall_ns - clock_ns)
            else:
                clock_ns += _spend(spent, RESTART, restart_ns, wall_ns - clock_ns)
                if while_down == ADD:
                    left_ns = down_ns - _time_to(random, per_ns)
                    while left_ns > 0:
                        pending += 1
                        left_ns -= _time_to(random, per_ns)
            is_failure = True
    return clock_ns


@njit
def _replicas(
    random: np.random.Generator,
    failures_per_ns: float,
    num_replicas: int,
    min_replicas: int,
    keeps_state: bool,
    joins_in_stall: bool,
    stall_ns: int,
    away_ns: int,
    join_ns: int,
    lost_step_ns: int,
    num_spares: int,
    repaired_share: float,
    repair_ns: int,
    interval_ns: int,
    blocking_ns: int,
    while_down: int,
    wall_ns: int,
    work_ns: float,
    spent: Int64s,
    counts: Int64s,
    kept_ns: Int64s,
) -> int:
    """A job of replicas that fail and come back one by one; returns how long it ran.

    In: `failures_per_ns` of one replica. With `joins_in_stall`, replicas that are back when the
    others stop standing still join them then, at no further cost. Ends at `wall_ns`, or when
    `work_ns` of all replicas' time are done. `PRODUCTIVE` stays zero: what was trained stands in
    `kept_ns`.
    Out: `spent` and `counts`, as in `_restarts`; `kept_ns`, int64[replicas + 1], zero before: time
    in which so many replicas did work that was kept.
    """
    back_ns = np.empty(num_replicas + 1, np.int64)  # rising: when lost replicas return
    since_ns = np.zeros(num_replicas + 1, np.int64)  # as `kept_ns`, since the last checkpoint
    ready_ns = np.empty(num_spares + 2, np.int64)  # ring: when hosts come back from repair
    ready_head = 0
    num_repairs = 0
    num_away = 0
    present = num_replicas
    lowest = num_replicas  # of `since_ns` that may not be zero
    done_ns = 0.0  # in time of all replicas
    done_since_ns = 0.0
    clock_ns = 0
    to_checkpoint_ns = interval_ns
    while clock_ns < wall_ns:
        pending = 0
        stands_ns = 0
        has_stood = False
        if present < min_replicas:
            lasts_ns = back_ns[0] - clock_ns
            clock_ns += _spend(spent, WAITING, lasts_ns, wall_ns - clock_ns)
            if clock_ns >= wall_ns:
                break
            for place in range(1, num_away):
                back_ns[place - 1] = back_ns[place]
            num_away -= 1
            present += 1
            if joins_in_stall and present >= min_replicas:
                clock_ns += _spend(spent, STALL, join_ns, wall_ns - clock_ns)
                while num_away > 0 and back_ns[0] <= clock_ns:
                    for place in range(1, num_away):
                        back_ns[place - 1] = back_ns[place]
                    num_away -= 1
                    present += 1
            continue
        to_failure_ns = _time_to(random, failures_per_ns * present)
        to_return_ns = max(0, back_ns[0] - clock_ns) if num_away > 0 else FAR
        length_ns = min(to_failure_ns, to_return_ns, to_checkpoint_ns, wall_ns - clock_ns)
        missing_ns = (work_ns - done_ns - done_since_ns) * num_replicas / present
        if missing_ns <= length_ns:
            since_ns[present] += int(np.ceil(missing_ns))
            clock_ns += int(np.ceil(missing_ns))
            counts[FINISHED] = 1
            break
        since_ns[present] += length_ns
        lowest = min(lowest, present)
        done_since_ns += length_ns * (present / num_replicas)
        clock_ns += length_ns
        to_checkpoint_ns -= length_ns
        if clock_ns >= wall_ns:
            break
        if to_failure_ns == length_ns:
            pending = 1
        elif to_return_ns == length_ns:
            for place in range(1, num_away):
                back_ns[place - 1] = back_ns[place]
            num_away -= 1
            present += 1
            stands_ns = join_ns
        else:
            to_failure_ns = FAR
            if blocking_ns > 0:
                to_failure_ns = _time_to(random, failures_per_ns * present)
            saving_ns = min(blocking_ns, to_failure_ns)
            clock_ns += _spend(spent, CHECKPOINT, saving_ns, wall_ns - clock_ns)
            if to_failure_ns < blocking_ns:
                pending = 1  # and the checkpoint is taken anew
            else:
                for count in range(lowest, num_replicas + 1):
                    kept_ns[count] += since_ns[count]
                    since_ns[count] = 0
                lowest = num_replicas
                done_ns += done_since_ns
                done_since_ns = 0.0
                to_checkpoint_ns = interval_ns
        while clock_ns < wall_ns:
            # What those who are left stand still for, and who is lost meanwhile.
            if stands_ns > 0 and while_down == AGAIN:
                to_failure_ns = _time_to(random, failures_per_ns * present)
                if to_failure_ns < stands_ns:
                    pending += 1
                    stands_ns = to_failure_ns
                clock_ns += _spend(spent, STALL, stands_ns, wall_ns - clock_ns)
            elif stands_ns > 0:
                clock_ns += _spend(spent, STALL, stands_ns, wall_ns - clock_ns)
                if while_down == ADD:
                    left_ns = stands_ns - _time_to(random, failures_per_ns * present)
                    while left_ns > 0:
                        pending += 1
                        left_ns -= _time_to(random, failures_per_ns * present)
            has_stood |= stands_ns > 0
            if pending == 0 or present == 0:
                while joins_in_stall and has_stood and num_away > 0 and back_ns[0] <= clock_ns:
                    for place in range(1, num_away):
                        back_ns[place - 1] = back_ns[place]
                    num_away -= 1
                    present += 1
                break
            pending -= 1
            counts[FAILURES] += 1
            starts_ns = clock_ns
            if random.random() < repaired_share:
                while num_repairs > 0 and ready_ns[ready_head] <= clock_ns:
                    ready_head = (ready_head + 1) % ready_ns.size
                    num_repairs -= 1
                    num_spares += 1
                ready_ns[(ready_head + num_repairs) % ready_ns.size] = clock_ns + repair_ns
                num_repairs += 1
                if num_spares > 0:
                    num_spares -= 1
                else:
                    if repair_ns > 0:
                        counts[RETURNED_LATE] += 1
                    starts_ns = ready_ns[ready_head]
                    ready_head = (ready_head + 1) % ready_ns.size
                    num_repairs -= 1
            place = num_away
            while place > 0 and back_ns[place - 1] > starts_ns + away_ns:
                back_ns[place] = back_ns[place - 1]
                place -= 1
            back_ns[place] = starts_ns + away_ns
            num_away += 1
            lost_ns = min(lost_step_ns, since_ns[present])
            since_ns[present] -= lost_ns
            spent[REWORK] += lost_ns
            done_since_ns -= lost_ns * (present / num_replicas)
            present -= 1
            if present == 0 or not keeps_state:
                for count in range(lowest, num_replicas + 1):
                    spent[REWORK] += since_ns[count]
                    since_ns[count] = 0
                lowest = num_replicas
                done_since_ns = 0.0
                to_checkpoint_ns = interval_ns
            stands_ns = stall_ns if present > 0 else 0
    for count in range(num_replicas + 1):
        kept_ns[count] += since_ns[count]
    return clock_ns
