"""Hours as they are named: `2026-11-16T09`, in UTC."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

HOUR = "yyyy-MM-dd'T'HH"


def hour_of(time: Column) -> Column:
    return F.date_format(time, HOUR)
