// Pad: runs requests of unequal length together in an engine, padded to the longest of a run, where that is faster and where
// a comparison with real requests has shown that it does not change their results.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>

#include "padding.hpp"
#include "run_cost.hpp"
#include "tensors.hpp"

namespace hami_tensor {
namespace {

class Pad final : public TensorBackend {
 public:
  static constexpr std::uint32_t kFlags = HAMI_THREAD_CONCURRENT;
  static constexpr std::uint32_t kByDevice = 0;
  static constexpr std::uint32_t kMinChildren = 1;
  static constexpr std::uint32_t kMaxChildren = 1;

 private:
  struct Member {
    hami::Dict item;
    hami::Value data;
    TensorItems items;
    Sized size;
  };
  // Members that follow each other.
  struct Group {
    Member* first;
    Member* last;
    Member* begin() const noexcept { return first; }
    Member* end() const noexcept { return last; }
    std::size_t size() const noexcept { return static_cast<std::size_t>(last - first); }
  };

  void init_(const hami::Params& params) override {
    axis_ = params.get<std::int64_t>("axis");
    values_ = read_values(params.get<std::vector<std::string>>("values"));
    multiple_ = params.get<std::int64_t>("multiple");
    max_positions_ = params.get<std::int64_t>("max_positions");
    tolerance_ = params.get<double>("tolerance");
    cost_ = RunCost(params.get<std::optional<double>>("run_cost").value_or(-1));
    const std::uint64_t max = engine().range().max;
    joins_ = max != 1;
    max_items_ = max == 0 || max == HAMI_AUTO ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(max);
  }

  const hami::Child& engine() const { return children().front(); }

  // Entries such as "input_ids=1".
  std::vector<std::pair<std::string, double>> read_values(const std::vector<std::string>& entries) const {
    std::vector<std::pair<std::string, double>> values;
    for (const std::string& entry : entries) {
      const std::size_t equals = entry.rfind('=');
      char* end = nullptr;
      const char* text = entry.c_str() + (equals == std::string::npos ? 0 : equals + 1);
      const double number = std::strtod(text, &end);
      if (equals == std::string::npos || equals == 0 || end == text || *end != '\0')
        throw hami::Error(
            HAMI_FAILED_PRECONDITION,
            "parameter \"values\" of " + name() + " takes entries such as \"input_ids=1\", got " + in_quotes(entry));
      values.emplace_back(entry.substr(0, equals), number);
    }
    return values;
  }

  void forward_(hami::Batch batch) override {
    std::vector<Member> members;
    for (hami::Dict& item : batch) {
      try {
        members.push_back(read(item));
      } catch (const hami::Error& error) {
        item.fail(error);
      }
    }
    Member* const end = members.data() + members.size();
    if (!joins_ || !is_safe_) return run_unpadded({members.data(), end});
    std::stable_sort(members.begin(), members.end(),
                     [](const Member& a, const Member& b) { return a.size.length < b.size.length; });
    for (Member* first = members.data(); first != end;) {
      Member* last = first;  // of the members with tensors of the same names
      while (last != end && last->items.same_form(first->items)) ++last;
      run_all({first, last});
      first = last;
    }
  }

  Member read(const hami::Dict& item) const {
    Member member{item, item.get(kData), read_tensors(item, name()), {}};
    for (std::size_t i = 0; i < member.items.tensors.size(); ++i) {
      const hami::Tensor& tensor = member.items.tensors[i];
      const std::int64_t length = tensor.view().shape[axis_of(tensor, axis_, name())];
      if (i == 0) member.size = {tensor.rank() > 1 ? tensor.view().shape[0] : 1, length};
      if (length != member.size.length)
        throw hami::Error(HAMI_REQUEST, name() + ": all tensors must have the same length along axis " +
                                            std::to_string(axis_) + "; " + member.items.name(0) + " is " +
                                            show_tensor(member.items.tensors[0]) + ", " + member.items.name(i) +
                                            " is " + show_tensor(tensor));
      padding(member.items, i);  // whether or not this request will be padded
    }
    return member;
  }

  // Runs members, whose lengths increase, in as many groups as take the least time.
  void run_all(Group members) {
    std::vector<Sized> sizes;
    for (const Member& member : members) sizes.push_back(member.size);
    Member* first = members.first;
    for (const std::size_t end : cost().divide(sizes, max_items_, max_positions_)) {
      run({first, members.first + end});
      first = members.first + end;
    }
  }

  void run(Group members) {
    std::int64_t length = (members.last - 1)->size.length;
    length += (multiple_ - length % multiple_) % multiple_;
    std::int64_t rows = 0;
    std::int64_t positions = 0;
    for (const Member& member : members) {
      rows += member.size.rows;
      positions += member.size.rows * member.size.length;
    }
    const bool pads = rows * length != positions;
    if (pads && !is_safe_) return run_unpadded(members);  // a group before this one has shown it
    try {
      for (const Member& member : members)
        if (member.size.length != length) member.item[kData] = padded_data(member, length);
      time_run(members, rows, length);
    } catch (const hami::Error& error) {
      restore(members);
      return run_each(members, error);
    }
    restore(members);
    count("positions", positions);
    if (!pads) return convert(members);
    count("padding", rows * length - positions);
    if (is_due() && !compare(members, length)) {
      for (const Member& member : members) member.item.erase(kResult);
      return run_unpadded(members);
    }
    unpad(members, length);
  }

  hami::Value padded_data(const Member& member, std::int64_t length) const {
    std::vector<hami::Value> values;
    for (std::size_t i = 0; i < member.items.tensors.size(); ++i) {
      const hami::Tensor& tensor = member.items.tensors[i];
      values.push_back(padded(tensor, axis_of(tensor, axis_, name()), length, padding(member.items, i)));
    }
    return member.items.with(values);
  }

  // The bytes of the element that pads a tensor.
  std::string padding(const TensorItems& items, std::size_t index) const {
    double number = 0;
    for (const auto& [key, value] : values_)
      if (items.form == HAMI_DICT ? key == items.keys[index] : key == kData) number = value;
    const DLDataType type = items.tensors[index].dtype();
    std::string bytes(hami::item_size(type), '\0');
    if (number == 0) return bytes;
    bool fits = false;
    hami::with_element(type, [&](auto element) {
      using Element = decltype(element);
      using Number = typename Element::number;
      const bool in_range = number >= static_cast<double>(std::numeric_limits<Number>::lowest()) &&
                            number < static_cast<double>(std::numeric_limits<Number>::max());
      if (!in_range) return;
      Element::store(bytes.data(), static_cast<Number>(number));
      fits = Element::kIsFloat || static_cast<double>(Element::load(bytes.data())) == number;
    });
    if (!fits)
      throw hami::Error(HAMI_REQUEST, name() + ": " + items.name(index) + " is " + hami::dtype_name(type) +
                                          ", which the padding " + std::to_string(number) + " does not fit");
    return bytes;
  }

  void time_run(Group members, std::int64_t rows, std::int64_t length) {
    const std::int64_t begin = hami::host().clock_now();
    forward(members);
    const std::int64_t end = hami::host().clock_now();
    const bool all_ran = std::none_of(members.begin(), members.end(),
                                      [](const Member& member) { return member.item.error().has_value(); });
    count("runs");
    if (!all_ran) return;
    const std::lock_guard lock(mutex_);
    cost_.learn(rows, length, static_cast<double>(end - begin) * 1e-9);
  }

  RunCost cost() const {
    const std::lock_guard lock(mutex_);
    return cost_;
  }

  void forward(Group members) {
    std::vector<hami_dict*> raw;
    for (const Member& member : members) raw.push_back(member.item.raw());
    engine().forward(hami::Batch(raw.data(), raw.size()));
  }

  // The first padded runs are compared, then those whose number is a power of two, then one of kComparedOf.
  bool is_due() {
    const std::lock_guard lock(mutex_);
    const std::uint64_t run = padded_runs_++;
    return run < kFirstCompared || axes_.empty() || (run & (run - 1)) == 0 || run % kComparedOf == 0;
  }

  // Compares a padded result with that of a run of the request alone, and finds which axes of a result are padded. False if
  // the results of this run cannot be used.
  bool compare(Group members, std::int64_t length) {
    bool any = false;
    for (const Member& member : members) {
      if (member.size.length == length || member.item.error()) continue;
      any = true;
      hami::OwnItem own(member.item);
      const std::optional<hami::Error> error = run_alone(member, own.dict());
      if (!error) return is_the_same(member, own.dict(), length);
      const std::int32_t code = error->code();
      if (code != HAMI_CANCELLED && code != HAMI_DEADLINE_EXCEEDED)
        return differs("a request that runs alone fails: " + std::string(error->what()));
    }
    return !any;  // else all callers have left, and nothing was compared
  }

  std::optional<hami::Error> run_alone(const Member& member, const hami::Dict& own) const {
    for (const std::string& key : member.item.keys())
      if (key != kResult) own[key] = member.item.get(key);
    try {
      hami_dict* const raw = own.raw();
      engine().forward(hami::Batch(&raw, 1));
    } catch (const hami::Error& error) {
      return error;
    }
    return own.error();
  }

  bool is_the_same(const Member& member, const hami::Dict& own, std::int64_t length) {
    const std::optional<TensorItems> alone = results(own);
    const std::optional<TensorItems> other = results(member.item);
    if (!alone || !other || !alone->same_form(*other)) return differs("a result does not consist of tensors");
    std::vector<std::int64_t> axes;
    for (std::size_t i = 0; i < alone->tensors.size(); ++i) {
      const hami::Tensor& expected = alone->tensors[i];
      const hami::Tensor& given = other->tensors[i];
      const std::optional<std::int64_t> axis = padded_axis(expected, given, member.size.length, length);
      if (!axis) return differs("a result is " + show_tensor(given) + " instead of " + show_tensor(expected));
      axes.push_back(*axis);
      if (const double off = difference(expected, cut(given, *axis, member.size.length)); !(off <= tolerance_))
        return differs("it changes a result by " + std::to_string(off) + " of its largest number");
    }
    count("padding_compared");
    const std::lock_guard lock(mutex_);
    axes_ = std::move(axes);
    return true;
  }

  bool differs(const std::string& why) {
    is_safe_ = false;
    count("padding_differences");
    log(name() + "[" + std::string(engine().label()) + "] does not pad any more: " + why +
        "; requests of equal length still run together");
    return false;
  }

  static std::optional<std::int64_t> padded_axis(const hami::Tensor& alone, const hami::Tensor& other, std::int64_t own,
                                                 std::int64_t length) {
    if (alone.rank() != other.rank()) return std::nullopt;
    std::int64_t found = kNoAxis;
    for (std::size_t axis = 0; axis < alone.rank(); ++axis) {
      if (alone.view().shape[axis] == other.view().shape[axis]) continue;
      if (found != kNoAxis || alone.view().shape[axis] != own || other.view().shape[axis] != length)
        return std::nullopt;
      found = static_cast<std::int64_t>(axis);
    }
    return found;
  }

  // None if the result does not consist of tensors in CPU memory.
  std::optional<TensorItems> results(const hami::Dict& item) const {
    const std::optional<hami::Value> result = item.find(kResult);
    if (!result || result->is_none()) return std::nullopt;
    try {
      TensorItems items = read_tensors(*result, name());
      for (const hami::Tensor& tensor : items.tensors)
        if (tensor.device().device_type != kDLCPU) return std::nullopt;
      return items;
    } catch (const hami::Error&) {
      return std::nullopt;
    }
  }

  // Results are tensors, whether they were padded or not.
  void convert(Group members) const {
    for (const Member& member : members)
      if (const std::optional<TensorItems> found = results(member.item))
        member.item[kResult] = found->with({found->tensors.begin(), found->tensors.end()});
  }

  void unpad(Group members, std::int64_t length) {
    const std::vector<std::int64_t> axes = padded_axes();
    for (const Member& member : members) {
      const std::optional<TensorItems> found = results(member.item);
      if (!found) continue;
      std::vector<hami::Value> values;
      for (std::size_t i = 0; i < found->tensors.size(); ++i) {
        const hami::Tensor& tensor = found->tensors[i];
        const std::int64_t axis = i < axes.size() ? axes[i] : kNoAxis;
        const bool fits = i < axes.size() && axis < static_cast<std::int64_t>(tensor.rank()) &&
                          (axis == kNoAxis || tensor.view().shape[axis] == length);
        if (fits) {
          values.push_back(cut(tensor, axis, member.size.length));
          continue;
        }
        member.item.fail(hami::Error(HAMI_INTERNAL, name() + ": the result " + show_tensor(tensor) + " of " +
                                                        std::string(engine().label()) +
                                                        " has not the axes of its results before"));
      }
      if (values.size() == found->tensors.size()) member.item[kResult] = found->with(values);
    }
  }

  static void restore(Group members) {
    for (const Member& member : members) member.item[kData] = member.data;
  }

  // Without padding: the engine finds out what it can run together.
  void run_unpadded(Group members) {
    std::vector<hami_dict*> raw;
    for (const Member& member : members)
      if (!member.item.error()) raw.push_back(member.item.raw());
    if (raw.empty()) return;
    try {
      engine().forward(hami::Batch(raw.data(), raw.size()));
    } catch (const hami::Error& error) {
      return run_each(members, error);
    }
    convert(members);
  }

  // After an error of a run with several members: one of them must not fail the others.
  void run_each(Group members, const hami::Error& error) {
    if (members.size() == 1) return members.first->item.fail(error);
    for (Member& member : members) {
      member.item.erase(kResult);
      run_unpadded({&member, &member + 1});
    }
  }

  std::vector<std::int64_t> padded_axes() const {
    const std::lock_guard lock(mutex_);
    return axes_;
  }

  static constexpr std::uint64_t kFirstCompared = 4;
  static constexpr std::uint64_t kComparedOf = 1024;

  std::int64_t axis_ = -1;
  std::vector<std::pair<std::string, double>> values_;
  std::int64_t multiple_ = 1;
  std::int64_t max_positions_ = 0;
  double tolerance_ = 0;
  bool joins_ = false;
  std::size_t max_items_ = 1;

  std::atomic<bool> is_safe_{true};  // no comparison has found a difference
  mutable std::mutex mutex_;         // of what follows
  RunCost cost_;
  std::uint64_t padded_runs_ = 0;
  std::vector<std::int64_t> axes_;  // of the tensors of a result: the padded one, or kNoAxis
};

}  // namespace
}  // namespace hami_tensor

HAMI_REGISTER(
    hami_tensor::Pad, "Pad",
    "axis: int = -1 'negative: from the end'; values: list = '' 'the padding of tensors by name, such as input_ids=1; "
    "others get zeros'; multiple: int = 1 {1..} 'the padded length is a multiple of it'; max_positions: int = 16384 {1..} "
    "'of one run of several requests, with the padding'; tolerance: float = 0.005 'largest difference of a padded result, "
    "relative to its largest number'; run_cost: float? 'fixed cost of a run, as the number of positions that take as long; "
    "default: learned from the runs'",
    "Runs requests of unequal length together, padded to the longest of a run, where that is faster.\n"
    "The first padded runs, and some later ones, are compared with a request that runs alone: padding that changes a result\n"
    "ends. Results have the length of their own request.");
