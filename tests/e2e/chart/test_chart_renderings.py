"""The chart as Helm 3 and Helm 4 lint and render it, and every object of it held strictly against its kind."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fragments
import pytest
import yaml
from apiclient import Object
from go_modules import API_SERVER
from helm_programs import CHART, EXAMPLES, VERSIONS, Helm, documents, tools
from processes import BIN, run
from strict_validation import Validator, validator

ROOT = CHART.parents[1]
OLDEST = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"].removeprefix(">=").removesuffix("-0")
NEWEST = API_SERVER.version
RELEASES = {"pulsar-ingress-proxy": "istio-ingress", "an-edge-with-a-long-name-for-a-release-of-53-letters1": "edge"}

examples = pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
helms = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Validator:
    return validator(tmp_path_factory.mktemp("schemas"))


async def rendered(helm: Helm, release: str, example: Path, kubernetes: str = NEWEST) -> list[Object]:
    options = ("--namespace", RELEASES[release], "--kube-version", kubernetes, "-f", example)
    return documents(await helm("template", release, CHART, *options))


def with_fragments(objects: list[Object]) -> list[Object]:
    """The objects, and the pods that they make of the gateway's beside us."""
    return [*objects, *(fragments.pod(each) for each in objects if fragments.is_fragment(each))]


def test_there_are_examples_of_both_modes_and_of_every_gateway() -> None:
    values = [example.read_text() for example in EXAMPLES]
    for word in ("mode: gateway", "type: istio-injection", "type: gateway-api", "type: envoy-gateway", "type: traefik"):
        assert any(word in text for text in values), word


@helms
@examples
async def test_helm_lint_strict_reports_no_warning_or_error_for_any_example(
    version: str, example: Path, tmp_path: Path
) -> None:
    helm = Helm(version, tmp_path)
    done = await helm.run("lint", "--strict", CHART, "--kube-version", NEWEST, "-f", example)
    assert done.code == 0, done.said
    assert "[WARNING]" not in done.said
    assert "[ERROR]" not in done.said


@helms
async def test_helm_lint_rejects_unknown_keys_and_bad_values(version: str, tmp_path: Path) -> None:
    helm = Helm(version, tmp_path)
    for values, said in (
        ({"config": {"lookupListenerNam": "external"}}, "lookupListenerNam"),
        ({"replica": 3}, "replica"),
        ({"config": {"timeouts": {"connect": "soon"}}}, "connect"),
    ):
        done = await helm.run("lint", "--strict", CHART, "--kube-version", NEWEST, "-f", helm.values("bad", values))
        assert done.code == 1
        assert said in done.said


@examples
async def test_helm_3_and_4_render_the_same_for_the_oldest_and_newest_kubernetes(example: Path, tmp_path: Path) -> None:
    def by_name(objects: list[Object]) -> dict[tuple[str, ...], Object]:
        keys = [(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects]
        assert len({*keys}) == len(keys)
        return dict(zip(keys, objects, strict=True))

    three, four = (Helm(version, tmp_path) for version in VERSIONS)
    known = by_name(await rendered(three, "pulsar-ingress-proxy", example, NEWEST))
    assert by_name(await rendered(four, "pulsar-ingress-proxy", example, NEWEST)) == known
    assert by_name(await rendered(four, "pulsar-ingress-proxy", example, OLDEST)) == known


@pytest.mark.timeout(300)
async def test_every_rendered_object_validates_strictly_against_its_schema(judge: Validator, tmp_path: Path) -> None:
    helm = Helm("helm4", tmp_path)
    manifests = {
        f"{release}/{example.stem}": with_fragments(await rendered(helm, release, example))
        for release in RELEASES
        for example in EXAMPLES
    }
    assert await judge.faults(manifests) == []


@examples
async def test_names_and_labels_fit_63_characters_and_objects_stay_in_the_namespace(
    example: Path, tmp_path: Path
) -> None:
    for release, namespace in RELEASES.items():
        for each in await rendered(Helm("helm4", tmp_path), release, example):
            metadata = each["metadata"]
            if each["kind"] in (
                "Deployment",
                "Job",
                "Pod",
                "Service",
            ):  # a host name, a label of pods; others may be longer
                assert len(metadata["name"]) <= 63
            assert all(len(value) <= 63 for value in metadata.get("labels", {}).values())
            of_one_broker = "statefulset.kubernetes.io/pod-name" in each.get("spec", {}).get("selector", {})
            if each["kind"] not in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "IngressRouteTCP"):
                assert metadata.get("namespace", namespace) == ("pulsar" if of_one_broker else namespace)


@examples
async def test_rendered_pods_do_not_automount_the_service_account_token(example: Path, tmp_path: Path) -> None:
    for each in await rendered(Helm("helm4", tmp_path), "pulsar-ingress-proxy", example):
        if each["kind"] in ("Deployment", "Job", "Pod"):
            spec = each["spec"] if each["kind"] == "Pod" else each["spec"]["template"]["spec"]
            assert spec["automountServiceAccountToken"] is False


@examples
async def test_rendered_config_passes_the_check_command(example: Path, tmp_path: Path) -> None:
    objects = await rendered(Helm("helm4", tmp_path), "pulsar-ingress-proxy", example)
    (config,) = (
        each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"].endswith("-config")
    )
    file = tmp_path / "config.yaml"
    file.write_text(config["data"]["config.yaml"])
    code, out, err = await run(BIN / "pulsar-ingress-proxy", "check", "--no-files", "--config", file)
    assert code == 0, out + err


def misspelt(objects: list[Object], kind: str, misspell: Callable[[Any], None]) -> list[Object]:
    changed = copy.deepcopy([each for each in objects if each["kind"] == kind])
    assert changed
    misspell(changed[0])
    return changed


async def test_strict_validation_finds_misspelt_fields_and_unknown_kinds(judge: Validator, tmp_path: Path) -> None:
    """That the tests above would fail: a field too many, at any depth, in Kubernetes' kinds, others', a fragment."""
    helm = Helm("helm4", tmp_path)
    objects: list[Object] = []
    for example in EXAMPLES:
        objects += with_fragments(await rendered(helm, "pulsar-ingress-proxy", example))

    def container(each: Any) -> None:
        each["spec"]["template"]["spec"]["containers"][0]["startupProb"] = {}

    def native_sidecar(each: Any) -> None:
        each["spec"]["containers"][0]["restartPolicie"] = "Always"

    def endpoint(each: Any) -> None:
        each["spec"]["podMetricsEndpoints"][0]["prot"] = "http"

    def annotations(each: Any) -> None:
        each["metadata"]["annotation"] = {}

    def patch(each: Any) -> None:
        each["spec"]["provider"]["kubernetes"]["envoyDeployment"]["patsh"] = {}

    cases: dict[str, tuple[str, Callable[[Any], None]]] = {
        "startupProb": ("Deployment", container),
        "restartPolicie": ("Pod", native_sidecar),
        "prot": ("PodMonitor", endpoint),
        "annotation": ("PodMonitor", annotations),
        "patsh": ("EnvoyProxy", patch),
    }
    for word, (kind, misspell) in cases.items():
        faults = await judge.faults({word: misspelt(objects, kind, misspell)})
        assert any(word in fault for fault in faults), word
    nobodys = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "widget"}}
    assert await judge.faults({"nobody's": [nobodys]}) != []


async def test_deploy_manifests_validate_strictly_against_their_schemas(judge: Validator) -> None:
    manifests = {
        str(file.relative_to(ROOT).with_suffix("")): documents(file.read_text())
        for file in sorted((ROOT / "deploy").rglob("*.yaml"))
        if not {"compose", "requirements"} & {*file.parts}
        and not file.name.endswith(("values.yaml", ".patch.yaml"))
        and file.name != "kustomization.yaml"
    }
    assert manifests
    assert await judge.faults(manifests) == []


def test_every_chart_template_has_a_unittest_suite() -> None:
    templates = {file.relative_to(CHART / "templates") for file in (CHART / "templates").rglob("*.yaml")}
    suites = {file.name.removesuffix("_test.yaml") for file in (CHART / "tests").glob("*_test.yaml")}
    assert {str(file.with_suffix("")).replace("/", "-") for file in templates} <= suites


async def test_helm_unittest_suites_of_the_chart_pass() -> None:
    code, out, err = await run(tools()["helm-unittest"], "--strict", CHART)
    assert code == 0, out + err
    assert "Charts:      1 passed, 1 total" in out
