"""`python -m proxy` is `pulsar-ingress-proxy`."""

from proxy.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
