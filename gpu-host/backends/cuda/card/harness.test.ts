import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { copyFile, mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { build } from '../build-cache.ts';

const TOY = 'shape=toy sequences=4 context=40 room=24 rows=64';

/** Runs the card's program on the emulation: checks must detect a wrong weight, and every measurement must run. The times mean nothing here. */
describe('cuda-harness, emulated', () => {
  let folder: string;
  let harness: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'pie-harness-'));
    harness = await build('harness', { emulated: true });
    const written = await run(process.execPath, [join(import.meta.dirname, 'fixtures.ts'), folder, '--small']);
    assert.equal(written.code, 0, written.stderr);
  });
  after(() => rm(folder, { recursive: true, force: true }));

  test('every handler matches the reference, in bf16 and float32', async (context) => {
    const json = join(folder, 'check.json');
    const { code, stdout, stderr } = await run(harness, ['check', folder, '--json', json]);
    context.diagnostic(`\n${stdout}`);
    assert.equal(code, 0, `${stdout}${stderr}`);
    const { good, models } = JSON.parse(await readFile(json, 'utf8'));
    assert.equal(good, true);
    assert.equal(models.length, 4);
    for (const { handlers } of models) assert.ok(handlers.length >= 8, `${handlers.length} handlers`);
    const alone = await run(harness, ['check', folder, '--only', 'heads-of-64', '--precision', 'bf16', '--no-shared']);
    assert.equal(alone.code, 0, `${alone.stdout}${alone.stderr}`);
  });

  test('a single wrong weight is detected', async () => {
    const broken = await mkdtemp(join(tmpdir(), 'pie-harness-broken-'));
    try {
      for (const name of await readdir(folder)) {
        if (name.startsWith('qwen-3.')) await copyFile(join(folder, name), join(broken, name));
      }
      // Flip the sign of one value of the last norm, which lies before the head at the end of the file.
      const file = await open(join(broken, 'qwen-3.safetensors'), 'r+');
      const { size } = await file.stat();
      // bf16, 96 tokens, 32 values for each.
      const headBytes = 2 * 96 * 32;
      const at = size - headBytes - 1;
      const { buffer } = await file.read(Buffer.alloc(1), 0, 1, at);
      await file.write(Buffer.of((buffer[0] as number) ^ 0x80), 0, 1, at);
      await file.close();
      for (const precision of ['bf16', 'float32']) {
        const { code, stdout } = await run(harness, ['check', broken, '--precision', precision]);
        assert.equal(code, 1, stdout);
        assert.match(stdout, /NOT within the aims/);
      }
    } finally {
      await rm(broken, { recursive: true, force: true });
    }
  });

  test('the check fails for a damaged fixture, a fixture without results, and a report that cannot be written', async () => {
    const other = await mkdtemp(join(tmpdir(), 'pie-harness-damaged-'));
    try {
      await copyFile(join(folder, 'qwen-3.safetensors'), join(other, 'qwen-3.safetensors'));
      const whole = await readFile(join(folder, 'qwen-3.fixture'));
      const check = async (fixture: Uint8Array, ...options: string[]) => {
        await writeFile(join(other, 'qwen-3.fixture'), fixture);
        return run(harness, ['check', other, '--precision', 'bf16', ...options]);
      };
      // The count of the frequencies follows the magic, the label and 13 words.
      const damaged = Buffer.from(whole);
      damaged.writeUInt32LE(0xffff_ffff, 12 + Math.ceil(whole.readUInt32LE(8) / 4) * 4 + 13 * 4);
      const cut = await check(damaged);
      assert.equal(cut.code, 2, cut.stdout);
      assert.match(cut.stderr, /is truncated/);
      const withoutResults = whole.subarray(0, whole.indexOf(Buffer.from('\x01\0\0\0\x06\0\0\0causal')));
      const empty = await check(withoutResults);
      assert.equal(empty.code, 1, empty.stdout);
      assert.match(empty.stdout, /compares no results/);
      const unwritable = await check(withoutResults, '--json', join(other, 'missing', 'check.json'));
      assert.equal(unwritable.code, 2, unwritable.stdout);
      assert.match(unwritable.stderr, /check\.json cannot be written/);
    } finally {
      await rm(other, { recursive: true, force: true });
    }
  });

  test('every measurement answers, and failed ones state why', async () => {
    const commands = [
      'device',
      'copy megabytes=1 times=1',
      'matmul size=64 times=1',
      'decode batch=1',
      `load ${TOY}`,
      'decode batch=2 context=40 steps=4',
      'decode batch=2 context=40 steps=4 candidates=8',
      'decode batch=2 context=40 steps=4 candidates=0',
      'decode batch=5 context=40 steps=4',
      'prefill tokens=40 times=1',
      'swap tokens=32 times=1',
      'unload',
      'kernels shape=toy batch=2 context=40',
      'kernels shape=toy rows=40',
      'kernels shape=toy batch=2 context=40 kv=fp8',
      'kernels shape=toy batch=4 context=360 prefix=320',
      'kernels shape=toy batch=4 context=360 prefix=320 shared=0',
      'load shape=toy sequences=4 context=360 prefix=320 room=24 rows=64',
      'decode batch=4 context=360 steps=2',
      'load shape=toy sequences=4 context=40 room=24 rows=64 adapters=3 rank=5',
      'decode batch=4 context=40 steps=3',
      'load shape=toy prefix=20 context=40',
      `load ${TOY} kv=fp8`,
      'decode batch=2 context=40 steps=3',
      'swap tokens=16 times=1',
      'load shape=toy kv=fp4',
      'load shape=toy room=0',
      'decode batch=',
      'linear shape=toy most=1',
      'load shape=toy sequence=4',
      'unheard of=1',
    ];
    const { code, stdout } = await run(harness, ['bench'], `${commands.join('\n')}\nquit\nnot reached\n`);
    assert.equal(code, 0);
    const answers = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual(
      answers.map(({ command }) => command),
      commands,
    );
    const answerTo = (command: string) => answers.find((each) => each.command === command);
    assert.equal(answerTo('device').result.emulated, true);
    assert.ok(answerTo('copy megabytes=1 times=1').result.bytesPerSecond > 0);
    assert.match(answerTo('decode batch=1').error, /nothing is loaded/);
    const decode = answerTo('decode batch=2 context=40 steps=4').result;
    assert.equal(decode.deviceMs.count, 4);
    assert.equal(decode.graphsRefused, 0);
    assert.ok(decode.wallMs.median > 0 && decode.floorBytes > 0);
    assert.ok(answerTo('decode batch=2 context=40 steps=4 candidates=8').result.pipelinedMs.median > 0);
    assert.match(answerTo('decode batch=2 context=40 steps=4 candidates=0').error, /from 1 to 512/);
    assert.match(answerTo('decode batch=5 context=40 steps=4').error, /made for less/);
    assert.ok(answerTo('prefill tokens=40 times=1').result.flopsPerSecond > 0);
    assert.equal(answerTo('decode batch=4 context=40 steps=3').result.adapters, 3);
    const swap = answerTo('swap tokens=32 times=1').result;
    // 32 slots, 2 layers, a key and a value, 2 heads of 64, 2 bytes.
    assert.equal(swap.bytes, 32 * 2 * 2 * 2 * 64 * 2);
    assert.ok(swap.swapInMs.median > 0 && swap.prefill.wallMs.median > 0);
    // A slot has 256 codes and 2 × 2 scales in whole sectors of 32 bytes, against 512 bytes in bf16.
    assert.equal(answerTo('swap tokens=16 times=1').result.bytes, 16 * 2 * 288);
    const narrow = answerTo('decode batch=2 context=40 steps=3').result;
    // 2 layers, 2 sequences, 40 keys each.
    assert.equal(decode.floorBytes - narrow.floorBytes, (512 - 288) * 2 * 2 * 40);
    assert.match(answerTo('load shape=toy kv=fp4').error, /bf16 or fp8/);
    assert.match(answerTo('load shape=toy room=0').error, /room must be at least 1/);
    assert.match(answerTo('decode batch=').error, /a count is expected/);
    const bytesOf = (command: string) =>
      answerTo(command).result.kernels.find(({ kernel }: { kernel: string }) => kernel === 'attention').bytes;
    const wide = bytesOf('kernels shape=toy batch=2 context=40');
    // 2 sequences, 41 keys each: the context and the sequence's input.
    assert.equal(wide - bytesOf('kernels shape=toy batch=2 context=40 kv=fp8'), (512 - 288) * 2 * 41);
    // The 320 shared keys count once. Each of the four sequences has 41 keys to itself, twice as many in all as the two sequences of `wide`.
    const sharing = bytesOf('kernels shape=toy batch=4 context=360 prefix=320');
    assert.equal(sharing, bytesOf('kernels shape=toy batch=4 context=360 prefix=320 shared=0'));
    assert.equal(sharing - 2 * wide, 512 * 320);
    const decodedSharing = answerTo('decode batch=4 context=360 steps=2').result;
    assert.equal(decodedSharing.deviceMs.count, 2);
    // 2 layers; 320 shared keys and 4 × 40 others, against 2 × 40 keys of `decode`.
    assert.equal(decodedSharing.floorBytes - decode.floorBytes, 512 * 2 * (320 + 4 * 40 - 2 * 40));
    assert.match(answerTo('load shape=toy prefix=20 context=40').error, /whole pages/);
    const step = answerTo('kernels shape=toy batch=2 context=40').result;
    const names = step.kernels.map(({ kernel }: { kernel: string }) => kernel);
    for (const name of ['qkv', 'o', 'gate_up', 'down', 'head', 'attention', 'top 1'])
      assert.ok(names.includes(name), name);
    assert.ok(answerTo('linear shape=toy most=1').result.linears.length > 10);
    assert.match(answerTo('load shape=toy sequence=4').error, /no setting "sequence"/);
    assert.match(answerTo('unheard of=1').error, /no command/);
  });
});

function run(
  program: string,
  args: readonly string[],
  input = '',
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    let [stdout, stderr] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr }));
    // A program may end without reading its input.
    child.stdin.on('error', () => undefined).end(input);
  });
}
