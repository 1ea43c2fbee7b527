"""What configurations of Hugging Face say of encoders of pictures: ViT and SigLIP.

What a configuration leaves out has the default of its class in transformers.
"""

from __future__ import annotations

from collections.abc import Sized

from foretrace.workload.models.hugging_face_config import HuggingFaceConfig, Reader, Tables


def _encoder(config: HuggingFaceConfig) -> Tables:
    """Norms by mean and variance, two matrices a feed-forward part, biases, learned positions."""
    config = config.over(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_channels=3,
        image_size=224,
        patch_size=16,
    )
    hidden, heads = config.count("hidden_size"), config.heads
    if hidden % heads:
        config.refuse("num_attention_heads", f"they have to divide the hidden size of {hidden}")
    return {
        "shape": {
            "layers": config.layers,
            "hidden": hidden,
            "positions": "learned",
            "norm": "layer",
        },
        "attention": {
            "heads": heads,
            "head_size": hidden // heads,
            "input_bias": config.flag("qkv_bias", default=True),
            "output_bias": True,
        },
        "feed_forward": {
            "width": config.count("intermediate_size"),
            "gated": False,
            "bias": True,
        },
        "patches": {
            "image": config.count("image_size"),
            "size": config.count("patch_size"),
            "channels": config.count("num_channels"),
        },
    }


def _vit(config: HuggingFaceConfig) -> Tables:
    """With a pooler, or with a classifier in its place."""
    tables = _encoder(config)
    tables["patches"]["class_token"] = True
    made = config.values.get("architectures")
    if isinstance(made, list) and any("Classification" in str(one) for one in made):
        labels = config.values.get("id2label")
        tables["patches"]["classes"] = len(labels) if isinstance(labels, Sized) else 2
    else:
        tables["patches"]["pooling"] = "class"
    return tables


def _siglip(config: HuggingFaceConfig) -> Tables:
    tables = _encoder(config)
    has_head = config.flag("vision_use_head", default=True)
    tables["patches"]["pooling"] = "attention" if has_head else "none"
    return tables


ENCODER_FAMILIES: dict[str, Reader] = {
    "siglip_vision_model": _siglip,
    "vit": _vit,
}
