import type { z } from '@hono/zod-openapi';
import { clipped } from '#scheduler/functions/schema/compiled.ts';

type Issue = z.core.$ZodIssue;

/** Maximum characters of an unknown field's name that a message shows. */
const MAX_KEY = 100;
/** Prefixes of the messages that zod makes itself. */
const ZOD_MESSAGE = /^(Invalid|Too small|Too big|Unrecognized)/;

const TYPES: Readonly<Record<string, string>> = {
  int: 'a whole number',
  number: 'a number',
  string: 'text',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
};

/** Says what is wrong with a value, in words that follow the name of the value: "must be at least 1". A schema's own message stays as it is. */
export function wordedIssue(issue: Issue | undefined): string {
  if (issue === undefined) return 'breaks its schema';
  if (issue.message !== '' && !ZOD_MESSAGE.test(issue.message)) return issue.message;
  switch (issue.code) {
    case 'invalid_type':
      // Only the message tells that the value is undefined.
      if (issue.message.endsWith('received undefined')) return 'is missing';
      return `must be ${TYPES[issue.expected] ?? issue.expected}`;
    case 'too_small':
      return boundWords(issue.origin, 'least', issue.minimum);
    case 'too_big':
      return boundWords(issue.origin, 'most', issue.maximum);
    case 'invalid_value':
      return `must be one of ${issue.values.map(String).join(', ')}`;
    case 'unrecognized_keys':
      return `has the unknown field ${JSON.stringify(clipped(issue.keys[0] ?? '', MAX_KEY))}`;
    default:
      return 'does not have the form that is documented';
  }
}

function boundWords(origin: string, which: 'least' | 'most', bound: number | bigint): string {
  const isOne = Number(bound) === 1;
  if (origin === 'string' && which === 'least' && isOne) return 'must not be empty';
  if (origin === 'string') return `must have at ${which} ${bound} characters`;
  if (origin === 'array') return `must have at ${which} ${bound} ${isOne ? 'entry' : 'entries'}`;
  return `must be at ${which} ${bound}`;
}
