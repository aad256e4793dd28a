"""The checks at one ingress, each with one or more requests of a client. Verdicts are found in `verdicts`."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from pulsar_ingress_proxy.binary import commands
from pulsar_ingress_proxy.binary.broker_connection import BrokerConnection
from pulsar_ingress_proxy.binary.commands_pb2 import Command, Connect, Lookup
from pulsar_ingress_proxy.binary.frames import BadFrame, write
from pulsar_ingress_proxy.net.errors import BadAnswer
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, WEB_SCHEMES
from pulsar_ingress_proxy.tools.conformance.expectations import CheckedIngress
from pulsar_ingress_proxy.tools.conformance.producing import produce
from pulsar_ingress_proxy.tools.conformance.replies import (
    Hop,
    Reply,
    binary_reply,
    http_reply,
    next_hop,
    service_url,
)
from pulsar_ingress_proxy.tools.conformance.verdicts import (
    Expected,
    Verdict,
    client_addresses,
    failed,
    held,
    is_peer,
    judge,
    judge_addresses,
    judge_hop,
    unreached,
)
from pulsar_ingress_proxy.tools.explain import OwnAnswer
from pulsar_ingress_proxy.tools.reach import ClientTls, answered, attempt, body_of, dial, greeted

_MOST_HOPS = 20
"""As the Java client follows them (maxLookupRedirects)."""
_READY = "/admin/v2/brokers/ready"
_BETWEEN = 2.0
"""Seconds between two rounds."""


@dataclass(frozen=True, slots=True)
class Client:
    """What all requests have in common."""

    tls: ClientTls
    cacert: str | None = None
    token: str | None = field(default=None, repr=False)
    does_produce: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """One check at one ingress."""

    ingress: CheckedIngress
    check: str
    verdict: Verdict
    seconds: float = 0.0


class Visit:
    """One client at one ingress; what one check finds, the next ones use."""

    def __init__(self, ingress: CheckedIngress, client: Client) -> None:
        self._ingress = ingress
        self._client = client
        self._snapshot = ingress.snapshot
        self._timeouts = ingress.snapshot.config.timeouts
        self._reply: Reply | None = None
        """The latest answer to the lookup."""

    async def run(self, tell: Callable[[Result], None]) -> list[Result]:
        """All checks that apply, in order; those that build on one that did not hold are skipped."""
        results: dict[str, Result] = {}
        for check in CHECKS:
            if self._ingress.url.scheme not in check.schemes or (check.is_asked_for and not self._client.does_produce):
                continue
            before = results.get(check.after or "")
            began = time.monotonic()
            if before is None or before.verdict.leads_on:
                verdict = await check.run(self)
            else:
                verdict = before.verdict.skipping(before.check)
            results[check.name] = Result(self._ingress, check.name, verdict, time.monotonic() - began)
            tell(results[check.name])
        return list(results.values())

    async def connect(self) -> Verdict:
        """The name resolves, the port opens, the certificate is valid; a binary ingress answers CONNECT."""
        url = self._ingress.url
        if self._ingress.is_binary:
            found = await self._ask(Hop(url), is_lookup=False)
            return found if isinstance(found, Verdict) else judge(found, self._expected())
        tried = await attempt(url, self._timeouts.connect, self._open)
        if tried.problem:
            return unreached(tried, url, at_ingress=True)
        return held(f"{url.authority} is open{', its certificate is valid' if tried.certificate else ''}")

    async def lookup(self) -> Verdict:
        """The ingress answers a lookup: with a broker's addresses, or with a redirect."""
        hop = Hop(self._ingress.url, self._ingress.lookup_target)
        reply = await self._ask(hop)
        if isinstance(reply, Verdict):
            return reply
        self._reply = reply
        return judge(reply, self._expected(hop))

    async def redirects(self) -> Verdict:
        """Every redirect leads to the listener and can be followed, and the last one to an answer."""
        assert self._reply is not None
        verdict, self._reply = await self._follow(self._reply)
        return verdict

    async def addresses(self) -> Verdict:
        """Every address in the answer is on the listener."""
        assert self._reply is not None
        return judge_addresses(self._reply, self._ingress.listener, self._snapshot)

    async def brokers(self) -> Verdict:
        """Every address in the answer can be reached from here."""
        reply = self._reply
        assert reply is not None
        if reply.through:
            hops = [Hop(reply.url, named=named) for named in dict.fromkeys(reply.addresses.values())]
        else:
            urls = map(service_url, dict.fromkeys(client_addresses(reply, self._snapshot).values()))
            hops = [Hop(url, _READY) for url in urls if url is not None]
        verdicts = await asyncio.gather(*map(self._reach, hops))
        problems = [verdict for verdict in verdicts if verdict.state == "failed"]
        if problems:
            return replace(problems[0], text="; ".join(problem.text for problem in problems))
        return held(f"reached {', '.join(hop.named or str(hop.url) for hop in hops)}")

    async def admin(self) -> Verdict:
        """The ingress answers for a topic's partition metadata, as all clients ask for it."""
        hop = Hop(self._ingress.url, self._ingress.partitions_target)
        reply = await self._ask(hop)
        if isinstance(reply, Verdict):
            return reply
        if reply.is_redirect:
            return (await self._follow(reply, may_be_absent=True))[0]
        return judge(reply, self._expected(hop, may_be_absent=True))

    async def produce(self) -> Verdict:
        """A message comes back to Apache Pulsar's own client."""
        client, ingress = self._client, self._ingress
        within = max(1, round(self._timeouts.lookup))
        return await asyncio.to_thread(produce, str(ingress.url), ingress.topic, client.token, client.cacert, within)

    async def _follow(self, reply: Reply, may_be_absent: bool = False) -> tuple[Verdict, Reply]:
        """Follow redirects up to an answer, or to the problem with one of them; the verdict, and the last answer."""
        hops: list[str] = []
        while reply.is_redirect:
            hop = next_hop(reply)
            if problem := judge_hop(reply, hop, self._ingress.listener, self._snapshot):
                return problem, reply
            assert hop is not None
            hops.append(hop.named or str(hop.url))
            if is_peer(hop, self._snapshot):
                return held(f"to {' to '.join(hops)}, a peer cluster", is_allowed=False), reply
            if len(hops) > _MOST_HOPS:
                text = f"more than {_MOST_HOPS} redirects, the last ones to {' to '.join(hops[-3:])}"
                return failed("broker", text), reply
            answer = await self._ask(hop)
            if isinstance(answer, Verdict):
                return answer, reply
            reply = answer
            verdict = judge(reply, self._expected(hop, may_be_absent))
            if not verdict.leads_on:
                return verdict, reply
        return held(f"to {' to '.join(hops)}" if hops else "no broker redirects this lookup"), reply

    async def _reach(self, hop: Hop) -> Verdict:
        """Whether a broker's address is answered, without credentials."""
        reply = await self._ask(hop, is_lookup=False, with_token=False)
        if isinstance(reply, Verdict):
            return reply
        return judge(reply, Expected(self._refusal(hop)))

    def _expected(self, hop: Hop | None = None, may_be_absent: bool = False) -> Expected:
        refusal = self._refusal(hop) if hop is not None else None
        return Expected(refusal, self._client.token is not None, may_be_absent)

    def _refusal(self, hop: Hop) -> OwnAnswer | None:
        is_same = hop.url.scheme in WEB_SCHEMES or hop.url == self._ingress.url
        return self._ingress.refusal(hop.url, hop.target) if is_same else None

    async def _ask(self, hop: Hop, is_lookup: bool = True, with_token: bool = True) -> Reply | Verdict:
        """One request, and its answer; a verdict if there is none."""
        token = self._client.token if with_token else None
        is_binary = hop.url.scheme in BINARY_SCHEMES

        async def ask() -> Reply:
            return await (self._ask_binary(hop, is_lookup, token) if is_binary else self._get(hop, token))

        tried = await attempt(hop.url, self._timeouts.connect, ask, self._timeouts.lookup if is_lookup else None)
        at_ingress = hop.url == self._ingress.url and not hop.named
        return tried.answer if tried.answer is not None else unreached(tried, hop.url, at_ingress)

    async def _get(self, hop: Hop, token: str | None) -> Reply:
        fields = [f"Authorization: Bearer {token}".encode()] if token is not None else []
        within = self._timeouts.lookup
        async with answered(hop.url, hop.target, self._trust, within, *fields) as answer:
            body = await body_of(answer, within)
            return http_reply(hop.url, answer.status, answer.fields, answer.location, body)

    async def _ask_binary(self, hop: Hop, is_lookup: bool, token: str | None) -> Reply:
        """CONNECT, and a lookup if it is accepted."""
        connect = Connect(client_version=b"pulsar-ingress-proxy", protocol_version=19)
        if token is not None:
            connect.auth_method_name, connect.auth_data = b"token", token.encode()
        if hop.named:
            connect.proxy_to_broker_url = hop.named.rpartition("://")[2].encode()
        within = self._timeouts.lookup
        try:
            async with greeted(hop.url, connect, self._trust, within) as (connection, greeting):
                reply = binary_reply(hop.url, greeting.command())
                if not is_lookup or greeting.type != commands.CONNECTED:
                    return reply
                lookup = Lookup(topic=self._ingress.topic.encode(), request_id=1, authoritative=hop.authoritative)
                connection.send(write(Command(type=commands.LOOKUP, lookup=lookup)))
                return binary_reply(hop.url, await _answer(connection, within))
        except BadFrame as fault:
            raise BadAnswer(f"the answer is not Pulsar's protocol: {fault}") from None

    async def _open(self) -> bool:
        protocol = await dial(self._ingress.url, self._trust, _Opened)
        protocol.close()
        return True

    def _trust(self) -> ClientTls:
        return self._client.tls


class _Opened(asyncio.Protocol):
    """A connection that only shows that it can be made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.close = transport.close


async def _answer(connection: BrokerConnection, within: float) -> Command:
    """The answer to a lookup, or the error before the connection is closed."""
    while (frame := await connection.frame(within)).type not in (commands.LOOKUP_RESPONSE, commands.ERROR):
        pass
    return frame.command()


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table: what is tried, where, and after which other check has held."""

    name: str
    run: Callable[[Visit], Awaitable[Verdict]]
    after: str | None = None
    schemes: tuple[str, ...] = (*WEB_SCHEMES, *BINARY_SCHEMES)
    is_asked_for: bool = False
    """Only with --produce."""


CHECKS = (
    Check("connect", Visit.connect),
    Check("lookup", Visit.lookup, after="connect"),
    Check("redirects", Visit.redirects, after="lookup"),
    Check("addresses", Visit.addresses, after="redirects"),
    Check("brokers", Visit.brokers, after="addresses"),
    Check("admin", Visit.admin, after="connect", schemes=WEB_SCHEMES),
    Check("produce", Visit.produce, after="brokers", is_asked_for=True),
)


async def conform(
    ingresses: Sequence[CheckedIngress], client: Client, wait: float, tell: Callable[[Result], None]
) -> list[Result]:
    """The results of all checks; they are made again until everything holds or so many seconds are over."""
    deadline = time.monotonic() + wait
    while True:
        rounds = await asyncio.gather(*(Visit(ingress, client).run(tell) for ingress in ingresses))
        results = [result for one in rounds for result in one]
        left = deadline - time.monotonic()
        if holds(results) or left <= 0:
            return results
        await asyncio.sleep(min(_BETWEEN, left))


def holds(results: Iterable[Result]) -> bool:
    return all(result.verdict.state != "failed" for result in results)
