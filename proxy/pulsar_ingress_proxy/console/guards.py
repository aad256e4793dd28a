"""Access control of the console: only its own page and programs may use it, by an IP address or as localhost.

It listens on loopback, which every page in the operator's browser can reach, too. DNS rebinding is detected by the Host
header, requests of other pages by Origin and Sec-Fetch-Site. There is no CORS.
"""

import ipaddress
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from pulsar_ingress_proxy.syntax.authorities import Authority, parse_authority

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

METHODS = frozenset((hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_POST))

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


_ANSWERS = {
    404: ("not-found", "there is no such page: /api/openapi.json has all"),
    405: ("method-not-allowed", "the console only shows"),
    413: ("content-too-large", "the question is too long"),
}


class BadQuestion(Exception):
    """The question cannot be read; answered with 400."""


def problem(status: int, code: str, text: str) -> web.Response:
    """An error, in the format of all the sidecar's own answers."""
    return web.json_response({"reason": f"{code}: {text}"}, status=status)


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.pop("Server", None)


def guard(bound: str) -> Middleware:
    """The middleware for a console bound to this host."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in METHODS:
            answer = problem(405, "method-not-allowed", "the console only shows: GET, HEAD, and POST to /api/what-if")
            answer.headers["Allow"] = "GET, HEAD"
            return answer
        hosts = request.headers.getall("Host", [])
        host = parse_authority(hosts[0]) if len(hosts) == 1 else None
        if host is None or not is_own(host, bound):
            return problem(
                403, "host-not-allowed", "ask by an IP address or as localhost, as through kubectl port-forward"
            )
        if not is_same_origin(request, host):
            return problem(403, "cross-site", "the console answers to its own page and to programs only")
        try:
            return await handler(request)
        except BadQuestion as fault:
            return problem(400, "bad-question", str(fault))
        except web.HTTPException as found:
            answer = problem(
                found.status, *_ANSWERS.get(found.status, ("no-answer", "the console has no answer to that"))
            )
            if allowed := found.headers.get("Allow"):
                answer.headers["Allow"] = allowed
            return answer

    return guarded


def is_own(host: Authority, bound: str) -> bool:
    """Whether nobody else controls what this name resolves to: an IP address, localhost, or the bound host."""
    if host.host in ("localhost", bound):
        return True
    try:
        ipaddress.ip_address(host.host.strip("[]"))
    except ValueError:
        return False
    return True


def is_same_origin(request: web.Request, host: Authority) -> bool:
    """Whether the console's own page asks, or a program. Any site may link to the page."""
    origins = request.headers.getall("Origin", [])
    if any(parse_authority(origin.partition("://")[2]) != host for origin in origins):
        return False
    site = request.headers.get("Sec-Fetch-Site", "none")
    if site in ("same-origin", "none"):
        return True
    is_followed = request.headers.get("Sec-Fetch-Mode") == "navigate"
    is_page = request.path == "/" and request.headers.get("Sec-Fetch-Dest") == "document"
    return is_followed and is_page and request.method == hdrs.METH_GET
