"""`UnitPrograms`: steps at unit grain as columns that a compiled loop runs, without their graphs.

They say of a plan's step what `unit_layout` says: the same items wait for the same. There these
become nodes that can be looked at; here only the time that the step takes comes out, for thousands
of plans of a model in turn. What plans have in common is made once: blocks, schedules, what a unit
is made of, and how long that takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from foretrace.base import Int64s
from foretrace.graph import EdgeKind, Phase
from foretrace.workload.blocks.block import ModelBlocks
from foretrace.workload.blocks.of_model import blocks_of_model, plan_of_blocks
from foretrace.workload.blocks.transformer import KnownSteps
from foretrace.workload.layout.closing import Closings, has_table
from foretrace.workload.layout.launch import launch_of
from foretrace.workload.layout.part_times import KernelTimes, PartRun, PartTimes, Timing
from foretrace.workload.layout.piece_program import (
    PieceProgram,
    closing_program,
    gathering_program,
    joined_programs,
    run_programs,
    unit_program,
)
from foretrace.workload.layout.placed_exchanges import PlacedExchanges
from foretrace.workload.layout.plain_unit import KnownShapes, PlainUnits
from foretrace.workload.layout.sharded import Gathered, GatheredChunks
from foretrace.workload.layout.stage_units import Transfers
from foretrace.workload.layout.tables import NOTHING, SENDS, Tables
from foretrace.workload.layout.template import Template
from foretrace.workload.layout.unit_columns import ScheduleColumns, reducing_units
from foretrace.workload.layout.units import (
    Chunk,
    KnownTemplates,
    UnitTemplate,
    UnitTemplates,
    chunks_of,
)
from foretrace.workload.models.parameters import Model
from foretrace.workload.plan.plan import Plan, Sharding, chunk_layers
from foretrace.workload.schedule.catalogue import KeptSchedules
from foretrace.workload.schedule.legality import order_of_turns
from foretrace.workload.schedule.schedule import Pass, Schedule

_MOST_SETTINGS = 1_000  # whose programs are kept
_GONE = -1
_CODES = 16  # of what units of one chunk do
_LAGS = EdgeKind.LAUNCH, EdgeKind.STREAM, EdgeKind.INTER_STREAM, EdgeKind.WAKE
Made = Callable[[], list[PieceProgram]]


@dataclass(eq=False)
class _Work:
    """Blocks of plans that share them, and what was made of these."""

    blocks: ModelBlocks
    times: PartTimes
    templates: KnownTemplates
    shapes: KnownShapes
    # By layers and routes: chunks, and a number for the content of each.
    chunks: dict[object, tuple[tuple[Chunk, ...], Int64s]] = field(default_factory=dict)
    contents: dict[object, int] = field(default_factory=dict)
    # Of units that exchange no parameters and no gradients: the same however these are divided.
    programs: dict[object, list[PieceProgram]] = field(default_factory=dict)
    sent: int = NOTHING

    @cached_property
    def plain(self) -> PlainUnits:
        """What makes programs of its units."""
        return PlainUnits(self.times, self.shapes)

    def transfer(self, tables: Tables) -> int:
        """Number of what stages send each other."""
        if self.sent == NOTHING:
            transfers = Transfers(tables, self.blocks)
            columns = transfers.template(SENDS, is_forward=True).columns
            self.sent = int(columns["exchange"][0])
        return self.sent

    def chunks_of(self, plan: Plan, schedule: Schedule) -> tuple[tuple[Chunk, ...], Int64s]:
        """A plan's chunks, and a number for the content of each."""
        key = chunk_layers(plan, len(self.blocks.layers)), schedule.routes
        if key not in self.chunks:
            found, known = chunks_of(self.blocks, plan, schedule), self.contents
            numbers = [known.setdefault(one.key, len(known)) for one in found]
            self.chunks[key] = found, np.array(numbers, np.int64)
        return self.chunks[key]


class _Setting:
    """What units are made of in plans that differ in how long their pipelines are and how full."""

    def __init__(self, plan: Plan, work: _Work, steps: UnitPrograms) -> None:
        """Make nothing yet; the plan is one of them."""
        self._plan, self._work, self._steps = plan, work, steps
        self.programs: dict[object, list[PieceProgram]] = {}

    @cached_property
    def templates(self) -> UnitTemplates:
        """Of units."""
        known = self._work.templates
        return UnitTemplates(self._plan, self._steps.tables, is_coarse=True, known=known)

    @cached_property
    def gathered(self) -> GatheredChunks:
        """What gathers chunks."""
        return GatheredChunks(self.templates, self._steps.gathered)

    @cached_property
    def closings(self) -> Closings:
        """What is behind all units."""
        return Closings(self.templates, self._work.blocks)


class _Scheduled:
    """A schedule's units as the compiled loop reads them: in an order in which they can run."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.stage_of = np.array(schedule.stage_of_chunk, np.int64)
        units = ScheduleColumns(schedule)
        num_units, begin = len(units.kind), schedule.orders.begin
        size = np.zeros(num_units, np.int64)
        size[units.lead] = np.diff(units.lead, append=num_units)
        self._order = order = order_of_turns(units.maker, size, begin)
        place = np.empty(num_units, np.int64)
        place[order] = np.arange(num_units)
        following = np.full(num_units, _GONE, np.int64)
        lead, then = units.lead[:-1], units.lead[1:]
        is_same = units.stage[lead] == units.stage[then]
        following[lead[is_same]] = place[then[is_same]]
        opens = np.append(True, units.stage[1:] != units.stage[:-1])
        columns = (
            *(units.stage, size, np.where(units.maker >= 0, place[units.maker], _GONE)),
            np.where(units.is_received, units.crosses_before, _GONE),
            np.where(units.is_sent, units.crosses_behind, _GONE),
            *(following, units.chunk, units.is_first + 2 * opens),
        )
        rows = np.empty((num_units, len(columns)), np.int32)
        for at, column in enumerate(columns):
            rows[:, at] = column
        self.rows = rows[order]
        self.is_second = units.is_second[order]
        firsts = np.flatnonzero(units.is_first)
        self.firsts = np.searchsorted(firsts, begin), units.chunk[firsts]
        self._plain_code = (units.chunk * 4 + units.kind) * 4 + units.is_first
        self._codes: dict[object, Int64s] = {}

    def codes(self, plan: Plan) -> Int64s:
        """What each unit does: chunk, pass, whether it reduces, whether it is its chunk's first."""
        key = plan.sharding, plan.overlap.gradients
        if key not in self._codes:
            reduces = reducing_units(self.schedule.orders, plan)
            self._codes[key] = (self._plain_code + 2 * reduces)[self._order]
        return self._codes[key]


class UnitPrograms:
    """Step times of many plans of one model at unit grain; `run_units` says the same of each."""

    def __init__(self, model: Model, timing: Timing, schedules: KeptSchedules) -> None:
        """Know nothing yet.

        Args:
            model: of all plans.
            timing: says how long stretches and exchanges take.
            schedules: of plans, made once.
        """
        self._model, self.timing, self._schedules = model, timing, schedules
        self.tables, self._shapes = Tables(), KnownShapes()
        self._templates, self.gathered = KnownTemplates(), dict[object, Gathered]()
        self._kernels = KernelTimes(timing, self.tables)
        self._works: dict[Plan, _Work] = {}
        self._steps = KnownSteps()
        self._scheduled: dict[int, _Scheduled] = {}
        self._settings: dict[Plan, _Setting] = {}
        self._places: dict[object, PlacedExchanges] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Another process finds out for itself."""
        return UnitPrograms, (self._model, self.timing, KeptSchedules())

    def step_ns(self, plan: Plan) -> int:
        """How long a legal plan's step takes.

        Raises:
            MachineError: for a collective, a product or attention that has no cost.
        """
        return _Step(self, plan).step_ns()

    def work(self, plan: Plan) -> _Work:
        """Blocks of a plan."""
        key = plan_of_blocks(plan)
        if key not in self._works:
            blocks = blocks_of_model(self._model, key, self._steps)
            own = self._templates.of_other_blocks()
            self._works[key] = _Work(blocks, PartTimes(key, self._kernels), own, self._shapes)
        return self._works[key]

    def scheduled(self, plan: Plan) -> _Scheduled:
        """The plan's schedule."""
        schedule = self._schedules.of(plan)
        found = self._scheduled.get(id(schedule))
        if found is None or found.schedule is not schedule:
            if len(self._scheduled) > _MOST_SETTINGS:
                self._scheduled.clear()
            found = self._scheduled[id(schedule)] = _Scheduled(schedule)
        return found

    def setting(self, plan: Plan) -> _Setting:
        """What the plan's units are made of."""
        key = replace(
            plan,
            pipeline=min(plan.pipeline, 2),
            schedule="dualpipe" if plan.schedule == "dualpipe" else "1f1b",
            num_chunks=1,
            layers_of_chunk=None,
            contiguous=None,
            path=None,
            name="",
            global_batch=min(plan.num_microbatches, 2),
        )
        if len(self._settings) > _MOST_SETTINGS:
            self._settings.clear()
        if key not in self._settings:
            self._settings[key] = _Setting(plan, self.work(plan), self)
        return self._settings[key]

    def places(self, plan: Plan) -> PlacedExchanges:
        """Where ranks of a plan stand."""
        key = (*plan.places, plan.schedule == "dualpipe")
        if key not in self._places:
            self._places[key] = PlacedExchanges(plan, self.tables, self.timing)
        return self._places[key]


class _Step:
    """One plan's step: what its pieces are, and how long it takes."""

    def __init__(self, steps: UnitPrograms, plan: Plan) -> None:
        self._steps, self._plan = steps, plan
        self._work, self._units = steps.work(plan), steps.scheduled(plan)
        self._setting = steps.setting(plan)
        self._chunks, self._contents = self._work.chunks_of(plan, self._units.schedule)
        is_gathered = plan.sharding in {Sharding.ZERO1, Sharding.ZERO2}
        self._is_ahead = is_gathered and plan.overlap.parameters
        self._is_behind = is_gathered and not plan.overlap.parameters
        # Distinct programs, and the first stage that runs each.
        self._numbers: dict[int, int] = {}
        self._programs: list[PieceProgram] = []
        self._stages: list[int] = []

    def step_ns(self) -> int:
        """How long it takes."""
        program = self._program_of_units(self._units.codes(self._plan))
        gather = np.full(len(self._units.stage_of), _GONE, np.int64)
        if self._is_ahead or self._is_behind:
            gather = self._gathers_of_chunks()
        closing = self._closing(gather)
        return self._run(program, gather if self._is_ahead else gather * 0 + _GONE, closing)

    def _place(self, key: object, stage: int, make: Made, *, is_plain: bool = False) -> list[int]:
        """Numbers of programs, made unless they are known."""
        among = self._work.programs if is_plain else self._setting.programs
        known = among.get(key)
        if known is None:
            known = among[key] = make()
        found = []
        for program in known:
            number = self._numbers.setdefault(id(program), len(self._programs))
            if number == len(self._programs):
                self._programs.append(program)
                self._stages.append(stage)
            self._stages[number] = min(self._stages[number], stage)
            found.append(number)
        return found

    def _program_of_units(self, code: Int64s) -> Int64s:
        """Program of each unit; int64[units]."""
        is_second, stage_of = self._units.is_second, self._units.stage_of
        second = np.flatnonzero(is_second)
        is_alone = ~is_second
        is_alone[second - 1] = False
        alone = code[is_alone] if len(second) else code
        table = np.zeros(int(code.max()) + 1, np.int64)
        distinct = np.flatnonzero(np.bincount(alone, minlength=1))
        key = self._contents[distinct >> 4] * _CODES + (distinct & self._told_apart)
        alike, first, place = np.unique(key, return_index=True, return_inverse=True)
        stage = np.full(len(alike), len(stage_of))
        np.minimum.at(stage, place.reshape(-1), stage_of[distinct >> 4])
        found: list[int] = []
        columns = alike, distinct[first], stage
        for one, example, on in zip(*(column.tolist() for column in columns), strict=True):
            make, is_plain = partial(self._unit_programs, (example,)), self._is_plain(example)
            found += self._place(one, on, make, is_plain=is_plain)
        table[distinct] = np.array(found, np.int64)[place.reshape(-1)]
        program: Int64s = table[code]
        pairs = code[second - 1] * len(table) + code[second]
        for pair in np.unique(pairs).tolist():
            own = second[pairs == pair]
            both = divmod(pair, len(table))
            on = int(stage_of[code[own] >> 4].min())
            keys = tuple(
                int(self._contents[one >> 4]) * _CODES + (one & self._told_apart) for one in both
            )
            is_plain = all(self._is_plain(one) for one in both)
            make = partial(self._unit_programs, both)
            [number] = self._place(keys, on, make, is_plain=is_plain)
            program[own], program[own - 1] = number, number
        return program

    @property
    def _told_apart(self) -> int:
        """Which bits of codes tell units of the same chunk apart."""
        tells_first = self._is_ahead or (self._gathers and not self._plan.reshard_after_forward)
        return _CODES - 1 if tells_first else _CODES - 2

    def _is_plain(self, code: int) -> bool:
        """Whether a unit exchanges no parameters and no gradients."""
        return not self._gathers and not code & 2 and not self._is_held(code)

    def _unit_programs(self, codes: Sequence[int]) -> list[PieceProgram]:
        plain = self._plain_program(codes[0]) if len(codes) == 1 else None
        if plain is not None:
            return [plain]
        units = [self._unit(code) for code in codes]
        held_by = [
            self._setting.gathered.of(self._chunks[code >> 4]).held_by
            if self._is_held(code)
            else ()
            for code in codes
        ]
        if len(units) > 1:
            units = list(self._setting.templates.pair(*units))
        stretch = self._stretch(units[0].template)
        return [unit_program(units, stretch, ahead=self._ahead, held_by=held_by)]

    def _plain_program(self, code: int) -> PieceProgram | None:
        chunk, kind, templates = (
            self._chunks[code >> 4],
            Pass(code >> 2 & 3),
            self._setting.templates,
        )
        is_forward, is_held = kind is Pass.FORWARD, self._is_held(code)
        parts = chunk.parts if is_forward else chunk.parts[::-1]
        phase = Phase.FORWARD if is_forward else Phase.BACKWARD
        return self._work.plain.program(
            templates,
            chunk,
            kind,
            gathers=templates.gathers(parts, phase) if self._is_gathering(code) else {},
            reductions=templates.reductions(parts) if code & 2 else {},
            held=self._setting.gathered.of(chunk).held if is_held else (),
            held_by=self._setting.gathered.of(chunk).held_by if is_held else (),
            ahead=self._ahead,
        )

    @property
    def _ahead(self) -> int:
        """Parts that may be gathered before one is free."""
        return (self._plan.prefetch if self._plan.overlap.parameters else 0) + 1

    @property
    def _gathers(self) -> bool:
        return self._plan.sharding is Sharding.ZERO3

    def _is_held(self, code: int) -> bool:
        return self._is_ahead and bool(code & 1)

    def _unit(self, code: int) -> UnitTemplate:
        chunk = self._chunks[code >> 4]
        return self._setting.templates.unit(
            chunk,
            Pass(code >> 2 & 3),
            is_gathering=self._is_gathering(code),
            is_reducing=bool(code & 2),
            held=self._setting.gathered.of(chunk).held if self._is_held(code) else (),
        )

    def _is_gathering(self, code: int) -> bool:
        plan, kind = self._plan, Pass(code >> 2 & 3)
        found = self._gathers and kind is not Pass.WEIGHT
        if found and not plan.reshard_after_forward:
            found = bool(code & 1) if plan.pipeline > 1 else kind is Pass.FORWARD
        return found

    def _stretch(self, template: Template) -> PartRun | None:
        coarse = self._setting.templates.coarse.get(id(template))
        has_operators = coarse is not None and coarse.is_segment.any()
        return self._work.times.stretch(coarse) if coarse is not None and has_operators else None

    def _gathers_of_chunks(self) -> Int64s:
        """Program of what gathers each chunk; int64[chunks]."""

        def make(chunk: int) -> list[PieceProgram]:
            exchanges = self._setting.gathered.of(self._chunks[chunk]).exchanges
            return [gathering_program(exchanges, is_behind=self._is_behind)]

        alike, first, place = np.unique(self._contents, return_index=True, return_inverse=True)
        stage = np.full(len(alike), len(place))
        np.minimum.at(stage, place.reshape(-1), self._units.stage_of)
        found: list[int] = []
        for one, chunk, own in zip(alike.tolist(), first.tolist(), stage.tolist(), strict=True):
            found += self._place(("gathered", one), own, partial(make, chunk))
        return np.array(found, np.int64)[place.reshape(-1)]

    def _closing(self, gather: Int64s) -> tuple[Int64s, Int64s]:
        """Where programs behind each stage's units begin, and these."""
        schedule, found, begin = self._units.schedule, [], [0]
        first_begin, first_chunk = self._units.firsts
        own: list[list[int]] = [[] for _ in range(schedule.num_stages)]
        for chunk, stage in enumerate(schedule.stage_of_chunk):
            own[stage].append(chunk)
        for stage, numbers in enumerate(own):
            chunks = [self._chunks[one] for one in numbers]
            is_end = self._work.blocks.tied_parameters > 0 and has_table(chunks, schedule)
            key = "closing", is_end, *self._contents[numbers].tolist()
            found += self._place(key, stage, partial(self._closing_programs, chunks))
            if self._is_behind:
                firsts = first_chunk[first_begin[stage] : first_begin[stage + 1]]
                found += gather[firsts].tolist()
            begin.append(len(found))
        return np.array(begin, np.int64), np.array(found, np.int64)

    def _closing_programs(self, chunks: Sequence[Chunk]) -> list[PieceProgram]:
        found = []
        for block, is_barrier in self._setting.closings.of(chunks, self._units.schedule):
            template, times = self._setting.templates.block(block), self._work.times
            outline, stretch = self._work.shapes.outlines.of(template), None
            if len(template.operators):
                stretch = times.joined((times.number(template),), outline.last_operators)
            found.append(closing_program(template, outline, stretch, is_barrier=is_barrier))
        return found

    def _times(self) -> tuple[list[Int64s], Int64s, Int64s]:
        """Of all programs' items; numbers of their exchanges; these on each stage."""
        outer = np.concatenate([one.items[:, 1] for one in self._programs])
        inner = [number for one in self._programs for number in one.inner]
        numbers = np.unique(np.append(outer[outer != NOTHING], inner)).astype(np.int64)
        exchange_ns = self._steps.places(self._plan).exchanges_ns(numbers.tolist())
        row = {number: at for at, number in enumerate(numbers.tolist())}
        keys = [
            tuple(exchange_ns[[row[number] for number in one.inner], stage].tolist())
            for one, stage in zip(self._programs, self._stages, strict=True)
        ]
        self._time(keys)
        times = [one.times[key] for one, key in zip(self._programs, keys, strict=True)]
        return times, numbers, exchange_ns

    def _time(self, keys: Sequence[tuple[int, ...]]) -> None:
        """Time programs whose exchanges inside take so long, all that are not known at once."""
        pairs = zip(self._programs, keys, strict=True)
        new = [(one, key) for one, key in pairs if key not in one.times]
        own = [(one, key) for one, key in new if one.stretch is not None]
        stretches = [(one.stretch, key) for one, key in own if one.stretch is not None]
        found = dict(zip(own, self._work.times.segments(stretches), strict=True))
        host_ns = launch_of(self._plan).exchange_ns
        for one, key in new:
            one.times[key] = one.timed(found.get((one, key)), host_ns)

    def _run(self, program: Int64s, gather: Int64s, closing: tuple[Int64s, Int64s]) -> int:
        times, numbers, exchange_ns = self._times()
        plan, units = self._plan, self._units
        columns, programs = joined_programs(self._programs, times, numbers)
        if plan.pipeline == 1:
            columns[:, 5] = 0
        launch = launch_of(plan)
        lag_ns = [launch.lag_ns.get(kind, 0) for kind in _LAGS]
        job = (
            *(units.rows, program, programs[:6], programs[6:], (*units.firsts, gather)),
            *((exchange_ns, self._transfers_ns()), (*lag_ns, launch.exchange_ns, SENDS)),
            (int(plan.overlap.pipeline), int(self._is_ahead)),
        )
        return run_programs(job, closing, plan.channels)

    def _transfers_ns(self) -> Int64s:
        """Between every chunk and the one before it on its route; int64[chunks]."""
        before, stage_of = self._units.schedule.neighbours[0], self._units.stage_of
        found = np.zeros(len(before), np.int64)
        behind = np.flatnonzero(before >= 0)
        if len(behind):
            kind = self._work.transfer(self._steps.tables)
            pairs = zip(stage_of[before[behind]].tolist(), stage_of[behind].tolist(), strict=True)
            found[behind] = self._steps.places(self._plan).transfers_ns(
                kind, [(min(pair), max(pair)) for pair in pairs]
            )
        return found
