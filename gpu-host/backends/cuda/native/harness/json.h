// Writes the harness's output as JSON on one line.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace pie::harness {

inline std::string jsonString(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// JSON has no infinities and NaN; they are written as null.
inline std::string jsonNumber(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

class JsonArray {
 public:
  JsonArray& add(double value) { return raw(jsonNumber(value)); }
  JsonArray& raw(const std::string& json) {
    items += (items.empty() ? "" : ",") + json;
    return *this;
  }
  std::string text() const { return "[" + items + "]"; }

 private:
  std::string items;
};

class JsonObject {
 public:
  JsonObject& set(const std::string& name, double value) { return raw(name, jsonNumber(value)); }
  JsonObject& set(const std::string& name, int value) { return raw(name, std::to_string(value)); }
  JsonObject& set(const std::string& name, size_t value) { return raw(name, std::to_string(value)); }
  JsonObject& set(const std::string& name, bool value) { return raw(name, value ? "true" : "false"); }
  JsonObject& set(const std::string& name, const std::string& value) { return raw(name, jsonString(value)); }
  JsonObject& set(const std::string& name, const char* value) { return raw(name, jsonString(value)); }
  JsonObject& raw(const std::string& name, const std::string& json) {
    fields += (fields.empty() ? "" : ",") + jsonString(name) + ":" + json;
    return *this;
  }
  std::string text() const { return "{" + fields + "}"; }

 private:
  std::string fields;
};

}  // namespace pie::harness
