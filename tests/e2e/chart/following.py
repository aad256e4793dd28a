"""What controllers stand on: all objects of a kind, then every change of one."""

from collections.abc import Awaitable, Callable

from apiclient import Api, Object

Handler = Callable[[str, Object], Awaitable[None]]
SECONDS = 3600


async def follow(api: Api, api_version: str, kind: str, namespace: str, handle: Handler) -> None:
    """Until cancelled. A watch that fails is a fault of the test: the API server is to stay."""
    listed = await api.list(api_version, kind, namespace)
    for each in listed["items"]:
        await handle("ADDED", {"apiVersion": api_version, "kind": kind, **each})
    since = listed["metadata"]["resourceVersion"]
    async with api.watch(api_version, kind, namespace, since=since, seconds=SECONDS) as events:
        async for event in events:
            assert event["type"] != "ERROR", event
            if event["type"] != "BOOKMARK":
                await handle(event["type"], event["object"])
