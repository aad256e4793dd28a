"""What tests do to a cluster: apply, patch, delete, list and watch, by plain HTTP as one user."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

Object = dict[str, Any]

LINE_BYTES = 4 << 20  # one event of a watch is one line, and a definition has half a megabyte
SETTLE_SECONDS = 30  # by when a definition that was applied or deleted is in force


class Refused(Exception):
    """An answer of 400 or more, with the API server's own words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """The API as one user sees it. Objects are as in manifests; kinds are looked up in the API's own discovery."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._resources: dict[tuple[str, str], Object] = {}

    async def apply(self, *objects: Object) -> list[Object]:
        """Create or change them, in this order, as `kubectl apply --server-side` does."""
        return [await self._apply(each) for each in objects]

    async def _apply(self, each: Object) -> Object:
        query = {"fieldManager": "tests", "force": "true"}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        return await self._ask("PATCH", await self._path_of(each), params=query, headers=headers, data=json.dumps(each))

    async def create(self, each: Object, *, dry_run: bool = False) -> Object:
        """Create one. A field that the kind does not have is refused, as any other fault."""
        path = await self._path(each["apiVersion"], each["kind"], each["metadata"].get("namespace"))
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return await self._ask("POST", path, params=query, json=each)

    async def patch(
        self, each: Object, change: Object, subresource: str | None = None, how: str = "merge-patch"
    ) -> Object:
        """Merge a change into an object, or into its status where that is the subresource."""
        path = await self._path_of(each) + (f"/{subresource}" if subresource else "")
        headers = {"Content-Type": f"application/{how}+json"}
        return await self._ask("PATCH", path, headers=headers, data=json.dumps(change))

    async def delete(self, each: Object, grace_seconds: int = 0) -> None:
        """Delete an object. A pod that has a node and a grace period stays, terminating: no kubelet ends it."""
        await self._ask("DELETE", await self._path_of(each), params={"gracePeriodSeconds": str(grace_seconds)})

    async def get(self, each: Object) -> Object:
        return await self._ask("GET", await self._path_of(each))

    async def list(self, api_version: str, kind: str, namespace: str | None = None) -> Object:
        return await self._ask("GET", await self._path(api_version, kind, namespace))

    @asynccontextmanager
    async def watch(
        self, api_version: str, kind: str, namespace: str | None = None, *, since: str, seconds: int = 300
    ) -> AsyncIterator[AsyncIterator[Object]]:
        """The events after a resourceVersion, bookmarks among them, until the server ends the watch."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(seconds),
        }
        path = await self._path(api_version, kind, namespace)
        async with self._session.get(path, params=query, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            await _accepted(answer)
            yield (json.loads(line) async for line in answer.content)

    async def everything(self) -> set[str]:
        """Whatever can be listed, in all namespaces, but what the API server keeps writing for itself."""
        groups = (await self._ask("GET", "/apis"))["groups"]
        found: set[str] = set()
        for root in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)):
            for resource in (await self._ask("GET", root))["resources"]:
                if "list" in resource["verbs"] and resource["name"] not in ("events", "leases"):
                    items = (await self._ask("GET", f"{root}/{resource['name']}"))["items"]
                    metadata = [each["metadata"] for each in items]
                    found |= {f"{resource['kind']} {each.get('namespace', '')}/{each['name']}" for each in metadata}
        return found

    async def bind(self, pod: Object, node: str) -> None:
        """What a scheduler does."""
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}, **target}
        await self._ask("POST", f"{await self._path_of(pod)}/binding", json=binding)

    async def may(self, verb: str, group: str, resource: str, namespace: str | None = None) -> bool:
        """What `kubectl auth can-i` asks."""
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace or ""}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json=review)
        return bool(answer["status"]["allowed"])

    async def rights(self, namespace: str) -> set[tuple[str, str, str]]:
        """All that this user may do there: verb, group and resource; `kubectl auth can-i --list`."""
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        found = (await self._ask("POST", path, json={**kind, "spec": {"namespace": namespace}}))["status"]
        assert not found["incomplete"], found
        return {
            (verb, group, resource)
            for rule in found["resourceRules"]
            for verb in rule["verbs"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }

    async def service_account_token(self, namespace: str, name: str) -> str:
        """A token as a kubelet would project it into a pod of that ServiceAccount."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        made = await self._ask("POST", path, json={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
        token: str = made["status"]["token"]
        return token

    async def define(self, crds: Iterable[Object]) -> None:
        """Apply definitions, and wait until every version of theirs is served."""
        wanted = [*crds]
        await self.apply(*wanted)
        for crd in wanted:
            await _until(self._is_served, crd)

    async def undefine(self, crds: Iterable[Object]) -> None:
        """Delete definitions with all objects of theirs, and wait until they are gone and no longer served."""
        wanted = [*crds]
        for crd in wanted:
            await self.delete(crd)
        for crd in wanted:
            await _until(self._is_gone, crd)
            await _until(self._is_not_served, crd)  # which comes later, when the server has heard of it
        self._resources.clear()

    async def _is_served(self, crd: Object) -> bool:
        spec = crd["spec"]
        try:
            for version in spec["versions"]:
                if version["served"]:
                    await self.list(f"{spec['group']}/{version['name']}", spec["names"]["kind"])
        except Refused as refused:
            if refused.status not in (404, 429, 503):  # not known; its storage not ready; its group not
                raise
            return False
        return True

    async def _is_not_served(self, crd: Object) -> bool:
        self._resources.clear()  # or it would not be asked for them
        return not await self._is_served(crd)

    async def _is_gone(self, each: Object) -> bool:
        try:
            await self.get(each)
        except Refused as refused:
            if refused.status != 404:
                raise
            return True
        return False

    async def _path_of(self, each: Object) -> str:
        metadata = each["metadata"]
        return f"{await self._path(each['apiVersion'], each['kind'], metadata.get('namespace'))}/{metadata['name']}"

    async def _path(self, api_version: str, kind: str, namespace: str | None) -> str:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if (api_version, kind) not in self._resources:
            for resource in (await self._ask("GET", root))["resources"]:
                if "/" not in resource["name"]:  # pods/status is no kind of its own
                    self._resources[api_version, resource["kind"]] = resource
        if (api_version, kind) not in self._resources:
            raise Refused(404, f"{api_version} has no {kind}")
        plural = self._resources[api_version, kind]["name"]
        return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"

    async def _ask(self, method: str, path: str, **arguments: Any) -> Object:
        async with self._session.request(method, path, **arguments) as answer:
            await _accepted(answer)
            found: Object = await answer.json()
            return found


async def _until(condition: Callable[[Object], Awaitable[bool]], each: Object) -> None:
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            if await condition(each):
                return
            await asyncio.sleep(0.05)  # discovery has no watch


async def _accepted(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= 400:
        text = await answer.text()
        raise Refused(answer.status, json.loads(text)["message"] if answer.content_type == "application/json" else text)


@asynccontextmanager
async def connected(url: str, trust: ssl.SSLContext, token: str) -> AsyncIterator[Api]:
    """The API with a user's token, for as long as the block lasts."""
    async with aiohttp.ClientSession(
        url,
        headers={"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(ssl=trust),
        read_bufsize=LINE_BYTES,
    ) as session:
        yield Api(session)
