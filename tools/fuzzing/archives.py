"""Archives of samples: the zip of a published set, and tar files of shards."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile

from fuzzing.formats import wrong_zip, zipped
from fuzzing.mutations import damage, extreme, hostile_text


def published_zip(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For a zip of a published data set: its lists, its images, its names; or the zip itself."""
    if not repair:
        return wrong_zip(data, rng) if rng.random() < 0.5 else damage(data, rng, other)
    with zipfile.ZipFile(io.BytesIO(data)) as held:
        members = [(name, held.read(name)) for name in held.namelist()]
    texts = [n for n, (name, _) in enumerate(members) if name.endswith(".txt")]
    chosen = rng.choice(texts) if rng.random() < 0.4 else rng.randrange(len(members))
    name, content = members[chosen]
    roll = rng.random()
    if roll < 0.4:
        content, done = damage(content, rng, other)
    elif roll < 0.6:
        lines = content.decode("latin-1").splitlines() or [""]
        lines[rng.randrange(len(lines))] = hostile_text(rng)
        content, done = "\n".join(lines).encode("utf-8", "replace"), "a hostile line"
    elif roll < 0.9:
        name, done = rng.choice((hostile_text(rng).replace("\0", "")[:60_000], f"../{name}", f"/{name}")), "renamed"
        name = name.encode("utf-8", "replace").decode()
    else:
        members += [(f"tiny-imagenet-200/train/n{number:08}/images/x.JPEG", b"") for number in range(3000)]
        done = "3,000 empty images"
    members[chosen] = (name, content)
    return zipped(members, rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))), f"{name[:80]}: {done}"


_KINDS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE)


def tar(data: bytes, rng: random.Random, repair: bool, other: bytes) -> tuple[bytes, str]:
    """For a shard: its members, written anew with headers that are right in themselves, or the file as it is."""
    if not repair:
        return damage(data, rng, other)
    with tarfile.open(fileobj=io.BytesIO(data)) as held:
        members = [(member, held.extractfile(member)) for member in held]
        contents = [(member, b"" if file is None else file.read()) for member, file in members]
    labels = [n for n, (member, _) in enumerate(contents) if not member.name.endswith(".png")]
    chosen = rng.choice(labels) if rng.random() < 0.4 else rng.randrange(len(contents))
    member, content = contents[chosen]
    way = rng.choice(("content", "content", "label", "label", "name", "kind", "size", "many"))
    if way == "content":
        content, way = damage(content, rng, other)
    elif way == "label":
        value = rng.choice((extreme(rng, 1), hostile_text(rng), [1], {"label": extreme(rng, 1)}, "1" * 5000))
        content = str(value).encode("utf-8", "replace")
    elif way == "name":
        member.name = rng.choice(
            (hostile_text(rng)[:3000], "", "..", f"../../{member.name}", "/" + member.name, ".png")
        )
    elif way == "kind":
        member.type, member.linkname = rng.choice(_KINDS), rng.choice(("..", "/etc/passwd", member.name, ""))
    elif way == "many":
        contents += [(_empty(f"{n}.cls"), b"") for n in range(5000)]
    contents[chosen] = (member, content)
    text = b""
    for number, (each, bytes_of) in enumerate(contents):
        each.size = len(bytes_of)
        if way == "size" and number == chosen:
            each.size = rng.choice((0, 1, 2**31, 2**33 - 1, 2**60, len(bytes_of) + 512, 10**9))
        try:
            text += each.tobuf(rng.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)), "utf-8", "surrogateescape")
        except (UnicodeEncodeError, ValueError):
            text += _empty("x").tobuf()
        text += bytes_of + bytes(-len(bytes_of) % 512)
    return text + bytes(1024), f"{way[:80]} of {member.name!r:.40}"


def _empty(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)
