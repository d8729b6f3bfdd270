// FixTensor, ContiguousTensor, SoftmaxTensor, ArgMaxTensor, TopKTensor: their results and errors.
#include <cmath>
#include <limits>

#include "pipes.hpp"
#include "tensors.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

[[maybe_unused]] const bool kDefined = define_tensor_backends();

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

CallResult run(const std::string& backend, Value data) {
  TestPipe pipe(Keys{{"backend", text(backend.c_str())}});
  return pipe.call(std::move(data));
}

CallResult run(const std::string& backend, const Tensor& data) { return run(backend, to_value(data)); }

Tensor tensor_from(const std::string& backend, const Tensor& data) {
  const CallResult outcome = run(backend, data);
  REQUIRE(outcome.message == "");
  return outcome.result().as_tensor();
}

std::string build_error(const std::string& backend) {
  try {
    const TestPipe pipe(Keys{{"backend", text(backend.c_str())}});
  } catch (const Error& error) {
    return error.message();
  } catch (const PlanProblems& found) {
    return found.problems.at(0).message();
  }
  return "";
}

bool near(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance; }

Tensor scores() { return tensor_of(kFloat32, {2, 3}, {1, 3, 2, 9, 7, 8}); }

}  // namespace

TEST_CASE("FixTensor passes a matching tensor unchanged") {
  const Tensor given = scores();
  for (const char* backend :
       {"FixTensor", "FixTensor(shape='2,3')", "FixTensor('-1,3',float32)", "FixTensor(dtype=float32)"})
    CHECK(tensor_from(backend, given).get() == given.get());
  CHECK(tensor_from("FixTensor(shape='')", tensor_of(kInt8, {}, {1}))->rank() == 0);
}

TEST_CASE("FixTensor casts if no value can be lost") {
  const Tensor cast =
      tensor_from("FixTensor(dtype=float32)", transposed(tensor_of(kUInt8, {2, 3}, {0, 1, 2, 3, 4, 255})));
  CHECK(show_tensor(*cast) == "float32 [3, 2]");
  CHECK(numbers_of(cast) == Numbers{0, 3, 1, 4, 2, 255});
  const Tensor wide = tensor_from("FixTensor(dtype=float64)", tensor_of(kFloat16, {3}, {0.5, -2, 65504}));
  CHECK(numbers_of(wide) == Numbers{0.5, -2, 65504});
  CHECK(numbers_of(tensor_from("FixTensor(dtype=int64)", tensor_of(kInt8, {2}, {-128, 127}))) == Numbers{-128, 127});
  CHECK(numbers_of(tensor_from("FixTensor(dtype=bfloat16)", tensor_of(kBool8, {2}, {0, 1}))) == Numbers{0, 1});
  CHECK(tensor_from("FixTensor(dtype=float32)", make_tensor({0, 3}, kUInt8))->shape() == Shape{0, 3});
}

TEST_CASE("an error of FixTensor names the expected and the given tensor") {
  const CallResult shape = run("FixTensor(shape='-1,3,224,224',dtype=float32)", make_tensor({3, 224, 224}, kUInt8));
  CHECK(shape.message == "FixTensor takes float32 [-1, 3, 224, 224], got uint8 [3, 224, 224]");
  CHECK(shape.code == ErrorCode::kRequest);
  CHECK(shape.notes[0] == "backend FixTensor");
  CHECK(run("FixTensor(shape='2,2')", scores()).message == "FixTensor takes [2, 2], got float32 [2, 3]");
  const CallResult type = run("FixTensor(dtype=float16)", scores());
  CHECK(type.message == "FixTensor takes float16, got float32 [2, 3]; a cast from float32 would lose values");
  CHECK(type.code == ErrorCode::kDataType);
  CHECK(run("FixTensor", text("x")).message ==
        "FixTensor takes a tensor (anything with __dlpack__), or a list or dict of them; `data` is of type str");
}

TEST_CASE("invalid parameters of FixTensor fail the build of the pipe") {
  CHECK(build_error("FixTensor(dtype=float31)") == "parameter \"dtype\" of FixTensor: unknown type \"float31\"");
  CHECK(build_error("FixTensor(shape='3,any')") ==
        "parameter \"shape\" of FixTensor takes sizes from 0 on, or -1 for any, got \"any\"");
  CHECK(build_error("FixTensor(shape='-2')") ==
        "parameter \"shape\" of FixTensor takes sizes from 0 on, or -1 for any, got \"-2\"");
}

TEST_CASE("ContiguousTensor copies only tensors that are not contiguous") {
  const Tensor given = scores();
  CHECK(tensor_from("ContiguousTensor", given).get() == given.get());
  const Tensor solid = tensor_from("ContiguousTensor", transposed(scores()));
  CHECK(solid->is_contiguous());
  CHECK(numbers_of(solid) == Numbers{1, 9, 3, 7, 2, 8});
}

TEST_CASE("every tensor backend takes lists and dicts of tensors") {
  const Value list =
      run("ArgMaxTensor", make_list({to_value(scores()), to_value(tensor_of(kInt8, {2}, {1, 2}))})).result();
  CHECK(numbers_of(list.as_list().at(0).as_tensor()) == Numbers{1, 0});
  CHECK(numbers_of(list.as_list().at(1).as_tensor()) == Numbers{1});
  const Value dict = run("SoftmaxTensor", make_dict({{"a", to_value(tensor_of(kFloat64, {1}, {4}))}})).result();
  CHECK(numbers_of(dict.as_dict().entries()[0].second.as_tensor()) == Numbers{1});
  CHECK(run("SoftmaxTensor", make_list({})).result().as_list().size() == 0);
  CHECK(run("SoftmaxTensor", make_list({to_value(scores()), text("x")})).message ==
        "SoftmaxTensor takes a tensor (anything with __dlpack__), or a list or dict of them; element 1 of `data` is of "
        "type str");
}

TEST_CASE("softmax sums to one and keeps the dtype") {
  struct Case {
    DLDataType type;
    double tolerance;
  };
  for (const Case& one : {Case{kFloat32, 1e-7}, Case{kFloat64, 1e-15}, Case{kFloat16, 5e-4}, Case{kBFloat16, 4e-3}}) {
    const Tensor shares = tensor_from("SoftmaxTensor", tensor_of(one.type, {2, 2}, {0, 1, 500, 500}));
    CHECK(same_dtype(shares->dtype(), one.type));
    const Numbers numbers = numbers_of(shares);
    CHECK(near(numbers[0], 1 / (1 + std::exp(1.0)), one.tolerance));
    CHECK(near(numbers[1], std::exp(1.0) / (1 + std::exp(1.0)), one.tolerance));
    CHECK(numbers[2] == 0.5);
    CHECK(numbers[3] == 0.5);
  }
}

TEST_CASE("softmax works along any axis and with any strides") {
  const Tensor columns = tensor_of(kFloat32, {2, 3}, {5, 5, 5, 5, 5, 5});
  CHECK(numbers_of(tensor_from("SoftmaxTensor(axis=0)", columns)) == Numbers{0.5, 0.5, 0.5, 0.5, 0.5, 0.5});
  const Tensor peaks = tensor_of(kFloat64, {2, 1, 2}, {0, 1000, 1000, 0});
  CHECK(numbers_of(tensor_from("SoftmaxTensor", transposed(peaks))) == Numbers{0, 1, 1, 0});
  CHECK(numbers_of(tensor_from("SoftmaxTensor(axis=1)", transposed(peaks))) == Numbers{0, 1, 1, 0});
  CHECK(numbers_of(tensor_from("SoftmaxTensor(axis=-3)", transposed(peaks))) == Numbers{1, 1, 1, 1});
}

TEST_CASE("softmax handles infinities and NaN") {
  CHECK(numbers_of(tensor_from("SoftmaxTensor", tensor_of(kFloat32, {2}, {-kInf, 3}))) == Numbers{0, 1});
  for (const Numbers& poisoned : {Numbers{kNaN, 1}, Numbers{1, kNaN}, Numbers{-kInf, -kInf}})
    for (double one : numbers_of(tensor_from("SoftmaxTensor", tensor_of(kFloat32, {2}, poisoned))))
      CHECK(std::isnan(one));
}

TEST_CASE("argmax returns the first of the largest elements and removes the axis") {
  const Tensor found = tensor_from("ArgMaxTensor", scores());
  CHECK(show_tensor(*found) == "int64 [2]");
  CHECK(numbers_of(found) == Numbers{1, 0});
  CHECK(numbers_of(tensor_from("ArgMaxTensor(axis=0)", scores())) == Numbers{1, 1, 1});
  CHECK(numbers_of(tensor_from("ArgMaxTensor(axis=0)", transposed(scores()))) == Numbers{1, 0});
  CHECK(show_tensor(*tensor_from("ArgMaxTensor", tensor_of(kUInt8, {3}, {4, 9, 9}))) == "int64 []");
  CHECK(numbers_of(tensor_from("ArgMaxTensor", tensor_of(kUInt8, {3}, {4, 9, 9}))) == Numbers{1});
  CHECK(numbers_of(tensor_from("ArgMaxTensor", tensor_of(kInt64, {3}, {-4, -9, -2}))) == Numbers{2});
  CHECK(numbers_of(tensor_from("ArgMaxTensor", tensor_of(kFloat16, {4}, {1, kNaN, kInf, kNaN}))) == Numbers{1});
  CHECK(tensor_from("ArgMaxTensor", make_tensor({0, 3}, kFloat32))->shape() == Shape{0});
}

TEST_CASE("argmax distinguishes integers that are equal as doubles") {
  const Tensor large = make_tensor({2}, kInt64);
  const std::int64_t numbers[] = {9007199254740992, 9007199254740993};
  std::memcpy(large->data(), numbers, sizeof numbers);
  CHECK(numbers_of(tensor_from("ArgMaxTensor", large)) == Numbers{1});
}

TEST_CASE("topk returns values and indices, largest first, the first of equal elements first") {
  const Value both = run("TopKTensor(2)", tensor_of(kInt16, {2, 4}, {5, 7, 7, 1, -1, -3, -2, -1})).result();
  REQUIRE(both.kind() == Kind::kDict);
  const auto& entries = both.as_dict().entries();
  CHECK(entries[0].first == "values");
  CHECK(entries[1].first == "indices");
  CHECK(show_tensor(*entries[0].second.as_tensor()) == "int16 [2, 2]");
  CHECK(show_tensor(*entries[1].second.as_tensor()) == "int64 [2, 2]");
  CHECK(numbers_of(entries[0].second.as_tensor()) == Numbers{7, 7, -1, -1});
  CHECK(numbers_of(entries[1].second.as_tensor()) == Numbers{1, 2, 0, 3});

  const auto& columns = run("TopKTensor(k=1,axis=0)", transposed(scores())).result();
  CHECK(numbers_of(columns.as_dict().entries()[0].second.as_tensor()) == Numbers{3, 9});
  CHECK(numbers_of(columns.as_dict().entries()[1].second.as_tensor()) == Numbers{1, 0});

  const auto& strange = run("TopKTensor(3)", tensor_of(kFloat32, {4}, {1, kInf, kNaN, -1})).result();
  CHECK(numbers_of(strange.as_dict().entries()[1].second.as_tensor()) == Numbers{2, 1, 0});

  const auto& empty = run("TopKTensor(2)", make_tensor({0, 2}, kFloat64)).result();
  CHECK(empty.as_dict().entries()[0].second.as_tensor()->shape() == Shape{0, 2});
}

TEST_CASE("unsuitable tensors for scores are errors with the reason") {
  struct Case {
    const char* backend;
    Tensor data;
    const char* message;
    ErrorCode code;
  };
  const Tensor complex = make_tensor({2}, dtype(kDLComplex, 64));
  const Tensor eighths = make_tensor({2}, dtype(kDLFloat8_e4m3fn, 8));
  const Tensor scalar = tensor_of(kFloat32, {}, {1});
  for (const Case& one : {
           Case{"SoftmaxTensor", tensor_of(kInt64, {1}, {1}),
                "SoftmaxTensor takes floating point numbers (float16, bfloat16, float32, float64), got int64 [1]",
                ErrorCode::kDataType},
           Case{"ArgMaxTensor", complex, "ArgMaxTensor takes real numbers, got complex64 [2]", ErrorCode::kDataType},
           Case{"TopKTensor(1)", eighths, "TopKTensor takes real numbers, got float8_e4m3fn [2]", ErrorCode::kDataType},
           Case{"SoftmaxTensor", scalar, "SoftmaxTensor works along axis -1, which float32 [] does not have",
                ErrorCode::kRequest},
           Case{"ArgMaxTensor", scalar, "ArgMaxTensor works along axis -1, which float32 [] does not have",
                ErrorCode::kRequest},
           Case{"TopKTensor(1)", scalar, "TopKTensor works along axis -1, which float32 [] does not have",
                ErrorCode::kRequest},
           Case{"ArgMaxTensor(axis=2)", scores(), "ArgMaxTensor works along axis 2, which float32 [2, 3] does not have",
                ErrorCode::kRequest},
           Case{"ArgMaxTensor", make_tensor({2, 0}, kFloat32), "ArgMaxTensor: axis -1 of float32 [2, 0] is empty",
                ErrorCode::kRequest},
           Case{"TopKTensor(4)", scores(), "TopKTensor: k is 4, and axis -1 of float32 [2, 3] has 3",
                ErrorCode::kRequest},
       }) {
    const CallResult outcome = run(one.backend, one.data);
    CHECK(outcome.message == one.message);
    CHECK(outcome.code == one.code);
  }
  CHECK(tensor_from("SoftmaxTensor", make_tensor({2, 0}, kFloat32))->count() == 0);
  CHECK(build_error("TopKTensor(0)") ==
        "parameter \"k\" of TopKTensor takes int of at least 1, got \"0\"\n"
        "  in  TopKTensor(0)   (node \"n\")\n"
        "                 ^");
}

TEST_CASE("a request with an unsuitable tensor does not fail its batch") {
  TestPipe pipe(Keys{{"backend", text("TopKTensor(3)")}, {"max", Value(8)}, {"on_batch_error", text("fail")}});
  const auto outcomes =
      pipe.call_many({request_of(to_value(scores())), request_of(to_value(tensor_of(kInt8, {1}, {1}))),
                      request_of(to_value(scores()))});
  CHECK(outcomes[0].good);
  CHECK(outcomes[1].message == "TopKTensor: k is 3, and axis -1 of int8 [1] has 1");
  CHECK(outcomes[2].good);
}
