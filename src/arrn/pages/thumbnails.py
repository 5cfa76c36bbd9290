"""Samples as small pictures inside a page: images, the outline of a sound, the middle slice of a volume."""

from __future__ import annotations

import base64
import io

import torch
from PIL import Image

from arrn.pages.markup import Markup, element

_LARGEST = 112  # pixels along the longer side; larger samples are shown smaller
_FEW = 48  # pixels up to which a picture is kept exactly; larger ones are compressed
_COLUMNS = 112  # of the outline of a sound


def thumbnail(sample: torch.Tensor, alt: str) -> Markup:
    """A sample as an element of a page.

    Args:
        sample: of shape (channels, *space), in the units of storage: 0 to 255 for images and volumes, -32768 to 32767
            for sound. Of an image that has not three channels the first one is shown, of a volume the middle slice.
        alt: says what it shows, for those who do not see it.
    """
    if sample.ndim == 2:
        return _outline(sample[0], alt)
    if sample.ndim == 4:
        sample = sample[:, sample.shape[1] // 2]
    pixels = sample.round().clamp(0, 255).to(torch.uint8).cpu()
    image = Image.fromarray(pixels.permute(1, 2, 0).numpy() if len(pixels) == 3 else pixels[0].numpy())
    small = max(image.size) <= _FEW
    image.thumbnail((_LARGEST, _LARGEST))
    file = io.BytesIO()
    if small:
        image.save(file, "PNG")
    else:
        image.save(file, "JPEG", quality=80)
    kind = "png" if small else "jpeg"
    source = f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
    return element("img", alt=alt, src=Markup(source), class_="thumbnail pixels" if small else "thumbnail")


def _outline(wave: torch.Tensor, alt: str) -> Markup:
    """The highest and the lowest sample of each column, joined; as loud as the clip's loudest sample allows."""
    wave = wave.double().cpu()
    columns = min(_COLUMNS, len(wave))
    parts = torch.tensor_split(wave / wave.abs().max().clamp_min(1e-12), columns)
    high = [f"{n} {50 - 48 * float(part.max()):.1f}" for n, part in enumerate(parts)]
    low = [f"{n} {50 - 48 * float(part.min()):.1f}" for n, part in enumerate(parts)]
    path = element("path", d=Markup(f"M{' L'.join(high + low[::-1])} Z"), vector_effect="non-scaling-stroke")
    box = f"0 0 {max(1, columns - 1)} 100"
    return element(
        "svg", path, viewBox=box, preserveAspectRatio="none", role="img", aria_label=alt, class_="thumbnail wave"
    )
