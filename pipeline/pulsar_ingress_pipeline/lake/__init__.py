"""Delta Lake tables, written and read through delta-rs. Spark has no part in this."""
