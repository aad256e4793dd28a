"""A store that speaks S3, of this machine: versitygw before a folder. It honours conditional writes, as S3 does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from go_modules import VERSITYGW, built
from processes import free_port, started

KEY, SECRET = "reader", "of-events"


@dataclass(frozen=True, slots=True)
class S3Store:
    """One with a bucket, which is a folder in `folder`."""

    url: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """For who signs in as Amazon's own programs do."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }


@asynccontextmanager
async def s3_store(folder: Path) -> AsyncIterator[S3Store]:
    (folder / "bucket").mkdir(parents=True)
    address = f"127.0.0.1:{free_port()}"
    program = str(built(VERSITYGW)["versitygw"])
    serve = ("sh", "-c", 'exec "$0" "$@" >&2', program, "--port", address, "posix", str(folder))
    async with started(*serve, says="listening on", ROOT_ACCESS_KEY=KEY, ROOT_SECRET_KEY=SECRET):
        yield S3Store(f"http://{address}", folder)
