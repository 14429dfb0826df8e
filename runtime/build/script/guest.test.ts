import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { testEngine, testScript } from '../../testing/scripts.ts';
import { MEMORY_PAGE_BYTES } from '../wasm/limits.ts';

const MEMORY_PAGES = 256;

let root = '';
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'pie-script-'));
});
after(() => rm(root, { recursive: true, force: true }));

/** Creates a project of these files and returns its folder. */
async function project(name: string, files: Readonly<Record<string, string>>): Promise<string> {
  const directory = join(root, name);
  for (const [file, text] of Object.entries(files)) {
    await mkdir(dirname(join(directory, file)), { recursive: true });
    await writeFile(join(directory, file), text);
  }
  return directory;
}

/** Records the order of an abort signal's events. This function runs in Node and, as source text, in a guest; both runs must return the same list. */
async function aborts(): Promise<unknown> {
  const seen: unknown[] = [];
  const controller = new AbortController();
  const { signal } = controller;
  const heard = (name: string) => (event: Event) => seen.push([name, event.type, event.target === signal]);
  const removed = heard('removed');
  signal.addEventListener('abort', removed);
  signal.addEventListener('abort', heard('once'), { once: true });
  signal.addEventListener('abort', { handleEvent: heard('object') });
  signal.addEventListener('other', heard('other'));
  signal.removeEventListener('abort', removed);
  const cut = new AbortController();
  signal.addEventListener('abort', heard('cut'), { signal: cut.signal });
  cut.abort();
  const combined = AbortSignal.any([new AbortController().signal, signal]);
  combined.addEventListener('abort', () => seen.push(['any', combined.reason === signal.reason]));
  seen.push([signal.aborted, combined.aborted, signal.reason]);
  controller.abort();
  controller.abort('again');
  seen.push([signal.aborted, signal.reason.name, signal.reason.code, signal.reason instanceof Error]);
  let thrown: unknown;
  try {
    signal.throwIfAborted();
  } catch (error) {
    thrown = error;
  }
  seen.push([
    thrown === signal.reason,
    AbortSignal.abort('why').reason,
    AbortSignal.any([AbortSignal.abort(1), signal]).reason,
  ]);
  const timeout = AbortSignal.timeout(1);
  await new Promise((resolve) => {
    timeout.onabort = resolve;
  });
  seen.push([timeout.reason.name, timeout.reason.code, timeout.reason instanceof DOMException]);
  let illegal = 'none';
  try {
    new AbortSignal();
  } catch (error) {
    illegal = (error as Error).name;
  }
  seen.push(illegal);
  return seen;
}

suite('the guest of a script', () => {
  let script: Awaited<ReturnType<typeof testScript>>;

  before(async () => {
    const path = await project('good', {
      'pie.json': '{"name": "good", "main": "src/entry.ts"}',
      'src/entry.ts': `
        import { defineInferlet } from '@pie/inferlet';
        import { shout } from './helper.ts';
        import data from './data.json';
        import EventEmitter from 'events';
        import { answer } from 'some-package';
        type Input = { case: keyof typeof cases };
        console.warn('loading', Math.random() < 2);
        const early = setTimeoutAtLoad();
        function setTimeoutAtLoad(): string { try { setTimeout(() => {}, 1); return 'no error'; } catch (error) { return String(error); } }
        const cases = {
          bundled: () => [shout('a'), data.value, answer, new EventEmitter().name, early],
          globals: async () => {
            const started = performance.now();
            const order: string[] = [];
            const cleared = setTimeout(() => order.push('cleared'), 1);
            clearTimeout(cleared);
            await new Promise<void>((resolve) => { setTimeout((x: string) => { order.push(x); resolve(); }, 5, 'fired'); });
            let ticks = 0;
            await new Promise<void>((resolve) => { const id = setInterval(() => { if (++ticks === 3) { clearInterval(id); resolve(); } }, 1); });
            const date = new Date();
            return {
              order, ticks, passed: performance.now() - started,
              now: Date.now(), year: date.getUTCFullYear(), hours: new Date(3_600_000).getHours(), isDate: date instanceof Date && date.constructor === Date,
              called: typeof (Date as unknown as () => string)(), fixed: new Date(2020, 1, 3, 4).toISOString(),
              random: [Math.random(), Math.random()], uuid: crypto.randomUUID(), bytes: crypto.getRandomValues(new Uint8Array(6)).length,
            };
          },
          text: () => {
            const samples = ['', 'plain', 'h\\u00e9llo', '\\u20ac', '\\ud83d\\ude00', 'a\\ud800b', '\\ufeffbom', 'x'.repeat(10000) + '\\u00e9'];
            const bytes = [[0xe2, 0x82], [0xf0, 0x9f, 0x98], [0xff, 0x41], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xef, 0xbb, 0xbf, 0x41], [0xe2, 0x28, 0xa1]];
            const stream = new TextDecoder();
            let fatal = 'no error';
            try { new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([0xff])); } catch (error) { fatal = (error as Error).name; }
            return {
              encoded: samples.map((s) => [...new TextEncoder().encode(s)]),
              decoded: bytes.map((b) => new TextDecoder().decode(new Uint8Array(b))),
              streamed: [0xe2, 0x82, 0xac, 0xf0, 0x9f].map((b) => stream.decode(new Uint8Array([b]), { stream: true })).join('') + stream.decode(),
              fatal,
            };
          },
          abort: ${aborts},
          log: () => {
            const circle: Record<string, unknown> = { a: 1 }; circle.self = circle;
            console.log('text', 1, 2n, null, undefined, [1, 'x'], { deep: { b: new Map([[1, new Set([2])]]) } }, circle, () => 0, Symbol('s'), new Uint8Array([1, 2]));
            console.error(new TypeError('bad')); console.debug('lone \\ud800'); console.assert(1 > 2, 'sums');
          },
          throw: () => { throw new RangeError('out of it'); },
          spin: () => { for (;;); },
          recurse: () => { const f = (): number => f() + 1; return f(); },
          hog: () => { const all: Uint8Array[] = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1)); },
        };
        export const run = defineInferlet(async (input: Input) => cases[input.case]());
      `,
      'src/helper.ts': "export const shout = (text: string): string => text.toUpperCase() + '!';",
      'src/data.json': '{"value": 42}',
      'node_modules/events/package.json': '{"name": "events", "version": "1.0.0", "main": "events.js"}',
      'node_modules/events/events.js': 'module.exports = class EventEmitter { get name() { return "the npm one"; } };',
      'node_modules/some-package/package.json':
        '{"name": "some-package", "version": "1.0.0", "exports": {"import": "./a.mjs"}, "type": "module"}',
      'node_modules/some-package/a.mjs': 'export const answer = process.env.NODE_ENV;',
    });
    script = await testScript(path);
  });

  const host = () => {
    const random = new Random(1);
    return {
      now: () => BigInt(Date.now()),
      random: () => random.u32(),
      sleep: (ms: number) => new Promise((resolve) => setTimeout(resolve, ms, { tag: 'ok', val: undefined })),
    };
  };
  const run = async (name: string, answers = host()) => {
    const { ending, logs } = await script(JSON.stringify({ case: name }), { answers });
    assert.ok(ending.kind === 'returned' && ending.ok, JSON.stringify(ending));
    return { result: JSON.parse(ending.text) as Record<string, unknown>, logs };
  };

  test('the bundle resolves relative, JSON and npm imports, even a package that has the name of a Node module', async () => {
    const { result, logs } = await run('bundled');
    assert.deepEqual(result, [
      'A!',
      42,
      'production',
      'the npm one',
      'Error: setTimeout cannot be used while the module loads (at build time): call it inside run()',
    ]);
    assert.deepEqual(logs[0], { level: 'warn', message: 'loading true' });
  });

  test('the guest uses the clock, timers and random numbers of the host', async () => {
    const before = Date.now();
    const { result } = await run('globals');
    const { order, ticks, now, year, hours, isDate, called, fixed, random, uuid, bytes, passed } = result;
    assert.deepEqual(
      { order, ticks, year, hours, isDate, called, fixed, bytes },
      {
        order: ['fired'],
        ticks: 3,
        year: new Date().getUTCFullYear(),
        hours: 1,
        isDate: true,
        called: 'string',
        fixed: '2020-02-03T04:00:00.000Z',
        bytes: 6,
      },
    );
    assert.ok(Number(now) >= before && Number(passed) >= 0);
    assert.match(String(uuid), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    const other = await run('globals', { ...host(), random: () => 7 });
    assert.notDeepEqual(other.result.random, random);
    for (const number of random as number[]) assert.ok(number >= 0 && number < 1);
  });

  test('TextEncoder and TextDecoder give the same results as in Node', async () => {
    const { result } = await run('text');
    const samples = [
      '',
      'plain',
      'h\u00e9llo',
      '\u20ac',
      '\ud83d\ude00',
      'a\ud800b',
      '\ufeffbom',
      `${'x'.repeat(10000)}\u00e9`,
    ];
    assert.deepEqual(
      result.encoded,
      samples.map((text) => [...new TextEncoder().encode(text)]),
    );
    const bytes = [
      [0xe2, 0x82],
      [0xf0, 0x9f, 0x98],
      [0xff, 0x41],
      [0xc0, 0x80],
      [0xed, 0xa0, 0x80],
      [0xef, 0xbb, 0xbf, 0x41],
      [0xe2, 0x28, 0xa1],
    ];
    assert.deepEqual(
      result.decoded,
      bytes.map((list) => new TextDecoder().decode(new Uint8Array(list))),
    );
    assert.equal(result.streamed, '\u20ac\ufffd');
    assert.equal(result.fatal, 'TypeError');
  });

  test('AbortController and AbortSignal give the same results as in Node', async () => {
    const { result } = await run('abort');
    assert.deepEqual(result, JSON.parse(JSON.stringify(await aborts())));
  });

  test('the console writes into the log', async () => {
    const { logs } = await run('log');
    const [, text, error, lone, assertion] = logs;
    assert.deepEqual(text, {
      level: 'info',
      message:
        'text 1 2n null undefined [1, "x"] { deep: { b: Map { 1 => Set { 2 } } } } { a: 1, self: [circular] } [function anonymous] Symbol(s) Uint8Array [1, 2]',
    });
    assert.match(error?.message ?? '', /^TypeError: bad\n/);
    assert.deepEqual(lone, { level: 'debug', message: 'lone \ufffd' });
    assert.deepEqual(assertion, { level: 'error', message: 'Assertion failed: sums' });
  });

  test('a run that throws ends with the message of its error, and its stack', async () => {
    const { ending } = await script('{"case": "throw"}', { answers: host() });
    assert.ok(ending.kind === 'returned' && !ending.ok);
    assert.match(ending.text, /^RangeError: out of it\0stack\0 *at throw \(<input>:\d+:\d+\)/);
  });

  test('a guest that computes without end ends at its CPU limit', async () => {
    const { ending } = await script('{"case": "spin"}', { answers: host(), cpuLimitMs: 100 });
    assert.ok(ending.kind === 'trapped');
    assert.equal(ending.trap.code, 'cpu-limit');
  });

  // `recurse` exhausts the stack, and `hog` the memory.
  for (const name of ['recurse', 'hog']) {
    test(`a guest fails in the case "${name}", and its memory stays within the limit`, async () => {
      const { ending, memoryBytes } = await script(JSON.stringify({ case: name }), {
        answers: host(),
        pages: MEMORY_PAGES,
      });
      assert.ok(ending.kind === 'trapped' || !ending.ok);
      assert.ok(memoryBytes <= MEMORY_PAGES * MEMORY_PAGE_BYTES);
    });
  }

  // Glue is the JavaScript that jco generates to connect the core modules. It contains some modules as lists of bytes. The
  // build moves these modules into files, so that the glue compiles no bytes, and makes two more rewrites.
  test('modules inside the glue of the engine become files, and all rewrites of the glue apply', async () => {
    const { meta } = (await testEngine()).engine.artifact;
    assert.ok(meta.coreModules.some(({ role }) => role === 'helper'));
    assert.deepEqual(meta.glue.rewrites, ['debug', 'wake']);
  });
});

/** An inferlet that repeatedly fills the free blocks of the engine's allocator with objects of all sizes, and returns a checksum. */
const ALLOCATING = `
const kept = new Map(Array.from({ length: 500 }, (_, i) => ['key ' + i, { text: 'value '.repeat(i % 40), bytes: new Uint8Array(i * 3).fill(i) }]));
export const run = async (input) => {
  const { rounds } = JSON.parse(input);
  let sum = 0;
  for (let round = 0; round < rounds; round++) {
    const made = Array.from({ length: 300 }, (_, i) => ({ text: String(i).repeat(1 + ((i * 37) % 97)), bytes: new Uint8Array(i * 20), list: Array(i % 50).fill(i) }));
    for (const { text, bytes, list } of made) sum += text.length + bytes.reduce((a, b) => a + b, 0) + list.length;
    if (round % 3 === 0) for (const [key, { text, bytes }] of kept) sum += key.length + text.length + bytes.reduce((a, b) => a + b, 0);
  }
  return JSON.stringify({ sum, source: run.toString().length > 0, sorted: [...kept.keys()].sort().at(-1) });
};`;

test('an instance from a heap without the freed memory computes what Node computes', async () => {
  const path = await project('allocating', { 'index.js': ALLOCATING });
  const script = await testScript(path);
  const { run } = (await import(join(path, 'index.js'))) as { run: (input: string) => Promise<string> };
  const { ending } = await script('{"rounds": 6}');
  assert.ok(ending.kind === 'returned' && ending.ok, JSON.stringify(ending));
  assert.deepEqual(JSON.parse(ending.text), JSON.parse(await run('{"rounds": 6}')));
});
