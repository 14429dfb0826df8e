/** The library for inferlets. `@pie/inferlet/raw` is the layer below: the WIT interfaces themselves. */
export type { AbortSignalLike } from './abort.ts';
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
} from './agents.ts';
export { attentionSink, mask, slidingWindow, unmask } from './attention.ts';
export { type Beam, type BeamOptions, beamSearch } from './beam.ts';
export type { Message } from './bytes.ts';
export type { ImagePart, MixedMessage, TextPart } from './chat.ts';
export { Child, type ChildEnding, type LaunchOptions, launch } from './children.ts';
export { map, race, type Task, withTimeout } from './concurrency.ts';
export { ebnf, type JsonOptions, json, jsonSchema, regex } from './constraints.ts';
export {
  type ChatMessage,
  type ChatOptions,
  Context,
  type ContextOptions,
  type FillOptions,
  type OpenOptions,
  type SaveOptions,
  type ToolCall,
} from './context.ts';
export type { Constraint, DecodeMode } from './decoders.ts';
export {
  type Embedded,
  type EncodeOptions,
  type EncoderModel,
  type EncodeUsage,
  embed,
  encoders,
  type Ranked,
  rerank,
} from './encoders.ts';
export { environment } from './environment.ts';
export { ContextOverflowError, InferletError, type InferletErrorCode, unless } from './errors.ts';
export { type FetchOptions, fetch, Headers, type HeadersInit, Response } from './fetch.ts';
export { type FileInfo, type FileOptions, KvFile, type Rights } from './files.ts';
export { type ExchangedFile, listFiles, type ReceivedFile, receiveFile, sendFile } from './files-exchange.ts';
export { Generation } from './generation.ts';
export type {
  FinishReason,
  GenerateOptions,
  GenerationResult,
  MessageFrame,
  Piece,
  PipeOptions,
  Window,
} from './generation-options.ts';
export { fillImage, ImageError, type PreparedChat, prepareChat } from './image.ts';
export type { ReceiveOptions } from './inbox.ts';
export {
  defineInferlet,
  type Invocation,
  invocation,
  isCancelled,
  log,
  recordSpan,
  type SpanOptions,
  sleep,
  timeLeftMs,
} from './inferlet.ts';
export { entropy, logProbabilities, scores, state } from './inspect.ts';
export { broadcast, type Envelope, pull, push, Subscription, subscribe } from './messaging.ts';
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
} from './models.ts';
export { askPerson, type PersonQuestion, type Resumption, resumed, type Waiting } from './person.ts';
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
} from './processors.ts';
export { uniform } from './random.ts';
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
} from './samplers.ts';
export { type Given, sandbox } from './sandbox.ts';
export { type LeaseEnd, type Residency, SavedContext, type Tier } from './saved.ts';
export { script, scripts } from './script.ts';
export { type Selection, type SelectOptions, select } from './select.ts';
export { flush, receive, send, sendJson, session } from './session.ts';
export { Snapshot } from './snapshot.ts';
export type { Proposal, Speculation, SpeculationStart, Speculator } from './speculation.ts';
export { draft, jacobi, ngram } from './speculators.ts';
export { type SetOptions, type StoreEntry, store } from './store.ts';
export { type Effort, opensThought } from './thought-marks.ts';
export {
  Thinking,
  type ThinkOptions,
  type Thought,
  type ThoughtEnding,
  type ThoughtFormat,
  thoughtFormat,
} from './thoughts.ts';
export {
  type JsonSchema,
  parameterNames,
  type Tool,
  type ToolContext,
  tool,
  toolSignature,
  toolSpec,
} from './tools.ts';
export { type ParsedCall, ToolCallParser, type ToolFormat } from './tools-parser.ts';
export { type ToolOutcome, ToolRunner, type ToolRunnerOptions } from './tools-runner.ts';
export { typed } from './typed.ts';
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
} from './vector-index.ts';
