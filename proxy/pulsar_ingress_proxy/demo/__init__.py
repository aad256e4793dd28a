"""The demo, and the simulated brokers that it shares with the tests."""
