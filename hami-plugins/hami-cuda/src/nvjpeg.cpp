// Loads nvJPEG, and decodes files.
#include "nvjpeg.hpp"

#include <dlfcn.h>
#include <hami/abi.h>

#include <map>
#include <tuple>
#include <utility>

namespace hami_cuda {
namespace {

// By the CPU and the GPU. That by the GPU alone decodes a file otherwise in a batch of another size.
constexpr int kHybridBackend = 1;
constexpr int kHardwareBackend = 3;
constexpr nvjpegStatus kSuccess = 0;
constexpr nvjpegStatus kAllocatorFailure = 5;
constexpr int kThreads = 1;                          // of the CPU, for one batch
constexpr unsigned kInterpolateChroma = 32;          // NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION
constexpr std::pair<int, int> kInterpolates{12, 1};  // the first version that has it
constexpr int kMaxDecoders = 4;  // three keep the hardware of an H100 busy, and eight are slower (decision 0026)

}  // namespace

JpegDecoder::JpegDecoder(const NvjpegApi& api, const Device& device, const std::string& library, unsigned flags)
    : api_(api), device_(device), library_(library) {
  nvjpegStatus status = api.create(kHardwareBackend, nullptr, nullptr, flags, &handle_);
  if (status != kSuccess && status != kAllocatorFailure)  // this GPU has no hardware decoders
    status = api.create(kHybridBackend, nullptr, nullptr, flags, &handle_);
  check_created(status);
  check_created(api.parser_create(handle_, &parser_));
  batch_state_ = new_state();
  single_state_ = new_state();
}

std::unique_ptr<JpegState> JpegDecoder::new_state() const {
  nvjpegState state = nullptr;
  check_created(api_.state_create(handle_, &state));
  return std::make_unique<JpegState>(device_, state);
}

void JpegDecoder::check_created(nvjpegStatus status) const {
  if (status == kSuccess) return;
  const std::string reason = "nvJPEG (" + library_ + ") does not start: status " + std::to_string(status);
  throw CudaError(status == kAllocatorFailure ? HAMI_RESOURCE_EXHAUSTED : HAMI_UNAVAILABLE, reason);
}

bool JpegDecoder::read_header(std::string_view encoded, JpegHeader& header) {
  unsigned width = 0;
  unsigned height = 0;
  const auto* const data = reinterpret_cast<const unsigned char*>(encoded.data());
  if (api_.parse_header(handle_, data, encoded.size(), parser_) != kSuccess) return false;
  if (api_.frame_size(parser_, &width, &height) != kSuccess) return false;
  header.width = static_cast<int>(width);
  header.height = static_cast<int>(height);
  int orientation = 1;
  if (api_.orientation(parser_, &orientation) != kSuccess || orientation < 1 || orientation > 8) orientation = 1;
  header.orientation = orientation;
  int unsupported = 1;
  header.is_batchable = api_.batch_supported(handle_, parser_, &unsupported) == kSuccess && unsupported == 0;
  return true;
}

void JpegDecoder::decode(std::vector<JpegFile>& files, JpegColor color, Stream& stream) {
  std::vector<JpegFile*> together;
  for (JpegFile& file : files)
    if (file.header.is_batchable) together.push_back(&file);
  decode_together(together.data(), together.data() + together.size(), color, stream.raw());
  for (JpegFile& file : files)  // that are not batchable, or broken
    if (!file.is_decoded) decode_alone(file, color, stream.raw());
}

void JpegDecoder::decode_together(JpegFile* const* first, JpegFile* const* last, JpegColor color, CUstream stream) {
  if (first == last) return;
  std::vector<const unsigned char*> data;
  std::vector<std::size_t> sizes;
  std::vector<nvjpegImage> images;
  for (JpegFile* const* file = first; file < last; ++file) {
    data.push_back(reinterpret_cast<const unsigned char*>((*file)->encoded.data()));
    sizes.push_back((*file)->encoded.size());
    images.push_back(image_of(**file, color));
  }
  const int count = static_cast<int>(last - first);
  if (succeeds(*batch_state_, stream, [&](nvjpegState state) {
    const nvjpegStatus status = api_.batch_start(handle_, state, count, kThreads, static_cast<int>(color));
    if (status != kSuccess) return status;
    return api_.decode_batch(handle_, state, data.data(), sizes.data(), images.data(), stream);
  })) {
    for (JpegFile* const* file = first; file < last; ++file) (*file)->is_decoded = true;
    return;
  }
  batch_state_->wait();  // the engines may still write to the planes, before later work of the stream
  if (count == 1) return;
  JpegFile* const* const middle = first + count / 2;  // at least one file is broken: find it in few calls
  decode_together(first, middle, color, stream);
  decode_together(middle, last, color, stream);
}

void JpegDecoder::decode_alone(JpegFile& file, JpegColor color, CUstream stream) {
  nvjpegImage image = image_of(file, color);
  const auto* const data = reinterpret_cast<const unsigned char*>(file.encoded.data());
  file.is_decoded = succeeds(*single_state_, stream, [&](nvjpegState state) {
    return api_.decode_one(handle_, state, data, file.encoded.size(), static_cast<int>(color), &image, stream);
  });
}

nvjpegImage JpegDecoder::image_of(const JpegFile& file, JpegColor color) const {
  nvjpegImage image{};
  const std::size_t width = static_cast<std::size_t>(file.header.width);
  const std::size_t plane = width * static_cast<std::size_t>(file.header.height);
  for (std::size_t i = 0; i < (color == JpegColor::kGray ? 1 : 3); ++i) {
    image.plane[i] = reinterpret_cast<unsigned char*>(file.planes + i * plane);
    image.row_bytes[i] = width;
  }
  return image;
}

// Without memory, once more after the memory that the pool keeps was returned to the device.
template <class Call>
bool JpegDecoder::succeeds(JpegState& state, CUstream stream, const Call& call) const {
  nvjpegStatus status = state.use(stream, call);
  if (status == kAllocatorFailure) {
    device_.trim();
    status = state.use(stream, call);
    if (status == kAllocatorFailure) throw CudaError(HAMI_RESOURCE_EXHAUSTED, "nvJPEG has no memory on the device");
  }
  return status == kSuccess;
}

JpegDecoders::JpegDecoders(const Device& device, const std::string& library, bool interpolates)
    : device_(device), library_(library) {
  // A default, or a parameter of the type library: it is on the allow list.
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!loaded) {
    const char* const text = dlerror();
    throw CudaError(HAMI_UNAVAILABLE, "nvJPEG cannot be loaded: " + std::string(text ? text : library));
  }
#define HAMI_CUDA_NVJPEG_RESOLVE(symbol, name, parameters)                   \
  api_.name = reinterpret_cast<decltype(api_.name)>(dlsym(loaded, #symbol)); \
  if (!api_.name)                                                            \
    throw CudaError(HAMI_UNAVAILABLE, library + " has no function " #symbol "; install nvJPEG of CUDA 11.8 or newer");
  HAMI_CUDA_NVJPEG_FUNCTIONS(HAMI_CUDA_NVJPEG_RESOLVE)
#undef HAMI_CUDA_NVJPEG_RESOLVE
  std::pair<int, int> version;  // major and minor
  api_.property(0, &version.first);
  api_.property(1, &version.second);
  if (interpolates && version >= kInterpolates) flags_ = kInterpolateChroma;
}

JpegDecoders& JpegDecoders::of(const Device& device, const std::string& library, bool interpolates) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<std::tuple<int, std::string, bool>, std::unique_ptr<JpegDecoders>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<JpegDecoders>& found = all[{device.index(), library, interpolates}];
  if (!found) found.reset(new JpegDecoders(device, library, interpolates));
  return *found;
}

void JpegDecoders::add_user() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (decoders_ <= users_ && decoders_ < kMaxDecoders) {
    idle_.push_back(std::make_unique<JpegDecoder>(api_, device_, library_, flags_));
    ++decoders_;
    returned_.notify_one();
  }
  ++users_;
}

void JpegDecoders::remove_user() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --users_;
}

JpegDecoders::Borrowed::Borrowed(JpegDecoders& decoders) : decoders_(decoders) {
  std::unique_lock<std::mutex> lock(decoders.mutex_);
  decoders.returned_.wait(lock, [&] { return !decoders.idle_.empty(); });
  decoder_ = std::move(decoders.idle_.front());  // that which has been idle longest, so that its work is done
  decoders.idle_.pop_front();
}

JpegDecoders::Borrowed::~Borrowed() {
  const std::lock_guard<std::mutex> lock(decoders_.mutex_);
  decoders_.idle_.push_back(std::move(decoder_));
  decoders_.returned_.notify_one();
}

}  // namespace hami_cuda
