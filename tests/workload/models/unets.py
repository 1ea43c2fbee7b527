"""A UNet in plain PyTorch, written apart from the walk that it checks.

Layer by layer as Hugging Face diffusers has them in `UNet2DConditionModel` and
`UNet3DConditionModel`; every network here runs on the frames of one sample.
"""

from __future__ import annotations

import torch
from torch import nn

from foretrace.workload import DenoisingUNet


class Residual(nn.Module):
    def __init__(self, before: int, after: int, time_width: int, *, has_time: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(1, before), nn.GroupNorm(1, after)])
        self.first = nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(time_width, after)
        self.second = nn.Conv2d(after, after, 3, padding=1)
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()
        self.over_time = nn.Sequential()
        if has_time:
            for _ in range(4):
                self.over_time.append(nn.GroupNorm(1, after))
                self.over_time.append(nn.Conv3d(after, after, (3, 1, 1), padding=(1, 0, 0)))

    def forward(self, frames: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        inner = self.first(self.norms[0](frames)) + self.time(embedding)[:, :, None, None]
        found: torch.Tensor = self.shortcut(frames) + self.second(self.norms[1](inner))
        clip = found.transpose(0, 1).unsqueeze(0)
        added: torch.Tensor = self.over_time(clip)
        return found + added[0].transpose(0, 1)


class ModelAttention(nn.Module):
    def __init__(self, width: int, key_width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(key_width, width, bias=False)
        self.value = nn.Linear(key_width, width, bias=False)
        self.back = nn.Linear(width, width)

    def forward(self, rows: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        # One head: the products cost the same however the width is cut.
        scores = torch.matmul(self.query(rows), self.key(keys).transpose(1, 2)).softmax(-1)
        found: torch.Tensor = self.back(torch.matmul(scores, self.value(keys)))
        return found


class Block(nn.Module):
    def __init__(self, width: int, key_width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.other = ModelAttention(width, width), ModelAttention(width, key_width)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, rows: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
        normed = self.norms[0](rows)
        rows = rows + self.own(normed, normed)
        normed = self.norms[1](rows)
        rows = rows + self.other(normed, normed if keys is None else keys)
        values, gates = self.up(self.norms[2](rows)).chunk(2, dim=-1)
        found: torch.Tensor = rows + self.down(values * gates.sigmoid())
        return found


class Transformer(nn.Module):
    """Over the positions of a frame with the text, or over the frames of a position."""

    def __init__(
        self, channels: int, inner: int, text_width: int | None, *, depth: int = 1
    ) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.enter, self.leave = nn.Linear(channels, inner), nn.Linear(inner, channels)
        keys = inner if text_width is None else text_width
        self.blocks = nn.ModuleList(Block(inner, keys) for _ in range(depth))
        self.is_over_time = text_width is None

    def forward(self, frames: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        num_frames, channels, height, width = frames.shape
        rows = self.norm(frames).reshape(num_frames, channels, height * width)
        rows = rows.permute(2, 0, 1) if self.is_over_time else rows.transpose(1, 2)
        rows = self.enter(rows)
        for block in self.blocks:
            rows = block(rows, None if self.is_over_time else text)
        rows = self.leave(rows)
        rows = rows.permute(1, 2, 0) if self.is_over_time else rows.transpose(1, 2)
        found: torch.Tensor = frames + rows.reshape(num_frames, channels, height, width)
        return found


class Step(nn.Module):
    """A residual block and, where a level has them, its transformers."""

    def __init__(self, model: DenoisingUNet, before: int, after: int, *, depth: int) -> None:
        super().__init__()
        has_time = model.has_time_layers
        self.residual = Residual(before, after, 4 * model.channels[0], has_time=has_time)
        self.transformers = nn.ModuleList()
        if depth:
            text = model.text_width
            self.transformers.append(Transformer(after, after, text, depth=depth))
            if has_time:
                self.transformers.append(Transformer(after, after, None))

    def forward(
        self, frames: torch.Tensor, embedding: torch.Tensor, text: torch.Tensor
    ) -> torch.Tensor:
        found: torch.Tensor = self.residual(frames, embedding)
        for transformer in self.transformers:
            found = transformer(found, text)
        return found


class UNet(nn.Module):
    def __init__(self, model: DenoisingUNet) -> None:
        super().__init__()
        first, last = model.channels[0], model.channels[-1]
        blocks = model.blocks_per_level
        self.model = model
        self.embed = nn.Sequential(nn.Linear(first, 4 * first), nn.Linear(4 * first, 4 * first))
        self.add = nn.Sequential()
        if model.added_width:
            added = nn.Linear(model.added_width, 4 * first), nn.Linear(4 * first, 4 * first)
            self.add.extend(added)
        self.enter = nn.Conv2d(model.in_channels, first, 3, padding=1)
        inner = 8 * model.head_size
        self.over_time = Transformer(first, inner, None) if model.has_time_layers else None
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        skips, before = [first], first
        for level, (after, depth) in enumerate(
            zip(model.channels, model.attention_depths, strict=True)
        ):
            for _ in range(blocks):
                self.down.append(Step(model, before, after, depth=depth))
                skips.append(after)
                before = after
            if level < len(model.channels) - 1:
                self.shrink.append(nn.Conv2d(after, after, 3, stride=2, padding=1))
                skips.append(after)
        self.middle = nn.ModuleList(
            [Step(model, last, last, depth=model.middle_depth), Step(model, last, last, depth=0)]
        )
        for level in range(len(model.channels) - 1, -1, -1):
            after = model.channels[level]
            for _ in range(blocks + 1):
                depth = model.attention_depths[level]
                self.up.append(Step(model, before + skips.pop(), after, depth=depth))
                before = after
            if level:
                self.grow.append(nn.Conv2d(after, after, 3, padding=1))
        self.norm = nn.GroupNorm(1, first)
        self.leave = nn.Conv2d(first, model.out_channels, 3, padding=1)

    def forward(self) -> torch.Tensor:
        model, blocks = self.model, self.model.blocks_per_level
        text = torch.zeros(model.frames, model.text_tokens, model.text_width)
        embedding = self.embed(torch.zeros(1, model.channels[0]))
        if model.added_width:
            embedding = embedding + self.add(torch.zeros(1, model.added_width))
        embedding = embedding.expand(model.frames, -1)
        latent = torch.zeros(model.frames, model.in_channels, model.height, model.width)
        found = self.enter(latent)
        if self.over_time is not None:
            found = self.over_time(found, text)
        skips = [found]
        for index, step in enumerate(self.down):
            found = step(found, embedding, text)
            skips.append(found)
            level, is_last = divmod(index + 1, blocks)
            if is_last == 0 and level <= len(self.shrink):
                found = self.shrink[level - 1](found)
                skips.append(found)
        for step in self.middle:
            found = step(found, embedding, text)
        for index, step in enumerate(self.up):
            found = step(torch.cat([found, skips.pop()], dim=1), embedding, text)
            level, is_last = divmod(index + 1, blocks + 1)
            if is_last == 0 and level <= len(self.grow):
                found = nn.functional.interpolate(found, size=skips[-1].shape[2:])
                found = self.grow[level - 1](found)
        result: torch.Tensor = self.leave(self.norm(found))
        return result
