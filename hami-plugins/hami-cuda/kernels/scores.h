/* Arguments of the kernels of scores.cu. NVRTC has no standard headers, so this file includes none. */
#ifndef HAMI_CUDA_SCORES_H
#define HAMI_CUDA_SCORES_H

#include "image.h"

#define HAMI_CUDA_MAX_THREADS 256 /* of a block, a power of two */

enum hami_cuda_number {
  HAMI_CUDA_BOOL,
  HAMI_CUDA_UINT8,
  HAMI_CUDA_INT8,
  HAMI_CUDA_UINT16,
  HAMI_CUDA_INT16,
  HAMI_CUDA_UINT32,
  HAMI_CUDA_INT32,
  HAMI_CUDA_UINT64,
  HAMI_CUDA_INT64,
  HAMI_CUDA_FLOAT16, /* from here on, floating-point numbers */
  HAMI_CUDA_BFLOAT16,
  HAMI_CUDA_FLOAT32,
  HAMI_CUDA_FLOAT64
};

/* A contiguous tensor: `count` lines of `length` elements each, `step` apart. The results have `kept` elements per line. */
struct hami_cuda_lines {
  const void* data;
  void* values;       /* NULL: they are not needed */
  long long* indices; /* NULL for a softmax */
  long long count;
  long long length;
  long long step;
  long long kept;
  int type;
};

/* The boxes of one request, and rows for the kept ones. */
struct hami_cuda_boxes {
  const void* boxes;   /* count x 4: x1, y1, x2, y2 */
  const void* scores;  /* count */
  const void* classes; /* count; NULL: all are of one class */
  int* candidates;     /* memory for `count` numbers */
  void* kept_boxes;
  void* kept_scores;
  void* kept_classes;
  long long* kept_indices;
  int* kept_count;
  int count;
  int box_type;
  int score_type;
  int class_type;
};

struct hami_cuda_nms {
  float iou_threshold;
  float score_threshold;
  int max_boxes;
};

/* Boxes of a letter-boxed image, which become those of the picture: each number is moved, scaled and clipped. */
struct hami_cuda_corners {
  const void* from;
  void* to;
  long long count; /* of numbers: x and y in turn */
  double scale;
  double start[2]; /* left and top */
  double limit[2]; /* width and height of the picture; below 0: not known */
  int from_type;
  int to_type;
};

/* A copy into contiguous memory that converts the elements. */
struct hami_cuda_cast {
  struct hami_cuda_copy copy;
  int from_type;
  int to_type;
};

#endif
