// Kernels for scores, boxes and conversions: each launch handles a whole batch. A block has a power of two of threads, at
// most HAMI_CUDA_MAX_THREADS; tests run them on the CPU with blocks of one thread.
#include "half.h"
#include "scores.h"

namespace {

__device__ bool is_float(int type) { return type >= HAMI_CUDA_FLOAT16; }

__device__ int size_of(int type) {
  switch (type) {
    case HAMI_CUDA_BOOL:
    case HAMI_CUDA_UINT8:
    case HAMI_CUDA_INT8: return 1;
    case HAMI_CUDA_UINT16:
    case HAMI_CUDA_INT16:
    case HAMI_CUDA_FLOAT16:
    case HAMI_CUDA_BFLOAT16: return 2;
    case HAMI_CUDA_UINT32:
    case HAMI_CUDA_INT32:
    case HAMI_CUDA_FLOAT32: return 4;
    default: return 8;
  }
}

__device__ long long integer_at(const void* data, long long index, int type) {
  switch (type) {
    case HAMI_CUDA_INT8: return static_cast<const signed char*>(data)[index];
    case HAMI_CUDA_UINT16: return static_cast<const unsigned short*>(data)[index];
    case HAMI_CUDA_INT16: return static_cast<const short*>(data)[index];
    case HAMI_CUDA_UINT32: return static_cast<const unsigned*>(data)[index];
    case HAMI_CUDA_INT32: return static_cast<const int*>(data)[index];
    case HAMI_CUDA_UINT64:
    case HAMI_CUDA_INT64: return static_cast<const long long*>(data)[index];
    default: return static_cast<const unsigned char*>(data)[index];
  }
}

__device__ double float_at(const void* data, long long index, int type) {
  switch (type) {
    case HAMI_CUDA_FLOAT16: return from_half(static_cast<const unsigned short*>(data)[index]);
    case HAMI_CUDA_BFLOAT16: return from_bfloat16(static_cast<const unsigned short*>(data)[index]);
    case HAMI_CUDA_FLOAT32: return static_cast<const float*>(data)[index];
    case HAMI_CUDA_FLOAT64: return static_cast<const double*>(data)[index];
    default: return static_cast<double>(integer_at(data, index, type));
  }
}

__device__ void store_float(void* data, long long index, int type, double value) {
  switch (type) {
    case HAMI_CUDA_FLOAT16: static_cast<unsigned short*>(data)[index] = to_half(static_cast<float>(value)); return;
    case HAMI_CUDA_BFLOAT16: static_cast<unsigned short*>(data)[index] = to_bfloat16(static_cast<float>(value)); return;
    case HAMI_CUDA_FLOAT32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    default: static_cast<double*>(data)[index] = value;
  }
}

__device__ void store_integer(void* data, long long index, int type, long long value) {
  switch (size_of(type)) {
    case 1: static_cast<unsigned char*>(data)[index] = static_cast<unsigned char>(value); return;
    case 2: static_cast<unsigned short*>(data)[index] = static_cast<unsigned short>(value); return;
    case 4: static_cast<unsigned*>(data)[index] = static_cast<unsigned>(value); return;
    default: static_cast<long long*>(data)[index] = value;
  }
}

__device__ void copy_element(void* to, long long at, const void* from, long long index, int type) {
  const int size = size_of(type);
  const int bits = size == 8   ? HAMI_CUDA_INT64
                   : size == 4 ? HAMI_CUDA_INT32
                   : size == 2 ? HAMI_CUDA_INT16
                               : HAMI_CUDA_INT8;
  store_integer(to, at, bits, integer_at(from, index, bits));
}

union DoubleBits {
  double value;
  unsigned long long bits;
};

// A number whose order is that of the elements: NaN is the largest, and both zeros are equal.
__device__ unsigned long long rank_of(const void* data, long long index, int type) {
  const unsigned long long top = 1ULL << 63;
  if (!is_float(type)) {
    const unsigned long long value = static_cast<unsigned long long>(integer_at(data, index, type));
    return type == HAMI_CUDA_UINT64 ? value : value ^ top;
  }
  DoubleBits number;
  number.value = float_at(data, index, type);
  if (number.value != number.value) return ~0ULL;
  if (number.value == 0.0) return top;
  return number.bits & top ? ~number.bits : number.bits | top;
}

// An element in the order of a selection: larger ranks first, then smaller indices. Index -1: none.
struct Chosen {
  unsigned long long rank;
  long long index;
};

__device__ bool is_before(const Chosen& one, const Chosen& other) {
  if (one.index < 0 || other.index < 0) return one.index >= 0 && other.index < 0;
  return one.rank > other.rank || (one.rank == other.rank && one.index < other.index);
}

__device__ Chosen first(Chosen one, Chosen other) { return is_before(other, one) ? other : one; }
__device__ double larger(double one, double other) { return other > one ? other : one; }
__device__ double sum(double one, double other) { return one + other; }

// What `combine` makes of the values of all threads of the block, for each of them.
template <auto combine, class Value>
__device__ Value of_block(Value own, Value* shared) {
  shared[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  const Value result = shared[0];
  __syncthreads();
  return result;
}

// The power, in the precision of the type.
__device__ double power(double exponent, int type) {
  return type == HAMI_CUDA_FLOAT64 ? exp(exponent) : static_cast<double>(expf(static_cast<float>(exponent)));
}

// Intersection over union.
__device__ float overlap(const hami_cuda_boxes& boxes, long long one, long long other) {
  float a[4];
  float b[4];
  for (int i = 0; i < 4; ++i) {
    a[i] = static_cast<float>(float_at(boxes.boxes, one * 4 + i, boxes.box_type));
    b[i] = static_cast<float>(float_at(boxes.boxes, other * 4 + i, boxes.box_type));
  }
  const float width = fmaxf(fminf(a[2], b[2]) - fmaxf(a[0], b[0]), 0.0f);
  const float height = fmaxf(fminf(a[3], b[3]) - fmaxf(a[1], b[1]), 0.0f);
  const float both = width * height;
  const float whole = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
  return both / whole;
}

__device__ bool has_nan(const hami_cuda_boxes& boxes, long long one) {
  bool found = false;
  for (int i = 0; i < 4; ++i) {
    const double value = float_at(boxes.boxes, one * 4 + i, boxes.box_type);
    found = found || value != value;
  }
  return found;
}

__device__ bool same_class(const hami_cuda_boxes& boxes, long long one, long long other) {
  if (!boxes.classes) return true;
  return float_at(boxes.classes, one, boxes.class_type) == float_at(boxes.classes, other, boxes.class_type);
}

__device__ void keep_box(const hami_cuda_boxes& boxes, int row, long long index) {
  for (int i = 0; i < 4; ++i)
    copy_element(boxes.kept_boxes, static_cast<long long>(row) * 4 + i, boxes.boxes, index * 4 + i, boxes.box_type);
  copy_element(boxes.kept_scores, row, boxes.scores, index, boxes.score_type);
  if (boxes.classes) copy_element(boxes.kept_classes, row, boxes.classes, index, boxes.class_type);
  boxes.kept_indices[row] = index;
}

}  // namespace

// Softmax of the lines of tensor blockIdx.y; each block takes one line after another.
extern "C" __global__ void hami_softmax(HAMI_CUDA_PARTS(hami_cuda_lines) tensors) {
  __shared__ double shared[HAMI_CUDA_MAX_THREADS];
  const hami_cuda_lines lines = tensors.part[blockIdx.y];
  for (long long line = blockIdx.x; line < lines.count; line += gridDim.x) {
    const long long start = line / lines.step * lines.step * lines.length + line % lines.step;
    double largest = float_at(lines.data, start, lines.type);
    for (long long i = threadIdx.x; i < lines.length; i += blockDim.x) {
      const double value = float_at(lines.data, start + i * lines.step, lines.type);
      if (value > largest) largest = value;
    }
    largest = of_block<larger>(largest, shared);
    double total = 0.0;
    for (long long i = threadIdx.x; i < lines.length; i += blockDim.x)
      total += power(float_at(lines.data, start + i * lines.step, lines.type) - largest, lines.type);
    total = of_block<sum>(total, shared);
    for (long long i = threadIdx.x; i < lines.length; i += blockDim.x) {
      const double value = power(float_at(lines.data, start + i * lines.step, lines.type) - largest, lines.type);
      store_float(lines.values, start + i * lines.step, lines.type, value / total);
    }
  }
}

// The first `kept` elements of each line of tensor blockIdx.y, the largest first; of equal ones the earlier first.
extern "C" __global__ void hami_top(HAMI_CUDA_PARTS(hami_cuda_lines) tensors) {
  __shared__ Chosen shared[HAMI_CUDA_MAX_THREADS];
  const hami_cuda_lines lines = tensors.part[blockIdx.y];
  for (long long line = blockIdx.x; line < lines.count; line += gridDim.x) {
    const long long outer = line / lines.step * lines.step;
    const long long start = outer * lines.length + line % lines.step;
    const long long result = outer * lines.kept + line % lines.step;
    Chosen last = {0, -1};
    for (long long taken = 0; taken < lines.kept; ++taken) {
      Chosen own = {0, -1};
      for (long long i = threadIdx.x; i < lines.length; i += blockDim.x) {
        const Chosen next = {rank_of(lines.data, start + i * lines.step, lines.type), i};
        if ((last.index < 0 || is_before(last, next)) && is_before(next, own)) own = next;
      }
      last = of_block<first>(own, shared);
      if (threadIdx.x != 0) continue;
      lines.indices[result + taken * lines.step] = last.index;
      if (lines.values)
        copy_element(lines.values, result + taken * lines.step, lines.data, start + last.index * lines.step,
                     lines.type);
    }
  }
}

// Non-maximum suppression of the boxes of request blockIdx.x.
extern "C" __global__ void hami_suppress(HAMI_CUDA_PARTS(hami_cuda_boxes) requests, hami_cuda_nms job) {
  __shared__ Chosen shared[HAMI_CUDA_MAX_THREADS];
  __shared__ int candidates;
  const hami_cuda_boxes boxes = requests.part[blockIdx.x];
  if (threadIdx.x == 0) candidates = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < boxes.count; i += static_cast<int>(blockDim.x))
    if (float_at(boxes.scores, i, boxes.score_type) > static_cast<double>(job.score_threshold) && !has_nan(boxes, i))
      boxes.candidates[atomicAdd(&candidates, 1)] = i;
  __syncthreads();
  const int count = candidates;
  int kept = 0;
  for (; kept < job.max_boxes; ++kept) {
    Chosen own = {0, -1};
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      if (boxes.candidates[i] < 0) continue;
      const Chosen next = {rank_of(boxes.scores, boxes.candidates[i], boxes.score_type), boxes.candidates[i]};
      if (is_before(next, own)) own = next;
    }
    const Chosen best = of_block<first>(own, shared);
    if (best.index < 0) break;
    if (threadIdx.x == 0) keep_box(boxes, kept, best.index);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      const int other = boxes.candidates[i];
      if (other < 0) continue;
      if (other == best.index ||
          (same_class(boxes, best.index, other) && overlap(boxes, best.index, other) > job.iou_threshold))
        boxes.candidates[i] = -1;
    }
  }
  if (threadIdx.x == 0) *boxes.kept_count = kept;
}

// Restores the boxes of request blockIdx.y.
extern "C" __global__ void hami_restore(HAMI_CUDA_PARTS(hami_cuda_corners) requests) {
  const hami_cuda_corners& corners = requests.part[blockIdx.y];
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < corners.count; i += step) {
    const int axis = static_cast<int>(i % 2);
    const double limit = corners.limit[axis];
    double value = (float_at(corners.from, i, corners.from_type) - corners.start[axis]) / corners.scale;
    if (limit >= 0) value = value < 0 ? 0 : value > limit ? limit : value;  // NaN stays
    store_float(corners.to, i, corners.to_type, value);
  }
}

// Copies tensors, one for each blockIdx.y, to contiguous memory of another type.
extern "C" __global__ void hami_cast(HAMI_CUDA_PARTS(hami_cuda_cast) casts) {
  const hami_cuda_cast& cast = casts.part[blockIdx.y];
  const hami_cuda_copy& copy = cast.copy;
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < copy.count; i += step) {
    const unsigned char* from = copy.from;
    long long rest = i;
    for (int axis = copy.axes - 1; axis >= 0; --axis) {
      from += rest % copy.shape[axis] * copy.strides[axis];
      rest /= copy.shape[axis];
    }
    if (is_float(cast.to_type))
      store_float(copy.to, i, cast.to_type, float_at(from, 0, cast.from_type));
    else
      store_integer(copy.to, i, cast.to_type, integer_at(from, 0, cast.from_type));
  }
}
