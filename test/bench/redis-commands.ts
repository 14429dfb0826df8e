import type { Redis } from 'ioredis';

/** Calls of each Redis command since the server began, those from scripts included; a subcommand counts by itself (`client|list`). */
export async function readCommandCounts(redis: Redis): Promise<Map<string, number>> {
  return parseCommandCounts(await redis.info('commandstats'));
}

/** The text of `INFO commandstats`. */
export function parseCommandCounts(text: string): Map<string, number> {
  const lines = text.matchAll(/^cmdstat_([^:]+):calls=(\d+),/gm);
  return new Map([...lines].map(([, name = '', calls]) => [name, Number(calls)]));
}
