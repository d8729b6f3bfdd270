// Translates between ctypes and the classes of this plugin.
#include "python_functions.hpp"

#include <map>
#include <mutex>

#include "captured_model.hpp"

namespace hami_cuda {
namespace {

thread_local std::string last_error;

// Runs `body` on a device.
template <class Body>
int call(int device, const Body& body) noexcept {
  try {
    OpenDevice& open = Runtime::get().device(device, "cuda:" + std::to_string(device));
    open.device().driver().check_usable();
    const CurrentDevice current(open.device());
    body(open);
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

template <class Body>
int call(int device, std::int64_t stream, const Body& body) noexcept {
  return call(device, [&](OpenDevice& open) { body(open, open.stream(stream)); });
}

// The streams that Python opened.
class OpenedStreams {
 public:
  static OpenedStreams& get() {
    static OpenedStreams& streams = *new OpenedStreams;
    return streams;
  }
  void add(int device, std::shared_ptr<Stream> stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_[{device, stream->handle()}] = std::move(stream);
  }
  std::shared_ptr<Stream> take(int device, std::int64_t handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = streams_.extract({device, handle});
    return found ? std::move(found.mapped()) : nullptr;
  }

 private:
  std::mutex mutex_;  // guards streams_
  std::map<std::pair<int, std::int64_t>, std::shared_ptr<Stream>> streams_;
};

Shape shape_of(const DLTensor& tensor) { return {tensor.shape, tensor.shape + tensor.ndim}; }

std::size_t bytes_of(const DLTensor& tensor) { return count_of(shape_of(tensor)) * item_size(tensor.dtype); }

// Copies a tensor on the device to contiguous memory on it.
void copy_contiguous(OpenDevice& open, const std::shared_ptr<Stream>& on, const DLTensor& from, CUdeviceptr to) {
  const std::size_t size = bytes_of(from);
  if (size == 0) return;
  if (!is_contiguous(from)) return open.kernels().copy(*on, {copy_of(from, to, "a copy")});
  const CUdeviceptr start = reinterpret_cast<CUdeviceptr>(from.data) + from.byte_offset;
  on->driver().check(on->api().on_device(to, start, size, on->raw()), "cannot copy on the device");
}

// What a stream has captured, ready to launch. The capture ends in any case.
CUgraphExec end_capture(const Stream& stream) {
  CUgraph graph = nullptr;
  CUgraphExec made = nullptr;
  stream.driver().check(stream.api().capture_end(stream.raw(), &graph), "cannot capture a graph");
  const CUresult result = stream.api().graph_instantiate(&made, graph, 0);
  stream.api().graph_destroy(graph);
  stream.driver().check(result, "cannot make a graph");
  return made;
}

template <class Managed>
void drop(void* tensor) {
  auto* const managed = static_cast<Managed*>(tensor);
  if (managed->deleter) managed->deleter(managed);
}

constexpr PythonFunctions kFunctions = {
    [] { return last_error.c_str(); },
    [](int device, std::int64_t* stream) {
  return call(device, [&](OpenDevice& open) {
    std::shared_ptr<Stream> made = open.new_stream();
    *stream = made->handle();
    OpenedStreams::get().add(device, std::move(made));
  });
},
    [](int device, std::int64_t stream) {
  return call(device, [&](OpenDevice&) { OpenedStreams::get().take(device, stream); });
},
    [](int device, std::int64_t stream, const DLTensor* like, DLManagedTensorVersioned** made) {
  return call(device, stream, [&](OpenDevice&, std::shared_ptr<Stream> on) {
    *made = managed_tensor(std::make_shared<Memory>(std::move(on), bytes_of(*like)), like->dtype, shape_of(*like));
  });
},
    [](int device, std::int64_t stream, const DLTensor* from, DLManagedTensorVersioned** made) {
  return call(device, stream, [&](OpenDevice& open, const std::shared_ptr<Stream>& on) {
    const auto memory = std::make_shared<Memory>(on, bytes_of(*from));
    copy_contiguous(open, on, *from, memory->start());
    *made = managed_tensor(memory, from->dtype, shape_of(*from));
  });
},
    [](int device, std::int64_t stream, const Held* objects, int count) {
  std::vector<std::shared_ptr<void>> kept;
  for (const Held* each = objects; each < objects + count; ++each)
    kept.emplace_back(each->managed, each->is_versioned ? drop<DLManagedTensorVersioned> : drop<DLManagedTensor>);
  return call(device, stream, [&](OpenDevice&, const std::shared_ptr<Stream>& on) {
    on->hold(std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(kept)));
  });
},
    [](int device, std::int64_t stream) {
  return call(device, stream, [](OpenDevice&, const std::shared_ptr<Stream>& on) { on->wait(); });
},
    [](int device, std::int64_t stream) {
  return call(device, stream, [](OpenDevice& open, const std::shared_ptr<Stream>&) { open.device().trim(); });
},
    [](int device, std::int64_t stream, const DLTensor* from, std::uint64_t to) {
  return call(device, stream,
              [&](OpenDevice& open, const std::shared_ptr<Stream>& on) { copy_contiguous(open, on, *from, to); });
},
    [](int device, std::int64_t stream) {
  return call(device, stream, [](OpenDevice&, const std::shared_ptr<Stream>& on) {
    on->driver().check(on->api().capture_begin(on->raw(), kRelaxedCapture), "cannot capture a graph");
  });
},
    [](int device, std::int64_t stream, void** graph) {
  return call(device, stream, [&](OpenDevice&, const std::shared_ptr<Stream>& on) { *graph = end_capture(*on); });
},
    [](int device, std::int64_t stream, void* graph) {
  return call(device, stream, [&](OpenDevice&, const std::shared_ptr<Stream>& on) {
    on->driver().check(on->api().graph_launch(static_cast<CUgraphExec>(graph), on->raw()), "cannot launch a graph");
  });
},
    [](int device, void* graph) {
  return call(device,
              [&](OpenDevice& open) { open.device().api().graph_exec_destroy(static_cast<CUgraphExec>(graph)); });
},
    [](int device, const DLTensor* input, int pads, int takes_rows, std::int64_t watch_every, std::int64_t* model) {
  return call(device, [&](OpenDevice& open) {
    const CapturedModel::Rules rules{pads != 0, takes_rows != 0, watch_every};
    *model = CapturedModels::get().add(std::make_shared<CapturedModel>(open.device(), *input, rules));
  });
},
    [](int device, std::int64_t model) {
  return call(device, [&](OpenDevice&) {
    const std::shared_ptr<CapturedModel> closed = CapturedModels::get().find(model);
    closed->enter(nullptr);
    closed->drop_graphs();
    closed->leave(nullptr);
    CapturedModels::get().remove(model);
  });
},
    [](int device, std::int64_t stream, std::int64_t model, std::int64_t* joined) {
  return call(device, stream, [&](OpenDevice&, const std::shared_ptr<Stream>& on) {
    const std::shared_ptr<CapturedModel> used = CapturedModels::get().find(model);
    used->enter(on->raw());
    *joined = used->take_joined();
  });
},
    [](int device, std::int64_t stream, std::int64_t model) {
  return call(device, stream, [&](OpenDevice&, const std::shared_ptr<Stream>& on) {
    CapturedModels::get().find(model)->leave(on->raw());
  });
},
    [](int device, std::int64_t model, void* graph, std::int64_t rows, const DLTensor* output) {
  return call(device, [&](OpenDevice&) {
    CapturedModels::get().find(model)->add(rows, {static_cast<CUgraphExec>(graph), Region(*output)});
  });
},
    order_tensor,
};

}  // namespace
}  // namespace hami_cuda

HAMI_REGISTER(hami::FunctionTable<hami_cuda::kFunctions>, "CudaFunctions", "",
              "Return the address of the table of functions that hami_cuda.memory calls, for backends in Python.");
