import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { randomFrom } from '../../harness/random.ts';
import { mean, quantile } from '../statistics.ts';
import { boundOf } from './bound.ts';
import { leastLoaded, oracle, platform, randomHost, roundRobin, twoChoices } from './policies.ts';
import { type SimulationResult, simulate } from './simulate.ts';
import { CHUNK_TOKENS, INPUT_MS, STEP_MS, type Trace, type TracedInvocation } from './trace.ts';
import { makeTrace, TRACE_NAMES } from './traces.ts';

const policiesOf = (seed: number) => [
  ...[oracle(), platform('tenant'), platform('invocation'), randomHost(randomFrom(seed)), roundRobin(), leastLoaded()],
  twoChoices(randomFrom(seed)),
];

const traced = (id: string, more: Partial<TracedInvocation> = {}): TracedInvocation => ({
  id,
  tenant: id,
  atMs: 0,
  prompt: 128,
  output: 10,
  pages: 10,
  ...more,
});
const oneHost = (invocations: readonly TracedInvocation[], changes: Trace['changes'] = []): Trace => ({
  name: 'by hand',
  hosts: [{ name: 'gpu-host-0', speed: 1, pages: 20 }],
  invocations,
  changes,
});
const endsOf = ({ outcomes }: SimulationResult) => outcomes.map(({ endMs }) => Math.round(endMs * 1000) / 1000);
const PROMPT_MS = STEP_MS + INPUT_MS * CHUNK_TOKENS;

describe('simulated placement', () => {
  it('completes every invocation in its tenant’s order, on live hosts, within their pages and no faster than the bound', () => {
    const anyCase = fc.record({
      name: fc.constantFrom(...TRACE_NAMES),
      seed: fc.nat(1000),
      hosts: fc.integer({ min: 2, max: 12 }),
      tenants: fc.integer({ min: 1, max: 60 }),
      load: fc.double({ min: 0.2, max: 1.5, noNaN: true }),
    });
    fc.assert(
      fc.property(anyCase, ({ name, seed, ...size }) => {
        const trace = makeTrace(name, { ...size, invocations: 150 }, seed);
        const bound = boundOf(trace);
        const crashes = trace.changes.filter(({ kind }) => kind === 'crash');
        for (const policy of policiesOf(seed)) {
          const { outcomes, hosts, mostReserved } = simulate(trace, policy);
          assert.equal(outcomes.length, trace.invocations.length);
          assert.ok(mostReserved <= 1, `${policy.name}: ${mostReserved}`);
          const lastStarts = new Map<string, number>();
          for (const { invocation, startMs, prefilledMs, endMs, attempts } of outcomes) {
            assert.ok(invocation.atMs <= startMs && startMs < prefilledMs && prefilledMs < endMs, policy.name);
            // After a crash, invocations start again, possibly after their successors in the queue.
            if (crashes.length > 0) continue;
            assert.equal(attempts, 1);
            assert.ok(startMs >= (lastStarts.get(invocation.tenant) ?? 0), `${policy.name}: order`);
            lastStarts.set(invocation.tenant, startMs);
          }
          for (const { startMs, endMs, host } of outcomes)
            for (const { atMs } of crashes.filter((crash) => crash.host === host))
              assert.ok(endMs <= atMs || startMs >= atMs, `${policy.name} ended on a lost host`);
          for (const { running, reservedPages } of hosts) assert.deepEqual([running.length, reservedPages], [0, 0]);
          const latencies = outcomes.map(({ invocation, endMs }) => endMs - invocation.atMs);
          assert.ok(mean(latencies) >= bound.meanMs * (1 - 1e-9), `${policy.name}: mean below the bound`);
          assert.ok(quantile(latencies, 0.99) >= bound.p99Ms * (1 - 1e-9), `${policy.name}: p99 below the bound`);
        }
      }),
      { numRuns: 40, seed: 1 },
    );
  });

  it('ends invocations at times calculated by hand', () => {
    // The prompt takes one step, since it is one chunk, and the output of 10 tokens takes ten. Two invocations on a host share these steps.
    const alone = PROMPT_MS + 10 * (STEP_MS + INPUT_MS);
    assert.deepEqual(endsOf(simulate(oneHost([traced('a')]), leastLoaded())), [alone]);
    const both = PROMPT_MS + INPUT_MS * CHUNK_TOKENS + 10 * (STEP_MS + 2 * INPUT_MS);
    assert.deepEqual(endsOf(simulate(oneHost([traced('a'), traced('b')]), leastLoaded())), [both, both]);
    assert.equal(boundOf(oneHost([traced('a')])).meanMs, alone);
  });

  it('lets an invocation wait for pages', () => {
    const full = simulate(oneHost([traced('a', { pages: 15 }), traced('b', { pages: 15 })]), leastLoaded());
    assert.equal(full.outcomes[1]?.startMs, full.outcomes[0]?.endMs);
  });

  it('evicts a context whose pages another invocation needs, unless the context is exported', () => {
    const CONTEXT_TOKENS = 128;
    const context = { name: 'prefix', tokens: CONTEXT_TOKENS, keeps: CONTEXT_TOKENS, exported: false };
    const withContext = (id: string, atMs: number, more: Partial<TracedInvocation> = {}) =>
      traced(id, { atMs, prompt: CONTEXT_TOKENS + 1, context, ...more });
    const { hosts } = simulate(
      oneHost([withContext('a', 0), withContext('b', 1000), withContext('c', 2000)]),
      leastLoaded(),
    );
    // The first invocation computes the context, and the other two find it.
    assert.deepEqual([hosts[0]?.hitTokens, hosts[0]?.contextTokens], [2 * CONTEXT_TOKENS, 3 * CONTEXT_TOKENS]);

    const allPages = traced('b', { atMs: 1000, pages: 20 });
    const evicted = simulate(oneHost([withContext('a', 0), allPages, withContext('c', 2000)]), oracle());
    assert.equal(evicted.hosts[0]?.hitTokens, 0);

    const exporting = withContext('a', 0, { context: { ...context, exported: true } });
    const kept = simulate(oneHost([exporting, allPages, withContext('c', 2000)]), oracle());
    assert.equal(kept.hosts[0]?.hitTokens, CONTEXT_TOKENS);
  });

  it('restarts the invocations that a crash ended', () => {
    const hosts = ['gpu-host-0', 'gpu-host-1'].map((name) => ({ name, speed: 1, pages: 20 }));
    const changes = [{ atMs: 100, host: 0, kind: 'crash' as const }];
    const { outcomes } = simulate({ ...oneHost([traced('a')], changes), hosts }, leastLoaded());
    const [{ attempts, startMs, host } = { attempts: 0, startMs: 0, host: -1 }] = outcomes;
    assert.deepEqual([attempts, startMs, host], [2, 100, 1]);
  });
});
