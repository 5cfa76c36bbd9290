"""Gated levels: the contribution of a level is multiplied by a gate that reads the energy of its band.

    low = D s,  e = mean |s - U low|^2 over the image,  g = e^2 / (e^2 + tau^4)
    h' = g b(h) + (1 - g) stem(low)      ("replace")
    h' = g b(h) + stem(low)              ("sum")

s is the image on the level's grid, h the features made of it so far, D and U the perfect kernel. Where s lies in the
lower band, e is zero (rounding squared), so g is zero and h' depends on the low image alone: the level and all above it
are skipped exactly, whatever b is, and b runs once and sees the whole signal.
"""
from __future__ import annotations

import torch
from torch import nn

from models import Block, BNAct, CTX, EntryConv, Resample, perfect


class Gate(nn.Module):
    def __init__(self, n: int, m: int, tau: float) -> None:
        super().__init__()
        self.D, self.U, self.tau = Resample(perfect(n, m)), Resample(perfect(m, n)), tau

    def forward(self, s):
        """s (float32 or 64) on n: the low image on m, and the gate of each sample, (batch, 1, 1, 1)."""
        with torch.autocast(s.device.type, enabled=False):
            low = self.D(s)
            e = (s - self.U(low)).square().mean((1, 2, 3), keepdim=True)
            g = e * e / (e * e + self.tau**4)
        return low, g


class Stages(nn.Sequential):
    """Pre-activation blocks from a grid and width on; `stages`: [{size, width, blocks, ...}]."""

    def __init__(self, size, width, stages, act="relu", se=False, count=1):
        layers = []
        for s in stages:
            s = dict(s)
            grid, w, blocks = s.pop("size", size), s.pop("width", width), s.pop("blocks", 1)
            s.setdefault("act", act), s.setdefault("se", se)
            if size % grid:
                raise ValueError(f"stages must divide: {size} to {grid}")
            for _ in range(blocks):
                layers.append(Block(width, w, stride=size // grid, count=count, **s))
                width, size = w, grid
        super().__init__(*layers)
        self.width, self.size = width, size


class Stem(nn.Module):
    """From the image on `band` to features: raised to `size`, 3x3, stages."""

    def __init__(self, band, size, width, stages=(), act="relu", se=False):
        super().__init__()
        self.up = Resample(perfect(band, size))
        self.entry = EntryConv(3, width)
        self.stages = Stages(size, width, stages, act, se)
        self.width, self.size = self.stages.width, self.stages.size

    def forward(self, s):
        with torch.autocast(s.device.type, enabled=False):
            s = self.up(s)
        return self.stages(self.entry(s))


class Gated(nn.Module):
    """`stems`: one for each grid of the ladder: {size, width, stages}; `bodies`: stages from one stem's features to the next
    one's; `tail`: stages after the last."""

    def __init__(self, ladder, stems, bodies, tail, mode="replace", tau=0.03, act="relu", se=False, drop=0.0, classes=10, level_bn=False, end_norm=False):
        super().__init__()
        self.ladder, self.drop = list(ladder), drop
        self.modes = [mode] * (len(ladder) - 1) if isinstance(mode, str) else list(mode)
        self.stems = nn.ModuleList(
            Stem(n, s.get("size", n), s["width"], s.get("stages", ()), act, se) for n, s in zip(ladder, stems)
        )
        self.gates = nn.ModuleList(Gate(n, m, tau) for n, m in zip(ladder, ladder[1:]))
        self.bodies = nn.ModuleList(Stages(a.size, a.width, b, act, se) for a, b in zip(self.stems, bodies))
        for body, stem in zip(self.bodies, self.stems[1:]):
            if (body.width, body.size) != (stem.width, stem.size):
                raise ValueError(f"a body ends with {body.width} on {body.size}, the stem with {stem.width} on {stem.size}")
        norm = lambda part: BNAct(part.width, "none") if end_norm else nn.Identity()
        self.stem_norms = nn.ModuleList(norm(s) for s in self.stems[1:])
        self.body_norms = nn.ModuleList(norm(b) for b in self.bodies)
        last = self.stems[-1]
        self.tail = Stages(last.size, last.width, tail, act, se, count=len(ladder) if level_bn else 1)
        self.last = BNAct(self.tail.width, act, len(ladder) if level_bn else 1)
        self.fc = nn.Linear(self.tail.width, classes)

    def forward(self, groups, entry=None):
        s = h = None
        counts = []
        for k, (x, stem) in enumerate(zip(groups, self.stems)):
            if k:
                s, h, g = (None, None, None) if s is None else self.below(k - 1, s, h)
            n = 0 if s is None else s.shape[0]
            if x is not None:
                s = x if s is None else torch.cat([s, x])
                counts.append((k if entry is None else entry, x.shape[0]))
            if s is None:
                continue
            v = stem(s)
            if k:
                v = self.stem_norms[k - 1](v)
            if n:
                g = g.to(v.dtype)
                mixed = g * h + (v[:n] if self.modes[k - 1] == "sum" else (1 - g) * v[:n])
                v = mixed if n == v.shape[0] else torch.cat([mixed, v[n:]])
            h = v
        CTX["counts"] = counts
        y = self.last(self.tail(h)).mean((2, 3))
        if self.drop and self.training:
            y = nn.functional.dropout(y, self.drop)
        return self.fc(y)

    def below(self, k, s, h):
        low, g = self.gates[k](s)
        return low, self.body_norms[k](self.bodies[k](h)), g
