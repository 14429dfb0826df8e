import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { type ModelConfig, parseConfig } from '#gpu-host/models/config.ts';
import { loadTokenizer, type Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { LAYOUTS, type Layout, QUESTION } from './layouts.ts';
import { writeMetadata } from './write.ts';

describe('the metadata of published models', () => {
  let root: string;
  before(async () => {
    root = await mkdtemp(path.join(os.tmpdir(), 'pie-layouts-'));
  });
  after(() => rm(root, { recursive: true, force: true }));

  for (const layout of LAYOUTS) {
    const { expected } = layout;
    if ('refusal' in expected) {
      it(`${layout.name}: the refusal names the field`, async () => {
        await assert.rejects(load(layout), { code: 'unsupported-model', message: expected.refusal });
      });
      continue;
    }
    it(`${layout.name}: context length, special tokens, chat and token counts are the published ones`, async () => {
      const { config, tokenizer } = await load(layout);
      assert.equal(config.contextLength, expected.contextLength);
      const { bos, eos } = tokenizer.special;
      assert.deepEqual({ bos, eos: [...eos].sort() }, { bos: expected.bos, eos: [...expected.eos].sort() });
      for (const end of config.eosTokenIds) assert.ok(eos.includes(end), `config.json's ${end} ends a text`);
      if (expected.chat === null) assert.equal(tokenizer.chatTemplate, null);
      else assertChat(tokenizer, expected.chat);
      for (const text of ['Hello, world! 3.14', 'a  b\n\tc', 'Zürich 北京 🙂', '<|im_end|></s>']) {
        assert.equal(tokenizer.decode(tokenizer.encode(text), { special: true }), text);
      }
    });
  }

  async function load(layout: Layout): Promise<{ config: ModelConfig; tokenizer: Tokenizer }> {
    const directory = path.join(root, layout.name);
    await writeMetadata(layout, directory);
    const read = async (name: string) => JSON.parse(await readFile(path.join(directory, name), 'utf8'));
    const config = parseConfig(await read('config.json'), await read('generation_config.json'));
    return { config, tokenizer: await loadTokenizer(directory) };
  }

  /** The rendered chat, with each control token of the template as one token. */
  function assertChat(tokenizer: Tokenizer, chat: string): void {
    assert.equal(tokenizer.applyChatTemplate([{ role: 'user', content: QUESTION }], true), chat);
    const tokens = tokenizer.encode(chat, { special: true });
    // Llama 2's tokenizer puts a space behind each control token.
    const spaceless = (text: string) => text.replaceAll(' ', '');
    assert.equal(spaceless(tokenizer.decode(tokens, { special: true })), spaceless(chat));
    const named = [...tokenizer.decoding.specialIds].filter((id) =>
      chat.includes(tokenizer.decode([id], { special: true })),
    );
    assert.ok(named.length > 0 || tokenizer.special.bos === 1);
    for (const id of named) assert.ok(tokens.includes(id), `${id} is one token`);
  }
});
