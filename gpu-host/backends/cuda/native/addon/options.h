// Converts the JavaScript options to the engine's options.
#pragma once
#include <vector>
#include "mapped.h"
#include "napi.h"

namespace pie::js {

// Both throw EngineError "invalid" for missing properties and wrong types.
EngineOptions readOptions(napi_env env, napi_value options);
std::vector<TensorPlace> readTensors(napi_env env, napi_value tensors);

}  // namespace pie::js
