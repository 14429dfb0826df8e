// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.

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

/* ---- types --------------------------------------------------------------------------------------------------------- */
/* Types that every interface shares. An inferlet may have 1,024 calls to stores, messages, files, children and the network in progress. The
 * arguments of these calls may hold 32 MiB. Their unread results, and unread vectors and scores, may hold another 32 MiB. A further call fails
 * with `limit-exceeded` until the inferlet reads or drops some results. */

/* Reason of a failed call. The text says what happened and what to do. Programs match on the case. */
enum {
  /* An argument has a wrong shape or value: lists of unequal lengths, a token id outside the vocabulary, a slot past the end of a page. */
  PIE_ERROR_INVALID_ARGUMENT = 0,
  /* The inferlet does not hold this address: the inferlet never allocated the address or has freed it, or the address belongs to another model. */
  PIE_ERROR_NOT_OWNED = 1,
  /* The model, the host or the function's grants do not offer this call. Check `runtime.model-traits` first, or add the grant to the manifest. */
  PIE_ERROR_UNSUPPORTED = 2,
  /* No model, name or invocation matches. */
  PIE_ERROR_NOT_FOUND = 3,
  /* The call would exceed a limit of the deployment or the tenant (pages, tokens, output, memory). */
  PIE_ERROR_LIMIT_EXCEEDED = 4,
  /* The context would exceed the model's trained length, or the out-pages have no empty slot left. */
  PIE_ERROR_CONTEXT_OVERFLOW = 5,
  /* An earlier call on which this call depends has failed. The text names the cause. */
  PIE_ERROR_DEPENDENCY_FAILED = 6,
  /* The client or the parent cancelled the invocation. */
  PIE_ERROR_CANCELLED = 7,
  /* The deadline of the invocation has passed. */
  PIE_ERROR_DEADLINE_EXCEEDED = 8,
  /* The platform reclaimed the inferlet's memory (first-come-first-served termination). */
  PIE_ERROR_TERMINATED = 9,
  /* The resource is not available now but may be later: another inferlet holds it (a lock, memory, a busy worker), or the device or its
   * process is gone together with everything that it held. */
  PIE_ERROR_UNAVAILABLE = 10,
  /* The other end of the session has closed it. */
  PIE_ERROR_CLOSED = 11,
  /* The platform itself has a fault. */
  PIE_ERROR_INTERNAL = 12,
};
typedef struct { uint8_t tag; pie_string value; } pie_error;

/* ---- runtime ------------------------------------------------------------------------------------------------------- */
/* Information about the inferlet and the platform. Every call except `sleep` returns at once, most after about a microsecond. */

enum {
  PIE_RUNTIME_LOG_LEVEL_DEBUG = 0,
  PIE_RUNTIME_LOG_LEVEL_INFO = 1,
  PIE_RUNTIME_LOG_LEVEL_WARN = 2,
  PIE_RUNTIME_LOG_LEVEL_ERROR = 3,
};
typedef uint8_t pie_runtime_log_level;
typedef struct { const pie_string *data; uint32_t length; } pie_list_string;
/* A model that the function was granted, and so may use. */
typedef struct {
  pie_string name;
  /* Trained context length, in tokens. */
  uint32_t context_length;
  uint32_t vocabulary_size;
  /* Number of tokens that fit in a KV page. */
  uint32_t page_size;
  /* Names of the interfaces that the model offers, such as `forward` or `fused`. */
  pie_list_string traits;
} pie_runtime_model_info;
/* Facts about a model, from its configuration. */
typedef struct {
  /* Name from the configuration, such as `LlamaForCausalLM`. */
  pie_string architecture;
  /* Number of weights, including embeddings. */
  uint64_t parameters;
  uint32_t layers;
  uint32_t hidden_size;
  uint32_t attention_heads;
  uint32_t key_value_heads;
  uint32_t head_size;
  /* Bits of a weight in the device's memory. */
  uint32_t bits;
} pie_runtime_model_metadata;
typedef struct { const pie_runtime_model_info *data; uint32_t length; } pie_list_runtime_model_info;
typedef struct { bool failed; union { pie_list_string ok; pie_error err; }; } pie_result_list_string;
typedef struct { bool failed; union { pie_runtime_model_metadata ok; pie_error err; }; } pie_result_runtime_model_metadata;
typedef struct { bool some; uint32_t value; } pie_option_u32;
typedef struct { bool failed; union { pie_option_u32 ok; pie_error err; }; } pie_result_option_u32;
typedef struct { bool failed; union { pie_string ok; pie_error err; }; } pie_result_string;
typedef struct { bool failed; union { pie_error err; }; } pie_result;

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "version") void pie_raw_runtime_version(void *);
/* The version of this contract that the host implements, such as `0.1.0`. */
static inline pie_string pie_runtime_version(void) {
  pie_string result;
  pie_raw_runtime_version(&result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "instance-id") void pie_raw_runtime_instance_id(void *);
/* The id of this invocation, as the client sees it. */
static inline pie_string pie_runtime_instance_id(void) {
  pie_string result;
  pie_raw_runtime_instance_id(&result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "tenant") void pie_raw_runtime_tenant(void *);
static inline pie_string pie_runtime_tenant(void) {
  pie_string result;
  pie_raw_runtime_tenant(&result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "get-arguments") void pie_raw_runtime_get_arguments(void *);
/* The input of this invocation, which `run` has also received as its argument. */
static inline pie_string pie_runtime_get_arguments(void) {
  pie_string result;
  pie_raw_runtime_get_arguments(&result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "function-name") void pie_raw_runtime_function_name(void *);
static inline pie_string pie_runtime_function_name(void) {
  pie_string result;
  pie_raw_runtime_function_name(&result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "function-version") void pie_raw_runtime_function_version(void *);
static inline pie_string pie_runtime_function_version(void) {
  pie_string result;
  pie_raw_runtime_function_version(&result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "models") void pie_raw_runtime_models(void *);
/* The models that the function may use. The first one is the default model. */
static inline pie_list_runtime_model_info pie_runtime_models(void) {
  pie_list_runtime_model_info result;
  pie_raw_runtime_models(&result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "model-traits") void pie_raw_runtime_model_traits(int32_t, int32_t, void *);
/* The interfaces that a model offers. */
static inline pie_result_list_string pie_runtime_model_traits(pie_string model) {
  pie_result_list_string result;
  pie_raw_runtime_model_traits((int32_t)model.data, (int32_t)model.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "metadata") void pie_raw_runtime_metadata(int32_t, int32_t, void *);
/* Facts about a model. Fails with `not-found` for a model that the function was not granted. */
static inline pie_result_runtime_model_metadata pie_runtime_metadata(pie_string model) {
  pie_result_runtime_model_metadata result;
  pie_raw_runtime_metadata((int32_t)model.data, (int32_t)model.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "efficient-tokens") void pie_raw_runtime_efficient_tokens(int32_t, int32_t, void *);
/* For a model, the maximum efficient size of a device step, in tokens: up to this size, more tokens in a step take little more time. For an
 * encoder, the maximum number of tokens in the next batch. The GPU host measures these numbers while it computes, so they change. Returns none
 * before the first measurement. Fails with `not-found` for a model or encoder that the function was not granted. Takes a round trip to the
 * runtime. */
static inline pie_result_option_u32 pie_runtime_efficient_tokens(pie_string model) {
  pie_result_option_u32 result;
  pie_raw_runtime_efficient_tokens((int32_t)model.data, (int32_t)model.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "debug-query") void pie_raw_runtime_debug_query(int32_t, int32_t, void *);
/* The state of this inferlet as JSON text, for debugging. `query` chooses the part: `limits`, `usage` (CPU, tokens, calls), `pages` (held pages by
 * model), `room` (by model, the tokens that this inferlet can hold at once: its context, or fewer with the reason), `grants`, `models` or `all`. Fails with `invalid-argument` for another query. */
static inline pie_result_string pie_runtime_debug_query(pie_string query) {
  pie_result_string result;
  pie_raw_runtime_debug_query((int32_t)query.data, (int32_t)query.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "log") void pie_raw_runtime_log(int32_t, int32_t, int32_t);
/* Writes a line to the function's log and to the invocation's event stream. */
static inline void pie_runtime_log(pie_runtime_log_level level, pie_string message) {
  pie_raw_runtime_log(level, (int32_t)message.data, (int32_t)message.length);
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "record-span") void pie_raw_runtime_record_span(int32_t, int32_t, int32_t, int32_t, int64_t, int64_t, int32_t);
/* Records a span: a part of the inferlet's work, such as a node of a workflow. The span becomes a bar on the dashboard's page of the invocation,
 * and an entry of the invocation's event `metric`. `began` and `ended` are times as `now` returns them. A time before this run is moved to the
 * beginning of the run, a time after this call to the moment of the call, and an `ended` before `began` to `began`. The platform keeps 64 spans,
 * failed spans first and then the longest ones, and only counts the others. It shortens names to 80 characters and kinds to 32 characters. */
static inline void pie_runtime_record_span(pie_string name, pie_string kind, uint64_t began, uint64_t ended, bool failed) {
  pie_raw_runtime_record_span((int32_t)name.data, (int32_t)name.length, (int32_t)kind.data, (int32_t)kind.length, began, ended, failed);
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "is-cancelled") int32_t pie_raw_runtime_is_cancelled(void);
/* True when the client, the parent invocation or the platform has asked this inferlet to stop. */
static inline bool pie_runtime_is_cancelled(void) {
  return (bool)pie_raw_runtime_is_cancelled();
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "time-left") int64_t pie_raw_runtime_time_left(void);
/* Wall time until this run must end, in milliseconds. The run ends at its own time limit or at the invocation's deadline, whichever comes first.
 * The time limit does not count the time in which the platform has preempted the inferlet and holds its calls. A preempted run may therefore
 * take up to twice its time limit. The invocation's deadline counts all time. */
static inline uint64_t pie_runtime_time_left(void) {
  return (uint64_t)pie_raw_runtime_time_left();
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "now") int64_t pie_raw_runtime_now(void);
/* Milliseconds since the Unix epoch. */
static inline uint64_t pie_runtime_now(void) {
  return (uint64_t)pie_raw_runtime_now();
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "random") int32_t pie_raw_runtime_random(void);
/* 32 random bits from the host's random number generator. */
static inline uint32_t pie_runtime_random(void) {
  return (uint32_t)pie_raw_runtime_random();
}

PIE_IMPORT("pie:inferlet/runtime@0.1.0", "sleep") int32_t pie_raw_runtime_sleep(int32_t);
PIE_IMPORT("pie:inferlet/runtime@0.1.0", "[future-read-0]sleep") int32_t pie_raw_runtime_sleep_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/runtime@0.1.0", "[future-drop-readable-0]sleep") void pie_raw_runtime_sleep_forget(int32_t);
typedef struct { int32_t handle; } pie_runtime_sleep_future;
static inline pie_result pie_runtime_sleep_wait(pie_runtime_sleep_future future) {
  pie_result result;
  pie_raw_runtime_sleep_read(future.handle, &result);
  pie_raw_runtime_sleep_forget(future.handle);
  return result;
}
static inline void pie_runtime_sleep_forget(pie_runtime_sleep_future future) { pie_raw_runtime_sleep_forget(future.handle); }
/* Completes after the given time. Fails with `cancelled` or `deadline-exceeded` if the run must stop earlier. */
static inline pie_runtime_sleep_future pie_runtime_sleep(uint32_t milliseconds) {
  return (pie_runtime_sleep_future){pie_raw_runtime_sleep(milliseconds)};
}

/* ---- session ------------------------------------------------------------------------------------------------------- */
/* The conversation with the client that invoked this inferlet. Sending costs some microseconds, and `flush` a round trip to the event log,
 * about a millisecond. */

typedef struct { const uint8_t *data; uint32_t length; } pie_list_u8;
enum {
  PIE_SESSION_MESSAGE_TEXT = 0,
  PIE_SESSION_MESSAGE_BYTES = 1,
};
typedef struct { uint8_t tag; union { pie_string text; pie_list_u8 bytes; }; } pie_session_message;
typedef struct { bool failed; union { pie_session_message ok; pie_error err; }; } pie_result_session_message;

PIE_IMPORT("pie:inferlet/session@0.1.0", "send") void pie_raw_session_send(int32_t, int32_t, int32_t, void *);
/* Queues one `message` event and returns at once. `limit-exceeded` when 1 MiB of events waits to be written (each event counts 256 bytes more
 * than its content): await `flush` and send again. */
static inline pie_result pie_session_send(pie_session_message message) {
  pie_result result;
  pie_raw_session_send(message.tag, message.tag == PIE_SESSION_MESSAGE_TEXT ? (int32_t)message.text.data : message.tag == PIE_SESSION_MESSAGE_BYTES ? (int32_t)message.bytes.data : 0, message.tag == PIE_SESSION_MESSAGE_TEXT ? (int32_t)message.text.length : message.tag == PIE_SESSION_MESSAGE_BYTES ? (int32_t)message.bytes.length : 0, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/session@0.1.0", "flush") int32_t pie_raw_session_flush(void);
PIE_IMPORT("pie:inferlet/session@0.1.0", "[future-read-0]flush") int32_t pie_raw_session_flush_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/session@0.1.0", "[future-drop-readable-0]flush") void pie_raw_session_flush_forget(int32_t);
typedef struct { int32_t handle; } pie_session_flush_future;
static inline pie_result pie_session_flush_wait(pie_session_flush_future future) {
  pie_result result;
  pie_raw_session_flush_read(future.handle, &result);
  pie_raw_session_flush_forget(future.handle);
  return result;
}
static inline void pie_session_flush_forget(pie_session_flush_future future) { pie_raw_session_flush_forget(future.handle); }
/* Completes when all messages sent so far are in the invocation's event log. */
static inline pie_session_flush_future pie_session_flush(void) {
  return (pie_session_flush_future){pie_raw_session_flush()};
}

PIE_IMPORT("pie:inferlet/session@0.1.0", "receive") int32_t pie_raw_session_receive(void);
PIE_IMPORT("pie:inferlet/session@0.1.0", "[future-read-0]receive") int32_t pie_raw_session_receive_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/session@0.1.0", "[future-drop-readable-0]receive") void pie_raw_session_receive_forget(int32_t);
typedef struct { int32_t handle; } pie_session_receive_future;
static inline pie_result_session_message pie_session_receive_wait(pie_session_receive_future future) {
  pie_result_session_message result;
  pie_raw_session_receive_read(future.handle, &result);
  pie_raw_session_receive_forget(future.handle);
  return result;
}
static inline void pie_session_receive_forget(pie_session_receive_future future) { pie_raw_session_receive_forget(future.handle); }
/* The next message of the client, in order. `closed` once the client can send no more messages. */
static inline pie_session_receive_future pie_session_receive(void) {
  return (pie_session_receive_future){pie_raw_session_receive()};
}

/* ---- queue --------------------------------------------------------------------------------------------------------- */
/* An order of calls on one model. The inferlet issues calls without waiting, and they run in the order of their queue. Calls of different
 * queues have no order. When a call fails, all later calls of the queue that depend on it fail with its cause, and `synchronize` reports the
 * first error. Issuing a call costs some microseconds. Waiting for a call costs its computation and a round trip to the GPU host, about 0.1 ms. */

typedef struct { int32_t handle; } pie_queue;

PIE_IMPORT("pie:inferlet/queue@0.1.0", "[constructor]queue") int32_t pie_raw_queue_new(int32_t, int32_t);
/* Creates a queue for the pages and embeds of `model`. With an unknown model, every call on the queue fails with `not-found`. */
static inline pie_queue pie_queue_new(pie_string model) {
  return (pie_queue){pie_raw_queue_new((int32_t)model.data, (int32_t)model.length)};
}

PIE_IMPORT("pie:inferlet/queue@0.1.0", "[method]queue.set-priority") void pie_raw_queue_set_priority(int32_t, int32_t);
/* Sets the priority, 0 by default. Calls with a higher priority go first within a batch. The host limits the priority to the tenant's range. */
static inline void pie_queue_set_priority(pie_queue self, int32_t priority) {
  pie_raw_queue_set_priority(self.handle, priority);
}

PIE_IMPORT("pie:inferlet/queue@0.1.0", "[method]queue.set-depth") void pie_raw_queue_set_depth(int32_t, int32_t);
/* Marks the queue's later calls as calls of a node of a workflow: `depth` is the length of the longest path from the node to the workflow's end.
 * Of a tenant's marked calls, those of earlier invocations go first, and within an invocation those with the largest depth. Marked calls only
 * exchange turns with each other: no other call goes earlier or later because of a depth. Depths work at every priority, 0 included. Calls of
 * `embed` and `rerank` also go in the order of invocations once the invocation has set a depth. */
static inline void pie_queue_set_depth(pie_queue self, uint32_t depth) {
  pie_raw_queue_set_depth(self.handle, depth);
}

PIE_IMPORT("pie:inferlet/queue@0.1.0", "[method]queue.stop") void pie_raw_queue_stop(int32_t);
/* Ends the queue's computation: calls that the device has not begun fail with `cancelled`, and so do later ones. If the device computes a
 * prompt in parts, it finishes only the current part. Pages and embeds can still be allocated and freed. */
static inline void pie_queue_stop(pie_queue self) {
  pie_raw_queue_stop(self.handle);
}

PIE_IMPORT("pie:inferlet/queue@0.1.0", "[method]queue.synchronize") int32_t pie_raw_queue_synchronize(int32_t);
PIE_IMPORT("pie:inferlet/queue@0.1.0", "[future-read-0][method]queue.synchronize") int32_t pie_raw_queue_synchronize_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/queue@0.1.0", "[future-drop-readable-0][method]queue.synchronize") void pie_raw_queue_synchronize_forget(int32_t);
typedef struct { int32_t handle; } pie_queue_synchronize_future;
static inline pie_result pie_queue_synchronize_wait(pie_queue_synchronize_future future) {
  pie_result result;
  pie_raw_queue_synchronize_read(future.handle, &result);
  pie_raw_queue_synchronize_forget(future.handle);
  return result;
}
static inline void pie_queue_synchronize_forget(pie_queue_synchronize_future future) { pie_raw_queue_synchronize_forget(future.handle); }
/* Completes after all earlier calls of the queue. Fails with the first error since the last `synchronize`. Calls that take the name
 * of an export or file report their errors themselves, so `synchronize` leaves these errors out, except those of `export-pages` and `save`. */
static inline pie_queue_synchronize_future pie_queue_synchronize(pie_queue self) {
  return (pie_queue_synchronize_future){pie_raw_queue_synchronize(self.handle)};
}

PIE_IMPORT("pie:inferlet/queue@0.1.0", "[resource-drop]queue") void pie_raw_queue_drop(int32_t);
static inline void pie_queue_drop(pie_queue self) { pie_raw_queue_drop(self.handle); }

/* ---- allocate ------------------------------------------------------------------------------------------------------ */
/* Memory of the model's device. An address is a `u32` in an address space that the inferlet has for each model. An invocation never gets the
 * same address twice.
 * A KV page has `page-size` slots. A slot holds a key, a value, a position and the flags *filled* and *masked*.
 * An embed holds one token's embedding or one output state, and a position. The position of a state is one past the position of its input, so
 * that the state can be the next input.
 * Calls that allocate, free, share or copy travel with the calls around them and cost no round trip. Calls with names (export, import, …)
 * cost one round trip each; persistent exports also cost a disk write. */

/* A named snapshot of pages, which belongs to the tenant. */
typedef struct {
  pie_string name;
  uint32_t pages;
  /* Number of filled slots. */
  uint32_t tokens;
  /* The largest position plus one. */
  uint32_t next_position;
  /* True when the export survives a restart of the GPU host. */
  bool persistent;
} pie_allocate_export_info;
typedef struct { const uint32_t *data; uint32_t length; } pie_list_u32;
typedef struct {
  pie_list_u32 pages;
  uint32_t tokens;
  uint32_t next_position;
} pie_allocate_imported;
/* A place that can hold pages, the fastest first: the device, the memory of the device's host, the host's disk. */
enum {
  PIE_ALLOCATE_TIER_DEVICE = 0,
  PIE_ALLOCATE_TIER_MEMORY = 1,
  PIE_ALLOCATE_TIER_DISK = 2,
};
typedef uint8_t pie_allocate_tier;
/* The reason for a lease's end: its time was over, or memory was needed for other work. */
enum {
  PIE_ALLOCATE_LEASE_END_EXPIRED = 0,
  PIE_ALLOCATE_LEASE_END_PRESSURE = 1,
};
typedef uint8_t pie_allocate_lease_end;
typedef struct { bool some; pie_allocate_lease_end value; } pie_option_allocate_lease_end;
/* The places of an export's pages. */
typedef struct {
  /* The slowest place of any page. */
  pie_allocate_tier tier;
  uint32_t device_pages;
  uint32_t memory_pages;
  uint32_t disk_pages;
  /* Bytes of all keys and values. */
  uint64_t bytes;
  /* Milliseconds that the lease still lasts; 0 without a lease. */
  uint32_t lease_ms;
  /* The reason for the end of the last lease. None before the first lease, while a lease lasts, and after `unpin-export` or
   * `demote-export`. */
  pie_option_allocate_lease_end lease_ended;
} pie_allocate_residency;
typedef struct { bool failed; union { pie_list_u32 ok; pie_error err; }; } pie_result_list_u32;
typedef struct { bool failed; union { pie_allocate_imported ok; pie_error err; }; } pie_result_allocate_imported;
typedef struct { const pie_allocate_export_info *data; uint32_t length; } pie_list_allocate_export_info;
typedef struct { bool failed; union { pie_list_allocate_export_info ok; pie_error err; }; } pie_result_list_allocate_export_info;
typedef struct { bool failed; union { pie_allocate_residency ok; pie_error err; }; } pie_result_allocate_residency;

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "page-size") int32_t pie_raw_allocate_page_size(int32_t);
/* Number of slots of a KV page (8 to 32, 16 by default). */
static inline uint32_t pie_allocate_page_size(pie_queue queue) {
  return (uint32_t)pie_raw_allocate_page_size(queue.handle);
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "allocate-pages") void pie_raw_allocate_pages(int32_t, int32_t, void *);
/* Addresses of `count` empty pages. The device claims their memory in queue order; if the device has no memory then, the calls that
 * use the pages fail. `limit-exceeded` at once when the pages would exceed the invocation's page limit. */
static inline pie_result_list_u32 pie_allocate_pages(pie_queue queue, uint32_t count) {
  pie_result_list_u32 result;
  pie_raw_allocate_pages(queue.handle, count, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "free-pages") void pie_raw_allocate_free_pages(int32_t, int32_t, int32_t);
/* Frees pages after the earlier calls of the queue. The other holders of a shared page keep it. */
static inline void pie_allocate_free_pages(pie_queue queue, pie_list_u32 pages) {
  pie_raw_allocate_free_pages(queue.handle, (int32_t)pages.data, (int32_t)pages.length);
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "allocate-embeds") void pie_raw_allocate_embeds(int32_t, int32_t, void *);
/* Addresses of `count` embeds. */
static inline pie_result_list_u32 pie_allocate_embeds(pie_queue queue, uint32_t count) {
  pie_result_list_u32 result;
  pie_raw_allocate_embeds(queue.handle, count, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "free-embeds") void pie_raw_allocate_free_embeds(int32_t, int32_t, int32_t);
static inline void pie_allocate_free_embeds(pie_queue queue, pie_list_u32 embeds) {
  pie_raw_allocate_free_embeds(queue.handle, (int32_t)embeds.data, (int32_t)embeds.length);
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "share-pages") void pie_raw_allocate_share_pages(int32_t, int32_t, int32_t, void *);
/* New addresses for the same pages. A later write through either address copies the page first. Each new address starts with the source's
 * mask and has its own mask from then on. */
static inline pie_result_list_u32 pie_allocate_share_pages(pie_queue queue, pie_list_u32 pages) {
  pie_result_list_u32 result;
  pie_raw_allocate_share_pages(queue.handle, (int32_t)pages.data, (int32_t)pages.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "copy-slots") void pie_raw_allocate_copy_slots(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
/* Copies `count` slots (key, value, position, filled, masked) from one page to another, or within a page. Adds `shift` to the position of
 * each copied slot and rotates its key accordingly; the position may exceed the trained context. `unsupported` when the model's rotary embedding
 * cannot be shifted. */
static inline void pie_allocate_copy_slots(pie_queue queue, uint32_t source, uint32_t source_offset, uint32_t destination, uint32_t destination_offset, uint32_t count, int32_t shift) {
  pie_raw_allocate_copy_slots(queue.handle, source, source_offset, destination, destination_offset, count, shift);
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "copy-tokens") void pie_raw_allocate_copy_tokens(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
/* Copies single tokens. `indices` are indices into the filled slots of `sources`, in order. Keys and values go to the empty slots of
 * `destinations`, in order. `positions` has a new position for each token, and the copied key is rotated to it; an empty list keeps the positions. */
static inline void pie_allocate_copy_tokens(pie_queue queue, pie_list_u32 sources, pie_list_u32 indices, pie_list_u32 destinations, pie_list_u32 positions) {
  pie_raw_allocate_copy_tokens(queue.handle, (int32_t)sources.data, (int32_t)sources.length, (int32_t)indices.data, (int32_t)indices.length, (int32_t)destinations.data, (int32_t)destinations.length, (int32_t)positions.data, (int32_t)positions.length);
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "copy-embeds") void pie_raw_allocate_copy_embeds(int32_t, int32_t, int32_t, int32_t, int32_t);
/* Copies each source embed to the destination with the same index. */
static inline void pie_allocate_copy_embeds(pie_queue queue, pie_list_u32 sources, pie_list_u32 destinations) {
  pie_raw_allocate_copy_embeds(queue.handle, (int32_t)sources.data, (int32_t)sources.length, (int32_t)destinations.data, (int32_t)destinations.length);
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "export-pages") int32_t pie_raw_allocate_export_pages(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]export-pages") int32_t pie_raw_allocate_export_pages_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]export-pages") void pie_raw_allocate_export_pages_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_export_pages_future;
static inline pie_result pie_allocate_export_pages_wait(pie_allocate_export_pages_future future) {
  pie_result result;
  pie_raw_allocate_export_pages_read(future.handle, &result);
  pie_raw_allocate_export_pages_forget(future.handle);
  return result;
}
static inline void pie_allocate_export_pages_forget(pie_allocate_export_pages_future future) { pie_raw_allocate_export_pages_forget(future.handle); }
/* Saves a snapshot of `pages`, with their masks, under the tenant's `name`, after the earlier calls that write them. Later writes copy the
 * pages first. The export outlives the inferlet and counts against the tenant. A `persistent` export is on disk when the future completes.
 * `invalid-argument` when the name is in use. A name has 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`. */
static inline pie_allocate_export_pages_future pie_allocate_export_pages(pie_queue queue, pie_list_u32 pages, pie_string name, bool persistent) {
  return (pie_allocate_export_pages_future){pie_raw_allocate_export_pages(queue.handle, (int32_t)pages.data, (int32_t)pages.length, (int32_t)name.data, (int32_t)name.length, persistent)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "import-pages") int32_t pie_raw_allocate_import_pages(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]import-pages") int32_t pie_raw_allocate_import_pages_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]import-pages") void pie_raw_allocate_import_pages_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_import_pages_future;
static inline pie_result_allocate_imported pie_allocate_import_pages_wait(pie_allocate_import_pages_future future) {
  pie_result_allocate_imported result;
  pie_raw_allocate_import_pages_read(future.handle, &result);
  pie_raw_allocate_import_pages_forget(future.handle);
  return result;
}
static inline void pie_allocate_import_pages_forget(pie_allocate_import_pages_future future) { pie_raw_allocate_import_pages_forget(future.handle); }
/* Maps the pages of an export. Pages are copied on write. `not-found` when no export has this name; `invalid-argument` for a persistent
 * export of another model or build. */
static inline pie_allocate_import_pages_future pie_allocate_import_pages(pie_queue queue, pie_string name) {
  return (pie_allocate_import_pages_future){pie_raw_allocate_import_pages(queue.handle, (int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "make-durable") int32_t pie_raw_allocate_make_durable(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]make-durable") int32_t pie_raw_allocate_make_durable_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]make-durable") void pie_raw_allocate_make_durable_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_make_durable_future;
static inline pie_result pie_allocate_make_durable_wait(pie_allocate_make_durable_future future) {
  pie_result result;
  pie_raw_allocate_make_durable_read(future.handle, &result);
  pie_raw_allocate_make_durable_forget(future.handle);
  return result;
}
static inline void pie_allocate_make_durable_forget(pie_allocate_make_durable_future future) { pie_raw_allocate_make_durable_forget(future.handle); }
/* Copies the pages of an export to the storage that the platform's machines share. Other hosts then find the name even while the GPU host
 * that keeps it is away or lost. The copy holds the present content: a later export under the same name needs another call. `unexport` also
 * removes the copy. A failed call leaves no copy. `not-found` when no export has this name; `unsupported` when the platform has no shared
 * storage, or for a name under `system/`; `limit-exceeded` beyond the tenant's share of the storage; `unavailable` when the content changes
 * during the copy, or when the export's host or the storage does not answer. */
static inline pie_allocate_make_durable_future pie_allocate_make_durable(pie_queue queue, pie_string name) {
  return (pie_allocate_make_durable_future){pie_raw_allocate_make_durable(queue.handle, (int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "unexport") int32_t pie_raw_allocate_unexport(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]unexport") int32_t pie_raw_allocate_unexport_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]unexport") void pie_raw_allocate_unexport_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_unexport_future;
static inline pie_result pie_allocate_unexport_wait(pie_allocate_unexport_future future) {
  pie_result result;
  pie_raw_allocate_unexport_read(future.handle, &result);
  pie_raw_allocate_unexport_forget(future.handle);
  return result;
}
static inline void pie_allocate_unexport_forget(pie_allocate_unexport_future future) { pie_raw_allocate_unexport_forget(future.handle); }
/* Removes a name. Inferlets that have imported it keep its pages. */
static inline pie_allocate_unexport_future pie_allocate_unexport(pie_queue queue, pie_string name) {
  return (pie_allocate_unexport_future){pie_raw_allocate_unexport(queue.handle, (int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "list-exports") int32_t pie_raw_allocate_list_exports(int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]list-exports") int32_t pie_raw_allocate_list_exports_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]list-exports") void pie_raw_allocate_list_exports_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_list_exports_future;
static inline pie_result_list_allocate_export_info pie_allocate_list_exports_wait(pie_allocate_list_exports_future future) {
  pie_result_list_allocate_export_info result;
  pie_raw_allocate_list_exports_read(future.handle, &result);
  pie_raw_allocate_list_exports_forget(future.handle);
  return result;
}
static inline void pie_allocate_list_exports_forget(pie_allocate_list_exports_future future) { pie_raw_allocate_list_exports_forget(future.handle); }
/* The tenant's exports of the queue's model, ordered by name. */
static inline pie_allocate_list_exports_future pie_allocate_list_exports(pie_queue queue) {
  return (pie_allocate_list_exports_future){pie_raw_allocate_list_exports(queue.handle)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "export-residency") int32_t pie_raw_allocate_export_residency(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]export-residency") int32_t pie_raw_allocate_export_residency_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]export-residency") void pie_raw_allocate_export_residency_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_export_residency_future;
static inline pie_result_allocate_residency pie_allocate_export_residency_wait(pie_allocate_export_residency_future future) {
  pie_result_allocate_residency result;
  pie_raw_allocate_export_residency_read(future.handle, &result);
  pie_raw_allocate_export_residency_forget(future.handle);
  return result;
}
static inline void pie_allocate_export_residency_forget(pie_allocate_export_residency_future future) { pie_raw_allocate_export_residency_forget(future.handle); }
/* Returns the present places of an export's pages. This and the following calls accept the tenant's own exports only (`unsupported` for a
 * name under `system/`). They affect how long later imports wait, never the imported content. They take only device memory that is free or
 * holds cached prefixes, so no inferlet waits for memory because of them. */
static inline pie_allocate_export_residency_future pie_allocate_export_residency(pie_queue queue, pie_string name) {
  return (pie_allocate_export_residency_future){pie_raw_allocate_export_residency(queue.handle, (int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "pin-export") int32_t pie_raw_allocate_pin_export(int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]pin-export") int32_t pie_raw_allocate_pin_export_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]pin-export") void pie_raw_allocate_pin_export_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_pin_export_future;
static inline pie_result_allocate_residency pie_allocate_pin_export_wait(pie_allocate_pin_export_future future) {
  pie_result_allocate_residency result;
  pie_raw_allocate_pin_export_read(future.handle, &result);
  pie_raw_allocate_pin_export_forget(future.handle);
  return result;
}
static inline void pie_allocate_pin_export_forget(pie_allocate_pin_export_future future) { pie_raw_allocate_pin_export_forget(future.handle); }
/* Brings the pages of an export to the device as far as the device has room, and keeps these pages there for `lease-ms` (1 ms to 1 hour),
 * even after the invocation has ended. Under memory pressure, the pages of waiting inferlets and of other exports leave the device first. If
 * that is not enough, the lease ends early (`pressure`) before a running inferlet has to give way. A later call replaces the lease. All leases
 * together hold at most a quarter of the device's pages. Of this quarter, a tenant may pin half of what the leases of other tenants leave; it
 * may pin at most half of its own page quota. `limit-exceeded` for an export that the tenant may never pin, `unavailable` for one that it may
 * not pin now. An export on disk counts against the invocation's pages while it comes back: `limit-exceeded` when it has more pages than the
 * invocation may hold, `unavailable` when the device has no room for it. */
static inline pie_allocate_pin_export_future pie_allocate_pin_export(pie_queue queue, pie_string name, uint32_t lease_ms) {
  return (pie_allocate_pin_export_future){pie_raw_allocate_pin_export(queue.handle, (int32_t)name.data, (int32_t)name.length, lease_ms)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "unpin-export") int32_t pie_raw_allocate_unpin_export(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]unpin-export") int32_t pie_raw_allocate_unpin_export_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]unpin-export") void pie_raw_allocate_unpin_export_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_unpin_export_future;
static inline pie_result_allocate_residency pie_allocate_unpin_export_wait(pie_allocate_unpin_export_future future) {
  pie_result_allocate_residency result;
  pie_raw_allocate_unpin_export_read(future.handle, &result);
  pie_raw_allocate_unpin_export_forget(future.handle);
  return result;
}
static inline void pie_allocate_unpin_export_forget(pie_allocate_unpin_export_future future) { pie_raw_allocate_unpin_export_forget(future.handle); }
/* Ends the lease. */
static inline pie_allocate_unpin_export_future pie_allocate_unpin_export(pie_queue queue, pie_string name) {
  return (pie_allocate_unpin_export_future){pie_raw_allocate_unpin_export(queue.handle, (int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "retain-export") int32_t pie_raw_allocate_retain_export(int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]retain-export") int32_t pie_raw_allocate_retain_export_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]retain-export") void pie_raw_allocate_retain_export_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_retain_export_future;
static inline pie_result_allocate_residency pie_allocate_retain_export_wait(pie_allocate_retain_export_future future) {
  pie_result_allocate_residency result;
  pie_raw_allocate_retain_export_read(future.handle, &result);
  pie_raw_allocate_retain_export_forget(future.handle);
  return result;
}
static inline void pie_allocate_retain_export_forget(pie_allocate_retain_export_future future) { pie_raw_allocate_retain_export_forget(future.handle); }
/* Hints that the export will be used in `next-use-ms` milliseconds. Of the tenant's exports, those without a hint leave the device first, then
 * the one whose hinted use is latest. The hint holds until its time, or until the next import; 0 removes the hint. Exports on disk ignore it. */
static inline pie_allocate_retain_export_future pie_allocate_retain_export(pie_queue queue, pie_string name, uint32_t next_use_ms) {
  return (pie_allocate_retain_export_future){pie_raw_allocate_retain_export(queue.handle, (int32_t)name.data, (int32_t)name.length, next_use_ms)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "prefetch-export") int32_t pie_raw_allocate_prefetch_export(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]prefetch-export") int32_t pie_raw_allocate_prefetch_export_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]prefetch-export") void pie_raw_allocate_prefetch_export_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_prefetch_export_future;
static inline pie_result_allocate_residency pie_allocate_prefetch_export_wait(pie_allocate_prefetch_export_future future) {
  pie_result_allocate_residency result;
  pie_raw_allocate_prefetch_export_read(future.handle, &result);
  pie_raw_allocate_prefetch_export_forget(future.handle);
  return result;
}
static inline void pie_allocate_prefetch_export_forget(pie_allocate_prefetch_export_future future) { pie_raw_allocate_prefetch_export_forget(future.handle); }
/* Brings the pages of an export to the device before they are used, as far as there is room. Fails for an export on disk as `pin-export` does. */
static inline pie_allocate_prefetch_export_future pie_allocate_prefetch_export(pie_queue queue, pie_string name) {
  return (pie_allocate_prefetch_export_future){pie_raw_allocate_prefetch_export(queue.handle, (int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/allocate@0.1.0", "demote-export") int32_t pie_raw_allocate_demote_export(int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-read-0]demote-export") int32_t pie_raw_allocate_demote_export_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/allocate@0.1.0", "[future-drop-readable-0]demote-export") void pie_raw_allocate_demote_export_forget(int32_t);
typedef struct { int32_t handle; } pie_allocate_demote_export_future;
static inline pie_result_allocate_residency pie_allocate_demote_export_wait(pie_allocate_demote_export_future future) {
  pie_result_allocate_residency result;
  pie_raw_allocate_demote_export_read(future.handle, &result);
  pie_raw_allocate_demote_export_forget(future.handle);
  return result;
}
static inline void pie_allocate_demote_export_forget(pie_allocate_demote_export_future future) { pie_raw_allocate_demote_export_forget(future.handle); }
/* Ends the lease, and moves the export's pages off the device, except pages that an inferlet also holds. With `memory`, pages without room in
 * memory go to disk; when the disk is full, too, they stay on the device. With `disk`, a persistent export drops its pages from the device and
 * from memory; they then count against no quota. `unsupported` for `disk` while the export has no file; `invalid-argument` for `device`. */
static inline pie_allocate_demote_export_future pie_allocate_demote_export(pie_queue queue, pie_string name, pie_allocate_tier tier) {
  return (pie_allocate_demote_export_future){pie_raw_allocate_demote_export(queue.handle, (int32_t)name.data, (int32_t)name.length, tier)};
}

/* ---- forward ------------------------------------------------------------------------------------------------------- */
/* The transformer over KV pages. A forward returns at once. The GPU host computes it in a batch with forwards of other inferlets. The forwards of a
 * decoding batch share the time of reading the weights once. Prefill is bound by arithmetic: about two operations per weight and input. */

/* The keys that each input sees, run-length encoded. Row i belongs to input i. It covers the filled slots of the in-pages, in order, and then
 * the inputs. A row is a list of run lengths that alternate hidden, visible, hidden, … and add up to the row's width. The first run is hidden;
 * its length is 0 when the first key is visible. */
typedef struct {
  /* The runs of all rows, one row after another. */
  pie_list_u32 runs;
  /* The number of runs of each row. */
  pie_list_u32 row_lengths;
} pie_forward_mask;
typedef struct { bool some; pie_forward_mask value; } pie_option_forward_mask;

PIE_IMPORT("pie:inferlet/forward@0.1.0", "forward") void pie_raw_forward(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
/* Computes `in-embeds`, which attend to the filled, unmasked slots of `in-pages` and to each other. The key and value of input i go to the
 * i-th empty slot of `out-pages`; without out-pages they exist for this call only. A page may be both in and out: its filled slots are read
 * first. The states of the last inputs, one for each embed of `out-embeds`, are written to `out-embeds`.
 * Usage: each embed that receives a token or a part of an image counts one token, which includes one computation as an input. Each further
 * computation of an input counts one token, also when the input is a state or a copy.
 * Without a mask, an input sees its own key and all keys at smaller positions. */
static inline void pie_forward(pie_queue queue, pie_list_u32 in_pages, pie_list_u32 in_embeds, pie_list_u32 out_pages, pie_list_u32 out_embeds, const pie_forward_mask *mask) {
  pie_raw_forward(queue.handle, (int32_t)in_pages.data, (int32_t)in_pages.length, (int32_t)in_embeds.data, (int32_t)in_embeds.length, (int32_t)out_pages.data, (int32_t)out_pages.length, (int32_t)out_embeds.data, (int32_t)out_embeds.length, mask != 0, mask ? (int32_t)(*mask).runs.data : 0, mask ? (int32_t)(*mask).runs.length : 0, mask ? (int32_t)(*mask).row_lengths.data : 0, mask ? (int32_t)(*mask).row_lengths.length : 0);
}

PIE_IMPORT("pie:inferlet/forward@0.1.0", "mask-page") void pie_raw_forward_mask_page(int32_t, int32_t, int32_t);
/* Masks the slots of a page whose bits are set in `slots` (bit 0 is slot 0), and unmasks the others. Other addresses of
 * a shared page keep their masks. */
static inline void pie_forward_mask_page(pie_queue queue, uint32_t page, uint32_t slots) {
  pie_raw_forward_mask_page(queue.handle, page, slots);
}

/* ---- input-text ---------------------------------------------------------------------------------------------------- */
/* Writes tokens into embeds. The call travels with the forward after it and takes no time of its own. */


PIE_IMPORT("pie:inferlet/input-text@0.1.0", "embed-text") void pie_raw_input_text_embed_text(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
/* Writes the embedding of `tokens[i]`, at `positions[i]`, into `embeds[i]`. The three lists have the same length. */
static inline void pie_input_text_embed_text(pie_queue queue, pie_list_u32 tokens, pie_list_u32 positions, pie_list_u32 embeds) {
  pie_raw_input_text_embed_text(queue.handle, (int32_t)tokens.data, (int32_t)tokens.length, (int32_t)positions.data, (int32_t)positions.length, (int32_t)embeds.data, (int32_t)embeds.length);
}

/* ---- output-text --------------------------------------------------------------------------------------------------- */
/* Reads embeds (each holds a token's embedding or a state), and the distribution of the token after a state. A call of
 * `next-distribution` directly after the forward that writes the state, in the same queue, can share the forward's device step. */

typedef struct { const float *data; uint32_t length; } pie_list_f32;
/* The most probable tokens, in order of falling probability. Tokens with equal logits are ordered by id. */
typedef struct {
  pie_list_u32 tokens;
  /* Natural logarithms of the tokens' probabilities over the whole vocabulary, at temperature 1. */
  pie_list_f32 log_probabilities;
} pie_output_text_distribution;
typedef struct { bool failed; union { pie_output_text_distribution ok; pie_error err; }; } pie_result_output_text_distribution;
typedef struct { bool failed; union { pie_list_f32 ok; pie_error err; }; } pie_result_list_f32;
typedef struct { bool failed; union { float ok; pie_error err; }; } pie_result_f32;

PIE_IMPORT("pie:inferlet/output-text@0.1.0", "next-distribution") int32_t pie_raw_output_text_next_distribution(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/output-text@0.1.0", "[future-read-0]next-distribution") int32_t pie_raw_output_text_next_distribution_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/output-text@0.1.0", "[future-drop-readable-0]next-distribution") void pie_raw_output_text_next_distribution_forget(int32_t);
typedef struct { int32_t handle; } pie_output_text_next_distribution_future;
static inline pie_result_output_text_distribution pie_output_text_next_distribution_wait(pie_output_text_next_distribution_future future) {
  pie_result_output_text_distribution result;
  pie_raw_output_text_next_distribution_read(future.handle, &result);
  pie_raw_output_text_next_distribution_forget(future.handle);
  return result;
}
static inline void pie_output_text_next_distribution_forget(pie_output_text_next_distribution_future future) { pie_raw_output_text_next_distribution_forget(future.handle); }
/* The distribution of the token that follows the state in `embed`: the `top-k` most probable tokens (1 to the host's cap of 256). */
static inline pie_output_text_next_distribution_future pie_output_text_next_distribution(pie_queue queue, uint32_t embed, uint32_t top_k) {
  return (pie_output_text_next_distribution_future){pie_raw_output_text_next_distribution(queue.handle, embed, top_k)};
}

PIE_IMPORT("pie:inferlet/output-text@0.1.0", "log-probabilities") int32_t pie_raw_output_text_log_probabilities(int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/output-text@0.1.0", "[future-read-0]log-probabilities") int32_t pie_raw_output_text_log_probabilities_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/output-text@0.1.0", "[future-drop-readable-0]log-probabilities") void pie_raw_output_text_log_probabilities_forget(int32_t);
typedef struct { int32_t handle; } pie_output_text_log_probabilities_future;
static inline pie_result_list_f32 pie_output_text_log_probabilities_wait(pie_output_text_log_probabilities_future future) {
  pie_result_list_f32 result;
  pie_raw_output_text_log_probabilities_read(future.handle, &result);
  pie_raw_output_text_log_probabilities_forget(future.handle);
  return result;
}
static inline void pie_output_text_log_probabilities_forget(pie_output_text_log_probabilities_future future) { pie_raw_output_text_log_probabilities_forget(future.handle); }
/* Natural logarithms of the probabilities of `tokens` after the state in `embed`, over the whole vocabulary, at temperature 1. */
static inline pie_output_text_log_probabilities_future pie_output_text_log_probabilities(pie_queue queue, uint32_t embed, pie_list_u32 tokens) {
  return (pie_output_text_log_probabilities_future){pie_raw_output_text_log_probabilities(queue.handle, embed, (int32_t)tokens.data, (int32_t)tokens.length)};
}

PIE_IMPORT("pie:inferlet/output-text@0.1.0", "entropy") int32_t pie_raw_output_text_entropy(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/output-text@0.1.0", "[future-read-0]entropy") int32_t pie_raw_output_text_entropy_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/output-text@0.1.0", "[future-drop-readable-0]entropy") void pie_raw_output_text_entropy_forget(int32_t);
typedef struct { int32_t handle; } pie_output_text_entropy_future;
static inline pie_result_f32 pie_output_text_entropy_wait(pie_output_text_entropy_future future) {
  pie_result_f32 result;
  pie_raw_output_text_entropy_read(future.handle, &result);
  pie_raw_output_text_entropy_forget(future.handle);
  return result;
}
static inline void pie_output_text_entropy_forget(pie_output_text_entropy_future future) { pie_raw_output_text_entropy_forget(future.handle); }
/* The entropy of the distribution after the state in `embed`, in nats. */
static inline pie_output_text_entropy_future pie_output_text_entropy(pie_queue queue, uint32_t embed) {
  return (pie_output_text_entropy_future){pie_raw_output_text_entropy(queue.handle, embed)};
}

PIE_IMPORT("pie:inferlet/output-text@0.1.0", "read-embed") int32_t pie_raw_output_text_read_embed(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/output-text@0.1.0", "[future-read-0]read-embed") int32_t pie_raw_output_text_read_embed_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/output-text@0.1.0", "[future-drop-readable-0]read-embed") void pie_raw_output_text_read_embed_forget(int32_t);
typedef struct { int32_t handle; } pie_output_text_read_embed_future;
static inline pie_result_list_f32 pie_output_text_read_embed_wait(pie_output_text_read_embed_future future) {
  pie_result_list_f32 result;
  pie_raw_output_text_read_embed_read(future.handle, &result);
  pie_raw_output_text_read_embed_forget(future.handle);
  return result;
}
static inline void pie_output_text_read_embed_forget(pie_output_text_read_embed_future future) { pie_raw_output_text_read_embed_forget(future.handle); }
/* The values of an embed, one for each dimension of the model's hidden size. */
static inline pie_output_text_read_embed_future pie_output_text_read_embed(pie_queue queue, uint32_t embed) {
  return (pie_output_text_read_embed_future){pie_raw_output_text_read_embed(queue.handle, embed)};
}

/* ---- fused --------------------------------------------------------------------------------------------------------- */
/* Embed, forward and sample in one call. A token costs one call, and with `run` less than one. */

/* Sampling parameters. `temperature` 0 is greedy and ignores the other parameters. `top-k` 0, `top-p` 1 and `min-p` 0 switch these cuts off; a draw
 * without a cut is from the whole vocabulary. The cuts apply in the order top-k, top-p, min-p, to probabilities after the temperature. Each keeps
 * the first tokens in order of falling probability, then rising id, and is relative to the tokens that the cut before it kept. On NVIDIA cards,
 * a draw is from the 256 most probable tokens at most, and the cuts are relative to those. Equal seeds give equal tokens: the draw depends only on
 * the seed and on the input's position. */
typedef struct {
  float temperature;
  uint32_t top_k;
  float top_p;
  float min_p;
  uint32_t seed;
} pie_fused_sampler;
/* Result of a step for each of its last `rows` inputs. */
enum {
  /* Nothing. The step only fills the cache. */
  PIE_FUSED_OUTPUT_NONE = 0,
  /* One sampled token for each row. */
  PIE_FUSED_OUTPUT_SAMPLE = 1,
  /* For each row, this number (`top-k`) of the most probable tokens. */
  PIE_FUSED_OUTPUT_DISTRIBUTIONS = 2,
};
typedef struct { uint8_t tag; union { pie_fused_sampler sample; uint32_t distributions; }; } pie_fused_output;
typedef struct {
  pie_list_u32 tokens;
  pie_list_u32 positions;
  pie_list_u32 in_pages;
  pie_list_u32 out_pages;
  pie_option_forward_mask mask;
  /* Number of last inputs that get an output. */
  uint32_t rows;
  pie_fused_output output;
} pie_fused_step_request;
typedef struct { const pie_output_text_distribution *data; uint32_t length; } pie_list_output_text_distribution;
typedef struct {
  /* One token for each row with `sample`, otherwise empty. */
  pie_list_u32 tokens;
  /* One distribution for each row with `distributions`, otherwise empty. */
  pie_list_output_text_distribution distributions;
} pie_fused_step_result;
typedef struct {
  /* The first input. Each later input is the token sampled before it, at the next position. */
  uint32_t token;
  /* Position of the first input. */
  uint32_t position;
  /* The pages of the sequence, in order, with empty slots for `max-tokens` tokens. The run reads them and appends to them. */
  pie_list_u32 pages;
  uint32_t max_tokens;
  pie_fused_sampler sampler;
  /* Decoding stops after it samples one of these tokens. The run returns this token as its last, without its key and value in the cache. With
   * more than 256 stop tokens the run fails with `invalid-argument`. */
  pie_list_u32 stop_tokens;
} pie_fused_run_request;
enum {
  PIE_FUSED_FINISH_REASON_STOP_TOKEN = 0,
  PIE_FUSED_FINISH_REASON_MAX_TOKENS = 1,
  /* The run was stopped, or the grammar allows no further text. */
  PIE_FUSED_FINISH_REASON_STOPPED = 2,
};
typedef uint8_t pie_fused_finish_reason;
typedef struct { bool some; pie_fused_finish_reason value; } pie_option_fused_finish_reason;
typedef struct {
  /* The tokens since the last `next`, in order; at least one unless the run has finished. */
  pie_list_u32 tokens;
  /* Set in the last chunk. */
  pie_option_fused_finish_reason finished;
} pie_fused_run_chunk;
/* Format of the messages that carry the pieces of a text. */
typedef struct {
  /* Text of a separate message before the first piece. An empty text sends no such message. */
  pie_string opening;
  /* Text before each piece. The piece itself is written as a JSON string. */
  pie_string before;
  /* Text after each piece. */
  pie_string after;
} pie_fused_frame;
typedef struct { bool some; pie_fused_frame value; } pie_option_fused_frame;
/* Options of `run.pipe`. */
typedef struct {
  /* The last tokens of the text before the run, including tokens whose bytes do not complete a character yet. The run's text continues them. */
  pie_list_u32 before;
  /* The unsent end of the text before the run: it may be the beginning of a stop string. */
  pie_string held;
  /* Stop strings: they end the run and are not sent. At most 64 strings with 1,024 bytes together, otherwise `limit-exceeded`. */
  pie_list_string stops;
  /* Format of the messages. By default, each piece is a message of its own. The texts have at most 8,192 bytes together, otherwise
   * `limit-exceeded`. */
  pie_option_fused_frame frame;
} pie_fused_pipe_request;
typedef struct { bool some; pie_string value; } pie_option_string;
/* Result of `run.pipe`. */
typedef struct {
  /* The run's tokens since the last `next` or `pipe`, in order, up to the token that completed a stop string. */
  pie_list_u32 tokens;
  /* The sent text. */
  pie_string text;
  /* The unsent end of the text: it may be the beginning of a stop string. */
  pie_string held;
  /* The stop string that ended the run. The platform discards the tokens after the string. It charges them only if it had decoded them before the
   * call of `pipe`. */
  pie_option_string stop;
  /* Unset after a stop string, and when an error ended the run: the next call reports the error. */
  pie_option_fused_finish_reason finished;
} pie_fused_piped;
typedef struct { int32_t handle; } pie_fused_run;
typedef struct { bool failed; union { pie_fused_run_chunk ok; pie_error err; }; } pie_result_fused_run_chunk;
typedef struct { bool failed; union { pie_fused_piped ok; pie_error err; }; } pie_result_fused_piped;
typedef struct { bool failed; union { pie_fused_step_result ok; pie_error err; }; } pie_result_fused_step_result;

PIE_IMPORT("pie:inferlet/fused@0.1.0", "[constructor]run") int32_t pie_raw_fused_run_new(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, float, int32_t, float, float, int32_t, int32_t, int32_t);
/* Starts decoding. `next` reports failures. */
static inline pie_fused_run pie_fused_run_new(pie_queue queue, const pie_fused_run_request *request) {
  return (pie_fused_run){pie_raw_fused_run_new(queue.handle, (*request).token, (*request).position, (int32_t)(*request).pages.data, (int32_t)(*request).pages.length, (*request).max_tokens, (*request).sampler.temperature, (*request).sampler.top_k, (*request).sampler.top_p, (*request).sampler.min_p, (*request).sampler.seed, (int32_t)(*request).stop_tokens.data, (int32_t)(*request).stop_tokens.length)};
}

PIE_IMPORT("pie:inferlet/fused@0.1.0", "[method]run.next") int32_t pie_raw_fused_run_next(int32_t);
PIE_IMPORT("pie:inferlet/fused@0.1.0", "[future-read-0][method]run.next") int32_t pie_raw_fused_run_next_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/fused@0.1.0", "[future-drop-readable-0][method]run.next") void pie_raw_fused_run_next_forget(int32_t);
typedef struct { int32_t handle; } pie_fused_run_next_future;
static inline pie_result_fused_run_chunk pie_fused_run_next_wait(pie_fused_run_next_future future) {
  pie_result_fused_run_chunk result;
  pie_raw_fused_run_next_read(future.handle, &result);
  pie_raw_fused_run_next_forget(future.handle);
  return result;
}
static inline void pie_fused_run_next_forget(pie_fused_run_next_future future) { pie_raw_fused_run_next_forget(future.handle); }
/* The tokens that the run has decoded since the last `next`. Waits for at least one unless the run has finished. */
static inline pie_fused_run_next_future pie_fused_run_next(pie_fused_run self) {
  return (pie_fused_run_next_future){pie_raw_fused_run_next(self.handle)};
}

PIE_IMPORT("pie:inferlet/fused@0.1.0", "[method]run.pipe") int32_t pie_raw_fused_run_pipe(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/fused@0.1.0", "[future-read-0][method]run.pipe") int32_t pie_raw_fused_run_pipe_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/fused@0.1.0", "[future-drop-readable-0][method]run.pipe") void pie_raw_fused_run_pipe_forget(int32_t);
typedef struct { int32_t handle; } pie_fused_run_pipe_future;
static inline pie_result_fused_piped pie_fused_run_pipe_wait(pie_fused_run_pipe_future future) {
  pie_result_fused_piped result;
  pie_raw_fused_run_pipe_read(future.handle, &result);
  pie_raw_fused_run_pipe_forget(future.handle);
  return result;
}
static inline void pie_fused_run_pipe_forget(pie_fused_run_pipe_future future) { pie_raw_fused_run_pipe_forget(future.handle); }
/* Decodes until the run has finished, and sends its text to the client in `message` events meanwhile, without waking the inferlet. A run
 * has one `next` or `pipe` in progress at a time, and an inferlet at most 256 pipes. */
static inline pie_fused_run_pipe_future pie_fused_run_pipe(pie_fused_run self, const pie_fused_pipe_request *request) {
  return (pie_fused_run_pipe_future){pie_raw_fused_run_pipe(self.handle, (int32_t)(*request).before.data, (int32_t)(*request).before.length, (int32_t)(*request).held.data, (int32_t)(*request).held.length, (int32_t)(*request).stops.data, (int32_t)(*request).stops.length, (*request).frame.some, (*request).frame.some ? (int32_t)(*request).frame.value.opening.data : 0, (*request).frame.some ? (int32_t)(*request).frame.value.opening.length : 0, (*request).frame.some ? (int32_t)(*request).frame.value.before.data : 0, (*request).frame.some ? (int32_t)(*request).frame.value.before.length : 0, (*request).frame.some ? (int32_t)(*request).frame.value.after.data : 0, (*request).frame.some ? (int32_t)(*request).frame.value.after.length : 0)};
}

PIE_IMPORT("pie:inferlet/fused@0.1.0", "[method]run.stop") void pie_raw_fused_run_stop(int32_t);
/* Stops the run. Tokens that are already decoded are still returned. Dropping the resource stops the run, too, and charges the tokens that are
 * decoded but not read. After a stop string of `pipe`, only tokens that were decoded before the call of `pipe` are charged. */
static inline void pie_fused_run_stop(pie_fused_run self) {
  pie_raw_fused_run_stop(self.handle);
}

PIE_IMPORT("pie:inferlet/fused@0.1.0", "step") int32_t pie_raw_fused_step(const void *);
PIE_IMPORT("pie:inferlet/fused@0.1.0", "[future-read-0]step") int32_t pie_raw_fused_step_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/fused@0.1.0", "[future-drop-readable-0]step") void pie_raw_fused_step_forget(int32_t);
typedef struct { int32_t handle; } pie_fused_step_future;
static inline pie_result_fused_step_result pie_fused_step_wait(pie_fused_step_future future) {
  pie_result_fused_step_result result;
  pie_raw_fused_step_read(future.handle, &result);
  pie_raw_fused_step_forget(future.handle);
  return result;
}
static inline void pie_fused_step_forget(pie_fused_step_future future) { pie_raw_fused_step_forget(future.handle); }
/* Embeds `tokens`, computes them as `forward` does, and completes with the output of the last `rows` inputs. */
static inline pie_fused_step_future pie_fused_step(pie_queue queue, const pie_fused_step_request *request) {
  struct { pie_queue queue; pie_fused_step_request request; } arguments = {0};
  arguments.queue = queue;
  arguments.request = (*request);
  return (pie_fused_step_future){pie_raw_fused_step(&arguments)};
}

PIE_IMPORT("pie:inferlet/fused@0.1.0", "[resource-drop]run") void pie_raw_fused_run_drop(int32_t);
static inline void pie_fused_run_drop(pie_fused_run self) { pie_raw_fused_run_drop(self.handle); }

/* ---- tokenize ------------------------------------------------------------------------------------------------------ */
/* Converts text to tokens and back, without a device. A call takes about a microsecond per token; tenants take turns with long texts.
 * `limit-exceeded` when one call has more than 131,072 characters (split longer texts at ends of lines), 131,072 tokens, or 8,192 chat messages. */

typedef struct {
  pie_option_u32 bos;
  pie_list_u32 eos;
  pie_option_u32 pad;
  pie_option_u32 unknown;
} pie_tokenize_special_token_ids;
typedef struct {
  /* `system`, `user`, `assistant` or `tool`. */
  pie_string role;
  pie_string content;
} pie_tokenize_chat_message;
/* How a model writes a thought before its answer. */
typedef struct {
  /* Text before a thought, as the chat template writes it: `<think>\n`. A prompt may end with this text; the model then goes on inside the thought. */
  pie_string open;
  /* Text between the thought and the answer. To end a thought, append this text with its special tokens parsed. */
  pie_string close;
  /* Mark before a thought in generated text, whose white space may differ from the template's: `<think>`. */
  pie_string begin;
  /* Mark after a thought in generated text: `</think>`. Like `begin`, it may consist of special tokens, which `detokenize` omits by default. */
  pie_string end;
  /* Member of an assistant's message in which the template reads a thought, such as `reasoning_content`; none if it reads none. */
  pie_option_string field;
  /* Boolean variables of the template that turn thoughts on and off, such as `enable_thinking`. */
  pie_list_string toggles;
  /* Values that the template takes as its variable `reasoning_effort`, in rising order; empty if it does not read this variable. */
  pie_list_string efforts;
} pie_tokenize_thought_format;
typedef struct { int32_t handle; } pie_tokenize_detokenizer;
typedef struct { bool failed; union { pie_tokenize_special_token_ids ok; pie_error err; }; } pie_result_tokenize_special_token_ids;
typedef struct { const pie_list_u8 *data; uint32_t length; } pie_list_list_u8;
typedef struct { bool failed; union { pie_list_list_u8 ok; pie_error err; }; } pie_result_list_list_u8;
typedef struct { const pie_tokenize_chat_message *data; uint32_t length; } pie_list_tokenize_chat_message;
typedef struct { bool some; pie_tokenize_thought_format value; } pie_option_tokenize_thought_format;
typedef struct { bool failed; union { pie_option_tokenize_thought_format ok; pie_error err; }; } pie_result_option_tokenize_thought_format;

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "[constructor]detokenizer") int32_t pie_raw_tokenize_detokenizer_new(int32_t, int32_t);
static inline pie_tokenize_detokenizer pie_tokenize_detokenizer_new(pie_string model) {
  return (pie_tokenize_detokenizer){pie_raw_tokenize_detokenizer_new((int32_t)model.data, (int32_t)model.length)};
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "[method]detokenizer.push") void pie_raw_tokenize_detokenizer_push(int32_t, int32_t, int32_t, void *);
/* The text of the characters that these tokens complete. */
static inline pie_result_string pie_tokenize_detokenizer_push(pie_tokenize_detokenizer self, pie_list_u32 tokens) {
  pie_result_string result;
  pie_raw_tokenize_detokenizer_push(self.handle, (int32_t)tokens.data, (int32_t)tokens.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "[method]detokenizer.finish") void pie_raw_tokenize_detokenizer_finish(int32_t, void *);
/* The remaining text, with U+FFFD for bytes that do not form a character. */
static inline pie_string pie_tokenize_detokenizer_finish(pie_tokenize_detokenizer self) {
  pie_string result;
  pie_raw_tokenize_detokenizer_finish(self.handle, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "tokenize") void pie_raw_tokenize(int32_t, int32_t, int32_t, int32_t, int32_t, void *);
/* The token ids of `text`, without added special tokens. Special tokens inside the text are recognised when `special` is true. */
static inline pie_result_list_u32 pie_tokenize(pie_string model, pie_string text, bool special) {
  pie_result_list_u32 result;
  pie_raw_tokenize((int32_t)model.data, (int32_t)model.length, (int32_t)text.data, (int32_t)text.length, special, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "detokenize") void pie_raw_tokenize_detokenize(int32_t, int32_t, int32_t, int32_t, int32_t, void *);
/* The text of `tokens`. Special tokens are omitted unless `special` is true. */
static inline pie_result_string pie_tokenize_detokenize(pie_string model, pie_list_u32 tokens, bool special) {
  pie_result_string result;
  pie_raw_tokenize_detokenize((int32_t)model.data, (int32_t)model.length, (int32_t)tokens.data, (int32_t)tokens.length, special, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "special-tokens") void pie_raw_tokenize_special_tokens(int32_t, int32_t, void *);
static inline pie_result_tokenize_special_token_ids pie_tokenize_special_tokens(pie_string model) {
  pie_result_tokenize_special_token_ids result;
  pie_raw_tokenize_special_tokens((int32_t)model.data, (int32_t)model.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "vocabulary") void pie_raw_tokenize_vocabulary(int32_t, int32_t, void *);
/* The bytes of every token, indexed by id. */
static inline pie_result_list_list_u8 pie_tokenize_vocabulary(pie_string model) {
  pie_result_list_list_u8 result;
  pie_raw_tokenize_vocabulary((int32_t)model.data, (int32_t)model.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "chat-template") void pie_raw_tokenize_chat_template(int32_t, int32_t, int32_t, int32_t, int32_t, void *);
/* Applies the model's chat template to `messages`. Tokenize the returned text with `special`. `unsupported` when the model has no template. */
static inline pie_result_string pie_tokenize_chat_template(pie_string model, pie_list_tokenize_chat_message messages, bool add_generation_prompt) {
  pie_result_string result;
  pie_raw_tokenize_chat_template((int32_t)model.data, (int32_t)model.length, (int32_t)messages.data, (int32_t)messages.length, add_generation_prompt, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "render-chat") void pie_raw_tokenize_render_chat(int32_t, int32_t, int32_t, int32_t, void *);
/* Applies the model's chat template to `variables`, a JSON object with `messages` (each with any members that the template knows, such
 * as `tool_calls`), `tools`, `documents`, `add_generation_prompt`, … Variables such as `bos_token` and `eos_token` default to the model's.
 * `invalid-argument` when the text is not a JSON object or the template refuses it; `unsupported` when the model has no template. */
static inline pie_result_string pie_tokenize_render_chat(pie_string model, pie_string variables) {
  pie_result_string result;
  pie_raw_tokenize_render_chat((int32_t)model.data, (int32_t)model.length, (int32_t)variables.data, (int32_t)variables.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "thoughts") void pie_raw_tokenize_thoughts(int32_t, int32_t, void *);
/* How the model writes thoughts: by its setting in `pie.toml`, by its chat template, or by known marks among its tokens. Returns none for a model
 * that writes no thoughts, or whose thoughts cannot be told from its answers. */
static inline pie_result_option_tokenize_thought_format pie_tokenize_thoughts(pie_string model) {
  pie_result_option_tokenize_thought_format result;
  pie_raw_tokenize_thoughts((int32_t)model.data, (int32_t)model.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/tokenize@0.1.0", "[resource-drop]detokenizer") void pie_raw_tokenize_detokenizer_drop(int32_t);
static inline void pie_tokenize_detokenizer_drop(pie_tokenize_detokenizer self) { pie_raw_tokenize_detokenizer_drop(self.handle); }

/* ---- grammar ------------------------------------------------------------------------------------------------------- */
/* Grammars that constrain decoding to a format. The runtime compiles and matches them. A mask of the allowed tokens travels with the fused
 * call, and the device applies the mask before it samples. Calls of one matcher run in order.
 * Compiling takes milliseconds. A mask takes about 0.2 ms in a state that no matcher has visited before, otherwise microseconds. */

enum {
  /* A JSON schema as text. With `"x-guidance": {"whitespace_flexible": false}` at its root, the texts have no whitespace between tokens. */
  PIE_GRAMMAR_SOURCE_JSON_SCHEMA = 0,
  /* A regular expression that the whole text must match. */
  PIE_GRAMMAR_SOURCE_REGEX = 1,
  /* A grammar in EBNF (the GBNF of llama.cpp) with the start rule `root`. */
  PIE_GRAMMAR_SOURCE_EBNF = 2,
  /* Any JSON text. */
  PIE_GRAMMAR_SOURCE_JSON = 3,
};
typedef struct { uint8_t tag; union { pie_string json_schema; pie_string regex; pie_string ebnf; }; } pie_grammar_source;
typedef struct {
  /* True when an end-of-sequence token is allowed now. */
  bool may_end;
  /* True when only the end is allowed, or the matcher has accepted the end. */
  bool must_end;
} pie_grammar_match_status;
typedef struct { int32_t handle; } pie_grammar_compiled;
typedef struct { int32_t handle; } pie_grammar_matcher;
typedef struct { bool failed; union { bool ok; pie_error err; }; } pie_result_bool;
typedef struct { bool failed; union { pie_grammar_match_status ok; pie_error err; }; } pie_result_grammar_match_status;

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[constructor]compiled") int32_t pie_raw_grammar_compiled_new(int32_t, int32_t, int32_t, int32_t, int32_t);
/* Starts compiling. `ready` and the matchers report failures. */
static inline pie_grammar_compiled pie_grammar_compiled_new(pie_string model, pie_grammar_source source) {
  return (pie_grammar_compiled){pie_raw_grammar_compiled_new((int32_t)model.data, (int32_t)model.length, source.tag, source.tag == PIE_GRAMMAR_SOURCE_JSON_SCHEMA ? (int32_t)source.json_schema.data : source.tag == PIE_GRAMMAR_SOURCE_REGEX ? (int32_t)source.regex.data : source.tag == PIE_GRAMMAR_SOURCE_EBNF ? (int32_t)source.ebnf.data : 0, source.tag == PIE_GRAMMAR_SOURCE_JSON_SCHEMA ? (int32_t)source.json_schema.length : source.tag == PIE_GRAMMAR_SOURCE_REGEX ? (int32_t)source.regex.length : source.tag == PIE_GRAMMAR_SOURCE_EBNF ? (int32_t)source.ebnf.length : 0)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[method]compiled.ready") int32_t pie_raw_grammar_compiled_ready(int32_t);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-read-0][method]compiled.ready") int32_t pie_raw_grammar_compiled_ready_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-drop-readable-0][method]compiled.ready") void pie_raw_grammar_compiled_ready_forget(int32_t);
typedef struct { int32_t handle; } pie_grammar_compiled_ready_future;
static inline pie_result pie_grammar_compiled_ready_wait(pie_grammar_compiled_ready_future future) {
  pie_result result;
  pie_raw_grammar_compiled_ready_read(future.handle, &result);
  pie_raw_grammar_compiled_ready_forget(future.handle);
  return result;
}
static inline void pie_grammar_compiled_ready_forget(pie_grammar_compiled_ready_future future) { pie_raw_grammar_compiled_ready_forget(future.handle); }
/* `invalid-argument` when the grammar does not compile or is too large, `limit-exceeded` when compiling takes too much time or memory, or the
 * tenant's share of memory is full, `unavailable` when no worker is free. Later calls of `ready` have the outcome of the first. */
static inline pie_grammar_compiled_ready_future pie_grammar_compiled_ready(pie_grammar_compiled self) {
  return (pie_grammar_compiled_ready_future){pie_raw_grammar_compiled_ready(self.handle)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[constructor]matcher") int32_t pie_raw_grammar_matcher_new(int32_t);
static inline pie_grammar_matcher pie_grammar_matcher_new(pie_grammar_compiled grammar) {
  return (pie_grammar_matcher){pie_raw_grammar_matcher_new(grammar.handle)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[method]matcher.accept") int32_t pie_raw_grammar_matcher_accept(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-read-0][method]matcher.accept") int32_t pie_raw_grammar_matcher_accept_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-drop-readable-0][method]matcher.accept") void pie_raw_grammar_matcher_accept_forget(int32_t);
typedef struct { int32_t handle; } pie_grammar_matcher_accept_future;
static inline pie_result_bool pie_grammar_matcher_accept_wait(pie_grammar_matcher_accept_future future) {
  pie_result_bool result;
  pie_raw_grammar_matcher_accept_read(future.handle, &result);
  pie_raw_grammar_matcher_accept_forget(future.handle);
  return result;
}
static inline void pie_grammar_matcher_accept_forget(pie_grammar_matcher_accept_future future) { pie_raw_grammar_matcher_accept_forget(future.handle); }
/* Accepts the next tokens. Completes with false, and accepts none of them, when one does not fit. */
static inline pie_grammar_matcher_accept_future pie_grammar_matcher_accept(pie_grammar_matcher self, pie_list_u32 tokens) {
  return (pie_grammar_matcher_accept_future){pie_raw_grammar_matcher_accept(self.handle, (int32_t)tokens.data, (int32_t)tokens.length)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[method]matcher.mask") int32_t pie_raw_grammar_matcher_mask(int32_t);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-read-0][method]matcher.mask") int32_t pie_raw_grammar_matcher_mask_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-drop-readable-0][method]matcher.mask") void pie_raw_grammar_matcher_mask_forget(int32_t);
typedef struct { int32_t handle; } pie_grammar_matcher_mask_future;
static inline pie_result_list_u32 pie_grammar_matcher_mask_wait(pie_grammar_matcher_mask_future future) {
  pie_result_list_u32 result;
  pie_raw_grammar_matcher_mask_read(future.handle, &result);
  pie_raw_grammar_matcher_mask_forget(future.handle);
  return result;
}
static inline void pie_grammar_matcher_mask_forget(pie_grammar_matcher_mask_future future) { pie_raw_grammar_matcher_mask_forget(future.handle); }
/* The tokens that are allowed next: bit `t % 32` of word `t / 32` for token `t`. (JavaScript guests get a word with its highest bit set as a
 * negative number.) Masks cannot express some keywords of JSON schemas: the matcher checks these on the whole text, which may end only
 * if it passes. `invalid-argument` when the text fails this check and cannot go on either: take tokens back with `rollback`. */
static inline pie_grammar_matcher_mask_future pie_grammar_matcher_mask(pie_grammar_matcher self) {
  return (pie_grammar_matcher_mask_future){pie_raw_grammar_matcher_mask(self.handle)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[method]matcher.status") int32_t pie_raw_grammar_matcher_status(int32_t);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-read-0][method]matcher.status") int32_t pie_raw_grammar_matcher_status_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-drop-readable-0][method]matcher.status") void pie_raw_grammar_matcher_status_forget(int32_t);
typedef struct { int32_t handle; } pie_grammar_matcher_status_future;
static inline pie_result_grammar_match_status pie_grammar_matcher_status_wait(pie_grammar_matcher_status_future future) {
  pie_result_grammar_match_status result;
  pie_raw_grammar_matcher_status_read(future.handle, &result);
  pie_raw_grammar_matcher_status_forget(future.handle);
  return result;
}
static inline void pie_grammar_matcher_status_forget(pie_grammar_matcher_status_future future) { pie_raw_grammar_matcher_status_forget(future.handle); }
/* Tells if the text may end now, and if it must. Fails like `mask`. */
static inline pie_grammar_matcher_status_future pie_grammar_matcher_status(pie_grammar_matcher self) {
  return (pie_grammar_matcher_status_future){pie_raw_grammar_matcher_status(self.handle)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[method]matcher.jump") int32_t pie_raw_grammar_matcher_jump(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-read-0][method]matcher.jump") int32_t pie_raw_grammar_matcher_jump_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-drop-readable-0][method]matcher.jump") void pie_raw_grammar_matcher_jump_forget(int32_t);
typedef struct { int32_t handle; } pie_grammar_matcher_jump_future;
static inline pie_result_list_u32 pie_grammar_matcher_jump_wait(pie_grammar_matcher_jump_future future) {
  pie_result_list_u32 result;
  pie_raw_grammar_matcher_jump_read(future.handle, &result);
  pie_raw_grammar_matcher_jump_forget(future.handle);
  return result;
}
static inline void pie_grammar_matcher_jump_forget(pie_grammar_matcher_jump_future future) { pie_raw_grammar_matcher_jump_forget(future.handle); }
/* Accepts and returns the forced tokens, at most `most`: those of the text that must come next. Returns none where the grammar leaves a choice,
 * or where the text may end. The model's tokenizer makes the tokens of the forced text. Tokens at the end of this text are left out if the
 * text after them could change them. Append the returned tokens to the sequence and compute them in one pass, instead of sampling each. */
static inline pie_grammar_matcher_jump_future pie_grammar_matcher_jump(pie_grammar_matcher self, uint32_t most) {
  return (pie_grammar_matcher_jump_future){pie_raw_grammar_matcher_jump(self.handle, most)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[method]matcher.fork") int32_t pie_raw_grammar_matcher_fork(int32_t);
/* A separate matcher in the same state. */
static inline pie_grammar_matcher pie_grammar_matcher_fork(pie_grammar_matcher self) {
  return (pie_grammar_matcher){pie_raw_grammar_matcher_fork(self.handle)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[method]matcher.rollback") int32_t pie_raw_grammar_matcher_rollback(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-read-0][method]matcher.rollback") int32_t pie_raw_grammar_matcher_rollback_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-drop-readable-0][method]matcher.rollback") void pie_raw_grammar_matcher_rollback_forget(int32_t);
typedef struct { int32_t handle; } pie_grammar_matcher_rollback_future;
static inline pie_result pie_grammar_matcher_rollback_wait(pie_grammar_matcher_rollback_future future) {
  pie_result result;
  pie_raw_grammar_matcher_rollback_read(future.handle, &result);
  pie_raw_grammar_matcher_rollback_forget(future.handle);
  return result;
}
static inline void pie_grammar_matcher_rollback_forget(pie_grammar_matcher_rollback_future future) { pie_raw_grammar_matcher_rollback_forget(future.handle); }
/* Undoes the last `tokens` accepted tokens. */
static inline pie_grammar_matcher_rollback_future pie_grammar_matcher_rollback(pie_grammar_matcher self, uint32_t tokens) {
  return (pie_grammar_matcher_rollback_future){pie_raw_grammar_matcher_rollback(self.handle, tokens)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "step") int32_t pie_raw_grammar_step(const void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-read-0]step") int32_t pie_raw_grammar_step_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-drop-readable-0]step") void pie_raw_grammar_step_forget(int32_t);
typedef struct { int32_t handle; } pie_grammar_step_future;
static inline pie_result_fused_step_result pie_grammar_step_wait(pie_grammar_step_future future) {
  pie_result_fused_step_result result;
  pie_raw_grammar_step_read(future.handle, &result);
  pie_raw_grammar_step_forget(future.handle);
  return result;
}
static inline void pie_grammar_step_forget(pie_grammar_step_future future) { pie_raw_grammar_step_forget(future.handle); }
/* Like `fused.step`, with the matcher's mask applied to the only row of output, which must be `sample` or `distributions`. The matcher does
 * not accept the sampled token by itself: call `accept`. The call enters its queue once the mask is known, so await it before calls that
 * must follow it. */
static inline pie_grammar_step_future pie_grammar_step(pie_queue queue, pie_grammar_matcher matcher, const pie_fused_step_request *request) {
  struct { pie_queue queue; pie_grammar_matcher matcher; pie_fused_step_request request; } arguments = {0};
  arguments.queue = queue;
  arguments.matcher = matcher;
  arguments.request = (*request);
  return (pie_grammar_step_future){pie_raw_grammar_step(&arguments)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "verify") int32_t pie_raw_grammar_verify(const void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-read-0]verify") int32_t pie_raw_grammar_verify_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[future-drop-readable-0]verify") void pie_raw_grammar_verify_forget(int32_t);
typedef struct { int32_t handle; } pie_grammar_verify_future;
static inline pie_result_fused_step_result pie_grammar_verify_wait(pie_grammar_verify_future future) {
  pie_result_fused_step_result result;
  pie_raw_grammar_verify_read(future.handle, &result);
  pie_raw_grammar_verify_forget(future.handle);
  return result;
}
static inline void pie_grammar_verify_forget(pie_grammar_verify_future future) { pie_raw_grammar_verify_forget(future.handle); }
/* Like `step`, for several rows of output, and with an adapter if one is named. The inputs of all rows but the first are guesses at the
 * tokens that follow the matcher's text. Each row has the mask of the text with all guesses up to the row's input. If a guess does not fit,
 * its row and the rows after it have no mask. The matcher accepts none of the guesses. `limit-exceeded` for more than 64 rows. */
static inline pie_grammar_verify_future pie_grammar_verify(pie_queue queue, pie_grammar_matcher matcher, const pie_string *adapter, const pie_fused_step_request *request) {
  struct { pie_queue queue; pie_grammar_matcher matcher; pie_option_string adapter; pie_fused_step_request request; } arguments = {0};
  arguments.queue = queue;
  arguments.matcher = matcher;
  if (adapter) arguments.adapter.some = true, arguments.adapter.value = *adapter;
  arguments.request = (*request);
  return (pie_grammar_verify_future){pie_raw_grammar_verify(&arguments)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "start-run") int32_t pie_raw_grammar_start_run(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, float, int32_t, float, float, int32_t, int32_t, int32_t);
/* A run under the matcher's masks, with its forced tokens (see `jump`). The matcher accepts the run's tokens; `invalid-argument` when other
 * calls change the matcher meanwhile. The run ends behind the first stop token, sampled or forced. When nothing may follow, the run finishes
 * with `stopped`. Its steps enter the queue one by one while a `next` or `pipe` is in progress, so await that call before calls that must follow
 * the run. A `next` returns after the first step that ends 25 ms or more after `next` was called, and with at least one token. Each step counts
 * the tokens that it computes. `limit-exceeded` for more than 8,192 pages or 262,144 stop tokens. */
static inline pie_fused_run pie_grammar_start_run(pie_queue queue, pie_grammar_matcher matcher, const pie_fused_run_request *request) {
  return (pie_fused_run){pie_raw_grammar_start_run(queue.handle, matcher.handle, (*request).token, (*request).position, (int32_t)(*request).pages.data, (int32_t)(*request).pages.length, (*request).max_tokens, (*request).sampler.temperature, (*request).sampler.top_k, (*request).sampler.top_p, (*request).sampler.min_p, (*request).sampler.seed, (int32_t)(*request).stop_tokens.data, (int32_t)(*request).stop_tokens.length)};
}

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[resource-drop]compiled") void pie_raw_grammar_compiled_drop(int32_t);
static inline void pie_grammar_compiled_drop(pie_grammar_compiled self) { pie_raw_grammar_compiled_drop(self.handle); }

PIE_IMPORT("pie:inferlet/grammar@0.1.0", "[resource-drop]matcher") void pie_raw_grammar_matcher_drop(int32_t);
static inline void pie_grammar_matcher_drop(pie_grammar_matcher self) { pie_raw_grammar_matcher_drop(self.handle); }

/* ---- penalties ----------------------------------------------------------------------------------------------------- */
/* Runs that change the logits of single tokens before they sample. The sampler sees the changed distribution of the whole vocabulary. */

typedef struct {
  /* Subtracted from a token's logit once for each occurrence of the token in `chosen` or in the run; from minus to plus a million. */
  float frequency;
  /* Subtracted once from the logit of each token that occurs in `chosen` or in the run; from minus to plus a million. */
  float presence;
  /* Tokens whose logits get a bias; at most 1,024, otherwise `limit-exceeded`. */
  pie_list_u32 bias_tokens;
  /* The bias of each of `bias-tokens`: from minus to plus a million, or negative infinity, which excludes the token. */
  pie_list_f32 bias_values;
  /* The tokens that were sampled before the run, at most 8,192, otherwise `limit-exceeded`. The run itself counts the tokens that it samples. */
  pie_list_u32 chosen;
} pie_penalties_logit_changes;

PIE_IMPORT("pie:inferlet/penalties@0.1.0", "start-run") int32_t pie_raw_penalties_start_run(const void *);
/* Like `fused.run`. `temperature` 0 takes the most probable token after the changes. The run fails with `invalid-argument` when the changes
 * exclude all tokens. */
static inline pie_fused_run pie_penalties_start_run(pie_queue queue, const pie_fused_run_request *request, const pie_penalties_logit_changes *changes) {
  struct { pie_queue queue; pie_fused_run_request request; pie_penalties_logit_changes changes; } arguments = {0};
  arguments.queue = queue;
  arguments.request = (*request);
  arguments.changes = (*changes);
  return (pie_fused_run){pie_raw_penalties_start_run(&arguments)};
}

/* ---- introspect ---------------------------------------------------------------------------------------------------- */
/* Attention scores, for strategies that evict tokens with little attention. A forward that returns scores computes its attention a second
 * time, and runs in separate batches. */


PIE_IMPORT("pie:inferlet/introspect@0.1.0", "forward-scores") int32_t pie_raw_introspect_forward_scores(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/introspect@0.1.0", "[future-read-0]forward-scores") int32_t pie_raw_introspect_forward_scores_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/introspect@0.1.0", "[future-drop-readable-0]forward-scores") void pie_raw_introspect_forward_scores_forget(int32_t);
typedef struct { int32_t handle; } pie_introspect_forward_scores_future;
static inline pie_result_list_f32 pie_introspect_forward_scores_wait(pie_introspect_forward_scores_future future) {
  pie_result_list_f32 result;
  pie_raw_introspect_forward_scores_read(future.handle, &result);
  pie_raw_introspect_forward_scores_forget(future.handle);
  return result;
}
static inline void pie_introspect_forward_scores_forget(pie_introspect_forward_scores_future future) { pie_raw_introspect_forward_scores_forget(future.handle); }
/* Like `forward`. Completes with the attention that each slot received, summed over the inputs and averaged over layers and heads: first
 * `page-size` numbers for each of `in-pages` (0 for empty and masked slots), then one number for each input. The numbers add up to the
 * number of inputs. */
static inline pie_introspect_forward_scores_future pie_introspect_forward_scores(pie_queue queue, pie_list_u32 in_pages, pie_list_u32 in_embeds, pie_list_u32 out_pages, pie_list_u32 out_embeds, const pie_forward_mask *mask) {
  return (pie_introspect_forward_scores_future){pie_raw_introspect_forward_scores(queue.handle, (int32_t)in_pages.data, (int32_t)in_pages.length, (int32_t)in_embeds.data, (int32_t)in_embeds.length, (int32_t)out_pages.data, (int32_t)out_pages.length, (int32_t)out_embeds.data, (int32_t)out_embeds.length, mask != 0, mask ? (int32_t)(*mask).runs.data : 0, mask ? (int32_t)(*mask).runs.length : 0, mask ? (int32_t)(*mask).row_lengths.data : 0, mask ? (int32_t)(*mask).row_lengths.length : 0)};
}

/* ---- kv-files ------------------------------------------------------------------------------------------------------ */
/* The KV cache as files (Symphony, HotOS '25). A file is a sequence of tokens' keys and values for one model, with or without a name. An
 * inferlet that opens a name sees the content that was saved last. An inferlet that holds the lock of a name may save new content. Names
 * belong to a tenant. Operators write the names under `system/`, and every tenant can read them. An opened file shares its pages, so opening
 * and saving cost one round trip, independent of the number of tokens. */

enum {
  /* A private view. Pages are copied on write. */
  PIE_KV_FILES_ACCESS_READ = 0,
  /* A view with the file's lock, which allows saving. `unavailable` while another inferlet holds the lock. An inferlet may open a name for
   * writing several times; the lock is released with the last of these files. */
  PIE_KV_FILES_ACCESS_WRITE = 1,
};
typedef uint8_t pie_kv_files_access;
/* Rights of the tenant's other inferlets on a file. */
enum {
  PIE_KV_FILES_RIGHTS_PRIVATE = 0,
  PIE_KV_FILES_RIGHTS_READABLE = 1,
  PIE_KV_FILES_RIGHTS_WRITABLE = 2,
};
typedef uint8_t pie_kv_files_rights;
typedef struct {
  pie_string name;
  uint32_t tokens;
  uint32_t next_position;
  bool persistent;
  pie_kv_files_rights rights;
  /* The function that created the file. */
  pie_string owner;
  bool locked;
} pie_kv_files_file_info;
typedef struct { int32_t handle; } pie_kv_files_file;
typedef struct { bool failed; union { pie_list_output_text_distribution ok; pie_error err; }; } pie_result_list_output_text_distribution;
typedef struct { const pie_kv_files_file_info *data; uint32_t length; } pie_list_kv_files_file_info;
typedef struct { bool failed; union { pie_list_kv_files_file_info ok; pie_error err; }; } pie_result_list_kv_files_file_info;

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[constructor]file") int32_t pie_raw_kv_files_file_new(int32_t, int32_t, int32_t, int32_t, int32_t);
/* Opens `name`, or creates a file without a name when `name` is none. `ready` reports failures. The calls of the file run on `queue`.
 * Calls made before the file is ready wait until it is. */
static inline pie_kv_files_file pie_kv_files_file_new(pie_queue queue, const pie_string *name, pie_kv_files_access access) {
  return (pie_kv_files_file){pie_raw_kv_files_file_new(queue.handle, name != 0, name ? (int32_t)(*name).data : 0, name ? (int32_t)(*name).length : 0, access)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.ready") int32_t pie_raw_kv_files_file_ready(int32_t);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-read-0][method]file.ready") int32_t pie_raw_kv_files_file_ready_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-drop-readable-0][method]file.ready") void pie_raw_kv_files_file_ready_forget(int32_t);
typedef struct { int32_t handle; } pie_kv_files_file_ready_future;
static inline pie_result pie_kv_files_file_ready_wait(pie_kv_files_file_ready_future future) {
  pie_result result;
  pie_raw_kv_files_file_ready_read(future.handle, &result);
  pie_raw_kv_files_file_ready_forget(future.handle);
  return result;
}
static inline void pie_kv_files_file_ready_forget(pie_kv_files_file_ready_future future) { pie_raw_kv_files_file_ready_forget(future.handle); }
/* Completes when the file is usable. Fails with `not-found`, `unsupported` (no right) or `unavailable` (locked). */
static inline pie_kv_files_file_ready_future pie_kv_files_file_ready(pie_kv_files_file self) {
  return (pie_kv_files_file_ready_future){pie_raw_kv_files_file_ready(self.handle)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.tokens") int32_t pie_raw_kv_files_file_tokens(int32_t);
/* Number of tokens; known once the file is ready. */
static inline uint32_t pie_kv_files_file_tokens(pie_kv_files_file self) {
  return (uint32_t)pie_raw_kv_files_file_tokens(self.handle);
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.next-position") int32_t pie_raw_kv_files_file_next_position(int32_t);
/* The first free position: no token is at this position or after it. Known once the file is ready. */
static inline uint32_t pie_kv_files_file_next_position(pie_kv_files_file self) {
  return (uint32_t)pie_raw_kv_files_file_next_position(self.handle);
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.pages") void pie_raw_kv_files_file_pages(int32_t, void *);
/* The pages of the file, for `forward` and `fused` to read. */
static inline pie_list_u32 pie_kv_files_file_pages(pie_kv_files_file self) {
  pie_list_u32 result;
  pie_raw_kv_files_file_pages(self.handle, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.reserve") void pie_raw_kv_files_file_reserve(int32_t, int32_t, void *);
/* The pages of the file with empty slots for `tokens` more tokens after the filled slots, for `forward` and `fused` to fill. Then call
 * `filled`: the file itself does not count the tokens that these calls write. `unavailable` until the file is ready; `limit-exceeded` when the
 * pages would exceed the invocation's page limit. */
static inline pie_result_list_u32 pie_kv_files_file_reserve(pie_kv_files_file self, uint32_t tokens) {
  pie_result_list_u32 result;
  pie_raw_kv_files_file_reserve(self.handle, tokens, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.filled") void pie_raw_kv_files_file_filled(int32_t, int32_t, int32_t);
/* Adds `tokens` that `forward` or `fused` wrote into the reserved slots to the file. `next-position` is the first position after them. */
static inline void pie_kv_files_file_filled(pie_kv_files_file self, uint32_t tokens, uint32_t next_position) {
  pie_raw_kv_files_file_filled(self.handle, tokens, next_position);
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.pred") int32_t pie_raw_kv_files_file_pred(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-read-0][method]file.pred") int32_t pie_raw_kv_files_file_pred_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-drop-readable-0][method]file.pred") void pie_raw_kv_files_file_pred_forget(int32_t);
typedef struct { int32_t handle; } pie_kv_files_file_pred_future;
static inline pie_result_list_output_text_distribution pie_kv_files_file_pred_wait(pie_kv_files_file_pred_future future) {
  pie_result_list_output_text_distribution result;
  pie_raw_kv_files_file_pred_read(future.handle, &result);
  pie_raw_kv_files_file_pred_forget(future.handle);
  return result;
}
static inline void pie_kv_files_file_pred_forget(pie_kv_files_file_pred_future future) { pie_raw_kv_files_file_pred_forget(future.handle); }
/* Computes tokens, appends them, and returns for each token the distribution of the next token: its `top-k` most probable tokens (1 to the
 * host's cap of 256). */
static inline pie_kv_files_file_pred_future pie_kv_files_file_pred(pie_kv_files_file self, pie_list_u32 tokens, pie_list_u32 positions, uint32_t top_k) {
  return (pie_kv_files_file_pred_future){pie_raw_kv_files_file_pred(self.handle, (int32_t)tokens.data, (int32_t)tokens.length, (int32_t)positions.data, (int32_t)positions.length, top_k)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.fork") int32_t pie_raw_kv_files_file_fork(int32_t);
/* A file without a name and with the same content. Pages are copied on write. */
static inline pie_kv_files_file pie_kv_files_file_fork(pie_kv_files_file self) {
  return (pie_kv_files_file){pie_raw_kv_files_file_fork(self.handle)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.extract") int32_t pie_raw_kv_files_file_extract(int32_t, int32_t, int32_t, int32_t, int32_t);
/* A file without a name that holds the tokens at `indices`, in this order. With `renumber`, their positions become `renumber`,
 * `renumber + 1`, … and their keys are rotated accordingly; otherwise the tokens keep their positions. `ready` reports failures:
 * `invalid-argument` for an index without a token, `limit-exceeded` for more tokens than the invocation's pages hold, and, like
 * `synchronize`, the first error of the queue. */
static inline pie_kv_files_file pie_kv_files_file_extract(pie_kv_files_file self, pie_list_u32 indices, const uint32_t *renumber) {
  return (pie_kv_files_file){pie_raw_kv_files_file_extract(self.handle, (int32_t)indices.data, (int32_t)indices.length, renumber != 0, renumber ? (*renumber) : 0)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.merge") int32_t pie_raw_kv_files_file_merge(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-read-0][method]file.merge") int32_t pie_raw_kv_files_file_merge_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-drop-readable-0][method]file.merge") void pie_raw_kv_files_file_merge_forget(int32_t);
typedef struct { int32_t handle; } pie_kv_files_file_merge_future;
static inline pie_result pie_kv_files_file_merge_wait(pie_kv_files_file_merge_future future) {
  pie_result result;
  pie_raw_kv_files_file_merge_read(future.handle, &result);
  pie_raw_kv_files_file_merge_forget(future.handle);
  return result;
}
static inline void pie_kv_files_file_merge_forget(pie_kv_files_file_merge_future future) { pie_raw_kv_files_file_merge_forget(future.handle); }
/* Appends the tokens of another file of the same model. They are renumbered to follow this file's tokens, unless `keep-positions` is set.
 * Like `synchronize`, `merge` reports the first error of the queue. */
static inline pie_kv_files_file_merge_future pie_kv_files_file_merge(pie_kv_files_file self, pie_kv_files_file other, bool keep_positions) {
  return (pie_kv_files_file_merge_future){pie_raw_kv_files_file_merge(self.handle, other.handle, keep_positions)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.save") int32_t pie_raw_kv_files_file_save(int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-read-0][method]file.save") int32_t pie_raw_kv_files_file_save_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-drop-readable-0][method]file.save") void pie_raw_kv_files_file_save_forget(int32_t);
typedef struct { int32_t handle; } pie_kv_files_file_save_future;
static inline pie_result pie_kv_files_file_save_wait(pie_kv_files_file_save_future future) {
  pie_result result;
  pie_raw_kv_files_file_save_read(future.handle, &result);
  pie_raw_kv_files_file_save_forget(future.handle);
  return result;
}
static inline void pie_kv_files_file_save_forget(pie_kv_files_file_save_future future) { pie_raw_kv_files_file_save_forget(future.handle); }
/* Saves the file under its own name, which needs the lock, or under a new name. `invalid-argument` when another file has the name. */
static inline pie_kv_files_file_save_future pie_kv_files_file_save(pie_kv_files_file self, pie_string name, bool persistent, pie_kv_files_rights rights) {
  return (pie_kv_files_file_save_future){pie_raw_kv_files_file_save(self.handle, (int32_t)name.data, (int32_t)name.length, persistent, rights)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[method]file.unlock") void pie_raw_kv_files_file_unlock(int32_t);
/* Releases the lock. Dropping the file does the same. */
static inline void pie_kv_files_file_unlock(pie_kv_files_file self) {
  pie_raw_kv_files_file_unlock(self.handle);
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "make-durable") int32_t pie_raw_kv_files_make_durable(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-read-0]make-durable") int32_t pie_raw_kv_files_make_durable_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-drop-readable-0]make-durable") void pie_raw_kv_files_make_durable_forget(int32_t);
typedef struct { int32_t handle; } pie_kv_files_make_durable_future;
static inline pie_result pie_kv_files_make_durable_wait(pie_kv_files_make_durable_future future) {
  pie_result result;
  pie_raw_kv_files_make_durable_read(future.handle, &result);
  pie_raw_kv_files_make_durable_forget(future.handle);
  return result;
}
static inline void pie_kv_files_make_durable_forget(pie_kv_files_make_durable_future future) { pie_raw_kv_files_make_durable_forget(future.handle); }
/* Copies the content that was saved last under a name to the storage that the platform's machines share. While the GPU host that keeps the name
 * and its lock is away or lost, inferlets on other hosts can then open the name for reading. A later save or `remove` ends the copy. Needs the
 * right to write the file. Fails as `make-durable` of `allocate` does. */
static inline pie_kv_files_make_durable_future pie_kv_files_make_durable(pie_queue queue, pie_string name) {
  return (pie_kv_files_make_durable_future){pie_raw_kv_files_make_durable(queue.handle, (int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "remove") int32_t pie_raw_kv_files_remove(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-read-0]remove") int32_t pie_raw_kv_files_remove_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-drop-readable-0]remove") void pie_raw_kv_files_remove_forget(int32_t);
typedef struct { int32_t handle; } pie_kv_files_remove_future;
static inline pie_result pie_kv_files_remove_wait(pie_kv_files_remove_future future) {
  pie_result result;
  pie_raw_kv_files_remove_read(future.handle, &result);
  pie_raw_kv_files_remove_forget(future.handle);
  return result;
}
static inline void pie_kv_files_remove_forget(pie_kv_files_remove_future future) { pie_raw_kv_files_remove_forget(future.handle); }
/* Removes a name. Inferlets that have opened it keep their content. */
static inline pie_kv_files_remove_future pie_kv_files_remove(pie_queue queue, pie_string name) {
  return (pie_kv_files_remove_future){pie_raw_kv_files_remove(queue.handle, (int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "files") int32_t pie_raw_kv_files_files(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-read-0]files") int32_t pie_raw_kv_files_files_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[future-drop-readable-0]files") void pie_raw_kv_files_files_forget(int32_t);
typedef struct { int32_t handle; } pie_kv_files_files_future;
static inline pie_result_list_kv_files_file_info pie_kv_files_files_wait(pie_kv_files_files_future future) {
  pie_result_list_kv_files_file_info result;
  pie_raw_kv_files_files_read(future.handle, &result);
  pie_raw_kv_files_files_forget(future.handle);
  return result;
}
static inline void pie_kv_files_files_forget(pie_kv_files_files_future future) { pie_raw_kv_files_files_forget(future.handle); }
/* Files of the queue's model whose names begin with `prefix`, ordered by name. */
static inline pie_kv_files_files_future pie_kv_files_files(pie_queue queue, pie_string prefix) {
  return (pie_kv_files_files_future){pie_raw_kv_files_files(queue.handle, (int32_t)prefix.data, (int32_t)prefix.length)};
}

PIE_IMPORT("pie:inferlet/kv-files@0.1.0", "[resource-drop]file") void pie_raw_kv_files_file_drop(int32_t);
static inline void pie_kv_files_file_drop(pie_kv_files_file self) { pie_raw_kv_files_file_drop(self.handle); }

/* ---- input-image --------------------------------------------------------------------------------------------------- */
/* Encodes images into embeds, for models with a vision encoder. */

/* The size of an image in pixels. */
typedef struct {
  uint32_t width;
  uint32_t height;
} pie_input_image_dimensions;
typedef struct { bool failed; union { pie_input_image_dimensions ok; pie_error err; }; } pie_result_input_image_dimensions;
typedef struct { bool failed; union { uint32_t ok; pie_error err; }; } pie_result_u32;

PIE_IMPORT("pie:inferlet/input-image@0.1.0", "image-dimensions") void pie_raw_input_image_image_dimensions(int32_t, int32_t, void *);
/* The size of a PNG or JPEG image, read from its first bytes. `invalid-argument` for other data. */
static inline pie_result_input_image_dimensions pie_input_image_image_dimensions(pie_list_u8 image) {
  pie_result_input_image_dimensions result;
  pie_raw_input_image_image_dimensions((int32_t)image.data, (int32_t)image.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/input-image@0.1.0", "image-embeds") void pie_raw_input_image_image_embeds(int32_t, int32_t, int32_t, void *);
/* The number of embeds that an image of this size takes on the queue's model. `unsupported` when the model does not have the trait
 * `input-image`, `invalid-argument` when the image has too many pixels. */
static inline pie_result_u32 pie_input_image_image_embeds(pie_queue queue, const pie_input_image_dimensions *size) {
  pie_result_u32 result;
  pie_raw_input_image_image_embeds(queue.handle, (*size).width, (*size).height, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/input-image@0.1.0", "image-token") void pie_raw_input_image_image_token(int32_t, int32_t, void *);
/* The token that a model's chat template writes in place of an image (LLaVA: `<image>`). `unsupported` when the model does not have the trait
 * `input-image`, or when its config names no such token. */
static inline pie_result_u32 pie_input_image_image_token(pie_string model) {
  pie_result_u32 result;
  pie_raw_input_image_image_token((int32_t)model.data, (int32_t)model.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/input-image@0.1.0", "embed-image") int32_t pie_raw_input_image_embed_image(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/input-image@0.1.0", "[future-read-0]embed-image") int32_t pie_raw_input_image_embed_image_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/input-image@0.1.0", "[future-drop-readable-0]embed-image") void pie_raw_input_image_embed_image_forget(int32_t);
typedef struct { int32_t handle; } pie_input_image_embed_image_future;
static inline pie_result pie_input_image_embed_image_wait(pie_input_image_embed_image_future future) {
  pie_result result;
  pie_raw_input_image_embed_image_read(future.handle, &result);
  pie_raw_input_image_embed_image_forget(future.handle);
  return result;
}
static inline void pie_input_image_embed_image_forget(pie_input_image_embed_image_future future) { pie_raw_input_image_embed_image_forget(future.handle); }
/* Encodes a PNG or JPEG image (at most 8 MiB and 16 million pixels) into `embeds`, at `positions`. `image-embeds` tells how many embeds are
 * needed. The call costs a pass of the vision encoder, about as much as a prefill of the same number of tokens. */
static inline pie_input_image_embed_image_future pie_input_image_embed_image(pie_queue queue, pie_list_u8 image, pie_list_u32 positions, pie_list_u32 embeds) {
  return (pie_input_image_embed_image_future){pie_raw_input_image_embed_image(queue.handle, (int32_t)image.data, (int32_t)image.length, (int32_t)positions.data, (int32_t)positions.length, (int32_t)embeds.data, (int32_t)embeds.length)};
}

/* ---- adapter ------------------------------------------------------------------------------------------------------- */
/* Low-rank adapters (Hu et al., LoRA, 2021) that the platform's operator installed beside a model. Calls share the keys and values of equal
 * prefixes only with calls of the same adapter; calls without an adapter share them among themselves. */

typedef struct {
  pie_string name;
  uint32_t rank;
  /* True when the adapter is in the device's memory. */
  bool loaded;
} pie_adapter_info;
typedef struct { const pie_adapter_info *data; uint32_t length; } pie_list_adapter_info;
typedef struct { bool failed; union { pie_list_adapter_info ok; pie_error err; }; } pie_result_list_adapter_info;

PIE_IMPORT("pie:inferlet/adapter@0.1.0", "list-adapters") int32_t pie_raw_adapter_list_adapters(int32_t);
PIE_IMPORT("pie:inferlet/adapter@0.1.0", "[future-read-0]list-adapters") int32_t pie_raw_adapter_list_adapters_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/adapter@0.1.0", "[future-drop-readable-0]list-adapters") void pie_raw_adapter_list_adapters_forget(int32_t);
typedef struct { int32_t handle; } pie_adapter_list_adapters_future;
static inline pie_result_list_adapter_info pie_adapter_list_adapters_wait(pie_adapter_list_adapters_future future) {
  pie_result_list_adapter_info result;
  pie_raw_adapter_list_adapters_read(future.handle, &result);
  pie_raw_adapter_list_adapters_forget(future.handle);
  return result;
}
static inline void pie_adapter_list_adapters_forget(pie_adapter_list_adapters_future future) { pie_raw_adapter_list_adapters_forget(future.handle); }
/* The adapters of the queue's model, ordered by name. */
static inline pie_adapter_list_adapters_future pie_adapter_list_adapters(pie_queue queue) {
  return (pie_adapter_list_adapters_future){pie_raw_adapter_list_adapters(queue.handle)};
}

PIE_IMPORT("pie:inferlet/adapter@0.1.0", "load-adapter") int32_t pie_raw_adapter_load_adapter(int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/adapter@0.1.0", "[future-read-0]load-adapter") int32_t pie_raw_adapter_load_adapter_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/adapter@0.1.0", "[future-drop-readable-0]load-adapter") void pie_raw_adapter_load_adapter_forget(int32_t);
typedef struct { int32_t handle; } pie_adapter_load_adapter_future;
static inline pie_result pie_adapter_load_adapter_wait(pie_adapter_load_adapter_future future) {
  pie_result result;
  pie_raw_adapter_load_adapter_read(future.handle, &result);
  pie_raw_adapter_load_adapter_forget(future.handle);
  return result;
}
static inline void pie_adapter_load_adapter_forget(pie_adapter_load_adapter_future future) { pie_raw_adapter_load_adapter_forget(future.handle); }
/* Loads an adapter into the device's memory, so that the first call with the adapter need not wait for it. `not-found` when no adapter
 * has this name, `invalid-argument` for a malformed name. */
static inline pie_adapter_load_adapter_future pie_adapter_load_adapter(pie_queue queue, pie_string name) {
  return (pie_adapter_load_adapter_future){pie_raw_adapter_load_adapter(queue.handle, (int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/adapter@0.1.0", "forward-with-adapter") void pie_raw_adapter_forward_with_adapter(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
/* Like `forward`, with the adapter's matrices added to those of the model. Calls with different adapters share a batch only if the
 * backend supports this. */
static inline void pie_adapter_forward_with_adapter(pie_queue queue, pie_string adapter, pie_list_u32 in_pages, pie_list_u32 in_embeds, pie_list_u32 out_pages, pie_list_u32 out_embeds, const pie_forward_mask *mask) {
  pie_raw_adapter_forward_with_adapter(queue.handle, (int32_t)adapter.data, (int32_t)adapter.length, (int32_t)in_pages.data, (int32_t)in_pages.length, (int32_t)in_embeds.data, (int32_t)in_embeds.length, (int32_t)out_pages.data, (int32_t)out_pages.length, (int32_t)out_embeds.data, (int32_t)out_embeds.length, mask != 0, mask ? (int32_t)(*mask).runs.data : 0, mask ? (int32_t)(*mask).runs.length : 0, mask ? (int32_t)(*mask).row_lengths.data : 0, mask ? (int32_t)(*mask).row_lengths.length : 0);
}

PIE_IMPORT("pie:inferlet/adapter@0.1.0", "step") int32_t pie_raw_adapter_step(const void *);
PIE_IMPORT("pie:inferlet/adapter@0.1.0", "[future-read-0]step") int32_t pie_raw_adapter_step_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/adapter@0.1.0", "[future-drop-readable-0]step") void pie_raw_adapter_step_forget(int32_t);
typedef struct { int32_t handle; } pie_adapter_step_future;
static inline pie_result_fused_step_result pie_adapter_step_wait(pie_adapter_step_future future) {
  pie_result_fused_step_result result;
  pie_raw_adapter_step_read(future.handle, &result);
  pie_raw_adapter_step_forget(future.handle);
  return result;
}
static inline void pie_adapter_step_forget(pie_adapter_step_future future) { pie_raw_adapter_step_forget(future.handle); }
/* Like `fused.step`, with the adapter. */
static inline pie_adapter_step_future pie_adapter_step(pie_queue queue, pie_string adapter, const pie_fused_step_request *request) {
  struct { pie_queue queue; pie_string adapter; pie_fused_step_request request; } arguments = {0};
  arguments.queue = queue;
  arguments.adapter = adapter;
  arguments.request = (*request);
  return (pie_adapter_step_future){pie_raw_adapter_step(&arguments)};
}

/* ---- embedding ----------------------------------------------------------------------------------------------------- */
/* Turns texts into vectors with an encoder: texts of like meaning have vectors of like direction. Needs no queue and no pages. */

/* `embed` takes models of the kind `embedding`, `rerank` those of the kind `reranker`. */
enum {
  PIE_EMBEDDING_ENCODER_KIND_EMBEDDING = 0,
  PIE_EMBEDDING_ENCODER_KIND_RERANKER = 1,
};
typedef uint8_t pie_embedding_encoder_kind;
/* A model that encodes texts. */
typedef struct {
  pie_string name;
  pie_embedding_encoder_kind kind;
  /* Number of values of a vector; 1 for a reranker. */
  uint32_t size;
  /* Maximum tokens of a text, or for a reranker of a query and a document together, special tokens included. */
  uint32_t context_length;
} pie_embedding_encoder_info;
typedef struct {
  /* Number of values of each vector. */
  uint32_t size;
  /* The vectors of all texts, one after the other, in the order of the texts. */
  pie_list_f32 values;
  /* Tokens that were encoded. */
  uint32_t tokens;
  /* Number of texts that were longer than the model takes: their ends were left out. */
  uint32_t cut;
} pie_embedding_vectors;
typedef struct { const pie_embedding_encoder_info *data; uint32_t length; } pie_list_embedding_encoder_info;
typedef struct { bool failed; union { pie_embedding_vectors ok; pie_error err; }; } pie_result_embedding_vectors;

PIE_IMPORT("pie:inferlet/embedding@0.1.0", "encoders") void pie_raw_embedding_encoders(void *);
/* The encoders that the function was granted. */
static inline pie_list_embedding_encoder_info pie_embedding_encoders(void) {
  pie_list_embedding_encoder_info result;
  pie_raw_embedding_encoders(&result);
  return result;
}

PIE_IMPORT("pie:inferlet/embedding@0.1.0", "embed") int32_t pie_raw_embedding_embed(int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/embedding@0.1.0", "[future-read-0]embed") int32_t pie_raw_embedding_embed_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/embedding@0.1.0", "[future-drop-readable-0]embed") void pie_raw_embedding_embed_forget(int32_t);
typedef struct { int32_t handle; } pie_embedding_embed_future;
static inline pie_result_embedding_vectors pie_embedding_embed_wait(pie_embedding_embed_future future) {
  pie_result_embedding_vectors result;
  pie_raw_embedding_embed_read(future.handle, &result);
  pie_raw_embedding_embed_forget(future.handle);
  return result;
}
static inline void pie_embedding_embed_forget(pie_embedding_embed_future future) { pie_raw_embedding_embed_forget(future.handle); }
/* The vectors of up to 256 texts of up to 262,144 characters in all. An empty name selects the first embedding model. The call costs a pass
 * of the encoder; texts of many inferlets are computed together. Dropping the future before its value is there ends the call: texts that the
 * device has not begun are not computed. */
static inline pie_embedding_embed_future pie_embedding_embed(pie_string model, pie_list_string texts) {
  return (pie_embedding_embed_future){pie_raw_embedding_embed((int32_t)model.data, (int32_t)model.length, (int32_t)texts.data, (int32_t)texts.length)};
}

/* ---- rerank -------------------------------------------------------------------------------------------------------- */
/* Scores how well documents answer a query, with an encoder that reads both together. Needs no queue and no pages. */

typedef struct {
  /* One number for each document, in the order of the documents: larger is better. Compare a number only with others of the same
   * model. For most models, the logistic function of the number is a probability. */
  pie_list_f32 values;
  /* Tokens that were encoded. */
  uint32_t tokens;
  /* Number of pairs of query and document that were longer than the model takes: the end of the pair's longer text was left out. */
  uint32_t cut;
} pie_rerank_scores;
typedef struct { bool failed; union { pie_rerank_scores ok; pie_error err; }; } pie_result_rerank_scores;

PIE_IMPORT("pie:inferlet/rerank@0.1.0", "rerank") int32_t pie_raw_rerank(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/rerank@0.1.0", "[future-read-0]rerank") int32_t pie_raw_rerank_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/rerank@0.1.0", "[future-drop-readable-0]rerank") void pie_raw_rerank_forget(int32_t);
typedef struct { int32_t handle; } pie_rerank_future;
static inline pie_result_rerank_scores pie_rerank_wait(pie_rerank_future future) {
  pie_result_rerank_scores result;
  pie_raw_rerank_read(future.handle, &result);
  pie_raw_rerank_forget(future.handle);
  return result;
}
static inline void pie_rerank_forget(pie_rerank_future future) { pie_raw_rerank_forget(future.handle); }
/* The scores of up to 256 documents of up to 262,144 characters in all, with the query counted once for each document. An empty name selects
 * the first reranker. Dropping the future ends the call, as for `embed`. */
static inline pie_rerank_future pie_rerank(pie_string model, pie_string query, pie_list_string documents) {
  return (pie_rerank_future){pie_raw_rerank((int32_t)model.data, (int32_t)model.length, (int32_t)query.data, (int32_t)query.length, (int32_t)documents.data, (int32_t)documents.length)};
}

/* ---- index --------------------------------------------------------------------------------------------------------- */
/* Durable indexes of the tenant, which find entries by meaning, by words, or by both. All functions with the grant `store` share the indexes
 * (manifest: `grants.store`). Without this grant, every call fails with `unsupported`. When the grant is `read`, the calls that write fail with
 * `unsupported`. The name of an index has 1 to 128 letters, digits, dots, hyphens and underscores, and does not begin with a dot. While the index
 * host restarts, calls fail with `unavailable`: call again later. A write that fails with `unavailable` may still have taken effect. */

/* Measure of how near two vectors are. `cosine` is the cosine of the angle between them, `dot-product` is their dot product, and `euclidean` is
 * the negative square of their distance. */
enum {
  PIE_INDEX_METRIC_COSINE = 0,
  PIE_INDEX_METRIC_DOT_PRODUCT = 1,
  PIE_INDEX_METRIC_EUCLIDEAN = 2,
};
typedef uint8_t pie_index_metric;
enum {
  PIE_INDEX_VALUE_TEXT = 0,
  PIE_INDEX_VALUE_NUMBER = 1,
  PIE_INDEX_VALUE_BOOLEAN = 2,
};
typedef struct { uint8_t tag; union { pie_string text; double number; bool boolean; }; } pie_index_value;
typedef struct {
  pie_string name;
  pie_index_value value;
} pie_index_field;
typedef struct { const pie_index_field *data; uint32_t length; } pie_list_index_field;
/* An entry without its vector, which `upsert` takes separately. The id has 1 to 512 bytes, and the text at most 64 KiB. An entry has at most 32
 * fields. The name of a field has 1 to 64 bytes, and a text as its value at most 1,024 bytes. */
typedef struct {
  pie_string id;
  /* A text that queries find by its words. The index does not compute the vector from the text. */
  pie_option_string text;
  pie_list_index_field fields;
} pie_index_entry;
/* `equal` holds when the field has one of the values. `not-equal` holds when the field has none of the values, or is missing. The other
 * comparisons take one value, a text or a number. They hold only for fields whose value is of the same kind. Texts are compared byte by byte. */
enum {
  PIE_INDEX_COMPARISON_EQUAL = 0,
  PIE_INDEX_COMPARISON_NOT_EQUAL = 1,
  PIE_INDEX_COMPARISON_LESS = 2,
  PIE_INDEX_COMPARISON_AT_MOST = 3,
  PIE_INDEX_COMPARISON_GREATER = 4,
  PIE_INDEX_COMPARISON_AT_LEAST = 5,
};
typedef uint8_t pie_index_comparison;
typedef struct { const pie_index_value *data; uint32_t length; } pie_list_index_value;
/* A condition on one field of an entry. */
typedef struct {
  pie_string field;
  pie_index_comparison comparison;
  pie_list_index_value values;
} pie_index_condition;
typedef struct {
  pie_index_entry entry;
  /* Larger is better. A query by vector scores an entry by the metric of the index, and a query by words by BM25. A query by both makes one
   * ranking for each. An entry scores the sum of 1 / (60 + rank) over the rankings that contain it; the best rank is 1. */
  double score;
} pie_index_match;
typedef struct {
  pie_string name;
  uint32_t dimensions;
  pie_index_metric metric;
  uint64_t entries;
  /* Bytes of the index that count towards the tenant's limits and storage quota. */
  uint64_t bytes;
} pie_index_info;
typedef struct { bool failed; union { pie_index_info ok; pie_error err; }; } pie_result_index_info;
typedef struct { const pie_index_entry *data; uint32_t length; } pie_list_index_entry;
typedef struct { bool some; pie_list_f32 value; } pie_option_list_f32;
typedef struct { const pie_index_condition *data; uint32_t length; } pie_list_index_condition;
typedef struct { const pie_index_match *data; uint32_t length; } pie_list_index_match;
typedef struct { bool failed; union { pie_list_index_match ok; pie_error err; }; } pie_result_list_index_match;
typedef struct { const pie_index_info *data; uint32_t length; } pie_list_index_info;
typedef struct { bool failed; union { pie_list_index_info ok; pie_error err; }; } pie_result_list_index_info;

PIE_IMPORT("pie:inferlet/index@0.1.0", "create") int32_t pie_raw_index_create(int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-read-0]create") int32_t pie_raw_index_create_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-drop-readable-0]create") void pie_raw_index_create_forget(int32_t);
typedef struct { int32_t handle; } pie_index_create_future;
static inline pie_result_index_info pie_index_create_wait(pie_index_create_future future) {
  pie_result_index_info result;
  pie_raw_index_create_read(future.handle, &result);
  pie_raw_index_create_forget(future.handle);
  return result;
}
static inline void pie_index_create_forget(pie_index_create_future future) { pie_raw_index_create_forget(future.handle); }
/* Makes an index for vectors of 1 to 4,096 values. When the tenant already has an index of this name with the same dimensions and metric, that
 * index stays as it is. When its dimensions or metric differ, the call fails with `invalid-argument`. */
static inline pie_index_create_future pie_index_create(pie_string name, uint32_t dimensions, pie_index_metric metric) {
  return (pie_index_create_future){pie_raw_index_create((int32_t)name.data, (int32_t)name.length, dimensions, metric)};
}

PIE_IMPORT("pie:inferlet/index@0.1.0", "upsert") int32_t pie_raw_index_upsert(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-read-0]upsert") int32_t pie_raw_index_upsert_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-drop-readable-0]upsert") void pie_raw_index_upsert_forget(int32_t);
typedef struct { int32_t handle; } pie_index_upsert_future;
static inline pie_result pie_index_upsert_wait(pie_index_upsert_future future) {
  pie_result result;
  pie_raw_index_upsert_read(future.handle, &result);
  pie_raw_index_upsert_forget(future.handle);
  return result;
}
static inline void pie_index_upsert_forget(pie_index_upsert_future future) { pie_raw_index_upsert_forget(future.handle); }
/* Stores up to 256 entries, all or none. An entry replaces an earlier entry with the same id. `vectors` has the vectors of all entries one after
 * the other, in the order of `entries`. Entries and vectors together have at most 4 MiB. Fails with `limit-exceeded` when the tenant's indexes
 * have no room. */
static inline pie_index_upsert_future pie_index_upsert(pie_string name, pie_list_index_entry entries, pie_list_f32 vectors) {
  return (pie_index_upsert_future){pie_raw_index_upsert((int32_t)name.data, (int32_t)name.length, (int32_t)entries.data, (int32_t)entries.length, (int32_t)vectors.data, (int32_t)vectors.length)};
}

PIE_IMPORT("pie:inferlet/index@0.1.0", "delete-entries") int32_t pie_raw_index_delete_entries(int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-read-0]delete-entries") int32_t pie_raw_index_delete_entries_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-drop-readable-0]delete-entries") void pie_raw_index_delete_entries_forget(int32_t);
typedef struct { int32_t handle; } pie_index_delete_entries_future;
static inline pie_result_u32 pie_index_delete_entries_wait(pie_index_delete_entries_future future) {
  pie_result_u32 result;
  pie_raw_index_delete_entries_read(future.handle, &result);
  pie_raw_index_delete_entries_forget(future.handle);
  return result;
}
static inline void pie_index_delete_entries_forget(pie_index_delete_entries_future future) { pie_raw_index_delete_entries_forget(future.handle); }
/* Deletes up to 256 entries by their ids. Ignores ids that have no entry. Completes with the number of deleted entries. */
static inline pie_index_delete_entries_future pie_index_delete_entries(pie_string name, pie_list_string ids) {
  return (pie_index_delete_entries_future){pie_raw_index_delete_entries((int32_t)name.data, (int32_t)name.length, (int32_t)ids.data, (int32_t)ids.length)};
}

PIE_IMPORT("pie:inferlet/index@0.1.0", "query") int32_t pie_raw_index_query(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-read-0]query") int32_t pie_raw_index_query_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-drop-readable-0]query") void pie_raw_index_query_forget(int32_t);
typedef struct { int32_t handle; } pie_index_query_future;
static inline pie_result_list_index_match pie_index_query_wait(pie_index_query_future future) {
  pie_result_list_index_match result;
  pie_raw_index_query_read(future.handle, &result);
  pie_raw_index_query_forget(future.handle);
  return result;
}
static inline void pie_index_query_forget(pie_index_query_future future) { pie_raw_index_query_forget(future.handle); }
/* The best entries that fulfil all conditions of `filter`, the best one first. `limit` is the maximum number of entries, 1 to 256. A filter has at
 * most 16 conditions with at most 64 values each. A query needs a vector, a text of at most 8,192 bytes, or both. A text finds entries that have
 * any of its first 16 words. In a large index, only the rarer of these words count, and the search for the nearest vectors is approximate: it
 * misses about one in a hundred. */
static inline pie_index_query_future pie_index_query(pie_string name, const pie_list_f32 *vector, const pie_string *text, pie_list_index_condition filter, uint32_t limit) {
  return (pie_index_query_future){pie_raw_index_query((int32_t)name.data, (int32_t)name.length, vector != 0, vector ? (int32_t)(*vector).data : 0, vector ? (int32_t)(*vector).length : 0, text != 0, text ? (int32_t)(*text).data : 0, text ? (int32_t)(*text).length : 0, (int32_t)filter.data, (int32_t)filter.length, limit)};
}

PIE_IMPORT("pie:inferlet/index@0.1.0", "stats") int32_t pie_raw_index_stats(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-read-0]stats") int32_t pie_raw_index_stats_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-drop-readable-0]stats") void pie_raw_index_stats_forget(int32_t);
typedef struct { int32_t handle; } pie_index_stats_future;
static inline pie_result_index_info pie_index_stats_wait(pie_index_stats_future future) {
  pie_result_index_info result;
  pie_raw_index_stats_read(future.handle, &result);
  pie_raw_index_stats_forget(future.handle);
  return result;
}
static inline void pie_index_stats_forget(pie_index_stats_future future) { pie_raw_index_stats_forget(future.handle); }
/* Describes one index. */
static inline pie_index_stats_future pie_index_stats(pie_string name) {
  return (pie_index_stats_future){pie_raw_index_stats((int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/index@0.1.0", "list-indexes") int32_t pie_raw_index_list_indexes(void);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-read-0]list-indexes") int32_t pie_raw_index_list_indexes_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-drop-readable-0]list-indexes") void pie_raw_index_list_indexes_forget(int32_t);
typedef struct { int32_t handle; } pie_index_list_indexes_future;
static inline pie_result_list_index_info pie_index_list_indexes_wait(pie_index_list_indexes_future future) {
  pie_result_list_index_info result;
  pie_raw_index_list_indexes_read(future.handle, &result);
  pie_raw_index_list_indexes_forget(future.handle);
  return result;
}
static inline void pie_index_list_indexes_forget(pie_index_list_indexes_future future) { pie_raw_index_list_indexes_forget(future.handle); }
/* Describes all indexes of the tenant, ordered by name. */
static inline pie_index_list_indexes_future pie_index_list_indexes(void) {
  return (pie_index_list_indexes_future){pie_raw_index_list_indexes()};
}

PIE_IMPORT("pie:inferlet/index@0.1.0", "drop-index") int32_t pie_raw_index_drop_index(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-read-0]drop-index") int32_t pie_raw_index_drop_index_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/index@0.1.0", "[future-drop-readable-0]drop-index") void pie_raw_index_drop_index_forget(int32_t);
typedef struct { int32_t handle; } pie_index_drop_index_future;
static inline pie_result_bool pie_index_drop_index_wait(pie_index_drop_index_future future) {
  pie_result_bool result;
  pie_raw_index_drop_index_read(future.handle, &result);
  pie_raw_index_drop_index_forget(future.handle);
  return result;
}
static inline void pie_index_drop_index_forget(pie_index_drop_index_future future) { pie_raw_index_drop_index_forget(future.handle); }
/* Deletes an index with its entries. Completes with false when there was no such index. */
static inline pie_index_drop_index_future pie_index_drop_index(pie_string name) {
  return (pie_index_drop_index_future){pie_raw_index_drop_index((int32_t)name.data, (int32_t)name.length)};
}

/* ---- store --------------------------------------------------------------------------------------------------------- */
/* Durable values by key, shared by a tenant's functions that have the grant `store` (manifest: `grants.store`). Without the grant every call
 * fails with `unsupported`; with the grant `read`, so do the calls that write. Keys have 1 to 512 bytes of UTF-8, values at most 1 MiB.
 * `limit-exceeded` when the tenant's store is full. A call costs one round trip to the platform's store, about 0.2 ms. */

typedef struct {
  pie_list_u8 value;
  /* Grows with every write of the key. `compare-and-set` compares it. */
  uint64_t version;
} pie_store_entry;
typedef struct { bool some; pie_store_entry value; } pie_option_store_entry;
typedef struct { bool failed; union { pie_option_store_entry ok; pie_error err; }; } pie_result_option_store_entry;
typedef struct { bool failed; union { uint64_t ok; pie_error err; }; } pie_result_u64;
typedef struct { bool some; uint64_t value; } pie_option_u64;
typedef struct { bool failed; union { pie_option_u64 ok; pie_error err; }; } pie_result_option_u64;

PIE_IMPORT("pie:inferlet/store@0.1.0", "get") int32_t pie_raw_store_get(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-read-0]get") int32_t pie_raw_store_get_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-drop-readable-0]get") void pie_raw_store_get_forget(int32_t);
typedef struct { int32_t handle; } pie_store_get_future;
static inline pie_result_option_store_entry pie_store_get_wait(pie_store_get_future future) {
  pie_result_option_store_entry result;
  pie_raw_store_get_read(future.handle, &result);
  pie_raw_store_get_forget(future.handle);
  return result;
}
static inline void pie_store_get_forget(pie_store_get_future future) { pie_raw_store_get_forget(future.handle); }
/* The value of a key, or none. */
static inline pie_store_get_future pie_store_get(pie_string key) {
  return (pie_store_get_future){pie_raw_store_get((int32_t)key.data, (int32_t)key.length)};
}

PIE_IMPORT("pie:inferlet/store@0.1.0", "set") int32_t pie_raw_store_set(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-read-0]set") int32_t pie_raw_store_set_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-drop-readable-0]set") void pie_raw_store_set_forget(int32_t);
typedef struct { int32_t handle; } pie_store_set_future;
static inline pie_result_u64 pie_store_set_wait(pie_store_set_future future) {
  pie_result_u64 result;
  pie_raw_store_set_read(future.handle, &result);
  pie_raw_store_set_forget(future.handle);
  return result;
}
static inline void pie_store_set_forget(pie_store_set_future future) { pie_raw_store_set_forget(future.handle); }
/* Writes a value over any earlier one. Completes with its version. The store deletes the value after `time-to-live` seconds, if given. */
static inline pie_store_set_future pie_store_set(pie_string key, pie_list_u8 value, const uint32_t *time_to_live) {
  return (pie_store_set_future){pie_raw_store_set((int32_t)key.data, (int32_t)key.length, (int32_t)value.data, (int32_t)value.length, time_to_live != 0, time_to_live ? (*time_to_live) : 0)};
}

PIE_IMPORT("pie:inferlet/store@0.1.0", "compare-and-set") int32_t pie_raw_store_compare_and_set(int32_t, int32_t, int32_t, int64_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-read-0]compare-and-set") int32_t pie_raw_store_compare_and_set_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-drop-readable-0]compare-and-set") void pie_raw_store_compare_and_set_forget(int32_t);
typedef struct { int32_t handle; } pie_store_compare_and_set_future;
static inline pie_result_option_u64 pie_store_compare_and_set_wait(pie_store_compare_and_set_future future) {
  pie_result_option_u64 result;
  pie_raw_store_compare_and_set_read(future.handle, &result);
  pie_raw_store_compare_and_set_forget(future.handle);
  return result;
}
static inline void pie_store_compare_and_set_forget(pie_store_compare_and_set_future future) { pie_raw_store_compare_and_set_forget(future.handle); }
/* Writes a value if the key has the version `expected` (none: if the key has no value). Completes with the new version, or with none when
 * the version differs: read the value again. The key keeps its time to live. */
static inline pie_store_compare_and_set_future pie_store_compare_and_set(pie_string key, const uint64_t *expected, pie_list_u8 value) {
  return (pie_store_compare_and_set_future){pie_raw_store_compare_and_set((int32_t)key.data, (int32_t)key.length, expected != 0, expected ? (*expected) : 0, (int32_t)value.data, (int32_t)value.length)};
}

PIE_IMPORT("pie:inferlet/store@0.1.0", "delete-key") int32_t pie_raw_store_delete_key(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-read-0]delete-key") int32_t pie_raw_store_delete_key_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-drop-readable-0]delete-key") void pie_raw_store_delete_key_forget(int32_t);
typedef struct { int32_t handle; } pie_store_delete_key_future;
static inline pie_result_bool pie_store_delete_key_wait(pie_store_delete_key_future future) {
  pie_result_bool result;
  pie_raw_store_delete_key_read(future.handle, &result);
  pie_raw_store_delete_key_forget(future.handle);
  return result;
}
static inline void pie_store_delete_key_forget(pie_store_delete_key_future future) { pie_raw_store_delete_key_forget(future.handle); }
/* Deletes a value. Completes with false when there was none. */
static inline pie_store_delete_key_future pie_store_delete_key(pie_string key) {
  return (pie_store_delete_key_future){pie_raw_store_delete_key((int32_t)key.data, (int32_t)key.length)};
}

PIE_IMPORT("pie:inferlet/store@0.1.0", "exists") int32_t pie_raw_store_exists(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-read-0]exists") int32_t pie_raw_store_exists_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-drop-readable-0]exists") void pie_raw_store_exists_forget(int32_t);
typedef struct { int32_t handle; } pie_store_exists_future;
static inline pie_result_bool pie_store_exists_wait(pie_store_exists_future future) {
  pie_result_bool result;
  pie_raw_store_exists_read(future.handle, &result);
  pie_raw_store_exists_forget(future.handle);
  return result;
}
static inline void pie_store_exists_forget(pie_store_exists_future future) { pie_raw_store_exists_forget(future.handle); }
static inline pie_store_exists_future pie_store_exists(pie_string key) {
  return (pie_store_exists_future){pie_raw_store_exists((int32_t)key.data, (int32_t)key.length)};
}

PIE_IMPORT("pie:inferlet/store@0.1.0", "list-keys") int32_t pie_raw_store_list_keys(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-read-0]list-keys") int32_t pie_raw_store_list_keys_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/store@0.1.0", "[future-drop-readable-0]list-keys") void pie_raw_store_list_keys_forget(int32_t);
typedef struct { int32_t handle; } pie_store_list_keys_future;
static inline pie_result_list_string pie_store_list_keys_wait(pie_store_list_keys_future future) {
  pie_result_list_string result;
  pie_raw_store_list_keys_read(future.handle, &result);
  pie_raw_store_list_keys_forget(future.handle);
  return result;
}
static inline void pie_store_list_keys_forget(pie_store_list_keys_future future) { pie_raw_store_list_keys_forget(future.handle); }
/* Keys that begin with `prefix` and follow `after`, ordered by their bytes. Returns at most `limit` keys (1 to 1,000). */
static inline pie_store_list_keys_future pie_store_list_keys(pie_string prefix, const pie_string *after, uint32_t limit) {
  return (pie_store_list_keys_future){pie_raw_store_list_keys((int32_t)prefix.data, (int32_t)prefix.length, after != 0, after ? (int32_t)(*after).data : 0, after ? (int32_t)(*after).length : 0, limit)};
}

/* ---- messaging ----------------------------------------------------------------------------------------------------- */
/* Messages among the inferlets of one tenant. Each function needs the grant `messaging` (manifest: `grants.messaging`); without the grant,
 * every call fails with `unsupported`. Names of topics and queues have 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`. A message
 * has at most 1 MiB. A call costs one round trip to the platform's store, about 0.2 ms. */

/* A message and its sender. */
typedef struct {
  /* Invocation id of the sender. */
  pie_string sender;
  pie_session_message message;
} pie_messaging_envelope;
typedef struct { int32_t handle; } pie_messaging_subscription;
typedef struct { bool failed; union { pie_messaging_envelope ok; pie_error err; }; } pie_result_messaging_envelope;

PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[constructor]subscription") int32_t pie_raw_messaging_subscription_new(int32_t, int32_t);
/* An inferlet may have 64 subscriptions at once. On a subscription beyond these, `ready` and `next` fail with `limit-exceeded`. */
static inline pie_messaging_subscription pie_messaging_subscription_new(pie_string topic) {
  return (pie_messaging_subscription){pie_raw_messaging_subscription_new((int32_t)topic.data, (int32_t)topic.length)};
}

PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[method]subscription.ready") int32_t pie_raw_messaging_subscription_ready(int32_t);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-read-0][method]subscription.ready") int32_t pie_raw_messaging_subscription_ready_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-drop-readable-0][method]subscription.ready") void pie_raw_messaging_subscription_ready_forget(int32_t);
typedef struct { int32_t handle; } pie_messaging_subscription_ready_future;
static inline pie_result pie_messaging_subscription_ready_wait(pie_messaging_subscription_ready_future future) {
  pie_result result;
  pie_raw_messaging_subscription_ready_read(future.handle, &result);
  pie_raw_messaging_subscription_ready_forget(future.handle);
  return result;
}
static inline void pie_messaging_subscription_ready_forget(pie_messaging_subscription_ready_future future) { pie_raw_messaging_subscription_ready_forget(future.handle); }
/* Completes once the subscription is in effect: it receives messages that are broadcast later. */
static inline pie_messaging_subscription_ready_future pie_messaging_subscription_ready(pie_messaging_subscription self) {
  return (pie_messaging_subscription_ready_future){pie_raw_messaging_subscription_ready(self.handle)};
}

PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[method]subscription.next") int32_t pie_raw_messaging_subscription_next(int32_t);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-read-0][method]subscription.next") int32_t pie_raw_messaging_subscription_next_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-drop-readable-0][method]subscription.next") void pie_raw_messaging_subscription_next_forget(int32_t);
typedef struct { int32_t handle; } pie_messaging_subscription_next_future;
static inline pie_result_messaging_envelope pie_messaging_subscription_next_wait(pie_messaging_subscription_next_future future) {
  pie_result_messaging_envelope result;
  pie_raw_messaging_subscription_next_read(future.handle, &result);
  pie_raw_messaging_subscription_next_forget(future.handle);
  return result;
}
static inline void pie_messaging_subscription_next_forget(pie_messaging_subscription_next_future future) { pie_raw_messaging_subscription_next_forget(future.handle); }
/* The next message; waits for one. At most 1,024 messages with 4 MiB may be unread. The platform drops a message that does not fit, or for which
 * the tenant's share of the runtime's memory has no room. At the place of dropped messages, `next` fails once with `limit-exceeded`. It fails
 * with `unavailable` where the inferlet may have missed messages because the platform's store was away, and with `closed` after `unsubscribe`. */
static inline pie_messaging_subscription_next_future pie_messaging_subscription_next(pie_messaging_subscription self) {
  return (pie_messaging_subscription_next_future){pie_raw_messaging_subscription_next(self.handle)};
}

PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[method]subscription.unsubscribe") void pie_raw_messaging_subscription_unsubscribe(int32_t);
static inline void pie_messaging_subscription_unsubscribe(pie_messaging_subscription self) {
  pie_raw_messaging_subscription_unsubscribe(self.handle);
}

PIE_IMPORT("pie:inferlet/messaging@0.1.0", "broadcast") int32_t pie_raw_messaging_broadcast(int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-read-0]broadcast") int32_t pie_raw_messaging_broadcast_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-drop-readable-0]broadcast") void pie_raw_messaging_broadcast_forget(int32_t);
typedef struct { int32_t handle; } pie_messaging_broadcast_future;
static inline pie_result_u32 pie_messaging_broadcast_wait(pie_messaging_broadcast_future future) {
  pie_result_u32 result;
  pie_raw_messaging_broadcast_read(future.handle, &result);
  pie_raw_messaging_broadcast_forget(future.handle);
  return result;
}
static inline void pie_messaging_broadcast_forget(pie_messaging_broadcast_future future) { pie_raw_messaging_broadcast_forget(future.handle); }
/* Sends a message to all current subscriptions of `topic`. Later subscriptions do not get the message. Completes with the number of subscriptions
 * to which the message was sent. */
static inline pie_messaging_broadcast_future pie_messaging_broadcast(pie_string topic, pie_session_message message) {
  return (pie_messaging_broadcast_future){pie_raw_messaging_broadcast((int32_t)topic.data, (int32_t)topic.length, message.tag, message.tag == PIE_SESSION_MESSAGE_TEXT ? (int32_t)message.text.data : message.tag == PIE_SESSION_MESSAGE_BYTES ? (int32_t)message.bytes.data : 0, message.tag == PIE_SESSION_MESSAGE_TEXT ? (int32_t)message.text.length : message.tag == PIE_SESSION_MESSAGE_BYTES ? (int32_t)message.bytes.length : 0)};
}

PIE_IMPORT("pie:inferlet/messaging@0.1.0", "push") int32_t pie_raw_messaging_push(int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-read-0]push") int32_t pie_raw_messaging_push_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-drop-readable-0]push") void pie_raw_messaging_push_forget(int32_t);
typedef struct { int32_t handle; } pie_messaging_push_future;
static inline pie_result pie_messaging_push_wait(pie_messaging_push_future future) {
  pie_result result;
  pie_raw_messaging_push_read(future.handle, &result);
  pie_raw_messaging_push_forget(future.handle);
  return result;
}
static inline void pie_messaging_push_forget(pie_messaging_push_future future) { pie_raw_messaging_push_forget(future.handle); }
/* Appends a message to a queue. At most one `pull` gets the message. Fails with `limit-exceeded` when the queue holds 10,000 messages or 16 MiB,
 * or when all queues of the tenant together hold 64 MiB. The platform deletes a queue after a day without use. */
static inline pie_messaging_push_future pie_messaging_push(pie_string name, pie_session_message message) {
  return (pie_messaging_push_future){pie_raw_messaging_push((int32_t)name.data, (int32_t)name.length, message.tag, message.tag == PIE_SESSION_MESSAGE_TEXT ? (int32_t)message.text.data : message.tag == PIE_SESSION_MESSAGE_BYTES ? (int32_t)message.bytes.data : 0, message.tag == PIE_SESSION_MESSAGE_TEXT ? (int32_t)message.text.length : message.tag == PIE_SESSION_MESSAGE_BYTES ? (int32_t)message.bytes.length : 0)};
}

PIE_IMPORT("pie:inferlet/messaging@0.1.0", "pull") int32_t pie_raw_messaging_pull(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-read-0]pull") int32_t pie_raw_messaging_pull_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[future-drop-readable-0]pull") void pie_raw_messaging_pull_forget(int32_t);
typedef struct { int32_t handle; } pie_messaging_pull_future;
static inline pie_result_messaging_envelope pie_messaging_pull_wait(pie_messaging_pull_future future) {
  pie_result_messaging_envelope result;
  pie_raw_messaging_pull_read(future.handle, &result);
  pie_raw_messaging_pull_forget(future.handle);
  return result;
}
static inline void pie_messaging_pull_forget(pie_messaging_pull_future future) { pie_raw_messaging_pull_forget(future.handle); }
/* Takes the first message of a queue. Waits while the queue is empty. */
static inline pie_messaging_pull_future pie_messaging_pull(pie_string name) {
  return (pie_messaging_pull_future){pie_raw_messaging_pull((int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/messaging@0.1.0", "[resource-drop]subscription") void pie_raw_messaging_subscription_drop(int32_t);
static inline void pie_messaging_subscription_drop(pie_messaging_subscription self) { pie_raw_messaging_subscription_drop(self.handle); }

/* ---- http ---------------------------------------------------------------------------------------------------------- */
/* HTTP requests to the hosts that the function was granted (manifest: `grants.hosts`). A request or redirect to another host fails with
 * `unsupported`. The platform refuses addresses of private networks, unless its operator allows them. */

typedef struct {
  pie_string name;
  pie_string value;
} pie_http_header;
typedef struct { const pie_http_header *data; uint32_t length; } pie_list_http_header;
typedef struct { bool some; pie_list_u8 value; } pie_option_list_u8;
typedef struct {
  /* `GET`, `POST`, … `invalid-argument` for a text that is not a token of RFC 9110. */
  pie_string method;
  /* A URL with `http:` or `https:`, without user and password. */
  pie_string url;
  pie_list_http_header headers;
  /* At most 4 MiB. */
  pie_option_list_u8 body;
  /* Time limit for the head of the response, including redirects: 30,000 by default, at most the invocation's remaining time. */
  pie_option_u32 timeout_ms;
  /* Number of redirects to follow (0 to 10), each to a granted host. A redirect beyond this number is itself the response. */
  uint32_t redirects;
} pie_http_request;
typedef struct {
  uint16_t status;
  /* The header lines, with names in lower case. A name may occur several times. */
  pie_list_http_header headers;
  /* The URL of the response, after redirects. */
  pie_string url;
} pie_http_response_head;
typedef struct { int32_t handle; } pie_http_exchange;
typedef struct { bool failed; union { pie_http_response_head ok; pie_error err; }; } pie_result_http_response_head;
typedef struct { bool failed; union { pie_option_list_u8 ok; pie_error err; }; } pie_result_option_list_u8;

PIE_IMPORT("pie:inferlet/http@0.1.0", "[constructor]exchange") int32_t pie_raw_http_exchange_new(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
/* Sends the request. An inferlet may have 64 requests in progress; `head` reports one more as `limit-exceeded`. */
static inline pie_http_exchange pie_http_exchange_new(const pie_http_request *request) {
  return (pie_http_exchange){pie_raw_http_exchange_new((int32_t)(*request).method.data, (int32_t)(*request).method.length, (int32_t)(*request).url.data, (int32_t)(*request).url.length, (int32_t)(*request).headers.data, (int32_t)(*request).headers.length, (*request).body.some, (*request).body.some ? (int32_t)(*request).body.value.data : 0, (*request).body.some ? (int32_t)(*request).body.value.length : 0, (*request).timeout_ms.some, (*request).timeout_ms.some ? (*request).timeout_ms.value : 0, (*request).redirects)};
}

PIE_IMPORT("pie:inferlet/http@0.1.0", "[method]exchange.head") int32_t pie_raw_http_exchange_head(int32_t);
PIE_IMPORT("pie:inferlet/http@0.1.0", "[future-read-0][method]exchange.head") int32_t pie_raw_http_exchange_head_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/http@0.1.0", "[future-drop-readable-0][method]exchange.head") void pie_raw_http_exchange_head_forget(int32_t);
typedef struct { int32_t handle; } pie_http_exchange_head_future;
static inline pie_result_http_response_head pie_http_exchange_head_wait(pie_http_exchange_head_future future) {
  pie_result_http_response_head result;
  pie_raw_http_exchange_head_read(future.handle, &result);
  pie_raw_http_exchange_head_forget(future.handle);
  return result;
}
static inline void pie_http_exchange_head_forget(pie_http_exchange_head_future future) { pie_raw_http_exchange_head_forget(future.handle); }
/* The response without its body. `unsupported` for a host that was not granted, `unavailable` when the host cannot be reached or closes the
 * connection, `deadline-exceeded` after the time limit. */
static inline pie_http_exchange_head_future pie_http_exchange_head(pie_http_exchange self) {
  return (pie_http_exchange_head_future){pie_raw_http_exchange_head(self.handle)};
}

PIE_IMPORT("pie:inferlet/http@0.1.0", "[method]exchange.read") int32_t pie_raw_http_exchange_read(int32_t);
PIE_IMPORT("pie:inferlet/http@0.1.0", "[future-read-0][method]exchange.read") int32_t pie_raw_http_exchange_read_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/http@0.1.0", "[future-drop-readable-0][method]exchange.read") void pie_raw_http_exchange_read_forget(int32_t);
typedef struct { int32_t handle; } pie_http_exchange_read_future;
static inline pie_result_option_list_u8 pie_http_exchange_read_wait(pie_http_exchange_read_future future) {
  pie_result_option_list_u8 result;
  pie_raw_http_exchange_read_read(future.handle, &result);
  pie_raw_http_exchange_read_forget(future.handle);
  return result;
}
static inline void pie_http_exchange_read_forget(pie_http_exchange_read_future future) { pie_raw_http_exchange_read_forget(future.handle); }
/* The next piece of the body, at most 64 KiB, decompressed; none at the end. `limit-exceeded` after 32 MiB in all, or once one
 * decoder has taken 64 MiB (a body may have two encodings). */
static inline pie_http_exchange_read_future pie_http_exchange_read(pie_http_exchange self) {
  return (pie_http_exchange_read_future){pie_raw_http_exchange_read(self.handle)};
}

PIE_IMPORT("pie:inferlet/http@0.1.0", "[resource-drop]exchange") void pie_raw_http_exchange_drop(int32_t);
static inline void pie_http_exchange_drop(pie_http_exchange self) { pie_raw_http_exchange_drop(self.handle); }

/* ---- children ------------------------------------------------------------------------------------------------------ */
/* Inferlets that this inferlet launches. The function needs the grant `launch` (manifest: `grants.launch`, a list of functions or `"*"`);
 * without it, calls fail with `unsupported`. A child is an invocation with its own id, log and usage. It runs inside the reservation of its
 * root (the ancestor that no inferlet launched), so it starts at once. It ends with its parent at the latest. An inferlet may hold 1,024 child
 * handles; a handle counts until it is dropped, even after the child's end. */

/* Failure of a child: the code and text of its `error` event. */
typedef struct {
  pie_string code;
  pie_string message;
} pie_children_failure;
/* Outcome of a child. */
enum {
  /* The child's result as JSON text. */
  PIE_CHILDREN_ENDING_SUCCESS = 0,
  PIE_CHILDREN_ENDING_FAILURE = 1,
};
typedef struct { uint8_t tag; union { pie_string success; pie_children_failure failure; }; } pie_children_ending;
typedef struct { int32_t handle; } pie_children_child;
typedef struct { bool failed; union { pie_children_ending ok; pie_error err; }; } pie_result_children_ending;

PIE_IMPORT("pie:inferlet/children@0.1.0", "[constructor]child") int32_t pie_raw_children_child_new(int32_t, int32_t, int32_t, int32_t);
/* Launches a function of this tenant. `name` runs the version of the alias `live`; `name@alias` and `name@version` choose another. `input`
 * is JSON text of at most 262,144 characters that the function's schema accepts. `started` reports failures. */
static inline pie_children_child pie_children_child_new(pie_string name, pie_string input) {
  return (pie_children_child){pie_raw_children_child_new((int32_t)name.data, (int32_t)name.length, (int32_t)input.data, (int32_t)input.length)};
}

PIE_IMPORT("pie:inferlet/children@0.1.0", "[method]child.started") int32_t pie_raw_children_child_started(int32_t);
PIE_IMPORT("pie:inferlet/children@0.1.0", "[future-read-0][method]child.started") int32_t pie_raw_children_child_started_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/children@0.1.0", "[future-drop-readable-0][method]child.started") void pie_raw_children_child_started_forget(int32_t);
typedef struct { int32_t handle; } pie_children_child_started_future;
static inline pie_result_string pie_children_child_started_wait(pie_children_child_started_future future) {
  pie_result_string result;
  pie_raw_children_child_started_read(future.handle, &result);
  pie_raw_children_child_started_forget(future.handle);
  return result;
}
static inline void pie_children_child_started_forget(pie_children_child_started_future future) { pie_raw_children_child_started_forget(future.handle); }
/* The child's invocation id. `not-found` when the function does not exist, `invalid-argument` when its schema refuses the input,
 * `limit-exceeded` when the root has 64 running descendants or has had 4,096 in all, or when this inferlet is 8 generations below the root. */
static inline pie_children_child_started_future pie_children_child_started(pie_children_child self) {
  return (pie_children_child_started_future){pie_raw_children_child_started(self.handle)};
}

PIE_IMPORT("pie:inferlet/children@0.1.0", "[method]child.send") int32_t pie_raw_children_child_send(int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/children@0.1.0", "[future-read-0][method]child.send") int32_t pie_raw_children_child_send_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/children@0.1.0", "[future-drop-readable-0][method]child.send") void pie_raw_children_child_send_forget(int32_t);
typedef struct { int32_t handle; } pie_children_child_send_future;
static inline pie_result pie_children_child_send_wait(pie_children_child_send_future future) {
  pie_result result;
  pie_raw_children_child_send_read(future.handle, &result);
  pie_raw_children_child_send_forget(future.handle);
  return result;
}
static inline void pie_children_child_send_forget(pie_children_child_send_future future) { pie_raw_children_child_send_forget(future.handle); }
/* Sends a message to the child's session. `closed` once the child has ended. */
static inline pie_children_child_send_future pie_children_child_send(pie_children_child self, pie_session_message message) {
  return (pie_children_child_send_future){pie_raw_children_child_send(self.handle, message.tag, message.tag == PIE_SESSION_MESSAGE_TEXT ? (int32_t)message.text.data : message.tag == PIE_SESSION_MESSAGE_BYTES ? (int32_t)message.bytes.data : 0, message.tag == PIE_SESSION_MESSAGE_TEXT ? (int32_t)message.text.length : message.tag == PIE_SESSION_MESSAGE_BYTES ? (int32_t)message.bytes.length : 0)};
}

PIE_IMPORT("pie:inferlet/children@0.1.0", "[method]child.close") void pie_raw_children_child_close(int32_t);
/* Tells the child that no more messages follow. */
static inline void pie_children_child_close(pie_children_child self) {
  pie_raw_children_child_close(self.handle);
}

PIE_IMPORT("pie:inferlet/children@0.1.0", "[method]child.receive") int32_t pie_raw_children_child_receive(int32_t);
PIE_IMPORT("pie:inferlet/children@0.1.0", "[future-read-0][method]child.receive") int32_t pie_raw_children_child_receive_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/children@0.1.0", "[future-drop-readable-0][method]child.receive") void pie_raw_children_child_receive_forget(int32_t);
typedef struct { int32_t handle; } pie_children_child_receive_future;
static inline pie_result_session_message pie_children_child_receive_wait(pie_children_child_receive_future future) {
  pie_result_session_message result;
  pie_raw_children_child_receive_read(future.handle, &result);
  pie_raw_children_child_receive_forget(future.handle);
  return result;
}
static inline void pie_children_child_receive_forget(pie_children_child_receive_future future) { pie_raw_children_child_receive_forget(future.handle); }
/* The next message of the child. `closed` once the child has ended and the inferlet has read all messages. */
static inline pie_children_child_receive_future pie_children_child_receive(pie_children_child self) {
  return (pie_children_child_receive_future){pie_raw_children_child_receive(self.handle)};
}

PIE_IMPORT("pie:inferlet/children@0.1.0", "[method]child.wait") int32_t pie_raw_children_child_wait(int32_t);
PIE_IMPORT("pie:inferlet/children@0.1.0", "[future-read-0][method]child.wait") int32_t pie_raw_children_child_wait_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/children@0.1.0", "[future-drop-readable-0][method]child.wait") void pie_raw_children_child_wait_forget(int32_t);
typedef struct { int32_t handle; } pie_children_child_wait_future;
static inline pie_result_children_ending pie_children_child_wait_wait(pie_children_child_wait_future future) {
  pie_result_children_ending result;
  pie_raw_children_child_wait_read(future.handle, &result);
  pie_raw_children_child_wait_forget(future.handle);
  return result;
}
static inline void pie_children_child_wait_forget(pie_children_child_wait_future future) { pie_raw_children_child_wait_forget(future.handle); }
/* Completes when the child has ended. Several calls get the same outcome. */
static inline pie_children_child_wait_future pie_children_child_wait(pie_children_child self) {
  return (pie_children_child_wait_future){pie_raw_children_child_wait(self.handle)};
}

PIE_IMPORT("pie:inferlet/children@0.1.0", "[method]child.cancel") void pie_raw_children_child_cancel(int32_t);
/* Cancels the child. `wait` then completes with the failure `cancelled`, or with the child's result if it returned one first. Dropping the
 * resource does the same. */
static inline void pie_children_child_cancel(pie_children_child self) {
  pie_raw_children_child_cancel(self.handle);
}

PIE_IMPORT("pie:inferlet/children@0.1.0", "[resource-drop]child") void pie_raw_children_child_drop(int32_t);
static inline void pie_children_child_drop(pie_children_child self) { pie_raw_children_child_drop(self.handle); }

/* ---- file-exchange ------------------------------------------------------------------------------------------------- */
/* Files that the client and this invocation exchange, for content that is too large for a message. A file has at most 16 MiB. An invocation
 * has at most 256 files and 64 MiB (128 MiB with its children), and a tenant 1 GiB.
 * Names have 1 to 128 characters: letters, digits, `.`, `_`, `-`. The platform keeps files as long as the invocation's events. The HTTP path
 * of a file is `/v1/invocations/{id}/files/{name}`. */

typedef struct {
  pie_string name;
  pie_string media_type;
  /* Size in bytes. */
  uint64_t size;
} pie_file_exchange_file_info;
typedef struct {
  pie_string media_type;
  pie_list_u8 content;
} pie_file_exchange_file;
typedef struct { bool failed; union { pie_file_exchange_file ok; pie_error err; }; } pie_result_file_exchange_file;
typedef struct { const pie_file_exchange_file_info *data; uint32_t length; } pie_list_file_exchange_file_info;
typedef struct { bool failed; union { pie_list_file_exchange_file_info ok; pie_error err; }; } pie_result_list_file_exchange_file_info;

PIE_IMPORT("pie:inferlet/file-exchange@0.1.0", "send-file") int32_t pie_raw_file_exchange_send_file(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
PIE_IMPORT("pie:inferlet/file-exchange@0.1.0", "[future-read-0]send-file") int32_t pie_raw_file_exchange_send_file_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/file-exchange@0.1.0", "[future-drop-readable-0]send-file") void pie_raw_file_exchange_send_file_forget(int32_t);
typedef struct { int32_t handle; } pie_file_exchange_send_file_future;
static inline pie_result pie_file_exchange_send_file_wait(pie_file_exchange_send_file_future future) {
  pie_result result;
  pie_raw_file_exchange_send_file_read(future.handle, &result);
  pie_raw_file_exchange_send_file_forget(future.handle);
  return result;
}
static inline void pie_file_exchange_send_file_forget(pie_file_exchange_send_file_future future) { pie_raw_file_exchange_send_file_forget(future.handle); }
/* Stores a file for the client, and announces it by a `message` event `{"file": {"name", "mediaType", "bytes"}}`. Replaces a file of the
 * same name. */
static inline pie_file_exchange_send_file_future pie_file_exchange_send_file(pie_string name, pie_string media_type, pie_list_u8 content) {
  return (pie_file_exchange_send_file_future){pie_raw_file_exchange_send_file((int32_t)name.data, (int32_t)name.length, (int32_t)media_type.data, (int32_t)media_type.length, (int32_t)content.data, (int32_t)content.length)};
}

PIE_IMPORT("pie:inferlet/file-exchange@0.1.0", "receive-file") int32_t pie_raw_file_exchange_receive_file(int32_t, int32_t);
PIE_IMPORT("pie:inferlet/file-exchange@0.1.0", "[future-read-0]receive-file") int32_t pie_raw_file_exchange_receive_file_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/file-exchange@0.1.0", "[future-drop-readable-0]receive-file") void pie_raw_file_exchange_receive_file_forget(int32_t);
typedef struct { int32_t handle; } pie_file_exchange_receive_file_future;
static inline pie_result_file_exchange_file pie_file_exchange_receive_file_wait(pie_file_exchange_receive_file_future future) {
  pie_result_file_exchange_file result;
  pie_raw_file_exchange_receive_file_read(future.handle, &result);
  pie_raw_file_exchange_receive_file_forget(future.handle);
  return result;
}
static inline void pie_file_exchange_receive_file_forget(pie_file_exchange_receive_file_future future) { pie_raw_file_exchange_receive_file_forget(future.handle); }
/* A file of the invocation, from the client or from the inferlet. Waits until the file exists. `closed` when the client closes the session first. */
static inline pie_file_exchange_receive_file_future pie_file_exchange_receive_file(pie_string name) {
  return (pie_file_exchange_receive_file_future){pie_raw_file_exchange_receive_file((int32_t)name.data, (int32_t)name.length)};
}

PIE_IMPORT("pie:inferlet/file-exchange@0.1.0", "list-files") int32_t pie_raw_file_exchange_list_files(void);
PIE_IMPORT("pie:inferlet/file-exchange@0.1.0", "[future-read-0]list-files") int32_t pie_raw_file_exchange_list_files_read(int32_t, void *);
PIE_IMPORT("pie:inferlet/file-exchange@0.1.0", "[future-drop-readable-0]list-files") void pie_raw_file_exchange_list_files_forget(int32_t);
typedef struct { int32_t handle; } pie_file_exchange_list_files_future;
static inline pie_result_list_file_exchange_file_info pie_file_exchange_list_files_wait(pie_file_exchange_list_files_future future) {
  pie_result_list_file_exchange_file_info result;
  pie_raw_file_exchange_list_files_read(future.handle, &result);
  pie_raw_file_exchange_list_files_forget(future.handle);
  return result;
}
static inline void pie_file_exchange_list_files_forget(pie_file_exchange_list_files_future future) { pie_raw_file_exchange_list_files_forget(future.handle); }
/* The present files, ordered by name. */
static inline pie_file_exchange_list_files_future pie_file_exchange_list_files(void) {
  return (pie_file_exchange_list_files_future){pie_raw_file_exchange_list_files()};
}

/* ---- environment --------------------------------------------------------------------------------------------------- */
/* Named texts of the function's version: the tenant's secrets that the manifest lists (`secrets`), and plain variables (`environment`). A version
 * keeps the values that the secrets had at its deployment. A name has upper-case letters, digits and `_`. Reading a value is immediate. In log
 * lines and error messages, the platform replaces each value of four or more characters by `[NAME]`. */


PIE_IMPORT("pie:inferlet/environment@0.1.0", "get-variable") void pie_raw_environment_get_variable(int32_t, int32_t, void *);
/* The value of a variable or secret, or none when the manifest does not list it. */
static inline pie_option_string pie_environment_get_variable(pie_string name) {
  pie_option_string result;
  pie_raw_environment_get_variable((int32_t)name.data, (int32_t)name.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/environment@0.1.0", "list-variables") void pie_raw_environment_list_variables(void *);
/* The names of all variables and secrets, in order. */
static inline pie_list_string pie_environment_list_variables(void) {
  pie_list_string result;
  pie_raw_environment_list_variables(&result);
  return result;
}

/* ---- person -------------------------------------------------------------------------------------------------------- */
/* Questions to a person. An invocation that asks a question ends its attempt and waits. Meanwhile it has no instance, holds no pages, embeds or
 * queues, and takes no slot; it keeps waiting across restarts of the platform. When a person answers
 * (`POST /v1/invocations/{id}/answer`, `pie answer`), or the time has passed, a new attempt runs from the beginning with the same input. There,
 * `resumed` returns the state that the last attempt left, and the answer. */

typedef struct {
  /* Text for the person; 1 to 4,096 characters. */
  pie_string text;
  /* JSON Schema that the answer must match, as JSON text of at most 16,384 characters. */
  pie_string schema;
  /* Time that the invocation waits for an answer: 1 to 2,592,000 seconds (30 days). */
  uint32_t timeout_seconds;
  /* Text for the next attempt; at most 262,144 characters. */
  pie_string state;
} pie_person_question;
enum {
  /* The answer as JSON text that the schema accepts. */
  PIE_PERSON_ANSWER_ANSWERED = 0,
  /* The time has passed without an answer. */
  PIE_PERSON_ANSWER_EXPIRED = 1,
};
typedef struct { uint8_t tag; union { pie_string answered; }; } pie_person_answer;
typedef struct {
  /* The `state` of the last question. */
  pie_string state;
  pie_person_answer answer;
} pie_person_resumption;
typedef struct { bool some; pie_person_resumption value; } pie_option_person_resumption;

PIE_IMPORT("pie:inferlet/person@0.1.0", "ask") void pie_raw_person_ask(int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, void *);
/* Asks when `run` returns a result: that result is dropped, and the invocation waits instead of ending. When `run` fails, nothing is asked.
 * `invalid-argument` for a question that exceeds a limit, a schema that cannot be used, or a second question; `unsupported` in a child. */
static inline pie_result pie_person_ask(const pie_person_question *question) {
  pie_result result;
  pie_raw_person_ask((int32_t)(*question).text.data, (int32_t)(*question).text.length, (int32_t)(*question).schema.data, (int32_t)(*question).schema.length, (*question).timeout_seconds, (int32_t)(*question).state.data, (int32_t)(*question).state.length, &result);
  return result;
}

PIE_IMPORT("pie:inferlet/person@0.1.0", "resumed") void pie_raw_person_resumed(void *);
/* The answer to the last question, or none in an invocation that has not asked. */
static inline pie_option_person_resumption pie_person_resumed(void) {
  pie_option_person_resumption result;
  pie_raw_person_resumed(&result);
  return result;
}

typedef struct { bool failed; union { pie_string ok; pie_string err; }; } pie_result_string_string;
/* Runs one invocation. `input` is the request body: JSON that the manifest's schema accepts. The result is JSON, too. An error makes
 * the invocation fail, with the error's text as the cause. */
pie_result_string_string pie_run(pie_string input);

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


PIE_EXPORT("run") void *pie_run_export(const char *input, uint32_t input_length) {
  static pie_result_string_string result;
  result = pie_run((pie_string){input, input_length});
  return &result;
}

#endif /* PIE_MAIN */
#endif /* PIE_H */
