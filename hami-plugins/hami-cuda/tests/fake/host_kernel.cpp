// Compiles the kernels for the CPU, so that their arithmetic is tested without a GPU.
#include <algorithm>
#include <cmath>

struct Index {
  unsigned x, y, z;
};
static thread_local Index blockIdx, threadIdx, blockDim{1, 1, 1}, gridDim{1, 1, 1};
#define __global__
#define __device__ static
#define __shared__ static thread_local
#define __syncthreads() static_cast<void>(0)  // blocks that synchronize have one thread
static int atomicAdd(int* number, int by) { return (*number += by) - by; }
#define HAMI_CUDA_PARTS(Part) const hami_cuda_parts<Part>&  // without a copy for each thread

#include "../../kernels/image.cu"
#include "../../kernels/scores.cu"

extern "C" void run_image(const hami_cuda_image* images, unsigned count, const hami_cuda_job* job) {
  hami_cuda_parts<hami_cuda_image> parts{};
  std::copy(images, images + count, parts.part);
  for (unsigned z = 0; z < count; ++z)
    for (unsigned y = 0; y < static_cast<unsigned>(images[z].out_height); ++y)
      for (unsigned x = 0; x < static_cast<unsigned>(images[z].out_width); ++x) {
        blockIdx = {x, y, z};
        hami_image(parts, *job);
      }
}

extern "C" unsigned short half_of(float value) { return to_half(value); }
extern "C" float float_of_half(unsigned short half) { return from_half(half); }
extern "C" unsigned short bfloat16_of(float value) { return to_bfloat16(value); }
