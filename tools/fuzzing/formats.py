"""How files of each format are damaged from within: parsed, something in them changed, put together again.

Each takes the file's bytes, a `Random`, whether checksums are to be valid again, and another file's bytes to splice
with; it returns the new bytes and what was done to them.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch

from fuzzing.mutations import PICKLED, as_json, as_toml, damage, extreme, hostile_text, twist

_DIGEST = re.compile(rb'"[0-9a-f]{64}"')
Mutate = Callable[[bytes, random.Random, bool, bytes], tuple[bytes, str]]

TRANSPLANTS: tuple[tuple[str, Any], ...] = (
    ("name", "timm:eva_giant_patch14_224"),
    ("name", "timm:vit_base_patch16_224"),
    ("name", "timm:efficientnet_l2"),
    ("name", "timm:../../escaped"),
    ("name", "torchvision:vgg16"),
    ("name", "torchvision:get_model"),
    ("name", "timm:"),
    ("skip_first", 1),
    ("form", "difference"),
    ("size", 32),
    ("kernel", "fair"),
    ("dropout", 0.3),
)
"""What the config of a transplanted network of another library may have besides what is in the seed."""

LADDER: tuple[tuple[str, Any], ...] = (
    ("name", "harmful:build"),
    ("name", "os:system"),
    ("name", "arrn.cli:main"),
    ("repeats", 1),
    ("depth", [1, 1]),
    ("expansion", 2.0),
    ("blockless", [6]),
    ("ndim", 2),
    ("kernel", {"name": "fair", "zero_crossings": 6, "beta": 14.7}),
    ("kernel", {"name": "poor", "sigma": 0.5, "radius": 1.0}),
    ("block", "zero_preserving"),
    ("dropout", [0.4]),
    ("block_dropout", 0.1),
    ("name", "arrn_small"),
    ("name", "resnet18"),
    ("window", 1.0),
    ("sizes", [8, 4]),
    ("features", [4, 8]),
    ("num_classes", 3),
    ("in_channels", 3),
)
"""Options that a network's config may have besides those in the seeds."""

DESIGNS: tuple[tuple[str, Any], ...] = (
    ("sizes", [64, 4]),
    ("lift", [8, 8]),
    ("lift", 2.0),
    ("ndim", 3),
    ("width", 4),
    ("threshold", 0.03),
    ("own_repeats", [1, 1]),
    ("base_repeats", 1),
)
"""The same for gated and tied designs."""


def json_file(extra: tuple[tuple[str, Any], ...] = ()) -> Mutate:
    """For a file that is one JSON document; `extra` as in `twist`."""

    def mutate(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
        if rng.random() < 0.15:
            return damage(data, rng, other)
        document, done = twist(json.loads(data), rng, extra)
        return as_json(document, rng), done

    return mutate


def json_lines(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For a log: a document in each line."""
    if rng.random() < 0.3:
        return damage(data, rng, other)
    entries, done = twist([json.loads(line) for line in data.splitlines()], rng)
    lines = [as_json(entry, rng) for entry in entries] if isinstance(entries, list) else [as_json(entries, rng)]
    return b"\n".join(lines) + b"\n", done


def recipe(options: dict[str, Any]) -> Mutate:
    """For a recipe in TOML, some of whose options are to be wrong; what is in the file does not matter."""

    def mutate(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
        if rng.random() < 0.15:
            return damage(data, rng, other)
        some = {name: options[name] for name in rng.sample(sorted(options), rng.randrange(1, 5))}
        document, done = twist(some, rng, [("device", "cpu"), *options.items()])
        return as_toml(document if isinstance(document, dict) else some, rng), done

    return mutate


def _split_safetensors(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header, data[8 + length :]


def _join_safetensors(header: bytes, content: bytes, rng: random.Random) -> bytes:
    length = len(header) if rng.random() < 0.9 else rng.choice((0, 2**31, 2**63, 2**64 - 1, len(header) - 1))
    return struct.pack("<Q", length) + header + content


def _wrong_numbers(header: dict[str, Any], content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Values of one tensor that are no numbers, or far too large."""
    tensors = sorted(name for name in header if name != "__metadata__" and header[name]["dtype"] == "F32")
    name = rng.choice(tensors)
    start, end = header[name]["data_offsets"]
    value = struct.pack("<f", rng.choice((float("nan"), float("inf"), -float("inf"), 3e38, 1e20, 0.0, -1.0)))
    whole = rng.random() < 0.3
    changed = value * ((end - start) // 4) if whole else value + content[start + 4 : end]
    return content[:start] + changed + content[end:], f"{name}{' all' if whole else '[0]'} = {value.hex()}"


def tensors(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For a network's weights; their checksum, in another file, is the caller's to repair."""
    header, content = _split_safetensors(data)
    roll = rng.random()
    if roll < 0.35:
        return damage(data, rng, other)
    if roll < 0.6:
        content, done = _wrong_numbers(header, content, rng)
        return _join_safetensors(json.dumps(header).encode(), content, random.Random(1)), done
    if roll < 0.75:
        content, done = damage(content, rng, other)
        return _join_safetensors(json.dumps(header).encode(), content, rng), done
    document, done = twist(header, rng, [("__metadata__", {"format": "pt"})])
    return _join_safetensors(as_json(document, rng), content, rng), done


def checkpoint(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For a run's checkpoint, whose own checksum is made valid again where the file can still be read."""
    header, content = _split_safetensors(data)
    roll = rng.random()
    if roll < 0.2:
        changed, done = damage(data, rng, other)
    elif roll < 0.4:
        content, done = _wrong_numbers(header, content, rng)
        changed = _join_safetensors(json.dumps(header).encode(), content, random.Random(1))
    elif roll < 0.75:
        facts = json.loads(header["__metadata__"]["facts"])
        document, done = twist(facts, rng)
        header["__metadata__"]["facts"] = as_json(document, rng).decode("utf-8", "replace")
        changed = _join_safetensors(json.dumps(header).encode(), content, rng)
    else:
        document, done = twist(header, rng)
        changed = _join_safetensors(as_json(document, rng), content, rng)
    return (_with_checksum(changed) if repair else changed), done


def _with_checksum(data: bytes) -> bytes:
    from arrn.training.checkpoints import _checksum

    try:
        header, content = _split_safetensors(data)
        metadata = header["__metadata__"]
        metadata["checksum"] = _checksum(safetensors.torch.load(data), metadata["facts"])
        text = json.dumps(header).encode()
    except Exception:  # it is broken beyond what a checksum could hide
        return data
    return struct.pack("<Q", len(text)) + text + content


def npy(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For one array of numpy."""
    if rng.random() < 0.3:
        return damage(data, rng, other)
    end = 10 + struct.unpack("<H", data[8:10])[0]
    text, content = data[10:end].decode().strip(), data[end:]
    shape, dtype = text[text.index("(") : text.index(")") + 1], "'|u1'"
    numbers = [int(part) for part in shape.strip("(),").split(",")]
    numbers[rng.randrange(len(numbers))] = extreme(rng, 8)
    ways = {
        "shape": text.replace(shape, str(tuple(numbers))),
        "axes": text.replace(shape, str(tuple(rng.choice(([], [8] * 40, [0, 8, 8], [2**40, 0], [1, *numbers]))))),
        "type": text.replace(dtype, repr(rng.choice(("|O", "<f8", "<U100000000", "|V0", "<M8[ns]", "x" * 9999)))),
        "literal": text.replace(shape, rng.choice(("(" * 5000, "__import__('os').system('touch CANARY')", "9**9**9"))),
        "keys": rng.choice(("{}", "[]", "", "{'descr': '|u1'}", text[:-3], text.replace("False", "True"))),
        "name": text.replace("descr", hostile_text(rng)),
    }
    done = rng.choice(sorted(ways))
    if "'|O'" in ways[done]:
        content = PICKLED
    changed = ways[done].encode("utf-8", "replace") + b"\n"
    length = struct.pack("<I", len(changed))
    version = b"\x01\x00" if len(changed) < 2**16 else b"\x02\x00"
    return data[:6] + version + (
        length[:2] if version[0] == 1 else length
    ) + changed + content, f"{done}: {changed!r:.80}"


def npz(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For a zip of arrays: written anew, with its CRCs, or damaged as it is."""
    if not repair or rng.random() < 0.1:
        return wrong_zip(data, rng) if rng.random() < 0.4 else damage(data, rng, other)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    chosen = rng.randrange(len(members))
    name, content = members[chosen]
    roll = rng.random()
    if roll < 0.35:
        labels = next(n for n, (name, _) in enumerate(members) if "labels" in name)
        chosen, name = labels, members[labels][0]
        content, done = _wrong_labels(rng)
    elif roll < 0.7:
        content, done = npy(content, rng, repair, other)
    elif roll < 0.85:
        content, done = damage(content, rng, other)
    elif roll < 0.95:
        renamed = rng.choice((hostile_text(rng).replace("\0", "")[:60000], members[0][0], name.replace(".npy", "")))
        name, done = renamed.encode("utf-8", "replace").decode() or "x", f"{name} renamed to {renamed!r:.40}"
    else:
        return _bomb(members, chosen)
    members[chosen] = (name, content)
    return zipped(members, rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))), f"{name}: {done}"


def zipped(members: list[tuple[str, bytes]], how: int) -> bytes:
    """A zip of members with those names, whatever they are; `how` it is compressed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive, warnings.catch_warnings(action="ignore"):  # of names used twice
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = how
            archive.writestr(info, content)
    return file.getvalue()


def _wrong_labels(rng: random.Random) -> tuple[bytes, str]:
    labels = np.array([0, 1, 2] * 4, dtype=rng.choice((np.int64, np.uint8, np.uint64, np.int32, np.float64)))
    value = rng.choice((10**9, 2**31 - 1, 2**62, 10**6, 255, -1, 3, 100))
    with np.errstate(all="ignore"):
        labels[rng.randrange(12)] = np.array(value % 2**32).astype(labels.dtype)
    labels = rng.choice((labels, labels[:, None], labels[:5], labels.reshape(3, 4)))
    file = io.BytesIO()
    np.save(file, labels)
    return file.getvalue(), f"labels of {labels.dtype}, shape {labels.shape}, up to {labels.max()}"


def wrong_zip(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """A size, an offset or a method in the zip's own tables."""
    starts = [n for n in range(len(data) - 4) if data[n : n + 4] in (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06")]
    place = rng.choice(starts) + rng.randrange(4, 46)
    value = rng.choice((b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", rng.randbytes(2), b"\x63\0"))
    return data[:place] + value + data[place + len(value) :], f"{value.hex()} at byte {place} of the zip"


def _bomb(members: list[tuple[str, bytes]], chosen: int) -> tuple[bytes, str]:
    """An array of 4 GB of zeros in 4 MB: blocks of a megabyte, flushed, so that they can be repeated."""
    megabyte, count = bytes(1 << 20), 4096
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(megabyte) + packer.flush(zlib.Z_FULL_FLUSH)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (12, (count << 20) // 144, 12)}
    )
    start = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = start.compress(header.getvalue()) + start.flush(zlib.Z_FULL_FLUSH) + block * count + b"\x03\x00"
    total = len(header.getvalue()) + (count << 20)
    name = members[chosen][0]
    content = zipped([(name, b""), *members[:chosen], *members[chosen + 1 :]], zipfile.ZIP_DEFLATED)
    # The first, empty, member's header says how long it is; the data go after it, and the table is moved along.
    head = bytearray(content[: 30 + len(name)])
    struct.pack_into("<III", head, 14, 0, len(packed), total & 0xFFFFFFFF)
    rest = bytearray(content[30 + len(name) + struct.unpack_from("<I", content, 18)[0] :])
    moved = len(head) + len(packed) - (len(content) - len(rest))
    at = rest.find(b"PK\x01\x02")
    first = at
    while rest[at : at + 4] == b"PK\x01\x02":
        sizes = struct.unpack_from("<HHH", rest, at + 28)
        if at == first:
            struct.pack_into("<III", rest, at + 16, 0, len(packed), total & 0xFFFFFFFF)
        else:
            struct.pack_into("<I", rest, at + 42, struct.unpack_from("<I", rest, at + 42)[0] + moved)
        at += 46 + sum(sizes)
    struct.pack_into("<I", rest, at + 16, struct.unpack_from("<I", rest, at + 16)[0] + moved)
    return bytes(head) + packed + bytes(rest), f"{name} is a bomb"


def wav(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For sound: a field of its header, a chunk, a length."""
    if rng.random() < 0.3:
        return damage(data, rng, other)
    fields = {"format": (20, "H"), "channels": (22, "H"), "rate": (24, "I"), "bytes a second": (28, "I")}
    fields |= {"block": (32, "H"), "bits": (34, "H"), "length of fmt": (16, "I"), "length of all": (4, "I")}
    place = data.find(b"data", 12)
    fields |= {"length of data": (place + 4, "I")}
    changed = bytearray(data)
    done = []
    for name in rng.sample(sorted(fields), rng.choice((1, 1, 2, 3))):
        at, letter = fields[name]
        bits = 8 * struct.calcsize(letter)
        value = rng.choice((0, 1, 2, 3, 7, 24, 100, 44100, 2 ** (bits - 1) - 1, 2**bits - 1, 2**bits - 2))
        struct.pack_into("<" + letter, changed, at, value % 2**bits)
        done.append(f"{name} is {value % 2**bits}")
    if rng.random() < 0.3:
        del changed[rng.randrange(44, len(changed)) :]
        done.append(f"cut to {len(changed)} bytes")
    if rng.random() < 0.2:
        changed[12:12] = b"LIST" + struct.pack("<I", rng.choice((0, 4, 2**31, 2**32 - 1))) + b"INFO"
        done.append("a chunk before fmt")
    return bytes(changed), "; ".join(done)


def png(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For PNG: its chunks, whose CRCs are made valid again."""
    if rng.random() < 0.2:
        return damage(data, rng, other)
    chunks, place = [], 8
    while place < len(data):
        (length,) = struct.unpack_from(">I", data, place)
        chunks.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + length]))
        place += 12 + length
    chosen = rng.randrange(len(chunks))
    kind, content = chunks[chosen]
    way = rng.choice(("size", "size", "mode", "damage", "damage", "order", "repeat", "text", "pixels"))
    if way in ("size", "mode"):
        header = bytearray(chunks[0][1])
        if way == "size":
            sides = [rng.choice((0, 1, 8, 4000, 9400, 20_000, 2**31 - 1, 2**32 - 1)) for _ in range(2)]
            struct.pack_into(">II", header, 0, *sides)
        else:
            header[8:13] = bytes(rng.choice((0, 1, 2, 3, 4, 6, 8, 16, 255)) for _ in range(5))
        chunks[0] = (b"IHDR", bytes(header))
    elif way == "damage":
        chunks[chosen] = (kind, damage(content, rng, other)[0][: 2**31 - 1])
    elif way == "order":
        rng.shuffle(chunks)
    elif way == "repeat":
        chunks[chosen:chosen] = [chunks[chosen]] * rng.choice((1, 2, 2000))
    elif way == "text":
        bomb = zlib.compress(bytes(rng.choice((10, 10**7, 10**8))), 9)
        name = rng.choice((b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"tEXt"))
        chunks.insert(1, (name, b"a\0\0" + (b"\0\0" if name == b"iTXt" else b"") + bomb))
    else:  # as many pixels as it says: a picture that is large in earnest
        side = rng.choice((3000, 6000, 9400))
        pixels = zlib.compress(bytes(side * (1 + 3 * side)), 1)
        chunks = [(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)), (b"IDAT", pixels), (b"IEND", b"")]
        way = f"{side}x{side} pixels"
    right = repair or rng.random() < 0.5
    return data[:8] + b"".join(_chunk(*chunk, right) for chunk in chunks), f"{way} of {kind!r}"


def _chunk(kind: bytes, content: bytes, right: bool) -> bytes:
    crc = zlib.crc32(kind + content) if right else 0
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)


def picture(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For any other format of images: bytes, and the sides of a JPEG."""
    if data[:2] == b"\xff\xd8" and rng.random() < 0.3:
        place = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
        sides = [rng.choice((0, 1, 8, 5000, 9400, 20_000, 65_535)) for _ in range(2)]
        return data[: place + 5] + struct.pack(">HH", *sides) + data[place + 9 :], f"its sides are {sides}"
    return damage(data, rng, other)


IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def parquet(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For a table of samples: damaged as it is, or written anew with something wrong in it."""
    if not repair:
        return damage(data, rng, other)
    table = pq.read_table(io.BytesIO(data), use_threads=False)
    samples, label = table.column_names
    rows, labels = table.column(samples).to_pylist(), table.column(label).to_pylist()
    metadata = {key: value for key, value in (table.schema.metadata or {}).items() if key == b"huggingface"}
    way = rng.choice(("labels", "labels", "metadata", "metadata", "metadata", "samples", "types", "pickle", "none"))
    kinds: tuple[Any, Any] = (IMAGE_TYPE, pa.int64())
    done = way
    if way == "labels":
        labels[rng.randrange(len(labels))] = rng.choice((-1, -2, 10**9, 2**31, 2**63 - 1, -(2**63), None, len(labels)))
        metadata = metadata if rng.random() < 0.5 else {}
    elif way == "metadata" and metadata:
        document, done = twist(json.loads(metadata[b"huggingface"]), rng)
        metadata[b"huggingface"] = as_json(document, rng)
    elif way == "samples":
        place = rng.randrange(len(rows))
        content, done = damage(rows[place]["bytes"], rng, other)
        rows[place] = rng.choice(({"bytes": content, "path": hostile_text(rng).replace("\ud800", "")}, None))
    elif way == "types":
        kinds = rng.choice(((IMAGE_TYPE, pa.float64()), (IMAGE_TYPE, pa.string()), (IMAGE_TYPE, pa.uint64())))
        labels = [str(value) for value in labels] if kinds[1] == pa.string() else labels
    elif way == "none":
        rows, labels = [], []
    fields = [pa.field(samples, kinds[0]), pa.field(label, kinds[1])]
    if way == "pickle":  # what pyarrow once unpickled
        harm = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": PICKLED}
        fields[1] = fields[1].with_metadata(harm)
    arrays = [pa.array(rows, kinds[0]), pa.array(labels, kinds[1])]
    file = io.BytesIO()
    pq.write_table(pa.table(arrays, schema=pa.schema(fields, metadata=metadata or None)), file, row_group_size=5)
    content = file.getvalue()
    if rng.random() < 0.15:
        content, more = damage(content, rng, other)
        done = f"{done}; {more}"
    return content, done


def repair_manifest(folder: Path) -> None:
    """Makes the sizes and checksums of the files that an export's manifest names valid again."""
    manifest = folder / "manifest.json"
    document = json.loads(manifest.read_text())
    for entry in (*(level["exported"] for level in document["levels"]), document["all_levels"], document["resampling"]):
        file = folder / entry["file"]
        if file.is_file() and file.stat().st_size < 1 << 28:
            entry |= {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    manifest.write_text(json.dumps(document))


def repair_weights(folder: Path) -> None:
    """Makes the checksum of the weights in a network's config valid again, where it has one."""
    config, weights = folder / "config.json", folder / "model.safetensors"
    if not (config.is_file() and weights.is_file() and weights.stat().st_size < 1 << 28):
        return
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    config.write_bytes(_DIGEST.sub(f'"{digest}"'.encode(), config.read_bytes()))
