"""The syntax of listeners, authorities, hosts and label selectors. Pure."""
