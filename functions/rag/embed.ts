import { embed as encode, encoders, InferletError, map, model as modelOf, tokenize } from '@pie/inferlet';
import { allocate, attempt, forward, inputText, outputText, Queue, settle } from '@pie/inferlet/raw';

type Embed = (texts: readonly string[]) => Promise<Float32Array[]>;

/**
 * Makes vectors with the named encoder, by default with the platform's first embedding model. For the name `none`, or without an embedding model,
 * makes vectors from the states of a language model.
 */
export function embedder({ model, encoder }: { model?: string | undefined; encoder?: string | undefined }): Embed {
  const encoderName = encoder ?? encoders().find(({ kind }) => kind === 'embedding')?.name ?? 'none';
  if (encoderName === 'none') return (texts) => map(texts, (text) => embedByStates(text, model));
  return async (texts) => (await encode(texts, { model: encoderName })).vectors;
}

/** Most states of a text that are read at once: the texts are embedded in parallel, and the unread values of an inferlet are limited. */
const CONCURRENT_READS = 64;

/**
 * A text's embedding, a vector of length 1: the weighted mean of the model's states after its tokens. Later states weigh more, because they
 * have seen more of the text (Muennighoff, SGPT, 2022). The text's keys and values live for this call only.
 */
async function embedByStates(text: string, name?: string): Promise<Float32Array> {
  const model = modelOf(name);
  const tokens = tokenize(text, { model: model.name }).slice(0, model.contextLength);
  if (tokens.length === 0) throw new InferletError('invalid-argument', 'An empty text has no vector: leave it out.');
  using queue = new Queue(model.name);
  const embeds = attempt(() => allocate.allocateEmbeds(queue, 2 * tokens.length));
  const inputs = embeds.slice(0, tokens.length);
  const states = embeds.slice(tokens.length);
  inputText.embedText(queue, tokens, [...tokens.keys()], inputs);
  forward.forward(queue, [], inputs, [], states, undefined);
  const rows: number[][] = [];
  for (let start = 0; start < states.length; start += CONCURRENT_READS) {
    const some = states.slice(start, start + CONCURRENT_READS);
    rows.push(...(await Promise.all(some.map((state) => settle(outputText.readEmbed(queue, state))))));
  }
  allocate.freeEmbeds(queue, embeds);
  const sum = new Float32Array(rows[0]?.length ?? 0);
  for (const [i, row] of rows.entries()) {
    const weight = i + 1;
    for (let k = 0; k < sum.length; k++) sum[k] += weight * (row[k] as number);
  }
  const length = Math.hypot(...sum) || 1;
  return sum.map((value) => value / length);
}
