"""A small model under plans of 512 ranks."""

from __future__ import annotations

from dataclasses import replace

from foretrace.machine import load_machine
from foretrace.workload import Model, Plan, PlanDraft, Transformer, complete
from tests.models import transformer

MACHINE = load_machine("h100-24k")


def small_model(num_layers: int = 4) -> Transformer:
    """Llama 3 8B with few layers."""
    model = transformer("llama3-8b")
    return replace(model, num_layers=num_layers)


def plan_of(model: Model, **keys: object) -> Plan:
    """A complete plan; underscores of keys stand for points."""
    stated = {name.replace("__", "."): value for name, value in keys.items()}
    stated = {"batch.sequence": 1024, "sharding.level": "none", **stated}
    return complete(PlanDraft().with_keys(stated), model)
