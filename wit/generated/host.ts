// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
/** A WIT `result`. On the host it is returned, never thrown. */
export type Outcome<T, E> = { readonly tag: 'ok'; readonly val: T } | { readonly tag: 'err'; readonly val: E };

/** Reason of a failed call. The text says what happened and what to do. Programs match on the case. */
export interface HandlerError {
  readonly tag: 'invalid-argument' | 'not-owned' | 'unsupported' | 'not-found' | 'limit-exceeded' | 'context-overflow' | 'dependency-failed' | 'cancelled' | 'deadline-exceeded' | 'terminated' | 'unavailable' | 'closed' | 'internal';
  readonly val: string;
}
export const HANDLER_ERROR_CASES = ['invalid-argument', 'not-owned', 'unsupported', 'not-found', 'limit-exceeded', 'context-overflow', 'dependency-failed', 'cancelled', 'deadline-exceeded', 'terminated', 'unavailable', 'closed', 'internal'] as const;

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';
export const LOG_LEVEL_CASES = ['debug', 'info', 'warn', 'error'] as const;

/** A model that the function was granted, and so may use. */
export interface ModelInfo {
  readonly name: string;
  /** Trained context length, in tokens. */
  readonly contextLength: number;
  readonly vocabularySize: number;
  /** Number of tokens that fit in a KV page. */
  readonly pageSize: number;
  /** Names of the interfaces that the model offers, such as `forward` or `fused`. */
  readonly traits: readonly string[];
}

/** Facts about a model, from its configuration. */
export interface ModelMetadata {
  /** Name from the configuration, such as `LlamaForCausalLM`. */
  readonly architecture: string;
  /** Number of weights, including embeddings. */
  readonly parameters: bigint;
  readonly layers: number;
  readonly hiddenSize: number;
  readonly attentionHeads: number;
  readonly keyValueHeads: number;
  readonly headSize: number;
  /** Bits of a weight in the device's memory. */
  readonly bits: number;
}

export type Message =
  | { readonly tag: 'text'; readonly val: string }
  | { readonly tag: 'bytes'; readonly val: Uint8Array };
export const MESSAGE_CASES = ['text', 'bytes'] as const;

export interface Queue extends Partial<Disposable> {
  /** Sets the priority, 0 by default. Calls with a higher priority go first within a batch. The host limits the priority to the tenant's range. */
  setPriority(priority: number): void;
  /**
   * Marks the queue's later calls as calls of a node of a workflow: `depth` is the length of the longest path from the node to the workflow's end.
   * Of a tenant's marked calls, those of earlier invocations go first, and within an invocation those with the largest depth. Marked calls only
   * exchange turns with each other: no other call goes earlier or later because of a depth. Depths work at every priority, 0 included. Calls of
   * `embed` and `rerank` also go in the order of invocations once the invocation has set a depth.
   */
  setDepth(depth: number): void;
  /**
   * Ends the queue's computation: calls that the device has not begun fail with `cancelled`, and so do later ones. If the device computes a
   * prompt in parts, it finishes only the current part. Pages and embeds can still be allocated and freed.
   */
  stop(): void;
  /**
   * Completes after all earlier calls of the queue. Fails with the first error since the last `synchronize`. Calls that take the name
   * of an export or file report their errors themselves, so `synchronize` leaves these errors out, except those of `export-pages` and `save`.
   */
  synchronize(): Promise<Outcome<undefined, HandlerError>>;
}

/** A named snapshot of pages, which belongs to the tenant. */
export interface ExportInfo {
  readonly name: string;
  readonly pages: number;
  /** Number of filled slots. */
  readonly tokens: number;
  /** The largest position plus one. */
  readonly nextPosition: number;
  /** True when the export survives a restart of the GPU host. */
  readonly persistent: boolean;
}

export interface Imported {
  readonly pages: Uint32Array;
  readonly tokens: number;
  readonly nextPosition: number;
}

/** A place that can hold pages, the fastest first: the device, the memory of the device's host, the host's disk. */
export type Tier = 'device' | 'memory' | 'disk';
export const TIER_CASES = ['device', 'memory', 'disk'] as const;

/** The reason for a lease's end: its time was over, or memory was needed for other work. */
export type LeaseEnd = 'expired' | 'pressure';
export const LEASE_END_CASES = ['expired', 'pressure'] as const;

/** The places of an export's pages. */
export interface Residency {
  /** The slowest place of any page. */
  readonly tier: Tier;
  readonly devicePages: number;
  readonly memoryPages: number;
  readonly diskPages: number;
  /** Bytes of all keys and values. */
  readonly bytes: bigint;
  /** Milliseconds that the lease still lasts; 0 without a lease. */
  readonly leaseMs: number;
  /**
   * The reason for the end of the last lease. None before the first lease, while a lease lasts, and after `unpin-export` or
   * `demote-export`.
   */
  readonly leaseEnded?: LeaseEnd | undefined;
}

/**
 * The keys that each input sees, run-length encoded. Row i belongs to input i. It covers the filled slots of the in-pages, in order, and then
 * the inputs. A row is a list of run lengths that alternate hidden, visible, hidden, … and add up to the row's width. The first run is hidden;
 * its length is 0 when the first key is visible.
 */
export interface Mask {
  /** The runs of all rows, one row after another. */
  readonly runs: Uint32Array;
  /** The number of runs of each row. */
  readonly rowLengths: Uint32Array;
}

/** The most probable tokens, in order of falling probability. Tokens with equal logits are ordered by id. */
export interface Distribution {
  readonly tokens: Uint32Array;
  /** Natural logarithms of the tokens' probabilities over the whole vocabulary, at temperature 1. */
  readonly logProbabilities: Float32Array;
}

/**
 * Sampling parameters. `temperature` 0 is greedy and ignores the other parameters. `top-k` 0, `top-p` 1 and `min-p` 0 switch these cuts off; a draw
 * without a cut is from the whole vocabulary. The cuts apply in the order top-k, top-p, min-p, to probabilities after the temperature. Each keeps
 * the first tokens in order of falling probability, then rising id, and is relative to the tokens that the cut before it kept. On NVIDIA cards,
 * a draw is from the 256 most probable tokens at most, and the cuts are relative to those. Equal seeds give equal tokens: the draw depends only on
 * the seed and on the input's position.
 */
export interface Sampler {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly seed: number;
}

/** Result of a step for each of its last `rows` inputs. */
export type Output =
  | { readonly tag: 'none' }
  | { readonly tag: 'sample'; readonly val: Sampler }
  | { readonly tag: 'distributions'; readonly val: number };
export const OUTPUT_CASES = ['none', 'sample', 'distributions'] as const;

export interface StepRequest {
  readonly tokens: Uint32Array;
  readonly positions: Uint32Array;
  readonly inPages: Uint32Array;
  readonly outPages: Uint32Array;
  readonly mask?: Mask | undefined;
  /** Number of last inputs that get an output. */
  readonly rows: number;
  readonly output: Output;
}

export interface StepResult {
  /** One token for each row with `sample`, otherwise empty. */
  readonly tokens: Uint32Array;
  /** One distribution for each row with `distributions`, otherwise empty. */
  readonly distributions: readonly Distribution[];
}

export interface RunRequest {
  /** The first input. Each later input is the token sampled before it, at the next position. */
  readonly token: number;
  /** Position of the first input. */
  readonly position: number;
  /** The pages of the sequence, in order, with empty slots for `max-tokens` tokens. The run reads them and appends to them. */
  readonly pages: Uint32Array;
  readonly maxTokens: number;
  readonly sampler: Sampler;
  /**
   * Decoding stops after it samples one of these tokens. The run returns this token as its last, without its key and value in the cache. With
   * more than 256 stop tokens the run fails with `invalid-argument`.
   */
  readonly stopTokens: Uint32Array;
}

export type FinishReason = 'stop-token' | 'max-tokens' | 'stopped';
export const FINISH_REASON_CASES = ['stop-token', 'max-tokens', 'stopped'] as const;

export interface RunChunk {
  /** The tokens since the last `next`, in order; at least one unless the run has finished. */
  readonly tokens: Uint32Array;
  /** Set in the last chunk. */
  readonly finished?: FinishReason | undefined;
}

/** Format of the messages that carry the pieces of a text. */
export interface Frame {
  /** Text of a separate message before the first piece. An empty text sends no such message. */
  readonly opening: string;
  /** Text before each piece. The piece itself is written as a JSON string. */
  readonly before: string;
  /** Text after each piece. */
  readonly after: string;
}

/** Options of `run.pipe`. */
export interface PipeRequest {
  /** The last tokens of the text before the run, including tokens whose bytes do not complete a character yet. The run's text continues them. */
  readonly before: Uint32Array;
  /** The unsent end of the text before the run: it may be the beginning of a stop string. */
  readonly held: string;
  /** Stop strings: they end the run and are not sent. At most 64 strings with 1,024 bytes together, otherwise `limit-exceeded`. */
  readonly stops: readonly string[];
  /**
   * Format of the messages. By default, each piece is a message of its own. The texts have at most 8,192 bytes together, otherwise
   * `limit-exceeded`.
   */
  readonly frame?: Frame | undefined;
}

/** Result of `run.pipe`. */
export interface Piped {
  /** The run's tokens since the last `next` or `pipe`, in order, up to the token that completed a stop string. */
  readonly tokens: Uint32Array;
  /** The sent text. */
  readonly text: string;
  /** The unsent end of the text: it may be the beginning of a stop string. */
  readonly held: string;
  /**
   * The stop string that ended the run. The platform discards the tokens after the string. It charges them only if it had decoded them before the
   * call of `pipe`.
   */
  readonly stop?: string | undefined;
  /** Unset after a stop string, and when an error ended the run: the next call reports the error. */
  readonly finished?: FinishReason | undefined;
}

/** Decodes tokens on the device, ahead of the inferlet. */
export interface Run extends Partial<Disposable> {
  /** The tokens that the run has decoded since the last `next`. Waits for at least one unless the run has finished. */
  next(): Promise<Outcome<RunChunk, HandlerError>>;
  /**
   * Decodes until the run has finished, and sends its text to the client in `message` events meanwhile, without waking the inferlet. A run
   * has one `next` or `pipe` in progress at a time, and an inferlet at most 256 pipes.
   */
  pipe(request: PipeRequest): Promise<Outcome<Piped, HandlerError>>;
  /**
   * Stops the run. Tokens that are already decoded are still returned. Dropping the resource stops the run, too, and charges the tokens that are
   * decoded but not read. After a stop string of `pipe`, only tokens that were decoded before the call of `pipe` are charged.
   */
  stop(): void;
}

export interface SpecialTokenIds {
  readonly bos?: number | undefined;
  readonly eos: Uint32Array;
  readonly pad?: number | undefined;
  readonly unknown?: number | undefined;
}

export interface ChatMessage {
  /** `system`, `user`, `assistant` or `tool`. */
  readonly role: string;
  readonly content: string;
}

/** How a model writes a thought before its answer. */
export interface ThoughtFormat {
  /** Text before a thought, as the chat template writes it: `<think>\n`. A prompt may end with this text; the model then goes on inside the thought. */
  readonly open: string;
  /** Text between the thought and the answer. To end a thought, append this text with its special tokens parsed. */
  readonly close: string;
  /** Mark before a thought in generated text, whose white space may differ from the template's: `<think>`. */
  readonly begin: string;
  /** Mark after a thought in generated text: `</think>`. Like `begin`, it may consist of special tokens, which `detokenize` omits by default. */
  readonly end: string;
  /** Member of an assistant's message in which the template reads a thought, such as `reasoning_content`; none if it reads none. */
  readonly field?: string | undefined;
  /** Boolean variables of the template that turn thoughts on and off, such as `enable_thinking`. */
  readonly toggles: readonly string[];
  /** Values that the template takes as its variable `reasoning_effort`, in rising order; empty if it does not read this variable. */
  readonly efforts: readonly string[];
}

/** Detokenizes a stream. It returns only complete characters. */
export interface Detokenizer extends Partial<Disposable> {
  /** The text of the characters that these tokens complete. */
  push(tokens: Uint32Array): Outcome<string, HandlerError>;
  /** The remaining text, with U+FFFD for bytes that do not form a character. */
  finish(): string;
}

export type Source =
  | { readonly tag: 'json-schema'; readonly val: string }
  | { readonly tag: 'regex'; readonly val: string }
  | { readonly tag: 'ebnf'; readonly val: string }
  | { readonly tag: 'json' };
export const SOURCE_CASES = ['json-schema', 'regex', 'ebnf', 'json'] as const;

export interface MatchStatus {
  /** True when an end-of-sequence token is allowed now. */
  readonly mayEnd: boolean;
  /** True when only the end is allowed, or the matcher has accepted the end. */
  readonly mustEnd: boolean;
}

/** A grammar that is compiled for the vocabulary of one model. */
export interface Compiled extends Partial<Disposable> {
  /**
   * `invalid-argument` when the grammar does not compile or is too large, `limit-exceeded` when compiling takes too much time or memory, or the
   * tenant's share of memory is full, `unavailable` when no worker is free. Later calls of `ready` have the outcome of the first.
   */
  ready(): Promise<Outcome<undefined, HandlerError>>;
}

/** The state of a text in a grammar. */
export interface Matcher extends Partial<Disposable> {
  /** Accepts the next tokens. Completes with false, and accepts none of them, when one does not fit. */
  accept(tokens: Uint32Array): Promise<Outcome<boolean, HandlerError>>;
  /**
   * The tokens that are allowed next: bit `t % 32` of word `t / 32` for token `t`. (JavaScript guests get a word with its highest bit set as a
   * negative number.) Masks cannot express some keywords of JSON schemas: the matcher checks these on the whole text, which may end only
   * if it passes. `invalid-argument` when the text fails this check and cannot go on either: take tokens back with `rollback`.
   */
  mask(): Promise<Outcome<Uint32Array, HandlerError>>;
  /** Tells if the text may end now, and if it must. Fails like `mask`. */
  status(): Promise<Outcome<MatchStatus, HandlerError>>;
  /**
   * Accepts and returns the forced tokens, at most `most`: those of the text that must come next. Returns none where the grammar leaves a choice,
   * or where the text may end. The model's tokenizer makes the tokens of the forced text. Tokens at the end of this text are left out if the
   * text after them could change them. Append the returned tokens to the sequence and compute them in one pass, instead of sampling each.
   */
  jump(most: number): Promise<Outcome<Uint32Array, HandlerError>>;
  /** A separate matcher in the same state. */
  fork(): Matcher;
  /** Undoes the last `tokens` accepted tokens. */
  rollback(tokens: number): Promise<Outcome<undefined, HandlerError>>;
}

export interface LogitChanges {
  /** Subtracted from a token's logit once for each occurrence of the token in `chosen` or in the run; from minus to plus a million. */
  readonly frequency: number;
  /** Subtracted once from the logit of each token that occurs in `chosen` or in the run; from minus to plus a million. */
  readonly presence: number;
  /** Tokens whose logits get a bias; at most 1,024, otherwise `limit-exceeded`. */
  readonly biasTokens: Uint32Array;
  /** The bias of each of `bias-tokens`: from minus to plus a million, or negative infinity, which excludes the token. */
  readonly biasValues: Float32Array;
  /** The tokens that were sampled before the run, at most 8,192, otherwise `limit-exceeded`. The run itself counts the tokens that it samples. */
  readonly chosen: Uint32Array;
}

export type Access = 'read' | 'write';
export const ACCESS_CASES = ['read', 'write'] as const;

/** Rights of the tenant's other inferlets on a file. */
export type Rights = 'private' | 'readable' | 'writable';
export const RIGHTS_CASES = ['private', 'readable', 'writable'] as const;

export interface KvFilesFileInfo {
  readonly name: string;
  readonly tokens: number;
  readonly nextPosition: number;
  readonly persistent: boolean;
  readonly rights: Rights;
  /** The function that created the file. */
  readonly owner: string;
  readonly locked: boolean;
}

export interface File extends Partial<Disposable> {
  /** Completes when the file is usable. Fails with `not-found`, `unsupported` (no right) or `unavailable` (locked). */
  ready(): Promise<Outcome<undefined, HandlerError>>;
  /** Number of tokens; known once the file is ready. */
  tokens(): number;
  /** The first free position: no token is at this position or after it. Known once the file is ready. */
  nextPosition(): number;
  /** The pages of the file, for `forward` and `fused` to read. */
  pages(): Uint32Array;
  /**
   * The pages of the file with empty slots for `tokens` more tokens after the filled slots, for `forward` and `fused` to fill. Then call
   * `filled`: the file itself does not count the tokens that these calls write. `unavailable` until the file is ready; `limit-exceeded` when the
   * pages would exceed the invocation's page limit.
   */
  reserve(tokens: number): Outcome<Uint32Array, HandlerError>;
  /** Adds `tokens` that `forward` or `fused` wrote into the reserved slots to the file. `next-position` is the first position after them. */
  filled(tokens: number, nextPosition: number): void;
  /**
   * Computes tokens, appends them, and returns for each token the distribution of the next token: its `top-k` most probable tokens (1 to the
   * host's cap of 256).
   */
  pred(tokens: Uint32Array, positions: Uint32Array, topK: number): Promise<Outcome<readonly Distribution[], HandlerError>>;
  /** A file without a name and with the same content. Pages are copied on write. */
  fork(): File;
  /**
   * A file without a name that holds the tokens at `indices`, in this order. With `renumber`, their positions become `renumber`,
   * `renumber + 1`, … and their keys are rotated accordingly; otherwise the tokens keep their positions. `ready` reports failures:
   * `invalid-argument` for an index without a token, `limit-exceeded` for more tokens than the invocation's pages hold, and, like
   * `synchronize`, the first error of the queue.
   */
  extract(indices: Uint32Array, renumber: number | undefined): File;
  /**
   * Appends the tokens of another file of the same model. They are renumbered to follow this file's tokens, unless `keep-positions` is set.
   * Like `synchronize`, `merge` reports the first error of the queue.
   */
  merge(other: File, keepPositions: boolean): Promise<Outcome<undefined, HandlerError>>;
  /** Saves the file under its own name, which needs the lock, or under a new name. `invalid-argument` when another file has the name. */
  save(name: string, persistent: boolean, rights: Rights): Promise<Outcome<undefined, HandlerError>>;
  /** Releases the lock. Dropping the file does the same. */
  unlock(): void;
}

/** The size of an image in pixels. */
export interface Dimensions {
  readonly width: number;
  readonly height: number;
}

export interface AdapterInfo {
  readonly name: string;
  readonly rank: number;
  /** True when the adapter is in the device's memory. */
  readonly loaded: boolean;
}

/** A model that encodes texts. */
export interface EncoderInfo {
  readonly name: string;
  readonly kind: EncoderKind;
  /** Number of values of a vector; 1 for a reranker. */
  readonly size: number;
  /** Maximum tokens of a text, or for a reranker of a query and a document together, special tokens included. */
  readonly contextLength: number;
}

/** `embed` takes models of the kind `embedding`, `rerank` those of the kind `reranker`. */
export type EncoderKind = 'embedding' | 'reranker';
export const ENCODER_KIND_CASES = ['embedding', 'reranker'] as const;

export interface Vectors {
  /** Number of values of each vector. */
  readonly size: number;
  /** The vectors of all texts, one after the other, in the order of the texts. */
  readonly values: Float32Array;
  /** Tokens that were encoded. */
  readonly tokens: number;
  /** Number of texts that were longer than the model takes: their ends were left out. */
  readonly cut: number;
}

export interface Scores {
  /**
   * One number for each document, in the order of the documents: larger is better. Compare a number only with others of the same
   * model. For most models, the logistic function of the number is a probability.
   */
  readonly values: Float32Array;
  /** Tokens that were encoded. */
  readonly tokens: number;
  /** Number of pairs of query and document that were longer than the model takes: the end of the pair's longer text was left out. */
  readonly cut: number;
}

/**
 * Measure of how near two vectors are. `cosine` is the cosine of the angle between them, `dot-product` is their dot product, and `euclidean` is
 * the negative square of their distance.
 */
export type Metric = 'cosine' | 'dot-product' | 'euclidean';
export const METRIC_CASES = ['cosine', 'dot-product', 'euclidean'] as const;

export type Value =
  | { readonly tag: 'text'; readonly val: string }
  | { readonly tag: 'number'; readonly val: number }
  | { readonly tag: 'boolean'; readonly val: boolean };
export const VALUE_CASES = ['text', 'number', 'boolean'] as const;

export interface Field {
  readonly name: string;
  readonly value: Value;
}

/**
 * An entry without its vector, which `upsert` takes separately. The id has 1 to 512 bytes, and the text at most 64 KiB. An entry has at most 32
 * fields. The name of a field has 1 to 64 bytes, and a text as its value at most 1,024 bytes.
 */
export interface IndexEntry {
  readonly id: string;
  /** A text that queries find by its words. The index does not compute the vector from the text. */
  readonly text?: string | undefined;
  readonly fields: readonly Field[];
}

/**
 * `equal` holds when the field has one of the values. `not-equal` holds when the field has none of the values, or is missing. The other
 * comparisons take one value, a text or a number. They hold only for fields whose value is of the same kind. Texts are compared byte by byte.
 */
export type Comparison = 'equal' | 'not-equal' | 'less' | 'at-most' | 'greater' | 'at-least';
export const COMPARISON_CASES = ['equal', 'not-equal', 'less', 'at-most', 'greater', 'at-least'] as const;

/** A condition on one field of an entry. */
export interface Condition {
  readonly field: string;
  readonly comparison: Comparison;
  readonly values: readonly Value[];
}

export interface Match {
  readonly entry: IndexEntry;
  /**
   * Larger is better. A query by vector scores an entry by the metric of the index, and a query by words by BM25. A query by both makes one
   * ranking for each. An entry scores the sum of 1 / (60 + rank) over the rankings that contain it; the best rank is 1.
   */
  readonly score: number;
}

export interface IndexInfo {
  readonly name: string;
  readonly dimensions: number;
  readonly metric: Metric;
  readonly entries: bigint;
  /** Bytes of the index that count towards the tenant's limits and storage quota. */
  readonly bytes: bigint;
}

export interface Entry {
  readonly value: Uint8Array;
  /** Grows with every write of the key. `compare-and-set` compares it. */
  readonly version: bigint;
}

/** A message and its sender. */
export interface Envelope {
  /** Invocation id of the sender. */
  readonly sender: string;
  readonly message: Message;
}

/**
 * A subscription of a topic. It receives, in order, the messages that are broadcast after `ready` has completed. Dropping the resource ends the
 * subscription.
 */
export interface Subscription extends Partial<Disposable> {
  /** Completes once the subscription is in effect: it receives messages that are broadcast later. */
  ready(): Promise<Outcome<undefined, HandlerError>>;
  /**
   * The next message; waits for one. At most 1,024 messages with 4 MiB may be unread. The platform drops a message that does not fit, or for which
   * the tenant's share of the runtime's memory has no room. At the place of dropped messages, `next` fails once with `limit-exceeded`. It fails
   * with `unavailable` where the inferlet may have missed messages because the platform's store was away, and with `closed` after `unsubscribe`.
   */
  next(): Promise<Outcome<Envelope, HandlerError>>;
  unsubscribe(): void;
}

export interface Header {
  readonly name: string;
  readonly value: string;
}

export interface Request {
  /** `GET`, `POST`, … `invalid-argument` for a text that is not a token of RFC 9110. */
  readonly method: string;
  /** A URL with `http:` or `https:`, without user and password. */
  readonly url: string;
  readonly headers: readonly Header[];
  /** At most 4 MiB. */
  readonly body?: Uint8Array | undefined;
  /** Time limit for the head of the response, including redirects: 30,000 by default, at most the invocation's remaining time. */
  readonly timeoutMs?: number | undefined;
  /** Number of redirects to follow (0 to 10), each to a granted host. A redirect beyond this number is itself the response. */
  readonly redirects: number;
}

export interface ResponseHead {
  readonly status: number;
  /** The header lines, with names in lower case. A name may occur several times. */
  readonly headers: readonly Header[];
  /** The URL of the response, after redirects. */
  readonly url: string;
}

/** A request in progress and its response. Dropping the resource closes the connection. */
export interface Exchange extends Partial<Disposable> {
  /**
   * The response without its body. `unsupported` for a host that was not granted, `unavailable` when the host cannot be reached or closes the
   * connection, `deadline-exceeded` after the time limit.
   */
  head(): Promise<Outcome<ResponseHead, HandlerError>>;
  /**
   * The next piece of the body, at most 64 KiB, decompressed; none at the end. `limit-exceeded` after 32 MiB in all, or once one
   * decoder has taken 64 MiB (a body may have two encodings).
   */
  read(): Promise<Outcome<Uint8Array | undefined, HandlerError>>;
}

/** Failure of a child: the code and text of its `error` event. */
export interface Failure {
  readonly code: string;
  readonly message: string;
}

/** Outcome of a child. */
export type Ending =
  | { readonly tag: 'success'; readonly val: string }
  | { readonly tag: 'failure'; readonly val: Failure };
export const ENDING_CASES = ['success', 'failure'] as const;

export interface Child extends Partial<Disposable> {
  /**
   * The child's invocation id. `not-found` when the function does not exist, `invalid-argument` when its schema refuses the input,
   * `limit-exceeded` when the root has 64 running descendants or has had 4,096 in all, or when this inferlet is 8 generations below the root.
   */
  started(): Promise<Outcome<string, HandlerError>>;
  /** Sends a message to the child's session. `closed` once the child has ended. */
  send(message: Message): Promise<Outcome<undefined, HandlerError>>;
  /** Tells the child that no more messages follow. */
  close(): void;
  /** The next message of the child. `closed` once the child has ended and the inferlet has read all messages. */
  receive(): Promise<Outcome<Message, HandlerError>>;
  /** Completes when the child has ended. Several calls get the same outcome. */
  wait(): Promise<Outcome<Ending, HandlerError>>;
  /**
   * Cancels the child. `wait` then completes with the failure `cancelled`, or with the child's result if it returned one first. Dropping the
   * resource does the same.
   */
  cancel(): void;
}

export interface FileExchangeFileInfo {
  readonly name: string;
  readonly mediaType: string;
  /** Size in bytes. */
  readonly size: bigint;
}

export interface FileExchangeFile {
  readonly mediaType: string;
  readonly content: Uint8Array;
}

export interface Question {
  /** Text for the person; 1 to 4,096 characters. */
  readonly text: string;
  /** JSON Schema that the answer must match, as JSON text of at most 16,384 characters. */
  readonly schema: string;
  /** Time that the invocation waits for an answer: 1 to 2,592,000 seconds (30 days). */
  readonly timeoutSeconds: number;
  /** Text for the next attempt; at most 262,144 characters. */
  readonly state: string;
}

export type Answer =
  | { readonly tag: 'answered'; readonly val: string }
  | { readonly tag: 'expired' };
export const ANSWER_CASES = ['answered', 'expired'] as const;

export interface Resumption {
  /** The `state` of the last question. */
  readonly state: string;
  readonly answer: Answer;
}


/** Information about the inferlet and the platform. Every call except `sleep` returns at once, most after about a microsecond. */
export interface RuntimeHost {
  /** The version of this contract that the host implements, such as `0.1.0`. */
  version(): string;
  /** The id of this invocation, as the client sees it. */
  instanceId(): string;
  tenant(): string;
  /** The input of this invocation, which `run` has also received as its argument. */
  getArguments(): string;
  functionName(): string;
  functionVersion(): string;
  /** The models that the function may use. The first one is the default model. */
  models(): readonly ModelInfo[];
  /** The interfaces that a model offers. */
  modelTraits(model: string): Outcome<readonly string[], HandlerError>;
  /** Facts about a model. Fails with `not-found` for a model that the function was not granted. */
  metadata(model: string): Outcome<ModelMetadata, HandlerError>;
  /**
   * For a model, the maximum efficient size of a device step, in tokens: up to this size, more tokens in a step take little more time. For an
   * encoder, the maximum number of tokens in the next batch. The GPU host measures these numbers while it computes, so they change. Returns none
   * before the first measurement. Fails with `not-found` for a model or encoder that the function was not granted. Takes a round trip to the
   * runtime.
   */
  efficientTokens(model: string): Outcome<number | undefined, HandlerError>;
  /**
   * The state of this inferlet as JSON text, for debugging. `query` chooses the part: `limits`, `usage` (CPU, tokens, calls), `pages` (held pages by
   * model), `room` (by model, the tokens that this inferlet can hold at once: its context, or fewer with the reason), `grants`, `models` or `all`. Fails with `invalid-argument` for another query.
   */
  debugQuery(query: string): Outcome<string, HandlerError>;
  /** Writes a line to the function's log and to the invocation's event stream. */
  log(level: LogLevel, message: string): void;
  /**
   * Records a span: a part of the inferlet's work, such as a node of a workflow. The span becomes a bar on the dashboard's page of the invocation,
   * and an entry of the invocation's event `metric`. `began` and `ended` are times as `now` returns them. A time before this run is moved to the
   * beginning of the run, a time after this call to the moment of the call, and an `ended` before `began` to `began`. The platform keeps 64 spans,
   * failed spans first and then the longest ones, and only counts the others. It shortens names to 80 characters and kinds to 32 characters.
   */
  recordSpan(name: string, kind: string, began: bigint, ended: bigint, failed: boolean): void;
  /** True when the client, the parent invocation or the platform has asked this inferlet to stop. */
  isCancelled(): boolean;
  /**
   * Wall time until this run must end, in milliseconds. The run ends at its own time limit or at the invocation's deadline, whichever comes first.
   * The time limit does not count the time in which the platform has preempted the inferlet and holds its calls. A preempted run may therefore
   * take up to twice its time limit. The invocation's deadline counts all time.
   */
  timeLeft(): bigint;
  /** Milliseconds since the Unix epoch. */
  now(): bigint;
  /** 32 random bits from the host's random number generator. */
  random(): number;
  /** Completes after the given time. Fails with `cancelled` or `deadline-exceeded` if the run must stop earlier. */
  sleep(milliseconds: number): Promise<Outcome<undefined, HandlerError>>;
}

/**
 * The conversation with the client that invoked this inferlet. Sending costs some microseconds, and `flush` a round trip to the event log,
 * about a millisecond.
 */
export interface SessionHost {
  /**
   * Queues one `message` event and returns at once. `limit-exceeded` when 1 MiB of events waits to be written (each event counts 256 bytes more
   * than its content): await `flush` and send again.
   */
  send(message: Message): Outcome<undefined, HandlerError>;
  /** Completes when all messages sent so far are in the invocation's event log. */
  flush(): Promise<Outcome<undefined, HandlerError>>;
  /** The next message of the client, in order. `closed` once the client can send no more messages. */
  receive(): Promise<Outcome<Message, HandlerError>>;
}

/**
 * An order of calls on one model. The inferlet issues calls without waiting, and they run in the order of their queue. Calls of different
 * queues have no order. When a call fails, all later calls of the queue that depend on it fail with its cause, and `synchronize` reports the
 * first error. Issuing a call costs some microseconds. Waiting for a call costs its computation and a round trip to the GPU host, about 0.1 ms.
 */
export interface QueueHost {
  /** Creates a queue for the pages and embeds of `model`. With an unknown model, every call on the queue fails with `not-found`. */
  readonly Queue: new (model: string) => Queue;
}

/**
 * Memory of the model's device. An address is a `u32` in an address space that the inferlet has for each model. An invocation never gets the
 * same address twice.
 * A KV page has `page-size` slots. A slot holds a key, a value, a position and the flags *filled* and *masked*.
 * An embed holds one token's embedding or one output state, and a position. The position of a state is one past the position of its input, so
 * that the state can be the next input.
 * Calls that allocate, free, share or copy travel with the calls around them and cost no round trip. Calls with names (export, import, …)
 * cost one round trip each; persistent exports also cost a disk write.
 */
export interface AllocateHost {
  /** Number of slots of a KV page (8 to 32, 16 by default). */
  pageSize(queue: Queue): number;
  /**
   * Addresses of `count` empty pages. The device claims their memory in queue order; if the device has no memory then, the calls that
   * use the pages fail. `limit-exceeded` at once when the pages would exceed the invocation's page limit.
   */
  allocatePages(queue: Queue, count: number): Outcome<Uint32Array, HandlerError>;
  /** Frees pages after the earlier calls of the queue. The other holders of a shared page keep it. */
  freePages(queue: Queue, pages: Uint32Array): void;
  /** Addresses of `count` embeds. */
  allocateEmbeds(queue: Queue, count: number): Outcome<Uint32Array, HandlerError>;
  freeEmbeds(queue: Queue, embeds: Uint32Array): void;
  /**
   * New addresses for the same pages. A later write through either address copies the page first. Each new address starts with the source's
   * mask and has its own mask from then on.
   */
  sharePages(queue: Queue, pages: Uint32Array): Outcome<Uint32Array, HandlerError>;
  /**
   * Copies `count` slots (key, value, position, filled, masked) from one page to another, or within a page. Adds `shift` to the position of
   * each copied slot and rotates its key accordingly; the position may exceed the trained context. `unsupported` when the model's rotary embedding
   * cannot be shifted.
   */
  copySlots(queue: Queue, source: number, sourceOffset: number, destination: number, destinationOffset: number, count: number, shift: number): void;
  /**
   * Copies single tokens. `indices` are indices into the filled slots of `sources`, in order. Keys and values go to the empty slots of
   * `destinations`, in order. `positions` has a new position for each token, and the copied key is rotated to it; an empty list keeps the positions.
   */
  copyTokens(queue: Queue, sources: Uint32Array, indices: Uint32Array, destinations: Uint32Array, positions: Uint32Array): void;
  /** Copies each source embed to the destination with the same index. */
  copyEmbeds(queue: Queue, sources: Uint32Array, destinations: Uint32Array): void;
  /**
   * Saves a snapshot of `pages`, with their masks, under the tenant's `name`, after the earlier calls that write them. Later writes copy the
   * pages first. The export outlives the inferlet and counts against the tenant. A `persistent` export is on disk when the future completes.
   * `invalid-argument` when the name is in use. A name has 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`.
   */
  exportPages(queue: Queue, pages: Uint32Array, name: string, persistent: boolean): Promise<Outcome<undefined, HandlerError>>;
  /**
   * Maps the pages of an export. Pages are copied on write. `not-found` when no export has this name; `invalid-argument` for a persistent
   * export of another model or build.
   */
  importPages(queue: Queue, name: string): Promise<Outcome<Imported, HandlerError>>;
  /**
   * Copies the pages of an export to the storage that the platform's machines share. Other hosts then find the name even while the GPU host
   * that keeps it is away or lost. The copy holds the present content: a later export under the same name needs another call. `unexport` also
   * removes the copy. A failed call leaves no copy. `not-found` when no export has this name; `unsupported` when the platform has no shared
   * storage, or for a name under `system/`; `limit-exceeded` beyond the tenant's share of the storage; `unavailable` when the content changes
   * during the copy, or when the export's host or the storage does not answer.
   */
  makeDurable(queue: Queue, name: string): Promise<Outcome<undefined, HandlerError>>;
  /** Removes a name. Inferlets that have imported it keep its pages. */
  unexport(queue: Queue, name: string): Promise<Outcome<undefined, HandlerError>>;
  /** The tenant's exports of the queue's model, ordered by name. */
  listExports(queue: Queue): Promise<Outcome<readonly ExportInfo[], HandlerError>>;
  /**
   * Returns the present places of an export's pages. This and the following calls accept the tenant's own exports only (`unsupported` for a
   * name under `system/`). They affect how long later imports wait, never the imported content. They take only device memory that is free or
   * holds cached prefixes, so no inferlet waits for memory because of them.
   */
  exportResidency(queue: Queue, name: string): Promise<Outcome<Residency, HandlerError>>;
  /**
   * Brings the pages of an export to the device as far as the device has room, and keeps these pages there for `lease-ms` (1 ms to 1 hour),
   * even after the invocation has ended. Under memory pressure, the pages of waiting inferlets and of other exports leave the device first. If
   * that is not enough, the lease ends early (`pressure`) before a running inferlet has to give way. A later call replaces the lease. All leases
   * together hold at most a quarter of the device's pages. Of this quarter, a tenant may pin half of what the leases of other tenants leave; it
   * may pin at most half of its own page quota. `limit-exceeded` for an export that the tenant may never pin, `unavailable` for one that it may
   * not pin now. An export on disk counts against the invocation's pages while it comes back: `limit-exceeded` when it has more pages than the
   * invocation may hold, `unavailable` when the device has no room for it.
   */
  pinExport(queue: Queue, name: string, leaseMs: number): Promise<Outcome<Residency, HandlerError>>;
  /** Ends the lease. */
  unpinExport(queue: Queue, name: string): Promise<Outcome<Residency, HandlerError>>;
  /**
   * Hints that the export will be used in `next-use-ms` milliseconds. Of the tenant's exports, those without a hint leave the device first, then
   * the one whose hinted use is latest. The hint holds until its time, or until the next import; 0 removes the hint. Exports on disk ignore it.
   */
  retainExport(queue: Queue, name: string, nextUseMs: number): Promise<Outcome<Residency, HandlerError>>;
  /** Brings the pages of an export to the device before they are used, as far as there is room. Fails for an export on disk as `pin-export` does. */
  prefetchExport(queue: Queue, name: string): Promise<Outcome<Residency, HandlerError>>;
  /**
   * Ends the lease, and moves the export's pages off the device, except pages that an inferlet also holds. With `memory`, pages without room in
   * memory go to disk; when the disk is full, too, they stay on the device. With `disk`, a persistent export drops its pages from the device and
   * from memory; they then count against no quota. `unsupported` for `disk` while the export has no file; `invalid-argument` for `device`.
   */
  demoteExport(queue: Queue, name: string, tier: Tier): Promise<Outcome<Residency, HandlerError>>;
}

/**
 * The transformer over KV pages. A forward returns at once. The GPU host computes it in a batch with forwards of other inferlets. The forwards of a
 * decoding batch share the time of reading the weights once. Prefill is bound by arithmetic: about two operations per weight and input.
 */
export interface ForwardHost {
  /**
   * Computes `in-embeds`, which attend to the filled, unmasked slots of `in-pages` and to each other. The key and value of input i go to the
   * i-th empty slot of `out-pages`; without out-pages they exist for this call only. A page may be both in and out: its filled slots are read
   * first. The states of the last inputs, one for each embed of `out-embeds`, are written to `out-embeds`.
   * Usage: each embed that receives a token or a part of an image counts one token, which includes one computation as an input. Each further
   * computation of an input counts one token, also when the input is a state or a copy.
   * Without a mask, an input sees its own key and all keys at smaller positions.
   */
  forward(queue: Queue, inPages: Uint32Array, inEmbeds: Uint32Array, outPages: Uint32Array, outEmbeds: Uint32Array, mask: Mask | undefined): void;
  /**
   * Masks the slots of a page whose bits are set in `slots` (bit 0 is slot 0), and unmasks the others. Other addresses of
   * a shared page keep their masks.
   */
  maskPage(queue: Queue, page: number, slots: number): void;
}

/** Writes tokens into embeds. The call travels with the forward after it and takes no time of its own. */
export interface InputTextHost {
  /** Writes the embedding of `tokens[i]`, at `positions[i]`, into `embeds[i]`. The three lists have the same length. */
  embedText(queue: Queue, tokens: Uint32Array, positions: Uint32Array, embeds: Uint32Array): void;
}

/**
 * Reads embeds (each holds a token's embedding or a state), and the distribution of the token after a state. A call of
 * `next-distribution` directly after the forward that writes the state, in the same queue, can share the forward's device step.
 */
export interface OutputTextHost {
  /** The distribution of the token that follows the state in `embed`: the `top-k` most probable tokens (1 to the host's cap of 256). */
  nextDistribution(queue: Queue, embed: number, topK: number): Promise<Outcome<Distribution, HandlerError>>;
  /** Natural logarithms of the probabilities of `tokens` after the state in `embed`, over the whole vocabulary, at temperature 1. */
  logProbabilities(queue: Queue, embed: number, tokens: Uint32Array): Promise<Outcome<Float32Array, HandlerError>>;
  /** The entropy of the distribution after the state in `embed`, in nats. */
  entropy(queue: Queue, embed: number): Promise<Outcome<number, HandlerError>>;
  /** The values of an embed, one for each dimension of the model's hidden size. */
  readEmbed(queue: Queue, embed: number): Promise<Outcome<Float32Array, HandlerError>>;
}

/** Embed, forward and sample in one call. A token costs one call, and with `run` less than one. */
export interface FusedHost {
  /** Starts decoding. `next` reports failures. */
  readonly Run: new (queue: Queue, request: RunRequest) => Run;
  /** Embeds `tokens`, computes them as `forward` does, and completes with the output of the last `rows` inputs. */
  step(queue: Queue, request: StepRequest): Promise<Outcome<StepResult, HandlerError>>;
}

/**
 * Converts text to tokens and back, without a device. A call takes about a microsecond per token; tenants take turns with long texts.
 * `limit-exceeded` when one call has more than 131,072 characters (split longer texts at ends of lines), 131,072 tokens, or 8,192 chat messages.
 */
export interface TokenizeHost {
  readonly Detokenizer: new (model: string) => Detokenizer;
  /** The token ids of `text`, without added special tokens. Special tokens inside the text are recognised when `special` is true. */
  tokenize(model: string, text: string, special: boolean): Outcome<Uint32Array, HandlerError>;
  /** The text of `tokens`. Special tokens are omitted unless `special` is true. */
  detokenize(model: string, tokens: Uint32Array, special: boolean): Outcome<string, HandlerError>;
  specialTokens(model: string): Outcome<SpecialTokenIds, HandlerError>;
  /** The bytes of every token, indexed by id. */
  vocabulary(model: string): Outcome<readonly Uint8Array[], HandlerError>;
  /** Applies the model's chat template to `messages`. Tokenize the returned text with `special`. `unsupported` when the model has no template. */
  chatTemplate(model: string, messages: readonly ChatMessage[], addGenerationPrompt: boolean): Outcome<string, HandlerError>;
  /**
   * Applies the model's chat template to `variables`, a JSON object with `messages` (each with any members that the template knows, such
   * as `tool_calls`), `tools`, `documents`, `add_generation_prompt`, … Variables such as `bos_token` and `eos_token` default to the model's.
   * `invalid-argument` when the text is not a JSON object or the template refuses it; `unsupported` when the model has no template.
   */
  renderChat(model: string, variables: string): Outcome<string, HandlerError>;
  /**
   * How the model writes thoughts: by its setting in `pie.toml`, by its chat template, or by known marks among its tokens. Returns none for a model
   * that writes no thoughts, or whose thoughts cannot be told from its answers.
   */
  thoughts(model: string): Outcome<ThoughtFormat | undefined, HandlerError>;
}

/**
 * Grammars that constrain decoding to a format. The runtime compiles and matches them. A mask of the allowed tokens travels with the fused
 * call, and the device applies the mask before it samples. Calls of one matcher run in order.
 * Compiling takes milliseconds. A mask takes about 0.2 ms in a state that no matcher has visited before, otherwise microseconds.
 */
export interface GrammarHost {
  /** Starts compiling. `ready` and the matchers report failures. */
  readonly Compiled: new (model: string, source: Source) => Compiled;
  readonly Matcher: new (grammar: Compiled) => Matcher;
  /**
   * Like `fused.step`, with the matcher's mask applied to the only row of output, which must be `sample` or `distributions`. The matcher does
   * not accept the sampled token by itself: call `accept`. The call enters its queue once the mask is known, so await it before calls that
   * must follow it.
   */
  step(queue: Queue, matcher: Matcher, request: StepRequest): Promise<Outcome<StepResult, HandlerError>>;
  /**
   * Like `step`, for several rows of output, and with an adapter if one is named. The inputs of all rows but the first are guesses at the
   * tokens that follow the matcher's text. Each row has the mask of the text with all guesses up to the row's input. If a guess does not fit,
   * its row and the rows after it have no mask. The matcher accepts none of the guesses. `limit-exceeded` for more than 64 rows.
   */
  verify(queue: Queue, matcher: Matcher, adapter: string | undefined, request: StepRequest): Promise<Outcome<StepResult, HandlerError>>;
  /**
   * A run under the matcher's masks, with its forced tokens (see `jump`). The matcher accepts the run's tokens; `invalid-argument` when other
   * calls change the matcher meanwhile. The run ends behind the first stop token, sampled or forced. When nothing may follow, the run finishes
   * with `stopped`. Its steps enter the queue one by one while a `next` or `pipe` is in progress, so await that call before calls that must follow
   * the run. A `next` returns after the first step that ends 25 ms or more after `next` was called, and with at least one token. Each step counts
   * the tokens that it computes. `limit-exceeded` for more than 8,192 pages or 262,144 stop tokens.
   */
  startRun(queue: Queue, matcher: Matcher, request: RunRequest): Run;
}

/** Runs that change the logits of single tokens before they sample. The sampler sees the changed distribution of the whole vocabulary. */
export interface PenaltiesHost {
  /**
   * Like `fused.run`. `temperature` 0 takes the most probable token after the changes. The run fails with `invalid-argument` when the changes
   * exclude all tokens.
   */
  startRun(queue: Queue, request: RunRequest, changes: LogitChanges): Run;
}

/**
 * Attention scores, for strategies that evict tokens with little attention. A forward that returns scores computes its attention a second
 * time, and runs in separate batches.
 */
export interface IntrospectHost {
  /**
   * Like `forward`. Completes with the attention that each slot received, summed over the inputs and averaged over layers and heads: first
   * `page-size` numbers for each of `in-pages` (0 for empty and masked slots), then one number for each input. The numbers add up to the
   * number of inputs.
   */
  forwardScores(queue: Queue, inPages: Uint32Array, inEmbeds: Uint32Array, outPages: Uint32Array, outEmbeds: Uint32Array, mask: Mask | undefined): Promise<Outcome<Float32Array, HandlerError>>;
}

/**
 * The KV cache as files (Symphony, HotOS '25). A file is a sequence of tokens' keys and values for one model, with or without a name. An
 * inferlet that opens a name sees the content that was saved last. An inferlet that holds the lock of a name may save new content. Names
 * belong to a tenant. Operators write the names under `system/`, and every tenant can read them. An opened file shares its pages, so opening
 * and saving cost one round trip, independent of the number of tokens.
 */
export interface KvFilesHost {
  /**
   * Opens `name`, or creates a file without a name when `name` is none. `ready` reports failures. The calls of the file run on `queue`.
   * Calls made before the file is ready wait until it is.
   */
  readonly File: new (queue: Queue, name: string | undefined, access: Access) => File;
  /**
   * Copies the content that was saved last under a name to the storage that the platform's machines share. While the GPU host that keeps the name
   * and its lock is away or lost, inferlets on other hosts can then open the name for reading. A later save or `remove` ends the copy. Needs the
   * right to write the file. Fails as `make-durable` of `allocate` does.
   */
  makeDurable(queue: Queue, name: string): Promise<Outcome<undefined, HandlerError>>;
  /** Removes a name. Inferlets that have opened it keep their content. */
  remove(queue: Queue, name: string): Promise<Outcome<undefined, HandlerError>>;
  /** Files of the queue's model whose names begin with `prefix`, ordered by name. */
  files(queue: Queue, prefix: string): Promise<Outcome<readonly KvFilesFileInfo[], HandlerError>>;
}

/** Encodes images into embeds, for models with a vision encoder. */
export interface InputImageHost {
  /** The size of a PNG or JPEG image, read from its first bytes. `invalid-argument` for other data. */
  imageDimensions(image: Uint8Array): Outcome<Dimensions, HandlerError>;
  /**
   * The number of embeds that an image of this size takes on the queue's model. `unsupported` when the model does not have the trait
   * `input-image`, `invalid-argument` when the image has too many pixels.
   */
  imageEmbeds(queue: Queue, size: Dimensions): Outcome<number, HandlerError>;
  /**
   * The token that a model's chat template writes in place of an image (LLaVA: `<image>`). `unsupported` when the model does not have the trait
   * `input-image`, or when its config names no such token.
   */
  imageToken(model: string): Outcome<number, HandlerError>;
  /**
   * Encodes a PNG or JPEG image (at most 8 MiB and 16 million pixels) into `embeds`, at `positions`. `image-embeds` tells how many embeds are
   * needed. The call costs a pass of the vision encoder, about as much as a prefill of the same number of tokens.
   */
  embedImage(queue: Queue, image: Uint8Array, positions: Uint32Array, embeds: Uint32Array): Promise<Outcome<undefined, HandlerError>>;
}

/**
 * Low-rank adapters (Hu et al., LoRA, 2021) that the platform's operator installed beside a model. Calls share the keys and values of equal
 * prefixes only with calls of the same adapter; calls without an adapter share them among themselves.
 */
export interface AdapterHost {
  /** The adapters of the queue's model, ordered by name. */
  listAdapters(queue: Queue): Promise<Outcome<readonly AdapterInfo[], HandlerError>>;
  /**
   * Loads an adapter into the device's memory, so that the first call with the adapter need not wait for it. `not-found` when no adapter
   * has this name, `invalid-argument` for a malformed name.
   */
  loadAdapter(queue: Queue, name: string): Promise<Outcome<undefined, HandlerError>>;
  /**
   * Like `forward`, with the adapter's matrices added to those of the model. Calls with different adapters share a batch only if the
   * backend supports this.
   */
  forwardWithAdapter(queue: Queue, adapter: string, inPages: Uint32Array, inEmbeds: Uint32Array, outPages: Uint32Array, outEmbeds: Uint32Array, mask: Mask | undefined): void;
  /** Like `fused.step`, with the adapter. */
  step(queue: Queue, adapter: string, request: StepRequest): Promise<Outcome<StepResult, HandlerError>>;
}

/** Turns texts into vectors with an encoder: texts of like meaning have vectors of like direction. Needs no queue and no pages. */
export interface EmbeddingHost {
  /** The encoders that the function was granted. */
  encoders(): readonly EncoderInfo[];
  /**
   * The vectors of up to 256 texts of up to 262,144 characters in all. An empty name selects the first embedding model. The call costs a pass
   * of the encoder; texts of many inferlets are computed together. Dropping the future before its value is there ends the call: texts that the
   * device has not begun are not computed.
   */
  embed(model: string, texts: readonly string[]): Promise<Outcome<Vectors, HandlerError>>;
}

/** Scores how well documents answer a query, with an encoder that reads both together. Needs no queue and no pages. */
export interface RerankHost {
  /**
   * The scores of up to 256 documents of up to 262,144 characters in all, with the query counted once for each document. An empty name selects
   * the first reranker. Dropping the future ends the call, as for `embed`.
   */
  rerank(model: string, query: string, documents: readonly string[]): Promise<Outcome<Scores, HandlerError>>;
}

/**
 * Durable indexes of the tenant, which find entries by meaning, by words, or by both. All functions with the grant `store` share the indexes
 * (manifest: `grants.store`). Without this grant, every call fails with `unsupported`. When the grant is `read`, the calls that write fail with
 * `unsupported`. The name of an index has 1 to 128 letters, digits, dots, hyphens and underscores, and does not begin with a dot. While the index
 * host restarts, calls fail with `unavailable`: call again later. A write that fails with `unavailable` may still have taken effect.
 */
export interface IndexHost {
  /**
   * Makes an index for vectors of 1 to 4,096 values. When the tenant already has an index of this name with the same dimensions and metric, that
   * index stays as it is. When its dimensions or metric differ, the call fails with `invalid-argument`.
   */
  create(name: string, dimensions: number, metric: Metric): Promise<Outcome<IndexInfo, HandlerError>>;
  /**
   * Stores up to 256 entries, all or none. An entry replaces an earlier entry with the same id. `vectors` has the vectors of all entries one after
   * the other, in the order of `entries`. Entries and vectors together have at most 4 MiB. Fails with `limit-exceeded` when the tenant's indexes
   * have no room.
   */
  upsert(name: string, entries: readonly IndexEntry[], vectors: Float32Array): Promise<Outcome<undefined, HandlerError>>;
  /** Deletes up to 256 entries by their ids. Ignores ids that have no entry. Completes with the number of deleted entries. */
  deleteEntries(name: string, ids: readonly string[]): Promise<Outcome<number, HandlerError>>;
  /**
   * The best entries that fulfil all conditions of `filter`, the best one first. `limit` is the maximum number of entries, 1 to 256. A filter has at
   * most 16 conditions with at most 64 values each. A query needs a vector, a text of at most 8,192 bytes, or both. A text finds entries that have
   * any of its first 16 words. In a large index, only the rarer of these words count, and the search for the nearest vectors is approximate: it
   * misses about one in a hundred.
   */
  query(name: string, vector: Float32Array | undefined, text: string | undefined, filter: readonly Condition[], limit: number): Promise<Outcome<readonly Match[], HandlerError>>;
  /** Describes one index. */
  stats(name: string): Promise<Outcome<IndexInfo, HandlerError>>;
  /** Describes all indexes of the tenant, ordered by name. */
  listIndexes(): Promise<Outcome<readonly IndexInfo[], HandlerError>>;
  /** Deletes an index with its entries. Completes with false when there was no such index. */
  dropIndex(name: string): Promise<Outcome<boolean, HandlerError>>;
}

/**
 * Durable values by key, shared by a tenant's functions that have the grant `store` (manifest: `grants.store`). Without the grant every call
 * fails with `unsupported`; with the grant `read`, so do the calls that write. Keys have 1 to 512 bytes of UTF-8, values at most 1 MiB.
 * `limit-exceeded` when the tenant's store is full. A call costs one round trip to the platform's store, about 0.2 ms.
 */
export interface StoreHost {
  /** The value of a key, or none. */
  get(key: string): Promise<Outcome<Entry | undefined, HandlerError>>;
  /** Writes a value over any earlier one. Completes with its version. The store deletes the value after `time-to-live` seconds, if given. */
  set(key: string, value: Uint8Array, timeToLive: number | undefined): Promise<Outcome<bigint, HandlerError>>;
  /**
   * Writes a value if the key has the version `expected` (none: if the key has no value). Completes with the new version, or with none when
   * the version differs: read the value again. The key keeps its time to live.
   */
  compareAndSet(key: string, expected: bigint | undefined, value: Uint8Array): Promise<Outcome<bigint | undefined, HandlerError>>;
  /** Deletes a value. Completes with false when there was none. */
  deleteKey(key: string): Promise<Outcome<boolean, HandlerError>>;
  exists(key: string): Promise<Outcome<boolean, HandlerError>>;
  /** Keys that begin with `prefix` and follow `after`, ordered by their bytes. Returns at most `limit` keys (1 to 1,000). */
  listKeys(prefix: string, after: string | undefined, limit: number): Promise<Outcome<readonly string[], HandlerError>>;
}

/**
 * Messages among the inferlets of one tenant. Each function needs the grant `messaging` (manifest: `grants.messaging`); without the grant,
 * every call fails with `unsupported`. Names of topics and queues have 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`. A message
 * has at most 1 MiB. A call costs one round trip to the platform's store, about 0.2 ms.
 */
export interface MessagingHost {
  /** An inferlet may have 64 subscriptions at once. On a subscription beyond these, `ready` and `next` fail with `limit-exceeded`. */
  readonly Subscription: new (topic: string) => Subscription;
  /**
   * Sends a message to all current subscriptions of `topic`. Later subscriptions do not get the message. Completes with the number of subscriptions
   * to which the message was sent.
   */
  broadcast(topic: string, message: Message): Promise<Outcome<number, HandlerError>>;
  /**
   * Appends a message to a queue. At most one `pull` gets the message. Fails with `limit-exceeded` when the queue holds 10,000 messages or 16 MiB,
   * or when all queues of the tenant together hold 64 MiB. The platform deletes a queue after a day without use.
   */
  push(name: string, message: Message): Promise<Outcome<undefined, HandlerError>>;
  /** Takes the first message of a queue. Waits while the queue is empty. */
  pull(name: string): Promise<Outcome<Envelope, HandlerError>>;
}

/**
 * HTTP requests to the hosts that the function was granted (manifest: `grants.hosts`). A request or redirect to another host fails with
 * `unsupported`. The platform refuses addresses of private networks, unless its operator allows them.
 */
export interface HttpHost {
  /** Sends the request. An inferlet may have 64 requests in progress; `head` reports one more as `limit-exceeded`. */
  readonly Exchange: new (request: Request) => Exchange;
}

/**
 * Inferlets that this inferlet launches. The function needs the grant `launch` (manifest: `grants.launch`, a list of functions or `"*"`);
 * without it, calls fail with `unsupported`. A child is an invocation with its own id, log and usage. It runs inside the reservation of its
 * root (the ancestor that no inferlet launched), so it starts at once. It ends with its parent at the latest. An inferlet may hold 1,024 child
 * handles; a handle counts until it is dropped, even after the child's end.
 */
export interface ChildrenHost {
  /**
   * Launches a function of this tenant. `name` runs the version of the alias `live`; `name@alias` and `name@version` choose another. `input`
   * is JSON text of at most 262,144 characters that the function's schema accepts. `started` reports failures.
   */
  readonly Child: new (name: string, input: string) => Child;
}

/**
 * Files that the client and this invocation exchange, for content that is too large for a message. A file has at most 16 MiB. An invocation
 * has at most 256 files and 64 MiB (128 MiB with its children), and a tenant 1 GiB.
 * Names have 1 to 128 characters: letters, digits, `.`, `_`, `-`. The platform keeps files as long as the invocation's events. The HTTP path
 * of a file is `/v1/invocations/{id}/files/{name}`.
 */
export interface FileExchangeHost {
  /**
   * Stores a file for the client, and announces it by a `message` event `{"file": {"name", "mediaType", "bytes"}}`. Replaces a file of the
   * same name.
   */
  sendFile(name: string, mediaType: string, content: Uint8Array): Promise<Outcome<undefined, HandlerError>>;
  /** A file of the invocation, from the client or from the inferlet. Waits until the file exists. `closed` when the client closes the session first. */
  receiveFile(name: string): Promise<Outcome<FileExchangeFile, HandlerError>>;
  /** The present files, ordered by name. */
  listFiles(): Promise<Outcome<readonly FileExchangeFileInfo[], HandlerError>>;
}

/**
 * Named texts of the function's version: the tenant's secrets that the manifest lists (`secrets`), and plain variables (`environment`). A version
 * keeps the values that the secrets had at its deployment. A name has upper-case letters, digits and `_`. Reading a value is immediate. In log
 * lines and error messages, the platform replaces each value of four or more characters by `[NAME]`.
 */
export interface EnvironmentHost {
  /** The value of a variable or secret, or none when the manifest does not list it. */
  getVariable(name: string): string | undefined;
  /** The names of all variables and secrets, in order. */
  listVariables(): readonly string[];
}

/**
 * Questions to a person. An invocation that asks a question ends its attempt and waits. Meanwhile it has no instance, holds no pages, embeds or
 * queues, and takes no slot; it keeps waiting across restarts of the platform. When a person answers
 * (`POST /v1/invocations/{id}/answer`, `pie answer`), or the time has passed, a new attempt runs from the beginning with the same input. There,
 * `resumed` returns the state that the last attempt left, and the answer.
 */
export interface PersonHost {
  /**
   * Asks when `run` returns a result: that result is dropped, and the invocation waits instead of ending. When `run` fails, nothing is asked.
   * `invalid-argument` for a question that exceeds a limit, a schema that cannot be used, or a second question; `unsupported` in a child.
   */
  ask(question: Question): Outcome<undefined, HandlerError>;
  /** The answer to the last question, or none in an invocation that has not asked. */
  resumed(): Resumption | undefined;
}

/** Everything that an inferlet may import, by interface. */
export interface Host {
  readonly runtime: RuntimeHost;
  readonly session: SessionHost;
  readonly queue: QueueHost;
  readonly allocate: AllocateHost;
  readonly forward: ForwardHost;
  readonly inputText: InputTextHost;
  readonly outputText: OutputTextHost;
  readonly fused: FusedHost;
  readonly tokenize: TokenizeHost;
  readonly grammar: GrammarHost;
  readonly penalties: PenaltiesHost;
  readonly introspect: IntrospectHost;
  readonly kvFiles: KvFilesHost;
  readonly inputImage: InputImageHost;
  readonly adapter: AdapterHost;
  readonly embedding: EmbeddingHost;
  readonly rerank: RerankHost;
  readonly index: IndexHost;
  readonly store: StoreHost;
  readonly messaging: MessagingHost;
  readonly http: HttpHost;
  readonly children: ChildrenHost;
  readonly fileExchange: FileExchangeHost;
  readonly environment: EnvironmentHost;
  readonly person: PersonHost;
}
