"""`report`: the tables as one HTML file. Arrow counts, plain records come of it, and pure functions draw them."""

from pulsar_ingress_pipeline.report.page import page
from pulsar_ingress_pipeline.report.records import Report
from pulsar_ingress_pipeline.report.writer import write

__all__ = ["Report", "page", "write"]
