// C++ test framework: TEST("what is true") { CHECK(…); CHECK_CLOSE(actual, expected, tolerance); }. Linking a file registers its cases.
#pragma once
#include <cmath>
#include <cstdint>
#include <exception>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace testing {

struct Case {
  const char* file;
  const char* name;
  void (*body)();
};
std::vector<Case>& cases();
struct Register {
  Register(const char* file, const char* name, void (*body)()) { cases().push_back({file, name, body}); }
};

// Records a failure of the running case; the case continues.
void fail(const char* file, int line, const std::string& message);
// Thrown to end the running case as skipped, if it cannot run in this environment.
struct Skipped {
  std::string why;
};
// Thrown by REQUIRE to end the running case.
struct Ended {};

template <typename T>
std::string text(const T& value) {
  std::ostringstream out;
  out.precision(9);
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else {
    out << value;
  }
  return out.str();
}

template <typename A, typename E>
void checkEqual(const char* file, int line, const char* what, const A& actual, const E& expected) {
  if (!(actual == expected)) fail(file, line, std::string(what) + " is " + text(actual) + ", not " + text(expected));
}

inline bool isClose(double actual, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(actual);
  return actual == expected || std::fabs(actual - expected) <= tolerance;  // False for NaN.
}

inline void checkClose(const char* file, int line, const char* what, double actual, double expected, double tolerance) {
  if (!isClose(actual, expected, tolerance))
    fail(file, line, std::string(what) + " is " + text(actual) + ", not " + text(expected) + " ± " + text(tolerance));
}

// Compares two sequences element by element; reports the largest difference.
template <typename A, typename E>
void checkAllClose(const char* file, int line, const char* what, const A& actual, const E& expected, double tolerance) {
  if (actual.size() != expected.size()) {
    fail(file, line, std::string(what) + " has " + text(actual.size()) + " values, not " + text(expected.size()));
    return;
  }
  size_t wrong = 0, worst = 0;
  double most = -1;
  for (size_t i = 0; i < actual.size(); i++) {
    const double a = static_cast<double>(actual[i]), e = static_cast<double>(expected[i]);
    if (isClose(a, e, tolerance)) continue;
    wrong++;
    const double distance = std::isfinite(a - e) ? std::fabs(a - e) : INFINITY;
    if (distance > most) most = distance, worst = i;
  }
  if (wrong > 0)
    fail(file, line,
         std::string(what) + ": " + text(wrong) + " of " + text(actual.size()) + " values are wrong; [" + text(worst) + "] is " +
             text(static_cast<double>(actual[worst])) + ", not " + text(static_cast<double>(expected[worst])) + " ± " + text(tolerance));
}

// A generator with the same sequence for the same seed on every platform (SplitMix64: Steele, Lea and Flood, 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t bits() {
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // In [low, high], both included.
  int64_t integer(int64_t low, int64_t high) { return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1)); }
  // Mean 0, standard deviation 1 (Box and Muller, 1958).
  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()); }
  template <typename T = float>
  std::vector<T> normals(size_t count, double deviation = 1) {
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(static_cast<float>(normal() * deviation));
    return values;
  }

 private:
  uint64_t state;
};

}  // namespace testing

#define TEST_JOIN_(a, b) a##b
#define TEST_NAME_(a, b) TEST_JOIN_(a, b)
#define TEST_CASE_(name, id)                                          \
  static void TEST_NAME_(testCase, id)();                             \
  static const testing::Register TEST_NAME_(testRegister, id)(__FILE__, name, TEST_NAME_(testCase, id)); \
  static void TEST_NAME_(testCase, id)()
#define TEST(name) TEST_CASE_(name, __COUNTER__)

#define CHECK(...)                                                         \
  do {                                                                     \
    if (!(__VA_ARGS__)) testing::fail(__FILE__, __LINE__, "false: " #__VA_ARGS__); \
  } while (0)
// CHECK that also ends the case on failure.
#define REQUIRE(...)                                               \
  do {                                                             \
    if (!(__VA_ARGS__)) {                                          \
      testing::fail(__FILE__, __LINE__, "false: " #__VA_ARGS__); \
      throw testing::Ended{};                                      \
    }                                                              \
  } while (0)
#define CHECK_EQUAL(actual, expected) testing::checkEqual(__FILE__, __LINE__, #actual, actual, expected)
#define CHECK_CLOSE(actual, expected, tolerance) testing::checkClose(__FILE__, __LINE__, #actual, actual, expected, tolerance)
#define CHECK_ALL_CLOSE(actual, expected, tolerance) testing::checkAllClose(__FILE__, __LINE__, #actual, actual, expected, tolerance)
// Checks that the expression throws a std::exception whose message contains `part`.
#define CHECK_THROWS(expression, part)                                                                              \
  do {                                                                                                              \
    bool threw_ = false;                                                                                            \
    try {                                                                                                           \
      (void)(expression);                                                                                           \
    } catch (const std::exception& error_) {                                                                        \
      threw_ = true;                                                                                                \
      if (std::string(error_.what()).find(part) == std::string::npos)                                               \
        testing::fail(__FILE__, __LINE__, std::string("threw \"") + error_.what() + "\", without \"" + (part) + "\""); \
    }                                                                                                               \
    if (!threw_) testing::fail(__FILE__, __LINE__, "did not throw: " #expression);                                 \
  } while (0)
#define SKIP(why) throw testing::Skipped{why}
