"""Brokers behind STRICT mutual TLS: the sidecar shows the gateway's certificate, and wants to see a broker's."""

from pathlib import Path

from istio_certificates import GATEWAY, Authority
from istio_cluster import HOST
from istio_meshes import Mesh
from istio_stack import IstioStack, istio_stack

LOOKUP = f"https://{HOST}/lookup/v2/topic/persistent/public/default/orders"


async def asked(istio: IstioStack) -> tuple[int, str]:
    """The status of a lookup, and the reason where there is one."""
    async with istio.client.get(LOOKUP) as answer:
        return answer.status, (await answer.json()).get("reason", "")


async def test_broker_with_another_spiffe_identity_is_refused_with_502(istio: IstioStack) -> None:
    await istio.open_brokers(identity="spiffe://cluster.local/ns/elsewhere/sa/pulsar-broker")
    status, reason = await asked(istio)
    assert (status, reason.partition(":")[0]) == (502, "broker-unreachable")
    await istio.sidecar.process.says("spiffe://cluster.local/ns/elsewhere/sa/pulsar-broker, not ")
    assert not any(broker.requests for broker in istio.cluster.brokers)


async def test_certificates_that_istio_replaces_are_taken_up_without_a_restart(istio: IstioStack) -> None:
    """With a new root, so that neither side takes the other's old ones."""
    assert await asked(istio) == (200, "")
    renewed = Authority()
    await istio.open_brokers(authority=renewed)
    assert (await asked(istio))[0] == 502
    renewed.issue(GATEWAY).write(istio.certificates)
    await istio.sidecar.process.says("reloaded certificates")
    assert await asked(istio) == (200, "")


async def test_broker_denies_a_workload_that_the_authorization_policy_does_not_allow(istio: IstioStack) -> None:
    """A certificate of the mesh, and of a workload that the AuthorizationPolicy has no rule for."""
    istio.mesh.authority.issue("spiffe://cluster.local/ns/elsewhere/sa/default").write(istio.certificates)
    await istio.sidecar.process.says("reloaded certificates")
    async with istio.client.get(LOOKUP) as answer:
        assert answer.status == 403
        assert await answer.text() == "RBAC: access denied"
    assert not any(broker.requests for broker in istio.cluster.brokers)


async def test_sidecar_uses_mutual_tls_when_brokers_are_permissive(istio: IstioStack) -> None:
    """PERMISSIVE, Istio's default: TLS of those who offer Istio's name for HTTP/1.1, and no other, is the mesh's."""
    await istio.open_brokers(strict=False)
    assert await asked(istio) == (200, "")
    seen = [request for broker in istio.cluster.brokers for request in broker.requests]
    assert all(request.values("X-Forwarded-Client-Cert")[0].endswith(f"URI={GATEWAY}") for request in seen)


async def test_sidecar_answers_503_until_istio_has_written_certificates(mesh: Mesh, tmp_path: Path) -> None:
    """A native sidecar does: Istio's agent, which writes them, is in a container that starts after it."""
    async with istio_stack(mesh, tmp_path, early=True) as istio:
        status, reason = await asked(istio)
        assert (status, reason.partition(":")[0]) == (503, "bad-config")
        mesh.authority.issue(GATEWAY).write(istio.certificates)
        await istio.sidecar.process.says("serving")
        assert await asked(istio) == (200, "")
