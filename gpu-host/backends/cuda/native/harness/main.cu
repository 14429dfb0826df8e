// cuda-harness: the engine without Node, for a machine with a GPU and little else installed.
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include "bench.h"
#include "check.h"

namespace {

using namespace pie::harness;

constexpr char HELP[] =
    "cuda-harness check FIXTURES [--only NAME] [--precision bf16|float32] [--kv fp8] [--no-graphs] [--no-dependent] [--no-cublas] [--no-shared]\n"
    "    [--json FILE]\n"
    "  replays the fixtures of ../card/fixtures.ts on the engine; exits with 0 if all errors are within the aims\n"
    "cuda-harness bench\n"
    "  answers commands on standard input, one per line, with JSON:\n";

CheckOptions checkOptions(int count, char** words) {
  CheckOptions options;
  for (int i = 0; i < count; i++) {
    const std::string word = words[i];
    const auto value = [&] {
      if (i + 1 == count) throw std::invalid_argument(word + " needs a value");
      return std::string(words[++i]);
    };
    if (word == "--only") {
      options.only = value();
    } else if (word == "--json") {
      options.json = value();
    } else if (word == "--precision") {
      const std::string precision = value();
      if (precision != "bf16" && precision != "float32") throw std::invalid_argument("--precision must be bf16 or float32");
      options.bf16 = precision == "bf16";
      options.float32 = !options.bf16;
    } else if (word == "--kv") {
      if (value() != "fp8") throw std::invalid_argument("--kv must be fp8");
      options.float8Kv = true;
    } else if (word == "--no-graphs") {
      options.graphs = false;
    } else if (word == "--no-dependent") {
      options.dependent = false;
    } else if (word == "--no-cublas") {
      options.cublas = false;
    } else if (word == "--no-shared") {
      options.sharedPrefixes = false;
    } else if (options.folder.empty() && word[0] != '-') {
      options.folder = word;
    } else {
      throw std::invalid_argument("\"" + word + "\" is not an option");
    }
  }
  if (options.folder.empty()) throw std::invalid_argument("the folder FIXTURES is missing");
  if (options.float8Kv && !options.bf16) throw std::invalid_argument("--kv fp8 requires bf16");
  if (options.float8Kv) options.float32 = false;
  return options;
}

}  // namespace

int main(int count, char** words) {
  try {
    const std::string command = count > 1 ? words[1] : "";
    if (command == "check") return check(checkOptions(count - 2, words + 2));
    if (command == "bench" && count == 2) return bench();
    std::fprintf(stderr, "%s%s", HELP, BENCH_HELP);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda-harness: %s\n", error.what());
    return 2;
  }
}
