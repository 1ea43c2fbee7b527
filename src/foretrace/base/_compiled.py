"""Compiled loops: numba makes machine code of a function once, llvmlite loads what is kept of it.

A process whose loops are all kept never imports numba, which takes longer than most commands work.
Compiled files take `njit` from here and not through the folder: nobody else pays for llvmlite.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache, cached_property, partial, update_wrapper
from hashlib import blake2b
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, PathFinder
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import llvmlite  # type: ignore[import-untyped]
import llvmlite.binding as llvm  # type: ignore[import-untyped]
import msgspec
import numpy as np

from foretrace.base.errors import OutputError
from foretrace.base.files import written_beside

_C_TYPES: dict[str, Any] = {
    "b1": ctypes.c_bool, "i1": ctypes.c_int8, "u1": ctypes.c_uint8, "i2": ctypes.c_int16,
    "i4": ctypes.c_int32, "i8": ctypes.c_int64, "u8": ctypes.c_uint64, "f4": ctypes.c_float,
    "f8": ctypes.c_double,
}  # fmt: skip
_ORDERED, _FORTRAN = 0x1, 0x2  # numpy's flags of an array: rows, or columns, without gaps
_TOLD_APART = 0x501  # by numba: rows without gaps, aligned, writeable
_LARGEST = 2**63 - 1  # numba takes larger numbers as unsigned
_FINE = (0, -2)  # what a loop's machine code ends with: a value, None
_DIGEST_BYTES = 16
_CACHE_DIRECTORY = os.environ.get("NUMBA_CACHE_DIR")  # numba's own names, for what numba made
_IS_SWITCHED_OFF = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
_NUMBA = Path(getattr(PathFinder.find_spec("numba"), "origin", "")).parent
_making = threading.RLock()

Form = tuple[object, ...]


class KeptCode(NamedTuple):
    """What a file of machine code says."""

    stamps: str  # of the files that it was made from
    symbol: str  # the loop's name among the object's
    returned: list[str]  # numpy's codes of what it returns, none for None
    is_tuple: bool
    object: bytes  # an object file of this platform


def njit(function: Any = None, /, **options: Any) -> Any:
    """Make a function a compiled loop; the function itself where NUMBA_DISABLE_JIT is set.

    Machine code is kept beside the module's byte code, else in the user's folder for caches, else
    nowhere: then every process makes it anew. NUMBA_CACHE_DIR names another folder.

    Args:
        function: it takes arrays, numbers, tuples of these and numpy's generators, and returns
            None, a number or a tuple of numbers. What it calls is compiled into it.
        options: numba's.
    """
    if function is None:
        return partial(njit, **options)
    return function if _IS_SWITCHED_OFF else CompiledLoop(function, options)


class LoopHint:
    """An instruction that changes no result, in the form of numba's intrinsics.

    Uncompiled it does nothing.
    """

    def __init__(self, code: Callable[..., Any]) -> None:
        self.code = code

    def __call__(self, *_arguments: object) -> None:
        """Do nothing."""

    @cached_property
    def for_numba(self) -> Any:
        """As numba calls it within a loop."""
        from numba.extending import intrinsic  # on demand: kept loops need no compiler

        return intrinsic(self.code)


class CompiledLoop:
    """A function that runs as machine code, made for each form of arguments it is given."""

    def __init__(self, function: FunctionType, options: dict[str, Any]) -> None:
        self.function = function
        self.options = options
        self._loaded: dict[Form, LoadedCode] = {}
        update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        form: list[object] = []
        words: list[Any] = []
        _flatten(arguments, form, words)
        key = tuple(form)
        code = self._loaded.get(key)
        if code is None:
            with _making:
                code = self._loaded.get(key) or self._ready(key, arguments)
                self._loaded[key] = code
        return code(words)

    @cached_property
    def for_numba(self) -> Any:
        """As numba calls it within another loop, and compiles it."""
        import numba  # on demand: kept loops need no compiler

        function = self.function
        names = function.__globals__ | {
            name: value.for_numba
            for name in function.__code__.co_names
            if isinstance(value := function.__globals__.get(name), CompiledLoop | LoopHint)
        }
        visible = FunctionType(function.__code__, names, function.__name__)
        visible.__module__ = function.__module__
        # It is called by its address: wrappers for Python and for C would be made in vain.
        without: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        return numba.njit(pipeline_class=_pipeline(), **without, **self.options)(visible)

    def _ready(self, form: Form, arguments: tuple[Any, ...]) -> LoadedCode:
        """Machine code for arguments of a form: kept, or made now and kept."""
        stamps = repr(sorted(_stamps(self.function.__module__)))
        places = [*self._places(form)]
        kept = next((one for path in places if (one := _read(path)) and one.stamps == stamps), None)
        if kept is None:
            kept = self._made(arguments, stamps)
            _keep(kept, places)
        return LoadedCode(kept, [*_types(arguments)])

    def _places(self, form: Form) -> Iterator[Path]:
        """Files for a form, on this kind of processor, by this version of numba; the best first."""
        module, name = self.function.__module__, self.function.__qualname__
        for folder, installation in _folders(module):
            made_for = repr((module, name, self.options, form, _platform(), installation)).encode()
            digest = blake2b(made_for, digest_size=_DIGEST_BYTES).hexdigest()
            yield folder / f"{module.rpartition('.')[2]}.{name}-{digest}.code"

    def _made(self, arguments: tuple[Any, ...], stamps: str) -> KeptCode:
        import numba  # on demand: kept loops need no compiler

        plain = (int(value) if isinstance(value, IntEnum) else value for value in arguments)
        made = self.for_numba._compiler.compile(tuple(map(numba.typeof, plain)), None)  # noqa: SLF001
        returned = made.signature.return_type
        is_tuple = isinstance(returned, numba.types.BaseTuple)
        parts = [] if returned == numba.types.none else [returned]
        codes = [
            numba.np.numpy_support.as_dtype(part).str[1:]
            for part in (returned if is_tuple else parts)
        ]
        code = made.library.machine_code()
        return KeptCode(stamps, made.fndesc.llvm_func_name, codes, is_tuple, code)


@cache
def _pipeline() -> Any:
    """A way of numba's that makes machine code once: of a loop with all that it calls.

    By itself numba makes it of each function that is called, too, which takes half as long again.
    """
    from numba.core.codegen import JITCodeLibrary  # on demand: kept loops need no compiler
    from numba.core.compiler import Compiler  # the same
    from numba.core.compiler_lock import global_compiler_lock  # the same

    class LoopLibrary(JITCodeLibrary):
        """What LLVM knows of a function and of those it calls."""

        @property
        def codegen(self) -> Any:
            return self

        def set_env(self, _name: str, _environment: object) -> None:
            """Kept code has no environment of Python's objects: it runs in other processes."""

        def get_pointer_to_function(self, _name: str) -> int:
            self._ensure_finalized()
            return 0

        def _optimize_final_module(self) -> None:
            """Wait for `machine_code`."""

        def _finalize_final_module(self) -> None:
            self._finalized = True

        def machine_code(self) -> bytes:
            """An object file."""
            with global_compiler_lock:
                super()._optimize_final_module()
                code: bytes = self._codegen._tm.emit_object(self._final_module)  # noqa: SLF001
            return code

    class LoopCompiler(Compiler):
        """Compiles into a library of that kind."""

        def __init__(self, typing: Any, target: Any, _library: object, *rest: Any) -> None:
            super().__init__(typing, target, LoopLibrary(target.codegen(), "loop"), *rest)

    return LoopCompiler


class LoadedCode:
    """Machine code in memory, called by its address as numba's loops call each other.

    `int32 code(result*, error**, arguments...)`: numba.core.callconv.CPUCallConv.
    """

    def __init__(self, kept: KeptCode, words: list[Any]) -> None:
        _provide_runtime()
        machine = llvm.Target.from_default_triple().create_target_machine()
        # An engine of its own: functions that other loops contain too have the same names there.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(kept.object))
        self._engine.finalize_object()
        address = self._engine.get_function_address(kept.symbol)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *words)
        self._code = prototype(address)
        fields = [(f"_{at}", _C_TYPES[code]) for at, code in enumerate(kept.returned)]
        self._result = type("Result", (ctypes.Structure,), {"_fields_": fields})
        self._is_tuple = kept.is_tuple
        self._names = [name for name, _ in fields]

    def __call__(self, words: list[Any]) -> Any:
        """Run it on arguments of its form, as they are passed."""
        result, error = self._result(), ctypes.POINTER(_Error)()
        status = self._code(ctypes.byref(result), ctypes.byref(error), *words)
        if status not in _FINE:
            raise error.contents.exception()
        values = tuple([getattr(result, name) for name in self._names])
        return values if self._is_tuple else values[0] if values else None


class _Error(ctypes.Structure):
    """What machine code points to when it raises: the pickled class, its arguments, its place."""

    _fields_ = (("pickled", ctypes.c_void_p), ("size", ctypes.c_int32))

    def exception(self) -> BaseException:
        """As Python raises it."""
        raised, arguments, _place = pickle.loads(ctypes.string_at(self.pickled, self.size))  # noqa: S301  # numba's own
        error: BaseException = raised(*arguments)
        return error


def _flatten(values: tuple[Any, ...], form: list[object], words: list[Any]) -> None:
    """Add what numba tells apart in arguments to `form`, and what is passed of them to `words`."""
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            flags = value.flags.num
            told = flags & (_TOLD_APART if flags & _ORDERED else _TOLD_APART | _FORTRAN)
            form.append((value.dtype.str, value.ndim, told))
            data = value.__array_interface__["data"][0]  # half the time of `ctypes.data`
            words += (0, 0, value.size, value.itemsize, data, *value.shape, *value.strides)
        elif kind is int or isinstance(value, IntEnum):
            form.append("u8" if value > _LARGEST else "i8")
            words.append(value)
        elif kind is float or kind is bool:
            form.append(kind.__name__)
            words.append(value)
        elif isinstance(value, np.generic):
            form.append(value.dtype.str)
            words.append(value.item())
        elif isinstance(value, tuple):
            form.append((kind.__qualname__, len(value)))
            _flatten(value, form, words)
        elif isinstance(value, np.random.Generator):
            form.append(kind.__name__)
            words += (*_addresses(value), 0, 0)
        else:
            raise TypeError(
                f"a compiled loop got a {kind.__name__}, expected arrays, numbers, tuples of these "
                "or numpy's generators"
            )


def _types(values: tuple[Any, ...]) -> Iterator[Any]:
    """C's types of the words that `_flatten` makes of arguments."""
    for value in values:
        if isinstance(value, np.ndarray):
            yield from [ctypes.c_int64] * (5 + 2 * value.ndim)
        elif isinstance(value, np.random.Generator):
            yield from [ctypes.c_int64] * 9
        elif isinstance(value, tuple):
            yield from _types(value)
        elif isinstance(value, int) and not isinstance(value, bool) and value > _LARGEST:
            yield ctypes.c_uint64
        else:
            yield _C_TYPES[np.asarray(value).dtype.str[1:]]


def _addresses(random: np.random.Generator) -> Iterator[int]:
    """Where a generator's state and functions are; its owner, whom no loop asks, is left out."""
    yield 0
    found = random.bit_generator.ctypes
    yield found.state_address
    for part in (found.state, found.next_uint64, found.next_uint32, found.next_double):
        yield ctypes.cast(part, ctypes.c_void_p).value or 0
    yield ctypes.cast(found.bit_generator, ctypes.c_void_p).value or 0


@cache
def _platform() -> tuple[str, ...]:
    """What machine code depends on beside its source: numba's release, LLVM's, the processor."""
    release = (_NUMBA / "_version.py").read_text(encoding="utf-8")  # importing numba takes longer
    features = llvm.get_host_cpu_features().flatten()
    return release, llvmlite.__version__, llvm.get_host_cpu_name(), features


@cache
def _provide_runtime() -> None:
    """Make LLVM ready, and offer numba's allocation of arrays to loops that make some."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    [path] = (_NUMBA / "core" / "runtime").glob(f"_nrt_python{EXTENSION_SUFFIXES[0]}")
    # The extension alone: importing it by its full name would load numba.
    loader = ExtensionFileLoader(name := "_nrt_python", str(path))
    runtime: Any = loader.create_module(ModuleSpec(name, loader, origin=str(path)))
    loader.exec_module(runtime)
    runtime.memsys_use_cpython_allocator()
    for name, address in runtime.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _folders(module: str) -> Iterator[tuple[Path, str]]:
    """Where machine code of a module may be kept, and what tells installations apart there.

    Beside byte code nothing does: a copy of an installation has the copied code.
    """
    found = sys.modules[module]
    installation = str(found.__file__)
    if _CACHE_DIRECTORY:
        yield Path(_CACHE_DIRECTORY), installation
        return
    spec = found.__spec__
    if spec is not None and spec.cached:
        yield Path(spec.cached).parent, ""
    with contextlib.suppress(RuntimeError):  # no home
        yield Path.home() / ".cache" / "foretrace" / "code", installation


def _read(path: Path) -> KeptCode | None:
    """What is kept in a file; None if there is none, or it is damaged."""
    try:
        whole = path.read_bytes()
        digest, content = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
        if digest != blake2b(content, digest_size=_DIGEST_BYTES).digest():
            return None
        return msgspec.msgpack.decode(content, type=KeptCode)
    except (OSError, msgspec.DecodeError):
        return None


def _keep(kept: KeptCode, places: list[Path]) -> None:
    """Write machine code to the first place that can be written to."""
    content = msgspec.msgpack.encode(kept)
    for path in places:
        with contextlib.suppress(OutputError), written_beside(path) as beside:
            beside.write_bytes(blake2b(content, digest_size=_DIGEST_BYTES).digest() + content)
            return


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
