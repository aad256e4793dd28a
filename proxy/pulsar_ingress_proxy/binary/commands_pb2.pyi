from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeyValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class Connect(_message.Message):
    __slots__ = ("client_version", "auth_data", "protocol_version", "auth_method_name", "proxy_to_broker_url", "original_principal", "original_auth_data", "original_auth_method")
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    AUTH_METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    PROXY_TO_BROKER_URL_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_AUTH_METHOD_FIELD_NUMBER: _ClassVar[int]
    client_version: bytes
    auth_data: bytes
    protocol_version: int
    auth_method_name: bytes
    proxy_to_broker_url: bytes
    original_principal: bytes
    original_auth_data: bytes
    original_auth_method: bytes
    def __init__(self, client_version: _Optional[bytes] = ..., auth_data: _Optional[bytes] = ..., protocol_version: _Optional[int] = ..., auth_method_name: _Optional[bytes] = ..., proxy_to_broker_url: _Optional[bytes] = ..., original_principal: _Optional[bytes] = ..., original_auth_data: _Optional[bytes] = ..., original_auth_method: _Optional[bytes] = ...) -> None: ...

class FeatureFlags(_message.Message):
    __slots__ = ("auth_refresh", "broker_entry_metadata", "partial_producer", "topic_watchers", "partitioned_metadata_without_auto_creation", "repl_dedup_by_lid_and_eid", "topic_watcher_reconcile", "scalable_topics", "tc_metadata_discovery")
    AUTH_REFRESH_FIELD_NUMBER: _ClassVar[int]
    BROKER_ENTRY_METADATA_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_WATCHERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONED_METADATA_WITHOUT_AUTO_CREATION_FIELD_NUMBER: _ClassVar[int]
    REPL_DEDUP_BY_LID_AND_EID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_WATCHER_RECONCILE_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    TC_METADATA_DISCOVERY_FIELD_NUMBER: _ClassVar[int]
    auth_refresh: bool
    broker_entry_metadata: bool
    partial_producer: bool
    topic_watchers: bool
    partitioned_metadata_without_auto_creation: bool
    repl_dedup_by_lid_and_eid: bool
    topic_watcher_reconcile: bool
    scalable_topics: bool
    tc_metadata_discovery: bool
    def __init__(self, auth_refresh: _Optional[bool] = ..., broker_entry_metadata: _Optional[bool] = ..., partial_producer: _Optional[bool] = ..., topic_watchers: _Optional[bool] = ..., partitioned_metadata_without_auto_creation: _Optional[bool] = ..., repl_dedup_by_lid_and_eid: _Optional[bool] = ..., topic_watcher_reconcile: _Optional[bool] = ..., scalable_topics: _Optional[bool] = ..., tc_metadata_discovery: _Optional[bool] = ...) -> None: ...

class Connected(_message.Message):
    __slots__ = ("server_version", "protocol_version", "max_message_size", "feature_flags")
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    FEATURE_FLAGS_FIELD_NUMBER: _ClassVar[int]
    server_version: bytes
    protocol_version: int
    max_message_size: int
    feature_flags: FeatureFlags
    def __init__(self, server_version: _Optional[bytes] = ..., protocol_version: _Optional[int] = ..., max_message_size: _Optional[int] = ..., feature_flags: _Optional[_Union[FeatureFlags, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("request_id", "error", "message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: int
    message: bytes
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[bytes] = ...) -> None: ...

class Closed(_message.Message):
    __slots__ = ("id", "request_id", "url", "url_tls")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    URL_TLS_FIELD_NUMBER: _ClassVar[int]
    id: int
    request_id: int
    url: bytes
    url_tls: bytes
    def __init__(self, id: _Optional[int] = ..., request_id: _Optional[int] = ..., url: _Optional[bytes] = ..., url_tls: _Optional[bytes] = ...) -> None: ...

class KeepAlive(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PartitionMetadata(_message.Message):
    __slots__ = ("topic", "request_id", "original_principal", "original_auth_data", "original_auth_method")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_AUTH_METHOD_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    request_id: int
    original_principal: bytes
    original_auth_data: bytes
    original_auth_method: bytes
    def __init__(self, topic: _Optional[bytes] = ..., request_id: _Optional[int] = ..., original_principal: _Optional[bytes] = ..., original_auth_data: _Optional[bytes] = ..., original_auth_method: _Optional[bytes] = ...) -> None: ...

class Lookup(_message.Message):
    __slots__ = ("topic", "request_id", "authoritative", "original_principal", "original_auth_data", "original_auth_method", "advertised_listener_name", "properties")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHORITATIVE_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_AUTH_METHOD_FIELD_NUMBER: _ClassVar[int]
    ADVERTISED_LISTENER_NAME_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    request_id: int
    authoritative: bool
    original_principal: bytes
    original_auth_data: bytes
    original_auth_method: bytes
    advertised_listener_name: bytes
    properties: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, topic: _Optional[bytes] = ..., request_id: _Optional[int] = ..., authoritative: _Optional[bool] = ..., original_principal: _Optional[bytes] = ..., original_auth_data: _Optional[bytes] = ..., original_auth_method: _Optional[bytes] = ..., advertised_listener_name: _Optional[bytes] = ..., properties: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("url", "url_tls", "response", "request_id", "authoritative", "error", "message", "proxy_through_service_url")
    URL_FIELD_NUMBER: _ClassVar[int]
    URL_TLS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHORITATIVE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROXY_THROUGH_SERVICE_URL_FIELD_NUMBER: _ClassVar[int]
    url: bytes
    url_tls: bytes
    response: int
    request_id: int
    authoritative: bool
    error: int
    message: bytes
    proxy_through_service_url: bool
    def __init__(self, url: _Optional[bytes] = ..., url_tls: _Optional[bytes] = ..., response: _Optional[int] = ..., request_id: _Optional[int] = ..., authoritative: _Optional[bool] = ..., error: _Optional[int] = ..., message: _Optional[bytes] = ..., proxy_through_service_url: _Optional[bool] = ...) -> None: ...

class AuthData(_message.Message):
    __slots__ = ("auth_method_name", "auth_data")
    AUTH_METHOD_NAME_FIELD_NUMBER: _ClassVar[int]
    AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    auth_method_name: bytes
    auth_data: bytes
    def __init__(self, auth_method_name: _Optional[bytes] = ..., auth_data: _Optional[bytes] = ...) -> None: ...

class AuthChallenge(_message.Message):
    __slots__ = ("challenge",)
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    challenge: AuthData
    def __init__(self, challenge: _Optional[_Union[AuthData, _Mapping]] = ...) -> None: ...

class AuthResponse(_message.Message):
    __slots__ = ("response",)
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    response: AuthData
    def __init__(self, response: _Optional[_Union[AuthData, _Mapping]] = ...) -> None: ...

class TopicMigrated(_message.Message):
    __slots__ = ("resource_id", "resource_type", "url", "url_tls")
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    URL_TLS_FIELD_NUMBER: _ClassVar[int]
    resource_id: int
    resource_type: int
    url: bytes
    url_tls: bytes
    def __init__(self, resource_id: _Optional[int] = ..., resource_type: _Optional[int] = ..., url: _Optional[bytes] = ..., url_tls: _Optional[bytes] = ...) -> None: ...

class SegmentBroker(_message.Message):
    __slots__ = ("segment_id", "url", "url_tls")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    URL_TLS_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    url: bytes
    url_tls: bytes
    def __init__(self, segment_id: _Optional[int] = ..., url: _Optional[bytes] = ..., url_tls: _Optional[bytes] = ...) -> None: ...

class ScalableTopicDag(_message.Message):
    __slots__ = ("segment_brokers", "url", "url_tls")
    SEGMENT_BROKERS_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    URL_TLS_FIELD_NUMBER: _ClassVar[int]
    segment_brokers: _containers.RepeatedCompositeFieldContainer[SegmentBroker]
    url: bytes
    url_tls: bytes
    def __init__(self, segment_brokers: _Optional[_Iterable[_Union[SegmentBroker, _Mapping]]] = ..., url: _Optional[bytes] = ..., url_tls: _Optional[bytes] = ...) -> None: ...

class ScalableTopicLookup(_message.Message):
    __slots__ = ("session_id", "topic", "create_if_missing")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATE_IF_MISSING_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    topic: bytes
    create_if_missing: bool
    def __init__(self, session_id: _Optional[int] = ..., topic: _Optional[bytes] = ..., create_if_missing: _Optional[bool] = ...) -> None: ...

class ScalableTopicUpdate(_message.Message):
    __slots__ = ("session_id", "dag")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    DAG_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    dag: ScalableTopicDag
    def __init__(self, session_id: _Optional[int] = ..., dag: _Optional[_Union[ScalableTopicDag, _Mapping]] = ...) -> None: ...

class ScalableTopicClose(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    def __init__(self, session_id: _Optional[int] = ...) -> None: ...

class ScalableTopicSubscribe(_message.Message):
    __slots__ = ("request_id", "topic")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topic: bytes
    def __init__(self, request_id: _Optional[int] = ..., topic: _Optional[bytes] = ...) -> None: ...

class ScalableTopicSubscribeResponse(_message.Message):
    __slots__ = ("request_id", "error", "message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: int
    message: bytes
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[int] = ..., message: _Optional[bytes] = ...) -> None: ...

class TcAssignment(_message.Message):
    __slots__ = ("tc_id", "url", "url_tls")
    TC_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    URL_TLS_FIELD_NUMBER: _ClassVar[int]
    tc_id: int
    url: bytes
    url_tls: bytes
    def __init__(self, tc_id: _Optional[int] = ..., url: _Optional[bytes] = ..., url_tls: _Optional[bytes] = ...) -> None: ...

class TcAssignments(_message.Message):
    __slots__ = ("parallelism", "assignments")
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    parallelism: int
    assignments: _containers.RepeatedCompositeFieldContainer[TcAssignment]
    def __init__(self, parallelism: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[TcAssignment, _Mapping]]] = ...) -> None: ...

class WatchTcAssignmentsUpdate(_message.Message):
    __slots__ = ("watch_id", "snapshot")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    snapshot: TcAssignments
    def __init__(self, watch_id: _Optional[int] = ..., snapshot: _Optional[_Union[TcAssignments, _Mapping]] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("type", "connect", "connected", "error", "close_producer", "close_consumer", "ping", "pong", "partition_metadata", "lookup", "lookup_response", "auth_challenge", "auth_response", "topic_migrated", "scalable_topic_lookup", "scalable_topic_update", "scalable_topic_close", "scalable_topic_subscribe", "scalable_topic_subscribe_response", "watch_tc_assignments_update")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CONNECT_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CLOSE_PRODUCER_FIELD_NUMBER: _ClassVar[int]
    CLOSE_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    PARTITION_METADATA_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    AUTH_CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    AUTH_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_MIGRATED_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_LOOKUP_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_UPDATE_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_CLOSE_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    SCALABLE_TOPIC_SUBSCRIBE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    WATCH_TC_ASSIGNMENTS_UPDATE_FIELD_NUMBER: _ClassVar[int]
    type: int
    connect: Connect
    connected: Connected
    error: Error
    close_producer: Closed
    close_consumer: Closed
    ping: KeepAlive
    pong: KeepAlive
    partition_metadata: PartitionMetadata
    lookup: Lookup
    lookup_response: LookupResponse
    auth_challenge: AuthChallenge
    auth_response: AuthResponse
    topic_migrated: TopicMigrated
    scalable_topic_lookup: ScalableTopicLookup
    scalable_topic_update: ScalableTopicUpdate
    scalable_topic_close: ScalableTopicClose
    scalable_topic_subscribe: ScalableTopicSubscribe
    scalable_topic_subscribe_response: ScalableTopicSubscribeResponse
    watch_tc_assignments_update: WatchTcAssignmentsUpdate
    def __init__(self, type: _Optional[int] = ..., connect: _Optional[_Union[Connect, _Mapping]] = ..., connected: _Optional[_Union[Connected, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., close_producer: _Optional[_Union[Closed, _Mapping]] = ..., close_consumer: _Optional[_Union[Closed, _Mapping]] = ..., ping: _Optional[_Union[KeepAlive, _Mapping]] = ..., pong: _Optional[_Union[KeepAlive, _Mapping]] = ..., partition_metadata: _Optional[_Union[PartitionMetadata, _Mapping]] = ..., lookup: _Optional[_Union[Lookup, _Mapping]] = ..., lookup_response: _Optional[_Union[LookupResponse, _Mapping]] = ..., auth_challenge: _Optional[_Union[AuthChallenge, _Mapping]] = ..., auth_response: _Optional[_Union[AuthResponse, _Mapping]] = ..., topic_migrated: _Optional[_Union[TopicMigrated, _Mapping]] = ..., scalable_topic_lookup: _Optional[_Union[ScalableTopicLookup, _Mapping]] = ..., scalable_topic_update: _Optional[_Union[ScalableTopicUpdate, _Mapping]] = ..., scalable_topic_close: _Optional[_Union[ScalableTopicClose, _Mapping]] = ..., scalable_topic_subscribe: _Optional[_Union[ScalableTopicSubscribe, _Mapping]] = ..., scalable_topic_subscribe_response: _Optional[_Union[ScalableTopicSubscribeResponse, _Mapping]] = ..., watch_tc_assignments_update: _Optional[_Union[WatchTcAssignmentsUpdate, _Mapping]] = ...) -> None: ...
