"""Costs fitted to one recording alone: for chips, CPUs and networks that nobody described."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.cost.of_recording.costs import RecordedCosts as RecordedCosts
    from foretrace.cost.of_recording.costs import costs_of_recording as costs_of_recording
    from foretrace.cost.of_recording.transfers import MeasuredTransfer as MeasuredTransfer
    from foretrace.cost.of_recording.transfers import TransferLines as TransferLines
    from foretrace.cost.of_recording.transfers import fitted_transfers as fitted_transfers

lazily(__name__)
