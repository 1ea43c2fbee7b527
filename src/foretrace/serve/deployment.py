"""`Deployment`: a model, an engine's settings, step times and memory: all that serving needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd
from pathlib import Path

import numpy as np

from foretrace.base import NS_PER_MS, NoRoomError, WorkloadError
from foretrace.cost import SubstitutionRule
from foretrace.machine import Chip, Machine
from foretrace.serve.engine import NO_LIMIT, Engine
from foretrace.serve.exchanges import too_few
from foretrace.serve.expert_layers import expert_shards, ranks_in_step
from foretrace.serve.formats import ServedFormats, as_kept, cache_format, served_formats
from foretrace.serve.named_gpus import chip_of, machine_of, named_beside
from foretrace.serve.of_kernels import (
    in_formats,
    profiles_of_kernels,
    under_rules,
    with_cut_experts,
    workspace_bytes,
)
from foretrace.serve.of_profiles import times_of_profiles
from foretrace.serve.of_trace import calibration_of
from foretrace.serve.pools import Pools, pooled_run, sent_ns
from foretrace.serve.profiles import LayerProfiles, read_profiles
from foretrace.serve.requests import Requests
from foretrace.serve.running import NULL_BLOCKS, engine_run
from foretrace.serve.serving import ServiceTarget, Serving, serving
from foretrace.serve.step_times import EngineStepTimes, StepCalibration
from foretrace.workload import (
    Transformer,
    cache_bytes_per_token,
    serving_memory,
    state_bytes,
)

# Without profiles: kernels of chips that were not measured lie within this of their models, four
# times in five, when all of a step's are summed (docs/cost: 20 % for an unseen chip).
_LOW, _HIGH = 0.8, 1.2
# The same of weights or a cache in fewer bits, whose kernels are measured on fewer chips, or not at
# all: 85 % of 115 published throughputs in fp8 and nvfp4 lie within it (docs/serving.md).
_LOW_OF_NARROW, _HIGH_OF_NARROW = 0.7, 1.3


@dataclass(frozen=True, eq=False, kw_only=True)
class Deployment:
    """One engine and how long its steps take."""

    model: Transformer
    engine: Engine
    times: EngineStepTimes
    gpu: str
    num_blocks: int  # of the cache of one copy
    machine: Machine | None = None  # None: not described
    notes: tuple[str, ...] = ()

    def serve(
        self,
        requests: Requests,
        *,
        target: ServiceTarget | None = None,
        dollars_per_hour: float | None = None,
        pools: Pools | None = None,
    ) -> Serving:
        """What becomes of requests.

        Args:
            requests: in the order in which they come.
            target: what they are promised.
            dollars_per_hour: price of one GPU.
            pools: copies of the engine for prompts and for replies; one for both, if left out.

        Raises:
            WorkloadError: if one of them can never be served.
        """
        kinds = (self.times, *self.times.ends())
        notes: tuple[str, ...] = ()
        if pools is None:
            run, fast, slow = (
                engine_run(requests, self.engine, times, blocks=self.num_blocks) for times in kinds
            )
        else:
            kept = bytes_of_token(self.model, self.engine)
            always = state_bytes(self.model, cache_format(self.model, self.engine))
            always /= self.engine.tensor_parallel_size * self.engine.pipeline_parallel_size
            size = np.asarray(requests.prompt_tokens * kept + always, np.float64)
            sent = sent_ns(size, self.machine)
            run, fast, slow = (
                pooled_run(
                    requests,
                    self.engine,
                    times,
                    pools=pools,
                    transfer_ns=sent,
                    blocks=self.num_blocks,
                )
                for times in kinds
            )
            way = f"{sent.mean() / NS_PER_MS:.1f} ms on its way on the average"
            notes = (f"pools {pools.words}: what is kept of a prompt is {way}",)
        return serving(
            run,
            fast,
            slow,
            engine=self.engine,
            model=self.model.name,
            gpu=self.gpu,
            source=self.times.source,
            target=target,
            dollars_per_hour=dollars_per_hour,
            copies=1 if pools is None else pools.prefill + pools.decode,
            notes=(*self.notes, *self.times.notes, *notes),
        )


def deployment(
    model: Transformer,
    engine: Engine,
    *,
    profiles: Path | None = None,
    trace: Path | StepCalibration | None = None,
    keys_each: float = 1024.0,
    machine: Machine | None = None,
    gpu: str = "",
    beside: Sequence[Path] = (),
    folders: Sequence[Path] = (),
    known: dict[tuple[str, int, int], LayerProfiles] | None = None,
    rules: Sequence[SubstitutionRule] = (),
) -> Deployment:
    """A deployment, its step times from layer profiles, or from kernel models.

    Args:
        model: that serves.
        engine: its settings.
        profiles: folder of layer profiles; kernel models and the data sheet, if left out.
        trace: of the engine's own profiler, which calibrates step times, or what one said.
        keys_each: keys of a decode, where a trace does not say them.
        machine: that it runs on; by the GPU's name, if left out.
        gpu: its name; as the engine's file, its folder or a file beside it says, if left out.
        beside: the engine's file and others whose folders may name the GPU.
        folders: of files that names of hardware are looked up in, before the presets.
        known: layers by GPU and degree that other deployments of the model had; added to.
        rules: of substitution, whose products take the place of the library's where they pay.

    Raises:
        WorkloadError: if profiles are missing, or the memory holds no sequence.
        MachineError: if collectives cannot be costed.
    """
    if model.patches is not None:
        raise WorkloadError(
            f"{model.name} sees pictures and makes no tokens: only models that do are served"
        )
    check_states(model, profiles)
    model = as_kept(model, engine)
    names = [name for name in (gpu, engine.device, *named_beside(beside)) if name]
    if machine is None:
        machine = machine_of(names, folders, num_gpus=engine.num_gpus)
    if engine.max_model_len is None and model.context:
        engine = replace(engine, max_model_len=model.context)
    chip = machine.chip if machine is not None else chip_of(names, folders)
    engine = engine.on(*_memory_of(engine, chip))
    check_heads(model, engine)
    degrees = engine.tensor_parallel_size, expert_shards(engine)
    key = ("".join(names) if chip is None else chip.name, *degrees)
    check_rules(rules, trace, chip, model)
    formats = served_formats(model, engine, chip)
    known = {} if known is None else known
    if key not in known:
        known[key] = _layers(
            model, engine, profiles=profiles, names=names, chip=chip, formats=formats
        )
        known[key] = under_rules(known[key], model, chip, rules)
    found = known[key]
    if machine is None and chip is None:
        machine = machine_of([found.gpu], folders, num_gpus=engine.num_gpus)
        chip = machine.chip if machine is not None else None
    check_copies_in_step(model, engine, machine)
    times = times_of_profiles(found, model, engine, machine=machine)
    is_narrow = formats != ServedFormats()
    if profiles is None:
        source = f"kernel models and the data sheet of {found.gpu}"
        ends = (_LOW_OF_NARROW, _HIGH_OF_NARROW) if is_narrow else (_LOW, _HIGH)
        times = replace(times, source=source, low=ends[0], high=ends[1])
    elif is_narrow:  # what models make of measured layers
        times = replace(times, low=min(times.low, _LOW), high=max(times.high, _HIGH))
    name = chip.name if chip is not None else found.gpu
    if trace is not None:
        times = times.calibrated(_calibration(trace, engine, times, name, keys_each))
    engine = keeping_states_alone(model, engine)
    engine = replace(engine, sequence_blocks=sequence_blocks(model, engine))
    blocks, notes = cache_blocks(model, engine, chip, rules)
    names = [rule.name for rule in rules]
    said = (
        ("weights of linear layers", formats.words),
        ("other products where they are faster", names),
        ("settings without effect here", engine.unused),
    )
    notes = (*notes, *(f"{what}: {', '.join(each)}" for what, each in said if each))
    notes = (*notes, *_notes_on_states(model, engine, times))
    return Deployment(
        model=model,
        engine=engine,
        times=times,
        gpu=name,
        num_blocks=blocks,
        machine=machine,
        notes=notes,
    )


def _memory_of(engine: Engine, chip: Chip | None) -> tuple[int | None, str]:
    """Memory of a GPU, and what it is called: as the driver says, else its description."""
    if chip is None:
        return engine.device_bytes, engine.device
    return engine.device_bytes or chip.memory_bytes, engine.device or chip.title


def check_states(model: Transformer, profiles: Path | None) -> None:
    """Refuse states where measured layers would have to say them.

    Raises:
        WorkloadError: if there are profiles.
    """
    if model.states is not None and profiles is not None:
        raise WorkloadError(
            f"{model.name} carries states (states.heads = {model.states.num_heads}), which layer "
            "profiles do not list: leave --profiles out"
        )


def keeping_states_alone(model: Transformer, engine: Engine) -> Engine:
    """An engine whose block is all that a sequence keeps, where no layer has attention.

    Source:
        vllm-project/vllm 0.19, vllm/model_executor/models/config.py, `MambaModelConfig`: without
        prefix caching a block has as many tokens as the context, and so a sequence one.
    """
    if any(layer.has_attention for layer in model.layers):
        return engine
    return replace(engine, block_size=engine.max_model_len or NO_LIMIT, enable_prefix_caching=False)


def sequence_blocks(model: Transformer, engine: Engine) -> int:
    """Blocks of the cache that a sequence's states take on each GPU, whatever its length.

    Source:
        vllm-project/vllm 0.19, vllm/v1/core/kv_cache_utils.py: states and keys share one pool.
    """
    block = bytes_of_token(model, engine) * engine.pipeline_parallel_size * engine.block_size
    if model.states is None or not block:
        return 0
    kept = state_bytes(model, cache_format(model, engine)) / engine.tensor_parallel_size
    return ceil(kept / block)


def _notes_on_states(model: Transformer, engine: Engine, times: EngineStepTimes) -> tuple[str, ...]:
    """What a sequence keeps whatever its length, and how much of a step is not measured."""
    found: list[str] = []
    if model.states is not None:
        kept = state_bytes(model, cache_format(model, engine)) / 2**20
        blocks = f"{engine.sequence_blocks} blocks of the cache on each GPU"
        if not engine.sequence_blocks:
            blocks = "and nothing else is kept of it"
        found.append(
            f"states of a sequence take {kept:,.1f} MiB over all layers, {blocks}, and no prefix "
            "is found again"
        )
    if times.assumed is not None:
        what = "states" if model.attention.indexer is None else "the indexer"
        found.append(
            f"no kernel of {what} was measured: others' stand in, and half to twice their time is "
            "in the interval"
        )
    return tuple(found)


def check_heads(model: Transformer, engine: Engine) -> None:
    """Refuse tensor parallelism that heads cannot be dealt out to, as vLLM does.

    A single group of heads with states is copied (vllm-project/vllm 0.19,
    vllm/model_executor/layers/mamba/mamba_mixer2.py).

    Raises:
        WorkloadError: if heads are not as many on each GPU.
    """
    heads, tensor = model.attention.num_heads, engine.tensor_parallel_size
    states = model.states
    if states is not None:
        alike = gcd(states.num_heads, states.num_groups)
        if (states.num_heads if states.num_groups == 1 else alike) % tensor:
            groups = f" in {states.num_groups} groups" if states.num_groups > 1 else ""
            both = "both" if groups else "them"
            raise WorkloadError(
                f"tensor_parallel_size is {tensor}, and {model.name} has {states.num_heads} heads "
                f"with states{groups}: take a degree that divides {both}"
            )
    if heads % tensor:
        raise WorkloadError(
            f"tensor_parallel_size is {tensor}, and {model.name} has {heads} heads of attention: "
            "take a degree that divides them"
        )


def check_copies_in_step(model: Transformer, engine: Engine, machine: Machine | None) -> None:
    """Refuse copies that share experts where one machine has not as many GPUs.

    Raises:
        WorkloadError: if it has fewer.
    """
    copies = ranks_in_step(model, engine)
    ranks = copies * engine.tensor_parallel_size * engine.pipeline_parallel_size
    if copies > 1 and machine is not None and machine.num_ranks < ranks:
        raise too_few(machine, ranks)


def _calibration(
    trace: Path | StepCalibration,
    engine: Engine,
    times: EngineStepTimes,
    gpu: str,
    keys_each: float,
) -> StepCalibration:
    """What a trace says of an engine's steps, or what it said of another's on the same GPU.

    Raises:
        WorkloadError: if steps pass several stages, or it was of another GPU.
    """
    if isinstance(trace, StepCalibration):
        if trace.gpu != gpu:
            raise WorkloadError(f"a trace of {trace.gpu} says nothing of {gpu}: name one GPU")
        return trace
    if engine.pipeline_parallel_size > 1:
        raise WorkloadError(
            "an engine's trace says how long its own steps take, not what a stage of "
            f"pipeline_parallel_size {engine.pipeline_parallel_size} does: leave --trace out"
        )
    return calibration_of(trace, engine, times, keys_each=keys_each, gpu=gpu)


def check_rules(
    rules: Sequence[SubstitutionRule],
    trace: Path | StepCalibration | None,
    chip: Chip | None,
    model: Transformer,
) -> None:
    """Refuse rules where there are no products that they could be about.

    Raises:
        WorkloadError: if step times are an engine's marks, no chip is described, or weights are
            not in 16 bit.
    """
    if rules and model.quantisation is not None:
        raise WorkloadError(
            "rules of substitution are about products in 16 bit, and weights of "
            f"{model.name} are in {model.quantisation.weights}: leave one of them out"
        )
    if rules and (trace is not None or chip is None):
        raise WorkloadError(
            "rules of substitution change products, of which an engine's own marks say nothing, on "
            "a chip that is described: leave --trace out, or name the GPU with --gpu"
        )


def _layers(
    model: Transformer,
    engine: Engine,
    *,
    profiles: Path | None,
    names: Sequence[str],
    chip: Chip | None,
    formats: ServedFormats,
) -> LayerProfiles:
    """Layers as measured, or as kernel models say; in the formats in which they are served.

    Raises:
        WorkloadError: if there are none, or none in these formats and no chip is described.
    """
    tensor, shards = engine.tensor_parallel_size, expert_shards(engine)
    if profiles is not None:
        found = read_profiles(
            profiles,
            models=[name for name in (engine.model, model.name) if name],
            gpus=[*names, *([chip.title] if chip is not None else [])],
            tensor=tensor,
            has_experts=model.experts is not None,
        )
        chip = chip or chip_of([found.gpu])
        if formats == ServedFormats():
            return with_cut_experts(found, model, chip, formats, shards)
        if chip is None:
            raise WorkloadError(
                "layers were profiled in 16 bit, and weights or the cache are in fewer: what that "
                "changes needs a GPU that is described: name it with --gpu or --machine"
            )
        found = in_formats(found, model, chip, formats)
        return with_cut_experts(found, model, chip, formats, shards)
    if chip is None:
        called = f", and none goes by {names[0]}" if names else ""
        raise WorkloadError(
            "step times need layer profiles (--profiles) or a GPU that is described"
            f"{called}: name it with --gpu or --machine"
        )
    return profiles_of_kernels(model, chip, tensor=tensor, expert_shards=shards, formats=formats)


def cache_blocks(
    model: Transformer,
    engine: Engine,
    chip: Chip | None,
    rules: Sequence[SubstitutionRule] = (),
) -> tuple[int, tuple[str, ...]]:
    """Blocks of the cache: as resolved, or what the memory leaves; and what to say of it.

    Raises:
        WorkloadError: if nothing is left.
    """
    if engine.num_gpu_blocks is not None:
        return engine.num_gpu_blocks, ()
    capacity = engine.device_bytes or (chip.memory_bytes if chip is not None else None)
    if capacity is None:
        return NO_LIMIT, ("nothing says how much memory the GPU has: the cache is taken as large",)
    memory = serving_memory(
        model,
        capacity=capacity,
        utilisation=engine.gpu_memory_utilization,
        tensor=engine.tensor_parallel_size,
        expert_ranks=1 if model.experts is None else engine.expert_gpus,
        pipeline=engine.pipeline_parallel_size,
        max_tokens=engine.max_num_batched_tokens,
        max_sequences=engine.max_num_seqs,
        cache_format=cache_format(model, engine),
    )
    if engine.kv_cache_memory_bytes is not None:
        memory = replace(memory, cache=engine.kv_cache_memory_bytes)
    held = 0
    if chip is not None and engine.kv_cache_memory_bytes is None:
        size = {"tensor": engine.tensor_parallel_size, "tokens": engine.max_num_batched_tokens}
        held = workspace_bytes(model, chip, rules, **size)
    per_sequence = memory.bytes_per_sequence
    if memory.bytes_per_token:
        blocks = int((memory.cache - held) / memory.bytes_per_token) // engine.block_size
    else:
        blocks = int((memory.cache - held) / per_sequence)
    if blocks <= 1:
        taken = (memory.weights + memory.activations + memory.context + held) / 2**30
        allowed = capacity * engine.gpu_memory_utilization / 2**30
        raise NoRoomError(
            f"{model.name} leaves no room for a sequence: weights and the rest take "
            f"{taken:.1f} GiB of {allowed:.1f} GiB "
            "on each GPU; take more GPUs (tensor_parallel_size), or one with more memory"
        )
    tokens = f"{blocks * engine.block_size:,} tokens"
    if not memory.bytes_per_token:
        tokens = f"states of {blocks - NULL_BLOCKS:,} sequences"
    if engine.kv_cache_memory_bytes is not None:
        return blocks, (f"kv_cache_memory_bytes has room for {tokens}",)
    return blocks, (f"the cache was not stated: the memory leaves room for {tokens}",)


def bytes_of_token(model: Transformer, engine: Engine) -> float:
    """What one GPU keeps of a token."""
    shared = engine.tensor_parallel_size if model.attention.latent is None else 1
    kept = cache_bytes_per_token(model, cache_format(model, engine))
    return kept / max(1, min(shared, model.attention.num_kv_heads)) / engine.pipeline_parallel_size
