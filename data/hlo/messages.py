"""Protobuf messages of HLO programs and of TpuGraphs' tuning data, created at run time.

Every field that xlarank reads or writes is declared below, in the syntax of ``.proto`` files.
Protobuf keeps all other fields, so a module that is parsed, edited and serialized loses nothing. It
serializes undeclared fields last: adding or removing declarations, even unused ones, may change the
digests of programs.

Field numbers: ``xla/service/hlo.proto`` and ``xla/xla_data.proto`` of openxla/xla, and
``proto/tuning.proto`` of google-research-datasets/tpu_graphs; protobuf's rules keep them stable.
Enumerations are declared as int32 (the same bytes). ``Opaque`` declares messages of which only the
presence matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: A message; its class is created at run time, so type checkers do not know its fields.
Message: TypeAlias = Any

_DECLARATIONS: Final = """
message HloProto { HloModuleProto hlo_module = 1; }
message HloModuleProto {
  string name = 1; string entry_computation_name = 2; repeated HloComputationProto computations = 3;
  ProgramShapeProto host_program_shape = 4; int64 id = 5; int64 entry_computation_id = 6;
  Opaque schedule = 7;
  HloInputOutputAliasProto input_output_alias = 8; StackFrameIndexProto stack_frame_index = 17;
  Opaque buffer_donor = 18; FrontendAttributes frontend_attributes = 19;
}
message HloComputationProto {
  string name = 1; repeated HloInstructionProto instructions = 2; int64 id = 5; int64 root_id = 6;
  bool is_fusion_computation = 7;
}
message HloInstructionProto {
  string name = 1; string opcode = 2; ShapeProto shape = 3; OpMetadata metadata = 7;
  int64 parameter_number = 9;
  string fusion_kind = 11; repeated int64 dimensions = 14; Window window = 15;
  ConvolutionDimensionNumbers convolution_dimension_numbers = 16;
  repeated SliceDimensions slice_dimensions = 17;
  repeated int64 dynamic_slice_sizes = 20; PaddingConfig padding_config = 21;
  string custom_call_target = 28;
  DotDimensionNumbers dot_dimension_numbers = 30; int64 id = 35; repeated int64 operand_ids = 36;
  repeated int64 control_predecessor_ids = 37; repeated int64 called_computation_ids = 38;
  OpSharding sharding = 40;
  bytes backend_config = 43; int64 feature_group_count = 50; bool constrain_layout = 56;
  repeated ShapeProto operand_shapes_with_layout = 57; int64 batch_group_count = 58;
  bool is_stable = 60;
  FrontendAttributes frontend_attributes = 68; int32 custom_call_api_version = 77;
}
message OpMetadata {
  string op_name = 2; string source_file = 3; int32 source_line = 4; int32 stack_frame_id = 15;
}
message StackFrameIndexProto {
  repeated string file_names = 1; repeated FileLocation file_locations = 3;
  repeated StackFrame stack_frames = 4;
}
message FileLocation { int32 file_name_id = 1; int32 line = 3; }
message StackFrame { int32 file_location_id = 1; int32 parent_frame_id = 2; }
message HloInputOutputAliasProto { repeated AliasEntry entries = 1; }
message AliasEntry { repeated int64 output_shape_index = 1; int64 parameter_number = 2; }
message FrontendAttributes { repeated FrontendAttribute map = 1; }
message FrontendAttribute { string key = 1; string value = 2; }
message ProgramShapeProto { repeated ShapeProto parameters = 1; ShapeProto result = 2; }
message ShapeProto {
  int32 element_type = 2; repeated int64 dimensions = 3; repeated ShapeProto tuple_shapes = 4;
  LayoutProto layout = 5;
}
message LayoutProto {
  repeated int64 minor_to_major = 1; repeated TileProto tiles = 6; int64 element_size_in_bits = 7;
  int64 memory_space = 8;
}
message TileProto { repeated int64 dimensions = 1; }
message Window { repeated WindowDimension dimensions = 1; }
message WindowDimension {
  int64 size = 1; int64 stride = 2; int64 padding_low = 3; int64 padding_high = 4;
  int64 window_dilation = 5;
  int64 base_dilation = 6; bool window_reversal = 7;
}
message ConvolutionDimensionNumbers {
  int64 kernel_input_feature_dimension = 3; int64 kernel_output_feature_dimension = 4;
  repeated int64 kernel_spatial_dimensions = 6; int64 input_batch_dimension = 7;
  int64 input_feature_dimension = 8;
  int64 output_batch_dimension = 9; int64 output_feature_dimension = 10;
  repeated int64 input_spatial_dimensions = 11;
}
message DotDimensionNumbers {
  repeated int64 lhs_contracting_dimensions = 1; repeated int64 rhs_contracting_dimensions = 2;
  repeated int64 lhs_batch_dimensions = 3; repeated int64 rhs_batch_dimensions = 4;
}
message SliceDimensions { int64 start = 1; int64 limit = 2; int64 stride = 3; }
message PaddingConfig { repeated PaddingConfigDimension dimensions = 1; }
message PaddingConfigDimension {
  int64 edge_padding_low = 1; int64 edge_padding_high = 2; int64 interior_padding = 3;
}
message TuningData { repeated ModuleTuningData modules = 1; }
message ModuleTuningData {
  HloModuleProto module = 1; uint64 fingerprint = 2; repeated ConfigProfile runs = 3;
  repeated uint64 config_index_to_node = 4;
}
message ConfigProfile {
  HloOpConfig op_config = 1; HloModuleConfig module_config = 2; bool error = 3;
  ExecutionProfile profile = 4;
  bool is_default = 5;
}
message HloOpConfig { TileSizeConfig tile_size_config = 1; }
message TileSizeConfig {
  repeated int64 kernel_bounds = 1; repeated int64 output_bounds = 2;
  repeated int64 input_bounds = 3;
}
message HloModuleConfig { LayoutConfig layout_config = 1; }
message LayoutConfig { repeated NodeLayoutConfig nodes = 1; }
message NodeLayoutConfig { repeated TensorLayoutConfig tensors = 1; }
message TensorLayoutConfig { repeated int32 dims = 1; }
message ExecutionProfile { int64 compute_time_ns = 4; }
message OpSharding { repeated int64 tile_assignment_dimensions = 3; }
message Opaque { }
"""

_PACKAGE: Final = "xlarank.hlo"
_Field: TypeAlias = descriptor_pb2.FieldDescriptorProto


def instructions(module: Message) -> Iterator[tuple[Message, Message]]:
    """Yield every (computation, instruction) in the order of node ids."""
    for computation in module.computations:
        for instruction in computation.instructions:
            yield computation, instruction


def _message_classes() -> dict[str, type[Message]]:
    """Return message classes by name; their pool is not TensorFlow's or jax's."""
    name = "xlarank_hlo.proto"
    file = descriptor_pb2.FileDescriptorProto(name=name, package=_PACKAGE, syntax="proto3")
    for name, fields in re.findall(r"message (\w+) \{(.*?)\}", _DECLARATIONS, re.DOTALL):
        message = file.message_type.add(name=name)
        declarations = re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", fields)
        for repeated, kind, field_name, number in declarations:
            label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=int(number), label=label)
            field.type = getattr(_Field, f"TYPE_{kind.upper()}", _Field.TYPE_MESSAGE)
            if field.type == _Field.TYPE_MESSAGE:
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    classes = message_factory.GetMessageClassesForFiles([file.name], pool)
    return {name.rpartition(".")[2]: message for name, message in classes.items()}


_CLASSES: Final = _message_classes()
HloProto = _CLASSES["HloProto"]
HloModuleProto = _CLASSES["HloModuleProto"]
HloInstructionProto = _CLASSES["HloInstructionProto"]
TuningData = _CLASSES["TuningData"]
ModuleTuningData = _CLASSES["ModuleTuningData"]
