"""The data pipeline: the sidecars' events become tables, a report, config to paste. In the extra `pipeline`."""
