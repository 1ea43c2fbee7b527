"""Flags of NVIDIA's published Megatron-Bridge configurations as a table: `megatron-bridge.csv`.

Its tables of training times print degrees and batches; dispatchers, overlap, graphs and recompute
stand in the configurations that each release ran. `python experiments/megatron_bridge.py CLONE`
prints the table from a clone of https://github.com/NVIDIA-NeMo/Megatron-Bridge. Configurations are
run as they are, with a stand-in for everything that is not one.
"""

from __future__ import annotations

import csv
import importlib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

# Container releases that tables print, and the tag that each ran.
_TAGS = {
    "nemo-25.11*": "v0.2.0",
    "nemo-26.02": "v0.3.0",
    "nemo-26.02.*": "v0.3.1",
    "nemo-26.04": "v0.4.0",
    "nemo-26.04.*": "v0.4.2",
    "nemo-26.06": "v0.5.0",
    "nemo-26.06.*": "v0.5.1",
    "nemo-26.08*": "v0.6.0",
}
_FLAT = "src/megatron/bridge/perf_recipes"  # since v0.6.0: one function for each
_OLD = "scripts/performance"  # until then: values by name
_FORMATS = {
    "BF16": "bf16",
    "FP8CS": "fp8",
    "FP8_CS": "fp8",
    "FP8MX": "mxfp8",
    "FP8_MX": "mxfp8",
    "NVFP4": "nvfp4",
}
_MODELS = {
    "llama31_405b": "llama3.1-405b",
    "llama3_8b": "llama3-8b",
    "llama3_70b": "llama3-70b",
    "gpt_oss_120b": "gpt-oss-120b",
    "qwen3_30b_a3b": "qwen3-30b-a3b",
    "qwen3_235b_a22b": "qwen3-235b-a22b",
    "qwen3_next_80b_a3b": "qwen3-next-80b-a3b",
    "deepseek_v3": "deepseek-v3",
    "kimi_k2": "kimi-k2",
    "nemotronh_56b": "nemotronh-56b",
}
_GPU = "(?P<gpu>H100|B200|B300|GB200|GB300)"
_FORMAT = f"(?P<format>{'|'.join(_FORMATS)})"
_NAMES = (
    re.compile(f"(?P<model>.+)_PRETRAIN_CONFIG_{_GPU}_{_FORMAT}(_V\\d)?"),
    re.compile(f"(?P<model>.+)_{_GPU}_{_FORMAT}_BASE_CONFIG"),
    re.compile(f"(?P<model>.+)_PRETRAIN_(?P<count>\\d+)GPU_{_GPU}_{_FORMAT}(_V\\d)?_CONFIG"),
)
_SIZES = {
    "tp": ("model", "tensor_model_parallel_size"),
    "pp": ("model", "pipeline_model_parallel_size"),
    "vp": ("model", "virtual_pipeline_model_parallel_size"),
    "cp": ("model", "context_parallel_size"),
    "ep": ("model", "expert_model_parallel_size"),
    "micro_batch": ("train", "micro_batch_size"),
    "global_batch": ("train", "global_batch_size"),
}
_FLAGS = {  # column: part and name since v0.6.0, name until then
    "dispatcher": ("model", "moe_flex_dispatcher_backend", "moe_flex_dispatcher_backend"),
    "expert_overlap": ("comm_overlap", "overlap_moe_expert_parallel_comm", "moe_a2a_overlap"),
    "graphs": ("model", "cuda_graph_impl", "cuda_graph_impl"),
    "graph_scope": ("model", "cuda_graph_scope", "cuda_graph_scope"),
    "recompute_modules": ("model", "recompute_modules", "recompute_modules"),
    "recompute_layers": ("model", "recompute_num_layers", "recompute_num_layers"),
    "grouped_mlp": ("model", "use_transformer_engine_op_fuser", "cutedsl_fused_grouped_mlp"),
    "fp8_attention": (
        "mixed_precision",
        "fp8_dot_product_attention",
        "fp8_dot_product_attention",
    ),
    "fsdp": ("ddp", "use_megatron_fsdp", "use_megatron_fsdp"),
    "offloaded_layers": ("model", "cpu_offloading_num_layers", "cpu_offloading_num_layers"),
    "layout": ("model", "pipeline_model_parallel_layout", "pp_layout"),
}
_SCORES = {True: "selective", False: "none"}  # whether attention is recomputed, what it is called
_MATCHED = ("software", "model", "gpu", "precision", "num_gpus", *_SIZES)
_SAID = (*_MATCHED[1:], *_FLAGS)
COLUMNS = (*_MATCHED, *_FLAGS, "recompute", "tag", "path", "name")


class _Part:
    """Of a configuration; what nobody set is a part without parts."""

    def __init__(self, **values: object) -> None:
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        part = _Part()
        setattr(self, name, part)
        return part

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __bool__(self) -> bool:
        return False


class _StandIns(MetaPathFinder, Loader):
    """Everything of Megatron-Bridge that is no configuration, and PyTorch."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        is_own = name.startswith("megatron.bridge.perf_recipes")
        if is_own or name.split(".", maxsplit=1)[0] not in {"megatron", "torch"}:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing."""


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.lower().endswith("config"):
            return lambda *_, **values: _Part(**values)
        return MagicMock()


def main(clone: Path) -> None:
    """Print the table."""
    table = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    table.writeheader()
    for software, tag in _TAGS.items():
        with tempfile.TemporaryDirectory() as folder:
            is_flat = _unpack(clone, tag, Path(folder))
            rows = _flat_rows(Path(folder)) if is_flat else _old_rows(Path(folder))
            ordered = sorted(rows, key=lambda row: (row["path"], row["name"]))
            # Of configurations under several names the first.
            distinct = {tuple(row.get(name) for name in _SAID): row for row in reversed(ordered)}
            for row in reversed(distinct.values()):
                table.writerow({"software": software, "tag": tag, **row})


def _unpack(clone: Path, tag: str, folder: Path) -> bool:
    for path in (_FLAT, _OLD):
        command = ["git", "-C", str(clone), "archive", tag, path]
        found = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
        if found.returncode == 0:
            with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
                archive.extractall(folder, filter="data")
            return path == _FLAT
    raise SystemExit(f"{str(clone)!r} has no configurations at {tag}: give a clone of the project")


def _old_rows(folder: Path) -> Iterator[dict[str, str]]:
    root = folder / _OLD
    for path in sorted(root.glob("configs/*/*workload_base_configs.py")):
        module = _loaded(root, ".".join(path.relative_to(root).with_suffix("").parts))
        for name, value in vars(module).items():
            if (key := _key(name)) is None:
                continue
            stated = asdict(value)
            own = {column: stated.get(name) for column, (_, name) in _SIZES.items()}
            own |= {column: stated.get(name) for column, (*_, name) in _FLAGS.items()}
            yield _row(key, stated["num_gpus"], own, (path.relative_to(folder), name))


def _flat_rows(folder: Path) -> Iterator[dict[str, str]]:
    root = folder / "src"
    for path in sorted((folder / _FLAT).glob("*/*/*.py")):
        module = _loaded(root, ".".join(path.relative_to(root).with_suffix("").parts))
        for name, function in vars(module).items():
            key = _key(name)
            if key is None or getattr(function, "__module__", "") != module.__name__:
                continue
            found = function()
            parts = {**_SIZES, **{column: one[:2] for column, one in _FLAGS.items()}}
            own = {
                column: getattr(getattr(found, part), attribute)
                for column, (part, attribute) in parts.items()
            }
            yield _row(key, key["count"], own, (path.relative_to(folder), name))


def _loaded(root: Path, name: str) -> ModuleType:
    """A module of one tag; those of the tag before are forgotten."""
    own = ("megatron", "utils", "configs")
    for known in [one for one in sys.modules if one.split(".")[0] in own]:
        del sys.modules[known]
    sys.path[:] = [
        str(root),
        *(one for one in sys.path if not one.startswith(tempfile.gettempdir())),
    ]
    importlib.invalidate_caches()
    # Packages there import recipes too; theirs are empty here.
    packages: tuple[str, ...] = ("megatron.bridge.perf_recipes",)
    if name.startswith("configs."):
        packages = ("configs", ".".join(name.split(".")[:2]))
    for one in packages:
        package = ModuleType(one)
        package.__path__ = [str(root / one.replace(".", "/"))]
        sys.modules[one] = package
    return importlib.import_module(name)


def _key(name: str) -> dict[str, str] | None:
    found = next((one for each in _NAMES if (one := each.fullmatch(name.upper()))), None)
    if found is None or found["model"].lower() not in _MODELS:
        return None
    return found.groupdict()


def _row(
    key: dict[str, str], num_gpus: object, own: dict[str, object], place: tuple[Path, str]
) -> dict[str, str]:
    texts = {column: _text(value) for column, value in own.items()}
    is_selective = "core_attn" in texts["recompute_modules"]
    return {
        "model": _MODELS[key["model"].lower()],
        "gpu": key["gpu"],
        "precision": _FORMATS[key["format"]],
        "num_gpus": _text(num_gpus),
        **texts,
        "recompute": "full" if texts["recompute_layers"] else _SCORES[is_selective],
        "path": str(place[0]),
        "name": place[1],
    }


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None or isinstance(value, _Part | MagicMock) else str(value)


if __name__ == "__main__":
    sys.meta_path.append(_StandIns())
    main(Path(sys.argv[1]))
