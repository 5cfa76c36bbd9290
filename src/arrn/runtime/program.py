"""The command `arrn-runtime`: answers and a server from an exported folder, without torch."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from ..errors import ArrnError, RunError, needs, plain
from .answers import Answer
from .inputs import answers_to_json, find_inputs
from .levels import as_policy, format_grid
from .onnx_engine import OnnxPredictor


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command. It exits with 0 when done, 1 when it was interrupted, 2 for bad input; errors are one line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal or a file that does not take every letter
            stream.reconfigure(errors="backslashreplace")
    try:
        given = _parser().parse_args(arguments)
        given.run(given)
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except ArrnError as error:
        _fail(str(error), 1 if isinstance(error, RunError) else 2)
    except KeyboardInterrupt:
        _fail("interrupted", 1)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _fail(f"{message} (see {self.prog} --help)", 2)


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"arrn-runtime: {plain(' '.join(message.split()))}\n")
    sys.exit(code)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="arrn-runtime", description="Run a network that `arrn export --to onnx` wrote.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="predict|serve", parser_class=_Parser)
    shared = _Parser(add_help=False)
    shared.add_argument("folder", type=Path, help="a folder that `arrn export --to onnx` wrote")
    shared.add_argument("--policy", help="the level for sizes between two grids: exact or cheap [the network's own]")
    shared.add_argument("--int8", action="store_true", help="run the 8-bit files of the levels that have one")
    shared.add_argument("--threads", type=int, help="threads of ONNX Runtime [one for each core]")
    shared.add_argument("--max-pixels", type=int, help="refuse images of more pixels, or volumes of more voxels")

    predict = commands.add_parser("predict", parents=[shared], help="classify files")
    predict.add_argument("inputs", nargs="+", help="images, wav files or npy files of volumes; folders; patterns")
    predict.add_argument("--top", type=int, default=1, help="the number of classes to show for each input [1]")
    predict.add_argument("--budget", type=float, help="run the cascade at this cost: million multiply-adds, on average")
    predict.add_argument(
        "--threshold", type=float, help="run the cascade: climb from the lowest level until a probability reaches this"
    )
    predict.add_argument("--json", action="store_true", help="write JSON to standard output")
    predict.set_defaults(run=_predict)

    serve = commands.add_parser("serve", parents=[shared], help="answer HTTP requests")
    serve.add_argument("--port", type=int, default=8000, help="the port to listen on; 0 takes a free port [8000]")
    serve.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on; other machines need a token [127.0.0.1]"
    )
    serve.add_argument("--token-file", type=Path, help="a file with the token that requests must send [ARRN_TOKEN]")
    serve.add_argument("--delay", default="5ms", help="how long an input waits for others of its level [5ms]")
    serve.add_argument("--batch", type=int, default=32, help="the most inputs that run together [32]")
    serve.add_argument("--workers", type=int, default=1, help="threads that run the network [1]")
    serve.add_argument("--log-requests", action="store_true", help="write a line for each request")
    serve.set_defaults(run=_serve)
    return parser


def _open(given: argparse.Namespace) -> OnnxPredictor:
    return OnnxPredictor(
        given.folder,
        policy=None if given.policy is None else as_policy(given.policy),
        int8=given.int8,
        threads=given.threads,
        max_pixels=given.max_pixels,
    )


def _predict(given: argparse.Namespace) -> None:
    predictor = _open(given)
    names: list[str] = []

    def found() -> Iterator[Path | ArrnError]:
        for name, item in find_inputs(given.inputs, predictor.ndim):
            names.append(name)
            yield item

    answers = predictor.stream(found(), top=given.top, budget=given.budget, threshold=given.threshold)
    told: list[tuple[str, Answer | ArrnError]] = []
    for answer in answers:
        told.append((names[len(told)], answer))
        if not given.json:
            _say(_line(*told[-1]))
    if given.json:
        _say(json.dumps({"network": str(given.folder), "answers": answers_to_json(told)}, indent=2))
    bad = sum(isinstance(answer, ArrnError) for _, answer in told)
    if bad:
        raise ArrnError(f"{bad} of {len(told)} files could not be read")


def _line(name: str, answer: Answer | ArrnError) -> str:
    if isinstance(answer, ArrnError):
        return f"not read: {plain(answer)}"
    classes = ", ".join(f"{plain(label)} {probability:.1%}" for label, probability in answer.top)
    return f"{plain(name)} ({'x'.join(map(str, answer.size))}, level {format_grid(answer.level)}): {classes}"


def _serve(given: argparse.Namespace) -> None:
    with needs("fastapi, uvicorn, python-multipart and prometheus-client", "arrn-runtime serve", "serve"):
        import prometheus_client  # noqa: F401
        import python_multipart  # noqa: F401

        from .serving.listening import serve
    from .serving.server_settings import ServerSettings, find_token, parse_seconds

    limits = {} if given.max_pixels is None else {"max_pixels": given.max_pixels}
    settings = ServerSettings(
        host=given.host,
        port=given.port,
        token=find_token(given.token_file),
        delay=parse_seconds("--delay", given.delay),
        batch=given.batch,
        workers=given.workers,
        **limits,
    )
    given.max_pixels = settings.max_pixels
    serve(_open(given), settings, _say, log=given.log_requests)


if __name__ == "__main__":
    main()
