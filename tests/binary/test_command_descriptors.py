"""commands_pb2.py is what commands.proto says: whoever changes the one without the other is told."""

import re
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from pulsar_ingress_proxy.binary import commands_pb2

PROTO = (Path(commands_pb2.__file__).parent / "commands.proto").read_text()
SCALARS = {
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}
Fields = dict[str, tuple[str, str, int]]


def written() -> dict[str, Fields]:
    """Each message's fields: their label, type and number."""
    messages = re.findall(r"^message (\w+) \{\n(.*?)^\}", PROTO, re.DOTALL | re.MULTILINE)
    return {
        name: {
            field: (label, kind, int(number))
            for label, kind, field, number in re.findall(
                r"^  (optional|repeated) (\w+) (\w+) = (\d+);$", body, re.MULTILINE
            )
        }
        for name, body in messages
    }


def generated() -> dict[str, Fields]:
    return {
        name: {
            field.name: (
                "repeated" if field.is_repeated else "optional",
                field.message_type.name if field.message_type is not None else SCALARS[field.type],
                field.number,
            )
            for field in message.fields
        }
        for name, message in commands_pb2.DESCRIPTOR.message_types_by_name.items()
    }


def test_generated_descriptors_match_commands_proto() -> None:
    assert generated() == written()
    assert sum(map(len, written().values())) == sum(line.startswith("  ") for line in PROTO.splitlines())


def test_a_commands_own_field_has_the_number_of_its_type() -> None:
    """By which the first bytes of a frame are known."""
    fields = commands_pb2.Command.DESCRIPTOR.fields_by_name
    numbers = {"connect": 2, "connected": 3, "error": 14, "lookup": 23, "lookup_response": 24, "topic_migrated": 68}
    assert {name: fields[name].number for name in numbers} == numbers
