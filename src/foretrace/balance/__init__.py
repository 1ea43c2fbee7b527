"""Floor 5: documents become microbatches of about equal work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.balance.documents import Documents as Documents
    from foretrace.balance.documents import LogNormal as LogNormal
    from foretrace.balance.documents import documents_of as documents_of
    from foretrace.balance.documents import read_documents as read_documents
    from foretrace.balance.expert_load import EVEN as EVEN
    from foretrace.balance.expert_load import DrawnLoad as DrawnLoad
    from foretrace.balance.expert_load import ExpertLoad as ExpertLoad
    from foretrace.balance.expert_load import ExpertPlacement as ExpertPlacement
    from foretrace.balance.expert_load import Routing as Routing
    from foretrace.balance.expert_load import expert_load_named as expert_load_named
    from foretrace.balance.outcome import PackedStream as PackedStream
    from foretrace.balance.outcome import imbalance as imbalance
    from foretrace.balance.outcome import overhead_ms as overhead_ms
    from foretrace.balance.outcome import packed_stream as packed_stream
    from foretrace.balance.outcome import tuned_queues as tuned_queues
    from foretrace.balance.outcome import work_by_microbatch as work_by_microbatch
    from foretrace.balance.packing import AsItComes as AsItComes
    from foretrace.balance.packing import AsItComesWhole as AsItComesWhole
    from foretrace.balance.packing import Greedy as Greedy
    from foretrace.balance.packing import Microbatch as Microbatch
    from foretrace.balance.packing import OutlierQueues as OutlierQueues
    from foretrace.balance.packing import PackedStep as PackedStep
    from foretrace.balance.packing import Packer as Packer
    from foretrace.balance.packing import Piece as Piece
    from foretrace.balance.packing import Room as Room
    from foretrace.balance.packing import arrivals as arrivals
    from foretrace.balance.sampler import BatchSampler as BatchSampler
    from foretrace.balance.work import ContextShards as ContextShards
    from foretrace.balance.work import DocumentWork as DocumentWork
    from foretrace.balance.work import SlowestRank as SlowestRank
    from foretrace.balance.work import context_places as context_places
    from foretrace.balance.work import document_work as document_work
    from foretrace.balance.work import slowest_attention_ns as slowest_attention_ns
    from foretrace.balance.work import slowest_rank as slowest_rank

lazily(__name__)
