"""The protobuf messages of a `.model` file, package `com.intel.analytics.bigdl.serialization`, the same from 0.5 to 2.4.

Only the fields that inference needs are described. protobuf skips all other fields.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "bigdl"

# Each paragraph is a message: its fields as `name number type`, with `*` for repeated, `?` for a member of the oneof `value` and
# `map` for a map from strings. The numbers of a tensor are packed in the file. On the wire, packed numbers are a byte string,
# which numpy reads without making a Python object of each number.
_MESSAGES = """
BigDLModule
    name 1 string; subModules 2 BigDLModule*; weight 3 BigDLTensor; bias 4 BigDLTensor; preModules 5 string*
    moduleType 7 string; attr 8 map AttrValue; version 9 string; namePostfix 11 string; id 12 int32
    hasParameters 15 bool; parameters 16 BigDLTensor*

BigDLTensor
    datatype 1 int32; size 2 int32*; stride 3 int32*; offset 4 int32; nElements 6 int32; isScalar 7 bool
    storage 8 TensorStorage; id 9 int32; tensorType 10 int32

TensorStorage
    datatype 1 int32; float_data 2 bytes*; double_data 3 bytes*; bool_data 4 bool*; int_data 6 int32*; long_data 7 int64*
    bytes_data 8 bytes*; id 9 int32

AttrValue
    dataType 1 int32; int32Value 3 int32?; int64Value 4 int64?; floatValue 5 float?; doubleValue 6 double?
    stringValue 7 string?; boolValue 8 bool?; tensorValue 10 BigDLTensor?; bigDLModuleValue 13 BigDLModule?
    nameAttrListValue 14 NameAttrList?; arrayValue 15 ArrayValue?; dataFormatValue 16 int32?; shape 18 Shape?

ArrayValue
    size 1 int32; datatype 2 int32; i32 3 int32*; i64 4 int64*; flt 5 float*; dbl 6 double*; str 7 string*; boolean 8 bool*
    tensor 10 BigDLTensor*; bigDLModule 13 BigDLModule*; nameAttrList 14 NameAttrList*; dataFormat 15 int32*
    shape 17 Shape*

NameAttrList
    name 1 string; attr 2 map AttrValue

Shape
    shapeType 1 int32; ssize 2 int32; shapeValue 3 int32*; shape 4 Shape*
"""

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
    "double": _FIELD.TYPE_DOUBLE,
    "float": _FIELD.TYPE_FLOAT,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "string": _FIELD.TYPE_STRING,
}


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number)
    field.label = _FIELD.LABEL_REPEATED if kind.endswith("*") else _FIELD.LABEL_OPTIONAL
    if kind.endswith("?"):
        field.oneof_index = 0
        if not message.oneof_decl:
            message.oneof_decl.add(name="value")
    word = kind.rstrip("*?")
    if word in _SCALARS:
        field.type = _SCALARS[word]
    else:
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{word}"


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="bigdl.proto", package=_PACKAGE, syntax="proto3")
    for paragraph in _MESSAGES.strip().split("\n\n"):
        name, *lines = paragraph.split("\n")
        message = file.message_type.add(name=name)
        for declaration in ";".join(lines).split(";"):
            match declaration.split():
                case [field, number, "map", kind]:
                    # On the wire, a map is a repeated message of key and value.
                    entry = message.nested_type.add(name=f"{field.capitalize()}Entry")
                    entry.options.map_entry = True
                    _add_field(entry, "key", 1, "string")
                    _add_field(entry, "value", 2, kind)
                    _add_field(message, field, int(number), f"{name}.{entry.name}*")
                case [field, number, kind]:
                    _add_field(message, field, int(number), kind)
                case _:
                    raise ValueError(f"{declaration!r} declares no field")
    pool = descriptor_pool.DescriptorPool()  # a private pool: other packages may know messages of the same names
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name], pool)


_CLASSES = _messages()
ModuleMessage: Any = _CLASSES[f"{_PACKAGE}.BigDLModule"]
