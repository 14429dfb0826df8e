import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { handlerError } from '#gpu-host/protocol/errors.ts';
import { endMessage, isPlatformCode } from '#scheduler/invocations/endings.ts';
import { QuotaExceeded } from '#scheduler/quotas/exceeded.ts';
import { GuestTrap } from '../lowering/trap.ts';
import { quotaStop } from './usage.ts';
import { type Evidence, verdictOf } from './verdict.ts';

const MB = 1 << 20;
const evidence = (parts: Partial<Evidence>): Evidence => ({
  ending: { kind: 'returned', ok: true, text: '1' },
  resultFault: null,
  stop: null,
  outboxEnd: null,
  handlerErrors: new Map(),
  lostDevice: undefined,
  lostHosts: [],
  cpuMs: 10,
  cpuLimitMs: 100,
  stderr: '',
  memoryBytes: 2 * MB,
  memoryLimitBytes: 64 * MB,
  memoryCanGrow: true,
  ...parts,
});
const failed = (text: string) => ({ kind: 'returned', ok: false, text }) as const;
const trapped = (message: string, code: GuestTrap['code'] = 'trap') =>
  ({ kind: 'trapped', trap: new GuestTrap(code, message) }) as const;

const PAGES_REFUSED =
  "quota kv-pages: 6 pages are held by the tenant's inferlets, exports and files on this host and 3 more are needed; 8 is the tenant's limit";

const cases: readonly [name: string, parts: Partial<Evidence>, kind: string, code?: string, message?: RegExp][] = [
  ['a result', { ending: { kind: 'returned', ok: true, text: '{"a":1}' } }, 'result'],
  [
    'a result that is not JSON',
    { ending: { kind: 'returned', ok: true, text: '{a' }, resultFault: handlerError('invalid-argument', 'a') },
    'error',
    'invalid-result',
    /JSON/,
  ],
  [
    'a result that takes too long to be checked',
    { resultFault: handlerError('limit-exceeded', 'the text took more than 1 ms') },
    'error',
    'output-limit',
    /not checked: the text took/,
  ],
  ['an error of the inferlet', { ending: failed('my fault') }, 'error', 'inferlet-error', /my fault/],
  ['an error without a message', { ending: failed('') }, 'error', 'inferlet-error', /without a message/],
  [
    'a failure after a device was lost',
    { ending: failed('oh'), lostDevice: 'gone' },
    'error',
    'device-lost',
    /gone.*oh/,
  ],
  ['a lost device that the inferlet could do without', { lostDevice: 'gone' }, 'result'],
  [
    'a trap after the device was lost',
    { ending: trapped('unreachable'), lostDevice: 'gone' },
    'error',
    'device-lost',
    /gone.*unreachable/,
  ],
  [
    'a failure after a file was locked for a while',
    { ending: failed('my fault'), handlerErrors: new Map([['unavailable', '"f" is locked by another inferlet']]) },
    'error',
    'inferlet-error',
    /^my fault$/,
  ],
  [
    'a failure because workers were busy',
    {
      ending: failed('unavailable: too many grammars wait for a worker; try again later (in compile)'),
      handlerErrors: new Map([['unavailable', 'too many grammars wait for a worker; try again later']]),
    },
    'error',
    'unavailable',
    /^unavailable: too many grammars wait/,
  ],
  [
    'a failed call that depended on an unavailable call',
    {
      ending: failed('dependency-failed: an earlier call failed (unavailable: the GPU host cannot be reached)'),
      handlerErrors: new Map([
        ['dependency-failed', 'an earlier call failed (unavailable: the GPU host cannot be reached)'],
      ]),
    },
    'error',
    'unavailable',
    /GPU host cannot be reached/,
  ],
  [
    'a trap that quotes an unavailable call',
    {
      ending: trapped('unreachable'),
      stderr: 'panicked: the GPU host cannot be reached\n',
      handlerErrors: new Map([['unavailable', 'the GPU host cannot be reached']]),
    },
    'error',
    'unavailable',
    /^panicked: the GPU host cannot be reached$/,
  ],
  [
    'a trap for another reason after an unavailable call',
    {
      ending: trapped('unreachable'),
      stderr:
        "no cache: the GPU host cannot be reached\n\nthread '<unnamed>' panicked at src/lib.rs:7:5:\nindex out of bounds\n",
      handlerErrors: new Map([['unavailable', 'the GPU host cannot be reached']]),
    },
    'error',
    'trap',
    /unreachable.*index out of bounds/s,
  ],
  [
    'a failure that quotes an `unavailable` error which the platform never returned',
    { ending: failed('unavailable: the GPU host cannot be reached') },
    'error',
    'inferlet-error',
    /^unavailable/,
  ],
  [
    'a failure after the platform took memory back',
    { ending: failed('oh'), handlerErrors: new Map([['terminated', 'evicted']]) },
    'error',
    'terminated',
    /evicted/,
  ],
  [
    "a failure because the tenant's quota refused pages",
    {
      ending: failed(`limit-exceeded: ${PAGES_REFUSED} (in forward)`),
      handlerErrors: new Map([['limit-exceeded', PAGES_REFUSED]]),
    },
    'error',
    'quota-pages',
    /^quota kv-pages: .* tenant's limit$/,
  ],
  [
    'a failure of a call that depended on pages that the quota refused',
    {
      ending: failed(`an earlier call failed (limit-exceeded: ${PAGES_REFUSED})`),
      handlerErrors: new Map([
        ['limit-exceeded', 'something else'],
        ['dependency-failed', `an earlier call failed (limit-exceeded: ${PAGES_REFUSED})`],
      ]),
    },
    'error',
    'quota-pages',
    /^quota kv-pages: .* tenant's limit$/,
  ],
  [
    'a failure that quotes a refusal of pages which no GPU host gave',
    { ending: failed(PAGES_REFUSED), handlerErrors: new Map([['limit-exceeded', 'another limit']]) },
    'error',
    'inferlet-error',
    /^quota kv-pages/,
  ],
  [
    'a trap without a message after pages were refused',
    { ending: trapped('unreachable'), handlerErrors: new Map([['limit-exceeded', PAGES_REFUSED]]) },
    'error',
    'quota-pages',
    /8 is the tenant's limit/,
  ],
  [
    'a failure with another message after pages were refused',
    { ending: failed('my fault'), handlerErrors: new Map([['limit-exceeded', PAGES_REFUSED]]) },
    'error',
    'inferlet-error',
    /^my fault$/,
  ],
  [
    'a stop because a quota is used up',
    {
      stop: quotaStop({ quota: 'gpu-ms-per-day', limit: 9, resetsAt: 0, scope: 'function' }, -1),
      ending: trapped('x'),
    },
    'error',
    'quota-gpu-time',
    /gpu-ms-per-day of the function is used up: its limit is 9, and it resets at 1970-01-01T00:00:00.000Z/,
  ],
  ['a trap', { ending: trapped('unreachable') }, 'error', 'trap', /unreachable/],
  [
    'a trap with output on standard error',
    { ending: trapped('unreachable'), stderr: 'panicked at x\n' },
    'error',
    'trap',
    /panicked at x/,
  ],
  [
    'a trap in a full memory',
    { ending: trapped('unreachable'), memoryBytes: 60 * MB },
    'error',
    'memory-limit',
    /60 MB of 64 MB/,
  ],
  [
    'a trap in a memory that cannot grow',
    { ending: trapped('unreachable'), memoryBytes: MB, memoryLimitBytes: MB, memoryCanGrow: false },
    'error',
    'trap',
    /unreachable/,
  ],
  [
    'an error "out of memory" in a memory that cannot grow',
    { ending: failed('out of memory'), memoryBytes: MB, memoryLimitBytes: MB, memoryCanGrow: false },
    'error',
    'inferlet-error',
    /^out of memory$/,
  ],
  [
    'a trap in a full memory that no failed allocation explains',
    { ending: trapped('divide by zero'), memoryBytes: 60 * MB },
    'error',
    'trap',
    /divide by zero/,
  ],
  [
    'a recursion that is too deep, in a full memory',
    {
      ending: { kind: 'trapped', trap: GuestTrap.from(new RangeError('Maximum call stack size exceeded')) },
      memoryBytes: 60 * MB,
    },
    'error',
    'trap',
    /recursion that is too deep.*loop/,
  ],
  [
    'an error "out of memory" with much memory in use',
    { ending: failed('out of memory'), memoryBytes: 40 * MB },
    'error',
    'memory-limit',
    /limits\.memoryMb/,
  ],
  [
    'an error "out of memory" with little memory in use',
    { ending: failed('out of memory') },
    'error',
    'inferlet-error',
    /out of memory/,
  ],
  ['a trap at the CPU limit', { ending: trapped('used its CPU time', 'cpu-limit') }, 'error', 'cpu-limit', /CPU time/],
  [
    'a tenant whose bytes in Redis are used up',
    {
      outboxEnd: 'over-quota',
      outboxCause: QuotaExceeded.ofBytes('redis-bytes', 9, 9, 0),
      ending: trapped('x', 'terminated'),
    },
    'error',
    'quota-storage',
    /redis-bytes/,
  ],
  ['a full log', { outboxEnd: 'full', ending: trapped('x', 'output-limit') }, 'error', 'output-limit', /log/],
  [
    'a result that came after the cancel',
    { stop: { code: 'cancelled', message: 'by its client' } },
    'error',
    'cancelled',
    /by its client/,
  ],
  [
    'a passed deadline',
    { stop: { code: 'deadline-exceeded', message: 'It came too late.' }, ending: trapped('x', 'deadline-exceeded') },
    'error',
    'deadline-exceeded',
    /too late/,
  ],
  [
    'a lost sandbox',
    { ending: { kind: 'lost', cause: 'The sandbox was lost: it ended with SIGKILL.', figures: { pid: 7 } } },
    'error',
    'runtime-lost',
    /ended with SIGKILL\. Invoke the function again/,
  ],
  ['an invocation that another runtime owns', { stop: { code: 'runtime-lost', message: '' } }, 'silent'],
  ['an invocation that has ended', { outboxEnd: 'lost', ending: failed('x') }, 'silent'],
];

describe('a verdict', () => {
  for (const [name, parts, kind, code, message] of cases) {
    it(`for ${name}`, () => {
      const verdict = verdictOf(evidence(parts));
      assert.equal(verdict.kind, kind);
      if (verdict.kind !== 'error') return;
      assert.equal(verdict.code, code);
      assert.match(verdict.message, message ?? /./);
      assert.equal('end' in verdict, isPlatformCode(verdict.code), 'the log gets the ends that the platform causes');
      if ('end' in verdict) assert.match(verdict.end.cause, /^[A-Z].*\.$/, 'a sentence');
    });
  }

  it('bounds the length of its message', () => {
    const verdict = verdictOf(evidence({ ending: failed('x'.repeat(100_000)) }));
    // At most 8192 characters, and a mark that the message was cut.
    assert.ok(verdict.kind === 'error' && verdict.message.length < 9000);
  });

  it('keeps the cause and the retry delay of a stop', () => {
    const stop = {
      code: 'terminated',
      message: 'its memory was taken',
      cause: 'pressure',
      retryAfterMs: 1500,
    } as const;
    const { cause, retryAfterMs } = stop;
    const { message, ...verdict } = { message: '', ...verdictOf(evidence({ stop })) };
    const end = { cause: stop.message, figures: {} };
    assert.deepEqual(verdict, { kind: 'error', code: stop.code, cause, retryAfterMs, end });
    assert.equal(message, endMessage({ code: stop.code, ...end }));
  });
});
