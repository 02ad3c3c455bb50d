"""/openapi.json, which other programs read, and /docs, the same for people: one page without scripts."""

from __future__ import annotations

import html
import json
from typing import Any

import mini_bert
from mini_bert.serving.failures import STATUS
from mini_bert.serving.routes import ROUTES, Route
from mini_bert.serving.schemas import Schema, expected

SHOWN = ("Empty", "Unauthorized", "NotFound", "Validation", "Backend", "Overloaded", "Unhealthy")
MEANING = {
    "Empty": "nothing to compute, or not JSON",
    "Unauthorized": "no key, or a wrong one",
    "NotFound": "no such model or route",
    "Validation": "a wrong type or value, too many inputs or tokens",
    "Backend": "the model cannot do this",
    "Overloaded": "too many requests at once; see Retry-After",
    "Unhealthy": "the model does not work, or took too long",
}
GETS = {
    "/health": "Whether every model works; also /ping",
    "/info": "The first model and the limits; /models/NAME/info: another model",
    "/metrics": "Metrics for Prometheus",
    "/v1/models": "The models, as OpenAI's clients ask for them",
    "/openapi.json": "This description for programs",
    "/docs": "This description for people",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
pre, code { font: 14px/1.4 ui-monospace, monospace; background: #f3f3f3; border-radius: 4px; }
pre { padding: .6rem .8rem; overflow-x: auto; } code { padding: 0 .25em; } pre code { padding: 0; }
table { border-collapse: collapse; width: 100%; } td { vertical-align: top; padding: .2rem .8rem .2rem 0; }
tr { border-top: 1px solid #ddd; } summary { cursor: pointer; padding: .3rem 0; } h2 { margin-top: 2rem; }
@media (prefers-color-scheme: dark) { body { background: #16181b; color: #e6e6e6; } pre, code { background: #24272b; }
tr { border-color: #3a3d41; } a { color: #8ab4f8; } }
"""


def openapi(needs_key: bool) -> dict[str, Any]:
    """The OpenAPI document"""
    paths: dict[str, Any] = {path: {"get": {"summary": about, "responses": {"200": {"description": "ok"}}}}
                             for path, about in GETS.items()}  # fmt: skip
    for route in ROUTES:
        paths[route.path] = {"post": _operation(route, f"{route.path}")}
        if not route.openai:
            of_model = _operation(route, f"/models/model{route.path}")
            named = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
            paths[f"/models/{{model}}{route.path}"] = {"post": {**of_model, "parameters": [named]}}
    key = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Mini-BERT", "version": mini_bert.__version__},
        "paths": paths,
        "components": {"schemas": {"Error": _error(False), "OpenAIError": _error(True)},
                       **({"securitySchemes": {"key": key}} if needs_key else {})},
        **({"security": [{"key": []}]} if needs_key else {}),
    }  # fmt: skip


def _operation(route: Route, name: str) -> dict[str, Any]:
    error = {"$ref": f"#/components/schemas/{'OpenAIError' if route.openai else 'Error'}"}
    failures = {
        str(STATUS[kind]): {"description": MEANING[kind], "content": {"application/json": {"schema": error}}}
        for kind in SHOWN
    }
    asked = {"schema": route.request, "example": route.example}
    answered = {"description": "ok", "content": {"application/json": {"example": route.gives}}}
    return {
        "summary": route.about,
        "operationId": name.strip("/").replace("/", "_").replace("-", "_"),
        "requestBody": {"required": True, "content": {"application/json": asked}},
        "responses": {"200": answered, **failures},
    }


def _error(openai: bool) -> Schema:
    text = {"type": "string"}
    names = {"error": text, "error_type": text}
    if openai:
        names = {"message": text, "code": {"type": "integer"}, "type": text}
    return {"type": "object", "properties": names, "required": list(names)}


PAGE = """<!doctype html><html lang=en><meta charset=utf-8><title>Mini-BERT server</title>
<meta name=viewport content="width=device-width"><link rel=stylesheet href="docs.css">
<h1>Mini-BERT server</h1>
<p>Version {version}. Models: <code>{models}</code>. A request goes to the first of them, unless it names another:
<code>/models/NAME/embed</code>, or <code>"model": "NAME"</code> in the body.
<h2>Work</h2> {work}
<h2>About the server</h2> <table>{gets}</table>
<h2>Errors</h2> <table>{errors}</table>
<p>The body of an error is <code>{{"error": "…", "error_type": "Validation"}}</code>, on OpenAI's routes
<code>{{"message": "…", "code": 422, "type": "Validation"}}</code>.
"""


def docs(models: list[str], address: str) -> str:
    """The page"""
    gets = (f"<tr><td><a href='{path[1:]}'><code>GET {path}</code></a><td>{about}" for path, about in GETS.items())
    return PAGE.format(
        version=mini_bert.__version__,
        models=html.escape(", ".join(models)),
        work="".join(_section(route, address) for route in ROUTES),
        gets="".join(gets),
        errors="".join(f"<tr><td>{STATUS[kind]}<td>{kind}<td>{MEANING[kind]}" for kind in SHOWN),
    )


def _section(route: Route, address: str) -> str:
    rows = [_row(name, field, route.request["required"]) for name, field in route.request["properties"].items()]
    call = f"curl {address}{route.path} -H 'content-type: application/json' \\\n  -d '{json.dumps(route.example)}'"
    gives = route.gives if isinstance(route.gives, str) else json.dumps(route.gives, ensure_ascii=False)
    return (
        f"<details><summary><code>POST {route.path}</code> {html.escape(route.about)}</summary>"
        f"<pre>{html.escape(call)}</pre><pre>{html.escape(gives)}</pre><table>{''.join(rows)}</table></details>"
    )


def _row(name: str, field: Schema, required: list[str]) -> str:
    about = field.get("description") or expected(field)
    default = "required" if name in required else "" if field.get("default") is None else json.dumps(field["default"])
    choices = f" ({', '.join(field['enum'])})" if "enum" in field else ""
    return f"<tr><td><code>{name}</code><td>{html.escape(about + choices)}<td>{html.escape(default)}"
