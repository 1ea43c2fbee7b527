"""How close generated benchmarks come to the steps that they were made of: the table of the docs.

python bench/mystique.py                      # five models recorded here, steps taking turns
python bench/mystique.py --public FOLDER      # and coverage of public traces of GPUs

Each model is recorded in one process. Then two fresh ones, the model itself without profiler and
the benchmark, run one step each in turn, so that both meet the same noise of the machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from foretrace.bench import Running, check, generate  # noqa: E402  after the path

WORKLOADS = ROOT / "tests/bench/workloads.py"
NAMES = ("perceptron", "transformer", "recommender", "residual", "distributed")
NUM_RANKS = {"distributed": 2}
PAIRS = (
    ("linear_et.json.gz", "linear_kineto.json.gz"),
    ("resnet_et.json.gz", "resnet_kineto.json.gz"),
)
WARMUP = 3


class Paced:
    """Processes, one per rank, that run a step when asked."""

    def __init__(self, commands: list[list[str]]) -> None:
        self.processes = [
            subprocess.Popen(one, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for one in commands
        ]

    def seconds(self) -> float:
        """One step of all ranks; that of the slowest."""
        for one in self.processes:
            if one.stdin is None:
                raise AssertionError(one)
            one.stdin.write("step\n")
            one.stdin.flush()
        return max(float(one.stdout.readline()) for one in self.processes if one.stdout)

    def close(self) -> None:
        """Let the processes end."""
        for one in self.processes:
            if one.stdin is not None:
                one.stdin.close()
            one.wait()


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40, help="steps of each side")
    parser.add_argument("--only", action="append", help="of these models")
    parser.add_argument("--public", type=Path, help="folder of public execution traces")
    options = parser.parse_args()
    print("| model | operators | replayed | of time | same operators and FLOPs | source ms |"
          " benchmark ms | medians | pairs | minima |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in options.only or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            print(row(name, Path(folder), options.steps), flush=True)
    for trace, kineto in PAIRS if options.public else ():
        made = generate(options.public / trace, kineto=options.public / kineto)
        print(f"{trace}: {made.as_json()}")


def row(name: str, folder: Path, num_steps: int) -> str:
    """One model's line."""
    ranks = NUM_RANKS.get(name, 1)
    places = [[str(rank), str(ranks)] if ranks > 1 else [] for rank in range(ranks)]
    source = [sys.executable, str(WORKLOADS), name]
    started = [
        subprocess.Popen([*source, "record", str(folder), *one], stderr=subprocess.DEVNULL)
        for one in places
    ]
    for one in started:
        one.wait()
    programs = [folder / f"bench{rank}.py" for rank in range(ranks)]
    for rank, program in enumerate(programs):
        trace, kineto = (folder / f"{kind}_rank{rank}.json" for kind in ("et", "kineto"))
        made = generate(trace, kineto=kineto)
        made.write(program)
    checked = check(
        programs[0],
        against=folder / "et_rank0.json",
        running=Running(ranks=ranks, threads=1, iterations=1),
    )
    paced = Paced([[*source, "paced", str(folder), *one] for one in places])
    bench = Paced(
        [
            [sys.executable, str(program), "--threads", "1", "--warmup", "0", "--paced"]
            + (["--rank", *one[:1], "--ranks", *one[1:], "--rendezvous", _url(folder)] * bool(one))
            for program, one in zip(programs, places, strict=True)
        ]
    )
    for _ in range(WARMUP):
        paced.seconds(), bench.seconds()
    pairs = [(paced.seconds(), bench.seconds()) for _ in range(num_steps)]
    paced.close()
    bench.close()
    ours, theirs = [one for _, one in pairs], [one for one, _ in pairs]
    coverage = made.program.coverage
    return (
        f"| {name} | {coverage.num_operators} | {coverage.share:.1%} |"
        f" {coverage.time_share or 0:.1%} | {'yes' if checked.is_same else 'no'} |"
        f" {1000 * statistics.median(theirs):.2f} | {1000 * statistics.median(ours):.2f} |"
        f" {statistics.median(ours) / statistics.median(theirs):.3f} |"
        f" {statistics.median(one / other for other, one in pairs):.3f} |"
        f" {min(ours) / min(theirs):.3f} |"
    )


def _url(folder: Path) -> str:
    return (folder / "rendezvous-bench").resolve().as_uri()


if __name__ == "__main__":
    main()
