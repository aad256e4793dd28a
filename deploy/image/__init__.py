"""The container image: how it is built, and tried out."""
