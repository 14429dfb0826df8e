/* Continues a text and streams it piece by piece: what functions/text-completion does, against the contract itself. */
#include "pie.h"
#include "json.h"

typedef pie_result_string_string outcome;

static outcome failed(pie_error error) { return (outcome){.failed = true, .err = error.value}; }

/* Gives the error of a result, which is named twice, back to the platform. */
#define TRY(result) \
  if ((result).failed) return failed((result).err)

/* Sends a piece of text; a client that is behind is waited for. */
static pie_result send(pie_string text) {
  pie_session_message message = {.tag = PIE_SESSION_MESSAGE_TEXT, .text = text};
  pie_result sent = pie_session_send(message);
  if (!sent.failed || sent.err.tag != PIE_ERROR_LIMIT_EXCEEDED) return sent;
  sent = pie_session_flush_wait(pie_session_flush());
  return sent.failed ? sent : pie_session_send(message);
}

static pie_string with(pie_string text, pie_string more) {
  pie_buffer both = {0};
  pie_append(&both, text);
  pie_append(&both, more);
  return pie_text(&both);
}

/* The prompt's tokens behind the token that begins a text. */
static pie_result_list_u32 tokens_of(pie_string model, pie_string prompt, pie_tokenize_special_token_ids special) {
  pie_result_list_u32 tokens = pie_tokenize(model, prompt, false);
  if (tokens.failed || !special.bos.some) return tokens;
  uint32_t *all = pie_alloc((tokens.ok.length + 1) * sizeof *all, sizeof *all);
  all[0] = special.bos.value;
  for (uint32_t i = 0; i < tokens.ok.length; i++) all[i + 1] = tokens.ok.data[i];
  return (pie_result_list_u32){.ok = {all, tokens.ok.length + 1}};
}

/* The tokens that end a text: some models end one with the token that begins the next. */
static pie_list_u32 stops_of(pie_tokenize_special_token_ids special) {
  if (!special.bos.some) return special.eos;
  uint32_t *all = pie_alloc((special.eos.length + 1) * sizeof *all, sizeof *all);
  for (uint32_t i = 0; i < special.eos.length; i++) all[i] = special.eos.data[i];
  all[special.eos.length] = special.bos.value;
  return (pie_list_u32){all, special.eos.length + 1};
}

pie_result_string_string pie_run(pie_string input) {
  pie_runtime_model_info model = pie_runtime_models().data[0];
  pie_result_tokenize_special_token_ids special = pie_tokenize_special_tokens(model.name);
  TRY(special);
  pie_result_list_u32 prompt = tokens_of(model.name, json_text(json_member(input, PIE_TEXT("prompt"))), special.ok);
  TRY(prompt);
  uint32_t length = prompt.ok.length;
  if (length == 0) return (outcome){.failed = true, .err = PIE_TEXT("The prompt is empty, and the model has no token that begins a text.")};
  if (length >= model.context_length) return (outcome){.failed = true, .err = PIE_TEXT("The prompt is longer than the model's context.")};
  uint32_t room = model.context_length - length;
  pie_string limit = json_member(input, PIE_TEXT("maxTokens"));
  /* A limit may be larger than any uint32_t. */
  double asked = json_number(limit, room);
  uint32_t most = asked < room ? (uint32_t)asked : room;
  pie_string full = limit.length > 0 && asked <= room ? PIE_TEXT("\"max-tokens\"") : PIE_TEXT("\"context-length\"");

  pie_queue queue = pie_queue_new(model.name);
  pie_result_list_u32 pages = pie_allocate_pages(queue, (length + most + model.page_size - 1) / model.page_size);
  TRY(pages);

  /* All but the last token fill the cache; nobody waits for that, decoding is behind it in the queue. */
  uint32_t *positions = pie_alloc(length * sizeof *positions, sizeof *positions);
  for (uint32_t i = 0; i < length; i++) positions[i] = i;
  if (length > 1) {
    pie_fused_step_forget(pie_fused_step(queue, &(pie_fused_step_request){
      .tokens = {prompt.ok.data, length - 1},
      .positions = {positions, length - 1},
      .in_pages = pages.ok,
      .out_pages = pages.ok,
      .output = {.tag = PIE_FUSED_OUTPUT_NONE},
    }));
  }
  pie_fused_run run = pie_fused_run_new(queue, &(pie_fused_run_request){
    .token = prompt.ok.data[length - 1],
    .position = length - 1,
    .pages = pages.ok,
    .max_tokens = most,
    .sampler = {
      .temperature = (float)json_number(json_member(input, PIE_TEXT("temperature")), 1),
      .top_p = 1,
      .seed = (uint32_t)json_number(json_member(input, PIE_TEXT("seed")), pie_runtime_random()),
    },
    .stop_tokens = stops_of(special.ok),
  });

  /* It has seen the prompt, so that a space between it and what follows is not lost. */
  pie_tokenize_detokenizer detokenizer = pie_tokenize_detokenizer_new(model.name);
  pie_tokenize_detokenizer_push(detokenizer, prompt.ok);
  pie_buffer text = {0}, tokens = {0};
  bool stopped = false;
  for (bool more = most > 0; more;) {
    pie_result_fused_run_chunk chunk = pie_fused_run_next_wait(pie_fused_run_next(run));
    TRY(chunk);
    more = !chunk.ok.finished.some;
    stopped = !more && chunk.ok.finished.value == PIE_FUSED_FINISH_REASON_STOP_TOKEN;
    pie_list_u32 fresh = chunk.ok.tokens;
    if (stopped) fresh.length--;
    for (uint32_t i = 0; i < fresh.length; i++) {
      if (tokens.length > 0) pie_append(&tokens, PIE_TEXT(","));
      pie_append_number(&tokens, fresh.data[i]);
    }
    pie_result_string piece = pie_tokenize_detokenizer_push(detokenizer, fresh);
    TRY(piece);
    if (!more) piece.ok = with(piece.ok, pie_tokenize_detokenizer_finish(detokenizer));
    if (piece.ok.length == 0) continue;
    pie_append(&text, piece.ok);
    pie_result sent = send(piece.ok);
    TRY(sent);
  }

  pie_buffer result = {0};
  pie_append(&result, PIE_TEXT("{\"text\":"));
  pie_append_json(&result, pie_text(&text));
  pie_append(&result, PIE_TEXT(",\"tokens\":["));
  pie_append(&result, pie_text(&tokens));
  pie_append(&result, PIE_TEXT("],\"finishReason\":"));
  pie_append(&result, stopped ? PIE_TEXT("\"stop-token\"") : full);
  pie_append(&result, PIE_TEXT(",\"promptTokens\":"));
  pie_append_number(&result, length);
  pie_append(&result, PIE_TEXT("}"));
  return (outcome){.ok = pie_text(&result)};
}
