"""Whatever a file holds, it is read or refused with a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrace.base import MachineError
from foretrace.machine import check, described
from foretrace.machine.figures import PRESETS, DescriptionKind, document
from tests.descriptions import as_toml

PATHS = sorted(PRESETS.rglob("*.toml"))
scalars = (
    st.booleans()
    | st.integers(-(10**6), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "7:1", "80 GiB", "3 TB/s", "0 W", "1 us", "h100-sxm", "x", "scale-up"])
)
values = (
    scalars
    | st.lists(scalars, max_size=2)
    | st.dictionaries(
        st.sampled_from(["value", "source", "assumed", "note", "name"]), scalars, max_size=3
    )
)


def places(value: object, so_far: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where something stands in a tree of tables and lists."""
    found = [so_far] if so_far else []
    if isinstance(value, Mapping):
        for key, each in value.items():
            found += places(each, (*so_far, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            found += places(each, (*so_far, index))
    return found


def replaced(value: object, place: tuple[object, ...], new: object) -> object:
    """The tree with `new` at one place."""
    if not place:
        return new
    first, rest = place[0], place[1:]
    if isinstance(value, Mapping):
        return {
            key: replaced(each, rest, new) if key == first else each for key, each in value.items()
        }
    assert isinstance(value, list)
    return [
        replaced(each, rest, new) if index == first else each for index, each in enumerate(value)
    ]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_preset_is_read_or_refused_with_a_sentence(
    data: st.DataObject, tmp_path: Path
) -> None:
    path = data.draw(st.sampled_from(PATHS))
    described_kind = DescriptionKind(path.parent.name.removesuffix("s"))
    table = dict(document(path, described_kind).table)
    place = data.draw(st.sampled_from(places(table)))
    damaged = replaced(table, place, data.draw(values))
    assert isinstance(damaged, Mapping)
    own = tmp_path / "damaged.toml"
    own.write_text("\n".join(f"{key} = {as_toml(each)}" for key, each in damaged.items()))

    refusal = refused_with(own)

    assert "\n" not in refusal


def refused_with(path: Path) -> str:
    """The sentence that a file is refused with; empty if it is read."""
    try:
        found = described(path)
        check(found).as_json()
        found.as_json()
    except MachineError as err:
        return str(err)
    return ""


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"kind", b'kind = "chip"', b"[[tiers]]"])
def test_a_file_that_is_hardly_one_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "what.toml"
    path.write_bytes(content)

    with pytest.raises(MachineError):
        described(path)
