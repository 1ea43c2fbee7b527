"""`RunTimes`: how long passes of parts of a model take by themselves on a plan's first ranks."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.workload.blocks.block import Passes
from foretrace.workload.layout.part_times import KernelTimes, PartTimes
from foretrace.workload.layout.tables import COMPUTE, group_of_stream
from foretrace.workload.layout.template import PlacedTemplate, Template, chained, template_of_block
from foretrace.workload.layout.units import block_of
from foretrace.workload.plan.groups import ranks_of
from foretrace.workload.plan.plan import Plan
from foretrace.workload.schedule.schedule import Pass


class RunTimes:
    """Passes of parts in a row, without what ranks with the same parameters exchange."""

    def __init__(self, plan: Plan, kernels: KernelTimes) -> None:
        """Time nothing yet.

        Args:
            plan: of one stage, whose blocks the parts are of.
            kernels: how long these take.
        """
        self._plan, self._kernels = plan, kernels
        self._times = PartTimes(plan, kernels)
        self._templates: dict[tuple[int, Pass], Template] = {}
        self._exchange_ns: dict[int, int] = {}

    def pass_ns(self, parts: Sequence[Passes], kind: Pass) -> tuple[int, ...]:
        """Of one pass: how long it takes, its operators alone, and the host."""
        ordered = parts if kind is Pass.FORWARD else parts[::-1]
        own = [one for part in ordered if len(one := self._template(part, kind))]
        if not all(len(one.operators) for one in own):  # what such a one waits for is left to it
            own = [chained([PlacedTemplate(one) for one in own], side=frozenset())]
        if not any(len(one.operators) for one in own):
            return 0, 0, 0
        for one in own:
            self._ask(one)
        numbers = tuple(self._times.number(one) for one in own)
        return self._times.whole_ns(numbers, self._exchange_ns)

    def _template(self, part: Passes, kind: Pass) -> Template:
        key = id(part), kind
        if key not in self._templates:
            self._templates[key] = template_of_block(block_of(part, kind), self._kernels.tables)
        return self._templates[key]

    def _ask(self, template: Template) -> None:
        """Ask for exchanges that are not known yet."""
        columns, kinds = template.columns, self._kernels.tables.kinds
        for stream, number in zip(
            columns["stream"].tolist(), columns["exchange"].tolist(), strict=True
        ):
            if stream != COMPUTE and number not in self._exchange_ns:
                group = ranks_of(self._plan, group_of_stream(stream), 0)
                [found] = self._kernels.timing.exchanges_ns([kinds[number]], [group], [0]).tolist()
                self._exchange_ns[number] = found
