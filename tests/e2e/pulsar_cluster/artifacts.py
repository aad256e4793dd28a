"""The server classpaths of the Pulsar versions under test, resolved once by Maven into a cache.

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
from collections.abc import Iterator, Mapping
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

    @property
    def has_web_listeners(self) -> bool:
        """Whether advertisedListeners may hold http and https (apache/pulsar#25851)."""
        return int(self.version.split(".")[0]) >= 5


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


def cache(release: Release) -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "pulsar-ingress-proxy" / f"pulsar-{release.version}"


def classpath(release: Release) -> str:
    """The jars of a release. Where two resolve it at once, the second waits for the first and finds it done."""
    java_version()
    maven = needed("mvn")
    folder = cache(release)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        jars = _whole(release)
        if jars is None:
            _say(f"Pulsar {release.version}: resolving with Maven into {folder}; once, about 250 MB")
            jars = _resolve(maven, release)
    return ":".join(str(folder / "jars" / jar) for jar in jars)


def _whole(release: Release) -> list[str] | None:
    """The jars in their order, if all are there and are what this release asks for today."""
    folder = cache(release)
    try:
        whole = json.loads((folder / "whole.json").read_text())
        sizes: dict[str, int] = whole["jars"]
        same = whole["made of"] == _recipe(release)
        same = same and all((folder / "jars" / jar).stat().st_size == size for jar, size in sizes.items())
    except FileNotFoundError:
        return None
    return list(sizes) if same else None


def _resolve(maven: str, release: Release) -> list[str]:
    folder = cache(release)
    unfinished = folder / "unfinished"
    for old in (unfinished, folder / "jars"):
        shutil.rmtree(old, ignore_errors=True)
    for old in (folder / "whole.json", *folder.glob("*.jsa")):
        old.unlink(missing_ok=True)
    unfinished.mkdir()
    (unfinished / "pom.xml").write_text(_pom(release))
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
        raise Missing(f"Pulsar {release.version}: Maven failed {ATTEMPTS} times\n{done.stdout[-3000:]}")
    sizes: dict[str, int] = {}
    (unfinished / "jars").mkdir()
    for number, jar in enumerate(found.read_text().strip().split(":")):
        name = f"{number:03}-{Path(jar).name}"
        _take(Path(jar), unfinished / "jars" / name)
        sizes[name] = (unfinished / "jars" / name).stat().st_size
    os.replace(unfinished / "jars", folder / "jars")
    (unfinished / "whole.json").write_text(json.dumps({"made of": _recipe(release), "jars": sizes}))
    os.replace(unfinished / "whole.json", folder / "whole.json")
    shutil.rmtree(unfinished)
    return list(sizes)


def _take(jar: Path, to: Path) -> None:
    """Maven's own repository may be cleared at any time."""
    try:
        to.hardlink_to(jar)
    except OSError:
        shutil.copy2(jar, to)


def _pom(release: Release) -> str:
    def dependency(module: str, version: str, more: str = "") -> str:
        name = f"<groupId>org.apache.pulsar</groupId><artifactId>{module}</artifactId>"
        return f"<dependency>{name}<version>{version}</version>{more}</dependency>"

    managed = [dependency(module, version) for module, version in release.companions.items()]
    managed.append(dependency(release.constraints, release.version, "<type>pom</type><scope>import</scope>"))
    modules = [dependency(module, release.version) for module in release.modules]
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>e2e</groupId><artifactId>pulsar</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencyManagement><dependencies>{''.join(managed)}</dependencies></dependencyManagement>"
        f"<dependencies>{''.join(modules)}</dependencies></project>"
    )


def _recipe(release: Release) -> str:
    return hashlib.sha256(_pom(release).encode()).hexdigest()


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """The lock goes with the process that holds it, however that ends."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> None:
    """Resolve the lines that are named, or the one that `make e2e` needs."""
    try:
        for line in sys.argv[1:] or [DEFAULT]:
            classpath(RELEASES[line])
            _say(f"Pulsar {RELEASES[line].version}: {cache(RELEASES[line])}")
    except Missing as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
