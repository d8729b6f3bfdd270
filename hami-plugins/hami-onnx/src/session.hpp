// An opened model. Backends with equal settings share it; it is freed with the last of them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runs.hpp"

namespace hami_onnx {

using Shape = std::vector<std::int64_t>;

inline constexpr std::int64_t kAnySize = -1;

// An input or output, as the library reports it.
struct Port {
  std::string name;
  int onnx_type = 0;                    // 0: the value is not a tensor
  std::optional<DLDataType> dtype;      // of tensors of numbers
  Shape shape;                          // kAnySize: a free axis; empty: a scalar, or the model does not state the rank
  std::vector<std::string> axis_names;  // of free axes; "": none

  std::string show() const;  // "float32 [?, 3]"
};

struct Settings {
  std::string library;
  std::string model;
  std::int64_t threads = 0;
  std::int64_t busy_threads = 0;  // of a run while more last than half of `threads`; 0: always `threads`
  std::vector<std::string> custom_operators;
  std::vector<std::string> providers;  // in the order of preference, as use_provider takes them; the CPU is the last
  bool cpu_fallback = true;            // false: an operator that no provider takes is an error
  std::string memory = "arena";        // what runs do with memory that they have used: arena, shrink or none
  std::vector<std::string> freed;      // offsets in the file: lengths of 1 that the session leaves free
  std::string profile;                 // file for the times of the operators, when the session ends; empty: none
  std::string version;                 // differs after a file of the model was replaced
};

class Session {
 public:
  // Returns the open session with these settings, or opens it. hami::Error(HAMI_FAILED_PRECONDITION) has ONNX Runtime's
  // reason.
  static std::shared_ptr<const Session> open(const Settings& settings);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Library& library() const noexcept { return library_; }
  const std::vector<Port>& inputs() const noexcept { return inputs_; }
  const std::vector<Port>& outputs() const noexcept { return outputs_; }
  const std::vector<Port>& optional() const noexcept { return optional_; }  // initializers that are also inputs

  struct Input {
    const Port* port;
    const void* data;  // contiguous elements of the port's type
    std::size_t bytes;
    const std::int64_t* shape;
    std::size_t axes;
  };
  // Runs the model once; returns a value for each output. hami::Error(HAMI_REQUEST) has ONNX Runtime's reason; the run also
  // fails, soon, when no caller waits any more.
  std::vector<Owned<OrtValue>> run(const std::vector<Input>& inputs, const Callers& callers) const;

  // The session for one run, while it lasts.
  class Choice {
   public:
    explicit Choice(const Session& session) noexcept
        : session_(session), is_busy_(2 * ++session.running_ > session.threads_ && session.busy_) {}
    ~Choice() { --session_.running_; }
    Choice(const Choice&) = delete;
    Choice& operator=(const Choice&) = delete;

    bool is_busy() const noexcept { return is_busy_; }
    const Session& session() const noexcept { return is_busy_ ? *session_.busy_ : session_; }

   private:
    const Session& session_;
    const bool is_busy_;  // it has `busy_threads`
  };

  // The operators that each provider runs, by its own name. Empty if no provider was chosen, or before ONNX Runtime 1.24.
  const std::map<std::string, std::vector<std::string>>& assigned() const noexcept { return assigned_; }

  // Whether a watch has found that rows depend on their neighbours, in any pipe that uses this session.
  bool is_joining_stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
  void stop_joining() const noexcept { stopped_.store(true, std::memory_order_relaxed); }

 private:
  explicit Session(const Settings& settings);
  // Opens the session. Returns the error, or an empty text.
  std::string create(const Settings& settings, OrtSessionOptions* options);

  const Library& library_;
  const std::int64_t threads_;
  const std::string profile_;
  mutable RunPool runs_;
  mutable std::atomic<std::int64_t> running_{0};  // runs that last
  std::unique_ptr<const Session> busy_;           // with fewer threads; null: for no run
  Owned<OrtSession> handle_;
  std::vector<Port> inputs_;
  std::vector<Port> optional_;
  std::vector<Port> outputs_;
  std::vector<const char*> output_names_;
  std::map<std::string, std::vector<std::string>> assigned_;
  mutable std::atomic<bool> stopped_{false};
};

// The dtype of ONNX Runtime's number of an element type, if it is one of numbers.
std::optional<DLDataType> dtype_of_type(int onnx_type) noexcept;

std::string show_shape(const Shape& shape);           // "[?, 3]"
std::string show_tensor(const hami::Tensor& tensor);  // "float32 [1, 3]"

}  // namespace hami_onnx
