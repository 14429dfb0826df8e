// What JavaScript says of a model, as the engine takes it.
#pragma once
#include <vector>
#include "mapped.h"
#include "napi.h"

namespace pie::js {

// Both throw EngineError "invalid" where something is missing or of another type.
EngineOptions readOptions(napi_env env, napi_value options);
std::vector<TensorPlace> readTensors(napi_env env, napi_value tensors);

}  // namespace pie::js
