import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ThreadShare } from './thread-share.ts';

/** A thread on which tenants do long work in turns, part by part. The tenants of `wanting` want the device meanwhile. */
class Thread {
  nowMs = 1000;
  readonly wanting = new Set<string>();
  readonly share = new ThreadShare(() => this.nowMs);
  /** Time of long work so far by tenant, ms. */
  readonly usedMs = new Map<string, number>();

  constructor() {
    this.share.join({ tenants: () => this.wanting });
  }

  /** Lets each tenant do a part of long work as often as it may, for `ms`. */
  run(ms: number, partMsByTenant: Readonly<Record<string, number>>): void {
    for (const untilMs = this.nowMs + ms; this.nowMs < untilMs; this.nowMs += 0.1) {
      for (const [tenant, partMs] of Object.entries(partMsByTenant)) {
        if (!this.share.mayWork(tenant)) continue;
        this.nowMs += partMs;
        this.share.spend(tenant, partMs);
        this.usedMs.set(tenant, (this.usedMs.get(tenant) ?? 0) + partMs);
      }
    }
  }

  used(tenant: string): number {
    return this.usedMs.get(tenant) ?? 0;
  }
}

test('a tenant that is alone does long work without a break', () => {
  const thread = new Thread();
  thread.wanting.add('a');
  thread.run(1000, { a: 1 });
  assert.ok(thread.used('a') > 900, `${thread.used('a')} ms`);
  // Time that the tenant took alone is not a debt when another tenant comes.
  thread.wanting.add('b');
  assert.equal(thread.share.mayWork('a'), true);
});

test('beside another tenant, long work takes a sixteenth of the time, however long its parts are', () => {
  for (const partMs of [0.2, 5, 40]) {
    const thread = new Thread();
    thread.wanting.add('streams');
    thread.run(10_000, { a: partMs });
    const share = thread.used('a') / 10_000;
    assert.ok(Math.abs(share - 1 / 16) < 0.01, `parts of ${partMs} ms: ${share}`);
  }
});

test('several tenants divide the sixteenth equally', () => {
  const thread = new Thread();
  thread.wanting.add('streams');
  thread.run(20_000, { a: 1, b: 4, c: 0.5 });
  const shares = ['a', 'b', 'c'].map((tenant) => thread.used(tenant) / 20_000);
  for (const share of shares) assert.ok(Math.abs(share - 1 / 48) < 0.005, JSON.stringify(shares));
});

test('tenants that do no more work get no part of the time', () => {
  const thread = new Thread();
  thread.wanting.add('streams');
  for (let i = 0; i < 100; i++) thread.share.spend(`gone ${i}`, 1);
  thread.run(10_000, { a: 1 });
  // Those tenants took 100 ms together, which a sixteenth of the first 1.6 s pays back. From then on `a` has the whole sixteenth.
  assert.ok(thread.used('a') > 400, `${thread.used('a')} ms`);
});

test('a tenant counts as at work between two of its calls', () => {
  const thread = new Thread();
  thread.share.noteCall('streams', thread.nowMs);
  thread.share.noteCall('a', thread.nowMs);
  thread.share.spend('a', 10);
  assert.equal(thread.share.mayWork('a'), false);
  assert.equal(thread.share.mayWork('streams'), true);
  // Without a call for more than 50 ms, the other tenant no longer counts as at work.
  thread.nowMs += 60;
  assert.equal(thread.share.mayWork('a'), true);
});
