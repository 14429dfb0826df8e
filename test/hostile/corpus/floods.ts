import { type Attack, ended, FLOODED, SPENT } from '../attack.ts';
import { AT, CHAT_MODEL_NAME, DONE, forever, type GuestText, MODEL_NAME, SCRATCH, TOPIC, times } from '../guest.ts';

const LIMITS = { cpuMs: 300, wallMs: 8000, memoryMb: 32, pages: 64, tokens: 10_000 };
const GRANTS = { store: true, messaging: true, launch: '*', hosts: ['127.0.0.1:*', 'example.invalid'] };

const attack = (name: string, guest: GuestText, ends: Attack['ends'] = SPENT, more: Partial<Attack> = {}): Attack => ({
  name: `floods-${name}`,
  kind: 'floods',
  source: () => ({ guest: { memory: '64', ...guest } }),
  ends,
  manifest: { limits: LIMITS, grants: GRANTS },
  ...more,
});

const fill = (bytes: number): string => `(memory.fill (i32.const ${AT.heap}) (i32.const 97) (i32.const ${bytes}))`;
const send = (bytes: number): string =>
  `(call $session.send (i32.const 0) (i32.const ${AT.heap}) (i32.const ${bytes}) ${SCRATCH})`;
/** Makes a call, waits for the future that it returns, and drops the future. */
const wait = (fn: string, call: string): string =>
  `(local.set $j ${call}) (drop (call $wait:${fn} (local.get $j) ${SCRATCH})) (call $drop:${fn} (local.get $j))`;
/** Runs `run` with the handle of a new queue in $j. */
const withQueue = (run: string): string => `(local.set $j (call $queue.queue.new ${MODEL_NAME})) ${run}`;
/** Overwrites the first four bytes of `TOPIC` with characters that depend on $i, so that calls use different keys. */
const KEY = `(i32.store (i32.const ${AT.name}) (i32.or (i32.const 0x30303030) (i32.and (local.get $i) (i32.const 0x0f0f0f0f))))`;
/**
 * A guest that launches its own function `count` times. The host writes the address and the length of the function's name to address 1024. The input
 * of each launch is the "42" at address 16.
 */
const forks = (count: number, then: string): GuestText => ({
  run: `(call $runtime.function-name (i32.const 1024))
    ${times(count, '(drop (call $children.child.new (i32.load (i32.const 1024)) (i32.load (i32.const 1028)) (i32.const 16) (i32.const 2)))')} ${then}`,
});
const SLEEP = wait('runtime.sleep', '(call $runtime.sleep (i32.const 2000))');
/** Sleeps until all invocations of a flood have started. */
const LONG_SLEEP = wait('runtime.sleep', '(call $runtime.sleep (i32.const 20000))');
/** Number of elements in the longest list that a call takes. */
const MAX_LIST = 16_384;
/** Address and length of a list of zeros, beyond the guest's allocations. */
const ZEROS = `(i32.const 1048576) (i32.const ${MAX_LIST})`;
/** Address of the list that a call has returned: the host wrote a tag, this address and the length of the list to `SCRATCH`. */
const RETURNED = `(i32.load (i32.const ${AT.scratch + 4}))`;
/** Address and length of an empty list. */
const EMPTY = '(i32.const 512) (i32.const 0)';
/** Address and length of a list of four zeros, which the guest uses as addresses that it has not allocated. */
const INVALID = '(i32.const 512) (i32.const 4)';
/** The argument `mask` of a forward: none. */
const NO_MASK = '(i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)';
/** Many guests together can exceed the memory of their tenant's sandbox, and the sandbox then ends. */
const SANDBOX_LOST = ended('runtime-lost');
/** Many invocations, each of which takes as much of the GPU host as one invocation may. */
const MANY_INVOCATIONS = {
  invocations: 120,
  manifest: { limits: { ...LIMITS, cpuMs: 5000, wallMs: 60_000 }, grants: GRANTS },
};

export const floods: readonly Attack[] = [
  attack('send-64-kib', { run: `${fill(65_536)} ${forever(send(65_536))}` }, [...SPENT, ...ended('output-limit')]),
  attack(
    'send-and-flush',
    { run: `${fill(65_536)} ${forever(`${send(65_536)} ${wait('session.flush', '(call $session.flush)')}`)}` },
    [...SPENT, ...ended('output-limit')],
  ),
  attack('send-nothing', { run: forever(`(call $session.send (i32.const 0) ${TOPIC} ${SCRATCH})`) }, [
    ...SPENT,
    ...ended('output-limit'),
  ]),
  attack('log-lines', { run: forever(`(call $runtime.log (i32.const 1) ${TOPIC})`) }, [
    ...SPENT,
    ...ended('output-limit'),
  ]),
  attack(
    'store-writes',
    {
      run: forever(
        `${KEY} (local.set $i (i32.add (local.get $i) (i32.const 1))) ${fill(65_536)} (call $drop:store.set (call $store.set ${TOPIC} (i32.const ${AT.heap}) (i32.const 65536) (i32.const 0) (i32.const 0)))`,
      ),
    },
    FLOODED,
  ),
  attack('store-reads-never-read', { run: forever(`(drop (call $store.get ${TOPIC}))`) }, FLOODED),
  attack(
    'store-lists',
    {
      run: forever(
        wait(
          'store.list-keys',
          '(call $store.list-keys (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1000))',
        ),
      ),
    },
    FLOODED,
  ),
  attack(
    'broadcasts',
    {
      run: forever(
        `(call $drop:messaging.broadcast (call $messaging.broadcast ${TOPIC} (i32.const 0) (i32.const ${AT.heap}) (i32.const 65536)))`,
      ),
    },
    FLOODED,
  ),
  attack(
    'pushes',
    {
      run: forever(
        `(call $drop:messaging.push (call $messaging.push ${TOPIC} (i32.const 1) (i32.const ${AT.heap}) (i32.const 65536)))`,
      ),
    },
    FLOODED,
  ),
  attack(
    'pulls-that-wait',
    { run: `${times(500, `(drop (call $messaging.pull ${TOPIC}))`)} ${SLEEP} ${DONE}` },
    FLOODED,
  ),
  attack(
    'subscriptions-that-overflow',
    {
      run: `(drop (call $messaging.subscription.new ${TOPIC})) ${forever(wait('messaging.broadcast', `(call $messaging.broadcast ${TOPIC} (i32.const 1) (i32.const ${AT.heap}) (i32.const 65536))`))}`,
    },
    FLOODED,
  ),
  attack(
    'timers',
    {
      run: `${times(16_000, '(drop (call $runtime.sleep (i32.and (local.get $i) (i32.const 1023))))')} ${SLEEP} ${DONE}`,
    },
    FLOODED,
  ),
  attack('timers-of-zero', { run: forever(wait('runtime.sleep', '(call $runtime.sleep (i32.const 0))')) }, FLOODED),
  // The method is at address 2048, the URL behind it. The last argument allows 10 redirects.
  attack(
    'requests',
    {
      fields: '(data (i32.const 2048) "GEThttp://127.0.0.1:6379/")',
      run: `${times(1000, '(drop (call $http.exchange.new (i32.const 2048) (i32.const 3) (i32.const 2051) (i32.const 22) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 10)))')} ${SLEEP} ${DONE}`,
    },
    FLOODED,
  ),
  attack(
    'requests-without-a-host',
    {
      fields: '(data (i32.const 2048) "GEThttp://example.invalid/")',
      run: `${times(1000, '(drop (call $http.exchange.new (i32.const 2048) (i32.const 3) (i32.const 2051) (i32.const 23) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 10)))')} ${SLEEP} ${DONE}`,
    },
    FLOODED,
  ),
  attack('children', forks(64, `${SLEEP} ${DONE}`), FLOODED),
  attack('children-of-children', forks(1000, DONE), FLOODED),
  attack(
    'files',
    {
      run:
        times(
          400,
          wait(
            'file-exchange.send-file',
            `(call $file-exchange.send-file ${TOPIC} ${TOPIC} (i32.const ${AT.heap}) (i32.const 1000000))`,
          ),
        ) + DONE,
    },
    FLOODED,
  ),
  attack('queues', { run: `${times(2000, `(drop (call $queue.queue.new ${MODEL_NAME}))`)} ${DONE}` }, FLOODED),
  attack(
    'pages',
    { run: `${withQueue(forever(`(call $allocate.allocate-pages (local.get $j) (i32.const 1) ${SCRATCH})`))}` },
    FLOODED,
  ),
  attack(
    'pages-of-minus-one',
    {
      run: withQueue(
        `(call $allocate.allocate-pages (local.get $j) (i32.const -1) ${SCRATCH}) (call $allocate.allocate-embeds (local.get $j) (i32.const -1) ${SCRATCH}) ${DONE}`,
      ),
    },
    FLOODED,
  ),
  attack(
    'embeds',
    {
      run: withQueue(
        forever(
          `(call $allocate.allocate-embeds (local.get $j) (i32.const 1000) ${SCRATCH}) (global.set $top (i32.const ${AT.heap}))`,
        ),
      ),
    },
    FLOODED,
  ),
  attack(
    'forwards',
    {
      run: withQueue(`(call $allocate.allocate-embeds (local.get $j) (i32.const 1) ${SCRATCH})
    ${forever(`(call $forward.forward (local.get $j) ${EMPTY} ${RETURNED} (i32.const 1) ${EMPTY} ${EMPTY} ${NO_MASK})`)}`),
    },
    FLOODED,
  ),
  attack(
    'broken-forwards',
    {
      run: withQueue(
        forever(`(call $forward.forward (local.get $j) ${INVALID} ${INVALID} ${INVALID} ${INVALID} ${NO_MASK})`),
      ),
    },
    FLOODED,
  ),
  attack(
    'exports',
    {
      run: withQueue(`(call $allocate.allocate-pages (local.get $j) (i32.const 1) ${SCRATCH})
    ${times(500, `${KEY} (drop (call $allocate.export-pages (local.get $j) ${RETURNED} (i32.const 1) ${TOPIC} (i32.const 1)))`)}
    ${times(500, `${KEY} (drop (call $allocate.unexport (local.get $j) ${TOPIC}))`)} ${SLEEP} ${DONE}`),
    },
    FLOODED,
  ),
  // Each guest starts a run of 280 tokens on 18 pages of 16 slots, and does not read it. Then it frees embeds that it
  // never allocated. These calls wait behind the run, so the GPU host must hold their 37 lists: 600,000 addresses.
  attack(
    'addresses-behind-a-run-of-many',
    {
      fields: '(global $k (mut i32) (i32.const 0))',
      run: `(local.set $j (call $queue.queue.new ${CHAT_MODEL_NAME}))
    (call $allocate.allocate-pages (local.get $j) (i32.const 18) ${SCRATCH})
    (drop (call $fused.run.new (local.get $j) (i32.const 1) (i32.const 0) ${RETURNED} (i32.const 18)
      (i32.const 280) (f32.const 0) (i32.const 0) (f32.const 1) (f32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
    ${times(
      37,
      `(global.set $k (i32.const 0)) (loop $fill
        (i32.store (i32.add (i32.const ${AT.heap}) (i32.shl (global.get $k) (i32.const 2)))
          (i32.add (i32.mul (local.get $i) (i32.const ${MAX_LIST})) (global.get $k)))
        (global.set $k (i32.add (global.get $k) (i32.const 1)))
        (br_if $fill (i32.lt_u (global.get $k) (i32.const ${MAX_LIST}))))
      (call $allocate.free-embeds (local.get $j) (i32.const ${AT.heap}) (i32.const ${MAX_LIST}))`,
    )} ${LONG_SLEEP} ${DONE}`,
    },
    FLOODED,
    MANY_INVOCATIONS,
  ),
  // The heap's `$top` goes back after each call, so that the returned lists take no further memory of the guest.
  attack(
    'embeds-of-many',
    {
      run: [MODEL_NAME, CHAT_MODEL_NAME]
        .map(
          (model) => `(local.set $j (call $queue.queue.new ${model}))
    ${times(
      16,
      `(call $allocate.allocate-embeds (local.get $j) (i32.const ${MAX_LIST}) ${SCRATCH})
      (call $input-text.embed-text (local.get $j) ${ZEROS} ${ZEROS} ${RETURNED} (i32.const ${MAX_LIST}))
      (global.set $top (i32.const ${AT.heap}))`,
    )}`,
        )
        .join(' ')
        .concat(` ${LONG_SLEEP} ${DONE}`),
    },
    FLOODED,
    MANY_INVOCATIONS,
  ),
  // Eight random characters at the start make each grammar a new one, which the platform has not compiled yet.
  attack(
    'grammars-of-many',
    {
      run: `(memory.fill (i32.const ${AT.heap}) (i32.const 97) (i32.const 262144)) ${times(
        64,
        `${[0, 4].map((at) => `(i32.store (i32.const ${AT.heap + at}) (i32.or (i32.const 0x60606060) (i32.and (call $runtime.random) (i32.const 0x0f0f0f0f))))`).join(' ')}
        (drop (call $grammar.compiled.new ${MODEL_NAME} (i32.const 1) (i32.const ${AT.heap}) (i32.const 262144)))`,
      )} ${LONG_SLEEP} ${DONE}`,
    },
    [...FLOODED, ...SANDBOX_LOST],
    MANY_INVOCATIONS,
  ),
  attack('forty-that-spin', { run: forever() }, SPENT, { invocations: 40 }),
  attack('forty-that-send', { run: `${fill(65_536)} ${forever(send(4096))}` }, [...SPENT, ...ended('output-limit')], {
    invocations: 40,
  }),
  attack('hundred-that-sleep', { run: `${SLEEP} ${DONE}` }, ended('result'), { invocations: 100 }),
  attack('hundred-that-trap', { run: '(unreachable)' }, ended('trap'), { invocations: 100 }),
  attack('large-inputs', { run: DONE }, ended('result', 'trap', 'body-too-large'), {
    invocations: 10,
    input: 'x'.repeat(1 << 20),
  }),
];
