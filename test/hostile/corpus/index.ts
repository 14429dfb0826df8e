import type { Attack } from '../attack.ts';
import { bulk } from './bulk.ts';
import { control } from './control.ts';
import { floods } from './floods.ts';
import { handles } from './handles.ts';
import { kvFiles } from './kv-files.ts';
import { lists } from './lists.ts';
import { memory } from './memory.ts';
import { names } from './names.ts';
import { postReturn } from './post-return.ts';
import { realloc } from './realloc.ts';
import { results } from './results.ts';
import { size } from './size.ts';
import { slowCalls } from './slow-calls.ts';
import { stack } from './stack.ts';
import { start } from './start.ts';
import { tables } from './tables.ts';

/** Every attack. Attacks that need no invocation come first. */
export const CORPUS: readonly Attack[] = [
  ...names,
  ...start,
  ...size,
  ...memory,
  ...tables,
  ...control,
  ...results,
  ...postReturn,
  ...handles,
  ...lists,
  ...realloc,
  ...stack,
  ...bulk,
  ...slowCalls,
  ...floods,
  ...kvFiles,
];

/** Attacks that `npm run test:ci` runs: some of each class, chosen for the code of the platform that they reach. */
const QUICK_NAMES = new Set([
  ...['names-module---proto--', 'names-field-then', 'names-quote'],
  ...['start-spins', 'start-recurses'],
  ...['size-recursion-of-50000-locals', 'size-doubling-types', 'size-not-wasm'],
  ...['memory-grow-and-touch', 'memory-64-bit'],
  ...['tables-huge', 'tables-the-meters-names'],
  ...['control-tail-calls', 'control-swallows-its-end', 'control-yields-and-swallows'],
  ...['results-past-the-end', 'results-unknown-case'],
  ...['post-return-spins', 'post-return-yields'],
  ...['handles-forged', 'handles-a-future-dropped-while-read', 'handles-timers-without-end'],
  ...['lists-200-messages-of-32-mib'],
  ...['realloc-swallows-send', 'realloc-yields-forever', 'realloc-spins'],
  ...['stack-descends-to-send', 'stack-swallowed-recursion'],
  ...['bulk-fill-15-mib'],
  ...['slow-calls-tokenize-32-kib', 'slow-calls-chat-of-8192-messages', 'slow-calls-regex-repetition'],
  ...['floods-send-64-kib', 'floods-store-writes', 'floods-children', 'floods-pages', 'floods-forwards'],
  ...['floods-forty-that-spin', 'floods-predictions-of-a-file-that-opens'],
]);

/** Deadline of the attacks in the quick part that may end at their deadline. */
const QUICK_WALL_MS = 3000;

/** The part of the corpus that `npm run test:ci` runs. */
export const QUICK: readonly Attack[] = CORPUS.filter(({ name }) => QUICK_NAMES.has(name)).map((attack) =>
  attack.ends.includes('ended deadline-exceeded') ? { ...attack, wallMs: QUICK_WALL_MS } : attack,
);
if (QUICK.length !== QUICK_NAMES.size) throw new Error('a quick attack is not in the corpus');
