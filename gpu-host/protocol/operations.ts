import type { QueueFunctions } from '#wit/generated/queue-calls.ts';
import type { AdapterInfo, ExportInfo, FileInfo, NameVersion, SentPages } from './calls.ts';
import { type Outcome, ProtocolFault } from './errors.ts';
import {
  addresses,
  contextPages,
  count,
  type Entries,
  exceededIn,
  type Fields,
  flag,
  handlerErrorField,
  i32,
  list,
  logitChanges,
  mask,
  optionalText,
  type PageLists,
  pagesOfContext,
  piece,
  pixels,
  putAll,
  readAll,
  rights,
  runRequest,
  stepRequest,
  sumIn,
  tenantLimit,
  text,
  tier,
  u32,
  type ValuesOf,
  wide,
} from './fields.ts';
import type { FrameWriter, WordReader } from './frames.ts';
import {
  type Answer,
  bytes,
  distribution,
  done,
  float,
  floats,
  imported,
  json,
  residency,
  runChunk,
  stepResult,
} from './results.ts';
import { FRAME } from './wire.ts';

/**
 * The method with which a client makes a call. `asked`: `DeviceClient.ask`, which resolves to the result. `sent`: `DeviceClient.send`, without a
 * result; a failure surfaces in later calls of the queue. `own`: a method for this call that does more, such as handing out addresses.
 */
type Way = 'asked' | 'sent' | 'own';

interface Row<W extends Way = Way, F extends Fields = Fields, A = unknown> {
  readonly way: W;
  readonly code: number;
  readonly fields: F;
  readonly entries: Entries;
  /** The form of the result, for a client that wants one. */
  readonly answer: A;
}

function row<W extends Way, F extends Fields, A>(way: W, code: number, fields: F, answer: A): Row<W, F, A> {
  return { way, code, fields, entries: Object.entries(fields), answer };
}

const asked = <F extends Fields, A>(code: number, fields: F, answer: A) => row('asked', code, fields, answer);
const sent = <F extends Fields>(code: number, fields: F) => row('sent', code, fields, done);

function own<F extends Fields>(code: number, fields: F): Row<'own', F, typeof done>;
function own<F extends Fields, A>(code: number, fields: F, answer: A): Row<'own', F, A>;
function own(code: number, fields: Fields, answer: unknown = done): Row<'own'> {
  return row('own', code, fields, answer);
}

const ALLOCATE = { first: u32, count };
/** Fields that `forward` and `forward-scores` share; only `forward` may have an adapter. */
const FORWARD = { inPages: contextPages, inEmbeds: addresses, outPages: pagesOfContext, outEmbeds: addresses, mask };

/**
 * The operations of a `calls` frame: their codes, their fields in wire order, and their answers. Append only; a changed layout needs a new
 * protocol version. Types, encoding and decoding follow from this table, and so does the client's part of every `asked` and `sent` row.
 */
export const OPERATIONS = {
  'open-inferlet': own(1, {
    /** Maximum pages on each model. */
    maxPages: u32,
    /** Priorities of the queues are clamped to ±`maxPriority`. */
    maxPriority: u32,
    /** Latency target of a prompt, milliseconds; 0 for an inferlet without targets. */
    firstTokenMs: u32,
    /** Latency target of each later token, milliseconds; 0 for an inferlet without targets. */
    perTokenMs: u32,
    arrival: wide,
    /** The invocation's id. */
    name: text,
    /** Attempt of the invocation: a newer attempt replaces earlier ones. */
    epoch: wide,
    tenant: text,
    /** Family whose pages are counted together; empty for none. */
    family: text,
    /** Attempt of the family's root. */
    familyEpoch: wide,
    /** Maximum pages of the whole family on each model. */
    familyPages: u32,
    /** Maximum pages of the tenant on the host. */
    tenantPages: tenantLimit,
    /** The function that runs. */
    functionName: text,
    /** W3C trace context; empty when the inferlet is not traced. */
    traceparent: text,
  }),
  'close-inferlet': own(2, {}),
  /** The model's index in the hello. */
  'create-queue': own(3, { model: u32 }),
  'close-queue': own(4, {}),
  'set-priority': sent(5, { priority: i32 }),
  'set-depth': sent(54, { depth: u32 }),
  /** Takes effect at once, not in the order of the queue: the queue's calls that the device has not begun fail. */
  'stop-queue': sent(56, {}),
  'allocate-pages': own(6, ALLOCATE),
  'free-pages': own(7, { pages: addresses }),
  'allocate-embeds': own(8, ALLOCATE),
  'free-embeds': own(9, { embeds: addresses }),
  'share-pages': own(10, { first: u32, pages: addresses }),
  'copy-slots': sent(11, {
    source: u32,
    sourceOffset: u32,
    destination: u32,
    destinationOffset: u32,
    count: u32,
    /** Added to each copied slot's position. */
    shift: i32,
  }),
  'copy-embeds': sent(12, { sources: addresses, destinations: addresses }),
  'embed-text': sent(13, { tokens: list, positions: list, embeds: addresses }),
  forward: sent(14, { ...FORWARD, adapter: optionalText }),
  'mask-page': sent(15, { page: u32, slots: u32 }),
  'next-distribution': asked(16, { embed: u32, topK: u32 }, distribution),
  step: asked(17, { request: stepRequest }, stepResult),
  run: own(18, { request: runRequest }, runChunk),
  /** Tokens consumed in all. The header's id names the run. */
  'run-consumed': own(19, { tokens: u32 }),
  'run-stop': own(20, {}),
  /** Says that a client reads the run's text as it comes, so that the host sends its tokens in even slices. */
  'run-piped': own(52, {}),
  synchronize: own(21, {}),
  'copy-tokens': sent(22, {
    sources: addresses,
    /** Indices of filled slots of `sources`, in order. */
    indices: list,
    destinations: addresses,
    /** One position per token; empty keeps the old positions. */
    positions: list,
  }),
  'export-pages': asked(23, { persistent: flag, name: text, pages: addresses }, done),
  'import-pages': own(24, { first: u32, name: text }, imported),
  unexport: asked(25, { name: text }, done),
  'list-exports': asked(26, {}, json<readonly ExportInfo[]>()),
  'log-probabilities': asked(27, { embed: u32, tokens: list }, floats),
  entropy: asked(28, { embed: u32 }, float),
  'read-embed': asked(29, { embed: u32 }, floats),
  /** A `forward` that also returns the attention that each slot received. */
  'forward-scores': asked(30, FORWARD, floats),
  /** True while the inferlet waits for something other than the device. */
  'set-waiting': own(31, { waiting: flag }),
  'file-open': own(
    32,
    {
      /** Address of the first page. */
      first: u32,
      name: text,
      /** True to take the file's lock. */
      write: flag,
      /** The function that opens the file. */
      functionName: text,
    },
    imported,
  ),
  /** `functionName` is the owner of a new file. */
  'file-save': asked(33, { name: text, persistent: flag, rights, functionName: text, pages: addresses }, done),
  'file-unlock': asked(34, { name: text }, done),
  'file-remove': asked(35, { name: text, functionName: text }, done),
  'file-list': asked(36, { prefix: text, functionName: text }, json<readonly FileInfo[]>()),
  'list-adapters': asked(37, {}, json<readonly AdapterInfo[]>()),
  'load-adapter': asked(38, { name: text }, done),
  /** The pixels, or an error, follow with the same id; until then the call keeps its place in its queue. */
  'embed-image': own(40, { positions: list, embeds: addresses }),
  'image-pixels': own(41, { pixels }),
  'image-failed': own(42, { why: handlerErrorField }),
  /** The high and low word of the span that is the parent of the inferlet's later calls; 0 and 0 for none. */
  'set-span': own(44, { high: u32, low: u32 }),
  'set-tenant-limit': own(45, { tenantPages: tenantLimit }),
  'export-residency': asked(46, { name: text }, residency),
  'pin-export': asked(47, { name: text, leaseMs: u32 }, residency),
  'unpin-export': asked(48, { name: text }, residency),
  /** A `nextUseMs` of 0 means that there is no hint. */
  'retain-export': asked(49, { name: text, nextUseMs: u32 }, residency),
  'prefetch-export': asked(50, { name: text }, residency),
  'demote-export': asked(51, { name: text, tier }, residency),
  /**
   * Encodes texts, or pairs of texts. `tokens` has the tokens of all texts one after the other. For each text, `lengths` has the number of its
   * tokens, and `firsts` the number of its tokens in the first segment. `encoder` is the index in the hello. No queue orders the call.
   */
  encode: own(53, { encoder: u32, tokens: list, lengths: list, firsts: list }, floats),
  /** Ends the `encode` that the header's id names, unless it is over: the host answers it with an error, and skips the texts not yet begun. */
  'encode-stop': own(55, {}),
  /** The version of an export, or of a KV file that the function may read. */
  'name-version': asked(57, { file: flag, name: text, functionName: text }, json<NameVersion>()),
  /** Freezes pages, so that `send-piece` can read their bytes for another host. */
  'send-begin': asked(58, { pages: addresses }, json<SentPages>()),
  /** Reads the next `PIECE_BYTES` bytes, or all that are left. */
  'send-piece': asked(59, { sending: u32 }, bytes),
  /** Ends a sending. Answers the SHA-256 of the pieces that were sent, hexadecimal. */
  'send-end': asked(60, { sending: u32 }, json<string>()),
  /** Makes room for a copy of `pages` pages of another host, which is kept under `version`. Answers the number of the copy. */
  'copy-begin': asked(
    61,
    { version: text, pages: u32, fingerprint: text, pageSize: u32, pageBytes: wide },
    json<number>(),
  ),
  'copy-piece': asked(62, { copy: u32, bytes: piece }, done),
  /** Checks the copy and keeps it while there is room. */
  'copy-end': asked(63, { copy: u32, checksum: text }, done),
  'copy-drop': sent(64, { copy: u32 }),
  /** Maps the pages of a kept copy; `not-found` when there is none of this version. */
  'copy-map': own(65, { first: u32, version: text }, imported),
  /** A `run` with changes of its logits. */
  'start-run': own(66, { request: runRequest, changes: logitChanges }, runChunk),
} as const satisfies Record<string, Row>;

export type OperationName = keyof typeof OPERATIONS;

/** An operation with its fields. */
export type Operation<Name extends OperationName = OperationName> = {
  [K in Name]: { readonly op: K } & ValuesOf<(typeof OPERATIONS)[K]['fields']>;
}[Name];

type Rows = typeof OPERATIONS;
type Made<W extends Way> = { [K in OperationName]: Rows[K]['way'] extends W ? K : never }[OperationName];

/** The operations with one result that `DeviceClient.ask` sends. */
export type AskedOperation = Operation<Made<'asked'>>;

/** The operations without a result that `DeviceClient.send` sends. */
export type SentOperation = Operation<Made<'sent'>>;

/** The value of an operation's result. */
export type AnswerOf<Name extends OperationName> =
  Rows[Name]['answer'] extends Answer<infer Value, never> ? Value : never;

/** The value with which the host answers an operation. */
export type ReplyOf<Name extends OperationName> = Parameters<Rows[Name]['answer']['write']>[2];

/** The form of an operation's result. */
export function answerOf<Name extends OperationName>(op: Name): Answer<AnswerOf<Name>, ReplyOf<Name>> {
  const rows: { readonly [K in OperationName]: { readonly answer: Answer<AnswerOf<K>, ReplyOf<K>> } } = OPERATIONS;
  return rows[op].answer;
}

/** The operations that the host answers without a value. */
export type DoneOperation = { [K in OperationName]: ReplyOf<K> extends undefined ? K : never }[OperationName];

/** The functions of the contract for which no row has their name and arguments: for these the runtime makes other calls, or none. */
type WithoutRow = keyof Pick<
  QueueFunctions,
  | ('allocate/page-size' | 'allocate/make-durable' | 'kv-files/make-durable' | 'kv-files/remove' | 'kv-files/files')
  | ('input-image/image-embeds' | 'adapter/forward-with-adapter' | 'adapter/step')
>;

/** The fields that a client has for a call: the arguments, except an image, whose pixels follow later. An `own` method adds the first new address. */
type Given<Path extends keyof QueueFunctions, W extends Way> = Omit<Parameters<QueueFunctions[Path]>[0], 'image'> &
  (W extends 'own' ? { readonly first: number } : unknown);

/** The rows that fit a function with this result. An `own` method may convert the answer to the result. */
type RowFor<Result> =
  | { readonly way: 'own' }
  | (Result extends Promise<Outcome<infer Value>>
      ? { readonly way: 'asked'; readonly answer: Answer<Value, never> }
      : Result extends void
        ? { readonly way: 'sent' }
        : never);

/** An error text when the table does not fit a function of the contract; `never` when it fits. */
type FaultOf<Path extends keyof QueueFunctions> = Path extends `${string}/${infer Name extends OperationName}`
  ?
      | `${Path}: the row has no field ${Exclude<keyof Given<Path, 'sent'>, keyof Operation<Name>>}`
      | (Given<Path, Rows[Name]['way']> extends Operation<Name> ? never : `${Path}: a field of the row does not fit`)
      | (Rows[Name] extends RowFor<ReturnType<QueueFunctions[Path]>> ? never : `${Path}: the row has another answer`)
  : `${Path}: the table has no row`;

type None<Fault extends never> = Fault;

/**
 * Compiles only while the table fits the contract: each function, apart from `WithoutRow`, has a row that takes its arguments and, unless the row
 * is `own`, answers its result.
 */
export type TableFitsContract = None<
  { [Path in Exclude<keyof QueueFunctions, WithoutRow>]: FaultOf<Path> }[Exclude<keyof QueueFunctions, WithoutRow>]
>;

/** The operations that are not calls on an open queue. */
type WithoutQueue =
  | ('open-inferlet' | 'close-inferlet' | 'create-queue')
  | ('run-stop' | 'run-consumed' | 'run-piped' | 'image-pixels' | 'image-failed')
  | ('set-waiting' | 'set-span' | 'set-tenant-limit' | 'encode' | 'encode-stop');

/** The calls that are ordered by a queue. */
export type QueuedOperation = Operation<
  Exclude<OperationName, WithoutQueue | 'close-queue' | 'set-priority' | 'set-depth' | 'stop-queue'>
>;

/** Maps pages from the address `first` on. */
export type ImportOperation = Operation<'import-pages' | 'file-open' | 'copy-map'>;

/** The operations that read or change the places of an export's pages (device, memory, disk). */
export type ExportControl = Operation<
  'export-residency' | 'pin-export' | 'unpin-export' | 'retain-export' | 'prefetch-export' | 'demote-export'
>;

/** The inferlet's handle on this connection, its queue, and the id of the result. */
export interface CallHeader {
  readonly inferlet: number;
  readonly queue: number;
  /** 0 when the client wants no result. */
  readonly id: number;
}

/**
 * One call as the host reads it. Lists are copies, shared with later calls and never changed. The decoder checks only the frame's shape: handlers
 * check the values.
 */
export type DecodedCall = CallHeader & Operation;

/** A call to a queue that exists. */
export type QueuedCall = CallHeader & Operation<Exclude<OperationName, WithoutQueue>>;

const BY_CODE = new Map(
  Object.entries(OPERATIONS).map(([op, { code, entries }]) => [code, { op: op as OperationName, entries }] as const),
);

/** Writes a call. Returns false, and writes nothing, when the call does not fit a frame or has a list above the limit. */
export function encodeCall(
  writer: FrameWriter,
  lists: PageLists,
  { inferlet, queue, id }: CallHeader,
  operation: Readonly<Operation>,
): boolean {
  const { code, entries } = OPERATIONS[operation.op];
  writer.begin(FRAME.calls);
  writer.put(code);
  writer.put(inferlet);
  writer.put(queue);
  writer.put(id);
  const keptList = lists.of(inferlet, queue);
  putAll(writer, entries, operation, keptList);
  const fits = writer.end();
  if (!fits) keptList.forget();
  return fits;
}

/** Reads the calls of one frame's body in order, each with its bytes. Throws `ProtocolFault` on anything that is not exactly a call. */
export function decodeCalls(
  reader: WordReader,
  end: number,
  lists: PageLists,
  handle: (call: DecodedCall, bytes: number) => void,
): void {
  while (!reader.done) {
    const words = reader.enter(end);
    const code = reader.u32();
    const entry = BY_CODE.get(code);
    if (!entry) throw new ProtocolFault('malformed', `unknown operation ${code}`);
    const header = { op: entry.op, inferlet: reader.u32(), queue: reader.u32(), id: reader.u32() };
    const keptList = lists.of(header.inferlet, header.queue);
    const call = readAll(reader, entry.entries, header, keptList) as DecodedCall;
    reader.leave(end);
    handle(call, words * 4);
  }
}

/** The limit that a list is above: a list of the operation, or one that it asks for. Undefined when no list is above its limit. */
export function exceededLimit(operation: Operation): number | undefined {
  return exceededIn(OPERATIONS[operation.op].entries, operation);
}

/** Number of addresses in the lists of the operation. */
export function addressCount(operation: Operation): number {
  return sumIn('addresses', OPERATIONS[operation.op].entries, operation);
}

/** Number of items in all lists of the operation, addresses included. */
export function itemCount(operation: Operation): number {
  return sumIn('items', OPERATIONS[operation.op].entries, operation);
}
