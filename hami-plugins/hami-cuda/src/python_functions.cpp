// Translates between ctypes and the classes of this plugin.
#include "python_functions.hpp"

#include "device_tensor.hpp"

namespace hami_cuda {
namespace {

thread_local std::string last_error;

// Runs `body` with the stream, on its device.
template <class Body>
int call(int device, std::int64_t stream, const Body& body) noexcept {
  try {
    OpenDevice& open = Runtime::get().device(device, "cuda:" + std::to_string(device));
    open.device().driver().check_usable();
    const CurrentDevice current(open.device());
    body(open, open.stream(stream));
    return 0;
  } catch (const hami::Error& error) {
    last_error = error.what();
    return error.code();
  } catch (const CudaError& error) {
    last_error = error.what();
    return error.code();
  } catch (const std::exception& error) {
    last_error = error.what();
    return HAMI_INTERNAL;
  }
}

Shape shape_of(const DLTensor& tensor) { return {tensor.shape, tensor.shape + tensor.ndim}; }

std::size_t bytes_of(const DLTensor& tensor) { return count_of(shape_of(tensor)) * item_size(tensor.dtype); }

const PythonFunctions kFunctions = {
    [] { return last_error.c_str(); },
    [](int device, std::int64_t stream, const DLTensor* like, DLManagedTensorVersioned** made) {
  return call(device, stream, [&](OpenDevice&, std::shared_ptr<Stream> on) {
    *made = managed_tensor(std::make_shared<Memory>(std::move(on), bytes_of(*like)), like->dtype, shape_of(*like));
  });
},
    [](int device, std::int64_t stream, const DLTensor* from, DLManagedTensorVersioned** made) {
  return call(device, stream, [&](OpenDevice& open, const std::shared_ptr<Stream>& on) {
    const auto memory = std::make_shared<Memory>(on, bytes_of(*from));
    if (count_of(shape_of(*from)) > 0) open.kernels().copy(on, {copy_of(*from, memory->start(), "a copy")});
    *made = managed_tensor(memory, from->dtype, shape_of(*from));
  });
},
    [](int device, std::int64_t stream, const Held* objects, int count) {
  std::vector<std::shared_ptr<void>> kept;
  for (const Held* each = objects; each < objects + count; ++each) kept.emplace_back(each->managed, each->drop);
  return call(device, stream, [&](OpenDevice&, const std::shared_ptr<Stream>& on) {
    on->hold(std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(kept)));
  });
},
    [](int device, std::int64_t stream) {
  return call(device, stream, [](OpenDevice&, const std::shared_ptr<Stream>& on) { on->wait(); });
},
    order_tensor,
};

}  // namespace

std::int64_t python_functions() { return reinterpret_cast<std::int64_t>(&kFunctions); }

}  // namespace hami_cuda
