// The pipe's store as a plugin reaches it.
#include <any>

#include "plugin/handles.hpp"
#include "plugin/host_table.hpp"

namespace hami {
namespace {

StoreId id_in(const hami_value& raw) {
  const Value id = borrow(raw);
  if (id.kind() == Kind::kInt) return id.as_int();
  if (id.kind() == Kind::kStr) return id.as_text();
  throw Error(ErrorCode::kDataType, "the store is asked by an int or a str, got " + type_name(id));
}

// The store knows no hami::Error.
template <class Body>
hami_error* stored(const hami_context* context, Body&& body) {
  return guarded([&] {
    try {
      body(context->pipe->resources.store());
    } catch (const RequestStore::NotFound& error) {
      throw Error(ErrorCode::kNotFound, error.what());
    } catch (const RequestStore::AlreadyExists& error) {
      throw Error(ErrorCode::kAlreadyExists, error.what());
    }
  });
}

hami_value value_of(const std::any& kept) {
  if (const Value* value = std::any_cast<Value>(&kept)) return release_to_abi(*value);
  throw Error(ErrorCode::kDataType, "what is stored there is the core's own");
}

}  // namespace

void add_store(hami_host& host) {
  host.store_create = [](hami_context* context, const hami_value* request) {
    return stored(context, [&](RequestStore& store) { store.create(id_in(*request)); });
  };
  host.store_insert = [](hami_context* context, const hami_value* request, const hami_value* key,
                         const hami_value* value) {
    return stored(context, [&](RequestStore& store) {
      store.insert(id_in(*request), id_in(*key), borrow(*value));
    });
  };
  host.store_get = [](hami_context* context, const hami_value* request, const hami_value* key, hami_value* out) {
    return stored(context, [&](RequestStore& store) { *out = value_of(store.at(id_in(*request), id_in(*key))); });
  };
  host.store_take = [](hami_context* context, const hami_value* request, const hami_value* key, hami_value* out) {
    return stored(context, [&](RequestStore& store) { *out = value_of(store.take(id_in(*request), id_in(*key))); });
  };
  host.store_remove = [](hami_context* context, const hami_value* request) {
    return stored(context, [&](RequestStore& store) {
      const StoreId id = id_in(*request);
      if (!store.remove(id)) throw Error(ErrorCode::kNotFound, "there is no request " + id.show());
    });
  };
}

}  // namespace hami
