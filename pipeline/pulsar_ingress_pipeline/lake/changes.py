"""Which hours of `events` have changed since a version, by the table's log."""

from pulsar_ingress_pipeline.lake.table import DataFile, LakeTable


def hour_of(file: DataFile) -> str:
    """`2026-11-16T09`, by the file's partition."""
    return f"{file.partition['date']}T{int(file.partition['hour']):02d}"


def changed_hours(events: LakeTable, since: int | None) -> list[str]:
    """The hours with files that were added or removed after that version; all where its log is gone."""
    if since is None or since > events.version:
        return _all(events)
    hours: set[str] = set()
    for version in range(since + 1, events.version + 1):
        try:
            partitions = [change["partitionValues"] for change in events.changes(version)]
        except FileNotFoundError:
            return _all(events)
        hours |= {f"{values['date']}T{int(values['hour']):02d}" for values in partitions}
    return sorted(hours)


def _all(events: LakeTable) -> list[str]:
    return sorted({hour_of(file) for file in events.files()})
