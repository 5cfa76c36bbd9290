"""The server's two pages, whole in themselves: what it is, and its paths as the OpenAPI document tells them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .bodies import CONTENT_TYPES
from .server_settings import ServerSettings

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; margin-bottom: .3rem; }
pre { padding: .7rem 1rem; overflow-x: auto; border-radius: 6px; background: rgb(128 128 128 / .15); }
code { font-size: .9em; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; }
td, th { border-bottom: 1px solid rgb(128 128 128 / .3); }
"""
_AXES = {"sound": 1, "image": 2, "volume": 3}
_FILES = {"sound": "seven.wav", "image": "cat.png", "volume": "scan.npy"}


def describe(kind: str, settings: ServerSettings) -> str:
    """The page at `/`: what the server does, how to ask it, and its limits."""
    file, plural = _FILES[kind], {"sound": "sounds"}.get(kind, f"{kind}s")
    example = CONTENT_TYPES[_AXES[kind]][1][0]
    token = '-H "Authorization: Bearer $ARRN_TOKEN" ' if settings.token is not None else ""
    one = f"curl {token}-H 'Content-Type: {example}' --data-binary @{file} \\\n  'http://ADDRESS/predict?top=5'"
    many = f"curl {token}-F file=@{file} -F file=@another.{file.partition('.')[2]} http://ADDRESS/predict"
    limits = [
        ("a request's body", f"{settings.max_body:,} bytes", "413"),
        ("files of a form", f"{settings.max_files:,}", "413"),
    ]
    if kind != "sound":
        limits.append(("pixels of an image" if kind == "image" else "voxels", f"{settings.max_pixels:,}", "422"))
    limits += [
        ("inputs that wait at once", f"{settings.max_waiting:,}", "429"),
        ("time for the body to arrive", f"{settings.receive_seconds:g} s", "408"),
        ("time for the answer", f"{settings.answer_seconds:g} s", "503"),
    ]
    form = ""
    if settings.token is None:
        form = (
            "<h2>Try it</h2><form action='predict' method='post' enctype='multipart/form-data'>"
            "<label>Files: <input type='file' name='file' multiple required></label> <button>Predict</button></form>"
        )
    body = [
        f"<p>This server classifies {plural} of any size. Each {kind} enters the network at the level that fits its "
        f"size, together with other {plural} of that level.</p>",
        "<h2>One file</h2>",
        f"<pre>{html.escape(one)}</pre>",
        "<h2>Several files</h2>",
        f"<pre>{html.escape(many)}</pre>",
        "<p>Each file has its own result: a file that cannot be read does not stop the others.</p>",
        form,
        "<h2>Limits</h2>",
        _table(("what", "limit", "status above the limit"), limits),
        "<h2>More</h2><ul><li><a href='docs'>All paths</a>, also as <a href='openapi.json'>OpenAPI</a></li>"
        "<li><a href='network'>The network</a>: its levels and classes</li>"
        "<li><a href='healthz'>Health</a></li><li><a href='metrics'>Metrics</a> for Prometheus</li></ul>",
    ]
    return _page("arrn server", body)


def document_api(document: Mapping[str, Any]) -> str:
    """The page at `/docs`: the paths of an OpenAPI document, their parameters, bodies and answers."""
    body = [f"<p>{html.escape(document['info'].get('summary', ''))}. <a href='./'>How to ask</a>.</p>"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body.append(f"<h2><code>{html.escape(method.upper())} {html.escape(path)}</code></h2>")
            body.append(f"<p>{html.escape(operation.get('summary', ''))}.</p>")
            if "description" in operation:
                body.append(f"<p>{html.escape(operation['description'])}</p>")
            if parameters := operation.get("parameters"):
                options = [(p["name"], p["in"], _schema(p["schema"])) for p in parameters]
                body += ["<h3>Parameters</h3>", _table(("name", "in", "value"), options)]
            if "requestBody" in operation:
                kinds = operation["requestBody"]["content"]
                body += ["<h3>Body</h3>", "<ul>", *(f"<li><code>{html.escape(kind)}</code></li>" for kind in kinds)]
                body.append("</ul>")
            rows = [
                (status, told["description"], " ".join(_schema(c.get("schema", {})) for c in _contents(told)))
                for status, told in operation["responses"].items()
            ]
            body += ["<h3>Answers</h3>", _table(("status", "meaning", "content"), rows)]
    body.append("<h2>Content</h2>")
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        if name in ("HTTPValidationError", "ValidationError"):
            continue  # FastAPI's own, which this server does not send
        members = [(field, _schema(of)) for field, of in schema.get("properties", {}).items()]
        body += [f"<h3>{html.escape(name)}</h3>", f"<p>{html.escape(schema.get('description', ''))}</p>"]
        body.append(_table(("member", "value"), members))
    return _page("arrn server: paths", body)


def _contents(told: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return {str(content): content for content in told.get("content", {}).values()}.values()


def _schema(schema: Mapping[str, Any]) -> str:
    """What a value may be, in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(map(_schema, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_schema(schema.get('items', {}))}"
    words = str(schema.get("type", ""))
    bounds = [
        f"{name} {schema[key]}" for key, name in (("minimum", "at least"), ("maximum", "at most")) if key in schema
    ]
    if "default" in schema:
        bounds.append(f"default {schema['default']}")
    return ", ".join([words, *bounds])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table><tr>{cells}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _page(title: str, body: Iterable[str]) -> str:
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><style>{_STYLE}</style></head>"
        f"<body><h1>{html.escape(title)}</h1>{''.join(body)}</body></html>"
    )
