import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, rmSync } from 'node:fs';
import { copyFile, mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { ModelConfig } from './config.ts';
import { ModelError } from './errors.ts';
import { expectedTensors, type LoadedModel, loadModel, openWeights } from './load.ts';
import { writeSafetensors } from './safetensors.ts';
import { randomModel } from './testing/random-model.ts';
import { loadTokenizer } from './tokenizer.ts';

describe('loadModel', () => {
  let directory: string;
  let model: LoadedModel;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-load-'));
    model = await randomModel(join(directory, 'tiny'), {}, 1);
  });
  after(() => rm(directory, { recursive: true, force: true }));

  /**
   * Writes a copy of the tiny model in one file, with all values 0, and returns its directory. `change` gives the shape of each tensor in the copy;
   * null leaves the tensor out.
   */
  const variant = async (
    name: string,
    change: (tensor: string, shape: readonly number[]) => readonly number[] | null,
  ) => {
    const copy = await randomModel(join(directory, name), {}, 1);
    const tensors = expectedTensors(model.config).flatMap(([tensor, shape]) => {
      const changed = change(tensor, shape);
      return changed === null
        ? []
        : [{ name: tensor, shape: changed, data: () => new Float32Array(changed.reduce((a, b) => a * b, 1)) }];
    });
    await writeSafetensors(join(copy.directory, 'model.safetensors'), tensors);
    return copy.directory;
  };

  it('loads random models of every family; equal seeds give equal models', async () => {
    const shapes: Partial<ModelConfig>[] = [
      { kvHeads: 4 },
      { kvHeads: 1, tiedEmbeddings: true },
      { family: 'qwen2' },
      { family: 'qwen3', headDim: 16 },
      { family: 'mistral', vocabularySize: 300 },
    ];
    for (const [index, config] of shapes.entries()) {
      const one = await randomModel(join(directory, `shape${index}`), config, 7);
      const two = await randomModel(join(directory, 'again'), config, 7);
      assert.deepEqual(two.config, one.config);
      for (const [name] of expectedTensors(one.config))
        assert.deepEqual(two.tensors.read(name), one.tensors.read(name), name);
      assert.equal(one.tensors.has('lm_head.weight'), !one.config.tiedEmbeddings);
      assert.equal(one.tensors.has('model.layers.0.self_attn.q_proj.bias'), one.config.family === 'qwen2');
      assert.equal(one.tensors.has('model.layers.1.self_attn.k_norm.weight'), one.config.family === 'qwen3');
      const tokenizer = await loadTokenizer(one.directory);
      assert.equal(tokenizer.vocabularySize, one.config.vocabularySize);
      assert.equal(tokenizer.decode(tokenizer.encode('Hi there')), 'Hi there');
    }
    const other = await randomModel(join(directory, 'other'), {}, 8);
    assert.notDeepEqual(other.tensors.read('model.norm.weight'), model.tensors.read('model.norm.weight'));
  });

  it('reads a new array each time', () => {
    const first = model.tensors.read('model.norm.weight');
    first.fill(9);
    assert.notDeepEqual(model.tensors.read('model.norm.weight'), first);
  });

  it('opens weights only from the files that it checked: regular ones that do not change before or during the opening', async () => {
    const changing = await loadModel(await variant('changing', (_, shape) => shape));
    const file = join(changing.directory, 'model.safetensors');
    const log: string[] = [];
    const open = (meanwhile: () => void) =>
      openWeights(
        changing.tensors,
        expectedTensors(changing.config),
        () => {
          log.push('open');
          meanwhile();
          return 'session';
        },
        (opened) => {
          log.push(`close ${opened}`);
        },
      );
    assert.equal(await open(() => {}), 'session');
    await assert.rejects(
      open(() => appendFileSync(file, 'x')),
      { code: 'malformed-weights', message: /was changed/ },
    );
    assert.deepEqual(log.splice(0), ['open', 'open', 'close session']);
    await assert.rejects(
      open(() => {}),
      { code: 'malformed-weights' },
    );
    // Opening a pipe for reading would wait for its writer, and a pipe cannot be mapped.
    rmSync(file);
    execFileSync('mkfifo', [file]);
    await assert.rejects(
      open(() => {}),
      { code: 'malformed-weights', message: /not a regular file/ },
    );
    rmSync(file);
    await assert.rejects(
      open(() => {}),
      { code: 'missing-file' },
    );
    assert.deepEqual(log, []);
  });

  it('names a missing tensor and a wrong shape', async () => {
    const missing = await variant('missing', (name, shape) =>
      name.endsWith('layers.1.mlp.up_proj.weight') ? null : shape,
    );
    await assert.rejects(loadModel(missing), {
      code: 'missing-tensor',
      message: /model\.layers\.1\.mlp\.up_proj\.weight.*\[64, 32\]/,
    });
    const untied = await variant('untied', (name, shape) => (name === 'lm_head.weight' ? null : shape));
    await assert.rejects(loadModel(untied), { code: 'missing-tensor', hint: /tie_word_embeddings/ });
    const wrong = await variant('wrong', (name, shape) => (name.includes('0.self_attn.k_proj') ? [32, 16] : shape));
    await assert.rejects(loadModel(wrong), { code: 'wrong-shape', message: /k_proj.*\[32, 16\].*\[16, 32\]/ });
    assert.throws(() => model.tensors.read('nothing'), { code: 'missing-tensor' });
  });

  it('loads shards, and refuses an index that names a wrong or missing shard, or a file that is no shard', async () => {
    const target = await variant('sharded', (_, shape) => shape);
    const names = expectedTensors(model.config).map(([name]) => name);
    const halves = [names.slice(0, 10), names.slice(10)];
    for (const [index, half] of halves.entries()) {
      const tensors = half.map((name) => ({
        name,
        shape: model.tensors.info(name).shape,
        data: () => model.tensors.read(name),
      }));
      await writeSafetensors(join(target, `model-0000${index + 1}-of-00002.safetensors`), tensors);
    }
    const writeIndex = (shard: (half: number) => string) => {
      const weight_map = Object.fromEntries(
        halves.flatMap((half, index) => half.map((name) => [name, shard(index + 1)])),
      );
      return writeFile(join(target, 'model.safetensors.index.json'), JSON.stringify({ metadata: {}, weight_map }));
    };
    await rm(join(target, 'model.safetensors'));
    await writeIndex((half) => `model-0000${half}-of-00002.safetensors`);
    const loaded = await loadModel(target);
    for (const name of names) assert.deepEqual(loaded.tensors.read(name), model.tensors.read(name));

    await writeIndex(() => 'model-00001-of-00002.safetensors');
    await assert.rejects(loadModel(target), { code: 'missing-tensor' });
    await writeIndex(() => 'model-00003-of-00002.safetensors');
    await assert.rejects(loadModel(target), { code: 'missing-file' });
    for (const hostile of ['../tiny/model.safetensors', '/etc/passwd', 'config.json', '.x.safetensors']) {
      await writeIndex(() => hostile);
      await assert.rejects(loadModel(target), { code: 'malformed-weights', message: /not a shard/ });
    }
  });

  it('refuses a JSON file that is too large to be read', async () => {
    const { directory: copy } = await randomModel(join(directory, 'large'), {}, 1);
    for (const [name, load] of [
      ['tokenizer.json', loadTokenizer],
      ['config.json', loadModel],
    ] as const) {
      // A hole in the file takes no disk.
      await truncate(join(copy, name), (128 << 20) + 1);
      await assert.rejects(load(copy), {
        code: 'malformed-config',
        message: new RegExp(`${name} has 134217729 bytes; the limit is 134217728`),
      });
    }
  });

  it('names the files that a directory lacks', async () => {
    const empty = await mkdtemp(join(directory, 'empty-'));
    await assert.rejects(loadModel(empty), { code: 'missing-file', message: /config\.json/ });
    await copyFile(join(model.directory, 'config.json'), join(empty, 'config.json'));
    await assert.rejects(loadModel(empty), { code: 'missing-file', message: /model\.safetensors/ });
    await writeFile(join(empty, 'config.json'), '{');
    await assert.rejects(loadModel(empty), (error) => error instanceof ModelError && error.code === 'malformed-config');
    assert.match(await readFile(join(empty, 'config.json'), 'utf8'), /^\{$/, 'the refused file stays as it is');
  });
});
