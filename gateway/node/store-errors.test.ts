import assert from 'node:assert/strict';
import { it } from 'node:test';
import { StoreError } from '#scheduler/store/errors.ts';
import type { GatewayError } from '../app/errors/gateway-error.ts';
import { translating } from './store-errors.ts';

it('a store without memory, a store without disk and a store that does not answer give different messages', async () => {
  const failWith = (text: string) => translating(() => Promise.reject(StoreError.from(new Error(text))));
  const full = "OOM command not allowed when used memory > 'maxmemory'.";
  await assert.rejects(failWith(full), { code: 'store-unavailable', message: /full/, hint: /max_memory_mb/ });
  for (const [text, reason] of [
    ['MISCONF Errors writing to the AOF file: No space left on device', /\(No space left on device\)/],
    ['MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist on disk.', /snapshot/],
  ] as const) {
    const hint = /Free space on the disk.*`redis` in the home/;
    await assert.rejects(failWith(text), { code: 'store-unavailable', message: reason, hint });
    await assert.rejects(failWith(text), ({ message, hint }: GatewayError) => !/restart|again/.test(message + hint));
  }
  await assert.rejects(failWith('LOADING Redis is loading'), { code: 'store-unavailable', message: /does not answer/ });
});
