"""`python -m pulsar_ingress_proxy` is `pulsar-ingress-proxy`."""

import sys


def main() -> int:
    if sys.argv[1:2] == ["probe"]:  # an exec probe, every few seconds: without all that the other commands import
        from pulsar_ingress_proxy.tools import probe

        return probe.main(sys.argv[2:])
    from pulsar_ingress_proxy import cli

    return cli.main()


if __name__ == "__main__":
    raise SystemExit(main())
