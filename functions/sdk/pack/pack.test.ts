import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { build as bundle } from 'esbuild';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const ENVIRONMENT = { ...process.env, PATH: `${ROOT}node_modules/.bin${path.delimiter}${process.env.PATH ?? ''}` };

const HELLO = `import { Context, defineInferlet, type Piece, send } from '@pie/inferlet';
import { fused } from '@pie/inferlet/raw';
import { workflow } from '@pie/inferlet/workflow';

const steps = workflow('steps', (g, { text }: { text: string }) => ({ next: g.generate(text, { maxTokens: 2 }) }));

export const run = defineInferlet(async ({ start }: { start: string }) => {
  using ctx = new Context();
  const pieces: Piece[] = [];
  for await (const piece of ctx.fill(start).generate({ maxTokens: 8 }).pieces()) {
    pieces.push(piece);
    await send(piece.text);
  }
  return { pieces, runs: typeof fused.Run, ...(await steps.run({ text: 'a' })) };
});
`;

const MAX_SCRIPT_BYTES = 100_000;

describe('the packed library', () => {
  let directory = '';
  let project = '';

  before(async () => {
    directory = mkdtempSync(path.join(os.tmpdir(), 'pie-pack-'));
    // Works on a copy that shares the installed packages, because other tests may read the clone meanwhile.
    const copy = path.join(directory, 'clone');
    mkdirSync(path.join(copy, 'functions'), { recursive: true });
    cpSync(path.join(ROOT, 'functions/sdk'), path.join(copy, 'functions/sdk'), { recursive: true });
    cpSync(path.join(ROOT, 'wit'), path.join(copy, 'wit'), { recursive: true });
    cpSync(path.join(ROOT, 'tsconfig.json'), path.join(copy, 'tsconfig.json'));
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(copy, 'node_modules'));
    const sdk = path.join(copy, 'functions/sdk');
    await run('npm', ['pack', '--pack-destination', directory], { cwd: sdk, env: ENVIRONMENT });

    project = path.join(directory, 'project');
    mkdirSync(project);
    writeFileSync(path.join(project, 'package.json'), '{"private":true,"type":"module"}');
    writeFileSync(path.join(project, 'hello.ts'), HELLO);
    const tarball = readdirSync(directory).find((file) => file.endsWith('.tgz')) ?? 'no tarball';
    const install = ['install', '--offline', '--no-audit', '--no-fund', path.join(directory, tarball)];
    await run('npm', install, { cwd: project, env: ENVIRONMENT });
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  it('contains JavaScript, types and the WIT, and no tests', () => {
    const files = readdirSync(path.join(project, 'node_modules/@pie/inferlet'), { recursive: true }).map(String);
    for (const file of [
      'dist/index.js',
      'dist/index.d.ts',
      'dist/raw.js',
      'dist/workflow/index.js',
      'dist/guest.d.ts',
      'dist/wit/world.wit',
    ]) {
      assert.ok(files.includes(file), file);
    }
    assert.deepEqual(
      files.filter((file) => file.includes('.test.') || file.startsWith('pack/')),
      [],
    );
  });

  it('has documents whose links lead to packed files', () => {
    const library = path.join(project, 'node_modules/@pie/inferlet');
    const documents = readdirSync(library, { recursive: true })
      .map(String)
      .filter((file) => file.endsWith('.md'));
    assert.ok(documents.includes('README.md'), String(documents));
    const [broken, led]: [string[], string[]] = [[], []];
    for (const document of documents) {
      // Code may contain brackets that look like links.
      const prose = readFileSync(path.join(library, document), 'utf8')
        .replaceAll(/^```.*?^```$/gms, '')
        .replaceAll(/`[^`\n]*`/g, '');
      for (const [, target = ''] of prose.matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)) {
        if (/^[a-z]+:/.test(target)) continue;
        const file = path.join(path.dirname(document), target);
        // A link that leaves the package leads to a file only by chance.
        const isPacked = !file.startsWith('..') && !path.isAbsolute(target) && existsSync(path.join(library, file));
        (isPacked ? led : broken).push(`${document}: ${target}`);
      }
    }
    assert.deepEqual(broken, []);
    assert.ok(led.length > 0, 'the test finds the links');
  });

  it('gives bundlers other than pie the compiled files', async () => {
    const { metafile } = await bundle({
      entryPoints: [path.join(project, 'hello.ts')],
      bundle: true,
      write: false,
      metafile: true,
      format: 'esm',
      external: ['pie:*'],
      absWorkingDir: project,
    });
    const used = Object.keys(metafile.inputs).filter((file) => file.includes('node_modules'));
    assert.ok(
      used.length > 0 && used.every((file) => file.startsWith('node_modules/@pie/inferlet/dist/')),
      String(used),
    );
  });

  it('has types that compile outside the clone', async () => {
    const compilerOptions = {
      target: 'es2023',
      module: 'nodenext',
      lib: ['es2023', 'esnext.disposable'],
      types: [],
      strict: true,
      noEmit: true,
    };
    writeFileSync(path.join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['hello.ts'] }));
    await run(process.execPath, [path.join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', project]);
  });

  it('builds an inferlet outside the clone', async () => {
    const out = path.join(project, 'hello.pie');
    const build = [path.join(ROOT, 'runtime/build/main.ts'), 'component', path.join(project, 'hello.ts'), out];
    await run(process.execPath, build, { cwd: project });
    const script = readFileSync(out);
    assert.equal(script.subarray(0, 4).toString('latin1'), '\0pie');
    assert.ok(script.length < MAX_SCRIPT_BYTES, `${script.length} bytes`);
  });
});
