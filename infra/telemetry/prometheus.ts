import type { HistogramPoint, Labels, MetricFamily, NumberPoint } from './family.ts';

/** The metrics of one process. */
export interface ProcessFamilies {
  /** Such as `runtime-1`; becomes the label `process`. */
  readonly process: string;
  readonly families: readonly MetricFamily[];
}

/** Name suffixes by unit; units in braces name the counted thing and get no suffix. */
const UNIT_SUFFIXES: Readonly<Record<string, string>> = { s: 'seconds', ms: 'milliseconds', By: 'bytes', '1': 'ratio' };

/**
 * The families of all processes as one page in Prometheus' text format: each name once, with its help and type, and the series of every
 * process under it. When two families share a name and differ in kind, the page shows the first. Names follow OpenTelemetry's rules for
 * Prometheus: underscores for dots, the unit, and `_total` behind counters.
 */
export function prometheusText(processes: readonly ProcessFamilies[]): string {
  const merged = new Map<string, { readonly family: MetricFamily; readonly lines: string[] }>();
  for (const { process, families } of processes) {
    for (const family of families) {
      const name = prometheusName(family);
      const known = merged.get(name) ?? { family, lines: [] };
      merged.set(name, known);
      if (known.family.kind === family.kind) known.lines.push(...seriesLines(name, family, { process }));
    }
  }
  const measured = [...merged].filter(([, { lines }]) => lines.length > 0);
  const blocks = measured.map(
    ([name, { family, lines }]) =>
      `# HELP ${name} ${family.description.replace(/\\/g, '\\\\').replace(/\n/g, '\\n')}\n# TYPE ${name} ${family.kind}\n${lines.join('\n')}\n`,
  );
  return blocks.join('');
}

/** A metric's name in Prometheus. */
export function prometheusName({ name, unit, kind }: Pick<MetricFamily, 'name' | 'unit' | 'kind'>): string {
  const plain = name.replace(/[^A-Za-z0-9_]/g, '_');
  const suffix = UNIT_SUFFIXES[unit];
  const withUnit = suffix === undefined || plain.endsWith(`_${suffix}`) ? plain : `${plain}_${suffix}`;
  return kind === 'counter' && !withUnit.endsWith('_total') ? `${withUnit}_total` : withUnit;
}

function seriesLines(name: string, family: MetricFamily, extra: Labels): string[] {
  return family.kind === 'histogram'
    ? family.points.flatMap((point) => histogramLines(name, point, extra))
    : family.points.map((point) => numberLine(name, point, extra));
}

function numberLine(name: string, { labels, value }: NumberPoint, extra: Labels): string {
  return `${name}${labelText({ ...labels, ...extra })} ${numberText(value)}`;
}

function histogramLines(name: string, point: HistogramPoint, extra: Labels): string[] {
  const labels = { ...point.labels, ...extra };
  let cumulativeCount = 0;
  const buckets = point.counts.map((count, i) => {
    cumulativeCount += count;
    return `${name}_bucket${labelText({ ...labels, le: numberText(point.bounds[i] ?? Number.POSITIVE_INFINITY) })} ${cumulativeCount}`;
  });
  return [
    ...buckets,
    `${name}_sum${labelText(labels)} ${numberText(point.sum)}`,
    `${name}_count${labelText(labels)} ${point.count}`,
  ];
}

function labelText(labels: Labels): string {
  const parts = Object.entries(labels).map(
    ([name, value]) =>
      `${name.replace(/[^A-Za-z0-9_]/g, '_')}="${value.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n')}"`,
  );
  return parts.length === 0 ? '' : `{${parts.join(',')}}`;
}

function numberText(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf';
  if (value === Number.NEGATIVE_INFINITY) return '-Inf';
  return String(value);
}
