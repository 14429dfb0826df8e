/** Everything that an inferlet needs. `@pie/inferlet/raw` is the layer below: the WIT interfaces as they are. */
export { attentionSink, mask, slidingWindow, unmask } from './attention.ts';
export { ebnf, json, jsonSchema, regex } from './constraints.ts';
export { type ChatMessage, Context, type ContextOptions, type OpenOptions } from './context.ts';
export type { Constraint, DecodeMode } from './decoders.ts';
export { InferletError, type InferletErrorCode } from './errors.ts';
export { type FileInfo, type FileOptions, KvFile, type Rights } from './files.ts';
export {
  type FinishReason,
  type GenerateOptions,
  Generation,
  type GenerationResult,
  type Piece,
  type Window,
} from './generation.ts';
export { defineInferlet, type Invocation, invocation, isCancelled, log, sleep, timeLeftMs } from './inferlet.ts';
export { entropy, logProbabilities, state } from './inspect.ts';
export {
  detokenize,
  type ModelInfo,
  model,
  models,
  type SpecialTokenIds,
  specialTokens,
  tokenize,
  tokenizeContinuation,
} from './models.ts';
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
export { flush, receive, send, sendJson, session } from './session.ts';
