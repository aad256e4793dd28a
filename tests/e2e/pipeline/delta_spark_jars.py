"""delta-spark for Spark 4.2 and what it needs beside Spark, fetched once by Maven.

Maven has no 4.4.1 of it, which the package index has.
"""

import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from caching import Missing, alone, cache, say
from s3a_jars import PLUGIN, SECONDS

VERSION = "4.4.0"
_OURS = ("delta-", "unitycatalog-")
"""Spark has the rest."""
_POM = (
    "<project><modelVersion>4.0.0</modelVersion>"
    "<groupId>e2e</groupId><artifactId>delta</artifactId><version>1</version><packaging>pom</packaging>"
    "<dependencies><dependency><groupId>io.delta</groupId><artifactId>delta-spark_4.2_2.13</artifactId>"
    f"<version>{VERSION}</version></dependency></dependencies></project>"
)


def jars() -> list[Path]:
    """Where they are; fetched if they are not there yet."""
    folder = cache(f"delta-spark-{VERSION}")
    with alone(folder):
        if not (folder / "jars").exists():
            say(f"fetching delta-spark {VERSION} with Maven into {folder}; once")
            _fetch(folder)
    return sorted((folder / "jars").glob("*.jar"))


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("mvn is missing: `make e2e-full` needs Maven to fetch delta-spark")
    pom, unfinished = folder / "pom.xml", folder / "unfinished"
    pom.write_text(_POM)
    shutil.rmtree(unfinished, ignore_errors=True)
    found = folder / "classpath"
    command = [
        "setpriv", "--pdeathsig", "TERM", maven, "--batch-mode", "--quiet", "--strict-checksums", "--file", str(pom),
        f"{PLUGIN}:build-classpath", f"-Dmdep.outputFile={found}",
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ended.returncode:
        raise Missing(f"delta-spark {VERSION}: Maven failed\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")
    unfinished.mkdir()
    for jar in map(Path, found.read_text().strip().split(":")):
        if jar.name.startswith(_OURS):
            shutil.copy2(jar, unfinished)
    unfinished.rename(folder / "jars")


if __name__ == "__main__":
    try:
        for path in jars():
            say(str(path))
    except Missing as missing:
        sys.exit(str(missing))
