"""Floor 2: training software as data: releases and classes; presets with a source per figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.software.factors import PRODUCTS as PRODUCTS
    from foretrace.software.factors import PRODUCTS_BY_FORMAT as PRODUCTS_BY_FORMAT
    from foretrace.software.factors import kernel_factors as kernel_factors
    from foretrace.software.listing import SoftwareList as SoftwareList
    from foretrace.software.listing import known_software as known_software
    from foretrace.software.software import SOFTWARE as SOFTWARE
    from foretrace.software.software import UNKNOWN_SOFTWARE as UNKNOWN_SOFTWARE
    from foretrace.software.software import KernelFigure as KernelFigure
    from foretrace.software.software import Knowledge as Knowledge
    from foretrace.software.software import Learned as Learned
    from foretrace.software.software import TrainingSoftware as TrainingSoftware
    from foretrace.software.software import load_software as load_software
    from foretrace.software.software import software_called as software_called
    from foretrace.software.software import software_names as software_names
    from foretrace.software.software import unstated_software as unstated_software

lazily(__name__)
