// The stages of a call.
#include "grpc_call.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "access.hpp"
#include "http2_connection.hpp"
#include "json.hpp"
#include "loop.hpp"

namespace hami_serve {
namespace {

constexpr std::string_view kInfer = "/inference.GRPCInferenceService/ModelInfer";
constexpr std::string_view kHealth = "/grpc.health.v1.Health/";
constexpr std::string_view kType = "application/grpc";
constexpr std::size_t kMaxRead = 4 * kMaxMetadata;            // bytes of metadata and trailers, of one call
constexpr std::size_t kHeaderCost = 32;                       // bytes of a header beside its texts
constexpr std::int64_t kRetry = 20'000'000;                   // ns between tries to get memory
constexpr std::size_t kTypedCost = 8;                         // bytes for one of typed contents: a small int64 has 8
constexpr std::size_t kMaxCopied = 1 << 12;                   // bytes of a message that is copied behind its prefix
constexpr std::size_t kMaxTimeout = 8;                        // digits
constexpr std::int64_t kMaxWait = 4'000'000'000'000'000'000;  // ns

bool is_plain(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char each) { return each >= ' ' && each <= '~'; });
}

std::int64_t nanoseconds_of(char unit) noexcept {
  switch (unit) {
    case 'H': return 3'600'000'000'000;
    case 'M': return 60'000'000'000;
    case 'S': return 1'000'000'000;
    case 'm': return 1'000'000;
    case 'u': return 1'000;
    case 'n': return 1;
    default: return 0;
  }
}

void add_member(std::string& json, std::string_view name, std::string_view value) {
  json += json.empty() ? '{' : ',';
  add_string(json, name);
  json += ':';
  add_string(json, value);
}

}  // namespace

Call::Call(Http2Connection& connection, std::int32_t stream) : connection_(connection), stream_(stream) {}

Call::~Call() {
  if (request_) {
    request_->asker = nullptr;
    if (request_->is_aside) request_->charged = std::exchange(message_charge_, 0);
    if (request_->started) request_->model->caller().table->cancel(request_->started);
  }
  if (number_) connection_.grpc().forget(number_);
  if (entry_) connection_.grpc().door().journal().add(std::move(entry_));  // its client has left
  discharge_message();
  connection_.grpc().door().discharge(answer_charge_);
}

Loop& Call::loop() const noexcept { return connection_.loop(); }

Peer& Call::peer() noexcept { return connection_; }

// ---- metadata

bool Call::add_header(std::string_view name, std::string_view value) {
  metadata_size_ += name.size() + value.size() + kHeaderCost;
  if (stage_ != Stage::kMetadata || metadata_size_ > kMaxMetadata) return metadata_size_ <= kMaxRead;
  if (name == ":method") {
    method_ = value;
  } else if (name == ":path") {
    path_ = value;
  } else if (name == "content-type") {
    type_ = value;
  } else if (name == "authorization") {
    authorization_ = value;
  } else if (name == "grpc-encoding") {
    encoding_ = value;
  } else if (name == "grpc-timeout") {
    timeout_ = value;
  } else if (name.front() != ':' && name != "user-agent" && name != "grpc-accept-encoding" && is_plain(name) &&
             is_plain(value)) {
    others_.emplace_back(name, value);
  }
  return true;
}

void Call::read_timeout() {
  const std::size_t digits = timeout_.size() - 1;
  const std::int64_t unit = nanoseconds_of(timeout_.back());
  const bool is_number = timeout_.find_first_not_of("0123456789") == digits;
  if (digits == 0 || digits > kMaxTimeout || unit == 0 || !is_number)
    return reject(kInvalidArgument, "grpc-timeout is not a number of at most 8 digits with a unit");
  const std::int64_t amount = std::stoll(timeout_);
  std::int64_t wait = 0;
  if (__builtin_mul_overflow(amount, unit, &wait) || wait > kMaxWait) return;
  deadline_ = now_ns() + wait;
  connection_.look_at(deadline_);
}

// False: the call is rejected.
bool Call::check_metadata() {
  const Limits& limits = connection_.grpc().door().limits();
  if (metadata_size_ > kMaxMetadata) {
    reject(kResourceExhausted, "the metadata of a call have at most 16384 bytes; send fewer");
  } else if (method_ != "POST") {
    stage_ = Stage::kDone;
    connection_.answer_http(*this, "405");
  } else if (type_.compare(0, kType.size(), kType) != 0 ||
             (type_.size() > kType.size() && type_[kType.size()] != '+' && type_[kType.size()] != ';')) {
    stage_ = Stage::kDone;
    connection_.answer_http(*this, "415");
  } else if (!limits.authorization.empty() && path_.compare(0, kHealth.size(), kHealth) != 0 &&
             !has_token(authorization_, limits.authorization)) {
    reject(kUnauthenticated, connection_.grpc().texts().no_token);
  } else if (!encoding_.empty() && encoding_ != "identity" && encoding_ != "gzip" && encoding_ != "deflate") {
    reject(kUnimplemented, "this server reads messages with the encodings identity, gzip and deflate");
  } else if (!timeout_.empty()) {
    read_timeout();
  }
  return stage_ != Stage::kDone;
}

void Call::begin() {
  stage_ = Stage::kPrefix;
  if (!check_metadata()) return;
  is_infer_ = path_ == kInfer;
  if (!is_infer_) leave();
}

void Call::reject(std::int32_t status, std::string text) {
  std::string json;
  add_member(json, "method", is_plain(path_) ? path_ : "?");
  add_member(json, "text", text);
  json += ",\"status\":";
  add_integer(json, status);
  connection_.grpc().push(event_of(0, GrpcEventKind::kRejected, json += '}'));
  if (number_) connection_.grpc().forget(std::exchange(number_, 0));
  finish(status, std::move(text));
}

// ---- messages of the client

void Call::receive(std::string_view data) {
  const bool must_wait = stage_ == Stage::kMemory || stage_ == Stage::kHeld || !held_.empty();
  if (must_wait && stage_ != Stage::kDone)
    held_.append(data);
  else
    take(data);
}

void Call::take(std::string_view data) {
  while (!data.empty()) {
    std::size_t used = 0;
    switch (stage_) {
      case Stage::kPrefix:
        used = std::min(sizeof prefix_ - prefix_size_, data.size());
        std::memcpy(prefix_ + prefix_size_, data.data(), used);
        prefix_size_ += used;
        break;
      case Stage::kMessage:
        if (!body_) allocate(data);
        if (!body_) continue;  // it is rejected
        data_until_ = now_ns() + connection_.grpc().door().limits().times.body;
        used = std::min(size_ - filled_, data.size());
        std::memcpy(body_->data() + filled_, data.data(), used);
        filled_ += used;
        break;
      case Stage::kMemory:
      case Stage::kHeld: held_.append(data); return;
      default: used = data.size();  // nothing reads it
    }
    connection_.consume(*this, used);
    data.remove_prefix(used);
    if (stage_ == Stage::kPrefix && prefix_size_ == sizeof prefix_)
      begin_message();
    else if (stage_ == Stage::kMessage && filled_ == size_)
      end_message();
  }
}

void Call::read_held() {
  const std::string data = std::exchange(held_, {});
  take(data);
  end_if_no_more();
}

void Call::begin_message() {
  const std::int64_t most = connection_.grpc().door().limits().max_body;
  is_compressed_ = prefix_[0] != 0;
  size_ = filled_ = 0;
  for (std::size_t i = 1; i < sizeof prefix_; ++i) size_ = size_ << 8 | static_cast<unsigned char>(prefix_[i]);
  if (is_compressed_ && (prefix_[0] != 1 || encoding_.empty() || encoding_ == "identity"))
    return reject(kInternal, "the message is compressed, and grpc-encoding does not say how");
  if (static_cast<std::int64_t>(size_) > most)
    return reject(kResourceExhausted, "the message has " + std::to_string(size_) +
                                          " bytes; this server reads at most " + std::to_string(most));
  memory_until_ = 0;
  get_memory();
}

void Call::get_memory() {
  const std::int64_t now = now_ns();
  if (connection_.grpc().door().charge(static_cast<std::int64_t>(size_))) {
    message_charge_ = static_cast<std::int64_t>(size_);
    stage_ = Stage::kMessage;
    message_begun_ = now;
    data_until_ = now + connection_.grpc().door().limits().times.body;
    if (size_ > 0) return connection_.look_at(next_look());
    allocate({});
    if (body_) end_message();
  } else if (memory_until_ != 0 && now >= memory_until_) {
    reject(kResourceExhausted, "the open requests of this server leave too little memory for a message of " +
                                   std::to_string(size_) + " bytes; try again later");
  } else {
    if (memory_until_ == 0) memory_until_ = now + connection_.grpc().wait();
    stage_ = Stage::kMemory;
    connection_.look_at(now + kRetry);
  }
}

// `first`: the first bytes of the message, which say where its tensors are.
void Call::allocate(std::string_view first) {
  try {
    body_ = std::make_shared<Body>(size_, is_infer_ ? raw_start(first.substr(0, size_)) : 0);
  } catch (const std::bad_alloc&) {
    reject(kResourceExhausted, "this machine has too little memory for the message; try again later");
  }
}

void Call::end_message() {
  if (is_infer_) {
    read();
  } else if (asked_ > 0) {
    deliver();
  } else {
    stage_ = Stage::kHeld;
  }
}

void Call::read() {
  stage_ = Stage::kRunning;
  const std::shared_ptr<const Table> table = connection_.grpc().door().table();
  if (is_compressed_) return leave();
  if (table->keeps_journal) {
    entry_ = new_entry();
    if (!entry_) return leave();
  }
  if (is_long_to_read(*body_)) return read_aside();
  run(read_message(body_, *table), std::make_shared<Request>());
}

// Null: Python writes the line of the call, as the parent of its span is too long to keep.
std::unique_ptr<Entry> Call::new_entry() const {
  auto entry = std::make_unique<Entry>();
  entry->begun = now_ns();
  for (const auto& [name, value] : others_) {
    const auto found = std::find(kTraceHeaders.begin(), kTraceHeaders.end(), name);
    if (found == kTraceHeaders.end()) continue;
    if (value.size() > kMaxId) return nullptr;
    entry->trace[static_cast<std::size_t>(found - kTraceHeaders.begin())] = value;
  }
  return entry;
}

// Lets the worker read the message.
void Call::read_aside() {
  Door& door = connection_.grpc().door();
  const auto cost = static_cast<std::int64_t>(kTypedCost * size_);
  if (!door.charge(cost, message_charge_)) return leave();
  message_charge_ += cost;
  auto request = std::make_shared<Request>();
  request->loop = &loop();
  request->asker = this;
  const auto found = std::make_shared<std::optional<GrpcInference>>();
  const auto read = [found, body = body_, table = door.table()] { *found = read_message(body, *table); };
  loop().do_aside(request, read, [this, request, found] {
    request_ = nullptr;
    run(std::move(*found), request);
  });
  request_ = request.get();
}

void Call::run(std::optional<GrpcInference> found, std::shared_ptr<Request> request) {
  if (!found) return leave();
  request->loop = &loop();
  request->asker = this;
  request->model = std::move(found->model);
  request->inference = std::move(found->inference);
  if (entry_) {
    entry_->id = request->inference.id;
    if (!entry_->record(request->model, request->inference)) return leave();
  }
  if (deadline_ != INT64_MAX) request->timeout = std::max<std::int64_t>(deadline_ - now_ns(), 1);
  request_ = request.get();
  if (loop().submit(std::move(request))) {
    body_ = nullptr;
  } else {
    request_ = nullptr;
    leave();
  }
}

void Call::end_of_data() {
  has_ended_ = true;
  end_if_no_more();
}

void Call::end_if_no_more() {
  if (!has_ended_ || !held_.empty()) return;
  const bool is_complete = stage_ == Stage::kPrefix && prefix_size_ == 0;
  if (is_complete && number_) {
    connection_.grpc().push(event_of(number_, GrpcEventKind::kEnded));
  } else if (stage_ == Stage::kPrefix || stage_ == Stage::kMessage) {
    reject(kInvalidArgument, connection_.grpc().texts().no_message);
  }
}

// ---- Python

void Call::leave() {
  is_infer_ = false;
  entry_ = nullptr;
  std::string json;
  add_member(json, "method", is_plain(path_) ? path_ : "?");
  add_member(json, "encoding", is_plain(encoding_) ? encoding_ : "?");
  json += ",\"left\":";
  if (deadline_ == INT64_MAX)
    json += "null";
  else
    add_float(json, static_cast<double>(std::max<std::int64_t>(deadline_ - now_ns(), 0)) / 1e9);
  json += ",\"metadata\":{";
  std::string metadata;
  for (const auto& [name, value] : others_) add_member(metadata, name, value);
  json.append(metadata, metadata.empty() ? 0 : 1);
  others_ = {};
  auto begun = event_of(0, GrpcEventKind::kBegun, json += "}}");
  number_ = connection_.grpc().leave_to_python(loop(), *this, std::move(begun));
  asked_ = 1;
  if (stage_ == Stage::kRunning) deliver();
}

void Call::deliver() {
  --asked_;
  const auto kind = is_compressed_ ? GrpcEventKind::kCompressed : GrpcEventKind::kMessage;
  auto event = event_of(number_, kind);
  event->body = std::move(body_);
  event->charged = std::exchange(message_charge_, 0);
  connection_.grpc().push(std::move(event));
  body_ = nullptr;
  prefix_size_ = 0;
  stage_ = Stage::kPrefix;
}

void Call::ask() {
  ++asked_;
  if (stage_ != Stage::kHeld) return;
  deliver();
  read_held();
}

void Call::write(std::string message) {
  if (is_finished_) return;
  if (message.size() > connection_.grpc().max_answer()) return end_as_too_large(message.size());
  Answer answer;
  answer.head.assign(5, '\0');
  put_prefix(answer.head.data(), message.size());
  if (message.size() <= kMaxCopied) {
    answer.head += message;
  } else {
    answer.add_text(std::move(message));
  }
  add_answer(std::move(answer));
}

void Call::finish(std::int32_t status, std::string text) {
  if (is_finished_) return;
  number_ = 0;
  stage_ = Stage::kDone;
  is_finished_ = true;
  status_ = status;
  status_text_ = std::move(text);
  if (entry_) {
    entry_->status = status;
    connection_.grpc().door().journal().add(std::move(entry_));
  }
  discharge_message();
  connection_.consume(*this, std::exchange(held_, {}).size());
  expect_to_be_taken();
  if (has_begun_)
    connection_.go_on_with(*this);
  else
    connection_.answer_without_message(*this);
}

void Call::completed(std::shared_ptr<Request> request, bool failed) {
  if (entry_) entry_->has_run(*request);
  const std::int64_t cost = failed ? 0 : size_of_long_message(*request->model, request->inference, request->keys);
  if (cost == 0) {
    std::optional<Answer> answer;
    if (!failed) answer = render_message(*request->model, request->inference, request->keys);
    return render(request, std::move(answer));
  }
  if (!connection_.grpc().door().charge(cost, message_charge_)) return render(request, std::nullopt);
  message_charge_ += cost;
  const auto answer = std::make_shared<std::optional<Answer>>();
  const auto write = [request, answer] {
    *answer = render_message(*request->model, request->inference, request->keys);
  };
  loop().do_aside(request, write, [this, request, answer] { render(request, std::move(*answer)); });
}

// Answers a request that has run, or lets Python do that.
void Call::render(const std::shared_ptr<Request>& request, std::optional<Answer> answer) {
  request_ = nullptr;
  if (!answer) {
    auto completed = event_of(0, GrpcEventKind::kCompleted, described(0, *request));
    number_ = connection_.grpc().leave_to_python(loop(), *this, std::move(completed), request);
    return;
  }
  const std::size_t size = answer->size() - sizeof prefix_;
  if (size > connection_.grpc().max_answer()) return end_as_too_large(size);
  connection_.grpc().count_answer();
  add_answer(std::move(*answer));
  finish(kOk, {});
}

// The length before a message has four bytes.
void Call::end_as_too_large(std::size_t size) {
  reject(kResourceExhausted, "the answer has " + std::to_string(size) + " bytes; a message of gRPC has at most " +
                                 std::to_string(connection_.grpc().max_answer()) + ", ask for fewer outputs or rows");
}

// ---- answers

void Call::add_answer(Answer answer) {
  const std::size_t size = answer.size();
  unsent_ += size;
  answer_charge_ += static_cast<std::int64_t>(size);
  connection_.grpc().door().discharge(-static_cast<std::int64_t>(size));
  answers_.push_back({std::move(answer), 0, 0});
  if (answer_until_ == INT64_MAX) expect_to_be_taken();
  if (std::exchange(has_begun_, true))
    connection_.go_on_with(*this);
  else
    connection_.begin_answer(*this);
}

// From now on, the client must take answers.
void Call::expect_to_be_taken() {
  taken_ = 0;
  answer_until_ = now_ns() + connection_.grpc().door().limits().times.write;
  connection_.look_at(answer_until_);
}

void Call::send(std::string& out, std::size_t size) {
  unsent_ -= size;
  taken_ += size;
  if (unsent_ == 0 && !is_finished_) answer_until_ = INT64_MAX;  // the next answer does not come from the client
  answer_charge_ -= static_cast<std::int64_t>(size);
  connection_.grpc().door().discharge(static_cast<std::int64_t>(size));
  while (size > 0) {
    Sending& first = answers_.front();
    const std::string_view piece =
        first.piece == 0 ? std::string_view(first.answer.head) : first.answer.tail[first.piece - 1];
    const std::size_t taken = std::min(size, piece.size() - first.offset);
    out.append(piece.substr(first.offset, taken));
    first.offset += taken;
    size -= taken;
    if (first.offset < piece.size()) continue;
    first.offset = 0;
    if (++first.piece <= first.answer.tail.size()) continue;
    answers_.pop_front();
    if (number_) connection_.grpc().push(event_of(number_, GrpcEventKind::kWritten));
  }
}

// ---- time

void Call::check_time(std::int64_t now) {
  if (stage_ == Stage::kMemory) {
    get_memory();
    if (stage_ != Stage::kMemory) read_held();
  }
  if (stage_ == Stage::kMessage) check_message(now);
  if (!is_finished_ && !request_ && now >= deadline_) {
    if (number_) connection_.grpc().forget(std::exchange(number_, 0));
    finish(kDeadlineExceeded, "the deadline of the call has passed");
  }
  if (now < answer_until_) return;
  if (taken_ < kMinTaken) return connection_.reset(*this, NGHTTP2_CANCEL);
  expect_to_be_taken();
}

// Rejects a message that does not come: others wait for its memory.
void Call::check_message(std::int64_t now) {
  const Times& times = connection_.grpc().door().limits().times;
  if (!connection_.takes_data()) {  // the client cannot send it
    message_begun_ = now;
    data_until_ = now + times.body;
    return;
  }
  const std::int64_t counted = now - message_begun_ - times.rate_after;
  const double come = static_cast<double>(filled_) * static_cast<double>(connection_.calls());  // they share the rate
  if (counted > 0 && come * kSecond < static_cast<double>(counted) * kMinRate)
    reject(kDeadlineExceeded, "the message came with less than 16384 bytes per second");
  else if (now >= data_until_)
    reject(kDeadlineExceeded, "the message did not continue for " + seconds(times.body) + " s");
}

std::int64_t Call::next_look() const noexcept {
  return is_finished_ ? answer_until_ : std::min(answer_until_, next_look_at_message());
}

std::int64_t Call::next_look_at_message() const noexcept {
  if (stage_ == Stage::kMessage) {
    const std::int64_t now = now_ns();
    const std::int64_t rate_from = message_begun_ + connection_.grpc().door().limits().times.rate_after;
    return std::min({rate_from > now ? rate_from : now + kSecond, data_until_, deadline_});
  }
  if (stage_ == Stage::kMemory) return std::min(now_ns() + kRetry, deadline_);
  return request_ ? INT64_MAX : deadline_;
}

void Call::cancel() {
  if (request_) {
    if (request_->started) request_->model->caller().table->cancel(request_->started);
  } else if (!number_ && !is_finished_) {
    reject(kUnavailable, connection_.grpc().texts().stopping);
  }
}

void Call::discharge_message() noexcept {
  connection_.grpc().door().discharge(std::exchange(message_charge_, 0));
  body_ = nullptr;
}

}  // namespace hami_serve
