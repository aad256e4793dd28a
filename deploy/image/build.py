"""`make image`: builds the image, runs it as it is run in a pod, does one lookup through it, and says what that gave.

Leaves in dist/image an archive for `docker load` and the SBOM. `--json` prints the figures for programs.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.image import trial
from deploy.image.base import Missing, say
from deploy.image.engines import REPOSITORY, Engine, Recipe, engine
from pulsar_ingress_proxy import __version__

TAG = f"pulsar-ingress-proxy:{__version__}"
SBOM = "usr/share/doc/pulsar-ingress-proxy/sbom.cdx.json"
OUT = REPOSITORY / "dist/image"
STARTS = 3


@dataclass(frozen=True, slots=True)
class Result:
    """What was made, and what was seen of it."""

    tag: str
    engine: str
    archive: str
    sbom: str
    bytes: int
    """Of all its files, as a tar."""
    compressedBytes: int  # noqa: N815
    """Of that tar under gzip: about what is pulled."""
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
        "SOURCE_DATE_EPOCH": epoch or "0",
        **({"BASE": base} if base else {}),
    }


async def examine(chosen: Engine) -> Result:
    """Run it and look at it; what is to be kept goes to dist/image."""
    OUT.mkdir(parents=True, exist_ok=True)
    archive, sbom = OUT / f"{TAG.replace(':', '-')}.tar", OUT / "sbom.cdx.json"
    with chosen.opened(TAG) as image:
        shutil.copyfile(image.root / SBOM, sbom)
        size, compressed = sizes(image.root)
        starts = []
        for _ in range(STARTS):
            async with trial.serving(image) as served:
                code, said = await served.lookup()
                if code != 0:
                    raise Missing(f"the lookup through the container failed:\n{said}")
                starts.append(served.start_seconds)
    chosen.save(TAG, archive)
    return Result(TAG, chosen.name, str(archive), str(sbom), size, compressed, min(starts), said.splitlines())


def sizes(root: Path) -> tuple[int, int]:
    """Of a tar of these files: as it is, and compressed."""
    size = compressed = 0
    packer = zlib.compressobj(6, wbits=31)
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        while block := tar.stdout.read(1 << 20):
            size += len(block)
            compressed += len(packer.compress(block))
    return size, compressed + len(packer.flush())


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
    print(f"size      {result.bytes / 1e6:.0f} MB, {result.compressedBytes / 1e6:.0f} MB compressed")
    print(f"start-up  {result.startSeconds:.2f} s until /readyz is 200")
    print("lookup    as uid 10001 on a read-only root:")
    print(*(f"  {line}" for line in result.lookup), sep="\n")


if __name__ == "__main__":
    raise SystemExit(main())
