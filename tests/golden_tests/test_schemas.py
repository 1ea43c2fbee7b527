"""The JSON Schema of commands whose numbers are other ones at every run, and who has one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import schemas
from tests.commands import command_tree
from tests.conftest import KeepsSchema
from tests.golden_tests.command_line import Run
from tests.golden_tests.test_commands import JOB
from tests.validate.runs.sample import write_table

_ENGINE = '{"model": "llama3-8b", "tensor_parallel_size": 2, "max_num_seqs": 64}'
_OBSERVED = (
    '{"step": 10, "time_ns": 1, "expected_std": 0.23, "layers": {"a": {"ratio_std": 0.2, '
    '"large_share": 0.1, "bimodality": null, "epsilon_ratio": 9.0, "gradient_memory": 0.0, '
    '"cosine": 0.5, "update_norm": 0.1}}}\n'
)
_HEAD = b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
_CHECKPOINT = len(_HEAD).to_bytes(8, "little") + _HEAD + bytes(8)
_NETWORK = "import torch\ndef made():\n    return torch.nn.Linear(4, 3), torch.ones(8, 4)\n"
_PLAN = "--model llama3.2-1b --machine dgx-h100 --gpus 8"
_ADDED = f"{_PLAN} --set global_batch=8 --ledger {{out}}/l.jsonl --json"
_SMALL = "--tp 2 --global-batch 8 --sequence 512"
_ONCE = "--iterations 1 --warmup 0"
_STAGED = "serve --requests poisson:rate=10,prompt=1,output=1,requests=20"
_SERVE = "serve --gpu h100 --requests poisson:rate=10,prompt=128,output=16,requests=20"
_TABLES = "--model dlrm-mlperf-v2 --machine dgx-a100 --gpus 8 --micro-batch 8192"

# Run one after the other; what prints JSON is held against its schema.
LINES: Mapping[str, tuple[str, ...]] = {
    "balance": (
        "balance --documents lognormal:7,1 --window 4096 --microbatches 2 --tp 2 --steps 16 --json",
    ),
    "bench check": (
        f"bench generate {JOB}/rank0.et.json.gz -o {{out}}/bench.py",
        f"bench check {{out}}/bench.py --against {JOB}/rank0.et.json.gz {_ONCE} --json",
    ),
    "cache list": (f"breakdown {JOB}", "cache list --json"),
    "config show": ("config show --json",),
    "estimate": (f"estimate {_PLAN} {_SMALL} --network shared --slow-link 0.5 --json",),
    "ledger": (
        f"ledger add first {_ADDED}",
        "ledger show --ledger {out}/l.jsonl --json",
        "ledger settle first --step-s 20 --ledger {out}/l.jsonl --json",
        f"ledger add second {_ADDED}",
        "ledger show --ledger {out}/l.jsonl --json",
    ),
    "measure": ("measure --device cpu --seconds 0.2 --only gemm -o {out}/measured --json",),
    "numerics campaign": (
        "numerics campaign lenet --max-injections 1 --json",
        "numerics campaign {network}:made --max-injections 1 --fit-per-mbit 1 --json",
    ),
    "numerics deviate": (
        "numerics deviate softmax --length 64 --tile 16 --tile 32 --seeds 1 --json",
        "numerics deviate attention --repeated-maxima --json",
    ),
    "numerics diff": ("numerics diff {checkpoint} {checkpoint} --json",),
    "numerics formats": ("numerics formats --values 1000 --json",),
    "numerics probe": ("numerics probe lenet --formats bf16 --steps 2 --seeds 2 --json",),
    "numerics watch": (
        "numerics watch {losses} --json",
        "numerics watch {observed} --json",
    ),
    "risk corruption": ("risk corruption llama3-405b --check abft=0.05:0.99 --samples 5 --json",),
    "search": (
        f"search {_PLAN} {_SMALL} --time 1 --gap 5% --json",
        f"search {_PLAN} {_SMALL} --cp 1 --pp 1 --micro-batch 1 --time 600 --gap 0 --json",
    ),
    "serve": (
        f"{_SERVE} --engine {{engine}} --json",
        f"{_SERVE} --engine {{engine}} --slo ttft=2s --fewest --json",
        f"{_SERVE} --engine {{engine}} --rates 1,9 --report {{out}}/page.html --json",
        f"{_STAGED} --model dlrm-criteo-kaggle --machine six-l4 --json",
        f"{_STAGED} --model stable-diffusion-1.5 --machine dgx-a100 --batch 1 --json",
    ),
    "tables": (f"tables {_TABLES} --time 60 --json",),
    "validate neighbours": ("validate neighbours --data {runs} --json",),
    "whatif": (
        "whatif --model llama3.2-1b --machine dgx-h100 --plan {plan} --network shared --json",
    ),
    "validate runs": ("validate runs --data {runs} --workers 1 --json",),
}


@pytest.mark.parametrize("case", LINES)
def test_what_a_command_prints_keeps_to_its_schema(
    case: str, keeps_schema: KeepsSchema, run: Run, examples: Path, tmp_path: Path
) -> None:
    engine = tmp_path / "engine.json"
    engine.write_text(_ENGINE, encoding="utf-8")
    runs = write_table(tmp_path / "runs.csv", {}, {"id": "made-up-2", "global_batch": 96})
    losses, observed = tmp_path / "losses.csv", tmp_path / "observed.jsonl"
    losses.write_text("step,loss\n" + "".join(f"{at},{3 + 9 * (at > 60)}\n" for at in range(90)))
    observed.write_text(_OBSERVED)
    places = {"examples": examples, "out": tmp_path, "engine": engine, "runs": runs}
    checkpoint = tmp_path / "held.safetensors"
    checkpoint.write_bytes(_CHECKPOINT)
    network = tmp_path / "network.py"
    network.write_text(_NETWORK, encoding="utf-8")
    plan = tmp_path / "plan.toml"
    plan.write_text("[parallelism]\ndp = 8\n[batch]\nglobal_batch = 8\nsequence = 512\n")
    places |= {"losses": losses, "observed": observed, "checkpoint": checkpoint, "plan": plan}
    places |= {"network": network}

    for line in LINES[case]:
        outcome = run(*(word.format(**places) for word in line.split()))

        assert outcome.code == 0, outcome.err
        if line.endswith("--json"):
            keeps_schema(schemas.command_of(line), json.loads(outcome.out))


def test_every_command_with_json_has_a_schema(run: Run) -> None:
    names = run("schema").out.split()
    printed = json.loads(run("schema", "risk", "steps").out)

    assert printed["$id"] == "foretrace:risk-steps:1"
    assert set(names) == {
        "-".join(command.path)
        for command in command_tree()
        if any(option.name == "--json" for option in command.options)
    }
    assert run("schema", "nothing").code == 2
