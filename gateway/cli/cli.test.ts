import assert from 'node:assert/strict';
import { type ChildProcess, execFile, execFileSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { allCommands, commandsFor } from './commands/index.ts';
import { EXIT, Failure } from './failure.ts';
import { wholeNumber } from './format.ts';
import { createProject } from './project/create.ts';

const BIN = fileURLToPath(new URL('bin.js', import.meta.url));

interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

let directory = '';
before(() => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'pie-cli-'));
  mkdirSync(path.join(directory, 'taken/something'), { recursive: true });
  writeFileSync(path.join(directory, 'file'), '');
});
after(() => rmSync(directory, { recursive: true, force: true }));

/** Runs the real command, by default with the home of this file's tests. */
function pie(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  bin = BIN,
  watch: (child: ChildProcess) => void = () => undefined,
): Promise<Result> {
  const { PIE_URL: _url, PIE_API_KEY: _key, ...rest } = process.env;
  const options = {
    cwd: directory,
    timeout: 240_000,
    env: { ...rest, PIE_HOME: path.join(directory, 'home'), ...env },
  };
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [bin, ...args], options, (_, stdout, stderr) =>
      resolve({ code: child.exitCode ?? -1, stdout, stderr }),
    );
    watch(child);
  });
}

/** No process listens on this port. */
const NO_LISTENER = 'http://127.0.0.1:9';

describe('the pie command', () => {
  const misuses: readonly [string, readonly string[], RegExp][] = [
    ['a command line without a command', [], /No command was given/],
    ['an unknown command', ['deplyo'], /Unknown command 'deplyo'[\s\S]*Did you mean deploy\?/],
    // No line may repeat the secret.
    ["a secret's value on the command line", ['secrets', 'set', 'A', 'hush'], /^(?![\s\S]*hush)[\s\S]*got 2\.\n/],
    ['a missing argument', ['invoke'], /Missing required argument 'function'[\s\S]*pie invoke --help/],
    [
      'an unknown command of a group',
      ['schedule', 'crate'],
      /`pie schedule` has no such command\.[\s\S]*list, create, resume, remove/,
    ],
    [
      'a key of another alphabet',
      ['invoke', 'x', '--concurrency-key', '日本'],
      /--concurrency-key[\s\S]*visible ASCII/,
    ],
    ['a line break in a key', ['invoke', 'x', '--session-affinity', 'a\nb'], /--session-affinity[\s\S]*visible ASCII/],
    ['a host of another alphabet', ['invoke', 'x', '--webhook', 'https://日本.jp'], /--webhook[\s\S]*xn--/],
    ['an unknown option', ['invoke', 'x', '--inptu', '{}'], /Unknown option '--inptu'/],
    ['a value out of the choices', ['logs', 'x', '--level', 'loud'], /Allowed choices are debug, info, warn, error/],
    ['an input that is not JSON', ['invoke', 'x', '--input', '{bad'], /not JSON[\s\S]*malformed-json/],
    ['an answer that is not JSON', ['answer', 'inv_1', 'yes'], /answer is not JSON[\s\S]*pie answer inv_1 '/],
    ['an input file that is not there', ['invoke', 'x', '--input', '@none.json'], /none\.json cannot be read/],
    ['a source that is not there', ['deploy', 'none.ts'], /none\.ts does not exist/],
    ['standard input as both input and messages', ['invoke', 'x', '--interactive', '--input', '-'], /cannot be both/],
    ['a name that no function can have', ['new', 'Hello'], /"Hello" is not a valid function name[\s\S]*lower-case/],
    ['a project folder that is a file', ['new', 'file'], /file already exists and is not a folder/],
    ['a folder that is not empty', ['new', 'taken'], /taken already exists and is not empty/],
    ['an unknown template', ['new', 'x', '--template', 'poem'], /Allowed choices are completion, chat, agent/],
    ['a missing source of `pie dev`', ['dev', 'none.ts'], /none\.ts does not exist/],
    [
      'an unknown option of `pie up`',
      ['up', '--port', '9000'],
      /^error: Unknown option '--port'[\s\S]*PIE_PORT \(8787\)/,
    ],
    ['an unknown shell', ['completion', 'tcsh'], /no completion for "tcsh"/],
    [
      'both a file and JSON for standard output',
      ['files', 'get', 'inv_1', 'a.txt', '-o', '-', '--json'],
      /both the file and JSON/,
    ],
  ];
  for (const [name, args, expected] of misuses) {
    it(`refuses ${name} with an exit code and advice`, async () => {
      const { code, stdout, stderr } = await pie(args);
      assert.equal(code, EXIT.usage, stderr);
      assert.match(stderr, expected);
      assert.equal(stdout, '');
    });
  }

  it('shows commands and exit codes in the help, and examples in the help of a command', async () => {
    const { code, stdout } = await pie(['--help']);
    assert.equal(code, EXIT.ok);
    for (const { name } of await allCommands()) assert.match(stdout, new RegExp(`^  ${name.split(' ')[0]}\\b`, 'm'));
    for (const code of Object.values(EXIT)) assert.match(stdout, new RegExp(`Exit codes[^]*\\b${code} `));
    assert.match((await pie(['invoke', '--help'])).stdout, /Examples:[\s\S]*pie invoke text-completion/);
    assert.match((await pie(['models', 'pull', '--help'])).stdout, /stories15m/);
    const { stdout: upHelp } = await pie(['up', '--help']);
    // docs/systemd.md and docs/containers.md refer to this list.
    for (const variable of ['HOME', 'HOST', 'MACHINE', 'ADDRESS', 'ROLES', 'MASTER_KEY'])
      assert.match(upHelp, new RegExp(`\\bPIE_${variable} \\(`));
  });

  it('reads whole numbers in digits only', () => {
    const parse = wholeNumber(0, 200);
    assert.deepEqual(['0', '16', '200'].map(parse), [0, 16, 200]);
    for (const wrong of ['', ' ', '1e2', '0x10', '1.0', '-1', '201']) assert.throws(() => parse(wrong), Failure, wrong);
  });

  it('prints no tabs', async () => {
    for (const args of [['--help'], ['deploy', '--help'], ['nope']]) {
      const { stdout, stderr } = await pie(args);
      assert.doesNotMatch(stdout + stderr, /\t/);
    }
  });

  it('writes a completion script that the shell accepts', async () => {
    const { code, stdout } = await pie(['completion', 'bash']);
    assert.equal(code, EXIT.ok);
    const file = path.join(directory, 'completion.bash');
    writeFileSync(file, stdout);
    const script = `source ${file}; COMP_WORDS=(pie models p); COMP_CWORD=2; _pie; echo "\${COMPREPLY[@]}"; COMP_WORDS=(pie dep); COMP_CWORD=1; _pie; echo "\${COMPREPLY[@]}"`;
    assert.equal(execFileSync('bash', ['-c', script], { encoding: 'utf8' }), 'pull\ndeploy\n');
    const { stdout: fish } = await pie(['completion', 'fish']);
    assert.equal(fish.match(/^complete -c pie -n __fish_use_subcommand -a models$/gm)?.length, 1);
    assert.match(fish, /^complete -c pie -n '__fish_seen_subcommand_from models' -a pull -d 'Download models/m);
    assert.match(fish, /^complete -c pie -n '__fish_seen_subcommand_from invoke' -l input$/m);
    const flag =
      /^complete -c pie -n '__fish_seen_subcommand_from quota; and __fish_seen_subcommand_from list' -l tenant$/m;
    assert.match(fish, flag);
  });
});

describe('pie new', () => {
  it('leaves no files behind after Ctrl-C', async () => {
    const aside = path.join(directory, 'aside');
    mkdirSync(aside);
    const { code } = await pie(['new', 'hello'], { TMPDIR: aside }, BIN, (child) => {
      const poll = setInterval(() => {
        // Packing has begun once there are three nested folders: that of `pie new`, that of the packing program, that of the first package.
        if (readdirSync(aside, { recursive: true }).length < 3) return;
        clearInterval(poll);
        child.kill('SIGINT');
      }, 20);
      child.once('exit', () => clearInterval(poll));
    });
    assert.equal(code, EXIT.interrupted);
    assert.deepEqual(readdirSync(aside), []);
    assert.equal(existsSync(path.join(directory, 'hello')), false);
  });

  it('runs no program after an interrupt', async () => {
    const creating = createProject(path.join(directory, 'late'), 'hello', 'completion', AbortSignal.abort());
    const ended = creating.catch((error: Error) => error.name);
    // A program would run for longer than one turn of the event loop.
    assert.equal(await Promise.race([ended, setImmediate('a program runs')]), 'AbortError');
    await ended;
  });

  it('keeps files of other programs when it stops', async () => {
    for (const isNew of [false, true]) {
      const folder = path.join(directory, isNew ? 'fresh' : 'empty');
      if (!isNew) mkdirSync(folder);
      const stopping = new AbortController();
      const creating = createProject(folder, 'hello', 'completion', stopping.signal);
      writeFileSync(path.join(folder, 'notes.txt'), 'by another program');
      stopping.abort();
      await assert.rejects(creating, { name: 'AbortError' });
      assert.deepEqual(readdirSync(folder), ['notes.txt']);
    }
  });
});

describe('reading a function source', () => {
  it('names the fault of a folder or its manifest', async () => {
    const folder = path.join(directory, 'broken');
    mkdirSync(folder, { recursive: true });
    assert.match((await pie(['deploy', 'broken'])).stderr, /no entry file/);
    writeFileSync(path.join(folder, 'pie.json'), '{"name":');
    assert.match((await pie(['deploy', 'broken'])).stderr, /not a manifest[\s\S]*invalid-manifest/);
    writeFileSync(path.join(folder, 'pie.json'), '{"name":"broken","main":"other.ts"}');
    assert.match((await pie(['deploy', 'broken'])).stderr, /other\.ts does not exist[\s\S]*"main"/);
    writeFileSync(path.join(directory, 'notes.txt'), 'text');
    assert.match((await pie(['deploy', 'notes.txt'])).stderr, /cannot be deployed/);
  });
});

describe('pie graph', () => {
  it('draws a workflow for the example input of the manifest, and refuses a source without a workflow', async () => {
    const functions = fileURLToPath(new URL('../../functions', import.meta.url));
    const { code, stdout } = await pie(['graph', path.join(functions, 'document-qa'), '--out', 'drawn.svg']);
    assert.equal(code, EXIT.ok);
    assert.match(stdout, /^document-qa: \d+ nodes\n[\s\S]*\nafter the passes\n\ndocument-qa: [\s\S]*\ndrawn\.svg\n$/);
    assert.ok(existsSync(path.join(directory, 'drawn.svg')));
    const refused = await pie(['graph', path.join(functions, 'rag')]);
    assert.equal(refused.code, EXIT.refused);
    assert.match(refused.stderr, /The source exports no workflow/);
  });
});

describe('pie build', () => {
  const source = (said: string) => `import { choice, program } from '@pie/inferlet/workflow';
const app = program('judged', async (session, { essay }: { essay: string }) => {
  const grade = choice([' A', ' B']);
  session.state().add\`\${essay} \${grade}\`;
  return { said: ${said} };
});
export const run = async () => app.name;
`;

  it('says which programs will be interpreted, and refuses a value that may not exist yet in a condition', async () => {
    writeFileSync(path.join(directory, 'judged.ts'), source('await session.read(grade)'));
    const built = await pie(['build', 'judged.ts']);
    assert.equal(built.code, EXIT.ok, built.stderr);
    assert.match(built.stderr, /note: The program "judged" cannot be traced .* interpreted\..* at judged\.ts:5:32\./);
    writeFileSync(path.join(directory, 'judged.ts'), source('grade ? 1 : 2'));
    const refused = await pie(['build', 'judged.ts']);
    assert.equal(refused.code, EXIT.refused);
    assert.match(refused.stderr, /judged\.ts:5:18: This condition looks at a value that may not exist yet/);
    assert.match(refused.stderr, /state\.when/);
  });

  it('writes a script named after the function', async () => {
    writeFileSync(path.join(directory, 'Plain One.ts'), 'export const run = (): number => 1;');
    const { code, stdout, stderr } = await pie(['build', 'Plain One.ts', '--json']);
    assert.equal(code, EXIT.ok, stderr);
    const { file, bytes } = JSON.parse(stdout) as { file: string; bytes: number };
    assert.equal(file, path.join(realpathSync(directory), 'plain-one.pie'));
    const script = readFileSync(file);
    assert.deepEqual([script.subarray(0, 4).toString('latin1'), script.length], ['\0pie', bytes]);
    assert.match((await pie(['build', 'plain-one.pie'])).stderr, /is a script already[\s\S]*pie deploy plain-one\.pie/);
  });

  it('copies a component, and tells its path and size', async () => {
    writeFileSync(path.join(directory, 'made.wasm'), 'component');
    const { code, stdout } = await pie(['build', 'made.wasm', '--out', 'copy.wasm', '--json']);
    assert.equal(code, EXIT.ok);
    const file = path.join(realpathSync(directory), 'copy.wasm');
    assert.deepEqual(JSON.parse(stdout), { file, bytes: 9, buildMs: null, notes: [] });
    assert.equal(readFileSync(file, 'utf8'), 'component');
  });
});

describe('without a running platform', () => {
  it('the command exits with 4 and explains how to get credentials', async () => {
    const { code, stderr } = await pie(['list']);
    assert.equal(code, EXIT.unreachable);
    assert.match(stderr, /No address and API key[\s\S]*npm start/);
  });

  it('the command exits with 4 when the connection is refused', async () => {
    const { code, stderr } = await pie(['list'], {
      PIE_URL: NO_LISTENER,
      PIE_API_KEY: 'pie_x',
    });
    assert.equal(code, EXIT.unreachable);
    assert.match(stderr, /Nothing answers at[\s\S]*refused[\s\S]*pie doctor/);
  });

  it('--json reports the error as JSON', async () => {
    const { code, stdout, stderr } = await pie(['list', '--json']);
    assert.equal(code, EXIT.unreachable);
    assert.equal(stdout, '');
    const { error } = JSON.parse(stderr) as { error: { code: string; hint: string } };
    assert.equal(error.code, 'no-credentials');
    assert.match(error.hint, /npm start/);
  });

  it('the command reads credentials.json from its home and reports a broken file', async () => {
    const home = path.join(directory, 'other');
    mkdirSync(home);
    const file = path.join(home, 'credentials.json');
    writeFileSync(file, JSON.stringify({ url: NO_LISTENER, apiKey: 'pie_x' }), {
      mode: 0o600,
    });
    assert.match((await pie(['list'], { PIE_HOME: home })).stderr, /Nothing answers at/);
    const doctor = await pie(['doctor'], { PIE_HOME: home });
    assert.equal(doctor.code, EXIT.unhealthy);
    assert.match(doctor.stdout, /FAIL {2}gateway: nothing answers/);
    const { code, stdout } = await pie(['doctor'], { PIE_PORT: 'abc' });
    assert.equal(code, EXIT.unhealthy);
    assert.match(stdout, /FAIL {2}port: .*\n +PIE_PORT: .*number.*\n +what to do: Correct the setting that it names/);
    const misnamed = await pie(['doctor'], { PIE_URL: 'localhost:8787', PIE_API_KEY: 'pie_x' });
    assert.equal(misnamed.code, EXIT.unhealthy);
    assert.match(misnamed.stdout, /FAIL {2}gateway: "localhost:8787" \(from PIE_URL\) is not a valid platform address/);
    writeFileSync(file, '{}');
    assert.match((await pie(['list'], { PIE_HOME: home })).stderr, /cannot be read[\s\S]*"url" and "apiKey"/);
    assert.match(
      (await pie(['doctor'], { PIE_HOME: home })).stdout,
      /FAIL {2}credentials: .* cannot be read\. \(it has no "url" and "apiKey"\)\n +what to do: Remove it/,
    );
  });

  it('the doctor warns when this machine has no model, although known models can be pulled', async () => {
    const { stdout } = await pie(['doctor'], { PIE_MODELS: path.join(directory, 'no-models') });
    assert.match(stdout, /^warn {2}models: none on this machine yet$/m);
  });
});

const namesFor = async (argv: readonly string[]) => (await commandsFor(argv)).map(({ name }) => name);

describe('bin.js', () => {
  /** Makes the command print the URL of each module that it loads. */
  const hook = `import { registerHooks } from 'node:module';
      registerHooks({ load: (url, context, next) => (process._rawDebug(url), next(url, context)) });`;
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(hook)}`;

  it('loads no package but the parser before a command needs one', async () => {
    const { code, stderr } = await pie(['--version'], { NODE_OPTIONS });
    assert.equal(code, EXIT.ok);
    const packages = new Set(Array.from(stderr.matchAll(/node_modules\/((@[^/]+\/)?[^/]+)/g), ([, name]) => name));
    assert.deepEqual([...packages], ['commander']);
  });

  it('loads only the module of the commands that begin with the given first word', async () => {
    const { stderr } = await pie(['list'], { NODE_OPTIONS });
    const modules = Array.from(stderr.matchAll(/gateway\/cli\/commands\/(.+)\.ts$/gm), ([, name]) => name);
    assert.deepEqual(modules, ['index', 'functions']);
    const all = await allCommands();
    for (const { name } of all) {
      const [first = ''] = name.split(' ');
      const expectedNames = all
        .filter((command) => command.name.split(' ')[0] === first)
        .map((command) => command.name);
      assert.deepEqual(await namesFor([first, '--help']), expectedNames);
    }
    for (const argv of [[], ['--help'], ['help', 'list'], ['deplyo']])
      assert.equal((await namesFor(argv)).length, all.length);
  });

  it('exits with 4 and says what to do when no packages are installed', async () => {
    const folder = path.join(directory, 'clone/gateway/cli');
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(directory, 'clone/package.json'), '{"type":"module"}');
    const bin = path.join(folder, 'bin.js');
    copyFileSync(BIN, bin);
    const { code, stderr } = await pie(['list'], {}, bin);
    assert.equal(code, EXIT.unreachable);
    assert.match(stderr, /not installed yet[\s\S]*npm start/);
  });
});
