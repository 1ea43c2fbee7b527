"""Units put together from parts are those that are cut out of all their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from foretrace.base import Float64s, Int64s
from foretrace.graph import Phase
from foretrace.workload import (
    Overlap,
    Pass,
    Plan,
    Recompute,
    Sharding,
    Tables,
    blocks_of_model,
)
from foretrace.workload.layout.part_times import Kernel, KernelTimes, PartTimes
from foretrace.workload.layout.piece_program import PieceProgram, unit_program
from foretrace.workload.layout.plain_unit import PlainUnits
from foretrace.workload.layout.sharded import gathered_chunk
from foretrace.workload.layout.tables import ExchangeKind
from foretrace.workload.layout.units import Chunk, UnitTemplates, chunks_of
from foretrace.workload.schedule.catalogue import schedule_of
from tests.models import transformer

BASE = Plan(global_batch=16, sequence=1024, tensor=2, pipeline=2, sequence_parallel=True)
PLANS = [
    ("llama3-8b", BASE),
    ("llama3-8b", replace(BASE, data=2, sharding=Sharding.ZERO3)),
    ("llama3-8b", replace(BASE, data=2, sharding=Sharding.ZERO3, prefetch=3)),
    ("llama3-8b", replace(BASE, data=2, sharding=Sharding.ZERO2, bucket_bytes=100_000_000)),
    ("llama3-8b", replace(BASE, data=2, overlap=Overlap(gradients=False, parameters=False))),
    ("llama3-8b", replace(BASE, context=4, sequence=8192, recompute=Recompute.SELECTIVE)),
    ("mixtral-8x7b", replace(BASE, data=4, expert=4, sharding=Sharding.ZERO1)),
]


class ByName:
    """Times that follow from names, so that different work takes different times."""

    def kernels(self, kernels: Sequence[Kernel]) -> tuple[Int64s, Float64s]:
        """As long as the texts."""
        alone_ns = [1_000 * len(one.label + one.signature) for one in kernels]
        return np.array(alone_ns, np.int64), np.array([len(one.label) / 100 for one in kernels])

    def exchanges_ns(
        self,
        exchanges: Sequence[ExchangeKind],
        groups: Sequence[tuple[int, ...]],
        group: Sequence[int],
    ) -> Int64s:
        """As long as the names."""
        assert groups
        assert group
        return np.array([10_000 * len(one.name) for one in exchanges], np.int64)


class Both:
    """Units of a plan, made in both ways."""

    def __init__(self, name: str, plan: Plan) -> None:
        model = transformer(name)
        blocks = blocks_of_model(replace(model, num_layers=8), plan)
        tables = Tables()
        self.chunks = chunks_of(blocks, plan, schedule_of(plan))
        self.templates = UnitTemplates(plan, tables, is_coarse=True)
        self.times = PartTimes(plan, KernelTimes(ByName(), tables))
        self.units = PlainUnits(self.times)

    def made(
        self, chunk: Chunk, kind: Pass, *, is_gathering: bool, is_reducing: bool, is_held: bool
    ) -> tuple[PieceProgram | None, PieceProgram]:
        """A unit from parts, and from kernels."""
        gathered = gathered_chunk(chunk, self.templates)
        held, held_by = (gathered.held, gathered.held_by) if is_held else ((), ())
        is_forward = kind is Pass.FORWARD
        parts = chunk.parts if is_forward else chunk.parts[::-1]
        phase = Phase.FORWARD if is_forward else Phase.BACKWARD
        plain = self.units.program(
            self.templates,
            chunk,
            kind,
            gathers=self.templates.gathers(parts, phase) if is_gathering else {},
            reductions=self.templates.reductions(parts) if is_reducing else {},
            held=held,
            held_by=held_by,
            ahead=2,
        )
        unit = self.templates.unit(
            chunk, kind, is_gathering=is_gathering, is_reducing=is_reducing, held=held
        )
        stretch = self.times.stretch(self.templates.coarse[id(unit.template)])
        return plain, unit_program([unit], stretch, ahead=2, held_by=[held_by])


def told(program: PieceProgram, times: PartTimes) -> tuple[object, ...]:
    """All that a step reads of a program, with its times."""
    assert program.stretch is not None
    exchange_ns = tuple(20_000 + 1_000 * number for number in program.inner)
    [found] = times.segments([(program.stretch, exchange_ns)])
    return (
        program.items.tolist(),
        sorted({*map(tuple, program.waits.tolist())}),
        (program.exits, program.loose, program.uses),
        program.timed(found, 45_000).tolist(),
    )


@pytest.mark.parametrize(("name", "plan"), PLANS)
def test_units_of_parts_are_those_of_all_their_kernels(name: str, plan: Plan) -> None:
    both = Both(name, plan)
    is_gathering = plan.sharding is Sharding.ZERO3
    for chunk, kind, is_other in product(both.chunks, Pass, [False, True]):
        plain, whole = both.made(
            chunk,
            kind,
            is_gathering=is_gathering and kind is not Pass.WEIGHT,
            is_reducing=is_other and kind in {Pass.BACKWARD, Pass.WEIGHT},
            is_held=is_other and kind is Pass.FORWARD and not is_gathering,
        )

        # What an embedding's gradient is exchanged for has no operator: it is seen beside others.
        assert (plain is None) == (kind is Pass.INPUT and chunk is both.chunks[0])
        assert plain is None or told(plain, both.times) == told(whole, both.times)
