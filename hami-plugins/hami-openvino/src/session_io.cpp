// Wraps memory in OpenVINO's tensors, in both directions.
#include "session_io.hpp"

#include <algorithm>
#include <cstring>

namespace hami_openvino {
namespace {

constexpr ov_status_e kInvalidCParam = -14;

Output read_output(Session& session, std::size_t index) {
  const Model& model = session.model();
  const Api& api = model.library().api();
  Output output{Owned<ov_tensor_t>(api.ov_tensor_free), {}, nullptr};
  const auto check = [&](ov_status_e status) {
    model.library().check(status, "OpenvinoTensor: cannot read output \"" + model.outputs()[index].name + "\"",
                          HAMI_REQUEST);
  };
  check(api.ov_infer_request_get_output_tensor_by_index(session.request(), index, output.tensor.out()));
  // For a scalar, which has no axes, OpenVINO returns kInvalidCParam instead of an empty shape.
  ov_shape_t shape{};
  if (const ov_status_e status = api.ov_tensor_get_shape(output.tensor.get(), &shape); status != kInvalidCParam) {
    check(status);
    output.shape.assign(shape.dims, shape.dims + shape.rank);
    api.ov_shape_free(&shape);
  }
  void* data = nullptr;
  const bool is_empty = std::find(output.shape.begin(), output.shape.end(), 0) != output.shape.end();
  if (!is_empty) check(api.ov_tensor_data(output.tensor.get(), &data));
  output.data = static_cast<const unsigned char*>(data);
  return output;
}

}  // namespace

bool set_input(Session& session, std::size_t index, const hami::Tensor& tensor, Shape shape) {
  const Model& model = session.model();
  const Api& api = model.library().api();
  const DLTensor& view = tensor.view();
  const ov_shape_t sizes{static_cast<std::int64_t>(shape.size()), shape.data()};
  void* data = static_cast<unsigned char*>(view.data) + view.byte_offset;
  Owned<ov_tensor_t> handle(api.ov_tensor_free);
  const ov_element_type_e code = model.library().code_of(*model.inputs()[index].type);
  return api.ov_tensor_create_from_host_ptr(code, sizes, data, handle.out()) == 0 &&
         api.ov_infer_request_set_input_tensor_by_index(session.request(), index, handle.get()) == 0;
}

std::vector<Output> read_outputs(Session& session) {
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < session.model().outputs().size(); ++i) outputs.push_back(read_output(session, i));
  return outputs;
}

RowLayout::RowLayout(const Shape& shape, int axis, std::size_t element_bytes)
    : rows(static_cast<std::size_t>(shape[static_cast<std::size_t>(axis)])), bytes(element_bytes) {
  for (int i = 0; i < static_cast<int>(shape.size()); ++i)
    if (i != axis) (i < axis ? blocks : bytes) *= static_cast<std::size_t>(shape[static_cast<std::size_t>(i)]);
}

void copy_rows(const RowLayout& from, const unsigned char* source, std::size_t first, const RowLayout& to,
               unsigned char* target, std::size_t at, std::size_t count) {
  if (count * from.bytes == 0) return;
  for (std::size_t block = 0; block < from.blocks; ++block)
    std::memcpy(target + (block * to.rows + at) * to.bytes, source + (block * from.rows + first) * from.bytes,
                count * from.bytes);
}

hami::Tensor copy_output(const Output& output, const ElementType& type, const Shape& shape) {
  const hami::Tensor tensor = hami::Tensor::make(type.dtype, shape);
  if (tensor.nbytes() > 0) std::memcpy(tensor.view().data, output.data, tensor.nbytes());
  return tensor;
}

hami::Tensor copy_output(const Output& output, const ElementType& type, const Shape& shape, int axis,
                         std::int64_t first, std::int64_t count) {
  const hami::Tensor tensor = hami::Tensor::make(type.dtype, shape);
  const std::size_t element = type.dtype.bits / 8u;
  copy_rows({output.shape, axis, element}, output.data, static_cast<std::size_t>(first),
            {with_rows(output.shape, axis, count), axis, element}, static_cast<unsigned char*>(tensor.view().data), 0,
            static_cast<std::size_t>(count));
  return tensor;
}

}  // namespace hami_openvino
