import assert from 'node:assert/strict';
import { it } from 'node:test';
import { StoreError } from '#scheduler/store/errors.ts';
import { translating } from './store-errors.ts';

it('a full store and a store that does not answer give different messages', async () => {
  const failWith = (text: string) => translating(() => Promise.reject(StoreError.from(new Error(text))));
  const full = "OOM command not allowed when used memory > 'maxmemory'.";
  await assert.rejects(failWith(full), { code: 'store-unavailable', message: /full/, hint: /max_memory_mb/ });
  await assert.rejects(failWith('LOADING Redis is loading'), { code: 'store-unavailable', message: /does not answer/ });
});
