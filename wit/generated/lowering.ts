// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
import type { LoweredFuture, LoweredGuest, Lowering, Trampoline } from '../generate/lowering/lowered.ts';
import type {
  Access,
  AdapterInfo,
  Answer,
  ChatMessage,
  Child,
  Comparison,
  Compiled,
  Condition,
  Detokenizer,
  Dimensions,
  Distribution,
  EncoderInfo,
  EncoderKind,
  Ending,
  Entry,
  Envelope,
  Exchange,
  ExportInfo,
  Failure,
  Field,
  File,
  FileExchangeFile,
  FileExchangeFileInfo,
  FinishReason,
  Frame,
  HandlerError,
  Header,
  Imported,
  IndexEntry,
  IndexInfo,
  KvFilesFileInfo,
  LeaseEnd,
  LogLevel,
  LogitChanges,
  Mask,
  Match,
  MatchStatus,
  Matcher,
  Message,
  Metric,
  ModelInfo,
  ModelMetadata,
  Outcome,
  Output,
  PipeRequest,
  Piped,
  Question,
  Queue,
  Request,
  Residency,
  ResponseHead,
  Resumption,
  Rights,
  Run,
  RunChunk,
  RunRequest,
  Sampler,
  Scores,
  Source,
  SpecialTokenIds,
  StepRequest,
  StepResult,
  Subscription,
  ThoughtFormat,
  Tier,
  Value,
  Vectors,
} from './host.ts';

/** Functions that the host implements, by interface and core name. The first argument of each function is the context of the guest. */
export interface HostFunctions {
  readonly 'runtime': {
    readonly 'version': (context: unknown) => string;
    readonly 'instance-id': (context: unknown) => string;
    readonly 'tenant': (context: unknown) => string;
    readonly 'get-arguments': (context: unknown) => string;
    readonly 'function-name': (context: unknown) => string;
    readonly 'function-version': (context: unknown) => string;
    readonly 'models': (context: unknown) => readonly ModelInfo[];
    readonly 'model-traits': (context: unknown, a0: string) => Outcome<readonly string[], HandlerError>;
    readonly 'metadata': (context: unknown, a0: string) => Outcome<ModelMetadata, HandlerError>;
    readonly 'efficient-tokens': (context: unknown, a0: string) => Outcome<number | undefined, HandlerError>;
    readonly 'debug-query': (context: unknown, a0: string) => Outcome<string, HandlerError>;
    readonly 'log': (context: unknown, a0: LogLevel, a1: string) => void;
    readonly 'record-span': (context: unknown, a0: string, a1: string, a2: bigint, a3: bigint, a4: boolean) => void;
    readonly 'is-cancelled': (context: unknown) => boolean;
    readonly 'time-left': (context: unknown) => bigint;
    readonly 'now': (context: unknown) => bigint;
    readonly 'random': (context: unknown) => number;
    readonly 'sleep': (context: unknown, a0: number) => Promise<Outcome<undefined, HandlerError>>;
  };
  readonly 'session': {
    readonly 'send': (context: unknown, a0: Message) => Outcome<undefined, HandlerError>;
    readonly 'flush': (context: unknown) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'receive': (context: unknown) => Promise<Outcome<Message, HandlerError>>;
  };
  readonly 'queue': {
    readonly '[constructor]queue': (context: unknown, a0: string) => Queue;
    readonly '[method]queue.set-priority': (context: unknown, a0: Queue, a1: number) => void;
    readonly '[method]queue.set-depth': (context: unknown, a0: Queue, a1: number) => void;
    readonly '[method]queue.stop': (context: unknown, a0: Queue) => void;
    readonly '[method]queue.synchronize': (context: unknown, a0: Queue) => Promise<Outcome<undefined, HandlerError>>;
    readonly '[resource-drop]queue': (context: unknown, self: Queue) => void;
  };
  readonly 'allocate': {
    readonly 'page-size': (context: unknown, a0: Queue) => number;
    readonly 'allocate-pages': (context: unknown, a0: Queue, a1: number) => Outcome<Uint32Array, HandlerError>;
    readonly 'free-pages': (context: unknown, a0: Queue, a1: Uint32Array) => void;
    readonly 'allocate-embeds': (context: unknown, a0: Queue, a1: number) => Outcome<Uint32Array, HandlerError>;
    readonly 'free-embeds': (context: unknown, a0: Queue, a1: Uint32Array) => void;
    readonly 'share-pages': (context: unknown, a0: Queue, a1: Uint32Array) => Outcome<Uint32Array, HandlerError>;
    readonly 'copy-slots': (context: unknown, a0: Queue, a1: number, a2: number, a3: number, a4: number, a5: number, a6: number) => void;
    readonly 'copy-tokens': (context: unknown, a0: Queue, a1: Uint32Array, a2: Uint32Array, a3: Uint32Array, a4: Uint32Array) => void;
    readonly 'copy-embeds': (context: unknown, a0: Queue, a1: Uint32Array, a2: Uint32Array) => void;
    readonly 'export-pages': (context: unknown, a0: Queue, a1: Uint32Array, a2: string, a3: boolean) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'import-pages': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<Imported, HandlerError>>;
    readonly 'make-durable': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'unexport': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'list-exports': (context: unknown, a0: Queue) => Promise<Outcome<readonly ExportInfo[], HandlerError>>;
    readonly 'export-residency': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<Residency, HandlerError>>;
    readonly 'pin-export': (context: unknown, a0: Queue, a1: string, a2: number) => Promise<Outcome<Residency, HandlerError>>;
    readonly 'unpin-export': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<Residency, HandlerError>>;
    readonly 'retain-export': (context: unknown, a0: Queue, a1: string, a2: number) => Promise<Outcome<Residency, HandlerError>>;
    readonly 'prefetch-export': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<Residency, HandlerError>>;
    readonly 'demote-export': (context: unknown, a0: Queue, a1: string, a2: Tier) => Promise<Outcome<Residency, HandlerError>>;
  };
  readonly 'forward': {
    readonly 'forward': (context: unknown, a0: Queue, a1: Uint32Array, a2: Uint32Array, a3: Uint32Array, a4: Uint32Array, a5: Mask | undefined) => void;
    readonly 'mask-page': (context: unknown, a0: Queue, a1: number, a2: number) => void;
  };
  readonly 'input-text': {
    readonly 'embed-text': (context: unknown, a0: Queue, a1: Uint32Array, a2: Uint32Array, a3: Uint32Array) => void;
  };
  readonly 'output-text': {
    readonly 'next-distribution': (context: unknown, a0: Queue, a1: number, a2: number) => Promise<Outcome<Distribution, HandlerError>>;
    readonly 'log-probabilities': (context: unknown, a0: Queue, a1: number, a2: Uint32Array) => Promise<Outcome<Float32Array, HandlerError>>;
    readonly 'entropy': (context: unknown, a0: Queue, a1: number) => Promise<Outcome<number, HandlerError>>;
    readonly 'read-embed': (context: unknown, a0: Queue, a1: number) => Promise<Outcome<Float32Array, HandlerError>>;
  };
  readonly 'fused': {
    readonly 'step': (context: unknown, a0: Queue, a1: StepRequest) => Promise<Outcome<StepResult, HandlerError>>;
    readonly '[constructor]run': (context: unknown, a0: Queue, a1: RunRequest) => Run;
    readonly '[method]run.next': (context: unknown, a0: Run) => Promise<Outcome<RunChunk, HandlerError>>;
    readonly '[method]run.pipe': (context: unknown, a0: Run, a1: PipeRequest) => Promise<Outcome<Piped, HandlerError>>;
    readonly '[method]run.stop': (context: unknown, a0: Run) => void;
    readonly '[resource-drop]run': (context: unknown, self: Run) => void;
  };
  readonly 'tokenize': {
    readonly 'tokenize': (context: unknown, a0: string, a1: string, a2: boolean) => Outcome<Uint32Array, HandlerError>;
    readonly 'detokenize': (context: unknown, a0: string, a1: Uint32Array, a2: boolean) => Outcome<string, HandlerError>;
    readonly 'special-tokens': (context: unknown, a0: string) => Outcome<SpecialTokenIds, HandlerError>;
    readonly 'vocabulary': (context: unknown, a0: string) => Outcome<readonly Uint8Array[], HandlerError>;
    readonly 'chat-template': (context: unknown, a0: string, a1: readonly ChatMessage[], a2: boolean) => Outcome<string, HandlerError>;
    readonly 'render-chat': (context: unknown, a0: string, a1: string) => Outcome<string, HandlerError>;
    readonly 'thoughts': (context: unknown, a0: string) => Outcome<ThoughtFormat | undefined, HandlerError>;
    readonly '[constructor]detokenizer': (context: unknown, a0: string) => Detokenizer;
    readonly '[method]detokenizer.push': (context: unknown, a0: Detokenizer, a1: Uint32Array) => Outcome<string, HandlerError>;
    readonly '[method]detokenizer.finish': (context: unknown, a0: Detokenizer) => string;
    readonly '[resource-drop]detokenizer': (context: unknown, self: Detokenizer) => void;
  };
  readonly 'grammar': {
    readonly 'step': (context: unknown, a0: Queue, a1: Matcher, a2: StepRequest) => Promise<Outcome<StepResult, HandlerError>>;
    readonly 'verify': (context: unknown, a0: Queue, a1: Matcher, a2: string | undefined, a3: StepRequest) => Promise<Outcome<StepResult, HandlerError>>;
    readonly 'start-run': (context: unknown, a0: Queue, a1: Matcher, a2: RunRequest) => Run;
    readonly '[constructor]compiled': (context: unknown, a0: string, a1: Source) => Compiled;
    readonly '[method]compiled.ready': (context: unknown, a0: Compiled) => Promise<Outcome<undefined, HandlerError>>;
    readonly '[constructor]matcher': (context: unknown, a0: Compiled) => Matcher;
    readonly '[method]matcher.accept': (context: unknown, a0: Matcher, a1: Uint32Array) => Promise<Outcome<boolean, HandlerError>>;
    readonly '[method]matcher.mask': (context: unknown, a0: Matcher) => Promise<Outcome<Uint32Array, HandlerError>>;
    readonly '[method]matcher.status': (context: unknown, a0: Matcher) => Promise<Outcome<MatchStatus, HandlerError>>;
    readonly '[method]matcher.jump': (context: unknown, a0: Matcher, a1: number) => Promise<Outcome<Uint32Array, HandlerError>>;
    readonly '[method]matcher.fork': (context: unknown, a0: Matcher) => Matcher;
    readonly '[method]matcher.rollback': (context: unknown, a0: Matcher, a1: number) => Promise<Outcome<undefined, HandlerError>>;
    readonly '[resource-drop]compiled': (context: unknown, self: Compiled) => void;
    readonly '[resource-drop]matcher': (context: unknown, self: Matcher) => void;
  };
  readonly 'penalties': {
    readonly 'start-run': (context: unknown, a0: Queue, a1: RunRequest, a2: LogitChanges) => Run;
  };
  readonly 'introspect': {
    readonly 'forward-scores': (context: unknown, a0: Queue, a1: Uint32Array, a2: Uint32Array, a3: Uint32Array, a4: Uint32Array, a5: Mask | undefined) => Promise<Outcome<Float32Array, HandlerError>>;
  };
  readonly 'kv-files': {
    readonly 'make-durable': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'remove': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'files': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<readonly KvFilesFileInfo[], HandlerError>>;
    readonly '[constructor]file': (context: unknown, a0: Queue, a1: string | undefined, a2: Access) => File;
    readonly '[method]file.ready': (context: unknown, a0: File) => Promise<Outcome<undefined, HandlerError>>;
    readonly '[method]file.tokens': (context: unknown, a0: File) => number;
    readonly '[method]file.next-position': (context: unknown, a0: File) => number;
    readonly '[method]file.pages': (context: unknown, a0: File) => Uint32Array;
    readonly '[method]file.reserve': (context: unknown, a0: File, a1: number) => Outcome<Uint32Array, HandlerError>;
    readonly '[method]file.filled': (context: unknown, a0: File, a1: number, a2: number) => void;
    readonly '[method]file.pred': (context: unknown, a0: File, a1: Uint32Array, a2: Uint32Array, a3: number) => Promise<Outcome<readonly Distribution[], HandlerError>>;
    readonly '[method]file.fork': (context: unknown, a0: File) => File;
    readonly '[method]file.extract': (context: unknown, a0: File, a1: Uint32Array, a2: number | undefined) => File;
    readonly '[method]file.merge': (context: unknown, a0: File, a1: File, a2: boolean) => Promise<Outcome<undefined, HandlerError>>;
    readonly '[method]file.save': (context: unknown, a0: File, a1: string, a2: boolean, a3: Rights) => Promise<Outcome<undefined, HandlerError>>;
    readonly '[method]file.unlock': (context: unknown, a0: File) => void;
    readonly '[resource-drop]file': (context: unknown, self: File) => void;
  };
  readonly 'input-image': {
    readonly 'image-dimensions': (context: unknown, a0: Uint8Array) => Outcome<Dimensions, HandlerError>;
    readonly 'image-embeds': (context: unknown, a0: Queue, a1: Dimensions) => Outcome<number, HandlerError>;
    readonly 'image-token': (context: unknown, a0: string) => Outcome<number, HandlerError>;
    readonly 'embed-image': (context: unknown, a0: Queue, a1: Uint8Array, a2: Uint32Array, a3: Uint32Array) => Promise<Outcome<undefined, HandlerError>>;
  };
  readonly 'adapter': {
    readonly 'list-adapters': (context: unknown, a0: Queue) => Promise<Outcome<readonly AdapterInfo[], HandlerError>>;
    readonly 'load-adapter': (context: unknown, a0: Queue, a1: string) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'forward-with-adapter': (context: unknown, a0: Queue, a1: string, a2: Uint32Array, a3: Uint32Array, a4: Uint32Array, a5: Uint32Array, a6: Mask | undefined) => void;
    readonly 'step': (context: unknown, a0: Queue, a1: string, a2: StepRequest) => Promise<Outcome<StepResult, HandlerError>>;
  };
  readonly 'embedding': {
    readonly 'encoders': (context: unknown) => readonly EncoderInfo[];
    readonly 'embed': (context: unknown, a0: string, a1: readonly string[]) => Promise<Outcome<Vectors, HandlerError>>;
  };
  readonly 'rerank': {
    readonly 'rerank': (context: unknown, a0: string, a1: string, a2: readonly string[]) => Promise<Outcome<Scores, HandlerError>>;
  };
  readonly 'index': {
    readonly 'create': (context: unknown, a0: string, a1: number, a2: Metric) => Promise<Outcome<IndexInfo, HandlerError>>;
    readonly 'upsert': (context: unknown, a0: string, a1: readonly IndexEntry[], a2: Float32Array) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'delete-entries': (context: unknown, a0: string, a1: readonly string[]) => Promise<Outcome<number, HandlerError>>;
    readonly 'query': (context: unknown, a0: string, a1: Float32Array | undefined, a2: string | undefined, a3: readonly Condition[], a4: number) => Promise<Outcome<readonly Match[], HandlerError>>;
    readonly 'stats': (context: unknown, a0: string) => Promise<Outcome<IndexInfo, HandlerError>>;
    readonly 'list-indexes': (context: unknown) => Promise<Outcome<readonly IndexInfo[], HandlerError>>;
    readonly 'drop-index': (context: unknown, a0: string) => Promise<Outcome<boolean, HandlerError>>;
  };
  readonly 'store': {
    readonly 'get': (context: unknown, a0: string) => Promise<Outcome<Entry | undefined, HandlerError>>;
    readonly 'set': (context: unknown, a0: string, a1: Uint8Array, a2: number | undefined) => Promise<Outcome<bigint, HandlerError>>;
    readonly 'compare-and-set': (context: unknown, a0: string, a1: bigint | undefined, a2: Uint8Array) => Promise<Outcome<bigint | undefined, HandlerError>>;
    readonly 'delete-key': (context: unknown, a0: string) => Promise<Outcome<boolean, HandlerError>>;
    readonly 'exists': (context: unknown, a0: string) => Promise<Outcome<boolean, HandlerError>>;
    readonly 'list-keys': (context: unknown, a0: string, a1: string | undefined, a2: number) => Promise<Outcome<readonly string[], HandlerError>>;
  };
  readonly 'messaging': {
    readonly 'broadcast': (context: unknown, a0: string, a1: Message) => Promise<Outcome<number, HandlerError>>;
    readonly 'push': (context: unknown, a0: string, a1: Message) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'pull': (context: unknown, a0: string) => Promise<Outcome<Envelope, HandlerError>>;
    readonly '[constructor]subscription': (context: unknown, a0: string) => Subscription;
    readonly '[method]subscription.ready': (context: unknown, a0: Subscription) => Promise<Outcome<undefined, HandlerError>>;
    readonly '[method]subscription.next': (context: unknown, a0: Subscription) => Promise<Outcome<Envelope, HandlerError>>;
    readonly '[method]subscription.unsubscribe': (context: unknown, a0: Subscription) => void;
    readonly '[resource-drop]subscription': (context: unknown, self: Subscription) => void;
  };
  readonly 'http': {
    readonly '[constructor]exchange': (context: unknown, a0: Request) => Exchange;
    readonly '[method]exchange.head': (context: unknown, a0: Exchange) => Promise<Outcome<ResponseHead, HandlerError>>;
    readonly '[method]exchange.read': (context: unknown, a0: Exchange) => Promise<Outcome<Uint8Array | undefined, HandlerError>>;
    readonly '[resource-drop]exchange': (context: unknown, self: Exchange) => void;
  };
  readonly 'children': {
    readonly '[constructor]child': (context: unknown, a0: string, a1: string) => Child;
    readonly '[method]child.started': (context: unknown, a0: Child) => Promise<Outcome<string, HandlerError>>;
    readonly '[method]child.send': (context: unknown, a0: Child, a1: Message) => Promise<Outcome<undefined, HandlerError>>;
    readonly '[method]child.close': (context: unknown, a0: Child) => void;
    readonly '[method]child.receive': (context: unknown, a0: Child) => Promise<Outcome<Message, HandlerError>>;
    readonly '[method]child.wait': (context: unknown, a0: Child) => Promise<Outcome<Ending, HandlerError>>;
    readonly '[method]child.cancel': (context: unknown, a0: Child) => void;
    readonly '[resource-drop]child': (context: unknown, self: Child) => void;
  };
  readonly 'file-exchange': {
    readonly 'send-file': (context: unknown, a0: string, a1: string, a2: Uint8Array) => Promise<Outcome<undefined, HandlerError>>;
    readonly 'receive-file': (context: unknown, a0: string) => Promise<Outcome<FileExchangeFile, HandlerError>>;
    readonly 'list-files': (context: unknown) => Promise<Outcome<readonly FileExchangeFileInfo[], HandlerError>>;
  };
  readonly 'environment': {
    readonly 'get-variable': (context: unknown, a0: string) => string | undefined;
    readonly 'list-variables': (context: unknown) => readonly string[];
  };
  readonly 'person': {
    readonly 'ask': (context: unknown, a0: Question) => Outcome<undefined, HandlerError>;
    readonly 'resumed': (context: unknown) => Resumption | undefined;
  };
}

/** Interface and core name of each host function. */
export const HOST_FUNCTIONS: readonly (readonly [string, string])[] = [
  ['runtime', 'version'],
  ['runtime', 'instance-id'],
  ['runtime', 'tenant'],
  ['runtime', 'get-arguments'],
  ['runtime', 'function-name'],
  ['runtime', 'function-version'],
  ['runtime', 'models'],
  ['runtime', 'model-traits'],
  ['runtime', 'metadata'],
  ['runtime', 'efficient-tokens'],
  ['runtime', 'debug-query'],
  ['runtime', 'log'],
  ['runtime', 'record-span'],
  ['runtime', 'is-cancelled'],
  ['runtime', 'time-left'],
  ['runtime', 'now'],
  ['runtime', 'random'],
  ['runtime', 'sleep'],
  ['session', 'send'],
  ['session', 'flush'],
  ['session', 'receive'],
  ['queue', '[constructor]queue'],
  ['queue', '[method]queue.set-priority'],
  ['queue', '[method]queue.set-depth'],
  ['queue', '[method]queue.stop'],
  ['queue', '[method]queue.synchronize'],
  ['queue', '[resource-drop]queue'],
  ['allocate', 'page-size'],
  ['allocate', 'allocate-pages'],
  ['allocate', 'free-pages'],
  ['allocate', 'allocate-embeds'],
  ['allocate', 'free-embeds'],
  ['allocate', 'share-pages'],
  ['allocate', 'copy-slots'],
  ['allocate', 'copy-tokens'],
  ['allocate', 'copy-embeds'],
  ['allocate', 'export-pages'],
  ['allocate', 'import-pages'],
  ['allocate', 'make-durable'],
  ['allocate', 'unexport'],
  ['allocate', 'list-exports'],
  ['allocate', 'export-residency'],
  ['allocate', 'pin-export'],
  ['allocate', 'unpin-export'],
  ['allocate', 'retain-export'],
  ['allocate', 'prefetch-export'],
  ['allocate', 'demote-export'],
  ['forward', 'forward'],
  ['forward', 'mask-page'],
  ['input-text', 'embed-text'],
  ['output-text', 'next-distribution'],
  ['output-text', 'log-probabilities'],
  ['output-text', 'entropy'],
  ['output-text', 'read-embed'],
  ['fused', 'step'],
  ['fused', '[constructor]run'],
  ['fused', '[method]run.next'],
  ['fused', '[method]run.pipe'],
  ['fused', '[method]run.stop'],
  ['fused', '[resource-drop]run'],
  ['tokenize', 'tokenize'],
  ['tokenize', 'detokenize'],
  ['tokenize', 'special-tokens'],
  ['tokenize', 'vocabulary'],
  ['tokenize', 'chat-template'],
  ['tokenize', 'render-chat'],
  ['tokenize', 'thoughts'],
  ['tokenize', '[constructor]detokenizer'],
  ['tokenize', '[method]detokenizer.push'],
  ['tokenize', '[method]detokenizer.finish'],
  ['tokenize', '[resource-drop]detokenizer'],
  ['grammar', 'step'],
  ['grammar', 'verify'],
  ['grammar', 'start-run'],
  ['grammar', '[constructor]compiled'],
  ['grammar', '[method]compiled.ready'],
  ['grammar', '[constructor]matcher'],
  ['grammar', '[method]matcher.accept'],
  ['grammar', '[method]matcher.mask'],
  ['grammar', '[method]matcher.status'],
  ['grammar', '[method]matcher.jump'],
  ['grammar', '[method]matcher.fork'],
  ['grammar', '[method]matcher.rollback'],
  ['grammar', '[resource-drop]compiled'],
  ['grammar', '[resource-drop]matcher'],
  ['penalties', 'start-run'],
  ['introspect', 'forward-scores'],
  ['kv-files', 'make-durable'],
  ['kv-files', 'remove'],
  ['kv-files', 'files'],
  ['kv-files', '[constructor]file'],
  ['kv-files', '[method]file.ready'],
  ['kv-files', '[method]file.tokens'],
  ['kv-files', '[method]file.next-position'],
  ['kv-files', '[method]file.pages'],
  ['kv-files', '[method]file.reserve'],
  ['kv-files', '[method]file.filled'],
  ['kv-files', '[method]file.pred'],
  ['kv-files', '[method]file.fork'],
  ['kv-files', '[method]file.extract'],
  ['kv-files', '[method]file.merge'],
  ['kv-files', '[method]file.save'],
  ['kv-files', '[method]file.unlock'],
  ['kv-files', '[resource-drop]file'],
  ['input-image', 'image-dimensions'],
  ['input-image', 'image-embeds'],
  ['input-image', 'image-token'],
  ['input-image', 'embed-image'],
  ['adapter', 'list-adapters'],
  ['adapter', 'load-adapter'],
  ['adapter', 'forward-with-adapter'],
  ['adapter', 'step'],
  ['embedding', 'encoders'],
  ['embedding', 'embed'],
  ['rerank', 'rerank'],
  ['index', 'create'],
  ['index', 'upsert'],
  ['index', 'delete-entries'],
  ['index', 'query'],
  ['index', 'stats'],
  ['index', 'list-indexes'],
  ['index', 'drop-index'],
  ['store', 'get'],
  ['store', 'set'],
  ['store', 'compare-and-set'],
  ['store', 'delete-key'],
  ['store', 'exists'],
  ['store', 'list-keys'],
  ['messaging', 'broadcast'],
  ['messaging', 'push'],
  ['messaging', 'pull'],
  ['messaging', '[constructor]subscription'],
  ['messaging', '[method]subscription.ready'],
  ['messaging', '[method]subscription.next'],
  ['messaging', '[method]subscription.unsubscribe'],
  ['messaging', '[resource-drop]subscription'],
  ['http', '[constructor]exchange'],
  ['http', '[method]exchange.head'],
  ['http', '[method]exchange.read'],
  ['http', '[resource-drop]exchange'],
  ['children', '[constructor]child'],
  ['children', '[method]child.started'],
  ['children', '[method]child.send'],
  ['children', '[method]child.close'],
  ['children', '[method]child.receive'],
  ['children', '[method]child.wait'],
  ['children', '[method]child.cancel'],
  ['children', '[resource-drop]child'],
  ['file-exchange', 'send-file'],
  ['file-exchange', 'receive-file'],
  ['file-exchange', 'list-files'],
  ['environment', 'get-variable'],
  ['environment', 'list-variables'],
  ['person', 'ask'],
  ['person', 'resumed'],
];

/** Lowers every function of the contract onto `host`, which has each of `HOST_FUNCTIONS`. */
export function lower(host: HostFunctions): Lowering {
  const h0 = host['runtime']['version'];
  const h1 = host['runtime']['instance-id'];
  const h2 = host['runtime']['tenant'];
  const h3 = host['runtime']['get-arguments'];
  const h4 = host['runtime']['function-name'];
  const h5 = host['runtime']['function-version'];
  const h6 = host['runtime']['models'];
  const h7 = host['runtime']['model-traits'];
  const h8 = host['runtime']['metadata'];
  const h9 = host['runtime']['efficient-tokens'];
  const h10 = host['runtime']['debug-query'];
  const h11 = host['runtime']['log'];
  const h12 = host['runtime']['record-span'];
  const h13 = host['runtime']['is-cancelled'];
  const h14 = host['runtime']['time-left'];
  const h15 = host['runtime']['now'];
  const h16 = host['runtime']['random'];
  const h17 = host['runtime']['sleep'];
  const h18 = host['session']['send'];
  const h19 = host['session']['flush'];
  const h20 = host['session']['receive'];
  const h21 = host['queue']['[constructor]queue'];
  const h22 = host['queue']['[method]queue.set-priority'];
  const h23 = host['queue']['[method]queue.set-depth'];
  const h24 = host['queue']['[method]queue.stop'];
  const h25 = host['queue']['[method]queue.synchronize'];
  const h26 = host['queue']['[resource-drop]queue'];
  const h27 = host['allocate']['page-size'];
  const h28 = host['allocate']['allocate-pages'];
  const h29 = host['allocate']['free-pages'];
  const h30 = host['allocate']['allocate-embeds'];
  const h31 = host['allocate']['free-embeds'];
  const h32 = host['allocate']['share-pages'];
  const h33 = host['allocate']['copy-slots'];
  const h34 = host['allocate']['copy-tokens'];
  const h35 = host['allocate']['copy-embeds'];
  const h36 = host['allocate']['export-pages'];
  const h37 = host['allocate']['import-pages'];
  const h38 = host['allocate']['make-durable'];
  const h39 = host['allocate']['unexport'];
  const h40 = host['allocate']['list-exports'];
  const h41 = host['allocate']['export-residency'];
  const h42 = host['allocate']['pin-export'];
  const h43 = host['allocate']['unpin-export'];
  const h44 = host['allocate']['retain-export'];
  const h45 = host['allocate']['prefetch-export'];
  const h46 = host['allocate']['demote-export'];
  const h47 = host['forward']['forward'];
  const h48 = host['forward']['mask-page'];
  const h49 = host['input-text']['embed-text'];
  const h50 = host['output-text']['next-distribution'];
  const h51 = host['output-text']['log-probabilities'];
  const h52 = host['output-text']['entropy'];
  const h53 = host['output-text']['read-embed'];
  const h54 = host['fused']['step'];
  const h55 = host['fused']['[constructor]run'];
  const h56 = host['fused']['[method]run.next'];
  const h57 = host['fused']['[method]run.pipe'];
  const h58 = host['fused']['[method]run.stop'];
  const h59 = host['fused']['[resource-drop]run'];
  const h60 = host['tokenize']['tokenize'];
  const h61 = host['tokenize']['detokenize'];
  const h62 = host['tokenize']['special-tokens'];
  const h63 = host['tokenize']['vocabulary'];
  const h64 = host['tokenize']['chat-template'];
  const h65 = host['tokenize']['render-chat'];
  const h66 = host['tokenize']['thoughts'];
  const h67 = host['tokenize']['[constructor]detokenizer'];
  const h68 = host['tokenize']['[method]detokenizer.push'];
  const h69 = host['tokenize']['[method]detokenizer.finish'];
  const h70 = host['tokenize']['[resource-drop]detokenizer'];
  const h71 = host['grammar']['step'];
  const h72 = host['grammar']['verify'];
  const h73 = host['grammar']['start-run'];
  const h74 = host['grammar']['[constructor]compiled'];
  const h75 = host['grammar']['[method]compiled.ready'];
  const h76 = host['grammar']['[constructor]matcher'];
  const h77 = host['grammar']['[method]matcher.accept'];
  const h78 = host['grammar']['[method]matcher.mask'];
  const h79 = host['grammar']['[method]matcher.status'];
  const h80 = host['grammar']['[method]matcher.jump'];
  const h81 = host['grammar']['[method]matcher.fork'];
  const h82 = host['grammar']['[method]matcher.rollback'];
  const h83 = host['grammar']['[resource-drop]compiled'];
  const h84 = host['grammar']['[resource-drop]matcher'];
  const h85 = host['penalties']['start-run'];
  const h86 = host['introspect']['forward-scores'];
  const h87 = host['kv-files']['make-durable'];
  const h88 = host['kv-files']['remove'];
  const h89 = host['kv-files']['files'];
  const h90 = host['kv-files']['[constructor]file'];
  const h91 = host['kv-files']['[method]file.ready'];
  const h92 = host['kv-files']['[method]file.tokens'];
  const h93 = host['kv-files']['[method]file.next-position'];
  const h94 = host['kv-files']['[method]file.pages'];
  const h95 = host['kv-files']['[method]file.reserve'];
  const h96 = host['kv-files']['[method]file.filled'];
  const h97 = host['kv-files']['[method]file.pred'];
  const h98 = host['kv-files']['[method]file.fork'];
  const h99 = host['kv-files']['[method]file.extract'];
  const h100 = host['kv-files']['[method]file.merge'];
  const h101 = host['kv-files']['[method]file.save'];
  const h102 = host['kv-files']['[method]file.unlock'];
  const h103 = host['kv-files']['[resource-drop]file'];
  const h104 = host['input-image']['image-dimensions'];
  const h105 = host['input-image']['image-embeds'];
  const h106 = host['input-image']['image-token'];
  const h107 = host['input-image']['embed-image'];
  const h108 = host['adapter']['list-adapters'];
  const h109 = host['adapter']['load-adapter'];
  const h110 = host['adapter']['forward-with-adapter'];
  const h111 = host['adapter']['step'];
  const h112 = host['embedding']['encoders'];
  const h113 = host['embedding']['embed'];
  const h114 = host['rerank']['rerank'];
  const h115 = host['index']['create'];
  const h116 = host['index']['upsert'];
  const h117 = host['index']['delete-entries'];
  const h118 = host['index']['query'];
  const h119 = host['index']['stats'];
  const h120 = host['index']['list-indexes'];
  const h121 = host['index']['drop-index'];
  const h122 = host['store']['get'];
  const h123 = host['store']['set'];
  const h124 = host['store']['compare-and-set'];
  const h125 = host['store']['delete-key'];
  const h126 = host['store']['exists'];
  const h127 = host['store']['list-keys'];
  const h128 = host['messaging']['broadcast'];
  const h129 = host['messaging']['push'];
  const h130 = host['messaging']['pull'];
  const h131 = host['messaging']['[constructor]subscription'];
  const h132 = host['messaging']['[method]subscription.ready'];
  const h133 = host['messaging']['[method]subscription.next'];
  const h134 = host['messaging']['[method]subscription.unsubscribe'];
  const h135 = host['messaging']['[resource-drop]subscription'];
  const h136 = host['http']['[constructor]exchange'];
  const h137 = host['http']['[method]exchange.head'];
  const h138 = host['http']['[method]exchange.read'];
  const h139 = host['http']['[resource-drop]exchange'];
  const h140 = host['children']['[constructor]child'];
  const h141 = host['children']['[method]child.started'];
  const h142 = host['children']['[method]child.send'];
  const h143 = host['children']['[method]child.close'];
  const h144 = host['children']['[method]child.receive'];
  const h145 = host['children']['[method]child.wait'];
  const h146 = host['children']['[method]child.cancel'];
  const h147 = host['children']['[resource-drop]child'];
  const h148 = host['file-exchange']['send-file'];
  const h149 = host['file-exchange']['receive-file'];
  const h150 = host['file-exchange']['list-files'];
  const h151 = host['environment']['get-variable'];
  const h152 = host['environment']['list-variables'];
  const h153 = host['person']['ask'];
  const h154 = host['person']['resumed'];
  function store0(g: LoweredGuest, p: number, v: readonly ModelInfo[]): void {
    const n = v.length;
    const a = g.alloc(n * 28, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 28;
      store1(g, e, (v[i] as ModelInfo));
    }
  }
  function store1(g: LoweredGuest, p: number, v: ModelInfo): void {
    g.putString(p + 0, v.name);
    g.u32[(p + 8) >>> 2] = v.contextLength;
    g.u32[(p + 12) >>> 2] = v.vocabularySize;
    g.u32[(p + 16) >>> 2] = v.pageSize;
    store2(g, p + 20, v.traits);
  }
  function store2(g: LoweredGuest, p: number, v: readonly string[]): void {
    const n = v.length;
    const a = g.alloc(n * 8, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      g.putString(e, (v[i] as string));
    }
  }
  function store3(g: LoweredGuest, p: number, v: Outcome<readonly string[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store4(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store4(g: LoweredGuest, p: number, v: readonly string[]): void {
    const n = v.length;
    const a = g.alloc(n * 8, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      g.putString(e, (v[i] as string));
    }
  }
  function store5(g: LoweredGuest, p: number, v: HandlerError): void {
    switch (v.tag) {
      case 'invalid-argument': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'not-owned': g.u8[p] = 1; g.putString(p + 4, v.val); return;
      case 'unsupported': g.u8[p] = 2; g.putString(p + 4, v.val); return;
      case 'not-found': g.u8[p] = 3; g.putString(p + 4, v.val); return;
      case 'limit-exceeded': g.u8[p] = 4; g.putString(p + 4, v.val); return;
      case 'context-overflow': g.u8[p] = 5; g.putString(p + 4, v.val); return;
      case 'dependency-failed': g.u8[p] = 6; g.putString(p + 4, v.val); return;
      case 'cancelled': g.u8[p] = 7; g.putString(p + 4, v.val); return;
      case 'deadline-exceeded': g.u8[p] = 8; g.putString(p + 4, v.val); return;
      case 'terminated': g.u8[p] = 9; g.putString(p + 4, v.val); return;
      case 'unavailable': g.u8[p] = 10; g.putString(p + 4, v.val); return;
      case 'closed': g.u8[p] = 11; g.putString(p + 4, v.val); return;
      case 'internal': g.u8[p] = 12; g.putString(p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store6(g: LoweredGuest, p: number, v: Outcome<ModelMetadata, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store7(g, p + 8, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 8, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store7(g: LoweredGuest, p: number, v: ModelMetadata): void {
    g.putString(p + 0, v.architecture);
    g.u64[(p + 8) >>> 3] = BigInt(v.parameters);
    g.u32[(p + 16) >>> 2] = v.layers;
    g.u32[(p + 20) >>> 2] = v.hiddenSize;
    g.u32[(p + 24) >>> 2] = v.attentionHeads;
    g.u32[(p + 28) >>> 2] = v.keyValueHeads;
    g.u32[(p + 32) >>> 2] = v.headSize;
    g.u32[(p + 36) >>> 2] = v.bits;
  }
  function store8(g: LoweredGuest, p: number, v: Outcome<number | undefined, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store9(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store9(g: LoweredGuest, p: number, v: number | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.u32[(p + 4) >>> 2] = v;
    }
  }
  function store10(g: LoweredGuest, p: number, v: Outcome<string, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function lift11(g: LoweredGuest, f0: number): LogLevel {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return 'debug';
      case 1: return 'info';
      case 2: return 'warn';
      case 3: return 'error';
      default: return g.trap(`${d} is no case of log-level`);
    }
  }
  function lift12(g: LoweredGuest, f0: number, f1: number, f2: number): Message {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return { tag: 'text', val: g.string(f1, f2) };
      case 1: return { tag: 'bytes', val: g.listU8(f1, f2) };
      default: return g.trap(`${d} is no case of message`);
    }
  }
  function store13(g: LoweredGuest, p: number, v: Outcome<undefined, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store14(g: LoweredGuest, p: number, v: Outcome<Uint32Array, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putU32(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store15(g: LoweredGuest, p: number, v: Outcome<Uint32Array, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putU32(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store16(g: LoweredGuest, p: number, v: Outcome<Uint32Array, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putU32(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function lift17(g: LoweredGuest, f0: number): Tier {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return 'device';
      case 1: return 'memory';
      case 2: return 'disk';
      default: return g.trap(`${d} is no case of tier`);
    }
  }
  function lift18(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number): Mask | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return lift19(g, f1, f2, f3, f4);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift19(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number): Mask {
    return {
      runs: g.listU32(f0, f1),
      rowLengths: g.listU32(f2, f3),
    };
  }
  function load20(g: LoweredGuest, p: number): readonly [Queue, StepRequest] {
    return [
      (g.resource(g.u32[(p + 0) >>> 2], 0) as Queue),
      load21(g, p + 4),
    ];
  }
  function load21(g: LoweredGuest, p: number): StepRequest {
    return {
      tokens: g.listU32(g.u32[(p + 0) >>> 2], g.u32[(p + 0 + 4) >>> 2]),
      positions: g.listU32(g.u32[(p + 8) >>> 2], g.u32[(p + 8 + 4) >>> 2]),
      inPages: g.listU32(g.u32[(p + 16) >>> 2], g.u32[(p + 16 + 4) >>> 2]),
      outPages: g.listU32(g.u32[(p + 24) >>> 2], g.u32[(p + 24 + 4) >>> 2]),
      mask: load22(g, p + 32),
      rows: g.u32[(p + 52) >>> 2],
      output: load24(g, p + 56),
    };
  }
  function load22(g: LoweredGuest, p: number): Mask | undefined {
    const d = g.u8[p];
    switch (d) {
      case 0: return undefined;
      case 1: return load23(g, p + 4);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function load23(g: LoweredGuest, p: number): Mask {
    return {
      runs: g.listU32(g.u32[(p + 0) >>> 2], g.u32[(p + 0 + 4) >>> 2]),
      rowLengths: g.listU32(g.u32[(p + 8) >>> 2], g.u32[(p + 8 + 4) >>> 2]),
    };
  }
  function load24(g: LoweredGuest, p: number): Output {
    const d = g.u8[p];
    switch (d) {
      case 0: return { tag: 'none' };
      case 1: return { tag: 'sample', val: load25(g, p + 4) };
      case 2: return { tag: 'distributions', val: g.u32[(p + 4) >>> 2] };
      default: return g.trap(`${d} is no case of output`);
    }
  }
  function load25(g: LoweredGuest, p: number): Sampler {
    return {
      temperature: g.f32[(p + 0) >>> 2],
      topK: g.u32[(p + 4) >>> 2],
      topP: g.f32[(p + 8) >>> 2],
      minP: g.f32[(p + 12) >>> 2],
      seed: g.u32[(p + 16) >>> 2],
    };
  }
  function lift26(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number, f5: number, f6: number, f7: number, f8: number, f9: number, f10: number, f11: number): RunRequest {
    return {
      token: (f0 >>> 0),
      position: (f1 >>> 0),
      pages: g.listU32(f2, f3),
      maxTokens: (f4 >>> 0),
      sampler: lift27(g, f5, f6, f7, f8, f9),
      stopTokens: g.listU32(f10, f11),
    };
  }
  function lift27(_g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number): Sampler {
    return {
      temperature: f0,
      topK: (f1 >>> 0),
      topP: f2,
      minP: f3,
      seed: (f4 >>> 0),
    };
  }
  function lift28(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number, f5: number, f6: number, f7: number, f8: number, f9: number, f10: number, f11: number, f12: number): PipeRequest {
    return {
      before: g.listU32(f0, f1),
      held: g.string(f2, f3),
      stops: list29(g, f4, f5),
      frame: lift30(g, f6, f7, f8, f9, f10, f11, f12),
    };
  }
  function list29(g: LoweredGuest, p: number, n: number): readonly string[] {
    n >>>= 0;
    const a = g.items(p, n, 8, 4);
    const v: string[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      v[i] = g.string(g.u32[(e) >>> 2], g.u32[(e + 4) >>> 2]);
    }
    return v;
  }
  function lift30(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number, f5: number, f6: number): Frame | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return lift31(g, f1, f2, f3, f4, f5, f6);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift31(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number, f5: number): Frame {
    return {
      opening: g.string(f0, f1),
      before: g.string(f2, f3),
      after: g.string(f4, f5),
    };
  }
  function store32(g: LoweredGuest, p: number, v: Outcome<Uint32Array, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putU32(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store33(g: LoweredGuest, p: number, v: Outcome<string, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store34(g: LoweredGuest, p: number, v: Outcome<SpecialTokenIds, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store35(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store35(g: LoweredGuest, p: number, v: SpecialTokenIds): void {
    store36(g, p + 0, v.bos);
    g.putU32(p + 8, v.eos);
    store37(g, p + 16, v.pad);
    store38(g, p + 24, v.unknown);
  }
  function store36(g: LoweredGuest, p: number, v: number | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.u32[(p + 4) >>> 2] = v;
    }
  }
  function store37(g: LoweredGuest, p: number, v: number | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.u32[(p + 4) >>> 2] = v;
    }
  }
  function store38(g: LoweredGuest, p: number, v: number | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.u32[(p + 4) >>> 2] = v;
    }
  }
  function store39(g: LoweredGuest, p: number, v: Outcome<readonly Uint8Array[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store40(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store40(g: LoweredGuest, p: number, v: readonly Uint8Array[]): void {
    const n = v.length;
    const a = g.alloc(n * 8, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      g.putU8(e, (v[i] as Uint8Array));
    }
  }
  function list41(g: LoweredGuest, p: number, n: number): readonly ChatMessage[] {
    n >>>= 0;
    const a = g.items(p, n, 16, 4);
    const v: ChatMessage[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 16;
      v[i] = load42(g, e);
    }
    return v;
  }
  function load42(g: LoweredGuest, p: number): ChatMessage {
    return {
      role: g.string(g.u32[(p + 0) >>> 2], g.u32[(p + 0 + 4) >>> 2]),
      content: g.string(g.u32[(p + 8) >>> 2], g.u32[(p + 8 + 4) >>> 2]),
    };
  }
  function store43(g: LoweredGuest, p: number, v: Outcome<string, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store44(g: LoweredGuest, p: number, v: Outcome<string, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store45(g: LoweredGuest, p: number, v: Outcome<ThoughtFormat | undefined, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store46(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store46(g: LoweredGuest, p: number, v: ThoughtFormat | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      store47(g, p + 4, v);
    }
  }
  function store47(g: LoweredGuest, p: number, v: ThoughtFormat): void {
    g.putString(p + 0, v.open);
    g.putString(p + 8, v.close);
    g.putString(p + 16, v.begin);
    g.putString(p + 24, v.end);
    store48(g, p + 32, v.field);
    store49(g, p + 44, v.toggles);
    store50(g, p + 52, v.efforts);
  }
  function store48(g: LoweredGuest, p: number, v: string | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.putString(p + 4, v);
    }
  }
  function store49(g: LoweredGuest, p: number, v: readonly string[]): void {
    const n = v.length;
    const a = g.alloc(n * 8, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      g.putString(e, (v[i] as string));
    }
  }
  function store50(g: LoweredGuest, p: number, v: readonly string[]): void {
    const n = v.length;
    const a = g.alloc(n * 8, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      g.putString(e, (v[i] as string));
    }
  }
  function store51(g: LoweredGuest, p: number, v: Outcome<string, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function load52(g: LoweredGuest, p: number): readonly [Queue, Matcher, StepRequest] {
    return [
      (g.resource(g.u32[(p + 0) >>> 2], 0) as Queue),
      (g.resource(g.u32[(p + 4) >>> 2], 3) as Matcher),
      load21(g, p + 8),
    ];
  }
  function load53(g: LoweredGuest, p: number): readonly [Queue, Matcher, string | undefined, StepRequest] {
    return [
      (g.resource(g.u32[(p + 0) >>> 2], 0) as Queue),
      (g.resource(g.u32[(p + 4) >>> 2], 3) as Matcher),
      load54(g, p + 8),
      load21(g, p + 20),
    ];
  }
  function load54(g: LoweredGuest, p: number): string | undefined {
    const d = g.u8[p];
    switch (d) {
      case 0: return undefined;
      case 1: return g.string(g.u32[(p + 4) >>> 2], g.u32[(p + 4 + 4) >>> 2]);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift55(g: LoweredGuest, f0: number, f1: number, f2: number): Source {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return { tag: 'json-schema', val: g.string(f1, f2) };
      case 1: return { tag: 'regex', val: g.string(f1, f2) };
      case 2: return { tag: 'ebnf', val: g.string(f1, f2) };
      case 3: return { tag: 'json' };
      default: return g.trap(`${d} is no case of source`);
    }
  }
  function load56(g: LoweredGuest, p: number): readonly [Queue, RunRequest, LogitChanges] {
    return [
      (g.resource(g.u32[(p + 0) >>> 2], 0) as Queue),
      load57(g, p + 4),
      load58(g, p + 52),
    ];
  }
  function load57(g: LoweredGuest, p: number): RunRequest {
    return {
      token: g.u32[(p + 0) >>> 2],
      position: g.u32[(p + 4) >>> 2],
      pages: g.listU32(g.u32[(p + 8) >>> 2], g.u32[(p + 8 + 4) >>> 2]),
      maxTokens: g.u32[(p + 16) >>> 2],
      sampler: load25(g, p + 20),
      stopTokens: g.listU32(g.u32[(p + 40) >>> 2], g.u32[(p + 40 + 4) >>> 2]),
    };
  }
  function load58(g: LoweredGuest, p: number): LogitChanges {
    return {
      frequency: g.f32[(p + 0) >>> 2],
      presence: g.f32[(p + 4) >>> 2],
      biasTokens: g.listU32(g.u32[(p + 8) >>> 2], g.u32[(p + 8 + 4) >>> 2]),
      biasValues: g.listF32(g.u32[(p + 16) >>> 2], g.u32[(p + 16 + 4) >>> 2]),
      chosen: g.listU32(g.u32[(p + 24) >>> 2], g.u32[(p + 24 + 4) >>> 2]),
    };
  }
  function lift59(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number): Mask | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return lift19(g, f1, f2, f3, f4);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift60(g: LoweredGuest, f0: number, f1: number, f2: number): string | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return g.string(f1, f2);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift61(g: LoweredGuest, f0: number): Access {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return 'read';
      case 1: return 'write';
      default: return g.trap(`${d} is no case of access`);
    }
  }
  function store62(g: LoweredGuest, p: number, v: Outcome<Uint32Array, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putU32(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function lift63(g: LoweredGuest, f0: number, f1: number): number | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return (f1 >>> 0);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift64(g: LoweredGuest, f0: number): Rights {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return 'private';
      case 1: return 'readable';
      case 2: return 'writable';
      default: return g.trap(`${d} is no case of rights`);
    }
  }
  function store65(g: LoweredGuest, p: number, v: Outcome<Dimensions, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store66(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store66(g: LoweredGuest, p: number, v: Dimensions): void {
    g.u32[(p + 0) >>> 2] = v.width;
    g.u32[(p + 4) >>> 2] = v.height;
  }
  function lift67(_g: LoweredGuest, f0: number, f1: number): Dimensions {
    return {
      width: (f0 >>> 0),
      height: (f1 >>> 0),
    };
  }
  function store68(g: LoweredGuest, p: number, v: Outcome<number, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.u32[(p + 4) >>> 2] = v.val; return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store69(g: LoweredGuest, p: number, v: Outcome<number, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.u32[(p + 4) >>> 2] = v.val; return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function lift70(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number): Mask | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return lift19(g, f1, f2, f3, f4);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function load71(g: LoweredGuest, p: number): readonly [Queue, string, StepRequest] {
    return [
      (g.resource(g.u32[(p + 0) >>> 2], 0) as Queue),
      g.string(g.u32[(p + 4) >>> 2], g.u32[(p + 4 + 4) >>> 2]),
      load21(g, p + 12),
    ];
  }
  function store72(g: LoweredGuest, p: number, v: readonly EncoderInfo[]): void {
    const n = v.length;
    const a = g.alloc(n * 20, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 20;
      store73(g, e, (v[i] as EncoderInfo));
    }
  }
  function store73(g: LoweredGuest, p: number, v: EncoderInfo): void {
    g.putString(p + 0, v.name);
    store74(g, p + 8, v.kind);
    g.u32[(p + 12) >>> 2] = v.size;
    g.u32[(p + 16) >>> 2] = v.contextLength;
  }
  function store74(g: LoweredGuest, p: number, v: EncoderKind): void {
    g.u8[p] = case75(v);
  }
  function case75(v: EncoderKind): number {
    switch (v) {
      case 'embedding': return 0;
      case 'reranker': return 1;
      default: throw new TypeError('a value without a case');
    }
  }
  function list76(g: LoweredGuest, p: number, n: number): readonly string[] {
    n >>>= 0;
    const a = g.items(p, n, 8, 4);
    const v: string[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      v[i] = g.string(g.u32[(e) >>> 2], g.u32[(e + 4) >>> 2]);
    }
    return v;
  }
  function list77(g: LoweredGuest, p: number, n: number): readonly string[] {
    n >>>= 0;
    const a = g.items(p, n, 8, 4);
    const v: string[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      v[i] = g.string(g.u32[(e) >>> 2], g.u32[(e + 4) >>> 2]);
    }
    return v;
  }
  function lift78(g: LoweredGuest, f0: number): Metric {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return 'cosine';
      case 1: return 'dot-product';
      case 2: return 'euclidean';
      default: return g.trap(`${d} is no case of metric`);
    }
  }
  function list79(g: LoweredGuest, p: number, n: number): readonly IndexEntry[] {
    n >>>= 0;
    const a = g.items(p, n, 28, 4);
    const v: IndexEntry[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 28;
      v[i] = load80(g, e);
    }
    return v;
  }
  function load80(g: LoweredGuest, p: number): IndexEntry {
    return {
      id: g.string(g.u32[(p + 0) >>> 2], g.u32[(p + 0 + 4) >>> 2]),
      text: load81(g, p + 8),
      fields: list82(g, g.u32[(p + 20) >>> 2], g.u32[(p + 20 + 4) >>> 2]),
    };
  }
  function load81(g: LoweredGuest, p: number): string | undefined {
    const d = g.u8[p];
    switch (d) {
      case 0: return undefined;
      case 1: return g.string(g.u32[(p + 4) >>> 2], g.u32[(p + 4 + 4) >>> 2]);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function list82(g: LoweredGuest, p: number, n: number): readonly Field[] {
    n >>>= 0;
    const a = g.items(p, n, 24, 8);
    const v: Field[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 24;
      v[i] = load83(g, e);
    }
    return v;
  }
  function load83(g: LoweredGuest, p: number): Field {
    return {
      name: g.string(g.u32[(p + 0) >>> 2], g.u32[(p + 0 + 4) >>> 2]),
      value: load84(g, p + 8),
    };
  }
  function load84(g: LoweredGuest, p: number): Value {
    const d = g.u8[p];
    switch (d) {
      case 0: return { tag: 'text', val: g.string(g.u32[(p + 8) >>> 2], g.u32[(p + 8 + 4) >>> 2]) };
      case 1: return { tag: 'number', val: g.f64[(p + 8) >>> 3] };
      case 2: return { tag: 'boolean', val: (g.u8[p + 8] !== 0) };
      default: return g.trap(`${d} is no case of value`);
    }
  }
  function list85(g: LoweredGuest, p: number, n: number): readonly string[] {
    n >>>= 0;
    const a = g.items(p, n, 8, 4);
    const v: string[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      v[i] = g.string(g.u32[(e) >>> 2], g.u32[(e + 4) >>> 2]);
    }
    return v;
  }
  function lift86(g: LoweredGuest, f0: number, f1: number, f2: number): Float32Array | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return g.listF32(f1, f2);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift87(g: LoweredGuest, f0: number, f1: number, f2: number): string | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return g.string(f1, f2);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function list88(g: LoweredGuest, p: number, n: number): readonly Condition[] {
    n >>>= 0;
    const a = g.items(p, n, 20, 4);
    const v: Condition[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 20;
      v[i] = load89(g, e);
    }
    return v;
  }
  function load89(g: LoweredGuest, p: number): Condition {
    return {
      field: g.string(g.u32[(p + 0) >>> 2], g.u32[(p + 0 + 4) >>> 2]),
      comparison: load90(g, p + 8),
      values: list91(g, g.u32[(p + 12) >>> 2], g.u32[(p + 12 + 4) >>> 2]),
    };
  }
  function load90(g: LoweredGuest, p: number): Comparison {
    const d = g.u8[p];
    switch (d) {
      case 0: return 'equal';
      case 1: return 'not-equal';
      case 2: return 'less';
      case 3: return 'at-most';
      case 4: return 'greater';
      case 5: return 'at-least';
      default: return g.trap(`${d} is no case of comparison`);
    }
  }
  function list91(g: LoweredGuest, p: number, n: number): readonly Value[] {
    n >>>= 0;
    const a = g.items(p, n, 16, 8);
    const v: Value[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 16;
      v[i] = load84(g, e);
    }
    return v;
  }
  function lift92(g: LoweredGuest, f0: number, f1: number): number | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return (f1 >>> 0);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift93(g: LoweredGuest, f0: number, f1: bigint): bigint | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return BigInt.asUintN(64, f1);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift94(g: LoweredGuest, f0: number, f1: number, f2: number): string | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return g.string(f1, f2);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift95(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number, f5: number, f6: number, f7: number, f8: number, f9: number, f10: number, f11: number): Request {
    return {
      method: g.string(f0, f1),
      url: g.string(f2, f3),
      headers: list96(g, f4, f5),
      body: lift98(g, f6, f7, f8),
      timeoutMs: lift99(g, f9, f10),
      redirects: (f11 >>> 0),
    };
  }
  function list96(g: LoweredGuest, p: number, n: number): readonly Header[] {
    n >>>= 0;
    const a = g.items(p, n, 16, 4);
    const v: Header[] = new Array(n);
    for (let i = 0; i < n; i++) {
      const e = a + i * 16;
      v[i] = load97(g, e);
    }
    return v;
  }
  function load97(g: LoweredGuest, p: number): Header {
    return {
      name: g.string(g.u32[(p + 0) >>> 2], g.u32[(p + 0 + 4) >>> 2]),
      value: g.string(g.u32[(p + 8) >>> 2], g.u32[(p + 8 + 4) >>> 2]),
    };
  }
  function lift98(g: LoweredGuest, f0: number, f1: number, f2: number): Uint8Array | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return g.listU8(f1, f2);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function lift99(g: LoweredGuest, f0: number, f1: number): number | undefined {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return undefined;
      case 1: return (f1 >>> 0);
      default: return g.trap(`${d} is no case of option`);
    }
  }
  function store100(g: LoweredGuest, p: number, v: string | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.putString(p + 4, v);
    }
  }
  function store101(g: LoweredGuest, p: number, v: readonly string[]): void {
    const n = v.length;
    const a = g.alloc(n * 8, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      g.putString(e, (v[i] as string));
    }
  }
  function lift102(g: LoweredGuest, f0: number, f1: number, f2: number, f3: number, f4: number, f5: number, f6: number): Question {
    return {
      text: g.string(f0, f1),
      schema: g.string(f2, f3),
      timeoutSeconds: (f4 >>> 0),
      state: g.string(f5, f6),
    };
  }
  function store103(g: LoweredGuest, p: number, v: Outcome<undefined, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store104(g: LoweredGuest, p: number, v: Resumption | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      store105(g, p + 4, v);
    }
  }
  function store105(g: LoweredGuest, p: number, v: Resumption): void {
    g.putString(p + 0, v.state);
    store106(g, p + 8, v.answer);
  }
  function store106(g: LoweredGuest, p: number, v: Answer): void {
    switch (v.tag) {
      case 'answered': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'expired': g.u8[p] = 1; return;
      default: throw new TypeError('a value without a case');
    }
  }
  function lift107(g: LoweredGuest, f0: number, f1: number, f2: number): Outcome<string, string> {
    const d = f0 >>> 0;
    switch (d) {
      case 0: return { tag: 'ok', val: g.string(f1, f2) };
      case 1: return { tag: 'err', val: g.string(f1, f2) };
      default: return g.trap(`${d} is no case of result`);
    }
  }
  function load108(g: LoweredGuest, p: number): Outcome<string, string> {
    const d = g.u8[p];
    switch (d) {
      case 0: return { tag: 'ok', val: g.string(g.u32[(p + 4) >>> 2], g.u32[(p + 4 + 4) >>> 2]) };
      case 1: return { tag: 'err', val: g.string(g.u32[(p + 4) >>> 2], g.u32[(p + 4 + 4) >>> 2]) };
      default: return g.trap(`${d} is no case of result`);
    }
  }
  function store109(g: LoweredGuest, p: number, v: Outcome<undefined, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store110(g: LoweredGuest, p: number, v: Outcome<Message, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store111(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store111(g: LoweredGuest, p: number, v: Message): void {
    switch (v.tag) {
      case 'text': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'bytes': g.u8[p] = 1; g.putU8(p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store112(g: LoweredGuest, p: number, v: Outcome<Imported, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store113(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store113(g: LoweredGuest, p: number, v: Imported): void {
    g.putU32(p + 0, v.pages);
    g.u32[(p + 8) >>> 2] = v.tokens;
    g.u32[(p + 12) >>> 2] = v.nextPosition;
  }
  function store114(g: LoweredGuest, p: number, v: Outcome<readonly ExportInfo[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store115(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store115(g: LoweredGuest, p: number, v: readonly ExportInfo[]): void {
    const n = v.length;
    const a = g.alloc(n * 24, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 24;
      store116(g, e, (v[i] as ExportInfo));
    }
  }
  function store116(g: LoweredGuest, p: number, v: ExportInfo): void {
    g.putString(p + 0, v.name);
    g.u32[(p + 8) >>> 2] = v.pages;
    g.u32[(p + 12) >>> 2] = v.tokens;
    g.u32[(p + 16) >>> 2] = v.nextPosition;
    g.u8[p + 20] = v.persistent ? 1 : 0;
  }
  function store117(g: LoweredGuest, p: number, v: Outcome<Residency, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store118(g, p + 8, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 8, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store118(g: LoweredGuest, p: number, v: Residency): void {
    store119(g, p + 0, v.tier);
    g.u32[(p + 4) >>> 2] = v.devicePages;
    g.u32[(p + 8) >>> 2] = v.memoryPages;
    g.u32[(p + 12) >>> 2] = v.diskPages;
    g.u64[(p + 16) >>> 3] = BigInt(v.bytes);
    g.u32[(p + 24) >>> 2] = v.leaseMs;
    store121(g, p + 28, v.leaseEnded);
  }
  function store119(g: LoweredGuest, p: number, v: Tier): void {
    g.u8[p] = case120(v);
  }
  function case120(v: Tier): number {
    switch (v) {
      case 'device': return 0;
      case 'memory': return 1;
      case 'disk': return 2;
      default: throw new TypeError('a value without a case');
    }
  }
  function store121(g: LoweredGuest, p: number, v: LeaseEnd | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      store122(g, p + 1, v);
    }
  }
  function store122(g: LoweredGuest, p: number, v: LeaseEnd): void {
    g.u8[p] = case123(v);
  }
  function case123(v: LeaseEnd): number {
    switch (v) {
      case 'expired': return 0;
      case 'pressure': return 1;
      default: throw new TypeError('a value without a case');
    }
  }
  function store124(g: LoweredGuest, p: number, v: Outcome<Distribution, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store125(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store125(g: LoweredGuest, p: number, v: Distribution): void {
    g.putU32(p + 0, v.tokens);
    g.putF32(p + 8, v.logProbabilities);
  }
  function store126(g: LoweredGuest, p: number, v: Outcome<Float32Array, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putF32(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store127(g: LoweredGuest, p: number, v: Outcome<number, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.f32[(p + 4) >>> 2] = v.val; return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store128(g: LoweredGuest, p: number, v: Outcome<StepResult, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store129(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store129(g: LoweredGuest, p: number, v: StepResult): void {
    g.putU32(p + 0, v.tokens);
    store130(g, p + 8, v.distributions);
  }
  function store130(g: LoweredGuest, p: number, v: readonly Distribution[]): void {
    const n = v.length;
    const a = g.alloc(n * 16, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 16;
      store125(g, e, (v[i] as Distribution));
    }
  }
  function store131(g: LoweredGuest, p: number, v: Outcome<RunChunk, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store132(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store132(g: LoweredGuest, p: number, v: RunChunk): void {
    g.putU32(p + 0, v.tokens);
    store133(g, p + 8, v.finished);
  }
  function store133(g: LoweredGuest, p: number, v: FinishReason | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      store134(g, p + 1, v);
    }
  }
  function store134(g: LoweredGuest, p: number, v: FinishReason): void {
    g.u8[p] = case135(v);
  }
  function case135(v: FinishReason): number {
    switch (v) {
      case 'stop-token': return 0;
      case 'max-tokens': return 1;
      case 'stopped': return 2;
      default: throw new TypeError('a value without a case');
    }
  }
  function store136(g: LoweredGuest, p: number, v: Outcome<Piped, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store137(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store137(g: LoweredGuest, p: number, v: Piped): void {
    g.putU32(p + 0, v.tokens);
    g.putString(p + 8, v.text);
    g.putString(p + 16, v.held);
    store138(g, p + 24, v.stop);
    store139(g, p + 36, v.finished);
  }
  function store138(g: LoweredGuest, p: number, v: string | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.putString(p + 4, v);
    }
  }
  function store139(g: LoweredGuest, p: number, v: FinishReason | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      store134(g, p + 1, v);
    }
  }
  function store140(g: LoweredGuest, p: number, v: Outcome<boolean, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.u8[p + 4] = v.val ? 1 : 0; return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store141(g: LoweredGuest, p: number, v: Outcome<Uint32Array, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putU32(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store142(g: LoweredGuest, p: number, v: Outcome<MatchStatus, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store143(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store143(g: LoweredGuest, p: number, v: MatchStatus): void {
    g.u8[p + 0] = v.mayEnd ? 1 : 0;
    g.u8[p + 1] = v.mustEnd ? 1 : 0;
  }
  function store144(g: LoweredGuest, p: number, v: Outcome<readonly KvFilesFileInfo[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store145(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store145(g: LoweredGuest, p: number, v: readonly KvFilesFileInfo[]): void {
    const n = v.length;
    const a = g.alloc(n * 32, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 32;
      store146(g, e, (v[i] as KvFilesFileInfo));
    }
  }
  function store146(g: LoweredGuest, p: number, v: KvFilesFileInfo): void {
    g.putString(p + 0, v.name);
    g.u32[(p + 8) >>> 2] = v.tokens;
    g.u32[(p + 12) >>> 2] = v.nextPosition;
    g.u8[p + 16] = v.persistent ? 1 : 0;
    store147(g, p + 17, v.rights);
    g.putString(p + 20, v.owner);
    g.u8[p + 28] = v.locked ? 1 : 0;
  }
  function store147(g: LoweredGuest, p: number, v: Rights): void {
    g.u8[p] = case148(v);
  }
  function case148(v: Rights): number {
    switch (v) {
      case 'private': return 0;
      case 'readable': return 1;
      case 'writable': return 2;
      default: throw new TypeError('a value without a case');
    }
  }
  function store149(g: LoweredGuest, p: number, v: Outcome<readonly Distribution[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store150(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store150(g: LoweredGuest, p: number, v: readonly Distribution[]): void {
    const n = v.length;
    const a = g.alloc(n * 16, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 16;
      store125(g, e, (v[i] as Distribution));
    }
  }
  function store151(g: LoweredGuest, p: number, v: Outcome<readonly AdapterInfo[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store152(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store152(g: LoweredGuest, p: number, v: readonly AdapterInfo[]): void {
    const n = v.length;
    const a = g.alloc(n * 16, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 16;
      store153(g, e, (v[i] as AdapterInfo));
    }
  }
  function store153(g: LoweredGuest, p: number, v: AdapterInfo): void {
    g.putString(p + 0, v.name);
    g.u32[(p + 8) >>> 2] = v.rank;
    g.u8[p + 12] = v.loaded ? 1 : 0;
  }
  function store154(g: LoweredGuest, p: number, v: Outcome<Vectors, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store155(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store155(g: LoweredGuest, p: number, v: Vectors): void {
    g.u32[(p + 0) >>> 2] = v.size;
    g.putF32(p + 4, v.values);
    g.u32[(p + 12) >>> 2] = v.tokens;
    g.u32[(p + 16) >>> 2] = v.cut;
  }
  function store156(g: LoweredGuest, p: number, v: Outcome<Scores, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store157(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store157(g: LoweredGuest, p: number, v: Scores): void {
    g.putF32(p + 0, v.values);
    g.u32[(p + 8) >>> 2] = v.tokens;
    g.u32[(p + 12) >>> 2] = v.cut;
  }
  function store158(g: LoweredGuest, p: number, v: Outcome<IndexInfo, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store159(g, p + 8, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 8, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store159(g: LoweredGuest, p: number, v: IndexInfo): void {
    g.putString(p + 0, v.name);
    g.u32[(p + 8) >>> 2] = v.dimensions;
    store160(g, p + 12, v.metric);
    g.u64[(p + 16) >>> 3] = BigInt(v.entries);
    g.u64[(p + 24) >>> 3] = BigInt(v.bytes);
  }
  function store160(g: LoweredGuest, p: number, v: Metric): void {
    g.u8[p] = case161(v);
  }
  function case161(v: Metric): number {
    switch (v) {
      case 'cosine': return 0;
      case 'dot-product': return 1;
      case 'euclidean': return 2;
      default: throw new TypeError('a value without a case');
    }
  }
  function store162(g: LoweredGuest, p: number, v: Outcome<number, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.u32[(p + 4) >>> 2] = v.val; return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store163(g: LoweredGuest, p: number, v: Outcome<readonly Match[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store164(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store164(g: LoweredGuest, p: number, v: readonly Match[]): void {
    const n = v.length;
    const a = g.alloc(n * 40, 8);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 40;
      store165(g, e, (v[i] as Match));
    }
  }
  function store165(g: LoweredGuest, p: number, v: Match): void {
    store166(g, p + 0, v.entry);
    g.f64[(p + 32) >>> 3] = v.score;
  }
  function store166(g: LoweredGuest, p: number, v: IndexEntry): void {
    g.putString(p + 0, v.id);
    store167(g, p + 8, v.text);
    store168(g, p + 20, v.fields);
  }
  function store167(g: LoweredGuest, p: number, v: string | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.putString(p + 4, v);
    }
  }
  function store168(g: LoweredGuest, p: number, v: readonly Field[]): void {
    const n = v.length;
    const a = g.alloc(n * 24, 8);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 24;
      store169(g, e, (v[i] as Field));
    }
  }
  function store169(g: LoweredGuest, p: number, v: Field): void {
    g.putString(p + 0, v.name);
    store170(g, p + 8, v.value);
  }
  function store170(g: LoweredGuest, p: number, v: Value): void {
    switch (v.tag) {
      case 'text': g.u8[p] = 0; g.putString(p + 8, v.val); return;
      case 'number': g.u8[p] = 1; g.f64[(p + 8) >>> 3] = v.val; return;
      case 'boolean': g.u8[p] = 2; g.u8[p + 8] = v.val ? 1 : 0; return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store171(g: LoweredGuest, p: number, v: Outcome<readonly IndexInfo[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store172(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store172(g: LoweredGuest, p: number, v: readonly IndexInfo[]): void {
    const n = v.length;
    const a = g.alloc(n * 32, 8);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 32;
      store159(g, e, (v[i] as IndexInfo));
    }
  }
  function store173(g: LoweredGuest, p: number, v: Outcome<Entry | undefined, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store174(g, p + 8, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 8, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store174(g: LoweredGuest, p: number, v: Entry | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      store175(g, p + 8, v);
    }
  }
  function store175(g: LoweredGuest, p: number, v: Entry): void {
    g.putU8(p + 0, v.value);
    g.u64[(p + 8) >>> 3] = BigInt(v.version);
  }
  function store176(g: LoweredGuest, p: number, v: Outcome<bigint, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.u64[(p + 8) >>> 3] = BigInt(v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 8, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store177(g: LoweredGuest, p: number, v: Outcome<bigint | undefined, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store178(g, p + 8, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 8, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store178(g: LoweredGuest, p: number, v: bigint | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.u64[(p + 8) >>> 3] = BigInt(v);
    }
  }
  function store179(g: LoweredGuest, p: number, v: Outcome<readonly string[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store180(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store180(g: LoweredGuest, p: number, v: readonly string[]): void {
    const n = v.length;
    const a = g.alloc(n * 8, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 8;
      g.putString(e, (v[i] as string));
    }
  }
  function store181(g: LoweredGuest, p: number, v: Outcome<Envelope, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store182(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store182(g: LoweredGuest, p: number, v: Envelope): void {
    g.putString(p + 0, v.sender);
    store111(g, p + 8, v.message);
  }
  function store183(g: LoweredGuest, p: number, v: Outcome<ResponseHead, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store184(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store184(g: LoweredGuest, p: number, v: ResponseHead): void {
    g.u16[(p + 0) >>> 1] = v.status;
    store185(g, p + 4, v.headers);
    g.putString(p + 12, v.url);
  }
  function store185(g: LoweredGuest, p: number, v: readonly Header[]): void {
    const n = v.length;
    const a = g.alloc(n * 16, 4);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 16;
      store186(g, e, (v[i] as Header));
    }
  }
  function store186(g: LoweredGuest, p: number, v: Header): void {
    g.putString(p + 0, v.name);
    g.putString(p + 8, v.value);
  }
  function store187(g: LoweredGuest, p: number, v: Outcome<Uint8Array | undefined, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store188(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store188(g: LoweredGuest, p: number, v: Uint8Array | undefined): void {
    if (v === undefined) g.u8[p] = 0;
    else {
      g.u8[p] = 1;
      g.putU8(p + 4, v);
    }
  }
  function store189(g: LoweredGuest, p: number, v: Outcome<string, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store190(g: LoweredGuest, p: number, v: Outcome<Ending, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store191(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store191(g: LoweredGuest, p: number, v: Ending): void {
    switch (v.tag) {
      case 'success': g.u8[p] = 0; g.putString(p + 4, v.val); return;
      case 'failure': g.u8[p] = 1; store192(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store192(g: LoweredGuest, p: number, v: Failure): void {
    g.putString(p + 0, v.code);
    g.putString(p + 8, v.message);
  }
  function store193(g: LoweredGuest, p: number, v: Outcome<FileExchangeFile, HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store194(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store194(g: LoweredGuest, p: number, v: FileExchangeFile): void {
    g.putString(p + 0, v.mediaType);
    g.putU8(p + 8, v.content);
  }
  function store195(g: LoweredGuest, p: number, v: Outcome<readonly FileExchangeFileInfo[], HandlerError>): void {
    switch (v.tag) {
      case 'ok': g.u8[p] = 0; store196(g, p + 4, v.val); return;
      case 'err': g.u8[p] = 1; store5(g, p + 4, v.val); return;
      default: throw new TypeError('a value without a case');
    }
  }
  function store196(g: LoweredGuest, p: number, v: readonly FileExchangeFileInfo[]): void {
    const n = v.length;
    const a = g.alloc(n * 24, 8);
    g.u32[p >>> 2] = a;
    g.u32[(p >>> 2) + 1] = n;
    for (let i = 0; i < n; i++) {
      const e = a + i * 24;
      store197(g, e, (v[i] as FileExchangeFileInfo));
    }
  }
  function store197(g: LoweredGuest, p: number, v: FileExchangeFileInfo): void {
    g.putString(p + 0, v.name);
    g.putString(p + 8, v.mediaType);
    g.u64[(p + 16) >>> 3] = BigInt(v.size);
  }
  const F: LoweredFuture[] = [
    { id: 0, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<undefined, HandlerError>; store109(g, p, v); } },
    { id: 1, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<Message, HandlerError>; store110(g, p, v); } },
    { id: 2, size: 20, align: 4, store: (g, p, value) => { const v = value as Outcome<Imported, HandlerError>; store112(g, p, v); } },
    { id: 3, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<readonly ExportInfo[], HandlerError>; store114(g, p, v); } },
    { id: 4, size: 40, align: 8, store: (g, p, value) => { const v = value as Outcome<Residency, HandlerError>; store117(g, p, v); } },
    { id: 5, size: 20, align: 4, store: (g, p, value) => { const v = value as Outcome<Distribution, HandlerError>; store124(g, p, v); } },
    { id: 6, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<Float32Array, HandlerError>; store126(g, p, v); } },
    { id: 7, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<number, HandlerError>; store127(g, p, v); } },
    { id: 8, size: 20, align: 4, store: (g, p, value) => { const v = value as Outcome<StepResult, HandlerError>; store128(g, p, v); } },
    { id: 9, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<RunChunk, HandlerError>; store131(g, p, v); } },
    { id: 10, size: 44, align: 4, store: (g, p, value) => { const v = value as Outcome<Piped, HandlerError>; store136(g, p, v); } },
    { id: 11, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<boolean, HandlerError>; store140(g, p, v); } },
    { id: 12, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<Uint32Array, HandlerError>; store141(g, p, v); } },
    { id: 13, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<MatchStatus, HandlerError>; store142(g, p, v); } },
    { id: 14, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<readonly KvFilesFileInfo[], HandlerError>; store144(g, p, v); } },
    { id: 15, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<readonly Distribution[], HandlerError>; store149(g, p, v); } },
    { id: 16, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<readonly AdapterInfo[], HandlerError>; store151(g, p, v); } },
    { id: 17, size: 24, align: 4, store: (g, p, value) => { const v = value as Outcome<Vectors, HandlerError>; store154(g, p, v); } },
    { id: 18, size: 20, align: 4, store: (g, p, value) => { const v = value as Outcome<Scores, HandlerError>; store156(g, p, v); } },
    { id: 19, size: 40, align: 8, store: (g, p, value) => { const v = value as Outcome<IndexInfo, HandlerError>; store158(g, p, v); } },
    { id: 20, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<number, HandlerError>; store162(g, p, v); } },
    { id: 21, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<readonly Match[], HandlerError>; store163(g, p, v); } },
    { id: 22, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<readonly IndexInfo[], HandlerError>; store171(g, p, v); } },
    { id: 23, size: 32, align: 8, store: (g, p, value) => { const v = value as Outcome<Entry | undefined, HandlerError>; store173(g, p, v); } },
    { id: 24, size: 24, align: 8, store: (g, p, value) => { const v = value as Outcome<bigint, HandlerError>; store176(g, p, v); } },
    { id: 25, size: 24, align: 8, store: (g, p, value) => { const v = value as Outcome<bigint | undefined, HandlerError>; store177(g, p, v); } },
    { id: 26, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<readonly string[], HandlerError>; store179(g, p, v); } },
    { id: 27, size: 24, align: 4, store: (g, p, value) => { const v = value as Outcome<Envelope, HandlerError>; store181(g, p, v); } },
    { id: 28, size: 24, align: 4, store: (g, p, value) => { const v = value as Outcome<ResponseHead, HandlerError>; store183(g, p, v); } },
    { id: 29, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<Uint8Array | undefined, HandlerError>; store187(g, p, v); } },
    { id: 30, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<string, HandlerError>; store189(g, p, v); } },
    { id: 31, size: 24, align: 4, store: (g, p, value) => { const v = value as Outcome<Ending, HandlerError>; store190(g, p, v); } },
    { id: 32, size: 20, align: 4, store: (g, p, value) => { const v = value as Outcome<FileExchangeFile, HandlerError>; store193(g, p, v); } },
    { id: 33, size: 16, align: 4, store: (g, p, value) => { const v = value as Outcome<readonly FileExchangeFileInfo[], HandlerError>; store195(g, p, v); } },
  ];
  const functions: readonly (readonly [string, Trampoline])[] = [
    ['pie:inferlet/runtime@0.1#version', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 8, 4);
      const v = h0(g.context);
      g.putString(r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#instance-id', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 8, 4);
      const v = h1(g.context);
      g.putString(r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#tenant', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 8, 4);
      const v = h2(g.context);
      g.putString(r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#get-arguments', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 8, 4);
      const v = h3(g.context);
      g.putString(r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#function-name', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 8, 4);
      const v = h4(g.context);
      g.putString(r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#function-version', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 8, 4);
      const v = h5(g.context);
      g.putString(r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#models', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 8, 4);
      const v = h6(g.context);
      store0(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#model-traits', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      r = g.range(r, 16, 4);
      const v = h7(g.context, v0);
      store3(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#metadata', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      r = g.range(r, 48, 8);
      const v = h8(g.context, v0);
      store6(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#efficient-tokens', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      r = g.range(r, 16, 4);
      const v = h9(g.context, v0);
      store8(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#debug-query', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      r = g.range(r, 16, 4);
      const v = h10(g.context, v0);
      store10(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#log', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = lift11(g, a0_0);
      const v1 = g.string(a1_0, a1_1);
      h11(g.context, v0, v1);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#record-span', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a2_0: bigint, a3_0: bigint, a4_0: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = g.string(a1_0, a1_1);
      const v2 = BigInt.asUintN(64, a2_0);
      const v3 = BigInt.asUintN(64, a3_0);
      const v4 = (a4_0 !== 0);
      h12(g.context, v0, v1, v2, v3, v4);
      g.leave();
    }],
    ['pie:inferlet/runtime@0.1#is-cancelled', (g) => () => {
      g.enter();
      return (h13(g.context) ? 1 : 0);
    }],
    ['pie:inferlet/runtime@0.1#time-left', (g) => () => {
      g.enter();
      return BigInt.asIntN(64, BigInt(h14(g.context)));
    }],
    ['pie:inferlet/runtime@0.1#now', (g) => () => {
      g.enter();
      return BigInt.asIntN(64, BigInt(h15(g.context)));
    }],
    ['pie:inferlet/runtime@0.1#random', (g) => () => {
      g.enter();
      return h16(g.context);
    }],
    ['pie:inferlet/runtime@0.1#sleep', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (a0_0 >>> 0);
      return g.addFuture(h17(g.context, v0), F[0]);
    }],
    ['pie:inferlet/session@0.1#send', (g) => (a0_0: number, a0_1: number, a0_2: number, r: number) => {
      g.enter();
      const v0 = lift12(g, a0_0, a0_1, a0_2);
      r = g.range(r, 16, 4);
      const v = h18(g.context, v0);
      store13(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/session@0.1#flush', (g) => () => {
      g.enter();
      return g.addFuture(h19(g.context), F[0]);
    }],
    ['pie:inferlet/session@0.1#receive', (g) => () => {
      g.enter();
      return g.addFuture(h20(g.context), F[1]);
    }],
    ['pie:inferlet/queue@0.1#[constructor]queue', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addResource(0, h21(g.context, v0));
      g.leave();
      return v;
    }],
    ['pie:inferlet/queue@0.1#[method]queue.set-priority', (g) => (a0_0: number, a1_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = a1_0;
      h22(g.context, v0, v1);
    }],
    ['pie:inferlet/queue@0.1#[method]queue.set-depth', (g) => (a0_0: number, a1_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (a1_0 >>> 0);
      h23(g.context, v0, v1);
    }],
    ['pie:inferlet/queue@0.1#[method]queue.stop', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      h24(g.context, v0);
    }],
    ['pie:inferlet/queue@0.1#[method]queue.synchronize', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      return g.addFuture(h25(g.context, v0), F[0]);
    }],
    ['pie:inferlet/queue@0.1#[resource-drop]queue', (g) => (h: number) => {
      g.enter();
      h26(g.context, g.takeResource(h, 0) as Queue);
    }],
    ['pie:inferlet/allocate@0.1#page-size', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      return h27(g.context, v0);
    }],
    ['pie:inferlet/allocate@0.1#allocate-pages', (g) => (a0_0: number, a1_0: number, r: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (a1_0 >>> 0);
      r = g.range(r, 16, 4);
      const v = h28(g.context, v0, v1);
      store14(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/allocate@0.1#free-pages', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU32(a1_0, a1_1);
      h29(g.context, v0, v1);
      g.leave();
    }],
    ['pie:inferlet/allocate@0.1#allocate-embeds', (g) => (a0_0: number, a1_0: number, r: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (a1_0 >>> 0);
      r = g.range(r, 16, 4);
      const v = h30(g.context, v0, v1);
      store15(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/allocate@0.1#free-embeds', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU32(a1_0, a1_1);
      h31(g.context, v0, v1);
      g.leave();
    }],
    ['pie:inferlet/allocate@0.1#share-pages', (g) => (a0_0: number, a1_0: number, a1_1: number, r: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU32(a1_0, a1_1);
      r = g.range(r, 16, 4);
      const v = h32(g.context, v0, v1);
      store16(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/allocate@0.1#copy-slots', (g) => (a0_0: number, a1_0: number, a2_0: number, a3_0: number, a4_0: number, a5_0: number, a6_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (a1_0 >>> 0);
      const v2 = (a2_0 >>> 0);
      const v3 = (a3_0 >>> 0);
      const v4 = (a4_0 >>> 0);
      const v5 = (a5_0 >>> 0);
      const v6 = a6_0;
      h33(g.context, v0, v1, v2, v3, v4, v5, v6);
    }],
    ['pie:inferlet/allocate@0.1#copy-tokens', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number, a3_0: number, a3_1: number, a4_0: number, a4_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU32(a1_0, a1_1);
      const v2 = g.listU32(a2_0, a2_1);
      const v3 = g.listU32(a3_0, a3_1);
      const v4 = g.listU32(a4_0, a4_1);
      h34(g.context, v0, v1, v2, v3, v4);
      g.leave();
    }],
    ['pie:inferlet/allocate@0.1#copy-embeds', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU32(a1_0, a1_1);
      const v2 = g.listU32(a2_0, a2_1);
      h35(g.context, v0, v1, v2);
      g.leave();
    }],
    ['pie:inferlet/allocate@0.1#export-pages', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number, a3_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU32(a1_0, a1_1);
      const v2 = g.string(a2_0, a2_1);
      const v3 = (a3_0 !== 0);
      const v = g.addFuture(h36(g.context, v0, v1, v2, v3), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/allocate@0.1#import-pages', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h37(g.context, v0, v1), F[2]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/allocate@0.1#make-durable', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h38(g.context, v0, v1), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/allocate@0.1#unexport', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h39(g.context, v0, v1), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/allocate@0.1#list-exports', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      return g.addFuture(h40(g.context, v0), F[3]);
    }],
    ['pie:inferlet/allocate@0.1#export-residency', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h41(g.context, v0, v1), F[4]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/allocate@0.1#pin-export', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v2 = (a2_0 >>> 0);
      const v = g.addFuture(h42(g.context, v0, v1, v2), F[4]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/allocate@0.1#unpin-export', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h43(g.context, v0, v1), F[4]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/allocate@0.1#retain-export', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v2 = (a2_0 >>> 0);
      const v = g.addFuture(h44(g.context, v0, v1, v2), F[4]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/allocate@0.1#prefetch-export', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h45(g.context, v0, v1), F[4]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/allocate@0.1#demote-export', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v2 = lift17(g, a2_0);
      const v = g.addFuture(h46(g.context, v0, v1, v2), F[4]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/forward@0.1#forward', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number, a3_0: number, a3_1: number, a4_0: number, a4_1: number, a5_0: number, a5_1: number, a5_2: number, a5_3: number, a5_4: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU32(a1_0, a1_1);
      const v2 = g.listU32(a2_0, a2_1);
      const v3 = g.listU32(a3_0, a3_1);
      const v4 = g.listU32(a4_0, a4_1);
      const v5 = lift18(g, a5_0, a5_1, a5_2, a5_3, a5_4);
      h47(g.context, v0, v1, v2, v3, v4, v5);
      g.leave();
    }],
    ['pie:inferlet/forward@0.1#mask-page', (g) => (a0_0: number, a1_0: number, a2_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (a1_0 >>> 0);
      const v2 = (a2_0 >>> 0);
      h48(g.context, v0, v1, v2);
    }],
    ['pie:inferlet/input-text@0.1#embed-text', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number, a3_0: number, a3_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU32(a1_0, a1_1);
      const v2 = g.listU32(a2_0, a2_1);
      const v3 = g.listU32(a3_0, a3_1);
      h49(g.context, v0, v1, v2, v3);
      g.leave();
    }],
    ['pie:inferlet/output-text@0.1#next-distribution', (g) => (a0_0: number, a1_0: number, a2_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (a1_0 >>> 0);
      const v2 = (a2_0 >>> 0);
      return g.addFuture(h50(g.context, v0, v1, v2), F[5]);
    }],
    ['pie:inferlet/output-text@0.1#log-probabilities', (g) => (a0_0: number, a1_0: number, a2_0: number, a2_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (a1_0 >>> 0);
      const v2 = g.listU32(a2_0, a2_1);
      const v = g.addFuture(h51(g.context, v0, v1, v2), F[6]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/output-text@0.1#entropy', (g) => (a0_0: number, a1_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (a1_0 >>> 0);
      return g.addFuture(h52(g.context, v0, v1), F[7]);
    }],
    ['pie:inferlet/output-text@0.1#read-embed', (g) => (a0_0: number, a1_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (a1_0 >>> 0);
      return g.addFuture(h53(g.context, v0, v1), F[6]);
    }],
    ['pie:inferlet/fused@0.1#step', (g) => (p: number) => {
      g.enter();
      p = g.range(p, 84, 4);
      const t = load20(g, p);
      const v = g.addFuture(h54(g.context, t[0], t[1]), F[8]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/fused@0.1#[constructor]run', (g) => (a0_0: number, a1_0: number, a1_1: number, a1_2: number, a1_3: number, a1_4: number, a1_5: number, a1_6: number, a1_7: number, a1_8: number, a1_9: number, a1_10: number, a1_11: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = lift26(g, a1_0, a1_1, a1_2, a1_3, a1_4, a1_5, a1_6, a1_7, a1_8, a1_9, a1_10, a1_11);
      const v = g.addResource(1, h55(g.context, v0, v1));
      g.leave();
      return v;
    }],
    ['pie:inferlet/fused@0.1#[method]run.next', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 1) as Run);
      return g.addFuture(h56(g.context, v0), F[9]);
    }],
    ['pie:inferlet/fused@0.1#[method]run.pipe', (g) => (a0_0: number, a1_0: number, a1_1: number, a1_2: number, a1_3: number, a1_4: number, a1_5: number, a1_6: number, a1_7: number, a1_8: number, a1_9: number, a1_10: number, a1_11: number, a1_12: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 1) as Run);
      const v1 = lift28(g, a1_0, a1_1, a1_2, a1_3, a1_4, a1_5, a1_6, a1_7, a1_8, a1_9, a1_10, a1_11, a1_12);
      const v = g.addFuture(h57(g.context, v0, v1), F[10]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/fused@0.1#[method]run.stop', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 1) as Run);
      h58(g.context, v0);
    }],
    ['pie:inferlet/fused@0.1#[resource-drop]run', (g) => (h: number) => {
      g.enter();
      h59(g.context, g.takeResource(h, 1) as Run);
    }],
    ['pie:inferlet/tokenize@0.1#tokenize', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a2_0: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = g.string(a1_0, a1_1);
      const v2 = (a2_0 !== 0);
      r = g.range(r, 16, 4);
      const v = h60(g.context, v0, v1, v2);
      store32(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/tokenize@0.1#detokenize', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a2_0: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = g.listU32(a1_0, a1_1);
      const v2 = (a2_0 !== 0);
      r = g.range(r, 16, 4);
      const v = h61(g.context, v0, v1, v2);
      store33(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/tokenize@0.1#special-tokens', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      r = g.range(r, 36, 4);
      const v = h62(g.context, v0);
      store34(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/tokenize@0.1#vocabulary', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      r = g.range(r, 16, 4);
      const v = h63(g.context, v0);
      store39(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/tokenize@0.1#chat-template', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a2_0: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = list41(g, a1_0, a1_1);
      const v2 = (a2_0 !== 0);
      r = g.range(r, 16, 4);
      const v = h64(g.context, v0, v1, v2);
      store43(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/tokenize@0.1#render-chat', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = g.string(a1_0, a1_1);
      r = g.range(r, 16, 4);
      const v = h65(g.context, v0, v1);
      store44(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/tokenize@0.1#thoughts', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      r = g.range(r, 68, 4);
      const v = h66(g.context, v0);
      store45(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/tokenize@0.1#[constructor]detokenizer', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addResource(2, h67(g.context, v0));
      g.leave();
      return v;
    }],
    ['pie:inferlet/tokenize@0.1#[method]detokenizer.push', (g) => (a0_0: number, a1_0: number, a1_1: number, r: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 2) as Detokenizer);
      const v1 = g.listU32(a1_0, a1_1);
      r = g.range(r, 16, 4);
      const v = h68(g.context, v0, v1);
      store51(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/tokenize@0.1#[method]detokenizer.finish', (g) => (a0_0: number, r: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 2) as Detokenizer);
      r = g.range(r, 8, 4);
      const v = h69(g.context, v0);
      g.putString(r, v);
      g.leave();
    }],
    ['pie:inferlet/tokenize@0.1#[resource-drop]detokenizer', (g) => (h: number) => {
      g.enter();
      h70(g.context, g.takeResource(h, 2) as Detokenizer);
    }],
    ['pie:inferlet/grammar@0.1#step', (g) => (p: number) => {
      g.enter();
      p = g.range(p, 88, 4);
      const t = load52(g, p);
      const v = g.addFuture(h71(g.context, t[0], t[1], t[2]), F[8]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/grammar@0.1#verify', (g) => (p: number) => {
      g.enter();
      p = g.range(p, 100, 4);
      const t = load53(g, p);
      const v = g.addFuture(h72(g.context, t[0], t[1], t[2], t[3]), F[8]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/grammar@0.1#start-run', (g) => (a0_0: number, a1_0: number, a2_0: number, a2_1: number, a2_2: number, a2_3: number, a2_4: number, a2_5: number, a2_6: number, a2_7: number, a2_8: number, a2_9: number, a2_10: number, a2_11: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = (g.resource(a1_0, 3) as Matcher);
      const v2 = lift26(g, a2_0, a2_1, a2_2, a2_3, a2_4, a2_5, a2_6, a2_7, a2_8, a2_9, a2_10, a2_11);
      const v = g.addResource(1, h73(g.context, v0, v1, v2));
      g.leave();
      return v;
    }],
    ['pie:inferlet/grammar@0.1#[constructor]compiled', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a1_2: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = lift55(g, a1_0, a1_1, a1_2);
      const v = g.addResource(4, h74(g.context, v0, v1));
      g.leave();
      return v;
    }],
    ['pie:inferlet/grammar@0.1#[method]compiled.ready', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 4) as Compiled);
      return g.addFuture(h75(g.context, v0), F[0]);
    }],
    ['pie:inferlet/grammar@0.1#[constructor]matcher', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 4) as Compiled);
      return g.addResource(3, h76(g.context, v0));
    }],
    ['pie:inferlet/grammar@0.1#[method]matcher.accept', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 3) as Matcher);
      const v1 = g.listU32(a1_0, a1_1);
      const v = g.addFuture(h77(g.context, v0, v1), F[11]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/grammar@0.1#[method]matcher.mask', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 3) as Matcher);
      return g.addFuture(h78(g.context, v0), F[12]);
    }],
    ['pie:inferlet/grammar@0.1#[method]matcher.status', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 3) as Matcher);
      return g.addFuture(h79(g.context, v0), F[13]);
    }],
    ['pie:inferlet/grammar@0.1#[method]matcher.jump', (g) => (a0_0: number, a1_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 3) as Matcher);
      const v1 = (a1_0 >>> 0);
      return g.addFuture(h80(g.context, v0, v1), F[12]);
    }],
    ['pie:inferlet/grammar@0.1#[method]matcher.fork', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 3) as Matcher);
      return g.addResource(3, h81(g.context, v0));
    }],
    ['pie:inferlet/grammar@0.1#[method]matcher.rollback', (g) => (a0_0: number, a1_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 3) as Matcher);
      const v1 = (a1_0 >>> 0);
      return g.addFuture(h82(g.context, v0, v1), F[0]);
    }],
    ['pie:inferlet/grammar@0.1#[resource-drop]compiled', (g) => (h: number) => {
      g.enter();
      h83(g.context, g.takeResource(h, 4) as Compiled);
    }],
    ['pie:inferlet/grammar@0.1#[resource-drop]matcher', (g) => (h: number) => {
      g.enter();
      h84(g.context, g.takeResource(h, 3) as Matcher);
    }],
    ['pie:inferlet/penalties@0.1#start-run', (g) => (p: number) => {
      g.enter();
      p = g.range(p, 84, 4);
      const t = load56(g, p);
      const v = g.addResource(1, h85(g.context, t[0], t[1], t[2]));
      g.leave();
      return v;
    }],
    ['pie:inferlet/introspect@0.1#forward-scores', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number, a3_0: number, a3_1: number, a4_0: number, a4_1: number, a5_0: number, a5_1: number, a5_2: number, a5_3: number, a5_4: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU32(a1_0, a1_1);
      const v2 = g.listU32(a2_0, a2_1);
      const v3 = g.listU32(a3_0, a3_1);
      const v4 = g.listU32(a4_0, a4_1);
      const v5 = lift59(g, a5_0, a5_1, a5_2, a5_3, a5_4);
      const v = g.addFuture(h86(g.context, v0, v1, v2, v3, v4, v5), F[6]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/kv-files@0.1#make-durable', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h87(g.context, v0, v1), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/kv-files@0.1#remove', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h88(g.context, v0, v1), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/kv-files@0.1#files', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h89(g.context, v0, v1), F[14]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/kv-files@0.1#[constructor]file', (g) => (a0_0: number, a1_0: number, a1_1: number, a1_2: number, a2_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = lift60(g, a1_0, a1_1, a1_2);
      const v2 = lift61(g, a2_0);
      const v = g.addResource(5, h90(g.context, v0, v1, v2));
      g.leave();
      return v;
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.ready', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      return g.addFuture(h91(g.context, v0), F[0]);
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.tokens', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      return h92(g.context, v0);
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.next-position', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      return h93(g.context, v0);
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.pages', (g) => (a0_0: number, r: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      r = g.range(r, 8, 4);
      const v = h94(g.context, v0);
      g.putU32(r, v);
      g.leave();
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.reserve', (g) => (a0_0: number, a1_0: number, r: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      const v1 = (a1_0 >>> 0);
      r = g.range(r, 16, 4);
      const v = h95(g.context, v0, v1);
      store62(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.filled', (g) => (a0_0: number, a1_0: number, a2_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      const v1 = (a1_0 >>> 0);
      const v2 = (a2_0 >>> 0);
      h96(g.context, v0, v1, v2);
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.pred', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number, a3_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      const v1 = g.listU32(a1_0, a1_1);
      const v2 = g.listU32(a2_0, a2_1);
      const v3 = (a3_0 >>> 0);
      const v = g.addFuture(h97(g.context, v0, v1, v2, v3), F[15]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.fork', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      return g.addResource(5, h98(g.context, v0));
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.extract', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      const v1 = g.listU32(a1_0, a1_1);
      const v2 = lift63(g, a2_0, a2_1);
      const v = g.addResource(5, h99(g.context, v0, v1, v2));
      g.leave();
      return v;
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.merge', (g) => (a0_0: number, a1_0: number, a2_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      const v1 = (g.resource(a1_0, 5) as File);
      const v2 = (a2_0 !== 0);
      return g.addFuture(h100(g.context, v0, v1, v2), F[0]);
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.save', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a3_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      const v1 = g.string(a1_0, a1_1);
      const v2 = (a2_0 !== 0);
      const v3 = lift64(g, a3_0);
      const v = g.addFuture(h101(g.context, v0, v1, v2, v3), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/kv-files@0.1#[method]file.unlock', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 5) as File);
      h102(g.context, v0);
    }],
    ['pie:inferlet/kv-files@0.1#[resource-drop]file', (g) => (h: number) => {
      g.enter();
      h103(g.context, g.takeResource(h, 5) as File);
    }],
    ['pie:inferlet/input-image@0.1#image-dimensions', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.listU8(a0_0, a0_1);
      r = g.range(r, 16, 4);
      const v = h104(g.context, v0);
      store65(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/input-image@0.1#image-embeds', (g) => (a0_0: number, a1_0: number, a1_1: number, r: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = lift67(g, a1_0, a1_1);
      r = g.range(r, 16, 4);
      const v = h105(g.context, v0, v1);
      store68(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/input-image@0.1#image-token', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      r = g.range(r, 16, 4);
      const v = h106(g.context, v0);
      store69(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/input-image@0.1#embed-image', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number, a3_0: number, a3_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.listU8(a1_0, a1_1);
      const v2 = g.listU32(a2_0, a2_1);
      const v3 = g.listU32(a3_0, a3_1);
      const v = g.addFuture(h107(g.context, v0, v1, v2, v3), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/adapter@0.1#list-adapters', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      return g.addFuture(h108(g.context, v0), F[16]);
    }],
    ['pie:inferlet/adapter@0.1#load-adapter', (g) => (a0_0: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addFuture(h109(g.context, v0, v1), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/adapter@0.1#forward-with-adapter', (g) => (a0_0: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number, a3_0: number, a3_1: number, a4_0: number, a4_1: number, a5_0: number, a5_1: number, a6_0: number, a6_1: number, a6_2: number, a6_3: number, a6_4: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 0) as Queue);
      const v1 = g.string(a1_0, a1_1);
      const v2 = g.listU32(a2_0, a2_1);
      const v3 = g.listU32(a3_0, a3_1);
      const v4 = g.listU32(a4_0, a4_1);
      const v5 = g.listU32(a5_0, a5_1);
      const v6 = lift70(g, a6_0, a6_1, a6_2, a6_3, a6_4);
      h110(g.context, v0, v1, v2, v3, v4, v5, v6);
      g.leave();
    }],
    ['pie:inferlet/adapter@0.1#step', (g) => (p: number) => {
      g.enter();
      p = g.range(p, 92, 4);
      const t = load71(g, p);
      const v = g.addFuture(h111(g.context, t[0], t[1], t[2]), F[8]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/embedding@0.1#encoders', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 8, 4);
      const v = h112(g.context);
      store72(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/embedding@0.1#embed', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = list76(g, a1_0, a1_1);
      const v = g.addFuture(h113(g.context, v0, v1), F[17]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/rerank@0.1#rerank', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = g.string(a1_0, a1_1);
      const v2 = list77(g, a2_0, a2_1);
      const v = g.addFuture(h114(g.context, v0, v1, v2), F[18]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/index@0.1#create', (g) => (a0_0: number, a0_1: number, a1_0: number, a2_0: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = (a1_0 >>> 0);
      const v2 = lift78(g, a2_0);
      const v = g.addFuture(h115(g.context, v0, v1, v2), F[19]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/index@0.1#upsert', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = list79(g, a1_0, a1_1);
      const v2 = g.listF32(a2_0, a2_1);
      const v = g.addFuture(h116(g.context, v0, v1, v2), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/index@0.1#delete-entries', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = list85(g, a1_0, a1_1);
      const v = g.addFuture(h117(g.context, v0, v1), F[20]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/index@0.1#query', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a1_2: number, a2_0: number, a2_1: number, a2_2: number, a3_0: number, a3_1: number, a4_0: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = lift86(g, a1_0, a1_1, a1_2);
      const v2 = lift87(g, a2_0, a2_1, a2_2);
      const v3 = list88(g, a3_0, a3_1);
      const v4 = (a4_0 >>> 0);
      const v = g.addFuture(h118(g.context, v0, v1, v2, v3, v4), F[21]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/index@0.1#stats', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addFuture(h119(g.context, v0), F[19]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/index@0.1#list-indexes', (g) => () => {
      g.enter();
      return g.addFuture(h120(g.context), F[22]);
    }],
    ['pie:inferlet/index@0.1#drop-index', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addFuture(h121(g.context, v0), F[11]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/store@0.1#get', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addFuture(h122(g.context, v0), F[23]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/store@0.1#set', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = g.listU8(a1_0, a1_1);
      const v2 = lift92(g, a2_0, a2_1);
      const v = g.addFuture(h123(g.context, v0, v1, v2), F[24]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/store@0.1#compare-and-set', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: bigint, a2_0: number, a2_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = lift93(g, a1_0, a1_1);
      const v2 = g.listU8(a2_0, a2_1);
      const v = g.addFuture(h124(g.context, v0, v1, v2), F[25]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/store@0.1#delete-key', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addFuture(h125(g.context, v0), F[11]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/store@0.1#exists', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addFuture(h126(g.context, v0), F[11]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/store@0.1#list-keys', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a1_2: number, a2_0: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = lift94(g, a1_0, a1_1, a1_2);
      const v2 = (a2_0 >>> 0);
      const v = g.addFuture(h127(g.context, v0, v1, v2), F[26]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/messaging@0.1#broadcast', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a1_2: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = lift12(g, a1_0, a1_1, a1_2);
      const v = g.addFuture(h128(g.context, v0, v1), F[20]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/messaging@0.1#push', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a1_2: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = lift12(g, a1_0, a1_1, a1_2);
      const v = g.addFuture(h129(g.context, v0, v1), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/messaging@0.1#pull', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addFuture(h130(g.context, v0), F[27]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/messaging@0.1#[constructor]subscription', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addResource(6, h131(g.context, v0));
      g.leave();
      return v;
    }],
    ['pie:inferlet/messaging@0.1#[method]subscription.ready', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 6) as Subscription);
      return g.addFuture(h132(g.context, v0), F[0]);
    }],
    ['pie:inferlet/messaging@0.1#[method]subscription.next', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 6) as Subscription);
      return g.addFuture(h133(g.context, v0), F[27]);
    }],
    ['pie:inferlet/messaging@0.1#[method]subscription.unsubscribe', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 6) as Subscription);
      h134(g.context, v0);
    }],
    ['pie:inferlet/messaging@0.1#[resource-drop]subscription', (g) => (h: number) => {
      g.enter();
      h135(g.context, g.takeResource(h, 6) as Subscription);
    }],
    ['pie:inferlet/http@0.1#[constructor]exchange', (g) => (a0_0: number, a0_1: number, a0_2: number, a0_3: number, a0_4: number, a0_5: number, a0_6: number, a0_7: number, a0_8: number, a0_9: number, a0_10: number, a0_11: number) => {
      g.enter();
      const v0 = lift95(g, a0_0, a0_1, a0_2, a0_3, a0_4, a0_5, a0_6, a0_7, a0_8, a0_9, a0_10, a0_11);
      const v = g.addResource(7, h136(g.context, v0));
      g.leave();
      return v;
    }],
    ['pie:inferlet/http@0.1#[method]exchange.head', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 7) as Exchange);
      return g.addFuture(h137(g.context, v0), F[28]);
    }],
    ['pie:inferlet/http@0.1#[method]exchange.read', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 7) as Exchange);
      return g.addFuture(h138(g.context, v0), F[29]);
    }],
    ['pie:inferlet/http@0.1#[resource-drop]exchange', (g) => (h: number) => {
      g.enter();
      h139(g.context, g.takeResource(h, 7) as Exchange);
    }],
    ['pie:inferlet/children@0.1#[constructor]child', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = g.string(a1_0, a1_1);
      const v = g.addResource(8, h140(g.context, v0, v1));
      g.leave();
      return v;
    }],
    ['pie:inferlet/children@0.1#[method]child.started', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 8) as Child);
      return g.addFuture(h141(g.context, v0), F[30]);
    }],
    ['pie:inferlet/children@0.1#[method]child.send', (g) => (a0_0: number, a1_0: number, a1_1: number, a1_2: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 8) as Child);
      const v1 = lift12(g, a1_0, a1_1, a1_2);
      const v = g.addFuture(h142(g.context, v0, v1), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/children@0.1#[method]child.close', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 8) as Child);
      h143(g.context, v0);
    }],
    ['pie:inferlet/children@0.1#[method]child.receive', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 8) as Child);
      return g.addFuture(h144(g.context, v0), F[1]);
    }],
    ['pie:inferlet/children@0.1#[method]child.wait', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 8) as Child);
      return g.addFuture(h145(g.context, v0), F[31]);
    }],
    ['pie:inferlet/children@0.1#[method]child.cancel', (g) => (a0_0: number) => {
      g.enter();
      const v0 = (g.resource(a0_0, 8) as Child);
      h146(g.context, v0);
    }],
    ['pie:inferlet/children@0.1#[resource-drop]child', (g) => (h: number) => {
      g.enter();
      h147(g.context, g.takeResource(h, 8) as Child);
    }],
    ['pie:inferlet/file-exchange@0.1#send-file', (g) => (a0_0: number, a0_1: number, a1_0: number, a1_1: number, a2_0: number, a2_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v1 = g.string(a1_0, a1_1);
      const v2 = g.listU8(a2_0, a2_1);
      const v = g.addFuture(h148(g.context, v0, v1, v2), F[0]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/file-exchange@0.1#receive-file', (g) => (a0_0: number, a0_1: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      const v = g.addFuture(h149(g.context, v0), F[32]);
      g.leave();
      return v;
    }],
    ['pie:inferlet/file-exchange@0.1#list-files', (g) => () => {
      g.enter();
      return g.addFuture(h150(g.context), F[33]);
    }],
    ['pie:inferlet/environment@0.1#get-variable', (g) => (a0_0: number, a0_1: number, r: number) => {
      g.enter();
      const v0 = g.string(a0_0, a0_1);
      r = g.range(r, 12, 4);
      const v = h151(g.context, v0);
      store100(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/environment@0.1#list-variables', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 8, 4);
      const v = h152(g.context);
      store101(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/person@0.1#ask', (g) => (a0_0: number, a0_1: number, a0_2: number, a0_3: number, a0_4: number, a0_5: number, a0_6: number, r: number) => {
      g.enter();
      const v0 = lift102(g, a0_0, a0_1, a0_2, a0_3, a0_4, a0_5, a0_6);
      r = g.range(r, 16, 4);
      const v = h153(g.context, v0);
      store103(g, r, v);
      g.leave();
    }],
    ['pie:inferlet/person@0.1#resumed', (g) => (r: number) => {
      g.enter();
      r = g.range(r, 24, 4);
      const v = h154(g.context);
      store104(g, r, v);
      g.leave();
    }],
  ];
  const futures: readonly (readonly [string, readonly LoweredFuture[]])[] = [
    ['pie:inferlet/runtime@0.1#sleep', [F[0]]],
    ['pie:inferlet/session@0.1#flush', [F[0]]],
    ['pie:inferlet/session@0.1#receive', [F[1]]],
    ['pie:inferlet/queue@0.1#[method]queue.synchronize', [F[0]]],
    ['pie:inferlet/allocate@0.1#export-pages', [F[0]]],
    ['pie:inferlet/allocate@0.1#import-pages', [F[2]]],
    ['pie:inferlet/allocate@0.1#make-durable', [F[0]]],
    ['pie:inferlet/allocate@0.1#unexport', [F[0]]],
    ['pie:inferlet/allocate@0.1#list-exports', [F[3]]],
    ['pie:inferlet/allocate@0.1#export-residency', [F[4]]],
    ['pie:inferlet/allocate@0.1#pin-export', [F[4]]],
    ['pie:inferlet/allocate@0.1#unpin-export', [F[4]]],
    ['pie:inferlet/allocate@0.1#retain-export', [F[4]]],
    ['pie:inferlet/allocate@0.1#prefetch-export', [F[4]]],
    ['pie:inferlet/allocate@0.1#demote-export', [F[4]]],
    ['pie:inferlet/output-text@0.1#next-distribution', [F[5]]],
    ['pie:inferlet/output-text@0.1#log-probabilities', [F[6]]],
    ['pie:inferlet/output-text@0.1#entropy', [F[7]]],
    ['pie:inferlet/output-text@0.1#read-embed', [F[6]]],
    ['pie:inferlet/fused@0.1#step', [F[8]]],
    ['pie:inferlet/fused@0.1#[method]run.next', [F[9]]],
    ['pie:inferlet/fused@0.1#[method]run.pipe', [F[10]]],
    ['pie:inferlet/grammar@0.1#step', [F[8]]],
    ['pie:inferlet/grammar@0.1#verify', [F[8]]],
    ['pie:inferlet/grammar@0.1#[method]compiled.ready', [F[0]]],
    ['pie:inferlet/grammar@0.1#[method]matcher.accept', [F[11]]],
    ['pie:inferlet/grammar@0.1#[method]matcher.mask', [F[12]]],
    ['pie:inferlet/grammar@0.1#[method]matcher.status', [F[13]]],
    ['pie:inferlet/grammar@0.1#[method]matcher.jump', [F[12]]],
    ['pie:inferlet/grammar@0.1#[method]matcher.rollback', [F[0]]],
    ['pie:inferlet/introspect@0.1#forward-scores', [F[6]]],
    ['pie:inferlet/kv-files@0.1#make-durable', [F[0]]],
    ['pie:inferlet/kv-files@0.1#remove', [F[0]]],
    ['pie:inferlet/kv-files@0.1#files', [F[14]]],
    ['pie:inferlet/kv-files@0.1#[method]file.ready', [F[0]]],
    ['pie:inferlet/kv-files@0.1#[method]file.pred', [F[15]]],
    ['pie:inferlet/kv-files@0.1#[method]file.merge', [F[0]]],
    ['pie:inferlet/kv-files@0.1#[method]file.save', [F[0]]],
    ['pie:inferlet/input-image@0.1#embed-image', [F[0]]],
    ['pie:inferlet/adapter@0.1#list-adapters', [F[16]]],
    ['pie:inferlet/adapter@0.1#load-adapter', [F[0]]],
    ['pie:inferlet/adapter@0.1#step', [F[8]]],
    ['pie:inferlet/embedding@0.1#embed', [F[17]]],
    ['pie:inferlet/rerank@0.1#rerank', [F[18]]],
    ['pie:inferlet/index@0.1#create', [F[19]]],
    ['pie:inferlet/index@0.1#upsert', [F[0]]],
    ['pie:inferlet/index@0.1#delete-entries', [F[20]]],
    ['pie:inferlet/index@0.1#query', [F[21]]],
    ['pie:inferlet/index@0.1#stats', [F[19]]],
    ['pie:inferlet/index@0.1#list-indexes', [F[22]]],
    ['pie:inferlet/index@0.1#drop-index', [F[11]]],
    ['pie:inferlet/store@0.1#get', [F[23]]],
    ['pie:inferlet/store@0.1#set', [F[24]]],
    ['pie:inferlet/store@0.1#compare-and-set', [F[25]]],
    ['pie:inferlet/store@0.1#delete-key', [F[11]]],
    ['pie:inferlet/store@0.1#exists', [F[11]]],
    ['pie:inferlet/store@0.1#list-keys', [F[26]]],
    ['pie:inferlet/messaging@0.1#broadcast', [F[20]]],
    ['pie:inferlet/messaging@0.1#push', [F[0]]],
    ['pie:inferlet/messaging@0.1#pull', [F[27]]],
    ['pie:inferlet/messaging@0.1#[method]subscription.ready', [F[0]]],
    ['pie:inferlet/messaging@0.1#[method]subscription.next', [F[27]]],
    ['pie:inferlet/http@0.1#[method]exchange.head', [F[28]]],
    ['pie:inferlet/http@0.1#[method]exchange.read', [F[29]]],
    ['pie:inferlet/children@0.1#[method]child.started', [F[30]]],
    ['pie:inferlet/children@0.1#[method]child.send', [F[0]]],
    ['pie:inferlet/children@0.1#[method]child.receive', [F[1]]],
    ['pie:inferlet/children@0.1#[method]child.wait', [F[31]]],
    ['pie:inferlet/file-exchange@0.1#send-file', [F[0]]],
    ['pie:inferlet/file-exchange@0.1#receive-file', [F[32]]],
    ['pie:inferlet/file-exchange@0.1#list-files', [F[33]]],
  ];
  return {
    functions: new Map(functions),
    futures: new Map(futures),
    liftResult: (g, f0, f1, f2) => lift107(g, f0, f1, f2),
    loadResult: (g, p) => load108(g, p),
    resultLayout: { size: 12, align: 4 },
  };
}
