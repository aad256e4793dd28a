"""Hours and days as they are named: an hour is `2026-11-16T09`, a day `2026-11-16`, in UTC."""

from datetime import UTC, datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from pulsar_ingress_pipeline.faults import PipelineFault

HOUR, DAY = "yyyy-MM-dd'T'HH", "yyyy-MM-dd"
ALL = "all"


def hour_of(time: Column) -> Column:
    return F.date_format(time, HOUR)


def day_of(hour: str) -> str:
    return hour.partition("T")[0]


def folder_of(hour: str) -> str:
    """Where the events of an hour are, as Spark itself would name it."""
    day, _, number = hour.partition("T")
    return f"date={day}/hour={int(number)}"


def hour_in(folder: str) -> str:
    """The hour that a path below `events` is of."""
    parts = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
    return f"{parts['date']}T{int(parts['hour']):02d}"


def read_time(text: str, name: str) -> datetime:
    """An hour as it is given on the command line: the hour is whole, whatever its minutes."""
    try:
        given = datetime.fromisoformat(text)
        given = given.replace(tzinfo=UTC) if given.tzinfo is None else given.astimezone(UTC)
        return given.replace(minute=0, second=0, microsecond=0) if name == "--from" else _up(given)
    except (ValueError, OverflowError):
        raise PipelineFault(f"{name} {text}: is not a time: write 2026-11-16 or 2026-11-16T09:00Z") from None


def _up(time: datetime) -> datetime:
    whole = time.replace(minute=0, second=0, microsecond=0)
    return whole if whole == time else whole + timedelta(hours=1)
