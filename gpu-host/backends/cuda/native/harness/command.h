// Parses one command line of the harness: a name and settings, such as "decode batch=32 context=1024".
#pragma once
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

namespace pie::harness {

class Command {
 public:
  explicit Command(const std::string& line) {
    std::istringstream words(line);
    words >> name;
    for (std::string word; words >> word;) {
      const size_t at = word.find('=');
      if (at == std::string::npos) throw std::invalid_argument("\"" + word + "\": NAME=VALUE is expected");
      settings[word.substr(0, at)] = word.substr(at + 1);
    }
  }

  std::string text(const std::string& key, const std::string& otherwise) const {
    asked.insert(key);
    const auto found = settings.find(key);
    return found == settings.end() ? otherwise : found->second;
  }
  int number(const std::string& key, int otherwise) const {
    const std::string value = text(key, std::to_string(otherwise));
    char* end = nullptr;
    const long parsed = std::strtol(value.c_str(), &end, 10);
    if (value.empty() || *end != 0 || parsed < 0 || parsed > 1 << 30) throw std::invalid_argument(key + "=" + value + ": a count is expected");
    return static_cast<int>(parsed);
  }
  bool flag(const std::string& key, bool otherwise) const { return number(key, otherwise ? 1 : 0) != 0; }

  // Throws if a setting was given that no code read: a misspelt setting must not pass silently as its default.
  void done() const {
    for (const auto& [key, value] : settings)
      if (asked.count(key) == 0) throw std::invalid_argument("\"" + name + "\" has no setting \"" + key + "\"");
  }

  std::string name;

 private:
  std::map<std::string, std::string> settings;
  mutable std::set<std::string> asked;
};

}  // namespace pie::harness
