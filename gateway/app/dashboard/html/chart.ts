import { type Html, html, NONE } from './parts.ts';

/** The values of one line or of one row of columns. A value is null for a time without a measurement. */
interface Series {
  readonly name: string;
  readonly values: readonly (number | null)[];
}

interface ChartOptions {
  /** Subject of the chart, for screen readers. */
  readonly label: string;
  /** Formats the chart's numbers. */
  readonly format: (value: number) => string;
  /** Formats the number of one column; `format` by default. */
  readonly exact?: (value: number) => string;
  /** Label of the start of the time axis. */
  readonly from: string;
  /** Label of the end of the time axis. */
  readonly to: string;
}

const WIDTH = 600;
const HEIGHT = 72;
/** Space between two columns. */
const GAP = 2;
/** Minimum height of a column, so that any value above 0 stays visible. */
const MIN_COLUMN = 2;
/** Space above and below lines, so that the edge of the image does not cut the thick lines. */
const LINE_MARGIN = 3;

/** Columns from left to right. A pointer over a column shows its name and its value. */
export function columns(series: Series, names: readonly string[], options: ChartOptions): Html {
  const top = Math.max(...series.values.map((value) => value ?? 0), 0);
  const step = WIDTH / series.values.length;
  const exact = options.exact ?? options.format;
  const marks = series.values.map((value, index) => {
    if (value === null || value <= 0) return NONE;
    const height = Math.max(MIN_COLUMN, (value / top) * HEIGHT);
    return html`<g><title>${names[index]}: ${exact(value)}</title><rect class="hover-area" x="${(index * step).toFixed(1)}" y="0" width="${step.toFixed(1)}" height="${HEIGHT}"/><rect x="${(index * step + GAP / 2).toFixed(1)}" y="${(HEIGHT - height).toFixed(1)}" width="${(step - GAP).toFixed(1)}" height="${height.toFixed(1)}"/></g>`;
  });
  return frame('columns', marks, top, [series], options);
}

/** Overlaid lines, the first one drawn strongest. A line breaks at a null. */
export function lines(series: readonly Series[], options: ChartOptions): Html {
  const top = Math.max(...series.flatMap(({ values }) => values.map((value) => value ?? 0)), 0);
  const marks = series.map(({ values }, order) => {
    const step = WIDTH / Math.max(1, values.length - 1);
    const yOf = (value: number) => {
      const fraction = top === 0 ? 0 : value / top;
      return (HEIGHT - LINE_MARGIN - fraction * (HEIGHT - 2 * LINE_MARGIN)).toFixed(1);
    };
    let path = '';
    let isPenDown = false;
    const dots: Html[] = [];
    values.forEach((value, index) => {
      if (value !== null) {
        const x = (index * step).toFixed(1);
        path += `${isPenDown ? 'L' : 'M'}${x} ${yOf(value)}`;
        // A measurement without neighbours makes no line: draw a short stroke with round ends.
        if ((values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null)
          dots.push(html`<path class="dot" d="M${x} ${yOf(value)}h.01"/>`);
      }
      isPenDown = value !== null;
    });
    return html`<g class="line-${order}"><path d="${path}"/>${dots}</g>`;
  });
  return frame('lines', marks, top, series, options);
}

function frame(
  kind: string,
  marks: readonly Html[],
  top: number,
  series: readonly Series[],
  { label, format, from, to }: ChartOptions,
): Html {
  const latest = series.map(({ name, values }) => {
    const last = values.findLast((value) => value !== null);
    return last === undefined || last === null ? `${name}: nothing measured` : `${name}: ${format(last)} last`;
  });
  const key =
    series.length < 2
      ? NONE
      : html`<span class="key">${series.map(({ name }, order) => html`<span class="key-${order}">${name}</span>`)}</span>`;
  return html`<figure class="chart"><span class="peak">${top === 0 ? '' : format(top)}</span><svg class="${kind}" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${label}. Highest: ${format(top)}. ${latest.join('. ')}.">${marks}</svg><figcaption><span>${from}</span>${key}<span>${to}</span></figcaption></figure>`;
}
