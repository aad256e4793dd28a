"""The program of `rust/`: built by cargo once, from the crates whose hashes stand in Cargo.lock, and kept in a cache.

Cargo.lock has no `source` lines, since all crates come from cargo's own index; they are put back from a lock that cargo
makes itself. Run as a program it builds ahead of the tests, since that takes longer than a test may.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from caching import Missing, alone, cache, say, sha256

CRATE = Path(__file__).parent / "rust"
PROGRAM = "told"
ATTEMPTS = 3  # what has arrived and what is compiled is not done again
BUILD_SECONDS = 3600


def version() -> str:
    """That of the crate which the program is about."""
    found = re.search(r'^pulsar = \{ version = "=([^"]+)"', (CRATE / "Cargo.toml").read_text(), re.MULTILINE)
    assert found is not None, "rust/Cargo.toml does not require pulsar"
    return found[1]


def built() -> Path:
    """The program, if it is in the cache, whole, and made from what the crate says today."""
    folder = cache(f"pulsar-rs-{version()}")
    try:
        same = json.loads((folder / "whole.json").read_text()) == _whole(folder / PROGRAM)
    except FileNotFoundError:
        same = False
    if not same:
        raise Missing(f"pulsar-rs {version()} is not built: `make e2e-full` does it, or `python {__file__}`")
    return folder / PROGRAM


def make() -> Path:
    """Build it if it is not built. Where two do so at once, the second waits for the first and finds it done."""
    folder = cache(f"pulsar-rs-{version()}")
    with alone(folder):
        try:
            return built()
        except Missing:
            say(f"building {PROGRAM} with cargo into {folder}; once, some minutes")
        work = folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(CRATE, work)
        (work / "Cargo.lock").unlink()
        _cargo(work, "generate-lockfile")
        source = re.search(r'^source = ".*"$', (work / "Cargo.lock").read_text(), re.MULTILINE)
        assert source is not None
        locked = re.sub(r"^(?=checksum = )", f"{source[0]}\n", (CRATE / "Cargo.lock").read_text(), flags=re.MULTILINE)
        (work / "Cargo.lock").write_text(locked)
        crates = json.loads(_cargo(work, "metadata", "--locked", "--format-version", "1"))["packages"]
        # The crate pulsar looks for protoc in PATH, and not every machine has one.
        here = f"protoc-bin-vendored-linux-{ {'x86_64': 'x86_64', 'aarch64': 'aarch_64'}[os.uname().machine] }"
        (manifest,) = (crate["manifest_path"] for crate in crates if crate["name"] == here)
        _cargo(work, "build", "--locked", "--release", PROTOC=str(Path(manifest).parent / "bin/protoc"))
        os.replace(work / "target/release" / PROGRAM, folder / PROGRAM)
        (folder / "whole.json").write_text(json.dumps(_whole(folder / PROGRAM)))
        shutil.rmtree(work)
        return built()


def _whole(program: Path) -> dict[str, str]:
    parts = [(CRATE / file).read_bytes() for file in ("Cargo.toml", "Cargo.lock", "src/main.rs")]
    return {"made of": hashlib.sha256(b"\0".join(parts)).hexdigest(), PROGRAM: sha256(program)}


def _cargo(work: Path, *arguments: str, **variables: str) -> str:
    """Run cargo in that folder; its answer. How it reaches crates is the machine's own setting."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise Missing("cargo is missing: `make e2e-full` needs Rust 1.85 or newer to build a client")
    command = ["setpriv", "--pdeathsig", "TERM", "nice", "-n", "10", cargo, "--quiet", *arguments]
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            command, cwd=work, env=os.environ | variables, stdout=subprocess.PIPE, text=True, timeout=BUILD_SECONDS
        )
        if done.returncode == 0:
            return done.stdout
    raise Missing(f"cargo {' '.join(arguments)}: failed {ATTEMPTS} times")


def main() -> None:
    try:
        say(f"pulsar-rs {version()}: {make()}")
    except Missing as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
