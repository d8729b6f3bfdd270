// Declarations of the CUDA driver API that this plugin calls. They follow NVIDIA's documentation of CUDA 11.8; no
// header of NVIDIA is needed.
#pragma once

#include <cstddef>

namespace hami_cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

constexpr CUresult kOutOfMemory = 2;
constexpr CUresult kNoDevice = 100;
constexpr CUresult kNotReady = 600;
constexpr unsigned kNonBlockingStream = 1;
constexpr unsigned kBlockingEvent = 1;  // waiting for it does not keep a core busy
constexpr unsigned kEventWithoutTime = 2;
constexpr int kRelaxedCapture = 2;          // calls that have nothing to do with the stream do not end the capture
constexpr int kMemoryPoolsSupported = 115;  // attribute of a device
constexpr int kReleaseThreshold = 4;        // attribute of a pool: bytes that it keeps

// X(result, name in the library, name here, parameters)
#define HAMI_CUDA_FUNCTIONS(X)                                                                                        \
  X(CUresult, cuInit, init, (unsigned flags))                                                                         \
  X(CUresult, cuDriverGetVersion, version, (int* version))                                                            \
  X(CUresult, cuGetErrorName, error_name, (CUresult error, const char** name))                                        \
  X(CUresult, cuGetErrorString, error_text, (CUresult error, const char** text))                                      \
  X(CUresult, cuDeviceGetCount, device_count, (int* count))                                                           \
  X(CUresult, cuDeviceGet, device_get, (CUdevice * device, int index))                                                \
  X(CUresult, cuDevicePrimaryCtxRetain, context_retain, (CUcontext * context, CUdevice device))                       \
  X(CUresult, cuDevicePrimaryCtxRelease_v2, context_release, (CUdevice device))                                       \
  X(CUresult, cuDeviceGetAttribute, device_attribute, (int* value, int attribute, CUdevice device))                   \
  X(CUresult, cuDeviceTotalMem_v2, device_memory, (std::size_t* bytes, CUdevice device))                              \
  X(CUresult, cuDeviceGetDefaultMemPool, default_pool, (CUmemoryPool * pool, CUdevice device))                        \
  X(CUresult, cuMemPoolSetAttribute, set_pool_attribute, (CUmemoryPool pool, int attribute, void* value))             \
  X(CUresult, cuMemPoolTrimTo, trim_pool, (CUmemoryPool pool, std::size_t kept))                                      \
  X(CUresult, cuMemGetAddressRange_v2, allocation_of, (CUdeviceptr * start, std::size_t* size, CUdeviceptr within))   \
  X(CUresult, cuCtxPushCurrent_v2, context_push, (CUcontext context))                                                 \
  X(CUresult, cuCtxPopCurrent_v2, context_pop, (CUcontext * context))                                                 \
  X(CUresult, cuCtxSynchronize, context_synchronize, ())                                                              \
  X(CUresult, cuMemAlloc_v2, allocate_unordered, (CUdeviceptr * memory, std::size_t size))                            \
  X(CUresult, cuMemFree_v2, release_unordered, (CUdeviceptr memory))                                                  \
  X(CUresult, cuModuleLoadData, module_load, (CUmodule * loaded, const void* ptx))                                    \
  X(CUresult, cuModuleGetFunction, module_function, (CUfunction * function, CUmodule loaded, const char* name))       \
  X(CUresult, cuLaunchKernel, launch,                                                                                 \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,      \
     unsigned block_z, unsigned shared_bytes, CUstream stream, void** arguments, void** extra))                       \
  X(CUresult, cuStreamCreate, stream_create, (CUstream * stream, unsigned flags))                                     \
  X(CUresult, cuStreamSynchronize, stream_synchronize, (CUstream stream))                                             \
  X(CUresult, cuStreamWaitEvent, stream_wait_event, (CUstream stream, CUevent event, unsigned flags))                 \
  X(CUresult, cuStreamBeginCapture_v2, capture_begin, (CUstream stream, int mode))                                    \
  X(CUresult, cuStreamEndCapture, capture_end, (CUstream stream, CUgraph * graph))                                    \
  X(CUresult, cuGraphInstantiateWithFlags, graph_instantiate,                                                         \
    (CUgraphExec * made, CUgraph graph, unsigned long long flags))                                                    \
  X(CUresult, cuGraphLaunch, graph_launch, (CUgraphExec graph, CUstream stream))                                      \
  X(CUresult, cuGraphExecDestroy, graph_exec_destroy, (CUgraphExec graph))                                            \
  X(CUresult, cuGraphDestroy, graph_destroy, (CUgraph graph))                                                         \
  X(CUresult, cuEventCreate, event_create, (CUevent * event, unsigned flags))                                         \
  X(CUresult, cuEventDestroy_v2, event_destroy, (CUevent event))                                                      \
  X(CUresult, cuEventRecord, event_record, (CUevent event, CUstream stream))                                          \
  X(CUresult, cuEventQuery, event_query, (CUevent event))                                                             \
  X(CUresult, cuEventSynchronize, event_synchronize, (CUevent event))                                                 \
  X(CUresult, cuMemAllocHost_v2, allocate_host, (void** memory, std::size_t size))                                    \
  X(CUresult, cuMemFreeHost, release_host, (void* memory))                                                            \
  X(CUresult, cuMemAllocAsync, allocate, (CUdeviceptr * memory, std::size_t size, CUstream stream))                   \
  X(CUresult, cuMemFreeAsync, release, (CUdeviceptr memory, CUstream stream))                                         \
  X(CUresult, cuMemsetD8Async, clear, (CUdeviceptr memory, unsigned char byte, std::size_t size, CUstream stream))    \
  X(CUresult, cuMemcpyHtoDAsync_v2, to_device, (CUdeviceptr to, const void* from, std::size_t size, CUstream stream)) \
  X(CUresult, cuMemcpyDtoDAsync_v2, on_device, (CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream)) \
  X(CUresult, cuMemcpyDtoHAsync_v2, to_host, (void* to, CUdeviceptr from, std::size_t size, CUstream stream))

struct CudaApi {
#define HAMI_CUDA_MEMBER(result, symbol, name, parameters) result(*name) parameters = nullptr;
  HAMI_CUDA_FUNCTIONS(HAMI_CUDA_MEMBER)
#undef HAMI_CUDA_MEMBER
};

}  // namespace hami_cuda
