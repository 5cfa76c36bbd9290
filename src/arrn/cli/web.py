"""`arrn web`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arrn.cli.console import say


def web(
    folder: Annotated[Path, typer.Argument(help="A finished run, or any folder that arrn.save wrote.")],
    *,
    out: Annotated[Path, typer.Option(help="The new folder. An earlier site of that name is replaced.")],
    runtime: Annotated[
        Path | None,
        typer.Option(help="A folder with onnxruntime-web [default: npm downloads it, once]."),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(help="A folder of pictures that the page offers [default: one of each class of CIFAR-10]."),
    ] = None,
    webgpu: Annotated[
        bool, typer.Option("--webgpu/--no-webgpu", help="Let visitors choose their graphics card, for 27 MB more.")
    ] = True,
    policy: Annotated[
        str | None, typer.Option(help="For sizes between two grids: exact or cheap [default: the network's own].")
    ] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the page on this machine until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(help="The port for --serve; 0 takes a free port.")] = 8000,
) -> None:
    """Make a page that runs the network in the visitor's browser, on pictures of any size.

    Any web server for files can serve the folder; no program runs on the server. Pictures stay on the visitor's device.

    Examples:

    arrn web weights/arrn_small --out out/site --serve

    arrn web runs/mine --out out/site --samples my-pictures --no-webgpu
    """
    from arrn.nn.network import as_policy
    from arrn.web import build_site, serve_site

    chosen = None if policy is None else as_policy(policy)
    site = build_site(folder, out, runtime=runtime, samples=samples, policy=chosen, webgpu=webgpu, say=say)
    loads = ", ".join(f"{size / 1e6:.0f} MB ({backend})" for backend, size in site.runtime.bytes.items())
    say(f"the network's answers differ from PyTorch's by {site.difference:.1g} at most")
    say(f"{site.folder}: {site.bytes / 1e6:.2f} MB, beside ONNX Runtime Web {site.runtime.version}: {loads}")
    if serve:
        serve_site(out, port, say)
