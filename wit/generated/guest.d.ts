// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
// Types and values as componentize-qjs gives them to a guest: see wit/generate/emit-guest.ts.

/**
 * Types that every interface shares. An inferlet has at most 1,024 calls of the platform's stores, messages, files, children and network under way, with
 * 32 MiB in them, and 32 MiB of their results unread: past that a call is `limit-exceeded` until some were read, or dropped.
 */
declare module 'pie:inferlet/types@0.1.0' {
  /** A WIT `result` inside a future. (One that a function returns at once is thrown instead: see Thrown.) */
  export type Outcome<T, E = Error> = { readonly tag: 'ok'; readonly val: T } | { readonly tag: 'err'; readonly val: E };
  /** What the host is still computing. Await `read()`; several at once overlap (`Promise.all`). */
  export interface Future<T> extends Disposable {
    read(): Promise<T>;
    drop(): void;
  }
  /** What a function throws whose WIT result is an error. */
  export interface Thrown<E = Error> extends globalThis.Error {
    readonly payload: E;
  }
  /** A resource of the host; using it after it was dropped throws TypeError. */
  export interface Handle extends Disposable {
    drop(): void;
  }
  /** Why a call failed. The text says what happened and what to do about it; programs match on the case. */
  export type Error =
    /** An argument has the wrong shape or value (lengths that differ, a token id outside the vocabulary, a slot past the page). */
    | { readonly tag: 'invalid-argument'; readonly val: string }
    /** An address that this inferlet does not hold: never allocated, freed, or of another model. */
    | { readonly tag: 'not-owned'; readonly val: string }
    /** The model, this host or the function's grants do not offer the call. Ask `runtime.model-traits` first, or read what the manifest may grant. */
    | { readonly tag: 'unsupported'; readonly val: string }
    /** No such model, name or invocation. */
    | { readonly tag: 'not-found'; readonly val: string }
    /** A limit of the deployment or the tenant (pages, tokens, output, memory) would be passed. */
    | { readonly tag: 'limit-exceeded'; readonly val: string }
    /** The context would pass the model's trained length, or the out-pages have no empty slot left. */
    | { readonly tag: 'context-overflow'; readonly val: string }
    /** An earlier call that this one depends on failed; the text names its cause. */
    | { readonly tag: 'dependency-failed'; readonly val: string }
    /** The invocation was cancelled by its client or its parent. */
    | { readonly tag: 'cancelled'; readonly val: string }
    /** The invocation's deadline passed. */
    | { readonly tag: 'deadline-exceeded'; readonly val: string }
    /** The platform took the inferlet's memory back (first come, first served termination). */
    | { readonly tag: 'terminated'; readonly val: string }
    /**
     * Cannot be had now, and perhaps later: somebody else holds it (a lock, room, a worker that is busy), or the device or its process is
     * gone, and everything that it held is lost.
     */
    | { readonly tag: 'unavailable'; readonly val: string }
    /** The other end of a session has closed. */
    | { readonly tag: 'closed'; readonly val: string }
    /** A fault of the platform itself. */
    | { readonly tag: 'internal'; readonly val: string };
  export {};
}

/** What an inferlet may know of itself and of the platform. Every call here is answered at once, in about a microsecond, except `sleep`. */
declare module 'pie:inferlet/runtime@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  export type LogLevel = 'debug' | 'info' | 'warn' | 'error';
  /** One model that this inferlet was granted. */
  export interface ModelInfo {
    readonly name: string;
    /** Tokens that the model was trained to see at once. */
    readonly contextLength: number;
    readonly vocabularySize: number;
    /** Slots of one KV page. */
    readonly pageSize: number;
    /** Names of the interfaces that the model offers, such as `forward` or `fused`. */
    readonly traits: string[];
  }
  /** What a model is, from its own configuration. */
  export interface ModelMetadata {
    /** As its configuration names it, such as `LlamaForCausalLM`. */
    readonly architecture: string;
    /** Weights, embeddings included. */
    readonly parameters: number;
    readonly layers: number;
    readonly hiddenSize: number;
    readonly attentionHeads: number;
    readonly keyValueHeads: number;
    readonly headSize: number;
    /** Bits of a weight as the device holds it. */
    readonly bits: number;
  }
  /** Version of the contract that the host implements, such as `0.1.0`. */
  export function version(): string;
  /** Id of this invocation, the one that its client sees. */
  export function instanceId(): string;
  export function tenant(): string;
  /** The request body, as `run` gets it: for guests that do not keep it. */
  export function getArguments(): string;
  export function functionName(): string;
  export function functionVersion(): string;
  /** The models granted to this function; the first is its default. */
  export function models(): ModelInfo[];
  /**
   * Interfaces that a model offers.
   * @throws {Thrown} with the error as `payload`
   */
  export function modelTraits(model: string): string[];
  /**
   * What a model is. `not-found` for one that was not granted.
   * @throws {Thrown} with the error as `payload`
   */
  export function metadata(model: string): ModelMetadata;
  /**
   * What the platform knows of this inferlet, as JSON text, for finding faults: `limits`, `usage` (CPU, tokens, calls), `pages` (held, by
   * model), `grants`, `models`, or `all`. `invalid-argument` for another query.
   * @throws {Thrown} with the error as `payload`
   */
  export function debugQuery(query: string): string;
  /** Writes a line into the function's log and the invocation's event stream. */
  export function log(level: LogLevel, message: string): void;
  /** Whether the client, the parent or the platform has asked this inferlet to stop. */
  export function isCancelled(): boolean;
  /** Milliseconds of wall time left before the deadline. */
  export function timeLeft(): number;
  /** Milliseconds since the Unix epoch. */
  export function now(): number;
  /** 32 random bits from the host's generator. */
  export function random(): number;
  /** Completes after the given time, or earlier with `cancelled` or `deadline-exceeded`. */
  export function sleep(milliseconds: number): Future<Outcome<undefined>>;
  export {};
}

/**
 * The conversation with the client that invoked this inferlet. Sending costs some microseconds; `flush` a round trip to the event log, about a
 * millisecond.
 */
declare module 'pie:inferlet/session@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  export type MessageInput =
    | { readonly tag: 'text'; readonly val: string }
    | { readonly tag: 'bytes'; readonly val: Uint8Array | readonly number[] };
  export type Message =
    | { readonly tag: 'text'; readonly val: string }
    | { readonly tag: 'bytes'; readonly val: Uint8Array };
  /**
   * Sends one `message` event. It is queued and returns at once; a queue past its bound (1 MiB not yet written, each event counted with 256 bytes more) answers
   * `limit-exceeded`: await `flush` and send again.
   * @throws {Thrown} with the error as `payload`
   */
  export function send(message: MessageInput): void;
  /** Completes when everything sent so far is in the invocation's event log. */
  export function flush(): Future<Outcome<undefined>>;
  /** The next message of the client, in order. `closed` once the client can send no more. */
  export function receive(): Future<Outcome<Message>>;
  export {};
}

/**
 * A logical order of calls on one model. Calls are issued without waiting and run in queue order; between queues there is no order.
 * A call that fails, fails every later call of its queue that depends on it, with its cause; `synchronize` reports the first error.
 * Issuing a call costs some microseconds; waiting for one a round trip to the device's host, about 0.1 ms, besides what it computes.
 */
declare module 'pie:inferlet/queue@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  export class Queue implements Handle {
    /** The pages and embeds used with this queue belong to `model`. An unknown model makes every call on the queue fail with `not-found`. */
    constructor(model: string);
    /** Higher goes first within a batch; 0 by default; the host clamps it to the tenant's range. */
    setPriority(priority: number): void;
    /** Completes after every earlier call of this queue, with the first error since the last `synchronize`. */
    synchronize(): Future<Outcome<undefined>>;
    drop(): void;
    [Symbol.dispose](): void;
  }
  export {};
}

/**
 * Memory of the model's device. Addresses are `u32`s in the inferlet's own space, one space a model, never reused within an invocation.
 * A KV page has `page-size` slots; a slot holds a key, a value, a position and the flags *filled* and *masked*.
 * An embed holds one token's embedding or one output state, and a position: the token's, or for a state the one after its input's,
 * so that a state can be fed back as the next input.
 * Allocating, freeing, sharing and copying travel with the calls around them and cost no round trip; names (export, import, …) cost one each, and
 * persistent ones the disk's time.
 */
declare module 'pie:inferlet/allocate@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  /** A snapshot of pages under a name, kept by the tenant. */
  export interface ExportInfo {
    readonly name: string;
    readonly pages: number;
    /** Filled slots. */
    readonly tokens: number;
    /** One past the largest position. */
    readonly nextPosition: number;
    /** Whether it survives a restart of the device's host. */
    readonly persistent: boolean;
  }
  export interface Imported {
    readonly pages: number[];
    readonly tokens: number;
    readonly nextPosition: number;
  }
  /** Slots of one KV page (8 to 32, 16 by default). */
  export function pageSize(queue: Queue): number;
  /**
   * Addresses of `count` empty pages. The memory is claimed in queue order; when it cannot be had the calls that use it fail.
   * `limit-exceeded` at once when the invocation's page limit would be passed.
   * @throws {Thrown} with the error as `payload`
   */
  export function allocatePages(queue: Queue, count: number): number[];
  /** Gives pages back after the earlier calls of the queue. A shared page stays with its other holders. */
  export function freePages(queue: Queue, pages: Uint32Array | readonly number[]): void;
  /**
   * Addresses of `count` embeds.
   * @throws {Thrown} with the error as `payload`
   */
  export function allocateEmbeds(queue: Queue, count: number): number[];
  export function freeEmbeds(queue: Queue, embeds: Uint32Array | readonly number[]): void;
  /**
   * New addresses for the same pages, copy-on-write: a later write through either address copies first. Masks start as the source's
   * and belong to the address from then on.
   * @throws {Thrown} with the error as `payload`
   */
  export function sharePages(queue: Queue, pages: Uint32Array | readonly number[]): number[];
  /**
   * Copies `count` slots (key, value, position, filled, masked) from a page to another or the same. `shift` is added to each copied
   * slot's position and its key is rotated on by as much; the position may pass the trained context. `unsupported` when the model's
   * rotation cannot be shifted.
   */
  export function copySlots(queue: Queue, source: number, sourceOffset: number, destination: number, destinationOffset: number, count: number, shift: number): void;
  /**
   * Copies single tokens: `indices` count the filled slots of `sources`, in order; their keys and values go to the empty slots of
   * `destinations`, in order. `positions`, one a token, are their new positions (keys are rotated to them); empty keeps the old ones.
   */
  export function copyTokens(queue: Queue, sources: Uint32Array | readonly number[], indices: Uint32Array | readonly number[], destinations: Uint32Array | readonly number[], positions: Uint32Array | readonly number[]): void;
  /** Copies embeds one to one. */
  export function copyEmbeds(queue: Queue, sources: Uint32Array | readonly number[], destinations: Uint32Array | readonly number[]): void;
  /**
   * Freezes a snapshot of `pages` (with their masks) under `name` in the tenant, after the earlier calls that write them; later writes
   * copy. It outlives this inferlet and counts against the tenant. `persistent` ones are on disk when the future completes.
   * `invalid-argument` when the name is taken or is no name (1 to 128 characters of letters, digits, `.`, `_`, `-`, `/`).
   */
  export function exportPages(queue: Queue, pages: Uint32Array | readonly number[], name: string, persistent: boolean): Future<Outcome<undefined>>;
  /**
   * Maps the pages of an export, copy-on-write. `not-found` without such a name; `invalid-argument` for a persistent one that another
   * model or build made.
   */
  export function importPages(queue: Queue, name: string): Future<Outcome<Imported>>;
  /** Removes a name; who has imported it keeps its pages. */
  export function unexport(queue: Queue, name: string): Future<Outcome<undefined>>;
  /** The tenant's exports of this model, by name. */
  export function listExports(queue: Queue): Future<Outcome<ExportInfo[]>>;
  export {};
}

/**
 * The transformer over KV pages. A forward returns at once and is computed in a batch with those of others: decoding costs a share of reading the
 * weights once, prefill is bound by arithmetic, about two operations a weight and input.
 */
declare module 'pie:inferlet/forward@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  /**
   * Which keys each input may see, run-length encoded. Row i belongs to input i and covers first the filled slots of the in-pages, in
   * order, then the inputs. A row is a list of run lengths that alternate hidden, visible, hidden, … starting with hidden (0 when the row
   * starts visible), whose sum is the row's width.
   */
  export interface Mask {
    /** The runs of all rows, one row after another. */
    readonly runs: Uint32Array | readonly number[];
    /** How many runs each row has. */
    readonly rowLengths: Uint32Array | readonly number[];
  }
  /**
   * Computes `in-embeds` over the filled, unmasked slots of `in-pages` and over each other. The i-th input's key and value go to the i-th
   * empty slot of `out-pages`, in order; without out-pages they live for this call only. A page may be both in and out: its filled
   * slots are read first. The states of the last `out-embeds.length` inputs are written to `out-embeds`.
   * Without a mask, a key is visible when its position is smaller than the query's, or it is the query's own.
   */
  export function forward(queue: Queue, inPages: Uint32Array | readonly number[], inEmbeds: Uint32Array | readonly number[], outPages: Uint32Array | readonly number[], outEmbeds: Uint32Array | readonly number[], mask?: Mask | null | undefined): void;
  /** Masks the slots of a page whose bit is set in `slots` (bit 0 is slot 0), and unmasks the others. It changes this address only. */
  export function maskPage(queue: Queue, page: number, slots: number): void;
  export {};
}

/** Tokens to embeds. It travels with the forward behind it and costs no time of its own. */
declare module 'pie:inferlet/input-text@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  /** Writes the embedding of `tokens[i]`, at `positions[i]`, into `embeds[i]`. The three lists are equally long. */
  export function embedText(queue: Queue, tokens: Uint32Array | readonly number[], positions: Uint32Array | readonly number[], embeds: Uint32Array | readonly number[]): void;
  export {};
}

/** States to tokens. Asked in the same queue right behind the forward that writes the state, it is answered by the same device step. */
declare module 'pie:inferlet/output-text@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  /** The most probable tokens, most probable first. Equal logits are ordered by token id. */
  export interface Distribution {
    readonly tokens: number[];
    /** Natural logarithms of the probabilities over the whole vocabulary, at temperature 1. */
    readonly logProbabilities: number[];
  }
  /** Distribution of the token that follows the state in `embed`, cut to the `top-k` most probable (1 to the tenant's cap, 256 by default). */
  export function nextDistribution(queue: Queue, embed: number, topK: number): Future<Outcome<Distribution>>;
  /** Natural logarithms of the probabilities of `tokens` after the state in `embed`, over the whole vocabulary at temperature 1. */
  export function logProbabilities(queue: Queue, embed: number, tokens: Uint32Array | readonly number[]): Future<Outcome<number[]>>;
  /** Entropy of the distribution after the state in `embed`, in nats. */
  export function entropy(queue: Queue, embed: number): Future<Outcome<number>>;
  /** The values of an embed: a token's embedding or a state, as many as the model's hidden size. */
  export function readEmbed(queue: Queue, embed: number): Future<Outcome<number[]>>;
  export {};
}

/** Embed, forward and sample in one call: a token costs one crossing, and with `run` less than one. */
declare module 'pie:inferlet/fused@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Mask } from 'pie:inferlet/forward@0.1.0';
  import type { Distribution } from 'pie:inferlet/output-text@0.1.0';
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  /**
   * How the device picks a token. `temperature` 0 is greedy and ignores the rest; `top-p` 1 and `min-p` 0 switch that cut off,
   * `top-k` 0 takes the host's cap (256 by default). Cuts apply in the order top-k, top-p, min-p, to probabilities after the temperature.
   * Equal seeds give equal tokens: the draw depends on the seed and the input's position only.
   */
  export interface Sampler {
    readonly temperature: number;
    readonly topK: number;
    readonly topP: number;
    readonly minP: number;
    readonly seed: number;
  }
  /** What a step hands back for each of its last `rows` inputs. */
  export type Output =
    /** Nothing: fill the cache only. */
    | { readonly tag: 'none' }
    /** One sampled token a row. */
    | { readonly tag: 'sample'; readonly val: Sampler }
    /** The `top-k` most probable a row. */
    | { readonly tag: 'distributions'; readonly val: number };
  export interface StepRequest {
    readonly tokens: Uint32Array | readonly number[];
    readonly positions: Uint32Array | readonly number[];
    readonly inPages: Uint32Array | readonly number[];
    readonly outPages: Uint32Array | readonly number[];
    readonly mask?: Mask | null | undefined;
    /** Inputs, counted from the last, that get an output. */
    readonly rows: number;
    readonly output: Output;
  }
  export interface StepResult {
    /** One token a row for `sample`, else empty. */
    readonly tokens: number[];
    /** One a row for `distributions`, else empty. */
    readonly distributions: Distribution[];
  }
  export interface RunRequest {
    /** First input and its position; each later input is the token sampled before it, at the next position. */
    readonly token: number;
    readonly position: number;
    /** Read and appended to, in order: the sequence's pages with room for `max-tokens` more. */
    readonly pages: Uint32Array | readonly number[];
    readonly maxTokens: number;
    readonly sampler: Sampler;
    /** Decoding stops after one of these was sampled (it is handed over as the last token; its key and value are not in the cache). */
    readonly stopTokens: Uint32Array | readonly number[];
  }
  export type FinishReason = 'stop-token' | 'max-tokens' | 'stopped';
  export interface RunChunk {
    /** Tokens since the last `next`, in order, at least one unless finished. */
    readonly tokens: number[];
    /** Set with the last chunk. */
    readonly finished: FinishReason | null;
  }
  /** How messages with pieces of a text are written. */
  export interface Frame {
    /** A message of its own before the first piece; none when empty. */
    readonly opening: string;
    /** What stands in front of a piece, which is written as a JSON string. */
    readonly before: string;
    /** What stands behind it. */
    readonly after: string;
  }
  /** What the platform needs to make text of a run's tokens as they come. */
  export interface PipeRequest {
    /** Tokens of the text before the run, those that complete no character included: the text goes on from them. */
    readonly before: Uint32Array | readonly number[];
    /** End of that text that was not sent, since it may be the beginning of a stop string. */
    readonly held: string;
    /** Texts that end the run and are not sent: at most 64, of 1,024 bytes together; else `limit-exceeded`. */
    readonly stops: readonly string[];
    /** Each piece is a message as it is by default. At most 8,192 bytes together; else `limit-exceeded`. */
    readonly frame?: Frame | null | undefined;
  }
  /** What was piped. */
  export interface Piped {
    /** Tokens of the run since the last `next` or `pipe`, in order, up to the one that completed a stop string. */
    readonly tokens: number[];
    /** The text that was sent. */
    readonly text: string;
    /** End of the text that was not sent, since it may be the beginning of a stop string. */
    readonly held: string;
    /** The stop string that was found; what is decoded behind it is forgotten, and costs no tokens. */
    readonly stop: string | null;
    /** Unset after a stop string, and when something cut the run short: the next call says what. */
    readonly finished: FinishReason | null;
  }
  /** Tokens decoded ahead of the inferlet, on the device. */
  export class Run implements Handle {
    /** Starts decoding; failures are reported by `next`. */
    constructor(queue: Queue, request: RunRequest);
    next(): Future<Outcome<RunChunk>>;
    /**
     * Instead of `next`: decodes until the run has finished, and sends its text to the client as `message` events as it comes. The inferlet
     * is not woken for any of it. One `next` or `pipe` at a time, and 256 pipes of an inferlet.
     */
    pipe(request: PipeRequest): Future<Outcome<Piped>>;
    /** Asks the device to stop; what is already decoded is still handed over. Dropping the resource does the same. */
    stop(): void;
    drop(): void;
    [Symbol.dispose](): void;
  }
  export function step(queue: Queue, request: StepRequest): Future<Outcome<StepResult>>;
  export {};
}

/**
 * Text to tokens and back. It needs no device: a call takes about a microsecond a token, and long ones wait their tenant's turn. `limit-exceeded` past
 * 32,768 characters in one call (cut at the end of a line), 131,072 tokens, or 8,192 messages of a chat.
 */
declare module 'pie:inferlet/tokenize@0.1.0' {
  import type { Handle } from 'pie:inferlet/types@0.1.0';
  export interface SpecialTokenIds {
    readonly bos: number | null;
    readonly eos: number[];
    readonly pad: number | null;
    readonly unknown: number | null;
  }
  export interface ChatMessage {
    /** `system`, `user`, `assistant` or `tool`. */
    readonly role: string;
    readonly content: string;
  }
  /** Detokenizes a stream: never hands out half a character. */
  export class Detokenizer implements Handle {
    constructor(model: string);
    /**
     * Text that these tokens complete.
     * @throws {Thrown} with the error as `payload`
     */
    push(tokens: Uint32Array | readonly number[]): string;
    /** What is left, with U+FFFD for bytes that never became a character. */
    finish(): string;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /**
   * Token ids of `text`, without special tokens around it; special tokens written in the text are recognised when `special` is true.
   * @throws {Thrown} with the error as `payload`
   */
  export function tokenize(model: string, text: string, special: boolean): number[];
  /**
   * Text of `tokens`; special tokens are left out unless `special`.
   * @throws {Thrown} with the error as `payload`
   */
  export function detokenize(model: string, tokens: Uint32Array | readonly number[], special: boolean): string;
  /** @throws {Thrown} with the error as `payload` */
  export function specialTokens(model: string): SpecialTokenIds;
  /**
   * Bytes of every token, by id.
   * @throws {Thrown} with the error as `payload`
   */
  export function vocabulary(model: string): Uint8Array[];
  /**
   * The model's chat template applied to `messages`, as text to be tokenized with `special`. `unsupported` when the model has none.
   * @throws {Thrown} with the error as `payload`
   */
  export function chatTemplate(model: string, messages: readonly ChatMessage[], addGenerationPrompt: boolean): string;
  /**
   * The model's chat template applied to variables of any kind, a JSON object: `messages` (with whatever members the template knows, such
   * as `tool_calls`), `tools`, `documents`, `add_generation_prompt`, … `bos_token`, `eos_token` and the like are the model's unless given.
   * `invalid-argument` when the text is no JSON object or the template refuses it; `unsupported` when the model has none.
   * @throws {Thrown} with the error as `payload`
   */
  export function renderChat(model: string, variables: string): string;
  export {};
}

/**
 * Grammars that hold decoding to a format. Compiled and matched in the runtime; the mask travels with the fused call and is applied on the
 * device before a token is picked. Calls of one matcher run in order.
 * Compiling takes milliseconds, a mask about 0.2 ms where the text is at a place that no matcher was at before, else microseconds.
 */
declare module 'pie:inferlet/grammar@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { StepRequest, StepResult } from 'pie:inferlet/fused@0.1.0';
  export type Source =
    /** A JSON schema, as text. */
    | { readonly tag: 'json-schema'; readonly val: string }
    /** A regular expression that the whole text must match. */
    | { readonly tag: 'regex'; readonly val: string }
    /** A grammar in EBNF (GBNF, as of llama.cpp) whose start is `root`. */
    | { readonly tag: 'ebnf'; readonly val: string }
    /** Any JSON. */
    | { readonly tag: 'json' };
  export interface MatchStatus {
    /** An end-of-sequence token is allowed now. */
    readonly mayEnd: boolean;
    /** Nothing but the end is allowed, or the end was accepted. */
    readonly mustEnd: boolean;
  }
  /** A grammar compiled for one model's vocabulary. */
  export class Compiled implements Handle {
    /** Starts compiling; failures are reported by `ready` and by its matchers. */
    constructor(model: string, source: Source);
    /** `invalid-argument` for a grammar that does not compile, `limit-exceeded` for one that takes too long. */
    ready(): Future<Outcome<undefined>>;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /** Where a text stands in a grammar. */
  export class Matcher implements Handle {
    constructor(grammar: Compiled);
    /** Takes the next tokens. False when one does not fit: then none of them was taken. */
    accept(tokens: Uint32Array | readonly number[]): Future<Outcome<boolean>>;
    /** Tokens that may come next: bit `t % 32` of word `t / 32`. (JavaScript guests see a word whose highest bit is set as a negative number.) */
    mask(): Future<Outcome<number[]>>;
    /** Whether the text may end here, and whether it must. */
    status(): Future<Outcome<MatchStatus>>;
    /** A matcher of its own at the same place. */
    fork(): Matcher;
    /** Takes the last `tokens` accepted ones back. */
    rollback(tokens: number): Future<Outcome<undefined>>;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /**
   * `fused.step` with the matcher's mask applied to the only row of output, which must be a `sample` or `distributions`.
   * The sampled token is not accepted by itself: call `accept`. The call enters its queue when the mask is known: await it before calls
   * that must come after it.
   */
  export function step(queue: Queue, matcher: Matcher, request: StepRequest): Future<Outcome<StepResult>>;
  export {};
}

/**
 * What the model looked at, for strategies that evict what nobody looks at. Such a forward computes its attention a second time, and runs in
 * batches of its own.
 */
declare module 'pie:inferlet/introspect@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Mask } from 'pie:inferlet/forward@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  /**
   * `forward`, and the attention that each slot received from it: summed over the inputs, averaged over layers and heads. First `page-size`
   * numbers for each of `in-pages` (0 for empty and masked slots), then one for each input. It all sums to the number of inputs.
   */
  export function forwardScores(queue: Queue, inPages: Uint32Array | readonly number[], inEmbeds: Uint32Array | readonly number[], outPages: Uint32Array | readonly number[], outEmbeds: Uint32Array | readonly number[], mask?: Mask | null | undefined): Future<Outcome<number[]>>;
  export {};
}

/**
 * The cache as files (Symphony, HotOS '25). A file is a sequence of tokens' keys and values, named or not, of one model. Whoever opens a
 * name sees what was saved last; whoever holds its lock may save anew. Names are the tenant's; those under `system/` are written by operators
 * and readable by every tenant. A file that is opened shares its pages: opening and saving cost a round trip, and nothing a token.
 */
declare module 'pie:inferlet/kv-files@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Distribution } from 'pie:inferlet/output-text@0.1.0';
  export type Access = 'read' | 'write';
  /** What others in the tenant may do with a file. */
  export type Rights = 'private' | 'readable' | 'writable';
  export interface FileInfo {
    readonly name: string;
    readonly tokens: number;
    readonly nextPosition: number;
    readonly persistent: boolean;
    readonly rights: Rights;
    /** The function that made it. */
    readonly owner: string;
    readonly locked: boolean;
  }
  export class File implements Handle {
    /**
     * Opens `name`, or makes a file without a name when it is none. `ready` reports failures. Its calls run on `queue`; those made before
     * it is ready wait for that.
     */
    constructor(queue: Queue, name: string | null | undefined, access: Access);
    /** Completes when the file can be used. `not-found`, `unsupported` (no right), `unavailable` (locked). */
    ready(): Future<Outcome<undefined>>;
    /** Tokens held; known once ready. */
    tokens(): number;
    /** The first position that is free: no token is at it or behind it. Known once ready. */
    nextPosition(): number;
    /** Its pages, for `forward` and `fused` to read. */
    pages(): number[];
    /**
     * Its pages with empty slots for `tokens` more behind the filled ones, for `forward` and `fused` to fill. Tell `filled` what they did:
     * nothing else counts it. `limit-exceeded` when the invocation's page limit would be passed.
     * @throws {Thrown} with the error as `payload`
     */
    reserve(tokens: number): number[];
    /** Takes `tokens` that `forward` or `fused` wrote into the reserved slots as the file's; `next-position` is the first position behind them. */
    filled(tokens: number, nextPosition: number): void;
    /**
     * Computes tokens, appends them and returns one distribution for each: of the token that follows it, cut to the `top-k` most
     * probable (1 to the device's cap, 256 by default).
     */
    pred(tokens: Uint32Array | readonly number[], positions: Uint32Array | readonly number[], topK: number): Future<Outcome<Distribution[]>>;
    /** A file without a name with the same content, copy-on-write. */
    fork(): File;
    /**
     * A file without a name that holds the tokens at `indices`, in that order. With `renumber` their positions become
     * `first-position`, `first-position + 1`, … and their keys are rotated to them; else they keep their own. `ready` reports failures:
     * `invalid-argument` for a token that is not there, `limit-exceeded` for more than the invocation's pages hold, and, like
     * `synchronize`, the first error of the queue.
     */
    extract(indices: Uint32Array | readonly number[], renumber?: number | null | undefined): File;
    /**
     * Appends another file's tokens (of the same model), renumbered to follow this one's unless `keep-positions`. Like `synchronize`, it
     * reports the first error of the queue.
     */
    merge(other: File, keepPositions: boolean): Future<Outcome<undefined>>;
    /** Saves under a name (its own, with the lock, or a new one). `invalid-argument` when another file has the name. */
    save(name: string, persistent: boolean, rights: Rights): Future<Outcome<undefined>>;
    /** Gives the lock back; dropping the file does the same. */
    unlock(): void;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /** Removes a name. Who has it open keeps what it sees. */
  export function remove(queue: Queue, name: string): Future<Outcome<undefined>>;
  /** Names that begin with `prefix`, in order, of this model. */
  export function files(queue: Queue, prefix: string): Future<Outcome<FileInfo[]>>;
  export {};
}

/** Images to embeds, for models with a vision encoder. */
declare module 'pie:inferlet/input-image@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  export interface Dimensions {
    /** Pixels. */
    readonly width: number;
    readonly height: number;
  }
  /**
   * Size of an image (PNG or JPEG), read from its first bytes. `invalid-argument` for anything else.
   * @throws {Thrown} with the error as `payload`
   */
  export function imageDimensions(image: Uint8Array | readonly number[]): Dimensions;
  /**
   * How many embeds an image of that size takes on the queue's model. `unsupported` without this trait, `invalid-argument` for more pixels than it takes.
   * @throws {Thrown} with the error as `payload`
   */
  export function imageEmbeds(queue: Queue, size: Dimensions): number;
  /**
   * Encodes an image (PNG or JPEG, at most 8 MiB and 16 million pixels) into as many `embeds` as `image-embeds` says, at `positions`. It
   * costs a pass of the vision encoder: about as much as a prefill of as many tokens.
   */
  export function embedImage(queue: Queue, image: Uint8Array | readonly number[], positions: Uint32Array | readonly number[], embeds: Uint32Array | readonly number[]): Future<Outcome<undefined>>;
  export {};
}

/**
 * Low-rank adapters (Hu et al., LoRA, 2021) that the platform's operator put beside a model. Keys and values that an adapter computed are told
 * apart from the model's own wherever prefixes are shared.
 */
declare module 'pie:inferlet/adapter@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Mask } from 'pie:inferlet/forward@0.1.0';
  import type { StepRequest, StepResult } from 'pie:inferlet/fused@0.1.0';
  export interface AdapterInfo {
    readonly name: string;
    readonly rank: number;
    /** Whether it is in the device's memory. */
    readonly loaded: boolean;
  }
  /** The adapters of the queue's model, by name. */
  export function listAdapters(queue: Queue): Future<Outcome<AdapterInfo[]>>;
  /** Brings an adapter into the device's memory, so that the first call does not wait for it. `not-found` without such a name. */
  export function loadAdapter(queue: Queue, name: string): Future<Outcome<undefined>>;
  /** `forward` with the adapter's matrices added to the model's. Calls with different adapters do not share a batch. */
  export function forwardWithAdapter(queue: Queue, adapter: string, inPages: Uint32Array | readonly number[], inEmbeds: Uint32Array | readonly number[], outPages: Uint32Array | readonly number[], outEmbeds: Uint32Array | readonly number[], mask?: Mask | null | undefined): void;
  /** `fused.step` with the adapter. */
  export function step(queue: Queue, adapter: string, request: StepRequest): Future<Outcome<StepResult>>;
  export {};
}

/**
 * Durable values by key, per tenant, for functions that were granted `store` (manifest: `grants.store`); without the grant every call is
 * `unsupported`, and with `read` the calls that write are. Keys have 1 to 512 bytes of UTF-8, values at most 1 MiB; `limit-exceeded` when the
 * tenant's store is full. A call costs one round trip to the platform's store, about 0.2 ms.
 */
declare module 'pie:inferlet/store@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  export interface Entry {
    readonly value: Uint8Array;
    /** Grows with every write of the key; what `compare-and-set` compares. */
    readonly version: number;
  }
  /** The value of a key, if it has one. */
  export function get(key: string): Future<Outcome<Entry | null>>;
  /** Writes a value, whatever was there; completes with its version. With `time-to-live` it is forgotten after as many seconds. */
  export function set(key: string, value: Uint8Array | readonly number[], timeToLive?: number | null | undefined): Future<Outcome<number>>;
  /**
   * Writes a value if the key's version is `expected` (none: if there is no value). Completes with the new version, or none when somebody
   * else was there before: read again. A time to live stays.
   */
  export function compareAndSet(key: string, expected: number | null | undefined, value: Uint8Array | readonly number[]): Future<Outcome<number | null>>;
  /** Whether there was a value to delete. */
  export function deleteKey(key: string): Future<Outcome<boolean>>;
  export function exists(key: string): Future<Outcome<boolean>>;
  /** Keys that begin with `prefix` and follow `after`, in order of their bytes, at most `limit` (1 to 1,000). */
  export function listKeys(prefix: string, after: string | null | undefined, limit: number): Future<Outcome<string[]>>;
  export {};
}

/**
 * Messages among the inferlets of one tenant, of any function that was granted `messaging` (manifest: `grants.messaging`); without the grant
 * every call is `unsupported`. Topics and lines are names of 1 to 128 characters of letters, digits, `.`, `_`, `-`, `/`. A message has
 * at most 1 MiB. A call costs one round trip to the platform's store, about 0.2 ms.
 */
declare module 'pie:inferlet/messaging@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Message, MessageInput } from 'pie:inferlet/session@0.1.0';
  /** A message and who sent it. */
  export interface Envelope {
    /** Invocation id of the sender. */
    readonly sender: string;
    readonly message: Message;
  }
  /** What is broadcast to a topic from `ready` on, in order. Dropping it unsubscribes. */
  export class Subscription implements Handle {
    /** `limit-exceeded` past 64 subscriptions of one inferlet, reported by `ready`. */
    constructor(topic: string);
    /** Completes once nothing that is broadcast from now on is missed. */
    ready(): Future<Outcome<undefined>>;
    /** The next message. `limit-exceeded`, once, when messages were dropped because 1,024 of them, or 4 MiB, waited to be read; `closed` after `unsubscribe`. */
    next(): Future<Outcome<Envelope>>;
    unsubscribe(): void;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /**
   * Sends to all that subscribe to `topic` now; nobody keeps it for those who come later. Completes with the number of inferlets' subscriptions
   * that it was handed to.
   */
  export function broadcast(topic: string, message: MessageInput): Future<Outcome<number>>;
  /**
   * Puts a message at the end of a line, where it waits to be pulled: by one inferlet, once. `limit-exceeded` when the line holds 10,000
   * messages or 16 MiB, or all lines of the tenant 64 MiB. A line that nobody touches is forgotten after a day.
   */
  export function push(name: string, message: MessageInput): Future<Outcome<undefined>>;
  /** Takes the first message of a line; waits for one when there is none. */
  export function pull(name: string): Future<Outcome<Envelope>>;
  export {};
}

/**
 * Requests to hosts that the function was granted (manifest: `grants.hosts`); any other host is `unsupported`, whatever redirect leads to
 * it. Addresses of private networks are refused unless the platform's operator allows them.
 */
declare module 'pie:inferlet/http@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  export interface Header {
    readonly name: string;
    readonly value: string;
  }
  export interface Request {
    /** `GET`, `POST`, … `invalid-argument` for what is no token of RFC 9110. */
    readonly method: string;
    /** `http:` or `https:`, without user and password. */
    readonly url: string;
    readonly headers: readonly Header[];
    /** At most 4 MiB. */
    readonly body?: Uint8Array | readonly number[] | null | undefined;
    /** Until the head of the response, redirects included; 30,000 by default, at most the invocation's time left. */
    readonly timeoutMs?: number | null | undefined;
    /** How many redirects are followed (0 to 10), each to a granted host; past it the redirect itself is the response. */
    readonly redirects: number;
  }
  export interface ResponseHead {
    readonly status: number;
    /** Names in lower case; one entry a line, so a name may come more than once. */
    readonly headers: Header[];
    /** Where the response came from, after redirects. */
    readonly url: string;
  }
  /** A request under way and its response. Dropping it closes the connection. */
  export class Exchange implements Handle {
    /** Sends the request. At most 64 of one inferlet at once: one more is `limit-exceeded`, reported by `head`. */
    constructor(request: Request);
    /**
     * The response without its body. `unsupported` for a host that was not granted; `unavailable` when the host cannot be reached, or breaks off;
     * `deadline-exceeded` when it takes too long.
     */
    head(): Future<Outcome<ResponseHead>>;
    /** The next piece of the body, at most 64 KiB, without gzip or deflate; none at its end. `limit-exceeded` past 32 MiB in all. */
    read(): Future<Outcome<Uint8Array | null>>;
    drop(): void;
    [Symbol.dispose](): void;
  }
  export {};
}

/**
 * Other inferlets, launched by this one (manifest: `grants.launch`, a list of functions or `"*"`; without it `unsupported`). A child is an
 * invocation of its own, with an id, a log and usage; it inherits its root's place in line and runs inside its root's reservation, so it
 * starts at once. It ends with its parent. A handle
 * counts until it is dropped, 1,024 of them, also after the child's end.
 */
declare module 'pie:inferlet/children@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Message, MessageInput } from 'pie:inferlet/session@0.1.0';
  /** Why a child did not succeed: the code and text of its `error` event. */
  export interface Failure {
    readonly code: string;
    readonly message: string;
  }
  /** How a child ended. */
  export type Ending =
    /** What it returned, JSON text. */
    | { readonly tag: 'success'; readonly val: string }
    | { readonly tag: 'failure'; readonly val: Failure };
  export class Child implements Handle {
    /**
     * Launches a function of this tenant (`name`: what its alias `live` serves; `name@alias`, `name@version`), with JSON text as its input, which
     * the function's schema must accept: at most 262,144 characters. `started` reports failures.
     */
    constructor(name: string, input: string);
    /**
     * The child's invocation id. `not-found` for no such function, `invalid-argument` for an input that its schema refuses,
     * `limit-exceeded` past 64 children at once of one root, 4,096 in all, or a depth of 8.
     */
    started(): Future<Outcome<string>>;
    /** A message into the child's session. `closed` once the child has ended. */
    send(message: MessageInput): Future<Outcome<undefined>>;
    /** Tells the child that no more messages follow. */
    close(): void;
    /** The next message that the child sends into its session. `closed` once it has ended and all were read. */
    receive(): Future<Outcome<Message>>;
    /** Completes when the child has ended. It may be asked more than once. */
    wait(): Future<Outcome<Ending>>;
    /** Asks the child to stop; `wait` then completes with a failure `cancelled`, or with what it still returned. Dropping the resource cancels it too. */
    cancel(): void;
    drop(): void;
    [Symbol.dispose](): void;
  }
  export {};
}

/**
 * Files between the client and this invocation, for what is too large for a message: at most 16 MiB each, 64 MiB and 256 files an invocation,
 * 128 MiB with its children and 1 GiB a tenant.
 * Names have 1 to 128 characters of letters, digits, `.`, `_`, `-`. They are kept as long as the invocation's events. Over HTTP they are
 * `/v1/invocations/{id}/files/{name}`.
 */
declare module 'pie:inferlet/file-exchange@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  export interface FileInfo {
    readonly name: string;
    readonly mediaType: string;
    /** Bytes. */
    readonly size: number;
  }
  export interface File {
    readonly mediaType: string;
    readonly content: Uint8Array;
  }
  /**
   * Puts a file where the client can get it, and tells it so by a `message` event `{"file": {"name", "mediaType", "bytes"}}`. A name
   * that is taken gets the new content.
   */
  export function sendFile(name: string, mediaType: string, content: Uint8Array | readonly number[]): Future<Outcome<undefined>>;
  /** A file of the invocation, the client's or its own; waits until the client has put it there. `closed` when the client has closed the session. */
  export function receiveFile(name: string): Future<Outcome<File>>;
  /** What is there now, by name. */
  export function listFiles(): Future<Outcome<FileInfo[]>>;
  export {};
}

/**
 * What the function was deployed with besides its code: the tenant's secrets that its manifest names (`secrets`), each with the value that it
 * had at the deploy, and plain variables (`environment`). Both are texts by name; a name is upper-case letters, digits and `_`. They stay the
 * same while the version does, and cost no wait. In log lines and error messages `[NAME]` stands in place of each
 * value of four or more characters.
 */
declare module 'pie:inferlet/environment@0.1.0' {
  /** The value of a variable or secret; none when the manifest does not name it. */
  export function getVariable(name: string): string | null;
  /** Names of all of them, in order. */
  export function listVariables(): string[];
  export {};
}
