import { readFileSync } from 'node:fs';
import type { Redis } from 'ioredis';
import { createKeys, type Keys } from '../keys.ts';

/** An entry of the table in `keys.ts`, as its comment describes it. */
interface Entry {
  readonly kind: keyof Keys;
  /** `*` in place of the arguments. */
  readonly name: string;
  readonly pattern: RegExp;
  /** As in the answer of `TYPE`, or `channel` or `prefix`. */
  readonly type: string;
  readonly hasTtl: 'always' | 'sometimes' | 'never';
}

/** Kinds whose last argument may contain any characters. */
const FREE_TEXT: ReadonlySet<string> = new Set<keyof Keys>([
  'idempotency',
  'concurrency',
  'topic',
  'messageQueue',
  'messageQueueState',
  'messageQueueChannel',
  'nameOwners',
  'modelHosts',
  'memoryReporters',
  'machineCertificate',
]);

/** Type, lifetime and name of each entry in the source of `keys.ts`. */
const COMMENT =
  /\/\*\*\s+(?:\* )?(String|Hash|List|Set|Sorted set|Stream|Channel|Prefix)(,? with a TTL)?\b(?:[^*]|\*(?!\/))*\*\/\s+(\w+):/g;

/** The table in `keys.ts`, for keys without the platform's prefix. */
export function schema(): readonly Entry[] {
  const source = readFileSync(new URL('../keys.ts', import.meta.url), 'utf8');
  const comments = new Map([...source.matchAll(COMMENT)].map(([, type, ttl, name]) => [name, { type, ttl }] as const));
  return Object.entries(createKeys('')).flatMap(([kind, key]) => {
    if (kind === 'prefix') return [];
    const comment = comments.get(kind);
    if (comment?.type === undefined) throw new Error(`keys.ts does not say of which type ${kind} is.`);
    const type = comment.type === 'Sorted set' ? 'zset' : comment.type.toLowerCase();
    const hasTtl = lifetimeOf(comment.ttl);
    return namesOf(key).map((name) => {
      const pattern = patternOf(name, FREE_TEXT.has(kind));
      return { kind: kind as keyof Keys, name, pattern, type, hasTtl };
    });
  });
}

/** @param ttl the words about a TTL in an entry's comment */
function lifetimeOf(ttl: string | undefined): Entry['hasTtl'] {
  if (ttl === undefined) return 'never';
  // Comments begin with "Hash with a TTL", or with "Hash, with a TTL after …" when the key has no TTL at first.
  return ttl.startsWith(',') ? 'sometimes' : 'always';
}

/** The names of an entry, without the colon that follows the platform's prefix. */
function namesOf(key: string | ((...names: string[]) => string)): string[] {
  if (typeof key === 'string') return [key.slice(1)];
  const withAll = key(...Array<string>(key.length).fill('*')).slice(1);
  const withNone = key().slice(1);
  // The argument of the audit logs is optional. Any other key without its arguments has a part `undefined` after a colon.
  const isOptional = !withNone.includes(':') && withAll.startsWith(`${withNone}:`);
  return isOptional ? [withNone, withAll] : [withAll];
}

function patternOf(name: string, isFreeText: boolean): RegExp {
  const parts = name.split('*').map((part) => RegExp.escape(part));
  const last = parts.length > 1 ? `${isFreeText ? '[^]+' : '[^:]+'}${parts.pop()}` : '';
  return new RegExp(`^${parts.join('[^:]+')}${last}$`);
}

/** The keys of a platform that contradict the table by their name, type or lifetime. Checks at most 1,000 keys. */
export async function schemaFaults(redis: Redis, prefix: string): Promise<readonly string[]> {
  const faults = (await redis.keys(`${prefix}:*`)).slice(0, 1000).map(async (key) => {
    const name = key.slice(prefix.length + 1);
    const [type, ttlMs] = await Promise.all([redis.type(key), redis.pttl(key)]);
    const hasExpired = type === 'none' || ttlMs === -2;
    return hasExpired || name.startsWith('bull:') ? [] : faultsOf(name, type, ttlMs >= 0);
  });
  return (await Promise.all(faults)).flat();
}

let known: readonly Entry[] | undefined;

/** How a key, without its prefix, contradicts the table. */
export function faultsOf(name: string, type: string, hasTtl: boolean): readonly string[] {
  known ??= schema().filter((entry) => entry.type !== 'channel' && entry.type !== 'prefix');
  const entry = known.find(({ pattern }) => pattern.test(name));
  if (entry === undefined) return [`${name} is not in keys.ts`];
  if (entry.type !== type) return [`${name} is a ${type}; keys.ts says ${entry.type} (${entry.kind})`];
  const contradicts = entry.hasTtl === (hasTtl ? 'never' : 'always');
  return contradicts ? [`${name} has ${hasTtl ? 'a' : 'no'} TTL; keys.ts says ${entry.hasTtl} (${entry.kind})`] : [];
}
