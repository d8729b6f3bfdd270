// A plugin of the SDK that throws from every function which the core calls: `where`, an exception of the type `what`. The names
// of its backends begin with PREFIX.
#include <hami/backend.hpp>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#define TEXT(token) #token
#define NAME(prefix, name) TEXT(prefix) name

namespace {

struct Foreign {};  // does not derive from std::exception

[[noreturn]] void throw_one(const std::string& what) {
  if (what == "foreign") throw Foreign();
  if (what == "int") throw 3;
  if (what == "bad_alloc") throw std::bad_alloc();
  if (what == "hami") throw hami::Error(HAMI_NOT_FOUND, "gone");
  throw std::runtime_error("no luck");
}

class Opaque {
 public:
  explicit Opaque(std::string what) : what_(std::move(what)) {}
  ~Opaque() noexcept(false) { throw_one(what_); }

 private:
  std::string what_;
};

class Member {
 public:
  std::string what;
  ~Member() noexcept(false) {
    if (!what.empty()) throw_one(what);
  }
};

template <bool in_constructor>
class Throws : public hami::Backend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_SERIALIZED;

  Throws() {
    if (in_constructor) throw Foreign();
  }
  ~Throws() override {
    if (where_ == "destructor") throw_one(what_);
    if (where_ == "member") member_.what = what_;
  }

 private:
  void init_(const hami::Params& params) override {
    where_ = params.get<std::string>("where");
    what_ = params.get<std::string>("what");
    throw_in("init");
    if (where_ == "init and destructor") {
      where_ = "destructor";
      throw_one(what_);
    }
  }
  hami::Range range_() const override {
    throw_in("range");
    return {1, 8};
  }
  void forward_(hami::Batch batch) override {
    throw_in("forward");
    for (hami::Dict& item : batch) {
      if (where_ == "release") item["opaque"] = hami::Value::opaque("test.opaque", std::make_unique<Opaque>(what_));
      if (where_ == "callback") {
        const hami::Event event;
        event.on_done([what = what_](const hami::Event&) { throw_one(what); });
        event.notify();
      }
      item["result"] = 1;
    }
  }
  void forward_with_dep_(hami::Batch batch, const hami::Child&) override {
    throw_in("forward_with_dep");
    forward_(batch);
  }
  void inject_dependency_(const hami::Child&) override { throw_in("inject_dependency"); }
  void throw_in(const char* function) const {
    if (where_ == function) throw_one(what_);
  }

  std::string where_;
  std::string what_;
  Member member_;
};
using ThrowsLater = Throws<false>;
using ThrowsInConstructor = Throws<true>;
HAMI_REGISTER(ThrowsLater, NAME(PREFIX, "ThrowsIn"), "where: str; what: str", "Throws in one of its functions.");
HAMI_REGISTER(ThrowsInConstructor, NAME(PREFIX, "ThrowsInConstructor"), "", "Throws in its constructor.");

}  // namespace

HAMI_PLUGIN("throws", "0.1")
