// CatTensor and SplitTensor: the concatenated batch, the part of each request, and which requests fail.
#include "pipes.hpp"
#include "tensors.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

[[maybe_unused]] const bool kGatherDefined = define_tensor_backends();

Keys node(const char* backend) { return {{"backend", text(backend)}, {"max", Value(64)}}; }

Keys failing_as_a_whole(const char* backend) {
  Keys keys = node(backend);
  keys.emplace_back("on_batch_error", text("fail"));
  return keys;
}

Dict rows_of(const Tensor& tensor, std::int64_t request_size = 1) {
  Dict dict = request_of(to_value(tensor));
  dict.enter("request_size", Value(request_size));
  return dict;
}

Dict rows_of(Value data, std::int64_t request_size) {
  Dict dict = request_of(std::move(data));
  dict.enter("request_size", Value(request_size));
  return dict;
}

Tensor result_of(const CallResult& outcome) {
  REQUIRE(outcome.message == "");
  return outcome.result().as_tensor();
}

Tensor one_row() { return tensor_of(kFloat32, {1, 2}, {1, 2}); }
Tensor two_rows() { return tensor_of(kFloat32, {2, 2}, {3, 4, 5, 6}); }

}  // namespace

TEST_CASE("every request of a batch gets the same concatenated tensor") {
  TestPipe pipe(node("CatTensor"));
  const std::vector<CallResult> outcomes = pipe.call_many({rows_of(one_row()), rows_of(two_rows(), 2)});
  const Tensor whole = result_of(outcomes[0]);
  CHECK(show_tensor(*whole) == "float32 [3, 2]");
  CHECK(numbers_of(whole) == Numbers{1, 2, 3, 4, 5, 6});
  CHECK(result_of(outcomes[1]).get() == whole.get());
}

TEST_CASE("the only tensor of a batch is not copied") {
  TestPipe pipe(node("CatTensor"));
  const Tensor given = two_rows();
  CHECK(result_of(pipe.call(rows_of(given, 2)))->data() == given->data());
}

TEST_CASE("concatenation respects strides") {
  TestPipe pipe(node("CatTensor"));
  const Tensor turned = transposed(two_rows());
  const std::vector<CallResult> outcomes = pipe.call_many({rows_of(turned, 2), rows_of(one_row())});
  CHECK(numbers_of(result_of(outcomes[0])) == Numbers{3, 5, 4, 6, 1, 2});
  const Tensor alone = result_of(pipe.call(rows_of(turned, 2)));
  CHECK(alone->is_contiguous());
  CHECK(numbers_of(alone) == Numbers{3, 5, 4, 6});
}

TEST_CASE("stack concatenates tensors without a batch axis, including scalars") {
  TestPipe pipe(node("CatTensor(stack=true)"));
  const Tensor whole = result_of(pipe.call_many({rows_of(two_rows()), rows_of(transposed(two_rows()))})[1]);
  CHECK(show_tensor(*whole) == "float32 [2, 2, 2]");
  CHECK(numbers_of(whole) == Numbers{3, 4, 5, 6, 3, 5, 4, 6});
  const Tensor scalars =
      result_of(pipe.call_many({rows_of(tensor_of(kInt32, {}, {7})), rows_of(tensor_of(kInt32, {}, {8}))})[0]);
  CHECK(show_tensor(*scalars) == "int32 [2]");
  CHECK(numbers_of(scalars) == Numbers{7, 8});
  CHECK(pipe.call(rows_of(two_rows(), 2)).message ==
        "CatTensor(stack=true) takes requests of one item; request_size is 2");
}

TEST_CASE("lists and dicts of tensors are concatenated element by element") {
  TestPipe pipe(node("CatTensor"));
  const auto list = [](double number) {
    return make_list({to_value(tensor_of(kInt64, {1}, {number})), to_value(tensor_of(kUInt8, {1, 1}, {number + 1}))});
  };
  const Value both = pipe.call_many({rows_of(list(1), 1), rows_of(list(5), 1)})[0].result();
  REQUIRE(both.kind() == Kind::kList);
  CHECK(numbers_of(both.as_list().at(0).as_tensor()) == Numbers{1, 5});
  CHECK(show_tensor(*both.as_list().at(1).as_tensor()) == "uint8 [2, 1]");
  CHECK(numbers_of(both.as_list().at(1).as_tensor()) == Numbers{2, 6});

  const auto dict = [](double number) { return make_dict({{"ids", to_value(tensor_of(kInt64, {1}, {number}))}}); };
  const Value named = pipe.call_many({rows_of(dict(3), 1), rows_of(dict(4), 1)})[1].result();
  REQUIRE(named.kind() == Kind::kDict);
  CHECK(named.as_dict().entries()[0].first == "ids");
  CHECK(numbers_of(named.as_dict().entries()[0].second.as_tensor()) == Numbers{3, 4});
}

TEST_CASE("a request with an unsuitable tensor does not fail its batch") {
  TestPipe pipe(failing_as_a_whole("CatTensor"));
  const auto outcomes =
      pipe.call_many({rows_of(one_row()), rows_of(two_rows(), 1), rows_of(text("no tensor"), 1), Dict(),
                      rows_of(make_list({to_value(one_row()), Value(5)}), 1), rows_of(tensor_of(kFloat32, {}, {1})),
                      rows_of(make_dict({{"a", to_value(two_rows())}}), 3)});
  CHECK(numbers_of(result_of(outcomes[0])) == Numbers{1, 2});
  CHECK(outcomes[1].message ==
        "CatTensor: `data` is float32 [2, 2], 2 rows along axis 0, and request_size is 1; they must be equal, or use "
        "stack=true for tensors without a batch axis");
  CHECK(outcomes[1].code == ErrorCode::kRequest);
  CHECK(outcomes[1].notes[0] == "backend CatTensor");
  CHECK(outcomes[2].message ==
        "CatTensor takes a tensor (anything with __dlpack__), or a list or dict of them; `data` is of type str");
  CHECK(outcomes[2].code == ErrorCode::kDataType);
  CHECK(outcomes[3].message == "the request has no `data`; CatTensor takes a tensor");
  CHECK(outcomes[4].message ==
        "CatTensor takes a tensor (anything with __dlpack__), or a list or dict of them; element 1 of `data` is of "
        "type int");
  CHECK(outcomes[5].message ==
        "CatTensor: `data` is float32 [], which has no axis to concatenate along; stack=true adds one");
  CHECK(outcomes[6].message ==
        "CatTensor: \"a\" of `data` is float32 [2, 2], 2 rows along axis 0, and request_size is 3; they must be equal, "
        "or use stack=true for tensors without a batch axis");
}

TEST_CASE("requests that cannot be concatenated run one by one") {
  TestPipe pipe(node("CatTensor"));
  const Tensor wide = tensor_of(kFloat32, {1, 3}, {7, 8, 9});
  const auto outcomes = pipe.call_many({rows_of(one_row()), rows_of(wide)});
  CHECK(numbers_of(result_of(outcomes[0])) == Numbers{1, 2});
  CHECK(numbers_of(result_of(outcomes[1])) == Numbers{7, 8, 9});
}

TEST_CASE("the error names both tensors if requests cannot run one by one") {
  TestPipe pipe(failing_as_a_whole("CatTensor"));
  const auto message = [&](Value second) {
    return pipe.call_many({rows_of(one_row()), rows_of(std::move(second), 1)})[0].message;
  };
  CHECK(message(to_value(tensor_of(kFloat32, {1, 3}, {7, 8, 9}))) ==
        "CatTensor cannot concatenate float32 [1, 2] and float32 [1, 3] in one batch (`data`); only axis 0 may differ");
  CHECK(message(to_value(tensor_of(kFloat64, {1, 2}, {7, 8}))) ==
        "CatTensor cannot concatenate float32 [1, 2] and float64 [1, 2] in one batch (`data`); only axis 0 may differ");
  CHECK(message(make_list({to_value(one_row())})) ==
        "CatTensor cannot concatenate a tensor and a list of 1 tensor in one batch");
  CHECK(message(make_dict({{"a", to_value(one_row())}, {"b", to_value(one_row())}})) ==
        "CatTensor cannot concatenate a tensor and a dict of tensors (a, b) in one batch");
}

TEST_CASE("each request gets its own rows back, in order and without a copy") {
  TestPipe pipe(node("SplitTensor"));
  const Tensor whole = tensor_of(kInt32, {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto outcomes = pipe.call_many({rows_of(whole, 1), rows_of(whole, 2), rows_of(whole, 1)});
  CHECK(numbers_of(result_of(outcomes[0])) == Numbers{0, 1});
  CHECK(numbers_of(result_of(outcomes[1])) == Numbers{2, 3, 4, 5});
  CHECK(numbers_of(result_of(outcomes[2])) == Numbers{6, 7});
  CHECK(result_of(outcomes[1])->data() == whole->data() + 2 * sizeof(std::int32_t));
  CHECK(show_tensor(*result_of(outcomes[0])) == "int32 [1, 2]");
}

TEST_CASE("stack returns the row of a request without the batch axis") {
  TestPipe pipe(node("SplitTensor(stack=true)"));
  const Tensor whole = tensor_of(kInt32, {2, 2}, {0, 1, 2, 3});
  const auto outcomes = pipe.call_many({rows_of(transposed(whole)), rows_of(transposed(whole))});
  CHECK(show_tensor(*result_of(outcomes[1])) == "int32 [2]");
  CHECK(numbers_of(result_of(outcomes[1])) == Numbers{1, 3});
  CHECK(pipe.call(rows_of(whole, 2)).message ==
        "SplitTensor(stack=true) takes requests of one item; request_size is 2");
}

TEST_CASE("lists and dicts of outputs are split element by element") {
  TestPipe pipe(node("SplitTensor"));
  const Value outputs = make_dict(
      {{"boxes", to_value(tensor_of(kFloat32, {2, 1}, {1, 2}))}, {"ids", to_value(tensor_of(kInt64, {2}, {3, 4}))}});
  const Value second = pipe.call_many({rows_of(outputs, 1), rows_of(outputs, 1)})[1].result();
  CHECK(numbers_of(second.as_dict().entries()[0].second.as_tensor()) == Numbers{2});
  CHECK(numbers_of(second.as_dict().entries()[1].second.as_tensor()) == Numbers{4});
  const Value list = make_list({to_value(tensor_of(kInt8, {1}, {9}))});
  CHECK(numbers_of(pipe.call(list).result().as_list().at(0).as_tensor()) == Numbers{9});
}

TEST_CASE("an output that does not have a row for each item is rejected") {
  TestPipe pipe(failing_as_a_whole("SplitTensor"));
  const Tensor whole = tensor_of(kFloat32, {3}, {1, 2, 3});
  CHECK(pipe.call_many({rows_of(whole, 2), rows_of(whole, 2)})[1].message ==
        "SplitTensor: `data` is float32 [3], and the batch needs 4 rows along axis 0 for its 2 requests");
  CHECK(pipe.call(make_list({to_value(tensor_of(kFloat32, {}, {1}))})).message ==
        "SplitTensor: element 0 of `data` is float32 [], and the batch needs 1 row along axis 0 for its 1 request");
  CHECK(pipe.call(Dict()).message == "the request has no `data`; SplitTensor takes a tensor");
  CHECK(pipe.call(Value()).message ==
        "SplitTensor takes a tensor (anything with __dlpack__), or a list or dict of them; `data` is of type None");
}

TEST_CASE("CatSplit with tensors gives every request the same result as a run alone") {
  const auto calls = std::make_shared<Latch>();
  define("TestDoubled", [calls](Batch batch, const Params&) {
    calls->add();
    for (Request* request : batch) {
      const Tensor in = request->dict.find(kData)->as_tensor();
      std::vector<double> numbers = numbers_of(in);
      for (double& one : numbers) one *= 2;
      answer(*request, to_value(tensor_of(kFloat32, in->shape(), numbers)));
    }
  });
  TestPipe pipe(node("CatSplit[S[FixTensor(shape='-1,2'),CatTensor],S[ContiguousTensor,TestDoubled],SplitTensor]"));
  const auto outcomes =
      pipe.call_many({rows_of(one_row()), rows_of(tensor_of(kFloat32, {1, 3}, {1, 2, 3})), rows_of(two_rows(), 2)});
  CHECK(numbers_of(result_of(outcomes[0])) == Numbers{2, 4});
  CHECK(outcomes[1].message == "FixTensor takes [-1, 2], got float32 [1, 3]");
  CHECK(numbers_of(result_of(outcomes[2])) == Numbers{6, 8, 10, 12});
  CHECK(calls->count() == 1);
}
