// Pad: runs requests of unequal length together in an engine, padded to the longest of a run, where that is faster and where
// a comparison with real requests has shown that it does not change their results.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>

#include "padding.hpp"
#include "padding_evidence.hpp"
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
  static constexpr std::size_t kMaxForms = 64;  // clients may make up any number

  struct Member {
    hami::Dict item;
    hami::Value data;
    TensorItems items;
    Sized size;
    std::string form;
  };
  // Members that follow each other.
  struct Group {
    Member* first;
    Member* last;
    Member* begin() const noexcept { return first; }
    Member* end() const noexcept { return last; }
    std::size_t size() const noexcept { return static_cast<std::size_t>(last - first); }
  };

  // What comparisons have shown for requests with tensors of the same names, types and numbers of axes: a model that is right with
  // the padding of some may be wrong with that of others, such as those without a mask.
  struct Shown {
    PaddingEvidence evidence{static_cast<std::uint64_t>(hami::host().clock_now())};
    std::vector<std::int64_t> axes;  // of the tensors of a result: the padded one, or kNoAxis
  };

  // What comparisons and runs have shown.
  struct Learned {
    explicit Learned(RunCost of_runs) : cost(std::move(of_runs)) {}

    std::atomic<bool> differs{false};  // a comparison has found a difference
    std::mutex mutex;                  // of what follows
    RunCost cost;
    std::map<std::string, Shown> of_forms;

    // Null: nothing yet.
    Shown* find(const std::string& form) noexcept {
      const auto found = of_forms.find(form);
      return found == of_forms.end() ? nullptr : &found->second;
    }
    // Null: there are too many forms, and requests of this one get no padding.
    Shown* add(const std::string& form) { return of_forms.size() < kMaxForms ? &of_forms[form] : find(form); }
  };

  void init_(const hami::Params& params) override {
    axis_ = params.get<std::int64_t>("axis");
    values_ = read_values(params.get<std::vector<std::string>>("values"));
    buckets_ = read_buckets(params.get<std::vector<std::string>>("buckets"));
    multiple_ = params.get<std::int64_t>("multiple");
    if (multiple_ != 1 && !buckets_.empty())
      throw hami::Error(HAMI_FAILED_PRECONDITION,
                        name() + " takes \"buckets\" or \"multiple\", got both; name the multiples as buckets");
    max_positions_ = params.get<std::int64_t>("max_positions");
    tolerance_ = params.get<double>("tolerance");
    learned_ = shared(RunCost(params.get<std::optional<double>>("run_cost").value_or(-1)));
    const std::uint64_t max = engine().range().max;
    joins_ = max != 1;
    max_items_ = max == 0 || max == HAMI_AUTO ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(max);
  }

  // What the scheduler forms batches by: the length that a run pads to its longest.
  double request_cost_(const hami::Dict& item) const override {
    return static_cast<double>(std::max<std::int64_t>(1, padded_length(read(item).size.length)));
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

  std::vector<std::int64_t> read_buckets(const std::vector<std::string>& entries) const {
    std::vector<std::int64_t> buckets;
    for (const std::string& entry : entries) {
      std::int64_t length = 0;
      const char* const last = entry.data() + entry.size();
      const auto [end, error] = std::from_chars(entry.data(), last, length);
      if (error != std::errc() || end != last || length <= (buckets.empty() ? 0 : buckets.back()))
        throw hami::Error(HAMI_FAILED_PRECONDITION,
                          "parameter \"buckets\" of " + name() +
                              " takes lengths from 1 on, each larger than the one before, got " + in_quotes(entry));
      buckets.push_back(length);
    }
    return buckets;
  }

  // The length of a run whose longest request has this length, which is at most the largest bucket.
  std::int64_t padded_length(std::int64_t length) const {
    if (!buckets_.empty()) return *std::lower_bound(buckets_.begin(), buckets_.end(), length);
    return length + (multiple_ - length % multiple_) % multiple_;
  }

  void forward_(hami::Batch batch) override {
    std::vector<Member> members;
    for (hami::Dict& item : batch) {
      try {
        members.push_back(read(item));
        members.back().form = form_of(members.back().items);
      } catch (const hami::Error& error) {
        item.fail(error);
      }
    }
    Member* const end = members.data() + members.size();
    if (!joins_ || !is_safe()) return run_unpadded({members.data(), end});
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
    Member member{item, item.get(kData), read_tensors(item, name()), {}, {}};
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
    if (!buckets_.empty() && member.size.length > buckets_.back())
      throw hami::Error(HAMI_REQUEST, name() + ": " + member.items.name(0) + " is " +
                                          show_tensor(member.items.tensors[0]) + ", longer than the largest bucket, " +
                                          std::to_string(buckets_.back()) + "; add a larger one to \"buckets\"");
    return member;
  }

  static std::string form_of(const TensorItems& items) {
    std::string form = items.show_form();
    for (const hami::Tensor& tensor : items.tensors) {
      const DLDataType type = tensor.dtype();
      for (const std::size_t each : {std::size_t{type.code}, std::size_t{type.bits}, tensor.rank()})
        (form += ' ') += std::to_string(each);
    }
    return form;
  }

  // Runs members, whose lengths increase, in as many groups as take the least time.
  void run_all(Group members) {
    std::vector<Sized> sizes;
    for (const Member& member : members) sizes.push_back({member.size.rows, padded_length(member.size.length)});
    Member* first = members.first;
    for (const std::size_t end : cost().divide(sizes, max_items_, max_positions_)) {
      run({first, members.first + end});
      first = members.first + end;
    }
  }

  void run(Group members) {
    const std::int64_t length = padded_length((members.last - 1)->size.length);
    std::int64_t rows = 0;
    std::int64_t positions = 0;
    for (const Member& member : members) {
      rows += member.size.rows;
      positions += member.size.rows * member.size.length;
    }
    const bool pads = rows * length != positions;
    if (pads && !is_safe()) return run_unpadded(members);  // a group before this one has shown it
    if (pads) {
      Member* const unknown = without_evidence(members, length);
      if (unknown != members.last) return run_compared({members.first, unknown}, {unknown, members.last}, length);
    }
    try {
      pad(members, length);
      time_run(raw_items(members), rows, length);
    } catch (const hami::Error& error) {
      restore(members);
      return run_each(members, error);
    }
    restore(members);
    count("positions", positions);
    if (!pads) return convert(members);
    count("padding", rows * length - positions);
    if (!watch(members, length)) {
      for (const Member& member : members) member.item.erase(kResult);
      return run_unpadded(members);
    }
    unpad(members, length);
  }

  // Moves the members that comparisons say nothing about to the end, and returns the first of them.
  Member* without_evidence(Group members, std::int64_t length) const {
    const std::lock_guard lock(learned_->mutex);
    return std::stable_partition(members.first, members.last, [&](const Member& member) {
      const Shown* const shown = learned_->find(member.form);
      return shown && shown->evidence.suffices(member.size.length, length);
    });
  }

  // Runs each unknown member alone, which gives its result, and copies of them for evidence, with padding, together with
  // the known members, whose results they are.
  void run_compared(Group known, Group unknown, std::int64_t length) {
    for (Member& member : unknown) run_unpadded({&member, &member + 1});
    bool is_done = false;
    try {
      is_done = run_copies(known, unknown, length);
    } catch (const std::bad_alloc&) {
      // The unknown members have their results.
    }
    restore(known);
    if (is_done) return;
    for (const Member& member : known) member.item.erase(kResult);
    run_unpadded(known);
  }

  // False if the known members have no results yet.
  bool run_copies(Group known, Group unknown, std::int64_t length) {
    std::vector<hami::OwnItem> copies;
    std::vector<const Member*> compared;
    std::map<std::string, std::vector<std::int64_t>> own;  // lengths, by the form
    std::int64_t rows = 0;
    for (const Member& member : unknown) {
      if (member.item.error()) continue;
      copies.push_back(copy_of(member, padded_data(member, length)));
      compared.push_back(&member);
      own[member.form].push_back(member.size.length);
      rows += member.size.rows;
    }
    std::int64_t positions = 0;  // of the known members
    std::int64_t known_rows = 0;
    for (const Member& member : known) {
      known_rows += member.size.rows;
      positions += member.size.rows * member.size.length;
    }
    pad(known, length);
    std::vector<hami_dict*> raw = raw_items(known);
    for (const hami::OwnItem& copy : copies) raw.push_back(copy.dict().raw());
    if (raw.empty()) return true;
    std::optional<hami::Error> error;
    try {
      time_run(raw, rows + known_rows, length);
      for (const hami::OwnItem& copy : copies)
        if (!error) error = copy.dict().error();
    } catch (const hami::Error& thrown) {
      error = thrown;
    }
    if (error && known.size() != 0) {  // a known member may have caused it
      run_copies({unknown.first, unknown.first}, unknown, length);
      return false;
    }
    if (error) {
      failed("a run with padding", *error);
      return false;
    }
    for (std::size_t i = 0; i < copies.size(); ++i)
      if (!is_the_same(*compared[i], compared[i]->item, copies[i].dict(), length)) return false;
    {
      const std::lock_guard lock(learned_->mutex);
      for (const auto& [form, lengths] : own)
        if (Shown* const shown = learned_->add(form)) shown->evidence.add(lengths, length);
    }
    if (known.size() == 0) return true;
    count("positions", positions);
    count("padding", known_rows * length - positions);
    unpad(known, length);
    return true;
  }

  void pad(Group members, std::int64_t length) const {
    for (const Member& member : members)
      if (member.size.length != length) member.item[kData] = padded_data(member, length);
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
    return padding_bytes(items, index, number, name());
  }

  void time_run(const std::vector<hami_dict*>& raw, std::int64_t rows, std::int64_t length) {
    const std::int64_t begin = hami::host().clock_now();
    engine().forward(hami::Batch(raw.data(), raw.size()));
    const std::int64_t end = hami::host().clock_now();
    const bool all_ran =
        std::none_of(raw.begin(), raw.end(), [](hami_dict* item) { return hami::Dict(item).error().has_value(); });
    count("runs");
    if (!all_ran) return;
    const std::lock_guard lock(learned_->mutex);
    learned_->cost.learn(rows, length, static_cast<double>(end - begin) * 1e-9);
  }

  RunCost cost() const {
    const std::lock_guard lock(learned_->mutex);
    return learned_->cost;
  }

  static std::vector<hami_dict*> raw_items(Group members) {
    std::vector<hami_dict*> raw;
    for (const Member& member : members)
      if (!member.item.error()) raw.push_back(member.item.raw());
    return raw;
  }

  // Of some runs, compares a member drawn at random with its run alone. False if the results of this run cannot be used.
  bool watch(Group members, std::int64_t length) {
    std::optional<std::size_t> chosen;
    {
      const std::lock_guard lock(learned_->mutex);
      if (Shown* const shown = learned_->find(members.first->form)) chosen = shown->evidence.watched(members.size());
    }
    if (!chosen) return true;
    const Member& member = members.first[*chosen];
    if (member.item.error()) return true;
    const hami::OwnItem own = copy_of(member, member.data);
    std::optional<hami::Error> error;
    try {
      hami_dict* const raw = own.dict().raw();
      engine().forward(hami::Batch(&raw, 1));
      error = own.dict().error();
    } catch (const hami::Error& thrown) {
      error = thrown;
    }
    if (error) failed("a request that runs alone", *error);
    return error ? is_safe() : is_the_same(member, own.dict(), member.item, length);
  }

  static hami::OwnItem copy_of(const Member& member, const hami::Value& data) {
    hami::OwnItem own(member.item);
    for (const std::string& key : member.item.keys())
      if (key != kResult) own.dict()[key] = member.item.get(key);
    own.dict()[kData] = data;
    return own;
  }

  bool is_the_same(const Member& member, const hami::Dict& own, const hami::Dict& with_padding, std::int64_t length) {
    count("padding_compared");
    const std::optional<TensorItems> alone = results(own, name());
    const std::optional<TensorItems> other = results(with_padding, name());
    if (!alone || !other || !alone->same_form(*other)) return differs("a result does not consist of tensors");
    PaddedAxes found = compare(*alone, *other, member.size.length, length, tolerance_);
    if (!found.difference.empty()) return differs(found.difference);
    if (member.size.length == length) return true;  // a request without padding does not show the axes
    const std::lock_guard lock(learned_->mutex);
    if (Shown* const shown = learned_->add(member.form)) shown->axes = std::move(found.axes);
    return true;
  }

  // A comparison could not end. A caller that left, or whose time is over, says nothing about padding.
  void failed(const std::string& what, const hami::Error& error) {
    if (error.code() != HAMI_CANCELLED && error.code() != HAMI_DEADLINE_EXCEEDED)
      differs(what + " fails: " + std::string(error.what()));
  }

  // Ends padding in all instances of the node.
  bool differs(const std::string& why) {
    if (learned_->differs.exchange(true)) return false;  // another instance has said it
    count("padding_differences");
    log(name() + "[" + std::string(engine().label()) + "] does not pad any more: " + why +
        "; requests of equal length still run together");
    return false;
  }

  bool is_safe() const noexcept { return !learned_->differs; }

  // What this shares with the Pad in the same place of the other instances.
  std::shared_ptr<Learned> shared(RunCost cost) const {
    static std::mutex mutex;
    static std::map<std::int64_t, std::weak_ptr<Learned>> of_nodes;  // by the numbers in the stores of pipes
    const std::lock_guard lock(mutex);
    std::weak_ptr<Learned>& of_node = of_nodes[number_of_node()];
    std::shared_ptr<Learned> found = of_node.lock();
    if (found) return found;
    of_node = found = std::make_shared<Learned>(std::move(cost));
    for (auto each = of_nodes.begin(); each != of_nodes.end();)
      each = each->second.expired() ? of_nodes.erase(each) : std::next(each);
    return found;
  }

  std::int64_t number_of_node() const {
    static std::int64_t last = 0;
    const std::string id = "Pad " + std::to_string(number_in_instance()) + " of " + std::string(node());
    try {
      return store().get(id, "number").as_int();
    } catch (const hami::Error& error) {
      if (error.code() != HAMI_NOT_FOUND) throw;
    }
    store().create(id);
    store().insert(id, "number", ++last);
    return last;
  }

  // Which Pad of its instance this is: they have engines of their own, and the instances of a node are made alike.
  std::int64_t number_in_instance() const {
    hami::Dict of_instance = options();
    const std::optional<hami::Value> before = of_instance.find("pads");
    const std::int64_t number = before ? before->as_int() : 0;
    of_instance["pads"] = number + 1;
    return number;
  }

  // Results are tensors, whether they were padded or not.
  void convert(Group members) const {
    for (const Member& member : members)
      if (const std::optional<TensorItems> found = results(member.item, name()))
        member.item[kResult] = found->with({found->tensors.begin(), found->tensors.end()});
  }

  void unpad(Group members, std::int64_t length) {
    for (Member& member : members) {
      if (member.size.length == length) {
        convert({&member, &member + 1});
        continue;
      }
      const std::vector<std::int64_t> axes = padded_axes(member.form);
      const std::optional<TensorItems> found = results(member.item, name());
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
    const std::vector<hami_dict*> raw = raw_items(members);
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

  std::vector<std::int64_t> padded_axes(const std::string& form) const {
    const std::lock_guard lock(learned_->mutex);
    const Shown* const shown = learned_->find(form);
    return shown ? shown->axes : std::vector<std::int64_t>();
  }

  std::int64_t axis_ = -1;
  std::vector<std::pair<std::string, double>> values_;
  std::vector<std::int64_t> buckets_;  // increasing; empty: any length
  std::int64_t multiple_ = 1;
  std::int64_t max_positions_ = 0;
  double tolerance_ = 0;
  bool joins_ = false;
  std::size_t max_items_ = 1;

  std::shared_ptr<Learned> learned_;
};

}  // namespace
}  // namespace hami_tensor

HAMI_REGISTER(
    hami_tensor::Pad, "Pad",
    "axis: int = -1 'negative: from the end'; values: list = '' 'the padding of tensors by name, such as input_ids=1; "
    "others get zeros'; buckets: list = '' 'lengths to which runs are padded, such as 16,32,64: the smallest that fits; "
    "default: the longest of the run'; multiple: int = 1 {1..} 'the padded length is a multiple of it'; max_positions: int = 16384 {1..} "
    "'of one run of several requests, with the padding'; tolerance: float = 0.005 'largest difference of a padded result, "
    "relative to its largest number'; run_cost: float? 'fixed cost of a run, as the number of positions that take as long; "
    "default: learned from the runs'",
    "Runs requests of unequal length together, padded to the longest of a run, where that is faster.\n"
    "Requests get padding only after requests of such lengths have had the same results with it as alone; later, some are\n"
    "compared again. Padding that changes a result ends. Results have the length of their own request.");
