import { GatewayError } from '../errors/gateway-error.ts';

/** Lists and objects within each other: far more than requests have, far less than what reads them recursively can take. */
const MAX_DEPTH = 100;
/** Steps of the place that is told; the rest would be a line of brackets. */
const TOLD_STEPS = 3;

/** Throws `invalid-input`, with the beginning of the place as a JSON pointer, when JSON is nested too deep. It needs no stack itself. */
export function assertDepth(value: unknown): void {
  const waiting = [{ outer: value, depth: 1, place: '' }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { outer, depth, place } = next;
    if (typeof outer !== 'object' || outer === null) continue;
    if (depth > MAX_DEPTH) {
      const message = `Lists and objects are nested more than ${MAX_DEPTH} deep.`;
      throw new GatewayError('invalid-input', message, { field: place });
    }
    for (const [name, inner] of Object.entries(outer)) {
      const step = depth > TOLD_STEPS ? '' : `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
      if (typeof inner === 'object') waiting.push({ outer: inner, depth: depth + 1, place: place + step });
    }
  }
}
