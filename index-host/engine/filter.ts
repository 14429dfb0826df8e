import type { Condition, FieldValue, Metadata } from '../protocol/types.ts';

/** True when all conditions hold for the metadata. */
export function matches(filter: readonly Condition[], metadata: Metadata): boolean {
  return filter.every((condition) => holds(condition, metadata));
}

/**
 * True for a condition that only entries with the field can fulfil. `Records.keysWith` finds all such entries in the database's table of fields.
 * The exception is `not-equal`: it also holds for entries without the field, and these have no row in that table.
 */
export const isPositive = ({ comparison }: Condition): boolean => comparison !== 'not-equal';

function holds({ field, comparison, values }: Condition, metadata: Metadata): boolean {
  const value = metadata.find(([name]) => name === field)?.[1];
  const isOneOf = values.some((one) => one === value);
  if (comparison === 'equal') return isOneOf;
  if (comparison === 'not-equal') return !isOneOf;
  const [bound] = values;
  if (value === undefined || bound === undefined || typeof value !== typeof bound) return false;
  const order = compare(value, bound);
  if (comparison === 'less') return order < 0;
  if (comparison === 'at-most') return order <= 0;
  return comparison === 'greater' ? order > 0 : order >= 0;
}

function compare(one: FieldValue, other: FieldValue): number {
  if (typeof one === 'string') return Buffer.compare(Buffer.from(one), Buffer.from(String(other)));
  return Number(one) - Number(other);
}
