/* Arguments of the kernels. NVRTC has no standard headers, so this file includes none. */
#ifndef HAMI_CUDA_IMAGE_H
#define HAMI_CUDA_IMAGE_H

#define HAMI_CUDA_MAX_CHANNELS 16
#define HAMI_CUDA_MAX_AXES 8

enum hami_cuda_type { HAMI_CUDA_U8, HAMI_CUDA_F16, HAMI_CUDA_BF16, HAMI_CUDA_F32 };
enum hami_cuda_sampling {
  HAMI_CUDA_SAME,
  HAMI_CUDA_NEAREST,
  HAMI_CUDA_LINEAR,
  HAMI_CUDA_CUBIC, /* from here on, the result is a weighted sum over a window of pixels */
  HAMI_CUDA_AREA,
  HAMI_CUDA_LINEAR_ANTIALIAS,
  HAMI_CUDA_CUBIC_ANTIALIAS,
  HAMI_CUDA_WARP_NEAREST, /* of the place that `source` of the image gives */
  HAMI_CUDA_WARP_LINEAR
};
enum hami_cuda_color {
  HAMI_CUDA_KEEP,
  HAMI_CUDA_REVERSE,     /* RGB to BGR and back */
  HAMI_CUDA_GRAY,        /* of RGB */
  HAMI_CUDA_GRAY_OF_BGR, /* 0.299 R + 0.587 G + 0.114 B: ITU-R BT.601 */
  HAMI_CUDA_REPEAT       /* one channel to all */
};

/* One image of a batch. Strides are in elements, so planes and interleaved pixels need no conversion. */
struct hami_cuda_image {
  const void* data;
  void* result; /* contiguous planes */
  long long channel_stride;
  long long row_stride;
  long long pixel_stride;
  int width;
  int height;
  int out_width;
  int out_height;
  /* Where the resized image is in the result; around it is `pad` of the job. */
  int left;
  int top;
  int fitted_width;
  int fitted_height;
  float source
      [6]; /* of a warp: the place (s[0] x + s[1] y + s[2], s[3] x + s[4] y + s[5]) of the pixel (x, y) of the result */
};

/* The steps that a launch does for each image: resize, convert colors, normalize. Each value is rounded to `in_type`
 * after a step, as between the backends that do one step each, so that fusion changes no result. */
struct hami_cuda_job {
  int channels; /* of the result */
  int in_type;
  int out_type;
  int sampling;
  int align_corners;
  int rounded; /* 0: the resized value is not rounded */
  int color;
  int normalize;                     /* 1: value * factor + offset per channel of the result */
  float pad[HAMI_CUDA_MAX_CHANNELS]; /* per channel of the image */
  float factor[HAMI_CUDA_MAX_CHANNELS];
  float offset[HAMI_CUDA_MAX_CHANNELS];
};

/* A copy of elements of `size` bytes into contiguous memory. */
struct hami_cuda_copy {
  const unsigned char* from;
  unsigned char* to;
  long long count;
  int size;
  int axes;
  long long shape[HAMI_CUDA_MAX_AXES];
  long long strides[HAMI_CUDA_MAX_AXES]; /* in bytes */
};

/* The parts of a batch that one launch processes. They are an argument of the kernel: a copy to the device would wait for
 * the work before it. A launch takes 4096 bytes of arguments. */
template <class Part>
struct hami_cuda_parts {
  static constexpr unsigned kMax = (4096 - sizeof(hami_cuda_job)) / sizeof(Part);
  Part part[kMax];
};
#ifndef HAMI_CUDA_PARTS
#define HAMI_CUDA_PARTS(Part) hami_cuda_parts<Part> /* as the parameter of a kernel */
#endif

#endif
