"""How a folder of recordings replays: the error at the step's end, of the parts, and the verdict.

    python bench/recordings.py FOLDER              one line for each file, each as a run of its own
    python bench/recordings.py FOLDER --match X    files whose name holds X

A recording holds if its steps end within 0.5 % of what was measured and each part of a step is
within 1 % of the step. Where it does not, `foretrace replay` must say so before its numbers: a
recording that is wrong without a verdict is what must not be.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import foretrace as ft
from foretrace.base import ModelError
from foretrace.validate import Trust

END_PERCENT, PART_PERCENT = 0.5, 1.0


def main() -> None:
    """Replay every file of the folder, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="", help="only files whose name holds this")
    asked = parser.parse_args()
    paths = [path for path in sorted(asked.folder.rglob("*.json*")) if asked.match in path.name]
    counts = dict.fromkeys(("holds", "verdict", "WRONG", "refused"), 0)
    print(f"{'worst end %':>11} {'worst part %':>22}  outcome  verdict   file")
    for path in paths:
        outcome, line = replayed(path)
        counts[outcome] += 1
        print(f"{line}  {path.name[-70:]}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


def replayed(path: Path) -> tuple[str, str]:
    """What became of one recording, and its line."""
    try:
        report = ft.replay(ft.load(path))
    except ModelError as err:
        return "refused", f"{'-':>11} {'-':>22}  refused  {str(err)[:60]}:"
    summary = report.summary
    end, part = summary.worst_step_error_percent, summary.worst_component_error_percent
    trust = report.verdict.trust
    holds = end <= END_PERCENT and part <= PART_PERCENT
    outcome = "holds" if holds else "verdict" if trust is Trust.DOUBTED else "WRONG"
    name = f"{summary.worst_component[:14]} {part:.3f}"
    return outcome, f"{end:11.3f} {name:>22}  {outcome:7}  {trust:8}"


if __name__ == "__main__":
    main()
