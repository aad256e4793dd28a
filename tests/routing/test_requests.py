"""Pulsar's paths and the listenerName parameter, as brokers would read them."""

from urllib.parse import quote, quote_plus, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ingress_proxy.routing.ingresses import Ingress
from pulsar_ingress_proxy.routing.paths import BadPath, Target, classify, names_in
from pulsar_ingress_proxy.routing.requests import listener_names, set_listener_name


def read_target(method: str, path: str) -> Target:
    """What a request is about, with the names that its path has."""
    target = classify(method, path)
    return Target(target.kind, target.area, *names_in(path))


@pytest.mark.parametrize(
    ("path", "namespace", "topic"),
    [
        pytest.param("/lookup/v2/topic/persistent/t/n/x", "n", "persistent://t/n/x", id="v2"),
        pytest.param("/lookup/v2/topic/non-persistent/t/n/x", "n", "non-persistent://t/n/x", id="v2 non-persistent"),
        pytest.param("/lookup/v2/destination/persistent/t/c/n/x", "n", "persistent://t/c/n/x", id="v1"),
        pytest.param("/lookup/v2/topic/persistent/t/n/a%2Fb", "n", "persistent://t/n/a/b", id="a slash in a topic"),
        pytest.param("/lookup/v2/topic/persistent/t/n/a+b%2B", "n", "persistent://t/n/a b+", id="as URLEncoder writes"),
        pytest.param("/lookup/v2/topic/persistent/t/n/%E4%B8%BB", "n", "persistent://t/n/主", id="UTF-8"),
        pytest.param(
            "/lookup/v2/topic/persistent/t/n/bundle", "n", "persistent://t/n/bundle", id="a topic named bundle"
        ),
        pytest.param("/lookup/v2/topic/persistent/t/n/x/", "n", "persistent://t/n/x", id="a slash at the end"),
        pytest.param("/lookup/v2/topic/persistent/t/n/a%252Fb", "n", "persistent://t/n/a%2Fb", id="encoded twice"),
        pytest.param("/lookup/v2/topic/persistent/t/n/a%25u002e", "n", "persistent://t/n/a%u002e", id="a percent sign"),
        pytest.param(
            "/lookup/v2/topic/persistent/t/n/a:b@c,d=e&f$g'(h)*!~",
            "n",
            "persistent://t/n/a:b@c,d=e&f$g'(h)*!~",
            id="what URLs allow",
        ),
        pytest.param(
            "/lookup/v2/topic/persistent/t/n/a%3Bb%5Cc%3Fd", "n", "persistent://t/n/a;b\\c?d", id="encoded marks"
        ),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_lookup_path_gives_tenant_namespace_and_topic(method: str, path: str, namespace: str, topic: str) -> None:
    assert read_target(method, path) == Target("lookup", "lookup", "t", namespace, topic)


@pytest.mark.parametrize(
    ("method", "path", "topic"),
    [
        pytest.param("GET", "/lookup/v2/topic/persistent/t/n/x/bundle", "persistent://t/n/x", id="bundle"),
        pytest.param("GET", "/lookup/v2/destination/persistent/t/c/n/x/bundle", "persistent://t/c/n/x", id="v1 bundle"),
        pytest.param("POST", "/lookup/v2/topic/persistent/t/n/x", "persistent://t/n/x", id="another method"),
        pytest.param("GET", "/lookup/v2/topic/persistent/t/n", None, id="no topic"),
        pytest.param("GET", "/lookup", None, id="nothing"),
        pytest.param("GET", "/lookup/v3/topic/persistent/t/n/x", "persistent://t/n/x", id="another version"),
    ],
)
def test_other_requests_below_lookup_have_kind_other_and_area_lookup(method: str, path: str, topic: str | None) -> None:
    target = read_target(method, path)
    assert (target.kind, target.area, target.topic) == ("other", "lookup", topic)


@pytest.mark.parametrize(
    ("path", "namespace", "topic"),
    [
        ("/admin/v2/persistent/t/n/x/partitions", "n", "persistent://t/n/x"),
        ("/admin/v2/non-persistent/t/n/x/partitions", "n", "non-persistent://t/n/x"),
        ("/admin/persistent/t/c/n/x/partitions", "n", "persistent://t/c/n/x"),
        ("/admin/v2/namespaces/t/n/topics", "n", None),
        ("/admin/namespaces/t/c/n/destinations", "n", None),
        ("/admin/v2/schemas/t/n/x/schema", "n", "persistent://t/n/x"),
        ("/admin/v2/schemas/t/n/x/schema/7", "n", "persistent://t/n/x"),
    ],
)
def test_gets_that_clients_make_beside_lookups_are_in_the_client_area(
    path: str, namespace: str, topic: str | None
) -> None:
    assert read_target("GET", path) == Target("admin", "client", "t", namespace, topic)
    assert read_target("PUT", path) == Target("admin", "admin", "t", namespace, topic)


@pytest.mark.parametrize(
    ("path", "tenant", "namespace", "topic"),
    [
        ("/admin/v2/persistent/t/n/x/stats", "t", "n", "persistent://t/n/x"),
        ("/admin/v2/persistent/t/n/x/subscription/s", "t", "n", "persistent://t/n/x"),
        ("/admin/v2/persistent/t/n", None, None, None),
        ("/admin/v2/namespaces/t/n/0x00000000_0x40000000/unload", "t", "n", None),
        ("/admin/v2/namespaces/persistent/n/policies/x", "persistent", "n", None),
        ("/admin/v2/schemas/persistent/n/x/compatibility", "persistent", "n", "persistent://persistent/n/x"),
        ("/admin/v2/namespaces/t", None, None, None),
        ("/admin/v2/tenants/t", None, None, None),
        ("/admin/v2/brokers/health", None, None, None),
        ("/admin/v3/packages/function/t/n", None, None, None),
        ("/admin", None, None, None),
        ("/admin/v2/persistent/t/n/x/%70artitions", "t", "n", "persistent://t/n/x"),
        ("/admin/v2/persistent/t/n/x/subscription/partitions", "t", "n", "persistent://t/n/x"),
        ("/admin/v2/namespaces/t/n/x/destinations", "t", "n", None),
        ("/admin/namespaces/t/c/topics", "t", "topics", None),
        ("/admin/persistent/t/c/n/partitions", "t", "n", "persistent://t/c/n/partitions"),
    ],
)
def test_admin_path_gives_tenant_namespace_and_topic_in_the_admin_area(
    path: str, tenant: str | None, namespace: str | None, topic: str | None
) -> None:
    assert read_target("GET", path) == Target("admin", "admin", tenant, namespace, topic)


@pytest.mark.parametrize(
    "prefix",
    [
        "v3/function", "v2/function", "function", "v3/source", "v2/source", "source", "v3/sink", "v2/sink", "sink",
        "v2/worker", "v2/worker-stats", "worker", "worker-stats",
    ],
)  # fmt: skip
def test_function_worker_prefixes_of_pulsar_proxy_are_in_the_functions_area(prefix: str) -> None:
    assert read_target("GET", f"/admin/{prefix}/acme/orders/f") == Target("admin", "functions")
    assert read_target("POST", f"/admin/{prefix}s") == Target("admin", "functions")


@pytest.mark.parametrize(
    ("path", "area", "topic"),
    [
        ("/topics/persistent/t/n/x", "topics", "persistent://t/n/x"),
        ("/topics/persistent/t/n/x/partitions/3", "topics", "persistent://t/n/x"),
        ("/ws/v2/producer/persistent/t/n/x", "ws", "persistent://t/n/x"),
        ("/ws/v2/consumer/persistent/t/n/x/sub", "ws", "persistent://t/n/x"),
        ("/metrics", "other", None),
        ("/status.html", "other", None),
        ("/", "other", None),
        ("", "other", None),
        ("/lookups/v2/topic/persistent/t/n/x", "other", None),
        ("/LOOKUP/v2/topic/persistent/t/n/x", "other", None),
    ],
)
def test_topics_ws_and_unknown_paths_have_kind_other_and_their_own_area(
    path: str, area: str, topic: str | None
) -> None:
    target = read_target("POST", path)
    assert (target.kind, target.area, target.topic) == ("other", area, topic)


@pytest.mark.parametrize(
    "path",
    [
        "/metrics/../lookup/v2/topic/persistent/t/n/x",
        "/metrics/%2e%2E/lookup/v2/topic/persistent/t/n/x",
        "/metrics/..;a=b/lookup/v2/topic/persistent/t/n/x",
        "/metrics/.%2e/lookup",
        "/metrics/..%2flookup",
        "/metrics/..\\lookup",
        "/metrics/..%5Clookup",
        "/./lookup/v2/topic/persistent/t/n/x",
        "/lookup/v2/topic/persistent/t/n/x/..",
        "/lookup/v2/topic/persistent/t/n/%2e",
        "/lookup/v2/topic/persistent/t/n/a%2F..%2Fb",
        "/lookup/%u002e%u002e/admin/v2/tenants",
        "/lookup/.%u002e/admin/v2/tenants",
        "/lookup/..%u002fadmin/v2/tenants",
        "/lookup/v2/topic/persistent/t/n/100%",
        "/lookup/v2/topic/persistent/t/n/%2",
        "/lookup/v2/topic/persistent/t/n/%zz",
        "/lookup/v2/topic/persistent/t/n/%-1",
        "/lookup/v2/topic/persistent/t/n/% 1",
        "/lookup/v2/topic/persistent/t/n/%00",
        "/lookup/v2/topic/persistent/t/n/%C0%AE",
        "/lookup/v2/topic/persistent/t/n/%FF",
        "/lookup/v2/topic/persistent/t/n/%E4%B8",
        "/lookup/v2/topic/persistent/t/n/%ED%A0%80",
        "/lookup/v2/topic/persistent/t/n/a\\b",
        "/lookup;v2/topic/persistent/t/n/x",
        "/admin/v2;tenants/persistent/a/b/c/partitions",
        "/lookup/v2/topic/persistent/t/n/x;y",
        "/;a/lookup/v2/topic/persistent/t/n/x",
        "//lookup/v2/topic/persistent/t/n/x",
        "/lookup//v2/topic/persistent/t/n/x",
        "/lookup/v2/topic/persistent/t/n/x//",
        "/%6Cookup/v2/topic/persistent/t/n/x",
        "/lookup%2Fv2/topic/persistent/t/n/x",
        "/%61dmin/v2/tenants",
        "/metrics%2F",
    ],
)
def test_a_path_that_could_be_read_in_two_ways_is_refused(path: str) -> None:
    with pytest.raises(BadPath):
        read_target("GET", path)


@pytest.mark.parametrize("path", ["/" * 29_000, "/a" * 14_500, "/lookup" + "/a" * 64])
def test_path_with_more_than_64_slashes_is_refused(path: str) -> None:
    with pytest.raises(BadPath, match="at most 64 slashes"):
        read_target("GET", path)


def test_path_with_64_slashes_is_read() -> None:
    assert read_target("GET", "/lookup" + "/a" * 63).area == "lookup"


@pytest.mark.parametrize("topic", ["...", "a..b", ".a", "a.", "%252e%252e"])
def test_dots_within_a_name_are_no_dot_segments(topic: str) -> None:
    assert read_target("GET", f"/lookup/v2/topic/persistent/t/n/{topic}").kind == "lookup"


def is_name(text: str) -> bool:
    return "\0" not in text and {".", ".."}.isdisjoint(text.replace("\\", "/").split("/"))


topics = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(is_name)


@given(st.sampled_from(["persistent", "non-persistent"]), topics, topics, topics)
def test_topic_of_any_characters_is_decoded_from_a_lookup_path(domain: str, tenant: str, ns: str, topic: str) -> None:
    path = "/".join(["/lookup/v2/topic", domain, *(quote_plus(name) for name in (tenant, ns, topic))])
    assert read_target("GET", path) == Target("lookup", "lookup", tenant, ns, f"{domain}://{tenant}/{ns}/{topic}")


@given(st.text(alphabet="/.;%2eEfF5cC+\\lokupadminv\ud800é", max_size=30))
def test_path_without_special_characters_is_never_refused(path: str) -> None:
    try:
        read_target("GET", path)
    except BadPath:
        assert any(mark in path for mark in (".", "%", ";", "\\", "//"))


@pytest.mark.parametrize(
    ("expose", "let_through"),
    [
        (None, {"lookup", "client", "admin", "topics", "ws", "functions", "other"}),
        ({"lookup"}, {"lookup"}),
        ({"lookup", "client"}, {"lookup", "client"}),
        ({"admin"}, {"admin", "client"}),  # who may administer may read what clients read
        ({"functions"}, {"functions"}),
        (set(), set()),
    ],
)
def test_ingress_exposes_listed_areas_admin_includes_client_and_no_list_means_all(
    expose: set[str] | None, let_through: set[str]
) -> None:
    ingress = Ingress("public", (), "external", expose=None if expose is None else frozenset(expose))
    areas = ("lookup", "client", "admin", "topics", "ws", "functions", "other")
    assert {area for area in areas if ingress.exposes(area)} == let_through


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ()),
        ("listenerName=external", ("external",)),
        ("authoritative=true&listenerName=external", ("external",)),
        ("listenerName=a&listenerName=b", ("a", "b")),
        ("listener%4Eame=external", ("external",)),
        ("%6CistenerName=external", ("external",)),
        ("listenerName=ext%20eu&x", ("ext eu",)),
        ("listenerName=ext+eu", ("ext eu",)),
        ("listenerName=a=b", ("a=b",)),
        ("listenerName=a%26b", ("a&b",)),
        ("listenerName", ("",)),
        ("listenerName=", ("",)),
        ("listenername=external", ()),
        ("xlistenerName=external&listenerNames=b&listener%20Name=c&%70ath=d&a+b=e", ()),
        ("listenerName=a%0d%0aX-Evil: 1", ("a\r\nX-Evil: 1",)),
    ],
)
def test_listener_names_of_a_query_are_decoded_and_in_order(query: str, names: tuple[str, ...]) -> None:
    assert listener_names(query) == names


@pytest.mark.parametrize(
    ("query", "name", "expected"),
    [
        ("", "external", "listenerName=external"),
        ("authoritative=true", "external", "authoritative=true&listenerName=external"),
        ("a=%2f&&b=+", "external", "a=%2f&&b=+&listenerName=external"),
        ("listenerName=external&a=1", "external", "listenerName=external&a=1"),
        ("listenerName=internal&a=1", "external", "a=1&listenerName=external"),
        ("listenerName=external&a=1&listenerName=external", "external", "listenerName=external&a=1"),
        ("listenerName=%20&listenerName=external", "external", "listenerName=external"),
        ("listener%4Eame=internal", "external", "listenerName=external"),
        ("", "a+b&c", "listenerName=a%2Bb%26c"),
        ("listenerName=a+b&x", "a+b", "x&listenerName=a%2Bb"),  # as a 4.x broker writes it, which is another name
        ("listenerName= &a=1", None, "a=1"),
        ("listener%4Eame=x&a=1&listenerName", None, "a=1"),
        ("a=1", None, "a=1"),
        ("", None, ""),
    ],
)
def test_a_query_carries_the_listener_once_or_not_at_all(query: str, name: str | None, expected: str) -> None:
    assert set_listener_name(query, name) == expected


parameters = st.sampled_from(["listenerName", "listener%4Eame", "a", "b%20", ""])
queries = st.lists(
    st.tuples(parameters, st.sampled_from(["", "=", "==", "=%20"]), st.text(alphabet="ax%2b+", max_size=4)), max_size=6
).map(lambda parts: "&".join(map("".join, parts)))
sendable = st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=12)


def others(query: str) -> list[str]:
    return [part for part in query.split("&") if unquote_plus(part.partition("=")[0]) != "listenerName"]


@given(queries, sendable)
def test_setting_the_listener_name_writes_it_once_and_keeps_other_parameters(query: str, name: str) -> None:
    made = set_listener_name(query, name)
    assert listener_names(made) == (name,)
    assert [part for part in others(made) if part] == [part for part in others(query) if part]


@given(queries)
def test_removing_the_listener_name_keeps_other_parameters(query: str) -> None:
    made = set_listener_name(query, None)
    assert listener_names(made) == ()
    assert [part for part in others(made) if part] == [part for part in others(query) if part]


@given(sendable)
def test_query_that_already_has_the_listener_name_is_unchanged_however_encoded(name: str) -> None:
    query = f"a=1&listenerName={quote(name, safe='')}&b=2"
    assert set_listener_name(query, name) == query
