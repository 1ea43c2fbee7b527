"""numba's `njit`, which keeps machine code where there is a folder to keep it in.

Compiled files take it from here and not through the folder: nobody else pays for importing numba.
"""

from __future__ import annotations

from typing import Any

import numba


def njit(*, cache: bool = False, **options: Any) -> Any:
    """Numba's decorator, for a process that may be allowed to write nowhere.

    Where neither the package's nor the user's folder can be written to, every process makes the
    machine code anew; NUMBA_CACHE_DIR names another folder.
    """

    def decorated(function: Any) -> Any:
        try:
            return numba.njit(cache=cache, **options)(function)
        except RuntimeError:  # "cannot cache function ...: no locator available"
            return numba.njit(**options)(function)

    return decorated
