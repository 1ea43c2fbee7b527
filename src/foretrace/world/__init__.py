"""Floor 7: a script that ran as a few of its ranks becomes a job of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.world.graph import graph_of_roles as graph_of_roles
    from foretrace.world.script_run import WorldRun as WorldRun
    from foretrace.world.script_run import run as run

lazily(__name__)
