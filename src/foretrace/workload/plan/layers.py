"""Which layers of a model each chunk of a pipeline holds."""

from __future__ import annotations

from foretrace.base import WorkloadError
from foretrace.workload.plan.plan import Plan


def chunk_layers(plan: Plan, num_layers: int) -> tuple[int, ...]:
    """How many layers each chunk holds, in the order of a route: `pipeline * num_chunks` numbers.

    Unless the plan states them, as even as can be. Where that does not come out even, chunks at
    the ends have the layer less, since the first also holds the embedding and the last the output
    projection and the loss: the last chunk first, then the first one, the last but one, and so on.

    Raises:
        WorkloadError: if what the plan states does not fit its chunks or the model.

    Source:
        Llama Team, "The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.2: one layer less
        on the first and on the last stage.
    """
    num_parts = plan.pipeline * plan.num_chunks
    stated = plan.layers_of_chunk
    if stated is None:
        return _even(num_layers, num_parts)
    if len(stated) != num_parts:
        raise WorkloadError(
            f"layers_of_chunk has {len(stated)} numbers, and pp {plan.pipeline} x "
            f"{plan.num_chunks} chunks a stage = {num_parts} chunks: state one number for each, "
            "first to last along the model"
        )
    if sum(stated) != num_layers or min(stated) < 0:
        raise WorkloadError(
            f"layers_of_chunk sums to {sum(stated)} and its smallest number is {min(stated)}, "
            f"where the model has {num_layers} layers: the numbers have to sum to that, none "
            "below 0"
        )
    return stated


def _even(num_layers: int, num_parts: int) -> tuple[int, ...]:
    most = -(-num_layers // num_parts)
    layers = [most] * num_parts
    for turn in range(most * num_parts - num_layers):
        place = turn // 2
        layers[num_parts - 1 - place if turn % 2 == 0 else place] -= 1
    return tuple(layers)
