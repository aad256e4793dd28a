"""`make image`: builds the image, runs it as it is run in a pod, does one lookup through it, and says what that gave.

Leaves in dist/image an archive for `docker load` and the SBOM. `--json` prints the figures for programs.
"""

import argparse
import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.image import trial
from deploy.image.base import Missing, say
from deploy.image.engines import REPOSITORY, Engine, Recipe, engine
from pulsar_ingress_proxy import __version__

TAG = f"pulsar-ingress-proxy:{__version__}"
SBOM = "usr/share/doc/pulsar-ingress-proxy/sbom.cdx.json"
OUT = REPOSITORY / "dist/image"
STARTS = 3
LARGEST = 8
PART = re.compile(r".*/site-packages/(pyspark/jars|\w+)|usr/(?:local/)?lib/(?:jvm|python3)")
"""Spark's jars, or another Python package; Java, or Python's standard library."""


@dataclass(frozen=True, slots=True)
class Part:
    """Files that belong together, and what they weigh."""

    name: str
    bytes: int
    """As a tar."""
    compressedBytes: int  # noqa: N815
    """Of that tar under gzip: about what is pulled."""


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
    startSeconds: float  # noqa: N815
    """From the command that starts a container until /readyz is 200; the least of three, as all else is the machine."""
    lookup: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.image.build",
        description="Build the image, run it, do one lookup through it as uid 10001 on a read-only root.",
    )
    parser.add_argument(
        "--base", metavar="IMAGE", help="build from it, not from the Dockerfile's or a Debian made here"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    try:
        chosen = engine()
        build(chosen, options.base)
        result = asyncio.run(examine(chosen))
    except Missing as missing:
        sys.exit(f"image: {missing}")
    _print(result, options.json)
    return 0


def build(chosen: Engine, base: str | None = None) -> None:
    say(f"building {TAG} with {chosen.name}")
    with secrets() as kept:
        chosen.build(Recipe(TAG, arguments(base), kept))


def arguments(base: str | None) -> dict[str, str]:
    """What every build is told."""
    revision, changed, epoch = (_git(*words) for words in (
        ("rev-parse", "HEAD"), ("status", "--porcelain"), ("log", "-1", "--format=%ct")
    ))  # fmt: skip
    return {
        "VERSION": __version__,
        "REVISION": f"{revision or 'unknown'}{'-changed' if changed else ''}",
        "SOURCE": os.environ.get("IMAGE_SOURCE", "unknown"),
        "SOURCE_DATE_EPOCH": epoch or "0",
        **({"BASE": base} if base else {}),
    }


async def examine(chosen: Engine) -> Result:
    """Run it and look at it; what is to be kept goes to dist/image."""
    OUT.mkdir(parents=True, exist_ok=True)
    archive, sbom = OUT / f"{TAG.replace(':', '-')}.tar", OUT / "sbom.cdx.json"
    with chosen.opened(TAG) as image:
        shutil.copyfile(image.root / SBOM, sbom)
        parts = weighed(image.root)
        starts = []
        for _ in range(STARTS):
            async with trial.serving(image) as served:
                code, said = await served.lookup()
                if code != 0:
                    raise Missing(f"the lookup through the container failed:\n{said}")
                starts.append(served.start_seconds)
    chosen.save(TAG, archive)
    return Result(TAG, chosen.name, str(archive), str(sbom), *total(parts), parts, min(starts), said.splitlines())


def weighed(root: Path) -> list[Part]:
    """The largest parts of an image, and all others together as the last."""
    files: dict[str, list[Path]] = defaultdict(list)
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name).relative_to(root) for name in names):
            found = PART.match(str(path))
            files[(found[1] or found[0]) if found else "others"].append(path)
    parts = sorted((_weigh(root, name, paths) for name, paths in files.items()), key=lambda part: -part.bytes)
    large = [part for part in parts if part.name != "others"][:LARGEST]
    return [*large, Part("others", *total([part for part in parts if part not in large]))]


def total(parts: Sequence[Part]) -> tuple[int, int]:
    return sum(part.bytes for part in parts), sum(part.compressedBytes for part in parts)


def _weigh(root: Path, name: str, paths: Sequence[Path]) -> Part:
    scales = _Scales()
    with tarfile.open(fileobj=scales, mode="w|") as tar:
        for path in sorted(paths):
            tar.add(root / path, path)
    return Part(name, scales.size, scales.compressed + len(scales.packer.flush()))


class _Scales(io.RawIOBase):
    """A file that keeps only its size, as it is and under gzip."""

    def __init__(self) -> None:
        self.size = self.compressed = 0
        self.packer = zlib.compressobj(6, wbits=31)

    def write(self, block: Any) -> int:
        self.size += len(block)
        self.compressed += len(self.packer.compress(block))
        return len(block)


def sized(parts: Sequence[Part]) -> Iterator[str]:
    """The sizes, as lines for a terminal."""
    size, compressed = total(parts)
    yield f"size      {size / 1e6:.0f} MB, {compressed / 1e6:.0f} MB compressed:"
    for part in parts:
        yield f"  {part.bytes / 1e6:6.0f} MB {part.compressedBytes / 1e6:6.0f} MB  {part.name}"


@contextmanager
def secrets() -> Iterator[dict[str, Path]]:
    """How this machine reaches its package index, where its environment says so."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        if authorities := os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE"):
            found["ca"] = Path(authorities)
        if index := os.environ.get("PIP_INDEX_URL"):
            found["pip"] = Path(folder) / "pip.conf"
            found["pip"].write_text(f"[global]\nindex-url = {index}\n")
        yield found


def _git(*words: str) -> str:
    """Empty where this is no repository, as in an unpacked archive."""
    return subprocess.run(["git", "-C", REPOSITORY, *words], capture_output=True, text=True).stdout.strip()


def _print(result: Result, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(result), indent=2))
        return
    print(f"image     {result.tag}, by {result.engine}: {result.archive}")
    print(f"SBOM      {result.sbom}")
    print(*sized(result.parts), sep="\n")
    print(f"start-up  {result.startSeconds:.2f} s until /readyz is 200")
    print("lookup    as uid 10001 on a read-only root:")
    print(*(f"  {line}" for line in result.lookup), sep="\n")


if __name__ == "__main__":
    raise SystemExit(main())
