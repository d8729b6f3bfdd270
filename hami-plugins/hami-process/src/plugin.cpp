// The functions of this library for Python, which finds their table by a backend: a plugin exports nothing else.
#include <errno.h>

#include <hami/function_table.hpp>

#include "mailbox.hpp"
#include "memory.hpp"
#include "parent_watch.hpp"

namespace hami_process {
namespace {

using Word = std::atomic<std::uint32_t>;

// In the order of `_FUNCTIONS` in native.py. Times are nanoseconds.
struct Functions {
  std::int32_t (*create_memory)(std::uint64_t size, std::int32_t without_memfd, const char* folder);
  void* (*map_memory)(std::int32_t descriptor, std::uint64_t size);
  void (*unmap_memory)(void* address, std::uint64_t size);
  std::int32_t (*put)(Mailbox* box, void* room, const void* message, std::uint32_t size, std::int64_t timeout);
  std::int32_t (*take)(Mailbox* box, const void* room, void* message, std::uint32_t capacity, std::int64_t timeout);
  void (*close)(Mailbox* box);
  std::uint32_t (*load)(const Word* word);
  void (*store)(Word* word, std::uint32_t value);  // and wakes those that wait for a change
  std::int32_t (*wait)(Word* word, std::uint32_t seen, std::int64_t timeout);
  std::int32_t (*end_with_parent)(std::int32_t parent, std::int32_t socket);
};

constexpr Functions kFunctions = {
    [](std::uint64_t size, std::int32_t without_memfd, const char* folder) {
  return create_memory(size, without_memfd != 0, folder);
},
    map_memory,
    unmap_memory,
    [](Mailbox* box, void* room, const void* message, std::uint32_t size, std::int64_t timeout) -> std::int32_t {
  return box->put(room, message, size, timeout);
},
    [](Mailbox* box, const void* room, void* message, std::uint32_t capacity, std::int64_t timeout) {
  return box->take(room, message, capacity, timeout);
},
    [](Mailbox* box) { box->close(); },
    [](const Word* word) { return word->load(std::memory_order_acquire); },
    [](Word* word, std::uint32_t value) {
  word->store(value, std::memory_order_release);
  wake_all(*word);
},
    [](Word* word, std::uint32_t seen, std::int64_t timeout) -> std::int32_t {
  return wait_for_change(*word, seen, timeout);
},
    [](std::int32_t parent, std::int32_t socket) -> std::int32_t { return end_with_parent(parent, socket); },
};

// What a backend of the core gets where the value was a hami.Tensor in the other process.
class ProcessTensor final : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT | HAMI_NON_BLOCKING;

 private:
  void forward_(hami::Batch batch) override {
    for (const hami::Dict& item : batch) item["result"] = item["data"].as_tensor();
  }
};

}  // namespace
}  // namespace hami_process

HAMI_REGISTER(hami::FunctionTable<hami_process::kFunctions>, "ProcessFunctions", "",
              "Return the address of the functions with which Process reaches its children.");
HAMI_REGISTER(hami_process::ProcessTensor, "ProcessTensor", "", "Return the array in `data` as a hami.Tensor.");
HAMI_PLUGIN("hami-process", HAMI_PROCESS_VERSION)
