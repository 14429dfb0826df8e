import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { newHome } from '#test/harness/platform.ts';
import { noRustc } from '#test/harness/rust.ts';
import { freePort } from '../local/platform.ts';
import { EXIT } from './failure.ts';
import { pinnedNode, ROOT } from './paths.ts';

// Tests the command `pie` against a platform with all its real processes, the default models, and its own home and port.

/** Far longer than a quiet machine needs, because other tests compile beside this one. */
const DEADLINE_MS = 180_000;

const WITHOUT_RUST = await noRustc();

let home = '';
/** Why a GPU host computes the default models as it does. */
const WHY = 'no GPU was found, and it is the fastest on the CPU';

let environment: NodeJS.ProcessEnv = {};
let platform: ChildProcess;

interface Result {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

interface Options {
  readonly env?: NodeJS.ProcessEnv;
  /** Written to standard input, which then ends. */
  readonly input?: string;
  /** Called with the whole output so far at each new piece. */
  readonly watch?: (child: ChildProcess, stdout: string) => void;
}

function pie(args: readonly string[], options: Options = {}): Promise<Result> {
  const child = spawn(process.execPath, [path.join(ROOT, 'gateway/cli/bin.js'), ...args], {
    cwd: home,
    env: { ...environment, ...options.env },
    timeout: DEADLINE_MS,
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    options.watch?.(child, stdout);
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  // A program may end without reading its input.
  child.stdin.on('error', () => undefined).end(options.input ?? '');
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, stdout, stderr })));
}

/** Runs a command that must succeed; returns its standard output. */
async function ok(args: readonly string[], options?: Options): Promise<string> {
  const { code, stdout, stderr } = await pie(args, options);
  assert.equal(code, EXIT.ok, stderr);
  return stdout;
}

function invoke(act: string, ...more: string[]): string[] {
  return ['invoke', 'talker', '--input', JSON.stringify({ act }), ...more];
}

before(async () => {
  home = await newHome();
  const { PIE_URL: _url, PIE_API_KEY: _key, REDIS_URL: _redis, ...rest } = process.env;
  environment = { ...rest, PIE_HOME: home, PIE_PORT: String(await freePort()) };
  platform = spawn(pinnedNode(), [path.join(ROOT, 'infra/up.ts'), '--no-functions', '--no-story', '--json'], {
    env: environment,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('the platform did not start in time')), DEADLINE_MS);
    platform.once('exit', (code) => reject(new Error(`the platform ended with ${code}`)));
    platform.stdout?.setEncoding('utf8').on('data', (text: string) => {
      if (!text.includes('"serving"')) return;
      clearTimeout(timer);
      resolve();
    });
  });
  await Promise.all([
    ok(['deploy', path.join(ROOT, 'gateway/cli/fixtures/talker.ts')]),
    ok(['deploy', path.join(ROOT, 'functions/sdk/fixtures/conformance.ts')]),
  ]);
});

after(async () => {
  if (platform.exitCode === null) {
    const ended = new Promise((resolve) => platform.once('exit', resolve));
    platform.kill('SIGTERM');
    await ended;
  }
  rmSync(home, { recursive: true, force: true, maxRetries: 10 });
});

describe('pie deploy', () => {
  it('reports the deployed version and the next command, and recognises unchanged content', async () => {
    const source = path.join(home, 'Little One.js');
    // Unique to this run, because a version is its content.
    writeFileSync(source, `export const run = () => ({ one: 1, at: ${Date.now()} });`);
    const first = await pie(['deploy', source]);
    assert.equal(first.code, EXIT.ok, first.stderr);
    assert.match(
      first.stdout,
      /^little-one@[0-9a-f]+ {2}new version\n {2}script [\s\S]*\n {2}build +made here in .*, built in .*\(evaluate .*\)\n {2}start +cold [\d.]+ m?s, warm [\d.]+ m?s \(a ready instance taken from the pool\)\n[\s\S]*\nhttp:.*\/v1\/functions\/little-one\/invocations\n$/,
    );
    assert.match(first.stderr, /Building[\s\S]*Deployed little-one \(\d+ B\) in[\s\S]*Next: pie invoke little-one/);
    const again = JSON.parse(await ok(['deploy', source, '--json'])) as Record<string, unknown>;
    assert.equal(again.created, false);
    assert.equal((JSON.parse(await ok(['invoke', 'little-one'])) as { one: number }).one, 1);
    const versions = await ok(['versions', 'little-one', '--json']);
    assert.equal((JSON.parse(versions) as unknown[]).length, 1);
    await ok(['remove', 'little-one']);
    assert.equal((await pie(['invoke', 'little-one'])).code, EXIT.refused);
  });

  it('deploys the valid functions among several', async () => {
    const [good, bad, other] = ['good', 'bad', 'other'].map((name) => path.join(home, `${name}.js`)) as [
      string,
      string,
      string,
    ];
    writeFileSync(good, 'export const run = () => 1;');
    writeFileSync(bad, 'export const run = ;');
    writeFileSync(other, 'export const run = () => 2;');
    const { code, stdout, stderr } = await pie(['deploy', good, bad, other, '--json']);
    assert.equal(code, EXIT.refused);
    const deployed = stdout.trim().split('\n');
    assert.deepEqual(deployed.map((line) => (JSON.parse(line) as { name: string }).name).sort(), ['good', 'other']);
    assert.match((JSON.parse(stderr) as { error: { message: string } }).error.message, /^bad: .*bad\.js:1:20/);
    assert.equal(await ok(['invoke', 'other']), '2\n');
    assert.match((await pie(['deploy', good, other])).stderr, /2 of 2[\s\S]*Deployed 2 functions, 0 of them new/);
    assert.equal((await pie(['deploy', good, other, '--name', 'both'])).code, EXIT.usage);
  });

  it('compiles a folder in Rust', { skip: WITHOUT_RUST }, async () => {
    const folder = path.join(home, 'rusty');
    mkdirSync(folder);
    writeFileSync(path.join(folder, 'pie.json'), '{ "name": "rusty", "main": "main.rs" }');
    const body = '  pie::send("hello")?;\n  Ok(input.get("a").clone())';
    writeFileSync(
      path.join(folder, 'main.rs'),
      `fn run(input: pie::Json) -> Result<pie::Json, pie::types::Error> {\n${body}\n}\npie::inferlet!(run);\n`,
    );
    const { created } = JSON.parse(await ok(['deploy', folder, '--json'])) as { created: boolean };
    assert.equal(created, true);
    const events = (await ok(['invoke', 'rusty', '--input', '{"a":[1,"b"]}', '--json']))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: string; data: { text?: string; output?: unknown } });
    assert.deepEqual(events.find(({ event }) => event === 'message')?.data.text, 'hello');
    assert.deepEqual(events.at(-1)?.data.output, [1, 'b']);
  });

  it('shows file and line of a fault and stores nothing', async () => {
    const source = path.join(home, 'faulty.ts');
    writeFileSync(source, 'const a = 1;\nexport const run = () => a +;\n');
    // `XDG_CACHE_HOME` is a file, so the folder of compiled libraries cannot be created: the command reports only the fault of the source.
    const { code, stderr } = await pie(['deploy', source], { env: { XDG_CACHE_HOME: source } });
    assert.equal(code, EXIT.refused);
    assert.match(stderr, /faulty\.ts:2:29: Unexpected ";"\n {4}export const run/);
    writeFileSync(source, 'import fs from "node:fs";\nexport const run = () => fs.readdirSync("/");\n');
    const builtin = await pie(['deploy', source, '--json']);
    assert.equal(builtin.code, EXIT.refused);
    assert.match((JSON.parse(builtin.stderr) as { error: { message: string } }).error.message, /node:fs/);
    assert.doesNotMatch(await ok(['list']), /faulty/);
  });

  it('refuses a file that is no inferlet component, with an error code that says what it is', async () => {
    const file = path.join(home, 'bytes.wasm');
    const cases = { 'not-wasm': 'text', 'core-module': '\0asm\x01\0\0\0' };
    for (const [code, bytes] of Object.entries(cases)) {
      writeFileSync(file, bytes, 'latin1');
      const refused = await pie(['deploy', file, '--json']);
      assert.equal(refused.code, EXIT.refused);
      assert.equal((JSON.parse(refused.stderr) as { error: { code: string } }).error.code, code);
    }
  });
});

describe('pie invoke', () => {
  it('sends messages from the command line, then from standard input', async () => {
    const spoken = await ok(invoke('chat', '--message', 'hello', '--message', 'bye'));
    assert.equal(spoken, 'begin\nyou said hello\n');
    const typed = await ok(invoke('chat', '--interactive'), { input: 'one\ntwo\n' });
    assert.equal(typed, 'begin\nyou said one\nyou said two\n');
    const silent = await ok(invoke('chat', '--json'));
    const last = JSON.parse(silent.trim().split('\n').at(-1) ?? '') as { event: string; data: { output: unknown } };
    assert.equal(last.event, 'result');
    assert.deepEqual(last.data.output, { heard: [], closed: true });
  });

  it('prints one JSON event a line with --json, numbered from 1', async () => {
    const lines = (await ok(invoke('chat', '--message', 'bye', '--json'))).trim().split('\n');
    const events = lines.map((line) => JSON.parse(line) as { id: string; event: string });
    const [epoch] = events[0]?.id.split('-') ?? [];
    assert.deepEqual(
      events.map(({ id }) => id),
      events.map((_, i) => `${epoch}-${i + 1}`),
    );
    assert.equal(events[0]?.event, 'start');
  });

  it('exits with 3 and the cause when the function fails', async () => {
    const { code, stderr } = await pie(invoke('throw'));
    assert.equal(code, EXIT.failed);
    assert.match(stderr, /error: TypeError: thrown on purpose[\s\S]*inferlet-error, invocation inv_/);
  });

  it('exits with 2 when the request is refused', async () => {
    for (const [args, env, code] of [
      [['invoke', 'nobody'], {}, 'unknown-function'],
      [['list'], { PIE_API_KEY: 'pie_wrong' }, 'unauthorized'],
    ] as const) {
      const refused = await pie([...args, '--json'], { env });
      assert.equal(refused.code, EXIT.refused);
      assert.equal((JSON.parse(refused.stderr) as { error: { code: string } }).error.code, code);
    }
  });

  it('exits with 0 and no error when the reader closes standard output', async () => {
    let hasClosed = false;
    const { code, stderr } = await pie(invoke('chat', '--message', 'one', '--message', 'two', '--json'), {
      watch: (child) => {
        if (hasClosed) return;
        hasClosed = true;
        child.stdout?.destroy();
      },
    });
    assert.equal(code, EXIT.ok, stderr);
    assert.equal(stderr, '');
  });

  it('cancels at Ctrl-C and reports the cancellation', async () => {
    let interrupted = false;
    const { code, stdout, stderr } = await pie(invoke('wait'), {
      watch: (child, text) => {
        if (!interrupted && text.includes('waiting')) interrupted = child.kill('SIGINT');
      },
    });
    assert.equal(code, EXIT.interrupted, stderr);
    assert.equal(stdout, 'waiting\n');
    const id = /invocation (inv_\w+)/.exec(stderr)?.[1] ?? '';
    assert.match(await ok(['status', id]), / cancelled /);
  });
});

describe('an invocation', () => {
  it('can be started with --async, inspected, attached to and cancelled', async () => {
    const id = (await ok(invoke('wait', '--async'))).trim();
    assert.match(id, /^inv_/);
    const [attached] = await Promise.all([
      pie(['attach', id]),
      (async () => {
        await ok(['status', id]);
        assert.match(await ok(['cancel', id]), /cancelled/);
      })(),
    ]);
    assert.equal(attached.code, EXIT.interrupted, attached.stderr);
    assert.match(attached.stderr, /cancelled, invocation/);
  });

  it('ends at its --cancel-after time', async () => {
    const { code, stderr } = await pie(invoke('wait', '--cancel-after', '1s'));
    assert.equal(code, EXIT.failed);
    assert.match(stderr, /deadline-exceeded, invocation inv_/);
  });

  it('exchanges files and reports them', async () => {
    const id = (await ok(invoke('file', '--async'))).trim();
    writeFileSync(path.join(home, 'note.txt'), 'abc');
    const put = ['files', 'put', id, 'note.txt', '--name', 'given.txt', '--type', 'text/plain'];
    assert.equal(await ok(put), 'given.txt  3 B  text/plain\n');
    assert.equal(await ok(['attach', id]), 'file turned.txt (3 bytes)\n{\n  "bytes": 3\n}\n');
    const file = { name: 'turned.txt', mediaType: 'text/plain', bytes: 3 };
    assert.deepEqual(JSON.parse(await ok(['files', 'list', id, '--json'])), [{ ...file, name: 'given.txt' }, file]);
    assert.match(await ok(['files', 'list', id]), /given\.txt +3 B +text\/plain/);
    assert.equal(await ok(['files', 'get', id, 'turned.txt', '--output', '-']), 'cba');
    const got = JSON.parse(await ok(['files', 'get', id, 'turned.txt', '--json'])) as Record<string, unknown>;
    assert.deepEqual([got.bytes, readFileSync(path.join(home, 'turned.txt'), 'utf8')], [3, 'cba']);
    const missing = await pie(['files', 'get', id, 'none']);
    assert.equal(missing.code, EXIT.refused);
    assert.match(missing.stderr, /unknown-file/);
    assert.equal((await pie(['files', 'put', id, 'nowhere.txt'])).code, EXIT.usage);
    assert.equal((await pie(put)).code, EXIT.refused, 'the invocation has ended');
  });

  it('keeps its log after its end', async () => {
    await ok(invoke('log'));
    assert.match(await ok(['logs', 'talker', '--level', 'warn']), /warn {3}inv_\w+ {2}about to finish/);
    const written = await ok([
      'logs',
      '--search',
      'of the console',
      '--since',
      '5m',
      '--status',
      'succeeded',
      '--json',
    ]);
    assert.deepEqual(
      written
        .trim()
        .split('\n')
        .map((line) => {
          const { level, function: name, message } = JSON.parse(line) as Record<string, string>;
          return [level, name, message];
        }),
      [
        ['debug', 'talker', 'of the console { deep: [1] }'],
        ['error', 'talker', 'of the console'],
      ],
    );
    assert.match((await pie(invoke('log', '--logs'))).stderr, /\[warn\] about to finish/);
  });
});

describe('pie doctor', () => {
  it('reports no failure on a working platform', async () => {
    const { healthy, findings } = JSON.parse(await ok(['doctor', '--json'])) as {
      healthy: boolean;
      findings: { name: string; state: string; detail: string }[];
    };
    assert.ok(healthy);
    // These checks may warn: an unused card gives a hint, and the machine may lack namespaces or control groups.
    const hints = ['cards', 'devices', 'isolation of runtime-1', 'limits of runtime-1'];
    assert.deepEqual(
      findings.filter(({ name, state }) => state === 'failed' || (state === 'warning' && !hints.includes(name))),
      [],
    );
    assert.ok(findings.some(({ name }) => name === 'gateway'));
    assert.match(
      findings.find(({ name }) => name === 'isolation of runtime-1')?.detail ?? '',
      /^(namespaces|process)$/,
    );
    assert.match(
      findings.find(({ name }) => name === 'limits of runtime-1')?.detail ?? '',
      /^memory by (cgroup|rlimit), demotion by (cgroup|autogroup|none)$/,
    );
    assert.equal(
      findings.find(({ name }) => name === 'gpu-host-1')?.detail,
      `stories15m by onnx, float32 on CPU (${WHY}); minimind2-small by onnx, float32 on CPU (${WHY})`,
    );
  });
});

describe('@pie/inferlet', () => {
  it('decodes the same tokens by every decoding method and fails with the right codes', async () => {
    const { holds, errors } = JSON.parse(await ok(['invoke', 'conformance'])) as {
      holds: Record<string, boolean>;
      errors: Record<string, string>;
    };
    assert.deepEqual(
      Object.entries(holds).filter(([, value]) => !value),
      [],
    );
    assert.deepEqual(errors, {
      vocabulary: 'invalid-argument',
      tooLong: 'context-overflow',
      model: 'not-found',
      released: 'closed',
      busy: 'invalid-argument',
      unknownName: 'not-found',
      noName: 'invalid-argument',
      nothingFilled: 'invalid-argument',
      unknownBeginning: 'invalid-argument',
      ahead: 'invalid-argument',
      endless: 'invalid-argument',
      grammar: 'invalid-argument',
      leftBehindConstrained: 'closed',
      leftBehind: 'closed',
    });
  });
});
