/**
 * `node runtime/grammar/bench.ts [ROUNDS]`: the time of a mask over stories15m's 32,000 tokens while texts of tool schemas are walked, and of
 * compiling 500 tools. The baseline of the same run is one walk over the whole vocabulary without a grammar (all bytes of all tokens).
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import { buildAutomaton } from './matching/automaton.ts';
import { MemoryBound } from './matching/memory.ts';
import { MAX_PLACE_BYTES, Places } from './matching/places.ts';
import { TokenMatcher } from './matching/token-matcher.ts';
import { TokenTree } from './matching/token-tree.ts';
import { Random } from './testing/random.ts';
import { allowed, exitsOf } from './testing/walk.ts';
import { translate } from './translate/source.ts';
import { vocabularyOf } from './vocabulary.ts';

const SEED = 20261122;
const TOOLS = 500;
const WALKS = 4;
const MAX_TOKENS = 400;
/** Tokens before a walk looks for the end, and the probability of a random token instead of an exit. */
const WANDER = 60;

interface Tool {
  readonly name: string;
  readonly parameters: object;
}

const rounds = Number(process.argv[2] ?? 3);
const tokenizer = await loadTokenizer((await pullModel('stories15m')).directory);
const vocabulary = await vocabularyOf(tokenizer, tokenizer.vocabularySize);
const tree = new TokenTree(vocabulary);
const exits = exitsOf(tokenizer);
const fixture: readonly Tool[] = JSON.parse(
  readFileSync(path.join(import.meta.dirname, 'fixtures/tool-schemas.json'), 'utf8'),
);

/** Tools that all differ, as 500 tools of many servers do. */
const tools = Array.from({ length: TOOLS }, (_, index): string => {
  const { name, parameters } = fixture[index % fixture.length] as Tool;
  return JSON.stringify({ title: `${name}_${index}`, ...parameters });
});

for (let round = 0; round < rounds; round += 1) {
  const compile = compileAll();
  const masks = walkAll();
  const bytes = scanVocabulary();
  console.log(`round ${round + 1}`);
  console.log(
    `  compile ${TOOLS} tools: ${compile.totalMs.toFixed(1)} ms (CPU ${compile.cpuMs.toFixed(1)} ms); the slowest ${compile.slowestMs.toFixed(2)} ms`,
  );
  console.log(`  masks of first texts: ${described(masks.fresh)}`);
  console.log(`  masks of all texts:   ${described(masks.all)}`);
  console.log(`  CPU of all masks:      ${described(masks.cpu)}`);
  console.log(
    `  one pass over the vocabulary's bytes: ${(bytes * 1000).toFixed(0)} µs; mean mask over it: ${(mean(masks.all) / bytes).toFixed(2)}`,
  );
}

function compileAll(): { totalMs: number; cpuMs: number; slowestMs: number } {
  const memory = new MemoryBound<Places>(MAX_PLACE_BYTES);
  const began = cpuMs();
  const times = tools.map((val) => {
    const from = performance.now();
    new Places(buildAutomaton(translate({ tag: 'json-schema', val })), memory);
    return performance.now() - from;
  });
  return { totalMs: times.reduce((sum, ms) => sum + ms, 0), cpuMs: cpuMs() - began, slowestMs: Math.max(...times) };
}

/** Walks each tool's grammar several times. Only the first text meets a grammar that remembers nothing. */
function walkAll(): { all: number[]; fresh: number[]; cpu: number[] } {
  const memory = new MemoryBound<Places>(MAX_PLACE_BYTES);
  const all: number[] = [];
  const fresh: number[] = [];
  const cpu: number[] = [];
  for (const { parameters } of fixture) {
    const grammar = translate({ tag: 'json-schema', val: JSON.stringify(parameters) });
    const places = new Places(buildAutomaton(grammar), memory);
    const random = new Random(SEED);
    for (let walk = 0; walk < WALKS; walk += 1) {
      const matcher = new TokenMatcher({ places, tree, vocabulary });
      for (let step = 0; step < MAX_TOKENS; step += 1) {
        const began = cpuMs();
        const from = performance.now();
        const mask = matcher.mask();
        const ms = performance.now() - from;
        cpu.push(cpuMs() - began);
        all.push(ms);
        if (walk === 0) fresh.push(ms);
        const ids = allowed(mask).filter((id) => !vocabulary.eos.includes(id));
        if (ids.length === 0) break;
        const ends = ids.filter((id) => exits.closing.has(id));
        const closing = step > WANDER && ends.length > 0 && random.chance(0.8);
        matcher.accept(Uint32Array.of(random.pick(closing ? ends : ids)));
      }
    }
  }
  return { all, fresh, cpu };
}

function scanVocabulary(): number {
  const from = performance.now();
  let sum = 0;
  for (const byte of vocabulary.bytes) sum += byte;
  return sum >= 0 ? performance.now() - from : 0;
}

/** CPU time of this thread, also on a machine that does other work. */
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
