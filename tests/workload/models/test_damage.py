"""Whatever a file holds, it is read or refused with a sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import account, from_hf_config, load_model
from foretrace.workload.models.files import PRESETS
from tests.descriptions import as_toml

NAMES = ("llama4-maverick", "deepseek-v3", "dlrm-mlperf-v2", "modelscope-video", "zionex-12t")
scalars = (
    st.booleans()
    | st.integers(-3, 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "405B", "0B", "rms", "chunk", "config", "x"])
)
values = (
    scalars
    | st.lists(scalars, max_size=3)
    | st.dictionaries(st.sampled_from(["value", "source", "assumed", "x"]), scalars, max_size=3)
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(NAMES), value=values)
def test_a_damaged_file_is_read_or_refused(
    tmp_path: Path, data: st.DataObject, name: str, value: object
) -> None:
    table = tomllib.loads((PRESETS / f"{name}.toml").read_text(encoding="utf-8"))
    section = data.draw(st.sampled_from(sorted(table)))
    if isinstance(table[section], dict) and data.draw(st.booleans()):
        table[section][data.draw(st.sampled_from(sorted(table[section])))] = value
    else:
        table[section] = value
    path = tmp_path / "damaged.toml"
    path.write_text("".join(f"{key} = {as_toml(each)}\n" for key, each in table.items()))

    sentence, total = "", 0
    try:
        total = account(load_model(path)).parameters.total
    except WorkloadError as err:
        sentence = str(err)

    assert len(sentence) > 20 or total > 0


CONFIG: dict[str, object] = {
    "model_type": "deepseek_v3",
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "max_position_embeddings": 64,
    "intermediate_size": 48,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 2,
    "v_head_dim": 4,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}


@settings(max_examples=60)
@given(key=st.sampled_from(sorted(CONFIG)), value=values | st.none())
def test_a_damaged_configuration_is_read_or_refused(key: str, value: object) -> None:
    sentence, total = "", 0
    try:
        total = account(from_hf_config({**CONFIG, key: value})).parameters.total
    except WorkloadError as err:
        sentence = str(err)

    assert len(sentence) > 20 or total > 0


def test_the_configuration_itself_is_read() -> None:
    assert from_hf_config(CONFIG).num_layers == 3


@pytest.mark.parametrize("text", ["", "[1]", "{", "\x00"])
def test_other_files_are_no_configurations(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)

    with pytest.raises(WorkloadError, match=r"config\.json"):
        load_model(path)
