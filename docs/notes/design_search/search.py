"""A design search on CIFAR-10: queue of configs in, results.jsonl and a table out. See README.md."""
from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import glob
import io
import json
import math
import os
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import fused  # noqa: E402
import models  # noqa: E402
from models import build, entry_index, lowering, multiply_adds  # noqa: E402

SIZES = (32, 24, 16, 12, 8, 6, 4)
BETWEEN = (28, 20, 18, 17, 14, 10, 9, 7, 5)  # never trained on
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
SHARES = {
    "even": {u: 1 / 7 for u in SIZES},
    "now": {32: 0.19, 24: 0.13, 16: 0.13, 12: 0.12, 8: 0.15, 6: 0.14, 4: 0.14},
    "top40": {32: 0.40, 24: 0.10, 16: 0.16, 12: 0.10, 8: 0.14, 6: 0.06, 4: 0.04},
    "top55": {32: 0.55, 24: 0.07, 16: 0.13, 12: 0.07, 8: 0.11, 6: 0.04, 4: 0.03},
}
TRAIN = {
    "epochs": 20, "batch": 512, "opt": "sgd", "lr": 0.3, "wd": 5e-4, "momentum": 0.9, "warmup": 2.0, "smoothing": 0.0, "ema": 0.995,
    "shares": "top40", "shares_end": None, "shares_from": 0.5, "phases": 3, "paired": False, "top": {"32": 0.8, "24": 0.2}, "kd": 1.0, "temperature": 2.0,
    "cutout": 0, "cutmix": {}, "weights": {}, "seed": 0, "betas": [0.9, 0.99], "clip": 0.0,
}


# ---------------------------------------------------------------- data
def decode_chunk(args):
    from PIL import Image

    blobs, header = args
    return np.stack([np.asarray(Image.open(io.BytesIO(header + b)).convert("RGB"), np.uint8).transpose(2, 0, 1) for b in blobs])


def prepare(data: str, workers: int) -> None:
    """Packed shards in `data` to train_x.npy, train_y.npy; does nothing if they are there."""
    if os.path.exists(f"{data}/train_y.npy"):
        return
    from concurrent.futures import ProcessPoolExecutor

    start = time.time()
    paths = sorted(glob.glob(f"{data}/train*.npz"))
    if not paths:
        raise SystemExit(f"no shards in {data}: stage.sh first")
    shards = sorted((np.load(p) for p in paths), key=lambda s: int(s["first"]))
    jobs, labels, at = [], [], 0
    for s in shards:
        if int(s["first"]) != at:
            raise SystemExit(f"a shard is missing: have {at} images, the next starts at {int(s['first'])}")
        raw, ends, header = s["bytes"].tobytes(), np.cumsum(s["lengths"].astype(np.int64)), s["header"].tobytes()
        begins = np.concatenate([[0], ends[:-1]])
        blobs = [raw[a:b] for a, b in zip(begins, ends)]
        jobs += [(blobs[k : k + 1000], header) for k in range(0, len(blobs), 1000)]
        labels.append(s["labels"])
        at += len(blobs)
    if at != 50000:
        raise SystemExit(f"only {at} of 50000 images are staged in {data}")
    with ProcessPoolExecutor(workers) as pool:
        x = np.concatenate(list(pool.map(decode_chunk, jobs)))
    np.save(f"{data}/train_x.npy", x)
    np.save(f"{data}/train_y.npy", np.concatenate(labels).astype(np.int64))
    print(f"decoded {at} images from {len(paths)} shards in {time.time() - start:.1f} s", flush=True)


class Data:
    """CIFAR-10 on the device: training images padded by 4 with the mean colour, held-out images normalised."""

    def __init__(self, folder: str, device: torch.device, images: int = 0, held: int = 0) -> None:
        x, y = np.load(f"{folder}/train_x.npy", mmap_mode="r"), np.load(f"{folder}/train_y.npy")
        order = np.random.RandomState(0).permutation(len(x))
        train, val = order[:-5000], order[-5000:]
        if images:
            train, val = train[:images], val[:held]
        full = torch.from_numpy(np.ascontiguousarray(x[:])) if not images else None
        pick = lambda i: (full[torch.from_numpy(i)] if full is not None else torch.from_numpy(x[np.sort(i)]))
        train, val = (train, val) if not images else (np.sort(train), np.sort(val))
        padded = torch.tensor([round(255 * m) for m in MEAN], dtype=torch.uint8).view(1, 3, 1, 1).repeat(len(train), 1, 40, 40)
        padded[:, :, 4:-4, 4:-4] = pick(train)
        self.x = padded.to(device)
        self.y = torch.from_numpy(y[train]).to(device)
        self.mean = torch.tensor(MEAN, device=device).mul(255)
        self.inv = 1 / (torch.tensor(STD, device=device) * 255)
        v = pick(val).to(device).permute(0, 2, 3, 1).float()
        self.vx = ((v - self.mean) * self.inv).permute(0, 3, 1, 2)
        self.vy = torch.from_numpy(y[val]).to(device)
        self.n = len(train)


def lower(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """x on the grid of a's columns to that of its rows, both axes; channels last."""
    y = torch.matmul(torch.matmul(a, x.contiguous()), a.t())
    return y.contiguous(memory_format=torch.channels_last)


# ---------------------------------------------------------------- training
def shares_of(spec) -> dict[int, float]:
    s = SHARES[spec] if isinstance(spec, str) else {int(k): float(v) for k, v in spec.items()}
    total = sum(s.values())
    return {u: s[u] / total for u in sorted(s, reverse=True) if s[u] > 0}


def counts_of(shares: dict[int, float], batch: int) -> dict[int, int]:
    """Whole numbers that add up to the batch (largest remainders); none of at least 1% is left without a sample."""
    raw = {u: s * batch for u, s in shares.items()}
    out = {u: max(int(v), 1 if shares[u] >= 0.01 else 0) for u, v in raw.items()}
    for u in sorted(raw, key=lambda u: out[u] - raw[u])[: max(0, batch - sum(out.values()))]:
        out[u] += 1
    while sum(out.values()) > batch:
        u = max(out, key=out.get)
        out[u] -= 1
    return {u: k for u, k in out.items() if k}


class Trainer:
    def __init__(self, cfg: dict, data: Data, device: torch.device, compiled: bool = False, capture: bool = True, fuse: bool = True) -> None:
        self.cfg, self.data, self.device = cfg, data, device
        unknown = set(cfg.get("train", {})) - set(TRAIN)
        if unknown:
            raise ValueError(f"unknown training options {sorted(unknown)}")
        self.t = t = {**TRAIN, **cfg.get("train", {})}
        self.cuda = device.type == "cuda"
        self.capture = capture and self.cuda
        torch.manual_seed(t["seed"])
        models.CTX["fused"] = fuse and not compiled
        self.model = build(cfg).to(device)
        for p in self.model.parameters():
            if p.ndim == 4:
                p.data = p.data.contiguous(memory_format=torch.channels_last)
        self.ladder = self.model.ladder
        self.batch = min(t["batch"], data.n)
        self.count = self.batch // 2 if t["paired"] else self.batch  # images of a step; paired: each at two resolutions
        self.steps = data.n // self.count
        self.total = self.steps * t["epochs"]
        n = self.steps * self.count
        self.gen = torch.Generator(device)
        self.gen.manual_seed(1000 + t["seed"])
        ints = lambda: torch.zeros(n, dtype=torch.int64, device=device)
        self.idx, self.dy, self.dx, self.cy, self.cx = ints(), ints(), ints(), ints(), ints()
        self.flip = torch.zeros(n, dtype=torch.bool, device=device)
        self.side, self.chance = torch.zeros(n, device=device), torch.zeros(n, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)  # step of the epoch
        self.now = torch.zeros(1, dtype=torch.int64, device=device)  # step of the run
        self.arange = torch.arange(self.batch, device=device)
        # Paired: row r of the upper half is image r; the lower half holds the same images in another order, so that no
        # resolution above goes with one below.
        again = (torch.arange(self.count) + 3 * self.count // 8) % self.count
        self.twin = torch.cat([torch.arange(self.count), again]).to(device) if t["paired"] else None
        self.span = torch.arange(32, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.losses = torch.zeros(t["epochs"], device=device)
        warm = max(1, round(t["warmup"] * self.steps))
        rate = lambda s: t["lr"] * (min(1.0, (s + 1) / warm) if s < warm else 0.5 * (1 + math.cos(math.pi * (s - warm) / max(1, self.total - warm))))
        self.rates = [rate(s) for s in range(self.total)]
        self.rate_table = torch.tensor(self.rates, device=device)
        self.lr = torch.tensor(self.rates[0], device=device) if self.cuda else self.rates[0]
        norms = {id(p) for m in self.model.modules() if isinstance(m, (models.BNAct, models.RMS)) for p in m.parameters()}
        norms |= {id(p) for name, p in self.model.named_parameters() if name.endswith("bias")}
        self.params = list(self.model.parameters())
        groups = [{"params": [p for p in self.params if id(p) not in norms], "weight_decay": t["wd"]},
                  {"params": [p for p in self.params if id(p) in norms], "weight_decay": 0.0}]
        if t["opt"] == "sgd":
            self.opt = torch.optim.SGD(groups, lr=self.lr, momentum=t["momentum"], nesterov=True, fused=self.cuda or None)
        elif t["opt"] == "adamw":
            self.opt = torch.optim.AdamW(groups, lr=self.lr, betas=tuple(t["betas"]), fused=self.cuda or None, capturable=self.cuda)
            self.opt._warned_capturable_if_run_uncaptured = True
        else:
            raise ValueError(f"unknown optimizer {t['opt']!r}")
        self.tracked = self.params + [b for b in self.model.buffers() if b.is_floating_point()]
        self.ema = [p.detach().clone() for p in self.tracked]
        self.net = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.operators: dict[tuple[int, int], torch.Tensor] = {}
        self.set_counts(shares_of(t["shares"]))
        self.note = ""

    def operator(self, u: int, g: int) -> torch.Tensor:
        if (u, g) not in self.operators:
            self.operators[u, g] = torch.from_numpy(lowering(32, u, g)).float().to(self.device)
        return self.operators[u, g]

    def set_counts(self, shares: dict[int, float]) -> None:
        """How many samples of a batch come at each resolution: slices of the batch, sorted by entry."""
        t = self.t
        if t["paired"]:
            top = shares_of(t["top"])
            lows = {u: s for u, s in shares.items() if u not in top}
            total = sum(lows.values())
            counts = {**counts_of(top, self.count), **counts_of({u: s / total for u, s in lows.items()}, self.count)}
        else:
            counts = counts_of(shares, self.batch)
        self.counts, self.parts, a = counts, [[] for _ in self.ladder], 0
        weights, mixed = torch.ones(self.batch), torch.zeros(self.batch)
        # A group's samples must be together: resolutions in falling order enter in the order of the ladder.
        for u in sorted(counts, reverse=True):
            k = entry_index(self.ladder, u)
            self.parts[k].append((u, a, a + counts[u]))
            weights[a : a + counts[u]] = float(t["weights"].get(str(u), 1.0))
            mixed[a : a + counts[u]] = float(t["cutmix"].get(str(u), t["cutmix"].get("all", 0.0)))
            if not (u >= 32 and self.ladder[k] == 32):
                self.operator(min(u, 32), self.ladder[k])
            a += counts[u]
        assert a == self.batch, (a, self.batch)
        self.mixed = mixed.to(self.device) if t["cutmix"] else None
        self.sample_weights = (weights / weights.mean()).to(self.device) if t["weights"] else None

    def shares_at(self, phase: int) -> dict[int, float]:
        t, a = self.t, shares_of(self.t["shares"])
        if not t["shares_end"]:
            return a
        b, f = shares_of(t["shares_end"]), phase / t["phases"]
        return {u: (1 - f) * a.get(u, 0.0) + f * b.get(u, 0.0) for u in sorted({*a, *b}, reverse=True)}

    def phase_of(self, epoch: int) -> int:
        t = self.t
        if not t["shares_end"]:
            return 0
        done = epoch / t["epochs"]
        if done < t["shares_from"]:
            return 0
        return min(t["phases"], 1 + int((done - t["shares_from"]) / (1 - t["shares_from"]) * t["phases"]))

    def new_epoch(self) -> None:
        n, g, d = len(self.idx), self.gen, self.device
        self.idx.copy_(torch.randperm(self.data.n, generator=g, device=d)[:n])
        self.dy.random_(0, 9, generator=g), self.dx.random_(0, 9, generator=g)
        self.flip.copy_(torch.rand(n, generator=g, device=d) < 0.5)
        self.cy.random_(0, 32, generator=g), self.cx.random_(0, 32, generator=g)
        self.side.copy_(torch.rand(n, generator=g, device=d).sqrt()), self.chance.copy_(torch.rand(n, generator=g, device=d))
        self.at.zero_()

    @torch.no_grad()
    def images(self) -> tuple[list[torch.Tensor | None], torch.Tensor]:
        where = self.arange + self.at * self.batch if self.twin is None else self.twin + self.at * self.count
        idx, dy, dx, flip = self.idx[where], self.dy[where], self.dx[where], self.flip[where]
        rows = dy[:, None] + self.span
        cols = dx[:, None] + torch.where(flip[:, None], 31 - self.span, self.span)
        x = self.data.x[idx[:, None, None], :, rows[:, :, None], cols[:, None, :]]  # B H W C
        x = (x.float() - self.data.mean) * self.data.inv
        if self.t["cutout"]:
            half = self.t["cutout"] / 2
            far = lambda c: (self.span - c[where][:, None] + 0.5).abs() > half
            x = x * (far(self.cy)[:, :, None] | far(self.cx)[:, None, :])[..., None]
        labels = self.data.y[idx]
        share = None
        if self.mixed is not None:  # a box of each image comes from its neighbour in the batch, which enters elsewhere as itself
            half = torch.where(self.chance[where] < self.mixed, self.side[where] * 16, 0.0)
            near = lambda c: (self.span - c[where][:, None] + 0.5).abs() < half[:, None]
            box = near(self.cy)[:, :, None] & near(self.cx)[:, None, :]
            x = torch.where(box[..., None], x.roll(1, 0), x)
            share = 1 - box.float().mean((1, 2))
        x = x.permute(0, 3, 1, 2)
        groups: list[torch.Tensor | None] = []
        for k, parts in enumerate(self.parts):
            made = [x[a:b] if u >= 32 and self.ladder[k] == 32 else lower(x[a:b], self.operator(u, self.ladder[k])) for u, a, b in parts]
            groups.append(torch.cat(made) if len(made) > 1 else made[0] if made else None)
        return groups, labels, share

    def step(self) -> None:
        t = self.t
        self.opt.zero_grad(set_to_none=True)
        groups, labels, share = self.images()
        with self.autocast():
            logits = self.net(groups)
        logits = logits.float()
        if share is not None:
            each = lambda y: F.cross_entropy(logits, y, label_smoothing=t["smoothing"], reduction="none")
            loss = (share * each(labels) + (1 - share) * each(labels.roll(1))).mul(1.0 if self.sample_weights is None else self.sample_weights).mean()
        elif self.sample_weights is None:
            loss = F.cross_entropy(logits, labels, label_smoothing=t["smoothing"])
        else:
            loss = (F.cross_entropy(logits, labels, label_smoothing=t["smoothing"], reduction="none") * self.sample_weights).mean()
        total = loss
        if t["paired"] and t["kd"]:
            half, T = self.count, t["temperature"]
            goal = F.log_softmax(logits.detach()[self.twin[half:]] / T, 1)
            total = loss + t["kd"] * T * T * 0.5 * F.kl_div(F.log_softmax(logits[half:] / T, 1), goal, log_target=True, reduction="batchmean")
        total.backward()
        with torch.no_grad():
            if t["clip"]:
                torch.nn.utils.clip_grad_norm_(self.params, t["clip"], foreach=True)
            if self.cuda:
                self.lr.copy_(self.rate_table.index_select(0, self.now)[0])
            else:
                for group in self.opt.param_groups:
                    group["lr"] = self.rates[int(self.now)]
            self.opt.step()
            if t["ema"]:
                torch._foreach_lerp_(self.ema, self.tracked, 1 - t["ema"])
            self.loss_sum.add_(loss.detach())
            self.at.add_(1)
            self.now.add_(1)

    @contextlib.contextmanager
    def autocast(self):
        models.CTX["autocast"] = self.cuda
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.cuda):
                yield
        finally:
            models.CTX["autocast"] = False

    def record(self):
        """The step as a CUDA graph, or None (and why, printed)."""
        if not self.capture:
            return None
        graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        before = generator.clone_state()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
                self.step()
            return graph
        except Exception as error:  # noqa: BLE001
            generator.graphsafe_set_state(before)
            self.note = f"not captured: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
            print(self.note, flush=True)
            self.opt.zero_grad(set_to_none=True)
            self.capture = False
            torch.cuda.synchronize()
            return None

    def train(self, deadline: float = math.inf, log=print) -> dict:
        t = self.t
        if self.cuda:
            # Everything happens on one stream that is not the default one: capture needs that, autograd remembers it.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            torch.cuda.set_stream(stream)
        self.model.train()
        graph, phase, begun, seconds = None, -1, time.time(), []
        for epoch in range(t["epochs"]):
            start = time.time()
            self.new_epoch()
            left = self.steps
            if self.phase_of(epoch) != phase:
                phase, graph = self.phase_of(epoch), None
                self.set_counts(self.shares_at(phase))
                for _ in range(min(3, left)):  # ordinary steps of the training: they warm up what capture must find made
                    self.step()
                    left -= 1
                if left:
                    graph = self.record()
                if self.cuda:
                    torch.cuda.synchronize()
                log(f"phase {phase}: {self.counts}, ready after {time.time() - begun:.1f} s, {'captured' if graph else 'eager'}")
            for _ in range(left):
                graph.replay() if graph is not None else self.step()
            self.losses[epoch].copy_(self.loss_sum / self.steps)
            self.loss_sum.zero_()
            if self.cuda:
                torch.cuda.synchronize()
            seconds.append(time.time() - start)
            if epoch in (0, 1) or epoch % 5 == 4:
                value = float(self.losses[epoch])
                log(f"epoch {epoch}: loss {value:.4f}, {seconds[-1]:.2f} s")
                if not math.isfinite(value):
                    raise RuntimeError(f"the loss is {value} after epoch {epoch}")
            if epoch >= 1 and time.time() + 0.87 * (t["epochs"] - epoch - 1) * seconds[-1] > deadline:
                raise TimeoutError(f"{t['epochs']} epochs of {seconds[-1]:.1f} s would outlast the time left")
        del graph
        return {"epoch_s": float(np.median(seconds)), "train_s": time.time() - begun, "losses": [round(float(v), 4) for v in self.losses]}

    # ------------------------------------------------------------ evaluation
    def groups_for(self, x: torch.Tensor, u: int, full: bool = False) -> list[torch.Tensor | None]:
        k = 0 if full else entry_index(self.ladder, u)
        groups: list[torch.Tensor | None] = [None] * len(self.ladder)
        g = self.ladder[k]
        groups[k] = x.contiguous(memory_format=torch.channels_last) if u >= 32 and g == 32 else lower(x, torch.from_numpy(lowering(32, u, g)).to(x.dtype).to(x.device))
        return groups

    @torch.no_grad()
    def accuracy(self, sizes=SIZES) -> dict[int, float]:
        self.model.eval()
        answer = {}
        for u in sizes:
            right = torch.zeros((), device=self.device)
            for x, y in zip(self.data.vx.split(1250), self.data.vy.split(1250)):
                with self.autocast():
                    out = self.model(self.groups_for(x, u))
                right += (out.argmax(1) == y).sum()
            answer[u] = 100 * float(right) / len(self.data.vy)
        self.model.train()
        return answer

    @torch.no_grad()
    def law(self, count: int = 32) -> tuple[float, float]:
        """Largest relative difference of adapted and full logits in float32, and how much the top level matters."""
        if isinstance(self.model, models.ResNet) or len(self.ladder) == 1:
            return 0.0, 0.0
        was = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False
        self.model.eval()
        x, worst = self.data.vx[:count], 0.0
        top = self.model(self.groups_for(x, 32))
        scale = (top - top.mean()).norm()
        for u in SIZES[1:]:
            a = self.model(self.groups_for(x, u))
            b = self.model(self.groups_for(x, u, full=True), entry=entry_index(self.ladder, u))
            worst = max(worst, float((a - b).norm() / (b - b.mean()).norm()))
        matters = float((self.model(self.groups_for(x, self.ladder[-1])) - top).norm() / scale)
        torch.backends.cudnn.allow_tf32 = was
        self.model.train()
        return worst, matters

    def with_ema(self, f):
        kept = [p.detach().clone() for p in self.tracked]
        with torch.no_grad():
            torch._foreach_copy_(self.tracked, self.ema)
            answer = f()
            torch._foreach_copy_(self.tracked, kept)
        return answer


def pick_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def set_up(args) -> torch.device:
    device = pick_device()
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = bool(args.benchmark)
    if device.type == "cuda":
        if fused.HAVE and fused.ENABLED and not args.no_fused:
            try:
                worst = fused.self_check(device) if args.check_fused else 0.0
                if args.check_fused:
                    print(f"fused norms agree with torch to {worst:.2g}", flush=True)
            except Exception as error:  # noqa: BLE001
                print(f"fused norms are off: {type(error).__name__}: {str(error)[:300]}", flush=True)
                fused.ENABLED = False
        if args.no_fused:
            fused.ENABLED = False
    return device


def run_one(cfg: dict, args, deadline: float) -> dict:
    started = time.time()
    device = set_up(args)
    data = Data(args.data, device, args.images, args.held)
    trainer = Trainer(cfg, data, device, compiled=args.compile, capture=not args.eager)
    costs = multiply_adds(trainer.model)
    print(cfg["name"], "multiply-adds", {g: round(c, 1) for g, c in costs.items()}, "ready", round(time.time() - started, 1), flush=True)
    if args.max_macs and max(costs.values()) > args.max_macs:
        raise ValueError(f"{max(costs.values()):.0f}M multiply-adds are over the limit {args.max_macs}M")
    result = {"name": cfg["name"], "macs": {str(u): round(costs[trainer.ladder[entry_index(trainer.ladder, u)]], 2) for u in SIZES},
              "params_m": round(sum(p.numel() for p in trainer.params) / 1e6, 3)}
    mean = sum(k * costs[trainer.ladder[entry_index(trainer.ladder, u)]] for u, k in trainer.counts.items()) / trainer.batch
    result["train_macs"] = round(mean, 1)
    result.update(trainer.train(deadline, log=lambda s: print(f"{cfg['name']}: {s}", flush=True)))
    tick = time.time()
    result["acc"] = {str(u): round(a, 2) for u, a in trainer.accuracy().items()}
    if trainer.t["ema"]:
        result["ema_acc"] = {str(u): round(a, 2) for u, a in trainer.with_ema(trainer.accuracy).items()}
        result["between"] = {str(u): round(a, 2) for u, a in trainer.with_ema(lambda: trainer.accuracy(BETWEEN)).items()}
    worst, matters = trainer.law()
    result.update(law=worst, top_matters=round(matters, 3), note=trainer.note, eval_s=round(time.time() - tick, 2),
                  setup_s=round(tick - started - result["train_s"], 2), wall_s=round(time.time() - started, 2))
    if device.type == "cuda":
        result["gpu_gb"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    result["config"] = cfg
    return result


# ---------------------------------------------------------------- the runner
def child(cfg: dict, args, deadline: float, log: str, out: str) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(fd, 1), os.dup2(fd, 2)
    start, code = time.time(), 0
    try:
        result = run_one(cfg, args, deadline)
    except BaseException as error:  # noqa: BLE001
        traceback.print_exc()
        result, code = {"name": cfg.get("name"), "error": f"{type(error).__name__}: {str(error)[:400]}", "wall_s": time.time() - start, "config": cfg}, 1
    with open(out + ".part", "w") as f:
        json.dump(result, f)
    os.rename(out + ".part", out)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # nothing of the parent's is to be cleaned up here


def mean_of(acc: dict[str, float]) -> float:
    return sum(acc.values()) / len(acc)


def table(results: list[dict]) -> str:
    lines = ["{:34s} {:>5s} | {} | {:>5s} | {:>17s} | {:>5s} {:>5s} {:>5s} {:>7s}".format(
        "held-out accuracy, better of raw and EMA", "mean", " ".join(f"{u:>5d}" for u in SIZES), "other", "M mult-adds 32/16/8", "M par", "s/ep", "wall", "law")]
    good = [r for r in results if "acc" in r]
    for r in good:
        e = r.get("ema_acc")
        r["best"] = "ema" if e and mean_of(e) > mean_of(r["acc"]) else "raw"
    pick = lambda r: r["ema_acc"] if r["best"] == "ema" else r["acc"]
    for r in sorted(good, key=lambda r: -mean_of(pick(r))):
        a, other = pick(r), r["acc"] if r["best"] == "ema" else r.get("ema_acc")
        cost = "/".join(f"{r['macs'][u]:.0f}" for u in ("32", "16", "8"))
        lines.append("{:34s} {:5.2f} | {} | {:>5s} | {:>19s} | {:5.2f} {:5.2f} {:5.0f} {:7.0e} {}{}".format(
            r["name"][:34], mean_of(a), " ".join(f"{a[str(u)]:5.1f}" for u in SIZES), f"{mean_of(other):5.2f}" if other else "", cost, r["params_m"],
            r["epoch_s"], r["wall_s"], r["law"], "E " if r["best"] == "ema" else "", r.get("note", "")))
    for r in results:
        if "error" in r:
            lines.append(f"{str(r['name'])[:34]:34s} ERROR {r['error']}")
    return "\n".join(lines)


class Estimate:
    """Seconds a run will take, from those that are done."""

    def __init__(self, first: float) -> None:
        self.first, self.walls = first, []

    def add(self, r: dict) -> None:
        if "acc" in r:
            self.walls.append(r["wall_s"])

    def value(self) -> float:
        # What turns out not to fit gives up by itself after two epochs, so a typical run is what counts.
        return float(np.median(self.walls[-8:])) * 1.15 if len(self.walls) >= 2 else self.first


def start_mps(folder: str) -> None:
    import shutil
    import subprocess

    if shutil.which("nvidia-cuda-mps-control") is None:
        print("no nvidia-cuda-mps-control here", flush=True)
        return
    os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"] = f"{folder}/mps", f"{folder}/mpslog"
    for d in (f"{folder}/mps", f"{folder}/mpslog"):
        os.makedirs(d, exist_ok=True)
    r = subprocess.run(["nvidia-cuda-mps-control", "-d"], capture_output=True, text=True, timeout=20)
    print("mps:", r.returncode, (r.stdout + r.stderr).strip()[:200], flush=True)
    if r.returncode:
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"]


def stop_mps() -> None:
    import subprocess

    if "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        try:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, capture_output=True, timeout=10)
        except Exception as error:  # noqa: BLE001
            print("mps:", error, flush=True)


def run_queue(args) -> None:
    import multiprocessing

    started = args.started
    deadline = started + args.seconds
    prepare(args.data, args.workers)
    context = multiprocessing.get_context("spawn" if args.spawn else "fork")  # this process never touches the GPU
    queue = load_queue(args)
    os.makedirs(args.out, exist_ok=True)
    temp = f"{args.temp}/{os.getpid()}"
    os.makedirs(temp, exist_ok=True)
    if args.mps:
        start_mps(temp)
    waiting, running, results, estimate = list(enumerate(queue)), [], [], Estimate(args.estimate)
    logs, skipped = {}, []

    def save() -> None:
        with open(f"{args.out}/table.txt", "w") as f:
            f.write(table(results) + "\n")

    def reap(item, result) -> None:
        k, cfg, proc, log, out, begun = item
        results.append(result)
        estimate.add(result)
        with open(f"{args.out}/results.jsonl", "a") as f:
            f.write(json.dumps(result) + "\n")
        text = open(log, errors="replace").read() if os.path.exists(log) else ""
        with open(f"{args.out}/logs.txt", "a") as f:
            f.write(f"==== {cfg.get('name')}\n{text[-6000:]}\n")
        save()
        a = result.get("ema_acc") or result.get("acc")
        said = f"mean {mean_of(a):.2f} (ema)  " + " ".join(f"{a[str(u)]:.1f}" for u in SIZES) if a else result["error"][:200]
        print(f"[{time.time() - started:5.0f} s] {cfg.get('name')}: {said}  {result.get('wall_s', 0):.0f} s", flush=True)

    try:
        while waiting or running:
            now = time.time()
            while waiting and len(running) < args.jobs:
                if now + estimate.value() > deadline:
                    skipped += [c.get("name") for _, c in waiting]
                    waiting = []
                    break
                k, cfg = waiting.pop(0)
                log, out = f"{temp}/{k}.log", f"{temp}/{k}.json"
                proc = context.Process(target=child, args=(cfg, args, deadline - 4, log, out))
                proc.start()
                running.append((k, cfg, proc, log, out, time.time()))
                if args.stagger:
                    time.sleep(args.stagger)
            for item in list(running):
                k, cfg, proc, log, out, begun = item
                if os.path.exists(out):
                    proc.join(5)
                    reap(item, json.load(open(out)))
                elif proc.exitcode is not None:
                    time.sleep(0.1)
                    if os.path.exists(out):
                        continue
                    reap(item, {"name": cfg.get("name"), "error": f"died with exit code {proc.exitcode}", "wall_s": time.time() - begun, "config": cfg})
                elif time.time() > deadline:
                    proc.kill()
                    proc.join(5)
                    reap(item, {"name": cfg.get("name"), "error": f"killed at the time limit of {args.seconds} s", "wall_s": time.time() - begun, "config": cfg})
                else:
                    continue
                running.remove(item)
            time.sleep(0.05)
    finally:
        for item in running:
            item[2].kill()
        save()
        if args.mps:
            stop_mps()
    if skipped:
        print("not started for want of time:", ", ".join(map(str, skipped)))
    print(f"{len(results)} runs in {time.time() - started:.0f} s, {args.jobs} at once")
    print(table(results), flush=True)


def load_queue(args) -> list[dict]:
    """A JSON list of configs, or {"common": {...train options}, "runs": [...]}; "same": NAME starts from an earlier config."""
    raw = json.load(open(args.queue))
    common, runs = ({}, raw) if isinstance(raw, list) else (raw.get("common", {}), raw["runs"])
    known, out = {}, []
    for cfg in runs:
        cfg = copy.deepcopy(cfg)
        if "same" in cfg:
            cfg = merge(known[cfg.pop("same")], cfg)
        known[cfg["name"]] = copy.deepcopy(cfg)
        cfg["train"] = {**common, **cfg.get("train", {}), **json.loads(args.train)}
        if not cfg.get("off"):
            out.append(cfg)
    if args.only:
        wanted = args.only.split(",")
        out = [c for c in out if c["name"] in wanted]
    return out[args.skip :]


def merge(a, b):
    """b over a, dicts deeply; a list of dicts is merged by position when lengths agree."""
    if isinstance(a, dict) and isinstance(b, dict):
        return {**copy.deepcopy(a), **{k: merge(a[k], v) if k in a else v for k, v in b.items()}}
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(isinstance(v, dict) for v in a + b):
        return [merge(x, y) for x, y in zip(a, b)]
    return b


# ---------------------------------------------------------------- profile
def profile(args) -> None:
    prepare(args.data, args.workers)
    args.check_fused = True
    device = set_up(args)
    data = Data(args.data, device, args.images, args.held)
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.set_stream(torch.cuda.Stream())
    n = args.profile_steps
    ways = [("eager, torch norms", dict(capture=False, fuse=False)), ("eager, fused norms", dict(capture=False, fuse=True)),
            ("captured, torch norms", dict(fuse=False)), ("captured, fused norms", dict(fuse=True)),
            ("captured, fused, cudnn.benchmark", dict(fuse=True, bench=True))]
    if args.compile:
        ways.append(("captured, compiled", dict(compiled=True)))
    for number, cfg in enumerate(load_queue(args)):
        here = ways if number == 0 else [w for w in ways if w[0] in ("captured, torch norms", "captured, fused norms")]
        for name, way in here:
            way = dict(way)
            start = time.time()
            try:
                torch.backends.cudnn.benchmark = way.pop("bench", False) or bool(args.benchmark)
                tr = Trainer(cfg, data, device, **way)
                tr.model.train()
                tr.new_epoch()
                tr.steps = 10**9
                for _ in range(3):
                    tr.step()
                graph = tr.record()
                go = graph.replay if graph is not None else tr.step
                for _ in range(2):
                    go()
                sync()
                ready = time.time() - start
                tr.at.zero_()
                tick = time.time()
                for _ in range(n):
                    go()
                sync()
                ms = 1e3 * (time.time() - tick) / n
                memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0
                costs = multiply_adds(tr.model)
                mean = sum(k * costs[tr.ladder[entry_index(tr.ladder, u)]] for u, k in tr.counts.items()) / tr.batch
                print(f"{cfg['name']}: {name}: {ms:.2f} ms a step of {tr.batch}, {data.n / tr.batch * ms / 1e3:.2f} s an epoch; ready in {ready:.1f} s, "
                      f"{6 * mean * 1e6 * tr.batch / ms / 1e9:.0f} TFLOP/s, {memory:.1f} GiB, loss {float(tr.loss_sum) / float(tr.now):.3f} {tr.note}", flush=True)
                if device.type == "cuda" and name in ("captured, torch norms", "captured, fused norms") and number == 0:
                    from torch.profiler import ProfilerActivity
                    from torch.profiler import profile as prof

                    tr.at.zero_()
                    with prof(activities=[ProfilerActivity.CUDA]) as p:
                        for _ in range(3):
                            go()
                        sync()
                    rows = [e for e in p.key_averages() if e.self_device_time_total > 0]
                    whole = sum(e.self_device_time_total for e in rows) or 1.0
                    print(f"  GPU busy {whole / 3e3:.2f} ms a step in {sum(e.count for e in rows) // 3} kernels")
                    for e in sorted(rows, key=lambda e: -e.self_device_time_total)[: args.top]:
                        print(f"  {e.self_device_time_total / 3e3:8.3f} ms {100 * e.self_device_time_total / whole:5.1f}% {e.count // 3:5d} x  {e.key[:110]}", flush=True)
            except Exception as error:  # noqa: BLE001
                print(f"{cfg['name']}: {name}: {type(error).__name__}: {str(error)[:500]}", flush=True)
                traceback.print_exc()
            finally:
                tr = graph = go = None
                gc.collect()
                if device.type == "cuda":
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
    torch.backends.cudnn.benchmark = bool(args.benchmark)


def costs_only(args) -> None:
    for cfg in load_queue(args):
        try:
            net = build(cfg)
            c = multiply_adds(net)
            t = {**TRAIN, **cfg["train"]}
            counts = counts_of(shares_of(t["shares"]), t["batch"])
            mean = sum(k * c[net.ladder[entry_index(net.ladder, u)]] for u, k in counts.items()) / t["batch"]
            print(f"{cfg['name']:34s} {sum(p.numel() for p in net.parameters()) / 1e6:6.2f} M parameters; " + "  ".join(f"{g}: {v:.1f}" for g, v in c.items()) + f"; trained at {mean:.0f}")
        except Exception as error:  # noqa: BLE001
            print(f"{cfg['name']:34s} {type(error).__name__}: {error}")


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--queue", default="")
    p.add_argument("--tables", nargs="*", help="results.jsonl of several calls: prints one table")
    p.add_argument("--jobs", type=int, default=4)
    p.add_argument("--seconds", type=float, default=540, help="from the start of this program")
    p.add_argument("--out", default=os.environ.get("OUT", "/tmp/frontier-out"))
    p.add_argument("--data", default="/tmp/cifar")
    p.add_argument("--temp", default="/tmp/frontier")
    p.add_argument("--estimate", type=float, default=45, help="seconds of a run before any is done")
    p.add_argument("--train", default="{}", help="JSON: training options over those of every config")
    p.add_argument("--only", default="", help="names, with commas")
    p.add_argument("--skip", type=int, default=0)
    p.add_argument("--stagger", type=float, default=0.0)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--eager", action="store_true")
    p.add_argument("--no-fused", action="store_true")
    p.add_argument("--check-fused", action="store_true")
    p.add_argument("--benchmark", type=int, default=0, help="cudnn.benchmark")
    p.add_argument("--mps", action="store_true")
    p.add_argument("--spawn", action="store_true")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--workers", type=int, default=16)
    p.add_argument("--images", type=int, default=0, help="rehearsal: so many training images")
    p.add_argument("--held", type=int, default=100)
    p.add_argument("--max-macs", type=float, default=0)
    p.add_argument("--profile", action="store_true")
    p.add_argument("--profile-steps", type=int, default=30)
    p.add_argument("--top", type=int, default=14)
    p.add_argument("--costs", action="store_true")
    args = p.parse_args()
    args.started = time.time()
    if args.tables:
        print(table([json.loads(line) for path in args.tables for line in open(path)]))
    elif args.costs:
        costs_only(args)
    elif args.profile:
        profile(args)
    else:
        run_queue(args)


if __name__ == "__main__":
    main()
