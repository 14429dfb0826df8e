import type { Usage } from '../invocations/types.ts';

/**
 * What is counted of an invocation's usage, in the order of the counters in Redis, and how many of Redis's units one has: tokens are whole,
 * times are kept in µs and pages in ms that one was held.
 */
export const METERED_FIELDS = [
  { name: 'inputTokens', units: 1 },
  { name: 'outputTokens', units: 1 },
  { name: 'cachedTokens', units: 1 },
  { name: 'gpuMs', units: 1000 },
  { name: 'cpuMs', units: 1000 },
  { name: 'wallMs', units: 1000 },
  { name: 'queuedMs', units: 1000 },
  { name: 'pageSeconds', units: 1000 },
] as const;

export type MeteredName = (typeof METERED_FIELDS)[number]['name'];

/** An attempt's usage so far as the scripts take it: whole numbers with spaces between; empty for none. */
export function meteredText(usage: Usage | null | undefined): string {
  if (usage == null) return '';
  return METERED_FIELDS.map(({ name, units }) => whole((usage[name] ?? 0) * units)).join(' ');
}

/** Whole and not negative, whatever was reported. */
function whole(units: number): number {
  return Number.isFinite(units) && units > 0 ? Math.min(Math.round(units), Number.MAX_SAFE_INTEGER) : 0;
}

/** The numbers of Redis by name. */
export function meteredOf(units: readonly number[]): Record<MeteredName, number> {
  return Object.fromEntries(METERED_FIELDS.map(({ name, units: one }, i) => [name, (units[i] ?? 0) / one])) as Record<
    MeteredName,
    number
  >;
}

/**
 * The usage of an invocation over all its attempts: what the last one said at its end, with the sums of what is counted.
 *
 * @param before sum over the attempts before, as the record has it; likewise `now` of the last one that spoke.
 */
export function totalUsage(final: Usage | null, before: string | undefined, now: string | undefined): Usage | null {
  if (now === undefined || (final !== null && before === undefined)) return final;
  const earlier = numbers(before);
  const last = numbers(now);
  const sum = meteredOf(last.map((n, i) => n + (earlier[i] ?? 0)));
  const spent = Object.entries(sum).filter(([name, n]) => n > 0 || final?.[name] !== undefined);
  return { ...final, ...Object.fromEntries(spent) };
}

/** What several attempts used: `last` as it is, with the sums of what is counted. */
export function sumOfUsage(before: Usage, last: Usage): Usage {
  return totalUsage(last, meteredText(before), meteredText(last)) ?? last;
}

function numbers(text: string | undefined): number[] {
  return text === undefined ? [] : text.split(' ').map(Number);
}
