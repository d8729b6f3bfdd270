// The part of ONNX Runtime's C API that the plugin uses: opaque types, numbers, and a table of functions that is filled when
// the library is loaded.
//
// The interface of the library is an array of function pointers that only grows, so an index names a function in every
// version. tests/test_ort_api.py calls each entry of this list by its index.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {
struct OrtAllocator;
struct OrtEnv;
struct OrtEpAssignedNode;
struct OrtEpAssignedSubgraph;
struct OrtEpDevice;
struct OrtHardwareDevice;
struct OrtMemoryInfo;
struct OrtRunOptions;
struct OrtSession;
struct OrtSessionOptions;
struct OrtStatus;  // null is success
struct OrtTensorTypeAndShapeInfo;
struct OrtTypeInfo;
struct OrtValue;
}

// F(index, result type, name, (argument types)) for each function.
#define HAMI_ONNX_FUNCTIONS(F)                                                                                      \
  F(2, const char*, GetErrorMessage, (const OrtStatus*))                                                            \
  F(3, OrtStatus*, CreateEnv, (int severity, const char* name, OrtEnv**))                                           \
  F(6, OrtStatus*, DisableTelemetryEvents, (const OrtEnv*))                                                         \
  F(7, OrtStatus*, CreateSession, (const OrtEnv*, const char* path, const OrtSessionOptions*, OrtSession**))        \
  F(8, OrtStatus*, CreateSessionFromArray,                                                                          \
    (const OrtEnv*, const void* model, size_t bytes, const OrtSessionOptions*, OrtSession**))                       \
  F(9, OrtStatus*, Run,                                                                                             \
    (OrtSession*, const OrtRunOptions*, const char* const* input_names, const OrtValue* const* inputs, size_t n_in, \
     const char* const* output_names, size_t n_out, OrtValue** outputs))                                            \
  F(10, OrtStatus*, CreateSessionOptions, (OrtSessionOptions**))                                                    \
  F(14, OrtStatus*, EnableProfiling, (OrtSessionOptions*, const char* path))                                        \
  F(17, OrtStatus*, DisableMemPattern, (OrtSessionOptions*))                                                        \
  F(19, OrtStatus*, DisableCpuMemArena, (OrtSessionOptions*))                                                       \
  F(22, OrtStatus*, SetSessionLogSeverityLevel, (OrtSessionOptions*, int))                                          \
  F(24, OrtStatus*, SetIntraOpNumThreads, (OrtSessionOptions*, int))                                                \
  F(30, OrtStatus*, SessionGetInputCount, (const OrtSession*, size_t*))                                             \
  F(31, OrtStatus*, SessionGetOutputCount, (const OrtSession*, size_t*))                                            \
  F(32, OrtStatus*, SessionGetOverridableInitializerCount, (const OrtSession*, size_t*))                            \
  F(33, OrtStatus*, SessionGetInputTypeInfo, (const OrtSession*, size_t, OrtTypeInfo**))                            \
  F(34, OrtStatus*, SessionGetOutputTypeInfo, (const OrtSession*, size_t, OrtTypeInfo**))                           \
  F(35, OrtStatus*, SessionGetOverridableInitializerTypeInfo, (const OrtSession*, size_t, OrtTypeInfo**))           \
  F(36, OrtStatus*, SessionGetInputName, (const OrtSession*, size_t, OrtAllocator*, char**))                        \
  F(37, OrtStatus*, SessionGetOutputName, (const OrtSession*, size_t, OrtAllocator*, char**))                       \
  F(38, OrtStatus*, SessionGetOverridableInitializerName, (const OrtSession*, size_t, OrtAllocator*, char**))       \
  F(39, OrtStatus*, CreateRunOptions, (OrtRunOptions**))                                                            \
  F(41, OrtStatus*, RunOptionsSetRunLogSeverityLevel, (OrtRunOptions*, int))                                        \
  F(46, OrtStatus*, RunOptionsSetTerminate, (OrtRunOptions*))                                                       \
  F(47, OrtStatus*, RunOptionsUnsetTerminate, (OrtRunOptions*))                                                     \
  F(49, OrtStatus*, CreateTensorWithDataAsOrtValue,                                                                 \
    (const OrtMemoryInfo*, void* data, size_t bytes, const int64_t* shape, size_t axes, int type, OrtValue**))      \
  F(51, OrtStatus*, GetTensorMutableData, (OrtValue*, void**))                                                      \
  F(55, OrtStatus*, CastTypeInfoToTensorInfo, (const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**))              \
  F(56, OrtStatus*, GetOnnxTypeFromTypeInfo, (const OrtTypeInfo*, int*))                                            \
  F(60, OrtStatus*, GetTensorElementType, (const OrtTensorTypeAndShapeInfo*, int*))                                 \
  F(61, OrtStatus*, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo*, size_t*))                                \
  F(62, OrtStatus*, GetDimensions, (const OrtTensorTypeAndShapeInfo*, int64_t*, size_t))                            \
  F(63, OrtStatus*, GetSymbolicDimensions, (const OrtTensorTypeAndShapeInfo*, const char**, size_t))                \
  F(65, OrtStatus*, GetTensorTypeAndShape, (const OrtValue*, OrtTensorTypeAndShapeInfo**))                          \
  F(69, OrtStatus*, CreateCpuMemoryInfo, (int allocator, int memory, OrtMemoryInfo**))                              \
  F(76, OrtStatus*, AllocatorFree, (OrtAllocator*, void*))                                                          \
  F(78, OrtStatus*, GetAllocatorWithDefaultOptions, (OrtAllocator**))                                               \
  F(93, void, ReleaseStatus, (OrtStatus*))                                                                          \
  F(95, void, ReleaseSession, (OrtSession*))                                                                        \
  F(96, void, ReleaseValue, (OrtValue*))                                                                            \
  F(97, void, ReleaseRunOptions, (OrtRunOptions*))                                                                  \
  F(98, void, ReleaseTypeInfo, (OrtTypeInfo*))                                                                      \
  F(99, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo*))                                          \
  F(100, void, ReleaseSessionOptions, (OrtSessionOptions*))                                                         \
  F(110, OrtStatus*, SessionEndProfiling, (OrtSession*, OrtAllocator*, char** path))                                \
  F(130, OrtStatus*, AddSessionConfigEntry, (OrtSessionOptions*, const char*, const char*))                         \
  F(146, OrtStatus*, SessionGetProfilingStartTimeNs, (const OrtSession*, uint64_t*))                                \
  F(165, OrtStatus*, AddRunConfigEntry, (OrtRunOptions*, const char*, const char*))                                 \
  F(228, OrtStatus*, RegisterCustomOpsLibrary_V2, (OrtSessionOptions*, const char* path))

// The functions for execution providers that are libraries of their own.
#define HAMI_ONNX_PROVIDER_FUNCTIONS(F)                                                                         \
  F(301, OrtStatus*, RegisterExecutionProviderLibrary, (OrtEnv*, const char* name, const char* path))           \
  F(303, OrtStatus*, GetEpDevices, (const OrtEnv*, const OrtEpDevice* const**, size_t*))                        \
  F(304, OrtStatus*, SessionOptionsAppendExecutionProvider_V2,                                                  \
    (OrtSessionOptions*, OrtEnv*, const OrtEpDevice* const* devices, size_t n_devices, const char* const* keys, \
     const char* const* values, size_t n_options))                                                              \
  F(307, int, HardwareDevice_Type, (const OrtHardwareDevice*))                                                  \
  F(309, const char*, HardwareDevice_Vendor, (const OrtHardwareDevice*))                                        \
  F(312, const char*, EpDevice_EpName, (const OrtEpDevice*))                                                    \
  F(313, const char*, EpDevice_EpVendor, (const OrtEpDevice*))                                                  \
  F(316, const OrtHardwareDevice*, EpDevice_Device, (const OrtEpDevice*))

// The functions that say which provider runs which nodes.
#define HAMI_ONNX_ASSIGNMENT_FUNCTIONS(F)                                                        \
  F(407, OrtStatus*, Session_GetEpGraphAssignmentInfo,                                           \
    (const OrtSession*, const OrtEpAssignedSubgraph* const**, size_t*))                          \
  F(408, OrtStatus*, EpAssignedSubgraph_GetEpName, (const OrtEpAssignedSubgraph*, const char**)) \
  F(409, OrtStatus*, EpAssignedSubgraph_GetNodes,                                                \
    (const OrtEpAssignedSubgraph*, const OrtEpAssignedNode* const**, size_t*))                   \
  F(412, OrtStatus*, EpAssignedNode_GetOperatorType, (const OrtEpAssignedNode*, const char**))

namespace hami_onnx {

inline constexpr std::uint32_t kApiVersion = 20;  // of onnxruntime 1.20; asking for a newer one prints to stderr

inline constexpr std::uint32_t kProviderApiVersion = 23;    // of onnxruntime 1.23; 1.22 finds no devices on Linux
inline constexpr std::uint32_t kAssignmentApiVersion = 24;  // of onnxruntime 1.24

inline constexpr int kOnlyFatal = 4;        // severity: a run's error reaches its request
inline constexpr int kErrors = 3;           // severity: users cannot act on warnings about a graph
inline constexpr int kTensorType = 1;       // of a value
inline constexpr int kDeviceAllocator = 0;  // memory that an arena does not manage, such as that of a caller
inline constexpr int kDefaultMemory = 0;

struct Api {
#define HAMI_ONNX_FIELD(index, result, name, arguments) result(*name) arguments = nullptr;
  HAMI_ONNX_FUNCTIONS(HAMI_ONNX_FIELD)
  HAMI_ONNX_PROVIDER_FUNCTIONS(HAMI_ONNX_FIELD)    // null before version 1.23
  HAMI_ONNX_ASSIGNMENT_FUNCTIONS(HAMI_ONNX_FIELD)  // null before version 1.24
#undef HAMI_ONNX_FIELD
};

}  // namespace hami_onnx
