"""Networks of the frontier search: ARRNs in several forms and their rivals. A config is a dict; see README.md.

Every network has `.ladder` (entry grids, highest first) and `forward(groups)`: one tensor (or None) of three-channel
signals for each grid of the ladder; logits come in that order.
"""
from __future__ import annotations

import math
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import fused

CTX = {"counts": None, "fused": True, "autocast": False}  # counts: (ladder index, samples) of the batch in the base, for norms per entry level


# ---------------------------------------------------------------- resampling
def dct_basis(n: int, k: int) -> np.ndarray:
    """Column j: the orthonormal cosine j on n cell-centred samples; n x k."""
    x = (np.arange(n) + 0.5) / n
    b = np.cos(np.pi * x[:, None] * np.arange(k)[None]) * np.sqrt(2.0)
    b[:, 0] = 1.0
    return b


def perfect(n: int, m: int) -> np.ndarray:
    """m x n: from n samples to m, band-limited to min(n, m) cosines (symmetric boundary)."""
    k = min(n, m)
    return dct_basis(m, k) @ dct_basis(n, k).T / n


def lowering(n: int, u: int, g: int) -> np.ndarray:
    """g x n: smooth to u, bring to the grid g."""
    return perfect(u, g) @ perfect(n, u)


def gaussian(n: int, m: int, sigma: float = 0.5, radius: float = 1.0) -> np.ndarray:
    out = np.zeros((m, n))
    h = n / m
    for i in range(m):
        c = (i + 0.5) * h
        for j in range(math.floor(c - radius * h) - 1, math.ceil(c + radius * h) + 1):
            d = (j + 0.5 - c) / h
            if abs(d) <= radius + 1e-9:
                jj = j % (2 * n)
                jj = jj if jj < n else 2 * n - 1 - jj
                out[i, jj] += math.exp(-0.5 * (d / sigma) ** 2)
    return out / out.sum(1, keepdims=True)


def linear_up(n: int, m: int) -> np.ndarray:
    return F.interpolate(torch.eye(n, dtype=torch.float64)[:, None], size=m, mode="linear", align_corners=False)[:, 0].T.numpy()


class Resample(nn.Module):
    """A fixed separable operator from grid n to grid m: float32 (or 64) exactly, bf16 as one product."""

    def __init__(self, matrix: np.ndarray) -> None:
        super().__init__()
        self.m, self.n = matrix.shape
        self.matrix = np.ascontiguousarray(matrix)
        self.identity = self.m == self.n and bool(np.allclose(matrix, np.eye(self.n)))
        self.kept: dict = {}

    def operator(self, x: torch.Tensor) -> torch.Tensor:
        key = (x.dtype, x.device)
        if key not in self.kept:
            a = np.kron(self.matrix, self.matrix) if x.dtype == torch.bfloat16 else self.matrix
            self.kept[key] = torch.from_numpy(a).to(x.dtype).to(x.device)
        return self.kept[key]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.identity:
            return x
        a = self.operator(x)
        with torch.autocast(x.device.type, enabled=False):
            b, c = x.shape[:2]
            if x.dtype == torch.bfloat16:
                rows = x.permute(0, 2, 3, 1).reshape(b, self.n * self.n, c)
                y = torch.bmm(a.expand(b, -1, -1), rows)
                return y.view(b, self.m, self.m, c).permute(0, 3, 1, 2)
            rows = x.permute(0, 2, 3, 1)  # B H W C
            y = torch.matmul(a, rows.reshape(b, self.n, self.n * c)).view(b, self.m, self.n, c)
            y = torch.einsum("vw,bhwc->bhvc", a, y)
            return y.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)

    def macs(self, x: torch.Tensor) -> int:
        if self.identity:
            return 0
        return x.shape[0] * x.shape[1] * (self.m * self.n * self.n + self.m * self.m * self.n)


class Nearest(nn.Module):
    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=self.factor, mode="nearest")


def on_gpu(x: torch.Tensor) -> bool:
    """Whether to arrange things for bf16 tensor cores."""
    return (x.is_cuda or CTX.get("pretend", False)) and CTX["autocast"]


# ---------------------------------------------------------------- layers
def act_fn(name: str):
    return {"relu": F.relu, "silu": F.silu, "none": lambda x: x}[name]


def conv(i: int, o: int, k: int = 3, stride: int = 1, groups: int = 1, bias: bool = False, padding_mode: str = "zeros") -> nn.Conv2d:
    c = nn.Conv2d(i, o, k, stride, k // 2 if k % 2 else 0, groups=groups, bias=bias, padding_mode=padding_mode)
    nn.init.kaiming_normal_(c.weight, mode="fan_in", nonlinearity="relu")
    if bias:
        nn.init.zeros_(c.bias)
    return c


class EntryConv(nn.Conv2d):
    """A convolution of few channels (an image), which is padded with zeros to 8: tensor cores want that."""

    def __init__(self, i: int, o: int, k: int = 3, bias: bool = False) -> None:
        super().__init__(i, o, k, 1, k // 2, bias=bias)
        nn.init.kaiming_normal_(self.weight, mode="fan_in", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if on_gpu(x) and self.in_channels % 8:
            more = -self.in_channels % 8
            x = F.pad(x.to(torch.bfloat16), (0, 0, 0, 0, 0, more)).contiguous(memory_format=torch.channels_last)
            w = F.pad(self.weight, (0, 0, 0, 0, 0, more)).contiguous(memory_format=torch.channels_last)
            return F.conv2d(x, w, self.bias, 1, self.padding)
        return super().forward(x)


def entry_conv(i: int, o: int, k: int, padding_mode: str = "zeros") -> nn.Module:
    if k == 0:
        if i != o:
            raise ValueError(f"entry 0 needs as many channels in as out, got {i} and {o}")
        return nn.Identity()
    if i < 8 and padding_mode == "zeros":
        return EntryConv(i, o, k)
    return conv(i, o, k, padding_mode=padding_mode)


class BNAct(nn.Module):
    """Batch norm and activation; with `count` > 1, one norm for each entry level (CTX["counts"])."""

    def __init__(self, c: int, act: str = "relu", count: int = 1, momentum: float = 0.1, switch: bool = False) -> None:
        super().__init__()
        self.act, self.momentum, self.eps, self.count, self.switch, self.chosen = act, momentum, 1e-5, count, switch, 0
        self.weight = nn.Parameter(torch.ones(count, c))
        self.bias = nn.Parameter(torch.zeros(count, c))
        self.register_buffer("running_mean", torch.zeros(count, c))
        self.register_buffer("running_var", torch.ones(count, c))

    def one(self, x: torch.Tensor, k: int) -> torch.Tensor:
        row = (lambda t: t.view(-1)) if self.count == 1 else (lambda t: t[k])  # a view's gradient costs nothing
        if self.training and CTX["fused"] and fused.usable(x):
            return fused.norm_act(x, row(self.weight), row(self.bias), self.running_mean[k], self.running_var[k], self.momentum, self.eps, self.act)
        y = F.batch_norm(x, self.running_mean[k], self.running_var[k], row(self.weight), row(self.bias), self.training, self.momentum, self.eps)
        return act_fn(self.act)(y)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.switch:
            return self.one(x, self.chosen)
        if self.count == 1:
            return self.one(x, 0)
        counts = CTX["counts"]
        assert counts is not None and sum(c for _, c in counts) == x.shape[0]
        parts = x.split([c for _, c in counts])
        return torch.cat([self.one(p, k) for p, (k, _) in zip(parts, counts)])


class RMS(nn.Module):
    """Divides each channel by its running root mean square; no centring, no bias: zero stays zero."""

    def __init__(self, c: int, momentum: float = 0.1, init: float = 1.0) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, 1e-5
        self.weight = nn.Parameter(torch.full((c,), init))
        self.register_buffer("running_ms", torch.ones(c))

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        ms = self.running_ms
        if self.training:
            wide = x if x.dtype == torch.float64 else x.float()
            ms = wide.square().mean((0, 2, 3))
            with torch.no_grad():
                self.running_ms.lerp_(ms.to(self.running_ms.dtype), self.momentum)
        return self.weight * torch.rsqrt(ms + self.eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x, "none", None, 1)

    def act(self, x: torch.Tensor, act: str, context: torch.Tensor | None, factor: int) -> torch.Tensor:
        """act(s x), or act(s x + U c) - act(U c) with a context c on a grid `factor` times coarser (nearest)."""
        if self.training and CTX["fused"] and fused.usable(x) and (context is None or factor >= 1):
            return fused.norm_act(x, self.weight, None, None, self.running_ms, self.momentum, self.eps, act, context, factor)
        s = self.scale(x).view(1, -1, 1, 1)
        f = act_fn(act)
        if context is None:
            return f(x * s.to(x.dtype))
        if factor > 1:
            context = F.interpolate(context, scale_factor=factor, mode="nearest")
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        c = context.to(wide)
        return (f(x.to(wide) * s.to(wide) + c) - f(c)).to(x.dtype)


class SE(nn.Module):
    def __init__(self, c: int, r: int = 8) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(c, max(8, c // r)), nn.Linear(max(8, c // r), c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s = torch.sigmoid(self.b(F.relu(self.a(x.mean((2, 3))))))
        return x * s.to(x.dtype)[:, :, None, None]


class Block(nn.Module):
    """A pre-activation residual block: "basic" (two 3x3), "bottleneck" (1x1, 3x3 in groups, 1x1), "single" (one 3x3)."""

    def __init__(self, i, o, kind="basic", expansion=1.0, groups=1, act="relu", se=False, stride=1, count=1, padding_mode="zeros"):
        super().__init__()
        h = max(8, int(round(o * expansion)))
        bn = lambda c: BNAct(c, act, count)
        cv = lambda a, b, k=3, s=1, g=1: conv(a, b, k, s, g, padding_mode=padding_mode if k == 3 else "zeros")
        self.first = bn(i)
        if kind == "basic":
            self.body = nn.Sequential(cv(i, h, 3, stride, groups), bn(h), cv(h, o, 3, 1, groups))
        elif kind == "bottleneck":
            self.body = nn.Sequential(cv(i, h, 1), bn(h), cv(h, h, 3, stride, groups), bn(h), cv(h, o, 1))
        elif kind == "single":
            self.body = nn.Sequential(cv(i, o, 3, stride, groups))
        else:
            raise ValueError(kind)
        self.se = SE(o) if se else None
        self.short = None if stride == 1 and i == o else conv(i, o, 1 if stride == 1 else 2, stride)

    def forward(self, x):
        h = self.first(x)
        short = x if self.short is None else self.short(h)
        y = self.body(h)
        return short + (y if self.se is None else self.se(y))


# ---------------------------------------------------------------- levels
class HandDown(nn.Module):
    """Anything linear without bias from grid n to m that takes w channels to o."""

    def __init__(self, kind: str, n: int, m: int, w: int, o: int) -> None:
        super().__init__()
        f = n // m
        whole = f * m == n
        if kind in ("perfect", "perfect3", "blur", "blur3"):
            a = perfect(n, m) if kind.startswith("perfect") else gaussian(n, m)
            self.body = nn.Sequential(Resample(a), conv(w, o, 3 if kind.endswith("3") else 1))
        elif kind == "strided" and whole:
            self.body = conv(w, o, 3, f)
        elif kind == "s2d" and whole:
            self.body = nn.Conv2d(w, o, f, f, bias=False)
            nn.init.kaiming_normal_(self.body.weight, mode="fan_in", nonlinearity="relu")
        else:
            raise ValueError(f"hand-down {kind} from {n} to {m}")

    def forward(self, c):
        return self.body(c)


class Level(nn.Module):
    """r' = A D r + H(contribution), the contribution zero where r = U D r."""

    def __init__(self, n: int, m: int, i: int, o: int, form="diff", width=64, blocks=1, block="basic", expansion=1.0, groups=1,
                 act="relu", se=False, down="strided", entry=3, final=None, scale=False, scale_init=1.0, a_bias=True, **more) -> None:
        super().__init__()
        self.n, self.m, self.form = n, m, form
        self.D, self.U = Resample(perfect(n, m)), Resample(perfect(m, n))
        self.A = EntryConv(i, o, 1, bias=a_bias)
        nn.init.normal_(self.A.weight, std=i**-0.5)
        if a_bias:
            nn.init.zeros_(self.A.bias)
        self.hand = HandDown(down, n, m, width, o)
        self.scale = RMS(width, init=scale_init) if scale else None
        final = down in ("strided", "s2d", "perfect3", "blur3") if final is None else final
        body = {"diff": DiffBody, "paper": PaperBody, "zp": ZpBody, "dact": DactBody}[form]
        self.body = body(n, m, i, width, blocks, block, expansion, groups, act, se, entry, final, **more)

    def forward(self, r):
        low = self.D(r)
        c = self.body(r, low, self.U)
        if self.scale is not None:
            c = self.scale(c)
        return self.A(low) + self.hand(c)


def chain(i, w, blocks, block, expansion, groups, act, se, entry, final, padding_mode="zeros"):
    layers = [entry_conv(i, w, entry, padding_mode)]
    layers += [Block(w, w, block, expansion, groups, act, se, padding_mode=padding_mode) for _ in range(blocks)]
    if final:
        layers.append(BNAct(w, act))
    return nn.Sequential(*layers)


class DiffBody(nn.Module):
    """b(r) - b(U low), in one call."""

    def __init__(self, n, m, i, w, blocks, block, expansion, groups, act, se, entry, final):
        super().__init__()
        self.b = chain(i, w, blocks, block, expansion, groups, act, se, entry, final)

    def forward(self, r, low, U):
        y = self.b(torch.cat([r, U(low)]))
        k = r.shape[0]
        return y[:k] - y[k:]  # bf16 differences are taken in float32 and rounded once


class PaperBody(nn.Module):
    """psi b(r - U low), replicated borders (b(0) must be constant)."""

    def __init__(self, n, m, i, w, blocks, block, expansion, groups, act, se, entry, final):
        super().__init__()
        self.b = chain(i, w, blocks, block, expansion, groups, act, se, entry, final, "replicate")

    def forward(self, r, low, U):
        y = self.b(r - U(low))
        return y - y.mean((2, 3), keepdim=True)


class ZpBody(nn.Module):
    """Zero-preserving: no biases, scale-only norms, hidden activations times 2 sigmoid(U context(low))."""

    def __init__(self, n, m, i, w, blocks, block, expansion, groups, act, se, entry, final, up="nearest", context_kernel=3):
        super().__init__()
        h = max(8, int(round(w * expansion)))
        self.act, self.entry = act, entry_conv(i, w, entry)
        self.widths = [w, h] * blocks + ([w] if final else [])
        self.norms = nn.ModuleList(RMS(c) for c in self.widths)
        self.convs = nn.ModuleList(conv(a, b, 3, 1, groups) for a, b in [(w, h), (h, w)] * blocks)
        self.context = entry_conv(i, sum(self.widths), context_kernel)
        nn.init.normal_(self.context.weight, std=0.5 * (i * context_kernel**2) ** -0.5)
        self.up = upsampling(up, n, m)
        self.final, self.blocks = final, blocks

    def forward(self, r, low, U):
        gates = (2 * torch.sigmoid(self.context(low).float())).to(torch.bfloat16 if on_gpu(r) else low.dtype)
        gates = gates.split(self.widths, 1)
        a = self.entry(r - U(low))
        step = lambda k, x: self.norms[k].act(x, self.act, None, 1) * self.up(gates[k])
        for j in range(self.blocks):
            h = self.convs[2 * j](step(2 * j, a))
            a = a + self.convs[2 * j + 1](step(2 * j + 1, h))
        return step(2 * self.blocks, a) if self.final else a


def upsampling(kind: str, n: int, m: int) -> nn.Module:
    if kind == "nearest" and n % m == 0:
        return Nearest(n // m)
    if kind in ("bilinear", "nearest"):  # nearest where it does not exist
        return Resample(linear_up(m, n))
    if kind == "perfect":
        return Resample(perfect(m, n))
    raise ValueError(kind)


class DactBody(nn.Module):
    """Difference activations: act(s a + U c) - act(U c), the context c made on the low grid by an ordinary network.

    Args (beside the usual): context: width of the context stream (default: `width`); context_blocks: residual blocks of
    it per block of the stream; context_kernel: of the heads; up: "nearest", "bilinear", "perfect".
    """

    def __init__(self, n, m, i, w, blocks, block, expansion, groups, act, se, entry, final, context=0, context_blocks=1,
                 context_kernel=1, up="nearest", s_init=1.0):
        super().__init__()
        h, v = max(8, int(round(w * expansion))), context or w
        self.act, self.entry, self.final, self.blocks = act, entry_conv(i, w, entry), final, blocks
        self.v = entry_conv(i, v, 3)
        self.widths = [[w, h] for _ in range(blocks)] + ([[w]] if final else [])
        self.norms = nn.ModuleList(RMS(c, init=s_init) for ws in self.widths for c in ws)
        self.convs = nn.ModuleList(conv(a, b, 3, 1, groups) for a, b in [(w, h), (h, w)] * blocks)
        self.contexts = nn.ModuleList(
            nn.Sequential(*(Block(v, v, "basic", 1, 1, act, se) for _ in range(context_blocks if k < blocks else 0))) for k in range(len(self.widths))
        )
        self.heads = nn.ModuleList(nn.Sequential(BNAct(v, act), conv(v, sum(ws), context_kernel, bias=True)) for ws in self.widths)
        self.factor = n // m if up == "nearest" and n % m == 0 else 0
        self.up = None if self.factor else upsampling(up, n, m)

    def step(self, k, a, c):
        if self.up is not None:
            return self.norms[k].act(a, self.act, self.up(c), 1)
        return self.norms[k].act(a, self.act, c, self.factor)

    def forward(self, r, low, U):
        a, v = self.entry(r - U(low)), self.v(low)
        k = 0
        for j, widths in enumerate(self.widths):
            v = self.contexts[j](v)
            cs = self.heads[j](v).split(widths, 1)
            h = a
            for c in cs:
                h = self.step(k, h, c)
                if j < self.blocks:
                    h = self.convs[k](h)
                k += 1
            a = a + h if j < self.blocks else h
        return a


# ---------------------------------------------------------------- networks
class Base(nn.Module):
    def __init__(self, size, i, stages, classes=10, entry=3, act="relu", se=False, drop=0.0, level_bn=False, levels=1, up=0):
        super().__init__()
        count = levels if level_bn else 1
        self.up = Resample(perfect(size, up)) if up else nn.Identity()
        size = up or size
        layers, at, width = [entry_conv(i, stages[0]["width"], stages[0].get("entry", entry))], size, stages[0]["width"]
        for k, s in enumerate(stages):
            s = dict(s)
            grid, w, blocks = s.pop("size", at), s.pop("width"), s.pop("blocks", 1)
            s.pop("entry", None)
            s.setdefault("act", act), s.setdefault("se", se)
            if at % grid:
                raise ValueError(f"base stages must divide: {at} to {grid}")
            for j in range(blocks):
                layers.append(Block(width, w, stride=at // grid if j == 0 else 1, count=count, **s))
                width = w
                if j == 0:
                    at = grid
        layers.append(BNAct(width, act, count))
        self.body, self.drop, self.fc = nn.Sequential(*layers), drop, nn.Linear(width, classes)

    def forward(self, x):
        y = self.body(self.up(x)).mean((2, 3))
        if self.drop and self.training:
            y = F.dropout(y, self.drop)
        return self.fc(y)


class Arrn(nn.Module):
    def __init__(self, ladder, levels, base, classes=10):
        super().__init__()
        self.ladder = list(ladder)
        assert len(levels) == len(ladder) - 1, "one level for each grid but the last"
        widths = [3] + [lv.get("out", lv["width"]) for lv in levels]
        self.levels = nn.ModuleList(
            Level(n, m, i, o, **{k: v for k, v in lv.items() if k != "out"})
            for n, m, i, o, lv in zip(ladder, ladder[1:], widths, widths[1:], levels)
        )
        self.base = Base(ladder[-1], widths[-1], classes=classes, levels=len(ladder), **base)

    def entering(self, k: int, x: torch.Tensor) -> torch.Tensor:
        """x, three channels on ladder[k], through the projections of the levels above, folded to one."""
        if k == 0:
            return x
        with torch.autocast(x.device.type, enabled=False):
            a = self.levels[0].A
            w, b = a.weight[:, :, 0, 0], a.bias
            for level in self.levels[1:k]:
                v = level.A.weight[:, :, 0, 0]
                w, b = v @ w, None if b is None else v @ b + level.A.bias
            if on_gpu(x):
                x, w = F.pad(x, (0, 0, 0, 0, 0, 5)), F.pad(w, (0, 5))
        return F.linear(x.permute(0, 2, 3, 1).contiguous(), w, b).permute(0, 3, 1, 2)

    def forward(self, groups, entry=None):
        """`entry`: as which ladder index each group counts for norms per entry level (default: its own)."""
        r, counts = None, []
        for k in range(len(self.ladder)):
            if groups[k] is not None:
                e = self.entering(k, groups[k])
                r = e if r is None else torch.cat([r.to(e.dtype), e])
                counts.append((k if entry is None else entry, e.shape[0]))
            if r is not None and k < len(self.levels):
                r = self.levels[k](r)
        CTX["counts"] = counts
        return self.base(r)


class PostBlock(nn.Module):
    """ResNet's basic block."""

    def __init__(self, i, o, stride, count):
        super().__init__()
        bn = lambda act: BNAct(o, act, count, switch=count > 1)
        self.a, self.n, self.b, self.p = conv(i, o, 3, stride), bn("relu"), conv(o, o, 3), bn("none")
        self.short = None if stride == 1 and i == o else nn.Sequential(conv(i, o, 1, stride), bn("none"))

    def forward(self, x):
        y = self.p(self.b(self.n(self.a(x))))
        return F.relu(y + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    """ResNet with a small stem; with several grids in the ladder, a switchable one (private norms, native grids)."""

    def __init__(self, ladder, widths=(64, 128, 256, 512), blocks=(2, 2, 2, 2), strides=(1, 2, 2, 2), classes=10, drop=0.0):
        super().__init__()
        self.ladder, self.drop, count = list(ladder), drop, len(ladder)
        layers, i = [EntryConv(3, widths[0]), BNAct(widths[0], "relu", count, switch=count > 1)], widths[0]
        for w, n, s in zip(widths, blocks, strides):
            for j in range(n):
                layers.append(PostBlock(i, w, s if j == 0 else 1, count))
                i = w
        self.body, self.fc = nn.Sequential(*layers), nn.Linear(i, classes)
        for mod in self.modules():
            if isinstance(mod, nn.Conv2d):
                nn.init.kaiming_normal_(mod.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, groups, entry=None):
        answers = []
        for k, x in enumerate(groups):
            if x is None:
                continue
            for mod in self.modules():
                if isinstance(mod, BNAct):
                    mod.chosen = k if mod.switch else 0
            y = self.body(x).mean((2, 3))
            if self.drop and self.training:
                y = F.dropout(y, self.drop)
            answers.append(self.fc(y))
        return torch.cat(answers)


class Tower(nn.Module):
    """An ordinary pre-activation CNN from three channels; `forward` gives what each block made, before the last norm."""

    def __init__(self, size, stages, act="relu", se=False):
        super().__init__()
        self.entry = entry_conv(3, stages[0]["width"], 3)
        blocks, at, width, self.grids, self.widths = [], size, stages[0]["width"], [], []
        for s in stages:
            for j in range(s["blocks"]):
                blocks.append(Block(width, s["width"], stride=at // s["size"] if j == 0 else 1, act=act, se=se))
                width, at = s["width"], s["size"]
                self.grids.append(at), self.widths.append(width)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        x, made = self.entry(x), []
        for block in self.blocks:
            x = block(x)
            made.append(x)
        return made


class Detail(nn.Module):
    """The detail stream: difference activations whose contexts are the features of a tower below, grid by grid.

    stages: [{size, width, blocks}] from the level's own grid down; a context comes from the tower's last block on the
    largest of its grids that is not above the stream's.
    """

    def __init__(self, size, stages, tower, act="relu", per_block=True):
        super().__init__()
        self.act, self.entry, at, width = act, EntryConv(3, stages[0]["width"], 3), size, stages[0]["width"]
        plan = []  # (grid, width, grid after, width after) of each activation and what follows
        self.convs, self.shorts, self.shape = nn.ModuleList(), nn.ModuleList(), []
        for s in stages:
            for j in range(s["blocks"]):
                f = at // s["size"] if j == 0 else 1
                plan += [(at, width), (s["size"], s["width"])]
                self.convs += [conv(width, s["width"], 3, f), conv(s["width"], s["width"], 3)]
                self.shorts.append(nn.Identity() if f == 1 and width == s["width"] else conv(width, s["width"], f, f) if f > 1 else conv(width, s["width"], 1))
                self.shape.append(f > 1 or width != s["width"])
                at, width = s["size"], s["width"]
        plan.append((at, width))
        self.norms = nn.ModuleList(RMS(w) for _, w in plan)
        self.sources, self.heads, self.factors, seen = [], nn.ModuleList(), [], {}
        for g, w in plan:
            grid = max([h for h in tower.grids if h <= g], default=0)
            if not grid:
                raise ValueError(f"no features at or below {g}")
            places = [k for k, h in enumerate(tower.grids) if h == grid]
            seen[g] = seen.get(g, 0) + 1
            k = places[min(seen[g] - 1, len(places) - 1)] if per_block else places[-1]
            self.sources.append(k), self.factors.append(g // grid)
            self.heads.append(nn.Sequential(BNAct(tower.widths[k], act), conv(tower.widths[k], w, 1, bias=True)))
        self.width = width

    def forward(self, diff, made):
        c = [head(made[k]) for head, k in zip(self.heads, self.sources)]
        step = lambda k, x: self.norms[k].act(x, self.act, c[k], self.factors[k])
        a = self.entry(diff)
        for j, short in enumerate(self.shorts):
            h = step(2 * j, a)
            a = (short(h) if self.shape[j] else a) + self.convs[2 * j + 1](step(2 * j + 1, self.convs[2 * j](h)))
        return step(2 * len(self.shorts), a)


class Dual(nn.Module):
    """Features of the low band by a tower, plus those of the detail above it: logits = fc(v) + fc'(a), a = 0 where skipped.

    detail: {"form": "dact", stages} or {"form": "diff", stages}: b(r) - b(U low), a whole network of its own.
    """

    def __init__(self, ladder, base, detail, classes=10):
        super().__init__()
        self.ladder = list(ladder)
        n, m = ladder
        self.D, self.U = Resample(perfect(n, m)), Resample(perfect(m, n))
        self.base = Tower(m, base["stages"], base.get("act", "relu"))
        self.form, act = detail.get("form", "dact"), detail.get("act", "relu")
        if self.form == "dact":
            self.detail = Detail(n, detail["stages"], self.base, act, detail.get("per_block", True))
            width = self.detail.width
        else:
            self.detail = Tower(n, detail["stages"], act)
            width = self.detail.widths[-1]
            self.late = BNAct(width, act)
        self.last = BNAct(self.base.widths[-1], base.get("act", "relu"))
        self.fc, self.more = nn.Linear(self.base.widths[-1], classes), nn.Linear(width, classes, bias=False)

    def forward(self, groups, entry=None):
        top, low = groups
        r = None
        if top is not None:
            down = self.D(top)
            r, low = top, down if low is None else torch.cat([down, low])
        made = self.base(low)
        logits = self.fc(self.last(made[-1]).mean((2, 3)))
        if r is None:
            return logits
        k = r.shape[0]
        if self.form == "dact":
            z = self.detail(r - self.U(down), [f[:k] for f in made]).mean((2, 3))
        else:
            y = self.late(self.detail(torch.cat([r, self.U(down)]))[-1]).mean((2, 3))
            z = y[:k] - y[k:]
        more = self.more(z)
        return torch.cat([logits[:k] + more, logits[k:]])


def build(cfg: dict) -> nn.Module:
    kind = cfg.get("kind", "arrn")
    if kind == "arrn":
        return Arrn(cfg["ladder"], cfg["levels"], cfg["base"])
    if kind == "dual":
        return Dual(cfg["ladder"], cfg["base"], cfg["detail"])
    if kind == "gated":
        from gated import Gated

        return Gated(cfg["ladder"], cfg["stems"], cfg["bodies"], cfg["tail"], **cfg.get("net", {}))
    if kind == "resnet":
        return ResNet(cfg["ladder"], **cfg.get("net", {}))
    raise ValueError(f"unknown kind {kind!r}")


def entry_index(ladder, u: int) -> int:
    """The lowest grid of at least u, else the top."""
    fit = [k for k, g in enumerate(ladder) if g >= u]
    return fit[-1] if fit else 0


# ---------------------------------------------------------------- counting
@contextmanager
def counting(model: nn.Module):
    total = [0]

    def conv_hook(mod, args, out):
        total[0] += out.numel() * (mod.in_channels // mod.groups) * mod.kernel_size[0] * mod.kernel_size[1]

    def linear_hook(mod, args, out):
        total[0] += out.numel() * mod.in_features

    def resample_hook(mod, args, out):
        total[0] += mod.macs(args[0])

    hooks = []
    for mod in model.modules():
        if isinstance(mod, nn.Conv2d):
            hooks.append(mod.register_forward_hook(conv_hook))
        elif isinstance(mod, nn.Linear):
            hooks.append(mod.register_forward_hook(linear_hook))
        elif isinstance(mod, Resample):
            hooks.append(mod.register_forward_hook(resample_hook))
    try:
        yield total
    finally:
        for h in hooks:
            h.remove()


@torch.no_grad()
def multiply_adds(model: nn.Module) -> dict[int, float]:
    """Million multiply-adds for an image at each grid of the ladder, projections folded."""
    was, answer = model.training, {}
    device = next(model.parameters()).device
    dtype = next(model.parameters()).dtype
    model.eval()
    for k, g in enumerate(model.ladder):
        groups = [None] * len(model.ladder)
        groups[k] = torch.zeros(1, 3, g, g, device=device, dtype=dtype)
        with counting(model) as total:
            model(groups)
        extra = g * g * 3 * model.levels[k - 1].A.out_channels if isinstance(model, Arrn) and k else 0
        answer[g] = (total[0] + extra) / 1e6
    model.train(was)
    return answer
