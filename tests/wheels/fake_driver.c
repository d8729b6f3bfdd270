/* A CUDA driver without a GPU, for the plugin of `hami new-plugin --cuda`: "device" memory is memory of the host, and the kernel
 * add_step runs on the CPU. */
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGet(int* device, int index) { return *device = index, index ? 101 : 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = &cuInit, device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
int cuCtxSetCurrent(void* context) { return context ? 0 : 201; }
int cuModuleLoadData(void** module, const char* ptx) { return *module = &cuInit, strstr(ptx, "add_step") ? 0 : 218; }
int cuModuleUnload(void* module) { return module ? 0 : 201; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  return *function = module, strcmp(name, "add_step") ? 500 : 0;
}
int cuMemAlloc_v2(address* memory, size_t bytes) { return *memory = (address)malloc(bytes), *memory ? 0 : 2; }
int cuMemFree_v2(address memory) { return free((void*)memory), 0; }
int cuMemcpyHtoD_v2(address to, const void* from, size_t bytes) { return memcpy((void*)to, from, bytes), 0; }
int cuMemcpyDtoH_v2(void* to, address from, size_t bytes) { return memcpy(to, (void*)from, bytes), 0; }
int cuGetErrorString(int error, const char** text) {
  return *text = error == 101 ? "invalid device ordinal" : "unknown", 0;
}
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** arguments,
                   void** extra) {
  float* const data = *(float**)arguments[0];
  const long long count = *(long long*)arguments[1];
  const long long threads = (long long)grid_x * grid_y * grid_z * block_x * block_y * block_z;
  if (!function || shared_bytes || stream || extra || threads < count) return 1;
  for (long long i = 0; i < count; ++i) data[i] += *(float*)arguments[2];
  return 0;
}
