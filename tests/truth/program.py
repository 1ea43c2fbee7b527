"""The training loop that every rank of a generated job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.truth.config import JobConfig, Link, Work
from tests.truth.draws import mixed
from tests.truth.host import AUTOGRAD, MAIN, Host
from tests.truth.layout import groups_of, place_of, rank_of, schedule
from tests.truth.names import (
    ADAM,
    ALL_REDUCE_BF16,
    ALL_REDUCE_FLOAT,
    COPY_STREAM,
    DATA_LOADER,
    DP_STREAM,
    EMBED,
    EMBED_BACKWARD,
    LOSS,
    NCCL_INTERNAL,
    NORM,
    RECEIVE_BACKWARD,
    RECEIVE_FORWARD,
    RING_STREAM,
    SEND_BACKWARD,
    SEND_FORWARD,
    SEND_RECEIVE,
    TP_STREAM,
    WORLD_STREAM,
    annotation,
    collective_arguments,
    stream_class,
)
from tests.truth.streams import Event
from tests.truth.structure import Collective, Group, Span

# Keys of places in the program, so that each draws its own.
_LOAD, _FORWARD, _BACKWARD, _BUCKET, _FINALIZE, _OPTIMIZE, _TRANSFER, _PIPE, _AGAIN = range(9)


class TrainingRank:
    """One rank's run of the training loop."""

    def __init__(self, host: Host, config: JobConfig, start_skew_ns: int) -> None:
        self.host = host
        self.config = config
        self.start_skew_ns = start_skew_ns
        self.place = place_of(config, host.rank)
        self.groups = groups_of(config, self.place)
        self.step = 0
        self.now: tuple[int, ...] = ()  # place of the next communication within the step
        self.pair_sequences: dict[str, int] = {}
        self.saved: dict[tuple[int, int, int], Span] = {}
        self.buckets: list[tuple[Event, int]] = []
        self.input_copy: Event | None = None

    # -- communication -------------------------------------------------------------------------

    def communicate(
        self,
        name: str,
        group: Group,
        *,
        stream: int,
        num_bytes: int,
        link: Link,
        kernel: str,
        peers: tuple[int, int] | None = None,
    ) -> Event:
        """One communication as the framework issues it; returns the event of its end."""
        host = self.host
        on = host.stream(stream)
        internal = host.stream(stream + NCCL_INTERNAL)
        source, destination = (-1, -1) if peers is None else peers
        expected = group.ranks if peers is None else (source, destination)
        is_pair = peers is not None
        collective = host.collective(
            "transfer" if is_pair else name,
            group,
            num_bytes=num_bytes,
            expected=expected,
            source=source,
            destination=destination,
        )
        # Who takes part and which one it is: the same draw on every member.
        key = mixed(_TRANSFER, *expected, stream_class(stream), self.step, *self.now)
        with (
            host.span(f"c10d::{name}_"),
            host.span(
                "record_param_comms",
                arguments=collective_arguments(collective, name, self.config)
                + self.sequence_argument(collective),
            ),
        ):
            host.query("cudaStreamIsCapturing")
            before = host.record(host.compute)
            host.wait(on, before)
            host.release(before)
            with host.span(annotation(name), category="user_annotation"):
                if self.config.noise:
                    host.query("cudaStreamGetCaptureInfo_v2")
                    inside = host.record(internal)
                    host.wait(on, inside)
                    host.release(inside)
                host.launch_collective(collective, kernel=kernel, stream=on, link=link, key=key)
                if self.config.noise:
                    inside = host.record(on)
                    host.wait(internal, inside)
                    host.release(inside)
            return host.record(on)

    def sequence_argument(self, collective: Collective) -> str:
        """`Seq`: the group's count of collectives, or this rank's of its pair transfers."""
        if not (self.config.style.sequence_numbers and self.config.style.collective_arguments):
            return ""
        if collective.source < 0:
            return f', "Seq": {collective.position + 1}'
        name = collective.group.name
        self.pair_sequences[name] = self.pair_sequences.get(name, 0) + 1
        return f', "Seq": {self.pair_sequences[name]}'

    def finish(self, done: Event) -> None:
        """`work.wait()`: the compute stream waits."""
        self.host.wait(self.host.compute, done)
        self.host.release(done)

    def reduce_over_tensor(self, *where: int) -> Event:
        """The tensor-parallel all-reduce of an activation or its gradient."""
        self.now = where
        return self.communicate(
            "allreduce",
            self.groups.tp,
            stream=TP_STREAM,
            num_bytes=self.config.activation_bytes,
            link=self.config.tp_link,
            kernel=ALL_REDUCE_BF16,
        )

    def transfer(self, name: str, peer_stage: int, *, stream: int, where: tuple[int, ...]) -> Event:
        """Send to or receive from the same place of another stage."""
        peer = rank_of(self.config, tp=self.place.tp, dp=self.place.dp, pp=peer_stage)
        own = self.place.rank
        self.now = where
        return self.communicate(
            name,
            self.groups.pp,
            stream=stream,
            num_bytes=self.config.activation_bytes,
            link=self.config.pp_link,
            kernel=SEND_RECEIVE,
            peers=(own, peer) if name == "send" else (peer, own),
        )

    # -- the step ------------------------------------------------------------------------------

    def run(self) -> None:
        """All steps, between marks that touch; then the profiler's own synchronisation."""
        self.in_steps(self.one_step)

    def in_steps(self, one_step: Callable[[], None]) -> None:
        """`one_step` for each step, between marks that touch."""
        host = self.host
        with host.site(0):
            host.segment(self.start_skew_ns)
        for index in range(self.config.num_steps):
            self.step = index
            with host.site(1, index):
                host.step_mark(self.config.first_step + index)
                host.segment(host.costs.segment_ns)
                one_step()
        with host.site(2):
            host.step_mark(None)
            host.segment(host.costs.segment_ns)
            host.synchronize(None)
            host.segment(host.costs.segment_ns)

    def one_step(self) -> None:
        """Load, run the schedule, reduce, optimise, read the loss."""
        with self.host.site(_LOAD, self.step):
            self.load()
        for is_forward, microbatch in schedule(self.config, self.place.pp):
            if is_forward:
                with self.host.site(_FORWARD, self.step, microbatch):
                    self.forward(microbatch)
            else:
                with self.host.site(_BACKWARD, self.step, microbatch):
                    self.backward(microbatch)
        with (
            self.host.site(_OPTIMIZE, self.step),
            self.host.block("optimizer", "optimizer"),
        ):
            self.optimize()

    def load(self) -> None:
        """Wait for data in the main thread, then copy it over."""
        host, config = self.host, self.config
        if config.data_loading_ns:
            with host.span(DATA_LOADER, category="user_annotation"):
                host.segment(host.costs.short_segment_ns)
                host.segment(config.data_loading_ns)
        if not config.has_ends:
            return
        if config.event_sync and self.input_copy is not None:
            host.synchronize(self.input_copy)
        if self.input_copy is not None:
            host.release(self.input_copy)
            self.input_copy = None
        on = host.stream(COPY_STREAM) if config.copy_stream else host.compute
        with (
            host.block("data", "data"),
            host.span("aten::to"),
            host.span("aten::_to_copy"),
            host.span("aten::copy_"),
        ):
            host.launch(
                "Memcpy HtoD (Pinned -> Device)",
                family="copy",
                base_ns=18_000,
                stream=on,
                category="gpu_memcpy",
                num_bytes=262_144,
            )
        copied = host.record(on)
        if config.copy_stream:
            host.wait(host.compute, copied)
        self.input_copy = copied
        with (
            host.block("optimizer", "optimizer"),
            host.span("Optimizer.zero_grad#AdamW.zero_grad", category="user_annotation"),
        ):
            host.launch(
                "Memset (Device)",
                family="memset",
                base_ns=40_000,
                category="gpu_memset",
                num_bytes=50_000_000,
            )

    def forward(self, microbatch: int) -> None:
        """One microbatch through this stage."""
        host, config, stage = self.host, self.config, self.place.pp
        if stage > 0:
            where = (_PIPE, 0, microbatch)
            with host.block("transfer", "forward", -1, microbatch):
                self.finish(self.transfer("recv", stage - 1, stream=RECEIVE_FORWARD, where=where))
        elif config.has_ends:
            with (
                host.block("embedding", "forward", -1, microbatch),
                host.span("aten::embedding"),
                host.span("aten::index_select"),
            ):
                host.launch(EMBED, family="embedding", base_ns=self.scaled(90_000))
        for layer in range(config.num_layers):
            with (
                host.site(_FORWARD, self.step, microbatch, layer),
                host.block("layer", "forward", self.layer_number(layer), microbatch),
            ):
                self.forward_layer(microbatch, layer)
        if stage < config.pp - 1:
            where = (_PIPE, 0, microbatch)
            with host.block("transfer", "forward", -1, microbatch):
                host.release(self.transfer("send", stage + 1, stream=SEND_FORWARD, where=where))
        elif config.has_ends:
            with (
                host.block("loss", "forward", -1, microbatch),
                host.span("aten::cross_entropy_loss"),
                host.span("aten::nll_loss_nd"),
            ):
                host.launch(LOSS, family="loss", base_ns=self.scaled(120_000))

    def layer_number(self, layer: int) -> int:
        """A stage's layer, counted over all stages."""
        return self.place.pp * self.config.num_layers + layer

    def scaled(self, base_ns: int) -> int:
        """A compute kernel's base duration in this job."""
        return round(base_ns * self.config.work_scale)

    def forward_layer(self, microbatch: int, layer: int) -> None:
        """One layer, with its neighbour exchange and tensor-parallel reductions."""
        host = self.host
        if self.config.ring_exchange and len(self.groups.ring.ranks) > 1:
            self.now = (_FORWARD, microbatch, layer)
            done = self.communicate(
                "exchange",
                self.groups.ring,
                stream=RING_STREAM,
                num_bytes=self.config.activation_bytes // 4,
                link=self.config.dp_link,
                kernel=SEND_RECEIVE,
            )
            self.finish(done)
        with self.layer_mark(layer):
            if self.config.recompute == "reentrant":
                sequence = host.next_sequence()
                with host.span("CheckpointFunction", sequence=sequence) as around:
                    self.layer_operators(microbatch, layer, where=_FORWARD, is_saving=False)
                self.saved[microbatch, layer, -1] = around
            else:
                self.layer_operators(microbatch, layer, where=_FORWARD)

    @contextmanager
    def layer_mark(self, layer: int) -> Iterator[None]:
        """What names a layer, where something does."""
        marks, number = self.config.layer_marks, self.layer_number(layer)
        if marks == "annotations":
            with self.host.span(f"layer {number}", category="user_annotation"):
                yield
        elif marks == "modules":
            name = f"nn.Module: TransformerLayer_{number}"
            with self.host.span(name, category="python_function"):
                yield
        else:
            yield

    def layer_operators(
        self, microbatch: int, layer: int, *, where: int, is_saving: bool = True
    ) -> None:
        """The forward operators of a layer; what is saved carries an autograd number."""
        host = self.host
        for index, work in enumerate(self.config.works(layer)):
            host.host_operators("aten::view")
            outer, _, inner = work.op.partition(">")
            shapes = f', "Input Dims": {work.dims}, "Input type": {work.types}'
            sequence = host.next_sequence() if is_saving else -1
            with host.span(outer, arguments=shapes, sequence=sequence) as span:
                if inner:
                    with host.span(inner, arguments=shapes):
                        self.kernel(work, work.kernel, work.forward_ns)
                else:
                    self.kernel(work, work.kernel, work.forward_ns)
            if is_saving and (where == _FORWARD or self.config.recompute == "reentrant"):
                self.saved[microbatch, layer, index] = span
            if work.reduces_forward and self.config.tp > 1:
                done = self.reduce_over_tensor(where, microbatch, layer, index)
                self.finish(done)

    def kernel(self, work: Work, name: str, base_ns: int) -> None:
        """One compute kernel of an operation."""
        self.host.launch(
            name,
            family=work.family,
            base_ns=self.scaled(base_ns),
            grid=work.grid,
            block=work.block,
        )

    def backward(self, microbatch: int) -> None:
        """One microbatch back: the main thread waits while the autograd thread works."""
        host, config, stage = self.host, self.config, self.place.pp
        where = (_PIPE, 1, microbatch)
        if stage < config.pp - 1:
            with host.block("transfer", "backward", -1, microbatch):
                self.finish(self.transfer("recv", stage + 1, stream=RECEIVE_BACKWARD, where=where))
        host.hand_over(AUTOGRAD)
        is_last = microbatch == config.num_microbatches - 1
        for layer in reversed(range(config.num_layers)):
            with (
                host.site(_BACKWARD, self.step, microbatch, layer),
                host.block("layer", "backward", self.layer_number(layer), microbatch),
            ):
                self.backward_layer(microbatch, layer)
            if is_last and config.dp > 1:
                with host.block("bucket", "backward", self.layer_number(layer), microbatch):
                    self.reduce_buckets(layer)
        if is_last:
            with host.site(_FINALIZE, self.step), host.block("bucket", "backward"):
                self.finalize_buckets()
        if stage == 0 and config.has_ends:
            name = "EmbeddingBackward0"
            with (
                host.block("embedding", "backward", -1, microbatch),
                host.span(f"autograd::engine::evaluate_function: {name}"),
                host.span(name),
            ):
                host.launch(EMBED_BACKWARD, family="embedding", base_ns=self.scaled(150_000))
        host.hand_over(MAIN)
        if stage > 0:
            with host.block("transfer", "backward", -1, microbatch):
                host.release(self.transfer("send", stage - 1, stream=SEND_BACKWARD, where=where))

    def backward_layer(self, microbatch: int, layer: int) -> None:
        """The layer's operations in reverse, each with its gradient kernels."""
        if self.config.recompute != "reentrant":
            self.backward_operators(microbatch, layer)
            return
        host = self.host
        forward = self.saved.pop((microbatch, layer, -1))
        name = "CheckpointFunctionBackward"
        engine = f"autograd::engine::evaluate_function: {name}"
        with (
            host.span(engine, sequence=forward.sequence) as span,
            host.span(name, sequence=forward.sequence),
        ):
            host.items.flows.append((forward, span))
            self.forward_again(microbatch, layer)
            self.backward_operators(microbatch, layer)

    def forward_again(self, microbatch: int, layer: int) -> None:
        """The layer's forward operators, run for its backward."""
        number = self.layer_number(layer)
        with self.host.block("layer", "recompute", number, microbatch):
            self.layer_operators(microbatch, layer, where=_AGAIN)

    def backward_operators(self, microbatch: int, layer: int) -> None:
        """Every operator's evaluation, the last first."""
        host = self.host
        is_to_run_again = self.config.recompute == "hooks"
        works = self.config.works(layer)
        for index in reversed(range(len(works))):
            work = works[index]
            if not work.backward_op:
                continue
            forward = self.saved.pop((microbatch, layer, index))
            reduces = work.reduces_backward and self.config.tp > 1
            engine = f"autograd::engine::evaluate_function: {work.backward_op}"
            reduction: Event | None = None
            with (
                host.span(engine, sequence=forward.sequence) as span,
                host.span(work.backward_op, sequence=forward.sequence),
            ):
                host.items.flows.append((forward, span))
                if is_to_run_again:
                    self.forward_again(microbatch, layer)
                    is_to_run_again = False
                for number, (name, base_ns) in enumerate(work.backward_kernels):
                    call, shapes = self.backward_call(work, number)
                    with host.span(call, arguments=shapes):
                        self.kernel(work, name, base_ns)
                    if reduces and number == 0:
                        reduction = self.reduce_over_tensor(_BACKWARD, microbatch, layer, index)
            if reduction is not None:
                self.finish(reduction)

    @staticmethod
    def backward_call(work: Work, number: int) -> tuple[str, str]:
        """The framework operator around a backward kernel, and its shapes."""
        if work.backward_calls:
            call, dims = work.backward_calls[number]
            types = ", ".join(['"c10::BFloat16"'] * dims.count("], ["))
            return call, f', "Input Dims": {dims}, "Input type": [{types}, "c10::BFloat16"]'
        return "aten::mm" if work.family == "gemm" else "aten::copy_", ""

    def reduce_buckets(self, layer: int) -> None:
        """Reduce the bucket that this layer completes, if it completes one."""
        config = self.config
        done_layers = config.num_layers - layer
        if done_layers % config.layers_per_bucket and layer > 0:
            return
        bucket = -(-done_layers // config.layers_per_bucket) - 1
        layers_in = done_layers - bucket * config.layers_per_bucket
        num_bytes = layers_in * config.layer_parameter_bytes
        merged = config.merged_buckets
        if merged is not None and bucket == merged[0]:
            return
        if merged is not None and bucket == merged[1]:
            num_bytes += config.layers_per_bucket * config.layer_parameter_bytes
        self.now = (_BUCKET, bucket)
        with self.host.site(_BUCKET, self.step, bucket):
            done = self.communicate(
                "allreduce",
                self.groups.dp,
                stream=DP_STREAM,
                num_bytes=num_bytes,
                link=config.dp_link,
                kernel=ALL_REDUCE_FLOAT,
            )
        self.buckets.append((done, num_bytes))

    def finalize_buckets(self) -> None:
        """The compute stream waits for every bucket and takes its gradients."""
        host = self.host
        for number, (done, num_bytes) in enumerate(self.buckets):
            with host.site(_FINALIZE, self.step, number):
                self.finish(done)
                if self.config.gradient_copies:
                    with host.span("torch.distributed.ddp.reducer::copy_bucket_to_grad"):
                        host.launch(
                            "Memcpy DtoD (Device -> Device)",
                            family="copy",
                            base_ns=num_bytes // 1_000,  # 1 TB/s, as on an A100
                            category="gpu_memcpy",
                            num_bytes=num_bytes,
                        )
        self.buckets.clear()

    def optimize(self) -> None:
        """Gradient norm over all ranks, update, and the loss read back."""
        host, config = self.host, self.config
        if config.global_norm and config.num_ranks > 1 and config.num_optimizer_kernels:
            with host.span("aten::_foreach_norm"):
                host.launch(NORM, family="optimizer", base_ns=self.scaled(200_000))
            self.now = (_OPTIMIZE,)
            done = self.communicate(
                "allreduce",
                self.groups.world,
                stream=WORLD_STREAM,
                num_bytes=4,
                link=config.world_link,
                kernel=ALL_REDUCE_FLOAT,
            )
            self.finish(done)
        with host.span("Optimizer.step#AdamW.step", category="user_annotation"):
            if config.cuda_graph:
                update = (ADAM, "optimizer", self.scaled(350_000))
                host.launch_graph((update,) * config.num_optimizer_kernels)
            for _ in range(0 if config.cuda_graph else config.num_optimizer_kernels):
                with host.span("aten::_fused_adamw_"):
                    host.launch(ADAM, family="optimizer", base_ns=self.scaled(350_000))
        if config.loss_item:
            with host.span("aten::item"), host.span("aten::_local_scalar_dense"):
                host.launch(
                    "Memcpy DtoH (Device -> Pageable)",
                    family="copy",
                    base_ns=2_000,
                    category="gpu_memcpy",
                    num_bytes=4,
                )
                host.synchronize(host.compute)
