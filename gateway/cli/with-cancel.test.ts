import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { it } from 'node:test';
import { PieClient } from '../client/client.ts';
import { withCancel } from './commands/invoke.ts';
import { Terminal } from './terminal.ts';

it('withCancel reports a cancellation that did not reach the platform', { timeout: 240_000 }, async () => {
  const err = new PassThrough().setEncoding('utf8');
  const terminal = new Terminal({ json: false, err: err as unknown as NodeJS.WriteStream });
  const client = new PieClient({ url: 'http://127.0.0.1:9', apiKey: 'pie_x' });
  let errorOutput = '';
  const code = await withCancel(client, 'inv_1', { signal: AbortSignal.abort(), terminal }, async () => {
    for await (const text of err) {
      errorOutput += text;
      if (errorOutput.includes('could not')) break;
    }
    return 3;
  });
  assert.equal(code, 3);
  assert.match(
    errorOutput,
    /Cancelling inv_1 .*\ninv_1 could not be cancelled: http:\/\/127\.0\.0\.1:9 cannot be reached/,
  );
});
