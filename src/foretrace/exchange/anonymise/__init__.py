"""Traces without the names that are somebody's."""

from __future__ import annotations

from foretrace.exchange.anonymise.files import anonymise as anonymise
from foretrace.exchange.anonymise.hints import Hint as Hint
from foretrace.exchange.anonymise.result import Anonymised as Anonymised
