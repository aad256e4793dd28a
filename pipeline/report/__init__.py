"""`report`: the tables as one HTML file. Spark counts, plain records come of it, and pure functions draw them."""

from pipeline.report.page import page
from pipeline.report.records import Report
from pipeline.report.writing import write

__all__ = ["Report", "page", "write"]
