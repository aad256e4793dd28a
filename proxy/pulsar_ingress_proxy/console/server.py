"""The console's HTTP server: the page, its API, and their limits."""

import asyncio
from functools import cache
from importlib import resources
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from pulsar_ingress_proxy.console.api import ROUTES, description
from pulsar_ingress_proxy.console.filters import Matcher
from pulsar_ingress_proxy.console.guards import BadQuestion, Handler, add_headers, guard, problem
from pulsar_ingress_proxy.console.models import DecisionsQuery, Filter, Question
from pulsar_ingress_proxy.console.stream import Streams
from pulsar_ingress_proxy.console.view import Shown, View
from pulsar_ingress_proxy.net.status import SETTINGS
from pulsar_ingress_proxy.tools.explain import CannotExplain

Asked = TypeVar("Asked", bound=BaseModel)

CONNECTIONS = 64
BODY_BYTES = 65536
BODY_SECONDS = 10
IDLE_SECONDS = 30

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Console:
    """The console of one sidecar."""

    def __init__(self, sidecar: Shown, host: str) -> None:
        self.view = View(sidecar)
        self._host = host
        self._streams = Streams(self.view)
        self._description = description()
        app = web.Application(middlewares=[guard(host.strip("[]"))], client_max_size=BODY_BYTES)
        app.on_response_prepare.append(add_headers)
        app.on_shutdown.append(self._let_go)
        for route in ROUTES:
            handler = getattr(self, f"_{route.name}", None) or self._showing(route.name)
            app.router.add_route(route.method, route.path, handler)
            if route.method == "GET" and route.name != "stream":
                app.router.add_route("HEAD", route.path, handler)
        for path, handler in _page().items():
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(app, keepalive_timeout=IDLE_SECONDS, shutdown_timeout=1, **SETTINGS)
        self._server: asyncio.Server | None = None
        self._sampling: asyncio.Task[None] | None = None

    async def open(self, port: int) -> None:
        """Bind the socket; raises OSError."""
        loop = asyncio.get_running_loop()
        await self._runner.setup()
        self._server = await loop.create_server(self._admit, self._host.strip("[]"), port, reuse_address=True)
        self._sampling = loop.create_task(self.view.figures_kept.run())

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        await self.view.reachability.close()
        await self._runner.cleanup()

    def _admit(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return server() if len(server.connections) < CONNECTIONS else _TooMany()

    async def _let_go(self, _: web.Application) -> None:
        self._streams.close()

    def _showing(self, name: str) -> Handler:
        """The handler of a route that takes nothing, and answers with what the view's method returns."""

        async def show(_: web.Request) -> web.Response:
            return _json(getattr(self.view, name)())

        return show

    # The other routes of the API, by their names.

    async def _reachability(self, request: web.Request) -> web.Response:
        return _json(self.view.look() if request.method == "GET" else self.view.check())

    async def _openapi(self, _: web.Request) -> web.Response:
        return web.json_response(self._description)

    async def _decisions(self, request: web.Request) -> web.Response:
        return _json(await self.view.decisions(_asked(DecisionsQuery, request)))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        asked = _asked(Filter, request)
        if self._streams.is_full:
            answer = problem(503, "too-many-streams", "close a page of the console, or ask /api/decisions")
            answer.headers["Retry-After"] = "10"
            return answer
        return await self._streams.serve(
            request, Matcher(asked), request.headers.get("Last-Event-ID") or asked.since or None
        )

    async def _settings(self, _: web.Request) -> web.Response:
        # In a thread, as a thousand ingresses have ten thousand keys.
        return await asyncio.to_thread(lambda: _json(self.view.settings()))

    async def _what_if(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return problem(415, "not-json", "send the question as application/json")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                text = await request.read()
            return _json(self.view.what_if(Question.model_validate_json(text)))
        except TimeoutError:
            return problem(408, "too-slow", "the question did not come in time")
        except ConnectionError:
            raise BadQuestion("the client closed the connection inside the question") from None
        except ValidationError as fault:
            raise BadQuestion(_first(fault)) from None
        except CannotExplain as fault:
            raise BadQuestion(str(fault)) from None


class _TooMany(asyncio.Protocol):
    """Closes a connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _json(answer: BaseModel) -> web.Response:
    return web.Response(text=answer.model_dump_json(by_alias=True), content_type="application/json")


def _asked(model: type[Asked], request: web.Request) -> Asked:
    """The query parameters; one without a value is unset."""
    given = {name: request.query.getall(name) for name in request.query}
    if twice := [name for name, values in given.items() if len(values) > 1 and name != "only"]:
        raise BadQuestion(f"{twice[0]}: is there twice")
    try:
        return model.model_validate({name: ",".join(values) for name, values in given.items() if any(values)})
    except ValidationError as fault:
        raise BadQuestion(_first(fault)) from None


def _first(fault: ValidationError) -> str:
    """The first fault, without the value, which may be a token."""
    found = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, found["loc"]))
    if found["type"] == "extra_forbidden":
        return f"{place}: is unknown"
    if place == "status":
        return "status: should be like 404, or like 5xx"
    return f"{place}: {found['msg']}" if place else found["msg"]


@cache
def _page() -> dict[str, Handler]:
    """The files of the page, read once."""
    found = {}
    for file in resources.files("pulsar_ingress_proxy.console").joinpath("page").iterdir():
        if kind := _TYPES.get(file.name.rpartition(".")[2]):
            found[f"/{file.name}"] = _serving(file.read_bytes(), kind)
    return {"/": found.pop("/index.html"), **found}


def _serving(content: bytes, kind: str) -> Handler:
    async def serve(_: web.Request) -> web.StreamResponse:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return serve
