"""Hadoop's FileSystem, in the JVM of a session of our own: it has the same stores, by the same settings, as Spark."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline import local_store
from pulsar_ingress_pipeline.storage import File

_STATUS = re.compile(
    r"Status\{path=(?P<path>.*?); isDirectory=(?P<folder>true|false);(?: length=(?P<length>\d+);)?"
    r".*?modification_time=(?P<modified>\d+);",
    re.DOTALL,
)
_OBJECT_STORES = ("s3a:", "s3:", "gs:", "abfs:", "abfss:", "wasb:", "wasbs:", "oss:", "cosn:")
_ONLY_NEW = "fs.option.create.conditional.overwrite"
_THERE_ALREADY = ("FileAlreadyExistsException", "RemoteFileChangedException")


class HadoopStore:
    """A folder, by py4j."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        assert spark.sparkContext._jvm is not None
        self._jvm: Any = spark.sparkContext._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._Path = self._jvm.org.apache.hadoop.fs.Path
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._fs: Any = self._Path(url).getFileSystem(self._conf)
        # Sums of their own beside each file would be litter in tables that others read.
        self._fs.setWriteChecksum(False)
        self._fs.setVerifyChecksum(False)
        self.url: str = self._fs.makeQualified(self._Path(url)).toString().rstrip("/")
        self._is_local = self.url.startswith("file:")

    def exists(self, relative: str) -> bool:
        return bool(self._fs.exists(self._at(relative)))

    def is_file(self, relative: str) -> bool:
        return bool(self._fs.getFileStatus(self._at(relative)).isFile())

    def modified(self, relative: str) -> int | None:
        try:
            return int(self._fs.getFileStatus(self._at(relative)).getModificationTime())
        except Py4JJavaError:
            return None

    def entries(self, relative: str) -> tuple[list[File], list[str]]:
        """One call for a whole folder: a call for each property of each file would take minutes for ten thousand."""
        try:
            found = self._fs.listStatus(self._at(relative))
        except Py4JJavaError as error:
            if "FileNotFoundException" in str(error.java_exception.getClass().getName()):
                return [], []
            raise
        return listed(str(self._jvm.org.apache.commons.lang3.ArrayUtils.toString(found)), len(found))

    def read(self, relative: str) -> str:
        stream = self._fs.open(self._at(relative))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, relative: str, text: str) -> None:
        if self._is_local:  # Hadoop's local file system would not rename over a file
            local_store.replace(self._local(relative), text)
            return
        if self.url.startswith(_OBJECT_STORES):  # where a file is there when it is whole
            self._put(relative, text)
            return
        folder, _, name = relative.rpartition("/")
        unfinished = f"{folder}/.{name}.{os.getpid()}" if folder else f".{name}.{os.getpid()}"
        self._put(unfinished, text)
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._fs.getUri(), self._conf)
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        over = self._gateway.new_array(rename, 1)
        over[0] = rename.OVERWRITE
        context.rename(self._at(unfinished), self._at(relative), over)

    def _put(self, relative: str, text: str) -> None:
        fill(self._fs.create(self._at(relative), True), text)

    def create(self, relative: str, text: str) -> bool:
        if self._is_local:  # Hadoop's local file system looks, then makes: two may find nothing there
            return local_store.create(self._local(relative), text)
        if self.exists(relative):
            return False
        # S3A would look, then make: asked so, it has the store refuse what is there by then (If-None-Match).
        new = self._fs.createFile(self._at(relative)).overwrite(False).recursive().opt(_ONLY_NEW, "true")
        try:
            fill(new.build(), text)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() in _THERE_ALREADY:
                return False
            raise
        return True

    def rename(self, source: str, target: str) -> None:
        self._fs.mkdirs(self._at(target).getParent())
        if self._fs.exists(self._at(target)):
            self._fs.delete(self._at(target), False)
        if not self._fs.rename(self._at(source), self._at(target)):
            raise OSError(f"cannot be renamed from {source}")

    def remove(self, relative: str) -> None:
        self._fs.delete(self._at(relative), True)

    def _at(self, relative: str) -> Any:
        return self._Path(f"{self.url}/{relative}" if relative else self.url)

    def _local(self, relative: str) -> Path:
        return Path(unquote(urlsplit(self._at(relative).toUri().toString()).path))


def fill(stream: Any, text: str) -> None:
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def listed(told: str, count: int) -> tuple[list[File], list[str]]:
    """The files and the names of the folders that an array of so many statuses tells of.

    A store may have words of its own behind those that all have, as S3A does. What cannot be read is never left out.
    """
    matches = list(_STATUS.finditer(told))
    if len(matches) != count:
        raise OSError(f"has {count} entries, of which {len(matches)} can be read: {told[:200]}")
    files = [
        File(match["path"], int(match["length"] or 0), int(match["modified"]))
        for match in matches
        if match["folder"] == "false"
    ]
    return files, [match["path"].rpartition("/")[2] for match in matches if match["folder"] == "true"]
