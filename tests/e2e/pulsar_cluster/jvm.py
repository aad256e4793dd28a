"""How a JVM of the cluster is started: small, and fast with classes that an earlier one has shared."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

NEEDS = "`make e2e` needs Java 17 or newer and Maven"

# From Pulsar's own bin/pulsar.
OPENS = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
FLAGS = (
    *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENS),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djute.maxbuffer=10485760",
    "-Djava.net.preferIPv4Stack=true",
    f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.xml'}",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ActiveProcessorCount=2",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)


class Missing(Exception):
    """Something that the tests need is not there; never a reason to skip them."""


def needed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise Missing(f"{program} is missing: {NEEDS}")
    return found


@cache
def java_version() -> str:
    """As `java -version` says it, such as 17.0.15."""
    said = subprocess.run([needed("java"), "-version"], capture_output=True, text=True, timeout=60)
    found = re.search(r'version "([^"]+)"', said.stderr)
    if found is None or int(found[1].split(".")[0]) < 17:  # 8 calls itself 1.8
        raise Missing(f"{NEEDS}; this is {said.stderr.strip() or said.stdout.strip()}")
    return found[1]


def command(
    classpath: str, main: str, *arguments: str, heap: int, shared: Path | None = None, record: Path | None = None
) -> list[str]:
    """A JVM with so many MiB of heap, and as many outside of it; `record` writes the classes to share when it ends."""
    java_version()
    flags = [*FLAGS, f"-Xmx{heap}m", f"-XX:MaxDirectMemorySize={heap}m"]
    if record is not None:
        flags.append(f"-XX:ArchiveClassesAtExit={record}")
    elif shared is not None:
        flags.append(f"-XX:SharedArchiveFile={shared}")
    return [needed("java"), *flags, "-cp", classpath, main, *arguments]
