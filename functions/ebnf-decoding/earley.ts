import {
  custom,
  detokenize,
  draw,
  type GuestSampler,
  InferletError,
  type SamplerOptions,
  specialTokens,
  tokenize,
  tokenizeContinuation,
} from '@pie/inferlet';
import nearley from 'nearley';
import { rulesOf } from './rules.ts';

/** Number of most probable tokens from which the sampler chooses. */
const CANDIDATES = 256;

/**
 * A sampler that takes a token only if the text can still become a sentence of the grammar. An Earley parser reads each chosen token (Earley, An
 * efficient context-free parsing algorithm, 1970). The parser is an npm package that runs inside the inferlet, without help from the host.
 */
export function earley(grammar: string, options: SamplerOptions, model: string | undefined): GuestSampler {
  const { Parser, Grammar } = nearley;
  const parser = new Parser(Grammar.fromCompiled({ Lexer: undefined, ...rulesOf(grammar) }), { keepHistory: true });
  const { eos, bos } = specialTokens(model);
  const end = eos[0] ?? bos;
  const texts = new Map<number, string>();
  // Decode each token after a letter: some tokenizers drop the space before a text's first word.
  const letter = tokenize('a', { model }).slice(-1);
  const textOf = (token: number): string => {
    const text = texts.get(token) ?? detokenize([...letter, token], { model }).slice(1);
    texts.set(token, text);
    return text;
  };
  const fits = (token: number): boolean =>
    token === end ? parser.results?.length > 0 : canFollow(parser, textOf(token));
  return custom(
    ({ tokens, logProbabilities }, { random }) => {
      if (parser.results?.length > 0 && mustEnd(parser)) return end ?? 0;
      const candidates = Array.from(tokens, (token, i) => ({ token, value: logProbabilities[i] ?? 0 }));
      const fitting = candidates.filter(({ token }) => fits(token));
      // When no candidate fits the grammar, force a next character of the grammar, as a token of its own.
      const [forced] = fitting.length === 0 ? characterTokens(parser, model) : [];
      if (forced !== undefined) fitting.push({ token: forced, value: 0 });
      if (fitting.length === 0) {
        throw new InferletError('limit-exceeded', `None of the ${CANDIDATES} likeliest tokens fits the grammar.`);
      }
      const allowed = {
        tokens: fitting.map(({ token }) => token),
        logProbabilities: fitting.map(({ value }) => value),
      };
      const token = draw(allowed, options, random);
      if (token !== end) parser.feed(textOf(token));
      return token;
    },
    { candidates: CANDIDATES, ...(options.seed !== undefined && { seed: options.seed }) },
  );
}

/** True when the parser can read `text` next. Leaves the parser's state unchanged. */
function canFollow(parser: nearley.Parser, text: string): boolean {
  const first = text[0];
  // No incomplete character (decoded to U+FFFD) and no special token (decoded to the empty string) can follow.
  if (first === undefined || text.includes('\ufffd') || !expected(parser).some((symbol) => takes(symbol, first))) {
    return false;
  }
  const saved = parser.save();
  try {
    parser.feed(text);
    return true;
  } catch {
    return false;
  } finally {
    parser.restore(saved);
  }
}

const mustEnd = (parser: nearley.Parser): boolean => expected(parser).length === 0;

/** Tokens for the single characters that the parser can read next. */
const characterTokens = (parser: nearley.Parser, model: string | undefined): number[] =>
  expected(parser)
    .flatMap((symbol) => (symbol instanceof RegExp ? [] : [tokenizeContinuation(symbol.literal, { model })]))
    .flatMap((tokens) => (tokens.length === 1 ? tokens : []));

/** The terminals that the parser can read next. The cast is needed because nearley's types omit the parser's table. */
function expected(parser: nearley.Parser): readonly Terminal[] {
  const { table, current } = parser as unknown as { table: { scannable: State[] }[]; current: number };
  return (table[current]?.scannable ?? []).map(({ rule, dot }) => rule.symbols[dot] as Terminal);
}

interface State {
  readonly rule: { readonly symbols: readonly unknown[] };
  readonly dot: number;
}
type Terminal = RegExp | { readonly literal: string };

const takes = (symbol: Terminal, character: string): boolean =>
  symbol instanceof RegExp ? symbol.test(character) : symbol.literal === character;
