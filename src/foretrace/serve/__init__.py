"""Floor 7: requests go through a serving engine; a model on GPUs becomes latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.serve.deployment import Deployment as Deployment
    from foretrace.serve.deployment import deployment as deployment
    from foretrace.serve.engine import Engine as Engine
    from foretrace.serve.engine_settings import engine_named as engine_named
    from foretrace.serve.engine_settings import engine_of as engine_of
    from foretrace.serve.engine_settings import read_engine as read_engine
    from foretrace.serve.expert_layers import activated_experts as activated_experts
    from foretrace.serve.knee import Knee as Knee
    from foretrace.serve.knee import KneePoint as KneePoint
    from foretrace.serve.knee import knee_of as knee_of
    from foretrace.serve.named_gpus import chip_of as chip_of
    from foretrace.serve.named_gpus import machine_of as machine_of
    from foretrace.serve.of_generator import GeneratorWork as GeneratorWork
    from foretrace.serve.of_generator import PictureEnd as PictureEnd
    from foretrace.serve.of_generator import generator_ends as generator_ends
    from foretrace.serve.of_generator import generator_stages as generator_stages
    from foretrace.serve.of_generator import generator_work as generator_work
    from foretrace.serve.of_profiles import times_of_profiles as times_of_profiles
    from foretrace.serve.of_recommender import RecommenderCards as RecommenderCards
    from foretrace.serve.of_recommender import recommender_stages as recommender_stages
    from foretrace.serve.of_trace import calibration_of as calibration_of
    from foretrace.serve.pools import Pools as Pools
    from foretrace.serve.profiles import LayerProfiles as LayerProfiles
    from foretrace.serve.profiles import ProfileGrid as ProfileGrid
    from foretrace.serve.profiles import read_profiles as read_profiles
    from foretrace.serve.requests import Requests as Requests
    from foretrace.serve.requests import read_requests as read_requests
    from foretrace.serve.requests import requests_named as requests_named
    from foretrace.serve.running import EngineRun as EngineRun
    from foretrace.serve.running import EngineSteps as EngineSteps
    from foretrace.serve.running import check_served as check_served
    from foretrace.serve.running import engine_run as engine_run
    from foretrace.serve.serving import ServedRequest as ServedRequest
    from foretrace.serve.serving import ServiceTarget as ServiceTarget
    from foretrace.serve.serving import Serving as Serving
    from foretrace.serve.serving import met as met
    from foretrace.serve.serving import tpot_ms as tpot_ms
    from foretrace.serve.serving import ttft_ms as ttft_ms
    from foretrace.serve.staged_serving import StagedServing as StagedServing
    from foretrace.serve.staged_serving import staged_serving as staged_serving
    from foretrace.serve.stages import ServingStage as ServingStage
    from foretrace.serve.stages import staged_run as staged_run
    from foretrace.serve.step_times import EngineStepTimes as EngineStepTimes
    from foretrace.serve.step_times import PipelineStages as PipelineStages
    from foretrace.serve.step_times import StepBatch as StepBatch
    from foretrace.serve.step_times import StepCalibration as StepCalibration
    from foretrace.serve.timeline import write_engine_trace as write_engine_trace

lazily(__name__)
