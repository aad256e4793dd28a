"""A client of the Kubernetes API server: requests, watches and errors.

It uses connections of the `kubernetes` package, which takes a second and 60 MB to import, so this module is imported
only if discovery is on. The package's Watch is not used: it loses Retry-After, returns partial events as text, and
creates a client with the system's CAs for every watch.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

import aiohttp
from aiohttp.http_exceptions import LineTooLong
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException

from pulsar_ingress_proxy.discovery.credentials import Credentials, NoCredentials
from pulsar_ingress_proxy.discovery.reconciler.kinds import Kind

Object = dict[str, Any]
Reason = Literal[
    "unreachable", "unauthorized", "forbidden", "absent", "expired", "throttled", "refused", "closed", "silent",
    "garbled",
]  # fmt: skip

_REASONS: Mapping[int, Reason] = {
    401: "unauthorized",
    403: "forbidden",
    404: "absent",
    410: "expired",
    429: "throttled",
}
_PAGE = 200
"""Objects per page; parsing larger pages would block the event loop."""
_LONGEST_LINE = 8 << 20
"""Maximum size of an event in bytes; etcd's limit for objects is 1.5 MB."""
_LONGEST_WAIT = 300.0
"""Maximum Retry-After that is honoured, in seconds."""


class Refused(Exception):
    """A request failed. `reason` is a value of the metric's label, `after` the server's Retry-After in seconds."""

    def __init__(self, reason: Reason, text: str, after: float | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.after = after


class Event(NamedTuple):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object
    version: str


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts and intervals in seconds."""

    connect: float = 10
    answer: float = 30
    """To receive a page of a list."""
    silence: float = 150
    """Without data on a watch; API servers send bookmarks about every minute."""
    watch: float = 300
    """Minimum duration of a watch; the maximum is twice that."""
    first_pause: float = 0.5
    longest_pause: float = 30
    absent: float = 15
    """Between checks for kinds that the cluster lacks."""
    rest: float = 10
    """From the first completed list until the result is published without the missing ones."""
    gather: float = 0.05
    """Debounce: changes within this time make one generation."""


PATIENCE = Patience()


class KubernetesApi:
    """A client of one API server. It reads the credentials again when the server rejects them."""

    def __init__(self, credentials: Credentials, patience: Patience = PATIENCE) -> None:
        self.credentials = credentials
        self.patience = patience
        self._namespace = "default"
        self._client: ApiClient | None = None
        self._is_stale = False
        self._connecting = asyncio.Lock()

    async def connect(self) -> None:
        """Read the credentials, without a request; raises NoCredentials."""
        client, self._namespace = await self.credentials.client()
        await self.close()
        self._client, self._is_stale = client, False

    async def home(self) -> str:
        """The namespace of the credentials; raises Refused."""
        with self._refusals():
            await self._connected()
        return self._namespace

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def get(self, path: str) -> Object:
        """One object; raises Refused."""
        return await self._got(path, {})

    async def pages(self, path: str) -> AsyncIterator[tuple[list[Object], str]]:
        """All objects of a collection, page by page, with the list's version; raises Refused, also between pages."""
        query = {"limit": str(_PAGE)}
        while True:
            found = await self._got(path, query)
            with self._refusals():
                objects, version = [_named(item) for item in found["items"]], found["metadata"]["resourceVersion"]
            yield objects, version
            query["continue"] = found["metadata"].get("continue") or ""
            if not query["continue"]:
                return

    async def _got(self, path: str, query: Mapping[str, str]) -> Object:
        within = aiohttp.ClientTimeout(total=self.patience.answer, sock_connect=self.patience.connect)
        async with await self._asked(path, query, within) as answer:
            with self._refusals():
                return _object(await answer.read())

    @asynccontextmanager
    async def watch(self, path: str, version: str, seconds: int) -> AsyncIterator[AsyncIterator[Event]]:
        """Events since that version, until the server ends the watch; raises Refused, also between events."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        within = aiohttp.ClientTimeout(total=None, sock_connect=self.patience.connect, sock_read=self.patience.silence)
        async with await self._asked(path, query, within) as answer:
            yield self._events(answer)

    async def _events(self, answer: aiohttp.ClientResponse) -> AsyncIterator[Event]:
        while True:
            with self._refusals():
                line = await answer.content.readline(max_line_length=_LONGEST_LINE)
                if not line:
                    return
                event = _event(line)
            yield event

    async def served(self, kinds: Iterable[Kind]) -> dict[str, str]:
        """The kinds among these that the cluster serves, by name, with the version to use; raises Refused."""
        found: dict[str, str] = {}
        wanted = [*kinds]
        for group in dict.fromkeys(kind.group for kind in wanted):
            offered = await self._if_there(f"/apis/{group}")
            for version in [one["version"] for one in offered.get("versions", ())]:
                readable = [kind for kind in wanted if kind.group == group and version in kind.versions]
                if not readable:
                    continue
                resources = await self._if_there(f"/apis/{group}/{version}")
                plurals = {resource["name"] for resource in resources.get("resources", ())}
                for kind in readable:
                    best = found.get(kind.name, version)
                    if kind.plural in plurals and kind.versions.index(version) <= kind.versions.index(best):
                        found[kind.name] = version
        return found

    async def _if_there(self, path: str) -> Object:
        try:
            return await self.get(path)
        except Refused as refused:
            if refused.reason == "absent":
                return {}
            raise

    async def _asked(
        self, path: str, query: Mapping[str, str], within: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Send a request; raises Refused unless the status is 200."""
        with self._refusals():
            client = await self._connected()
            method, url, headers, *_ = await client.param_serialize(
                "GET", path, header_params={"Accept": "application/json"}, auth_settings=["BearerToken"]
            )
            if query:
                url += f"?{urlencode(query)}"
            asked = await client.call_api(method, url, headers, _request_timeout=within)
            answer: aiohttp.ClientResponse = asked.response
            if answer.status == 200:
                return answer
            async with answer:
                said = await answer.content.read(65536)
        reason = _REASONS.get(answer.status, "refused" if answer.status < 500 else "unreachable")
        if reason == "unauthorized":
            self._is_stale = True
        after = answer.headers.get("Retry-After", "")
        raise Refused(
            reason,
            _status_message(said) or f"{answer.status} {answer.reason}",
            min(float(after), _LONGEST_WAIT) if after.isdecimal() else None,
        )

    async def _connected(self) -> ApiClient:
        async with self._connecting:
            if self._client is None or self._is_stale:
                await self.connect()
            assert self._client is not None
            return self._client

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except NoCredentials as fault:
            raise Refused("unauthorized", str(fault)) from None
        except (ConfigException, aiohttp.ClientConnectorCertificateError) as error:
            self._is_stale = True  # the token or CA may have been rotated: read the files again
            raise Refused("unauthorized", f"{self.credentials}: {_line(error)}") from None
        except aiohttp.SocketTimeoutError:
            raise Refused("silent", "no data from the API server for too long") from None
        except TimeoutError:
            raise Refused("unreachable", "the API server did not answer in time") from None
        except aiohttp.ClientConnectionError as error:
            raise Refused("unreachable", f"the API server cannot be reached: {_line(error)}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Refused("closed", f"the API server closed the connection: {_line(error)}") from None
        except KeyError as error:
            raise Refused("garbled", f"invalid answer from the API server: {error} is missing") from None
        except (ValueError, TypeError, RecursionError, LineTooLong) as error:
            raise Refused("garbled", f"invalid answer from the API server: {_line(error)}") from None


def collection(kind: Kind, version: str, namespace: str) -> str:
    """The path of all objects of a kind in a namespace."""
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{kind.plural}"


def typed(kind: Kind, version: str, each: Object) -> Object:
    """Set apiVersion and kind, which the items of lists of built-in kinds lack."""
    return {**each, "apiVersion": f"{kind.group}/{version}" if kind.group else version, "kind": kind.kind}


def _object(data: bytes) -> Object:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError("it is not a JSON object")
    return found


def _event(line: bytes) -> Event:
    """Parse one line of a watch; raises Refused for an ERROR event, and KeyError or others for an invalid one."""
    event = _object(line)
    subject = event["object"]
    match event["type"]:
        case "ADDED" | "MODIFIED" | "DELETED" as what:
            return Event(what, _named(subject), subject["metadata"]["resourceVersion"])
        case "BOOKMARK":
            return Event("BOOKMARK", subject, subject["metadata"]["resourceVersion"])
        case "ERROR":
            raise Refused(_REASONS.get(subject.get("code"), "refused"), _message(subject))
    raise ValueError(f"unknown event type '{event['type']}'")


def _named(found: Object) -> Object:
    """Check that an object has a name."""
    if not isinstance(found["metadata"]["name"], str):
        raise TypeError("an object has no name")
    return found


def _status_message(answer: bytes) -> str:
    """The message of a Status, if it is one."""
    try:
        return _message(_object(answer))
    except (ValueError, TypeError, RecursionError):
        return ""


def _message(status: Object) -> str:
    return " ".join(str(status.get("message", "")).split())


def _line(error: object) -> str:
    return " ".join(str(error).split()) or type(error).__name__
