"""Floor 9: a model's step on a page that answers as its plan is moved; served on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.explore.explorer import Explorer as Explorer
    from foretrace.explore.server import ExploreServer as ExploreServer

lazily(__name__)
