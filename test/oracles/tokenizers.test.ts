import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import type { MetadataValue } from '#gpu-host/models/convert/gguf/header.ts';
import { byteLevelEntries, type TokenizerJson } from '#gpu-host/models/convert/gguf/testing/tokenizer.ts';
import { ggufTokenizer } from '#gpu-host/models/convert/gguf/tokenizer.ts';
import { pullModel } from '#gpu-host/models/pull.ts';
import { publishedTokenizer } from '#gpu-host/models/testing/published-tokenizer.ts';
import { tinyConfig } from '#gpu-host/models/testing/random-model.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';

const SEED = 20_251_120;
const fixture = (name: string) => JSON.parse(readFileSync(path.join(import.meta.dirname, 'fixtures', name), 'utf8'));
const TEXTS: readonly string[] = fixture('tokenizers-texts.json');

/** One text as the Rust library tokenizes it. */
interface Golden {
  /** Tokens when special tokens in the text are recognized. */
  readonly special: readonly number[];
  /** Tokens when special tokens are read as plain text, if these differ. */
  readonly literal?: readonly number[];
  /** Decoded text of the literal tokens, if this differs from the original text. */
  readonly decoded?: string;
}
/** Tokens of the texts, by model, from the Rust library (`fixtures/tokenizers-golden.py`). */
const GOLDEN: Readonly<Record<string, readonly Golden[]>> = fixture('tokenizers-golden.json');

const PULLED = ['stories15m', 'minimind2-small'] as const;
/** Pre-tokenizers, which split text into words, of several model families. The test gives each one the vocabulary of minimind2. */
const WORD_RULES = ['gpt-2', 'smollm', 'llama-bpe', 'qwen2'] as const;
/** Merges that make tokens of several digits. Of these, minimind2 itself has only the first. */
const DIGITS = ['1 2', '3 4', '12 3', '123 4', '12 34'];
/** A word of the vocabulary that no merges make. A tokenizer finds it only if it looks up whole words before merging. */
const UNMERGED = 'Ġunmergeable';
/** The families' own tokenizers: 55 MB that no other test needs. */
const PUBLISHED = ['llama3_2', 'qwen2_5', 'qwen3', 'gpt2'] as const;
const ALL = process.env.PIE_TEST_ALL === '1';
/** Ids of the tokens for single bytes, in both pulled models. The three ids before them are special tokens. */
const BYTE_TOKENS = { min: 3, max: 258 };

let folder: string;
before(async () => {
  folder = process.env.PIE_GOLDEN_TOKENIZERS ?? (await mkdtemp(path.join(tmpdir(), 'pie-tokenizers-')));
  await writeFile(path.join(folder, 'texts.json'), JSON.stringify(TEXTS));
});
after(() => (process.env.PIE_GOLDEN_TOKENIZERS ? undefined : rm(folder, { recursive: true, force: true })));

async function pulled(name: string): Promise<Tokenizer> {
  const { directory } = await pullModel(name);
  await cp(path.join(directory, 'tokenizer.json'), path.join(folder, name, 'tokenizer.json'));
  return loadTokenizer(directory);
}

/** The tokenizer of minimind2 with the pre-tokenizer `pre`, `DIGITS` and `UNMERGED`, converted from the metadata of a GGUF file. */
async function withWords(pre: string): Promise<Tokenizer> {
  const { directory } = await pullModel('minimind2-small');
  const json: TokenizerJson = JSON.parse(await readFile(path.join(directory, 'tokenizer.json'), 'utf8'));
  const vocab = { ...json.model.vocab };
  for (const merge of DIGITS) vocab[merge.replace(' ', '')] ??= Object.keys(vocab).length;
  vocab[UNMERGED] ??= Object.keys(vocab).length;
  const merges = [...json.model.merges, ...DIGITS];
  const entries = byteLevelEntries({ ...json, model: { vocab, merges } }, pre);
  const metadata = new Map(entries.map(([key, , value]) => [key, value as MetadataValue]));
  const { tokenizer } = ggufTokenizer(metadata, tinyConfig({ vocabularySize: Object.keys(vocab).length }));
  await mkdir(path.join(folder, pre), { recursive: true });
  await writeFile(path.join(folder, pre, 'tokenizer.json'), JSON.stringify(tokenizer));
  return loadTokenizer(path.join(folder, pre));
}

async function published(name: string): Promise<Tokenizer> {
  const directory = await publishedTokenizer(name);
  await cp(path.join(directory, 'tokenizer.json'), path.join(folder, name, 'tokenizer.json'));
  return loadTokenizer(directory);
}

const cases = [
  ...PULLED.map((name) => ({ name, open: pulled, skip: false as const })),
  ...WORD_RULES.map((name) => ({ name, open: withWords, skip: false as const })),
  ...PUBLISHED.map((name) => ({ name, open: published, skip: !ALL && 'it downloads 55 MB: npm run test:all' })),
];
for (const { name, open, skip } of cases)
  test(`tokens and texts of ${name} are those of the Rust library`, { skip }, async () => {
    const tokenizer = await open(name);
    assert.equal(GOLDEN[name]?.length, TEXTS.length);
    for (const [i, { special, literal = special, decoded }] of GOLDEN[name].entries()) {
      const text = TEXTS[i]!;
      assert.deepEqual([...tokenizer.encode(text, { special: true })], special, JSON.stringify(text));
      assert.deepEqual([...tokenizer.encode(text)], literal, JSON.stringify(text));
      assert.equal(tokenizer.decode(literal), decoded ?? text);
    }
  });

for (const name of PULLED) {
  describe(`a stream of the tokenizer ${name}`, async () => {
    const tokenizer = await loadTokenizer((await pullModel(name)).directory);

    test('gives the decoded text for pieces of any sizes', () => {
      const sizes = fc.array(fc.integer({ min: 1, max: 5 }));
      fc.assert(
        fc.property(fc.constantFrom(...TEXTS.filter(Boolean)), sizes, (text, sizes) => {
          const tokens = tokenizer.encode(text);
          assert.equal(streamed(tokens, sizes), tokenizer.decode(tokens));
        }),
        { seed: SEED, numRuns: 300 },
      );
    });

    test('gives the text that all bytes give when decoded at once, even if some bytes are invalid', () => {
      const token = fc.integer({ min: BYTE_TOKENS.min, max: tokenizer.vocabularySize - 1 });
      const piece = fc.oneof(token, fc.integer(BYTE_TOKENS));
      fc.assert(
        fc.property(
          fc.array(piece, { maxLength: 40, size: 'max' }),
          fc.array(fc.integer({ min: 1, max: 5 })),
          (tokens, sizes) => {
            const bytes = Buffer.concat(tokens.map((id) => tokenizer.tokenBytes(id)));
            const whole = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
            // The stream continues a text: at the beginning of one, SentencePiece would drop a space.
            const text = streamed(Uint32Array.from(tokens), sizes, true);
            assert.equal(text, whole);
            assert.equal(text.isWellFormed(), true);
          },
        ),
        { seed: SEED, numRuns: 1000 },
      );
    });

    /** The text of a stream that gets the tokens in pieces of `sizes`, repeated as often as necessary. */
    function streamed(tokens: Uint32Array, sizes: readonly number[], continuation = false): string {
      const stream = tokenizer.stream({ continuation, special: continuation });
      let text = '';
      let pushed = 0;
      for (let i = 0; pushed < tokens.length; i++) {
        const size = sizes[i % Math.max(1, sizes.length)] ?? 1;
        text += stream.push(tokens.subarray(pushed, pushed + size));
        pushed += size;
      }
      return text + stream.finish();
    }
  });
}
