import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type Results, report } from './report.ts';

const times = { median: 5, p10: 4.9, p90: 5.2 };
const RESULTS: Results = {
  mode: 'quick',
  ceilings: { bytesPerSecond: 4.3e12, flopsPerSecond: 7.9e14 },
  aims: [
    {
      measure: 'decode 8B, batch 32, over its floor',
      aim: '≤ 1.5',
      value: { median: 1.11, least: 1.1, most: 1.2, rounds: 3 },
      met: true,
      note: 'a | b',
    },
    { measure: 'prefill', aim: '≥ 0.5', value: null, met: null, note: '' },
    { measure: 'gap', aim: '≤ 50', value: { median: 70, least: 60, most: 80, rounds: 3 }, met: false, note: '' },
  ],
  records: [
    { who: 'harness', round: 0, command: 'device', result: { name: 'A card', driverVersion: 13000 } },
    {
      who: 'harness',
      round: 0,
      command: 'decode batch=32 context=1024',
      result: {
        shape: '8B',
        batch: 32,
        wallMs: times,
        deviceMs: times,
        pipelinedMs: times,
        hostGapMs: { median: 0.02 },
      },
    },
    { who: 'peer', round: 0, command: 'decode batch=32', result: { shape: '8B', batch: 32, deviceMs: { median: 7 } } },
    { who: 'peer', round: 0, command: 'prefill', error: 'out of memory' },
  ],
};

test('the report has a section for each measurement, and none for missing ones', () => {
  const text = report(RESULTS);
  assert.match(text, /\*\*Random weights\*\*/);
  assert.match(
    text,
    /\| decode 8B, batch 32, over its floor \| ≤ 1\.5 \| 1\.110 \(1\.100–1\.200\) \| met \| a \\\| b \|/,
  );
  assert.match(text, /\| gap \| ≤ 50 \| 70\.0 \(60\.0–80\.0\) \| \*\*missed\*\* \|/);
  assert.match(text, /\| 8B \| 32 \| 5\.00 \(4\.90–5\.20\) \| 5\.00 \| 5\.00 \| 20 \| 7\.00 \| 6400 \|/);
  assert.match(text, /\| peer \| prefill \| out of memory \|/);
  assert.doesNotMatch(text, /## Products|## Kernels|## Variations|platform tax/);
  const row = { kernel: 'attention', perStep: 32, us: 10, stepUs: 320, bytesPerSecond: 1e12, flopsPerSecond: 1e12 };
  const records = [true, false].map((shared) => ({
    who: 'harness' as const,
    round: 0,
    command: 'kernels shape=8B',
    result: { shape: '8B', batch: 32, context: 4224, prefix: 4096, shared, stepUs: 320, kernels: [row] },
  }));
  const compared = report({ ...RESULTS, records });
  assert.match(compared, /## Kernels of 8B, batch 32, context 4224, 4096 of it shared and read together/);
  assert.match(compared, /## Kernels of 8B, batch 32, context 4224, 4096 of it shared and read alone/);
  const tax = {
    shape: '8B',
    clients: 32,
    bareMs: { median: 4.8 },
    rows: [{ way: 'fused', aim: 1.02, perTokenMs: { median: 5 }, ratio: { median: 1.04, min: 1.03, max: 1.05 } }],
  };
  assert.match(report(RESULTS, tax), /\| platform tax, 32 inferlets, 8B, fused \| ≤ 1\.02 \| 1\.040 .* \*\*missed\*\*/);
});

test('the programs print their usage, and report what is missing', () => {
  const directory = mkdtempSync(join(tmpdir(), 'pie-report-'));
  const run = (program: string, ...args: string[]) => {
    const file = join(import.meta.dirname, program);
    const { status, stdout, stderr } = spawnSync(process.execPath, [file, ...args], { encoding: 'utf8' });
    return { status, stdout, stderr };
  };
  try {
    for (const program of ['report.ts', 'pack.ts', '../../../../infra/package/main.ts']) {
      const help = run(program, '--help');
      assert.deepEqual([help.status, help.stderr], [0, ''], program);
      assert.match(help.stdout, /^Usage: /);
      const wrong = run(program, 'a', 'b');
      assert.equal(wrong.status, 2, program);
      assert.match(wrong.stderr, /^error: expected (at most )?one [A-Z]+, got a and b\n\nUsage: /);
      const unknown = run(program, '--nothing');
      assert.match(unknown.stderr, /^error: Unknown option '--nothing'[\s\S]*Usage: /);
    }
    const none = run('report.ts', directory);
    assert.deepEqual([none.status, none.stdout], [1, '']);
    assert.match(none.stderr, /^error: there is no .*results\.json\. run\.sh leaves it there .*run\.sh .*\n$/);
    writeFileSync(join(directory, 'results.json'), '{"mode":');
    assert.match(
      run('report.ts', directory).stderr,
      /^error: .*results\.json is not what run\.sh writes .*Run it again\.\n$/,
    );
    writeFileSync(join(directory, 'results.json'), JSON.stringify(RESULTS));
    assert.match(run('report.ts', directory).stdout, /^# The CUDA backend on a card/);
    assert.match(
      run('report.ts', directory, '--out', join(directory, 'no', 'file')).stderr,
      /^error: the report cannot be written/,
    );
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
