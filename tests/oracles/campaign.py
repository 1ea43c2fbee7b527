"""Campaigns walked through checkpoint by checkpoint, host by host; draws in the loops' order."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np

FAR = 1 << 61


@dataclass
class Walk:
    """A clock, and what its time went into."""

    wall_ns: int
    clock_ns: int = 0
    spent: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def spend(self, account: str, duration_ns: int) -> None:
        """Let time pass, up to the end."""
        passed = min(duration_ns, self.wall_ns - self.clock_ns)
        self.spent[account] += passed
        self.clock_ns += passed


def time_to(random: np.random.Generator, per_ns: float) -> int:
    """An exponential time."""
    if per_ns <= 0:
        return FAR
    drawn = random.standard_exponential() / per_ns
    return FAR if drawn >= FAR else 1 + int(drawn)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that stops as a whole."""

    failures_per_ns: float
    lemon_factor: float
    repaired_share: float
    repair_ns: int
    excluded_after: int
    preemptions_per_ns: float
    preempted_ns: int
    has_notice: bool
    interval_ns: int
    blocking_ns: int
    background_ns: int
    detection_ns: int
    queue_ns: int
    restart_ns: int
    while_down: int
    wall_ns: int
    work_ns: int
    num_hosts: int


class Hosts:
    """Which hosts train, stand ready, and are being repaired."""

    def __init__(self, job: Job, lemons: list[bool]) -> None:
        self.job = job
        self.is_lemon = list(lemons)
        self.failed: Counter[int] = Counter()
        training = range(job.num_hosts)
        self.healthy = [host for host in training if not lemons[host]]
        self.lemons = [host for host in training if lemons[host]]
        self.spares = deque(range(job.num_hosts, len(lemons)))
        self.repairs: deque[tuple[int, int]] = deque()

    @property
    def per_ns(self) -> float:
        """Failures of all that train."""
        return self.job.failures_per_ns * (
            len(self.healthy) + self.job.lemon_factor * len(self.lemons)
        )

    def fail(self, random: np.random.Generator, walk: Walk) -> int:
        """Exchange a host; how long the one that takes its place is waited for."""
        job = self.job
        walk.counts["failures"] += 1
        place = random.random() * (len(self.healthy) + job.lemon_factor * len(self.lemons))
        group, index = self.healthy, int(place)
        if place >= len(self.healthy):
            group = self.lemons
            index = min(int((place - len(self.healthy)) / job.lemon_factor), len(group) - 1)
        host = group[index]
        if random.random() >= job.repaired_share:
            return 0
        last = group.pop()
        if index < len(group):
            group[index] = last
        self.failed[host] += 1
        if job.excluded_after and self.failed[host] >= job.excluded_after:
            walk.counts["excluded"] += 1
            self.failed[host] = 0
            self.is_lemon[host] = False
        self.repairs.append((host, walk.clock_ns + job.repair_ns))
        while self.repairs and self.repairs[0][1] <= walk.clock_ns:
            self.spares.append(self.repairs.popleft()[0])
        waiting_ns = 0
        if self.spares:
            replacement = self.spares.popleft()
        else:
            walk.counts["late"] += 1
            replacement, back_ns = self.repairs.popleft()
            waiting_ns = back_ns - walk.clock_ns
        (self.lemons if self.is_lemon[replacement] else self.healthy).append(replacement)
        return waiting_ns


def restarts(random: np.random.Generator, job: Job, lemons: list[bool]) -> Walk:
    """The oracle of `_restarts`."""
    walk, hosts, done_ns = Walk(job.wall_ns), Hosts(job, lemons), 0
    while walk.clock_ns < job.wall_ns:
        to_failure_ns = time_to(random, hosts.per_ns)
        to_preemption_ns = time_to(random, job.preemptions_per_ns)
        length_ns = min(to_failure_ns, to_preemption_ns, job.wall_ns - walk.clock_ns)
        trained_ns, kept_ns, saving_ns, is_done = _run(job, length_ns, job.work_ns - done_ns)
        is_over = walk.clock_ns + length_ns == job.wall_ns
        is_failure = not is_over and to_failure_ns <= to_preemption_ns
        if is_done or is_over or (not is_failure and job.has_notice):
            kept_ns = trained_ns
        walk.spend("productive", kept_ns)
        walk.spend("rework", trained_ns - kept_ns)
        walk.spend("checkpoint", saving_ns)
        done_ns += kept_ns
        if is_done:
            walk.counts["finished"] = 1
            break
        if is_over:
            break
        _stand(random, walk, job, hosts=hosts, is_failure=is_failure)
    return walk


def _run(job: Job, length_ns: int, missing_ns: int) -> tuple[int, int, int, bool]:
    """Trained, kept and spent on checkpoints in a run; whether the work got done."""
    at_ns = trained_ns = kept_ns = saving_ns = 0
    while at_ns < length_ns:
        piece_ns = min(job.interval_ns, length_ns - at_ns)
        if trained_ns + piece_ns >= missing_ns:
            return missing_ns, kept_ns, saving_ns, True
        at_ns += piece_ns
        trained_ns += piece_ns
        if piece_ns < job.interval_ns:
            break
        saved_ns = min(job.blocking_ns, length_ns - at_ns)
        at_ns += saved_ns
        saving_ns += saved_ns
        if saved_ns == job.blocking_ns and at_ns + job.background_ns <= length_ns:
            kept_ns = trained_ns
    return trained_ns, kept_ns, saving_ns, False


def _stand(
    random: np.random.Generator, walk: Walk, job: Job, *, hosts: Hosts, is_failure: bool
) -> None:
    if not is_failure:
        walk.counts["preemptions"] += 1
        if job.has_notice:
            walk.spend("checkpoint", job.blocking_ns + job.background_ns)
        walk.spend("preempted", job.preempted_ns)
    causes = ["failure" if is_failure else "preemption"]
    while causes and walk.clock_ns < job.wall_ns:
        down_ns = job.queue_ns + job.restart_ns
        if causes.pop() == "failure":
            down_ns += job.detection_ns
            waiting_ns = hosts.fail(random, walk)
            walk.spend("detection", job.detection_ns)
            walk.spend("waiting", waiting_ns)
        walk.spend("queue", job.queue_ns)
        if job.while_down == 1:
            until_ns = time_to(random, hosts.per_ns)
            walk.spend("restart", min(job.restart_ns, until_ns))
            if until_ns < job.restart_ns:
                causes.append("failure")
            continue
        walk.spend("restart", job.restart_ns)
        if job.while_down == 2:
            passed_ns = time_to(random, hosts.per_ns)
            while passed_ns < down_ns:
                causes.append("failure")
                passed_ns += time_to(random, hosts.per_ns)


@dataclass(frozen=True, kw_only=True)
class Members:
    """A job of replicas."""

    failures_per_ns: float
    num_replicas: int
    min_replicas: int
    keeps_state: bool
    joins_in_stall: bool
    stall_ns: int
    away_ns: int
    join_ns: int
    lost_step_ns: int
    num_spares: int
    repaired_share: float
    repair_ns: int
    interval_ns: int
    blocking_ns: int
    while_down: int
    wall_ns: int
    work_ns: float


@dataclass
class State:
    """What a job of replicas is in the middle of."""

    present: int
    spares: int
    returns: list[int] = field(default_factory=list)
    repairs: deque[int] = field(default_factory=deque)
    since: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    to_checkpoint_ns: int = 0

    def join(self, clock_ns: int) -> None:
        """Let those in that are back."""
        while self.returns and self.returns[0] <= clock_ns:
            self.returns.pop(0)
            self.present += 1

    def work(self, times: Counter[int], num_replicas: int) -> float:
        """Time of all replicas that such times with fewer come to."""
        return sum(time * count for count, time in times.items()) / num_replicas


def replicas(random: np.random.Generator, job: Members) -> tuple[Walk, Counter[int]]:
    """The oracle of `_replicas`: also the time that so many replicas did lasting work."""
    walk = Walk(job.wall_ns)
    state = State(job.num_replicas, job.num_spares, to_checkpoint_ns=job.interval_ns)
    while walk.clock_ns < job.wall_ns:
        if state.present < job.min_replicas:
            back_ns = state.returns[0]
            walk.spend("waiting", back_ns - walk.clock_ns)
            if walk.clock_ns < job.wall_ns:
                state.returns.pop(0)
                state.present += 1
                if job.joins_in_stall and state.present >= job.min_replicas:
                    walk.spend("stall", job.join_ns)
                    state.join(walk.clock_ns)
            continue
        to_failure_ns = time_to(random, job.failures_per_ns * state.present)
        to_return_ns = max(0, state.returns[0] - walk.clock_ns) if state.returns else FAR
        left_ns = job.wall_ns - walk.clock_ns
        length_ns = min(to_failure_ns, to_return_ns, state.to_checkpoint_ns, left_ns)
        done = state.work(state.kept, job.num_replicas) + state.work(state.since, job.num_replicas)
        missing_ns = (job.work_ns - done) * job.num_replicas / state.present
        if missing_ns <= length_ns:
            length_ns = int(np.ceil(missing_ns))
            walk.counts["finished"] = 1
        state.since[state.present] += length_ns
        state.to_checkpoint_ns -= length_ns
        walk.spend("trained", length_ns)
        if walk.counts["finished"] or walk.clock_ns >= job.wall_ns:
            break
        losses, stands_ns = 0, 0
        if length_ns == to_failure_ns:
            losses = 1
        elif length_ns == to_return_ns:
            state.returns.pop(0)
            state.present += 1
            stands_ns = job.join_ns
        else:
            losses = _save(random, walk, job, state=state)
        _stalls(random, walk, job, state=state, losses=losses, stands_ns=stands_ns)
    state.kept += state.since
    return walk, state.kept


def _save(random: np.random.Generator, walk: Walk, job: Members, *, state: State) -> int:
    """Take a checkpoint; the number of replicas that are lost meanwhile."""
    if job.blocking_ns:
        until_ns = time_to(random, job.failures_per_ns * state.present)
        walk.spend("checkpoint", min(until_ns, job.blocking_ns))
        if until_ns < job.blocking_ns:
            return 1
    state.kept += state.since
    state.since.clear()
    state.to_checkpoint_ns = job.interval_ns
    return 0


def _stalls(
    random: np.random.Generator,
    walk: Walk,
    job: Members,
    *,
    state: State,
    losses: int,
    stands_ns: int,
) -> None:
    stood = False
    while walk.clock_ns < job.wall_ns:
        per_ns = job.failures_per_ns * state.present
        if stands_ns and job.while_down == 1:
            until_ns = time_to(random, per_ns)
            losses += until_ns < stands_ns
            walk.spend("stall", min(stands_ns, until_ns))
        elif stands_ns:
            walk.spend("stall", stands_ns)
            if job.while_down == 2:
                passed_ns = time_to(random, per_ns)
                while passed_ns < stands_ns:
                    losses += 1
                    passed_ns += time_to(random, per_ns)
        stood = stood or stands_ns > 0
        if losses == 0 or state.present == 0:
            if stood and job.joins_in_stall:
                state.join(walk.clock_ns)
            return
        losses -= 1
        _lose(random, walk, job, state=state)
        stands_ns = job.stall_ns if state.present else 0


def _lose(random: np.random.Generator, walk: Walk, job: Members, *, state: State) -> None:
    walk.counts["failures"] += 1
    starts_ns = walk.clock_ns
    if random.random() < job.repaired_share:
        while state.repairs and state.repairs[0] <= walk.clock_ns:
            state.repairs.popleft()
            state.spares += 1
        state.repairs.append(walk.clock_ns + job.repair_ns)
        if state.spares:
            state.spares -= 1
        else:
            starts_ns = state.repairs.popleft()
    state.returns = sorted([*state.returns, starts_ns + job.away_ns])
    lost_ns = min(job.lost_step_ns, state.since[state.present])
    state.since[state.present] -= lost_ns
    walk.spent["rework"] += lost_ns
    state.present -= 1
    if state.present == 0 or not job.keeps_state:
        walk.spent["rework"] += sum(state.since.values())
        state.since.clear()
        state.to_checkpoint_ns = job.interval_ns
