import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { after, before, describe, it } from 'node:test';
import { extract } from 'tar';
import { defaultCacheDirectory } from '#gpu-host/models/cache.ts';
import { freePort, type ProgramResult, ROOT, runProgram } from '#test/harness/platform.ts';

/**
 * These tests use Pie outside its clone: they install both tarballs, then create, test, deploy and invoke a project. The project still uses the
 * clone's third-party packages, through a link in the parent folder, since an offline machine cannot install them.
 */
describe('the installed packages, outside the clone,', () => {
  let directory = '';
  let caches = '';
  let environment: NodeJS.ProcessEnv = {};
  let pie = '';

  before(async () => {
    directory = mkdtempSync(path.join(os.tmpdir(), 'pie-out-'));
    symlinkSync(realpathSync(path.join(ROOT, 'node_modules')), path.join(directory, 'node_modules'));
    caches = path.join(directory, 'caches');
    const { PIE_URL: _url, PIE_API_KEY: _key, REDIS_URL: _redis, PIE_CONFIG: _config, ...rest } = process.env;
    environment = {
      ...rest,
      PATH: `${path.join(ROOT, 'node_modules/.bin')}${path.delimiter}${process.env.PATH ?? ''}`,
      // The runner of this test sets this variable. With it, the projects' test runners would act as parts of this runner.
      NODE_TEST_CONTEXT: undefined,
      PIE_HOME: path.join(directory, 'home'),
      PIE_PORT: String(await freePort()),
    };
    const tarballs = path.join(directory, 'tarballs');
    await ok('node', [path.join(ROOT, 'infra/package/main.ts'), tarballs], ROOT);
    await install(path.join(directory, 'user'), tarballs);
    pie = command(path.join(directory, 'user'));
  });
  after(() => rmSync(directory, { recursive: true, force: true, maxRetries: 10 }));

  it('contain no TypeScript for Node to run, no tests and no path of the clone', () => {
    const root = path.join(directory, 'user/node_modules/pie');
    const files = readdirSync(root, { recursive: true }).map(String);
    assert.deepEqual(
      files.filter((file) => /\.test\.ts$|(^|\/)(fixtures|testing)\//.test(file)),
      [],
    );
    const typescript = files.filter((file) => /(?<!\.d)\.ts$/.test(file));
    assert.deepEqual(
      typescript.filter(
        (file) => !/^(functions|gateway\/cli\/templates|node_modules|runtime\/build\/component\/prelude)\//.test(file),
      ),
      [],
    );
    const javascript = files.filter((file) => file.endsWith('.js'));
    assert.deepEqual(
      javascript.filter((file) => readFileSync(path.join(root, file), 'utf8').includes(ROOT)),
      [],
    );
  });

  it('keep credentials in the home directory of the user and name the file', async () => {
    const env = { ...environment, PIE_HOME: undefined, HOME: directory };
    const { code, stderr } = await run('node', [pie, 'list'], directory, env);
    assert.equal(code, 4, stderr);
    assert.ok(stderr.includes(path.join(directory, '.pie/credentials.json')), stderr);
  });

  it('report that benchmarks need the clone', async () => {
    const { code, stderr } = await run('node', [pie, 'bench', 'launch'], directory);
    assert.equal(code, 4, stderr);
    assert.match(stderr, /Benchmarks need the clone/);
  });

  for (const template of ['completion', 'chat', 'agent']) {
    const skip = template !== 'completion' && !process.env.PIE_TEST_ALL && 'set PIE_TEST_ALL';
    it(`create a project from the template ${template} whose types and test pass`, { skip }, async () => {
      const created = await ok(
        'node',
        [pie, 'new', template, '--template', template, '--json'],
        path.join(directory, 'user'),
      );
      const { folder, files } = JSON.parse(created) as { folder: string; files: string[] };
      for (const file of files) assert.ok(existsSync(path.join(folder, file)), file);
      const manifest = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8'));
      for (const reference of [manifest.dependencies['@pie/inferlet'], manifest.devDependencies.pie]) {
        assert.ok(existsSync(path.join(folder, String(reference).replace(/^file:/, ''))), reference);
      }
      await install(folder, path.join(folder, 'vendor'));
      await ok('node', [path.join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', folder], folder);
      const tested = await ok('npm', ['test'], folder);
      assert.match(tested, /pass [1-9][\s\S]*fail 0/);
    });
  }

  it('deploy the project and a bundled function to their own platform, and invoke both', async () => {
    const project = path.join(directory, 'user/completion');
    const projectPie = command(project);
    const bundled = path.join(directory, 'user/node_modules/pie/functions/text-completion');
    const input = JSON.stringify({ prompt: 'Once upon a time', maxTokens: 5, temperature: 0 });
    await whileServing(projectPie, async () => {
      assert.match(await ok('node', [projectPie, 'deploy'], project), /^completion@[0-9a-f]+ {2}new version/);
      assert.equal(
        await ok('node', [projectPie, 'invoke', 'completion', '--input', input], project),
        ', there was a little\n',
      );
      await ok('node', [projectPie, 'deploy', bundled], directory);
      // A long prompt goes to a worker thread. This thread must import packages through the link, too.
      const long = JSON.stringify({ prompt: 'Once upon a time '.repeat(16), maxTokens: 5, temperature: 0 });
      assert.match(await ok('node', [projectPie, 'invoke', 'text-completion', '--input', long], directory), /\w/);
      const { healthy, findings } = JSON.parse(await ok('node', [projectPie, 'doctor', '--json'], project));
      assert.ok(healthy, JSON.stringify(findings));
    });
    // The next start loads the code that this start compiled. Runtimes have a cache folder of their own.
    const compiled = readdirSync(path.join(caches, 'pie/compile/runtime'));
    assert.ok(
      compiled.some((name) => name.startsWith(process.version)),
      compiled.join(' '),
    );
  });

  /** Unpacks each tarball into the folder of its package in `node_modules`, as npm would. */
  async function install(folder: string, tarballs: string): Promise<void> {
    for (const [name, prefix] of [
      ['pie', /^pie-\d/],
      ['@pie/inferlet', /^pie-inferlet-\d/],
    ] as const) {
      const target = path.join(folder, 'node_modules', name);
      mkdirSync(target, { recursive: true });
      const file = readdirSync(tarballs).find((candidate) => prefix.test(candidate));
      assert.ok(file, `no tarball of ${name}`);
      await extract({ file: path.join(tarballs, file), cwd: target, strip: 1 });
    }
  }

  const command = (folder: string): string => path.join(folder, 'node_modules/pie/gateway/cli/bin.js');

  function run(program: string, args: string[], cwd: string, env = environment): Promise<ProgramResult> {
    return runProgram(program === 'node' ? process.execPath : program, args, { cwd, env });
  }

  /** Runs a program that must succeed and returns its standard output. */
  async function ok(program: string, args: string[], cwd: string): Promise<string> {
    const { code, stdout, stderr } = await run(program, args, cwd);
    assert.equal(code, 0, `${args.join(' ')}\n${stdout}\n${stderr}`);
    return stdout;
  }

  /** Runs `body` while `pie up` serves with caches of its own, then ends `pie up`. */
  async function whileServing(bin: string, body: () => Promise<void>): Promise<void> {
    const platform = spawn(process.execPath, [bin, 'up', '--no-functions', '--json'], {
      cwd: directory,
      env: {
        ...environment,
        NODE_COMPILE_CACHE: undefined,
        XDG_CACHE_HOME: caches,
        PIE_MODELS: defaultCacheDirectory(),
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = new Promise<number | null>((resolve) => platform.once('exit', resolve));
    try {
      await new Promise<void>((resolve, reject) => {
        const lines = readline.createInterface({ input: platform.stdout });
        lines.on('line', (line) => JSON.parse(line).kind === 'serving' && resolve());
        void ended.then((code) => reject(new Error(`the platform ended with ${code}`)));
      });
      await body();
    } finally {
      platform.kill('SIGTERM');
    }
    assert.equal(await ended, 0);
  }
});
