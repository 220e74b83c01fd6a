"""The vision transformer of MoCo v3 (Chen et al., 2021, §5), which the release does not have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn


def sincos_position_embedding(rows: int, columns: int, dim: int) -> Tensor:
    """Return the fixed two-dimensional sine-cosine embedding of a grid of patches.

    A quarter of the channels each holds sine and cosine of the column and of the row, at
    wavelengths from 2π to 10000 · 2π.
    """
    if dim % 4:
        raise ValueError(f"embed_dim must be divisible by 4, got {dim}.")
    frequencies = 10000.0 ** (-torch.arange(dim // 4) / (dim // 4))
    # The published model lets the first coordinate run slowest.
    slow = torch.arange(columns).repeat_interleave(rows)[:, None] * frequencies
    fast = torch.arange(rows).repeat(columns)[:, None] * frequencies
    return torch.cat([slow.sin(), slow.cos(), fast.sin(), fast.cos()], dim=1)


class VisionTransformerMoCo(VisionTransformer):
    """ViT with a fixed position embedding and the initialisation of MoCo v3."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        rows, columns = self.patch_embed.grid_size
        positions = sincos_position_embedding(rows, columns, self.embed_dim)
        with_class_token = torch.cat([positions.new_zeros(1, self.embed_dim), positions])
        self.pos_embed = nn.Parameter(with_class_token[None], requires_grad=False)

        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                # Query, key and value are three matrices stored as one.
                fan_out = module.out_features // (3 if name.endswith("qkv") else 1)
                _uniform_(module, module.in_features + fan_out)
        convolution = self.patch_embed.proj
        _uniform_(convolution, convolution.weight[0].numel() + self.embed_dim)
        assert self.cls_token is not None
        nn.init.normal_(self.cls_token, std=1e-6)


def _uniform_(layer: Any, fans: int) -> None:
    bound = (6 / fans) ** 0.5
    nn.init.uniform_(layer.weight, -bound, bound)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _variant(embed_dim: int, depth: int, num_heads: int) -> Callable[..., nn.Module]:
    return partial(
        VisionTransformerMoCo,
        embed_dim=embed_dim,
        depth=depth,
        num_heads=num_heads,
        mlp_ratio=4,
        qkv_bias=True,
        norm_layer=partial(nn.LayerNorm, eps=1e-6),
        num_classes=0,
    )


MOCO_VITS = {
    # Twelve heads for every width below "large" is MoCo v3's choice.
    "vit_tiny": _variant(192, 12, 12),
    "vit_small": _variant(384, 12, 12),
    "vit_base": _variant(768, 12, 12),
    "vit_large": _variant(1024, 24, 16),
}
