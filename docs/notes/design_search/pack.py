"""CIFAR-10 as shards small enough to carry: lossless (three), or one call's worth of JPEG without headers."""
import io, os, sys
from concurrent.futures import ProcessPoolExecutor
import numpy as np
import pyarrow.parquet as pq
from PIL import Image

ROOT = sys.argv[1]  # the folder with CIFAR-10 as parquet files
LIMIT = 36 * 2**20


def table(name):
    xs, ys = [], []
    for f in sorted(os.listdir(ROOT)):
        if f.startswith(name):
            t = pq.read_table(f"{ROOT}/{f}")
            xs += [r["bytes"] for r in t.column("img").to_pylist()]
            ys += t.column("label").to_pylist()
    return xs, np.array(ys, np.uint8)


def save(path, blobs, labels, first, kind, header=b""):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    np.savez(path, bytes=np.frombuffer(b"".join(blobs), np.uint8), lengths=np.array([len(b) for b in blobs], np.uint16),
             labels=labels, first=first, kind=kind, header=np.frombuffer(header, np.uint8))
    print(path, len(blobs), os.path.getsize(path) / 2**20, "MiB", flush=True)


def jpeg(args):
    blob, q = args
    im = Image.open(io.BytesIO(blob)).convert("RGB")
    f = io.BytesIO()
    im.save(f, "JPEG", quality=q, subsampling=0)
    b = f.getvalue()
    k = b.index(b"\xff\xda")
    k += 2 + int.from_bytes(b[k + 2:k + 4], "big")
    back = np.asarray(Image.open(io.BytesIO(b)).convert("RGB"), np.float32)
    return b[:k], b[k:], float(((back - np.asarray(im, np.float32)) ** 2).mean())


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    xs, ys = table("train")
    if "lossless" in sys.argv:
        shard, start, size = 0, 0, 0
        for i in range(len(xs) + 1):
            if i == len(xs) or size + len(xs[i]) + 3 > LIMIT:
                save(f"{here}/shard{shard}/train{shard}.npz", xs[start:i], ys[start:i], start, "webp")
                shard, start, size = shard + 1, i, 0
            if i < len(xs):
                size += len(xs[i]) + 3
        tx, ty = table("test")
        save(f"{here}/shardtest/test.npz", tx, ty, 0, "webp")
    if "one" in sys.argv:
        q = int(sys.argv[sys.argv.index("one") + 1])
        with ProcessPoolExecutor(2) as pool:
            out = list(pool.map(jpeg, [(x, q) for x in xs], chunksize=500))
        assert len({h for h, _, _ in out}) == 1
        print("rmse", np.mean([e for _, _, e in out]) ** 0.5)
        save(f"{here}/one/train0.npz", [b for _, b, _ in out], ys, 0, "jpeg", out[0][0])


main()
