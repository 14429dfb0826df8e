/** The library for inferlets. `@pie/inferlet/raw` is the layer below: the WIT interfaces themselves. */
export type { AbortSignalLike } from './abort.ts';
export type { Message } from './bytes.ts';
export { ebnf, type JsonOptions, json, jsonSchema, regex, typed } from './constrain/constraints.ts';
export {
  attentionSink,
  entropy,
  logProbabilities,
  mask,
  scores,
  slidingWindow,
  state,
  unmask,
} from './context/attention.ts';
export { type ImagePart, type MixedMessage, type TextPart, type ThoughtFormat, thoughtFormat } from './context/chat.ts';
export {
  type ChatMessage,
  type ChatOptions,
  Context,
  type ContextOptions,
  type FillOptions,
  type OpenOptions,
  type SaveOptions,
  type Selection,
  type SelectOptions,
  select,
  type ToolCall,
} from './context/context.ts';
export {
  type FileInfo,
  type FileOptions,
  KvFile,
  type LeaseEnd,
  type Residency,
  type Rights,
  SavedContext,
  type Tier,
} from './context/files.ts';
export { fillImage, ImageError, type PreparedChat, prepareChat } from './context/image.ts';
export {
  detokenize,
  efficientTokens,
  type ModelInfo,
  model,
  models,
  type SpecialTokenIds,
  specialTokens,
  supports,
  tokenize,
  tokenizeContinuation,
} from './context/models.ts';
export { Snapshot } from './context/sequence.ts';
export { type Effort, opensThought } from './context/thought-marks.ts';
export {
  Thinking,
  type ThinkOptions,
  type Thought,
  type ThoughtEnding,
} from './context/thoughts.ts';
export { ContextOverflowError, InferletError, type InferletErrorCode, unless } from './errors.ts';
export { type Beam, type BeamOptions, beamSearch } from './generate/beam.ts';
export type { Constraint, DecodeMode } from './generate/decoders.ts';
export type {
  FinishReason,
  GenerateOptions,
  GenerationResult,
  MessageFrame,
  Piece,
  PipeOptions,
  Window,
} from './generate/generation.ts';
export { Generation } from './generate/generation.ts';
export {
  banTokens,
  type Candidates,
  frequencyPenalty,
  logitBias,
  minTokens,
  type Processor,
  type ProcessorState,
  presencePenalty,
  processors,
  repetitionDivisor,
  script,
  scripts,
} from './generate/processors.ts';
export {
  custom,
  type DeviceSampler,
  type Distribution,
  draw,
  type GuestSampler,
  greedy,
  minP,
  penalizeRepetition,
  type Sampler,
  type SamplerOptions,
  type SamplingState,
  sampler,
  temperature,
  topK,
  topP,
  uniform,
} from './generate/samplers.ts';
export type { Proposal, Speculation, SpeculationStart, Speculator } from './generate/speculation.ts';
export { draft, jacobi, ngram } from './generate/speculators.ts';
export { Child, type ChildEnding, type LaunchOptions, launch } from './io/children.ts';
export { map, race, type Task, withTimeout } from './io/concurrency.ts';
export {
  type Embedded,
  type EncodeOptions,
  type EncoderModel,
  type EncodeUsage,
  embed,
  encoders,
  type Ranked,
  rerank,
} from './io/encoders.ts';
export { type FetchOptions, fetch, Headers, type HeadersInit, Response } from './io/fetch.ts';
export type { ReceiveOptions } from './io/inbox.ts';
export {
  defineInferlet,
  environment,
  type Invocation,
  invocation,
  isCancelled,
  log,
  recordSpan,
  type SpanOptions,
  sleep,
  timeLeftMs,
} from './io/inferlet.ts';
export { broadcast, type Envelope, pull, push, Subscription, subscribe } from './io/messaging.ts';
export {
  askPerson,
  type ExchangedFile,
  flush,
  listFiles,
  type PersonQuestion,
  type ReceivedFile,
  type Resumption,
  receive,
  receiveFile,
  resumed,
  send,
  sendFile,
  sendJson,
  session,
  type Waiting,
} from './io/session.ts';
export { type SetOptions, type StoreEntry, store } from './io/store.ts';
export {
  type FieldCondition,
  type FieldValue,
  type Filter,
  type IndexEntry,
  type IndexMatch,
  type IndexOptions,
  type IndexQuery,
  type IndexStats,
  type Metric,
  VectorIndex,
} from './io/vector-index.ts';
export {
  type AgentStep,
  type AgentTask,
  appendOutcomes,
  beginTask,
  chatModel,
  type Dialect,
  dialectOf,
  type ReactOptions,
  react,
} from './tools/agents.ts';
export {
  type ParsedCall,
  ToolCallParser,
  type ToolFormat,
  type ToolOutcome,
  ToolRunner,
  type ToolRunnerOptions,
} from './tools/calls.ts';
export { type Given, sandbox } from './tools/sandbox.ts';
export {
  type JsonSchema,
  parameterNames,
  type Tool,
  type ToolContext,
  tool,
  toolSignature,
  toolSpec,
} from './tools/tools.ts';
