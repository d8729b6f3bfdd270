// A CUDA driver without a GPU: "device" memory is host memory and kernels run on the CPU. FAKE_CUDA_VERSION,
// FAKE_CUDA_DEVICES, FAKE_CUDA_MEMORY (bytes), FAKE_CUDA_POOLS (0: none), FAKE_CUDA_LAUNCH (the result of launches),
// FAKE_CUDA_CAPTURE (that of captures), FAKE_CUDA_BUSY (1: work is never done until someone waits), FAKE_CUDA_TAKES (microseconds that this wait takes) and FAKE_CUDA_LATE
// (1: work runs when someone waits) in the environment describe the machine.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "../../src/cuda_api.hpp"
#include "host_kernel.cpp"
#include "late_streams.hpp"

using namespace hami_cuda;
#define FAKE extern "C" __attribute__((visibility("default"))) CUresult

namespace {

long number(const char* name, long otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atol(text) : otherwise;
}
int devices() { return static_cast<int>(number("FAKE_CUDA_DEVICES", 1)); }

std::mutex mutex;  // guards what follows
std::map<CUdeviceptr, std::size_t>& allocations() {
  static std::map<CUdeviceptr, std::size_t>& sizes = *new std::map<CUdeviceptr, std::size_t>;
  return sizes;
}
std::map<char*, std::size_t>& pinned() {
  static std::map<char*, std::size_t>& sizes = *new std::map<char*, std::size_t>;
  return sizes;
}
std::size_t kept = 0;  // freed bytes that the pool has not returned to the device
// Memory that was freed in the order of a late stream, which later work of that stream can have again. It is overwritten
// in that order, so that work that reads it too late is wrong.
std::map<CUstream, std::vector<std::pair<CUdeviceptr, std::size_t>>>& freed_late() {
  static auto& freed = *new std::map<CUstream, std::vector<std::pair<CUdeviceptr, std::size_t>>>;
  return freed;
}
constexpr int kOverwritten = 0xdd;
int launches = 0;
int waits = 0;    // of the CPU
int queries = 0;  // whether an event has happened
int uploads = 0;
int stream_waits = 0;  // of a stream for another
std::size_t streams = 0;
int graphs = 0;  // that were not destroyed
int graph_launches = 0;

// A captured graph: what fake_record added while its stream was capturing.
struct Graph {
  std::vector<void (*)()> work;
};
std::map<CUstream, Graph*>& capturing() {
  static std::map<CUstream, Graph*>& found = *new std::map<CUstream, Graph*>;
  return found;
}
int pushed = 0;  // contexts

constexpr int kMajor = 75;               // attribute: the compute capability
constexpr std::size_t kAlignment = 256;  // bytes, as the real driver

struct Kernel {
  const char* name;
  bool synchronizes;                                // runs in blocks of one thread
  std::function<void()> (*bind)(void** arguments);  // copies the arguments, which the caller may drop
};

template <class Part>
const hami_cuda_parts<Part>& parts(void** arguments) {
  return *static_cast<const hami_cuda_parts<Part>*>(arguments[0]);
}

template <class Part, void (*run)(const hami_cuda_parts<Part>&)>
std::function<void()> bind(void** arguments) {
  return [given = parts<Part>(arguments)] { run(given); };
}

template <class Part, class Job, void (*run)(const hami_cuda_parts<Part>&, Job)>
std::function<void()> bind(void** arguments) {
  return [given = parts<Part>(arguments), job = *static_cast<Job*>(arguments[1])] { run(given, job); };
}

const Kernel kernels[] = {
    {"hami_image", false, bind<hami_cuda_image, hami_cuda_job, hami_image>},
    {"hami_plain_image", false, bind<hami_cuda_image, hami_cuda_job, hami_plain_image>},
    {"hami_copy", false, bind<hami_cuda_copy, hami_copy>},
    {"hami_cast", false, bind<hami_cuda_cast, hami_cast>},
    {"hami_softmax", true, bind<hami_cuda_lines, hami_softmax>},
    {"hami_top", true, bind<hami_cuda_lines, hami_top>},
    {"hami_suppress", true, bind<hami_cuda_boxes, hami_cuda_nms, hami_suppress>},
    {"hami_restore", false, bind<hami_cuda_corners, hami_restore>},
};

// As work of a stream.
int submit(CUstream stream, std::function<void()> work) {
  LateStreams::get().submit(stream, std::move(work));
  return 0;
}

void* host(CUdeviceptr memory) { return reinterpret_cast<void*>(memory); }

}  // namespace

FAKE cuInit(unsigned) { return devices() ? 0 : kNoDevice; }
FAKE cuDriverGetVersion(int* version) { return *version = static_cast<int>(number("FAKE_CUDA_VERSION", 12040)), 0; }
FAKE cuGetErrorName(CUresult error, const char** name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
FAKE cuGetErrorString(CUresult error, const char** text) {
  *text = error == kOutOfMemory ? "out of memory" : "unknown error";
  return 0;
}
FAKE cuDeviceGetCount(int* count) { return *count = devices(), 0; }
FAKE cuDeviceGet(CUdevice* device, int index) { return *device = index, 0; }
FAKE cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return *context = reinterpret_cast<CUcontext>(static_cast<std::size_t>(device) + 1), 0;
}
FAKE cuDevicePrimaryCtxRelease_v2(CUdevice) { return 0; }
FAKE cuDeviceGetName(char* name, int size, CUdevice device) {
  return std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU %d", device), 0;
}
FAKE cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  if (attribute == kMemoryPoolsSupported) return *value = number("FAKE_CUDA_POOLS", 1) != 0, 0;
  if (attribute == kMajor) return *value = 9, 0;
  return *value = 0, 0;
}
FAKE cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice) { return *pool = reinterpret_cast<CUmemoryPool>(1), 0; }
FAKE cuMemPoolSetAttribute(CUmemoryPool, int, void*) { return 0; }
FAKE cuMemPoolTrimTo(CUmemoryPool, std::size_t least) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::size_t used = 0;
  for (const auto& [start, taken] : allocations()) used += taken;
  kept = std::min(kept, least > used ? least - used : 0);
  return 0;
}
FAKE cuCtxPushCurrent_v2(CUcontext) { return ++pushed, 0; }
FAKE cuCtxPopCurrent_v2(CUcontext*) { return --pushed, 0; }
FAKE cuModuleLoadData(CUmodule* loaded, const void*) { return *loaded = reinterpret_cast<CUmodule>(1), 0; }
FAKE cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  for (const Kernel& kernel : kernels)
    if (!std::strcmp(kernel.name, name))
      return *function = reinterpret_cast<CUfunction>(const_cast<Kernel*>(&kernel)), 0;
  return 500;
}
FAKE cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                    unsigned block_y, unsigned, unsigned, CUstream stream, void** arguments, void**) {
  if (const long result = number("FAKE_CUDA_LAUNCH", 0)) return static_cast<CUresult>(result);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    ++launches;
  }
  const Kernel& kernel = *reinterpret_cast<const Kernel*>(function);
  if (kernel.synchronizes) block_x = 1;
  return submit(stream, [=, run = kernel.bind(arguments)] {
    blockDim = {block_x, block_y, 1};
    gridDim = {grid_x, grid_y, grid_z};
    for (unsigned z = 0; z < grid_z; ++z)
      for (unsigned y = 0; y < grid_y * block_y; ++y)
        for (unsigned x = 0; x < grid_x * block_x; ++x) {
          blockIdx = {x / block_x, y / block_y, z};
          threadIdx = {x % block_x, y % block_y, 0};
          run();
        }
  });
}
FAKE cuStreamCreate(CUstream* stream, unsigned) {
  const std::lock_guard<std::mutex> lock(mutex);
  return *stream = reinterpret_cast<CUstream>(++streams * 4096), 0;
}
FAKE cuStreamBeginCapture_v2(CUstream stream, int) {
  const std::lock_guard<std::mutex> lock(mutex);
  capturing()[stream] = new Graph;
  return 0;
}
FAKE cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  const std::lock_guard<std::mutex> lock(mutex);
  Graph* const captured = capturing()[stream];
  capturing().erase(stream);
  if (const long result = number("FAKE_CUDA_CAPTURE", 0)) return delete captured, static_cast<CUresult>(result);
  return *graph = reinterpret_cast<CUgraph>(captured), 0;
}
FAKE cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
  *made = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return ++graphs, 0;
}
FAKE cuGraphDestroy(CUgraph graph) { return delete reinterpret_cast<Graph*>(graph), 0; }
FAKE cuGraphExecDestroy(CUgraphExec graph) { return delete reinterpret_cast<Graph*>(graph), --graphs, 0; }
FAKE cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  ++graph_launches;
  return submit(stream, [work = reinterpret_cast<Graph*>(graph)->work] {
    for (const auto& each : work) each();
  });
}
FAKE cuStreamSynchronize(CUstream stream) { return LateStreams::get().wait(stream), ++waits, 0; }
FAKE cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  LateStreams::get().hold_back(stream, *reinterpret_cast<LateEvent*>(event));
  return ++stream_waits, 0;
}
FAKE cuEventCreate(CUevent* event, unsigned) { return *event = reinterpret_cast<CUevent>(new LateEvent), 0; }
FAKE cuEventDestroy_v2(CUevent event) { return delete reinterpret_cast<LateEvent*>(event), 0; }
FAKE cuEventRecord(CUevent event, CUstream stream) {
  return LateStreams::get().record(*reinterpret_cast<LateEvent*>(event), stream), 0;
}
FAKE cuEventQuery(CUevent event) {
  ++queries;
  if (number("FAKE_CUDA_BUSY", 0)) return kNotReady;
  if (!LateStreams::get().is_done(*reinterpret_cast<LateEvent*>(event))) return kNotReady;
  return ++waits, 0;
}
FAKE cuEventSynchronize(CUevent event) {
  std::this_thread::sleep_for(std::chrono::microseconds(number("FAKE_CUDA_TAKES", 0)));
  return LateStreams::get().wait(*reinterpret_cast<LateEvent*>(event)), ++waits, 0;
}
FAKE cuMemAllocHost_v2(void** memory, std::size_t size) {
  const std::lock_guard<std::mutex> lock(mutex);
  *memory = std::malloc(size);
  return pinned()[static_cast<char*>(*memory)] = size, 0;
}
FAKE cuMemFreeHost(void* memory) {
  const std::lock_guard<std::mutex> lock(mutex);
  pinned().erase(static_cast<char*>(memory));
  return std::free(memory), 0;
}
FAKE cuMemAllocAsync(CUdeviceptr* memory, std::size_t size, CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::size_t used = size;
  for (const auto& [start, taken] : allocations()) used += taken;
  const auto total = static_cast<std::size_t>(number("FAKE_CUDA_MEMORY", 1L << 30));
  if (used > total) return kOutOfMemory;
  kept = std::min(kept - std::min(kept, size), total - used);
  auto& freed = freed_late()[stream];
  const auto found = std::find_if(freed.begin(), freed.end(), [&](const auto& each) { return each.second >= size; });
  if (found != freed.end()) {
    *memory = found->first;
    freed.erase(found);
  } else {
    *memory = reinterpret_cast<CUdeviceptr>(
        std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment));
  }
  allocations()[*memory] = size;
  return 0;
}
FAKE cuMemFreeAsync(CUdeviceptr memory, CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = allocations().find(memory);
  if (found == allocations().end()) return 1;
  const std::size_t size = found->second;
  allocations().erase(found);
  kept += size;
  if (!LateStreams::is_late()) return std::free(host(memory)), 0;
  freed_late()[stream].emplace_back(memory, size);
  return submit(stream, [=] { std::memset(host(memory), kOverwritten, size); });
}
FAKE cuMemAlloc_v2(CUdeviceptr* memory, std::size_t size) { return cuMemAllocAsync(memory, size, nullptr); }
FAKE cuMemFree_v2(CUdeviceptr memory) {
  LateStreams::get().wait_for_all();
  const std::lock_guard<std::mutex> lock(mutex);
  if (!allocations().erase(memory)) return 1;
  return std::free(host(memory)), 0;
}
FAKE cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
  return *bytes = static_cast<std::size_t>(number("FAKE_CUDA_MEMORY", 1L << 30)), 0;
}
FAKE cuCtxSynchronize() { return LateStreams::get().wait_for_all(), ++waits, 0; }
FAKE cuMemGetAddressRange_v2(CUdeviceptr* start, std::size_t* size, CUdeviceptr within) {
  const std::lock_guard<std::mutex> lock(mutex);
  auto after = allocations().upper_bound(within);
  if (after == allocations().begin()) return 1;
  std::tie(*start, *size) = *--after;
  return within < *start + *size ? 0 : 1;
}
FAKE cuMemsetD8Async(CUdeviceptr memory, unsigned char byte, std::size_t size, CUstream stream) {
  return submit(stream, [=] { std::memset(host(memory), byte, size); });
}
FAKE cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t size, CUstream stream) {
  ++uploads;
  return submit(stream, [=] { std::memcpy(host(to), from, size); });
}
FAKE cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream) {
  return submit(stream, [=] { std::memcpy(host(to), host(from), size); });
}
FAKE cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t size, CUstream stream) {
  return submit(stream, [=] { std::memcpy(to, host(from), size); });
}

// What the tests ask the fake.
#define ASKED extern "C" __attribute__((visibility("default")))
ASKED int fake_launches() { return launches; }
ASKED int fake_waits() { return waits; }
ASKED int fake_stream_waits() { return stream_waits; }
ASKED int fake_queries() { return queries; }
ASKED int fake_uploads() { return uploads; }
ASKED int fake_streams() { return static_cast<int>(streams); }
ASKED int fake_graphs() { return graphs; }
ASKED int fake_graph_launches() { return graph_launches; }
// If the stream is capturing, `work` becomes part of the graph and runs with it; otherwise returns 0.
ASKED int fake_record(std::size_t stream, void (*work)()) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = capturing().find(reinterpret_cast<CUstream>(stream));
  if (found == capturing().end()) return 0;
  return found->second->work.push_back(work), 1;
}
ASKED int fake_pushed() { return pushed; }
ASKED int fake_is_pinned(char* memory) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto after = pinned().upper_bound(memory);
  return after != pinned().begin() && memory < std::prev(after)->first + std::prev(after)->second;
}
ASKED std::size_t fake_allocations() {
  const std::lock_guard<std::mutex> lock(mutex);
  return allocations().size();
}
// Bytes that the process has of the device.
ASKED std::size_t fake_reserved() {
  const std::lock_guard<std::mutex> lock(mutex);
  std::size_t used = kept;
  for (const auto& [start, taken] : allocations()) used += taken;
  return used;
}
// Work of another library, such as the fake nvJPEG, on a stream.
ASKED void fake_submit(void* stream, void (*work)(void*), void* argument) {
  submit(static_cast<CUstream>(stream), [=] { work(argument); });
}
