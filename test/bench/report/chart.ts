import { escapeHtml } from '#gateway/app/docs/pages.ts';
import type { Spread } from '../statistics.ts';

/** One bar of a chart. */
export interface Bar {
  readonly label: string;
  readonly spread: Spread;
  /** Whether the bar is drawn in another colour, because its work differs from that of the others; the caption says how. */
  readonly apart?: boolean;
}

export interface Chart {
  readonly title: string;
  readonly subtitle: string;
  readonly bars: readonly Bar[];
  /** A vertical line at a value, such as 1 for a ratio, with the line's name. */
  readonly line?: { readonly at: number; readonly name: string };
  /** Lines below the bars: what a reader must know beside the figures. */
  readonly caption?: readonly string[];
}

const MIN_WIDTH = 760;
/** Minimum width of the longest bar. */
const MIN_BARS_WIDTH = 320;
const MARGIN = 16;
const BARS_TOP = 64;
const ROW_HEIGHT = 26;
const BAR_HEIGHT = 18;
/** Room for the numbers after the longest bar. */
const VALUES_WIDTH = 56;
const CAPTION_HEIGHT = 17;
/** Mean width of a character of a label. */
const CHARACTER_WIDTH = 6.4;
/** Mean width of a character of the title. */
const TITLE_CHARACTER_WIDTH = 9;
const MAX_LABEL_WIDTH = 90 * CHARACTER_WIDTH;

/** Horizontal bars of medians with their ranges, as SVG in the style of the other images in docs/. */
export function barChart({ title, subtitle, bars, line, caption = [] }: Chart): string {
  const labelWidth = Math.max(60, ...bars.map(({ label }) => label.length * CHARACTER_WIDTH));
  const left = round(MARGIN + Math.min(MAX_LABEL_WIDTH, labelWidth) + 8);
  const ends = [
    left + MIN_BARS_WIDTH + VALUES_WIDTH,
    MARGIN + title.length * TITLE_CHARACTER_WIDTH,
    ...caption.map(({ length }) => MARGIN + length * CHARACTER_WIDTH),
  ].map((end) => Math.ceil(end + MARGIN));
  const width = Math.max(MIN_WIDTH, ...ends);
  const largest = Math.max(line?.at ?? 0, ...bars.map(({ spread }) => spread.max)) || 1;
  const x = (value: number) => round(left + (value / largest) * (width - left - VALUES_WIDTH - MARGIN));
  const bottom = BARS_TOP + bars.length * ROW_HEIGHT;
  const captionTop = bottom + (line ? 28 : 12);
  const height = captionTop + (caption.length > 0 ? caption.length * CAPTION_HEIGHT + 8 : 0);
  const rows = bars.map(({ label, apart, spread: { median, min, max } }, i) => {
    const y = BARS_TOP + i * ROW_HEIGHT;
    const middle = y + BAR_HEIGHT / 2;
    return [
      `<text x="${MARGIN}" y="${middle + 4}" fill="${INK}">${escapeHtml(label)}</text>`,
      `<rect x="${left}" y="${y}" width="${round(Math.max(0, x(median) - left))}" height="${BAR_HEIGHT}" rx="3" fill="${apart ? APART : BLUE}"/>`,
      `<path d="M${x(min)} ${middle}H${x(max)}M${x(min)} ${middle - 4}v8M${x(max)} ${middle - 4}v8" stroke="${INK}" fill="none"/>`,
      `<text x="${round(x(max) + 8)}" y="${middle + 4}" font-weight="600" fill="${INK}">${shortNumber(median)}</text>`,
    ].join('\n  ');
  });
  const mark = line
    ? [
        `<line x1="${x(line.at)}" y1="${BARS_TOP - 8}" x2="${x(line.at)}" y2="${bottom}" stroke="#8a94a3" stroke-dasharray="4 4"/>`,
        `<text x="${x(line.at)}" y="${bottom + 16}" fill="${GREY}">${escapeHtml(line.name)}</text>`,
      ]
    : [];
  const below = caption.map(
    (text, i) =>
      `<text x="${MARGIN}" y="${captionTop + 12 + i * CAPTION_HEIGHT}" fill="${INK}">${escapeHtml(text)}</text>`,
  );
  const description = bars.map(({ label, spread }) => `${label}: ${shortNumber(spread.median)}`).join('; ');
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="${escapeHtml([`${title}. ${description}`, ...caption].join('. '))}">
  <rect width="${width}" height="${height}" fill="#ffffff"/>
  <text x="${MARGIN}" y="26" font-size="16" font-weight="600" fill="${INK}">${escapeHtml(title)}</text>
  <text x="${MARGIN}" y="46" fill="${GREY}">${escapeHtml(subtitle)}</text>
  ${[...rows, ...mark, ...below].join('\n  ')}
</svg>
`;
}

const INK = '#1c2430';
const GREY = '#5b6675';
const BLUE = '#2f6fde';
const APART = '#b9a35a';

const round = (value: number): number => Math.round(value * 10) / 10;

const shortNumber = (value: number): string =>
  Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
