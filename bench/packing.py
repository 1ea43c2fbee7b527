"""Packing as it was published (Wang et al., arXiv:2503.17924), row by row of its table 1.

    python bench/packing.py [seeds] [layers of a chunk]        a few minutes on one core

The law of lengths is fitted to three things that are published: microbatches of 7B at 128 K as they
come have an imbalance of 1.44, of documents up to the window's length those below half of it hold
over 75 % of the tokens, and cutting by document makes one layer of 7B over four ranks of context
parallelism 1.07 times as fast at 128 K. Nothing else is fitted. Printed, for every model and
window: the gain of the best packer for the same work, over documents as they come, cut (same work)
and with none cut (whole), that of packing alone and that of cutting by document alone; for 7B at
128 K also the imbalance, delay and own time of every packer. Before that, the study of one layer,
documents as they come: how much sooner cutting by document is done.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from foretrace.balance import (
    AsItComes,
    ContextShards,
    Room,
    arrivals,
    document_work,
    documents_of,
    packed_stream,
    slowest_attention_ns,
)
from foretrace.cost import step_costs
from foretrace.estimate import Packings, packings
from foretrace.machine import load_machine
from foretrace.workload import PlanDraft, Transformer, complete, load_model

MACHINE = load_machine("h100-24k")
COSTS = step_costs(MACHINE)
LAW = "lognormal:5.0,2.0"
PIPELINE = 4
PLAN = {
    "pp": PIPELINE, "dp": 1, "schedule": "interleaved", "chunks": 2, "sharding.level": "zero1",
    "micro_batch": 1, "global_batch": 4,
}  # fmt: skip
STEPS = 200
# Model, window in K tokens, tp, cp; pp 4 throughout, copies of the model left out.
ROWS = (
    ("550M", 64, 2, 2), ("llama2-7b", 64, 4, 2), ("llama2-34b", 64, 8, 2),
    ("llama2-70b", 64, 16, 4),
    ("550M", 128, 2, 4), ("llama2-7b", 128, 8, 2), ("llama2-34b", 128, 8, 4),
    ("llama2-70b", 128, 16, 4),
)  # fmt: skip
DETAILED = ("llama2-7b", 128)
LAYER_RANKS = 4


def model_of(name: str) -> Transformer:
    """A preset, or the small one, whose shape is not told: Llama 2's form."""
    model = load_model("llama2-7b" if name == "550M" else name)
    assert isinstance(model, Transformer)  # noqa: S101  no preset here is anything else
    if name != "550M":
        return model
    heads = replace(model.attention, num_heads=10, num_kv_heads=10)
    width = replace(model.feed_forward, width=3_456)
    return replace(model, num_layers=24, hidden=1_280, attention=heads, feed_forward=width)


def study(row: tuple[str, int, int, int], seed: int, layers: int) -> Packings:
    """Packers at one row of the table; chunks of so many layers, 0: two of each stage."""
    name, window, tp, cp = row
    model = model_of(name)
    keys = {**PLAN, "tp": tp, "cp": cp, "batch.sequence": 1_024 * window}
    if layers:
        keys["chunks"] = model.num_layers // (PIPELINE * layers)
    return packings(
        model, complete(PlanDraft().with_keys(keys), model), MACHINE,
        documents=documents_of(f"{LAW},{1_024 * window}"), costs=COSTS, num_steps=STEPS, seed=seed,
        by_window=(name, window) == DETAILED,
    )  # fmt: skip


def one_layer(window: int) -> str:
    """Cutting by document beside cutting by sequence: of attention, and of the whole layer."""
    keys = {**PLAN, "tp": 8, "cp": LAYER_RANKS, "batch.sequence": window}
    work = document_work(
        model := model_of("llama2-7b"), complete(PlanDraft().with_keys(keys), model), COSTS
    )
    room = Room(window, 4, window, longest_document=window)
    documents = documents_of(f"{LAW},{window}").arriving(STEPS * room.step_tokens)
    stream = packed_stream(AsItComes(room), arrivals(documents.tolist(), room))
    sequences = [one for step in stream.lengths() for one in step]
    by_sequence, by_document, adaptive = (
        sum(slowest_attention_ns(one, work, LAYER_RANKS, shards=shards) for one in sequences)
        for shards in list(ContextShards)[:3]
    )
    # What a rank takes alone is its part of what all take together: its time is as many of them.
    rest = len(sequences) * work.token_ns * window / LAYER_RANKS
    return (
        f"attention {by_sequence / by_document:.3f}  "
        f"layer {(by_sequence + rest) / (by_document + rest):.3f}  "
        f"adaptive {(by_sequence + rest) / (adaptive + rest):.3f}"
    )


def main(seeds: int, layers: int) -> None:
    """Print a row for every model, window and seed."""
    for window in (64, 128):
        print(f"one layer of 7B, cp {LAYER_RANKS}, {window} K: {one_layer(1_024 * window)}")
    for row in ROWS:
        name, window, *_ = row
        for seed in range(seeds):
            begin = time.process_time()
            found = study(row, seed, layers)
            told = {(one.name, one.shards): one for one in found.packers}
            whole = told["as it comes, whole", "sequence"].ns_per_work / found.best.ns_per_work
            print(
                f"{name:10} {window:4} K  whole {whole:.3f}  same work {found.best.gain:.3f} "
                f"({found.best.gain_low:.2f} to {found.best.gain_high:.2f})  packing alone "
                f"{told['2 outlier queues', 'sequence'].gain:.3f}  cutting alone "
                f"{told['as it comes', 'adaptive'].gain:.3f}  "
                f"{time.process_time() - begin:.0f} CPU s",
                flush=True,
            )
            if (name, window) == DETAILED:
                for one in found.packers:
                    print(
                        f"    {one.name:20} {one.shards:9} imbalance {one.imbalance:.3f}  delay "
                        f"{one.delay_iterations:.2f}  own {one.overhead_ms:.2f} ms"
                    )
                for at in found.windows:
                    print(f"    {at.window // 1_024:4} K {at.gain:.3f}")


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*given, *(1, 0)[len(given) :])
