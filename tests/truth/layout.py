"""Where a rank stands in a job, the process groups it is in, and the order of its microbatches."""

from __future__ import annotations

from dataclasses import dataclass

from tests.truth.config import JobConfig
from tests.truth.structure import Group


@dataclass(frozen=True)
class Place:
    """Where a rank stands in the job."""

    rank: int
    tp: int
    dp: int
    pp: int


def place_of(config: JobConfig, rank: int) -> Place:
    return Place(
        rank=rank,
        tp=rank % config.tp,
        dp=rank // config.tp % config.dp,
        pp=rank // (config.tp * config.dp),
    )


def rank_of(config: JobConfig, *, tp: int, dp: int, pp: int) -> int:
    return tp + config.tp * (dp + config.dp * pp)


@dataclass(frozen=True)
class Groups:
    """The process groups that one rank is in."""

    world: Group
    tp: Group
    dp: Group
    pp: Group
    ring: Group

    @property
    def used(self) -> tuple[Group, ...]:
        """Those with more than one rank, the default group always."""
        rest = (self.tp, self.dp, self.pp, self.ring)
        return (self.world, *(group for group in rest if len(group.ranks) > 1))


def groups_of(config: JobConfig, place: Place) -> Groups:
    """Named as the framework does: a number per group, in the order of creation, job-wide."""
    num_tp, num_dp = config.dp * config.pp, config.tp * config.pp
    num_pp = config.tp * config.dp
    tp_index = place.dp + config.dp * place.pp
    dp_index = place.tp + config.tp * place.pp
    pp_index = place.tp + config.tp * place.dp
    data = tuple(rank_of(config, tp=place.tp, dp=dp, pp=place.pp) for dp in range(config.dp))
    tensor = tuple(rank_of(config, tp=tp, dp=place.dp, pp=place.pp) for tp in range(config.tp))
    pipe = tuple(rank_of(config, tp=place.tp, dp=place.dp, pp=pp) for pp in range(config.pp))
    ring_name = str(1 + num_tp + num_dp + num_pp + dp_index)
    return Groups(
        world=Group("0", "default_pg", tuple(range(config.num_ranks)), "world"),
        tp=Group(str(1 + tp_index), "TENSOR_MODEL_PARALLEL_GROUP", tensor, "tp"),
        dp=Group(str(1 + num_tp + dp_index), "DATA_PARALLEL_GROUP", data, "dp"),
        pp=Group(str(1 + num_tp + num_dp + pp_index), "PIPELINE_MODEL_PARALLEL_GROUP", pipe, "pp"),
        ring=Group(ring_name, "CONTEXT_PARALLEL_GROUP", data, "ring"),
    )


def schedule(config: JobConfig, stage: int) -> list[tuple[bool, int]]:
    """(is forward, microbatch) in the order in which a stage runs them."""
    microbatches = range(config.num_microbatches)
    forwards = [(True, index) for index in microbatches]
    if not config.has_backward:
        return forwards
    backwards = [(False, index) for index in microbatches]
    if config.schedule == "gpipe":
        return forwards + backwards
    num_warm = min(config.pp - 1 - stage, config.num_microbatches)
    steps = forwards[:num_warm]
    for forward, backward in zip(forwards[num_warm:], backwards, strict=False):
        steps += [forward, backward]
    return steps + backwards[config.num_microbatches - num_warm :]
