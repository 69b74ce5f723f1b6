"""`paceline serve`."""

from __future__ import annotations

import json
import shlex
import socket
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options as o
from paceline.errors import MissingExtra, PacelineError
from paceline.models.catalog import DEFAULT

if TYPE_CHECKING:
    from paceline.build import LLM
    from paceline.serve.memory import Plan

KEY = "PACELINE_API_KEY"
LEAST = 64  # tokens of context
CONTEXT = 8192  # that nobody asked for

Drafts = Annotated[
    list[str],
    typer.Option("--draft", help="As for generate; with several, requests may ask for each."),
]


def serve(
    model: o.Model = DEFAULT,
    draft: Drafts = ["auto"],  # noqa: B006  (typer's way; it is never changed)
    k: o.K = 8,
    window: o.Window = "adaptive",
    verify: o.Verify = "auto",
    lenience: o.Lenience = 1.0,
    deterministic: o.Deterministic = False,
    nodes: o.Nodes = None,
    branches: o.Branches = 1,
    draft_temperature: o.DraftTemperature = None,
    slots: Annotated[int, typer.Option(help="Requests that run side by side.")] = 8,
    context: Annotated[
        int | None,
        typer.Option(help="Most tokens of prompt and output; by default 8192, or what fits."),
    ] = None,
    queue: Annotated[int, typer.Option(help="Requests that may wait; more get 429.")] = 64,
    budget: Annotated[int, typer.Option(help="Prompt tokens read between two rounds.")] = 32,
    time_limit: Annotated[float, typer.Option(help="Seconds for a request, at most.")] = 600.0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar=KEY, help="What clients must send as their key.")
    ] = None,
    max_body: Annotated[float, typer.Option(help="Largest request, in MB.")] = 8.0,
    drain: Annotated[float, typer.Option(help="Seconds to finish in after SIGTERM.")] = 30.0,
    dtype: o.Dtype = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
) -> None:
    """Serve a model over HTTP, as OpenAI's API has it, with a page to try it at /."""
    for needed in ("fastapi", "uvicorn", "prometheus_client", "psutil"):
        if find_spec(needed) is None:
            raise MissingExtra("paceline serve", "serve")
    _check(slots, context, queue, budget, time_limit, max_body, drain)
    _check_address(host, port, api_key)
    from paceline.build import LLM
    from paceline.models.progress import rich_progress
    from paceline.serve.memory import plan

    with rich_progress(in_bytes=False) as (progress, note):
        llm = LLM(
            model,
            draft=draft[0],
            others=draft[1:],
            k=k,
            window=window,
            verify=verify,
            lenience=lenience,
            deterministic=deterministic,
            nodes=nodes,
            branches=branches,
            draft_temperature=draft_temperature,
            dtype=dtype,
            device=device,
            context=context or CONTEXT,
            threads=threads,
            progress=progress,
            note=note,
        )
        planned = plan(llm, slots, shrink=context is None)
        if planned.context < llm.context:
            note(f"context {planned.context} of {llm.context}: so much fits in {slots} slots")
            llm.context = planned.context
    for line in planned.lines():
        print(line)
    code = _run(
        llm,
        planned,
        queue=queue,
        budget=budget,
        time_limit=time_limit,
        host=host,
        port=port,
        api_key=api_key,
        body_limit=int(max_body * 1e6),
        drain=drain,
    )
    if code:
        raise typer.Exit(code)


def _run(
    llm: LLM,
    planned: Plan,
    *,
    queue: int,
    budget: int,
    time_limit: float,
    host: str,
    port: int,
    api_key: str | None,
    body_limit: int,
    drain: float,
) -> int:
    """Serve until a signal; the exit code."""
    import paceline
    from paceline.serve.app import make_app
    from paceline.serve.engine import Engine
    from paceline.serve.logs import Both, Logs, Refusals
    from paceline.serve.metrics import Metrics
    from paceline.serve.run import run
    from paceline.serve.settings import Settings, hosts_of

    about = {"model": llm.name, "dtype": llm.dtype, "draft": llm.draft}
    metrics, logs = Metrics({"version": paceline.__version__, **about}), Logs(about)
    logs.adopt("paceline.serve", "uvicorn", "uvicorn.error")

    def refused(path: str, status: int) -> None:
        logs.rejected(path, status)
        if status == 429:
            metrics.rejected()

    def started(address: str) -> None:
        print(curl(address, llm, keyed=api_key is not None), flush=True)
        sizes = {"slots": planned.slots, "context": planned.context, "memory": planned.total}
        logs.started(address, sizes)

    engine = Engine(
        llm,
        slots=planned.slots,
        queue=queue,
        budget=budget,
        time_limit=time_limit,
        watch=Both(metrics, logs),
    )
    metrics.follow(lambda: engine.load)
    settings = Settings(api_key=api_key, hosts=hosts_of(host), body_limit=body_limit)
    try:
        app = make_app(engine, settings, metrics)
        app.add_middleware(Refusals, tell=refused)
        engine.start()
        code = run(app, engine, host, port, drain=drain, started=started)
        logs.stopped(code)
        return code
    finally:
        engine.close()
        logs.close()


def curl(address: str, llm: LLM, *, keyed: bool = False) -> str:
    """A line to paste into a shell on this machine. A key is taken from the environment."""
    chats = llm.tokenizer.chat_template is not None
    body: dict[str, object] = {"model": llm.name}
    if chats:
        body["messages"] = [{"role": "user", "content": "Write a haiku about rain."}]
    else:
        body["prompt"] = "Once upon a time"
    body["max_tokens"] = 64
    for everywhere in ("//0.0.0.0:", "//[::]:"):
        address = address.replace(everywhere, "//127.0.0.1:")
    key = f' -H "Authorization: Bearer ${KEY}"' if keyed else ""
    path = "chat/completions" if chats else "completions"
    sent = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {address}/v1/{path}{key} -H 'Content-Type: application/json' -d {sent}"


def _check(
    slots: int,
    context: int | None,
    queue: int,
    budget: int,
    time_limit: float,
    max_body: float,
    drain: float,
) -> None:
    """Raise PacelineError for a number that makes no sense."""
    least = [("--slots", slots, 1), ("--queue", queue, 0), ("--budget", budget, 1)]
    if context is not None:
        least.append(("--context", context, LEAST))
    for name, value, low in least:
        if value < low:
            raise PacelineError(f"{name} must be at least {low}, not {value}")
    if not 0 <= drain < float("inf"):
        raise PacelineError(f"--drain must be at least 0, not {drain}")
    for name, value in (("--time-limit", time_limit), ("--max-body", max_body)):
        if not 0 < value < float("inf"):
            raise PacelineError(f"{name} must be more than 0, not {value}")


def _check_address(host: str, port: int, api_key: str | None) -> None:
    """Raise PacelineError, before a model is loaded for nothing, where nobody can be served there,
    or everybody could."""
    if api_key is not None and (not api_key or not api_key.isascii() or api_key != api_key.strip()):
        raise PacelineError("--api-key must be ASCII characters, and not begin or end with a space")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise PacelineError(
            f"--host {host}: there is no such host; use 127.0.0.1, or an address of this machine"
        ) from None
    family, _, _, _, address = found[0]
    if not ip_address(str(address[0]).partition("%")[0]).is_loopback and api_key is None:
        raise PacelineError(
            f"--host {host} lets other machines in: give an --api-key (or {KEY} in the "
            "environment), or leave --host at 127.0.0.1"
        )
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
            tried.listen()
    except OSError as error:
        raise PacelineError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port or --host"
        ) from None
