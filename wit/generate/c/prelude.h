#ifndef PIE_H
#define PIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PIE_IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define PIE_EXPORT(name) __attribute__((export_name(name)))

/* ---- How this header is used -------------------------------------------------------------------------------------------------
 *
 *     #include "pie.h"
 *
 *     pie_result_string_string pie_run(pie_string input) {
 *       pie_session_send((pie_session_message){.tag = PIE_SESSION_MESSAGE_TEXT, .text = PIE_TEXT("hello")});
 *       return (pie_result_string_string){.ok = PIE_TEXT("\"done\"")};
 *     }
 *
 * `pie deploy` compiles a folder whose pie.json says `"main": "main.c"`. (With another build, define PIE_MAIN in one source file.)
 *
 * A call that waits has two parts: `pie_fused_step(...)` starts it and returns a future; `pie_fused_step_wait(future)` blocks until the result
 * is there and releases the future. Calls that are started before the first wait run at the same time. `..._forget` releases a future without
 * waiting. Structures have the memory layout in which the platform reads and writes values, so calls copy nothing.
 *
 * A record parameter is passed as a pointer; an optional parameter as a pointer that may be 0. A result has `err` if `failed` is true, else `ok`.
 */

typedef struct {
  const char *data;
  uint32_t length;
} pie_string;

/* A pie_string for a string literal. */
#define PIE_TEXT(literal) ((pie_string){(literal), sizeof(literal) - 1})

/* ---- Memory ------------------------------------------------------------------------------------------------------------------
 *
 * Lists and texts from the platform lie in an arena that only grows. In a loop, call pie_mark before the body, and pie_release when the program
 * no longer needs the data of this iteration. You may also use `malloc` of wasi-libc.
 */

typedef struct {
  uint32_t block;
  uint32_t top;
  struct pie_open_mark *outer;
} pie_mark_t;

/* Memory of the arena, not cleared; `align` is a power of two. Traps when the inferlet's memory is full. */
void *pie_alloc(uint32_t bytes, uint32_t align);
/* The current end of the arena. */
pie_mark_t pie_mark(void);
/* Releases all memory that was taken from the arena since `mark`. */
void pie_release(pie_mark_t mark);

/* ---- Text that grows -----------------------------------------------------------------------------------------------------------
 *
 *     pie_buffer text = {0};
 *     pie_reserve(&text, 1000);
 *
 * A buffer takes its memory from the arena, so pie_release also releases what the buffer took after the mark. Appending to a buffer whose
 * memory was released traps. After a new mark, growing an older buffer also traps until that mark is released: reserve enough room before the
 * mark.
 */

typedef struct {
  char *data;
  uint32_t length;
  uint32_t capacity;
  /* Number of the mark that was the last open one when the buffer took its memory; 0 for none. */
  uint32_t mark;
} pie_buffer;

/* Makes room for `bytes` more bytes. */
void pie_reserve(pie_buffer *buffer, uint32_t bytes);
void pie_append(pie_buffer *buffer, pie_string text);
void pie_append_number(pie_buffer *buffer, uint64_t number);
/* Appends the text as a JSON string, with its quotes. */
void pie_append_json(pie_buffer *buffer, pie_string text);
static inline pie_string pie_text(const pie_buffer *buffer) { return (pie_string){buffer->data, buffer->length}; }
