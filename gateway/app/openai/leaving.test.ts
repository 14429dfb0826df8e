import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayPlatform } from '../../testing/platform.ts';

const DEADLINE_MS = 20_000;
const KEY = { 'idempotency-key': 'leaving' };

// Only on Node: while a client waits for a whole answer, workerd does not notice that it leaves.
describe('a client that waits for a whole answer of an OpenAI-compatible route', () => {
  let platform: GatewayPlatform;
  const statuses: number[] = [];
  before(async () => {
    const observer = {
      begin: () => ({ traceparent: '', answered: ({ status }: { status: number }) => void statuses.push(status) }),
    };
    platform = await GatewayPlatform.start({ serve: { observer } });
    const { main: _, ...manifest } = JSON.parse(await readFile('functions/openai-chat/pie.json', 'utf8'));
    await platform.register(manifest);
  });
  after(() => platform.stop());

  const seenIds = new Set<string>();
  const ask = (headers: Record<string, string>, signal: AbortSignal | null = null) =>
    fetch(`${platform.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${platform.apiKey}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ model: 'tiny', messages: [{ role: 'user', content: 'Hi' }] }),
      signal,
    });

  /** Sends a request, and leaves once an attempt of its invocation runs. Returns when the gateway has noticed that. */
  async function leave(headers: Record<string, string>) {
    const [leaving, answered] = [new AbortController(), statuses.length];
    const asking = assert.rejects(ask(headers, leaving.signal), { name: 'AbortError' });
    const attempt = await platform.attempt(await platform.submitted('openai-chat', seenIds));
    seenIds.add(attempt.id);
    await attempt.start();
    const { asked: cancelled } = await platform.cancelOf(attempt.id);
    leaving.abort();
    await asking;
    while (statuses.length === answered) await sleep(5);
    assert.deepEqual(statuses.slice(answered), [499]);
    return { attempt, cancelled };
  }

  it('ends its invocation when it leaves, unless it has sent an idempotency key', { timeout: 60_000 }, async () => {
    const keyed = await leave(KEY);
    const unnamed = await leave({});
    const outcome = await Promise.race([unnamed.cancelled, sleep(DEADLINE_MS, 'no cancel', { ref: false })]);
    assert.equal(outcome, undefined);
    const stateOf = async (id: string) => {
      const { status, cancelReason } = (await platform.scheduler.invocations.get(id)) ?? {};
      return [status, cancelReason];
    };
    assert.deepEqual(await stateOf(unnamed.attempt.id), ['running', 'The client left.']);
    await unnamed.attempt.fail('cancelled', 'The client left.');
    // The gateway noticed this client's leave first: it would have asked for this cancel before the other one.
    assert.deepEqual(await stateOf(keyed.attempt.id), ['running', null]);
    const again = ask(KEY);
    await keyed.attempt.succeed({ id: 'chatcmpl-1' });
    const answer = await again;
    assert.deepEqual([answer.status, await answer.json()], [200, { id: 'chatcmpl-1' }]);
    assert.deepEqual(
      ['content-location', 'idempotency-replayed'].map((name) => answer.headers.get(name)),
      [`/v1/invocations/${keyed.attempt.id}`, 'true'],
    );
  });
});
