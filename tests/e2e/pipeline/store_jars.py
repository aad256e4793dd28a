"""The jars that Spark lacks for s3a://, by Maven into a cache: those that deploy/spark/README.md names, by hash.

How Maven reaches its repositories is the machine's own setting. Run as a program it fetches them ahead of the tests:
they are 690 MB.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from caching import Missing, alone, cache, say, sha256

README = Path(__file__).parents[3] / "deploy/spark/README.md"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
MAVEN_SECONDS = 1800


def jars() -> list[Path]:
    """All of them; those that are not there yet are fetched."""
    named = re.findall(r"\$maven/(\S+)/([^/\s]+)/([^/\s]+)/[^/\s]+\.jar#sha256=([0-9a-f]{64})", README.read_text())
    assert named, f"{README} names no jars"
    folder = cache("spark-stores")
    found = []
    with alone(folder):
        for group, artifact, version, expected in named:
            jar = folder / f"{artifact}-{version}.jar"
            if not jar.exists():
                _fetch(f"{group.replace('/', '.')}:{artifact}:{version}", jar, expected)
            found.append(jar)
    return found


def _fetch(artifact: str, jar: Path, expected: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("mvn is missing: `make e2e-full` needs Maven")
    say(f"{artifact}: fetching with Maven into {jar.parent}; once")
    unfinished = jar.parent / "unfinished"
    done = subprocess.run(
        [
            maven, "--batch-mode", "--quiet", "--strict-checksums", f"{PLUGIN}:copy", f"-Dartifact={artifact}",
            f"-DoutputDirectory={unfinished}",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=MAVEN_SECONDS,
    )  # fmt: skip
    if done.returncode != 0:
        raise Missing(f"{artifact}: Maven failed\n{done.stdout[-3000:]}")
    if sha256(unfinished / jar.name) != expected:
        raise Missing(f"{artifact}: is not the one that {README.name} has the hash of")
    os.replace(unfinished / jar.name, jar)


def main() -> None:
    try:
        jars()
    except Missing as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
