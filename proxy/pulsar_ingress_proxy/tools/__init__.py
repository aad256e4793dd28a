"""The work behind the commands: check, explain, doctor, probe, and the warnings about a config."""
