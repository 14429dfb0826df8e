import type { Tokenizer, TokenStream } from '#gpu-host/models/tokenizer.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { ChatMessage, SpecialTokenIds } from '#wit/generated/host.ts';
import type { GrantedModel, Inferlet } from './inferlet.ts';

/** Characters of one call for each token of the model's context, and at least; tokenizing blocks the thread, so it is bounded. */
const CHARACTERS_PER_TOKEN = 16;
const MIN_TEXT_CHARACTERS = 65_536;
const MAX_TOKENS = 262_144;

/** `wit/tokenize.wit`. */
export const tokenize = {
  tokenize: (inferlet: Inferlet, model: string, text: string, special: boolean): Outcome<Uint32Array> =>
    withTokenizer(inferlet, model, (tokenizer, granted) => {
      const limit = Math.max(MIN_TEXT_CHARACTERS, granted.summary.contextLength * CHARACTERS_PER_TOKEN);
      if (text.length > limit) {
        return err(
          handlerError('limit-exceeded', `the text has ${text.length} characters; ${limit} is the limit of one call`),
        );
      }
      return ok(tokenizer.encode(text, { special }));
    }),

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
    withTokenizer(inferlet, model, (tokenizer) => {
      if (tokenizer.chatTemplate === null) return err(handlerError('unsupported', `${model} has no chat template`));
      return ok(tokenizer.applyChatTemplate(messages, addGenerationPrompt));
    }),

  'render-chat': (_inferlet: Inferlet, _model: string, _variables: string): Outcome<string> =>
    err(handlerError('unsupported', 'this host does not offer render-chat')),

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

const tooMany = (count: number): Outcome<string> =>
  err(handlerError('limit-exceeded', `${count} tokens at once; ${MAX_TOKENS} is the limit of one call`));
