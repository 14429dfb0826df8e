// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
import type { ChannelCall, ValueReader, ValueWriter } from '../generate/channel-io.ts';
import type { Outcome, Access, AdapterInfo, Answer, ChatMessage, Comparison, Condition, Dimensions, Distribution, EncoderInfo, EncoderKind, Ending, Entry, Envelope, ExportInfo, Failure, Field, FileExchangeFile, FileExchangeFileInfo, FinishReason, Frame, HandlerError, Header, Imported, IndexEntry, IndexInfo, KvFilesFileInfo, LeaseEnd, LogLevel, LogitChanges, Mask, Match, MatchStatus, Message, Metric, ModelInfo, ModelMetadata, Output, PipeRequest, Piped, Question, Request, Residency, ResponseHead, Resumption, Rights, RunChunk, RunRequest, Sampler, Scores, Source, SpecialTokenIds, StepRequest, StepResult, ThoughtFormat, Tier, Value, Vectors } from './host.ts';

/** One model that the invocation may use. */
export interface LifecycleGrantedModel {
  readonly info: ModelInfo;
  /** None when the model's directory cannot be read. */
  readonly metadata?: ModelMetadata | undefined;
}

/** The data that a sandbox needs to run an invocation and to answer the calls that it implements itself. */
export interface LifecycleOpening {
  /** Number of the instance that the sandbox has made ready for the invocation. */
  readonly instance: number;
  readonly cpuLimitMs: number;
  readonly id: string;
  readonly tenant: string;
  readonly functionName: string;
  readonly functionVersion: string;
  /** The request body, JSON text. */
  readonly input: string;
  /** Milliseconds until the runtime stops the guest. */
  readonly leftMs: bigint;
  /** The first model is the default. */
  readonly models: readonly LifecycleGrantedModel[];
}

export interface LifecycleTrap {
  readonly code: string;
  readonly message: string;
}

/** The result of the guest, or the reason why there is none. */
export type LifecycleEnding =
  | { readonly tag: 'success'; readonly val: string }
  | { readonly tag: 'failure'; readonly val: string }
  | { readonly tag: 'trapped'; readonly val: LifecycleTrap };

/** Usage that the sandbox measured, without the charges of the runtime. */
export interface LifecycleUsed {
  readonly cpuMs: number;
  readonly memoryBytes: bigint;
  /** Number of calls that the guest made to the platform. */
  readonly calls: bigint;
}

/** A case of `error` with which futures of the guest completed, and the text of the last such error. */
export interface LifecycleHandlerError {
  readonly tag: string;
  readonly text: string;
}

export interface LifecycleEnded {
  readonly ending: LifecycleEnding;
  readonly used: LifecycleUsed;
  readonly handlerErrors: readonly LifecycleHandlerError[];
  /** The beginning of the text that the guest's language runtime wrote to standard error, such as the message of a panic. */
  readonly stderr: string;
  /** Time from the start to the guest's first call to the platform; none when the guest made no call. */
  readonly firstCallMs?: number | undefined;
}

/** The runtime's request to stop, with the reason. */
export interface LifecycleStop {
  readonly reason: HandlerError;
}

/** CPU time that the runtime spent on the guest's calls, which the sandbox counts as the guest's. */
export interface LifecycleCharge {
  readonly cpuMs: number;
}

export function writeTypesError(w: ValueWriter, v: HandlerError): void {
  switch (v.tag) {
    case 'invalid-argument':
      w.case(0); w.string(v.val);
      return;
    case 'not-owned':
      w.case(1); w.string(v.val);
      return;
    case 'unsupported':
      w.case(2); w.string(v.val);
      return;
    case 'not-found':
      w.case(3); w.string(v.val);
      return;
    case 'limit-exceeded':
      w.case(4); w.string(v.val);
      return;
    case 'context-overflow':
      w.case(5); w.string(v.val);
      return;
    case 'dependency-failed':
      w.case(6); w.string(v.val);
      return;
    case 'cancelled':
      w.case(7); w.string(v.val);
      return;
    case 'deadline-exceeded':
      w.case(8); w.string(v.val);
      return;
    case 'terminated':
      w.case(9); w.string(v.val);
      return;
    case 'unavailable':
      w.case(10); w.string(v.val);
      return;
    case 'closed':
      w.case(11); w.string(v.val);
      return;
    case 'internal':
      w.case(12); w.string(v.val);
      return;
    default:
      w.case(-1);
  }
}
export function readTypesError(r: ValueReader): HandlerError {
  switch (r.case(13)) {
    case 0: return { tag: 'invalid-argument', val: r.string() };
    case 1: return { tag: 'not-owned', val: r.string() };
    case 2: return { tag: 'unsupported', val: r.string() };
    case 3: return { tag: 'not-found', val: r.string() };
    case 4: return { tag: 'limit-exceeded', val: r.string() };
    case 5: return { tag: 'context-overflow', val: r.string() };
    case 6: return { tag: 'dependency-failed', val: r.string() };
    case 7: return { tag: 'cancelled', val: r.string() };
    case 8: return { tag: 'deadline-exceeded', val: r.string() };
    case 9: return { tag: 'terminated', val: r.string() };
    case 10: return { tag: 'unavailable', val: r.string() };
    case 11: return { tag: 'closed', val: r.string() };
    default: return { tag: 'internal', val: r.string() };
  }
}
const runtimeLogLevelCases: readonly LogLevel[] = ['debug', 'info', 'warn', 'error'];
export function writeRuntimeLogLevel(w: ValueWriter, v: LogLevel): void {
  w.case(runtimeLogLevelCases.indexOf(v));
}
export function readRuntimeLogLevel(r: ValueReader): LogLevel {
  return r.pick(runtimeLogLevelCases);
}
export function writeRuntimeModelInfo(w: ValueWriter, v: ModelInfo): void {
  w.string(v.name);
  w.u32(v.contextLength);
  w.u32(v.vocabularySize);
  w.u32(v.pageSize);
  w.count(v.traits.length); for (const e of v.traits) { w.string(e); }
}
export function readRuntimeModelInfo(r: ValueReader): ModelInfo {
  return {
    name: r.string(),
    contextLength: r.u32(),
    vocabularySize: r.u32(),
    pageSize: r.u32(),
    traits: r.list(4, () => r.string()),
  };
}
export function writeRuntimeModelMetadata(w: ValueWriter, v: ModelMetadata): void {
  w.string(v.architecture);
  w.u64(v.parameters);
  w.u32(v.layers);
  w.u32(v.hiddenSize);
  w.u32(v.attentionHeads);
  w.u32(v.keyValueHeads);
  w.u32(v.headSize);
  w.u32(v.bits);
}
export function readRuntimeModelMetadata(r: ValueReader): ModelMetadata {
  return {
    architecture: r.string(),
    parameters: r.u64(),
    layers: r.u32(),
    hiddenSize: r.u32(),
    attentionHeads: r.u32(),
    keyValueHeads: r.u32(),
    headSize: r.u32(),
    bits: r.u32(),
  };
}
export function writeSessionMessage(w: ValueWriter, v: Message): void {
  switch (v.tag) {
    case 'text':
      w.case(0); w.string(v.val);
      return;
    case 'bytes':
      w.case(1); w.numbers(v.val);
      return;
    default:
      w.case(-1);
  }
}
export function readSessionMessage(r: ValueReader): Message {
  switch (r.case(2)) {
    case 0: return { tag: 'text', val: r.string() };
    default: return { tag: 'bytes', val: r.u8List() };
  }
}
export function writeAllocateExportInfo(w: ValueWriter, v: ExportInfo): void {
  w.string(v.name);
  w.u32(v.pages);
  w.u32(v.tokens);
  w.u32(v.nextPosition);
  w.bool(v.persistent);
}
export function readAllocateExportInfo(r: ValueReader): ExportInfo {
  return {
    name: r.string(),
    pages: r.u32(),
    tokens: r.u32(),
    nextPosition: r.u32(),
    persistent: r.bool(),
  };
}
export function writeAllocateImported(w: ValueWriter, v: Imported): void {
  w.numbers(v.pages);
  w.u32(v.tokens);
  w.u32(v.nextPosition);
}
export function readAllocateImported(r: ValueReader): Imported {
  return {
    pages: r.u32List(),
    tokens: r.u32(),
    nextPosition: r.u32(),
  };
}
const allocateTierCases: readonly Tier[] = ['device', 'memory', 'disk'];
export function writeAllocateTier(w: ValueWriter, v: Tier): void {
  w.case(allocateTierCases.indexOf(v));
}
export function readAllocateTier(r: ValueReader): Tier {
  return r.pick(allocateTierCases);
}
const allocateLeaseEndCases: readonly LeaseEnd[] = ['expired', 'pressure'];
export function writeAllocateLeaseEnd(w: ValueWriter, v: LeaseEnd): void {
  w.case(allocateLeaseEndCases.indexOf(v));
}
export function readAllocateLeaseEnd(r: ValueReader): LeaseEnd {
  return r.pick(allocateLeaseEndCases);
}
export function writeAllocateResidency(w: ValueWriter, v: Residency): void {
  writeAllocateTier(w, v.tier);
  w.u32(v.devicePages);
  w.u32(v.memoryPages);
  w.u32(v.diskPages);
  w.u64(v.bytes);
  w.u32(v.leaseMs);
  if (v.leaseEnded === undefined) w.case(0); else { w.case(1); writeAllocateLeaseEnd(w, v.leaseEnded); }
}
export function readAllocateResidency(r: ValueReader): Residency {
  return {
    tier: readAllocateTier(r),
    devicePages: r.u32(),
    memoryPages: r.u32(),
    diskPages: r.u32(),
    bytes: r.u64(),
    leaseMs: r.u32(),
    leaseEnded: (r.case(2) === 0 ? undefined : readAllocateLeaseEnd(r)),
  };
}
export function writeForwardMask(w: ValueWriter, v: Mask): void {
  w.numbers(v.runs);
  w.numbers(v.rowLengths);
}
export function readForwardMask(r: ValueReader): Mask {
  return {
    runs: r.u32List(),
    rowLengths: r.u32List(),
  };
}
export function writeOutputTextDistribution(w: ValueWriter, v: Distribution): void {
  w.numbers(v.tokens);
  w.numbers(v.logProbabilities);
}
export function readOutputTextDistribution(r: ValueReader): Distribution {
  return {
    tokens: r.u32List(),
    logProbabilities: r.f32List(),
  };
}
export function writeFusedSampler(w: ValueWriter, v: Sampler): void {
  w.f32(v.temperature);
  w.u32(v.topK);
  w.f32(v.topP);
  w.f32(v.minP);
  w.u32(v.seed);
}
export function readFusedSampler(r: ValueReader): Sampler {
  return {
    temperature: r.f32(),
    topK: r.u32(),
    topP: r.f32(),
    minP: r.f32(),
    seed: r.u32(),
  };
}
export function writeFusedOutput(w: ValueWriter, v: Output): void {
  switch (v.tag) {
    case 'none':
      w.case(0);
      return;
    case 'sample':
      w.case(1); writeFusedSampler(w, v.val);
      return;
    case 'distributions':
      w.case(2); w.u32(v.val);
      return;
    default:
      w.case(-1);
  }
}
export function readFusedOutput(r: ValueReader): Output {
  switch (r.case(3)) {
    case 0: return { tag: 'none' };
    case 1: return { tag: 'sample', val: readFusedSampler(r) };
    default: return { tag: 'distributions', val: r.u32() };
  }
}
export function writeFusedStepRequest(w: ValueWriter, v: StepRequest): void {
  w.numbers(v.tokens);
  w.numbers(v.positions);
  w.numbers(v.inPages);
  w.numbers(v.outPages);
  if (v.mask === undefined) w.case(0); else { w.case(1); writeForwardMask(w, v.mask); }
  w.u32(v.rows);
  writeFusedOutput(w, v.output);
}
export function readFusedStepRequest(r: ValueReader): StepRequest {
  return {
    tokens: r.u32List(),
    positions: r.u32List(),
    inPages: r.u32List(),
    outPages: r.u32List(),
    mask: (r.case(2) === 0 ? undefined : readForwardMask(r)),
    rows: r.u32(),
    output: readFusedOutput(r),
  };
}
export function writeFusedStepResult(w: ValueWriter, v: StepResult): void {
  w.numbers(v.tokens);
  w.count(v.distributions.length); for (const e of v.distributions) { writeOutputTextDistribution(w, e); }
}
export function readFusedStepResult(r: ValueReader): StepResult {
  return {
    tokens: r.u32List(),
    distributions: r.list(8, () => readOutputTextDistribution(r)),
  };
}
export function writeFusedRunRequest(w: ValueWriter, v: RunRequest): void {
  w.u32(v.token);
  w.u32(v.position);
  w.numbers(v.pages);
  w.u32(v.maxTokens);
  writeFusedSampler(w, v.sampler);
  w.numbers(v.stopTokens);
}
export function readFusedRunRequest(r: ValueReader): RunRequest {
  return {
    token: r.u32(),
    position: r.u32(),
    pages: r.u32List(),
    maxTokens: r.u32(),
    sampler: readFusedSampler(r),
    stopTokens: r.u32List(),
  };
}
const fusedFinishReasonCases: readonly FinishReason[] = ['stop-token', 'max-tokens', 'stopped'];
export function writeFusedFinishReason(w: ValueWriter, v: FinishReason): void {
  w.case(fusedFinishReasonCases.indexOf(v));
}
export function readFusedFinishReason(r: ValueReader): FinishReason {
  return r.pick(fusedFinishReasonCases);
}
export function writeFusedRunChunk(w: ValueWriter, v: RunChunk): void {
  w.numbers(v.tokens);
  if (v.finished === undefined) w.case(0); else { w.case(1); writeFusedFinishReason(w, v.finished); }
}
export function readFusedRunChunk(r: ValueReader): RunChunk {
  return {
    tokens: r.u32List(),
    finished: (r.case(2) === 0 ? undefined : readFusedFinishReason(r)),
  };
}
export function writeFusedFrame(w: ValueWriter, v: Frame): void {
  w.string(v.opening);
  w.string(v.before);
  w.string(v.after);
}
export function readFusedFrame(r: ValueReader): Frame {
  return {
    opening: r.string(),
    before: r.string(),
    after: r.string(),
  };
}
export function writeFusedPipeRequest(w: ValueWriter, v: PipeRequest): void {
  w.numbers(v.before);
  w.string(v.held);
  w.count(v.stops.length); for (const e of v.stops) { w.string(e); }
  if (v.frame === undefined) w.case(0); else { w.case(1); writeFusedFrame(w, v.frame); }
}
export function readFusedPipeRequest(r: ValueReader): PipeRequest {
  return {
    before: r.u32List(),
    held: r.string(),
    stops: r.list(4, () => r.string()),
    frame: (r.case(2) === 0 ? undefined : readFusedFrame(r)),
  };
}
export function writeFusedPiped(w: ValueWriter, v: Piped): void {
  w.numbers(v.tokens);
  w.string(v.text);
  w.string(v.held);
  if (v.stop === undefined) w.case(0); else { w.case(1); w.string(v.stop); }
  if (v.finished === undefined) w.case(0); else { w.case(1); writeFusedFinishReason(w, v.finished); }
}
export function readFusedPiped(r: ValueReader): Piped {
  return {
    tokens: r.u32List(),
    text: r.string(),
    held: r.string(),
    stop: (r.case(2) === 0 ? undefined : r.string()),
    finished: (r.case(2) === 0 ? undefined : readFusedFinishReason(r)),
  };
}
export function writeTokenizeSpecialTokenIds(w: ValueWriter, v: SpecialTokenIds): void {
  if (v.bos === undefined) w.case(0); else { w.case(1); w.u32(v.bos); }
  w.numbers(v.eos);
  if (v.pad === undefined) w.case(0); else { w.case(1); w.u32(v.pad); }
  if (v.unknown === undefined) w.case(0); else { w.case(1); w.u32(v.unknown); }
}
export function readTokenizeSpecialTokenIds(r: ValueReader): SpecialTokenIds {
  return {
    bos: (r.case(2) === 0 ? undefined : r.u32()),
    eos: r.u32List(),
    pad: (r.case(2) === 0 ? undefined : r.u32()),
    unknown: (r.case(2) === 0 ? undefined : r.u32()),
  };
}
export function writeTokenizeChatMessage(w: ValueWriter, v: ChatMessage): void {
  w.string(v.role);
  w.string(v.content);
}
export function readTokenizeChatMessage(r: ValueReader): ChatMessage {
  return {
    role: r.string(),
    content: r.string(),
  };
}
export function writeTokenizeThoughtFormat(w: ValueWriter, v: ThoughtFormat): void {
  w.string(v.open);
  w.string(v.close);
  w.string(v.begin);
  w.string(v.end);
  if (v.field === undefined) w.case(0); else { w.case(1); w.string(v.field); }
  w.count(v.toggles.length); for (const e of v.toggles) { w.string(e); }
  w.count(v.efforts.length); for (const e of v.efforts) { w.string(e); }
}
export function readTokenizeThoughtFormat(r: ValueReader): ThoughtFormat {
  return {
    open: r.string(),
    close: r.string(),
    begin: r.string(),
    end: r.string(),
    field: (r.case(2) === 0 ? undefined : r.string()),
    toggles: r.list(4, () => r.string()),
    efforts: r.list(4, () => r.string()),
  };
}
export function writeGrammarSource(w: ValueWriter, v: Source): void {
  switch (v.tag) {
    case 'json-schema':
      w.case(0); w.string(v.val);
      return;
    case 'regex':
      w.case(1); w.string(v.val);
      return;
    case 'ebnf':
      w.case(2); w.string(v.val);
      return;
    case 'json':
      w.case(3);
      return;
    default:
      w.case(-1);
  }
}
export function readGrammarSource(r: ValueReader): Source {
  switch (r.case(4)) {
    case 0: return { tag: 'json-schema', val: r.string() };
    case 1: return { tag: 'regex', val: r.string() };
    case 2: return { tag: 'ebnf', val: r.string() };
    default: return { tag: 'json' };
  }
}
export function writeGrammarMatchStatus(w: ValueWriter, v: MatchStatus): void {
  w.bool(v.mayEnd);
  w.bool(v.mustEnd);
}
export function readGrammarMatchStatus(r: ValueReader): MatchStatus {
  return {
    mayEnd: r.bool(),
    mustEnd: r.bool(),
  };
}
export function writePenaltiesLogitChanges(w: ValueWriter, v: LogitChanges): void {
  w.f32(v.frequency);
  w.f32(v.presence);
  w.numbers(v.biasTokens);
  w.numbers(v.biasValues);
  w.numbers(v.chosen);
}
export function readPenaltiesLogitChanges(r: ValueReader): LogitChanges {
  return {
    frequency: r.f32(),
    presence: r.f32(),
    biasTokens: r.u32List(),
    biasValues: r.f32List(),
    chosen: r.u32List(),
  };
}
const kvFilesAccessCases: readonly Access[] = ['read', 'write'];
export function writeKvFilesAccess(w: ValueWriter, v: Access): void {
  w.case(kvFilesAccessCases.indexOf(v));
}
export function readKvFilesAccess(r: ValueReader): Access {
  return r.pick(kvFilesAccessCases);
}
const kvFilesRightsCases: readonly Rights[] = ['private', 'readable', 'writable'];
export function writeKvFilesRights(w: ValueWriter, v: Rights): void {
  w.case(kvFilesRightsCases.indexOf(v));
}
export function readKvFilesRights(r: ValueReader): Rights {
  return r.pick(kvFilesRightsCases);
}
export function writeKvFilesFileInfo(w: ValueWriter, v: KvFilesFileInfo): void {
  w.string(v.name);
  w.u32(v.tokens);
  w.u32(v.nextPosition);
  w.bool(v.persistent);
  writeKvFilesRights(w, v.rights);
  w.string(v.owner);
  w.bool(v.locked);
}
export function readKvFilesFileInfo(r: ValueReader): KvFilesFileInfo {
  return {
    name: r.string(),
    tokens: r.u32(),
    nextPosition: r.u32(),
    persistent: r.bool(),
    rights: readKvFilesRights(r),
    owner: r.string(),
    locked: r.bool(),
  };
}
export function writeInputImageDimensions(w: ValueWriter, v: Dimensions): void {
  w.u32(v.width);
  w.u32(v.height);
}
export function readInputImageDimensions(r: ValueReader): Dimensions {
  return {
    width: r.u32(),
    height: r.u32(),
  };
}
export function writeAdapterAdapterInfo(w: ValueWriter, v: AdapterInfo): void {
  w.string(v.name);
  w.u32(v.rank);
  w.bool(v.loaded);
}
export function readAdapterAdapterInfo(r: ValueReader): AdapterInfo {
  return {
    name: r.string(),
    rank: r.u32(),
    loaded: r.bool(),
  };
}
const embeddingEncoderKindCases: readonly EncoderKind[] = ['embedding', 'reranker'];
export function writeEmbeddingEncoderKind(w: ValueWriter, v: EncoderKind): void {
  w.case(embeddingEncoderKindCases.indexOf(v));
}
export function readEmbeddingEncoderKind(r: ValueReader): EncoderKind {
  return r.pick(embeddingEncoderKindCases);
}
export function writeEmbeddingEncoderInfo(w: ValueWriter, v: EncoderInfo): void {
  w.string(v.name);
  writeEmbeddingEncoderKind(w, v.kind);
  w.u32(v.size);
  w.u32(v.contextLength);
}
export function readEmbeddingEncoderInfo(r: ValueReader): EncoderInfo {
  return {
    name: r.string(),
    kind: readEmbeddingEncoderKind(r),
    size: r.u32(),
    contextLength: r.u32(),
  };
}
export function writeEmbeddingVectors(w: ValueWriter, v: Vectors): void {
  w.u32(v.size);
  w.numbers(v.values);
  w.u32(v.tokens);
  w.u32(v.cut);
}
export function readEmbeddingVectors(r: ValueReader): Vectors {
  return {
    size: r.u32(),
    values: r.f32List(),
    tokens: r.u32(),
    cut: r.u32(),
  };
}
export function writeRerankScores(w: ValueWriter, v: Scores): void {
  w.numbers(v.values);
  w.u32(v.tokens);
  w.u32(v.cut);
}
export function readRerankScores(r: ValueReader): Scores {
  return {
    values: r.f32List(),
    tokens: r.u32(),
    cut: r.u32(),
  };
}
const indexMetricCases: readonly Metric[] = ['cosine', 'dot-product', 'euclidean'];
export function writeIndexMetric(w: ValueWriter, v: Metric): void {
  w.case(indexMetricCases.indexOf(v));
}
export function readIndexMetric(r: ValueReader): Metric {
  return r.pick(indexMetricCases);
}
export function writeIndexValue(w: ValueWriter, v: Value): void {
  switch (v.tag) {
    case 'text':
      w.case(0); w.string(v.val);
      return;
    case 'number':
      w.case(1); w.f64(v.val);
      return;
    case 'boolean':
      w.case(2); w.bool(v.val);
      return;
    default:
      w.case(-1);
  }
}
export function readIndexValue(r: ValueReader): Value {
  switch (r.case(3)) {
    case 0: return { tag: 'text', val: r.string() };
    case 1: return { tag: 'number', val: r.f64() };
    default: return { tag: 'boolean', val: r.bool() };
  }
}
export function writeIndexField(w: ValueWriter, v: Field): void {
  w.string(v.name);
  writeIndexValue(w, v.value);
}
export function readIndexField(r: ValueReader): Field {
  return {
    name: r.string(),
    value: readIndexValue(r),
  };
}
export function writeIndexIndexEntry(w: ValueWriter, v: IndexEntry): void {
  w.string(v.id);
  if (v.text === undefined) w.case(0); else { w.case(1); w.string(v.text); }
  w.count(v.fields.length); for (const e of v.fields) { writeIndexField(w, e); }
}
export function readIndexIndexEntry(r: ValueReader): IndexEntry {
  return {
    id: r.string(),
    text: (r.case(2) === 0 ? undefined : r.string()),
    fields: r.list(6, () => readIndexField(r)),
  };
}
const indexComparisonCases: readonly Comparison[] = ['equal', 'not-equal', 'less', 'at-most', 'greater', 'at-least'];
export function writeIndexComparison(w: ValueWriter, v: Comparison): void {
  w.case(indexComparisonCases.indexOf(v));
}
export function readIndexComparison(r: ValueReader): Comparison {
  return r.pick(indexComparisonCases);
}
export function writeIndexCondition(w: ValueWriter, v: Condition): void {
  w.string(v.field);
  writeIndexComparison(w, v.comparison);
  w.count(v.values.length); for (const e of v.values) { writeIndexValue(w, e); }
}
export function readIndexCondition(r: ValueReader): Condition {
  return {
    field: r.string(),
    comparison: readIndexComparison(r),
    values: r.list(2, () => readIndexValue(r)),
  };
}
export function writeIndexMatch(w: ValueWriter, v: Match): void {
  writeIndexIndexEntry(w, v.entry);
  w.f64(v.score);
}
export function readIndexMatch(r: ValueReader): Match {
  return {
    entry: readIndexIndexEntry(r),
    score: r.f64(),
  };
}
export function writeIndexIndexInfo(w: ValueWriter, v: IndexInfo): void {
  w.string(v.name);
  w.u32(v.dimensions);
  writeIndexMetric(w, v.metric);
  w.u64(v.entries);
  w.u64(v.bytes);
}
export function readIndexIndexInfo(r: ValueReader): IndexInfo {
  return {
    name: r.string(),
    dimensions: r.u32(),
    metric: readIndexMetric(r),
    entries: r.u64(),
    bytes: r.u64(),
  };
}
export function writeStoreEntry(w: ValueWriter, v: Entry): void {
  w.numbers(v.value);
  w.u64(v.version);
}
export function readStoreEntry(r: ValueReader): Entry {
  return {
    value: r.u8List(),
    version: r.u64(),
  };
}
export function writeMessagingEnvelope(w: ValueWriter, v: Envelope): void {
  w.string(v.sender);
  writeSessionMessage(w, v.message);
}
export function readMessagingEnvelope(r: ValueReader): Envelope {
  return {
    sender: r.string(),
    message: readSessionMessage(r),
  };
}
export function writeHttpHeader(w: ValueWriter, v: Header): void {
  w.string(v.name);
  w.string(v.value);
}
export function readHttpHeader(r: ValueReader): Header {
  return {
    name: r.string(),
    value: r.string(),
  };
}
export function writeHttpRequest(w: ValueWriter, v: Request): void {
  w.string(v.method);
  w.string(v.url);
  w.count(v.headers.length); for (const e of v.headers) { writeHttpHeader(w, e); }
  if (v.body === undefined) w.case(0); else { w.case(1); w.numbers(v.body); }
  if (v.timeoutMs === undefined) w.case(0); else { w.case(1); w.u32(v.timeoutMs); }
  w.u32(v.redirects);
}
export function readHttpRequest(r: ValueReader): Request {
  return {
    method: r.string(),
    url: r.string(),
    headers: r.list(8, () => readHttpHeader(r)),
    body: (r.case(2) === 0 ? undefined : r.u8List()),
    timeoutMs: (r.case(2) === 0 ? undefined : r.u32()),
    redirects: r.u32(),
  };
}
export function writeHttpResponseHead(w: ValueWriter, v: ResponseHead): void {
  w.u16(v.status);
  w.count(v.headers.length); for (const e of v.headers) { writeHttpHeader(w, e); }
  w.string(v.url);
}
export function readHttpResponseHead(r: ValueReader): ResponseHead {
  return {
    status: r.u16(),
    headers: r.list(8, () => readHttpHeader(r)),
    url: r.string(),
  };
}
export function writeChildrenFailure(w: ValueWriter, v: Failure): void {
  w.string(v.code);
  w.string(v.message);
}
export function readChildrenFailure(r: ValueReader): Failure {
  return {
    code: r.string(),
    message: r.string(),
  };
}
export function writeChildrenEnding(w: ValueWriter, v: Ending): void {
  switch (v.tag) {
    case 'success':
      w.case(0); w.string(v.val);
      return;
    case 'failure':
      w.case(1); writeChildrenFailure(w, v.val);
      return;
    default:
      w.case(-1);
  }
}
export function readChildrenEnding(r: ValueReader): Ending {
  switch (r.case(2)) {
    case 0: return { tag: 'success', val: r.string() };
    default: return { tag: 'failure', val: readChildrenFailure(r) };
  }
}
export function writeFileExchangeFileInfo(w: ValueWriter, v: FileExchangeFileInfo): void {
  w.string(v.name);
  w.string(v.mediaType);
  w.u64(v.size);
}
export function readFileExchangeFileInfo(r: ValueReader): FileExchangeFileInfo {
  return {
    name: r.string(),
    mediaType: r.string(),
    size: r.u64(),
  };
}
export function writeFileExchangeFile(w: ValueWriter, v: FileExchangeFile): void {
  w.string(v.mediaType);
  w.numbers(v.content);
}
export function readFileExchangeFile(r: ValueReader): FileExchangeFile {
  return {
    mediaType: r.string(),
    content: r.u8List(),
  };
}
export function writePersonQuestion(w: ValueWriter, v: Question): void {
  w.string(v.text);
  w.string(v.schema);
  w.u32(v.timeoutSeconds);
  w.string(v.state);
}
export function readPersonQuestion(r: ValueReader): Question {
  return {
    text: r.string(),
    schema: r.string(),
    timeoutSeconds: r.u32(),
    state: r.string(),
  };
}
export function writePersonAnswer(w: ValueWriter, v: Answer): void {
  switch (v.tag) {
    case 'answered':
      w.case(0); w.string(v.val);
      return;
    case 'expired':
      w.case(1);
      return;
    default:
      w.case(-1);
  }
}
export function readPersonAnswer(r: ValueReader): Answer {
  switch (r.case(2)) {
    case 0: return { tag: 'answered', val: r.string() };
    default: return { tag: 'expired' };
  }
}
export function writePersonResumption(w: ValueWriter, v: Resumption): void {
  w.string(v.state);
  writePersonAnswer(w, v.answer);
}
export function readPersonResumption(r: ValueReader): Resumption {
  return {
    state: r.string(),
    answer: readPersonAnswer(r),
  };
}
export function writeLifecycleGrantedModel(w: ValueWriter, v: LifecycleGrantedModel): void {
  writeRuntimeModelInfo(w, v.info);
  if (v.metadata === undefined) w.case(0); else { w.case(1); writeRuntimeModelMetadata(w, v.metadata); }
}
export function readLifecycleGrantedModel(r: ValueReader): LifecycleGrantedModel {
  return {
    info: readRuntimeModelInfo(r),
    metadata: (r.case(2) === 0 ? undefined : readRuntimeModelMetadata(r)),
  };
}
export function writeLifecycleOpening(w: ValueWriter, v: LifecycleOpening): void {
  w.u32(v.instance);
  w.f64(v.cpuLimitMs);
  w.string(v.id);
  w.string(v.tenant);
  w.string(v.functionName);
  w.string(v.functionVersion);
  w.string(v.input);
  w.u64(v.leftMs);
  w.count(v.models.length); for (const e of v.models) { writeLifecycleGrantedModel(w, e); }
}
export function readLifecycleOpening(r: ValueReader): LifecycleOpening {
  return {
    instance: r.u32(),
    cpuLimitMs: r.f64(),
    id: r.string(),
    tenant: r.string(),
    functionName: r.string(),
    functionVersion: r.string(),
    input: r.string(),
    leftMs: r.u64(),
    models: r.list(21, () => readLifecycleGrantedModel(r)),
  };
}
export function writeLifecycleTrap(w: ValueWriter, v: LifecycleTrap): void {
  w.string(v.code);
  w.string(v.message);
}
export function readLifecycleTrap(r: ValueReader): LifecycleTrap {
  return {
    code: r.string(),
    message: r.string(),
  };
}
export function writeLifecycleEnding(w: ValueWriter, v: LifecycleEnding): void {
  switch (v.tag) {
    case 'success':
      w.case(0); w.string(v.val);
      return;
    case 'failure':
      w.case(1); w.string(v.val);
      return;
    case 'trapped':
      w.case(2); writeLifecycleTrap(w, v.val);
      return;
    default:
      w.case(-1);
  }
}
export function readLifecycleEnding(r: ValueReader): LifecycleEnding {
  switch (r.case(3)) {
    case 0: return { tag: 'success', val: r.string() };
    case 1: return { tag: 'failure', val: r.string() };
    default: return { tag: 'trapped', val: readLifecycleTrap(r) };
  }
}
export function writeLifecycleUsed(w: ValueWriter, v: LifecycleUsed): void {
  w.f64(v.cpuMs);
  w.u64(v.memoryBytes);
  w.u64(v.calls);
}
export function readLifecycleUsed(r: ValueReader): LifecycleUsed {
  return {
    cpuMs: r.f64(),
    memoryBytes: r.u64(),
    calls: r.u64(),
  };
}
export function writeLifecycleHandlerError(w: ValueWriter, v: LifecycleHandlerError): void {
  w.string(v.tag);
  w.string(v.text);
}
export function readLifecycleHandlerError(r: ValueReader): LifecycleHandlerError {
  return {
    tag: r.string(),
    text: r.string(),
  };
}
export function writeLifecycleEnded(w: ValueWriter, v: LifecycleEnded): void {
  writeLifecycleEnding(w, v.ending);
  writeLifecycleUsed(w, v.used);
  w.count(v.handlerErrors.length); for (const e of v.handlerErrors) { writeLifecycleHandlerError(w, e); }
  w.string(v.stderr);
  if (v.firstCallMs === undefined) w.case(0); else { w.case(1); w.f64(v.firstCallMs); }
}
export function readLifecycleEnded(r: ValueReader): LifecycleEnded {
  return {
    ending: readLifecycleEnding(r),
    used: readLifecycleUsed(r),
    handlerErrors: r.list(8, () => readLifecycleHandlerError(r)),
    stderr: r.string(),
    firstCallMs: (r.case(2) === 0 ? undefined : r.f64()),
  };
}
export function writeLifecycleStop(w: ValueWriter, v: LifecycleStop): void {
  writeTypesError(w, v.reason);
}
export function readLifecycleStop(r: ValueReader): LifecycleStop {
  return {
    reason: readTypesError(r),
  };
}
export function writeLifecycleCharge(w: ValueWriter, v: LifecycleCharge): void {
  w.f64(v.cpuMs);
}
export function readLifecycleCharge(r: ValueReader): LifecycleCharge {
  return {
    cpuMs: r.f64(),
  };
}

/** Resource types whose objects live in the runtime. The index of a type is its number. */
export const CHANNEL_RESOURCES: readonly string[] = ['queue/queue', 'fused/run', 'grammar/compiled', 'grammar/matcher', 'kv-files/file', 'messaging/subscription', 'http/exchange', 'children/child'];

/** Calls that the sandbox sends to the runtime. The index of a call is its number. */
export const CHANNEL_CALLS: readonly ChannelCall[] = [
  {
    interface: 'runtime', name: 'efficient-tokens', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<number | undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0); if (v.val === undefined) w.case(0); else { w.case(1); w.u32(v.val); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<number | undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: (r.case(2) === 0 ? undefined : r.u32()) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'runtime', name: 'debug-query', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<string, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.string(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<string, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.string() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'runtime', name: 'log', answering: 'outbox', resource: -1, fallible: false,
    writeArguments(w, [a0, a1]: readonly [LogLevel, string]) { writeRuntimeLogLevel(w, a0); w.string(a1); },
    readArguments(r) { return [readRuntimeLogLevel(r), r.string()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'runtime', name: 'record-span', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1, a2, a3, a4]: readonly [string, string, bigint, bigint, boolean]) { w.string(a0); w.string(a1); w.u64(a2); w.u64(a3); w.bool(a4); },
    readArguments(r) { return [r.string(), r.string(), r.u64(), r.u64(), r.bool()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'runtime', name: 'sleep', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [number]) { w.u32(a0); },
    readArguments(r) { return [r.u32()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'session', name: 'send', answering: 'outbox', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [Message]) { writeSessionMessage(w, a0); },
    readArguments(r) { return [readSessionMessage(r)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'session', name: 'flush', answering: 'future', resource: -1, fallible: true,
    writeArguments() {  },
    readArguments() { return []; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'session', name: 'receive', answering: 'future', resource: -1, fallible: true,
    writeArguments() {  },
    readArguments() { return []; },
    writeResult(w, v: Outcome<Message, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeSessionMessage(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Message, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readSessionMessage(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'queue', name: '[constructor]queue', answering: 'makes', resource: 0, fallible: false,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'queue', name: '[method]queue.set-priority', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1]: readonly [unknown, number]) { w.handle(0, a0); w.s32(a1); },
    readArguments(r) { return [r.handle(0), r.s32()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'queue', name: '[method]queue.set-depth', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1]: readonly [unknown, number]) { w.handle(0, a0); w.u32(a1); },
    readArguments(r) { return [r.handle(0), r.u32()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'queue', name: '[method]queue.stop', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(0, a0); },
    readArguments(r) { return [r.handle(0)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'queue', name: '[method]queue.synchronize', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(0, a0); },
    readArguments(r) { return [r.handle(0)]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'queue', name: '[resource-drop]queue', answering: 'drop', resource: 0, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(0, a0); },
    readArguments(r) { return [r.take(0)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'allocate', name: 'page-size', answering: 'waits', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(0, a0); },
    readArguments(r) { return [r.handle(0)]; },
    writeResult(w, v: number) { w.u32(v); },
    readResult(r): number { return r.u32(); },
  },
  {
    interface: 'allocate', name: 'allocate-pages', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, number]) { w.handle(0, a0); w.u32(a1); },
    readArguments(r) { return [r.handle(0), r.u32()]; },
    writeResult(w, v: Outcome<Uint32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Uint32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'free-pages', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1]: readonly [unknown, Uint32Array]) { w.handle(0, a0); w.numbers(a1); },
    readArguments(r) { return [r.handle(0), r.u32List()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'allocate', name: 'allocate-embeds', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, number]) { w.handle(0, a0); w.u32(a1); },
    readArguments(r) { return [r.handle(0), r.u32()]; },
    writeResult(w, v: Outcome<Uint32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Uint32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'free-embeds', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1]: readonly [unknown, Uint32Array]) { w.handle(0, a0); w.numbers(a1); },
    readArguments(r) { return [r.handle(0), r.u32List()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'allocate', name: 'share-pages', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, Uint32Array]) { w.handle(0, a0); w.numbers(a1); },
    readArguments(r) { return [r.handle(0), r.u32List()]; },
    writeResult(w, v: Outcome<Uint32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Uint32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'copy-slots', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1, a2, a3, a4, a5, a6]: readonly [unknown, number, number, number, number, number, number]) { w.handle(0, a0); w.u32(a1); w.u32(a2); w.u32(a3); w.u32(a4); w.u32(a5); w.s32(a6); },
    readArguments(r) { return [r.handle(0), r.u32(), r.u32(), r.u32(), r.u32(), r.u32(), r.s32()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'allocate', name: 'copy-tokens', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1, a2, a3, a4]: readonly [unknown, Uint32Array, Uint32Array, Uint32Array, Uint32Array]) { w.handle(0, a0); w.numbers(a1); w.numbers(a2); w.numbers(a3); w.numbers(a4); },
    readArguments(r) { return [r.handle(0), r.u32List(), r.u32List(), r.u32List(), r.u32List()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'allocate', name: 'copy-embeds', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, Uint32Array, Uint32Array]) { w.handle(0, a0); w.numbers(a1); w.numbers(a2); },
    readArguments(r) { return [r.handle(0), r.u32List(), r.u32List()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'allocate', name: 'export-pages', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2, a3]: readonly [unknown, Uint32Array, string, boolean]) { w.handle(0, a0); w.numbers(a1); w.string(a2); w.bool(a3); },
    readArguments(r) { return [r.handle(0), r.u32List(), r.string(), r.bool()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'import-pages', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<Imported, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeAllocateImported(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Imported, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readAllocateImported(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'make-durable', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'unexport', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'list-exports', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(0, a0); },
    readArguments(r) { return [r.handle(0)]; },
    writeResult(w, v: Outcome<readonly ExportInfo[], HandlerError>) { if (v.tag === 'ok') { w.case(0); w.count(v.val.length); for (const e of v.val) { writeAllocateExportInfo(w, e); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<readonly ExportInfo[], HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.list(17, () => readAllocateExportInfo(r)) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'export-residency', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<Residency, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeAllocateResidency(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Residency, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readAllocateResidency(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'pin-export', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, string, number]) { w.handle(0, a0); w.string(a1); w.u32(a2); },
    readArguments(r) { return [r.handle(0), r.string(), r.u32()]; },
    writeResult(w, v: Outcome<Residency, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeAllocateResidency(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Residency, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readAllocateResidency(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'unpin-export', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<Residency, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeAllocateResidency(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Residency, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readAllocateResidency(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'retain-export', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, string, number]) { w.handle(0, a0); w.string(a1); w.u32(a2); },
    readArguments(r) { return [r.handle(0), r.string(), r.u32()]; },
    writeResult(w, v: Outcome<Residency, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeAllocateResidency(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Residency, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readAllocateResidency(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'prefetch-export', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<Residency, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeAllocateResidency(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Residency, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readAllocateResidency(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'allocate', name: 'demote-export', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, string, Tier]) { w.handle(0, a0); w.string(a1); writeAllocateTier(w, a2); },
    readArguments(r) { return [r.handle(0), r.string(), readAllocateTier(r)]; },
    writeResult(w, v: Outcome<Residency, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeAllocateResidency(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Residency, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readAllocateResidency(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'forward', name: 'forward', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1, a2, a3, a4, a5]: readonly [unknown, Uint32Array, Uint32Array, Uint32Array, Uint32Array, Mask | undefined]) { w.handle(0, a0); w.numbers(a1); w.numbers(a2); w.numbers(a3); w.numbers(a4); if (a5 === undefined) w.case(0); else { w.case(1); writeForwardMask(w, a5); } },
    readArguments(r) { return [r.handle(0), r.u32List(), r.u32List(), r.u32List(), r.u32List(), (r.case(2) === 0 ? undefined : readForwardMask(r))]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'forward', name: 'mask-page', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, number, number]) { w.handle(0, a0); w.u32(a1); w.u32(a2); },
    readArguments(r) { return [r.handle(0), r.u32(), r.u32()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'input-text', name: 'embed-text', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1, a2, a3]: readonly [unknown, Uint32Array, Uint32Array, Uint32Array]) { w.handle(0, a0); w.numbers(a1); w.numbers(a2); w.numbers(a3); },
    readArguments(r) { return [r.handle(0), r.u32List(), r.u32List(), r.u32List()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'output-text', name: 'next-distribution', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, number, number]) { w.handle(0, a0); w.u32(a1); w.u32(a2); },
    readArguments(r) { return [r.handle(0), r.u32(), r.u32()]; },
    writeResult(w, v: Outcome<Distribution, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeOutputTextDistribution(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Distribution, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readOutputTextDistribution(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'output-text', name: 'log-probabilities', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, number, Uint32Array]) { w.handle(0, a0); w.u32(a1); w.numbers(a2); },
    readArguments(r) { return [r.handle(0), r.u32(), r.u32List()]; },
    writeResult(w, v: Outcome<Float32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Float32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.f32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'output-text', name: 'entropy', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, number]) { w.handle(0, a0); w.u32(a1); },
    readArguments(r) { return [r.handle(0), r.u32()]; },
    writeResult(w, v: Outcome<number, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.f32(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<number, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.f32() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'output-text', name: 'read-embed', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, number]) { w.handle(0, a0); w.u32(a1); },
    readArguments(r) { return [r.handle(0), r.u32()]; },
    writeResult(w, v: Outcome<Float32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Float32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.f32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'fused', name: 'step', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, StepRequest]) { w.handle(0, a0); writeFusedStepRequest(w, a1); },
    readArguments(r) { return [r.handle(0), readFusedStepRequest(r)]; },
    writeResult(w, v: Outcome<StepResult, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeFusedStepResult(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<StepResult, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readFusedStepResult(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'fused', name: '[constructor]run', answering: 'makes', resource: 1, fallible: false,
    writeArguments(w, [a0, a1]: readonly [unknown, RunRequest]) { w.handle(0, a0); writeFusedRunRequest(w, a1); },
    readArguments(r) { return [r.handle(0), readFusedRunRequest(r)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'fused', name: '[method]run.next', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(1, a0); },
    readArguments(r) { return [r.handle(1)]; },
    writeResult(w, v: Outcome<RunChunk, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeFusedRunChunk(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<RunChunk, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readFusedRunChunk(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'fused', name: '[method]run.pipe', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, PipeRequest]) { w.handle(1, a0); writeFusedPipeRequest(w, a1); },
    readArguments(r) { return [r.handle(1), readFusedPipeRequest(r)]; },
    writeResult(w, v: Outcome<Piped, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeFusedPiped(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Piped, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readFusedPiped(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'fused', name: '[method]run.stop', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(1, a0); },
    readArguments(r) { return [r.handle(1)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'fused', name: '[resource-drop]run', answering: 'drop', resource: 1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(1, a0); },
    readArguments(r) { return [r.take(1)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'tokenize', name: 'tokenize', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [string, string, boolean]) { w.string(a0); w.string(a1); w.bool(a2); },
    readArguments(r) { return [r.string(), r.string(), r.bool()]; },
    writeResult(w, v: Outcome<Uint32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Uint32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'tokenize', name: 'chat-template', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [string, readonly ChatMessage[], boolean]) { w.string(a0); w.count(a1.length); for (const e of a1) { writeTokenizeChatMessage(w, e); } w.bool(a2); },
    readArguments(r) { return [r.string(), r.list(8, () => readTokenizeChatMessage(r)), r.bool()]; },
    writeResult(w, v: Outcome<string, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.string(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<string, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.string() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'tokenize', name: 'render-chat', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [string, string]) { w.string(a0); w.string(a1); },
    readArguments(r) { return [r.string(), r.string()]; },
    writeResult(w, v: Outcome<string, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.string(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<string, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.string() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'tokenize', name: 'thoughts', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<ThoughtFormat | undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0); if (v.val === undefined) w.case(0); else { w.case(1); writeTokenizeThoughtFormat(w, v.val); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<ThoughtFormat | undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: (r.case(2) === 0 ? undefined : readTokenizeThoughtFormat(r)) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'grammar', name: 'step', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, unknown, StepRequest]) { w.handle(0, a0); w.handle(3, a1); writeFusedStepRequest(w, a2); },
    readArguments(r) { return [r.handle(0), r.handle(3), readFusedStepRequest(r)]; },
    writeResult(w, v: Outcome<StepResult, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeFusedStepResult(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<StepResult, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readFusedStepResult(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'grammar', name: 'verify', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2, a3]: readonly [unknown, unknown, string | undefined, StepRequest]) { w.handle(0, a0); w.handle(3, a1); if (a2 === undefined) w.case(0); else { w.case(1); w.string(a2); } writeFusedStepRequest(w, a3); },
    readArguments(r) { return [r.handle(0), r.handle(3), (r.case(2) === 0 ? undefined : r.string()), readFusedStepRequest(r)]; },
    writeResult(w, v: Outcome<StepResult, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeFusedStepResult(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<StepResult, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readFusedStepResult(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'grammar', name: 'start-run', answering: 'makes', resource: 1, fallible: false,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, unknown, RunRequest]) { w.handle(0, a0); w.handle(3, a1); writeFusedRunRequest(w, a2); },
    readArguments(r) { return [r.handle(0), r.handle(3), readFusedRunRequest(r)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'grammar', name: '[constructor]compiled', answering: 'makes', resource: 2, fallible: false,
    writeArguments(w, [a0, a1]: readonly [string, Source]) { w.string(a0); writeGrammarSource(w, a1); },
    readArguments(r) { return [r.string(), readGrammarSource(r)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'grammar', name: '[method]compiled.ready', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(2, a0); },
    readArguments(r) { return [r.handle(2)]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'grammar', name: '[constructor]matcher', answering: 'makes', resource: 3, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(2, a0); },
    readArguments(r) { return [r.handle(2)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'grammar', name: '[method]matcher.accept', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, Uint32Array]) { w.handle(3, a0); w.numbers(a1); },
    readArguments(r) { return [r.handle(3), r.u32List()]; },
    writeResult(w, v: Outcome<boolean, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.bool(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<boolean, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.bool() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'grammar', name: '[method]matcher.mask', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(3, a0); },
    readArguments(r) { return [r.handle(3)]; },
    writeResult(w, v: Outcome<Uint32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Uint32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'grammar', name: '[method]matcher.status', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(3, a0); },
    readArguments(r) { return [r.handle(3)]; },
    writeResult(w, v: Outcome<MatchStatus, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeGrammarMatchStatus(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<MatchStatus, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readGrammarMatchStatus(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'grammar', name: '[method]matcher.jump', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, number]) { w.handle(3, a0); w.u32(a1); },
    readArguments(r) { return [r.handle(3), r.u32()]; },
    writeResult(w, v: Outcome<Uint32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Uint32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'grammar', name: '[method]matcher.fork', answering: 'makes', resource: 3, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(3, a0); },
    readArguments(r) { return [r.handle(3)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'grammar', name: '[method]matcher.rollback', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, number]) { w.handle(3, a0); w.u32(a1); },
    readArguments(r) { return [r.handle(3), r.u32()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'grammar', name: '[resource-drop]compiled', answering: 'drop', resource: 2, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(2, a0); },
    readArguments(r) { return [r.take(2)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'grammar', name: '[resource-drop]matcher', answering: 'drop', resource: 3, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(3, a0); },
    readArguments(r) { return [r.take(3)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'penalties', name: 'start-run', answering: 'makes', resource: 1, fallible: false,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, RunRequest, LogitChanges]) { w.handle(0, a0); writeFusedRunRequest(w, a1); writePenaltiesLogitChanges(w, a2); },
    readArguments(r) { return [r.handle(0), readFusedRunRequest(r), readPenaltiesLogitChanges(r)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'introspect', name: 'forward-scores', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2, a3, a4, a5]: readonly [unknown, Uint32Array, Uint32Array, Uint32Array, Uint32Array, Mask | undefined]) { w.handle(0, a0); w.numbers(a1); w.numbers(a2); w.numbers(a3); w.numbers(a4); if (a5 === undefined) w.case(0); else { w.case(1); writeForwardMask(w, a5); } },
    readArguments(r) { return [r.handle(0), r.u32List(), r.u32List(), r.u32List(), r.u32List(), (r.case(2) === 0 ? undefined : readForwardMask(r))]; },
    writeResult(w, v: Outcome<Float32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Float32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.f32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'kv-files', name: 'make-durable', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'kv-files', name: 'remove', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'kv-files', name: 'files', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<readonly KvFilesFileInfo[], HandlerError>) { if (v.tag === 'ok') { w.case(0); w.count(v.val.length); for (const e of v.val) { writeKvFilesFileInfo(w, e); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<readonly KvFilesFileInfo[], HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.list(19, () => readKvFilesFileInfo(r)) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'kv-files', name: '[constructor]file', answering: 'makes', resource: 4, fallible: false,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, string | undefined, Access]) { w.handle(0, a0); if (a1 === undefined) w.case(0); else { w.case(1); w.string(a1); } writeKvFilesAccess(w, a2); },
    readArguments(r) { return [r.handle(0), (r.case(2) === 0 ? undefined : r.string()), readKvFilesAccess(r)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'kv-files', name: '[method]file.ready', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(4, a0); },
    readArguments(r) { return [r.handle(4)]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'kv-files', name: '[method]file.tokens', answering: 'waits', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(4, a0); },
    readArguments(r) { return [r.handle(4)]; },
    writeResult(w, v: number) { w.u32(v); },
    readResult(r): number { return r.u32(); },
  },
  {
    interface: 'kv-files', name: '[method]file.next-position', answering: 'waits', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(4, a0); },
    readArguments(r) { return [r.handle(4)]; },
    writeResult(w, v: number) { w.u32(v); },
    readResult(r): number { return r.u32(); },
  },
  {
    interface: 'kv-files', name: '[method]file.pages', answering: 'waits', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(4, a0); },
    readArguments(r) { return [r.handle(4)]; },
    writeResult(w, v: Uint32Array) { w.numbers(v); },
    readResult(r): Uint32Array { return r.u32List(); },
  },
  {
    interface: 'kv-files', name: '[method]file.reserve', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, number]) { w.handle(4, a0); w.u32(a1); },
    readArguments(r) { return [r.handle(4), r.u32()]; },
    writeResult(w, v: Outcome<Uint32Array, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.numbers(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Uint32Array, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32List() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'kv-files', name: '[method]file.filled', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, number, number]) { w.handle(4, a0); w.u32(a1); w.u32(a2); },
    readArguments(r) { return [r.handle(4), r.u32(), r.u32()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'kv-files', name: '[method]file.pred', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2, a3]: readonly [unknown, Uint32Array, Uint32Array, number]) { w.handle(4, a0); w.numbers(a1); w.numbers(a2); w.u32(a3); },
    readArguments(r) { return [r.handle(4), r.u32List(), r.u32List(), r.u32()]; },
    writeResult(w, v: Outcome<readonly Distribution[], HandlerError>) { if (v.tag === 'ok') { w.case(0); w.count(v.val.length); for (const e of v.val) { writeOutputTextDistribution(w, e); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<readonly Distribution[], HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.list(8, () => readOutputTextDistribution(r)) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'kv-files', name: '[method]file.fork', answering: 'makes', resource: 4, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(4, a0); },
    readArguments(r) { return [r.handle(4)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'kv-files', name: '[method]file.extract', answering: 'makes', resource: 4, fallible: false,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, Uint32Array, number | undefined]) { w.handle(4, a0); w.numbers(a1); if (a2 === undefined) w.case(0); else { w.case(1); w.u32(a2); } },
    readArguments(r) { return [r.handle(4), r.u32List(), (r.case(2) === 0 ? undefined : r.u32())]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'kv-files', name: '[method]file.merge', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, unknown, boolean]) { w.handle(4, a0); w.handle(4, a1); w.bool(a2); },
    readArguments(r) { return [r.handle(4), r.handle(4), r.bool()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'kv-files', name: '[method]file.save', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2, a3]: readonly [unknown, string, boolean, Rights]) { w.handle(4, a0); w.string(a1); w.bool(a2); writeKvFilesRights(w, a3); },
    readArguments(r) { return [r.handle(4), r.string(), r.bool(), readKvFilesRights(r)]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'kv-files', name: '[method]file.unlock', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(4, a0); },
    readArguments(r) { return [r.handle(4)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'kv-files', name: '[resource-drop]file', answering: 'drop', resource: 4, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(4, a0); },
    readArguments(r) { return [r.take(4)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'input-image', name: 'image-dimensions', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [Uint8Array]) { w.numbers(a0); },
    readArguments(r) { return [r.u8List()]; },
    writeResult(w, v: Outcome<Dimensions, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeInputImageDimensions(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Dimensions, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readInputImageDimensions(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'input-image', name: 'image-embeds', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, Dimensions]) { w.handle(0, a0); writeInputImageDimensions(w, a1); },
    readArguments(r) { return [r.handle(0), readInputImageDimensions(r)]; },
    writeResult(w, v: Outcome<number, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.u32(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<number, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'input-image', name: 'image-token', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<number, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.u32(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<number, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'input-image', name: 'embed-image', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2, a3]: readonly [unknown, Uint8Array, Uint32Array, Uint32Array]) { w.handle(0, a0); w.numbers(a1); w.numbers(a2); w.numbers(a3); },
    readArguments(r) { return [r.handle(0), r.u8List(), r.u32List(), r.u32List()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'adapter', name: 'list-adapters', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(0, a0); },
    readArguments(r) { return [r.handle(0)]; },
    writeResult(w, v: Outcome<readonly AdapterInfo[], HandlerError>) { if (v.tag === 'ok') { w.case(0); w.count(v.val.length); for (const e of v.val) { writeAdapterAdapterInfo(w, e); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<readonly AdapterInfo[], HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.list(9, () => readAdapterAdapterInfo(r)) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'adapter', name: 'load-adapter', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, string]) { w.handle(0, a0); w.string(a1); },
    readArguments(r) { return [r.handle(0), r.string()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'adapter', name: 'forward-with-adapter', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0, a1, a2, a3, a4, a5, a6]: readonly [unknown, string, Uint32Array, Uint32Array, Uint32Array, Uint32Array, Mask | undefined]) { w.handle(0, a0); w.string(a1); w.numbers(a2); w.numbers(a3); w.numbers(a4); w.numbers(a5); if (a6 === undefined) w.case(0); else { w.case(1); writeForwardMask(w, a6); } },
    readArguments(r) { return [r.handle(0), r.string(), r.u32List(), r.u32List(), r.u32List(), r.u32List(), (r.case(2) === 0 ? undefined : readForwardMask(r))]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'adapter', name: 'step', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [unknown, string, StepRequest]) { w.handle(0, a0); w.string(a1); writeFusedStepRequest(w, a2); },
    readArguments(r) { return [r.handle(0), r.string(), readFusedStepRequest(r)]; },
    writeResult(w, v: Outcome<StepResult, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeFusedStepResult(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<StepResult, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readFusedStepResult(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'embedding', name: 'encoders', answering: 'waits', resource: -1, fallible: false,
    writeArguments() {  },
    readArguments() { return []; },
    writeResult(w, v: readonly EncoderInfo[]) { w.count(v.length); for (const e of v) { writeEmbeddingEncoderInfo(w, e); } },
    readResult(r): readonly EncoderInfo[] { return r.list(13, () => readEmbeddingEncoderInfo(r)); },
  },
  {
    interface: 'embedding', name: 'embed', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [string, readonly string[]]) { w.string(a0); w.count(a1.length); for (const e of a1) { w.string(e); } },
    readArguments(r) { return [r.string(), r.list(4, () => r.string())]; },
    writeResult(w, v: Outcome<Vectors, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeEmbeddingVectors(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Vectors, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readEmbeddingVectors(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'rerank', name: 'rerank', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [string, string, readonly string[]]) { w.string(a0); w.string(a1); w.count(a2.length); for (const e of a2) { w.string(e); } },
    readArguments(r) { return [r.string(), r.string(), r.list(4, () => r.string())]; },
    writeResult(w, v: Outcome<Scores, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeRerankScores(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Scores, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readRerankScores(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'index', name: 'create', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [string, number, Metric]) { w.string(a0); w.u32(a1); writeIndexMetric(w, a2); },
    readArguments(r) { return [r.string(), r.u32(), readIndexMetric(r)]; },
    writeResult(w, v: Outcome<IndexInfo, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeIndexIndexInfo(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<IndexInfo, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readIndexIndexInfo(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'index', name: 'upsert', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [string, readonly IndexEntry[], Float32Array]) { w.string(a0); w.count(a1.length); for (const e of a1) { writeIndexIndexEntry(w, e); } w.numbers(a2); },
    readArguments(r) { return [r.string(), r.list(9, () => readIndexIndexEntry(r)), r.f32List()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'index', name: 'delete-entries', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [string, readonly string[]]) { w.string(a0); w.count(a1.length); for (const e of a1) { w.string(e); } },
    readArguments(r) { return [r.string(), r.list(4, () => r.string())]; },
    writeResult(w, v: Outcome<number, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.u32(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<number, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'index', name: 'query', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2, a3, a4]: readonly [string, Float32Array | undefined, string | undefined, readonly Condition[], number]) { w.string(a0); if (a1 === undefined) w.case(0); else { w.case(1); w.numbers(a1); } if (a2 === undefined) w.case(0); else { w.case(1); w.string(a2); } w.count(a3.length); for (const e of a3) { writeIndexCondition(w, e); } w.u32(a4); },
    readArguments(r) { return [r.string(), (r.case(2) === 0 ? undefined : r.f32List()), (r.case(2) === 0 ? undefined : r.string()), r.list(9, () => readIndexCondition(r)), r.u32()]; },
    writeResult(w, v: Outcome<readonly Match[], HandlerError>) { if (v.tag === 'ok') { w.case(0); w.count(v.val.length); for (const e of v.val) { writeIndexMatch(w, e); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<readonly Match[], HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.list(17, () => readIndexMatch(r)) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'index', name: 'stats', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<IndexInfo, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeIndexIndexInfo(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<IndexInfo, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readIndexIndexInfo(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'index', name: 'list-indexes', answering: 'future', resource: -1, fallible: true,
    writeArguments() {  },
    readArguments() { return []; },
    writeResult(w, v: Outcome<readonly IndexInfo[], HandlerError>) { if (v.tag === 'ok') { w.case(0); w.count(v.val.length); for (const e of v.val) { writeIndexIndexInfo(w, e); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<readonly IndexInfo[], HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.list(25, () => readIndexIndexInfo(r)) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'index', name: 'drop-index', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<boolean, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.bool(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<boolean, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.bool() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'store', name: 'get', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<Entry | undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0); if (v.val === undefined) w.case(0); else { w.case(1); writeStoreEntry(w, v.val); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Entry | undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: (r.case(2) === 0 ? undefined : readStoreEntry(r)) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'store', name: 'set', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [string, Uint8Array, number | undefined]) { w.string(a0); w.numbers(a1); if (a2 === undefined) w.case(0); else { w.case(1); w.u32(a2); } },
    readArguments(r) { return [r.string(), r.u8List(), (r.case(2) === 0 ? undefined : r.u32())]; },
    writeResult(w, v: Outcome<bigint, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.u64(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<bigint, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u64() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'store', name: 'compare-and-set', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [string, bigint | undefined, Uint8Array]) { w.string(a0); if (a1 === undefined) w.case(0); else { w.case(1); w.u64(a1); } w.numbers(a2); },
    readArguments(r) { return [r.string(), (r.case(2) === 0 ? undefined : r.u64()), r.u8List()]; },
    writeResult(w, v: Outcome<bigint | undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0); if (v.val === undefined) w.case(0); else { w.case(1); w.u64(v.val); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<bigint | undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: (r.case(2) === 0 ? undefined : r.u64()) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'store', name: 'delete-key', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<boolean, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.bool(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<boolean, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.bool() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'store', name: 'exists', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<boolean, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.bool(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<boolean, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.bool() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'store', name: 'list-keys', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [string, string | undefined, number]) { w.string(a0); if (a1 === undefined) w.case(0); else { w.case(1); w.string(a1); } w.u32(a2); },
    readArguments(r) { return [r.string(), (r.case(2) === 0 ? undefined : r.string()), r.u32()]; },
    writeResult(w, v: Outcome<readonly string[], HandlerError>) { if (v.tag === 'ok') { w.case(0); w.count(v.val.length); for (const e of v.val) { w.string(e); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<readonly string[], HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.list(4, () => r.string()) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'messaging', name: 'broadcast', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [string, Message]) { w.string(a0); writeSessionMessage(w, a1); },
    readArguments(r) { return [r.string(), readSessionMessage(r)]; },
    writeResult(w, v: Outcome<number, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.u32(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<number, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.u32() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'messaging', name: 'push', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [string, Message]) { w.string(a0); writeSessionMessage(w, a1); },
    readArguments(r) { return [r.string(), readSessionMessage(r)]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'messaging', name: 'pull', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<Envelope, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeMessagingEnvelope(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Envelope, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readMessagingEnvelope(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'messaging', name: '[constructor]subscription', answering: 'makes', resource: 5, fallible: false,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'messaging', name: '[method]subscription.ready', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(5, a0); },
    readArguments(r) { return [r.handle(5)]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'messaging', name: '[method]subscription.next', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(5, a0); },
    readArguments(r) { return [r.handle(5)]; },
    writeResult(w, v: Outcome<Envelope, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeMessagingEnvelope(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Envelope, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readMessagingEnvelope(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'messaging', name: '[method]subscription.unsubscribe', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(5, a0); },
    readArguments(r) { return [r.handle(5)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'messaging', name: '[resource-drop]subscription', answering: 'drop', resource: 5, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(5, a0); },
    readArguments(r) { return [r.take(5)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'http', name: '[constructor]exchange', answering: 'makes', resource: 6, fallible: false,
    writeArguments(w, [a0]: readonly [Request]) { writeHttpRequest(w, a0); },
    readArguments(r) { return [readHttpRequest(r)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'http', name: '[method]exchange.head', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(6, a0); },
    readArguments(r) { return [r.handle(6)]; },
    writeResult(w, v: Outcome<ResponseHead, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeHttpResponseHead(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<ResponseHead, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readHttpResponseHead(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'http', name: '[method]exchange.read', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(6, a0); },
    readArguments(r) { return [r.handle(6)]; },
    writeResult(w, v: Outcome<Uint8Array | undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0); if (v.val === undefined) w.case(0); else { w.case(1); w.numbers(v.val); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Uint8Array | undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: (r.case(2) === 0 ? undefined : r.u8List()) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'http', name: '[resource-drop]exchange', answering: 'drop', resource: 6, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(6, a0); },
    readArguments(r) { return [r.take(6)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'children', name: '[constructor]child', answering: 'makes', resource: 7, fallible: false,
    writeArguments(w, [a0, a1]: readonly [string, string]) { w.string(a0); w.string(a1); },
    readArguments(r) { return [r.string(), r.string()]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'children', name: '[method]child.started', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(7, a0); },
    readArguments(r) { return [r.handle(7)]; },
    writeResult(w, v: Outcome<string, HandlerError>) { if (v.tag === 'ok') { w.case(0); w.string(v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<string, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.string() } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'children', name: '[method]child.send', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1]: readonly [unknown, Message]) { w.handle(7, a0); writeSessionMessage(w, a1); },
    readArguments(r) { return [r.handle(7), readSessionMessage(r)]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'children', name: '[method]child.close', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(7, a0); },
    readArguments(r) { return [r.handle(7)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'children', name: '[method]child.receive', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(7, a0); },
    readArguments(r) { return [r.handle(7)]; },
    writeResult(w, v: Outcome<Message, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeSessionMessage(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Message, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readSessionMessage(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'children', name: '[method]child.wait', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(7, a0); },
    readArguments(r) { return [r.handle(7)]; },
    writeResult(w, v: Outcome<Ending, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeChildrenEnding(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<Ending, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readChildrenEnding(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'children', name: '[method]child.cancel', answering: 'nothing', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(7, a0); },
    readArguments(r) { return [r.handle(7)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'children', name: '[resource-drop]child', answering: 'drop', resource: 7, fallible: false,
    writeArguments(w, [a0]: readonly [unknown]) { w.handle(7, a0); },
    readArguments(r) { return [r.take(7)]; },
    writeResult() {},
    readResult() { return undefined; },
  },
  {
    interface: 'file-exchange', name: 'send-file', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0, a1, a2]: readonly [string, string, Uint8Array]) { w.string(a0); w.string(a1); w.numbers(a2); },
    readArguments(r) { return [r.string(), r.string(), r.u8List()]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'file-exchange', name: 'receive-file', answering: 'future', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: Outcome<FileExchangeFile, HandlerError>) { if (v.tag === 'ok') { w.case(0); writeFileExchangeFile(w, v.val); } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<FileExchangeFile, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: readFileExchangeFile(r) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'file-exchange', name: 'list-files', answering: 'future', resource: -1, fallible: true,
    writeArguments() {  },
    readArguments() { return []; },
    writeResult(w, v: Outcome<readonly FileExchangeFileInfo[], HandlerError>) { if (v.tag === 'ok') { w.case(0); w.count(v.val.length); for (const e of v.val) { writeFileExchangeFileInfo(w, e); } } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<readonly FileExchangeFileInfo[], HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: r.list(16, () => readFileExchangeFileInfo(r)) } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'environment', name: 'get-variable', answering: 'waits', resource: -1, fallible: false,
    writeArguments(w, [a0]: readonly [string]) { w.string(a0); },
    readArguments(r) { return [r.string()]; },
    writeResult(w, v: string | undefined) { if (v === undefined) w.case(0); else { w.case(1); w.string(v); } },
    readResult(r): string | undefined { return (r.case(2) === 0 ? undefined : r.string()); },
  },
  {
    interface: 'environment', name: 'list-variables', answering: 'waits', resource: -1, fallible: false,
    writeArguments() {  },
    readArguments() { return []; },
    writeResult(w, v: readonly string[]) { w.count(v.length); for (const e of v) { w.string(e); } },
    readResult(r): readonly string[] { return r.list(4, () => r.string()); },
  },
  {
    interface: 'person', name: 'ask', answering: 'waits', resource: -1, fallible: true,
    writeArguments(w, [a0]: readonly [Question]) { writePersonQuestion(w, a0); },
    readArguments(r) { return [readPersonQuestion(r)]; },
    writeResult(w, v: Outcome<undefined, HandlerError>) { if (v.tag === 'ok') { w.case(0);  } else { w.case(1); writeTypesError(w, v.val); } },
    readResult(r): Outcome<undefined, HandlerError> { return (r.case(2) === 0 ? { tag: 'ok', val: undefined } : { tag: 'err', val: readTypesError(r) }); },
  },
  {
    interface: 'person', name: 'resumed', answering: 'waits', resource: -1, fallible: false,
    writeArguments() {  },
    readArguments() { return []; },
    writeResult(w, v: Resumption | undefined) { if (v === undefined) w.case(0); else { w.case(1); writePersonResumption(w, v); } },
    readResult(r): Resumption | undefined { return (r.case(2) === 0 ? undefined : readPersonResumption(r)); },
  },
];
