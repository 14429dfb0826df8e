import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { readResults, runSuites, SUITES } from './all.ts';
import { BENCHES } from './benches.ts';

describe('pie bench all', () => {
  let directory = '';
  before(async () => {
    directory = await mkdtemp(path.join(os.tmpdir(), 'pie-all-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  const run = (more: { only?: string[]; against?: string; resume?: boolean; out?: string }, list = SUITES) =>
    runSuites(
      {
        repetitions: 1,
        quick: true,
        only: [],
        out: path.join(directory, 'out'),
        resume: false,
        progress: () => undefined,
        ...more,
      },
      list,
    );

  it('lists every benchmark of `pie bench` once, under its own name', async () => {
    assert.deepEqual(SUITES.map(({ name }) => name).sort(), [...BENCHES.keys()].sort());
    for (const [name, load] of BENCHES) assert.equal((await load()).name, name);
  });

  it('expects a quick run to take less than its limit of 15 minutes', () => {
    const seconds = SUITES.reduce((sum, suite) => sum + (suite.seconds ?? Number.NaN), 0);
    assert.ok(seconds < 15 * 60, `${seconds} s`);
  });

  it("goes on after a failed suite, and reports each suite's number and the time left", async () => {
    const lines: string[] = [];
    const out = path.join(directory, 'failing');
    const options = { repetitions: 1, quick: true, only: [], out, resume: false };
    const unknown = ['no-such-bench', 'nor-this'].map((name) => ({ name, seconds: 30 }));
    const progress = (line: string) => lines.push(line);
    const prepare = async () => void progress('prepared');
    assert.equal(await runSuites({ ...options, progress, prepare }, unknown), 2);
    assert.equal(lines.shift(), 'prepared');
    // Two suites of 30 s each.
    assert.match(lines[0] ?? '', /^\[1\/2\] no-such-bench: about 1 min left$/);
    assert.match(lines[1] ?? '', /^\[1\/2\] no-such-bench: failed, \d+ s$/);
    assert.match(lines[2] ?? '', /^\[2\/2\] nor-this: about \d min left$/);
    const { suites } = await readResults(path.join(out, 'results.json'));
    assert.deepEqual(
      suites.map(({ name, outcome }) => [name, outcome]),
      unknown.map(({ name }) => [name, 'failed']),
    );
    await rm(out, { recursive: true });
  });

  it('refuses an unknown suite and a wrong earlier run before it measures anything', async () => {
    await assert.rejects(run({ only: ['agents', 'nothing'] }), /There is no suite "nothing"/);
    const file = path.join(directory, 'earlier.json');
    await assert.rejects(run({ against: file }), /No results .*earlier\.json/);
    await writeFile(file, '{');
    await assert.rejects(run({ against: file }), /No results .*earlier\.json/);
    for (const text of ['null', '{}', '{"format": 2, "suites": []}', '{"format": 1, "suites": {}}']) {
      await writeFile(file, text);
      await assert.rejects(run({ against: file }), /holds no results/);
    }
    assert.deepEqual(await readdir(directory), ['earlier.json']);
  });

  it('refuses to resume results of another machine', async () => {
    const out = path.join(directory, 'resumed');
    await mkdir(out);
    const [{ model = 'unknown' } = {}] = os.cpus();
    const resumed = async (cpu: string, cores: number) => {
      const machine = { cpu, cores, memoryGib: 1, kernel: '', node: '', commit: '000000000000' };
      const results = { format: 1, machine, quick: true, repetitions: 1, suites: [] };
      await writeFile(path.join(out, 'results.json'), JSON.stringify(results));
      return run({ out, resume: true }, []);
    };
    await assert.rejects(resumed('another', 2), /processor was another and is .*Choose another --out/);
    await assert.rejects(resumed(model, 1000), /number of cores was 1000 and is/);
    await rm(out, { recursive: true });
  });

  it('reads results of its own format', async () => {
    const file = path.join(directory, 'results.json');
    await writeFile(file, '{"format": 1, "suites": []}');
    assert.deepEqual(await readResults(file), { format: 1, suites: [] });
  });
});
