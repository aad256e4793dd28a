"""The jars that `s3a://` needs, as deploy/spark/README.md names them: fetched once by Maven, and held to their hashes.

How Maven reaches its repositories is the machine's own setting. Run as a program it does this ahead of the tests, since
Amazon's are 686 MB.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from caching import Missing, alone, cache, say, sha256

README = Path(__file__).parents[3] / "deploy/spark/README.md"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
ATTEMPTS = 3
SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"


def named() -> list[Jar]:
    """What the page tells to add."""
    found = re.findall(r"\$maven/(\S+)/([^/\s]+)/([^/\s]+)/\2-\3\.jar#sha256=([0-9a-f]{64})", README.read_text())
    return [Jar(group.replace("/", "."), name, version, sha) for group, name, version, sha in found]


def jars() -> list[Path]:
    """Where they are; fetched if they are not there yet."""
    folder = cache("s3a-jars")
    with alone(folder):
        for jar in named():
            if not _is_whole(folder, jar):
                say(f"fetching {jar.file} with Maven into {folder}; once")
                _fetch(folder, jar)
    return [folder / jar.file for jar in named()]


def _is_whole(folder: Path, jar: Jar) -> bool:
    return (folder / jar.file).exists() and sha256(folder / jar.file) == jar.sha256


def _fetch(folder: Path, jar: Jar) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing(f"mvn is missing: `make e2e-full` needs Maven to fetch {jar.file}")
    pom, found = folder / "pom.xml", folder / "classpath"
    pom.write_text(_pom(jar))
    command = [
        "setpriv", "--pdeathsig", "TERM", maven, "--batch-mode", "--quiet", "--strict-checksums", "--file", str(pom),
        f"{PLUGIN}:build-classpath", f"-Dmdep.outputFile={found}",
    ]  # fmt: skip
    for attempt in range(ATTEMPTS):
        again = ["--update-snapshots"] if attempt else []  # else Maven remembers that it found nothing
        done = subprocess.run([*command, *again], capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode == 0:
            break
    else:
        raise Missing(f"{jar.file}: Maven failed {ATTEMPTS} times\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    unfinished = folder / f"{jar.file}.unfinished"
    unfinished.unlink(missing_ok=True)
    _take(Path(found.read_text().strip()), unfinished)
    if (was := sha256(unfinished)) != jar.sha256:
        raise Missing(f"{jar.file}: has the SHA-256 {was}, and {README.name} has {jar.sha256}")
    os.replace(unfinished, folder / jar.file)


def _take(jar: Path, to: Path) -> None:
    """Maven's own repository may be cleared at any time."""
    try:
        to.hardlink_to(jar)
    except OSError:
        shutil.copy2(jar, to)


def _pom(jar: Jar) -> str:
    """Of this jar alone: what it depends on is named on the page, or Spark has it."""
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>e2e</groupId><artifactId>s3a</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies><dependency><groupId>{jar.group}</groupId><artifactId>{jar.name}</artifactId>"
        f"<version>{jar.version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        "</dependency></dependencies></project>"
    )


if __name__ == "__main__":
    try:
        for path in jars():
            say(str(path))
    except Missing as missing:
        sys.exit(str(missing))
