"""The jars of an image, in the build stage: adds some to Spark's, and says in CycloneDX which there are.

jars.py add FOLDER [URL#sha256=…]…
jars.py list FOLDER OUT
"""

import hashlib
import json
import os
import re
import shutil
import ssl
import sys
import urllib.request
import zipfile
from pathlib import Path
from urllib.parse import urldefrag, urlsplit


def add(folder: Path, *words: str) -> None:
    """Each by its hash; CAs that the way there needs are in SSL_CERT_FILE, as always with OpenSSL."""
    trust = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE"))
    for word in words:
        url, fragment = urldefrag(word)
        if not re.fullmatch(r"sha256=[0-9a-f]{64}", fragment):
            sys.exit(f"jars: {word}: has to end in #sha256= and the hash")
        target = folder / Path(urlsplit(url).path).name
        with urllib.request.urlopen(url, context=trust) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file, 1 << 20)
        if f"sha256={_sha256(target)}" != fragment:
            sys.exit(f"jars: {url}: its hash is {_sha256(target)}")


def component(folder: Path, jar: Path) -> dict[str, object]:
    """A jar as Maven knows it, where it says so itself; it may have other jars' papers too, which it has swallowed."""
    name, version = re.fullmatch(r"(.+?)(?:-(\d.*))?", jar.stem).groups()  # type: ignore[union-attr]
    group = None
    with zipfile.ZipFile(jar) as opened:
        for file in opened.namelist():
            if re.fullmatch(r"META-INF/maven/[^/]+/[^/]+/pom\.properties", file):
                said = dict(re.findall(r"^(\w+) *= *(\S+)", opened.read(file).decode(), re.MULTILINE))
                if f"{said.get('artifactId')}-{said.get('version')}" == jar.stem:
                    name, version, group = said["artifactId"], said["version"], said["groupId"]
    known = {"version": version} if version else {}
    if group is not None:
        known |= {"group": group, "purl": f"pkg:maven/{group}/{name}@{version}"}
    hashes = [{"alg": "SHA-256", "content": _sha256(jar)}]
    return {"type": "library", "bom-ref": f"jar:{jar.relative_to(folder)}", "name": name, **known, "hashes": hashes}


def listing(folder: Path) -> dict[str, object]:
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "platform", "bom-ref": "jars", "name": "jars"}},
        "components": [component(folder, jar) for jar in sorted(folder.rglob("*.jar"))],
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


if __name__ == "__main__":
    verb, place, *rest = sys.argv[1:]
    if verb == "add":
        add(Path(place), *rest)
    else:
        Path(rest[0]).write_text(json.dumps(listing(Path(place))))
