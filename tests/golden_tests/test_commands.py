"""The JSON of every command: no key and no number of it moves unnamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import schemas
from tests.commands import command_tree
from tests.conftest import KeepsSchema
from tests.golden_tests.command_line import Run
from tests.golden_tests.conftest import Tables
from tests.golden_tests.digest import digest

NAME = "commands"
JOB = "{examples}/cpu-llama-tp2-dp2/traces"
PLAN = (
    "--model llama3.2-1b --machine dgx-h100 --tp 2 --pp 2 --dp 2 --global-batch 8"
    " --set micro_batch=1 --set sequence=256 --set sharding.level=zero1 --set recompute=none"
    " --set schedule=1f1b --set sequence_parallel=true"
)

LINES: Mapping[str, str] = {
    "analyze": f"analyze {JOB}",
    "anonymise": "anonymise {made}/tensor -o {out}/anonymous",
    "bench generate": f"bench generate {JOB}/rank0.et.json.gz -o {{out}}/bench.py"
    f" --kineto {JOB}/rank0.kineto.json.gz",
    "breakdown": f"breakdown {JOB}",
    "breakdown measured": f"breakdown {JOB} --measured",
    "compare": "compare {examples}/planted/nothing {examples}/planted/slow-forward",
    "compare with its replay": f"compare {JOB}",
    "critical-path": f"critical-path {JOB}",
    "critical-path of a rank": f"critical-path {JOB} --rank 2",
    "estimate": f"estimate {PLAN}",
    "estimate of an open plan": "estimate --model llama3.2-1b --machine dgx-h100 --gpus 8"
    " --global-batch 64",
    "hang": f"hang {JOB}",
    "idle": f"idle {JOB}",
    "inspect": f"inspect {JOB}",
    "inspect of blocks": f"inspect {JOB} --blocks",
    "machine check": "machine check llama3-24k",
    "machine list": "machine list",
    "software list": "software list",
    "software show": "software show nemo-25.11",
    "machine show": "machine show dgx-h100",
    "memory": f"memory {JOB}",
    "model list": "model list",
    "model show": "model show deepseek-v3",
    "model show recommender": "model show dlrm-mlperf-v2",
    "model show diffusion": "model show stable-diffusion-1.5",
    "operators": f"operators {JOB}",
    "operators by family": f"operators {JOB} --by family",
    "operators attention": f"operators {JOB} --attention",
    "plan": "plan --model llama3.2-1b --gpus 8 --global-batch 64 --tp 2",
    "plan as megatron": "plan --model llama3.2-1b --gpus 8 --global-batch 64 --as megatron",
    "replay": f"replay {JOB}",
    "risk campaign": "risk campaign --nodes 100 --failure-rate 0.01 --checkpoint-interval 60min"
    " --restart 10min --days 20 --samples 50",
    "risk compare": "risk compare --nodes 64 --failure-rate 0.01 --checkpoint-interval 60min"
    " --restart 10min --days 10 --samples 20",
    "risk ettr": "risk ettr --nodes 100 --failure-rate 0.01 --checkpoint-interval 60min"
    " --restart 10min --samples 20",
    "risk failures": "risk failures rsc-1",
    "risk placement": f"risk placement {PLAN} --samples 16",
    "risk steps": f"risk steps {PLAN} --samples 64",
    "risk steps of a recording": f"risk steps {JOB} --samples 64 --vary kernel=0.05",
    "sensitivity": f"sensitivity {JOB}",
    "sensitivity of a change": f"sensitivity {JOB} --change gemm=0.5 --change allreduce=0",
    "stalls": f"stalls {JOB}",
    "batches": f"batches {JOB}",
    "stragglers": f"stragglers {JOB}",
    "substitute": "substitute --model llama3-405b --machine llama3-24k"
    " --plan llama3-405b-8k-16k-gpus",
    "synthesise": "synthesise {made}/tensor -o {out}/synthetic --nodes 500 --ranks 2",
    "throughput": f"throughput {JOB} --chip a100-sxm-80gb",
    "trend": "trend {examples}/planted",
    "validate cost": "validate cost",
    "validate lumos": "validate lumos",
    "whatif": f"whatif {JOB} --layers 6 --speed part:optimizer=2",
    "whatif of scenarios": f"whatif {JOB} --scenarios {{scenarios}} --speed gemm=1.1",
}

# Commands that answer in JSON whose numbers are not kept, and why; their keys are (`test_schemas`).
LEFT_OUT = {
    "config show": "says what this machine has set",
    "balance": "times its packers; estimate/test_packings.py keeps its figures",
    "bench check": "runs a program and measures it",
    "cache list": "lists what this machine has cached",
    "calibrate": "fits for minutes, and optimisers end elsewhere on other processors",
    "ledger add": "keeps the day it was run on; validate/test_ledger.py keeps its figures",
    "ledger settle": "the same",
    "ledger show": "the same",
    "measure": "measures this machine",
    "run": "needs PyTorch; cli/test_run.py keeps its figures",
    "numerics campaign": "trains a model here; numerics/test_vulnerability.py keeps its figures",
    "numerics deviate": "rounds as processors do; numerics/test_deviation.py keeps its figures",
    "numerics probe": "trains models here; numerics/test_probe.py keeps its figures",
    "numerics watch": "needs a log; numerics/test_monitor.py keeps its figures",
    "numerics diff": "needs checkpoints; numerics/test_difference.py keeps its figures",
    "numerics formats": "says what the libraries installed here do",
    "risk corruption": "draws failures; tests/risk keeps its figures",
    "search": "tells how long it took; search/test_search.py keeps its figures",
    "tables": "tells how long it took; cli/test_tables.py keeps its figures",
    "serve": "needs layer profiles; serve/test_deployments.py keeps its figures",
    "validate live": "measures this machine",
    "validate neighbours": "needs a file of runs; validate/test_neighbours.py keeps its figures",
    "validate runs": "needs a file of runs, and minutes; tests/experiments keeps its figures",
}

SCENARIOS = """
[[scenario]]
name = "deeper"
layers = 4

[[scenario]]
name = "faster products, a slow rank"
speed = { gemm = 2 }
slow_rank = { 3 = 1.1 }

[[scenario]]
name = "wider, in more copies"
hidden = 512
dp = 4

[[scenario]]
name = "no such rank"
slow_rank = { 99 = 2 }
"""


@pytest.mark.parametrize("case", LINES, ids=list(LINES))
def test_a_command_prints_what_it_printed(
    case: str,
    table: Tables,
    keeps_schema: KeepsSchema,
    run: Run,
    *,
    examples: Path,
    made: Path,
    tmp_path: Path,
) -> None:
    scenarios = tmp_path / "scenarios.toml"
    scenarios.write_text(SCENARIOS, encoding="utf-8")
    places = {"examples": examples, "made": made, "out": tmp_path, "scenarios": scenarios}

    outcome = run(*(word.format(**places) for word in LINES[case].split()), "--json")

    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    keeps_schema(schemas.command_of(LINES[case]), found)
    table(NAME).check(case, digest(found))


# Of a run of devices, which says more than the bundled example of a CPU.
OF_RUNS = (
    *("analyze", "breakdown", "critical-path", "hang", "idle", "inspect", "operators"),
    *("batches", "replay", "sensitivity", "stalls", "stragglers", "throughput"),
)


@pytest.mark.parametrize("command", OF_RUNS)
def test_a_run_of_devices_is_told_by_the_same_schema(
    command: str, keeps_schema: KeepsSchema, run: Run, made: Path
) -> None:
    outcome = run(*command.split(), made / "two-stages", "--json")

    assert outcome.code == 0, outcome.err
    keeps_schema(command, json.loads(outcome.out))


def test_every_command_with_json_is_kept_or_left_out_with_a_reason() -> None:
    paths = {
        " ".join(command.path)
        for command in command_tree()
        if any(option.name == "--json" for option in command.options)
    }

    kept = {
        path for path in paths if any(f"{line} ".startswith(f"{path} ") for line in LINES.values())
    }

    assert kept | set(LEFT_OUT) == paths
    assert not kept & set(LEFT_OUT)
