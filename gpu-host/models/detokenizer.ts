import { z } from 'zod';
import { ModelError } from './errors.ts';

/** A `tokenizer.json` decoder, reduced to what all supported decoders do: bytes per token, and an optional strip of one leading space. */
export interface TokenDecoder {
  /** Bytes that a token contributes, independent of its neighbours. */
  bytesOf(token: string): Uint8Array;
  /** True when decoding must remove a text's first space, which SentencePiece adds before the first word. */
  readonly stripsLeadingSpace: boolean;
}

const SPACE_MARK = '▁';
const MAX_NESTED_SEQUENCES = 8;
const encoder = new TextEncoder();

const decoderSchema = z.looseObject({
  type: z.string(),
  decoders: z.array(z.unknown()).optional(),
  pattern: z.looseObject({ String: z.string().optional() }).optional(),
  content: z.string().optional(),
  start: z.int().optional(),
  stop: z.int().optional(),
  replacement: z.string().optional(),
  prepend_scheme: z.string().optional(),
  add_prefix_space: z.boolean().optional(),
});

/**
 * Reads the `decoder` of a tokenizer.json: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM2) or SentencePiece with byte fallback
 * (Llama 2, Mistral, TinyLlama).
 *
 * @throws ModelError `unsupported-model` for decoders whose output cannot be cut into bytes per token
 */
export function parseDecoder(json: unknown): TokenDecoder {
  const replacements: [from: string, to: string][] = [];
  let isByteLevel = false;
  let hasByteFallback = false;
  let stripsLeadingSpace = false;
  for (const step of flatten(json)) {
    switch (step.type) {
      case 'ByteLevel':
        isByteLevel = true;
        break;
      case 'ByteFallback':
        hasByteFallback = true;
        break;
      case 'Fuse':
        break;
      case 'Replace':
        if (step.pattern?.String === undefined) throw unsupported('a Replace of a regular expression');
        replacements.push([step.pattern.String, step.content ?? '']);
        break;
      case 'Strip':
        if (step.content !== ' ' || (step.start ?? 0) > 1 || (step.stop ?? 0) !== 0) throw unsupported('this Strip');
        stripsLeadingSpace = step.start === 1;
        break;
      case 'Metaspace':
        replacements.push([step.replacement ?? SPACE_MARK, ' ']);
        stripsLeadingSpace = step.prepend_scheme !== 'never' && step.add_prefix_space !== false;
        break;
      default:
        throw unsupported(`"${step.type}"`);
    }
  }
  const bytesOf = isByteLevel
    ? byteLevelBytes
    : (token: string) => (hasByteFallback && fallbackByte(token)) || encoder.encode(replaceAll(token, replacements));
  return { bytesOf, stripsLeadingSpace };
}

function flatten(json: unknown, depth = 0): z.infer<typeof decoderSchema>[] {
  const parsed = decoderSchema.safeParse(json);
  if (!parsed.success) throw unsupported('a tokenizer without a decoder');
  if (parsed.data.type !== 'Sequence') return [parsed.data];
  if (depth === MAX_NESTED_SEQUENCES) throw unsupported(`a Sequence within ${MAX_NESTED_SEQUENCES} others`);
  return (parsed.data.decoders ?? []).flatMap((each) => flatten(each, depth + 1));
}

function unsupported(what: string): ModelError {
  return new ModelError('unsupported-model', `tokenizer.json: ${what} as decoder is not supported`, {
    hint: 'supported: ByteLevel, and SentencePiece with byte fallback',
  });
}

function replaceAll(token: string, replacements: readonly [string, string][]): string {
  return replacements.reduce((text, [from, to]) => text.replaceAll(from, to), token);
}

function fallbackByte(token: string): Uint8Array | undefined {
  return /^<0x[0-9A-Fa-f]{2}>$/.test(token) ? Uint8Array.of(Number.parseInt(token.slice(3, 5), 16)) : undefined;
}

/** GPT-2's table: printable Latin-1 characters stand for their bytes; characters from U+0100 on stand for the other bytes, in order. */
const BYTE_OF_CHARACTER: ReadonlyMap<string, number> = (() => {
  const isPrintable = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const table = new Map<string, number>();
  let nextCodePoint = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const codePoint = isPrintable(byte) ? byte : nextCodePoint++;
    table.set(String.fromCodePoint(codePoint), byte);
  }
  return table;
})();

function byteLevelBytes(token: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of token) {
    const byte = BYTE_OF_CHARACTER.get(character);
    // A token with a character outside the table, such as an added token, stands for itself.
    if (byte === undefined) return encoder.encode(token);
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}
