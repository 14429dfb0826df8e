import { type Attack, ended, FLOODED } from '../attack.ts';
import { AT, CHAT_MODEL_NAME, DONE, forever, SCRATCH, TOPIC, times } from '../guest.ts';

const MANIFEST = { limits: { cpuMs: 500, wallMs: 8000, memoryMb: 80, pages: 4096, tokens: 4_000_000 } };
const MiB = 1 << 20;

/** Address of the list that a call has returned: the host wrote a tag, this address and the length of the list to `SCRATCH`. */
const RETURNED = `(i32.load (i32.const ${AT.scratch + 4}))`;

/**
 * A guest that opens a file, which stays closed: the opening call waits in the queue behind a run, and the guest does not read the run's tokens.
 * The global `$file` has the handle of the file for `run`. The heap has only zeros.
 */
const whileOpening = (name: string, run: string, more: Partial<Attack> = {}): Attack => ({
  name: `floods-${name}-of-a-file-that-opens`,
  kind: 'floods',
  source: () => ({
    guest: {
      memory: '1000',
      fields: '(global $file (mut i32) (i32.const 0))',
      run: `(local.set $j (call $queue.queue.new ${CHAT_MODEL_NAME}))
        (call $allocate.allocate-pages (local.get $j) (i32.const 40) ${SCRATCH})
        (drop (call $fused.run.new (local.get $j) (i32.const 1) (i32.const 0) ${RETURNED} (i32.const 40)
          (i32.const 600) (f32.const 0) (i32.const 0) (f32.const 1) (f32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
        (global.set $file (call $kv-files.file.new (local.get $j) (i32.const 1) ${TOPIC} (i32.const 1)))
        ${run}`,
    },
  }),
  ends: FLOODED,
  manifest: MANIFEST,
  ...more,
});

const FILE = '(global.get $file)';
/** Address and length of a list of `count` words, which starts at the heap. */
const tokens = (count: number): string => `(i32.const ${AT.heap}) (i32.const ${count})`;

/** Mostly calls that must wait until a file is open, while the platform keeps their arguments. */
export const kvFiles: readonly Attack[] = [
  whileOpening(
    'predictions',
    forever(`(drop (call $kv-files.file.pred ${FILE} ${tokens(65_000)} ${tokens(65_000)} (i32.const 1)))`),
  ),
  whileOpening(
    'predictions-of-many',
    `${times(80, `(drop (call $kv-files.file.pred ${FILE} ${tokens(65_000)} ${tokens(65_000)} (i32.const 1)))`)}
    (local.set $j (call $runtime.sleep (i32.const 20000))) (drop (call $wait:runtime.sleep (local.get $j) ${SCRATCH})) ${DONE}`,
    // Many guests may take more memory than their tenant's sandbox has.
    { invocations: 120, wallMs: 60_000, ends: [...FLOODED, ...ended('runtime-lost')] },
  ),
  whileOpening(
    'extracts',
    `${times(1000, `(drop (call $kv-files.file.extract ${FILE} ${tokens(65_000)} (i32.const 0) (i32.const 0)))`)} ${forever()}`,
  ),
  whileOpening(
    'saves',
    forever(
      `(drop (call $kv-files.file.save ${FILE} (i32.const ${AT.heap}) (i32.const ${8 * MiB}) (i32.const 0) (i32.const 0)))`,
    ),
  ),
  whileOpening('merges', forever(`(drop (call $kv-files.file.merge ${FILE} ${FILE} (i32.const 0)))`)),
  whileOpening('unlocks', forever(`(call $kv-files.file.unlock ${FILE})`)),
  whileOpening('forks', `${times(2000, `(drop (call $kv-files.file.fork ${FILE}))`)} ${DONE}`),
  {
    name: 'floods-queues-with-long-names',
    kind: 'floods',
    source: () => ({
      guest: {
        memory: '1000',
        run: `(memory.fill (i32.const ${AT.heap}) (i32.const 97) (i32.const ${16 * MiB}))
          ${forever(`(drop (call $queue.queue.new (i32.const ${AT.heap}) (i32.const ${16 * MiB})))`)}`,
      },
    }),
    ends: FLOODED,
    manifest: MANIFEST,
  },
  {
    name: 'lists-200000-stop-tokens',
    kind: 'lists',
    source: () => ({
      guest: {
        memory: '1000',
        run: `(local.set $j (call $queue.queue.new ${CHAT_MODEL_NAME}))
          (call $allocate.allocate-pages (local.get $j) (i32.const 40) ${SCRATCH})
          ${forever(`(drop (call $fused.run.new (local.get $j) (i32.const 1) (i32.const 0) ${RETURNED} (i32.const 40)
            (i32.const 600) (f32.const 0) (i32.const 0) (f32.const 1) (f32.const 0) (i32.const 0) ${tokens(200_000)}))`)}`,
      },
    }),
    ends: FLOODED,
    manifest: MANIFEST,
  },
  {
    name: 'floods-frees-of-pages-that-were-never-there',
    kind: 'floods',
    source: () => ({
      guest: {
        memory: '64',
        run: `(local.set $j (call $queue.queue.new ${CHAT_MODEL_NAME}))
          ${forever(`(call $allocate.free-pages (local.get $j) ${tokens(262_000)}) (call $allocate.free-pages (local.get $j) ${tokens(8000)})`)}`,
      },
    }),
    ends: FLOODED,
    manifest: MANIFEST,
  },
  {
    name: 'floods-forwards-of-embeds-that-were-never-there',
    kind: 'floods',
    source: () => ({
      guest: {
        memory: '64',
        run: `(local.set $j (call $queue.queue.new ${CHAT_MODEL_NAME}))
          ${times(
            8000,
            `(i32.store (i32.add (i32.const ${AT.heap}) (i32.shl (local.get $i) (i32.const 2))) (i32.add (local.get $i) (i32.const 7)))`,
          )}
          ${forever(`(call $forward.forward (local.get $j) ${`${tokens(8000)} `.repeat(4)} (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))`)}`,
      },
    }),
    ends: FLOODED,
    manifest: MANIFEST,
  },
];
