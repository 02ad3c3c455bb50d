"""`mini-bert serve`: models over HTTP."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from mini_bert.cli.words import ENGINE, MODELS

KEY = "MINI_BERT_API_KEY"


def serve(
    models: Annotated[
        list[str],
        typer.Argument(help=f"{MODELS}; NAME=FOLDER gives it another name. The first is the default"),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one")] = 8080,
    host: Annotated[str, typer.Option(help="0.0.0.0: other computers can reach it, too")] = "127.0.0.1",
    engine: Annotated[str, typer.Option(help=ENGINE)] = "numpy",
    threads: Annotated[int | None, typer.Option(min=1, help="batches at the same time; default: one per core")] = None,
    pooling: Annotated[
        str | None, typer.Option(help="of vectors: mean, all or cls, as for embed; default: as the model's folder says")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar=KEY, show_envvar=True, help="clients must send it; better in the environment"),
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="another name of this server, such as that of a proxy before it")
    ] = None,
    cors_allow_origin: Annotated[
        list[str] | None, typer.Option(help="a web page that may use it, such as https://example.org; default: none")
    ] = None,
    max_concurrent_requests: Annotated[int, typer.Option(min=1, help="more get 429")] = 512,
    max_client_batch_size: Annotated[int, typer.Option(min=1, help="inputs of a request; more get 422")] = 32,
    max_batch_tokens: Annotated[int, typer.Option(min=1, help="tokens that are computed together")] = 1024,
    payload_limit: Annotated[int, typer.Option(min=1, help="bytes of a request; more get 413")] = 2_000_000,
    auto_truncate: Annotated[bool, typer.Option(help="cut long texts, unless a request says otherwise")] = True,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds for a request; longer ones get 503")] = 60.0,
    grace: Annotated[int, typer.Option(min=0, help="seconds to finish accepted requests at the end")] = 30,
) -> None:
    """Serve models over HTTP to many clients at once.

    Clients of OpenAI, Hugging Face and text-embeddings-inference can call it. Requests are computed together. A model
    folder that changes is loaded again.

    For example:  mini-bert serve mini-bert --port 8080
    """
    from mini_bert.common.processes import cores
    from mini_bert.serving.calls import Limits
    from mini_bert.serving.running import serve as run

    if api_key is None:
        api_key = os.environ.get(KEY)  # an empty one, which typer takes for none
    limits = Limits(
        max_concurrent_requests, max_client_batch_size, max_batch_tokens, payload_limit, auto_truncate, timeout
    )
    run(
        models, host, port, limits, threads or cores(), engine, pooling, api_key, allowed_host or (),
        cors_allow_origin or (), grace,
    )  # fmt: skip
