// Functions for backends in Python, which call them with ctypes: the stream of their instance, and memory in its order.
#pragma once

#include <cstdint>

#include "sdk.hpp"

namespace hami_cuda {

// A tensor of DLPack: a DLManagedTensorVersioned, else a DLManagedTensor.
struct Held {
  void* managed;
  int is_versioned;
};

// In the order of hami_cuda/memory.py. A function returns 0 or a code of hami/abi.h; `error` is then the text of
// the last error of this thread. A stream is a number as in DLPack, that of an instance.
struct PythonFunctions {
  const char* (*error)();
  // A stream for an instance that has none. It exists until `close`, or longer, while others use it.
  int (*open)(int device, std::int64_t* stream);
  int (*close)(int device, std::int64_t stream);
  // Memory for a contiguous tensor; only the type and the shape of `like` are read.
  int (*allocate)(int device, std::int64_t stream, const DLTensor* like, DLManagedTensorVersioned** made);
  // A contiguous copy of a tensor on the device.
  int (*copy)(int device, std::int64_t stream, const DLTensor* from, DLManagedTensorVersioned** made);
  // Keeps objects until the work that the stream has now is done.
  int (*hold)(int device, std::int64_t stream, const Held* objects, int count);
  // Blocks until the work that the stream has now is done.
  int (*wait)(int device, std::int64_t stream);
  // Returns memory that is kept for later to the device, for another library.
  int (*trim)(int device, std::int64_t stream);
  // Copies a tensor on the device, in row-major order, to memory on it.
  int (*copy_to)(int device, std::int64_t stream, const DLTensor* from, std::uint64_t to);
  // Between these two, work of this thread on the stream is recorded instead of done. `end_capture` ends the recording also if it
  // fails.
  int (*begin_capture)(int device, std::int64_t stream);
  int (*end_capture)(int device, std::int64_t stream, void** graph);
  int (*launch)(int device, std::int64_t stream, void* graph);
  int (*destroy)(int device, void* graph);
  // A model that was captured elsewhere, by a number, for the backend CapturedModel; see captured_model.hpp. `input` has the rows of
  // its largest graph.
  int (*open_model)(int device, const DLTensor* input, int pads, int takes_rows, std::int64_t watch_every,
                    std::int64_t* model);
  int (*close_model)(int device, std::int64_t model);
  // Before and after the caller uses the graphs, or the memory of the model, on a stream; on one thread. `joined`: the number of
  // batches of several requests that ran since the last call.
  int (*enter_model)(int device, std::int64_t stream, std::int64_t model, std::int64_t* joined);
  int (*leave_model)(int device, std::int64_t stream, std::int64_t model);
  // Between these two.
  int (*add_graph)(int device, std::int64_t model, void* graph, std::int64_t rows, const DLTensor* output);
  // The function `order` of the tensors that `allocate` and `copy` make.
  hami_error* (*order)(DLManagedTensorVersioned* tensor, std::int64_t stream);
};

}  // namespace hami_cuda
