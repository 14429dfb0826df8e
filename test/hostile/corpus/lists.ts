import { type Attack, ended } from '../attack.ts';
import { AT, CHAT_MODEL_NAME, DONE, forever, type GuestText, MODEL_NAME, SCRATCH, TOPIC, times } from '../guest.ts';

const MiB = 1 << 20;
const PAGE = 65_536;
/** Address of a list of strings. All of them point to the same text, at `REGION`. */
const LIST = AT.heap;
const REGION = LIST + 4 * MiB;

const attack = (name: string, guest: GuestText, ends = ended('trap'), more: Partial<Attack> = {}): Attack => ({
  name: `lists-${name}`,
  kind: 'lists',
  source: () => ({ guest }),
  ends,
  ...more,
});

/** Writes a list of `count` pairs of strings (headers or chat messages) at `LIST`, then runs `call`. Each string is the same `bytes` letters `a`. */
const aliased = (count: number, bytes: number, call: string): GuestText => ({
  memory: String(Math.ceil((REGION + bytes) / PAGE) + 1),
  run: `(memory.fill (i32.const ${REGION}) (i32.const 97) (i32.const ${bytes}))
    ${times(
      count * 2,
      `(i32.store (i32.add (i32.const ${LIST}) (i32.shl (local.get $i) (i32.const 3))) (i32.const ${REGION}))
       (i32.store (i32.add (i32.const ${LIST + 4}) (i32.shl (local.get $i) (i32.const 3))) (i32.const ${bytes}))`,
    )} ${call} ${DONE}`,
});

const chat = (pointer: number, length: number): string =>
  `(call $tokenize.chat-template ${CHAT_MODEL_NAME} (i32.const ${pointer}) (i32.const ${length}) (i32.const 0) ${SCRATCH})`;
const detokenize = (pointer: number, length: number): string =>
  `(call $tokenize.detokenize ${MODEL_NAME} (i32.const ${pointer}) (i32.const ${length}) (i32.const 0) ${SCRATCH})`;
const sendBytes = (pointer: number, length: number): string =>
  `(call $session.send (i32.const 1) (i32.const ${pointer}) (i32.const ${length}) ${SCRATCH})`;
const log = (pointer: number, length: number): string =>
  `(call $runtime.log (i32.const 1) (i32.const ${pointer}) (i32.const ${length}))`;
const withQueue = (call: string): string =>
  `(local.set $j (call $queue.queue.new ${MODEL_NAME})) ${call} (call $queue.queue.drop (local.get $j))`;
const embed = (pointer: number, length: number): string =>
  withQueue(
    `(call $input-text.embed-text (local.get $j) ${`(i32.const ${pointer}) (i32.const ${length}) `.repeat(3)})`,
  );
/** Makes a request with `count` headers from `LIST`. */
const request = (count: number): string => `
  (i32.store (i32.const 1024) (i32.const ${AT.name})) (i32.store (i32.const 1028) (i32.const 3))
  (i32.store (i32.const 1032) (i32.const ${AT.name})) (i32.store (i32.const 1036) (i32.const 5))
  (call $http.exchange.drop (call $http.exchange.new (i32.const ${AT.name}) (i32.const 3) (i32.const ${AT.name}) (i32.const 5)
    (i32.const ${LIST}) (i32.const ${count}) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))`;

const LARGE = { limits: { cpuMs: 1000, wallMs: 20_000, memoryMb: 96, pages: 16, tokens: 1000 } };
const CONTAINED = ended('trap', 'cpu-limit', 'deadline-exceeded', 'memory-limit', 'result');

export const lists: readonly Attack[] = [
  attack('200-messages-of-32-mib', aliased(200, 32 * MiB, chat(LIST, 200)), CONTAINED, { manifest: LARGE }),
  attack('8000-messages-of-4-mib', aliased(8000, 4 * MiB, chat(LIST, 8000)), CONTAINED, { manifest: LARGE }),
  attack('100000-messages-of-32-kib', aliased(100_000, 32_768, chat(LIST, 100_000)), CONTAINED, { manifest: LARGE }),
  attack('250000-messages-of-one-byte', aliased(250_000, 1, chat(LIST, 250_000)), CONTAINED, { manifest: LARGE }),
  attack('headers-of-16-mib', aliased(200, 16 * MiB, request(200)), CONTAINED, { manifest: LARGE }),
  attack(
    'swallowed-large-list',
    aliased(200, 32 * MiB, `(block $b (try_table (catch_all $b) ${chat(LIST, 200)}))`),
    CONTAINED,
    { manifest: LARGE },
  ),
  attack(
    '32-mib-log-lines',
    aliased(1, 32 * MiB, forever(log(REGION, 32 * MiB))),
    [...CONTAINED, ...ended('output-limit')],
    { manifest: LARGE },
  ),
  attack('32-mib-messages', aliased(1, 32 * MiB, forever(sendBytes(REGION, 32 * MiB))), CONTAINED, { manifest: LARGE }),
  attack(
    '32-mib-model-names',
    aliased(
      1,
      32 * MiB,
      forever(
        `(call $tokenize.tokenize (i32.const ${REGION}) (i32.const ${32 * MiB}) (i32.const ${REGION}) (i32.const ${32 * MiB}) (i32.const 0) ${SCRATCH})`,
      ),
    ),
    CONTAINED,
    { manifest: LARGE },
  ),
  attack('length-of-minus-one', { run: `${detokenize(0, -1)} ${DONE}` }, ended('trap')),
  attack('string-of-minus-one', { run: `${log(AT.answer, -1)} ${DONE}` }),
  attack('bytes-of-minus-one', { run: `${sendBytes(AT.answer, -1)} ${DONE}` }),
  attack('records-of-minus-one', { run: `${chat(AT.heap, -1)} ${DONE}` }, ended('trap')),
  attack('records-that-wrap-around', { run: `${chat(AT.heap, 0x1000_0001)} ${DONE}` }),
  attack('words-that-wrap-around', { run: `${detokenize(AT.heap, 0x4000_0001)} ${DONE}` }),
  attack('most-negative-length', { run: `${chat(AT.heap, -0x8000_0000)} ${DONE}` }),
  attack('unaligned-words', { run: `${detokenize(AT.heap + 1, 4)} ${DONE}` }),
  attack('unaligned-records', { run: `${chat(AT.heap + 2, 1)} ${DONE}` }),
  attack('past-the-end', { run: `${detokenize(2 * PAGE - 4, 2)} ${DONE}` }),
  attack('nothing-past-the-end', { run: `${detokenize(-4, 0)} ${log(-1, 0)} ${DONE}` }, ended('trap', 'result')),
  attack(
    'unknown-token-ids',
    {
      memory: '8',
      run: `(memory.fill (i32.const ${AT.heap}) (i32.const 255) (i32.const 400000)) ${detokenize(AT.heap, 100_000)} ${DONE}`,
    },
    ended('result'),
  ),
  attack('sixteen-million-tokens', { memory: '1026', run: `${detokenize(AT.heap, 16 << 20)} ${DONE}` }, CONTAINED, {
    manifest: LARGE,
  }),
  attack('sixteen-million-embeds', { memory: '1026', run: `${embed(AT.heap, 16 << 20)} ${DONE}` }, CONTAINED, {
    manifest: LARGE,
  }),
  attack(
    'million-embeds-again-and-again',
    {
      memory: '70',
      run: `(local.set $j (call $queue.queue.new ${MODEL_NAME})) ${forever(`(call $input-text.embed-text (local.get $j) ${`(i32.const ${AT.heap}) (i32.const 1000000) `.repeat(3)})`)}`,
    },
    [...CONTAINED, ...ended('output-limit')],
    { manifest: LARGE },
  ),
  attack('surrogates', { fields: '(data (i32.const 1024) "\\ed\\a0\\80")', run: `${log(1024, 3)} ${DONE}` }),
  attack('overlong-utf-8', { fields: '(data (i32.const 1024) "\\c0\\80")', run: `${log(1024, 2)} ${DONE}` }),
  attack(
    'answer-over-the-argument',
    { run: `(call $tokenize.tokenize ${MODEL_NAME} ${TOPIC} (i32.const 0) (i32.const ${AT.name & ~3})) ${DONE}` },
    ended('result'),
  ),
  attack('answer-at-the-last-word', {
    run: `(call $tokenize.tokenize ${MODEL_NAME} ${TOPIC} (i32.const 0) (i32.const ${2 * PAGE - 4})) ${DONE}`,
  }),
  attack('unaligned-answer', {
    run: `(call $tokenize.tokenize ${MODEL_NAME} ${TOPIC} (i32.const 0) (i32.const 258)) ${DONE}`,
  }),
  attack(
    'mask-of-huge-runs',
    {
      fields: '(data (i32.const 1024) "\\ff\\ff\\ff\\ff\\ff\\ff\\ff\\ff\\ff\\ff\\ff\\ff\\02\\00\\00\\00")',
      run: `${withQueue('(call $forward.forward (local.get $j) (i32.const 512) (i32.const 1) (i32.const 512) (i32.const 1) (i32.const 512) (i32.const 1) (i32.const 512) (i32.const 0) (i32.const 1) (i32.const 1024) (i32.const 2) (i32.const 1036) (i32.const 1))')} ${DONE}`,
    },
    ended('result', 'trap'),
  ),
  attack('unknown-option-case', {
    run: `(drop (call $store.set ${TOPIC} ${TOPIC} (i32.const 2) (i32.const 0))) ${DONE}`,
  }),
  attack('unknown-message-case', { run: `(call $session.send (i32.const 2) ${TOPIC} ${SCRATCH}) ${DONE}` }),
  attack('unknown-enum-case', { run: `(call $runtime.log (i32.const 4) ${TOPIC}) ${DONE}` }),
  attack('negative-enum-case', { run: `(call $runtime.log (i32.const -1) ${TOPIC}) ${DONE}` }),
];
