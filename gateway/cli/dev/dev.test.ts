import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import { after, before, describe, it } from 'node:test';
import { newHome } from '#test/harness/platform.ts';
import { PieClient } from '../../client/client.ts';
import { freePort } from '../../local/platform.ts';
import { Following } from '../commands/project.ts';
import { pinnedNode, ROOT } from '../paths.ts';

/** A build yields the cores to all other processes, so a deploy takes minutes on a busy machine. */
const DEADLINE_MS = 240_000;

type Line = { kind?: string; event?: string; [member: string]: unknown };

/** The process of `pie dev --json` and its output. */
class Dev {
  readonly process: ChildProcess;
  readonly ended: Promise<number | null>;
  readonly lines: Line[] = [];
  stderr = '';
  #onLine: () => void = () => undefined;

  constructor(args: readonly string[], cwd: string, env: NodeJS.ProcessEnv) {
    this.process = spawn(pinnedNode(), [path.join(ROOT, 'gateway/cli/main.ts'), 'dev', '--json', ...args], {
      cwd,
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.ended = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
    });
    if (this.process.stdout === null) throw new Error('no output');
    readline.createInterface({ input: this.process.stdout }).on('line', (line) => {
      this.lines.push(JSON.parse(line) as Line);
      this.#onLine();
    });
  }

  /** Takes the next line of a kind. The kind `event:…` means the line of an invocation's event. */
  async next(kind: string): Promise<Line> {
    for (;;) {
      const at = this.lines.findIndex((line) => (line.kind ?? `event:${line.event}`) === kind);
      if (at >= 0) return this.lines.splice(at, 1)[0] as Line;
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`no "${kind}" in time: ${this.stderr}`)), DEADLINE_MS);
        this.#onLine = () => {
          clearTimeout(timer);
          resolve();
        };
        void this.ended.then((code) => {
          clearTimeout(timer);
          reject(new Error(`it ended with ${code}: ${this.stderr}`));
        });
      });
    }
  }
}

describe('the log that pie dev follows', () => {
  it('is followed once, and the next deploy follows it again after a failure', async () => {
    const following = new Following();
    const begun: AbortSignal[] = [];
    const fails = async (until: AbortSignal) => {
      begun.push(until);
    };
    const lasts = async (until: AbortSignal, begins: () => void) => {
      begun.push(until);
      begins();
      await once(until, 'abort');
    };
    await following.follow('greeter', fails);
    await following.follow('greeter', lasts);
    await following.follow('greeter', lasts);
    assert.equal(begun.length, 2);
    await following.follow('other', lasts);
    assert.deepEqual(
      begun.map(({ aborted }) => aborted),
      [true, true, false],
    );
    await following.stop();
  });
});

describe('pie dev', () => {
  let home = '';
  let project = '';
  let environment: NodeJS.ProcessEnv = {};
  before(async () => {
    home = await newHome();
    project = path.join(home, 'project');
    mkdirSync(path.join(project, 'src'), { recursive: true });
    write('pie.json', '{"name":"greeter","main":"src/index.ts"}');
    write(
      'src/index.ts',
      `import { word } from './word.ts';\nexport const run = () => (console.log(word), { word });\n`,
    );
    write('src/word.ts', `export const word: string = 'one';\n`);
    write('src/unused.ts', '');
    const { PIE_URL: _url, PIE_API_KEY: _key, REDIS_URL: _redis, ...rest } = process.env;
    environment = { ...rest, PIE_HOME: home, PIE_PORT: String(await freePort()), PIE_MODEL: 'stories15m' };
  });
  after(() => rmSync(home, { recursive: true, force: true, maxRetries: 10 }));

  function write(file: string, text: string): void {
    writeFileSync(path.join(project, file), text);
  }

  it('starts a platform, deploys and invokes after every save of a bundled file, and ends at Ctrl-C', async () => {
    const dev = new Dev(['--invoke', '{}'], project, environment);
    try {
      assert.equal((await dev.next('serving')).own, true);
      const first = await dev.next('deployed');
      assert.equal(first.name, 'greeter');
      assert.deepEqual(resultOf(await dev.next('event:result')), { word: 'one' });
      assert.equal((await dev.next('log')).message, 'one');

      // The file is not in the bundle, so only the save after it triggers a deploy.
      write('src/unused.ts', 'export const x = 1;');
      // Editors save by replacing the old file with a new one.
      write('src/word.tmp', `export const word: string = 'two';\n`);
      renameSync(path.join(project, 'src/word.tmp'), path.join(project, 'src/word.ts'));
      const second = await dev.next('deployed');
      assert.notEqual(second.version, first.version);
      assert.deepEqual(resultOf(await dev.next('event:result')), { word: 'two' });

      write('src/word.ts', `import { more } from './more.ts';\nexport const word: string = more;\n`);
      assert.match(String((await dev.next('failed')).message), /src\/word\.ts:1:22: Could not resolve/);
      write('src/more.ts', `export const more = 'three';\n`);
      const third = await dev.next('deployed');
      assert.deepEqual(resultOf(await dev.next('event:result')), { word: 'three' });
      const { url, apiKey } = JSON.parse(readFileSync(path.join(home, 'credentials.json'), 'utf8'));
      const listed = await new PieClient({ url, apiKey }).versions('greeter');
      assert.deepEqual(
        listed.map(({ version }) => version),
        [third.version],
        'replaced versions are removed',
      );
    } finally {
      dev.process.kill('SIGINT');
    }
    assert.equal(await dev.ended, 0, dev.stderr);
    await assert.rejects(fetch(`http://127.0.0.1:${environment.PIE_PORT}/readyz`));
  });

  it('stops the platform that it started, even when killed, and no other platform', async () => {
    write('src/word.ts', `export const word: string = 'one';\n`);
    const owner = new Dev([], project, environment);
    let pid = 0;
    try {
      await owner.next('deployed');
      pid = Number(readFileSync(path.join(home, 'run/supervisor.pid'), 'utf8'));
      const second = new Dev([], project, environment);
      try {
        assert.equal((await second.next('serving')).own, false);
        await second.next('deployed');
      } finally {
        second.process.kill('SIGINT');
      }
      assert.equal(await second.ended, 0, second.stderr);
      assert.ok(isAlive(pid));
    } finally {
      owner.process.kill('SIGKILL');
    }
    const deadline = Date.now() + DEADLINE_MS;
    while (isAlive(pid)) {
      assert.ok(Date.now() < deadline, 'the platform outlived its owner');
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  });
});

function resultOf(line: Line): unknown {
  return (line.data as { output: unknown }).output;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // A zombie has ended.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
