"""Builds the pipeline's image, runs it as in a pod over events of the sidecar's own writer, and says what that gave.

Leaves in dist/image an archive for `docker load` and the SBOM. `--json` prints the figures for programs.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.image import trial
from deploy.image.base import PACKAGES, Missing, say
from deploy.image.build import OUT, Part, arguments, secrets, sized, total, weighed
from deploy.image.engines import REPOSITORY, Container, Engine, Image, Recipe, engine
from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.config.model import Events
from pulsar_ingress_proxy.observability.access_record import AccessRecord
from pulsar_ingress_proxy.observability.event_log import EventLog
from pulsar_ingress_proxy.observability.metrics import Metrics
from pulsar_ingress_proxy.observability.recorder import Recorder
from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.syntax.authorities import Authority, parse_address

TAG = f"pulsar-ingress-pipeline:{__version__}"
DOCKERFILE = REPOSITORY / "deploy/image/Dockerfile.pipeline"
SBOM = "usr/share/doc/pulsar-ingress-pipeline/sbom.cdx.json"
JAVA = "openjdk-21-jre-headless"
WORK = "/var/lib/pulsar-ingress-pipeline"
UID = 10001
EVENTS = 100
RUN_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Result:
    """What was made, and what was seen of it."""

    tag: str
    engine: str
    archive: str
    sbom: str
    bytes: int
    """Of all its parts."""
    compressedBytes: int  # noqa: N815
    parts: list[Part]
    runSeconds: float  # noqa: N815
    """From the command that starts a container until it has ended, having taken a few events into tables."""
    again: float
    """The same with nothing new: what the start of Spark takes."""
    said: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.image.pipeline",
        description="Build the pipeline's image, take events into tables with it as uid 10001 on a read-only root.",
    )
    parser.add_argument(
        "--base", metavar="IMAGE", help="build from it, not from the Dockerfile's or a Debian made here"
    )
    parser.add_argument("--jars", metavar="URLS", default="", help="more jars for Spark: URLs with #sha256=…")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    try:
        chosen = engine()
        build(chosen, options.base, options.jars)
        result = asyncio.run(examine(chosen))
    except Missing as missing:
        sys.exit(f"image: {missing}")
    _print(result, options.json)
    return 0


def build(chosen: Engine, base: str | None = None, jars: str = "") -> None:
    say(f"building {TAG} with {chosen.name}")
    told = {**arguments(base), "JAVA": JAVA, **({"JARS": jars} if jars else {})}
    with secrets() as kept:
        chosen.build(Recipe(TAG, told, kept, DOCKERFILE, (*PACKAGES, JAVA), lasting="build"))


async def examine(chosen: Engine) -> Result:
    """Run it and look at it; what is to be kept goes to dist/image."""
    OUT.mkdir(parents=True, exist_ok=True)
    archive, sbom = OUT / f"{TAG.replace(':', '-')}.tar", OUT / "pipeline-sbom.cdx.json"
    with chosen.opened(TAG) as image, workplace() as place:
        shutil.copyfile(image.root / SBOM, sbom)
        parts = weighed(image.root)
        write_events(place.work / "events", EVENTS)
        try:
            first, again = await _timed(place, image), await _timed(place, image)
        finally:
            await place.clear(image)
    chosen.save(TAG, archive)
    return Result(
        TAG, chosen.name, str(archive), str(sbom), *total(parts), parts, first[0], again[0], first[1].splitlines()
    )


@dataclass(frozen=True, slots=True)
class Workplace:
    """Folders of this machine that a container may write to, as volumes are in a pod: all else is read-only."""

    work: Path
    temporary: Path

    def container(self, image: Image, variables: dict[str, str] | None = None) -> Container:
        # As any runtime does; without it nobody knows who localhost is.
        return image.container({Path("/etc/hosts"): "/etc/hosts"}, variables, {self.work: WORK, self.temporary: "/tmp"})

    async def run(self, image: Image, *words: str) -> tuple[int, str]:
        """The exit code, and all that was said."""
        return await trial.ran(self.container(image).run(*words), RUN_SECONDS)

    async def clear(self, image: Image) -> None:
        """Remove what containers have left, as their user: other users may not, unless they are root."""
        await trial.ran(self.container(image).instead("sh", "-c", f"rm -rf {WORK}/* /tmp/*"))


@contextmanager
def workplace() -> Iterator[Workplace]:
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace(Path(folder) / "work", Path(folder) / "tmp")
        for each in (place.work, place.temporary):
            each.mkdir()
            each.chmod(0o777)
        Path(folder).chmod(0o755)
        yield place


async def _timed(place: Workplace, image: Image) -> tuple[float, str]:
    """The seconds that `run` takes in a container, and what it said."""
    began = time.perf_counter()
    code, said = await place.run(image, "run", "--events", f"{WORK}/events", "--tables", f"{WORK}/tables")
    if code != 0:
        raise Missing(f"the pipeline failed in the container:\n{said}")
    return time.perf_counter() - began, said


def write_events(folder: Path, count: int) -> None:
    """So many lookups through one ingress, by the log that a sidecar writes."""
    ingress = Ingress("public", (trial.HOST,), "external")
    target = Target("lookup", "lookup", "public", "default", "persistent://public/default/orders")
    log = EventLog(Events.model_validate({"path": str(folder)}), "gateway-0", lambda _: None, lambda _, __: None)
    recorder = Recorder(Metrics("pulsar"), log, None, "pulsar", "gateway-0")
    log.start()
    for number in range(count):
        recorder.record(
            AccessRecord(
                id=f"{number:032x}",
                time=1_800_000_000.0 + number,
                generation=1,
                method="GET",
                bind="127.0.0.1:18080",
                peer=parse_address("10.1.2.3"),
                user_agent=b"Pulsar-Java-v4.0.1",
                target=target,
                request=Request(target, Authority(trial.HOST, None), None, "https"),
                selection=Selection(ingress, "external", "ingress"),
                listener="external",
                status=200,
                broker=f"pulsar-broker-{number % 3}:8080",
                duration=0.001,
                upstream_duration=0.0005,
                response_bytes=254,
            )
        )
    if not log.close(60):
        raise Missing(f"events could not be written to {folder}")
    for file in (folder, *folder.iterdir()):
        os.chmod(file, 0o755 if file.is_dir() else 0o644)


def _print(result: Result, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(result), indent=2))
        return
    print(f"image     {result.tag}, by {result.engine}: {result.archive}")
    print(f"SBOM      {result.sbom}")
    print(*sized(result.parts), sep="\n")
    print(f"run       {result.runSeconds:.1f} s with {EVENTS} events, {result.again:.1f} s with nothing new")
    print("said      as uid 10001 on a read-only root:")
    print(*(f"  {line}" for line in result.said), sep="\n")


if __name__ == "__main__":
    raise SystemExit(main())
