import { type Attack, ended } from '../attack.ts';
import { AT, DONE, forever, type GuestText, MODEL_NAME, SCRATCH, TOPIC, times } from '../guest.ts';

const SPENT = ended('cpu-limit', 'deadline-exceeded');
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
const wait = (fn: string, call: string): string =>
  `(local.set $j ${call}) (drop (call $wait:${fn} (local.get $j) ${SCRATCH})) (call $drop:${fn} (local.get $j))`;
const withQueue = (run: string): string => `(local.set $j (call $queue.queue.new ${MODEL_NAME})) ${run}`;
/** A key that changes with $i, which gives its last bytes. */
const KEY = `(i32.store (i32.const ${AT.name}) (i32.or (i32.const 0x30303030) (i32.and (local.get $i) (i32.const 0x0f0f0f0f))))`;
const ANY = ended(
  'cpu-limit',
  'deadline-exceeded',
  'output-limit',
  'trap',
  'result',
  'terminated',
  'memory-limit',
  'inferlet-error',
);
/** Launches itself \`count\` times; the platform provides the function's name. */
const forks = (count: number, then: string): GuestText => ({
  run: `(call $runtime.function-name (i32.const 1024))
    ${times(count, '(drop (call $children.child.new (i32.load (i32.const 1024)) (i32.load (i32.const 1028)) (i32.const 16) (i32.const 2)))')} ${then}`,
});
const SLEEP = wait('runtime.sleep', '(call $runtime.sleep (i32.const 2000))');

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
    ANY,
  ),
  attack('store-reads-never-read', { run: forever(`(drop (call $store.get ${TOPIC}))`) }, ANY),
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
    ANY,
  ),
  attack(
    'broadcasts',
    {
      run: forever(
        `(call $drop:messaging.broadcast (call $messaging.broadcast ${TOPIC} (i32.const 0) (i32.const ${AT.heap}) (i32.const 65536)))`,
      ),
    },
    ANY,
  ),
  attack(
    'pushes',
    {
      run: forever(
        `(call $drop:messaging.push (call $messaging.push ${TOPIC} (i32.const 1) (i32.const ${AT.heap}) (i32.const 65536)))`,
      ),
    },
    ANY,
  ),
  attack('pulls-that-wait', { run: `${times(500, `(drop (call $messaging.pull ${TOPIC}))`)} ${SLEEP} ${DONE}` }, ANY),
  attack(
    'subscriptions-that-overflow',
    {
      run: `(drop (call $messaging.subscription.new ${TOPIC})) ${forever(wait('messaging.broadcast', `(call $messaging.broadcast ${TOPIC} (i32.const 1) (i32.const ${AT.heap}) (i32.const 65536))`))}`,
    },
    ANY,
  ),
  attack(
    'timers',
    {
      run: `${times(16_000, '(drop (call $runtime.sleep (i32.and (local.get $i) (i32.const 1023))))')} ${SLEEP} ${DONE}`,
    },
    ANY,
  ),
  attack('timers-of-zero', { run: forever(wait('runtime.sleep', '(call $runtime.sleep (i32.const 0))')) }, ANY),
  attack(
    'requests',
    {
      fields: '(data (i32.const 2048) "GEThttp://127.0.0.1:6379/")',
      run: `${times(1000, '(drop (call $http.exchange.new (i32.const 2048) (i32.const 3) (i32.const 2051) (i32.const 22) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 10)))')} ${SLEEP} ${DONE}`,
    },
    ANY,
  ),
  attack(
    'requests-without-a-host',
    {
      fields: '(data (i32.const 2048) "GEThttp://example.invalid/")',
      run: `${times(1000, '(drop (call $http.exchange.new (i32.const 2048) (i32.const 3) (i32.const 2051) (i32.const 23) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 10)))')} ${SLEEP} ${DONE}`,
    },
    ANY,
  ),
  attack('children', forks(64, `${SLEEP} ${DONE}`), ANY),
  attack('children-of-children', forks(1000, DONE), ANY),
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
    ANY,
  ),
  attack('queues', { run: `${times(2000, `(drop (call $queue.queue.new ${MODEL_NAME}))`)} ${DONE}` }, ANY),
  attack(
    'pages',
    { run: `${withQueue(forever(`(call $allocate.allocate-pages (local.get $j) (i32.const 1) ${SCRATCH})`))}` },
    ANY,
  ),
  attack(
    'pages-of-minus-one',
    {
      run: withQueue(
        `(call $allocate.allocate-pages (local.get $j) (i32.const -1) ${SCRATCH}) (call $allocate.allocate-embeds (local.get $j) (i32.const -1) ${SCRATCH}) ${DONE}`,
      ),
    },
    ANY,
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
    ANY,
  ),
  attack(
    'forwards',
    {
      run: withQueue(`(call $allocate.allocate-embeds (local.get $j) (i32.const 1) ${SCRATCH})
    ${forever('(call $forward.forward (local.get $j) (i32.const 512) (i32.const 0) (i32.load (i32.const 260)) (i32.const 1) (i32.const 512) (i32.const 0) (i32.const 512) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))')}`),
    },
    ANY,
  ),
  attack(
    'broken-forwards',
    {
      run: withQueue(
        forever(
          '(call $forward.forward (local.get $j) (i32.const 512) (i32.const 4) (i32.const 512) (i32.const 4) (i32.const 512) (i32.const 4) (i32.const 512) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))',
        ),
      ),
    },
    ANY,
  ),
  attack(
    'exports',
    {
      run: withQueue(`(call $allocate.allocate-pages (local.get $j) (i32.const 1) ${SCRATCH})
    ${times(500, `${KEY} (drop (call $allocate.export-pages (local.get $j) (i32.load (i32.const 260)) (i32.const 1) ${TOPIC} (i32.const 1)))`)}
    ${times(500, `${KEY} (drop (call $allocate.unexport (local.get $j) ${TOPIC}))`)} ${SLEEP} ${DONE}`),
    },
    ANY,
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
