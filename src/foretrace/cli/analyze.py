"""`foretrace analyze`: one screen with the answers that matter first."""

from __future__ import annotations

from foretrace import api
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import RunSource


def analyze(
    paths: options.Paths,
    *,
    step: options.Step = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    blocks_file: options.BlocksFile = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
    names: options.Names = None,
) -> None:
    """Show on one screen what a step is and what would help most."""
    source = RunSource(paths, ranks, no_cache, workers, names)
    with activity() as doing:
        job = source.job(doing, blocks=blocks_file)
        doing.now("asking every question")
        found = api.overview(job, step=step)
    Outputs(json, csv, parquet).tell(found, lacks=job.lacks)
