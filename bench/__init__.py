"""Measurements that anyone can repeat; each is a ratio against a peer in the same run."""
