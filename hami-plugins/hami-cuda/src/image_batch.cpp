// Reads images, groups those with the same job, and launches one kernel for each group.
#include "image_batch.hpp"

#include <cstring>

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

}  // namespace

ImagePlan unchanged(const Images& images) {
  ImagePlan plan;
  plan.job.channels = images.channels;
  plan.job.in_type = plan.job.out_type = images.type;
  plan.job.rounded = 1;
  plan.width = images.width;
  plan.height = images.height;
  return plan;
}

Images ImageBackend::read(const hami::Dict& item, const hami::Value& data) {
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

void ImageBackend::run(hami::Batch batch) {
  std::vector<Work> works;
  Layout layout;
  for_each(batch, [&](const hami::Dict& item) {
    const hami::Value data = data_of(item, name());
    Images images = read(item, data);
    const std::optional<ImagePlan> planned = plan(item, images);
    if (!planned) {
      item["result"] = data;
      finish(item);
      return;
    }
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
    for (std::size_t i = first; i < works.size(); ++i) {
      if (launched[i] || std::memcmp(&works[i].plan.job, &works[first].plan.job, sizeof(hami_cuda_job)) != 0) continue;
      describe(works[i], memory->start(), described);
      launched[i] = true;
    }
    device().kernels().image(stream(), described, works[first].plan.job);
  }
  for (const Work& work : works) {
    work.item["result"] = result_of(work, memory);
    finish(work.item);
  }
}

}  // namespace hami_cuda
