/**
 * `node runtime/grammar/bench.ts [ROUNDS]` measures two times: that of a mask over stories15m's 32,000 tokens during walks through the grammars of
 * tool schemas, and that of compiling 500 tools. The baseline is one pass over all bytes of all tokens in the same run, without a grammar.
 *
 * A *place* is the state of a text in a grammar. Each round begins without places and masks; the translator's caches stay. The first text of each
 * tool finds no cached place of its own grammar, only the shared places within strings that earlier tools have cached. The tools of all rounds
 * differ in their names, patterns and lengths. Only the first round compiles with code that V8 has not optimized yet, as a fresh worker does.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import { Random } from '#test/harness/random.ts';
import { buildAutomaton } from './matching/automaton.ts';
import { MAX_PLACE_BYTES, MemoryBound, Places } from './matching/places.ts';
import { TokenMatcher } from './matching/token-matcher.ts';
import { stringPlaces, TokenTree } from './matching/token-tree.ts';
import { allowed, exitsOf } from './testing/walk.ts';
import { translate } from './translate/source.ts';
import { vocabularyOf } from './vocabulary.ts';

const SEED = 20261122;
const TOOLS = 500;
const WALKS = 4;
const MAX_TOKENS = 400;
/** Number of tokens after which a walk mostly picks tokens that lead to the end of the text. */
const WANDER = 60;
const CLOSING_CHANCE = 0.8;

interface Tool {
  readonly name: string;
  readonly parameters: object;
}

const rounds = Number(process.argv[2] ?? 5);
const tokenizer = await loadTokenizer((await pullModel('stories15m')).directory);
const vocabulary = await vocabularyOf(tokenizer, tokenizer.vocabularySize);
const tree = new TokenTree(vocabulary);
const exits = exitsOf(tokenizer);
const fixture: readonly Tool[] = JSON.parse(
  readFileSync(path.join(import.meta.dirname, 'fixtures/tool-schemas.json'), 'utf8'),
);

/** The least time of each mask over all rounds so far. Each round walks the same texts, so a mask keeps its index. */
let leastMs: readonly number[] = [];
/** The same for the masks of each tool's first text. */
let leastFreshMs: readonly number[] = [];

for (let round = 0; round < rounds; round += 1) {
  const tools = Array.from({ length: TOOLS }, (_, index) => {
    const { parameters } = fixture[index % fixture.length] as Tool;
    return JSON.stringify(variant(parameters, round * TOOLS + index));
  });
  const compile = compileAll(tools);
  const masks = walkAll();
  const scanMs = scanVocabulary();
  console.log(`round ${round + 1}`);
  const [total, cpu] = [compile.totalMs.toFixed(1), compile.cpuMs.toFixed(1)];
  console.log(`  compile ${TOOLS} tools: ${total} ms (CPU ${cpu} ms); the slowest ${compile.slowestMs.toFixed(2)} ms`);
  console.log(`  masks of first texts: ${described(masks.fresh)}`);
  console.log(`  masks of all texts:   ${described(masks.all)}`);
  console.log(`  CPU time of a mask:   mean ${(masks.cpuMs * 1000).toFixed(1)} µs`);
  leastMs = masks.all.map((ms, index) => Math.min(ms, leastMs[index] ?? ms));
  leastFreshMs = masks.fresh.map((ms, index) => Math.min(ms, leastFreshMs[index] ?? ms));
  const ratio = (mean(masks.all) / scanMs).toFixed(2);
  console.log(`  one pass over the vocabulary's bytes: ${(scanMs * 1000).toFixed(0)} µs; mean mask over it: ${ratio}`);
}
console.log(`each mask's least time of ${rounds} rounds, which other programs disturb least`);
console.log(`  masks of first texts: ${described(leastFreshMs)}`);
console.log(`  masks of all texts:   ${described(leastMs)}`);

/** The schema with other property names, patterns and lengths, since the tools of different servers differ in these. */
function variant(schema: unknown, index: number): unknown {
  if (Array.isArray(schema)) return schema.map((each) => variant(each, index));
  if (typeof schema !== 'object' || schema === null) return schema;
  const entries = Object.entries(schema).map(([key, value]): [string, unknown] => {
    if (key === 'properties' || key === 'dependentRequired' || key === 'dependentSchemas') {
      const named = Object.entries(value).map(([name, each]) => [`${name}_${index}`, renamed(each, index)]);
      return [key, Object.fromEntries(named)];
    }
    if (key === 'required') return [key, renamed(value, index)];
    if (key === 'pattern' && typeof value === 'string') return [key, value.replace(/\$$/, `_${index}$`)];
    if (key === 'maxLength' && typeof value === 'number') return [key, value + (index % 10)];
    return [key, key === 'enum' || key === 'const' ? value : variant(value, index)];
  });
  return Object.fromEntries(entries);
}

/** Renames the properties in a list of names, or in a schema. */
function renamed(value: unknown, index: number): unknown {
  const isNames = Array.isArray(value) && value.every((name) => typeof name === 'string');
  return isNames ? value.map((name) => `${name}_${index}`) : variant(value, index);
}

function compileAll(tools: readonly string[]): { totalMs: number; cpuMs: number; slowestMs: number } {
  const memory = new MemoryBound<Places>(MAX_PLACE_BYTES);
  const strings = stringPlaces(memory);
  const began = cpuMs();
  const times = tools.map((val) => {
    const from = performance.now();
    new Places(buildAutomaton(translate({ tag: 'json-schema', val })), memory, strings);
    return performance.now() - from;
  });
  return { totalMs: times.reduce((sum, ms) => sum + ms, 0), cpuMs: cpuMs() - began, slowestMs: Math.max(...times) };
}

/** Walks each tool's grammar several times. Only the first text meets a grammar that remembers nothing. */
function walkAll(): { all: number[]; fresh: number[]; cpuMs: number } {
  const memory = new MemoryBound<Places>(MAX_PLACE_BYTES);
  const strings = stringPlaces(memory);
  const all: number[] = [];
  const fresh: number[] = [];
  let usedMs = 0;
  for (const { parameters } of fixture) {
    const grammar = translate({ tag: 'json-schema', val: JSON.stringify(parameters) });
    const places = new Places(buildAutomaton(grammar), memory, strings);
    const random = new Random(SEED);
    for (let walk = 0; walk < WALKS; walk += 1) {
      const matcher = new TokenMatcher({ places, tree, vocabulary });
      for (let step = 0; step < MAX_TOKENS; step += 1) {
        const began = cpuMs();
        const from = performance.now();
        const mask = matcher.mask();
        const ms = performance.now() - from;
        usedMs += cpuMs() - began;
        all.push(ms);
        if (walk === 0) fresh.push(ms);
        const ids = allowed(mask).filter((id) => !vocabulary.eos.includes(id));
        if (ids.length === 0) break;
        const ends = ids.filter((id) => exits.closing.has(id));
        const closing = step > WANDER && ends.length > 0 && random.chance(CLOSING_CHANCE);
        matcher.accept(Uint32Array.of(random.pick(closing ? ends : ids)));
      }
    }
  }
  return { all, fresh, cpuMs: usedMs / all.length };
}

/** Time of the baseline. */
function scanVocabulary(): number {
  const from = performance.now();
  let sum = 0;
  for (const byte of vocabulary.bytes) sum += byte;
  // Uses `sum`, so that V8 cannot leave the loop out.
  return sum >= 0 ? performance.now() - from : 0;
}

/** CPU time of this thread, which other work on the machine does not lengthen. The clock ticks in milliseconds: use it for sums only. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

function described(times: readonly number[]): string {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number): string =>
    `${((sorted[Math.floor(share * (sorted.length - 1))] ?? 0) * 1000).toFixed(0)} µs`;
  return `${times.length}, mean ${(mean(times) * 1000).toFixed(1)} µs, p50 ${at(0.5)}, p99 ${at(0.99)}, max ${at(1)}`;
}

function mean(times: readonly number[]): number {
  return times.reduce((sum, ms) => sum + ms, 0) / Math.max(1, times.length);
}
