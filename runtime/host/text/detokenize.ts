import type { TokenStream } from '#gpu-host/models/token-stream.ts';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { err, type HandlerError, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { SpecialTokenIds } from '#wit/generated/host.ts';

/** Maximum tokens of one call. */
const MAX_TOKENS = 131_072;

/** The part of a tokenizer that turns tokens into text. */
export type Decoding = Pick<Tokenizer, 'decode' | 'stream' | 'special' | 'vocabularySize' | 'tokenBytes'>;

/**
 * The functions of `wit/tokenize.wit` that only read tables. A sandbox has them itself (`runtime/guest`), so that a guest does not wait for
 * the runtime at each token.
 *
 * @param decodingOf returns the tables of a model, if the caller was granted the model
 */
export function detokenizing<Context>(decodingOf: (context: Context, model: string) => Outcome<Decoding>) {
  const withDecoding = <T>(context: Context, model: string, call: (decoding: Decoding) => Outcome<T>): Outcome<T> => {
    const decoding = decodingOf(context, model);
    return decoding.tag === 'err' ? decoding : attempt(() => call(decoding.val));
  };
  return {
    detokenize: (context: Context, model: string, tokens: Uint32Array, special: boolean): Outcome<string> =>
      withDecoding(context, model, (decoding) =>
        tokens.length > MAX_TOKENS ? tooMany(tokens.length) : ok(decoding.decode(tokens.slice(), { special })),
      ),

    'special-tokens': (context: Context, model: string): Outcome<SpecialTokenIds> =>
      withDecoding(context, model, ({ special }) =>
        ok({
          bos: special.bos ?? undefined,
          eos: Uint32Array.from(special.eos),
          pad: special.pad ?? undefined,
          unknown: special.unknown ?? undefined,
        }),
      ),

    vocabulary: (context: Context, model: string): Outcome<readonly Uint8Array[]> =>
      withDecoding(context, model, (decoding) => ok(vocabularyOf(decoding))),

    '[constructor]detokenizer': (context: Context, model: string) =>
      new StreamingDetokenizer(withDecoding(context, model, (decoding) => ok(decoding.stream()))),
    '[method]detokenizer.push': (_context: Context, self: StreamingDetokenizer, tokens: Uint32Array) =>
      self.push(tokens),
    '[method]detokenizer.finish': (_context: Context, self: StreamingDetokenizer): string => self.finish(),
    '[resource-drop]detokenizer': (): void => undefined,
  };
}

/** The host's side of a `detokenizer` resource. */
class StreamingDetokenizer {
  readonly #stream: Outcome<TokenStream>;

  constructor(stream: Outcome<TokenStream>) {
    this.#stream = stream;
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

const vocabularies = new WeakMap<Decoding, readonly Uint8Array[]>();

function vocabularyOf(decoding: Decoding): readonly Uint8Array[] {
  let vocabulary = vocabularies.get(decoding);
  if (!vocabulary) {
    vocabulary = Array.from({ length: decoding.vocabularySize }, (_, id) => decoding.tokenBytes(id));
    vocabularies.set(decoding, vocabulary);
  }
  return vocabulary;
}

/** Makes a call of the tokenizer, which throws for ids outside the vocabulary, and turns its error into an outcome. */
export function attempt<T>(call: () => Outcome<T>): Outcome<T> {
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

/** The error for a model that the function was not granted. */
export const notGranted = (model: string): Outcome<never> =>
  err(handlerError('not-found', `this function was granted no model named ${model}; ask runtime.models`));

export const noTokenizer = (model: string): Outcome<never> =>
  err(handlerError('unsupported', `${model} has no tokenizer`));

const tooMany = (count: number): Outcome<string> =>
  err(handlerError('limit-exceeded', `${count} tokens at once; ${MAX_TOKENS} is the limit of one call`));
