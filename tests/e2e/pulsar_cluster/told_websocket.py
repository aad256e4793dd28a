"""A client of the WebSocket API that does as it is told, like told_client.py: URL LOG SECONDS TOKEN CA LISTENER.

It has no use for the last two, and writes no log.
"""

import asyncio
import base64
import json
import sys
from typing import Any

import aiohttp


class Told:
    def __init__(self, session: aiohttp.ClientSession, url: str, seconds: str) -> None:
        self._session = session
        self._url = f"{url.replace('http', 'ws', 1)}/ws/v2"
        self._seconds = int(seconds)
        self._producers: dict[str, aiohttp.ClientWebSocketResponse] = {}
        self._consumer: aiohttp.ClientWebSocketResponse

    async def subscribe(self, topic: str) -> None:
        self._consumer = await self._opened(
            f"consumer/{topic.replace('://', '/')}/told?subscriptionInitialPosition=Earliest"
        )

    async def produce(self, topic: str, *messages: str) -> None:
        if topic not in self._producers:
            self._producers[topic] = await self._opened(f"producer/{topic.replace('://', '/')}")
        for message in messages:
            await self._producers[topic].send_json({"payload": base64.b64encode(message.encode()).decode()})
            answer = await self._received(self._producers[topic])
            if answer["result"] != "ok":
                raise aiohttp.ClientError(answer["result"])

    async def consume(self, messages: int) -> list[str]:
        return [await self._next(self._consumer) for _ in range(messages)]

    async def consume_until(self, message: str) -> None:
        while await self._next(self._consumer) != message:
            pass

    async def read(self, topic: str, messages: int) -> list[str]:
        reader = await self._opened(f"reader/{topic.replace('://', '/')}?messageId=earliest")
        return [await self._next(reader) for _ in range(messages)]

    async def _next(self, socket: aiohttp.ClientWebSocketResponse) -> str:
        message = await self._received(socket)
        await socket.send_json({"messageId": message["messageId"]})
        return base64.b64decode(message["payload"]).decode()

    async def _received(self, socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
        async with asyncio.timeout(self._seconds):
            received: dict[str, Any] = await socket.receive_json()
        return received

    async def _opened(self, path: str) -> aiohttp.ClientWebSocketResponse:
        async with asyncio.timeout(self._seconds):
            return await self._session.ws_connect(f"{self._url}/{path}")


async def main(url: str, log: str, seconds: str, token: str, *_: str) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"} if token else {}) as session:
        told = Told(session, url, seconds)
        while line := await asyncio.to_thread(sys.stdin.readline):
            call, *arguments = json.loads(line)
            try:
                answer = {"done": await getattr(told, call)(*arguments)}
            except (aiohttp.ClientError, TimeoutError, TypeError) as failure:  # TypeError: it was closed
                answer = {"failed": f"{type(failure).__name__}: {failure}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
