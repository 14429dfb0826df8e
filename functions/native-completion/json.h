/* Reads flat JSON that the platform has checked against the function's schema: valid, so nothing is checked again. */
#ifndef JSON_H
#define JSON_H

#include "pie.h"

static uint32_t json_skip_space(pie_string json, uint32_t at) {
  while (at < json.length && (json.data[at] == ' ' || json.data[at] == '\n' || json.data[at] == '\r' || json.data[at] == '\t')) at++;
  return at;
}

/* Index behind the value that begins at `at`. */
static uint32_t json_skip_value(pie_string json, uint32_t at) {
  uint32_t depth = 0;
  bool quoted = false;
  for (; at < json.length; at++) {
    char c = json.data[at];
    if (quoted) {
      if (c == '\\') at++;
      else if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      depth++;
    } else if (c == '}' || c == ']') {
      if (depth-- == 0) return at;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return at;
}

static bool json_same(pie_string a, pie_string b) {
  if (a.length != b.length) return false;
  for (uint32_t i = 0; i < a.length; i++)
    if (a.data[i] != b.data[i]) return false;
  return true;
}

/* Text of an object's member, as it stands; empty when it has none of this name. */
static pie_string json_member(pie_string object, pie_string name) {
  uint32_t at = json_skip_space(object, 0) + 1;
  while (at < object.length) {
    at = json_skip_space(object, at);
    if (at >= object.length || object.data[at] != '"') break;
    uint32_t key = ++at;
    while (object.data[at] != '"') at += object.data[at] == '\\' ? 2 : 1;
    bool found = json_same((pie_string){object.data + key, at - key}, name);
    at = json_skip_space(object, json_skip_space(object, at + 1) + 1);
    uint32_t end = json_skip_value(object, at);
    if (found) return (pie_string){object.data + at, end - at};
    at = end + 1;
  }
  return (pie_string){0};
}

/* A number that is not negative: its first digits, as many as a double holds, times a power of ten. */
static double json_number(pie_string text, double otherwise) {
  if (text.length == 0) return otherwise;
  double value = 0, power = 1;
  int32_t exponent = 0, written = 0, sign = 1;
  bool fraction = false;
  uint32_t i = 0;
  for (; i < text.length; i++) {
    char c = text.data[i];
    if (c == '.') {
      fraction = true;
    } else if (c < '0' || c > '9') {
      break;
    } else if (value < 1e16) {
      value = value * 10 + (c - '0');
      exponent -= fraction;
    } else {
      exponent += !fraction;
    }
  }
  if (i < text.length && (text.data[i] == 'e' || text.data[i] == 'E')) {
    i++;
    if (text.data[i] == '-') sign = -1;
    if (text.data[i] == '-' || text.data[i] == '+') i++;
    for (; i < text.length && text.data[i] >= '0' && text.data[i] <= '9'; i++)
      if (written < 10000) written = written * 10 + (text.data[i] - '0');
  }
  exponent += sign * written;
  if (value == 0) return 0;
  for (int32_t left = exponent < 0 ? -exponent : exponent; left > 0; left--) power *= 10;
  return exponent < 0 ? value / power : value * power;
}

static uint32_t json_hex(const char *digits) {
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) {
    char c = digits[i];
    value = value << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
  }
  return value;
}

/* What a string says, in UTF-8. */
static pie_string json_text(pie_string quoted) {
  if (quoted.length < 2) return (pie_string){0};
  char *out = pie_alloc(quoted.length, 1);
  uint32_t length = 0;
  for (uint32_t i = 1; i < quoted.length && quoted.data[i] != '"'; i++) {
    char c = quoted.data[i];
    if (c != '\\') {
      out[length++] = c;
      continue;
    }
    c = quoted.data[++i];
    if (c != 'u') {
      out[length++] = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c == 'b' ? '\b' : c == 'f' ? '\f' : c;
      continue;
    }
    uint32_t point = json_hex(quoted.data + i + 1);
    i += 4;
    if (point >= 0xd800 && point < 0xdc00 && i + 6 < quoted.length && quoted.data[i + 1] == '\\') {
      point = 0x10000 + ((point - 0xd800) << 10) + (json_hex(quoted.data + i + 3) - 0xdc00);
      i += 6;
    }
    if (point >= 0xd800 && point < 0xe000) point = 0xfffd;
    if (point < 0x80) {
      out[length++] = (char)point;
    } else if (point < 0x800) {
      out[length++] = (char)(0xc0 | point >> 6);
      out[length++] = (char)(0x80 | (point & 63));
    } else if (point < 0x10000) {
      out[length++] = (char)(0xe0 | point >> 12);
      out[length++] = (char)(0x80 | (point >> 6 & 63));
      out[length++] = (char)(0x80 | (point & 63));
    } else {
      out[length++] = (char)(0xf0 | point >> 18);
      out[length++] = (char)(0x80 | (point >> 12 & 63));
      out[length++] = (char)(0x80 | (point >> 6 & 63));
      out[length++] = (char)(0x80 | (point & 63));
    }
  }
  return (pie_string){out, length};
}

#endif
