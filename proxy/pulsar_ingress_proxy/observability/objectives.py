"""What lookups are held to: so many of them answered within so many seconds, over thirty days.

Alerts and dashboards compare counters with it, the pipeline its tables.
"""

OBJECTIVE = 0.99
SECONDS = 0.25
DAYS = 30
