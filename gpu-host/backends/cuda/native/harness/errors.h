// Relative errors of results, by handler and kind of mask.
#pragma once
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pie::harness {

// ‖actual − expected‖ / ‖expected‖. Infinite if any value is not finite, except where an infinity was expected and computed.
class RelativeError {
 public:
  void add(double actual, double expected) { add(actual, expected, actual - expected); }
  // Adds an explicitly given difference.
  void add(double actual, double expected, double difference) {
    values++;
    if (std::isinf(expected) && actual == expected) return;
    if (!std::isfinite(actual) || !std::isfinite(expected)) broken = true;
    squares += difference * difference;
    magnitude += expected * expected;
  }
  void add(const RelativeError& other) {
    values += other.values;
    squares += other.squares;
    magnitude += other.magnitude;
    broken = broken || other.broken;
  }
  void fail() { broken = true; }
  double value() const {
    if (broken) return std::numeric_limits<double>::infinity();
    return squares == 0 ? 0 : std::sqrt(squares / magnitude);
  }
  size_t count() const { return values; }

 private:
  double squares = 0, magnitude = 0;
  size_t values = 0;
  bool broken = false;
};

// The error of each handler and kind of mask: over all its calls together, and of the worst call.
class ErrorTable {
 public:
  struct Cell {
    RelativeError all;
    double worst = 0;
  };
  void note(const std::string& handler, const std::string& kind, const RelativeError& error) {
    Cell& cell = cells[{handler, kind}];
    cell.all.add(error);
    cell.worst = std::fmax(cell.worst, error.value());
  }
  // Over all kinds together.
  Cell total(const std::string& handler) const {
    Cell sum;
    for (const auto& [key, cell] : cells) {
      if (key.first != handler) continue;
      sum.all.add(cell.all);
      sum.worst = std::fmax(sum.worst, cell.worst);
    }
    return sum;
  }
  std::map<std::pair<std::string, std::string>, Cell> cells;
};

}  // namespace pie::harness
