// nvJPEG, loaded at run time. The functions are the same from CUDA 11 to 13; the declarations follow
// https://docs.nvidia.com/cuda/nvjpeg/.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sdk.hpp"
#include "stream.hpp"

namespace hami_cuda {

using nvjpegStatus = int;
using nvjpegHandle = struct nvjpegHandle_st*;
using nvjpegState = struct nvjpegJpegState_st*;
using nvjpegStream = struct nvjpegJpegStream_st*;
using nvjpegEncoderState = struct nvjpegEncoderState_st*;
using nvjpegEncoderParams = struct nvjpegEncoderParams_st*;

constexpr nvjpegStatus kSuccess = 0;
constexpr nvjpegStatus kAllocatorFailure = 5;
// By the CPU and the GPU. That by the GPU alone decodes a file otherwise in a batch of another size.
constexpr int kHybridBackend = 1;
constexpr int kHardwareBackend = 3;

struct nvjpegImage {
  unsigned char* plane[4];
  std::size_t row_bytes[4];
};

// X(name in the library, name here, parameters)
#define HAMI_CUDA_NVJPEG_FUNCTIONS(X)                                                                              \
  X(nvjpegCreateEx, create,                                                                                        \
    (int backend, void* device_allocator, void* pinned_allocator, unsigned flags, nvjpegHandle*))                  \
  X(nvjpegDestroy, destroy, (nvjpegHandle))                                                                        \
  X(nvjpegGetProperty, property, (int which, int* value))                                                          \
  X(nvjpegJpegStateCreate, state_create, (nvjpegHandle, nvjpegState*))                                             \
  X(nvjpegJpegStateDestroy, state_destroy, (nvjpegState))                                                          \
  X(nvjpegJpegStreamCreate, parser_create, (nvjpegHandle, nvjpegStream*))                                          \
  X(nvjpegJpegStreamDestroy, parser_destroy, (nvjpegStream))                                                       \
  X(nvjpegJpegStreamParseHeader, parse_header, (nvjpegHandle, const unsigned char*, std::size_t, nvjpegStream))    \
  X(nvjpegJpegStreamGetFrameDimensions, frame_size, (nvjpegStream, unsigned* width, unsigned* height))             \
  X(nvjpegJpegStreamGetExifOrientation, orientation, (nvjpegStream, int*))                                         \
  X(nvjpegDecodeBatchedSupported, batch_supported, (nvjpegHandle, nvjpegStream, int* unsupported))                 \
  X(nvjpegDecodeBatchedInitialize, batch_start, (nvjpegHandle, nvjpegState, int count, int threads, int format))   \
  X(nvjpegDecodeBatched, decode_batch,                                                                             \
    (nvjpegHandle, nvjpegState, const unsigned char* const*, const std::size_t*, nvjpegImage*, CUstream))          \
  X(nvjpegDecode, decode_one,                                                                                      \
    (nvjpegHandle, nvjpegState, const unsigned char*, std::size_t, int format, nvjpegImage*, CUstream))            \
  X(nvjpegEncoderStateCreate, encoder_create, (nvjpegHandle, nvjpegEncoderState*, CUstream))                       \
  X(nvjpegEncoderStateDestroy, encoder_destroy, (nvjpegEncoderState))                                              \
  X(nvjpegEncoderParamsCreate, params_create, (nvjpegHandle, nvjpegEncoderParams*, CUstream))                      \
  X(nvjpegEncoderParamsDestroy, params_destroy, (nvjpegEncoderParams))                                             \
  X(nvjpegEncoderParamsSetQuality, set_quality, (nvjpegEncoderParams, int quality, CUstream))                      \
  X(nvjpegEncoderParamsSetSamplingFactors, set_subsampling, (nvjpegEncoderParams, int subsampling, CUstream))      \
  X(nvjpegEncodeImage, encode_colors,                                                                              \
    (nvjpegHandle, nvjpegEncoderState, nvjpegEncoderParams, const nvjpegImage*, int format, int width, int height, \
     CUstream))                                                                                                    \
  X(nvjpegEncodeYUV, encode_planes,                                                                                \
    (nvjpegHandle, nvjpegEncoderState, nvjpegEncoderParams, const nvjpegImage*, int subsampling, int width,        \
     int height, CUstream))                                                                                        \
  X(nvjpegEncodeRetrieveBitstream, retrieve,                                                                       \
    (nvjpegHandle, nvjpegEncoderState, unsigned char* data, std::size_t* size, CUstream))

struct NvjpegApi {
#define HAMI_CUDA_NVJPEG_MEMBER(symbol, name, parameters) nvjpegStatus(*name) parameters = nullptr;
  HAMI_CUDA_NVJPEG_FUNCTIONS(HAMI_CUDA_NVJPEG_MEMBER)
#undef HAMI_CUDA_NVJPEG_MEMBER
};

// Owns an object of nvJPEG.
template <class T>
using NvjpegOwned = std::unique_ptr<std::remove_pointer_t<T>, nvjpegStatus (*)(T)>;

enum class JpegColor { kGray = 2, kRgb = 3, kBgr = 4 };  // nvjpegOutputFormat_t

// A library that was loaded.
class Nvjpeg {
 public:
  // Throws CudaError if it cannot be loaded. hami::library_at loads each library once.
  explicit Nvjpeg(const std::string& library);

  const NvjpegApi& api() const noexcept { return api_; }
  // Of nvjpegCreateEx, so that subsampled chroma is interpolated, as libjpeg does; 0: the library cannot do so.
  unsigned interpolation() const noexcept;
  // Throws CudaError if a call failed; `problem` is what the library then does.
  void check(nvjpegStatus status, const char* problem = "does not start") const;
  // What `create(&object)` makes.
  template <class T, class Create>
  NvjpegOwned<T> made(nvjpegStatus (*destroy)(T), const Create& create) const {
    T object = nullptr;
    check(create(&object));
    return {object, destroy};
  }

 private:
  const std::string library_;
  NvjpegApi api_;
  std::pair<int, int> version_;  // major and minor
};

// Whether a call of nvJPEG succeeds. Without memory, it is called once more after the memory that the pool keeps was returned to
// the device.
template <class Call>
bool succeeds(const Device& device, const Call& call) {
  nvjpegStatus status = call();
  if (status == kAllocatorFailure) {
    device.trim();
    status = call();
    if (status == kAllocatorFailure) throw CudaError(HAMI_RESOURCE_EXHAUSTED, "nvJPEG has no memory on the device");
  }
  return status == kSuccess;
}

constexpr int kMaxCoders = 4;  // three keep the hardware of an H100 busy, and eight are slower (decision 0026)

// The decoders or encoders of one device, which all instances share. They are kept: creating one takes a fifth of a second.
template <class Coder>
class JpegCoders {
 public:
  // Loads the library on the first call; throws CudaError if it cannot be loaded. `flags` are those of nvjpegCreateEx.
  static JpegCoders& of(const Device& device, const std::string& library, unsigned flags) {
    static std::mutex& mutex = *new std::mutex;
    static auto& all = *new std::map<std::tuple<int, std::string, unsigned>, std::unique_ptr<JpegCoders>>;
    const Nvjpeg& nvjpeg = hami::library_at<Nvjpeg>(library);
    const std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<JpegCoders>& found = all[{device.index(), library, flags}];
    if (!found) found.reset(new JpegCoders(nvjpeg, device, flags));
    return *found;
  }

  // As long as it exists, it counts as an instance: there is a coder for each, up to the number that keeps the hardware busy.
  class User {
   public:
    explicit User(JpegCoders& coders) : coders_(coders) {
      const std::lock_guard<std::mutex> lock(coders_.mutex_);
      if (coders_.coders_ <= coders_.users_ && coders_.coders_ < kMaxCoders) {
        coders_.idle_.push_back(std::make_unique<Coder>(coders_.nvjpeg_, coders_.device_, coders_.flags_));
        ++coders_.coders_;
        coders_.returned_.notify_one();
      }
      ++coders_.users_;
    }
    ~User() {
      const std::lock_guard<std::mutex> lock(coders_.mutex_);
      --coders_.users_;
    }
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    friend class JpegCoders;
    JpegCoders& coders_;
  };

  // An idle coder, for the lifetime of this object; waits for one.
  class Borrowed {
   public:
    explicit Borrowed(const User& user) : coders_(user.coders_) {
      std::unique_lock<std::mutex> lock(coders_.mutex_);
      coders_.returned_.wait(lock, [&] { return !coders_.idle_.empty(); });
      coder_ = std::move(coders_.idle_.front());  // that which has been idle longest, so that its work is done
      coders_.idle_.pop_front();
    }
    ~Borrowed() {
      const std::lock_guard<std::mutex> lock(coders_.mutex_);
      coders_.idle_.push_back(std::move(coder_));
      coders_.returned_.notify_one();
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    Coder* operator->() const noexcept { return coder_.get(); }

   private:
    JpegCoders& coders_;
    std::unique_ptr<Coder> coder_;
  };

 private:
  JpegCoders(const Nvjpeg& nvjpeg, const Device& device, unsigned flags)
      : nvjpeg_(nvjpeg), device_(device), flags_(flags) {}

  const Nvjpeg& nvjpeg_;
  const Device& device_;
  const unsigned flags_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable returned_;
  std::deque<std::unique_ptr<Coder>> idle_;
  int coders_ = 0;
  int users_ = 0;
};

}  // namespace hami_cuda
