"""`standing_for`: this process takes itself for one rank of a world that is not there.

Process groups are PyTorch's fake ones, which communicate nothing; optimizers' steps are the steps.
On the device "fake" tensors have no memory, and what names a GPU finds tensors that only pretend.
On "cuda" operators run on a GPU, which this rank has for itself.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

import msgspec
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch._C import _distributed_c10d
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed import device_mesh
from torch.distributed.tensor import _sharding_prop
from torch.optim import optimizer as optimizers
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import dataloader

from foretrace.capture.module.kernels import ON_FAKE_CPU, as_on_a_gpu
from foretrace.capture.world.device_times import DeviceTimes
from foretrace.capture.world.journal import Journal, StepsAreDone
from foretrace.capture.world.mail import Mailbox, RankTurn
from foretrace.capture.world.objects import objects_that_arrive, unwritten_checkpoints
from foretrace.capture.world.observer import Observer
from foretrace.capture.world.on_cpu import (
    OnCpu,
    attention_without_masks,
    classes_on_cpu,
    mesh_of_what_pretends,
)
from foretrace.capture.world.pretended_gpu import gpu_that_pretends
from foretrace.capture.world.role import BACKWARD, FORWARD, OPTIMIZER, IssuedRole, RoleMemory
from foretrace.capture.world.shortcuts import shortcuts
from foretrace.capture.world.streams import follow_cuda, stream_classes
from foretrace.capture.world.values import SubstitutedValues, arrays_of_substitutes
from foretrace.capture.world.without_memory import tensors_without_memory
from foretrace.capture.world.works import IssuedWorks

FAKE, CUDA = "fake", "cuda"
_DIST: Any = dist  # names that stubs leave out
_C10D: Any = _distributed_c10d
_AUTOGRAD: Any = torch.autograd
# Methods of a process group that return work to wait for.
_ISSUING = (
    "allreduce", "allreduce_coalesced", "reduce", "broadcast", "allgather", "_allgather_base",
    "allgather_coalesced", "allgather_into_tensor_coalesced", "reduce_scatter",
    "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "gather", "scatter", "alltoall",
    "alltoall_base", "barrier", "send", "recv",
)  # fmt: skip
# Asked for every operator of a distributed tensor, and answered without a tensor.
_OF_MESH = {"__eq__", "__hash__", "size", "get_coordinate", "_is_current_rank_part_of_mesh"}
_BESIDE = "work of the device that no operator was seen to start is left out"
_SPAWNED = (
    "torch.multiprocessing.spawn started no processes: this rank is the one of its host's that "
    "would have its number"
)
_NOT_COMPILED = "torch.compile left code as it is: operators are those of eager PyTorch"


class WorldProcess:
    """What is known of the rank that this process stands for."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        *,
        device: str,
        warmup: int,
        steps: int,
        folder: Path,
        gpu: tuple[str, int] = ("", 0),
        num_gpus: int = 1,
    ) -> None:
        """`gpu`: name and bytes of memory of those that scripts are told of without one."""
        self.rank, self.world_size, self.device, self.gpu = rank, world_size, device, gpu
        self.num_gpus, self.warmup, self.steps = num_gpus, warmup, steps
        self.journal = Journal()
        self.turn = RankTurn(folder, is_measured=device != FAKE)
        self._times = DeviceTimes(folder / f"rank{rank}.kineto.json")
        self._values = SubstitutedValues()  # of tensors without memory
        self.observer = Observer(
            self.journal,
            self._values if device == FAKE else None,
            Mailbox(folder, rank, self.turn),
            self._times,
        )
        self.all_groups: dict[tuple[int, ...], None] = {}
        self._first_optimizer: object = None
        self._works = IssuedWorks()

    def role(self) -> IssuedRole:
        """What has been written down."""
        groups = self.observer.groups
        known = set(groups.values())
        memory, gpu = self.observer.memory.memory(), None
        if self.device == CUDA:
            memory, gpu = self._on_gpu(memory), torch.cuda.get_device_properties()
        return IssuedRole(
            rank=self.rank,
            world_size=self.world_size,
            device=self.device,
            entries=self.journal.entries,
            texts=list(self.journal.texts),
            groups=groups,
            other_groups=[one for one in self.all_groups if one not in known],
            memory=memory,
            substitutes=dict(+self.journal.substitutes),
            device_name="" if gpu is None else str(gpu.name),
            device_bytes=0 if gpu is None else int(gpu.total_memory),
        )

    def _on_gpu(self, memory: RoleMemory) -> RoleMemory:
        """Times and memory that the GPU tells."""
        of_entry, beside = self._times.end()
        self.journal.was_timed(of_entry)
        if beside:
            self.journal.substitutes[_BESIDE] += len(beside)
        return msgspec.structs.replace(
            memory,
            allocated=torch.cuda.max_memory_allocated(),
            reserved=torch.cuda.max_memory_reserved(),
        )

    def leave(self) -> None:
        """The GPU's memory is for who is next."""
        if self.device == CUDA:
            gc.collect()
            torch.cuda.empty_cache()

    @contextmanager
    def standing_for(self) -> Iterator[None]:
        """While it holds, the process is that rank.

        Raises:
            StepsAreDone: within, once all steps are written down.
        """
        with ExitStack() as stack:
            self._replace_groups(stack)
            self._replace_work(stack)
            self._follow_steps(stack)
            self._follow_storages(stack)
            self._leave_uncompiled(stack)
            stack.enter_context(patch.object(torch.multiprocessing, "spawn", self._spawned))
            for name, value in stream_classes(self.journal).items():
                stack.enter_context(patch.object(torch.cpu, name, value, create=True))
            stack.enter_context(objects_that_arrive(self.observer, self.journal))
            if self.device == FAKE:
                stack.enter_context(unwritten_checkpoints(self.journal))
                self._take_memory_away(stack)
            elif self.device == CUDA:
                follow_cuda(self.journal, stack)
            stack.enter_context(self.observer)
            self._begin_step()
            yield

    def _begin_step(self) -> None:
        if self.device == CUDA and self.journal.num_begun == self.warmup:
            self._times.begin()
        self.journal.begin_step()

    def _replace_groups(self, stack: ExitStack) -> None:
        made_world, made_group = dist.init_process_group, dist.new_group

        @functools.wraps(made_world)
        def init_process_group(backend: object = None, *_args: object, **_kwargs: object) -> None:
            self._works.backend = str(backend)
            made_world("fake", rank=self.rank, world_size=self.world_size, store=FakeStore())

        @functools.wraps(made_group)
        def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            if ranks is not None:
                self.all_groups[tuple(sorted(ranks))] = None
            kwargs["backend"] = None
            return made_group(ranks, *(args[:1]), **kwargs)

        for module in (dist, dist.distributed_c10d, device_mesh):
            for name, value in (
                ("init_process_group", init_process_group), ("new_group", new_group),
            ):  # fmt: skip
                if hasattr(module, name):
                    stack.enter_context(patch.object(module, name, value))
        self._replace_meshes(stack)

    def _replace_meshes(self, stack: ExitStack) -> None:
        for name, value in list(vars(device_mesh.DeviceMesh).items()):
            if name in _OF_MESH:
                continue
            if isinstance(value, FunctionType):
                with_values = self._with_values(value)
            elif isinstance(value, staticmethod):
                with_values = staticmethod(self._with_values(value.__func__))
            else:
                continue
            stack.enter_context(patch.object(device_mesh.DeviceMesh, name, with_values))
        stack.enter_context(mesh_of_what_pretends(on_gpu=self.device == CUDA))
        propagator: Any = _sharding_prop.ShardingPropagator
        shapes = self._unseen(propagator._propagate_tensor_meta_non_cached)  # noqa: SLF001
        stack.enter_context(patch.object(propagator, "_propagate_tensor_meta_non_cached", shapes))

    def _unseen(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """DTensor learns shapes from operators on whole tensors: no work of the script."""

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self.observer.paused():
                return function(*args, **kwargs)

        return called

    def _with_values(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Numbers of ranks are real, whatever tensors are, and no work of the script."""

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return function(*args, **kwargs)

        return called

    def _replace_verification(self, stack: ExitStack) -> None:
        """DDP reads values of its own: of ranks' shapes, and of the order of its buckets."""
        verify = _DIST._verify_params_across_processes  # noqa: SLF001 - what DDP calls

        def verified(group: Any, tensors: Any, logger: Any = None) -> Any:
            with unset_fake_temporarily():
                plain = [torch.empty(1, dtype=one.dtype).expand(one.shape) for one in tensors]
                return verify(group, plain, logger)

        stack.enter_context(patch.object(_DIST, "_verify_params_across_processes", verified))
        rebuild = _DIST.Reducer._rebuild_buckets  # noqa: SLF001

        def rebuilt(reducer: Any) -> Any:
            with unset_fake_temporarily():
                return rebuild(reducer)

        stack.enter_context(patch.object(_DIST.Reducer, "_rebuild_buckets", rebuilt))

    def _replace_work(self, stack: ExitStack) -> None:
        """Who waits for what is known from the objects that calls return."""

        def issuing(method: Callable[..., Any]) -> Callable[..., Any]:
            def called(*args: Any, **kwargs: Any) -> Any:
                work = method(*args, **kwargs)
                if work is not None:
                    self._works.add(work, self.observer.last_exchange, args)
                return work

            return called

        for name in _ISSUING:
            method = getattr(dist.ProcessGroup, name, None)
            if method is not None:
                stack.enter_context(patch.object(dist.ProcessGroup, name, issuing(method)))
        for kind in (dist.Work, _C10D.FakeWork):
            waiting = self._waiting(kind.wait)
            stack.enter_context(patch.object(kind, "wait", waiting))

    def _waiting(self, waited: Callable[..., Any]) -> Callable[..., Any]:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            exchange = self._works.wait(work)
            if exchange is None:
                self.observer.hold_for_all()
            else:
                self.observer.hold_for(exchange)
            return waited(work, *args, **kwargs)

        return wait

    def _follow_steps(self, stack: ExitStack) -> None:
        run_backward = _AUTOGRAD._engine_run_backward  # noqa: SLF001 - no hook of all passes

        @functools.wraps(run_backward)
        def backward(*args: Any, **kwargs: Any) -> Any:
            before, self.journal.phase = self.journal.phase, BACKWARD
            own = list(self.observer.unheld)
            try:
                return run_backward(*args, **kwargs)
            finally:
                self.journal.phase = before
                # DDP's reducer waits in C++ for what it issued, as the pass ends.
                held = self._works.exchanges
                for exchange in list(self.observer.unheld):
                    if exchange not in held and exchange not in own:
                        self.observer.hold_for(exchange)

        for module in (torch.autograd, torch.autograd.graph):
            stack.enter_context(patch.object(module, "_engine_run_backward", backward))
        before = optimizers.register_optimizer_step_pre_hook(self._begin_update)
        after = optimizers.register_optimizer_step_post_hook(self._end_update)
        stack.callback(before.remove)
        stack.callback(after.remove)

    def _follow_storages(self, stack: ExitStack) -> None:
        """FSDP frees what it gathered, and takes it again, without an operator."""
        resize = torch.UntypedStorage.resize_

        def resized(storage: Any, *args: Any) -> Any:
            result = resize(storage, *args)
            if storage.device.type != "meta" or self.device == FAKE:
                self.observer.memory.see_storage(storage)
            return result

        stack.enter_context(patch.object(torch.UntypedStorage, "resize_", resized))

    def _leave_uncompiled(self, stack: ExitStack) -> None:
        """Operators are seen as eager PyTorch issues them: compiled code would hide them."""

        def left(code: Any = None, **_settings: object) -> Any:
            self.journal.substitutes[_NOT_COMPILED] += 1
            return code if code is not None else lambda function: function

        stack.enter_context(patch.object(torch, "compile", left))
        stack.enter_context(patch.object(torch.nn.Module, "compile", left))

    def _begin_update(self, *_given: object) -> None:
        self.journal.phase = OPTIMIZER

    def _end_update(self, optimizer: Any, *_given: object) -> None:
        self.journal.phase = FORWARD
        self.observer.memory.end_step(optimizer)
        self._works.end_step()
        self._first_optimizer = self._first_optimizer or optimizer
        if optimizer is not self._first_optimizer:
            return
        if self.journal.num_begun == self.steps:
            self.journal.begin_step()  # that the one before has ended
            raise StepsAreDone
        self._begin_step()

    def _spawned(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        nprocs: int = 1,
        *_given: object,
        **_named: object,
    ) -> None:
        """A script that starts its own ranks is run as the one that this process is."""
        self.journal.substitutes[_SPAWNED] += 1
        fn(self.rank % nprocs, *args)

    def _take_memory_away(self, stack: ExitStack) -> None:
        stack.enter_context(gpu_that_pretends(self.journal, self.gpu, num_gpus=self.num_gpus))
        for module in (_foreach_utils, optimizers):
            for name in (
                "_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices",
            ):  # fmt: skip
                stack.enter_context(patch.object(module, name, lambda: ["cuda", "cpu"]))
        for kinds in (_foreach_utils._foreach_supported_types, optimizers._foreach_supported_types):  # noqa: SLF001
            if FakeTensor not in kinds:
                kinds.append(FakeTensor)
        stack.enter_context(tensors_without_memory())
        stack.enter_context(arrays_of_substitutes(self._values, self.journal))
        # Who is next is drawn with values, also by the script's own samplers.
        for name in ("__init__", "_next_index"):
            drawn = self._with_values(getattr(dataloader._BaseDataLoaderIter, name))  # noqa: SLF001
            stack.enter_context(patch.object(dataloader._BaseDataLoaderIter, name, drawn))  # noqa: SLF001
        self._replace_verification(stack)
        stack.enter_context(shortcuts())
        stack.enter_context(attention_without_masks(self.journal, self._unseen))
        stack.enter_context(as_on_a_gpu(ON_FAKE_CPU))
        stack.enter_context(classes_on_cpu())
        stack.enter_context(OnCpu())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
