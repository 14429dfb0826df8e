import { format, median, SINGLE, spreadOver } from '../statistics.ts';
import { barChart } from './chart.ts';
import {
  type Change,
  changes,
  figuresOf,
  labelColumns,
  noiseOf,
  type Results,
  type SuiteRun,
  spreadIn,
} from './results.ts';

/** A report and its images by file name. */
export interface Report {
  readonly markdown: string;
  readonly images: ReadonlyMap<string, string>;
}

/** What a suite's image shows. Images of suites without an entry show the first column with figures. */
interface Plot {
  readonly column?: string;
  /** What a reader must know beside the figures, in lines. */
  readonly caption?: readonly string[];
  /** Matches a cell of rows whose work differs from that of the others; their bars have another colour, which the caption explains. */
  readonly apart?: RegExp;
}

const PLOTS: Readonly<Record<string, Plot>> = {
  agents: { column: 'over the client loop' },
  stacked: {
    column: 'over the client loop',
    caption: [
      'Blue: equal output, token by token.',
      'Other colour: other output. This program decodes less: most tokens of a turn, the format of its calls, are filled in.',
    ],
    apart: /filled in, not decoded/,
  },
  serve: {
    caption: [
      'The peer, node-llama-cpp, hardly batches: its tokens a second no longer grow once requests overlap.',
      'A distance from it shows continuous batching, which other servers have, too, and nothing of programs.',
    ],
  },
  techniques: { column: 'over the baseline' },
  prefix: { column: 'without over with' },
};

/** The machine counts as busy if more than this share of its processors is in use before a suite. */
const BUSY_SHARE = 0.1;

/** Tables and images of a run. `linkPrefix` precedes each image's file name in links; `before` is an earlier run to compare with. */
export function reportOf(results: Results, linkPrefix: string, before?: Results): Report {
  const images = new Map<string, string>();
  const parts = [summary(results), ...(before ? [comparison(results, before)] : [])];
  for (const suite of results.suites) {
    if (suite.outcome !== 'ran') {
      parts.push(`## ${suite.name}\n\n**${suite.outcome === 'failed' ? 'Failed' : 'Not run'}**: ${suite.reason}`);
      continue;
    }
    const image = imageOf(suite);
    if (image !== undefined) images.set(`${suite.name}.svg`, image.svg);
    parts.push(
      [
        `## ${suite.name}`,
        `${suite.title}.`,
        ...(suite.quick === undefined ? [] : [`**Quick run**: ${suite.quick}`]),
        ...(image === undefined ? [] : [`![${image.alt}](${linkPrefix}${suite.name}.svg)`]),
        ...(PLOTS[suite.name]?.caption ? [`*${PLOTS[suite.name]?.caption?.join(' ')}*`] : []),
        table(
          suite.header,
          suite.rows.map((cells) => cells.map(withoutMark)),
        ),
        suite.notes.map((note) => `- ${withoutMark(note)}`).join('\n'),
        conditions(suite, results),
      ].join('\n\n'),
    );
  }
  return { markdown: `${parts.join('\n\n')}\n`, images };
}

function summary({ machine, startedAt, seconds, quick, repetitions, suites }: Results): string {
  const { cpu, cores, memoryGib, kernel, node, commit } = machine;
  const ran = suites.filter(({ outcome }) => outcome === 'ran').length;
  const missing = suites.filter(({ outcome }) => outcome !== 'ran').map(({ name }) => `\`${name}\``);
  const rounds = repetitions === 1 ? 'one round' : `${repetitions} rounds`;
  const commits = new Set(suites.flatMap((suite) => (suite.outcome === 'ran' ? [suite.commit] : [])));
  const suiteSeconds = suites.reduce((sum, suite) => sum + (suite.outcome === 'ran' ? suite.seconds : 0), 0);
  const minutes = `${format((commits.size > 1 ? suiteSeconds : seconds) / 60, 0)} minutes`;
  const kind = `${quick ? 'quick ' : ''}run`;
  const lines = [
    commits.size > 1
      ? `Suites of ${commits.size} commits, ${minutes} in all, most with ${rounds}: below each table are its commit and its noise.`
      : `A ${kind} with ${rounds} of ${startedAt.slice(0, 10)} at ${startedAt.slice(11, 16)} UTC, ${minutes}, commit \`${commit}\`.`,
    `${cores} × ${cpu}, ${memoryGib} GiB, Linux ${kernel}, Node ${node}. Clients, tools and platform share these cores.`,
    `${ran} of ${suites.length} suites ran${missing.length > 0 ? `; missing: ${missing.join(', ')}` : ''}.`,
    repetitions === 1
      ? 'One round has no spread: a figure may be noise, and shows neither that an aim is met nor that it is missed. Sides run one after the other.'
      : 'Cells show the median, the least and the largest value of the rounds. Sides alternate within a round.',
    ...(suites.some((suite) => suite.outcome === 'ran' && suite.quick !== undefined)
      ? ['A quick run has few cases of each suite, with all sides. A line above each table names its cases.']
      : []),
  ];
  return lines.map((line) => `- ${line}`).join('\n');
}

/** Disturbances of a suite, and the spread of its figures. */
function conditions(suite: SuiteRun, { machine, suites }: Results): string {
  const { busyBefore = 0 } = suite;
  const allFigures = figuresOf(suite);
  const figures = allFigures.filter(({ spread }) => !spread.isSingle);
  // (max − min) / median is undefined for a median of 0.
  const ranged = figures.map(({ spread }) => spread).filter((spread) => spread.median !== 0);
  const singleNote =
    allFigures.length === figures.length
      ? ''
      : ` (${allFigures.length - figures.length} of ${allFigures.length} have no range)`;
  const noise =
    ranged.length === 0
      ? `unknown, ${allFigures.length === 0 ? 'no figure has a range' : spreadOver(1)}`
      : `the median over its figures of (max − min) / median is ${percent(median(ranged.map(noiseOf)))}${singleNote}`;
  const busy =
    busyBefore > BUSY_SHARE ? `; **${percent(busyBefore)} of the processors were busy before it began**` : '';
  const commits = new Set(suites.map((each) => (each.outcome === 'ran' ? each.commit : machine.commit)));
  const commit = commits.size > 1 ? `, commit \`${suite.commit}\`` : '';
  return `${format(suite.seconds, 0)} s${commit}; noise: ${noise}; ${percent(suite.stolen)} of the processor time taken by the host${busy}.`;
}

function comparison(now: Results, before: Results): string {
  const figures = (results: Results) =>
    results.suites.flatMap((suite) => (suite.outcome === 'ran' ? figuresOf(suite) : []));
  const allChanges = changes(figures(now), figures(before));
  const beyond = allChanges.filter(({ beyondNoise }) => beyondNoise);
  const single = allChanges.filter(({ beyondNoise }) => beyondNoise === undefined);
  const differences = [
    ...(now.quick === before.quick ? [] : ['one run is quick and the other is not']),
    ...(now.machine.cpu === before.machine.cpu && now.machine.cores === before.machine.cores
      ? []
      : ['the machines differ']),
    ...(now.quick && before.quick ? otherCases(now, before) : []),
  ];
  return [
    '## Compared with an earlier run',
    `With commit \`${before.machine.commit}\` of ${before.startedAt.slice(0, 10)}: ${allChanges.length} figures of both runs, ${beyond.length} of them beyond noise (the ranges do not overlap)${differences.length > 0 ? `; ${differences.join(', and ')}` : ''}.`,
    ...(beyond.length === 0 ? [] : [changeTable(beyond)]),
    ...(single.length === 0
      ? []
      : [
          `${single.length} of them have only one round in one or both runs, and so no spread: which of them changed beyond noise is unknown. The ${Math.min(MAX_SINGLE, single.length)} largest changes:`,
          changeTable(single.toSorted((a, b) => sizeOf(b) - sizeOf(a)).slice(0, MAX_SINGLE)),
        ]),
  ].join('\n\n');
}

/** Names the suites whose quick cases differ between the two versions of Pie. */
function otherCases(now: Results, before: Results): string[] {
  const cases = new Map(before.suites.flatMap((suite) => (suite.outcome === 'ran' ? [[suite.name, suite.quick]] : [])));
  const others = now.suites.filter(
    (suite) => suite.outcome === 'ran' && cases.has(suite.name) && cases.get(suite.name) !== suite.quick,
  );
  if (others.length === 0) return [];
  return [`the quick cases of these suites differ: ${others.map(({ name }) => `\`${name}\``).join(', ')}`];
}

/** Maximum number of changes of unknown noise that a comparison lists. */
const MAX_SINGLE = 10;

/** Size of a change: doubling and halving count the same. It is 0 for a figure that was or became 0 and so has no ratio. */
function sizeOf({ ratio }: Change): number {
  const size = Math.abs(Math.log(ratio));
  return Number.isFinite(size) ? size : 0;
}

const changeTable = (list: readonly Change[]): string =>
  table(
    ['suite', 'row', 'figure', 'before', 'now', 'now over before'],
    list.map(({ figure: { suite, row, column, spread }, before, ratio }) => [
      suite,
      row,
      column,
      ...[before, spread].map(({ median: middle, min, max, isSingle }) =>
        isSingle ? String(middle) : `${middle} (${min}–${max})`,
      ),
      format(ratio),
    ]),
  );

function imageOf(suite: SuiteRun): { svg: string; alt: string } | undefined {
  const { name, header, rows } = suite;
  const { column: plotted, caption, apart } = PLOTS[name] ?? {};
  const column = plotted
    ? header.indexOf(plotted)
    : header.findIndex((_, at) => rows.some((cells) => spreadIn(cells[at] ?? '') !== undefined));
  const columnName = header[column] ?? '';
  // A column with one value for all bars would only lengthen their names.
  const labels = labelColumns(rows).filter((at) => new Set(rows.flatMap((cells) => cells[at] || [])).size > 1);
  const bars = rows.flatMap((cells) => {
    const spread = spreadIn(cells[column] ?? '');
    const label = labels.map((at) => labelPart(header[at] ?? '', cells[at] ?? '')).filter(Boolean);
    return spread === undefined
      ? []
      : [{ label: label.join(', '), spread, apart: cells.some((cell) => apart?.test(cell)) }];
  });
  if (bars.length === 0) return undefined;
  const [, baseline] = /(?:^| )over (.*)$/.exec(columnName) ?? [];
  const shown = bars.every(({ spread }) => spread.isSingle) ? spreadOver(1) : 'median and range';
  const line = baseline === undefined ? undefined : { at: 1, name: baseline };
  return {
    svg: barChart({
      title: suite.title,
      subtitle: `${columnName}: ${shown}`,
      bars,
      ...(line && { line }),
      ...(caption && { caption }),
    }),
    alt: `${suite.title}: ${columnName}`,
  };
}

/** A cell without the mark of a single round: the report says below the table that a figure has no range. */
const withoutMark = (cell: string): string => cell.replaceAll(` (${SINGLE})`, '');

/** A cell as part of a row's label; a number alone would be unclear without its column's name. */
const labelPart = (header: string, cell: string): string => (/^[\d.]+$/.test(cell) ? `${header} ${cell}` : cell);

function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(header), line(header.map(() => '---')), ...rows.map(line)].join('\n');
}

const percent = (share: number): string => `${format(share * 100, 0)} %`;
