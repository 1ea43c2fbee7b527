"""Floor 5: an execution trace becomes a benchmark that runs, and is held against its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.bench.check import BenchCheck as BenchCheck
    from foretrace.bench.check import Running as Running
    from foretrace.bench.check import check as check
    from foretrace.bench.check import compared as compared
    from foretrace.bench.program import BenchProgram as BenchProgram
    from foretrace.bench.program import Coverage as Coverage
    from foretrace.bench.program import Mode as Mode
    from foretrace.bench.recipe import Benchmark as Benchmark
    from foretrace.bench.recipe import Recipe as Recipe
    from foretrace.bench.recipe import generate as generate
    from foretrace.bench.recipe import package as package
    from foretrace.bench.recipe import package_model as package_model
    from foretrace.bench.recipe import recipe_in as recipe_in

lazily(__name__)
