"""`python -m pulsar_ingress_proxy` is `pulsar-ingress-proxy`."""

from pulsar_ingress_proxy.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
