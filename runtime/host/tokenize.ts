import { z } from 'zod';
import type { Tokenizer, TokenStream } from '#gpu-host/models/tokenizer.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { ChatMessage, SpecialTokenIds } from '#wit/generated/host.ts';
import type { GrantedModel, Inferlet } from './inferlet.ts';

/** Everybody's calls wait while one is answered: what one of them may name takes some tens of milliseconds. */
export const MAX_TEXT_CHARACTERS = 32_768;
const MAX_TOKENS = 131_072;
/** Characters of a conversation for each token of the model's context, and at least. */
const CHARACTERS_PER_TOKEN = 16;
const MIN_CHAT_CHARACTERS = 65_536;
/** What is in a message counts as two values. */
const MAX_MESSAGES = 8192;

/** `wit/tokenize.wit`. */
export const tokenize = {
  tokenize: (inferlet: Inferlet, model: string, text: string, special: boolean): Outcome<Uint32Array> =>
    withTokenizer(inferlet, model, (tokenizer) =>
      text.length > MAX_TEXT_CHARACTERS
        ? tooLong('text', text.length, MAX_TEXT_CHARACTERS, 'cut it at the end of a line')
        : ok(tokenizer.encode(text, { special })),
    ),

  detokenize: (inferlet: Inferlet, model: string, tokens: Uint32Array, special: boolean): Outcome<string> =>
    withTokenizer(inferlet, model, (tokenizer) =>
      tokens.length > MAX_TOKENS ? tooMany(tokens.length) : ok(tokenizer.decode(tokens.slice(), { special })),
    ),

  'special-tokens': (inferlet: Inferlet, model: string): Outcome<SpecialTokenIds> =>
    withTokenizer(inferlet, model, ({ special }) =>
      ok({
        bos: special.bos ?? undefined,
        eos: Uint32Array.from(special.eos),
        pad: special.pad ?? undefined,
        unknown: special.unknown ?? undefined,
      }),
    ),

  vocabulary: (inferlet: Inferlet, model: string): Outcome<readonly Uint8Array[]> =>
    withTokenizer(inferlet, model, (tokenizer) => ok(vocabularyOf(tokenizer))),

  'chat-template': (
    inferlet: Inferlet,
    model: string,
    messages: readonly ChatMessage[],
    addGenerationPrompt: boolean,
  ): Outcome<string> =>
    withTokenizer(inferlet, model, (tokenizer, granted) => {
      if (tokenizer.chatTemplate === null)
        return err(
          handlerError(
            'unsupported',
            `${model} has no chat template, so it cannot chat; take a model that has one, or continue plain text`,
          ),
        );
      if (messages.length > MAX_MESSAGES) {
        const text = `the conversation has ${messages.length} messages; ${MAX_MESSAGES} is the limit of one call`;
        return err(handlerError('limit-exceeded', text));
      }
      const limit = chatLimit(granted);
      const characters = messages.reduce((sum, { role, content }) => sum + role.length + content.length, 0);
      if (characters > limit) return tooLong('conversation', characters, limit);
      return bounded(tokenizer.applyChatTemplate(messages, addGenerationPrompt), limit);
    }),

  'render-chat': (inferlet: Inferlet, model: string, variables: string): Outcome<string> =>
    withTokenizer(inferlet, model, (tokenizer, granted) => {
      if (tokenizer.chatTemplate === null)
        return err(
          handlerError(
            'unsupported',
            `${model} has no chat template, so it cannot chat; take a model that has one, or continue plain text`,
          ),
        );
      const limit = chatLimit(granted);
      if (variables.length > limit) return tooLong('variables', variables.length, limit);
      return bounded(tokenizer.renderChat(parseVariables(variables)), limit);
    }),

  '[constructor]detokenizer': (inferlet: Inferlet, model: string) => new StreamingDetokenizer(inferlet, model),
  '[method]detokenizer.push': (_inferlet: Inferlet, self: StreamingDetokenizer, tokens: Uint32Array) =>
    self.push(tokens),
  '[method]detokenizer.finish': (_inferlet: Inferlet, self: StreamingDetokenizer): string => self.finish(),
  '[resource-drop]detokenizer': (): void => undefined,
};

/** The host's side of a `detokenizer` resource. */
class StreamingDetokenizer {
  readonly #stream: Outcome<TokenStream>;

  constructor(inferlet: Inferlet, model: string) {
    this.#stream = withTokenizer(inferlet, model, (tokenizer) => ok(tokenizer.stream()));
  }

  push(tokens: Uint32Array): Outcome<string> {
    const stream = this.#stream;
    if (stream.tag === 'err') return stream;
    if (tokens.length > MAX_TOKENS) return tooMany(tokens.length);
    return attempt(() => ok(stream.val.push(tokens.slice())));
  }

  finish(): string {
    return this.#stream.tag === 'ok' ? this.#stream.val.finish() : '';
  }
}

/** Characters that one call may render, or be given to render. */
const chatLimit = ({ summary }: GrantedModel): number =>
  Math.max(MIN_CHAT_CHARACTERS, summary.contextLength * CHARACTERS_PER_TOKEN);

const bounded = (rendered: string, limit: number): Outcome<string> =>
  rendered.length > limit ? tooLong('rendered chat', rendered.length, limit) : ok(rendered);

const variablesSchema = z.record(z.string(), z.unknown());

/** Throws with words for the inferlet. */
function parseVariables(text: string): Record<string, unknown> {
  const parsed = variablesSchema.safeParse(JSON.parse(text));
  if (!parsed.success) throw new TypeError('the variables of a chat template are a JSON object');
  return parsed.data;
}

const vocabularies = new WeakMap<Tokenizer, readonly Uint8Array[]>();

function vocabularyOf(tokenizer: Tokenizer): readonly Uint8Array[] {
  let vocabulary = vocabularies.get(tokenizer);
  if (!vocabulary) {
    vocabulary = Array.from({ length: tokenizer.vocabularySize }, (_, id) => tokenizer.tokenBytes(id));
    vocabularies.set(tokenizer, vocabulary);
  }
  return vocabulary;
}

function withTokenizer<T>(
  inferlet: Inferlet,
  model: string,
  call: (tokenizer: Tokenizer, granted: GrantedModel) => Outcome<T>,
): Outcome<T> {
  const granted = inferlet.description.models.get(model);
  if (!granted)
    return err(handlerError('not-found', `this function was granted no model named ${model}; ask runtime.models`));
  const { tokenizer } = granted;
  if (!tokenizer) return err(handlerError('unsupported', `${model} has no tokenizer`));
  return attempt(() => call(tokenizer, granted));
}

/** Turns what a tokenizer throws into an outcome: ids outside the vocabulary, and messages that a template refuses. */
function attempt<T>(call: () => Outcome<T>): Outcome<T> {
  try {
    return call();
  } catch (error) {
    return err(asHandlerError(error));
  }
}

function asHandlerError(error: unknown): HandlerError {
  const message = error instanceof Error ? error.message : String(error);
  return handlerError('invalid-argument', message);
}

const tooLong = (what: string, length: number, limit: number, advice = 'send less'): Outcome<never> =>
  err(
    handlerError(
      'limit-exceeded',
      `the ${what} has ${length} characters; ${limit} is the limit of one call, ${advice}`,
    ),
  );

const tooMany = (count: number): Outcome<string> =>
  err(handlerError('limit-exceeded', `${count} tokens at once; ${MAX_TOKENS} is the limit of one call`));
