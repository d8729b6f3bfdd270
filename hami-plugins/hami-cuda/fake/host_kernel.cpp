// Compiles the kernels for the CPU, so that their arithmetic is tested without a GPU.
#include <cmath>

struct Index {
  unsigned x, y, z;
};
static thread_local Index blockIdx, threadIdx, blockDim{1, 1, 1};
#define __global__
#define __device__ static

#include "../kernels/image.cu"

namespace {
template <class Kernel>
void launch(Kernel kernel, const hami_cuda_image* images, unsigned count, const hami_cuda_resize& job) {
  for (unsigned z = 0; z < count; ++z)
    for (unsigned y = 0; y < static_cast<unsigned>(job.height); ++y)
      for (unsigned x = 0; x < static_cast<unsigned>(job.width); ++x) {
        blockIdx = {x, y, z};
        kernel(images, job);
      }
}
}  // namespace

extern "C" void resize_bytes(const hami_cuda_image* images, unsigned count, const hami_cuda_resize* job) {
  launch(hami_resize_bytes, images, count, *job);
}
extern "C" void resize_normalize(const hami_cuda_image* images, unsigned count, const hami_cuda_resize* job) {
  launch(hami_resize_normalize, images, count, *job);
}
