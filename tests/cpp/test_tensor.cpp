// Tensors as values: memory, views, lifetimes, names of types, and what is refused.
#include <cmath>
#include <cstdint>
#include <limits>
#include <thread>

#include "tensors.hpp"

using namespace hami;
using namespace hami::testing;

namespace {

// A tensor of another library: counts how often it is released.
struct Foreign {
  std::int64_t shape[2] = {2, 3};
  float numbers[6] = {1, 2, 3, 4, 5, 6};
  int let_go = 0;
  DLManagedTensorVersioned managed{};

  Foreign() {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->let_go; };
    managed.dl_tensor = {numbers, {kDLCPU, 0}, 2, kFloat32, shape, nullptr, 0};
  }
};

class Picture final : public OpaqueObject {
 public:
  explicit Picture(Value tensor) : OpaqueObject("test.picture"), tensor_(std::move(tensor)) {}
  std::string type_name() const override { return "test.Picture"; }
  Value to_tensor() const override { return tensor_; }

 private:
  Value tensor_;
};

}  // namespace

TEST_CASE("a tensor of our own is aligned, contiguous and of the CPU") {
  const Tensor tensor = make_tensor({4, 3, 224, 224}, kFloat32);
  CHECK(reinterpret_cast<std::uintptr_t>(tensor->data()) % 64 == 0);
  CHECK(tensor->count() == 4 * 3 * 224 * 224);
  CHECK(tensor->bytes() == 4 * tensor->count());
  CHECK(tensor->strides() == Shape{3 * 224 * 224, 224 * 224, 224, 1});
  CHECK(tensor->is_contiguous());
  CHECK_FALSE(tensor->is_read_only());
  CHECK(show_device(tensor->device()) == "cpu");
  CHECK(show_tensor(*tensor) == "float32 [4, 3, 224, 224]");
  CHECK(to_value(tensor).kind() == Kind::kTensor);
}

TEST_CASE("tensors without an axis have one element, tensors with an empty one have none") {
  const Tensor scalar = tensor_of(kInt64, {}, {7});
  CHECK(scalar->count() == 1);
  CHECK(scalar->is_contiguous());
  CHECK(show_tensor(*scalar) == "int64 []");
  CHECK(numbers_of(copy(scalar)) == Numbers{7});
  const Tensor empty = make_tensor({2, 0, 3}, kFloat16);
  CHECK(empty->count() == 0);
  CHECK(empty->bytes() == 0);
  CHECK(empty->is_contiguous());
  CHECK(copy(empty)->shape() == Shape{2, 0, 3});
  const std::int64_t huge = std::int64_t{1} << 62;
  CHECK(make_tensor({0, huge, huge, huge}, kFloat64)->count() == 0);
}

TEST_CASE("shapes of no possible size are refused") {
  const std::int64_t huge = std::int64_t{1} << 62;
  CHECK_THROWS_WITH_AS(make_tensor({huge, 16}, kUInt8),
                       "a tensor of shape [4611686018427387904, 16] is larger than the address space", Error);
  CHECK_THROWS_WITH_AS(make_tensor({0, -2}, kUInt8), "a tensor of shape [0, -2]: no axis can be shorter than 0", Error);
}

TEST_CASE("a slice shares memory and keeps its owner alive") {
  Tensor slice;
  {
    const Tensor whole = tensor_of(kFloat32, {3, 2}, {0, 1, 2, 3, 4, 5});
    slice = slice_rows(whole, 1, 2);
    CHECK(slice->data() == whole->data() + 2 * sizeof(float));
  }
  CHECK(slice->shape() == Shape{2, 2});
  CHECK(numbers_of(slice) == Numbers{2, 3, 4, 5});
  const Tensor row = slice_rows(slice, 1, 1);
  slice = Tensor();
  CHECK(numbers_of(row) == Numbers{4, 5});
}

TEST_CASE("copies of views have no gaps") {
  const Tensor whole = tensor_of(kInt16, {2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Tensor turned = transposed(whole);
  CHECK(turned->shape() == Shape{3, 2, 2});
  CHECK_FALSE(turned->is_contiguous());
  CHECK(contiguous(whole).get() == whole.get());
  const Tensor solid = contiguous(turned);
  CHECK(solid->is_contiguous());
  CHECK(numbers_of(solid) == Numbers{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11});
  const Tensor backwards = make_view(whole, {4}, {-3}, 11);
  CHECK(numbers_of(backwards) == Numbers{11, 8, 5, 2});
  const Tensor same_row = make_view(whole, {2, 2}, {0, 1}, 4);
  CHECK(numbers_of(same_row) == Numbers{4, 5, 4, 5});
  CHECK(make_view(whole, {1, 12}, {99, 1})->is_contiguous());
}

TEST_CASE("a foreign tensor is used in place and released once, on any thread") {
  Foreign foreign;
  foreign.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  foreign.managed.dl_tensor.byte_offset = 4;
  foreign.shape[1] = 2;
  Tensor tensor = TensorObject::adopt(&foreign.managed);
  CHECK(tensor->data() == reinterpret_cast<char*>(foreign.numbers + 1));
  CHECK(tensor->strides() == Shape{2, 1});
  CHECK(numbers_of(tensor) == Numbers{2, 3, 4, 5});
  CHECK(tensor->is_read_only());
  Tensor view = slice_rows(tensor, 0, 1);
  CHECK(view->is_read_only());
  CHECK_FALSE(copy(view)->is_read_only());
  tensor = Tensor();
  CHECK(foreign.let_go == 0);
  std::thread([last = std::exchange(view, Tensor())]() mutable { last = Tensor(); }).join();
  CHECK(foreign.let_go == 1);
}

TEST_CASE("an exported tensor lives until its deleter is called") {
  Foreign foreign;
  DLManagedTensorVersioned* exported =
      export_tensor(TensorObject::adopt(&foreign.managed), DLPACK_FLAG_BITMASK_IS_COPIED);
  CHECK(exported->version.major == 1);
  CHECK(exported->flags == DLPACK_FLAG_BITMASK_IS_COPIED);
  CHECK(exported->dl_tensor.data == foreign.numbers);
  CHECK(exported->dl_tensor.ndim == 2);
  CHECK(exported->dl_tensor.strides[0] == 3);
  CHECK(foreign.let_go == 0);
  exported->deleter(exported);
  CHECK(foreign.let_go == 1);
}

TEST_CASE("a struct that cannot be imported is released, and the error says why") {
  Foreign foreign;
  const auto refused = [&](const char* why) {
    CHECK_THROWS_WITH_AS(TensorObject::adopt(&foreign.managed), why, Error);
    CHECK(foreign.let_go == 1);
  };
  SUBCASE("another major version") {
    foreign.managed.version = {2, 3};
    refused("the tensor is of DLPack 2.3; this hami-core reads DLPack 1");
  }
  SUBCASE("another device") {
    foreign.managed.dl_tensor.device = {kDLCUDA, 1};
    refused("the tensor is on cuda:1; the core reads tensors in CPU memory only: put CpuTensor before it");
  }
  SUBCASE("an unknown device") {
    foreign.managed.dl_tensor.device = {static_cast<DLDeviceType>(77), 0};
    refused("the tensor is on device type 77:0; the core reads tensors in CPU memory only: put CpuTensor before it");
  }
  SUBCASE("parts of bytes") {
    foreign.managed.dl_tensor.dtype = dtype(kDLFloat4_e2m1fn, 4);
    refused("a tensor of float4_e2m1fn: elements must be whole bytes");
  }
  SUBCASE("no shape") {
    foreign.managed.dl_tensor.shape = nullptr;
    refused("a DLPack tensor without a shape");
  }
  SUBCASE("no memory") {
    foreign.managed.dl_tensor.data = nullptr;
    refused("a DLPack tensor without memory");
  }
  SUBCASE("a negative axis") {
    foreign.shape[0] = -1;
    refused("a tensor of shape [-1, 3]: no axis can be shorter than 0");
  }
}

TEST_CASE("memory of the host that a GPU's driver has pinned is taken") {
  Foreign foreign;
  foreign.managed.dl_tensor.device = {kDLCUDAHost, 0};
  CHECK(show_device(TensorObject::adopt(&foreign.managed)->device()) == "cuda_host:0");
}

TEST_CASE("values give their tensor, or say what they are instead") {
  const Tensor tensor = make_tensor({2}, kFloat32);
  CHECK(to_value(tensor).as_tensor().get() == tensor.get());
  CHECK(Value::adopt(new Picture(to_value(tensor))).as_tensor().get() == tensor.get());
  CHECK_THROWS_WITH_AS(Value::adopt(new Picture({})).as_tensor(), "expected a tensor, got test.Picture", Error);
  CHECK_THROWS_WITH_AS(Value("text").as_tensor(), "expected a tensor, got str", Error);
  CHECK_THROWS_WITH_AS(Value().as_tensor(), "expected a tensor, got None", Error);
  CHECK_THROWS_WITH_AS(to_value(tensor).as_dict(), "expected dict, got tensor", Error);
}

TEST_CASE("names of element types go both ways") {
  for (const char* name : {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
                           "float32", "float64", "bfloat16", "complex64", "complex128", "float8_e3m4", "float8_e4m3fn",
                           "float8_e5m2", "float8_e8m0fnu"}) {
    REQUIRE(dtype_of(name));
    CHECK(dtype_name(*dtype_of(name)) == name);
  }
  for (const char* name : {"", "float", "float31", "Float32", "float4_e2m1fn", "float32x4"})
    CHECK_FALSE(dtype_of(name));
  CHECK(dtype_name({kDLFloat, 32, 4}) == "float32x4");
  CHECK(dtype_name({200, 8, 1}) == "dtype(code 200, 8 bits)");
}

TEST_CASE("a cast is safe if no value can be lost") {
  const auto safe = [](const char* from, const char* to) { return casts_safely(*dtype_of(from), *dtype_of(to)); };
  for (const char* to : {"uint8", "int8", "bfloat16", "float16", "float64"}) CHECK(safe("bool", to));
  for (const char* to : {"uint16", "int16", "int64", "float16", "bfloat16", "float32"}) CHECK(safe("uint8", to));
  for (const char* to : {"int8", "bool"}) CHECK_FALSE(safe("uint8", to));
  CHECK(safe("int16", "float32"));
  CHECK_FALSE(safe("int16", "float16"));
  CHECK_FALSE(safe("int8", "uint16"));
  CHECK(safe("int32", "float64"));
  CHECK_FALSE(safe("int32", "float32"));
  CHECK_FALSE(safe("int64", "float64"));
  CHECK(safe("float16", "float32"));
  CHECK(safe("bfloat16", "float32"));
  CHECK(safe("float32", "float64"));
  CHECK_FALSE(safe("float64", "float32"));
  CHECK_FALSE(safe("float16", "bfloat16"));
  CHECK_FALSE(safe("float32", "int64"));
  CHECK_FALSE(safe("complex64", "complex128"));
  CHECK(safe("complex64", "complex64"));
}

TEST_CASE("every half and every bfloat16 survives the way to float and back") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const float half = half_to_float(stored);
    const float bfloat = bfloat_to_float(stored);
    if (std::isnan(half))
      REQUIRE(std::isnan(half_to_float(float_to_half(half))));
    else
      REQUIRE(float_to_half(half) == stored);
    if (std::isnan(bfloat))
      REQUIRE(std::isnan(bfloat_to_float(float_to_bfloat(bfloat))));
    else
      REQUIRE(float_to_bfloat(bfloat) == stored);
  }
}

TEST_CASE("halves are rounded to the nearest, ties to even") {
  CHECK(half_to_float(0x3c00) == 1.0f);
  CHECK(half_to_float(0x0001) == 0x1p-24f);
  CHECK(half_to_float(0xfbff) == -65504.0f);
  CHECK(float_to_half(1.0f + 0x1p-11f) == 0x3c00);    // halfway: to the even one below
  CHECK(float_to_half(1.0f + 0x1.8p-10f) == 0x3c02);  // halfway: to the even one above
  CHECK(float_to_half(1.0f + 0x1.02p-11f) == 0x3c01);
  CHECK(float_to_half(65519.0f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(-std::numeric_limits<float>::infinity()) == 0xfc00);
  CHECK(float_to_half(0x1p-25f) == 0x0000);
  CHECK(float_to_half(-0x1.8p-25f) == 0x8001);
  CHECK(float_to_half(0x1.ffcp-15f) == 0x0400);  // the largest subnormal's upper neighbour is the smallest normal
  CHECK(float_to_bfloat(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(float_to_bfloat(1.0f + 0x1.8p-7f) == 0x3f82);
}
