import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { StepResult } from '#gpu-host/protocol/calls.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { GrammarService } from '../grammar/service.ts';
import { TEST_MODEL, TestGpuHost } from '../testing/gpu-host.ts';
import { TestInferlet } from '../testing/inferlet.ts';
import { value } from '../testing/outcome.ts';

const u32 = (...values: number[]) => Uint32Array.from(values);

async function failure(outcome: Promise<Outcome<unknown>>): Promise<string> {
  const settled = await outcome;
  return settled.tag === 'err' ? settled.val.tag : 'ok';
}

describe('grammars of an inferlet', () => {
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  let tokenizer: Tokenizer | null;
  const grammars = new GrammarService();
  const opened: TestInferlet[] = [];

  before(async () => {
    const { directory } = await pullModel('stories15m');
    host = await TestGpuHost.start({ model: directory, settings: { backend: 'onnx', threads: 1 } });
    connection = await GpuHostConnection.connect(host.address);
    tokenizer = await loadTokenizer(directory);
  });
  after(async () => {
    await Promise.all(opened.map((inferlet) => inferlet.end()));
    await grammars.close();
    connection.close();
    await host.stop();
  });

  const inferlet = () => {
    const made = new TestInferlet(connection, { id: `grammar-${opened.length}`, model: { tokenizer, grammars } });
    opened.push(made);
    return made;
  };
  const compile = (guest: TestInferlet, pattern: string, model = TEST_MODEL) =>
    guest.call<object>('grammar', '[constructor]compiled', model, { tag: 'regex', val: pattern });
  const matcher = (guest: TestInferlet, grammar: object) =>
    guest.call<object>('grammar', '[constructor]matcher', grammar);
  const ask = <T>(guest: TestInferlet, name: string, ...args: unknown[]) =>
    guest.call<Promise<Outcome<T>>>('grammar', name, ...args);
  const request = (tokens: Uint32Array, rows = 1) => ({
    tokens,
    positions: Uint32Array.from(tokens, (_, i) => i),
    ...{ inPages: u32(), outPages: u32(), mask: undefined, rows },
    output: { tag: 'distributions', val: 16 },
  });

  it('restrict the tokens that the device samples', async () => {
    const guest = inferlet();
    const grammar = compile(guest, ' (cat|car|dog)s?');
    value(await ask(guest, '[method]compiled.ready', grammar));
    const place = matcher(guest, grammar);
    const allowed = value(await ask<Uint32Array>(guest, '[method]matcher.mask', place));
    const prompt = u32(1, ...(tokenizer?.encode('I have a') ?? []));
    const step = value(await ask<StepResult>(guest, 'step', guest.queue, place, request(prompt)));
    const [row] = step.distributions;
    assert.ok(row && row.tokens.length > 0);
    const mass = row.logProbabilities.reduce((sum, logarithm) => sum + Math.exp(logarithm), 0);
    for (const [i, token] of row.tokens.entries()) {
      const bit = ((allowed[token >>> 5] ?? 0) >>> (token & 31)) & 1;
      assert.ok(bit === 1 || row.logProbabilities[i] === Number.NEGATIVE_INFINITY, `token ${token} is not allowed`);
    }
    assert.ok(mass > 0);
    // The tokenizer prepends a space. The list is a view of the guest's memory, which changes right after the call.
    const tokens = Uint32Array.from(tokenizer?.encode('cat', { special: false }) ?? []);
    const own = tokens.slice();
    const accepted = ask<boolean>(guest, '[method]matcher.accept', place, tokens);
    tokens.fill(0);
    assert.equal(value(await accepted), true);
    const fork = guest.call<object>('grammar', '[method]matcher.fork', place);
    value(await ask(guest, '[method]matcher.rollback', place, own.length));
    const status = (of: object) => ask<{ mayEnd: boolean; mustEnd: boolean }>(guest, '[method]matcher.status', of);
    assert.deepEqual(value(await status(place)), { mayEnd: false, mustEnd: false });
    assert.deepEqual(value(await status(fork)), { mayEnd: true, mustEnd: false });
  });

  it('are refused in invalid steps, for unknown models and with broken sources', async () => {
    const guest = inferlet();
    const place = matcher(guest, compile(guest, 'a'));
    assert.equal(await failure(ask(guest, 'step', guest.queue, place, request(u32(1, 2), 2))), 'invalid-argument');
    const none = { ...request(u32(1)), output: { tag: 'none' } };
    assert.equal(await failure(ask(guest, 'step', guest.queue, place, none)), 'invalid-argument');
    const unknown = compile(guest, 'a', 'no-model');
    assert.equal(await failure(ask(guest, '[method]compiled.ready', unknown)), 'not-found');
    const ofUnknown = matcher(guest, unknown);
    assert.equal(await failure(ask(guest, '[method]matcher.mask', ofUnknown)), 'not-found');
    const broken = compile(guest, '(');
    assert.equal(await failure(ask(guest, '[method]compiled.ready', broken)), 'invalid-argument');
    assert.equal(
      await failure(ask(guest, 'step', guest.queue, matcher(guest, broken), request(u32(1)))),
      'invalid-argument',
    );
  });

  it('count towards the bound even when refused, and a refused one keeps no source', async () => {
    const guest = inferlet();
    const all = Array.from({ length: 64 }, (_, i) => compile(guest, 'a', `no-model-${i}`));
    for (const refused of all) assert.ok(!JSON.stringify(refused).includes('no-model-'));
    assert.equal(await failure(ask(guest, '[method]compiled.ready', compile(guest, 'a'))), 'limit-exceeded');
    const [first] = all;
    guest.call('grammar', '[resource-drop]compiled', first);
    const long = compile(guest, 'a'.repeat(300_000));
    assert.equal(await failure(ask(guest, '[method]compiled.ready', long)), 'limit-exceeded');
    assert.ok(JSON.stringify(long).length < 1000);
  });

  it('refuse more pending calls than allowed, and lists that are too long', async () => {
    const guest = inferlet();
    const place = matcher(guest, compile(guest, '[^]*'));
    const list = new Uint32Array(200_000);
    assert.equal(await failure(ask(guest, '[method]matcher.accept', place, list)), 'limit-exceeded');
    const large = { ...request(new Uint32Array(5_000_000)) };
    assert.equal(await failure(ask(guest, 'step', guest.queue, place, large)), 'limit-exceeded');
    const calls = Array.from({ length: 1100 }, () => failure(ask(guest, '[method]matcher.status', place)));
    assert.deepEqual(new Set((await Promise.all(calls)).slice(1030)), new Set(['limit-exceeded']));
    assert.equal(await failure(ask(guest, '[method]matcher.status', place)), 'ok');
  });

  it('are bounded in number and released at the end of the inferlet', async () => {
    const guest = inferlet();
    const all = Array.from({ length: 64 }, (_, i) => compile(guest, `a{${i}}`));
    const extra = compile(guest, 'b');
    assert.equal(await failure(ask(guest, '[method]compiled.ready', extra)), 'limit-exceeded');
    guest.call('grammar', '[resource-drop]compiled', extra);
    guest.call('grammar', '[resource-drop]compiled', all[0]);
    value(await ask(guest, '[method]compiled.ready', compile(guest, 'c')));
    const grammar = all[1] ?? {};
    const matchers = Array.from({ length: 512 }, () => matcher(guest, grammar));
    const one = matchers[0] ?? {};
    const fork = guest.call<object>('grammar', '[method]matcher.fork', one);
    assert.equal(await failure(ask(guest, '[method]matcher.mask', fork)), 'limit-exceeded');
    await guest.end();
    assert.deepEqual([guest.inferlet.grammars.size, guest.inferlet.matchers.size], [0, 0]);
    assert.equal(await failure(ask(guest, '[method]matcher.mask', one)), 'closed');
  });
});
