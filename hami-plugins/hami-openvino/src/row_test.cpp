// Makes rows, runs them, and compares each alone with itself in a batch.
#include "row_test.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "error.hpp"
#include "row_difference.hpp"

namespace hami_openvino {
namespace {

// Rows of a batch have different magnitudes, and mostly positive, mostly negative or mixed signs.
constexpr double kMagnitudes[] = {1.0, 0.02, 100.0, 0.3};
constexpr double kShifts[] = {0.0, 1.0, -1.0};
constexpr std::int64_t kMostRows = 3;  // of a batch with a free number of rows
// Lengths of free axes to try; a set of rows uses the first with which the model runs, and the next set another.
constexpr std::int64_t kLengths[] = {32, 64, 224, 16, 8, 3, 1, 48, 96, 256, 24, 4, 5, 2};
// An index may only be valid within a small range.
constexpr std::pair<int, int> kIntegers[] = {{0, 99}, {0, 7}, {0, 1}, {1, 1}};
constexpr int kSets = 2;                    // mixing that depends on the data can hide from one set of rows
constexpr std::chrono::seconds kBudget{5};  // no set is started after this time

struct NotRun {
  std::string why;
};
struct Differs {
  std::string why;
};

using Bytes = std::vector<unsigned char>;
using Row = std::vector<Bytes>;  // for each input

class Test {
 public:
  Test(Session& session, const std::function<bool(const std::vector<Shape>&)>& accepts)
      : session_(session),
        model_(session.model()),
        accepts_(accepts),
        fixed_(std::max<std::int64_t>(0, model_.batch_rows())) {}

  RowTest result() {
    try {
      const auto end = std::chrono::steady_clock::now() + kBudget;
      std::size_t next_length = 0;
      int sets = 0;
      std::string failure = "OpenVINO accepts none of the shapes that were tried";
      while (sets < kSets && next_length < std::size(kLengths)) {
        if (std::chrono::steady_clock::now() > end) {
          if (sets > 0) break;
          throw NotRun{failure};
        }
        length_ = kLengths[next_length++];
        if (!accepts_(shapes(fixed_ > 0 ? fixed_ : 1)) || !finds_values(failure)) {
          if (!has_free_axes()) break;
          continue;
        }
        run_set(sets++);
        if (!has_free_axes()) next_length = 0;  // the next set has other values
      }
      if (sets == 0) throw NotRun{failure};
      return {true, true, ""};
    } catch (const NotRun& reason) {
      return {false, false, "a test with rows alone and together did not run: " + reason.why};
    } catch (const Differs& reason) {
      return {false, true, "rows influence each other: " + reason.why};
    }
  }

 private:
  bool has_free_axes() const {
    return std::any_of(model_.inputs().begin(), model_.inputs().end(), [](const Port& port) {
      return std::any_of(port.shape.begin() + 1, port.shape.end(), [](std::int64_t size) { return size == kDynamic; });
    });
  }

  std::vector<Shape> shapes(std::int64_t rows) const {
    std::vector<Shape> all;
    for (const Port& port : model_.inputs()) {
      all.push_back(port.shape);
      for (std::int64_t& size : all.back())
        if (size == kDynamic) size = length_;
      all.back()[0] = rows;
    }
    return all;
  }

  // Finds integers with which a row runs.
  bool finds_values(std::string& failure) {
    for (const auto& range : kIntegers) {
      integers_ = range;
      try {
        run({make_row(0, 0)});
        return true;
      } catch (const NotRun& reason) {
        failure = reason.why;
      }
      const bool has_integers = std::any_of(model_.inputs().begin(), model_.inputs().end(), [](const Port& port) {
        return port.type->dtype.code == kDLInt || port.type->dtype.code == kDLUInt;
      });
      if (!has_integers) break;
    }
    return false;
  }

  void run_set(int set) {
    const std::int64_t total = fixed_ > 0 ? fixed_ : kMostRows;
    std::vector<Row> rows;
    for (std::int64_t i = 0; i < total; ++i) rows.push_back(make_row(set, i));
    std::vector<std::vector<Bytes>> alone;  // by row and output
    for (const Row& row : rows) alone.push_back(rows_of(run({row}), fixed_ > 0 ? fixed_ : 1)[0]);
    std::vector<std::size_t> order(rows.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<Row> batch;
      for (const std::size_t index : order) batch.push_back(rows[index]);
      const auto together = rows_of(run(batch), total);
      for (std::size_t at = 0; at < order.size(); ++at) compare(alone[order[at]], together[at], total);
      std::rotate(order.begin(), order.begin() + 1, order.end());
    }
  }

  Row make_row(int set, std::int64_t row) const {
    std::mt19937 random(static_cast<unsigned>(set * 1000 + row));
    Row made;
    const std::vector<Shape> all = shapes(1);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::size_t count = 1;
      for (const std::int64_t size : all[i]) count *= static_cast<std::size_t>(size);
      const DLDataType dtype = model_.inputs()[i].type->dtype;
      std::vector<float> values(count);
      const double magnitude = kMagnitudes[static_cast<std::size_t>(row + set) % std::size(kMagnitudes)];
      const double shift = kShifts[static_cast<std::size_t>(row + set) % std::size(kShifts)];
      std::normal_distribution<double> normal(shift);
      std::uniform_int_distribution<int> integer(integers_.first, integers_.second);
      const bool is_float = dtype.code == kDLFloat || dtype.code == kDLBfloat;
      for (float& value : values)
        value = is_float                ? static_cast<float>(normal(random) * magnitude)
                : dtype.code == kDLBool ? static_cast<float>(random() & 1u)
                                        : static_cast<float>(integer(random));
      Bytes bytes(count * (dtype.bits / 8u));
      from_floats(values, dtype, bytes.data());
      made.push_back(std::move(bytes));
    }
    return made;
  }

  // Runs rows together; one row fills a batch with a fixed number of rows.
  std::vector<Output> run(const std::vector<Row>& rows) {
    const std::size_t total = std::max(rows.size(), static_cast<std::size_t>(fixed_));
    const std::vector<Shape> all = shapes(static_cast<std::int64_t>(total));
    std::vector<hami::Tensor> tensors;
    for (std::size_t i = 0; i < all.size(); ++i) {
      tensors.push_back(hami::Tensor::make(model_.inputs()[i].type->dtype, all[i]));
      auto* at = static_cast<unsigned char*>(tensors.back().view().data);
      for (std::size_t row = 0; row < total; ++row) {
        const Bytes& bytes = rows[row % rows.size()][i];
        std::memcpy(at, bytes.data(), bytes.size());
        at += bytes.size();
      }
    }
    bool accepted = true;
    const bool succeeded = session_.run([&] {
      for (std::size_t i = 0; i < all.size(); ++i) accepted = accepted && set_input(session_, i, tensors[i], all[i]);
    });
    if (!accepted || !succeeded) throw NotRun{model_.library().last_error()};
    return read_outputs(session_);
  }

  // The bytes of each row of each output.
  std::vector<std::vector<Bytes>> rows_of(const std::vector<Output>& outputs, std::int64_t total) const {
    std::vector<std::vector<Bytes>> rows(static_cast<std::size_t>(total));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Output& output = outputs[i];
      if (output.shape.empty() || output.shape[0] != total)
        throw Differs{"output \"" + model_.outputs()[i].name + "\" has the shape " + show_shape(output.shape) +
                      " for " + std::to_string(total) + " rows"};
      std::size_t bytes = model_.outputs()[i].type->dtype.bits / 8u;
      for (std::size_t axis = 1; axis < output.shape.size(); ++axis)
        bytes *= static_cast<std::size_t>(output.shape[axis]);
      for (std::size_t row = 0; row < rows.size(); ++row)
        rows[row].emplace_back(output.data + row * bytes, output.data + (row + 1) * bytes);
    }
    return rows;
  }

  void compare(const std::vector<Bytes>& alone, const std::vector<Bytes>& together, std::int64_t total) const {
    for (std::size_t i = 0; i < alone.size(); ++i) {
      const Port& port = model_.outputs()[i];
      const std::string of_output = "output \"" + port.name + "\" of a row ";
      if (alone[i].size() != together[i].size())
        throw Differs{of_output + "has another size in a batch of " + std::to_string(total)};
      const Difference found = largest_difference(*port.type, alone[i].data(), together[i].data(),
                                                  alone[i].size() / (port.type->dtype.bits / 8u));
      if (found.relative > tolerance(*port.type, model_.computes_in_16_bits()))
        throw Differs{of_output + show_difference(found, total)};
    }
  }

  Session& session_;
  const Model& model_;
  const std::function<bool(const std::vector<Shape>&)>& accepts_;
  const std::int64_t fixed_;  // number of rows of every batch; 0: free
  std::int64_t length_ = 1;
  std::pair<int, int> integers_{0, 1};
};

}  // namespace

RowTest test_rows(Session& session, const std::function<bool(const std::vector<Shape>&)>& accepts) {
  try {
    return Test(session, accepts).result();
  } catch (const hami::Error& error) {
    return {false, false, "a test with rows alone and together did not run: " + std::string(error.what())};
  }
}

}  // namespace hami_openvino
