// Kernels for images: each launch handles a whole batch, also when the sizes of its images differ.
// NVRTC compiles this file to PTX when the wheel is built. Tests compile it for the CPU with host_kernel.hpp.
#include "image.h"

namespace {

// The position of an output pixel in the input: two neighbours and the weight of the second.
struct Sample {
  int first;
  int second;
  float weight;
};

// Pixel centres are at halves, as in torch.nn.functional.interpolate with align_corners=False.
__device__ Sample sample_at(int out, int in_size, int out_size) {
  const float scale = static_cast<float>(in_size) / static_cast<float>(out_size);
  float position = scale * (static_cast<float>(out) + 0.5f) - 0.5f;
  if (position < 0.0f) position = 0.0f;
  Sample sample;
  sample.first = static_cast<int>(position);
  if (sample.first > in_size - 1) sample.first = in_size - 1;
  sample.second = sample.first + (sample.first < in_size - 1 ? 1 : 0);
  sample.weight = position - static_cast<float>(sample.first);
  return sample;
}

__device__ float pixel(const hami_cuda_image& image, int channel, int y, int x) {
  return static_cast<float>(image.data[channel * image.channel_stride + y * image.row_stride + x * image.pixel_stride]);
}

__device__ float interpolate(const hami_cuda_image& image, int channel, const Sample& y, const Sample& x) {
  const float top =
      (1.0f - x.weight) * pixel(image, channel, y.first, x.first) + x.weight * pixel(image, channel, y.first, x.second);
  const float bottom = (1.0f - x.weight) * pixel(image, channel, y.second, x.first) +
                       x.weight * pixel(image, channel, y.second, x.second);
  return (1.0f - y.weight) * top + y.weight * bottom;
}

// To the nearest integer; halves to the even one.
__device__ float rounded(float value) { return fminf(fmaxf(rintf(value), 0.0f), 255.0f); }

__device__ bool output_pixel(const hami_cuda_resize& job, int& x, int& y) {
  x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  return x < job.width && y < job.height;
}

}  // namespace

// Resizes image blockIdx.z to planes of bytes. `swap` exchanges red and blue.
extern "C" __global__ void hami_resize_bytes(const hami_cuda_image* images, hami_cuda_resize job) {
  int x = 0;
  int y = 0;
  if (!output_pixel(job, x, y)) return;
  const hami_cuda_image image = images[blockIdx.z];
  const Sample across = sample_at(x, image.width, job.width);
  const Sample down = sample_at(y, image.height, job.height);
  unsigned char* const out = static_cast<unsigned char*>(image.result) + static_cast<long long>(y) * job.width + x;
  const long long plane = static_cast<long long>(job.width) * job.height;
  for (int channel = 0; channel < job.channels; ++channel) {
    const int source = job.swap ? job.channels - 1 - channel : channel;
    out[channel * plane] = static_cast<unsigned char>(rounded(interpolate(image, source, down, across)));
  }
}

// The same, followed by value * factor + offset per output channel, to planes of floats. With `round_first`, the value is
// rounded as it is between ResizeTensor and NormalizeTensor, so that fusion does not change results.
extern "C" __global__ void hami_resize_normalize(const hami_cuda_image* images, hami_cuda_resize job) {
  int x = 0;
  int y = 0;
  if (!output_pixel(job, x, y)) return;
  const hami_cuda_image image = images[blockIdx.z];
  const Sample across = sample_at(x, image.width, job.width);
  const Sample down = sample_at(y, image.height, job.height);
  float* const out = static_cast<float*>(image.result) + static_cast<long long>(y) * job.width + x;
  const long long plane = static_cast<long long>(job.width) * job.height;
  for (int channel = 0; channel < job.channels; ++channel) {
    const int source = job.swap ? job.channels - 1 - channel : channel;
    const float value = interpolate(image, source, down, across);
    out[channel * plane] = (job.round_first ? rounded(value) : value) * job.factor[channel] + job.offset[channel];
  }
}
