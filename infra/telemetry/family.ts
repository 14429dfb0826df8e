import { z } from 'zod';

/** Label names and values of one series. */
export type Labels = Readonly<Record<string, string>>;

/** One series of a counter or a gauge. */
export interface NumberPoint {
  readonly labels: Labels;
  readonly value: number;
}

/** One series of a histogram: `counts[i]` values in (`bounds[i - 1]`, `bounds[i]`]; the last count holds all larger values. */
export interface HistogramPoint {
  readonly labels: Labels;
  readonly count: number;
  readonly sum: number;
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
}

interface Described {
  /** Follows OpenTelemetry's rules: dots between words, no unit. */
  readonly name: string;
  readonly description: string;
  /** UCUM: `s`, `By`, `1`, or `{thing}` for a count of things. */
  readonly unit: string;
}

/** A metric with all its series, in one process at one time. Processes publish families to the gateway as JSON. */
export type MetricFamily =
  | (Described & { readonly kind: 'counter' | 'gauge'; readonly points: readonly NumberPoint[] })
  | (Described & { readonly kind: 'histogram'; readonly points: readonly HistogramPoint[] });

const labels = z.record(z.string().max(100), z.string().max(1000));
const described = { name: z.string().regex(/^[a-z][a-z0-9_.]{0,99}$/), description: z.string(), unit: z.string() };
const snapshotSchema = z.array(
  z.discriminatedUnion('kind', [
    z.object({
      ...described,
      kind: z.enum(['counter', 'gauge']),
      points: z.array(z.object({ labels, value: z.number() })),
    }),
    z.object({
      ...described,
      kind: z.literal('histogram'),
      points: z.array(
        z.object({
          labels,
          count: z.number(),
          sum: z.number(),
          bounds: z.array(z.number()),
          counts: z.array(z.number()),
        }),
      ),
    }),
  ]),
);

/** Families from their JSON text; null when the text does not fit, such as text from another version of the platform. */
export function parseFamilies(text: string): MetricFamily[] | null {
  try {
    return snapshotSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
