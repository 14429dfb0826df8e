import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Marked } from 'marked';
import { barChart } from './chart.ts';
import { reportOf } from './markdown.ts';
import type { Results, SuiteRun } from './results.ts';

const machine = { cpu: 'Test CPU', cores: 2, memoryGib: 23, kernel: '6.1', node: '26', commit: 'abc' };
/** A suite of four figures. `ratio` is the last cell of the first row. */
const suite = (ratio: string): SuiteRun => ({
  name: 'agents',
  outcome: 'ran',
  commit: 'abc',
  seconds: 60,
  busyBefore: 0.02,
  stolen: 0.02,
  title: 'Agents | loops',
  data: [],
  header: ['agent', 'model', 'agents', 'ms', 'over the client loop'],
  rows: [
    ['react', 'tiny', '8', '300 (290–310)', ratio],
    ['react', 'tiny', '32', '900 (890–910)', '1.20 (1.10–1.30)'],
  ],
  notes: ['A note.'],
});
/** A quick run of two suites: the suite above, which does not name its quick cases, and one that did not run. */
const results = (ratio: string): Results => ({
  format: 1,
  startedAt: '2026-11-24T20:00:00Z',
  seconds: 120,
  quick: true,
  repetitions: 5,
  machine,
  suites: [suite(ratio), { name: 'soak', outcome: 'not run', reason: 'not done after 15 minutes' }],
});

/** The report's remark on a quick run in which a suite names its cases. */
const QUICK_CASES =
  /A quick run has few cases of each suite, with all sides\. A line above each table names its cases\./;

describe('report', () => {
  it('has every suite, with the reason of one that did not run, and an image of the chosen column', () => {
    const { markdown, images } = reportOf(results('1.50 (1.40–1.60)'), 'folder/');
    assert.match(markdown, /1 of 2 suites ran; missing: `soak`/);
    assert.match(markdown, /\*\*Not run\*\*: not done after 15 minutes/);
    assert.match(markdown, /!\[.+: over the client loop\]\(folder\/agents\.svg\)/);
    const html = new Marked().parse(markdown, { async: false });
    assert.equal(html.match(/<tr>/g)?.length, 3, 'a header and two rows');
    const svg = images.get('agents.svg') ?? '';
    // A bar's label has only the cells that differ between rows: the number of agents, and not the agent or the model.
    assert.match(svg, />agents 8</);
    assert.match(svg, />1\.50</);
    assert.doesNotMatch(svg, />300</, 'figures of another column');
  });

  it('draws rows with other work in another colour, and the caption says so below the chart and in the report', () => {
    const stacked: SuiteRun = {
      ...suite('1.50 (1.40–1.60)'),
      name: 'stacked',
      header: ['agents', 'way', 'over the client loop'],
      rows: [
        ['1', '+ system prompt computed once', '1.18 (1.12–1.24)'],
        ['1', '+ format of the calls filled in, not decoded', '3.86 (3.68–4.04)'],
      ],
    };
    const { markdown, images } = reportOf({ ...results('1.50 (1.40–1.60)'), suites: [stacked] }, '');
    const svg = images.get('stacked.svg') ?? '';
    const colours = [...svg.matchAll(/<rect x="\d+[^>]*rx="3" fill="(#\w+)"/g)].map(([, colour]) => colour);
    assert.equal(colours.length, 2);
    assert.notEqual(colours[0], colours[1]);
    assert.match(svg, />Other colour: other output\./);
    assert.match(markdown, /^\*.*Other colour: other output\..*\*$/m);
  });

  it('leaves figures of 0 out of the noise', () => {
    const one = results('1.50 (1.40–1.60)');
    const withZero = { ...suite('0 (0–0)'), name: 'stacked' };
    const { markdown } = reportOf({ ...one, suites: [...one.suites, withZero] }, '');
    // The figure of 0 would make the noise of its suite NaN %.
    const noise = /noise: the median over its figures of \(max − min\) \/ median is \d+ %/g;
    assert.equal(markdown.match(noise)?.length, 2, 'the noise of both suites is a number');
  });

  it('says when its suites ran on several commits, and names the commit of each', () => {
    const one = results('1.50 (1.40–1.60)');
    const other = { ...suite('1.50 (1.40–1.60)'), name: 'stacked', commit: 'def' };
    const { markdown } = reportOf({ ...one, suites: [...one.suites, other] }, '');
    assert.match(markdown, /^- Suites of 2 commits, 2 minutes in all/m);
    assert.match(markdown, /60 s, commit `abc`/);
    assert.match(markdown, /60 s, commit `def`/);
    assert.match(reportOf(one, '').markdown, /^- A quick run with 5 rounds .*commit `abc`/m);
  });

  it('lists the figures that changed beyond noise, and the conditions in which two runs differ', () => {
    const before = { ...results('1.20 (1.10–1.30)'), quick: false };
    const { markdown } = reportOf(results('1.50 (1.40–1.60)'), '', before);
    assert.match(markdown, /4 figures of both runs, 1 of them beyond noise/);
    assert.match(markdown, /one run is quick and the other is not/);
    assert.match(markdown, /\| 1\.2 \(1\.1–1\.3\) \| 1\.5 \(1\.4–1\.6\) \| 1\.25 \|/);
  });

  it('states that one round has no spread, and calls no change beyond noise', () => {
    const oneRound: Results = {
      ...results('1.50 (n = 1)'),
      repetitions: 1,
      suites: [
        {
          ...suite('1.50 (n = 1)'),
          quick: '2 of 9 cases.',
          notes: ['In all 3 (n = 1) and 4 (n = 1).'],
          rows: [
            ['react', 'tiny', '8', '300 (n = 1)', '1.50 (n = 1)'],
            ['react', 'tiny', '32', '900 (n = 1)', '1.20 (n = 1)'],
          ],
        },
      ],
    };
    const { markdown, images } = reportOf(oneRound, '', results('1.20 (1.10–1.30)'));
    assert.match(markdown, /A quick run with one round of 2026-11-24/);
    assert.match(markdown, QUICK_CASES);
    assert.doesNotMatch(
      reportOf(results('1.50 (n = 1)'), '').markdown,
      QUICK_CASES,
      'a suite that does not name its cases',
    );
    assert.match(markdown, /neither that an aim is met nor that it is missed/);
    assert.match(markdown, /\*\*Quick run\*\*: 2 of 9 cases\./);
    assert.match(markdown, /\| react \| tiny \| 8 \| 300 \| 1\.50 \|/);
    assert.match(markdown, /noise: unknown, one round, no spread/);
    assert.doesNotMatch(markdown, /n = 1|median, the least and the largest/);
    assert.match(markdown, /4 figures of both runs, 0 of them beyond noise/);
    assert.match(markdown, /4 of them have only one round in one or both runs, and so no spread/);
    assert.match(markdown, /the quick cases of these suites differ: `agents`/);
    assert.doesNotMatch(reportOf(oneRound, '', oneRound).markdown, /cases of these suites differ/);
    assert.match(markdown, /\| 1\.2 \(1\.1–1\.3\) \| 1\.5 \| 1\.25 \|/);
    assert.match(images.get('agents.svg') ?? '', /over the client loop: one round, no spread/);
  });

  it('states when the machine was busy', () => {
    const busy = { ...results('1.50 (1.40–1.60)'), suites: [{ ...suite('1.50 (1.40–1.60)'), busyBefore: 0.5 }] };
    assert.match(reportOf(busy, '').markdown, /50 % of the processors were busy before it began/);
    assert.doesNotMatch(reportOf(results('1.50 (1.40–1.60)'), '').markdown, /busy/);
  });
});

describe('chart', () => {
  it('draws lengths in proportion, marks the line, and escapes text', () => {
    const spread = (median: number) => ({ median, min: median, max: median });
    const bars = [1, 2].map((median) => ({ label: `<${median}>`, spread: spread(median) }));
    const svg = barChart({ title: 'A & B', subtitle: '"x"', bars, line: { at: 1, name: 'loop' } });
    const widths = [...svg.matchAll(/width="([\d.]+)" height="18"/g)].map(([, width]) => Number(width));
    assert.ok(Math.abs((widths[1] ?? 0) / (widths[0] ?? 1) - 2) < 0.01, `${widths}`);
    assert.match(svg, /A &amp; B/);
    assert.match(svg, /&lt;1&gt;/);
    assert.doesNotMatch(svg, /<1>|NaN/);
    assert.match(svg, />loop</);
  });
});
