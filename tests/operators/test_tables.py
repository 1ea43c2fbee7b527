"""Work of FBGEMM's lookups and updates, worked out by hand."""

from __future__ import annotations

import json

import pytest

from foretrace.operators import OperatorClass, operator_class, work_of

NAME = "fbgemm::split_embedding_backward_codegen_{}_unweighted_exact_cuda"
LOOKUP = "fbgemm::split_embedding_codegen_forward_unweighted_cuda"
# Two tables of 16 columns, 10 samples with 3 ids in each.
TABLE, DIMENSIONS, IDS, BAGS = [1600], [3], [60], [21]


def signature(dims: list[list[int]], values: dict[int, str]) -> str:
    types = {1600: "float", 3: "int", 60: "long int", 21: "long int", 10: "float"}
    return json.dumps(
        {
            "dims": dims,
            "types": [types[one[0]] if one else "" for one in dims],
            "inputs": [values.get(at, "") for at in range(len(dims))],
        }
    )


def test_a_lookup_reads_a_row_for_every_id_and_writes_a_vector_for_every_bag() -> None:
    text = signature([TABLE, [], [], [], [], DIMENSIONS, [], [], IDS, BAGS], {6: "32", 7: "16"})

    work = work_of(LOOKUP, text)

    assert work is not None
    assert work.bytes_read == 60 * 16 * 4 + 60 * 8 + 21 * 8
    assert work.bytes_written == 10 * 32 * 4
    assert operator_class(LOOKUP, LOOKUP) is OperatorClass.EMBEDDING


@pytest.mark.parametrize(
    ("optimizer", "state_bytes"),
    [("sgd", 0), ("rowwise_adagrad", 60 * 4), ("adagrad", 60 * 16 * 4)],
)
def test_an_update_reads_and_writes_rows_and_what_the_optimizer_keeps(
    optimizer: str, state_bytes: int
) -> None:
    dims = [[10, 32], TABLE, [], [], [], [], DIMENSIONS, [], [], [], IDS, BAGS]

    work = work_of(NAME.format(optimizer), signature(dims, {}))

    assert work is not None
    assert work.bytes_read == 10 * 32 * 4 + 60 * 8 + 60 * 16 * 4 + state_bytes
    assert work.bytes_written == 60 * 16 * 4 + state_bytes


def test_what_the_shapes_do_not_tell_stays_unknown() -> None:
    text = signature([TABLE, [], [], [], [], DIMENSIONS, [], [], IDS, BAGS], {})

    assert work_of(LOOKUP, text) is None
    assert work_of(NAME.format("sgd"), text) is None
