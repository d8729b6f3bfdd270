// explore: runs a small program of several threads in every order of its steps. A step is an operation on a mutex, a condition
// variable or an atomic; between two steps of a thread, any other one may run. Memory is sequentially consistent.
//
// Each run repeats the choices of the last one except the last that has an alternative: a search in depth. Orders that differ in
// independent steps only, of different objects, are one: sleep sets leave out all but the first of them, and lose no deadlock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace model {

// The objects that a step uses. `all`: it depends on every other step. `reads`: it changes nothing.
struct Step {
  const void* one = nullptr;
  const void* other = nullptr;
  bool all = false;
  bool reads = false;
};

// Lets other threads run; returns once this one is chosen while `enabled` holds. Outside of a run it does nothing.
void step(Step next, std::function<bool()> enabled = {});
// One of `count` numbers from 0; all are tried.
std::size_t choose(std::size_t count);
// The broken promise of this run, unless it has one.
void fail(const std::string& what);
std::int64_t& time();

class Program {
 public:
  void thread(std::function<void()> body) { bodies_.push_back(std::move(body)); }
  // After all threads have ended.
  void at_end(std::function<void()> check) { check_ = std::move(check); }

 private:
  friend struct Run;
  std::vector<std::function<void()>> bodies_;
  std::function<void()> check_;
};

struct Result {
  std::uint64_t runs = 0;
  std::string failure;  // the broken promise, with the order of the threads; empty: none
};

// `make` adds the threads and their state, again for each run. Ends at the first failure: a broken promise, or a deadlock.
Result explore(const std::function<void(Program&)>& make);

}  // namespace model
