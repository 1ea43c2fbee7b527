from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretrace.base import MachineError
from foretrace.cost import (
    ELSEWHERE,
    REGIONS,
    Constants,
    Errors,
    Fit,
    GemmShapes,
    LeftOut,
    Operation,
    Source,
    Spread,
    chosen_fit,
    gemm_ns,
    read_constants,
    shipped_constants,
    write_constants,
)
from foretrace.cost.choosing import UNTESTED_SPREAD
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.labels import chip_labelled
from foretrace.cost.predicting import CONSTANTS_BY_MODEL, constants_of
from foretrace.machine import chip_names, load_chip

SPREAD = dict.fromkeys(REGIONS, Spread(0.9, 1.25))
ERRORS = Errors("from_20us", 7, 0.05, 0.04, 0.125, -0.01, 0.3, 0.2, 0.9, 1.25)


def fit(model: str, width: str, source: str = "a table") -> Fit:
    return Fit(
        model,
        "library",
        width,
        source,
        12,
        {"launch_ns": 2500.0, "tile_rate": 0.8125},
        {"a": 1e-9},
        SPREAD,
    )


def constants(chip: str, architecture: str, *fits: Fit) -> Constants:
    row = LeftOut("gemm", "a100_sxm", "bf16", "same chip", ERRORS)
    return Constants(chip, architecture, "2026-01-31", fits, (row,))


def test_constants_survive_their_file(tmp_path: Path) -> None:
    written = constants("a100-sxm-80gb", "Ampere", fit("gemm", "16bit"), fit("gemm", "fp32"))

    write_constants(written, tmp_path / "one.toml")

    assert read_constants(tmp_path / "one.toml") == written


WORD_FOR_A_NUMBER = """
chip = "x"
architecture = ""
made = ""
fit = [{ model = "m", kind = "k", width = "w", source = "s", num_rows = 1, line = {}, spread = {},
    values = { a = "many" } }]
"""


@pytest.mark.parametrize(
    "text", ["chip = 3", 'chip = "x"', "[[fit", "\xff", WORD_FOR_A_NUMBER.replace("\n    ", " ")]
)
def test_a_file_that_holds_no_constants_is_refused_in_one_sentence(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(MachineError, match="Make the file with `foretrace calibrate`"):
        read_constants(path)


def test_own_constants_come_before_those_of_the_architecture_and_of_all() -> None:
    known = (
        constants(ELSEWHERE, "", fit("gemm", "16bit", "all"), fit("attention", "16bit", "all")),
        constants("h100-sxm", "Hopper", fit("gemm", "16bit", "hopper")),
        constants("a100-sxm-80gb", "Ampere", fit("gemm", "16bit", "ampere")),
    )

    def source(chip: str, model: str = "gemm", dtype: str = "bf16") -> tuple[str, Source]:
        found = chosen_fit((model, "library", dtype), load_chip(chip), known)
        assert found is not None
        return found.fit.source, found.source

    assert source("a100-sxm-80gb") == ("ampere", Source.FITTED)
    assert source("a100-pcie-40gb") == ("ampere", Source.TRANSFERRED)
    assert source("h800-sxm") == ("hopper", Source.TRANSFERRED)
    assert source("b200-sxm") == ("hopper", Source.TRANSFERRED)
    assert source("mi300x") == ("all", Source.TRANSFERRED)
    assert source("h100-sxm", "attention") == ("all", Source.TRANSFERRED)
    assert source("h100-sxm", dtype="int8") == ("hopper", Source.TRANSFERRED)
    assert chosen_fit(("movement", "", "any"), load_chip("h100-sxm"), known) is None


def test_products_along_one_line_of_shapes_come_last_for_other_chips() -> None:
    line, table = (
        replace(fit("gemm", "16bit", name), num_rows=rows)
        for name, rows in (("line", 206), ("table", 1_900))
    )
    known = (constants("a100-sxm-40gb", "Ampere", line), constants("h100-sxm", "Hopper", table))

    found = chosen_fit(("gemm", "library", "bf16"), load_chip("a100-sxm-80gb"), known)

    assert found is not None
    assert found.fit.source == "table"


def test_vector_units_are_fed_alike_in_a_cycle() -> None:
    one = Fit("gemm", "library", "fp32", "", 900, {"operand_rate": 8.0}, {}, {})
    known = (constants("a100-sxm-80gb", "Ampere", one),)

    def bytes_of_cycle(name: str) -> float:
        chip = load_chip(name)
        found = chosen_fit(("gemm", "library", "fp32"), chip, known)
        assert found is not None
        whole = chip.peak_flops_per_ns("bf16") or chip.peak_flops_per_ns("fp32") or 0.0
        cycles = (chip.num_processors or 0) * (chip.cycles_per_ns or 0.0)
        return found.fit.values["operand_rate"] * whole / cycles

    assert bytes_of_cycle("v100-pcie-32gb") == pytest.approx(bytes_of_cycle("a100-sxm-80gb"))
    assert bytes_of_cycle("h100-sxm") == pytest.approx(bytes_of_cycle("a100-sxm-80gb"))


def test_what_moves_beside_kernels_takes_as_many_cycles_of_like_processors() -> None:
    def taken_ns(model: str, name: str, chip: str, kind: str = "library") -> float:
        """Of a byte, times the processors' cycles."""
        one = Fit(model, kind, "fp8", "", 900, {name: 2.0}, {}, {})
        known = (constants("h200-sxm", "Hopper", one),)
        described = load_chip(chip)
        found = chosen_fit((model, kind, "fp8"), described, known)
        assert found is not None
        cycles = (described.num_processors or 0) * (described.cycles_per_ns or 0.0)
        return found.fit.values[name] / described.memory_bytes_per_ns * cycles

    for model, name in (("gemm", "quantise_rate"), ("attention", "beside"), ("decode", "beside")):
        own = taken_ns(model, name, "h200-sxm")
        assert taken_ns(model, name, "h100-sxm") == pytest.approx(own)
        assert taken_ns(model, name, "b200-sxm") != pytest.approx(own)
    of_blocks = taken_ns("gemm", "quantise_rate", "h200-sxm", "blockwise")
    assert taken_ns("gemm", "quantise_rate", "b200-sxm", "blockwise") == pytest.approx(of_blocks)


def test_a_card_with_few_bytes_to_load_streams_weights_at_its_memory_s_rate() -> None:
    values = {"memory_rate": 0.75, "launch_ns": 1.0}
    one = Fit("gemm", "library", "16bit", "", 9, values, {}, {})
    known = (constants("a100-sxm-80gb", "Ampere", one),)

    def rate(chip: str) -> float:
        found = chosen_fit(("gemm", "library", "bf16"), load_chip(chip), known)
        assert found is not None
        assert found.fit.values["launch_ns"] == 1.0
        return found.fit.values["memory_rate"]

    assert rate("a100-sxm-80gb") == rate("h100-sxm") == 0.75
    assert rate("l4") == rate("rtx-4090") == 0.92


def test_a_card_s_processors_and_cache_are_fed_as_those_that_were_measured() -> None:
    """A cycle of a processor does and draws as much, whatever memory and arithmetic it has."""
    shipped = shipped_constants()

    def each(name: str, key: tuple[str, str, str]) -> tuple[float, float]:
        chip = load_chip(name)
        chosen = chosen_fit(key, chip, shipped)
        assert chosen is not None
        values = chosen.fit.values
        cycles = (chip.num_processors or 0) * (chip.cycles_per_ns or 0.0)
        whole = chip.peak_flops_per_ns("bf16") or 0.0
        return (
            values.get("tile_rate", 0.0) * whole / cycles,
            values.get("cache_rate", 0.0) * chip.memory_bytes_per_ns / cycles,
        )

    experts, moved = ("experts", "served", "bf16"), ("movement", "", "any")
    # Arithmetic of its own is the limit where that is a quarter of an A100's.
    whole = 0.5e3 * 1.024  # operations a cycle
    pro = min(2 * whole, each("a100-sxm-80gb", experts)[0])
    assert each("rtx-pro-6000", experts)[0] == pytest.approx(pro, rel=0.001)
    assert each("rtx-4090", experts)[0] == pytest.approx(whole, rel=0.01)
    assert each("rtx-pro-6000", moved)[1] == pytest.approx(each("h100-sxm", moved)[1])
    assert each("rtx-4090", moved)[1] == pytest.approx(each("a100-sxm-40gb", moved)[1])
    # Cards of Blackwell multiply by Ampere's instructions, those of data centres by their own.
    products = ("gemm", "library", "bf16")
    card, ampere, own = (
        chosen_fit(products, load_chip(name), shipped)
        for name in ("rtx-pro-6000", "a100-sxm-80gb", "gb200")
    )
    assert card is not None
    assert ampere is not None
    assert own is not None
    assert card.fit.values["prologue_ns"] == ampere.fit.values["prologue_ns"]
    assert own.fit.values["prologue_ns"] != ampere.fit.values["prologue_ns"]
    # Chips whose memory feeds them keep what was fitted elsewhere.
    assert each("h100-sxm", experts)[0] > each("a100-sxm-80gb", experts)[0]


def test_attention_of_cards_is_an_older_chip_s_and_fed_as_its_processors_are() -> None:
    """Kernels that an A100 runs serve Ada, and cards of Blackwell, which lack later ones."""
    shipped = shipped_constants()

    def chosen(name: str, *key: str) -> dict[str, float]:
        found = chosen_fit((key[0], key[1], key[2]), load_chip(name), shipped)
        assert found is not None
        return dict(found.fit.values)

    prompts, tokens = ("attention", "operator", "bf16"), ("decode", "latent", "fp8")
    ampere = chosen("a100-sxm-80gb", *prompts)
    for card in ("l40s", "rtx-pro-6000"):
        assert chosen(card, *prompts) == ampere | {"matrix_rate": 0.85}
        assert chosen(card, *tokens) == chosen("a100-sxm-80gb", *tokens)
        assert chosen(card, "decode", "flash", "bf16") == chosen(
            "h200-sxm", "decode", "flash", "bf16"
        )
    own = chosen("b200-sxm", *prompts)
    assert chosen("gb200", *prompts) == own | {"beside": pytest.approx(own["beside"], rel=0.07)}


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("l40s", "l40s"),
        ("NVIDIA L40S", "l40s"),
        ("gb200_sxm", "gb200"),
        ("rtx_pro_6000_server", "rtx-pro-6000"),
        ("RTXPRO6000", "rtx-pro-6000"),
    ],
)
def test_systems_of_public_tables_are_chips(label: str, name: str) -> None:
    found = chip_labelled(label)

    assert found is not None
    assert found.name == name


def test_libraries_multiply_four_bit_numbers_with_scales_by_blocks() -> None:
    kernels = FittedKernels(load_chip("b200-sxm"))
    sizes = (1, 4096, 8192, 4096)

    costs = kernels.operation_costs([Operation("gemm", "library", "nvfp4", sizes)])

    assert costs.source.tolist() == [Source.FITTED]
    shapes = GemmShapes.of(np.array([sizes]), "nvfp4")
    known = chosen_fit(("gemm", "blockwise", "nvfp4"), kernels.chip, kernels.constants)
    assert known is not None
    expected = gemm_ns(shapes, kernels.chip, known.fit.values)[0]
    assert costs.duration_ns[0] == pytest.approx(expected, abs=1)


def test_a_transferred_spread_is_at_least_the_fit_s_own() -> None:
    wide = Fit("gemm", "library", "16bit", "all", 9, {}, {}, dict.fromkeys(REGIONS, Spread(0.5, 1)))
    known = (
        constants(ELSEWHERE, "", wide),
        constants("h100-sxm", "Hopper", fit("gemm", "16bit")),
    )

    found = chosen_fit(("gemm", "library", "bf16"), load_chip("h800-sxm"), known)

    assert found is not None
    assert set(found.spread_by_region.values()) == {Spread(0.5, 1.25)}


def test_shipped_constants_are_physical_and_say_where_they_come_from() -> None:
    known = shipped_constants()

    assert {"a100-sxm-80gb", "h100-sxm", "h200-sxm", ELSEWHERE} <= {one.chip for one in known}
    for one in known:
        assert one.chip == ELSEWHERE or one.chip in chip_names()
        for fitted in one.fits:
            meanings = {each.name: each for each in constants_of(fitted.model, fitted.kind)}
            assert fitted.values.keys() == meanings.keys()
            for name, value in fitted.values.items():
                assert 0.999 * meanings[name].lower <= value <= 1.001 * meanings[name].upper
            assert fitted.source
            assert fitted.num_rows >= 3 * len(CONSTANTS_BY_MODEL[fitted.model])
            assert fitted.spread_by_region or one.chip == ELSEWHERE
            assert all(0 < s.low < s.high for s in fitted.spread_by_region.values())


def test_without_a_second_architecture_the_widest_spread_of_the_model_stands_in() -> None:
    narrow = replace(fit("gemm", "fp8"), spread_by_region={})
    wide = dict.fromkeys(REGIONS, Spread(0.4, 3.0))
    known = (
        constants(ELSEWHERE, "", narrow, replace(fit("gemm", "16bit"), spread_by_region=wide)),
    )

    found = chosen_fit(("gemm", "library", "fp8"), load_chip("mi300x"), known)
    alone = chosen_fit(
        ("gemm", "library", "fp8"), load_chip("mi300x"), (constants("x", "", narrow),)
    )

    assert found is not None
    assert found.spread_by_region == wide
    assert alone is not None
    assert set(alone.spread_by_region.values()) == {UNTESTED_SPREAD}


def test_shipped_constants_are_few() -> None:
    many = {name: len(each) for name, each in CONSTANTS_BY_MODEL.items() if len(each) > 12}

    # Decode attention is cut along its keys; one library has two kinds of kernels in one.
    assert many == {"decode": 17}
    assert len(constants_of("decode", "operator")) == 25
