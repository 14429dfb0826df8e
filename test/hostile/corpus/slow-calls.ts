import { type Attack, ended, SPENT } from '../attack.ts';
import { AT, CHAT_MODEL_NAME, DONE, forever, type GuestText, MODEL_NAME, SCRATCH, swallow, times } from '../guest.ts';

const LIMITS = { limits: { cpuMs: 300, wallMs: 20_000, memoryMb: 64, pages: 16, tokens: 100_000 } };
/** Makes `cabi_realloc` allocate from the same address again. */
const RESET = `(global.set $top (i32.const ${8 << 20}))`;
/** Address of a chat's list of messages. */
const MESSAGES = 4 << 20;
const KiB = 1024;

const attack = (name: string, guest: GuestText, ends = SPENT, more: Partial<Attack> = {}): Attack => ({
  name: `slow-calls-${name}`,
  kind: 'slow-calls',
  source: () => ({ guest: { memory: '1000', ...guest } }),
  ends,
  manifest: LIMITS,
  ...more,
});

/** Runs `before` once, then `call` in a loop. Each answer overwrites the last one, so that the memory limit does not end the guest. */
const again = (call: string, before = ''): GuestText => ({ run: `${before} ${forever(`${RESET} ${call}`)}` });
const fill = (byte: number, bytes: number): string =>
  `(memory.fill (i32.const ${AT.heap}) (i32.const ${byte}) (i32.const ${bytes}))`;
/** Fills the heap with many different words of four bytes: `letters`, by default "aaa ", with changing bits where `varied` has ones. */
const words = (bytes: number, letters = 0x20616161, varied = 0x000f0f0f): string =>
  times(
    bytes / 4,
    `(i32.store (i32.add (i32.const ${AT.heap}) (i32.shl (local.get $i) (i32.const 2)))
    (i32.or (i32.const ${letters}) (i32.and (i32.mul (local.get $i) (i32.const 2654435)) (i32.const ${varied}))))`,
  );
const tokenize = (bytes: number): string =>
  `(call $tokenize.tokenize ${MODEL_NAME} (i32.const ${AT.heap}) (i32.const ${bytes}) (i32.const 1) ${SCRATCH})`;

/** Writes a list of `count` messages at `MESSAGES`. All have the role "topic" and the content of `bytes` bytes at the heap. */
const chat = (count: number, bytes: number): string => `
  ${times(
    count,
    `(i32.store (i32.add (i32.const ${MESSAGES}) (i32.shl (local.get $i) (i32.const 4))) (i32.const ${AT.name}))
    (i32.store (i32.add (i32.const ${MESSAGES + 4}) (i32.shl (local.get $i) (i32.const 4))) (i32.const 5))
    (i32.store (i32.add (i32.const ${MESSAGES + 8}) (i32.shl (local.get $i) (i32.const 4))) (i32.const ${AT.heap}))
    (i32.store (i32.add (i32.const ${MESSAGES + 12}) (i32.shl (local.get $i) (i32.const 4))) (i32.const ${bytes}))`,
  )}`;

/** Stores a grammar's text at 2048, compiles it eight times, and waits each time until it is ready. */
const grammar = (kind: number, text: string): GuestText => {
  const bytes = new TextEncoder().encode(text);
  const data = [...bytes].map((byte) => `\\${byte.toString(16).padStart(2, '0')}`).join('');
  return {
    fields: `(data (i32.const 2048) "${data}")`,
    run: `${times(
      8,
      `(local.set $j (call $grammar.compiled.new ${MODEL_NAME} (i32.const ${kind}) (i32.const 2048) (i32.const ${bytes.length})))
      (drop (call $wait:grammar.compiled.ready (call $grammar.compiled.ready (local.get $j)) ${SCRATCH}))`,
    )} ${DONE}`,
  };
};
const GRAMMAR_ENDS = [...SPENT, ...ended('result')];
const [JSON_SCHEMA, REGEX, EBNF] = [0, 1, 2];
const nestedSchema = (depth: number): string => `${'{"type":"array","items":'.repeat(depth)}{}${'}'.repeat(depth)}`;

/** Renders a chat from `{"messages":…}`. The value of `messages` is `depth` times the character `open`, then `depth` times `close`. */
const json = (open: string, depth: number, close: string): GuestText => ({
  ...again(
    `(call $tokenize.render-chat ${CHAT_MODEL_NAME} (i32.const ${AT.heap}) (i32.const ${13 + 2 * depth}) ${SCRATCH})`,
    `(memory.copy (i32.const ${AT.heap}) (i32.const 2048) (i32.const 12))
    (memory.fill (i32.const ${AT.heap + 12}) (i32.const ${open.charCodeAt(0)}) (i32.const ${depth}))
    (memory.fill (i32.const ${AT.heap + 12 + depth}) (i32.const ${close.charCodeAt(0)}) (i32.const ${depth}))
    (i32.store8 (i32.const ${AT.heap + 12 + 2 * depth}) (i32.const 125))`,
  ),
  fields: `(data (i32.const 2048) "{\\22messages\\22:")`,
});

export const slowCalls: readonly Attack[] = [
  attack('tokenize-32-kib', again(tokenize(32 * KiB - 8), words(32 * KiB)), SPENT),
  // The words are characters of three bytes in UTF-8. No vocabulary has all of these characters.
  attack('tokenize-rare-characters', again(tokenize(64 * KiB - 8), words(64 * KiB, 0x2080b8e4, 0x003f0300))),
  attack('tokenize-one-word', again(tokenize(32 * KiB - 8), fill(97, 32 * KiB))),
  attack('tokenize-spaces', again(tokenize(32 * KiB - 8), fill(32, 32 * KiB))),
  attack('tokenize-and-swallow', again(swallow(tokenize(32 * KiB - 8)), words(32 * KiB))),
  attack('tokenize-too-much', again(tokenize(3 << 20), fill(97, 3 << 20))),
  attack(
    'tokenize-for-an-unknown-model',
    again(
      `(call $tokenize.tokenize (i32.const ${AT.heap}) (i32.const 60000) (i32.const ${AT.heap}) (i32.const 30000) (i32.const 0) ${SCRATCH})`,
      fill(97, 60_000),
    ),
  ),
  attack(
    'detokenize-131072',
    again(
      `(call $tokenize.detokenize ${MODEL_NAME} (i32.const ${AT.heap}) (i32.const 131072) (i32.const 1) ${SCRATCH})`,
      times(
        131_072,
        `(i32.store (i32.add (i32.const ${AT.heap}) (i32.shl (local.get $i) (i32.const 2))) (i32.and (local.get $i) (i32.const 16383)))`,
      ),
    ),
    SPENT,
  ),
  attack('vocabulary', again(`(call $tokenize.vocabulary ${MODEL_NAME} ${SCRATCH})`), SPENT),
  attack('models', again(`(call $runtime.models ${SCRATCH})`)),
  attack('debug-query', {
    ...again(`(call $runtime.debug-query (i32.const 2048) (i32.const 3) ${SCRATCH})`),
    fields: '(data (i32.const 2048) "all")',
  }),
  attack('arguments', again(`(call $runtime.get-arguments ${SCRATCH})`), SPENT, { input: 'x'.repeat(500_000) }),
  attack(
    'chat-of-8192-messages',
    again(
      `(call $tokenize.chat-template ${CHAT_MODEL_NAME} (i32.const ${MESSAGES}) (i32.const 8192) (i32.const 1) ${SCRATCH})`,
      `${fill(97, 64)} ${chat(8192, 64)}`,
    ),
    SPENT,
  ),
  attack(
    'chat-of-100-kib-messages',
    again(
      `(call $tokenize.chat-template ${CHAT_MODEL_NAME} (i32.const ${MESSAGES}) (i32.const 100) (i32.const 1) ${SCRATCH})`,
      `${fill(97, 100_000)} ${chat(100, 100_000)}`,
    ),
  ),
  attack('render-nested-json', json('[', 500_000, ']')),
  attack('render-open-json', json('[', 1_000_000, '[')),
  attack(
    'log-16-kib',
    again(`(call $runtime.log (i32.const 1) (i32.const ${AT.heap}) (i32.const 16384))`, fill(97, 16_384)),
    [...SPENT, ...ended('output-limit')],
  ),
  attack('regex-repetition', grammar(REGEX, '((a{1000}){1000}){1000}'), GRAMMAR_ENDS),
  attack('regex-alternation', grammar(REGEX, `(${'(a|b|ab)*'.repeat(200)})*c`), GRAMMAR_ENDS),
  attack('regex-nested', grammar(REGEX, `${'('.repeat(5000)}a${')'.repeat(5000)}`), GRAMMAR_ENDS),
  attack('schema-nested', grammar(JSON_SCHEMA, nestedSchema(2000)), GRAMMAR_ENDS),
  attack(
    'schema-references',
    grammar(JSON_SCHEMA, '{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}}}'),
    GRAMMAR_ENDS,
  ),
  attack(
    'schema-prototype',
    grammar(
      JSON_SCHEMA,
      '{"type":"object","properties":{"__proto__":{"$ref":"#/__proto__"},"constructor":{"type":"string"}},"required":["__proto__","toString"]}',
    ),
    GRAMMAR_ENDS,
  ),
  attack('ebnf-left-recursion', grammar(EBNF, 'root ::= root root | root "a" | "a"'), GRAMMAR_ENDS),
  attack('ebnf-empty-loop', grammar(EBNF, 'root ::= (("a"?)*)* root?'), GRAMMAR_ENDS),
  attack(
    'ebnf-doubling',
    grammar(
      EBNF,
      `${Array.from({ length: 60 }, (_, i) => `r${i} ::= r${i + 1} r${i + 1}`).join('\n')}\nr60 ::= "a"\nroot ::= r0`,
    ),
    GRAMMAR_ENDS,
  ),
  attack('image-header-of-65535-squared', {
    fields:
      '(data (i32.const 2048) "\\89PNG\\0d\\0a\\1a\\0a\\00\\00\\00\\0dIHDR\\00\\00\\ff\\ff\\00\\00\\ff\\ff\\08\\06\\00\\00\\00\\00\\00\\00\\00")',
    run: forever(`(call $input-image.image-dimensions (i32.const 2048) (i32.const 33) ${SCRATCH})`),
  }),
  attack(
    'image-of-6-mib',
    again(
      `(call $input-image.image-dimensions (i32.const ${AT.heap}) (i32.const ${6 << 20}) ${SCRATCH})`,
      fill(255, 6 << 20),
    ),
  ),
];
