"""Collects what an image needs into a folder, in the build stage: the interpreter, the installed environment, the
shared libraries that both load, CA certificates, and those of Debian's packages that are named; nothing else.

It works alike for an interpreter of Debian's (/usr) and for one that stands beside it (/usr/local, as in the official
Python images). What Debian's packages have given is said in /var/lib/dpkg/status.d, where scanners look for it in
images without a package manager, with each package's copyright file. A package that stands there may be there in part.
"""

import json
import os
import platform
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

USER, UID = "pulsar-ingress-proxy", 10001

# Of the standard library: what makes and tests programs, and what needs libraries of a terminal, a database or NIS.
LEFT_OUT = (
    "__pycache__", "config-*", "dist-packages", "ensurepip", "EXTERNALLY-MANAGED", "idlelib", "lib2to3", "pydoc_data",
    "site-packages", "test", "tests", "tkinter", "turtle*", "venv",
    "curses", "dbm", "nis*", "sqlite3",
    "_curses*", "_dbm*", "_gdbm*", "_sqlite3*", "_test*", "_tkinter*", "readline*", "xxlimited*", "_xxtestfuzz*",
)  # fmt: skip
TO_BE_READ = ("/usr/share/doc/", "/usr/share/info/", "/usr/share/lintian/", "/usr/share/locale/", "/usr/share/man/")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
DPKG = Path("/var/lib/dpkg")


class Collection:
    """The folder that becomes the image's root, and the files of the base that are in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: set[Path] = set()

    def add(self, path: Path) -> None:
        """One file or link under its own name, and what the link leads to."""
        path = path.parent.resolve() / path.name
        if path in self.files:
            return
        self.files.add(path)
        target = self.place(path)
        if path.is_symlink():
            target.symlink_to(path.readlink())
            self.add(path.parent / path.readlink())
        elif path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            shutil.copy2(path, target)

    def add_tree(self, folder: Path, left_out: tuple[str, ...] = ()) -> None:
        for parent, folders, names in os.walk(folder):
            here = Path(parent)
            folders[:] = [name for name in folders if not any(Path(name).match(pattern) for pattern in left_out)]
            for name in names:
                if not any(Path(name).match(pattern) for pattern in left_out):
                    self.add(here / name)

    def add_package(self, name: str) -> None:
        """All that a Debian package has, but for what is to be read."""
        for line in _listing(name).read_text().splitlines():
            path = Path(line)
            if (path.is_symlink() or path.is_file()) and not line.startswith(TO_BE_READ):
                self.add(path)

    def place(self, path: Path) -> Path:
        """Where a path of the image is in the folder."""
        target = self.root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def write(self, path: str, text: str) -> None:
        self.place(Path(path)).write_text(text)

    def add_libraries(self, all_needed: bool = True) -> None:
        """What is loaded by the programs and modules collected so far."""
        for file in [file for file in self.files if not file.is_symlink() and file.is_file() and _is_elf(file)]:
            said = subprocess.run(["ldd", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
            if all_needed and (missing := re.findall(r"(\S+) => not found", said)):
                sys.exit(f"collect: {file} needs {', '.join(missing)}, which the base does not have")
            for library in re.findall(r"(/\S+) \(0x", said):
                self.add(Path(library))


def _is_elf(file: Path) -> bool:
    with file.open("rb") as content:
        return content.read(4) == b"\x7fELF"


def _listing(package: str) -> Path:
    """What dpkg has of its files; the name has the architecture where a package may be there for several."""
    (found,) = [path for path in (DPKG / "info").glob(f"{package}*.list") if path.stem.partition(":")[0] == package]
    return found


def packages(files: set[Path]) -> dict[str, str]:
    """The Debian packages that these files are of, each with its stanza in dpkg's status."""
    owners = {}
    for listing in (DPKG / "info").glob("*.list"):
        package = listing.stem.partition(":")[0]
        owners.update(dict.fromkeys(listing.read_text().splitlines(), package))
    # Before all of a system moved under /usr, packages had named their files without it.
    names = {owners.get(str(file)) or owners.get(str(file).removeprefix("/usr")) for file in files}
    stanzas = (DPKG / "status").read_text().strip().split("\n\n")
    return {name: stanza for stanza in stanzas if (name := stanza.partition("\n")[0].split()[1]) in names}


def interpreter_component() -> Iterator[dict[str, str]]:
    """The interpreter for the SBOM, where no Debian package stands for it."""
    if not sys.executable.startswith("/usr/bin/"):
        version = platform.python_version()
        yield {
            "type": "application",
            "bom-ref": f"python@{version}",
            "name": "python",
            "version": version,
            "purl": f"pkg:generic/python@{version}",
            "cpe": f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*",
        }


def main(root: Path, environment: Path, notes: Path, *whole: str) -> None:
    image = Collection(root)
    for link in map(Path, ("/bin", "/lib", "/lib64", "/sbin")):
        if link.is_symlink():
            image.place(link).symlink_to(link.readlink())
            image.place(link.resolve() / "x")
    image.add(Path(sys.executable))
    image.add_tree(Path(sysconfig.get_path("stdlib")), LEFT_OUT)
    image.add_tree(environment)
    image.add_libraries()
    for package in whole:
        image.add_package(package)
    # Of a package, parts may need what it only recommends, as Java does for fonts; or load it in ways of their own.
    image.add_libraries(all_needed=False)

    # Libraries beside Debian's are found by the loader's cache only.
    image.add_tree(Path("/etc/ld.so.conf.d"))
    image.add(Path("/etc/ld.so.conf"))
    subprocess.run(["ldconfig", "-r", root], check=True)

    image.add(CERTIFICATES)
    default = Path(ssl.get_default_verify_paths().openssl_cafile)
    if default != CERTIFICATES:
        image.place(default).symlink_to(CERTIFICATES)
    image.add(Path("/etc/os-release"))
    image.write("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    image.write("/etc/passwd", f"root:x:0:0:root:/:/none\n{USER}:x:{UID}:{UID}::/:/none\n")
    image.write("/etc/group", f"root:x:0:\n{USER}:x:{UID}:\n")
    image.place(Path("/tmp/x")).parent.chmod(0o1777)
    for folder in ("/dev/x", "/proc/x", "/sys/x", "/etc/pulsar-ingress-proxy/x"):
        image.place(Path(folder))

    given = packages(image.files)
    for name, stanza in given.items():
        image.write(f"{DPKG}/status.d/{name}", stanza + "\n")
        papers = Path("/usr/share/doc", name)
        if papers.is_symlink():  # to those of a package that it shares them with
            image.place(papers).symlink_to(papers.readlink())
        image.add(papers / "copyright")
    notes.mkdir(parents=True, exist_ok=True)
    (notes / "packages").write_text("\n\n".join(given.values()) + "\n")
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "platform", "bom-ref": "base", "name": "base"}},
        "components": [*interpreter_component()],
    }
    (notes / "interpreter.cdx.json").write_text(json.dumps(bom))


if __name__ == "__main__":
    _root, _environment, _notes, *_whole = sys.argv[1:]
    main(Path(_root), Path(_environment), Path(_notes), *_whole)
