"""The service level objective of lookups: the share answered within SECONDS, over DAYS.

Used by alerts, dashboards and the pipeline.
"""

OBJECTIVE = 0.99
SECONDS = 0.25
DAYS = 30
