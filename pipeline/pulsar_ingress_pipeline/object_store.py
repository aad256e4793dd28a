"""Buckets of S3 and of Google's store, without Hadoop: for commands over Spark Connect, which have no JVM to ask.

Who signs in how stands in the environment, in the names of the stores' own programs: `AWS_REGION`, `AWS_ENDPOINT_URL`,
`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS` and so on, or it is the pod's identity. An object is there when it
is whole, so that replacing one is one step. That nobody has made it yet is a condition of the request (If-None-Match),
which these two keep to. A store that does not is asked before: only two at the same moment may both be told that they
have made it, and the lock is asked for again before each commit.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import GCSStore, S3Store

from pulsar_ingress_pipeline.storage import File

URL = re.compile(r"(?P<scheme>s3a?|gs)://(?P<bucket>[^/]+)/*(?P<prefix>.*)")


class ObjectStore:
    """What is in a bucket under a prefix; Spark's server knows it by the same URL."""

    def __init__(self, url: str) -> None:
        match = URL.fullmatch(url)
        assert match is not None, url
        self.url = url.rstrip("/")
        prefix = match["prefix"].rstrip("/") or None
        with _told():
            if match["scheme"] == "gs":
                self._store: GCSStore | S3Store = GCSStore(match["bucket"], prefix=prefix)
            else:
                endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
                plain = endpoint.startswith("http:")
                self._store = S3Store(match["bucket"], prefix=prefix, client_options={"allow_http": plain})

    def exists(self, relative: str) -> bool:
        files, folders = self.entries(relative)
        return bool(files or folders) or self.is_file(relative)

    def is_file(self, relative: str) -> bool:
        return self.modified(relative) is not None

    def modified(self, relative: str) -> int | None:
        try:
            with _told():
                return round(obstore.head(self._store, relative)["last_modified"].timestamp() * 1000)
        except FileNotFoundError:
            return None

    def entries(self, relative: str) -> tuple[list[File], list[str]]:
        with _told():
            found = obstore.list_with_delimiter(self._store, relative or None)
        files = [
            File(f"{self.url}/{each['path']}", each["size"], round(each["last_modified"].timestamp() * 1000))
            for each in found["objects"]
        ]
        return files, [path.rpartition("/")[2] for path in found["common_prefixes"]]

    def read(self, relative: str) -> str:
        with _told():
            return bytes(obstore.get(self._store, relative).bytes()).decode()

    def write(self, relative: str, text: str) -> None:
        with _told():
            obstore.put(self._store, relative, text.encode())

    def create(self, relative: str, text: str) -> bool:
        if self.is_file(relative):
            return False
        try:
            with _told():
                obstore.put(self._store, relative, text.encode(), mode="create")
        except FileExistsError:
            return False
        return True

    def rename(self, source: str, target: str) -> None:
        with _told():
            obstore.rename(self._store, source, target)

    def remove(self, relative: str) -> None:
        with _told():
            below = [each["path"] for page in obstore.list(self._store, relative) for each in page]
            obstore.delete(self._store, [relative, *below])


@contextmanager
def _told() -> Iterator[None]:
    """What went wrong as an OSError, in one line."""
    try:
        yield
    except AlreadyExistsError as error:
        raise FileExistsError(_words(error)) from None
    except BaseError as error:
        raise OSError(_words(error)) from None


def _words(error: Exception) -> str:
    return str(error).partition("\n")[0]
