import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import type { StepResult } from '#gpu-host/protocol/calls.ts';
import { GpuHostConnection } from '#gpu-host/protocol/client.ts';
import { handlerError, type Outcome } from '#gpu-host/protocol/errors.ts';
import { MAX_ADDRESSES, MAX_LIST } from '#gpu-host/protocol/wire.ts';
import { eventually } from '#scheduler/testing/fixture.ts';
import type { RunChunk } from '#wit/generated/host.ts';
import { GrammarService } from '../../grammar/service.ts';
import { TEST_MODEL, TestGpuHost } from '../../testing/gpu-host.ts';
import { TestInferlet } from '../../testing/inferlet.ts';
import { value } from '../../testing/outcome.ts';
import { TextService } from '../../texts/service.ts';

const u32 = (...values: number[]) => Uint32Array.from(values);

async function failure(outcome: Promise<Outcome<unknown>>): Promise<string> {
  const settled = await outcome;
  return settled.tag === 'err' ? settled.val.tag : 'ok';
}

describe('grammars of an inferlet', () => {
  let host: TestGpuHost;
  let connection: GpuHostConnection;
  let tokenizer: Tokenizer | null;
  const grammars = new GrammarService({ compileMs: 20_000, operationMs: 20_000 });
  const texts = new TextService({ maxWorkers: 1 });
  const opened: TestInferlet[] = [];

  before(async () => {
    const { directory } = await pullModel('stories15m');
    host = await TestGpuHost.start({ model: directory, settings: { backend: 'onnx', threads: 1 } });
    connection = await GpuHostConnection.connect(host.address);
    tokenizer = await loadTokenizer(directory);
  });
  after(async () => {
    await Promise.all(opened.map((inferlet) => inferlet.end()));
    await Promise.all([grammars.close(), texts.close()]);
    connection.close();
    await host.stop();
  });

  const inferlet = (limits: { tokens?: number } = {}) => {
    const made = new TestInferlet(connection, {
      ...limits,
      id: `grammar-${opened.length}`,
      model: { tokenizer, grammars },
      services: { texts },
    });
    opened.push(made);
    return made;
  };
  const compile = (guest: TestInferlet, pattern: string, model = TEST_MODEL) =>
    guest.call<object>('grammar', '[constructor]compiled', model, { tag: 'regex', val: pattern });
  const newMatcher = (guest: TestInferlet, grammar: object) =>
    guest.call<object>('grammar', '[constructor]matcher', grammar);
  const ask = <T>(guest: TestInferlet, name: string, ...args: unknown[]) =>
    guest.call<Promise<Outcome<T>>>('grammar', name, ...args);
  const request = (tokens: Uint32Array, rows = 1) => ({
    tokens,
    positions: Uint32Array.from(tokens, (_, i) => i),
    inPages: u32(),
    outPages: u32(),
    mask: undefined,
    rows,
    output: { tag: 'distributions', val: 16 },
  });

  it('restrict the tokens that the device samples', async () => {
    const guest = inferlet();
    const grammar = compile(guest, ' (cat|car|dog)s?');
    value(await ask(guest, '[method]compiled.ready', grammar));
    const matcher = newMatcher(guest, grammar);
    const allowed = value(await ask<Uint32Array>(guest, '[method]matcher.mask', matcher));
    const prompt = u32(1, ...(tokenizer?.encode('I have a') ?? []));
    const step = value(await ask<StepResult>(guest, 'step', guest.queue, matcher, request(prompt)));
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
    const copiedTokens = tokens.slice();
    const accepted = ask<boolean>(guest, '[method]matcher.accept', matcher, tokens);
    tokens.fill(0);
    assert.equal(value(await accepted), true);
    const fork = guest.call<object>('grammar', '[method]matcher.fork', matcher);
    value(await ask(guest, '[method]matcher.rollback', matcher, copiedTokens.length));
    const status = (ofMatcher: object) =>
      ask<{ mayEnd: boolean; mustEnd: boolean }>(guest, '[method]matcher.status', ofMatcher);
    assert.deepEqual(value(await status(matcher)), { mayEnd: false, mustEnd: false });
    assert.deepEqual(value(await status(fork)), { mayEnd: true, mustEnd: false });
  });

  /** Decodes under a pattern after `Once upon a time`. */
  class Decoding {
    readonly guest = inferlet();
    readonly matcher: object;
    readonly pages: Uint32Array;
    readonly #temperature: number;
    #length = 0;

    constructor(pattern: string, temperature: number) {
      this.matcher = newMatcher(this.guest, compile(this.guest, pattern));
      this.pages = value(this.guest.call<Outcome<Uint32Array>>('allocate', 'allocate-pages', this.guest.queue, 12));
      this.#temperature = temperature;
    }

    get sampler() {
      return { temperature: this.#temperature, topK: 0, topP: 1, minP: 0, seed: 5 };
    }

    /** Computes `tokens` at the positions that follow the tokens computed so far. */
    async compute(tokens: readonly number[], output: object = { tag: 'none' }, masked = false): Promise<StepResult> {
      const from = this.#length;
      this.#length += tokens.length;
      const step = {
        tokens: u32(...tokens),
        positions: Uint32Array.from(tokens, (_, i) => from + i),
        mask: undefined,
        inPages: this.pages,
        outPages: this.pages,
        rows: masked || tokens.length === 1 ? 1 : 0,
        output,
      };
      const { guest } = this;
      if (masked) return value(await ask<StepResult>(guest, 'step', guest.queue, this.matcher, step));
      return value(await guest.call<Promise<Outcome<StepResult>>>('fused', 'step', guest.queue, step));
    }

    /** Decodes with one call of `start-run`. */
    async run(maxTokens: number, stopTokens: readonly number[]): Promise<{ tokens: number[]; finished: string }> {
      const tokens = [...u32(1, ...(tokenizer?.encode('Once upon a time') ?? []))];
      await this.compute(tokens.slice(0, -1));
      const request = { token: tokens.at(-1), position: tokens.length - 1, pages: this.pages, maxTokens };
      const whole = { ...request, sampler: this.sampler, stopTokens: u32(...stopTokens) };
      const run = this.guest.call<object>('grammar', 'start-run', this.guest.queue, this.matcher, whole);
      const got: number[] = [];
      for (;;) {
        const chunk = value(await this.guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', run));
        assert.ok(chunk.tokens.length > 0 || chunk.finished);
        got.push(...chunk.tokens);
        if (!chunk.finished) continue;
        this.#length = tokens.length + got.length - 1;
        return { tokens: got, finished: chunk.finished };
      }
    }

    /** Decodes the same tokens with separate calls of `step`, `accept` and `jump`. */
    async steps(maxTokens: number, stopTokens: readonly number[]): Promise<{ tokens: number[]; finished: string }> {
      let inputs = [...u32(1, ...(tokenizer?.encode('Once upon a time') ?? []))];
      const got: number[] = [];
      const end = async (finished: string) => {
        if (inputs.length > 1) await this.compute(inputs.slice(0, -1));
        return { tokens: got, finished };
      };
      for (;;) {
        const sampled = await this.compute(inputs, { tag: 'sample', val: this.sampler }, true);
        const [token = 0] = sampled.tokens;
        value(await ask(this.guest, '[method]matcher.accept', this.matcher, u32(token)));
        got.push(token);
        inputs = [token];
        if (stopTokens.includes(token)) return end('stop-token');
        const room = maxTokens - got.length;
        const jumped = value(await ask<Uint32Array>(this.guest, '[method]matcher.jump', this.matcher, room));
        const stop = jumped.findIndex((forced) => stopTokens.includes(forced));
        const forced = stop < 0 ? jumped : jumped.slice(0, stop + 1);
        got.push(...forced);
        inputs.push(...forced);
        value(await ask(this.guest, '[method]matcher.rollback', this.matcher, jumped.length - forced.length));
        if (stop >= 0) return end('stop-token');
        const status = await ask<{ mustEnd: boolean }>(this.guest, '[method]matcher.status', this.matcher);
        if (value(status).mustEnd) return end('stopped');
        if (got.length === maxTokens) return end('max-tokens');
      }
    }

    /** True if the matcher has accepted exactly `tokens` tokens. */
    async hasAccepted(tokens: number): Promise<boolean> {
      const fork = this.guest.call<object>('grammar', '[method]matcher.fork', this.matcher);
      value(await ask(this.guest, '[method]matcher.rollback', fork, tokens));
      return (await failure(ask(this.guest, '[method]matcher.rollback', fork, 1))) === 'invalid-argument';
    }

    /** The log-probabilities after the token `last`, which depend on all tokens computed before. */
    async logProbabilitiesAfter(last: number): Promise<unknown> {
      const { distributions } = await this.compute([last], { tag: 'distributions', val: 8 });
      return [...(distributions[0]?.logProbabilities ?? [])].map((each) => each.toFixed(3));
    }
  }

  for (const temperature of [0, 1]) {
    it(`decode the same tokens in a run as in separate steps, at temperature ${temperature}`, async () => {
      const story =
        ', there was a (little|big|lazy) (cat|dog) named (Tim|Lily), who [a-z ]{8,30}\\. The end of the whole story\\.';
      // Two stop tokens: the period after `[a-z ]{8,30}` is sampled, and `end` is forced.
      const [sampled = 0, forced = 0] = ['ball.', 'The end'].map((text) => tokenizer?.encode(text).at(-1));
      const cases: [pattern: string, maxTokens: number, stopTokens: readonly number[]][] = [
        [story, 60, []],
        [story, 17, []],
        [`${story}( again)*`, 60, [sampled]],
        [story, 60, [forced]],
        ['[^]*', 60, []],
      ];
      for (const [pattern, maxTokens, stopTokens] of cases) {
        const [run, steps] = [new Decoding(pattern, temperature), new Decoding(pattern, temperature)];
        const [got, expected] = [await run.run(maxTokens, stopTokens), await steps.steps(maxTokens, stopTokens)];
        assert.deepEqual(got, expected);
        const stop = got.tokens.findIndex((token) => stopTokens.includes(token));
        if (stopTokens.length > 0) assert.deepEqual([stop, got.finished], [got.tokens.length - 1, 'stop-token']);
        assert.equal(await run.hasAccepted(got.tokens.length), true);
        const last = got.tokens.at(-1) ?? 0;
        assert.deepEqual(await run.logProbabilitiesAfter(last), await steps.logProbabilitiesAfter(last));
        assert.equal(run.guest.inferlet.outgoing.calls, 0);
        const counts = ({ guest }: Decoding) => [guest.inferlet.inputTokens, guest.inferlet.outputTokens];
        assert.deepEqual(counts(run), counts(steps));
        await Promise.all([run.guest.end(), steps.guest.end()]);
      }
    });
  }

  it('end a run that is stopped, dropped or refused, or whose matcher fails', async () => {
    const decoding = new Decoding('[^]*', 0);
    const { guest, pages } = decoding;
    const start = (matcher: object, options: object = {}) =>
      guest.call<object>('grammar', 'start-run', guest.queue, matcher, {
        token: 1,
        position: 0,
        pages,
        maxTokens: 20,
        sampler: decoding.sampler,
        stopTokens: u32(),
        ...options,
      });
    const next = (run: object) => guest.call<Promise<Outcome<RunChunk>>>('fused', '[method]run.next', run);
    const stopped = start(decoding.matcher);
    const pending = next(stopped);
    assert.equal(await failure(next(stopped)), 'invalid-argument');
    await guest.inferlet.grammarAccount.turn();
    guest.call('fused', '[method]run.stop', stopped);
    const chunk = value(await pending);
    assert.deepEqual([chunk.tokens.length, chunk.finished ?? value(await next(stopped)).finished], [1, 'stopped']);
    assert.equal(await failure(next(start(decoding.matcher, { maxTokens: 0 }))), 'invalid-argument');
    assert.equal(await failure(next(start(newMatcher(guest, compile(guest, '('))))), 'invalid-argument');
    for (const isDecoding of [false, true]) {
      const dropped = start(decoding.matcher);
      assert.equal(guest.inferlet.outgoing.calls, 1);
      const last = isDecoding ? next(dropped) : undefined;
      guest.call('fused', '[resource-drop]run', dropped);
      if (last) assert.deepEqual(value(await last), { tokens: u32(), finished: 'stopped' });
      assert.equal(guest.inferlet.outgoing.calls, 0);
    }
    // The device would refuse these lists in a call.
    for (const list of [{ stopTokens: new Uint32Array(MAX_LIST + 1) }, { pages: new Uint32Array(MAX_ADDRESSES + 1) }]) {
      const refused = start(decoding.matcher, list);
      assert.equal(guest.inferlet.outgoing.bytes, 0);
      assert.equal(await failure(next(refused)), 'limit-exceeded');
    }
    const longest = start(decoding.matcher, { stopTokens: new Uint32Array(MAX_LIST) });
    assert.ok(value(await next(longest)).tokens.length > 0);
    guest.call('fused', '[method]run.stop', longest);
    assert.equal(guest.inferlet.outgoing.bytes, 0);
    // A call accepts the rest of the text while the run waits for its step, so the matcher refuses the token sampled under the older mask.
    const used = newMatcher(guest, compile(guest, ' (cat|dog)'));
    const spoilt = next(start(used));
    await guest.inferlet.grammarAccount.turn();
    const cat = Uint32Array.from(tokenizer?.encode('cat', { special: false }) ?? []);
    assert.equal(value(await ask(guest, '[method]matcher.accept', used, cat)), true);
    assert.equal(await failure(spoilt), 'invalid-argument');
  });

  it('charge the inferlet for runs, with a turn of the event loop for each step', async ({ mock }) => {
    const decoding = new Decoding('[^]*', 0);
    const account = decoding.guest.inferlet.grammarAccount;
    const [turns, charges] = [mock.method(account, 'turn'), mock.method(account, 'runCharged')];
    const { tokens } = await decoding.run(20, []);
    assert.equal(tokens.length, 20);
    assert.equal(turns.mock.callCount(), 20);
    assert.ok(charges.mock.callCount() >= 20);
  });

  it('count concurrent steps towards the token limit and the quota from the start of each step', async () => {
    const runConcurrentSteps = async (guest: TestInferlet, settled = async () => {}) => {
      const matcher = newMatcher(guest, compile(guest, '[^]*'));
      const steps = Array.from({ length: 4 }, () => failure(ask(guest, 'step', guest.queue, matcher, request(u32(1)))));
      await settled();
      const tags = await Promise.all(steps);
      return [tags, guest.inferlet.inputTokens, guest.inferlet.outputTokens];
    };
    // A step counts two tokens. The limit refuses steps once it is exceeded. Steps without room in the quota wait, and fail when it is refused.
    const limited = inferlet({ tokens: 3 });
    assert.deepEqual(await runConcurrentSteps(limited), [['ok', 'ok', 'limit-exceeded', 'limit-exceeded'], 2, 2]);
    const limitedByQuota = inferlet();
    const { tokens } = limitedByQuota.inferlet;
    tokens.grant(2);
    const refuseQuota = async () => {
      await eventually(async () => tokens.ask().need === 8, 'all four steps count');
      tokens.refuseQuota(handlerError('limit-exceeded', 'the quota is used up'));
    };
    assert.deepEqual(await runConcurrentSteps(limitedByQuota, refuseQuota), [
      ['ok', 'limit-exceeded', 'limit-exceeded', 'limit-exceeded'],
      1,
      1,
    ]);
  });

  it('are refused in invalid steps, for unknown models and with broken sources', async () => {
    const guest = inferlet();
    const matcher = newMatcher(guest, compile(guest, 'a'));
    assert.equal(await failure(ask(guest, 'step', guest.queue, matcher, request(u32(1, 2), 2))), 'invalid-argument');
    const none = { ...request(u32(1)), output: { tag: 'none' } };
    assert.equal(await failure(ask(guest, 'step', guest.queue, matcher, none)), 'invalid-argument');
    const unknown = compile(guest, 'a', 'no-model');
    assert.equal(await failure(ask(guest, '[method]compiled.ready', unknown)), 'not-found');
    const ofUnknown = newMatcher(guest, unknown);
    assert.equal(await failure(ask(guest, '[method]matcher.mask', ofUnknown)), 'not-found');
    const broken = compile(guest, '(');
    assert.equal(await failure(ask(guest, '[method]compiled.ready', broken)), 'invalid-argument');
    assert.equal(
      await failure(ask(guest, 'step', guest.queue, newMatcher(guest, broken), request(u32(1)))),
      'invalid-argument',
    );
  });

  it('count towards the bound even when refused, and keep neither model name nor source when refused', async () => {
    const guest = inferlet();
    const refusedGrammars = Array.from({ length: 64 }, (_, i) => compile(guest, 'a', `no-model-${i}`));
    for (const refused of refusedGrammars) assert.ok(!JSON.stringify(refused).includes('no-model-'));
    assert.equal(await failure(ask(guest, '[method]compiled.ready', compile(guest, 'a'))), 'limit-exceeded');
    const [first] = refusedGrammars;
    guest.call('grammar', '[resource-drop]compiled', first);
    const long = compile(guest, 'a'.repeat(300_000));
    assert.equal(await failure(ask(guest, '[method]compiled.ready', long)), 'invalid-argument');
    assert.ok(JSON.stringify(long).length < 1000);
  });

  it('refuse more pending calls than allowed, and lists that are too long', async () => {
    const guest = inferlet();
    const matcher = newMatcher(guest, compile(guest, '[^]*'));
    const list = new Uint32Array(200_000);
    assert.equal(await failure(ask(guest, '[method]matcher.accept', matcher, list)), 'limit-exceeded');
    const large = { ...request(new Uint32Array(5_000_000)) };
    assert.equal(await failure(ask(guest, 'step', guest.queue, matcher, large)), 'limit-exceeded');
    // At most 1,024 calls may be pending, so the last ones are refused.
    const calls = Array.from({ length: 1100 }, () => failure(ask(guest, '[method]matcher.status', matcher)));
    assert.deepEqual(new Set((await Promise.all(calls)).slice(1030)), new Set(['limit-exceeded']));
    assert.equal(await failure(ask(guest, '[method]matcher.status', matcher)), 'ok');
  });

  it('are bounded in number and released at the end of the inferlet', async () => {
    const guest = inferlet();
    const compiledGrammars = Array.from({ length: 64 }, (_, i) => compile(guest, `a{${i}}`));
    const extra = compile(guest, 'b');
    assert.equal(await failure(ask(guest, '[method]compiled.ready', extra)), 'limit-exceeded');
    guest.call('grammar', '[resource-drop]compiled', extra);
    guest.call('grammar', '[resource-drop]compiled', compiledGrammars[0]);
    value(await ask(guest, '[method]compiled.ready', compile(guest, 'c')));
    const grammar = compiledGrammars[1] ?? {};
    const matchers = Array.from({ length: 512 }, () => newMatcher(guest, grammar));
    const firstMatcher = matchers[0] ?? {};
    const fork = guest.call<object>('grammar', '[method]matcher.fork', firstMatcher);
    assert.equal(await failure(ask(guest, '[method]matcher.mask', fork)), 'limit-exceeded');
    await guest.end();
    assert.deepEqual([guest.inferlet.grammars.size, guest.inferlet.matchers.size], [0, 0]);
    assert.equal(await failure(ask(guest, '[method]matcher.mask', firstMatcher)), 'closed');
  });
});
