"""Address books, and what `doctor` finds at their addresses."""

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build
from pulsar_ingress_proxy.tools.doctor import Finding, examine


def book(*lines: tuple[str, str], pool: str = "http://127.0.0.1:1") -> Snapshot:
    return build(
        load_mapping(
            {
                "brokers": {"webServiceUrl": [pool]},
                "advertisedListeners": [{"broker": broker, "listeners": urls} for broker, urls in lines],
            }
        )
    )


async def diagnose(snapshot: Snapshot, listener: str | None) -> list[Finding]:
    heard: list[Finding] = []
    findings = await examine(snapshot, listener, heard.append)
    assert sorted(map(str, heard)) == sorted(map(str, findings))
    return findings
