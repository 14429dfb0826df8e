import {
  type Distribution,
  defineInferlet,
  detokenize,
  InferletError,
  KvFile,
  specialTokens,
  tokenize,
} from '@pie/inferlet';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly text: string;
  readonly block?: number;
  readonly landmarks?: number;
  readonly maxKept?: number;
  readonly maxTokens?: number;
  readonly model?: string;
}

/** Reads a text of any length block by block, then continues it. Of each finished block, only the last tokens (landmarks) stay in sight. */
export const run = defineInferlet(async (input: Input) => {
  const { text, block = 64, landmarks = 8, maxKept = 96, maxTokens = 0, model } = input;
  const { bos } = specialTokens(model);
  const tokens = [...(bos === null ? [] : [bos]), ...tokenize(text, { model })];
  if (tokens.length === 0) {
    const fault =
      '"text" is empty, and the model has no token that begins a text: give it a text of at least one character.';
    throw new InferletError('invalid-argument', fault);
  }
  let file = await KvFile.create({ model });
  let last: Distribution | undefined;
  let surprise = 0;
  let mostHeld = 0;
  const read = async (piece: readonly number[]): Promise<void> => {
    const rows = await file.predict(piece, { topK: CANDIDATES });
    for (const [i, token] of piece.entries()) surprise += surpriseOf(i === 0 ? last : rows[i - 1], token);
    last = rows.at(-1);
    mostHeld = Math.max(mostHeld, file.length);
  };
  for (let at = 0; at < tokens.length; at += block) {
    const before = file.length;
    await read(tokens.slice(at, at + block));
    const end = file.length;
    // Keep the first tokens, the latest landmarks of earlier blocks, and this block's landmarks.
    const sink = range(0, Math.min(SINK, end));
    const newLandmarks = range(Math.max(sink.length, before, end - landmarks), end);
    const kept = [...sink, ...[...range(SINK, before), ...newLandmarks].slice(-maxKept)];
    const keptFile = await file.extract(kept, { firstPosition: 0 });
    file.close();
    file = keptFile;
  }
  const perplexity = Math.exp(surprise / Math.max(1, tokens.length - 1));
  const written: number[] = [];
  while (written.length < maxTokens) {
    const next = last?.tokens[0];
    if (next === undefined) throw new InferletError('unavailable', 'The model gave no next token.');
    written.push(next);
    last = (await file.predict([next], { topK: 1 })).at(-1);
  }
  mostHeld = Math.max(mostHeld, file.length);
  file.close();
  return { perplexity, tokens: tokens.length, mostHeld, text: detokenize(written, { model }), written };
});

/** Number of first tokens that always stay: models put surplus attention on them (Xiao et al., Attention Sinks, 2024). */
const SINK = 4;
const range = (from: number, to: number): number[] =>
  Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i);

/** Number of candidates among which `surpriseOf` looks up a token. A token outside them counts as the least probable candidate. */
const CANDIDATES = 256;

function surpriseOf(distribution: Distribution | undefined, token: number): number {
  if (!distribution) return 0;
  const { tokens, logProbabilities } = distribution;
  return -(logProbabilities[Array.prototype.indexOf.call(tokens, token)] ?? logProbabilities[tokens.length - 1] ?? 0);
}
