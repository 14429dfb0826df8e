#include "napi.h"
#include <cmath>

namespace pie::js {

void check(napi_env env, napi_status status) {
  if (status == napi_ok) return;
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (!pending) {
    const napi_extended_error_info* info = nullptr;
    napi_get_last_error_info(env, &info);
    const char* message = info != nullptr && info->error_message != nullptr ? info->error_message : "Node-API failed";
    napi_throw_error(env, "invalid", message);
  }
  throw Pending{};
}

void refuse(const std::string& what) { throw EngineError("invalid", what); }

napi_value makeError(napi_env env, const std::string& code, const std::string& message) {
  napi_value codeValue, messageValue, error;
  napi_create_string_utf8(env, code.c_str(), code.size(), &codeValue);
  napi_create_string_utf8(env, message.c_str(), message.size(), &messageValue);
  napi_create_error(env, codeValue, messageValue, &error);
  return error;
}

Arguments::Arguments(napi_env env, napi_callback_info info) { check(env, napi_get_cb_info(env, info, &count, values, &self, nullptr)); }

napi_value undefined(napi_env env) {
  napi_value value;
  check(env, napi_get_undefined(env, &value));
  return value;
}

napi_value number(napi_env env, double given) {
  napi_value value;
  check(env, napi_create_double(env, given, &value));
  return value;
}

napi_value boolean(napi_env env, bool given) {
  napi_value value;
  check(env, napi_get_boolean(env, given, &value));
  return value;
}

napi_value text(napi_env env, const std::string& given) {
  napi_value value;
  check(env, napi_create_string_utf8(env, given.c_str(), given.size(), &value));
  return value;
}

napi_value object(napi_env env) {
  napi_value value;
  check(env, napi_create_object(env, &value));
  return value;
}

void set(napi_env env, napi_value object, const char* name, napi_value value) { check(env, napi_set_named_property(env, object, name, value)); }

void setFunction(napi_env env, napi_value object, const char* name, napi_callback callback) {
  napi_value function;
  check(env, napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, nullptr, &function));
  set(env, object, name, function);
}

bool isUndefined(napi_env env, napi_value value) {
  napi_valuetype type;
  check(env, napi_typeof(env, value, &type));
  return type == napi_undefined;
}

int64_t integer(napi_env env, napi_value value, const char* what, int64_t least, int64_t most) {
  double given = 0;
  if (napi_get_value_double(env, value, &given) != napi_ok) refuse(std::string(what) + " is not a number");
  if (!(given >= double(least) && given <= double(most)) || given != std::floor(given))
    refuse(std::string(what) + " is " + std::to_string(given) + "; a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
           " is expected");
  return int64_t(given);
}

std::string string(napi_env env, napi_value value, const char* what) {
  size_t bytes = 0;
  if (napi_get_value_string_utf8(env, value, nullptr, 0, &bytes) != napi_ok) refuse(std::string(what) + " is not a string");
  std::string given(bytes, '\0');
  check(env, napi_get_value_string_utf8(env, value, given.data(), bytes + 1, &bytes));
  return given;
}

napi_value get(napi_env env, napi_value object, const char* name) {
  napi_value value;
  check(env, napi_get_named_property(env, object, name, &value));
  return value;
}

int getInt(napi_env env, napi_value object, const char* name, int least) { return int(integer(env, get(env, object, name), name, least, INT32_MAX)); }

size_t getSize(napi_env env, napi_value object, const char* name) { return size_t(integer(env, get(env, object, name), name, 0, int64_t(1) << 53)); }

double getNumber(napi_env env, napi_value object, const char* name) {
  double value = 0;
  if (napi_get_value_double(env, get(env, object, name), &value) != napi_ok) refuse(std::string(name) + " is not a number");
  return value;
}

bool getBoolean(napi_env env, napi_value object, const char* name) {
  bool value = false;
  if (napi_get_value_bool(env, get(env, object, name), &value) != napi_ok) refuse(std::string(name) + " is neither true nor false");
  return value;
}

std::string getString(napi_env env, napi_value object, const char* name) { return string(env, get(env, object, name), name); }

uint32_t length(napi_env env, napi_value array, const char* what) {
  uint32_t count = 0;
  if (napi_get_array_length(env, array, &count) != napi_ok) refuse(std::string(what) + " is not an array");
  return count;
}

napi_value element(napi_env env, napi_value array, uint32_t index) {
  napi_value value;
  check(env, napi_get_element(env, array, index, &value));
  return value;
}

View<void> viewOf(napi_env env, napi_value value, napi_typedarray_type type, const char* what) {
  bool is = false;
  check(env, napi_is_typedarray(env, value, &is));
  napi_typedarray_type found;
  View<void> view{nullptr, 0};
  if (is) check(env, napi_get_typedarray_info(env, value, &found, &view.count, &view.data, nullptr, nullptr));
  if (!is || found != type) refuse(std::string(what) + ": expected an array of another type");
  return view;
}

}  // namespace pie::js
