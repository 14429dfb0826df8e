import type { CodeEntry } from './code-entry.ts';

/** Refusals of requests, and ends of invocations, by the quotas of a tenant or function. */
export const QUOTA_CODES = {
  'quota-requests': {
    status: 429,
    title: 'The quota of requests is used up',
    hint: 'Wait as long as `Retry-After` says; `pie quota` shows what is left.',
    explanation: 'The tenant, or this function of it, may not start more invocations in this minute, day or month.',
  },
  'quota-concurrency': {
    status: 429,
    title: 'Too many invocations at once',
    hint: 'Wait for some of them to end; `pie ps` shows them.',
    explanation:
      'The number of running and waiting invocations of the tenant, or of this function, has reached its limit.',
  },
  'quota-tokens': {
    status: 429,
    title: 'The quota of tokens is used up',
    hint: 'Wait until the window ends, as `Retry-After` says; `pie quota` shows what is left.',
    explanation:
      'The tokens that the tenant, or this function of it, may embed and sample in this minute, day or month are used up. A running invocation is ended with this code.',
  },
  'quota-gpu-time': {
    status: 429,
    title: 'The quota of GPU time is used up',
    hint: 'Wait until the window ends, as `Retry-After` says; `pie quota` shows what is left.',
    explanation:
      'The device time of the tenant, or of this function, is used up for this minute, day or month. A running invocation is ended with this code.',
  },
  'quota-cpu-time': {
    status: 429,
    title: 'The quota of CPU time is used up',
    hint: 'Wait until the window ends, as `Retry-After` says; `pie quota` shows what is left.',
    explanation:
      'The CPU time of the tenant, or of this function, is used up for this minute, day or month. A running invocation is ended with this code.',
  },
  'quota-pages': {
    status: 429,
    title: 'The quota of KV pages is used up',
    hint: 'Hold fewer pages at once, or run fewer invocations at a time.',
    explanation: 'The invocations of the tenant would hold more KV pages at once than it may.',
  },
  'quota-schedules': {
    status: 429,
    title: 'The quota of schedules is used up',
    hint: 'Remove schedules that are not needed: `pie schedule list` shows them.',
    explanation: 'The number of schedules of the tenant has reached its limit (`schedules`; 100 by default).',
  },
  'quota-storage': {
    status: 429,
    title: 'The quota of storage is used up',
    hint: 'Delete stored values or versions, or let invocations end; `pie quota` shows what is used.',
    explanation:
      'The stored data of the tenant would exceed its quota: stored values, files and components (`storage-bytes`), the same together with waiting inputs, events, logs and messages (`redis-bytes`), or compiled versions (`disk-bytes`). Nothing was stored. A running invocation whose events or result cannot be stored ends with this code.',
  },
} as const satisfies Record<string, CodeEntry>;
