// Native plugins that are loaded from files and called from many threads. A sanitizer build also compiles them with the sanitizer.
#include <atomic>
#include <thread>

#include "pipes.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

constexpr int kCallers = 8;
constexpr int kCallsEach = 50;

// Calls the pipe from many threads; `right` returns whether an outcome is the expected one.
template <class Right>
void call_from_many_threads(TestPipe& pipe, const std::function<Dict(int)>& request, Right right) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kCallers; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCallsEach; ++i) {
        const int number = t * kCallsEach + i;
        if (!right(pipe.call(request(number)), number)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

Dict number_request(int number) { return request_of(Value(number)); }

}  // namespace

TEST_CASE("native classes of every thread mode can be called from many threads") {
  load_built("golden.so");
  for (const char* name : {"BuiltOwnThread", "BuiltOneAtATime"}) {
    TestPipe pipe({{"backend", text(name)}, {"instance_num", Value(2)}});
    call_from_many_threads(pipe, number_request, [](const CallResult& out, int) { return out.result().as_bool(); });
  }
  TestPipe pipe({{"backend", text("S[BuiltMakeTag,BuiltTwice[BuiltRebuild],BuiltReadTag]")}, {"max", Value(4)}});
  call_from_many_threads(pipe, number_request,
                         [](const CallResult& out, int number) { return out.number() == number; });
}

TEST_CASE("native containers create items for their children on many threads") {
  load_built("golden.so");
  TestPipe pipe({{"backend", text("BuiltEach[BuiltRebuild]")}, {"instance_num", Value(3)}});
  call_from_many_threads(pipe, [](int number) {
    return request_of(make_list({Value(number), text("two"), Value(0.5)}));
  }, [](const CallResult& out, int number) {
    return out.good && out.result().as_list().size() == 3 && out.result().as_list().at(0).as_int() == number;
  });
}

TEST_CASE("events, counters and the store are shared by native backends on many threads") {
  load_built("surroundings.so");
  TestPipe awaiting({{"backend", text("BuiltAwait")}, {"instance_num", Value(4)}});
  call_from_many_threads(awaiting, number_request,
                         [](const CallResult& out, int number) { return out.number() == number; });

  TestPipe keeping({{"backend", text("BuiltKeep")}, {"instance_num", Value(4)}});
  call_from_many_threads(keeping, [](int number) {
    Dict request = request_of(Value(number));
    request.enter("request", Value(number % 3));
    request.enter("key", Value(number));
    return request;
  }, [](const CallResult& out, int) { return out.good && out.result().is_none(); });

  TestPipe counting({{"backend", text("BuiltWhich")}, {"instance_num", Value(4)}});
  call_from_many_threads(counting, number_request, [](const CallResult& out, int) { return out.number() < 4; });
  CHECK(counting->counters().at("n").all().at("calls") == kCallers * kCallsEach);
}
