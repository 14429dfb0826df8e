import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { formatBytes, lineProgress } from './progress.ts';
import { FileServer } from './testing/file-server.ts';
import { randomEncoder } from './testing/random-encoder.ts';
import { randomModel } from './testing/random-model.ts';

describe('pie models', () => {
  let directory: string;
  let server: FileServer;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'pie-models-'));
    server = await FileServer.start();
  });
  after(async () => {
    await server.close();
    await rm(directory, { recursive: true, force: true });
  });

  const run = async (args: string[], onStart: (pid: number) => void = () => {}) => {
    const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts'), ...args], {
      env: { ...process.env, PIE_MODELS: join(directory, 'cache'), HF_ENDPOINT: server.url, HF_TOKEN: '' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    onStart(child.pid ?? 0);
    const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
    const [out, err, code] = await Promise.all([text(child.stdout), text(child.stderr), exited]);
    return { out, err, code };
  };

  it('prints the result of a pull on stdout, and its steps on stderr', async () => {
    const { directory: model } = await randomModel(join(directory, 'tiny'), {}, 1);
    const pulled = await run(['pull', `file:${model}`]);
    assert.deepEqual([pulled.code, pulled.out], [0, `file:${model} is here already: ${model}\n`]);
    const [step, memory] = pulled.err.split('\n');
    assert.equal(step, `file:${model}: checking`);
    assert.match(memory ?? '', /^memory on the CPU: weights 99 kB \+ keys and values 4\.2 MB \(16,384 tokens of 256 B/);
    const several = await run(['pull', `file:${model}`, 'nope', `file:${model}`]);
    assert.deepEqual([several.code, several.out], [3, pulled.out], 'the first failure ends the command');
    assert.match(several.err, /^nope could not be pulled:\nerror: /m);
    const json = await run(['pull', `file:${model}`, '--json']);
    const { memory: plan, ...result } = JSON.parse(json.out);
    assert.deepEqual(result, { name: `file:${model}`, directory: model, cached: true });
    assert.deepEqual([plan.bits, plan.token, plan.contextLength], [32, 256, 256]);
    assert.equal(json.err, '');
  });

  it('checks a model for the kind that `--kind` names, and by default for the kind of its config', async () => {
    const { directory: encoder } = await randomEncoder(join(directory, 'encoder'), { kind: 'embedding' }, 1);
    assert.equal((await run(['pull', `file:${encoder}`])).code, 0);
    const reranker = await run(['pull', `file:${encoder}`, '--kind', 'reranker']);
    assert.equal(reranker.code, 1);
    assert.match(reranker.err, /pooler\.dense\.weight/);
    assert.equal((await run(['pull', `file:${encoder}`, '--kind', 'vision'])).code, 2);
  });

  it('says that the cache is empty, and lists the models that can be pulled', async () => {
    const { out, code } = await run(['list']);
    assert.equal(code, 0);
    assert.match(out, /No models in .*cache/);
    assert.match(out, / {2}stories15m {2,}TinyStories/);
    assert.ok(!out.includes('\t'));
    const json = JSON.parse((await run(['list', '--json'])).out);
    assert.deepEqual(json.models, []);
    assert.deepEqual(
      json.available.map(({ name }: { name: string }) => name),
      ['stories15m', 'minimind2-small'],
    );
  });

  it('exits with code 0 when its standard output is closed', async () => {
    const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts'), 'list'], {
      env: { ...process.env, PIE_MODELS: join(directory, 'cache') },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    child.stdout.destroy();
    const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
    assert.deepEqual(await Promise.all([text(child.stderr), exited]), ['', 0]);
  });

  it('lists the models of the cache with their kinds', async () => {
    const pooling = { mode: 'mean_tokens', normalizes: true, maxTokens: 32 } as const;
    const score = { architectures: ['BertForSequenceClassification'], id2label: { 0: 'score' } };
    const moods = { ...score, id2label: { 0: 'good', 1: 'bad' } };
    const modelDirectories = [
      (await randomModel(join(directory, 'm-causal'), {}, 1)).directory,
      (await randomEncoder(join(directory, 'm-embedding'), { kind: 'embedding', pooling }, 1)).directory,
      (await randomEncoder(join(directory, 'm-moods'), { kind: 'embedding', config: moods }, 1)).directory,
      (await randomEncoder(join(directory, 'm-reranker'), { kind: 'reranker', config: score }, 1)).directory,
    ];
    for (const model of modelDirectories) {
      const name = basename(model);
      const files = await readdir(model, { recursive: true, withFileTypes: true });
      for (const file of files.filter((entry) => entry.isFile())) {
        const path = join(file.parentPath, file.name);
        const served = `/o/${name}/resolve/main/${relative(model, path)}`;
        server.files.set(served, { bytes: await readFile(path) });
      }
      // The `architectures` of m-moods imply a reranker, but a reranker has one label and m-moods has two.
      const kind = name === 'm-moods' ? ['--kind', 'embedding'] : [];
      assert.equal((await run(['pull', `hf:o/${name}`, ...kind])).code, 0);
    }
    const { models } = JSON.parse((await run(['list', '--json'])).out);
    assert.deepEqual(
      models.map(({ source, kind, family, contextLength }: Record<string, unknown>) => [
        source,
        kind,
        family,
        contextLength,
      ]),
      [
        ['hf:o/m-causal', 'causal', 'llama', 256],
        ['hf:o/m-embedding', 'embedding', 'bert', 32],
        ['hf:o/m-moods', 'embedding', 'bert', 64],
        ['hf:o/m-reranker', 'reranker', 'bert', 64],
      ],
    );
    for (const [index, model] of modelDirectories.entries()) {
      const files = await readdir(models[index].directory, { recursive: true, withFileTypes: true });
      const sizes = files.map(async (file) =>
        file.isFile() ? (await stat(join(file.parentPath, file.name))).size : 0,
      );
      assert.equal(
        models[index].bytes,
        (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0),
        model,
      );
    }
    const { out } = await run(['list']);
    assert.match(out, /^NAME +KIND +FAMILY +CONTEXT +SIZE +SOURCE$/m);
    assert.match(out, /^hf--o--m-embedding +embedding +bert +32 +[\d.]+ kB +hf:o\/m-embedding$/m);
  });

  it('reports an error with a hint, and exits with a code for the kind of error', async () => {
    const unknown = await run(['pull', 'nope']);
    assert.equal(unknown.code, 3);
    assert.match(unknown.err, /error: there is no model "nope"\nhint: known models: stories15m/);
    const json = await run(['pull', 'hf:no/body', '--json']);
    assert.equal(json.code, 3);
    assert.equal(JSON.parse(json.out).error.code, 'unknown-model');
    const usage = await run(['pull']);
    assert.equal(usage.code, 2);
    assert.match(usage.err, /missing required argument/);
    const help = await run(['--help']);
    assert.equal(help.code, 0);
    assert.match(help.out, /hf:OWNER\/MODEL/);
    server.files.set('/o/m/resolve/main/config.json', { bytes: Buffer.from('{}'), statuses: [403] });
    assert.equal((await run(['pull', 'hf:o/m'])).code, 5);
  });

  it('replaces control characters in names from a model file, and shortens long names', async () => {
    const { directory: model } = await randomModel(join(directory, 'named'), {}, 1);
    for (const [name, shown] of [
      ['\x1b[2J\r\nready\u202e', /^error: .*"\ufffd\[2J\ufffd{2}ready\ufffd"/m],
      ['A'.repeat(1 << 20), /^error: .*A{900}.*…$/m],
    ] as const) {
      const config = JSON.parse(await readFile(join(model, 'config.json'), 'utf8'));
      await writeFile(join(model, 'config.json'), JSON.stringify({ ...config, model_type: name }));
      const { err, code } = await run(['pull', `file:${model}`]);
      assert.equal(code, 1);
      assert.match(err, shown);
      assert.ok(err.length < 2000 && !err.includes('\x1b'));
    }
  });

  it('stops at an interrupt', async () => {
    const bytes = Buffer.alloc(1000);
    server.files.set('/o/slow/resolve/main/config.json', { bytes, stalls: true });
    let pid = 0;
    const poll = setInterval(() => {
      if (!server.requests.some(({ method, path }) => method === 'GET' && path.includes('slow'))) return;
      // Send SIGINT only once: a second one would kill the process.
      clearInterval(poll);
      process.kill(pid, 'SIGINT');
    }, 50);
    try {
      const { code, err } = await run(['pull', 'hf:o/slow'], (started) => {
        pid = started;
      });
      assert.equal(code, 130);
      assert.match(err, /cancelled/);
    } finally {
      clearInterval(poll);
    }
  });
});

describe('lineProgress', () => {
  it('shows 0 % for an empty file', (t) => {
    const { mock } = t.mock.method(process.stderr, 'write', () => true);
    lineProgress('m', true).update({ phase: 'download', file: 'f', doneBytes: 0, totalBytes: 0 });
    assert.deepEqual(mock.calls.at(-1)?.arguments, ['m: downloading f: 0 B of 0 B (0 %)\n']);
  });

  it('repeats the line of a conversion when 5 s have passed', (t) => {
    const { mock } = t.mock.method(process.stderr, 'write', () => true);
    let nowMs = 10_000;
    t.mock.method(performance, 'now', () => nowMs);
    const progress = lineProgress('m', true);
    for (const done of [1, 2, 3, 4]) {
      progress.update({ phase: 'convert', done, total: 9 });
      nowMs += 3000;
    }
    assert.deepEqual(
      mock.calls.map(({ arguments: [line] }) => line),
      ['m: writing tensors: 1 of 9\n', 'm: writing tensors: 3 of 9\n'],
    );
  });
});

describe('formatBytes', () => {
  it('rounds to decimal units', () => {
    assert.deepEqual([0, 999, 1000, 112_351_287, 16e9].map(formatBytes), ['0 B', '999 B', '1.0 kB', '112 MB', '16 GB']);
  });
});
