#include "check.h"
#include <dirent.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include "json.h"
#include "replay.h"

namespace pie::harness {

namespace {

// Target relative errors of a handler's numbers on one model, over all kinds of masks. The few numbers of a single call scatter more, so they may
// reach SINGLE times the target.
constexpr double BF16_AIM = 1e-2, FLOAT_AIM = 1e-4, FLOAT8_KV_AIM = 1e-1, SINGLE = 3;
constexpr const char* HANDLERS[] = {"states", "tokens", "allowed", "project", "score", "entropy", "attention", "draws", "greedy"};

std::vector<std::string> fixturesOf(const CheckOptions& options) {
  DIR* directory = opendir(options.folder.c_str());
  if (directory == nullptr) throw std::runtime_error(options.folder + " cannot be read");
  std::vector<std::string> names;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    const size_t ending = name.rfind(".fixture");
    if (ending != std::string::npos && ending + 8 == name.size() && name.find(options.only) != std::string::npos) names.push_back(name);
  }
  closedir(directory);
  std::sort(names.begin(), names.end());
  if (names.empty()) throw std::runtime_error(options.folder + " holds no matching fixtures");
  return names;
}

// One line of the table: each handler's error over all kinds of masks.
std::string line(const std::string& label, const char* precision, const ErrorTable& errors) {
  char text[64];
  std::snprintf(text, sizeof text, "%-26s %-8s", label.c_str(), precision);
  std::string line = text;
  for (const char* handler : HANDLERS) {
    const RelativeError error = errors.total(handler).all;
    if (error.count() == 0) {
      std::snprintf(text, sizeof text, "%11s", "");
    } else {
      std::snprintf(text, sizeof text, error.value() == 0 ? "%11.0f" : "%11.1e", error.value());
    }
    line += text;
  }
  return line;
}

std::string above(const std::string& what, double error, double bound) {
  char text[64];
  std::snprintf(text, sizeof text, ": %.2e, above %.0e", error, bound);
  return "  " + what + text;
}

}  // namespace

int check(const CheckOptions& options) {
  JsonArray all;
  std::vector<std::string> lines;
  bool good = true;
  for (const std::string& name : fixturesOf(options)) {
    const Fixture fixture = Fixture::read(options.folder + "/" + name);
    for (const Precision precision : {Precision::Bf16, Precision::Float32}) {
      const bool narrow = precision == Precision::Bf16;
      if (!(narrow ? options.bf16 : options.float32)) continue;
      const char* precisionName = options.float8Kv ? "kv fp8" : narrow ? "bf16" : "float32";
      const double aim = options.float8Kv ? FLOAT8_KV_AIM : narrow ? BF16_AIM : FLOAT_AIM;
      const auto began = std::chrono::steady_clock::now();
      EngineOptions engine = fixture.options;
      engine.precision = precision;
      engine.kv = options.float8Kv ? KvPrecision::Fp8 : KvPrecision::AsComputed;
      engine.graphs = options.graphs;
      engine.dependentLaunch = options.dependent;
      engine.cublas = options.cublas;
      engine.sharedPrefixes = options.sharedPrefixes;
      std::string failure;
      ErrorTable errors;
      try {
        Replay replay(fixture, engine);
        replay.run();
        errors = replay.errors;
      } catch (const std::exception& error) {
        failure = error.what();
      }
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      lines.push_back(line(fixture.label, precisionName, errors));
      if (failure.empty() && errors.cells.empty()) failure = "the fixture compares no results";
      if (!failure.empty()) {
        good = false;
        lines.push_back("  failed: " + failure);
      }
      JsonArray handlers, cells;
      for (const char* handler : HANDLERS) {
        const ErrorTable::Cell total = errors.total(handler);
        if (total.all.count() == 0) continue;
        const bool within = total.all.value() <= aim;
        handlers.raw(JsonObject()
                         .set("handler", handler)
                         .set("error", total.all.value())
                         .set("worstCall", total.worst)
                         .set("values", total.all.count())
                         .set("within", within)
                         .text());
        if (within) continue;
        good = false;
        lines.push_back(above(handler, total.all.value(), aim));
      }
      for (const auto& [key, cell] : errors.cells) {
        const bool within = cell.worst <= SINGLE * aim;
        JsonObject object;
        object.set("handler", key.first).set("kind", key.second).set("error", cell.all.value()).set("worstCall", cell.worst).set("within", within);
        cells.raw(object.text());
        if (within) continue;
        good = false;
        lines.push_back(above("one call of " + key.first + ", " + key.second, cell.worst, SINGLE * aim));
      }
      std::fprintf(stderr, "%s, %s: %.1f s\n", fixture.label.c_str(), precisionName, seconds);
      JsonObject object;
      object.set("model", fixture.label).set("precision", precisionName).set("aim", aim).set("seconds", seconds);
      object.raw("handlers", handlers.text()).raw("cells", cells.text());
      if (!failure.empty()) object.set("failed", failure);
      all.raw(object.text());
    }
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << JsonObject().set("check", true).set("good", good).raw("models", all.text()).text() << std::endl;
    if (!file) throw std::runtime_error(options.json + " cannot be written");
  }
  std::printf("%-26s %-8s", "relative error", "");
  for (const char* handler : HANDLERS) std::printf("%11.10s", handler);
  std::printf("\n");
  for (const std::string& each : lines) std::printf("%s\n", each.c_str());
  std::printf("%s\n", good ? "all within the aims" : "NOT within the aims");
  return good ? 0 : 1;
}

}  // namespace pie::harness
