import assert from 'node:assert/strict';
import { test } from 'node:test';
import { remarksOf, reportOf, rowsOf } from './report.ts';

const run = (ms: number, more = {}) => ({ text: 'A dog.', ms, requests: 1, tokens: 3, promptTokens: 2, ...more });

test('a report compares medians and says whether the texts are equal', () => {
  const rounds = { program: [run(300), run(100), run(200)], loop: [run(500, { requests: 9 }), run(300), run(400)] };
  const report = reportOf(rounds, 20);
  assert.deepEqual(
    [report.ratio, report.rounds, report.equalTexts, report.equalTokens, report.loop.requests],
    [2, 3, true, true, 9],
  );
  assert.deepEqual(report.program.ms, { median: 200, min: 100, max: 300 });
  assert.deepEqual(rowsOf(report)[0], ['time', '200 ms (100 ms to 300 ms)', '400 ms (300 ms to 500 ms)']);
  assert.match(remarksOf(report).join(' '), /function takes 50 % less time.*20 ms are added.*Both texts are equal\./);
  assert.match(remarksOf(reportOf({ program: [run(400)], loop: [run(100)] }, 0))[0] ?? '', /loop takes 75 % less/);
});

test('a report names the first difference of the texts', () => {
  const report = reportOf({ program: [run(1), run(3)], loop: [run(2, { text: 'A cat.', tokens: 4 })] }, 0);
  assert.deepEqual([report.equalTexts, report.equalTokens, report.program.ms.median], [false, false, 2]);
  assert.match(remarksOf(report).at(-1) ?? '', /differ from character 3 on/);
});
