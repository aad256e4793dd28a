"""Coverage-guided fuzzing of property tests: libFuzzer (atheris) chooses the examples, hypothesis builds them.

    python tests/e2e/fuzz/fuzzing.py [--seconds N] [TARGET...]

Each target is a property test of `make test`. Inputs that reach new code are kept in corpus/TARGET beside this file,
from where the next run goes on. A failing one is written there as crash-…, and its traceback is printed.
"""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
TARGETS = {
    "http-stream": "http/test_any_bytes:test_brokers_get_the_same_whole_requests_however_bytes_are_cut",
    "location": "routing/test_redirects:test_only_address_book_brokers_are_dialled_and_every_redirect_has_one_outcome",
    "authority": "syntax/test_authorities:test_header_parsers_give_only_valid_hosts_and_ports_for_any_text",
    "pip-61": "syntax/test_listeners:test_any_advertised_listeners_are_refused_or_read_the_same_when_written_again",
    "pip-95": "syntax/test_listeners:test_any_bind_addresses_are_refused_or_read_the_same_when_written_again",
    "binary-frames": "binary/test_frames:test_arbitrary_bytes_pass_unchanged_or_raise_bad_frame",
    "binary-addresses": "binary/test_any_addresses:"
    "test_no_pushed_command_carries_an_address_off_the_listener_when_leaks_are_blocked",
    "binary-lookup": "binary/test_fast_path:test_split_lookup_never_disagrees_with_the_protobuf_parser",
    "objects": "discovery/test_any_objects:test_objects_of_any_content_are_read_without_an_exception",
    "event-lines": "pipeline/test_parsing:test_block_parses_to_the_same_events_as_its_single_lines",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default all)")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default 60)")
    options = parser.parse_args()
    if unknown := [name for name in options.targets if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]}; there are {', '.join(TARGETS)}")
    failed = [name for name in options.targets or TARGETS if not passes(name, CORPUS / name, options.seconds)]
    sys.stderr.write(f"failed: {', '.join(failed)}\n" if failed else "no input failed\n")
    return 1 if failed else 0


def passes(name: str, kept: Path, seconds: int) -> bool:
    """Fuzz a target in a process of its own, as libFuzzer ends its process; new inputs go to the folder `kept`."""
    kept.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"{name}: {TARGETS[name]}\n")
    options = ["-timeout=20", "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={kept}/"]
    folders = {str(kept): None, str(CORPUS / name): None}
    command = [sys.executable, "-c", f"import fuzzing; fuzzing.fuzz({name!r})", *options, f"-max_total_time={seconds}"]
    return not subprocess.run([*command, *folders], cwd=Path(__file__).parent, check=False).returncode


def fuzz(name: str) -> None:
    """Fuzz one target with the options of libFuzzer in sys.argv; never returns."""
    import atheris  # instruments what is imported after it

    file, _, test = TARGETS[name].partition(":")
    folder, _, module = file.rpartition("/")
    sys.path[:0] = [str(TESTS / each) for each in (folder, ".", "http", "binary")]
    with atheris.instrument_imports(include=["pulsar_ingress_proxy", "pulsar_ingress_pipeline"]):
        one = getattr(importlib.import_module(module), test).hypothesis.fuzz_one_input
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
