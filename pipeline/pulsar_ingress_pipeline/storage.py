"""Files by URL: local folders, s3a, gs and hdfs are one code, with a session of our own and over Spark Connect."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote

from pulsar_ingress_pipeline.faults import PipelineFault

SPARK_FAULTS = (Py4JJavaError, PySparkException)
"""What Spark raises where a job fails."""

_GLOB = re.compile(r"([\\*?\[\]{}])")
# What Java's URI leaves as it is in a path, of ASCII.
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-!.~'()*:@&=+$,;/")


@dataclass(frozen=True, slots=True)
class File:
    """One file of a folder, by its URL."""

    url: str
    size: int
    modified: int
    """Milliseconds since the epoch, by the clock of whoever keeps the file."""

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


class Store(Protocol):
    """Who keeps a folder. Paths are relative to it. What it raises is a Py4JJavaError or an OSError."""

    @property
    def url(self) -> str:
        """The folder, as Spark is to be given it; no slash at its end."""

    def exists(self, relative: str) -> bool: ...

    def is_file(self, relative: str) -> bool: ...

    def modified(self, relative: str) -> int | None: ...

    def entries(self, relative: str) -> tuple[list[File], list[str]]:
        """The files and the names of the folders in a folder; none where it is gone."""

    def read(self, relative: str) -> str: ...

    def write(self, relative: str, text: str) -> None: ...

    def create(self, relative: str, text: str) -> bool: ...

    def rename(self, source: str, target: str) -> None:
        """Put a file in a place, over what is there, in a folder that may not be there yet."""

    def remove(self, relative: str) -> None: ...


class Storage:
    """A folder and what is below it. Paths are relative to it, with slashes."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        with _told(url):
            self._store = _store(spark, url)
        self.url = self._store.url

    def path(self, relative: str) -> str:
        return f"{self.url}/{relative}" if relative else self.url

    def exists(self, relative: str = "") -> bool:
        with _told(self.path(relative)):
            return self._store.exists(relative)

    def is_file(self) -> bool:
        with _told(self.url):
            return self._store.is_file("")

    def modified(self, relative: str) -> int | None:
        """When a file was written last; None where it is gone."""
        with _told(self.path(relative)):
            return self._store.modified(relative)

    def files(self, relative: str = "") -> list[File]:
        """The files of a folder, by name; hidden ones (`.` and `_`) are not shown. A folder that is gone has none."""
        files, _ = self._shown(relative)
        return sorted(files, key=lambda file: file.url)

    def tree(self, relative: str = "") -> list[File]:
        """The files of a folder and of those below it."""
        found: list[File] = []
        folders = [relative]
        while folders:
            folder = folders.pop()
            files, names = self._shown(folder)
            found += files
            folders += [f"{folder}/{name}" if folder else name for name in names]
        return sorted(found, key=lambda file: file.url)

    def _shown(self, relative: str) -> tuple[list[File], list[str]]:
        with _told(self.path(relative)):
            files, folders = self._store.entries(relative)
        hidden = (".", "_")
        return (
            [file for file in files if not file.name.startswith(hidden)],
            [name for name in folders if not name.startswith(hidden)],
        )

    def read(self, relative: str) -> str:
        with _told(self.path(relative)):
            return self._store.read(relative)

    def write(self, relative: str, text: str) -> None:
        """Replace a file as a whole: readers find the old one or the new one."""
        with _told(self.path(relative)):
            self._store.write(relative, text)

    def create(self, relative: str, text: str) -> bool:
        """Make a file that nobody has made; False where somebody has."""
        with _told(self.path(relative)):
            return self._store.create(relative, text)

    def move(self, source: str, target: str) -> None:
        """Put a file in its place; done again after it was done, nothing changes."""
        with _told(self.path(target)):
            if self._store.exists(source):
                self._store.rename(source, target)
            elif not self._store.exists(target):
                raise PipelineFault(f"{self.path(source)} is gone, and {self.path(target)} is not there")

    def remove(self, relative: str) -> None:
        """Remove a file or a folder with all below it; what is gone is gone."""
        with _told(self.path(relative)):
            self._store.remove(relative)

    def relative(self, url: str) -> str:
        assert url.startswith(self.url + "/"), f"{url} is not below {self.url}"
        return url[len(self.url) + 1 :]


def _store(spark: SparkSession, url: str) -> Store:
    """Hadoop's FileSystem of the session's JVM; over Connect, which keeps that out of reach, one of our own."""
    if not is_remote():
        from pulsar_ingress_pipeline.hadoop_store import HadoopStore

        return HadoopStore(spark, url)
    if not re.match(r"[A-Za-z][\w+.-]*:", url) or url.startswith("file:"):
        from pulsar_ingress_pipeline.local_store import LocalStore

        return LocalStore(url)
    if re.match("(s3a?|gs)://", url) is None:
        raise PipelineFault(f"{url}: --remote reaches local folders, s3a:// and gs://; for others use --master")
    from pulsar_ingress_pipeline.object_store import ObjectStore  # which only the extra `connect` has the packages for

    return ObjectStore(url)


def literal(url: str) -> str:
    """A path that Spark would expand (`*`, `[`, `{`) as one that means itself."""
    return _GLOB.sub(r"\\\1", url)


def encoded(url: str) -> str:
    """A path as Spark names it in `_metadata`: percent-encoded by the rules of Java's URI."""
    return "".join(character if _stays(character) else _escaped(character) for character in url)


def _stays(character: str) -> bool:
    if character.isascii():
        return character in _PLAIN
    return unicodedata.category(character) not in ("Zs", "Zl", "Zp", "Cc")


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def shown(url: str) -> str:
    """A URL as people write it: local files by their path."""
    return re.sub(r"^file:/+", "/", url)


class _told:  # noqa: N801
    """Turns what the store says into a fault with the path."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Py4JJavaError | OSError):
            raise PipelineFault(f"{shown(self._url)}: {_words(error)}") from None


_WHERE = re.compile(r"^(== (SQL|DataFrame)|JVM stacktrace|Driver stacktrace)", re.MULTILINE)
_EXCEPTION = re.compile(r"^(?:: |Caused by: |Exception in thread \S+ )?([\w.$]+(?:Exception|Error): \S.*)")


def cause(error: Exception | str) -> str:
    """The last of the causes that Java or Python gives: what went wrong, not where."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    if named := [found[1] for line in lines if (found := _EXCEPTION.match(line))]:
        return named[-1]
    before = [line for line in _WHERE.split(text)[0].splitlines() if line.strip()]
    return next(iter(before if before and before[0].startswith("[") else lines[-1:]), text)


def _words(error: Py4JJavaError | OSError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error).partition("\n")[0]
    java = error.java_exception
    return str(java.getMessage() or java.getClass().getSimpleName()).partition("\n")[0]
