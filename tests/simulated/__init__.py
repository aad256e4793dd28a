"""Simulated brokers, which are compared with real ones (broker_cases.py)."""
