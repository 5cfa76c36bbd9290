"""`arrn serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from arrn.cli.console import say
from arrn.cli.opening import open_predictor
from arrn.errors import needs


def serve(
    folder: Annotated[
        Path, typer.Argument(help="A finished run, a folder that arrn.save wrote, or one that arrn export made.")
    ],
    *,
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free port.")] = 8000,
    host: Annotated[
        str, typer.Option(help="The address to listen on; every address but this machine's own needs a token.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token that requests must carry [default: the variable ARRN_TOKEN]."),
    ] = None,
    delay: Annotated[str, typer.Option(help="How long an input may wait for other inputs of its level.")] = "5ms",
    batch: Annotated[int, typer.Option(help="The most inputs that run together.")] = 32,
    workers: Annotated[int, typer.Option(help="How many threads run the network.")] = 1,
    max_body: Annotated[str, typer.Option(help="Refuse requests with more bytes than this.")] = "32MB",
    max_files: Annotated[int, typer.Option(help="Refuse requests with more files than this.")] = 64,
    max_pixels: Annotated[
        int, typer.Option(help="Refuse images with more pixels, or volumes with more voxels.")
    ] = 16_000_000,
    max_waiting: Annotated[
        int, typer.Option(help="The most inputs that wait at the same time; a request beyond that is answered by 429.")
    ] = 256,
    max_requests: Annotated[int, typer.Option(help="The most requests in progress at the same time.")] = 256,
    receive: Annotated[str, typer.Option(help="How long a request may take to arrive.")] = "20s",
    answer: Annotated[str, typer.Option(help="How long an answer may take.")] = "60s",
    stop: Annotated[
        str, typer.Option(help="How long a stopping server continues to work on accepted requests.")
    ] = "30s",
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Write a line for each request.")] = False,
    policy: Annotated[
        str | None, typer.Option(help="For sizes between two grids: exact or cheap [default: the network's own].")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Answer HTTP requests: POST images, sounds or volumes of any size to /predict, and get JSON.

    Inputs that enter the network at the same level run together. SIGTERM or Ctrl-C lets the server finish the requests
    that it accepted; a second signal ends the server at once.

    Examples:

    arrn serve runs/first

    curl -H "Content-Type: image/png" --data-binary @cat.png "http://127.0.0.1:8000/predict?top=3"

    arrn serve runs/first --host 0.0.0.0 --token-file token.txt --delay 2ms --batch 64
    """
    with needs("fastapi, uvicorn, python-multipart and prometheus-client", "arrn serve", "serve"):
        import prometheus_client  # noqa: F401
        import python_multipart  # noqa: F401

        from arrn.runtime.serving.listening import serve as run_server
    from arrn.runtime.serving.server_settings import ServerSettings, find_token, parse_bytes, parse_seconds

    settings = ServerSettings(
        host=host,
        port=port,
        token=find_token(token_file),
        delay=parse_seconds("--delay", delay),
        batch=batch,
        workers=workers,
        max_body=parse_bytes("--max-body", max_body),
        max_files=max_files,
        max_pixels=max_pixels,
        max_waiting=max_waiting,
        max_requests=max_requests,
        receive_seconds=parse_seconds("--receive", receive),
        answer_seconds=parse_seconds("--answer", answer),
        stop_seconds=parse_seconds("--stop", stop),
    )
    predictor = open_predictor(folder, device=device, policy=policy, max_pixels=max_pixels)
    say(f"{predictor!r}")
    run_server(predictor, settings, say, log=log_requests)
