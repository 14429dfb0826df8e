/** Uses the cache of compiled grammars or of image embeds: for one token, or again and again. For benchmarks of the tenants' shares. */
import { Context, defineInferlet, fillImage, InferletError, jsonSchema, send, sleep } from '@pie/inferlet';
import { Compiled, runtime, settle } from '@pie/inferlet/raw';

interface Input {
  readonly model: string;
  readonly cache: 'grammars' | 'images';
  /**
   * `ask`: makes one token with the same grammar or image each time. `within`: makes grammars or uses images that stay within the tenant's share of
   * the cache. `flood`: makes as many that it keeps.
   */
  readonly mode: 'ask' | 'within' | 'flood';
  /** Time after which `within` and `flood` end, ms. */
  readonly forMs?: number;
}

/** Characters of the source of a kept grammar. */
const SOURCE = 100_000;
/** Different images of a tenant within its share. */
const FEW_IMAGES = 8;
/** Pause between two images, so that the encoder has time for others, ms. */
const PAUSE_MS = 25;

/** A schema that takes long to compile, compared with a step. */
const NAMES = Array.from({ length: 12 }, (_, i) => `field_${i}`);
const SCHEMA = {
  type: 'object',
  properties: Object.fromEntries(
    NAMES.map((name) => [name, { enum: Array.from({ length: 50 }, (_, i) => `${name}-${i}`) }]),
  ),
  required: NAMES,
};

export const run = defineInferlet(async ({ model, cache, mode, forMs = 0 }: Input) => {
  if (mode === 'ask') {
    using context = new Context({ model }).fill('Once upon a time ');
    if (cache === 'images') {
      await fillImage(context, image(0));
      context.fill('and ');
    }
    const constraint = cache === 'grammars' ? { constraint: jsonSchema(SCHEMA) } : {};
    await context.generate({ ...constraint, maxTokens: 1, ignoreEos: true }).collect();
    await send('first');
    return {};
  }
  const untilMs = runtime.now() + forMs;
  const kept: Compiled[] = [];
  let rounds = 0;
  await send('begun');
  for (; runtime.now() < untilMs; rounds++) {
    if (cache === 'images') {
      using context = new Context({ model }).fill('See: ');
      await fillImage(context, image(1 + (mode === 'within' ? rounds % FEW_IMAGES : rounds)));
      await sleep(PAUSE_MS);
      continue;
    }
    const mark = `${runtime.now()}-${rounds}`;
    const compiled = new Compiled(model, { tag: 'ebnf', val: `root ::= "${mark}"${' '.repeat(SOURCE)}` });
    try {
      await settle(compiled.ready());
      if (mode === 'flood') kept.push(compiled);
      else compiled[Symbol.dispose]();
    } catch (error) {
      if (!(error instanceof InferletError)) throw error;
      // The share is full: the older half makes room.
      compiled[Symbol.dispose]();
      for (const old of kept.splice(0, Math.ceil(kept.length / 2))) old[Symbol.dispose]();
    }
  }
  return { rounds };
});

/** A PNG of one pixel, whose color is `index`. */
function image(index: number): Uint8Array {
  const row = [0, index >> 16, (index >> 8) & 255, index & 255];
  let [a, b] = [1, 0];
  for (const byte of row) {
    a = (a + byte) % 65_521;
    b = (b + a) % 65_521;
  }
  const stored = [0x78, 0x01, 1, row.length, 0, 255 - row.length, 255, ...row, ...word(((b << 16) | a) >>> 0)];
  return Uint8Array.from([
    ...[0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a],
    ...chunk('IHDR', [...word(1), ...word(1), 8, 2, 0, 0, 0]),
    ...chunk('IDAT', stored),
    ...chunk('IEND', []),
  ]);
}

function chunk(type: string, data: readonly number[]): number[] {
  const body = [...Array.from(type, (letter) => letter.charCodeAt(0)), ...data];
  let crc = 0xffffffff;
  for (const byte of body) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return [...word(data.length), ...body, ...word((crc ^ 0xffffffff) >>> 0)];
}

const word = (value: number): number[] => [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255];
