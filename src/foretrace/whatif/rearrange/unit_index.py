"""`UnitIndex`: recorded units by where they ran, for new jobs to take their pieces from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from foretrace.base import NotShownError
from foretrace.graph import NodeKind
from foretrace.whatif.rearrange.recorded_units import (
    PieceInRole,
    PieceRole,
    RankRun,
    RecordedUnit,
    Slot,
    StepRun,
    chunk_layers_of,
    parsed,
)
from foretrace.whatif.recorded.program import Coordinates, Program


class UnitIndex:
    """Units of every recorded rank, by step, pass, microbatch and chunk."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.layers_of_chunk = chunk_layers_of(program.layers_of_stage)
        self.num_stages = max(len(program.layers_of_stage), program.plan.pipeline, 1)
        self.num_chunks = max(len(self.layers_of_chunk), self.num_stages)
        self.chunk_of_layer = {
            layer: chunk for chunk, layers in self.layers_of_chunk.items() for layer in layers
        }
        self.runs: dict[int, RankRun] = parsed(program)
        self._units = {
            (run.rank, step.step): {unit.key: unit for unit in step.units}
            for run in self.runs.values()
            for step in run.steps
        }
        self._rank_at = {each: rank for rank, each in program.coordinates_by_rank.items()}
        self._durations_ns: dict[tuple[int, ...], dict[int, float]] = {}

    @property
    def num_layers(self) -> int:
        """Layers of the whole model, as recorded."""
        return len(self.chunk_of_layer)

    @property
    def has_units(self) -> bool:
        """Whether any pass was recorded."""
        return any(step.units for run in self.runs.values() for step in run.steps)

    @property
    def has_backward(self) -> bool:
        """Whether any backward pass was recorded."""
        return any(
            not unit.is_forward
            for run in self.runs.values()
            for step in run.steps[:1]
            for unit in step.units
        )

    def stage_of(self, chunk: int) -> int:
        """The recorded stage that holds a chunk."""
        return chunk % self.num_stages

    def rank_at(self, stage: int, like: Coordinates) -> int:
        """The recorded rank of a stage at these other coordinates, or the next one of its stage.

        Raises:
            NotShownError: if no rank of that stage was recorded.
        """
        wanted = Coordinates(like.tensor, like.context, like.data, stage)
        rank = self._rank_at.get(wanted)
        if rank is not None:
            return rank
        others = [
            (abs(each.tensor - like.tensor) + abs(each.data - like.data), number)
            for each, number in self._rank_at.items()
            if each.pipeline == stage
        ]
        if not others:
            recorded = sorted({each.pipeline for each in self._rank_at})
            raise NotShownError(
                f"no rank of stage {stage} was recorded (stages {recorded} were): record at least "
                "one rank of every stage, or keep the pipeline as it is"
            )
        return min(others)[1]

    def step(self, rank: int, step: int) -> StepRun:
        """One step of a rank."""
        return next(each for each in self.runs[rank].steps if each.step == step)

    def steps(self, rank: int) -> Iterator[StepRun]:
        """All steps of a rank."""
        yield from self.runs[rank].steps

    def unit(self, rank: int, step: int, key: tuple[bool, int, int]) -> RecordedUnit:
        """The recorded unit of that pass, microbatch and chunk.

        Raises:
            NotShownError: if the rank did not run it in that step.
        """
        unit = self._units.get((rank, step), {}).get(key)
        if unit is None:
            is_forward, microbatch, chunk = key
            name = self.program.graph.step_names[step]
            raise NotShownError(
                f"rank {rank} shows no {'forward' if is_forward else 'backward'} pass of "
                f"microbatch {microbatch} on chunk {chunk} in {name}, which the new job would "
                "repeat: load whole steps, or correct the blocks (see `inspect --blocks`)"
            )
        return unit

    def slot(self, like: Coordinates, step: int, key: tuple[bool, int], layer: int) -> Slot:
        """What the recorded rank of a layer's stage did for it, at these other coordinates.

        Raises:
            NotShownError: if it was not recorded, or in more than one stretch.
        """
        chunk = self.chunk_of_layer[layer]
        rank = self.rank_at(self.stage_of(chunk), like)
        unit = self.unit(rank, step, (*key, chunk))
        found = [slot for slot in unit.slots if slot.layer == layer]
        if len(found) != 1:
            way = "forward" if key[0] else "backward"
            raise NotShownError(
                f"rank {rank} works on layer {layer} in {len(found)} stretches of the {way} pass "
                f"of microbatch {key[1]}: only layers that are done in one can be placed anew; "
                "correct the blocks (see `inspect --blocks`), or keep layers and stages"
            )
        return found[0]

    def layer_durations_ns(self, like: Coordinates | None) -> dict[int, float]:
        """Work of each layer on host and device, both passes; the mean over steps, microbatches.

        Args:
            like: of the ranks at these coordinates, whatever their stage; `None`: of all.
        """
        wanted = set(self.runs)
        if like is not None:
            wanted = {
                self.rank_at(stage, like)
                for stage in {self.stage_of(chunk) for chunk in self.chunk_of_layer.values()}
            }
        ranks = tuple(sorted(wanted))
        if ranks not in self._durations_ns:
            self._durations_ns[ranks] = self._layer_durations_ns(ranks)
        return self._durations_ns[ranks]

    def _layer_durations_ns(self, ranks: Iterable[int]) -> dict[int, float]:
        measured_ns = self.program.graph.measured_ns
        found: dict[int, list[int]] = {}
        for rank in ranks:
            for step in self.runs[rank].steps:
                for unit in step.units:
                    for slot in unit.slots:
                        nodes = np.concatenate([entry.piece.nodes for entry in slot.entries])
                        found.setdefault(slot.layer, []).append(int(measured_ns[nodes].sum()))
        return {layer: sum(each) / len(each) for layer, each in found.items()}

    def kind_of_layer(self, layer: int) -> object:
        """What a layer runs forward, and whether a bucket ends with it: equal of like layers."""
        graph = self.program.graph
        chunk = self.chunk_of_layer[layer]
        stage = self.stage_of(chunk)
        rank = min(
            (rank for rank, run in self.runs.items() if run.coordinates.pipeline == stage),
            default=None,
        )
        if rank is None or not self.runs[rank].steps:
            return None
        units = [unit for unit in self.runs[rank].steps[0].units if unit.chunk == chunk]
        forward = next((unit for unit in units if unit.is_forward), None)
        backward = next((unit for unit in reversed(units) if not unit.is_forward), None)
        working = (NodeKind.KERNEL, NodeKind.FINISH, NodeKind.OPERATOR)
        work: list[int] = []
        for entry in _of_layer(forward, layer):
            nodes = entry.piece.nodes
            work += graph.name[nodes[graph.is_of(*working)[nodes]]].tolist()
        buckets = sum(entry.role is PieceRole.BUCKET for entry in _of_layer(backward, layer))
        return tuple(work), buckets > 0


def _of_layer(unit: RecordedUnit | None, layer: int) -> Iterator[PieceInRole]:
    for slot in unit.slots if unit is not None else ():
        if slot.layer == layer:
            yield from slot.entries
