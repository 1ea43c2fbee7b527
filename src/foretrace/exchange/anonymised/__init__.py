"""Traces without the names that are somebody's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.exchange.anonymised.files import anonymise as anonymise
    from foretrace.exchange.anonymised.result import Anonymised as Anonymised
    from foretrace.exchange.anonymised.result import Hint as Hint

lazily(__name__)
