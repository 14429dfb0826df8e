import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FunctionVersion } from '#scheduler/functions/types.ts';
import { TextService } from '../texts/service.ts';
import { Account } from '../workers/account.ts';
import { childJob, refuseInput } from './child-job.ts';
import { Family, MAX_CHILDREN, MAX_LAUNCHES } from './family.ts';

const LIMITS = { cpuMs: 1, wallMs: 1, memoryMb: 1, pages: 1, tokens: 1 };

test("a child's input is bounded in length and checked against its schema in a bounded number of steps", async (t) => {
  const texts = new TextService({ maxWorkers: 1 });
  t.after(() => texts.close());
  const alternatives = Array.from({ length: 900 }, (_, i) => ({ const: i }));
  const manifest = { name: 'f', input: { type: 'array', items: { anyOf: alternatives } } };
  const version = {
    tenant: 't',
    name: 'f',
    version: 'v',
    manifest,
    componentHash: '',
    componentBytes: 0,
    createdAt: 0,
  };
  let chargedMs = 0;
  const cpu = { charge: (ms: number) => (chargedMs += ms), usedUp: () => false };
  const parent = { tenant: 't', account: new Account(cpu) };
  const check = async (input: string, fn: FunctionVersion = version) => {
    const refused = refuseInput(input);
    if (refused) return refused.val;
    const outcome = await texts.check(parent, input, fn);
    return outcome.tag === 'ok' ? 'ok' : outcome.val.val;
  };
  assert.equal(await check('[899]'), 'ok');
  assert.match(await check('[900]'), /must be/);
  assert.match(await check(`[${'899,'.repeat(60_000)}899]`), /takes too long to be checked/);
  // `[`, 70,000 times the four characters `899,`, and `899]`.
  assert.match(await check(`[${'899,'.repeat(70_000)}899]`), /280005 characters; 262144 is the limit of a child's/);
  assert.ok(chargedMs > 0);
  const schemaless = { ...version, manifest: { name: 'f' } };
  assert.equal(await check('[1]', schemaless), 'ok');
  assert.match(await check('[1', schemaless), /^the text is not JSON: /);
  assert.match(await check(`[${' '.repeat(100_000)}`, schemaless), /^the text is not JSON: /);
});

test('a child has the pages of its manifest, at most those that its root was bound to', () => {
  const job = {
    id: 'r',
    tenant: 't',
    function: 'f',
    version: 'v',
    input: '',
    arrival: 1,
    submittedAt: 0,
    deadlineMs: 1,
  };
  const family = new Family({ ...job, limits: { ...LIMITS, pages: 512, contexts: 1 } });
  family.bound(2049);
  assert.equal(family.pages.maxPages, 2049);
  const { root } = family;
  const jobs = {
    functionOf: async () => assert.fail(),
    texts: { check: async () => assert.fail() },
    limits: { ...LIMITS, pages: 512 },
  };
  const limitsOf = (pages: number | 'context' | undefined) => {
    const manifest = { name: 'f', ...(pages !== undefined && { limits: { pages } }) };
    const version = { ...job, name: 'f', manifest, componentHash: '', componentBytes: 0, createdAt: 0 };
    const { limits } = childJob(jobs, root, root, version, '{"n":2}', 1);
    return [limits.pages, limits.contexts];
  };
  assert.deepEqual(limitsOf(2000), [2000, undefined]);
  assert.deepEqual(limitsOf(9000), [2049, undefined]);
  assert.deepEqual(limitsOf(undefined), [512, undefined]);
  assert.deepEqual(limitsOf('context'), [512, 2]);
});

test('a root launches a bounded number of children, not counting those that never began', () => {
  const job = {
    id: 'r',
    tenant: 't',
    function: 'f',
    version: 'v',
    input: '',
    arrival: 1,
    submittedAt: 0,
    deadlineMs: 1,
  };
  const family = new Family({ ...job, limits: LIMITS });
  // These children never begin.
  for (let i = 0; i < MAX_LAUNCHES; i++) {
    assert.equal(family.enter(0), null);
    family.leave(false);
  }
  for (let i = 0; i < MAX_LAUNCHES; i++) {
    assert.equal(family.enter(0), null);
    family.leave(true);
  }
  assert.match(family.enter(0)?.val ?? '', new RegExp(`have launched ${MAX_LAUNCHES} children`));
  assert.equal(family.children, 0);
  assert.ok(MAX_CHILDREN < MAX_LAUNCHES);
});
