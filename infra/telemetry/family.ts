import { z } from 'zod';

const labels = z.record(z.string().max(100), z.string().max(1000));
const numberPoint = z.object({ labels, value: z.number() });
const histogramPoint = z.object({
  labels,
  count: z.number(),
  sum: z.number(),
  bounds: z.array(z.number()).readonly(),
  counts: z.array(z.number()).readonly(),
});
const described = {
  /** Follows OpenTelemetry's rules: dots between words, no unit. */
  name: z.string().regex(/^[a-z][a-z0-9_.]{0,99}$/),
  description: z.string(),
  /** UCUM: `s`, `By`, `1`, or `{thing}` for a count of things. */
  unit: z.string(),
};
const familySchema = z.discriminatedUnion('kind', [
  z.object({ ...described, kind: z.enum(['counter', 'gauge']), points: z.array(numberPoint).readonly() }),
  z.object({ ...described, kind: z.literal('histogram'), points: z.array(histogramPoint).readonly() }),
]);
const snapshotSchema = z.array(familySchema);

/** Label names and values of one series. */
export type Labels = Readonly<z.infer<typeof labels>>;
/** One series of a counter or a gauge. */
export type NumberPoint = Readonly<z.infer<typeof numberPoint>>;
/** One series of a histogram: `counts[i]` values in (`bounds[i - 1]`, `bounds[i]`]; the last count holds all larger values. */
export type HistogramPoint = Readonly<z.infer<typeof histogramPoint>>;
/** A metric with all its series, in one process at one time. Processes publish families to the gateway as JSON. */
export type MetricFamily = Readonly<z.infer<typeof familySchema>>;

/** Families from their JSON text; null when the text does not fit, such as text from another version of the platform. */
export function parseFamilies(text: string): MetricFamily[] | null {
  try {
    return snapshotSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}
