"""A new job's pieces become a graph, each node of it with the recorded node it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.whatif.arrange.arrange import arranged as arranged
    from foretrace.whatif.arrange.arrange import same_job as same_job

lazily(__name__)
