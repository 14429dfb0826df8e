import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, test } from 'node:test';
import { CollectedLog } from '#scheduler/testing/log.ts';
import {
  assertBundled,
  bundledFunctions,
  deployBundled,
  deployRest,
  FIRST_FUNCTIONS,
  firstFunctions,
  retryPauseMs,
} from './bundled.ts';
import { type Config, loadConfig } from './config.ts';
import { ROOT } from './install.ts';
import { PendingFunctions, pendingFunctions } from './pending-functions.ts';

test('bundledFunctions lists the first functions first and each function once', () => {
  const names = bundledFunctions({ root: ROOT });
  assert.deepEqual(names.slice(0, FIRST_FUNCTIONS.length), FIRST_FUNCTIONS);
  assert.equal(new Set(names).size, names.length);
  assert.ok(names.length > FIRST_FUNCTIONS.length);
});

test('firstFunctions includes the function of the demo and the functions that the routes of encoders need', () => {
  assert.deepEqual(firstFunctions({ encoders: [] }), [...FIRST_FUNCTIONS, 'story-agent']);
  const encoder = { name: 'm', source: 'file:/m', threads: 0 };
  const encoders = (['embedding', 'reranker', 'embedding'] as const).map((kind) => ({ ...encoder, kind }));
  const added = firstFunctions({ encoders }).filter((name) => !FIRST_FUNCTIONS.includes(name));
  assert.deepEqual(added, ['story-agent', 'openai-embeddings', 'rerank']);
  const known = bundledFunctions({ root: ROOT });
  assert.ok(added.every((name) => known.includes(name)));
});

test('assertBundled names the function that is not bundled, and the bundled ones', () => {
  assertBundled({ root: ROOT }, ['rag', 'text-completion']);
  assert.throws(
    () => assertBundled({ root: ROOT }, ['rag', 'text-complation']),
    /"text-complation"\. The bundled ones: text-completion, /,
  );
});

test('the pause before a retry doubles up to a bound, and is between a half and the whole of it', () => {
  const bounds = (tries: number) => [retryPauseMs(tries, 0), retryPauseMs(tries, 1)];
  assert.deepEqual([1, 2, 3].map(bounds), [
    [2500, 5000],
    [5000, 10_000],
    [10_000, 20_000],
  ]);
  assert.deepEqual(bounds(1000), [300_000, 600_000]);
});

/** A configuration whose `pie deploy` is `program`, which gets the number of its run as `turn` and the names of the functions as `names`. */
async function withDeployProgram<T>(program: string, run: (config: Config) => Promise<T>): Promise<T> {
  const root = mkdtempSync(path.join(os.tmpdir(), 'pie-bundled-'));
  try {
    mkdirSync(path.join(root, 'gateway/cli'), { recursive: true });
    const file = path.join(root, 'turns');
    writeFileSync(file, '');
    const script = `import fs from 'node:fs';
      fs.appendFileSync(${JSON.stringify(file)}, 'x');
      const turn = fs.readFileSync(${JSON.stringify(file)}, 'utf8').length;
      const names = process.argv.filter((one) => one.startsWith('functions/')).map((one) => one.slice(10));
      const report = (name) => console.log(JSON.stringify({ name, version: 'v1' }));
      const fail = (message) => console.error(JSON.stringify({ error: { code: 'store-unavailable', message } }));
      ${program}`;
    writeFileSync(path.join(root, 'gateway/cli/bin.js'), script);
    writeFileSync(path.join(root, 'package.json'), '{"type":"module"}');
    return await run({ ...loadConfig({ PIE_HOME: root }), root, runDirectory: root });
  } finally {
    rmSync(root, { recursive: true });
  }
}

describe('the functions that are deployed before the platform serves', () => {
  const deployed = (program: string, names = ['a', 'b']) =>
    withDeployProgram(program, async (config) => {
      const lines: string[] = [];
      const records = new CollectedLog();
      const { signal } = new AbortController();
      const outcome = await deployBundled(config, names, {
        signal,
        say: (line) => lines.push(line),
        log: records,
        pausesMs: [0, 0],
      });
      return { outcome, lines, tries: records.records.map(({ fields }) => fields.tries) };
    });

  test('are tried again while the platform does not answer', async () => {
    const { outcome, lines, tries } = await deployed('process.exit(turn < 3 ? 4 : 0);');
    assert.equal(outcome, 'deployed');
    assert.deepEqual(tries, [1, 2]);
    assert.match(lines.join(), /did not answer; next try to deploy its functions in 0 s/);
  });

  test('are left to the background when the platform does not answer in any try', async () => {
    const { outcome, tries } = await deployed('process.exit(4);');
    assert.equal(outcome, 'unreachable');
    assert.deepEqual(tries, [1, 2, 3]);
  });

  test('are tried once when the platform refuses one, and not while runtimes are upgraded', async () => {
    await assert.rejects(deployed('process.exit(turn === 1 ? 2 : 0);'), { name: 'ConfigError' });
    await assert.rejects(deployed('process.exit(turn === 1 ? 70 : 0);'), { name: 'ConfigError' });
    assert.equal((await deployed('process.exit(turn === 1 ? 6 : 0);')).outcome, 'upgrading');
    assert.equal((await deployed('process.exit(2);', [])).outcome, 'deployed');
  });
});

describe('the functions that are deployed in the background', () => {
  /** Deploys `names` with a program in the place of `pie deploy`. Returns the lines for the terminal, the log, and the functions that are left. */
  function deployed(program: string, names: readonly string[], until?: (log: CollectedLog) => boolean) {
    return withDeployProgram(program, async (config) => {
      const log = new CollectedLog();
      const lines: string[] = [];
      const aborting = new AbortController();
      const pending = new PendingFunctions(config, { awaited: [], later: names, log });
      await deployRest(config, names, {
        pending,
        signal: aborting.signal,
        log,
        say: (line) => {
          lines.push(line);
          if (until?.(log)) aborting.abort();
        },
        pauseMs: () => 0,
      });
      return { lines, log, left: pendingFunctions(config) };
    });
  }

  const fieldsOf = (log: CollectedLog) =>
    log.records.map(({ fields: { function: name, cause, tries } }) => [name, cause, tries]).sort();

  test('are tried again, each alone, until all are there', async () => {
    const program = `
      if (turn === 1) { report('a'); fail('b: It is full.'); process.exitCode = 4; report('c'); }
      else if (turn === 2) { fail(names.length === 1 && names[0] === 'b' ? 'Still full.' : 'others were tried'); }
      else for (const name of names) report(name);`;
    const { lines, log, left } = await deployed(program, ['a', 'b', 'c']);
    assert.deepEqual(left, []);
    assert.deepEqual(fieldsOf(log), [
      ['a', undefined, undefined],
      ['b', undefined, undefined],
      ['b', 'store-unavailable: It is full.', 1],
      ['b', 'store-unavailable: Still full.', 2],
      ['c', undefined, undefined],
    ]);
    assert.equal(lines.at(-1), 'Deployed 3 more functions.');
  });

  test('are listed with the reason when the program ends without a word about them', async () => {
    const until = (log: CollectedLog) => log.records.filter(({ fields }) => fields.function === 'b').length === 2;
    const { log, left } = await deployed(
      `report('a'); console.error('no such device'); process.exit(7);`,
      ['a', 'b'],
      until,
    );
    const why = '`pie deploy` ended with exit code 7: no such device';
    assert.deepEqual(fieldsOf(log).slice(1), [
      ['b', why, 1],
      ['b', why, 2],
    ]);
    assert.deepEqual(
      left.map(({ name, state, tries, why }) => ({ name, state, tries, why })),
      [{ name: 'b', state: 'failed', tries: 2, why }],
    );
  });
});
