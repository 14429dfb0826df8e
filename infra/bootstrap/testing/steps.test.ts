import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ONLY_HERE } from '#test/harness/costs.ts';
import { type Step, stepsFor, TIERS } from './steps.js';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
/** True for files that are not the repository's own: packages, and projects that tests copy or generate. */
const isForeign = (file: string) => /(^|\/)(node_modules|fixtures|templates|dist)(\/|$)/.test(file);
/** The step, and all that run beside or after it in its lanes. */
const stepsFrom = (step: Step): Step[] => [
  step,
  ...[...(step.beside ?? []), ...(step.next ? [step.next] : [])].flatMap(stepsFrom),
];
const ALL_STEPS = [...TIERS.test, ...TIERS['test:ci']].flatMap(stepsFrom);
const filesMatching = (pattern: string): string[] => globSync(pattern, { cwd: ROOT, exclude: isForeign });

test('every test file is run by exactly one step, besides those that a step with variables repeats', () => {
  const runBy = new Map<string, string[]>(filesMatching('**/*.test.{ts,mts,cts,js,mjs,cjs}').map((file) => [file, []]));
  for (const { title, files = [], variables } of ALL_STEPS)
    for (const file of variables ? [] : new Set(files.flatMap(filesMatching)))
      runBy.set(file, [...(runBy.get(file) ?? []), title]);
  const wrong = [...runBy].filter(([, titles]) => titles.length !== 1);
  assert.deepEqual(wrong, []);
  assert.ok(runBy.size > 300, `${runBy.size} test files`);
});

test('tests that are the same for all backends also run on the emulated CUDA backend', () => {
  const BACKENDS = /import \{[^}]*\b(BACKENDS|withWorkbench)\b[^}]*\} from '[^']*\/testing\/(backends|workbench)\.ts'/;
  const wanted = filesMatching('**/*.test.ts').filter((file) =>
    BACKENDS.test(readFileSync(path.join(ROOT, file), 'utf8')),
  );
  const repeated = ALL_STEPS.filter(({ variables }) => variables?.PIE_TEST_CUDA).flatMap(({ files = [] }) => files);
  assert.deepEqual(repeated.flatMap(filesMatching).sort(), wanted.sort());
});

test('the arguments choose a tier, both, or single tests', () => {
  assert.deepEqual(stepsFor([]), TIERS.test);
  assert.deepEqual(stepsFor(['--ci']), TIERS['test:ci']);
  assert.deepEqual(stepsFor(['--all']), [...TIERS.test, ...TIERS['test:ci']]);
  for (const tier of [[], ['--ci'], ['--all']])
    assert.deepEqual(
      stepsFor([...tier, '--test-only', 'a.test.ts']).map(({ files }) => files),
      [['--test-only', 'a.test.ts']],
    );
});

test('the described costs are those of files that exist', () => {
  assert.deepEqual(
    Object.keys(ONLY_HERE).filter((file) => !existsSync(path.join(ROOT, file))),
    [],
  );
});

test('package.json has the command of each tier, and the README and .ci/run name all of them', () => {
  const { scripts } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8'));
  const lines = (file: string) => readFileSync(path.join(ROOT, file), 'utf8').split('\n');
  for (const tier of Object.keys(TIERS)) {
    const args = String(scripts[tier]).replace(/^node infra\/bootstrap\/testing\/test\.js ?/, '');
    assert.deepEqual(stepsFor(args.split(' ').filter(Boolean)), TIERS[tier as keyof typeof TIERS]);
    const command = tier === 'test' ? 'npm test' : `npm run ${tier}`;
    assert.ok(lines('.ci/run').includes(command), `.ci/run: ${command}`);
    assert.ok(
      lines('README.md').some((line) => line.startsWith(`${command} `)),
      `README.md: ${command}`,
    );
  }
});

/** The patterns that result from replacing each `@(a|b)` of a pattern by one of its alternatives. */
function alternatives(pattern: string): string[] {
  const [whole, list] = /@\(([^)]*)\)/.exec(pattern) ?? [];
  if (whole === undefined || list === undefined) return [pattern];
  return list.split('|').flatMap((one) => alternatives(pattern.replace(whole, one)));
}

test('every pattern of a step matches a file, and so does each of its alternatives', () => {
  for (const { title, files = [] } of ALL_STEPS)
    for (const pattern of files.flatMap(alternatives))
      assert.notDeepEqual(filesMatching(pattern), [], `${title}: ${pattern}`);
});

/**
 * The limits of each step with tests, in minutes: of the step and of one file. The steps read `PIE_TEST_ALL` when they are loaded, so a new process
 * loads them.
 */
function limitsOf(testAll: string): (readonly [title: string, minutes: number, fileMinutes: number])[] {
  const program = `import { TIERS } from ${JSON.stringify(new URL('./steps.js', import.meta.url))}; console.log(JSON.stringify(Object.values(TIERS).flat()))`;
  const env = { ...process.env, PIE_TEST_ALL: testAll };
  const steps: Step[] = JSON.parse(
    execFileSync(process.execPath, ['--input-type=module', '--eval', program], { env, encoding: 'utf8' }),
  );
  return steps.flatMap(stepsFrom).flatMap(({ title, minutes, args, files }) => {
    const limit = args.find((arg) => arg.startsWith('--test-timeout='))?.split('=')[1];
    return files ? [[title, minutes, Number(limit) / 60_000] as const] : [];
  });
}

test('each step with tests and each of its files has a limit, ten times as long for npm run test:all', () => {
  const usual = limitsOf('');
  assert.equal(usual.length, ALL_STEPS.filter(({ files }) => files).length);
  for (const [title, minutes, file] of usual) assert.ok(minutes <= 50 && file > 0 && file <= 8, title);
  assert.deepEqual(
    limitsOf('1'),
    usual.map(([title, minutes, file]) => [title, 10 * minutes, 10 * file]),
  );
});

test('every step with tests, and a run of chosen tests, reports skipped tests', () => {
  const runs = [...ALL_STEPS.filter(({ files }) => files), ...stepsFor(['one.test.ts'])];
  for (const { title, args } of runs) {
    assert.ok(args.includes('--test-reporter=./infra/bootstrap/testing/report.ts'), title);
    assert.ok(args.includes('--test') && !args.some((arg) => /^--test-(skip|name)-pattern/.test(arg)), title);
  }
});

test('test files that need a shared platform are only in the four steps that have one', () => {
  const needsSharedPlatform = (file: string) =>
    /harness\/functions\.ts'/.test(readFileSync(path.join(ROOT, file), 'utf8'));
  const steps = ALL_STEPS.filter(({ files = [] }) => files.flatMap(filesMatching).some(needsSharedPlatform));
  assert.deepEqual(
    steps.map(({ title }) => title),
    [
      'Tests of the main job, of clients, the dashboard and a hostile guest, on one platform',
      'Tests of the functions, A to E, of the guest library and of old components',
      'Tests of the functions, F to N, and tests that share their platform',
      'Tests of the functions, O to Z, and of recipes',
    ],
  );
});
