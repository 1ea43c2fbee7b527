"""numba's `njit`, which keeps machine code where there is a folder to keep it in.

Compiled files take it from here and not through the folder: nobody else pays for importing numba.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

# What a file of kept code raises that is cut, damaged, or of another version with other classes.
_UNREADABLE = (
    AttributeError, EOFError, ImportError, IndexError, KeyError, TypeError, ValueError,
    pickle.UnpicklingError,
)  # fmt: skip


def njit(*, cache: bool = False, **options: Any) -> Any:
    """Numba's decorator, for a process that may be allowed to write nowhere.

    Where neither the package's nor the user's folder can be written to, every process makes the
    machine code anew; NUMBA_CACHE_DIR names another folder.
    """

    def decorated(function: Any) -> Any:
        dispatcher = numba.njit(**options)(function)
        if cache and hasattr(dispatcher, "_cache"):  # a plain function where numba is switched off
            # It raises where no folder can be written to.
            with contextlib.suppress(RuntimeError):
                dispatcher._cache = _KeptCode(function)  # noqa: SLF001  # as enable_caching does
        return dispatcher

    return decorated


class _KeptCode(FunctionCache):
    """numba's cache of machine code, without making the compiler ready first.

    What compiling needs (declarations of all that numba knows, with scipy's BLAS) is most of the
    time that a short command spends in numba. Code that is kept needs only the runtime; where none
    is kept, the compiler makes itself ready.
    """

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        # numba looks at the function's own file; what it calls is compiled into it.
        self._cache_file._source_stamp = _stamps(py_func.__module__)  # noqa: SLF001

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            try:
                return self._load_overload(sig, target_context)
            except _UNREADABLE:
                self._cache_file.flush()
                return None


@cache
def _stamps(module: str) -> frozenset[tuple[str, int, int]]:
    """Every file that has a hand in a module's machine code, when it was written, its size."""
    file = Path(sys.modules[module].__file__ or "")
    found = file.stat()
    stamps = frozenset({(file.name, found.st_mtime_ns, found.st_size)})
    if file.name != "_compiled.py":
        return stamps
    used = {str(getattr(value, "__module__", "")) for value in vars(sys.modules[module]).values()}
    ours = (other for other in used - {module} if other.startswith("foretrace."))
    return stamps.union(*map(_stamps, ours))
