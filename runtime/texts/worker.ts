/** The program of a text worker: tokenizes, renders chat templates and checks JSON, one job at a time. */
import { type EncoderShape, type EncoderTokenizer, loadEncoderTokenizer } from '#gpu-host/models/encoder/tokenizer.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import { InputChecker } from '#scheduler/functions/input-check.ts';
import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import { serve } from '../workers/serve.ts';
import { type EncodedTexts, parseJson, type TextJob, type TextValue } from './messages.ts';

const tokenizers = new Map<string, Tokenizer>();
/** Loaded tokenizers of encoders by directory, each with the shape that it was loaded for. */
const encoders = new Map<string, { readonly tokenizer: EncoderTokenizer; readonly shape: EncoderShape }>();
const inputs = new InputChecker();

serve<TextJob, TextValue>({
  prepare: (job) => {
    if (job.kind === 'encode') return isLoaded(job) ? undefined : loadEncoder(job);
    const missing = directoriesOf(job).filter((directory) => !tokenizers.has(directory));
    return missing.length === 0 ? undefined : load(missing);
  },
  run: (job) => {
    switch (job.kind) {
      case 'tokenize':
        return outcomeOf(() => tokenizerOf(job.directory).encode(job.text, { special: job.special }));
      case 'render':
        return render(job);
      case 'encode':
        return outcomeOf(() => encode(job));
      case 'check':
        return check(job);
      case 'load':
        return ok(undefined);
    }
  },
  transfer: (value) => {
    if (value instanceof Uint32Array) return [value.buffer];
    return typeof value === 'object' ? [value.tokens.buffer, value.lengths.buffer, value.firsts.buffer] : [];
  },
});

function directoriesOf(job: TextJob): readonly string[] {
  switch (job.kind) {
    case 'tokenize':
    case 'render':
      return [job.directory];
    case 'check':
    case 'encode':
      return [];
    case 'load':
      return job.directories;
  }
}

async function load(directories: readonly string[]): Promise<void> {
  for (const directory of directories) tokenizers.set(directory, await loadTokenizer(directory));
}

async function loadEncoder({ directory, shape }: EncodeJob): Promise<void> {
  encoders.set(directory, { tokenizer: await loadEncoderTokenizer(directory, shape), shape });
}

/** True when the model's tokenizer is loaded for this shape. The shape of a model may change when its GPU host restarts. */
function isLoaded({ directory, shape: { contextLength, tokenTypes } }: EncodeJob): boolean {
  const shape = encoders.get(directory)?.shape;
  return shape?.contextLength === contextLength && shape.tokenTypes === tokenTypes;
}

type EncodeJob = Extract<TextJob, { kind: 'encode' }>;

function encode({ directory, texts, query }: EncodeJob): EncodedTexts {
  const { tokenizer } = encoders.get(directory) ?? {};
  if (!tokenizer) throw new Error(`the tokenizer of ${directory} is not loaded`);
  const encoded = texts.map((text) =>
    query === undefined ? tokenizer.encode(text) : tokenizer.encodePair(query, text),
  );
  const lengths = Uint32Array.from(encoded, ({ tokens }) => tokens.length);
  const tokens = new Uint32Array(lengths.reduce((sum, length) => sum + length, 0));
  let at = 0;
  for (const each of encoded) {
    tokens.set(each.tokens, at);
    at += each.tokens.length;
  }
  // For each input, the number of its tokens in the first segment (type 0).
  const firsts = Uint32Array.from(encoded, ({ types }) => (types.includes(1) ? types.indexOf(1) : types.length));
  return { tokens, lengths, firsts, cut: encoded.filter(({ isCut }) => isCut).length };
}

function tokenizerOf(directory: string): Tokenizer {
  const tokenizer = tokenizers.get(directory);
  if (!tokenizer) throw new Error(`the tokenizer of ${directory} is not loaded`);
  return tokenizer;
}

function render({ directory, conversation, maxCharacters }: Extract<TextJob, { kind: 'render' }>): Outcome<string> {
  const tokenizer = tokenizerOf(directory);
  const rendered = outcomeOf(() =>
    'variables' in conversation
      ? tokenizer.renderChat(parseVariables(conversation.variables))
      : tokenizer.applyChatTemplate(conversation.messages, conversation.addGenerationPrompt),
  );
  if (rendered.tag === 'err' || rendered.val.length <= maxCharacters) return rendered;
  const text = `the rendered chat has ${rendered.val.length} characters; ${maxCharacters} is the limit of one call, send less`;
  return err(handlerError('limit-exceeded', text));
}

/** Turns errors into `invalid-argument`: a tokenizer throws for faults of the text, such as refused messages or invalid JSON. */
function outcomeOf<T>(make: () => T): Outcome<T> {
  try {
    return ok(make());
  } catch (error) {
    return err(handlerError('invalid-argument', error instanceof Error ? error.message : String(error)));
  }
}

/** @throws an error whose message is for the inferlet */
function parseVariables(text: string): Record<string, unknown> {
  const value = jsonValue(text);
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw new TypeError('the variables of a chat template must be a JSON object');
}

function check({ text, fn }: Extract<TextJob, { kind: 'check' }>): Outcome<undefined> {
  const parsed = parseJson(text);
  if (parsed.tag === 'err') return parsed;
  const fault = fn && inputs.check(fn, parsed.val);
  return fault ? err(handlerError('invalid-argument', fault.message)) : ok(undefined);
}
