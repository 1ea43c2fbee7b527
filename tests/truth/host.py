"""One rank's host threads and streams, as the program that runs on them sees them.

Each method does what the framework or the runtime does, and notes what the profiler would: the
true edges follow from the calls alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.truth.config import JobConfig, Link
from tests.truth.draws import MASK, mixed
from tests.truth.streams import Event, Stream, transfer_ns
from tests.truth.structure import (
    PARTS,
    Block,
    Call,
    Collective,
    Columns,
    Dependency,
    Group,
    Node,
    Operation,
    RankItems,
    Span,
)

MAIN, AUTOGRAD = 0, 1
_CLOSING_PARTS = 24  # of PARTS: where operators that ended before a segment close
_OPENING_PARTS = 40  # where those that begin after it open
_STEP_PART = 32
_QUERY_EVERY = 5  # launches, about, to one event query
GEMM_CHECKS = ("cudaFuncSetAttribute", "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")


class Host:
    """The two host threads of one rank, with its streams."""

    def __init__(
        self,
        config: JobConfig,
        columns: Columns,
        collectives: dict[tuple[object, ...], Collective],
        items: RankItems,
    ) -> None:
        self.config = config
        self.costs = config.overheads
        self.columns = columns
        self.collectives = collectives
        self.items = items
        self.rank = items.rank
        self.thread = MAIN
        self.streams: dict[int, Stream] = {}
        self.compute = self.stream(7)
        self._last: list[int] = [-1, -1]
        self._awaited: list[int] = [-1, -1]
        self._opening: list[list[Span]] = [[], []]
        self._closing: list[list[Span]] = [[], []]
        self._open: list[list[Span]] = [[], []]
        self._steps: list[Span] = []
        self._site = 0
        self._count = 0
        self._correlation = 500_000  # above every operator's id
        self._external = 0
        self._sequences = [0, 0]
        self._block = Block("", "")
        self._free_events = list(range(64, 0, -1))
        self._num_events = 64
        self._recent: Event | None = None
        self._positions: dict[tuple[object, ...], int] = {}

    # -- draws ---------------------------------------------------------------------------------

    @contextmanager
    def site(self, *parts: int) -> Iterator[None]:
        """Within it, draws belong to this place in the program, whatever else the job does."""
        saved = self._site, self._count
        self._site, self._count = mixed(self.rank, *parts), 0
        yield
        self._site, self._count = saved

    @contextmanager
    def block(self, part: str, phase: str, layer: int = -1, microbatch: int = -1) -> Iterator[None]:
        """Within it, device operations belong to this block, the innermost first."""
        saved = self._block
        self._block = Block(part, phase, layer, microbatch)
        yield
        self._block = saved

    def _key(self) -> int:
        self._count += 1
        return (self._site + self._count * 0x9E3779B97F4A7C15) & MASK

    # -- host ----------------------------------------------------------------------------------

    def stream(self, number: int) -> Stream:
        """The stream of that number."""
        return self.streams.setdefault(number, Stream(number))

    def segment(self, base_ns: int) -> int:
        """Host time; operators that closed before it close, and those opened open, inside."""
        thread = self.thread
        self._follow_thread()
        node = self.columns.node(
            Node.SEGMENT,
            self.rank,
            base_ns=base_ns,
            std_ns=min(self.config.jitter_ns, base_ns),
            key=self._key(),
        )
        self._last[thread] = node
        closing, opening = self._closing[thread], self._opening[thread]
        for index, span in enumerate(closing):
            span.end, span.end_part = node, _CLOSING_PARTS * (index + 1) // (len(closing) + 1)
        room = PARTS - _OPENING_PARTS
        for index, span in enumerate(opening):
            span.begin = node
            span.begin_part = _OPENING_PARTS + room * (index + 1) // (len(opening) + 1)
        closing.clear()
        opening.clear()
        if thread == MAIN and self._steps:
            self._mark_steps(node)
        return node

    def _mark_steps(self, node: int) -> None:
        for span in self._steps:
            if span.begin < 0:
                span.begin, span.begin_part = node, _STEP_PART
            else:
                span.end, span.end_part = node, _STEP_PART
        self._steps.clear()

    def _follow_thread(self) -> None:
        thread = self.thread
        if self._last[thread] >= 0:
            self.columns.edge(self._last[thread], 0, Dependency.HOST)
        if self._awaited[thread] >= 0:
            wake_ns = self.costs.thread_wake_ns
            self.columns.edge(self._awaited[thread], wake_ns, Dependency.THREAD)
            self._awaited[thread] = -1

    def hand_over(self, thread: int) -> None:
        """This thread signals the other and waits; the other goes on."""
        self.segment(self.costs.short_segment_ns)
        signal = self._last[self.thread]
        self.thread = thread
        self._awaited[thread] = signal
        self.segment(self.costs.short_segment_ns)

    def step_mark(self, number: int | None) -> None:
        """End the running step, if any, and begin step `number`, if given, at the same moment."""
        if self.items.steps and self.items.steps[-1].end < 0:
            self._steps.append(self.items.steps[-1])
        if number is not None:
            span = self._new_span("user_annotation", f"ProfilerStep#{number}", "")
            self.items.steps.append(span)
            self._steps.append(span)

    def _new_span(self, category: str, name: str, arguments: str, *, sequence: int = -1) -> Span:
        self._external += 1
        is_backward = self.thread == AUTOGRAD
        span = Span(category, name, self.thread, self._external, arguments, sequence, is_backward)
        self.items.spans.append(span)
        return span

    def span(
        self, name: str, *, category: str = "cpu_op", arguments: str = "", sequence: int = -1
    ) -> Around:
        """An operator or annotation around what is done within."""
        return Around(self, self._new_span(category, name, arguments, sequence=sequence))

    def enter(self, span: Span) -> None:
        """It begins with the next segment."""
        self._opening[self.thread].append(span)
        self._open[self.thread].append(span)

    def leave(self, span: Span) -> None:
        """It ends with the next segment."""
        if span.begin < 0:  # nothing happened inside: it still takes host time
            self.segment(self.costs.short_segment_ns)
        self._open[self.thread].pop()
        self._closing[self.thread].append(span)

    def host_operators(self, name: str) -> None:
        """Operators that call nothing on the device."""
        for _ in range(self.config.host_ops_per_kernel):
            with self.span(name, arguments=', "Input Dims": [[4, 2048, 4096]]'):
                self.segment(self.costs.short_segment_ns)

    def next_sequence(self) -> int:
        """A new autograd sequence number: every thread counts its own."""
        self._sequences[self.thread] += 1
        return self._sequences[self.thread]

    # -- runtime calls -------------------------------------------------------------------------

    def _call(
        self,
        name: str,
        base_ns: int,
        *,
        waits_for: tuple[tuple[int, int, Dependency], ...] = (),
        stream: int = -1,
        event: Event | None = None,
    ) -> int:
        """Add a runtime call after the thread's last node; returns its node."""
        self._follow_thread()
        for node, lag_ns, kind in waits_for:
            self.columns.edge(node, lag_ns, kind)
        call = self.columns.node(
            Node.CALL,
            self.rank,
            base_ns=base_ns,
            std_ns=min(self.config.jitter_ns, base_ns // 10),
            key=self._key(),
        )
        self._last[self.thread] = call
        self._correlation += 1
        around = reversed(self._open[self.thread])
        external = next((span.external for span in around if span.category == "cpu_op"), 0)
        self.items.calls.append(
            Call(
                node=call,
                name=name,
                thread=self.thread,
                correlation=self._correlation,
                external=external,
                stream=stream,
                operation=-1,
                event=-1 if event is None else event.event_id,
                record_correlation=-1 if event is None else event.correlation,
                record_stream=-1 if event is None else event.stream,
            )
        )
        return call

    def runtime_call(self, name: str, base_ns: int) -> None:
        """A call that only takes its time."""
        self._call(name, base_ns)

    def _short(self) -> None:
        self.segment(self.costs.short_segment_ns)

    def query(self, name: str) -> None:
        """A call that changes nothing, when noise is wanted."""
        if self.config.noise:
            self._short()
            event = self._recent if name == "cudaEventQuery" else None
            self._call(name, self.costs.query_call_ns, event=event)

    def record(self, stream: Stream) -> Event:
        """`cudaEventRecord`: what the stream has been given so far."""
        if not self._free_events:
            self._num_events += 1
            self._free_events.append(self._num_events)
        self._short()
        event = Event(
            self._free_events.pop(), self._correlation + 1, stream.number, stream.captured()
        )
        self._call("cudaEventRecord", self.costs.small_call_ns, stream=stream.number, event=event)
        self._recent = event
        return event

    def release(self, event: Event) -> None:
        """Give the event's id back, for another record to use."""
        self._free_events.append(event.event_id)

    def wait(self, stream: Stream, event: Event) -> None:
        """`cudaStreamWaitEvent`: the stream's next operation waits for what was captured."""
        self._short()
        self._call(
            "cudaStreamWaitEvent", self.costs.small_call_ns, stream=stream.number, event=event
        )
        for node, source in event.nodes:
            if source != stream.number:
                stream.pending[source] = max(node, stream.pending.get(source, -1))

    def synchronize(self, what: Stream | Event | None) -> None:
        """Wait on the host for a stream, an event, or with None the whole device."""
        name, stream, event = "cudaDeviceSynchronize", -1, None
        if isinstance(what, Stream):
            name, stream, nodes = "cudaStreamSynchronize", what.number, what.captured()
        elif isinstance(what, Event):
            name, event, nodes = "cudaEventSynchronize", what, what.nodes
        else:
            nodes = tuple(pair for each in self.streams.values() for pair in each.captured())
        unique = dict.fromkeys(node for node, _ in nodes)
        waits = tuple((node, self.costs.wake_ns, Dependency.SYNC) for node in unique)
        self._short()
        self._call(name, self.costs.sync_call_ns, waits_for=waits, stream=stream, event=event)

    # -- launches ------------------------------------------------------------------------------

    def launch_graph(self, kernels: tuple[tuple[str, str, int], ...]) -> None:
        """`cudaGraphLaunch`: one call, many kernels (name, family, base ns) in a chain."""
        stream = self.compute
        self.segment(self.costs.segment_ns)
        call = self._launch_call("cudaGraphLaunch", self.costs.launch_call_ns, stream)
        noted = self.items.calls[-1]
        for at, (name, family, base_ns) in enumerate(kernels):
            self._device_edges(call, stream, is_in_graph=at > 0)
            node = self._device_node(base_ns, family)
            self._note_operation(
                Operation(
                    arrive=node,
                    node=node,
                    call=len(self.items.calls) - 1,
                    correlation=noted.correlation,
                    external=noted.external,
                    stream=stream.number,
                    category="kernel",
                    name=name,
                    family=family,
                    collective=-1,
                    grid=(108, 1, 1),
                    block=(256, 1, 1),
                    num_bytes=-1,
                    belongs_to=self._block,
                ),
                stream,
            )

    def _device_node(self, base_ns: int, family: str | None) -> int:
        return self.columns.node(
            Node.DEVICE,
            self.rank,
            base_ns=base_ns,
            std_ns=min(self.config.jitter_ns, base_ns),
            key=self._key(),
            delay_std_ns=self.costs.lag_jitter_ns,
            delay_key=self._key(),
            family=family,
        )

    def _launch_call(self, name: str, base_ns: int, stream: Stream) -> int:
        waits: tuple[tuple[int, int, Dependency], ...] = ()
        depth = self.config.queue_depth
        if len(stream.operations) >= depth:
            blocker = stream.operations[-depth]
            waits = ((blocker, self.costs.queue_wake_ns, Dependency.QUEUE),)
        return self._call(name, base_ns, waits_for=waits, stream=stream.number)

    def _device_edges(self, call: int, stream: Stream, *, is_in_graph: bool = False) -> None:
        self.columns.edge(call, self.costs.launch_latency_ns, Dependency.LAUNCH)
        if stream.operations:
            gap_ns = self.costs.graph_gap_ns if is_in_graph else self.costs.stream_gap_ns
            self.columns.edge(stream.operations[-1], gap_ns, Dependency.STREAM)
        for node in stream.pending.values():
            self.columns.edge(node, self.costs.handover_ns, Dependency.INTER_STREAM)
        stream.pending.clear()

    def _note_operation(self, operation: Operation, stream: Stream) -> None:
        stream.operations.append(operation.node)
        self.items.operations.append(operation)
        self.items.calls[-1].operation = operation.node

    def launch(
        self,
        name: str,
        *,
        family: str,
        base_ns: int,
        stream: Stream | None = None,
        category: str = "kernel",
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (128, 1, 1),
        num_bytes: int = -1,
        gap_ns: int | None = None,
    ) -> int:
        """A kernel, copy or fill on a stream, the compute stream unless told; returns its node."""
        stream = self.compute if stream is None else stream
        if family == "gemm":
            for check in GEMM_CHECKS:
                self.query(check)
        if self._key() % _QUERY_EVERY == 0:
            self.query("cudaEventQuery")
        self.segment(self.costs.segment_ns if gap_ns is None else gap_ns)
        runtime = {"gpu_memcpy": "cudaMemcpyAsync", "gpu_memset": "cudaMemsetAsync"}.get(
            category, "cudaLaunchKernel"
        )
        is_kernel = category == "kernel"
        cost_ns = self.costs.launch_call_ns if is_kernel else self.costs.copy_call_ns
        call = self._launch_call(runtime, cost_ns, stream)
        self._device_edges(call, stream)
        node = self._device_node(base_ns, family if is_kernel else None)
        noted = self.items.calls[-1]
        self._note_operation(
            Operation(
                arrive=node,
                node=node,
                call=len(self.items.calls) - 1,
                correlation=noted.correlation,
                external=noted.external,
                stream=stream.number,
                category=category,
                name=name,
                family=family,
                collective=-1,
                grid=grid,
                block=block,
                num_bytes=num_bytes,
                belongs_to=self._block,
            ),
            stream,
        )
        return node

    def launch_collective(
        self, collective: Collective, *, kernel: str, stream: Stream, link: Link, key: int
    ) -> int:
        """The kernel of one communication; returns the node of its end."""
        self._short()
        call = self._launch_call("cudaLaunchKernelExC", self.costs.launch_call_ns, stream)
        self._device_edges(call, stream)
        arrive = self.columns.node(
            Node.ARRIVE,
            self.rank,
            delay_std_ns=self.costs.lag_jitter_ns,
            delay_key=self._key(),
        )
        base_ns = transfer_ns(collective, link)
        # The nodes that these edges come from exist when every rank's program is known.
        num_slots = 3 if collective.is_exchange else 1
        collective.slots[self.rank] = [
            self.columns.edge(arrive, 0, Dependency.TRANSFER) for _ in range(num_slots)
        ]
        finish = self.columns.node(
            Node.FINISH,
            self.rank,
            base_ns=base_ns,
            std_ns=min(self.config.jitter_ns, base_ns),
            key=key,
            delay_std_ns=self.costs.end_jitter_ns,
            delay_key=self._key(),
            link=collective.group.link,
        )
        noted = self.items.calls[-1]
        collective.arrives[self.rank] = arrive
        collective.finishes[self.rank] = finish
        collective.correlations[self.rank] = noted.correlation
        self._note_operation(
            Operation(
                arrive=arrive,
                node=finish,
                call=len(self.items.calls) - 1,
                correlation=noted.correlation,
                external=noted.external,
                stream=stream.number,
                category="kernel",
                name=kernel,
                family="communication",
                collective=collective.index,
                grid=(16, 1, 1),
                block=(544, 1, 1),
                num_bytes=-1,
                belongs_to=self._block,
            ),
            stream,
        )
        return finish

    def collective(
        self,
        name: str,
        group: Group,
        *,
        num_bytes: int,
        expected: tuple[int, ...],
        source: int = -1,
        destination: int = -1,
    ) -> Collective:
        """This rank's next communication of that name in that group, shared by its members."""
        channel = (group.name, group.ranks, name, source, destination)
        position = self._positions.get(channel, 0)
        self._positions[channel] = position + 1
        return self.collectives.setdefault(
            (*channel, position),
            Collective(
                index=len(self.collectives),
                name=name,
                group=group,
                position=position,
                num_bytes=num_bytes,
                is_exchange=name == "exchange",
                source=source,
                destination=destination,
                expected=expected,
            ),
        )


class Around:
    """What `with` enters and leaves for a span; a generator's would take three times as long."""

    __slots__ = ("_host", "_span")

    def __init__(self, host: Host, span: Span) -> None:
        self._host = host
        self._span = span

    def __enter__(self) -> Span:
        self._host.enter(self._span)
        return self._span

    def __exit__(self, *_raised: object) -> None:
        self._host.leave(self._span)
