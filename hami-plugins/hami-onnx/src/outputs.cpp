// Reads outputs, and makes tensors of them.
#include "outputs.hpp"

#include <cstring>
#include <hami/elements.hpp>
#include <memory>

namespace hami_onnx {
namespace {

// A copy of less costs no more than the bookkeeping of memory that another library owns.
constexpr std::size_t kSmallestAdopted = 16 << 10;

// An output whose memory a tensor uses.
struct Adopted {
  Owned<OrtValue> value;
  Shape shape;
  Shape strides;
  DLManagedTensorVersioned managed{};
};

hami::Tensor adopt(Output& output, const Shape& shape) {
  auto adopted = std::make_unique<Adopted>(Adopted{std::move(output.value), shape, Shape(shape.size(), 1), {}});
  for (std::size_t axis = shape.size(); axis-- > 1;) adopted->strides[axis - 1] = adopted->strides[axis] * shape[axis];
  adopted->managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  adopted->managed.manager_ctx = adopted.get();
  adopted->managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Adopted*>(self->manager_ctx); };
  adopted->managed.dl_tensor = {output.data,
                                {kDLCPU, 0},
                                static_cast<std::int32_t>(shape.size()),
                                output.dtype,
                                adopted->shape.data(),
                                adopted->strides.data(),
                                0};
  return hami::Tensor::adopt(&adopted.release()->managed);
}

}  // namespace

Output Output::of(const Library& library, Owned<OrtValue> value) {
  const Api& api = library.api();
  Output output;
  output.value = std::move(value);
  Owned<OrtTensorTypeAndShapeInfo> info(api.ReleaseTensorTypeAndShapeInfo);
  int type = 0;
  std::size_t axes = 0;
  void* data = nullptr;
  library.check(api.GetTensorTypeAndShape(output.value.get(), info.out()), HAMI_REQUEST);
  library.check(api.GetTensorElementType(info.get(), &type), HAMI_REQUEST);
  library.check(api.GetDimensionsCount(info.get(), &axes), HAMI_REQUEST);
  output.shape.resize(axes);
  library.check(api.GetDimensions(info.get(), output.shape.data(), axes), HAMI_REQUEST);
  library.check(api.GetTensorMutableData(output.value.get(), &data), HAMI_REQUEST);
  output.dtype = dtype_of_type(type).value();
  output.data = static_cast<char*>(data);
  return output;
}

Output Output::of(hami::Tensor tensor) {
  Output output;
  output.dtype = tensor.dtype();
  output.shape = tensor.shape();
  output.data = static_cast<char*>(tensor.view().data);
  output.tensor.emplace(std::move(tensor));
  return output;
}

RowLayout::RowLayout(const Shape& shape, int axis, DLDataType dtype)
    : rows(static_cast<std::size_t>(shape[static_cast<std::size_t>(axis)])), bytes(hami::item_size(dtype)) {
  for (int i = 0; i < static_cast<int>(shape.size()); ++i)
    if (i != axis) (i < axis ? blocks : bytes) *= static_cast<std::size_t>(shape[static_cast<std::size_t>(i)]);
}

void copy_rows(const RowLayout& from, const char* source, std::size_t first, const RowLayout& to, char* target,
               std::size_t at, std::size_t count) {
  if (count * from.bytes == 0) return;
  for (std::size_t block = 0; block < from.blocks; ++block)
    std::memcpy(target + (block * to.rows + at) * to.bytes, source + (block * from.rows + first) * from.bytes,
                count * from.bytes);
}

Shape with_rows(Shape shape, int axis, std::int64_t rows) {
  if (axis != kShared) shape[static_cast<std::size_t>(axis)] = rows;
  return shape;
}

Shape without_axis(Shape shape, int axis) {
  if (axis != kShared) shape.erase(shape.begin() + axis);
  return shape;
}

hami::Tensor whole(Output& output, const Shape& shape, bool adopts) {
  if (output.tensor && output.shape == shape) return *output.tensor;
  std::size_t bytes = hami::item_size(output.dtype);
  for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
  if (adopts && output.value.get() && bytes >= kSmallestAdopted) return adopt(output, shape);
  const hami::Tensor copy = hami::Tensor::make(output.dtype, shape);
  if (bytes > 0) std::memcpy(copy.view().data, output.data, bytes);
  return copy;
}

hami::Tensor part(const Output& output, int axis, std::int64_t first, std::int64_t count, bool drops_axis) {
  const Shape rows = with_rows(output.shape, axis, count);
  const hami::Tensor copy = hami::Tensor::make(output.dtype, drops_axis ? without_axis(rows, axis) : rows);
  copy_rows({output.shape, axis, output.dtype}, output.data, static_cast<std::size_t>(first),
            {rows, axis, output.dtype}, static_cast<char*>(copy.view().data), 0, static_cast<std::size_t>(count));
  return copy;
}

}  // namespace hami_onnx
