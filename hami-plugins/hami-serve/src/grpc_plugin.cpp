// The functions of gRPC at the native door for Python, which finds their table by a backend as those of the door.
#include <cstdio>
#include <exception>
#include <hami/function_table.hpp>
#include <memory>
#include <string>
#include <utility>

#include "grpc.hpp"

namespace hami_serve {
namespace {

// In the order of `_FUNCTIONS` in native_grpc.py.
struct GrpcFunctions {
  Grpc* (*open)(Door* door, const char* no_token, const char* no_message, const char* stopping, std::size_t max_answer);
  void (*close)(Grpc* grpc);  // after the door is closed
  std::int32_t (*event)(Grpc* grpc);
  std::int32_t (*add)(Grpc* grpc, std::int32_t fd);  // not 0: memory is exhausted
  // The kind of the event, 0 for none, and what it has, until `release`.
  std::int32_t (*take)(Grpc* grpc, std::int64_t* number, const char** data, std::size_t* size, GrpcEvent** event);
  void (*release)(Grpc* grpc, GrpcEvent* event);
  void (*ask)(Grpc* grpc, std::int64_t number);
  void (*write)(Grpc* grpc, std::int64_t number, const char* data, std::size_t size);
  void (*finish)(Grpc* grpc, std::int64_t number, std::int32_t status, const char* text, std::size_t size);
  void (*wait_for_memory)(Grpc* grpc, std::int64_t nanoseconds);
  std::uint64_t (*answers)(Grpc* grpc);
  std::int64_t (*connections)(Grpc* grpc);
};

// Runs a step of a call, or ends the call if memory for the step is exhausted.
template <class Step>
void or_end(Grpc* grpc, std::int64_t number, Step&& step) {
  try {
    step();
  } catch (const std::exception&) {
    grpc->end(number);
  }
}

constexpr GrpcFunctions kFunctions = {
    [](Door* door, const char* no_token, const char* no_message, const char* stopping,
       std::size_t max_answer) -> Grpc* {
  try {
    return new Grpc(*door, {no_token, no_message, stopping}, max_answer);
  } catch (const std::exception&) {
    return nullptr;
  }
},
    [](Grpc* grpc) { delete grpc; },
    [](Grpc* grpc) -> std::int32_t { return grpc->event(); },
    [](Grpc* grpc, std::int32_t fd) -> std::int32_t {
  try {
    grpc->add(fd);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
},
    [](Grpc* grpc, std::int64_t* number, const char** data, std::size_t* size, GrpcEvent** event) -> std::int32_t {
  std::unique_ptr<GrpcEvent> taken = grpc->take();
  if (!taken) return 0;
  *number = taken->number;
  *data = taken->body ? taken->body->data() : taken->text.data();
  *size = taken->body ? taken->body->size() : taken->text.size();
  *event = taken.release();
  return static_cast<std::int32_t>((*event)->kind);
},
    [](Grpc* grpc, GrpcEvent* event) { grpc->release(std::unique_ptr<GrpcEvent>(event)); },
    [](Grpc* grpc, std::int64_t number) { or_end(grpc, number, [&] { grpc->ask(number); }); },
    [](Grpc* grpc, std::int64_t number, const char* data, std::size_t size) {
  or_end(grpc, number, [&] { grpc->write(number, {data, size}); });
},
    [](Grpc* grpc, std::int64_t number, std::int32_t status, const char* text, std::size_t size) {
  std::string copy;
  try {
    copy.assign(text, size);
  } catch (const std::exception&) {  // the status is enough
  }
  grpc->finish(number, status, std::move(copy));
},
    [](Grpc* grpc, std::int64_t nanoseconds) { grpc->wait_for_memory(nanoseconds); },
    [](Grpc* grpc) { return grpc->take_answers(); },
    [](Grpc* grpc) { return grpc->connections(); },
};

}  // namespace
}  // namespace hami_serve

HAMI_REGISTER(hami::FunctionTable<hami_serve::kFunctions>, "NativeGrpc", "",
              "Return the address of the functions of gRPC at the native door.");
