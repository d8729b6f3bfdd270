// Kernels for images: each launch handles a whole batch, also when the sizes of its images differ.
// NVRTC compiles this file to PTX when the wheel is built. Tests compile it for the CPU with host_kernel.cpp.
#include "half.h"
#include "image.h"

namespace {

__device__ float load(const void* data, long long index, int type) {
  switch (type) {
    case HAMI_CUDA_U8: return static_cast<float>(static_cast<const unsigned char*>(data)[index]);
    case HAMI_CUDA_F16: return from_half(static_cast<const unsigned short*>(data)[index]);
    case HAMI_CUDA_BF16: return from_bfloat16(static_cast<const unsigned short*>(data)[index]);
    default: return static_cast<const float*>(data)[index];
  }
}

// To the nearest integer; halves to the even one.
__device__ float rounded_to_byte(float value) { return fminf(fmaxf(rintf(value), 0.0f), 255.0f); }

__device__ void store(void* data, long long index, int type, float value) {
  switch (type) {
    case HAMI_CUDA_U8:
      static_cast<unsigned char*>(data)[index] = static_cast<unsigned char>(rounded_to_byte(value));
      return;
    case HAMI_CUDA_F16: static_cast<unsigned short*>(data)[index] = to_half(value); return;
    case HAMI_CUDA_BF16: static_cast<unsigned short*>(data)[index] = to_bfloat16(value); return;
    default: static_cast<float*>(data)[index] = value;
  }
}

// The value after it was stored as `type` and loaded.
__device__ float rounded_to(float value, int type) {
  switch (type) {
    case HAMI_CUDA_U8: return rounded_to_byte(value);
    case HAMI_CUDA_F16: return from_half(to_half(value));
    case HAMI_CUDA_BF16: return from_bfloat16(to_bfloat16(value));
    default: return value;
  }
}

// What a job needs. kPlain: the kernel is compiled for images of bytes that keep their size or sample up to four neighbors, which
// needs half the registers.
template <bool kPlain>
__device__ int in_type(const hami_cuda_job& job) {
  return kPlain ? HAMI_CUDA_U8 : job.in_type;
}

template <bool kPlain>
__device__ bool is_warp(const hami_cuda_job& job) {
  return !kPlain && job.sampling >= HAMI_CUDA_WARP_NEAREST;
}

template <bool kPlain>
__device__ bool is_window(const hami_cuda_job& job) {
  return !kPlain && job.sampling >= HAMI_CUDA_CUBIC;
}

// The position of an output pixel in the input along one axis.
struct Sample {
  int first;
  int second;    // the next neighbour, for nearest and linear
  float weight;  // of the second neighbour
  // Of a window of `count` pixels from `first` on, for the other samplings.
  int count;
  float centre;
  float inverse;  // of the scale, where a filter becomes wider to shrink an image
  float norm;     // by which the weighted sum is multiplied
};

// Cubic convolution with the parameter a: Keys, "Cubic convolution interpolation for digital image processing", 1981.
__device__ float cubic(float a, float distance) {
  if (distance <= 1.0f) return ((a + 2.0f) * distance - (a + 3.0f)) * distance * distance + 1.0f;
  if (distance < 2.0f) return ((distance - 5.0f) * distance + 8.0f) * distance * a - 4.0f * a;
  return 0.0f;
}

// The weight of pixel `first` + `index` of a window, before normalization. The parameters a are those of torch.
__device__ float tap(const Sample& sample, int index, int sampling) {
  const float at = static_cast<float>(sample.first + index);
  if (sampling == HAMI_CUDA_AREA) return 1.0f;
  if (sampling == HAMI_CUDA_CUBIC) return cubic(-0.75f, fabsf(sample.centre - at));
  const float distance = fabsf((at - sample.centre + 0.5f) * sample.inverse);
  return sampling == HAMI_CUDA_CUBIC_ANTIALIAS ? cubic(-0.5f, distance) : fmaxf(1.0f - distance, 0.0f);
}

// As torch.nn.functional.interpolate: bicubic, area, and with antialias=True.
__device__ Sample window_at(int out, int in_size, int out_size, const hami_cuda_job& job) {
  Sample sample = {};
  float scale = static_cast<float>(in_size) / static_cast<float>(out_size);
  if (job.align_corners)
    scale = out_size > 1 ? static_cast<float>(in_size - 1) / static_cast<float>(out_size - 1) : 0.0f;
  if (job.sampling == HAMI_CUDA_AREA) {
    const long long size = in_size;
    sample.first = static_cast<int>(out * size / out_size);
    sample.count = static_cast<int>(((out + 1) * size + out_size - 1) / out_size) - sample.first;
  } else if (job.sampling == HAMI_CUDA_CUBIC) {
    const float position = static_cast<float>(out);
    sample.centre = job.align_corners ? scale * position : scale * (position + 0.5f) - 0.5f;
    sample.first = static_cast<int>(floorf(sample.centre)) - 1;
    sample.count = 4;
  } else {
    const float radius = job.sampling == HAMI_CUDA_CUBIC_ANTIALIAS ? 2.0f : 1.0f;
    const float support = scale > 1.0f ? radius * scale : radius;
    sample.inverse = scale > 1.0f ? 1.0f / scale : 1.0f;
    sample.centre = scale * (static_cast<float>(out) + 0.5f);
    const int begin = static_cast<int>(sample.centre - support + 0.5f);
    const int end = static_cast<int>(sample.centre + support + 0.5f);
    sample.first = begin > 0 ? begin : 0;
    sample.count = (end < in_size ? end : in_size) - sample.first;
  }
  float sum = 0.0f;
  for (int i = 0; i < sample.count; ++i) sum += tap(sample, i, job.sampling);
  sample.norm = 1.0f / sum;
  return sample;
}

__device__ int within(int index, int size) { return index < 0 ? 0 : index < size ? index : size - 1; }

template <bool kPlain>
__device__ float filtered(const hami_cuda_image& image, const hami_cuda_job& job, int channel, const Sample& y,
                          const Sample& x) {
  float sum = 0.0f;
  for (int j = 0; j < y.count; ++j) {
    const long long row = channel * image.channel_stride + within(y.first + j, image.height) * image.row_stride;
    float line = 0.0f;
    for (int i = 0; i < x.count; ++i)
      line += tap(x, i, job.sampling) *
              load(image.data, row + within(x.first + i, image.width) * image.pixel_stride, in_type<kPlain>(job));
    sum += tap(y, j, job.sampling) * line;
  }
  return sum * y.norm * x.norm;
}

// Pixel centres are at halves, as in torch.nn.functional.interpolate; with align_corners, those of the corners
// coincide.
template <bool kPlain>
__device__ Sample sample_at(int out, int in_size, int out_size, const hami_cuda_job& job) {
  if (is_window<kPlain>(job)) return window_at(out, in_size, out_size, job);
  Sample sample = {};
  if (in_size == out_size) {
    sample.first = sample.second = out;
    return sample;
  }
  const float scale = static_cast<float>(in_size) / static_cast<float>(out_size);
  if (job.sampling == HAMI_CUDA_NEAREST) {
    sample.first = static_cast<int>((static_cast<float>(out) + 0.5f) * scale);
    if (sample.first > in_size - 1) sample.first = in_size - 1;
    sample.second = sample.first;
    return sample;
  }
  float position = scale * (static_cast<float>(out) + 0.5f) - 0.5f;
  if (job.align_corners) {
    const float step = out_size > 1 ? static_cast<float>(in_size - 1) / static_cast<float>(out_size - 1) : 0.0f;
    position = step * static_cast<float>(out);
  }
  if (position < 0.0f) position = 0.0f;
  sample.first = static_cast<int>(position);
  if (sample.first > in_size - 1) sample.first = in_size - 1;
  sample.second = sample.first + (sample.first < in_size - 1 ? 1 : 0);
  sample.weight = position - static_cast<float>(sample.first);
  return sample;
}

// Where a pixel of the result comes from.
struct Place {
  bool is_outside;  // of the image: it has the value of the border
  bool is_pixel;    // it is the pixel `across.first`, `down.first`: the image keeps its size
  Sample across;
  Sample down;
  float x;  // of a warp
  float y;
};

template <bool kPlain>
__device__ Place place_of(int x, int y, const hami_cuda_image& image, const hami_cuda_job& job) {
  Place place = {};
  if (is_warp<kPlain>(job)) {
    const float column = static_cast<float>(x);
    const float row = static_cast<float>(y);
    const float* const source = image.source;
    place.x = source[0] * column + source[1] * row + source[2];
    place.y = source[3] * column + source[4] * row + source[5];
    // Also false for a place that is not a number.
    place.is_outside = !(place.x > -1.0f && place.y > -1.0f && place.x < static_cast<float>(image.width) &&
                         place.y < static_cast<float>(image.height));
    return place;
  }
  const int column = x - image.left;
  const int row = y - image.top;
  place.is_outside = column < 0 || row < 0 || column >= image.fitted_width || row >= image.fitted_height;
  if (place.is_outside) return place;
  place.is_pixel =
      job.sampling == HAMI_CUDA_SAME || (image.width == image.fitted_width && image.height == image.fitted_height);
  if (place.is_pixel) {
    place.across.first = column;
    place.down.first = row;
    return place;
  }
  place.across = sample_at<kPlain>(column, image.width, image.fitted_width, job);
  place.down = sample_at<kPlain>(row, image.height, image.fitted_height, job);
  return place;
}

template <bool kPlain>
__device__ float pixel_or_pad(const hami_cuda_image& image, const hami_cuda_job& job, int channel, int x, int y) {
  if (x < 0 || y < 0 || x >= image.width || y >= image.height) return job.pad[channel];
  const long long index = channel * image.channel_stride + y * image.row_stride + x * image.pixel_stride;
  return load(image.data, index, in_type<kPlain>(job));
}

template <bool kPlain>
__device__ float warped(const hami_cuda_image& image, const hami_cuda_job& job, int channel, const Place& place) {
  if (job.sampling == HAMI_CUDA_WARP_NEAREST)
    return pixel_or_pad<kPlain>(image, job, channel, static_cast<int>(floorf(place.x + 0.5f)),
                                static_cast<int>(floorf(place.y + 0.5f)));
  const int x = static_cast<int>(floorf(place.x));
  const int y = static_cast<int>(floorf(place.y));
  const float right = place.x - static_cast<float>(x);
  const float lower = place.y - static_cast<float>(y);
  const float above = (1.0f - right) * pixel_or_pad<kPlain>(image, job, channel, x, y) +
                      right * pixel_or_pad<kPlain>(image, job, channel, x + 1, y);
  const float below = (1.0f - right) * pixel_or_pad<kPlain>(image, job, channel, x, y + 1) +
                      right * pixel_or_pad<kPlain>(image, job, channel, x + 1, y + 1);
  return (1.0f - lower) * above + lower * below;
}

template <bool kPlain>
__device__ float sampled(const hami_cuda_image& image, const hami_cuda_job& job, int channel, const Sample& y,
                         const Sample& x) {
  const long long start = channel * image.channel_stride;
  const long long top = start + y.first * image.row_stride;
  const float corner = load(image.data, top + x.first * image.pixel_stride, in_type<kPlain>(job));
  if (job.sampling != HAMI_CUDA_LINEAR || (x.weight == 0.0f && y.weight == 0.0f)) return corner;
  const long long bottom = start + y.second * image.row_stride;
  const float above = (1.0f - x.weight) * corner +
                      x.weight * load(image.data, top + x.second * image.pixel_stride, in_type<kPlain>(job));
  const float below =
      (1.0f - x.weight) * load(image.data, bottom + x.first * image.pixel_stride, in_type<kPlain>(job)) +
      x.weight * load(image.data, bottom + x.second * image.pixel_stride, in_type<kPlain>(job));
  return (1.0f - y.weight) * above + y.weight * below;
}

template <bool kPlain>
__device__ float resized(const hami_cuda_image& image, const hami_cuda_job& job, int channel, const Place& place) {
  const float value = place.is_outside       ? job.pad[channel]
                      : is_warp<kPlain>(job) ? warped<kPlain>(image, job, channel, place)
                      : place.is_pixel ? pixel_or_pad<kPlain>(image, job, channel, place.across.first, place.down.first)
                      : is_window<kPlain>(job) ? filtered<kPlain>(image, job, channel, place.down, place.across)
                                               : sampled<kPlain>(image, job, channel, place.down, place.across);
  return job.rounded ? rounded_to(value, in_type<kPlain>(job)) : value;
}

// The value of a channel of the result before normalization.
template <bool kPlain>
__device__ float colored(const hami_cuda_image& image, const hami_cuda_job& job, int channel, const Place& place) {
  if (job.color == HAMI_CUDA_GRAY || job.color == HAMI_CUDA_GRAY_OF_BGR) {
    const float first = job.color == HAMI_CUDA_GRAY ? 0.299f : 0.114f;
    const float value = first * resized<kPlain>(image, job, 0, place) + 0.587f * resized<kPlain>(image, job, 1, place) +
                        (0.413f - first) * resized<kPlain>(image, job, 2, place);
    return job.rounded ? rounded_to(value, in_type<kPlain>(job)) : value;
  }
  const int source = job.color == HAMI_CUDA_REVERSE  ? job.channels - 1 - channel
                     : job.color == HAMI_CUDA_REPEAT ? 0
                                                     : channel;
  return resized<kPlain>(image, job, source, place);
}

// Each thread computes all channels of one pixel.
template <bool kPlain>
__device__ void process(const hami_cuda_image& image, const hami_cuda_job& job) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x >= image.out_width || y >= image.out_height) return;
  const Place place = place_of<kPlain>(x, y, image, job);
  const long long pixel = static_cast<long long>(y) * image.out_width + x;
  const long long plane = static_cast<long long>(image.out_width) * image.out_height;
  for (int channel = 0; channel < job.channels; ++channel) {
    float value = colored<kPlain>(image, job, channel, place);
    if (job.normalize) value = value * job.factor[channel] + job.offset[channel];
    store(image.result, channel * plane + pixel, job.out_type, value);
  }
}

}  // namespace

// Processes image blockIdx.z.
extern "C" __global__ void hami_image(HAMI_CUDA_PARTS(hami_cuda_image) images, hami_cuda_job job) {
  const hami_cuda_image image = images.part[blockIdx.z];
  process<false>(image, job);
}

// The same for a plain job.
extern "C" __global__ void hami_plain_image(HAMI_CUDA_PARTS(hami_cuda_image) images, hami_cuda_job job) {
  const hami_cuda_image image = images.part[blockIdx.z];
  process<true>(image, job);
}

// Copies tensors, one for each blockIdx.y, to contiguous memory.
extern "C" __global__ void hami_copy(HAMI_CUDA_PARTS(hami_cuda_copy) copies) {
  const hami_cuda_copy& copy = copies.part[blockIdx.y];
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < copy.count; i += step) {
    const unsigned char* from = copy.from;
    long long rest = i;
    for (int axis = copy.axes - 1; axis >= 0; --axis) {
      from += rest % copy.shape[axis] * copy.strides[axis];
      rest /= copy.shape[axis];
    }
    unsigned char* const to = copy.to + i * copy.size;
    switch (copy.size) {
      case 1: *to = *from; break;
      // copy_of chose a size by which both addresses can be divided; the elements are only copied.
      case 2: *reinterpret_cast<unsigned short*>(to) = *reinterpret_cast<const unsigned short*>(from); break;
      case 4: *reinterpret_cast<unsigned*>(to) = *reinterpret_cast<const unsigned*>(from); break;
      case 8: *reinterpret_cast<unsigned long long*>(to) = *reinterpret_cast<const unsigned long long*>(from); break;
      default:
        for (int byte = 0; byte < copy.size; ++byte) to[byte] = from[byte];
    }
  }
}
