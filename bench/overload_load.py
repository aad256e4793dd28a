"""An open-loop load beyond a proxy's capacity, as a gateway sends it: over kept connections, or a new one for each.

asyncio would be busy before the fastest proxy is, so this is one loop over epoll. Requests are due at random moments (a
Poisson process), and their latency is counted from then. A request that finds no connection waits, as in a gateway, and
a gateway bounds both the waiting and their number.
"""

import errno
import random
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

WAITING = 1024
"""Requests that wait for a connection; Envoy's default (max_pending_requests)."""
PATIENCE = 2.0
"""Seconds after which a request counts as timed out, from when it was due."""
_AT_ONCE = 1000
"""Requests that are sent before answers are read again; or a late generator would do nothing but send."""
FULL, TIMED_OUT, CUT = 0, 1, 2
"""In place of a status: the gateway's queue was full; no answer in time; the connection was closed before it."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: close with RST, or thousands of connections would keep their ports for a minute."""
_OPENING = (0, errno.EINPROGRESS, errno.EAGAIN)


class Result(NamedTuple):
    due: float
    latency: float
    status: int


class Stage(NamedTuple):
    """A time with a constant rate."""

    rate: float
    """Requests that were sent, per second: less than was wanted if the machine left the generator no time."""
    began: float
    ended: float
    cpu: float
    """CPU seconds of the generator."""

    def of(self, results: Sequence[Result]) -> list[Result]:
        """Those of its requests."""
        return [result for result in results if self.began <= result.due < self.ended]


@dataclass(slots=True, eq=False)
class _Connection:
    sock: socket.socket
    request: bytes = b""
    due: float = 0.0
    asked: int = 0
    """Its requests so far, by which a timeout knows whether it is meant."""
    is_busy: bool = True
    is_open: bool = False
    received: bytes = b""


@dataclass(slots=True)
class Gateway:
    """Sends requests to a proxy, stage by stage; connections last from stage to stage."""

    port: int
    requests: Sequence[bytes]
    connections: int
    """Maximum."""
    keeps: bool
    """Whether connections are used again."""
    dice: random.Random
    patience: float = PATIENCE
    results: list[Result] = field(default_factory=list)
    begun: int = 0
    """Requests that have a result, or will."""
    _epoll: select.epoll = field(default_factory=select.epoll)
    _by_fd: dict[int, _Connection] = field(default_factory=dict)
    _idle: list[_Connection] = field(default_factory=list)
    _waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    _deadlines: deque[tuple[float, _Connection, int]] = field(default_factory=deque)
    _next: int = 0

    def send(self, rate: float, seconds: float) -> Stage:
        """Send at this rate. Results of a stage may come in the next."""
        clock, gap = time.monotonic, self.dice.expovariate
        cpu, began, before = time.thread_time(), clock(), self.begun
        now, due, end = began, began + gap(rate), began + seconds
        while now < end:
            left = _AT_ONCE
            while due <= now and left:
                self._begin(due, now)
                due += gap(rate)
                left -= 1
            self.read(max(min(due, end) - clock(), 0))
            now = clock()
        return Stage((self.begun - before) / seconds, began, end, time.thread_time() - cpu)

    def saturate(self, requests: int, seconds: float) -> float:
        """Keep so many requests in flight; returns how many were answered 200, per second."""
        first = len(self.results)
        now = time.monotonic()
        end = now + seconds
        while now < end:
            while len(self._by_fd) - len(self._idle) < requests:
                self._begin(now, now)
            self.read(max(end - time.monotonic(), 0))
            now = time.monotonic()
        return sum(result.status == 200 for result in self.results[first:]) / seconds

    def read(self, within: float) -> None:
        """Wait for something to happen, and give up what was not answered in time."""
        for fd, event in self._epoll.poll(within):
            self._happened(self._by_fd[fd], event)
        self._give_up(time.monotonic())

    def close(self) -> None:
        for connection in list(self._by_fd.values()):
            self._drop(connection)
        self._epoll.close()

    def _begin(self, due: float, now: float) -> None:
        self.begun += 1
        request = self.requests[self._next]
        self._next = (self._next + 1) % len(self.requests)
        if self._idle:
            self._ask(self._idle.pop(), request, due)
        elif len(self._by_fd) < self.connections:
            self._open(request, due)
        elif len(self._waiting) < WAITING:
            self._waiting.append((due, request))
        else:
            self.results.append(Result(due, now - due, FULL))

    def _open(self, request: bytes, due: float) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if (fault := sock.connect_ex(("127.0.0.1", self.port))) not in _OPENING:
            raise OSError(fault, "cannot connect to the proxy")
        connection = _Connection(sock, request, due)
        self._by_fd[sock.fileno()] = connection
        self._deadlines.append((due + self.patience, connection, 0))
        self._epoll.register(sock.fileno(), select.EPOLLOUT)

    def _ask(self, connection: _Connection, request: bytes, due: float) -> None:
        connection.due, connection.is_busy, connection.received = due, True, b""
        connection.asked += 1
        self._deadlines.append((due + self.patience, connection, connection.asked))
        try:
            connection.sock.send(request)
        except OSError:
            self._failed(connection, CUT)

    def _happened(self, connection: _Connection, event: int) -> None:
        if not connection.is_open:
            if event & (select.EPOLLERR | select.EPOLLHUP):
                self._failed(connection, CUT)
                return
            connection.is_open = True
            self._epoll.modify(connection.sock.fileno(), select.EPOLLIN)
            try:
                connection.sock.send(connection.request)
            except OSError:
                self._failed(connection, CUT)
            return
        try:
            data = connection.sock.recv(65536)
        except OSError:
            data = b""
        if not data:
            if connection.is_busy:
                self._failed(connection, CUT)
            else:
                self._idle.remove(connection)
                self._drop(connection)
            return
        if connection.received:
            data = connection.received + data
        end = data.find(b"\r\n\r\n")
        if end < 0 or len(data) < end + 4 + _length(data[:end]):
            connection.received = data
            return
        now = time.monotonic()
        self.results.append(Result(connection.due, now - connection.due, int(data[9:12])))
        connection.is_busy = False
        if not self.keeps or b"\r\nconnection: close" in data[:end].lower():
            self._drop(connection)
            self._replace()
        elif self._waiting:
            due, request = self._waiting.popleft()
            self._ask(connection, request, due)
        else:
            self._idle.append(connection)

    def _failed(self, connection: _Connection, status: int) -> None:
        self.results.append(Result(connection.due, time.monotonic() - connection.due, status))
        self._drop(connection)
        self._replace()

    def _replace(self) -> None:
        """A connection has gone: the first request that waits gets another."""
        if self._waiting:
            due, request = self._waiting.popleft()
            self._open(request, due)

    def _drop(self, connection: _Connection) -> None:
        del self._by_fd[connection.sock.fileno()]
        connection.is_busy = False
        connection.sock.close()

    def _give_up(self, now: float) -> None:
        deadlines, waiting = self._deadlines, self._waiting
        while waiting and waiting[0][0] + self.patience <= now:
            self.results.append(Result(waiting.popleft()[0], self.patience, TIMED_OUT))
        while deadlines and deadlines[0][0] <= now:
            _, connection, asked = deadlines.popleft()
            if connection.is_busy and connection.asked == asked:
                self._failed(connection, TIMED_OUT)


def _length(head: bytes) -> int:
    """The size of an answer's body; all proxies here send it."""
    lower = head.lower()
    at = lower.find(b"content-length:")
    return int(lower[at + 15 :].split(b"\r", 1)[0])
