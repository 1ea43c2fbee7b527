"""Models and what they come to, as tables of at most 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from foretrace.cli.tables import plain_table, sentences_table, share_text
from foretrace.machine import Citation
from foretrace.workload import Diffusion, Entry, ModelAccount, Recommender, TotalsOnly, Transformer

_NONE = "-"
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COUNT_PREFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
_LONGEST_TEXT = 40  # of a number in the table; longer lists of numbers are cut


def print_models(found: Sequence[ModelAccount]) -> None:
    """Print what is described to stdout."""
    console = Console(highlight=False)
    for title, table in (
        ("transformers (KV: keys and values of a token, bf16)", _transformers(found)),
        ("recommenders (forward FLOPs of a sample)", _recommenders(found)),
        ("diffusion networks (forward FLOPs of a denoising step)", _diffusion(found)),
        ("of which only totals are published", _totals(found)),
    ):
        if table.row_count:
            console.print(title, style="bold")
            console.print(Padding(table, (0, 0, 1, 1), expand=False))
    console.print("`foretrace model show NAME` has every number with its source")


def print_account(found: ModelAccount) -> None:
    """Print a model's counts and the sources of its numbers to stdout."""
    console = Console(highlight=False)
    console.print(Text(f"{found.model.name}: {found.model.title}"), style="bold")
    _print_table(console, "parameters", _parameters(found))
    lines = [_comparison_text(found, index) for index in range(len(found.comparisons))]
    if lines:
        console.print("\nheld against what is published", style="bold")
        console.print(sentences_table(lines))
    _print_table(console, _flops_title(found), _flops(found))
    _print_table(console, "bytes", _bytes(found))
    sources: list[Citation] = []
    _print_table(console, "numbers", _entries(found.model.entries, sources))
    if sources:
        table = plain_table("", "", text_columns=(1,))
        for index, source in enumerate(sources):
            lines = [each for each in (source.title, source.url) if each]
            table.add_row(f"[{index + 1}]", Text("\n".join(lines)))
        _print_table(console, "sources", table)


def _print_table(console: Console, title: str, table: Table) -> None:
    console.print(Text(f"\n{title}"), style="bold")
    console.print(Padding(table, (0, 0, 0, 1), expand=False))


def _transformers(found: Sequence[ModelAccount]) -> Table:
    table = plain_table("", "total", "active", "layers", "hidden", "heads", "FLOP", "KV")
    for one in found:
        model = one.model
        if not isinstance(model, Transformer):
            continue
        attention = model.attention
        is_grouped = attention.num_kv_heads != attention.num_heads
        heads = f"{attention.num_heads}/{attention.num_kv_heads}"
        table.add_row(
            model.name,
            _count(one.parameters.total),
            _count(one.parameters.active) if model.experts else "",
            str(model.num_layers),
            str(model.hidden),
            heads if is_grouped else str(attention.num_heads),
            _scaled(one.flops[0].training),
            _bytes_text(one.cache_bytes_per_token or 0),
        )
    table.caption = "FLOP: training, per token, causal, of a sequence as long as made for or 8192"
    table.caption_justify = "left"
    return table


def _recommenders(found: Sequence[ModelAccount]) -> Table:
    table = plain_table("", "total", "tables", "size", "lookups", "interaction", "FLOP")
    for one in found:
        model = one.model
        if isinstance(model, Recommender):
            table.add_row(
                model.name,
                _count(one.parameters.total),
                str(model.num_tables),
                str(model.size),
                str(model.num_lookups),
                model.interaction.value,
                _scaled(one.flops[0].forward),
            )
    return table


def _diffusion(found: Sequence[ModelAccount]) -> Table:
    table = plain_table("", "total", "latent", "frames", "positions", "FLOP")
    for one in found:
        model = one.model
        if isinstance(model, Diffusion):
            table.add_row(
                model.name,
                _count(one.parameters.total),
                f"{model.height} x {model.width}",
                str(model.frames),
                " ".join(map(str, model.sequence_lengths)),
                _scaled(one.flops[0].forward),
            )
    return table


def _totals(found: Sequence[ModelAccount]) -> Table:
    table = plain_table("", "total", "active", "")
    for one in found:
        model = one.model
        if isinstance(model, TotalsOnly):
            unit = one.flops[0].unit
            table.add_row(
                model.name,
                _count(model.parameters),
                _NONE if model.active_parameters is None else _count(model.active_parameters),
                f"{_scaled(one.flops[0].forward)}FLOP forward per {unit}",
            )
    return table


def _parameters(found: ModelAccount) -> Table:
    counted = found.parameters
    has_inactive = counted.active != counted.total
    heads = ("", "total", "share", *(("active",) if has_inactive else ()))
    table = plain_table(*heads)
    rows = [(part.name, part.total, part.active) for part in counted.parts if part.total]
    if len(rows) > 1:
        rows.append(("all", counted.total, counted.active))
    for name, total, active in rows:
        cells = [name, f"{total:,}", share_text(total / counted.total)]
        table.add_row(*cells, *((f"{active:,}",) if has_inactive else ()))
    return table


def _comparison_text(found: ModelAccount, index: int) -> str:
    one = found.comparisons[index]
    published = f"{int(one.published):,}" if one.text.isdigit() else one.text
    start = f"{one.what}: published {published}, counted {one.counted:,}"
    if one.agrees:
        return start
    off = 100 * (one.counted / one.published - 1)
    return f"{start} ({off:+.1f} %)" + (f": {one.why}" if one.why else "")


def _flops_title(found: ModelAccount) -> str:
    unit = found.flops[0].unit
    if found.sequence is None:
        return f"FLOPs of one {unit}"
    return f"FLOPs of one {unit}, in sequences of {found.sequence} tokens"


def _flops(found: ModelAccount) -> Table:
    table = plain_table("", "forward", "backward", "both")
    first = found.flops[0]
    parts = first.parts if len(first.parts) > 1 else ()
    for part in parts:
        both = part.forward + part.backward
        table.add_row(part.part, *map(_scaled, (part.forward, part.backward, both)))
    for one in found.flops:
        name = "all" if one.convention is None else one.convention.value
        table.add_row(name, *map(_scaled, (one.forward, one.backward, one.training)))
    if found.recomputed_flops is not None:
        table.add_row("all layers again", _scaled(found.recomputed_flops), "", "")
    return table


def _bytes(found: ModelAccount) -> Table:
    table = plain_table("", "")
    for number_format, size in found.weight_bytes_by_format:
        table.add_row(f"weights in {number_format}", _bytes_text(size))
    if found.cache_bytes_per_token is not None and found.cache_bytes is not None:
        table.add_row(
            "keys and values of one token, bf16", _bytes_text(found.cache_bytes_per_token)
        )
        what = f"keys and values of {found.sequence} tokens, bf16"
        table.add_row(what, _bytes_text(found.cache_bytes))
    return table


def _entries(entries: Sequence[Entry], sources: list[Citation]) -> Table:
    """Every statement; documents not seen before join `sources`, which numbers them."""
    table = plain_table("", "", "", "", text_columns=(0, 2, 3))
    for entry in entries:
        if entry.source is not None and entry.source not in sources:
            sources.append(entry.source)
        mark = f"[{sources.index(entry.source) + 1}]" if entry.source is not None else ""
        assumed = f"assumed: {entry.assumed}" if entry.assumed else ""
        words = "; ".join(each for each in (assumed, entry.note) if each)
        if not mark and not assumed:
            words = "no source given"
        is_long = len(entry.text) > _LONGEST_TEXT
        text = f"{entry.text[: _LONGEST_TEXT - 4]} ..." if is_long else entry.text
        table.add_row(Text(entry.key), Text(text), Text(mark), Text(words))
    return table


def _scaled(value: float) -> str:
    for worth, prefix in _PREFIXES:
        if value >= worth:
            return f"{value / worth:.4g} {prefix}"
    return f"{value:.4g}"


def _count(value: float) -> str:
    for worth, prefix in _COUNT_PREFIXES:
        if value >= worth:
            return f"{value / worth:.4g}{prefix}"
    return f"{value:.4g}"


def _bytes_text(value: float) -> str:
    for worth, unit in _BINARY:
        if value >= worth:
            return f"{value / worth:.4g} {unit}"
    return f"{value:.4g} B"
