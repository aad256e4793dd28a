"""The classpaths of the Pulsar versions under test, their web servers and Kafka, resolved once by Maven into a cache.

How Maven reaches its repositories is the machine's own setting. Run as a program it does all of this ahead of the
tests, since a first resolution takes longer than a test may.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from children import dying_with
from jvm import Missing, java_version, needed

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
ATTEMPTS = 3  # what has arrived is not fetched again
MAVEN_SECONDS = 1200


@dataclass(frozen=True, slots=True)
class Release:
    """One version of Pulsar, and what its jars must be named by to be found."""

    version: str
    modules: tuple[str, ...] = ("pulsar-broker",)
    constraints: str = "pulsar"  # the pom that holds the versions of all that Pulsar depends on
    companions: Mapping[str, str] = field(default_factory=dict)  # modules that are not published in this version
    kind: str = "pulsar"

    @property
    def has_web_listeners(self) -> bool:
        """Whether advertisedListeners may hold http and https (apache/pulsar#25851)."""
        return int(self.version.split(".")[0]) >= 5

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.version}"

    @property
    def pom(self) -> str:
        pulsar = "org.apache.pulsar"
        managed = [_dependency(pulsar, module, version) for module, version in self.companions.items()]
        managed.append(_dependency(pulsar, self.constraints, self.version, "<type>pom</type><scope>import</scope>"))
        modules = [_dependency(pulsar, module, self.version) for module in self.modules]
        management = f"<dependencyManagement><dependencies>{''.join(managed)}</dependencies></dependencyManagement>"
        return _pom("pulsar", management, modules)


@dataclass(frozen=True, slots=True)
class WebServer:
    """Jetty and Jersey as a line of Pulsar has them, and whether its servlets are of javax or jakarta."""

    group: str
    module: str
    version: str
    jersey: str
    java: str

    @property
    def name(self) -> str:
        return f"{self.module}-{self.version}"

    @property
    def pom(self) -> str:
        jersey = "org.glassfish.jersey"
        modules = [
            _dependency(self.group, self.module, self.version),
            _dependency(f"{jersey}.containers", "jersey-container-servlet-core", self.jersey),
            _dependency(f"{jersey}.inject", "jersey-hk2", self.jersey),
        ]
        return _pom("jetty", "", modules)


@dataclass(frozen=True, slots=True)
class Kafka:
    """A Kafka broker; its own poms leave the binding of its logger to its distribution."""

    version: str
    log4j: str

    @property
    def name(self) -> str:
        return f"kafka-{self.version}"

    @property
    def pom(self) -> str:
        broker = _dependency("org.apache.kafka", "kafka_2.13", self.version)
        return _pom("kafka", "", [broker, _dependency("org.apache.logging.log4j", "log4j-slf4j-impl", self.log4j)])


Artifacts = Release | WebServer | Kafka


# The newest of each line that can be resolved whole.
RELEASES = {
    "4.0": Release(
        "4.0.8",
        modules=("pulsar-broker", "pulsar-proxy"),
        companions={"pulsar-opentelemetry": "4.0.7", "jetcd-core-shaded": "4.0.7"},
    ),
    "4.2": Release("4.2.4"),
    "5.0": Release("5.0.0-M1", constraints="pulsar-dependencies"),
}
DEFAULT = "4.0"

# A client that no broker has among its jars.
V5_CLIENT = Release(
    "5.0.0-M1", modules=("pulsar-client-v5",), constraints="pulsar-dependencies", kind="pulsar-client-v5"
)

# By the line of Pulsar; about 7 MB each.
WEB_SERVERS = {
    "4.0": WebServer("org.eclipse.jetty", "jetty-servlet", "9.4.58.v20250814", "2.42", "javax"),
    "4.2": WebServer("org.eclipse.jetty.ee8", "jetty-ee8-servlet", "12.1.11", "2.42", "javax"),
    "5.0": WebServer("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.10", "3.1.10", "jakarta"),
}

KAFKA = Kafka("4.3.1", log4j="2.25.4")


def cache(artifacts: Artifacts) -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "pulsar-ingress-proxy" / artifacts.name


def classpath(artifacts: Artifacts) -> str:
    """The jars. Where two processes resolve them at once, the second waits for the first and finds it done."""
    java_version()
    maven = needed("mvn")
    folder = cache(artifacts)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        jars = _whole(artifacts)
        if jars is None:
            _say(f"{artifacts.name}: resolving with Maven into {folder}; once")
            jars = _resolve(maven, artifacts)
    return ":".join(str(folder / "jars" / jar) for jar in jars)


def _whole(artifacts: Artifacts) -> list[str] | None:
    """The jars in their order, if all are there and are what is asked for today."""
    folder = cache(artifacts)
    try:
        whole = json.loads((folder / "whole.json").read_text())
        sizes: dict[str, int] = whole["jars"]
        same = whole["made of"] == _recipe(artifacts)
        same = same and all((folder / "jars" / jar).stat().st_size == size for jar, size in sizes.items())
    except FileNotFoundError:
        return None
    return list(sizes) if same else None


def _resolve(maven: str, artifacts: Artifacts) -> list[str]:
    folder = cache(artifacts)
    unfinished = folder / "unfinished"
    for old in (unfinished, folder / "jars"):
        shutil.rmtree(old, ignore_errors=True)
    for old in (folder / "whole.json", *folder.glob("*.jsa")):
        old.unlink(missing_ok=True)
    unfinished.mkdir()
    (unfinished / "pom.xml").write_text(artifacts.pom)
    found = unfinished / "classpath"
    command = [
        maven, "--batch-mode", "--quiet", "--strict-checksums",
        "--file", str(unfinished / "pom.xml"), f"{PLUGIN}:build-classpath", f"-Dmdep.outputFile={found}",
        "-DincludeScope=runtime",
    ]  # fmt: skip
    for attempt in range(ATTEMPTS):
        again = ["--update-snapshots"] if attempt else []  # else Maven remembers that it found nothing
        done = subprocess.run(
            command + again,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAVEN_SECONDS,
            preexec_fn=dying_with(os.getpid()),
        )
        if done.returncode == 0:
            break
    else:
        raise Missing(f"{artifacts.name}: Maven failed {ATTEMPTS} times\n{done.stdout[-3000:]}")
    sizes: dict[str, int] = {}
    (unfinished / "jars").mkdir()
    for number, jar in enumerate(found.read_text().strip().split(":")):
        name = f"{number:03}-{Path(jar).name}"
        _take(Path(jar), unfinished / "jars" / name)
        sizes[name] = (unfinished / "jars" / name).stat().st_size
    os.replace(unfinished / "jars", folder / "jars")
    (unfinished / "whole.json").write_text(json.dumps({"made of": _recipe(artifacts), "jars": sizes}))
    os.replace(unfinished / "whole.json", folder / "whole.json")
    shutil.rmtree(unfinished)
    return list(sizes)


def _take(jar: Path, to: Path) -> None:
    """Maven's own repository may be cleared at any time."""
    try:
        to.hardlink_to(jar)
    except OSError:
        shutil.copy2(jar, to)


def _dependency(group: str, module: str, version: str, more: str = "") -> str:
    name = f"<groupId>{group}</groupId><artifactId>{module}</artifactId>"
    return f"<dependency>{name}<version>{version}</version>{more}</dependency>"


def _pom(name: str, management: str, dependencies: Sequence[str]) -> str:
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        f"<groupId>e2e</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>"
        f"{management}<dependencies>{''.join(dependencies)}</dependencies></project>"
    )


def _recipe(artifacts: Artifacts) -> str:
    return hashlib.sha256(artifacts.pom.encode()).hexdigest()


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """The lock goes with the process that holds it, however that ends."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> None:
    """Resolve the lines that are named, or the one that `make e2e` needs; and the web servers of all."""
    lines = sys.argv[1:] or [DEFAULT]
    named = (KAFKA if line == "kafka" else RELEASES[line] for line in lines)
    clients = [V5_CLIENT] if "5.0" in lines else []
    wanted: list[Artifacts] = [*named, *clients, *WEB_SERVERS.values()]
    try:
        for artifacts in wanted:
            classpath(artifacts)
            _say(f"{artifacts.name}: {cache(artifacts)}")
    except Missing as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
