import { escapeHtml } from '#gateway/app/docs/html.ts';
import type { Spread } from '../statistics.ts';

/** One bar of a chart. */
export interface Bar {
  readonly label: string;
  readonly spread: Spread;
}

export interface Chart {
  readonly title: string;
  readonly subtitle: string;
  readonly bars: readonly Bar[];
  /** A value to draw a line at, such as 1 for a ratio, with its name. */
  readonly line?: { readonly at: number; readonly name: string };
}

const LEAST_WIDTH = 760;
/** Minimum width of the longest bar. */
const BARS = 320;
const MARGIN = 16;
const TOP = 64;
const ROW = 26;
const BAR = 18;
/** Room for the numbers after the longest bar. */
const VALUES = 56;
/** Mean width of a character of a label, and of the title. */
const CHARACTER = 6.4;
const TITLE_CHARACTER = 9;
const LONGEST_LABEL = 90 * CHARACTER;

/** Horizontal bars of medians with their ranges, as SVG in the style of the other pictures in docs/. */
export function barChart({ title, subtitle, bars, line }: Chart): string {
  const labels = Math.max(60, ...bars.map(({ label }) => label.length * CHARACTER));
  const left = round(MARGIN + Math.min(LONGEST_LABEL, labels) + 8);
  const ends = [left + BARS + VALUES, MARGIN + title.length * TITLE_CHARACTER].map((end) => Math.ceil(end + MARGIN));
  const width = Math.max(LEAST_WIDTH, ...ends);
  const largest = Math.max(line?.at ?? 0, ...bars.map(({ spread }) => spread.max)) || 1;
  const x = (value: number) => round(left + (value / largest) * (width - left - VALUES - MARGIN));
  const bottom = TOP + bars.length * ROW;
  const height = bottom + (line ? 28 : 12);
  const rows = bars.map(({ label, spread: { median, min, max } }, i) => {
    const y = TOP + i * ROW;
    const middle = y + BAR / 2;
    return [
      `<text x="${MARGIN}" y="${middle + 4}" fill="${INK}">${escapeHtml(label)}</text>`,
      `<rect x="${left}" y="${y}" width="${round(Math.max(0, x(median) - left))}" height="${BAR}" rx="3" fill="#2f6fde"/>`,
      `<path d="M${x(min)} ${middle}H${x(max)}M${x(min)} ${middle - 4}v8M${x(max)} ${middle - 4}v8" stroke="${INK}" fill="none"/>`,
      `<text x="${round(x(max) + 8)}" y="${middle + 4}" font-weight="600" fill="${INK}">${short(median)}</text>`,
    ].join('\n  ');
  });
  const mark = line
    ? [
        `<line x1="${x(line.at)}" y1="${TOP - 8}" x2="${x(line.at)}" y2="${bottom}" stroke="#8a94a3" stroke-dasharray="4 4"/>`,
        `<text x="${x(line.at)}" y="${bottom + 16}" fill="${GREY}">${escapeHtml(line.name)}</text>`,
      ]
    : [];
  const told = bars.map(({ label, spread }) => `${label}: ${short(spread.median)}`).join('; ');
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="${escapeHtml(`${title}. ${told}`)}">
  <rect width="${width}" height="${height}" fill="#ffffff"/>
  <text x="${MARGIN}" y="26" font-size="16" font-weight="600" fill="${INK}">${escapeHtml(title)}</text>
  <text x="${MARGIN}" y="46" fill="${GREY}">${escapeHtml(subtitle)}</text>
  ${[...rows, ...mark].join('\n  ')}
</svg>
`;
}

const INK = '#1c2430';
const GREY = '#5b6675';

const round = (value: number): number => Math.round(value * 10) / 10;

const short = (value: number): string =>
  Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
