#ifdef PIE_MAIN

/* A program has this function only if it uses `malloc` of wasi-libc. The arena then takes its blocks from `malloc`, so that the two never overlap. */
extern void *__libc_malloc(size_t) __attribute__((weak));

#define PIE_BLOCKS 32
#define PIE_FIRST_BLOCK 65536u

/*
 * The record of an open mark. A mark is open until pie_release releases it. The record is the first memory that the arena gives after the mark, so
 * the release of the mark also releases the record. `outer` is the record of the open mark before this one.
 */
struct pie_open_mark {
  uint32_t number;
  struct pie_open_mark *outer;
};

/*
 * The arena fills its blocks one after another. The first block has 64 KiB, and each next one is twice as large, up to 256 MiB. For an allocation
 * that does not fit in a block of this size, the size is doubled until the allocation fits.
 */
static struct {
  /* `start` and `end` bound the `count` blocks. `current` is the block in use, and `top` the address in it where the next allocation may begin. */
  uint32_t start[PIE_BLOCKS], end[PIE_BLOCKS], count, current, top;
  /* The number of marks so far. Marks are numbered from 1. */
  uint32_t marks;
  /* The last open mark; null without one. */
  struct pie_open_mark *last;
} pie_arena;

/* Sets `at` to the first aligned address from `from` on. False when `bytes` bytes from there on do not end within the block. */
static bool pie_fits(uint32_t block, uint32_t from, uint32_t bytes, uint32_t align, uint32_t *at) {
  *at = (from + align - 1) & -align;
  return *at >= from && *at + bytes >= *at && *at + bytes <= pie_arena.end[block];
}

static void pie_new_block(uint32_t bytes) {
  uint32_t size = PIE_FIRST_BLOCK << (pie_arena.count < 12 ? pie_arena.count : 12);
  while (size && size < bytes) size <<= 1;
  if (!size || pie_arena.count == PIE_BLOCKS) __builtin_trap();
  uint32_t start;
  if (__libc_malloc) {
    start = (uint32_t)__libc_malloc(size);
    if (!start) __builtin_trap();
  } else {
    size_t page = __builtin_wasm_memory_grow(0, size >> 16);
    if (page == (size_t)-1) __builtin_trap();
    start = (uint32_t)page << 16;
  }
  pie_arena.start[pie_arena.count] = start;
  pie_arena.end[pie_arena.count++] = start + size;
}

void *pie_alloc(uint32_t bytes, uint32_t align) {
  uint32_t at;
  if (pie_arena.count && pie_fits(pie_arena.current, pie_arena.top, bytes, align, &at)) {
    pie_arena.top = at + bytes;
    return (void *)at;
  }
  /* Blocks after the current one are empty: pie_release keeps them. */
  for (uint32_t block = pie_arena.count ? pie_arena.current + 1 : 0;; block++) {
    if (block == pie_arena.count) pie_new_block(bytes + align);
    if (!pie_fits(block, pie_arena.start[block], bytes, align, &at)) continue;
    pie_arena.current = block;
    pie_arena.top = at + bytes;
    return (void *)at;
  }
}

pie_mark_t pie_mark(void) {
  pie_mark_t mark = {pie_arena.current, pie_arena.top, pie_arena.last};
  struct pie_open_mark *open = pie_alloc(sizeof *open, _Alignof(struct pie_open_mark));
  *open = (struct pie_open_mark){++pie_arena.marks, pie_arena.last};
  pie_arena.last = open;
  return mark;
}

void pie_release(pie_mark_t mark) {
  pie_arena.current = mark.block;
  /* The `top` of a mark that was made before the arena had a block is 0. The arena then begins again in its first block. */
  pie_arena.top = mark.top ? mark.top : pie_arena.start[0];
  pie_arena.last = mark.outer;
}

/* True when the mark with this number is open. The number 0 stands for the time before all marks, which is always open. */
static bool pie_is_open(uint32_t number) {
  struct pie_open_mark *mark = pie_arena.last;
  while (mark && mark->number > number) mark = mark->outer;
  return number == (mark ? mark->number : 0);
}

/* Allocates memory for the values that the platform passes to the inferlet. */
PIE_EXPORT("cabi_realloc") void *pie_realloc(const char *old, uint32_t old_bytes, uint32_t align, uint32_t bytes) {
  char *at = pie_alloc(bytes, align);
  for (uint32_t i = 0; i < old_bytes && i < bytes; i++) at[i] = old[i];
  return at;
}

void pie_reserve(pie_buffer *buffer, uint32_t bytes) {
  uint32_t last = pie_arena.last ? pie_arena.last->number : 0;
  if (buffer->capacity) {
    /* `mark` was the last open mark when the buffer took its memory. If that mark was released, so was the memory. */
    if (!pie_is_open(buffer->mark)) __builtin_trap();
    if (bytes <= buffer->capacity - buffer->length) return;
    /* The larger memory would be released with the last mark, but the buffer is older than that mark and may still be used afterwards. */
    if (buffer->mark != last) __builtin_trap();
  }
  if (buffer->length + bytes < bytes || buffer->length + bytes > INT32_MAX) __builtin_trap();
  uint32_t capacity = buffer->capacity ? buffer->capacity : 64;
  while (capacity < buffer->length + bytes) capacity *= 2;
  char *larger = pie_alloc(capacity, 1);
  for (uint32_t i = 0; i < buffer->length; i++) larger[i] = buffer->data[i];
  buffer->data = larger;
  buffer->capacity = capacity;
  buffer->mark = last;
}

static void pie_append_bytes(pie_buffer *buffer, const char *data, uint32_t length) {
  pie_reserve(buffer, length);
  for (uint32_t i = 0; i < length; i++) buffer->data[buffer->length++] = data[i];
}

void pie_append(pie_buffer *buffer, pie_string text) { pie_append_bytes(buffer, text.data, text.length); }

void pie_append_number(pie_buffer *buffer, uint64_t number) {
  char digits[20];
  uint32_t at = sizeof digits;
  do digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  pie_append_bytes(buffer, digits + at, sizeof digits - at);
}

void pie_append_json(pie_buffer *buffer, pie_string text) {
  pie_append_bytes(buffer, "\"", 1);
  for (uint32_t i = 0; i < text.length; i++) {
    unsigned char byte = (unsigned char)text.data[i];
    if (byte == '"' || byte == '\\') pie_append_bytes(buffer, "\\", 1);
    if (byte >= 0x20) {
      pie_append_bytes(buffer, text.data + i, 1);
    } else {
      char escape[6] = {'\\', 'u', '0', '0', (char)('0' + (byte >> 4)), "0123456789abcdef"[byte & 15]};
      pie_append_bytes(buffer, escape, sizeof escape);
    }
  }
  pie_append_bytes(buffer, "\"", 1);
}
