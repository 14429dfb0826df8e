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
 * `pie deploy` compiles a folder whose pie.json says `"main": "main.c"`. (Another build defines PIE_MAIN in one source file.) A call that waits comes in two parts: `pie_fused_step(…)` starts it and gives a future, `pie_fused_step_wait(future)`
 * blocks until its result is there and gives the future back. Calls that are started before the first wait run at the same time. `…_forget` gives
 * back a future without a waiter. Structures have the very layout of the contract's values, so nothing is copied on the way.
 *
 * A parameter that is a record is a pointer; one that is optional is a pointer that may be 0. A result has `failed`, and then `err`, else `ok`.
 */

typedef struct {
  const char *data;
  uint32_t length;
} pie_string;

/* A literal as text. */
#define PIE_TEXT(literal) ((pie_string){(literal), sizeof(literal) - 1})

/* ---- Memory ------------------------------------------------------------------------------------------------------------------
 *
 * Lists and texts that the platform hands over lie in an arena that only grows: take a mark before a loop's body, and go back to it
 * when nothing of that turn is needed any more. `malloc` of wasi-libc may be used beside it.
 */

typedef struct {
  uint32_t block;
  uint32_t top;
  uint32_t mark;
  uint32_t outer;
} pie_mark_t;

/* Memory of the arena, not cleared; `align` is a power of two. Traps when the inferlet's memory is full. */
void *pie_alloc(uint32_t bytes, uint32_t align);
/* The current end of the arena. */
pie_mark_t pie_mark(void);
/* Gives back all that was taken since `mark`. */
void pie_release(pie_mark_t mark);

/* ---- Text that grows -----------------------------------------------------------------------------------------------------------
 *
 *     pie_buffer text = {0};
 *     pie_reserve(&text, 1000);
 *
 * Its memory is the arena's, too, and what it takes after a mark is given back with it. So a text that is older than the last mark that was
 * not gone back to must not grow: that traps, and so does appending to one whose memory was given back. Reserve its room before the mark;
 * up to that, it may be appended to anywhere.
 */

typedef struct {
  char *data;
  uint32_t length;
  uint32_t capacity;
  /* The last mark when it took its memory. */
  uint32_t mark;
} pie_buffer;

/* Makes room for `bytes` more. */
void pie_reserve(pie_buffer *buffer, uint32_t bytes);
void pie_append(pie_buffer *buffer, pie_string text);
void pie_append_number(pie_buffer *buffer, uint64_t number);
/* The text as a JSON string, with its quotes. */
void pie_append_json(pie_buffer *buffer, pie_string text);
static inline pie_string pie_text(const pie_buffer *buffer) { return (pie_string){buffer->data, buffer->length}; }
