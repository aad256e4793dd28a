"""Puts the cases to every version and load manager, straight and through the sidecar, and writes what came as a table.

Run as a program it writes docs/compatibility.md, and fails where brokers do not answer as the cases say.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests"))  # as pytest does for the tests

# ruff: noqa: E402
from artifacts import RELEASES
from broker_cases import ADMIN, FREE, LOOKUPS, Case, Played, Reply, parsed, played
from brokers import LOAD_MANAGERS, Broker, LoadManager, Options
from children import Failed
from cluster import running
from gateways import sidecar
from jvm import Missing
from real_brokers import (
    LISTENER_PORT,
    OnListenerPort,
    RealBrokers,
    ThroughSidecar,
    inner_addresses,
    played_again,
)

PAGE = ROOT / "docs" / "compatibility.md"
SECTIONS = {
    "Lookups of a topic that a broker has": LOOKUPS,
    "Lookups of a topic that no broker owns yet": FREE,
    "Admin calls": ADMIN,
}
PORT_CASES = (
    *(case for cases in (LOOKUPS, FREE) for case in cases if case.name in ("plain", "free")),
    *(case for case in ADMIN if case.name in ("stats", "health of another broker")),
)
SHORT = {"lookup": "/lookup/…", "path": "/lookup/…", "admin": "/admin/…", "topics": "/topics/…"}  # see Scene.said
AT_ONCE, ROUNDS = 12, 5


@dataclass(frozen=True, slots=True)
class Combination:
    """A version and a load manager."""

    line: str
    load_manager: LoadManager

    @property
    def version(self) -> str:
        return RELEASES[self.line].version


@dataclass(frozen=True, slots=True)
class Seen:
    """What a case came to."""

    broker: str
    sidecar: str


Observations = dict[str, Seen]
COMBINATIONS = [
    Combination(line, manager) for line in sorted(RELEASES) for manager in sorted(LOAD_MANAGERS, reverse=True)
]


async def observed(combination: Combination) -> tuple[Observations, list[str]]:
    """What a cluster of that kind answers to each case, and where that is not what was expected."""
    ports = {n: {"bindAddresses": f"external:http://{Broker(n).address}:{LISTENER_PORT}"} for n in range(3)}
    options = Options(
        line=combination.line, load_manager=combination.load_manager, trust_forwarded_for=True, conf_of=ports
    )
    seen: Observations = {}
    wrong: list[str] = []
    with running(options, _say) as cluster, sidecar(cluster):
        straight, through = RealBrokers(cluster), ThroughSidecar(cluster)
        for case in (case for cases in SECTIONS.values() for case in cases):
            direct = await played_again(case, straight)
            got = await played(case, through)  # once: what gets out once has got out
            wrong += [f"{combination}: {case.name}: {fault}" for fault in direct.faults]
            wrong += [
                f"{combination}: {case.name}: the sidecar lets out {inner}" for inner in inner_addresses(got.reply)
            ]
            seen[case.name] = Seen(described(case, direct), described(case, got))
        seen[MIXED] = Seen(await mixed(straight, straight), await mixed(straight, through))
        if seen[MIXED].sidecar != EACH_ITS_OWN:
            wrong.append(f"{combination}: the sidecar lets lookups get each other's listener")
        on_listener = OnListenerPort(cluster)
        for case in PORT_CASES:
            try:
                seen[f"port: {case.name}"] = Seen(described(case, await played(case, on_listener)), "")
            except ConnectionRefusedError:
                seen[f"port: {case.name}"] = Seen("nothing: the port is not bound", "")
    return seen, wrong


MIXED = "lookups with different listeners at the same time"
EACH_ITS_OWN = "each its own listener"


async def mixed(inside: RealBrokers, asked: RealBrokers) -> str:
    """Whether lookups for `external` get the answers of others at the same time (apache/pulsar#26244)."""
    for _ in range(ROUNDS):
        path = f"/lookup/v2/topic/persistent/{await inside.namespace()}/orders?authoritative=true&listenerName="
        others = [inside.send(0, "GET", f"{path}internal", {}, None) for _ in range(AT_ONCE)]
        ours = [asked.send(0, "GET", f"{path}external", {}, None) for _ in range(AT_ONCE)]
        together = [one for pair in zip(others, ours, strict=True) for one in pair]
        for reply in (await asyncio.gather(*together))[1::2]:
            body = parsed(reply.body)
            if isinstance(body, dict) and _listener(str(body.get("brokerUrl"))) != "external":
                return "may get another's listener"
    return EACH_ITS_OWN


def described(case: Case, result: Played) -> str:
    """An answer in short, and the same for every run: brokers by their roles."""
    reply, scene = result.reply, result.scene
    body = parsed(reply.body)
    if "location" in reply.headers:
        return f"{reply.status} {_led(reply.headers['location'], case, result)}"
    if isinstance(body, dict) and "brokerUrlSsl" in body:
        urls = ", ".join(f"`{key}` {_listener(str(body[key]))}" for key in ("brokerUrl", "httpUrl") if key in body)
        return f"{reply.status}, {urls}"
    return f"{reply.status}{_reason(reply, body, scene.namespace)}"


def _led(location: str, case: Case, result: Played) -> str:
    scene, parts = result.scene, urlsplit(location)
    place = ""
    for role, number in scene.roles.items():
        inside = urlsplit(scene.brokers[number].web).hostname
        outside = urlsplit(scene.brokers[number].external).hostname
        if parts.hostname in (inside, outside):
            whom = "itself" if role == case.ask else f"the {role}"
            place = f"to {whom}, {'internal' if parts.hostname == inside else 'external'}: "
    target = f"{parts.path}{'?' if parts.query else ''}{parts.query}"
    for name, short in SHORT.items():
        target = target.replace(scene.said[name], short)
    target = target.replace(scene.namespace, "t/n").replace(scene.topic.bundle_range, "0x…")
    for broker in scene.brokers:
        target = target.replace(broker.id, "BROKER").replace(broker.escaped, "BROKER")
    return f"{place}`{target}`"


def _listener(url: str) -> str:
    return "external" if "example.com" in url else "internal"


def _reason(reply: Reply, body: object, namespace: str) -> str:
    if reply.headers.get("content-type", "").startswith("text/html"):
        return ", a page of HTML"
    if reply.status < 400:
        return ""
    reason = str(body.get("reason", "")) if isinstance(body, dict) else reply.text
    line = next((line for line in reason.splitlines() if line.startswith("Message: ")), reason.partition("\n")[0])
    if line == "Message: null":  # an exception without one
        line = reason.partition("Stacktrace:")[2].strip().partition("\n")[0]
    line = line.replace(namespace, "t/n").replace("`", "'")
    for number in range(3):
        line = line.replace(f"pulsar-broker-{number}.pulsar-broker.pulsar.svc.cluster.local:8080", "BROKER")
    line = line.removeprefix("Message: ").partition(" at index")[0]
    code = line.partition(": ")[0]
    return f" `{code if reply.status in (400, 403) and ' ' not in code else line[:90]}`"


def page(found: Mapping[Combination, Observations | str]) -> str:
    return "\n".join([*_head(found), *_tables(found)]) + "\n"


def _head(found: Mapping[Combination, Observations | str]) -> Iterator[str]:
    yield from HEAD.splitlines()
    yield ""
    yield "| Pulsar | load manager | run |"
    yield "|---|---|---|"
    for combination, seen in found.items():
        yield f"| {combination.version} | {combination.load_manager} | {seen if isinstance(seen, str) else 'yes'} |"


def _tables(found: Mapping[Combination, Observations | str]) -> Iterator[str]:
    ran = {combination: seen for combination, seen in found.items() if not isinstance(seen, str)}
    for title, cases in SECTIONS.items():
        yield from ("", f"## {title}")
        yield from ("| request | Pulsar | a broker says | a client gets through the sidecar |", "|---|---|---|---|")
        for case in cases:
            yield from _rows(f"{_title(case)}<br>{_request(case)}", case.name, ran)
        if cases is FREE:
            yield from _rows(MIXED, MIXED, ran)
    yield from ("", f"## A web port of the listener, `bindAddresses=external:http://…:{LISTENER_PORT}`")
    yield from ("| request | Pulsar | a broker says |", "|---|---|---|")
    for case in PORT_CASES:
        title = _title(case) if case.owned else "a topic that no broker owns yet"
        for row in _rows(f"{title}<br>{_request(case)}", f"port: {case.name}", ran):
            yield row.removesuffix("  |")


def _rows(title: str, name: str, ran: Mapping[Combination, Observations]) -> Iterator[str]:
    """One for each answer that there is, with those who give it."""
    answers: dict[Seen, list[Combination]] = {}
    for combination, observations in ran.items():
        answers.setdefault(observations[name], []).append(combination)
    for seen, who in answers.items():
        got = "the same" if seen.sidecar == seen.broker else seen.sidecar
        yield f"| {title} | {_who(who, list(ran))} | {seen.broker} | {got} |"
        title = ""


def _who(some: Sequence[Combination], every: Sequence[Combination]) -> str:
    if len(some) == len(every):
        return "all"
    for manager in LOAD_MANAGERS:
        if list(some) == [one for one in every if one.load_manager == manager]:
            return manager
    names = []
    for version in dict.fromkeys(one.version for one in every):
        managers = [one.load_manager for one in some if one.version == version]
        both = [one.load_manager for one in every if one.version == version]
        if managers:
            names.append(version if managers == both else f"{version} {managers[0]}")
    return ", ".join(names)


def _title(case: Case) -> str:
    return "plain" if case.name == "free" else case.name.removeprefix("free, ")


def _request(case: Case) -> str:
    target = case.target
    for name, short in SHORT.items():
        target = target.replace(f"{{{name}}}", short)
    for role in ("leader", "owner", "other"):
        target = target.replace(f"{{{role}.id}}", "BROKER")
    target = target.replace("{namespace}", "t/n").replace("{bundle}", "t/n/0x…").replace("{cluster}", "CLUSTER")
    headers = "".join(f"<br>`{name}: {value}`" for name, value in case.headers.items() if name != "Content-Type")
    return f"`{case.method} {target}`{headers}"


HEAD = """# What brokers of each version answer

`make e2e-full` writes this page from the answers of real clusters. Each cluster has three brokers with the listeners
`internal` and `external`. Every request is made twice, each time for a new namespace: directly to a broker, and
through the sidecar, by the address that this broker has on `external`. Unless the request says otherwise, that broker
neither is the leader nor owns the topic.

The brokers trust forwarded headers (`webServiceTrustXForwardedFor=true`), which is not the default; without it,
`X-Forwarded-Proto` and `Forwarded` have no effect. The versions are the newest of their lines that Maven can resolve
completely. The simulated brokers of `make demo` and `make test` are tested for the same answers
(`tests/broker_cases.py`).

In the tables, `t/n` stands for tenant and namespace, and `BROKER` for the id of a broker.

The most important results:

- The name of a listener selects only `brokerUrl` and `nativeUrl`. Web addresses in answers and redirects are internal.
  On 5.x they are those of the listener whose web port was asked, if it has one. Even then, calls that name a broker,
  such as the health of another broker, redirect to internal addresses.
- The extensible load manager does not redirect lookups. It redirects admin calls, and on 4.x all of these redirects
  have `authoritative=true`, whether or not the broker is the leader.
- A broker that trusts forwarded headers and has no TLS port answers 412 to requests that arrived over https. Behind
  the sidecar this does not happen, because the sidecar sends brokers the scheme of its own connection.
- With the modular load manager, 4.0.8 and 5.0.0-M1 may answer a lookup with the listener of another lookup at the same
  time ([apache/pulsar#26244](https://github.com/apache/pulsar/issues/26244)). A lookup by the broker itself is enough
  to cause it. If the address book has the addresses of all listeners, the sidecar corrects such an answer. Otherwise
  it cannot identify the broker, and treats the answer as a leak.
- A slash in a topic name (`%2F`) makes 4.0 read it as a name of the old form, which contains a cluster. Later versions
  answer with an error.
- Calls about schemas are redirected to the owner of the topic like other admin calls, although clients make them.
- Brokers construct the URL of a redirect themselves. Up to 4.2, a lookup loses all parameters but two; other calls
  keep theirs, with stricter encoding and in another order. Do not compare a Location with the request."""


async def main() -> None:
    found: dict[Combination, Observations | str] = {}
    wrong: list[str] = []
    for combination in COMBINATIONS:
        _say(f"Pulsar {combination.version}, {combination.load_manager} load manager")
        try:
            seen, faults = await observed(combination)
        except (Failed, Missing) as failed:
            found[combination] = f"no: {str(failed).splitlines()[0]}"
            wrong.append(f"{combination}: {failed}")
        else:
            found[combination] = seen
            wrong += faults
    PAGE.write_text(page(found))
    if wrong:
        sys.exit("\n".join(wrong))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
