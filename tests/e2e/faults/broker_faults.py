"""Faults of brokers, of the network to them, and of their names."""

import asyncio
import signal
from collections.abc import AsyncIterator

from fault import Apply, fault
from histories import BROKERS
from observed_broker import Behaviour
from stage import Stage


@fault(
    "broker-killed",
    "One of three brokers is killed, and started again.",
    '`upstream_errors_total{reason="broker-unreachable"}`; the log names the broker and says `Connection refused`',
    is_quick=True,
    log="Connection refused",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    await stage.kill_broker(1)
    yield
    await stage.start_broker(1)


@fault(
    "broker-frozen",
    "One of three brokers is stopped (SIGSTOP): its kernel accepts connections, and nothing is answered.",
    '`upstream_errors_total{reason="broker-timeout"}`',
    is_quick=True,
    metric="upstream_errors_total broker-timeout",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    stage.signal_broker(1, signal.SIGSTOP)
    yield
    stage.signal_broker(1, signal.SIGCONT)


def behaves(behaviour: Behaviour, *brokers: int) -> Apply:
    async def apply(stage: Stage) -> AsyncIterator[None]:
        stage.behave(behaviour, *brokers)
        yield
        stage.behave(Behaviour.USUAL)

    return apply


fault(
    "broker-silent",
    "One of three brokers reads requests and never answers.",
    '`upstream_errors_total{reason="broker-timeout"}`',
    metric="upstream_errors_total broker-timeout",
)(behaves(Behaviour.SILENT, 1))
fault(
    "broker-slow",
    "All brokers take up to a second for each answer.",
    "`upstream_duration_seconds`, `in_flight_requests`",
    metric="upstream_duration_seconds_count",
)(behaves(Behaviour.SLOW))
fault(
    "broker-garbage",
    "One of three brokers answers with bytes that are no answer.",
    '`upstream_errors_total{reason="bad-answer"}`',
    is_quick=True,
    metric="upstream_errors_total bad-answer",
)(behaves(Behaviour.GARBAGE, 1))
fault(
    "broker-half-answer",
    "All brokers send half of each answer, and close the connection.",
    '`upstream_errors_total{reason="broker-truncated"}`',
    metric="upstream_errors_total broker-truncated",
)(behaves(Behaviour.HALF))
fault(
    "broker-too-long",
    "All brokers send more than their Content-Length says: a second answer behind each.",
    "Over the binary protocol the log says `invalid frame from the broker`; over HTTP the connection is closed, and "
    "nothing is logged",
    log="invalid frame from the broker",
)(behaves(Behaviour.TOO_LONG))
fault(
    "broker-too-short",
    "All brokers send less than their Content-Length says, and nothing more.",
    '`upstream_errors_total{reason="broker-timeout"}`',
    metric="upstream_errors_total broker-timeout",
)(behaves(Behaviour.TOO_SHORT))
fault(
    "broker-astray",
    "One of three brokers names unknown brokers, in redirects and in answers.",
    '`leaks_total{action="blocked"}`, `redirects_total{action="refused"}`',
    is_quick=True,
    metric="leaks_total",
)(behaves(Behaviour.ASTRAY, 1))


@fault(
    "all-brokers-killed",
    "All brokers are killed, and started again.",
    '`upstream_errors_total{reason="broker-unreachable"}`; `/readyz` stays 200',
    is_quick=True,
    metric="upstream_errors_total broker-unreachable",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    await asyncio.gather(*(stage.kill_broker(number) for number in range(BROKERS)))
    yield
    await asyncio.gather(*(stage.start_broker(number) for number in range(BROKERS)))


@fault(
    "partition",
    "The network between the sidecar and one of three brokers drops all packets silently.",
    "`upstream_errors_total`; the log names the broker and says `no connection within`, or `No route to host`",
    is_quick=True,
    metric="upstream_errors_total broker-unreachable",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    stage.network.unplug(stage.addresses[1])
    yield
    stage.network.plug(stage.addresses[1])


# DNS


@fault(
    "dns-gone",
    "The DNS server is gone.",
    "The log says `cannot be looked up`",
    log="cannot be looked up",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    await stage.stop_names()
    yield
    await stage.start_names(stage.hosts)


@fault(
    "dns-denies",
    "The DNS server says that no broker exists.",
    "The log says `cannot be looked up`",
    log="cannot be looked up",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    await stage.start_names({})
    yield
    await stage.start_names(stage.hosts)


@fault(
    "dns-slow",
    "The DNS server takes three seconds for each answer, longer than `timeouts.connect`.",
    "The log says `could not be looked up within`",
    log="could not be looked up within",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    await stage.start_names(stage.hosts, seconds=3)
    yield
    await stage.start_names(stage.hosts)


@fault(
    "dns-changes",
    "One of three brokers moves to another address, and DNS follows later.",
    '`upstream_errors_total{reason="broker-unreachable"}` until DNS has the new address',
    is_quick=True,
    metric="upstream_errors_total broker-unreachable",
)
async def _(stage: Stage) -> AsyncIterator[None]:
    name, _ = list(stage.hosts.items())[1]
    await stage.move_broker(1)
    yield
    await stage.start_names(stage.hosts | {name: stage.addresses[1]})
