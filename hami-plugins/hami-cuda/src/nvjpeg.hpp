// nvJPEG, loaded at run time: decoders that decode a batch of JPEG files in one call, by the hardware of the GPU if it
// has it. The functions are the same from CUDA 11 to 13; the declarations follow https://docs.nvidia.com/cuda/nvjpeg/.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "stream.hpp"

namespace hami_cuda {

using nvjpegStatus = int;
using nvjpegHandle = struct nvjpegHandle_st*;
using nvjpegState = struct nvjpegJpegState_st*;
using nvjpegStream = struct nvjpegJpegStream_st*;

struct nvjpegImage {
  unsigned char* plane[4];
  std::size_t row_bytes[4];
};

// X(name in the library, name here, parameters)
#define HAMI_CUDA_NVJPEG_FUNCTIONS(X)                                                                            \
  X(nvjpegCreateEx, create,                                                                                      \
    (int backend, void* device_allocator, void* pinned_allocator, unsigned flags, nvjpegHandle*))                \
  X(nvjpegGetProperty, property, (int which, int* value))                                                        \
  X(nvjpegJpegStateCreate, state_create, (nvjpegHandle, nvjpegState*))                                           \
  X(nvjpegJpegStreamCreate, parser_create, (nvjpegHandle, nvjpegStream*))                                        \
  X(nvjpegJpegStreamParseHeader, parse_header, (nvjpegHandle, const unsigned char*, std::size_t, nvjpegStream))  \
  X(nvjpegJpegStreamGetFrameDimensions, frame_size, (nvjpegStream, unsigned* width, unsigned* height))           \
  X(nvjpegJpegStreamGetExifOrientation, orientation, (nvjpegStream, int*))                                       \
  X(nvjpegDecodeBatchedSupported, batch_supported, (nvjpegHandle, nvjpegStream, int* unsupported))               \
  X(nvjpegDecodeBatchedInitialize, batch_start, (nvjpegHandle, nvjpegState, int count, int threads, int format)) \
  X(nvjpegDecodeBatched, decode_batch,                                                                           \
    (nvjpegHandle, nvjpegState, const unsigned char* const*, const std::size_t*, nvjpegImage*, CUstream))        \
  X(nvjpegDecode, decode_one,                                                                                    \
    (nvjpegHandle, nvjpegState, const unsigned char*, std::size_t, int format, nvjpegImage*, CUstream))

struct NvjpegApi {
#define HAMI_CUDA_NVJPEG_MEMBER(symbol, name, parameters) nvjpegStatus(*name) parameters = nullptr;
  HAMI_CUDA_NVJPEG_FUNCTIONS(HAMI_CUDA_NVJPEG_MEMBER)
#undef HAMI_CUDA_NVJPEG_MEMBER
};

enum class JpegColor { kGray = 2, kRgb = 3, kBgr = 4 };  // nvjpegOutputFormat_t

// What nvJPEG reads from the header of a file. nvJPEG writes as many pixels as the header says.
struct JpegHeader {
  int width = 0;
  int height = 0;
  int orientation = 1;        // EXIF orientation, 1 to 8
  bool is_batchable = false;  // whether nvJPEG can decode the file in one call with others
};

// One file, and the planes into which it is decoded.
struct JpegFile {
  std::string_view encoded;
  JpegHeader header;
  CUdeviceptr planes = 0;
  bool is_decoded = false;
};

// The buffers of nvJPEG for the work of one call. The call returns before that work is done, and nvJPEG does not guard
// them: the next call with the same state would overwrite what the work still reads.
class JpegState {
 public:
  JpegState(const Device& device, nvjpegState state) : done_(device), state_(state) {}

  // Blocks until the work of the last call is done.
  void wait() const {
    if (is_used_) done_.wait();
  }
  // Calls nvJPEG with the state, once the work of the last call is done.
  template <class Call>
  nvjpegStatus use(CUstream stream, const Call& call) {
    wait();
    is_used_ = true;
    const nvjpegStatus status = call(state_);
    done_.record(stream);
    return status;
  }

 private:
  Event done_;  // the work of the last call
  const nvjpegState state_;
  bool is_used_ = false;
};

// Decodes one batch at a time.
class JpegDecoder {
 public:
  JpegDecoder(const NvjpegApi& api, const Device& device, const std::string& library, unsigned flags);

  // False if nvJPEG cannot read the header.
  bool read_header(std::string_view encoded, JpegHeader& header);
  // Decodes files into their planes; sets `is_decoded` of those that nvJPEG can decode. The engines write when they are
  // called, before earlier work of the stream, so the stream must be idle.
  void decode(std::vector<JpegFile>& files, JpegColor color, Stream& stream);

 private:
  // Each file is decoded by the calls that decode it alone, so that its pixels do not depend on its neighbors.
  void decode_together(JpegFile* const* first, JpegFile* const* last, JpegColor color, CUstream stream);
  void decode_alone(JpegFile& file, JpegColor color, CUstream stream);
  nvjpegImage image_of(const JpegFile& file, JpegColor color) const;
  std::unique_ptr<JpegState> new_state() const;
  void check_created(nvjpegStatus status) const;
  template <class Call>
  bool succeeds(JpegState& state, CUstream stream, const Call& call) const;

  const NvjpegApi& api_;
  const Device& device_;
  const std::string library_;
  nvjpegHandle handle_ = nullptr;
  nvjpegStream parser_ = nullptr;
  // With one state for batches and single files, nvJPEG 13.0 occasionally failed with ALLOCATOR_FAILURE (decision
  // 0026).
  std::unique_ptr<JpegState> batch_state_;
  std::unique_ptr<JpegState> single_state_;  // a second one made lists of single files no faster (measured-once.md)
};

// The decoders of one device, which all instances share. They are kept: creating one takes a fifth of a second.
class JpegDecoders {
 public:
  // Loads the library on the first call; throws CudaError if it cannot be loaded. `interpolates`: subsampled chroma is
  // interpolated, as libjpeg does, if the library can do so.
  static JpegDecoders& of(const Device& device, const std::string& library, bool interpolates);

  // Whether the decoders interpolate chroma; otherwise they repeat its samples.
  bool interpolates() const noexcept { return flags_ != 0; }

  // Adds a decoder for one more instance, up to the number that keeps the hardware busy.
  void add_user();
  void remove_user();

  // An idle decoder, for the lifetime of this object; waits for one.
  class Borrowed {
   public:
    explicit Borrowed(JpegDecoders& decoders);
    ~Borrowed();
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    JpegDecoder* operator->() const noexcept { return decoder_.get(); }

   private:
    JpegDecoders& decoders_;
    std::unique_ptr<JpegDecoder> decoder_;
  };

 private:
  JpegDecoders(const Device& device, const std::string& library, bool interpolates);

  const Device& device_;
  const std::string library_;
  NvjpegApi api_;
  unsigned flags_ = 0;  // of nvjpegCreateEx
  std::mutex mutex_;    // guards what follows
  std::condition_variable returned_;
  std::deque<std::unique_ptr<JpegDecoder>> idle_;
  int decoders_ = 0;
  int users_ = 0;
};

}  // namespace hami_cuda
