from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.base import TraceError, WorkloadError
from foretrace.numerics import OptimizerMonitor, watch
from foretrace.numerics.alarms import AlarmRule, Watchman, expected_ratio
from tests import ranks

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SIZE = 6000


def watched(path: Path, memory: float, *, steps: int = 300, scale: float = 1.0) -> dict[str, float]:
    """What a monitor sees where each gradient remembers the one before."""
    generator = torch.Generator().manual_seed(0)
    parameter = torch.nn.Parameter(torch.zeros(SIZE))
    optimizer = torch.optim.Adam([parameter], lr=1e-9, betas=(0.9, 0.95))
    gradient = torch.randn(SIZE, generator=generator)
    with OptimizerMonitor(optimizer, path, every=100, sample=SIZE):
        for _ in range(steps):
            new = math.sqrt(1 - memory**2) * torch.randn(SIZE, generator=generator)
            gradient = memory * gradient + new
            parameter.grad = scale * gradient
            optimizer.step()
    return {key: value or 0.0 for key, value in watch(path).rows[0].last.items()}


@pytest.mark.parametrize(
    ("memory", "std", "bimodality"),
    [(0.0, 0.228, 0.37), (0.5, 0.352, 0.42), (0.9, 0.618, 0.57), (0.97, 0.76, 0.69),
     (0.99, 0.84, 0.77), (0.999, 0.94, 0.90)],
)  # fmt: skip
def test_the_ratio_of_gradients_with_memory(
    tmp_path: Path, memory: float, std: float, bimodality: float
) -> None:
    found = watched(tmp_path / "log.jsonl", memory)

    assert found["ratio_std"] == pytest.approx(std, abs=0.02)
    assert found["bimodality"] == pytest.approx(bimodality, abs=0.03)
    assert found["gradient_memory"] == pytest.approx(memory, abs=0.03)


@pytest.mark.parametrize(("scale", "std"), [(1e-8, 0.113), (1e-9, 0.021)])
def test_a_dominating_epsilon_makes_updates_small(tmp_path: Path, scale: float, std: float) -> None:
    found = watched(tmp_path / "log.jsonl", 0.0, scale=scale)

    assert found["ratio_std"] == pytest.approx(std, abs=0.005)
    assert found["epsilon_ratio"] < 2


def test_the_closed_form_is_that_of_any_step() -> None:
    assert expected_ratio(0.9, 1) == pytest.approx(1.0)
    assert expected_ratio(0.9, 10_000) == pytest.approx(math.sqrt(0.1 / 1.9))
    assert expected_ratio(1.0, 5) == 1.0


def trained(
    path: Path, *, planted_at: int, optimizer: str | Callable[..., torch.optim.Optimizer] = "AdamW"
) -> OptimizerMonitor:
    """A small network, whose first layer's gradients get a direction that they keep."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    first = torch.nn.Linear(16, 32)
    model = torch.nn.Sequential(first, torch.nn.Tanh(), torch.nn.Linear(32, 1))
    made = getattr(torch.optim, optimizer) if isinstance(optimizer, str) else optimizer
    steps = made(model.parameters(), lr=1e-3)
    weight = first.weight
    direction = torch.randn(weight.shape, generator=generator).sign()
    names = model.named_parameters()
    with OptimizerMonitor(steps, path, names=names, every=1, sample=256) as monitor:
        for step in range(planted_at + 40):
            given = torch.randn(32, 16, generator=generator)
            right = given[:, :1].sin() + 0.5 * torch.randn(32, 1, generator=generator)
            loss = torch.nn.functional.mse_loss(model(given), right)
            steps.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if step >= planted_at and weight.grad is not None:
                weight.grad += 5 * weight.grad.std() * direction
            steps.step()
    return monitor


def test_a_planted_direction_is_alarmed_where_it_is_and_a_healthy_run_is_not(
    tmp_path: Path,
) -> None:
    monitor = trained(tmp_path / "log.jsonl", planted_at=250)
    found = watch(tmp_path / "log.jsonl")

    first = monitor.alarms[0]
    assert (first.layer, first.statistic) == ("0.weight", "ratio_std")
    assert 250 < first.step < 270
    assert list(found.alarms) == monitor.alarms
    assert f"the first at step {first.step}" in found.headline
    assert found.expected_std == pytest.approx(0.2294, abs=1e-3)


class Lion(torch.optim.Optimizer):
    """Signs of an interpolated gradient, as published."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        for group in self.param_groups:
            for one in group["params"]:
                mean = self.state[one].setdefault("exp_avg", torch.zeros_like(one))
                one.sub_(group["lr"] * mean.lerp(one.grad, 0.1).sign())
                mean.lerp_(one.grad, 0.01)


class Muon(torch.optim.Muon):
    """Of matrices alone, as it is meant."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> None:
        super().__init__([one for one in parameters if one.dim() == 2], lr=lr)


@pytest.mark.parametrize("optimizer", ["SGD", "Adafactor", "RMSprop", Lion, Muon])
def test_optimizers_without_a_closed_form_are_watched_by_their_past(
    tmp_path: Path, optimizer: str | Callable[..., torch.optim.Optimizer]
) -> None:
    trained(tmp_path / "log.jsonl", planted_at=60, optimizer=optimizer)

    found = watch(tmp_path / "log.jsonl")

    assert found.expected_std is None
    steps = [one.step for one in found.alarms if one.layer == "0.weight"]
    assert steps
    assert 60 < min(steps) < 70
    if optimizer in (Lion, Muon):
        assert {one.statistic for one in found.alarms} == {"gradient_memory"}
    assert min(one.step for one in found.alarms) > 60
    assert found.rows[0].last["update_norm"]
    assert found.rows[0].last["epsilon_ratio"] is None


def test_one_alarm_for_what_lasts_and_none_for_what_passes() -> None:
    rule = AlarmRule(statistic="x", deviations=6, factor=1.5, says="far above")
    watchman = Watchman([rule])
    noise = np.random.default_rng(0).normal(1, 0.05, 200)
    noise[60] = 9.0
    noise[150:] = 9.0

    found = [
        alarm.step
        for step, value in enumerate(noise)
        for alarm in watchman.observe(step, ["a"], np.array([[value]]))
    ]

    assert found == [152]


def test_a_table_of_losses_is_watched_too(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    losses = [3.0 - step / 100 + 0.01 * (step % 3) for step in range(100)]
    rows = [f"{step},{loss + 9 * (step >= 80)},{1.0}" for step, loss in enumerate(losses)]
    path.write_text("\n".join(["iteration,loss,grad_norm", *rows]), encoding="utf-8")

    found = watch(path)

    [alarm] = found.alarms
    assert (alarm.layer, alarm.step) == ("loss", 82)
    path.write_text("\n".join(["iteration,loss,grad_norm", *rows[:26]]), encoding="utf-8")
    assert watch(path).headline.startswith("too short to judge: 26 observations of 2 layers")


def test_what_cannot_be_watched_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with pytest.raises(TraceError, match="cannot be read"):
        watch(path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(TraceError, match="has the columns none"):
        watch(path)
    path.write_text('{"step": 1}\n{}\n', encoding="utf-8")
    with pytest.raises(TraceError, match=r"line 1: .*expected a line of OptimizerMonitor"):
        watch(path)
    frozen = torch.nn.Parameter(torch.zeros(3), requires_grad=False)
    with pytest.raises(WorkloadError, match="has no parameters to watch"):
        OptimizerMonitor(torch.optim.SGD([frozen], lr=0.1))


def test_a_log_that_was_cut_off_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    watched(path, 0.0, steps=200)
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole + whole.splitlines()[0][:40], encoding="utf-8")

    assert watch(path).num_steps == 2
    assert json.loads(whole.splitlines()[0])["step"] == 100


class Clock:
    """A millisecond passes whenever somebody looks at it."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now


@pytest.mark.parametrize(
    ("step_s", "every", "looked_at"),
    [(1.0, None, [20, 40, 60, 80, 100]), (1e-4, None, [20, 60]), (1e-4, 20, [20, 40, 60, 80, 100])],
)
def test_looks_are_rarer_where_they_would_take_more_than_a_hundredth_of_steps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step_s: float,
    every: int | None,
    looked_at: list[int],
) -> None:
    clock, path = Clock(), tmp_path / "log.jsonl"
    monkeypatch.setattr("foretrace.numerics.monitor.time.perf_counter", clock)
    parameter = torch.nn.Parameter(torch.zeros(64))
    optimizer = torch.optim.Adam([parameter])
    with OptimizerMonitor(optimizer, path, every=every):
        for _ in range(100):
            clock.now += step_s
            parameter.grad = torch.randn(64)
            optimizer.step()

    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == looked_at


def sharded(rank: int, folder: str) -> None:
    """One of two processes, each with its half of every matrix."""
    from torch.distributed import FileStore  # type: ignore[attr-defined]
    from torch.distributed.fsdp import fully_shard

    store = FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 33), torch.nn.Tanh(), torch.nn.Linear(33, 34))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    path, names = f"{folder}/{rank}.jsonl", model.named_parameters()
    with OptimizerMonitor(optimizer, path, names=names, every=2):
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
    alone = torch.nn.Parameter(torch.ones(32 * (1 - rank)))  # the second has no part of it
    other = torch.optim.SGD([alone], lr=0.1)
    with OptimizerMonitor(other, f"{folder}/alone-{rank}.jsonl", every=1):
        alone.sum().backward()  # type: ignore[no-untyped-call]
        other.step()
    torch.distributed.destroy_process_group()


def test_each_process_of_a_sharded_model_watches_its_part(tmp_path: Path) -> None:
    ranks.run(sharded, str(tmp_path))

    logs = [watch(tmp_path / f"{rank}.jsonl") for rank in range(2)]
    for log in logs:
        assert log.num_steps == 4
        assert {"0.weight", "2.weight"} <= {row.layer for row in log.rows}
        assert all(row.last["update_norm"] for row in log.rows)
    first = [{row.layer: row.last["ratio_std"] for row in log.rows} for log in logs]
    assert first[0]["0.weight"] != first[1]["0.weight"]
    assert watch(tmp_path / "alone-0.jsonl").num_steps == 1
    assert not (tmp_path / "alone-1.jsonl").read_text(encoding="utf-8")
