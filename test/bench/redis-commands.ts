import type { Redis } from 'ioredis';

/** Calls of each Redis command since the server began, including calls from scripts. A subcommand has its own count (`client|list`). */
export async function readCommandCounts(redis: Redis): Promise<Map<string, number>> {
  return parseCommandCounts(await redis.info('commandstats'));
}

/** Parses the text of `INFO commandstats`. */
export function parseCommandCounts(text: string): Map<string, number> {
  const lines = text.matchAll(/^cmdstat_([^:]+):calls=(\d+),/gm);
  return new Map([...lines].map(([, name = '', calls]) => [name, Number(calls)]));
}
