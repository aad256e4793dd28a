"""Files by URL through Hadoop's FileSystem, so that local folders, s3a, gs and hdfs are one code."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.faults import PipelineFault

SPARK_FAULTS = (Py4JJavaError, PySparkException)
"""What Spark raises where a job fails."""

_STATUS = re.compile(
    r"Status\{path=(?P<path>.*?); isDirectory=(?P<folder>true|false);(?: length=(?P<length>\d+);)?"
    r".*?modification_time=(?P<modified>\d+);.*?\}(?=,\w*Status\{path=|\}$)",
    re.DOTALL,
)
_OBJECT_STORES = ("s3a:", "s3:", "gs:", "abfs:", "abfss:", "wasb:", "wasbs:", "oss:", "cosn:")
_GLOB = re.compile(r"([\\*?\[\]{}])")


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


class Storage:
    """A folder and what is below it. Paths are relative to it, with slashes."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        assert spark.sparkContext._jvm is not None
        self._jvm: Any = spark.sparkContext._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._Path = self._jvm.org.apache.hadoop.fs.Path
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        with _told(url):
            self._fs: Any = self._Path(url).getFileSystem(self._conf)
            # Sums of their own beside each file would be litter in tables that others read.
            self._fs.setWriteChecksum(False)
            self._fs.setVerifyChecksum(False)
            root = self._fs.makeQualified(self._Path(url))
        self.url: str = root.toString().rstrip("/")
        self.is_local = self.url.startswith("file:")

    def path(self, relative: str) -> str:
        return f"{self.url}/{relative}" if relative else self.url

    def exists(self, relative: str = "") -> bool:
        with _told(self.path(relative)):
            return bool(self._fs.exists(self._at(relative)))

    def is_file(self) -> bool:
        with _told(self.url):
            return bool(self._fs.getFileStatus(self._at("")).isFile())

    def modified(self, relative: str) -> int | None:
        """When a file was written last; None where it is gone."""
        try:
            return int(self._fs.getFileStatus(self._at(relative)).getModificationTime())
        except Py4JJavaError:
            return None

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
        files, folders = [], []
        for path, is_folder, size, modified in self._statuses(relative):
            name = path.rpartition("/")[2]
            if name.startswith((".", "_")):
                continue
            if is_folder:
                folders.append(name)
            else:
                files.append(File(path, size, modified))
        return files, folders

    def _statuses(self, relative: str) -> list[tuple[str, bool, int, int]]:
        """One call for a whole folder: a call for each property of each file would take minutes for ten thousand."""
        with _told(self.path(relative)):
            try:
                told = self._jvm.org.apache.commons.lang3.ArrayUtils.toString(self._fs.listStatus(self._at(relative)))
            except Py4JJavaError as error:
                if "FileNotFoundException" in str(error.java_exception.getClass().getName()):
                    return []
                raise
        return [
            (match["path"], match["folder"] == "true", int(match["length"] or 0), int(match["modified"]))
            for match in _STATUS.finditer(told)
        ]

    def read(self, relative: str) -> str:
        with _told(self.path(relative)):
            stream = self._fs.open(self._at(relative))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, relative: str, text: str) -> None:
        """Replace a file as a whole: readers find the old one or the new one."""
        if self.is_local:  # Hadoop's local file system would not rename over a file
            target = self._local(relative)
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f".{target.name}.{os.getpid()}")
            with unfinished.open("w") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            unfinished.replace(target)
            return
        with _told(self.path(relative)):
            if self.url.startswith(_OBJECT_STORES):  # where a file is there when it is whole
                self._put(relative, text)
                return
            folder, _, name = relative.rpartition("/")
            unfinished_path = f"{folder}/.{name}.{os.getpid()}" if folder else f".{name}.{os.getpid()}"
            self._put(unfinished_path, text)
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._fs.getUri(), self._conf)
            rename = self._jvm.org.apache.hadoop.fs.Options.Rename
            over = self._gateway.new_array(rename, 1)
            over[0] = rename.OVERWRITE
            context.rename(self._at(unfinished_path), self._at(relative), over)

    def _put(self, relative: str, text: str) -> None:
        stream = self._fs.create(self._at(relative), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _local(self, relative: str) -> Path:
        return Path(unquote(urlsplit(self._at(relative).toUri().toString()).path))

    def create(self, relative: str, text: str) -> bool:
        """Make a file that nobody has made; False where somebody has."""
        if self.is_local:  # Hadoop's local file system looks, then makes: two may find nothing there
            target = self._local(relative)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with target.open("x") as opened:
                    opened.write(text)
            except FileExistsError:
                return False
            return True
        try:
            stream = self._fs.create(self._at(relative), False)
        except Py4JJavaError as error:
            if "AlreadyExists" in str(error.java_exception):
                return False
            raise PipelineFault(f"{self.path(relative)}: cannot be written: {_words(error)}") from None
        with _told(self.path(relative)):
            stream.write(bytearray(text.encode()))
            stream.close()
        return True

    def move(self, source: str, target: str) -> None:
        """Put a file in its place; done again after it was done, nothing changes."""
        with _told(self.path(target)):
            if self._fs.exists(self._at(source)):
                self._fs.mkdirs(self._at(target).getParent())
                if self._fs.exists(self._at(target)):
                    self._fs.delete(self._at(target), False)
                self._rename(source, target)
            elif not self._fs.exists(self._at(target)):
                raise PipelineFault(f"{self.path(source)} is gone, and {self.path(target)} is not there")

    def remove(self, relative: str) -> None:
        """Remove a file or a folder with all below it; what is gone is gone."""
        with _told(self.path(relative)):
            self._fs.delete(self._at(relative), True)

    def _rename(self, source: str, target: str) -> None:
        if not self._fs.rename(self._at(source), self._at(target)):
            raise PipelineFault(f"{self.path(source)} cannot be renamed to {self.path(target)}")

    def _at(self, relative: str) -> Any:
        return self._Path(self.path(relative))

    def relative(self, url: str) -> str:
        assert url.startswith(self.url + "/"), f"{url} is not below {self.url}"
        return url[len(self.url) + 1 :]


def literal(url: str) -> str:
    """A path that Spark would expand (`*`, `[`, `{`) as one that means itself."""
    return _GLOB.sub(r"\\\1", url)


def encoded(spark: SparkSession, url: str) -> str:
    """A path as Spark names it in `_metadata`: percent-encoded."""
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.org.apache.hadoop.fs.Path(url).toUri().toString())


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
        if isinstance(error, Py4JJavaError):
            raise PipelineFault(f"{shown(self._url)}: {_words(error)}") from None


def cause(error: Exception) -> str:
    """The last of the causes that Java gives: what went wrong, not where."""
    lines = [line.removeprefix("Caused by: ") for line in str(error).splitlines() if not line.startswith("\t")]
    return next((line for line in reversed(lines) if line.strip()), str(error))


def _words(error: Py4JJavaError) -> str:
    java = error.java_exception
    return str(java.getMessage() or java.getClass().getSimpleName()).partition("\n")[0]
