import { err, handlerError, type Outcome, ok } from '#gpu-host/protocol/errors.ts';
import type { EncoderInfo, EncoderKind, Scores, Vectors } from '#wit/generated/host.ts';
import type { GrantedEncoder } from '../device/granted.ts';
import { DROPPED } from '../session/holdings.ts';
import type { Inferlet } from '../session/inferlet.ts';

/** Maximum texts of one call. The GPU host has further limits. */
const MAX_TEXTS = 256;
/** Maximum characters of one call; the query of a rerank counts once for each text. A worker takes a few hundred milliseconds for this many. */
const MAX_CHARACTERS = 262_144;
const VALUE_BYTES = Float32Array.BYTES_PER_ELEMENT;

/** Implements `wit/embedding.wit`. */
export const embedding = {
  encoders: ({ description }: Inferlet): EncoderInfo[] =>
    [...(description.encoders ?? NONE).values()].map(({ summary: { name, kind, size, contextLength } }) => ({
      name,
      kind,
      size,
      contextLength,
    })),

  embed: (inferlet: Inferlet, model: string, texts: readonly string[]): Promise<Outcome<Vectors>> =>
    unread(inferlet, (signal) => encode(inferlet, signal, 'embedding', model, texts)),
};

/** Implements `wit/rerank.wit`. */
export const rerank = {
  rerank: (inferlet: Inferlet, model: string, query: string, documents: readonly string[]): Promise<Outcome<Scores>> =>
    unread(inferlet, async (signal) => {
      const outcome = await encode(inferlet, signal, 'reranker', model, documents, query);
      if (outcome.tag === 'err') return outcome;
      const { values, tokens, cut } = outcome.val;
      return ok({ values, tokens, cut });
    }),
};

/** Makes a call, and aborts its signal when the inferlet drops the future. The values count as unread until the inferlet reads or drops them. */
function unread<T extends Pick<Vectors, 'values'>>(
  inferlet: Inferlet,
  call: (signal: AbortSignal) => Promise<Outcome<T>>,
): Promise<Outcome<T>> {
  const dropped = new AbortController();
  return inferlet.unread.keep(
    call(dropped.signal),
    ({ values }) => values.length * VALUE_BYTES,
    () => dropped.abort(),
  );
}

async function encode(
  inferlet: Inferlet,
  signal: AbortSignal,
  kind: EncoderKind,
  model: string,
  texts: readonly string[],
  query?: string,
): Promise<Outcome<Vectors>> {
  const found = encoderOf(inferlet, kind, model);
  if (found.tag === 'err') return found;
  const { summary, connection } = found.val;
  const refused = tooMuch(texts, query);
  if (refused !== null) return err(handlerError('limit-exceeded', refused));
  // Refuse before encoding: otherwise the call costs tokens, and then its result is refused.
  const full = inferlet.unread.refusal(texts.length * summary.size * VALUE_BYTES);
  if (full) return err(full);
  const user = { ...inferlet.textUser, signal: AbortSignal.any([inferlet.stopping, signal]) };
  const encoded = await inferlet.services.texts.encode(user, summary, texts, query);
  // The worker may finish after the inferlet was stopped. A device opened then would stay open.
  if (inferlet.stopped) return err(inferlet.stopped);
  if (signal.aborted) return err(DROPPED);
  if (encoded.tag === 'err') return encoded;
  const { cut, ...inputs } = encoded.val;
  const tokens = inputs.tokens.length;
  const overLimit = inferlet.refuseTokens();
  if (overLimit) return err(overLimit);
  const device = inferlet.device(connection);
  const call = () => device.encode(summary.name, inputs, signal);
  const outcome = await inferlet.tokens.encoding(tokens, call);
  return outcome.tag === 'ok' ? ok({ size: summary.size, values: outcome.val, tokens, cut }) : outcome;
}

function encoderOf({ description }: Inferlet, kind: EncoderKind, name: string): Outcome<GrantedEncoder> {
  const encoders = description.encoders ?? NONE;
  const found = name === '' ? [...encoders.values()].find(({ summary }) => summary.kind === kind) : encoders.get(name);
  if (!found) {
    const what = name === '' ? `no ${kind === 'reranker' ? 'reranker' : 'embedding model'}` : 'no such encoder';
    return err(
      handlerError('not-found', `this function was granted ${what}; embedding.encoders lists what it may use`),
    );
  }
  if (found.summary.kind === kind) return ok(found);
  const text = `${found.summary.name} is a model of kind ${found.summary.kind}; this call takes one of kind ${kind}`;
  return err(handlerError('unsupported', text));
}

function tooMuch(texts: readonly string[], query = ''): string | null {
  if (texts.length > MAX_TEXTS) return `${texts.length} texts in one call; ${MAX_TEXTS} is the limit`;
  const characters = texts.reduce((sum, text) => sum + text.length + query.length, 0);
  if (characters <= MAX_CHARACTERS) return null;
  return `the texts have ${characters} characters in all; ${MAX_CHARACTERS} is the limit of one call`;
}

const NONE: ReadonlyMap<string, GrantedEncoder> = new Map();
