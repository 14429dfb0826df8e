// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
// Types and values as componentize-qjs gives them to a guest: see wit/generate/emit-guest.ts.

/**
 * Types that every interface shares. An inferlet may have 1,024 calls to stores, messages, files, children and the network in progress. The
 * arguments of these calls may hold 32 MiB. Their unread results, and unread vectors and scores, may hold another 32 MiB. A further call fails
 * with `limit-exceeded` until the inferlet reads or drops some results.
 */
declare module 'pie:inferlet/types@0.1.0' {
  /** A WIT `result` inside a future. (When a function returns a result at once, its error is thrown instead: see Thrown.) */
  export type Outcome<T, E = Error> = { readonly tag: 'ok'; readonly val: T } | { readonly tag: 'err'; readonly val: E };
  /** A value that the host is still computing. Await `read()`; several at once overlap (`Promise.all`). */
  export interface Future<T> extends Disposable {
    read(): Promise<T>;
    /** Cancels a waiting `read()`: its promise is rejected with a string, and the future can be dropped. Throws when no read waits. */
    cancelRead(): void;
    drop(): void;
  }
  /** The exception of a function whose WIT result is an error. */
  export interface Thrown<E = Error> extends globalThis.Error {
    readonly payload: E;
  }
  /** A resource of the host; using it after it was dropped throws TypeError. */
  export interface Handle extends Disposable {
    drop(): void;
  }
  /** Reason of a failed call. The text says what happened and what to do. Programs match on the case. */
  export type Error =
    /** An argument has a wrong shape or value: lists of unequal lengths, a token id outside the vocabulary, a slot past the end of a page. */
    | { readonly tag: 'invalid-argument'; readonly val: string }
    /** The inferlet does not hold this address: the inferlet never allocated the address or has freed it, or the address belongs to another model. */
    | { readonly tag: 'not-owned'; readonly val: string }
    /** The model, the host or the function's grants do not offer this call. Check `runtime.model-traits` first, or add the grant to the manifest. */
    | { readonly tag: 'unsupported'; readonly val: string }
    /** No model, name or invocation matches. */
    | { readonly tag: 'not-found'; readonly val: string }
    /** The call would exceed a limit of the deployment or the tenant (pages, tokens, output, memory). */
    | { readonly tag: 'limit-exceeded'; readonly val: string }
    /** The context would exceed the model's trained length, or the out-pages have no empty slot left. */
    | { readonly tag: 'context-overflow'; readonly val: string }
    /** An earlier call on which this call depends has failed. The text names the cause. */
    | { readonly tag: 'dependency-failed'; readonly val: string }
    /** The client or the parent cancelled the invocation. */
    | { readonly tag: 'cancelled'; readonly val: string }
    /** The deadline of the invocation has passed. */
    | { readonly tag: 'deadline-exceeded'; readonly val: string }
    /** The platform reclaimed the inferlet's memory (first-come-first-served termination). */
    | { readonly tag: 'terminated'; readonly val: string }
    /**
     * The resource is not available now but may be later: another inferlet holds it (a lock, memory, a busy worker), or the device or its
     * process is gone together with everything that it held.
     */
    | { readonly tag: 'unavailable'; readonly val: string }
    /** The other end of the session has closed it. */
    | { readonly tag: 'closed'; readonly val: string }
    /** The platform itself has a fault. */
    | { readonly tag: 'internal'; readonly val: string };
  export {};
}

/** Information about the inferlet and the platform. Every call except `sleep` returns at once, most after about a microsecond. */
declare module 'pie:inferlet/runtime@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  export type LogLevel = 'debug' | 'info' | 'warn' | 'error';
  /** A model that the function was granted, and so may use. */
  export interface ModelInfo {
    readonly name: string;
    /** Trained context length, in tokens. */
    readonly contextLength: number;
    readonly vocabularySize: number;
    /** Number of tokens that fit in a KV page. */
    readonly pageSize: number;
    /** Names of the interfaces that the model offers, such as `forward` or `fused`. */
    readonly traits: string[];
  }
  /** Facts about a model, from its configuration. */
  export interface ModelMetadata {
    /** Name from the configuration, such as `LlamaForCausalLM`. */
    readonly architecture: string;
    /** Number of weights, including embeddings. */
    readonly parameters: number;
    readonly layers: number;
    readonly hiddenSize: number;
    readonly attentionHeads: number;
    readonly keyValueHeads: number;
    readonly headSize: number;
    /** Bits of a weight in the device's memory. */
    readonly bits: number;
  }
  /** The version of this contract that the host implements, such as `0.1.0`. */
  export function version(): string;
  /** The id of this invocation, as the client sees it. */
  export function instanceId(): string;
  export function tenant(): string;
  /** The input of this invocation, which `run` has also received as its argument. */
  export function getArguments(): string;
  export function functionName(): string;
  export function functionVersion(): string;
  /** The models that the function may use. The first one is the default model. */
  export function models(): ModelInfo[];
  /**
   * The interfaces that a model offers.
   * @throws {Thrown} with the error as `payload`
   */
  export function modelTraits(model: string): string[];
  /**
   * Facts about a model. Fails with `not-found` for a model that the function was not granted.
   * @throws {Thrown} with the error as `payload`
   */
  export function metadata(model: string): ModelMetadata;
  /**
   * For a model, the maximum efficient size of a device step, in tokens: up to this size, more tokens in a step take little more time. For an
   * encoder, the maximum number of tokens in the next batch. The GPU host measures these numbers while it computes, so they change. Returns none
   * before the first measurement. Fails with `not-found` for a model or encoder that the function was not granted. Takes a round trip to the
   * runtime.
   * @throws {Thrown} with the error as `payload`
   */
  export function efficientTokens(model: string): number | null;
  /**
   * The state of this inferlet as JSON text, for debugging. `query` chooses the part: `limits`, `usage` (CPU, tokens, calls), `pages` (held pages by
   * model), `room` (by model, the tokens that this inferlet can hold at once: its context, or fewer with the reason), `grants`, `models` or `all`. Fails with `invalid-argument` for another query.
   * @throws {Thrown} with the error as `payload`
   */
  export function debugQuery(query: string): string;
  /** Writes a line to the function's log and to the invocation's event stream. */
  export function log(level: LogLevel, message: string): void;
  /**
   * Records a span: a part of the inferlet's work, such as a node of a workflow. The span becomes a bar on the dashboard's page of the invocation,
   * and an entry of the invocation's event `metric`. `began` and `ended` are times as `now` returns them. A time before this run is moved to the
   * beginning of the run, a time after this call to the moment of the call, and an `ended` before `began` to `began`. The platform keeps 64 spans,
   * failed spans first and then the longest ones, and only counts the others. It shortens names to 80 characters and kinds to 32 characters.
   */
  export function recordSpan(name: string, kind: string, began: number, ended: number, failed: boolean): void;
  /** True when the client, the parent invocation or the platform has asked this inferlet to stop. */
  export function isCancelled(): boolean;
  /**
   * Wall time until this run must end, in milliseconds. The run ends at its own time limit or at the invocation's deadline, whichever comes first.
   * The time limit does not count the time in which the platform has preempted the inferlet and holds its calls. A preempted run may therefore
   * take up to twice its time limit. The invocation's deadline counts all time.
   */
  export function timeLeft(): number;
  /** Milliseconds since the Unix epoch. */
  export function now(): number;
  /** 32 random bits from the host's random number generator. */
  export function random(): number;
  /** Completes after the given time. Fails with `cancelled` or `deadline-exceeded` if the run must stop earlier. */
  export function sleep(milliseconds: number): Future<Outcome<undefined>>;
  export {};
}

/**
 * The conversation with the client that invoked this inferlet. Sending costs some microseconds, and `flush` a round trip to the event log,
 * about a millisecond.
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
   * Queues one `message` event and returns at once. `limit-exceeded` when 1 MiB of events waits to be written (each event counts 256 bytes more
   * than its content): await `flush` and send again.
   * @throws {Thrown} with the error as `payload`
   */
  export function send(message: MessageInput): void;
  /** Completes when all messages sent so far are in the invocation's event log. */
  export function flush(): Future<Outcome<undefined>>;
  /** The next message of the client, in order. `closed` once the client can send no more messages. */
  export function receive(): Future<Outcome<Message>>;
  export {};
}

/**
 * An order of calls on one model. The inferlet issues calls without waiting, and they run in the order of their queue. Calls of different
 * queues have no order. When a call fails, all later calls of the queue that depend on it fail with its cause, and `synchronize` reports the
 * first error. Issuing a call costs some microseconds. Waiting for a call costs its computation and a round trip to the GPU host, about 0.1 ms.
 */
declare module 'pie:inferlet/queue@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  export class Queue implements Handle {
    /** Creates a queue for the pages and embeds of `model`. With an unknown model, every call on the queue fails with `not-found`. */
    constructor(model: string);
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
    synchronize(): Future<Outcome<undefined>>;
    drop(): void;
    [Symbol.dispose](): void;
  }
  export {};
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
declare module 'pie:inferlet/allocate@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
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
    readonly pages: number[];
    readonly tokens: number;
    readonly nextPosition: number;
  }
  /** A place that can hold pages, the fastest first: the device, the memory of the device's host, the host's disk. */
  export type Tier = 'device' | 'memory' | 'disk';
  /** The reason for a lease's end: its time was over, or memory was needed for other work. */
  export type LeaseEnd = 'expired' | 'pressure';
  /** The places of an export's pages. */
  export interface Residency {
    /** The slowest place of any page. */
    readonly tier: Tier;
    readonly devicePages: number;
    readonly memoryPages: number;
    readonly diskPages: number;
    /** Bytes of all keys and values. */
    readonly bytes: number;
    /** Milliseconds that the lease still lasts; 0 without a lease. */
    readonly leaseMs: number;
    /**
     * The reason for the end of the last lease. None before the first lease, while a lease lasts, and after `unpin-export` or
     * `demote-export`.
     */
    readonly leaseEnded: LeaseEnd | null;
  }
  /** Number of slots of a KV page (8 to 32, 16 by default). */
  export function pageSize(queue: Queue): number;
  /**
   * Addresses of `count` empty pages. The device claims their memory in queue order; if the device has no memory then, the calls that
   * use the pages fail. `limit-exceeded` at once when the pages would exceed the invocation's page limit.
   * @throws {Thrown} with the error as `payload`
   */
  export function allocatePages(queue: Queue, count: number): number[];
  /** Frees pages after the earlier calls of the queue. The other holders of a shared page keep it. */
  export function freePages(queue: Queue, pages: Uint32Array | readonly number[]): void;
  /**
   * Addresses of `count` embeds.
   * @throws {Thrown} with the error as `payload`
   */
  export function allocateEmbeds(queue: Queue, count: number): number[];
  export function freeEmbeds(queue: Queue, embeds: Uint32Array | readonly number[]): void;
  /**
   * New addresses for the same pages. A later write through either address copies the page first. Each new address starts with the source's
   * mask and has its own mask from then on.
   * @throws {Thrown} with the error as `payload`
   */
  export function sharePages(queue: Queue, pages: Uint32Array | readonly number[]): number[];
  /**
   * Copies `count` slots (key, value, position, filled, masked) from one page to another, or within a page. Adds `shift` to the position of
   * each copied slot and rotates its key accordingly; the position may exceed the trained context. `unsupported` when the model's rotary embedding
   * cannot be shifted.
   */
  export function copySlots(queue: Queue, source: number, sourceOffset: number, destination: number, destinationOffset: number, count: number, shift: number): void;
  /**
   * Copies single tokens. `indices` are indices into the filled slots of `sources`, in order. Keys and values go to the empty slots of
   * `destinations`, in order. `positions` has a new position for each token, and the copied key is rotated to it; an empty list keeps the positions.
   */
  export function copyTokens(queue: Queue, sources: Uint32Array | readonly number[], indices: Uint32Array | readonly number[], destinations: Uint32Array | readonly number[], positions: Uint32Array | readonly number[]): void;
  /** Copies each source embed to the destination with the same index. */
  export function copyEmbeds(queue: Queue, sources: Uint32Array | readonly number[], destinations: Uint32Array | readonly number[]): void;
  /**
   * Saves a snapshot of `pages`, with their masks, under the tenant's `name`, after the earlier calls that write them. Later writes copy the
   * pages first. The export outlives the inferlet and counts against the tenant. A `persistent` export is on disk when the future completes.
   * `invalid-argument` when the name is in use. A name has 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`.
   */
  export function exportPages(queue: Queue, pages: Uint32Array | readonly number[], name: string, persistent: boolean): Future<Outcome<undefined>>;
  /**
   * Maps the pages of an export. Pages are copied on write. `not-found` when no export has this name; `invalid-argument` for a persistent
   * export of another model or build.
   */
  export function importPages(queue: Queue, name: string): Future<Outcome<Imported>>;
  /**
   * Copies the pages of an export to the storage that the platform's machines share. Other hosts then find the name even while the GPU host
   * that keeps it is away or lost. The copy holds the present content: a later export under the same name needs another call. `unexport` also
   * removes the copy. A failed call leaves no copy. `not-found` when no export has this name; `unsupported` when the platform has no shared
   * storage, or for a name under `system/`; `limit-exceeded` beyond the tenant's share of the storage; `unavailable` when the content changes
   * during the copy, or when the export's host or the storage does not answer.
   */
  export function makeDurable(queue: Queue, name: string): Future<Outcome<undefined>>;
  /** Removes a name. Inferlets that have imported it keep its pages. */
  export function unexport(queue: Queue, name: string): Future<Outcome<undefined>>;
  /** The tenant's exports of the queue's model, ordered by name. */
  export function listExports(queue: Queue): Future<Outcome<ExportInfo[]>>;
  /**
   * Returns the present places of an export's pages. This and the following calls accept the tenant's own exports only (`unsupported` for a
   * name under `system/`). They affect how long later imports wait, never the imported content. They take only device memory that is free or
   * holds cached prefixes, so no inferlet waits for memory because of them.
   */
  export function exportResidency(queue: Queue, name: string): Future<Outcome<Residency>>;
  /**
   * Brings the pages of an export to the device as far as the device has room, and keeps these pages there for `lease-ms` (1 ms to 1 hour),
   * even after the invocation has ended. Under memory pressure, the pages of waiting inferlets and of other exports leave the device first. If
   * that is not enough, the lease ends early (`pressure`) before a running inferlet has to give way. A later call replaces the lease. All leases
   * together hold at most a quarter of the device's pages. Of this quarter, a tenant may pin half of what the leases of other tenants leave; it
   * may pin at most half of its own page quota. `limit-exceeded` for an export that the tenant may never pin, `unavailable` for one that it may
   * not pin now. An export on disk counts against the invocation's pages while it comes back: `limit-exceeded` when it has more pages than the
   * invocation may hold, `unavailable` when the device has no room for it.
   */
  export function pinExport(queue: Queue, name: string, leaseMs: number): Future<Outcome<Residency>>;
  /** Ends the lease. */
  export function unpinExport(queue: Queue, name: string): Future<Outcome<Residency>>;
  /**
   * Hints that the export will be used in `next-use-ms` milliseconds. Of the tenant's exports, those without a hint leave the device first, then
   * the one whose hinted use is latest. The hint holds until its time, or until the next import; 0 removes the hint. Exports on disk ignore it.
   */
  export function retainExport(queue: Queue, name: string, nextUseMs: number): Future<Outcome<Residency>>;
  /** Brings the pages of an export to the device before they are used, as far as there is room. Fails for an export on disk as `pin-export` does. */
  export function prefetchExport(queue: Queue, name: string): Future<Outcome<Residency>>;
  /**
   * Ends the lease, and moves the export's pages off the device, except pages that an inferlet also holds. With `memory`, pages without room in
   * memory go to disk; when the disk is full, too, they stay on the device. With `disk`, a persistent export drops its pages from the device and
   * from memory; they then count against no quota. `unsupported` for `disk` while the export has no file; `invalid-argument` for `device`.
   */
  export function demoteExport(queue: Queue, name: string, tier: Tier): Future<Outcome<Residency>>;
  export {};
}

/**
 * The transformer over KV pages. A forward returns at once. The GPU host computes it in a batch with forwards of other inferlets. The forwards of a
 * decoding batch share the time of reading the weights once. Prefill is bound by arithmetic: about two operations per weight and input.
 */
declare module 'pie:inferlet/forward@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  /**
   * The keys that each input sees, run-length encoded. Row i belongs to input i. It covers the filled slots of the in-pages, in order, and then
   * the inputs. A row is a list of run lengths that alternate hidden, visible, hidden, … and add up to the row's width. The first run is hidden;
   * its length is 0 when the first key is visible.
   */
  export interface Mask {
    /** The runs of all rows, one row after another. */
    readonly runs: Uint32Array | readonly number[];
    /** The number of runs of each row. */
    readonly rowLengths: Uint32Array | readonly number[];
  }
  /**
   * Computes `in-embeds`, which attend to the filled, unmasked slots of `in-pages` and to each other. The key and value of input i go to the
   * i-th empty slot of `out-pages`; without out-pages they exist for this call only. A page may be both in and out: its filled slots are read
   * first. The states of the last inputs, one for each embed of `out-embeds`, are written to `out-embeds`.
   * Usage: each embed that receives a token or a part of an image counts one token, which includes one computation as an input. Each further
   * computation of an input counts one token, also when the input is a state or a copy.
   * Without a mask, an input sees its own key and all keys at smaller positions.
   */
  export function forward(queue: Queue, inPages: Uint32Array | readonly number[], inEmbeds: Uint32Array | readonly number[], outPages: Uint32Array | readonly number[], outEmbeds: Uint32Array | readonly number[], mask?: Mask | null | undefined): void;
  /**
   * Masks the slots of a page whose bits are set in `slots` (bit 0 is slot 0), and unmasks the others. Other addresses of
   * a shared page keep their masks.
   */
  export function maskPage(queue: Queue, page: number, slots: number): void;
  export {};
}

/** Writes tokens into embeds. The call travels with the forward after it and takes no time of its own. */
declare module 'pie:inferlet/input-text@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  /** Writes the embedding of `tokens[i]`, at `positions[i]`, into `embeds[i]`. The three lists have the same length. */
  export function embedText(queue: Queue, tokens: Uint32Array | readonly number[], positions: Uint32Array | readonly number[], embeds: Uint32Array | readonly number[]): void;
  export {};
}

/**
 * Reads embeds (each holds a token's embedding or a state), and the distribution of the token after a state. A call of
 * `next-distribution` directly after the forward that writes the state, in the same queue, can share the forward's device step.
 */
declare module 'pie:inferlet/output-text@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  /** The most probable tokens, in order of falling probability. Tokens with equal logits are ordered by id. */
  export interface Distribution {
    readonly tokens: number[];
    /** Natural logarithms of the tokens' probabilities over the whole vocabulary, at temperature 1. */
    readonly logProbabilities: number[];
  }
  /** The distribution of the token that follows the state in `embed`: the `top-k` most probable tokens (1 to the host's cap of 256). */
  export function nextDistribution(queue: Queue, embed: number, topK: number): Future<Outcome<Distribution>>;
  /** Natural logarithms of the probabilities of `tokens` after the state in `embed`, over the whole vocabulary, at temperature 1. */
  export function logProbabilities(queue: Queue, embed: number, tokens: Uint32Array | readonly number[]): Future<Outcome<number[]>>;
  /** The entropy of the distribution after the state in `embed`, in nats. */
  export function entropy(queue: Queue, embed: number): Future<Outcome<number>>;
  /** The values of an embed, one for each dimension of the model's hidden size. */
  export function readEmbed(queue: Queue, embed: number): Future<Outcome<number[]>>;
  export {};
}

/** Embed, forward and sample in one call. A token costs one call, and with `run` less than one. */
declare module 'pie:inferlet/fused@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Mask } from 'pie:inferlet/forward@0.1.0';
  import type { Distribution } from 'pie:inferlet/output-text@0.1.0';
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
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
    /** Nothing. The step only fills the cache. */
    | { readonly tag: 'none' }
    /** One sampled token for each row. */
    | { readonly tag: 'sample'; readonly val: Sampler }
    /** For each row, this number (`top-k`) of the most probable tokens. */
    | { readonly tag: 'distributions'; readonly val: number };
  export interface StepRequest {
    readonly tokens: Uint32Array | readonly number[];
    readonly positions: Uint32Array | readonly number[];
    readonly inPages: Uint32Array | readonly number[];
    readonly outPages: Uint32Array | readonly number[];
    readonly mask?: Mask | null | undefined;
    /** Number of last inputs that get an output. */
    readonly rows: number;
    readonly output: Output;
  }
  export interface StepResult {
    /** One token for each row with `sample`, otherwise empty. */
    readonly tokens: number[];
    /** One distribution for each row with `distributions`, otherwise empty. */
    readonly distributions: Distribution[];
  }
  export interface RunRequest {
    /** The first input. Each later input is the token sampled before it, at the next position. */
    readonly token: number;
    /** Position of the first input. */
    readonly position: number;
    /** The pages of the sequence, in order, with empty slots for `max-tokens` tokens. The run reads them and appends to them. */
    readonly pages: Uint32Array | readonly number[];
    readonly maxTokens: number;
    readonly sampler: Sampler;
    /**
     * Decoding stops after it samples one of these tokens. The run returns this token as its last, without its key and value in the cache. With
     * more than 256 stop tokens the run fails with `invalid-argument`.
     */
    readonly stopTokens: Uint32Array | readonly number[];
  }
  export type FinishReason = 'stop-token' | 'max-tokens' | 'stopped';
  export interface RunChunk {
    /** The tokens since the last `next`, in order; at least one unless the run has finished. */
    readonly tokens: number[];
    /** Set in the last chunk. */
    readonly finished: FinishReason | null;
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
    readonly before: Uint32Array | readonly number[];
    /** The unsent end of the text before the run: it may be the beginning of a stop string. */
    readonly held: string;
    /** Stop strings: they end the run and are not sent. At most 64 strings with 1,024 bytes together, otherwise `limit-exceeded`. */
    readonly stops: readonly string[];
    /**
     * Format of the messages. By default, each piece is a message of its own. The texts have at most 8,192 bytes together, otherwise
     * `limit-exceeded`.
     */
    readonly frame?: Frame | null | undefined;
  }
  /** Result of `run.pipe`. */
  export interface Piped {
    /** The run's tokens since the last `next` or `pipe`, in order, up to the token that completed a stop string. */
    readonly tokens: number[];
    /** The sent text. */
    readonly text: string;
    /** The unsent end of the text: it may be the beginning of a stop string. */
    readonly held: string;
    /**
     * The stop string that ended the run. The platform discards the tokens after the string. It charges them only if it had decoded them before the
     * call of `pipe`.
     */
    readonly stop: string | null;
    /** Unset after a stop string, and when an error ended the run: the next call reports the error. */
    readonly finished: FinishReason | null;
  }
  /** Decodes tokens on the device, ahead of the inferlet. */
  export class Run implements Handle {
    /** Starts decoding. `next` reports failures. */
    constructor(queue: Queue, request: RunRequest);
    /** The tokens that the run has decoded since the last `next`. Waits for at least one unless the run has finished. */
    next(): Future<Outcome<RunChunk>>;
    /**
     * Decodes until the run has finished, and sends its text to the client in `message` events meanwhile, without waking the inferlet. A run
     * has one `next` or `pipe` in progress at a time, and an inferlet at most 256 pipes.
     */
    pipe(request: PipeRequest): Future<Outcome<Piped>>;
    /**
     * Stops the run. Tokens that are already decoded are still returned. Dropping the resource stops the run, too, and charges the tokens that are
     * decoded but not read. After a stop string of `pipe`, only tokens that were decoded before the call of `pipe` are charged.
     */
    stop(): void;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /** Embeds `tokens`, computes them as `forward` does, and completes with the output of the last `rows` inputs. */
  export function step(queue: Queue, request: StepRequest): Future<Outcome<StepResult>>;
  export {};
}

/**
 * Converts text to tokens and back, without a device. A call takes about a microsecond per token; tenants take turns with long texts.
 * `limit-exceeded` when one call has more than 131,072 characters (split longer texts at ends of lines), 131,072 tokens, or 8,192 chat messages.
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
    readonly field: string | null;
    /** Boolean variables of the template that turn thoughts on and off, such as `enable_thinking`. */
    readonly toggles: string[];
    /** Values that the template takes as its variable `reasoning_effort`, in rising order; empty if it does not read this variable. */
    readonly efforts: string[];
  }
  /** Detokenizes a stream. It returns only complete characters. */
  export class Detokenizer implements Handle {
    constructor(model: string);
    /**
     * The text of the characters that these tokens complete.
     * @throws {Thrown} with the error as `payload`
     */
    push(tokens: Uint32Array | readonly number[]): string;
    /** The remaining text, with U+FFFD for bytes that do not form a character. */
    finish(): string;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /**
   * The token ids of `text`, without added special tokens. Special tokens inside the text are recognised when `special` is true.
   * @throws {Thrown} with the error as `payload`
   */
  export function tokenize(model: string, text: string, special: boolean): number[];
  /**
   * The text of `tokens`. Special tokens are omitted unless `special` is true.
   * @throws {Thrown} with the error as `payload`
   */
  export function detokenize(model: string, tokens: Uint32Array | readonly number[], special: boolean): string;
  /** @throws {Thrown} with the error as `payload` */
  export function specialTokens(model: string): SpecialTokenIds;
  /**
   * The bytes of every token, indexed by id.
   * @throws {Thrown} with the error as `payload`
   */
  export function vocabulary(model: string): Uint8Array[];
  /**
   * Applies the model's chat template to `messages`. Tokenize the returned text with `special`. `unsupported` when the model has no template.
   * @throws {Thrown} with the error as `payload`
   */
  export function chatTemplate(model: string, messages: readonly ChatMessage[], addGenerationPrompt: boolean): string;
  /**
   * Applies the model's chat template to `variables`, a JSON object with `messages` (each with any members that the template knows, such
   * as `tool_calls`), `tools`, `documents`, `add_generation_prompt`, … Variables such as `bos_token` and `eos_token` default to the model's.
   * `invalid-argument` when the text is not a JSON object or the template refuses it; `unsupported` when the model has no template.
   * @throws {Thrown} with the error as `payload`
   */
  export function renderChat(model: string, variables: string): string;
  /**
   * How the model writes thoughts: by its setting in `pie.toml`, by its chat template, or by known marks among its tokens. Returns none for a model
   * that writes no thoughts, or whose thoughts cannot be told from its answers.
   * @throws {Thrown} with the error as `payload`
   */
  export function thoughts(model: string): ThoughtFormat | null;
  export {};
}

/**
 * Grammars that constrain decoding to a format. The runtime compiles and matches them. A mask of the allowed tokens travels with the fused
 * call, and the device applies the mask before it samples. Calls of one matcher run in order.
 * Compiling takes milliseconds. A mask takes about 0.2 ms in a state that no matcher has visited before, otherwise microseconds.
 */
declare module 'pie:inferlet/grammar@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Run, RunRequest, StepRequest, StepResult } from 'pie:inferlet/fused@0.1.0';
  export type Source =
    /** A JSON schema as text. With `"x-guidance": {"whitespace_flexible": false}` at its root, the texts have no whitespace between tokens. */
    | { readonly tag: 'json-schema'; readonly val: string }
    /** A regular expression that the whole text must match. */
    | { readonly tag: 'regex'; readonly val: string }
    /** A grammar in EBNF (the GBNF of llama.cpp) with the start rule `root`. */
    | { readonly tag: 'ebnf'; readonly val: string }
    /** Any JSON text. */
    | { readonly tag: 'json' };
  export interface MatchStatus {
    /** True when an end-of-sequence token is allowed now. */
    readonly mayEnd: boolean;
    /** True when only the end is allowed, or the matcher has accepted the end. */
    readonly mustEnd: boolean;
  }
  /** A grammar that is compiled for the vocabulary of one model. */
  export class Compiled implements Handle {
    /** Starts compiling. `ready` and the matchers report failures. */
    constructor(model: string, source: Source);
    /**
     * `invalid-argument` when the grammar does not compile or is too large, `limit-exceeded` when compiling takes too much time or memory, or the
     * tenant's share of memory is full, `unavailable` when no worker is free. Later calls of `ready` have the outcome of the first.
     */
    ready(): Future<Outcome<undefined>>;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /** The state of a text in a grammar. */
  export class Matcher implements Handle {
    constructor(grammar: Compiled);
    /** Accepts the next tokens. Completes with false, and accepts none of them, when one does not fit. */
    accept(tokens: Uint32Array | readonly number[]): Future<Outcome<boolean>>;
    /**
     * The tokens that are allowed next: bit `t % 32` of word `t / 32` for token `t`. (JavaScript guests get a word with its highest bit set as a
     * negative number.) Masks cannot express some keywords of JSON schemas: the matcher checks these on the whole text, which may end only
     * if it passes. `invalid-argument` when the text fails this check and cannot go on either: take tokens back with `rollback`.
     */
    mask(): Future<Outcome<number[]>>;
    /** Tells if the text may end now, and if it must. Fails like `mask`. */
    status(): Future<Outcome<MatchStatus>>;
    /**
     * Accepts and returns the forced tokens, at most `most`: those of the text that must come next. Returns none where the grammar leaves a choice,
     * or where the text may end. The model's tokenizer makes the tokens of the forced text. Tokens at the end of this text are left out if the
     * text after them could change them. Append the returned tokens to the sequence and compute them in one pass, instead of sampling each.
     */
    jump(most: number): Future<Outcome<number[]>>;
    /** A separate matcher in the same state. */
    fork(): Matcher;
    /** Undoes the last `tokens` accepted tokens. */
    rollback(tokens: number): Future<Outcome<undefined>>;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /**
   * Like `fused.step`, with the matcher's mask applied to the only row of output, which must be `sample` or `distributions`. The matcher does
   * not accept the sampled token by itself: call `accept`. The call enters its queue once the mask is known, so await it before calls that
   * must follow it.
   */
  export function step(queue: Queue, matcher: Matcher, request: StepRequest): Future<Outcome<StepResult>>;
  /**
   * Like `step`, for several rows of output, and with an adapter if one is named. The inputs of all rows but the first are guesses at the
   * tokens that follow the matcher's text. Each row has the mask of the text with all guesses up to the row's input. If a guess does not fit,
   * its row and the rows after it have no mask. The matcher accepts none of the guesses. `limit-exceeded` for more than 64 rows.
   */
  export function verify(queue: Queue, matcher: Matcher, adapter: string | null | undefined, request: StepRequest): Future<Outcome<StepResult>>;
  /**
   * A run under the matcher's masks, with its forced tokens (see `jump`). The matcher accepts the run's tokens; `invalid-argument` when other
   * calls change the matcher meanwhile. The run ends behind the first stop token, sampled or forced. When nothing may follow, the run finishes
   * with `stopped`. Its steps enter the queue one by one while a `next` or `pipe` is in progress, so await that call before calls that must follow
   * the run. A `next` returns after the first step that ends 25 ms or more after `next` was called, and with at least one token. Each step counts
   * the tokens that it computes. `limit-exceeded` for more than 8,192 pages or 262,144 stop tokens.
   */
  export function startRun(queue: Queue, matcher: Matcher, request: RunRequest): Run;
  export {};
}

/** Runs that change the logits of single tokens before they sample. The sampler sees the changed distribution of the whole vocabulary. */
declare module 'pie:inferlet/penalties@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Run, RunRequest } from 'pie:inferlet/fused@0.1.0';
  export interface LogitChanges {
    /** Subtracted from a token's logit once for each occurrence of the token in `chosen` or in the run; from minus to plus a million. */
    readonly frequency: number;
    /** Subtracted once from the logit of each token that occurs in `chosen` or in the run; from minus to plus a million. */
    readonly presence: number;
    /** Tokens whose logits get a bias; at most 1,024, otherwise `limit-exceeded`. */
    readonly biasTokens: Uint32Array | readonly number[];
    /** The bias of each of `bias-tokens`: from minus to plus a million, or negative infinity, which excludes the token. */
    readonly biasValues: Float32Array | readonly number[];
    /** The tokens that were sampled before the run, at most 8,192, otherwise `limit-exceeded`. The run itself counts the tokens that it samples. */
    readonly chosen: Uint32Array | readonly number[];
  }
  /**
   * Like `fused.run`. `temperature` 0 takes the most probable token after the changes. The run fails with `invalid-argument` when the changes
   * exclude all tokens.
   */
  export function startRun(queue: Queue, request: RunRequest, changes: LogitChanges): Run;
  export {};
}

/**
 * Attention scores, for strategies that evict tokens with little attention. A forward that returns scores computes its attention a second
 * time, and runs in separate batches.
 */
declare module 'pie:inferlet/introspect@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Mask } from 'pie:inferlet/forward@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  /**
   * Like `forward`. Completes with the attention that each slot received, summed over the inputs and averaged over layers and heads: first
   * `page-size` numbers for each of `in-pages` (0 for empty and masked slots), then one number for each input. The numbers add up to the
   * number of inputs.
   */
  export function forwardScores(queue: Queue, inPages: Uint32Array | readonly number[], inEmbeds: Uint32Array | readonly number[], outPages: Uint32Array | readonly number[], outEmbeds: Uint32Array | readonly number[], mask?: Mask | null | undefined): Future<Outcome<number[]>>;
  export {};
}

/**
 * The KV cache as files (Symphony, HotOS '25). A file is a sequence of tokens' keys and values for one model, with or without a name. An
 * inferlet that opens a name sees the content that was saved last. An inferlet that holds the lock of a name may save new content. Names
 * belong to a tenant. Operators write the names under `system/`, and every tenant can read them. An opened file shares its pages, so opening
 * and saving cost one round trip, independent of the number of tokens.
 */
declare module 'pie:inferlet/kv-files@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Distribution } from 'pie:inferlet/output-text@0.1.0';
  export type Access = 'read' | 'write';
  /** Rights of the tenant's other inferlets on a file. */
  export type Rights = 'private' | 'readable' | 'writable';
  export interface FileInfo {
    readonly name: string;
    readonly tokens: number;
    readonly nextPosition: number;
    readonly persistent: boolean;
    readonly rights: Rights;
    /** The function that created the file. */
    readonly owner: string;
    readonly locked: boolean;
  }
  export class File implements Handle {
    /**
     * Opens `name`, or creates a file without a name when `name` is none. `ready` reports failures. The calls of the file run on `queue`.
     * Calls made before the file is ready wait until it is.
     */
    constructor(queue: Queue, name: string | null | undefined, access: Access);
    /** Completes when the file is usable. Fails with `not-found`, `unsupported` (no right) or `unavailable` (locked). */
    ready(): Future<Outcome<undefined>>;
    /** Number of tokens; known once the file is ready. */
    tokens(): number;
    /** The first free position: no token is at this position or after it. Known once the file is ready. */
    nextPosition(): number;
    /** The pages of the file, for `forward` and `fused` to read. */
    pages(): number[];
    /**
     * The pages of the file with empty slots for `tokens` more tokens after the filled slots, for `forward` and `fused` to fill. Then call
     * `filled`: the file itself does not count the tokens that these calls write. `unavailable` until the file is ready; `limit-exceeded` when the
     * pages would exceed the invocation's page limit.
     * @throws {Thrown} with the error as `payload`
     */
    reserve(tokens: number): number[];
    /** Adds `tokens` that `forward` or `fused` wrote into the reserved slots to the file. `next-position` is the first position after them. */
    filled(tokens: number, nextPosition: number): void;
    /**
     * Computes tokens, appends them, and returns for each token the distribution of the next token: its `top-k` most probable tokens (1 to the
     * host's cap of 256).
     */
    pred(tokens: Uint32Array | readonly number[], positions: Uint32Array | readonly number[], topK: number): Future<Outcome<Distribution[]>>;
    /** A file without a name and with the same content. Pages are copied on write. */
    fork(): File;
    /**
     * A file without a name that holds the tokens at `indices`, in this order. With `renumber`, their positions become `renumber`,
     * `renumber + 1`, … and their keys are rotated accordingly; otherwise the tokens keep their positions. `ready` reports failures:
     * `invalid-argument` for an index without a token, `limit-exceeded` for more tokens than the invocation's pages hold, and, like
     * `synchronize`, the first error of the queue.
     */
    extract(indices: Uint32Array | readonly number[], renumber?: number | null | undefined): File;
    /**
     * Appends the tokens of another file of the same model. They are renumbered to follow this file's tokens, unless `keep-positions` is set.
     * Like `synchronize`, `merge` reports the first error of the queue.
     */
    merge(other: File, keepPositions: boolean): Future<Outcome<undefined>>;
    /** Saves the file under its own name, which needs the lock, or under a new name. `invalid-argument` when another file has the name. */
    save(name: string, persistent: boolean, rights: Rights): Future<Outcome<undefined>>;
    /** Releases the lock. Dropping the file does the same. */
    unlock(): void;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /**
   * Copies the content that was saved last under a name to the storage that the platform's machines share. While the GPU host that keeps the name
   * and its lock is away or lost, inferlets on other hosts can then open the name for reading. A later save or `remove` ends the copy. Needs the
   * right to write the file. Fails as `make-durable` of `allocate` does.
   */
  export function makeDurable(queue: Queue, name: string): Future<Outcome<undefined>>;
  /** Removes a name. Inferlets that have opened it keep their content. */
  export function remove(queue: Queue, name: string): Future<Outcome<undefined>>;
  /** Files of the queue's model whose names begin with `prefix`, ordered by name. */
  export function files(queue: Queue, prefix: string): Future<Outcome<FileInfo[]>>;
  export {};
}

/** Encodes images into embeds, for models with a vision encoder. */
declare module 'pie:inferlet/input-image@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  /** The size of an image in pixels. */
  export interface Dimensions {
    readonly width: number;
    readonly height: number;
  }
  /**
   * The size of a PNG or JPEG image, read from its first bytes. `invalid-argument` for other data.
   * @throws {Thrown} with the error as `payload`
   */
  export function imageDimensions(image: Uint8Array | readonly number[]): Dimensions;
  /**
   * The number of embeds that an image of this size takes on the queue's model. `unsupported` when the model does not have the trait
   * `input-image`, `invalid-argument` when the image has too many pixels.
   * @throws {Thrown} with the error as `payload`
   */
  export function imageEmbeds(queue: Queue, size: Dimensions): number;
  /**
   * The token that a model's chat template writes in place of an image (LLaVA: `<image>`). `unsupported` when the model does not have the trait
   * `input-image`, or when its config names no such token.
   * @throws {Thrown} with the error as `payload`
   */
  export function imageToken(model: string): number;
  /**
   * Encodes a PNG or JPEG image (at most 8 MiB and 16 million pixels) into `embeds`, at `positions`. `image-embeds` tells how many embeds are
   * needed. The call costs a pass of the vision encoder, about as much as a prefill of the same number of tokens.
   */
  export function embedImage(queue: Queue, image: Uint8Array | readonly number[], positions: Uint32Array | readonly number[], embeds: Uint32Array | readonly number[]): Future<Outcome<undefined>>;
  export {};
}

/**
 * Low-rank adapters (Hu et al., LoRA, 2021) that the platform's operator installed beside a model. Calls share the keys and values of equal
 * prefixes only with calls of the same adapter; calls without an adapter share them among themselves.
 */
declare module 'pie:inferlet/adapter@0.1.0' {
  import type { Queue } from 'pie:inferlet/queue@0.1.0';
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Mask } from 'pie:inferlet/forward@0.1.0';
  import type { StepRequest, StepResult } from 'pie:inferlet/fused@0.1.0';
  export interface AdapterInfo {
    readonly name: string;
    readonly rank: number;
    /** True when the adapter is in the device's memory. */
    readonly loaded: boolean;
  }
  /** The adapters of the queue's model, ordered by name. */
  export function listAdapters(queue: Queue): Future<Outcome<AdapterInfo[]>>;
  /**
   * Loads an adapter into the device's memory, so that the first call with the adapter need not wait for it. `not-found` when no adapter
   * has this name, `invalid-argument` for a malformed name.
   */
  export function loadAdapter(queue: Queue, name: string): Future<Outcome<undefined>>;
  /**
   * Like `forward`, with the adapter's matrices added to those of the model. Calls with different adapters share a batch only if the
   * backend supports this.
   */
  export function forwardWithAdapter(queue: Queue, adapter: string, inPages: Uint32Array | readonly number[], inEmbeds: Uint32Array | readonly number[], outPages: Uint32Array | readonly number[], outEmbeds: Uint32Array | readonly number[], mask?: Mask | null | undefined): void;
  /** Like `fused.step`, with the adapter. */
  export function step(queue: Queue, adapter: string, request: StepRequest): Future<Outcome<StepResult>>;
  export {};
}

/** Turns texts into vectors with an encoder: texts of like meaning have vectors of like direction. Needs no queue and no pages. */
declare module 'pie:inferlet/embedding@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
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
  export interface Vectors {
    /** Number of values of each vector. */
    readonly size: number;
    /** The vectors of all texts, one after the other, in the order of the texts. */
    readonly values: number[];
    /** Tokens that were encoded. */
    readonly tokens: number;
    /** Number of texts that were longer than the model takes: their ends were left out. */
    readonly cut: number;
  }
  /** The encoders that the function was granted. */
  export function encoders(): EncoderInfo[];
  /**
   * The vectors of up to 256 texts of up to 262,144 characters in all. An empty name selects the first embedding model. The call costs a pass
   * of the encoder; texts of many inferlets are computed together. Dropping the future before its value is there ends the call: texts that the
   * device has not begun are not computed.
   */
  export function embed(model: string, texts: readonly string[]): Future<Outcome<Vectors>>;
  export {};
}

/** Scores how well documents answer a query, with an encoder that reads both together. Needs no queue and no pages. */
declare module 'pie:inferlet/rerank@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  export interface Scores {
    /**
     * One number for each document, in the order of the documents: larger is better. Compare a number only with others of the same
     * model. For most models, the logistic function of the number is a probability.
     */
    readonly values: number[];
    /** Tokens that were encoded. */
    readonly tokens: number;
    /** Number of pairs of query and document that were longer than the model takes: the end of the pair's longer text was left out. */
    readonly cut: number;
  }
  /**
   * The scores of up to 256 documents of up to 262,144 characters in all, with the query counted once for each document. An empty name selects
   * the first reranker. Dropping the future ends the call, as for `embed`.
   */
  export function rerank(model: string, query: string, documents: readonly string[]): Future<Outcome<Scores>>;
  export {};
}

/**
 * Durable indexes of the tenant, which find entries by meaning, by words, or by both. All functions with the grant `store` share the indexes
 * (manifest: `grants.store`). Without this grant, every call fails with `unsupported`. When the grant is `read`, the calls that write fail with
 * `unsupported`. The name of an index has 1 to 128 letters, digits, dots, hyphens and underscores, and does not begin with a dot. While the index
 * host restarts, calls fail with `unavailable`: call again later. A write that fails with `unavailable` may still have taken effect.
 */
declare module 'pie:inferlet/index@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  /**
   * Measure of how near two vectors are. `cosine` is the cosine of the angle between them, `dot-product` is their dot product, and `euclidean` is
   * the negative square of their distance.
   */
  export type Metric = 'cosine' | 'dot-product' | 'euclidean';
  export type Value =
    | { readonly tag: 'text'; readonly val: string }
    | { readonly tag: 'number'; readonly val: number }
    | { readonly tag: 'boolean'; readonly val: boolean };
  export interface Field {
    readonly name: string;
    readonly value: Value;
  }
  /**
   * An entry without its vector, which `upsert` takes separately. The id has 1 to 512 bytes, and the text at most 64 KiB. An entry has at most 32
   * fields. The name of a field has 1 to 64 bytes, and a text as its value at most 1,024 bytes.
   */
  export interface IndexEntryInput {
    readonly id: string;
    /** A text that queries find by its words. The index does not compute the vector from the text. */
    readonly text?: string | null | undefined;
    readonly fields: readonly Field[];
  }
  /**
   * An entry without its vector, which `upsert` takes separately. The id has 1 to 512 bytes, and the text at most 64 KiB. An entry has at most 32
   * fields. The name of a field has 1 to 64 bytes, and a text as its value at most 1,024 bytes.
   */
  export interface IndexEntry {
    readonly id: string;
    /** A text that queries find by its words. The index does not compute the vector from the text. */
    readonly text: string | null;
    readonly fields: Field[];
  }
  /**
   * `equal` holds when the field has one of the values. `not-equal` holds when the field has none of the values, or is missing. The other
   * comparisons take one value, a text or a number. They hold only for fields whose value is of the same kind. Texts are compared byte by byte.
   */
  export type Comparison = 'equal' | 'not-equal' | 'less' | 'at-most' | 'greater' | 'at-least';
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
    readonly entries: number;
    /** Bytes of the index that count towards the tenant's limits and storage quota. */
    readonly bytes: number;
  }
  /**
   * Makes an index for vectors of 1 to 4,096 values. When the tenant already has an index of this name with the same dimensions and metric, that
   * index stays as it is. When its dimensions or metric differ, the call fails with `invalid-argument`.
   */
  export function create(name: string, dimensions: number, metric: Metric): Future<Outcome<IndexInfo>>;
  /**
   * Stores up to 256 entries, all or none. An entry replaces an earlier entry with the same id. `vectors` has the vectors of all entries one after
   * the other, in the order of `entries`. Entries and vectors together have at most 4 MiB. Fails with `limit-exceeded` when the tenant's indexes
   * have no room.
   */
  export function upsert(name: string, entries: readonly IndexEntryInput[], vectors: Float32Array | readonly number[]): Future<Outcome<undefined>>;
  /** Deletes up to 256 entries by their ids. Ignores ids that have no entry. Completes with the number of deleted entries. */
  export function deleteEntries(name: string, ids: readonly string[]): Future<Outcome<number>>;
  /**
   * The best entries that fulfil all conditions of `filter`, the best one first. `limit` is the maximum number of entries, 1 to 256. A filter has at
   * most 16 conditions with at most 64 values each. A query needs a vector, a text of at most 8,192 bytes, or both. A text finds entries that have
   * any of its first 16 words. In a large index, only the rarer of these words count, and the search for the nearest vectors is approximate: it
   * misses about one in a hundred.
   */
  export function query(name: string, vector: Float32Array | readonly number[] | null | undefined, text: string | null | undefined, filter: readonly Condition[], limit: number): Future<Outcome<Match[]>>;
  /** Describes one index. */
  export function stats(name: string): Future<Outcome<IndexInfo>>;
  /** Describes all indexes of the tenant, ordered by name. */
  export function listIndexes(): Future<Outcome<IndexInfo[]>>;
  /** Deletes an index with its entries. Completes with false when there was no such index. */
  export function dropIndex(name: string): Future<Outcome<boolean>>;
  export {};
}

/**
 * Durable values by key, shared by a tenant's functions that have the grant `store` (manifest: `grants.store`). Without the grant every call
 * fails with `unsupported`; with the grant `read`, so do the calls that write. Keys have 1 to 512 bytes of UTF-8, values at most 1 MiB.
 * `limit-exceeded` when the tenant's store is full. A call costs one round trip to the platform's store, about 0.2 ms.
 */
declare module 'pie:inferlet/store@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  export interface Entry {
    readonly value: Uint8Array;
    /** Grows with every write of the key. `compare-and-set` compares it. */
    readonly version: number;
  }
  /** The value of a key, or none. */
  export function get(key: string): Future<Outcome<Entry | null>>;
  /** Writes a value over any earlier one. Completes with its version. The store deletes the value after `time-to-live` seconds, if given. */
  export function set(key: string, value: Uint8Array | readonly number[], timeToLive?: number | null | undefined): Future<Outcome<number>>;
  /**
   * Writes a value if the key has the version `expected` (none: if the key has no value). Completes with the new version, or with none when
   * the version differs: read the value again. The key keeps its time to live.
   */
  export function compareAndSet(key: string, expected: number | null | undefined, value: Uint8Array | readonly number[]): Future<Outcome<number | null>>;
  /** Deletes a value. Completes with false when there was none. */
  export function deleteKey(key: string): Future<Outcome<boolean>>;
  export function exists(key: string): Future<Outcome<boolean>>;
  /** Keys that begin with `prefix` and follow `after`, ordered by their bytes. Returns at most `limit` keys (1 to 1,000). */
  export function listKeys(prefix: string, after: string | null | undefined, limit: number): Future<Outcome<string[]>>;
  export {};
}

/**
 * Messages among the inferlets of one tenant. Each function needs the grant `messaging` (manifest: `grants.messaging`); without the grant,
 * every call fails with `unsupported`. Names of topics and queues have 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`. A message
 * has at most 1 MiB. A call costs one round trip to the platform's store, about 0.2 ms.
 */
declare module 'pie:inferlet/messaging@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Message, MessageInput } from 'pie:inferlet/session@0.1.0';
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
  export class Subscription implements Handle {
    /** An inferlet may have 64 subscriptions at once. On a subscription beyond these, `ready` and `next` fail with `limit-exceeded`. */
    constructor(topic: string);
    /** Completes once the subscription is in effect: it receives messages that are broadcast later. */
    ready(): Future<Outcome<undefined>>;
    /**
     * The next message; waits for one. At most 1,024 messages with 4 MiB may be unread. The platform drops a message that does not fit, or for which
     * the tenant's share of the runtime's memory has no room. At the place of dropped messages, `next` fails once with `limit-exceeded`. It fails
     * with `unavailable` where the inferlet may have missed messages because the platform's store was away, and with `closed` after `unsubscribe`.
     */
    next(): Future<Outcome<Envelope>>;
    unsubscribe(): void;
    drop(): void;
    [Symbol.dispose](): void;
  }
  /**
   * Sends a message to all current subscriptions of `topic`. Later subscriptions do not get the message. Completes with the number of subscriptions
   * to which the message was sent.
   */
  export function broadcast(topic: string, message: MessageInput): Future<Outcome<number>>;
  /**
   * Appends a message to a queue. At most one `pull` gets the message. Fails with `limit-exceeded` when the queue holds 10,000 messages or 16 MiB,
   * or when all queues of the tenant together hold 64 MiB. The platform deletes a queue after a day without use.
   */
  export function push(name: string, message: MessageInput): Future<Outcome<undefined>>;
  /** Takes the first message of a queue. Waits while the queue is empty. */
  export function pull(name: string): Future<Outcome<Envelope>>;
  export {};
}

/**
 * HTTP requests to the hosts that the function was granted (manifest: `grants.hosts`). A request or redirect to another host fails with
 * `unsupported`. The platform refuses addresses of private networks, unless its operator allows them.
 */
declare module 'pie:inferlet/http@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
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
    readonly body?: Uint8Array | readonly number[] | null | undefined;
    /** Time limit for the head of the response, including redirects: 30,000 by default, at most the invocation's remaining time. */
    readonly timeoutMs?: number | null | undefined;
    /** Number of redirects to follow (0 to 10), each to a granted host. A redirect beyond this number is itself the response. */
    readonly redirects: number;
  }
  export interface ResponseHead {
    readonly status: number;
    /** The header lines, with names in lower case. A name may occur several times. */
    readonly headers: Header[];
    /** The URL of the response, after redirects. */
    readonly url: string;
  }
  /** A request in progress and its response. Dropping the resource closes the connection. */
  export class Exchange implements Handle {
    /** Sends the request. An inferlet may have 64 requests in progress; `head` reports one more as `limit-exceeded`. */
    constructor(request: Request);
    /**
     * The response without its body. `unsupported` for a host that was not granted, `unavailable` when the host cannot be reached or closes the
     * connection, `deadline-exceeded` after the time limit.
     */
    head(): Future<Outcome<ResponseHead>>;
    /**
     * The next piece of the body, at most 64 KiB, decompressed; none at the end. `limit-exceeded` after 32 MiB in all, or once one
     * decoder has taken 64 MiB (a body may have two encodings).
     */
    read(): Future<Outcome<Uint8Array | null>>;
    drop(): void;
    [Symbol.dispose](): void;
  }
  export {};
}

/**
 * Inferlets that this inferlet launches. The function needs the grant `launch` (manifest: `grants.launch`, a list of functions or `"*"`);
 * without it, calls fail with `unsupported`. A child is an invocation with its own id, log and usage. It runs inside the reservation of its
 * root (the ancestor that no inferlet launched), so it starts at once. It ends with its parent at the latest. An inferlet may hold 1,024 child
 * handles; a handle counts until it is dropped, even after the child's end.
 */
declare module 'pie:inferlet/children@0.1.0' {
  import type { Future, Handle, Outcome } from 'pie:inferlet/types@0.1.0';
  import type { Message, MessageInput } from 'pie:inferlet/session@0.1.0';
  /** Failure of a child: the code and text of its `error` event. */
  export interface Failure {
    readonly code: string;
    readonly message: string;
  }
  /** Outcome of a child. */
  export type Ending =
    /** The child's result as JSON text. */
    | { readonly tag: 'success'; readonly val: string }
    | { readonly tag: 'failure'; readonly val: Failure };
  export class Child implements Handle {
    /**
     * Launches a function of this tenant. `name` runs the version of the alias `live`; `name@alias` and `name@version` choose another. `input`
     * is JSON text of at most 262,144 characters that the function's schema accepts. `started` reports failures.
     */
    constructor(name: string, input: string);
    /**
     * The child's invocation id. `not-found` when the function does not exist, `invalid-argument` when its schema refuses the input,
     * `limit-exceeded` when the root has 64 running descendants or has had 4,096 in all, or when this inferlet is 8 generations below the root.
     */
    started(): Future<Outcome<string>>;
    /** Sends a message to the child's session. `closed` once the child has ended. */
    send(message: MessageInput): Future<Outcome<undefined>>;
    /** Tells the child that no more messages follow. */
    close(): void;
    /** The next message of the child. `closed` once the child has ended and the inferlet has read all messages. */
    receive(): Future<Outcome<Message>>;
    /** Completes when the child has ended. Several calls get the same outcome. */
    wait(): Future<Outcome<Ending>>;
    /**
     * Cancels the child. `wait` then completes with the failure `cancelled`, or with the child's result if it returned one first. Dropping the
     * resource does the same.
     */
    cancel(): void;
    drop(): void;
    [Symbol.dispose](): void;
  }
  export {};
}

/**
 * Files that the client and this invocation exchange, for content that is too large for a message. A file has at most 16 MiB. An invocation
 * has at most 256 files and 64 MiB (128 MiB with its children), and a tenant 1 GiB.
 * Names have 1 to 128 characters: letters, digits, `.`, `_`, `-`. The platform keeps files as long as the invocation's events. The HTTP path
 * of a file is `/v1/invocations/{id}/files/{name}`.
 */
declare module 'pie:inferlet/file-exchange@0.1.0' {
  import type { Future, Outcome } from 'pie:inferlet/types@0.1.0';
  export interface FileInfo {
    readonly name: string;
    readonly mediaType: string;
    /** Size in bytes. */
    readonly size: number;
  }
  export interface File {
    readonly mediaType: string;
    readonly content: Uint8Array;
  }
  /**
   * Stores a file for the client, and announces it by a `message` event `{"file": {"name", "mediaType", "bytes"}}`. Replaces a file of the
   * same name.
   */
  export function sendFile(name: string, mediaType: string, content: Uint8Array | readonly number[]): Future<Outcome<undefined>>;
  /** A file of the invocation, from the client or from the inferlet. Waits until the file exists. `closed` when the client closes the session first. */
  export function receiveFile(name: string): Future<Outcome<File>>;
  /** The present files, ordered by name. */
  export function listFiles(): Future<Outcome<FileInfo[]>>;
  export {};
}

/**
 * Named texts of the function's version: the tenant's secrets that the manifest lists (`secrets`), and plain variables (`environment`). A version
 * keeps the values that the secrets had at its deployment. A name has upper-case letters, digits and `_`. Reading a value is immediate. In log
 * lines and error messages, the platform replaces each value of four or more characters by `[NAME]`.
 */
declare module 'pie:inferlet/environment@0.1.0' {
  /** The value of a variable or secret, or none when the manifest does not list it. */
  export function getVariable(name: string): string | null;
  /** The names of all variables and secrets, in order. */
  export function listVariables(): string[];
  export {};
}

/**
 * Questions to a person. An invocation that asks a question ends its attempt and waits. Meanwhile it has no instance, holds no pages, embeds or
 * queues, and takes no slot; it keeps waiting across restarts of the platform. When a person answers
 * (`POST /v1/invocations/{id}/answer`, `pie answer`), or the time has passed, a new attempt runs from the beginning with the same input. There,
 * `resumed` returns the state that the last attempt left, and the answer.
 */
declare module 'pie:inferlet/person@0.1.0' {
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
    /** The answer as JSON text that the schema accepts. */
    | { readonly tag: 'answered'; readonly val: string }
    /** The time has passed without an answer. */
    | { readonly tag: 'expired' };
  export interface Resumption {
    /** The `state` of the last question. */
    readonly state: string;
    readonly answer: Answer;
  }
  /**
   * Asks when `run` returns a result: that result is dropped, and the invocation waits instead of ending. When `run` fails, nothing is asked.
   * `invalid-argument` for a question that exceeds a limit, a schema that cannot be used, or a second question; `unsupported` in a child.
   * @throws {Thrown} with the error as `payload`
   */
  export function ask(question: Question): void;
  /** The answer to the last question, or none in an invocation that has not asked. */
  export function resumed(): Resumption | null;
  export {};
}
