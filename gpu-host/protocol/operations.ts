import {
  type Answer,
  bytesOf,
  distributionOf,
  doneOf,
  floatOf,
  floatsOf,
  jsonOf,
  residencyOf,
  stepOf,
} from './answers.ts';
import type { AdapterInfo, ExportInfo, FileInfo, NameVersion, SentPages } from './calls.ts';
import { ProtocolFault } from './errors.ts';
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
import type { PageLists } from './page-lists.ts';
import { FRAME } from './wire.ts';
import type { FrameWriter, WordReader } from './words.ts';

/** Marks an operation without a result; a failure surfaces in later calls of the queue. */
export const SENT = 'sent';

interface Row<F extends Fields, A> {
  readonly code: number;
  readonly fields: F;
  readonly entries: Entries;
  /** Converts the operation's result; or `SENT`. Undefined for an operation that `DeviceClient` sends from a method of its own. */
  readonly answer: A;
}

function row<F extends Fields>(code: number, fields: F): Row<F, undefined>;
function row<F extends Fields, A extends Answer<unknown> | typeof SENT>(code: number, fields: F, answer: A): Row<F, A>;
function row(code: number, fields: Fields, answer?: unknown): Row<Fields, unknown> {
  return { code, fields, entries: Object.entries(fields), answer };
}

const ALLOCATE = { first: u32, count };
/** Fields that `forward` and `forward-scores` share; only `forward` may have an adapter. */
const FORWARD = { inPages: contextPages, inEmbeds: addresses, outPages: pagesOfContext, outEmbeds: addresses, mask };

/**
 * The operations of a `calls` frame: their codes, their fields in wire order, and their answers. Append only; a changed layout needs a new
 * protocol version. Types, encoding and decoding follow from this table, and so does the client's part of every row with an answer.
 */
export const OPERATIONS = {
  'open-inferlet': row(1, {
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
  'close-inferlet': row(2, {}),
  /** The model's index in the hello. */
  'create-queue': row(3, { model: u32 }),
  'close-queue': row(4, {}),
  'set-priority': row(5, { priority: i32 }, SENT),
  'set-depth': row(54, { depth: u32 }, SENT),
  /** Takes effect at once, not in the order of the queue: its calls that the device has not begun fail. */
  'stop-queue': row(56, {}, SENT),
  'allocate-pages': row(6, ALLOCATE),
  'free-pages': row(7, { pages: addresses }),
  'allocate-embeds': row(8, ALLOCATE),
  'free-embeds': row(9, { embeds: addresses }),
  'share-pages': row(10, { first: u32, pages: addresses }),
  'copy-slots': row(
    11,
    {
      source: u32,
      sourceOffset: u32,
      destination: u32,
      destinationOffset: u32,
      count: u32,
      /** Added to each copied slot's position. */
      shift: i32,
    },
    SENT,
  ),
  'copy-embeds': row(12, { sources: addresses, destinations: addresses }, SENT),
  'embed-text': row(13, { tokens: list, positions: list, embeds: addresses }, SENT),
  forward: row(14, { ...FORWARD, adapter: optionalText }, SENT),
  'mask-page': row(15, { page: u32, slots: u32 }, SENT),
  'next-distribution': row(16, { embed: u32, topK: u32 }, distributionOf),
  step: row(17, { request: stepRequest }, stepOf),
  run: row(18, { request: runRequest }),
  /** Tokens consumed in all. The header's id names the run. */
  'run-consumed': row(19, { tokens: u32 }),
  'run-stop': row(20, {}),
  /** A client reads the run's text as it comes, so its tokens come in even slices. */
  'run-piped': row(52, {}),
  synchronize: row(21, {}),
  'copy-tokens': row(
    22,
    {
      sources: addresses,
      /** Indices of filled slots of `sources`, in order. */
      indices: list,
      destinations: addresses,
      /** One position per token; empty keeps the old positions. */
      positions: list,
    },
    SENT,
  ),
  'export-pages': row(23, { persistent: flag, name: text, pages: addresses }, doneOf),
  'import-pages': row(24, { first: u32, name: text }),
  unexport: row(25, { name: text }, doneOf),
  'list-exports': row(26, {}, jsonOf<readonly ExportInfo[]>),
  'log-probabilities': row(27, { embed: u32, tokens: list }, floatsOf),
  entropy: row(28, { embed: u32 }, floatOf),
  'read-embed': row(29, { embed: u32 }, floatsOf),
  /** A forward that returns the attention received as well. */
  'forward-scores': row(30, FORWARD, floatsOf),
  /** True while the inferlet waits for something other than the device. */
  'set-waiting': row(31, { waiting: flag }),
  'file-open': row(32, {
    /** Address of the first page. */
    first: u32,
    name: text,
    /** True to take the file's lock. */
    write: flag,
    /** The function that opens the file. */
    functionName: text,
  }),
  /** `functionName` is the owner of a new file. */
  'file-save': row(33, { name: text, persistent: flag, rights, functionName: text, pages: addresses }, doneOf),
  'file-unlock': row(34, { name: text }, doneOf),
  'file-remove': row(35, { name: text, functionName: text }, doneOf),
  'file-list': row(36, { prefix: text, functionName: text }, jsonOf<readonly FileInfo[]>),
  'list-adapters': row(37, {}, jsonOf<readonly AdapterInfo[]>),
  'load-adapter': row(38, { name: text }, doneOf),
  /** The pixels, or an error, follow with the same id; until then the call keeps its place in its queue. */
  'embed-image': row(40, { positions: list, embeds: addresses }),
  'image-pixels': row(41, { pixels }),
  'image-failed': row(42, { why: handlerErrorField }),
  /** The high and low word of the span that is the parent of the inferlet's later calls; 0 and 0 for none. */
  'set-span': row(44, { high: u32, low: u32 }),
  'set-tenant-limit': row(45, { tenantPages: tenantLimit }),
  'export-residency': row(46, { name: text }, residencyOf),
  'pin-export': row(47, { name: text, leaseMs: u32 }, residencyOf),
  'unpin-export': row(48, { name: text }, residencyOf),
  /** A `nextUseMs` of 0 means that there is no hint. */
  'retain-export': row(49, { name: text, nextUseMs: u32 }, residencyOf),
  'prefetch-export': row(50, { name: text }, residencyOf),
  'demote-export': row(51, { name: text, tier }, residencyOf),
  /**
   * Encodes texts, or pairs of texts: `tokens` has the tokens of all texts one after the other, `lengths` the number of each, and `firsts` the
   * number of its tokens in the first segment. `encoder` is the index in the hello. No queue orders the call.
   */
  encode: row(53, { encoder: u32, tokens: list, lengths: list, firsts: list }),
  /** Ends the `encode` that the header's id names, if it is not over: its texts are not computed, and it is answered. */
  'encode-stop': row(55, {}),
  /** The version of an export, or of a KV file that the function may read. */
  'name-version': row(57, { file: flag, name: text, functionName: text }, jsonOf<NameVersion>),
  /** Freezes pages, whose bytes the later calls read for another host. */
  'send-begin': row(58, { pages: addresses }, jsonOf<SentPages>),
  /** The next `PIECE_BYTES`, or as many as are left. */
  'send-piece': row(59, { sending: u32 }, bytesOf),
  /** Ends a sending. Answers the SHA-256 of the pieces that were sent, hexadecimal. */
  'send-end': row(60, { sending: u32 }, jsonOf<string>),
  /** Makes room for the pieces of `pages` pages that another host sends, to be kept as this version. Answers the number of the copy. */
  'copy-begin': row(
    61,
    { version: text, pages: u32, fingerprint: text, pageSize: u32, pageBytes: wide },
    jsonOf<number>,
  ),
  'copy-piece': row(62, { copy: u32, bytes: piece }, doneOf),
  /** Checks the copy and keeps it while there is room. */
  'copy-end': row(63, { copy: u32, checksum: text }, doneOf),
  'copy-drop': row(64, { copy: u32 }, SENT),
  /** Maps the pages of a kept copy; `not-found` when there is none of this version. */
  'copy-map': row(65, { first: u32, version: text }),
  /** A `run` with changes of its logits. */
  'start-run': row(66, { request: runRequest, changes: logitChanges }),
} as const satisfies Record<string, Row<Fields, Answer<unknown> | typeof SENT | undefined>>;

export type OperationName = keyof typeof OPERATIONS;

/** The protocol's version that brought an operation, for those that came after the oldest version. */
const BROUGHT_BY: { readonly [Name in OperationName]?: number } = {
  'encode-stop': 13,
  'stop-queue': 13,
  'name-version': 14,
  'send-begin': 14,
  'send-piece': 14,
  'send-end': 14,
  'copy-begin': 14,
  'copy-piece': 14,
  'copy-end': 14,
  'copy-drop': 14,
  'copy-map': 14,
  'start-run': 15,
};

/** True when a side that speaks this version of the protocol knows the operation; a side that does not would end the connection. */
export function knows(version: number, { op }: Pick<Operation, 'op'>): boolean {
  return (BROUGHT_BY[op] ?? 0) <= version;
}

/** An operation with its fields. */
export type Operation<Name extends OperationName = OperationName> = {
  [K in Name]: { readonly op: K } & ValuesOf<(typeof OPERATIONS)[K]['fields']>;
}[Name];

type Answers = { [K in OperationName]: (typeof OPERATIONS)[K]['answer'] };
type Answering<A> = { [K in OperationName]: Answers[K] extends A ? K : never }[OperationName];

/** The operations with one result that `DeviceClient.ask` sends. */
export type AskedOperation = Operation<Answering<Answer<unknown>>>;

/** The operations without a result that `DeviceClient.send` sends. */
export type SentOperation = Operation<Answering<typeof SENT>>;

/** The value of an asked operation's result. */
export type AnswerOf<Asked extends AskedOperation> = Extract<
  ReturnType<Extract<Answers[Asked['op']], Answer<unknown>>>,
  { tag: 'ok' }
>['val'];

/** The operations that concern no queue that exists. */
type WithoutQueue =
  | ('open-inferlet' | 'close-inferlet' | 'create-queue')
  | ('run-stop' | 'run-consumed' | 'run-piped' | 'image-pixels' | 'image-failed')
  | ('set-waiting' | 'set-span' | 'set-tenant-limit' | 'encode' | 'encode-stop');

/** The calls that are ordered by a queue. */
export type QueuedOperation = Operation<
  Exclude<OperationName, WithoutQueue | 'close-queue' | 'set-priority' | 'set-depth' | 'stop-queue'>
>;

/** Reads or changes the place of an export's pages. */
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
export type QueueCall = CallHeader & Operation<Exclude<OperationName, WithoutQueue>>;

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

/** The limit that a list of the operation, or a list that it asks for, exceeds; undefined when none does. */
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
