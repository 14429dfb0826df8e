import assert from 'node:assert/strict';
import { it } from 'node:test';
import { parseCommandCounts } from './redis-commands.ts';

it('parseCommandCounts reads the calls of each Redis command', () => {
  const text =
    '# Commandstats\r\ncmdstat_get:calls=12,usec=30,usec_per_call=2.50,rejected_calls=1,failed_calls=0\r\n' +
    'cmdstat_client|list:calls=3,usec=9,usec_per_call=3.00,rejected_calls=0,failed_calls=0\r\n';
  assert.deepEqual(
    [...parseCommandCounts(text)],
    [
      ['get', 12],
      ['client|list', 3],
    ],
  );
});
