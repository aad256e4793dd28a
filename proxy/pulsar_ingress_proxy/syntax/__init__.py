"""What configs, annotations and headers are written in: listeners, authorities, hosts, label selectors. Pure."""
