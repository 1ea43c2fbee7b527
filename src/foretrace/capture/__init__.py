"""Floor 4: a live PyTorch program becomes traces, a module its operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.capture.job import stands_for_a_rank as stands_for_a_rank
    from foretrace.capture.measure import device_of as device_of
    from foretrace.capture.measure import measured_rows as measured_rows
    from foretrace.capture.measure import num_devices as num_devices
    from foretrace.capture.measure import write_measured as write_measured
    from foretrace.capture.measure_collectives import measured_collectives as measured_collectives
    from foretrace.capture.measure_host import HostSpeed as HostSpeed
    from foretrace.capture.measure_host import measured_host as measured_host
    from foretrace.capture.module.compose import capture as capture
    from foretrace.capture.module.compose import program_of as program_of
    from foretrace.capture.recorder import Recorder as Recorder
    from foretrace.capture.recorder import record as record
    from foretrace.capture.schedule import ProfilerSchedule as ProfilerSchedule
    from foretrace.capture.training.launch import TrainedSteps as TrainedSteps
    from foretrace.capture.training.launch import trained as trained
    from foretrace.capture.training.settings import TrainingSettings as TrainingSettings
    from foretrace.capture.workloads import FAMILIES as FAMILIES
    from foretrace.capture.workloads import Device as Device
    from foretrace.capture.workloads import Row as Row
    from foretrace.capture.world.launch import CPU as CPU
    from foretrace.capture.world.launch import CUDA as CUDA
    from foretrace.capture.world.launch import DEVICES as DEVICES
    from foretrace.capture.world.launch import FAKE as FAKE
    from foretrace.capture.world.launch import ScriptRun as ScriptRun
    from foretrace.capture.world.launch import WorldRoles as WorldRoles
    from foretrace.capture.world.launch import roles_of as roles_of
    from foretrace.capture.world.role import BACKWARD as BACKWARD
    from foretrace.capture.world.role import OPTIMIZER as OPTIMIZER
    from foretrace.capture.world.role import DeviceWork as DeviceWork
    from foretrace.capture.world.role import IssuedExchange as IssuedExchange
    from foretrace.capture.world.role import IssuedRole as IssuedRole
    from foretrace.capture.world.role import IssuedWork as IssuedWork
    from foretrace.capture.world.role import StepBegin as StepBegin
    from foretrace.capture.world.role import StreamHold as StreamHold

lazily(__name__)
