#include "bench.h"
#include <cstdio>
#include <iostream>
#include <memory>
#include "ceilings.h"
#include "command.h"
#include "kernel_bench.h"
#include "session.h"

namespace pie::harness {

const char* const BENCH_HELP =
    "  device\n"
    "  copy megabytes=4096 times=10             bytes per second within the device\n"
    "  matmul size=8192 times=10                dense bf16 rate\n"
    "  load shape=8B graphs=1 dependent=1 spin=100 cublas=1 precision=bf16 kv=bf16 sequences=128 context=1024 room=128 rows=8192\n"
    "       shared=1 prefix=0 adapters=0 rank=16\n"
    "      precision: of weights, bf16, int8, fp8 or int4\n"
    "      prefix: tokens at the beginning of every context whose slots are the same; shared: they are read once for several sequences\n"
    "      adapters: low-rank adapters of all projections, which the sequences of a decode step have in turn\n"
    "  decode batch=32 context=1024 steps=64 candidates=1\n"
    "      candidates: draw each token among so many of the most probable ones; 1: take the most probable\n"
    "  prefill tokens=8192 times=5\n"
    "  swap tokens=1024 times=5\n"
    "  unload\n"
    "  kernels shape=8B batch=32 context=1024 rows=0 cublas=1 precision=bf16 kv=bf16 shared=1 prefix=0\n"
    "      each kernel of a decode step, or of a prefill of `rows`\n"
    "  linear shape=8B least=1 most=128 precision=bf16   matrices × rows × ways to multiply\n"
    "  quit\n";

namespace {

class Bench {
 public:
  std::string run(const Command& command) {
    if (command.name == "device") return device(command);
    if (command.name == "copy") {
      const int megabytes = command.number("megabytes", 4096), times = command.number("times", 10);
      command.done();
      return measureCopy(static_cast<size_t>(megabytes) << 20, times).text();
    }
    if (command.name == "matmul") {
      const int size = command.number("size", 8192), times = command.number("times", 10);
      command.done();
      return measureMatmul(size, times).text();
    }
    if (command.name == "load") return load(command);
    if (command.name == "unload") {
      command.done();
      session.reset();
      return JsonObject().set("unloaded", true).text();
    }
    if (command.name == "decode") {
      const int batch = command.number("batch", 1), context = command.number("context", 1024), steps = command.number("steps", 64);
      const int candidates = command.number("candidates", 1);
      command.done();
      return loaded().decode(batch, context, steps, candidates).text();
    }
    if (command.name == "prefill") {
      const int tokens = command.number("tokens", 8192), times = command.number("times", 5);
      command.done();
      return loaded().prefill(tokens, times).text();
    }
    if (command.name == "swap") {
      const int tokens = command.number("tokens", 1024), times = command.number("times", 5);
      command.done();
      return loaded().swap(tokens, times).text();
    }
    if (command.name == "kernels") {
      const NamedShape& shape = shapeNamed(command.text("shape", "8B"));
      const std::string precision = command.text("precision", "bf16");
      KernelRun run;
      run.batch = command.number("batch", 1), run.context = command.number("context", 1024), run.rows = command.number("rows", 0);
      run.cublas = command.flag("cublas", true), run.narrowKv = narrowKv(command), run.precision = precisionNamed(precision);
      run.shared = command.flag("shared", true), run.prefix = command.number("prefix", 0);
      command.done();
      if (run.prefix < 0 || run.prefix > run.context) throw std::invalid_argument("prefix must be a part of the context");
      return measureKernels(shape, run).set("precision", precision).text();
    }
    if (command.name == "linear") {
      const NamedShape& shape = shapeNamed(command.text("shape", "8B"));
      const int least = command.number("least", 1), most = command.number("most", 128);
      const std::string precision = command.text("precision", "bf16");
      command.done();
      const JsonArray linears = measureLinears(shape, least, most, precisionNamed(precision));
      return JsonObject().set("shape", shape.name).set("precision", precision).raw("linears", linears.text()).text();
    }
    throw std::invalid_argument("\"" + command.name + "\" is no command. The commands are:\n" + BENCH_HELP);
  }

 private:
  static std::string device(const Command& command) {
    command.done();
    const std::vector<DeviceInfo> found = devices();
    if (found.empty()) throw std::runtime_error("no device");
    const DeviceInfo& first = found.front();
    return JsonObject()
        .set("name", first.name)
        .set("memoryBytes", first.memoryBytes)
        .set("multiprocessors", first.multiprocessors)
        .set("major", first.major)
        .set("minor", first.minor)
        .set("driverVersion", first.driverVersion)
        .set("runtimeVersion", first.runtimeVersion)
#ifdef PIE_EMULATED
        .set("emulated", true)
#endif
        .text();
  }

  static bool narrowKv(const Command& command) {
    const std::string kv = command.text("kv", "bf16");
    if (kv != "bf16" && kv != "fp8") throw std::invalid_argument("kv=" + kv + ": bf16 or fp8");
    return kv == "fp8";
  }

  std::string load(const Command& command) {
    SessionOptions options;
    const NamedShape& shape = shapeNamed(command.text("shape", "8B"));
    options.graphs = command.flag("graphs", true);
    options.dependent = command.flag("dependent", true);
    options.spinUs = command.number("spin", options.spinUs);
    options.cublas = command.flag("cublas", true);
    options.precision = command.text("precision", options.precision);
    options.narrowKv = narrowKv(command);
    options.sequences = command.number("sequences", options.sequences);
    options.context = command.number("context", options.context);
    options.room = command.number("room", options.room);
    options.rows = command.number("rows", options.rows);
    options.sharedPrefixes = command.flag("shared", true);
    options.prefix = command.number("prefix", options.prefix);
    options.adapters = command.number("adapters", options.adapters);
    options.rank = command.number("rank", options.rank);
    if (options.adapters < 0 || options.rank < 1) throw std::invalid_argument("adapters must be at least 0, and rank at least 1");
    command.done();
    session.reset();
    session = std::make_unique<Session>(shape, options);
    return session->describe().text();
  }

  Session& loaded() const {
    if (session == nullptr) throw std::invalid_argument("nothing is loaded: use load first");
    return *session;
  }

  std::unique_ptr<Session> session;
};

}  // namespace

int bench() {
  Bench bench;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty() || line[0] == '#') continue;
    const double began = nowMs();
    std::string answer;
    try {
      const Command command(line);
      if (command.name == "quit") return 0;
      answer = JsonObject().set("command", line).raw("result", bench.run(command)).set("tookMs", nowMs() - began).text();
    } catch (const std::exception& error) {
      // After a device fault every call of this process fails, so the caller must start a new process (`lost`).
      const bool lost = cudaDeviceSynchronize() != cudaSuccess;
      answer = JsonObject().set("command", line).set("error", error.what()).set("lost", lost).set("tookMs", nowMs() - began).text();
    }
    std::printf("%s\n", answer.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace pie::harness
