"""`run --hold` with a config that is no good: who comes by a binary socket hears why."""

from pathlib import Path

from playbooks import FrameWire
from runs import Place, beside
from wires import dialed
from words import connect


async def test_client_gets_the_config_error_while_the_sidecar_holds_with_a_bad_config(tmp_path: Path) -> None:
    place = Place(tmp_path / "config.yaml", "http://127.0.0.1:1")
    place.write(bindAddresses=[f"pulsar://127.0.0.1:{place.port}"], brokers={})
    async with beside(place, hold=True):
        wire = await dialed(FrameWire, place.port)
        wire.send(connect())
        heard = await wire.hear()
        assert b"bad-config: " in heard
        assert b"brokers.brokerServiceUrl: is missing" in heard
        assert await wire.end() == b""
