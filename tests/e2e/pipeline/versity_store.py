"""A store that speaks S3, of this machine: versitygw before a folder, which S3A gets on with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from go_modules import VERSITYGW, built
from processes import free_port, started
from s3_store import KEY, SECRET, S3Store


@asynccontextmanager
async def versity_store(folder: Path) -> AsyncIterator[S3Store]:
    (folder / "bucket").mkdir(parents=True)
    address = f"127.0.0.1:{free_port()}"
    program = str(built(VERSITYGW)["versitygw"])
    serve = ("sh", "-c", 'exec "$0" "$@" >&2', program, "--port", address, "posix", str(folder))
    async with started(*serve, says="listening on", ROOT_ACCESS_KEY=KEY, ROOT_SECRET_KEY=SECRET):
        yield S3Store(f"http://{address}", folder)
