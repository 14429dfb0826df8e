// Runs the linked test cases. Arguments are substrings of names or files and select cases. --list prints the names, --slow prints each case's time,
// --announce prints a case's name when it begins (to identify the case after a crash), --part=I/N runs every Nth case starting at the Ith, counted
// from 0.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include "../device/device.h"
#include "test.h"

namespace testing {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

namespace {
int failures = 0;  // Of the running case.
constexpr int SHOWN = 10;

const char* base(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash ? slash + 1 : file;
}

bool matches(const Case& one, const std::vector<std::string>& parts) {
  if (parts.empty()) return true;
  const auto isIn = [&](const std::string& part) { return std::strstr(one.name, part.c_str()) || std::strstr(one.file, part.c_str()); };
  return std::any_of(parts.begin(), parts.end(), isIn);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
}  // namespace

void fail(const char* file, int line, const std::string& message) {
  if (++failures <= SHOWN) std::printf("  # %s:%d: %s\n", base(file), line, message.c_str());
  if (failures == SHOWN + 1) std::printf("  # more failures of this case are not shown\n");
}

}  // namespace testing

int main(int count, char** arguments) {
  using namespace testing;
  bool list = false, slow = false, announce = false;
  int part = 0, of = 1;
  std::vector<std::string> parts;
  for (int i = 1; i < count; i++) {
    const std::string argument = arguments[i];
    if (argument == "--list") list = true;
    else if (argument == "--slow") slow = true;
    else if (argument == "--announce") announce = true;
    else if (std::sscanf(argument.c_str(), "--part=%d/%d", &part, &of) == 2) continue;
    else parts.push_back(argument);
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
#ifdef PIE_EMULATED
  emulation::explainCrashes();
#endif
  std::vector<Case> chosen;
  for (const Case& one : cases())
    if (matches(one, parts)) chosen.push_back(one);
  std::stable_sort(chosen.begin(), chosen.end(), [](const Case& a, const Case& b) { return std::strcmp(a.file, b.file) < 0; });
  if (of < 1 || part < 0 || part >= of) {
    std::fprintf(stderr, "--part=I/N: 0 <= I < N\n");
    return 2;
  }
  std::vector<Case> own;
  for (size_t i = static_cast<size_t>(part); i < chosen.size(); i += static_cast<size_t>(of)) own.push_back(chosen[i]);
  chosen = std::move(own);
  if (list) {
    for (const Case& one : chosen) std::printf("%s: %s\n", base(one.file), one.name);
    return 0;
  }
  int number = 0, bad = 0;
  for (const Case& one : chosen) {
    failures = 0;
    std::string skipped;
    if (announce) std::printf("# begins: %s: %s\n", base(one.file), one.name);
    const double start = now();
    try {
      one.body();
      // A case's device work must end without an error before the next case begins.
      const cudaError_t left = cudaDeviceSynchronize();
      if (left != cudaSuccess) fail(one.file, 0, std::string("the device ends with: ") + cudaGetErrorString(left));
      (void)cudaGetLastError();
    } catch (const Skipped& skip) {
      skipped = skip.why;
    } catch (const Ended&) {
    } catch (const std::exception& error) {
      fail(one.file, 0, std::string("threw: ") + error.what());
    }
    const double seconds = now() - start;
    std::printf("%s %d - %s: %s", failures ? "not ok" : "ok", ++number, base(one.file), one.name);
    if (!skipped.empty()) std::printf(" # SKIP %s", skipped.c_str());
    if (slow || seconds > 1) std::printf(" (%.0f ms)", seconds * 1000);
    std::printf("\n");
    bad += failures > 0;
  }
  std::printf("1..%d\n", number);
  if (bad > 0) std::printf("# %d of %d failed\n", bad, number);
  if (number == 0) std::printf("# no test case matches the arguments\n");
  return bad > 0 || number == 0 ? 1 : 0;
}
