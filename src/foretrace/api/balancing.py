"""`balance`: is packing worth it for a dataset, and which packer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from foretrace.api.named import machine_named, model_named
from foretrace.balance import Documents, documents_of
from foretrace.base import WorkloadError
from foretrace.cost import CostModel
from foretrace.estimate import Packings, packings
from foretrace.machine import Machine
from foretrace.workload import Model, Plan, PlanDraft, Transformer, complete

# The study that packers are known from: 7B, 128 K tokens, 64 GPUs (arXiv:2503.17924, table 1).
STUDY_MODEL: Final = "llama2-7b"
STUDY_MACHINE: Final = "h100-24k"
STUDY_PLAN: Final[Mapping[str, object]] = {
    "tp": 8,
    "cp": 2,
    "pp": 4,
    "dp": 1,
    "schedule": "interleaved",
    "chunks": 2,
    "sharding.level": "zero1",
}
_DEGREES = ("tp", "cp", "pp", "dp")


def balance(
    documents: Documents | Sequence[int] | str | Path,
    *,
    window: int,
    num_microbatches: int = 4,
    model: Model | str | Path = STUDY_MODEL,
    plan: Mapping[str, object] | None = None,
    machine: Machine | str | Path = STUDY_MACHINE,
    costs: CostModel | None = None,
    longest: int | None = None,
    num_steps: int = 200,
    seed: int = 0,
    folders: Sequence[Path] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Packings:
    """Packers side by side: balance, delay, and what the step gains under a plan.

    Args:
        documents: a dataset's index (`.idx` of Megatron, `.arrow`, `.parquet`, `.csv`, `.txt`,
            `.npy`), a law ("lognormal:8.3,1.6"), or lengths in tokens.
        window: tokens of the longest document, and of a microbatch of fixed length.
        num_microbatches: of one copy of the model in a step.
        model: as in `estimate`.
        plan: keys of a plan. Without: the study's tp 8, cp 2, pp 4 in two chunks, zero1. With any,
            degrees that are left out are 1, and the rest is as in `estimate`.
        machine: as in `estimate`.
        costs: as in `estimate`.
        longest: tokens of the longest microbatch where lengths vary; 1.5 windows, if left out.
        num_steps: that documents are drawn for.
        seed: of the order of documents.
        folders: of files that names are looked up in, before the presets.
        progress: called with packers done and packers in all.

    Raises:
        WorkloadError: if documents cannot be read, or the plan is not legal for the model.
        MachineError: if the machine cannot be costed.
    """
    found = model_named(model, folders)
    if not isinstance(found, Transformer):
        raise WorkloadError(
            f"{found.name} is no transformer: only attention makes documents of one length take "
            "longer than shorter ones of as many tokens"
        )
    return packings(
        found,
        _plan(found, plan or {}, window=window, num_microbatches=num_microbatches),
        machine_named(machine, folders),
        documents=documents_named(documents),
        costs=costs,
        longest=longest,
        num_steps=num_steps,
        seed=seed,
        progress=progress,
    )


def documents_named(documents: Documents | Sequence[int] | str | Path) -> Documents:
    """Documents of a dataset's index, of a law, or of lengths in tokens.

    Raises:
        WorkloadError: if they cannot be read.
    """
    if isinstance(documents, Documents):
        return documents
    if isinstance(documents, str | Path):
        return documents_of(str(documents))
    return Documents(f"{len(documents):,} lengths", lengths=np.asarray(documents, np.int64))


def _plan(
    model: Transformer, keys: Mapping[str, object], *, window: int, num_microbatches: int
) -> Plan:
    stated = {**dict.fromkeys(_DEGREES, 1), **keys} if keys else STUDY_PLAN
    draft = PlanDraft().with_keys({"micro_batch": 1, **stated})
    copies = draft.plan().data * draft.plan().micro_batch
    sizes = {"global_batch": num_microbatches * copies, "batch.sequence": window}
    return complete(draft.with_keys(sizes), model)
