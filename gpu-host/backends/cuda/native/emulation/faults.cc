// Configuration of the emulated device and of its failures, as tests request them.
#include "faults.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include "hold.h"
#include "internal.h"

namespace emulation {

namespace {

struct Plan {
  std::string call;
  cudaError_t error;
  int after;
  bool sticky;
};

// Reads call:after[:error]. Ends the process if the text has another form, because a test must not pass without the fault that it requests.
Plan planOf(const char* text) {
  char call[64] = "";
  int after = -1, error = cudaErrorLaunchFailure, toAfter = -1, toError = -1;
  std::sscanf(text, "%63[^:]:%d%n:%d%n", call, &after, &toAfter, &error, &toError);
  const int length = static_cast<int>(std::strlen(text));
  if ((toAfter != length && toError != length) || after < 0 || error <= 0) {
    std::fprintf(stderr, "emulation: PIE_EMULATED_FAULT is \"%s\", not call:after[:error]\n", text);
    std::_Exit(2);
  }
  return {call, static_cast<cudaError_t>(error), after, true};
}

struct State {
  std::mutex mutex;
  Device device;
  std::vector<Plan> plans;
  int kernelAfter = -1;
  cudaError_t kernelError = cudaSuccess;
  std::string fault;
  bool caught = false;
  std::atomic<cudaError_t> lost{cudaSuccess};
  std::atomic<int> slow{0};
  size_t slowFrom = 0;
  std::atomic<size_t> kernels{0};
  std::atomic<int> holds{0};
  const char* holdFile = std::getenv("PIE_EMULATED_HOLD");

  // Environment variables configure the faults of a whole process: PIE_EMULATED_FAULT=call:after[:error], PIE_EMULATED_MEMORY=bytes,
  // PIE_EMULATED_DEVICES=count, PIE_EMULATED_SLOW=kernels:microseconds, PIE_EMULATED_HOLD=file.
  State() {
    if (const char* text = std::getenv("PIE_EMULATED_MEMORY")) device.memoryBytes = std::strtoull(text, nullptr, 10);
    if (const char* text = std::getenv("PIE_EMULATED_DEVICES")) device.count = std::atoi(text);
    if (const char* text = std::getenv("PIE_EMULATED_SLOW")) {
      char* rest = nullptr;
      slowFrom = std::strtoull(text, &rest, 10);
      if (*rest == ':') slow = std::atoi(rest + 1);
    }
    if (const char* text = std::getenv("PIE_EMULATED_FAULT")) plans.push_back(planOf(text));
  }
};

State& state() {
  static State* one = new State;
  return *one;
}

thread_local cudaError_t lastError = cudaSuccess;

}  // namespace

void setDevice(const Device& device) {
  std::lock_guard lock(state().mutex);
  state().device = device;
}
Device device() {
  std::lock_guard lock(state().mutex);
  return state().device;
}

void failCall(const char* name, cudaError_t error, int after, bool sticky) {
  std::lock_guard lock(state().mutex);
  state().plans.push_back({name, error, after, sticky});
}
void failKernel(int after, cudaError_t error) {
  std::lock_guard lock(state().mutex);
  state().kernelAfter = after;
  state().kernelError = error;
}
void restoreDevice() {
  endCaptures();
  std::lock_guard lock(state().mutex);
  state().plans.clear();
  state().kernelAfter = -1;
  state().lost = cudaSuccess;
  lastError = cudaSuccess;
}
void slowDown(int microseconds) { state().slow = microseconds; }
int slowness() { return state().kernels < state().slowFrom ? 0 : state().slow.load(); }

Hold::Hold() { state().holds++; }
Hold::~Hold() { state().holds--; }
void waitWhileHeld() {
  const char* file = state().holdFile;
  while (state().holds > 0 || (file && access(file, F_OK) == 0)) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

size_t kernelsRun() { return state().kernels; }
void countKernel() { state().kernels++; }

cudaError_t lost() { return state().lost; }
void lose(cudaError_t error) {
  cudaError_t well = cudaSuccess;
  state().lost.compare_exchange_strong(well, error);
}
bool kernelFails() {
  std::lock_guard lock(state().mutex);
  if (state().kernelAfter < 0 || state().kernelAfter-- > 0) return false;
  lose(state().kernelError);
  return true;
}

cudaError_t begin(const char* call) {
  if (const cudaError_t error = lost(); error != cudaSuccess) return error;
  std::lock_guard lock(state().mutex);
  auto& plans = state().plans;
  for (size_t i = 0; i < plans.size(); i++) {
    if (plans[i].call != call && plans[i].call != "any") continue;
    if (plans[i].after-- > 0) continue;
    const Plan plan = plans[i];
    plans.erase(plans.begin() + static_cast<long>(i));
    if (plan.sticky) lose(plan.error);
    return plan.error;
  }
  return cudaSuccess;
}

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) lastError = error;
  return error;
}

void catchFaults(bool caught) {
  std::lock_guard lock(state().mutex);
  state().caught = caught;
}
std::string takeFault() {
  std::lock_guard lock(state().mutex);
  std::string fault;
  fault.swap(state().fault);
  return fault;
}

void reportFault(const char* message) {
  const std::string where = whereInKernel();
  const std::string whole = where.empty() ? std::string(message) : where + ": " + message;
  {
    std::lock_guard lock(state().mutex);
    if (state().caught) {
      state().fault = whole;
      return;
    }
  }
  std::fflush(stdout);
  std::fprintf(stderr, "emulation: %s\n", whole.c_str());
  std::abort();
}

namespace {
void crashed(int signal, siginfo_t* info, void*) {
  char text[1024];
  const int length = std::snprintf(text, sizeof text, "\nemulation: %s at address %p%s%s\n", strsignal(signal), info->si_addr,
                                   whereInKernel().empty() ? ", outside of kernels" : " in ", whereInKernel().c_str());
  (void)!write(2, text, static_cast<size_t>(length));
  ::signal(signal, SIG_DFL);
  raise(signal);
}
}  // namespace

void explainCrashes() {
  // A fiber whose stack overflowed has no stack left for the handler, which therefore has its own.
  static char stack[64 << 10];
  const stack_t alternate{stack, 0, sizeof stack};
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_sigaction = crashed;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, nullptr);
}

}  // namespace emulation

cudaError_t cudaGetLastError() {
  const cudaError_t lost = emulation::lost();
  const cudaError_t error = lost != cudaSuccess ? lost : emulation::lastError;
  emulation::lastError = cudaSuccess;
  return error;
}

#define ERRORS(entry)                                                                             \
  entry(cudaSuccess, "no error")                                                                  \
  entry(cudaErrorInvalidValue, "invalid argument")                                                \
  entry(cudaErrorMemoryAllocation, "out of memory")                                               \
  entry(cudaErrorInitializationError, "initialization error")                                     \
  entry(cudaErrorInvalidConfiguration, "invalid configuration argument")                          \
  entry(cudaErrorInvalidDevicePointer, "invalid device pointer")                                  \
  entry(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                     \
  entry(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
  entry(cudaErrorInvalidDeviceFunction, "invalid device function")                                \
  entry(cudaErrorNoDevice, "no CUDA-capable device is detected")                                  \
  entry(cudaErrorInvalidDevice, "invalid device ordinal")                                         \
  entry(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                         \
  entry(cudaErrorInvalidResourceHandle, "invalid resource handle")                                \
  entry(cudaErrorIllegalState, "the operation cannot be performed in the present state")          \
  entry(cudaErrorNotReady, "device not ready")                                                    \
  entry(cudaErrorIllegalAddress, "an illegal memory access was encountered")                      \
  entry(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                 \
  entry(cudaErrorLaunchTimeout, "the launch timed out and was terminated")                        \
  entry(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped") \
  entry(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region") \
  entry(cudaErrorIllegalInstruction, "an illegal instruction was encountered")                    \
  entry(cudaErrorMisalignedAddress, "misaligned address")                                         \
  entry(cudaErrorLaunchFailure, "unspecified launch failure")                                     \
  entry(cudaErrorNotSupported, "operation not supported")                                         \
  entry(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")    \
  entry(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture") \
  entry(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream")              \
  entry(cudaErrorStreamCaptureUnjoined, "capture has unjoined work")                              \
  entry(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream") \
  entry(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream") \
  entry(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream") \
  entry(cudaErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread") \
  entry(cudaErrorUnknown, "unknown error")

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define TEXT(name, text) \
  case name: return text;
    ERRORS(TEXT)
#undef TEXT
  }
  return "unrecognized error code";
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(name, text) \
  case name: return #name;
    ERRORS(NAME)
#undef NAME
  }
  return "unrecognized error code";
}
