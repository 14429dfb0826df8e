#include "options.h"

namespace pie::js {

EngineOptions readOptions(napi_env env, napi_value options) {
  EngineOptions read;
  ModelShape& shape = read.shape;
  shape.hidden = getInt(env, options, "hidden", 1);
  shape.intermediate = getInt(env, options, "intermediate", 1);
  shape.layers = getInt(env, options, "layers", 1);
  shape.heads = getInt(env, options, "heads", 1);
  shape.kvHeads = getInt(env, options, "kvHeads", 1);
  shape.headDim = getInt(env, options, "headDim", 2);
  shape.vocabulary = getInt(env, options, "vocabulary", 1);
  shape.rmsEpsilon = float(getNumber(env, options, "rmsEpsilon"));
  read.tiedEmbeddings = getBoolean(env, options, "tiedEmbeddings");
  read.attentionBias = getBoolean(env, options, "attentionBias");
  read.queryKeyNorm = getBoolean(env, options, "queryKeyNorm");
  ModelTraits& traits = read.traits;
  traits.rotations = getInt(env, options, "rotations", 1);
  const int64_t pairs = int64_t{traits.rotations} * (shape.headDim / 2);
  const auto doubles = [&](const char* name, int64_t count) {
    const View<double> values = view<double>(env, get(env, options, name), name, count);
    return std::vector<double>(values.data, values.data + values.count);
  };
  const auto integers = [&](const char* name, int64_t count) {
    const napi_value given = get(env, options, name);
    if (isUndefined(env, given)) return std::vector<int>();
    const View<int32_t> values = view<int32_t>(env, given, name, count);
    return std::vector<int>(values.data, values.data + values.count);
  };
  read.frequencies = doubles("frequencies", pairs);
  if (!isUndefined(env, get(env, options, "rotationScales"))) traits.rotationScales = doubles("rotationScales", pairs);
  traits.rotationOf = integers("rotationOf", shape.layers);
  traits.headOrder = integers("headOrder", shape.headDim);
  traits.windows = integers("windows", shape.layers);
  traits.outputBias = getBoolean(env, options, "outputBias");
  traits.rowNorms = getBoolean(env, options, "rowNorms");
  const std::string norms = getString(env, options, "norms");
  if (norms == "after") traits.norms = ModelTraits::Norms::After;
  else if (norms == "around") traits.norms = ModelTraits::Norms::Around;
  else if (norms != "before") refuse("norms is \"" + norms + "\"; before, after or around is expected");
  traits.embeddingScale = float(getNumber(env, options, "embeddingScale"));
  traits.residualScale = float(getNumber(env, options, "residualScale"));
  traits.logitScale = float(getNumber(env, options, "logitScale"));
  traits.logitSoftcap = float(getNumber(env, options, "logitSoftcap"));
  shape.attentionScale = getNumber(env, options, "attentionScale");
  shape.attentionSoftcap = float(getNumber(env, options, "attentionSoftcap"));
  shape.normOffset = float(getNumber(env, options, "normOffset"));
  shape.gelu = getBoolean(env, options, "gelu");
  read.device = getInt(env, options, "device");
  read.pageSize = getInt(env, options, "pageSize", 1);
  read.pageCount = getInt(env, options, "pageCount");
  read.maxRows = getInt(env, options, "maxRows", 1);
  read.maxSequences = getInt(env, options, "maxSequences", 1);
  read.scratchSlots = getInt(env, options, "scratchSlots");
  read.memoryBytes = getSize(env, options, "memoryBytes");
  read.reserveBytes = getSize(env, options, "reserveBytes");
  const std::string precision = getString(env, options, "precision");
  if (precision == "bf16") read.precision = Precision::Bf16;
  else if (precision == "int8") read.precision = Precision::Int8;
  else if (precision == "fp8") read.precision = Precision::Fp8;
  else if (precision == "int4") read.precision = Precision::Int4;
  else if (precision == "float32") read.precision = Precision::Float32;
  else refuse("precision is \"" + precision + "\"; bf16, int8, fp8, int4 or float32 is expected");
  const std::string kv = getString(env, options, "kv");
  if (kv == "fp8") read.kv = KvPrecision::Fp8;
  else if (kv != "as computed") refuse("kv is \"" + kv + "\"; fp8 is expected, or \"as computed\"");
  read.graphs = getBoolean(env, options, "graphs");
  read.dependentLaunch = getBoolean(env, options, "dependentLaunch");
  read.sharedPrefixes = getBoolean(env, options, "sharedPrefixes");
  read.cublas = getBoolean(env, options, "cublas");
  return read;
}

std::vector<TensorPlace> readTensors(napi_env env, napi_value tensors) {
  std::vector<TensorPlace> places;
  const uint32_t count = length(env, tensors, "tensors");
  for (uint32_t i = 0; i < count; i++) {
    const napi_value tensor = element(env, tensors, i);
    const std::string type = getString(env, tensor, "type");
    TensorPlace place{getString(env, tensor, "name"), getString(env, tensor, "file"), getSize(env, tensor, "offset"),
                      getSize(env, tensor, "count"), {}};
    if (type == "BF16") place.type = HostTensor::Type::BF16;
    else if (type == "F16") place.type = HostTensor::Type::F16;
    else if (type == "F32") place.type = HostTensor::Type::F32;
    else refuse(place.name + " has the unsupported type " + type);
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace pie::js
