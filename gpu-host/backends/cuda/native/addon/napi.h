// The part of Node-API that the addon needs: every call is checked, and C++ exceptions are converted to JavaScript exceptions and back.
#pragma once
#ifndef NAPI_VERSION
#define NAPI_VERSION 8
#endif
#include <node_api.h>
#include <cstdint>
#include <string>
#include <type_traits>
#include "../engine/engine.h"

namespace pie::js {

// Thrown when a JavaScript exception is already pending.
struct Pending {};

// Throws Pending, with a JavaScript exception set, unless `status` is napi_ok.
void check(napi_env env, napi_status status);
// Throws EngineError "invalid".
[[noreturn]] void refuse(const std::string& what);

// A JavaScript Error with `code`.
napi_value makeError(napi_env env, const std::string& code, const std::string& message);

// Runs `body`. Converts its exception to a JavaScript exception and then returns undefined.
template <typename Body>
napi_value guarded(napi_env env, Body body) {
  const auto raise = [env](const std::string& code, const std::string& message) -> napi_value {
    napi_throw(env, makeError(env, code, message));
    return nullptr;
  };
  try {
    return body();
  } catch (const Pending&) {
    return nullptr;
  } catch (const EngineError& error) {
    return raise(error.code, error.what());
  } catch (const std::bad_alloc&) {
    return raise("out-of-memory", "the host is out of memory");
  } catch (const std::exception& error) {
    // A bug: invalid arguments are refused with an EngineError.
    return raise("internal", error.what());
  }
}

// Arguments of a call, and its `this`.
struct Arguments {
  static constexpr size_t MOST = 6;
  napi_value self;
  size_t count = MOST;
  napi_value values[MOST];
  Arguments(napi_env env, napi_callback_info info);
};

napi_value undefined(napi_env env);
napi_value number(napi_env env, double value);
napi_value boolean(napi_env env, bool value);
napi_value text(napi_env env, const std::string& value);
napi_value object(napi_env env);
void set(napi_env env, napi_value object, const char* name, napi_value value);
void setFunction(napi_env env, napi_value object, const char* name, napi_callback callback);

bool isUndefined(napi_env env, napi_value value);
// An integer from `least` to `most`. `what` names the value in the error.
int64_t integer(napi_env env, napi_value value, const char* what, int64_t least, int64_t most);
std::string string(napi_env env, napi_value value, const char* what);
// Accessors of properties.
napi_value get(napi_env env, napi_value object, const char* name);
int getInt(napi_env env, napi_value object, const char* name, int least = 0);
size_t getSize(napi_env env, napi_value object, const char* name);
double getNumber(napi_env env, napi_value object, const char* name);
bool getBoolean(napi_env env, napi_value object, const char* name);
std::string getString(napi_env env, napi_value object, const char* name);
uint32_t length(napi_env env, napi_value array, const char* what);
napi_value element(napi_env env, napi_value array, uint32_t index);

// The memory of a typed array; valid only during the call.
template <typename T>
struct View {
  T* data;
  size_t count;
};

template <typename T>
constexpr napi_typedarray_type typedArrayType() {
  if constexpr (std::is_same_v<T, float>) return napi_float32_array;
  else if constexpr (std::is_same_v<T, double>) return napi_float64_array;
  else if constexpr (std::is_same_v<T, uint32_t>) return napi_uint32_array;
  else if constexpr (std::is_same_v<T, int32_t>) return napi_int32_array;
  else {
    static_assert(std::is_same_v<T, uint8_t>);
    return napi_uint8_array;
  }
}

View<void> viewOf(napi_env env, napi_value value, napi_typedarray_type type, const char* what);

// Throws EngineError "invalid" for another element type, or for another length than `count` (if not negative).
template <typename T>
View<T> view(napi_env env, napi_value value, const char* what, int64_t count = -1) {
  const View<void> found = viewOf(env, value, typedArrayType<T>(), what);
  if (count >= 0 && found.count != size_t(count))
    refuse(std::to_string(found.count) + " " + what + " where " + std::to_string(count) + " are expected");
  return {static_cast<T*>(found.data), found.count};
}

}  // namespace pie::js
