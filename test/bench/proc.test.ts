import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import {
  belowRoots,
  parseProcessorTime,
  parsePssBytes,
  parseStat,
  parseWaits,
  programOf,
  readPssBytes,
  readThreadWork,
} from './proc.ts';
import { cpuOfTrees, processesOf } from './process-usage.ts';

const ROLLUP = `55e5662df000-7ffd20114000 ---p 00000000 00:00 0                          [rollup]
Rss:                1736 kB
Pss:                 224 kB
Pss_Dirty:           112 kB
SwapPss:               9 kB
`;

describe('proc', () => {
  it('reads the proportional set size and no other value', () => {
    assert.equal(parsePssBytes(ROLLUP), 224 * 1024);
    assert.equal(parsePssBytes(''), 0);
    assert.throws(() => parsePssBytes('Rss: 1 kB'), /Pss/);
  });

  it('counts voluntary context switches and no involuntary ones', () => {
    assert.equal(parseWaits('State:\tS\nvoluntary_ctxt_switches:\t27\nnonvoluntary_ctxt_switches:\t99\n'), 27);
    assert.throws(() => parseWaits('State:\tS'), /voluntary_ctxt_switches/);
  });

  it('reads a process whose name holds spaces and parentheses', () => {
    const after = `S 77 1 1 0 -1 4194304 2 0 0 0 150 50 30 20 20 0 1 0 5 6 7`;
    // The process used 150 + 50 ticks of 10 ms, and its ended children 30 + 20.
    assert.deepEqual(parseStat(`42 (a (b) c) ${after}`), { parent: 77, cpuUs: 2.5e6 });
  });

  it('reads the idle and the stolen processor time, and counts the time of virtual machines only once', () => {
    // Idle are 400 ticks and 5 that waited for input or output. The last two numbers (10, 20) are part of the first two.
    const text = 'cpu  10 20 30 400 5 6 7 80 10 20\ncpu0 1 2 3 4 5 6 7 8 9 10\n';
    assert.deepEqual(parseProcessorTime(text), { all: 558, idle: 405, stolen: 80 });
    assert.throws(() => parseProcessorTime('cpu0 1 2'), /no line "cpu"/);
  });

  it('assigns a process to its nearest root', () => {
    const parents = new Map([1, 10, 11, 12, 13, 20].map((pid) => [pid, { parent: 1 }]));
    parents.set(11, { parent: 10 }).set(12, { parent: 11 }).set(13, { parent: 12 });
    const roots = new Map([
      ['supervisor', 10],
      ['runtime', 12],
    ]);
    assert.deepEqual(
      [...belowRoots(parents, roots)].sort(([a], [b]) => a - b),
      [
        [10, 'supervisor'],
        [11, 'supervisor'],
        [12, 'runtime'],
        [13, 'runtime'],
      ],
    );
  });

  it('names a process by its script or program', () => {
    const sandbox = ['/usr/bin/node', '--allow-fs-read=/pie/errors.ts', '/pie/runtime/guest/main.ts', '5', ''];
    assert.equal(programOf(sandbox), 'guest/main.ts');
    assert.equal(programOf(['/usr/bin/bwrap', '--', '/usr/bin/node', '/pie/runtime/guest/main.ts']), 'bwrap');
    assert.equal(programOf(['redis-server unixsocket:/tmp/redis.sock', '']), 'redis-server');
  });

  it('reads the current process', () => {
    const resident = Number(/VmRSS:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) * 1024;
    const pss = readPssBytes(process.pid);
    assert.ok(pss !== undefined && pss > 0 && pss <= resident * 1.1, `${pss} of ${resident}`);
    assert.ok((readThreadWork(process.pid)?.cpuUs ?? 0) > 0);
    assert.equal(processesOf(new Map([['me', process.pid]])).find(({ pid }) => pid === process.pid)?.name, 'me');
  });

  it('counts the CPU time of a child that began and ended between two readings', () => {
    const read = () => cpuOfTrees(new Map([['me', process.pid]])).get('me') ?? 0;
    const before = read();
    spawnSync(process.execPath, ['-e', 'while (process.cpuUsage().user < 300_000);']);
    assert.ok(read() - before >= 250_000);
  });

  it('returns undefined for a process that has ended', () => {
    // Linux gives no process id above 2 ** 22.
    const unusedPid = 2 ** 22 + 1;
    assert.equal(readPssBytes(unusedPid), undefined);
    assert.equal(readThreadWork(unusedPid), undefined);
  });
});
