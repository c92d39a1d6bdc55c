"""What the table of built models says of a name."""

import pytest

from firstfault.lint.built_models import built_with_batch_norm, decoder_with_batch_norm
from firstfault.lint.norms_families import has_batch_norm


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("resnet18", True),
        ("resnet50_gn", False),
        ("efficientnet_b0", True),
        ("efficientnet_b0_gn", False),
        ("regnety_040_sgn", False),
        ("levit_128", True),
        ("vit_base_patch16_224", False),
        ("swin_t", False),
        ("s3d", True),
        ("maskrcnn_resnet50_fpn", False),  # its BatchNorm is frozen
        ("maskrcnn_resnet50_fpn_v2", True),
        ("timm-efficientnet-b3", True),
        ("mit_b2", False),
        ("s", None),
        ("resnetish", None),
        ("bert-base", None),
    ],
)
def test_a_name(name: str, has: bool | None) -> None:
    assert built_with_batch_norm(name) is has


def test_prefixes_of_other_releases_and_tags_of_weights() -> None:
    assert has_batch_norm("tu-resnest50d") and has_batch_norm("hf_hub:timm/resnet50.a1_in1k")
    assert has_batch_norm("gluon_resnet50_v1d") and not has_batch_norm("tu-vit_small_patch16_224")


def test_decoders() -> None:
    assert decoder_with_batch_norm("Unet") and decoder_with_batch_norm("DeepLabV3Plus")
    assert not decoder_with_batch_norm("FPN") and not decoder_with_batch_norm("Linknet")
