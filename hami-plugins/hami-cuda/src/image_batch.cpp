// Reads images, groups those with the same job, and launches one kernel for each group.
#include "image_batch.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace hami_cuda {
namespace {

struct Type {
  hami_cuda_type type;
  DLDataType dtype;
};
constexpr Type kTypes[] = {{HAMI_CUDA_U8, {kDLUInt, 8, 1}},
                           {HAMI_CUDA_F16, {kDLFloat, 16, 1}},
                           {HAMI_CUDA_BF16, {kDLBfloat, 16, 1}},
                           {HAMI_CUDA_F32, {kDLFloat, 32, 1}}};

DLDataType dtype_of(int type) { return kTypes[type].dtype; }

struct Work {
  hami::Dict item;
  Images images;
  ImagePlan plan;
  std::size_t offset = 0;
};

std::size_t image_bytes(const ImagePlan& plan) {
  return static_cast<std::size_t>(plan.width) * static_cast<std::size_t>(plan.height) *
         static_cast<std::size_t>(plan.job.channels) * item_size(dtype_of(plan.job.out_type));
}

void describe(const Work& work, CUdeviceptr start, std::vector<hami_cuda_image>& described) {
  const Images& images = work.images;
  const std::size_t in_item = item_size(images.tensor.dtype());
  for (std::int64_t i = 0; i < images.count; ++i) {
    hami_cuda_image image{};
    image.data = static_cast<const char*>(images.tensor.view().data) +
                 i * images.image_stride * static_cast<std::int64_t>(in_item);
    image.result = reinterpret_cast<void*>(start + work.offset + static_cast<std::size_t>(i) * image_bytes(work.plan));
    image.channel_stride = images.channel_stride;
    image.row_stride = images.row_stride;
    image.pixel_stride = images.pixel_stride;
    image.width = images.width;
    image.height = images.height;
    image.out_width = work.plan.width;
    image.out_height = work.plan.height;
    image.left = work.plan.left;
    image.top = work.plan.top;
    image.fitted_width = work.plan.fitted_width > 0 ? work.plan.fitted_width : work.plan.width;
    image.fitted_height = work.plan.fitted_height > 0 ? work.plan.fitted_height : work.plan.height;
    std::copy(work.plan.source.begin(), work.plan.source.end(), image.source);
    described.push_back(image);
  }
}

hami::Tensor result_of(const Work& work, const std::shared_ptr<Memory>& memory) {
  const std::int64_t channels = work.plan.job.channels;
  const std::int64_t height = work.plan.height;
  const std::int64_t width = work.plan.width;
  const DLDataType type = dtype_of(work.plan.job.out_type);
  if (work.images.is_hwc)
    return device_tensor(memory, work.offset, type, {height, width, channels}, {width, 1, height * width});
  if (work.images.tensor.rank() == 3) return device_tensor(memory, work.offset, type, {channels, height, width});
  return device_tensor(memory, work.offset, type, {work.images.count, channels, height, width});
}

// Adds a step to a job. The kernel resizes, then converts colors, then normalizes; a backend absorbs only
// those whose step is later in this order.
void add_step(hami_cuda_job& job, const hami_cuda_job& step) {
  job.channels = step.channels;
  job.out_type = step.out_type;
  if (step.color != HAMI_CUDA_KEEP) job.color = step.color;
  if (!step.normalize) return;
  job.normalize = 1;
  std::copy(std::begin(step.factor), std::end(step.factor), job.factor);
  std::copy(std::begin(step.offset), std::end(step.offset), job.offset);
}

// Adds an image with this job to a launch; false: its job is another one. How pixels are sampled does not matter for
// images that keep their size.
bool join(hami_cuda_job& launch, hami_cuda_job own) {
  hami_cuda_job joined = launch;
  hami_cuda_job& same = own.sampling == HAMI_CUDA_SAME ? own : joined;
  const hami_cuda_job& other = own.sampling == HAMI_CUDA_SAME ? joined : own;
  if (same.sampling == HAMI_CUDA_SAME) {
    same.sampling = other.sampling;
    same.align_corners = other.align_corners;
  }
  if (std::memcmp(&own, &joined, sizeof own) != 0) return false;
  launch = joined;
  return true;
}

}  // namespace

Shape Images::shape() const {
  if (is_hwc) return {height, width, channels};
  if (tensor.rank() == 3) return {channels, height, width};
  return {count, channels, height, width};
}

ImagePlan unchanged(const Images& images) {
  ImagePlan plan;
  plan.job.channels = images.channels;
  plan.job.in_type = plan.job.out_type = images.type;
  plan.job.rounded = 1;
  plan.width = images.width;
  plan.height = images.height;
  return plan;
}

hami_cuda_sampling sampling_of(const std::string& interpolation, bool antialias, const std::string& owner) {
  if (antialias && interpolation != "linear" && interpolation != "cubic")
    throw hami::Error(HAMI_FAILED_PRECONDITION,
                      owner + ": \"antialias\" needs interpolation linear or cubic, got " + interpolation);
  if (interpolation == "nearest") return HAMI_CUDA_NEAREST;
  if (interpolation == "area") return HAMI_CUDA_AREA;
  if (interpolation == "cubic") return antialias ? HAMI_CUDA_CUBIC_ANTIALIAS : HAMI_CUDA_CUBIC;
  return antialias ? HAMI_CUDA_LINEAR_ANTIALIAS : HAMI_CUDA_LINEAR;
}

std::string color_of(const hami::Dict& item, const std::string& otherwise, const std::string& owner) {
  const std::optional<hami::Value> key = item.find("color");
  if (!key) return otherwise;
  const std::string format(key->kind() == HAMI_STR ? key->as_text() : "");
  if (format != "rgb" && format != "bgr" && format != "gray")
    throw hami::Error(HAMI_REQUEST, owner + ": the key \"color\" must be rgb, bgr or gray, got " +
                                        (format.empty() ? "another value" : "\"" + format + "\""));
  return format == "gray" ? otherwise : format;
}

Images ImageReader::read(const hami::Dict& item, const hami::Value& data) {
  Images images{tensor(data)};
  const DLTensor& view = images.tensor.view();
  const Type* found = nullptr;
  for (const Type& type : kTypes)
    if (same_type(type.dtype, view.dtype)) found = &type;
  if (!found || view.ndim < 3 || view.ndim > 4)
    throw hami::Error(HAMI_DATA_TYPE,
                      name() +
                          " takes images (a tensor C x H x W or N x C x H x W of uint8, float16, bfloat16 or "
                          "float32), got " +
                          show(images.tensor));
  if (images.tensor.count() == 0)
    throw hami::Error(HAMI_REQUEST, name() + ": the image is empty, its shape is " + show(images.tensor.shape()));
  for (int axis = 0; axis < view.ndim; ++axis)
    if (view.shape[axis] > (1 << 30))
      throw hami::Error(HAMI_REQUEST, name() + ": the image is too large, its shape is " + show(images.tensor.shape()));
  images.type = found->type;
  const std::optional<hami::Value> format = view.ndim == 3 ? item.find("data_format") : std::nullopt;
  images.is_hwc = format && format->kind() == HAMI_STR && format->as_text() == "hwc";
  const int axis = view.ndim - 3;  // of the channels
  const int channel = images.is_hwc ? axis + 2 : axis;
  const int row = images.is_hwc ? axis : axis + 1;
  const int pixel = images.is_hwc ? axis + 1 : axis + 2;
  images.channels = static_cast<int>(view.shape[channel]);
  images.height = static_cast<int>(view.shape[row]);
  images.width = static_cast<int>(view.shape[pixel]);
  images.channel_stride = view.strides[channel];
  images.row_stride = view.strides[row];
  images.pixel_stride = view.strides[pixel];
  if (view.ndim == 4) {
    images.count = view.shape[0];
    images.image_stride = view.strides[0];
  }
  return images;
}

// All steps as one job; nullopt: no step changes the images.
std::optional<ImagePlan> ImageBackend::plan_steps(const hami::Dict& item, Images images) const {
  std::optional<ImagePlan> whole;
  for (const ImageBackend* step : steps_) {
    const std::optional<ImagePlan> planned = step->plan(item, images);
    if (!planned) continue;
    if (whole)
      add_step(whole->job, planned->job);
    else
      whole = planned;
    images.channels = planned->job.channels;
    images.type = static_cast<hami_cuda_type>(planned->job.out_type);
    images.width = planned->width;
    images.height = planned->height;
  }
  return whole;
}

void ImageBackend::give(const hami::Dict& item, const Images& images, const hami::Value& result) const {
  item["result"] = result;
  for (const ImageBackend* step : steps_) step->finish(item, images);
}

void ImageBackend::run(hami::Batch batch) {
  std::vector<Work> works;
  Layout layout;
  for_each(batch, [&](const hami::Dict& item) {
    const hami::Value data = data_of(item, name());
    Images images = read(item, data);
    const std::optional<ImagePlan> planned = plan_steps(item, images);
    if (!planned) return give(item, images, data);
    Work work{item, std::move(images), *planned};
    work.offset = layout.add(image_bytes(work.plan) * static_cast<std::size_t>(work.images.count));
    works.push_back(std::move(work));
  });
  if (works.empty()) return;
  const std::shared_ptr<Memory> memory = allocate(layout.size());
  std::vector<bool> launched(works.size());
  for (std::size_t first = 0; first < works.size(); ++first) {
    if (launched[first]) continue;
    std::vector<hami_cuda_image> described;
    hami_cuda_job job = works[first].plan.job;
    for (std::size_t i = first; i < works.size(); ++i) {
      if (launched[i] || !join(job, works[i].plan.job)) continue;
      describe(works[i], memory->start(), described);
      launched[i] = true;
    }
    device().kernels().image(*stream(), described, job);
  }
  for (const Work& work : works) give(work.item, work.images, result_of(work, memory));
}

}  // namespace hami_cuda
