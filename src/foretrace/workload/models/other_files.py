"""Files of recommenders, of diffusion networks, and of models with totals only."""

from __future__ import annotations

from typing import Any

from foretrace.base import Document
from foretrace.workload.models.diffusion import DenoisingUNet, DiT
from foretrace.workload.models.entries import Entries, EntryField, EntryKind
from foretrace.workload.models.files import ModelFile
from foretrace.workload.models.picture_ends import PIXEL_FIELDS, TEXT_FIELDS, read_ends
from foretrace.workload.models.published import TotalsOnly
from foretrace.workload.models.recommender import Interaction, Recommender

_MOST = 10_000  # tables, or blocks of a level: far beyond any model

FEATURE_FIELDS = (
    EntryField("dense", EntryKind.COUNT, "dense features of a sample", is_required=True),
    EntryField(
        "tables", EntryKind.COUNT, "embedding tables; as many as rows unless stated", high=_MOST
    ),
    EntryField(
        "rows", EntryKind.COUNTS, "rows of each table; one number if all alike", is_required=True
    ),
    EntryField(
        "pooling", EntryKind.COUNTS, "lookups of a sample in each; one if alike", is_required=True
    ),
    EntryField("size", EntryKind.COUNT, "numbers of a vector", is_required=True),
)
NETWORK_FIELDS = (
    EntryField(
        "bottom", EntryKind.COUNTS, "widths of the layers of dense features", is_required=True
    ),
    EntryField(
        "top", EntryKind.COUNTS, "widths of the layers after the interaction", is_required=True
    ),
    EntryField("interaction", EntryKind.CHOICE, "how they meet", choices=tuple(Interaction)),
    EntryField("cross_layers", EntryKind.COUNT, "cross layers"),
    EntryField("cross_rank", EntryKind.COUNT, "rank of a cross layer"),
)
_CHANNEL_FIELDS = (
    EntryField("in_channels", EntryKind.COUNT, "channels of a latent", is_required=True),
    EntryField("out_channels", EntryKind.COUNT, "channels of its noise", is_required=True),
)
_INPUT_FIELDS = (
    EntryField("text_width", EntryKind.COUNT, "numbers of a text token", is_required=True),
    EntryField("text_tokens", EntryKind.COUNT, "tokens of the text", is_required=True),
    EntryField("height", EntryKind.COUNT, "of the latent", is_required=True),
    EntryField("width", EntryKind.COUNT, "of the latent", is_required=True),
)
UNET_FIELDS = (
    *_CHANNEL_FIELDS,
    EntryField("channels", EntryKind.COUNTS, "channels of each level", is_required=True),
    EntryField(
        "blocks_per_level",
        EntryKind.COUNT,
        "residual blocks on the way down",
        is_required=True,
        high=_MOST,
    ),
    EntryField(
        "attention", EntryKind.COUNTS, "blocks of attention of each level", is_required=True, low=0
    ),
    EntryField("added_width", EntryKind.COUNT, "numbers of what is added to the step's", low=0),
    EntryField("heads", EntryKind.COUNT, "heads of attention"),
    EntryField("head_size", EntryKind.COUNT, "numbers of a head, where heads follow from it"),
    *_INPUT_FIELDS,
    EntryField("frames", EntryKind.COUNT, "frames of a clip"),
    EntryField("time_layers", EntryKind.FLAG, "attention and convolutions over time"),
)
PATCHED_FIELDS = (
    *_CHANNEL_FIELDS,
    *_INPUT_FIELDS,
    EntryField("patch", EntryKind.COUNT, "side of a token's part of the latent", is_required=True),
    EntryField("heads", EntryKind.COUNT, "heads of attention", is_required=True),
    EntryField("head_size", EntryKind.COUNT, "numbers of a head", is_required=True),
    EntryField(
        "joint_layers",
        EntryKind.COUNT,
        "layers with weights for patches and for the text",
        is_required=True,
        high=_MOST,
    ),
    EntryField("single_layers", EntryKind.COUNT, "layers with one set", low=0, high=_MOST),
    EntryField("pooled_width", EntryKind.COUNT, "numbers of the text in all", is_required=True),
    EntryField("guidance", EntryKind.FLAG, "the network is told how closely to keep to the text"),
    EntryField("query_key_norm", EntryKind.FLAG, "a norm over each head's query and key"),
    EntryField("rotary", EntryKind.FLAG, "positions turn queries and keys"),
)
TOTAL_FIELDS = (
    EntryField("parameters", EntryKind.AMOUNT, "all parameters", is_required=True),
    EntryField("active_parameters", EntryKind.AMOUNT, "those that a token passes through"),
    EntryField("experts", EntryKind.COUNT, "experts"),
    EntryField("flops_per_sample", EntryKind.AMOUNT, "forward"),
)


def read_recommender(document: Document) -> Recommender:
    """The recommender that a file describes.

    Raises:
        WorkloadError: if the file is wrong.
    """
    file = ModelFile(document, {"features": FEATURE_FIELDS, "networks": NETWORK_FIELDS})
    features, networks = file["features"], file["networks"]
    rows = features.counts("rows")
    num_tables = features.count("tables", len(rows))
    interaction = Interaction(networks.choice("interaction", Interaction.DOT))
    has_cross = bool(networks.count("cross_layers") and networks.count("cross_rank"))
    if (interaction is Interaction.CROSS) != has_cross:
        raise file.refused(
            "[networks] needs cross_layers and cross_rank with interaction 'cross', and only then"
        )
    if networks.counts("bottom")[-1] != features.count("size"):
        raise file.refused(
            f"the bottom network ends with {networks.counts('bottom')[-1]} numbers where a vector "
            f"has {features.count('size')}: they have to be equal to meet"
        )
    return Recommender(
        name=document.name,
        title=file.title,
        num_dense=features.count("dense"),
        rows=_spread(file, "rows", rows, num_tables),
        pooling=_spread(file, "pooling", features.counts("pooling"), num_tables),
        size=features.count("size"),
        bottom=networks.counts("bottom"),
        top=networks.counts("top"),
        interaction=interaction,
        num_cross_layers=networks.count("cross_layers"),
        cross_rank=networks.count("cross_rank"),
        published=file.published,
        entries=file.entries,
        parent=document.parent,
        path=document.path,
    )


def _spread(file: ModelFile, key: str, counts: tuple[int, ...], num_tables: int) -> tuple[int, ...]:
    """One number for each table."""
    if len(counts) == 1:
        return counts * num_tables
    if len(counts) != num_tables:
        raise file.refused(
            f"{key} of [features] has {len(counts)} numbers for {num_tables} tables: give one for "
            "each, or one for all"
        )
    return counts


def read_diffusion(document: Document) -> DenoisingUNet | DiT:
    """The diffusion network that a file describes.

    Raises:
        WorkloadError: if the file is wrong.
    """
    ends = {"text": TEXT_FIELDS, "pixels": PIXEL_FIELDS}
    if "patched" in document.table:
        return _read_patched(ModelFile(document, {"patched": PATCHED_FIELDS, **ends}))
    file = ModelFile(document, {"unet": UNET_FIELDS, **ends})
    found = file["unet"]
    levels, attention = found.counts("channels"), found.counts("attention")
    if len(levels) != len(attention):
        raise file.refused(
            f"[unet] has {len(levels)} channels and {len(attention)} numbers in attention: give "
            "one of each per level"
        )
    has_time = found.flag("time_layers")
    if has_time and not found.count("head_size"):
        raise file.refused("[unet] has time_layers and needs a head_size for them")
    return DenoisingUNet(
        **_latent(file, found),
        channels=levels,
        blocks_per_level=found.count("blocks_per_level"),
        attention_depths=attention,
        added_width=found.count("added_width"),
        has_time_layers=has_time,
    )


def _read_patched(file: ModelFile) -> DiT:
    found = file["patched"]
    patch, sides = found.count("patch"), (found.count("height"), found.count("width"))
    if any(side % patch for side in sides):
        raise file.refused(
            f"[patched] has patches of {patch} in a latent of {sides[0]} x {sides[1]}: give sides "
            "that they divide"
        )
    return DiT(
        **_latent(file, found),
        patch=patch,
        joint_layers=found.count("joint_layers"),
        single_layers=found.count("single_layers"),
        pooled_width=found.count("pooled_width"),
        has_guidance=found.flag("guidance"),
        has_query_key_norm=found.flag("query_key_norm"),
        has_rotary=found.flag("rotary"),
    )


def _latent(file: ModelFile, found: Entries) -> dict[str, Any]:
    """What every diffusion network states."""
    document = file.document
    try:
        ends = read_ends(file["text"], file["pixels"], found.count("in_channels"))
    except ValueError as err:
        raise file.refused(str(err)) from err
    counts = ("in_channels", "out_channels", "head_size", "text_width", "text_tokens")
    return {
        **{key: found.count(key) for key in (*counts, "height", "width")},
        "num_heads": found.count("heads"),
        "frames": found.count("frames", 1),
        "ends": ends,
        "name": document.name,
        "title": file.title,
        "published": file.published,
        "entries": file.entries,
        "parent": document.parent,
        "path": document.path,
    }


def read_totals(document: Document) -> TotalsOnly:
    """The totals that a file states.

    Raises:
        WorkloadError: if the file is wrong.
    """
    file = ModelFile(document, {"totals": TOTAL_FIELDS})
    found = file["totals"]
    parameters = found.by_key["parameters"].amount
    active = found.amount("active_parameters")
    if active is not None and active > parameters:
        raise file.refused("active_parameters exceed parameters: exchange them")
    return TotalsOnly(
        name=document.name,
        title=file.title,
        parameters=parameters,
        active_parameters=active,
        num_experts=found.count("experts") or None,
        flops_per_sample=found.amount("flops_per_sample"),
        published=file.published,
        entries=file.entries,
        parent=document.parent,
        path=document.path,
    )
